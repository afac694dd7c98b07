// dom.js - elements from code. Text becomes text nodes, never markup: what is stored may be anything.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, props, children) {
    for (const [name, value] of Object.entries(props ?? {})) {
        if (value === undefined || value === null || value === false) continue;
        if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
        else if (name === 'value' || name === 'checked' || name === 'disabled') element[name] = value;
        else element.setAttribute(name, value === true ? '' : String(value));
    }
    for (const child of children.flat(Infinity)) {
        if (child === undefined || child === null || child === false) continue;
        element.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return element;
}

/** An HTML element: h('p', { class: 'note' }, 'text', other). Names that begin with "on" are listeners. */
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
/** An SVG element, the same way. */
export const svg = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

export const replace = (element, ...children) => element.replaceChildren(...children.flat(Infinity).filter((child) => child));

/** A short message that goes away by itself; errors stay longer. */
export function toast(text, kind = 'good') {
    const note = h('div', { class: `toast ${kind}` }, text);
    document.getElementById('toasts').append(note);
    setTimeout(() => note.remove(), kind === 'bad' ? 9000 : 4000);
}

/** What is shown where there is nothing: a title and what to do about it. */
export const empty = (title, ...more) => h('div', { class: 'empty' }, h('h3', {}, title), ...more.map((text) => (text instanceof Node ? text : h('p', {}, text))));
