// main.js - the frame around the pages: signing in, where we are, the keyboard.

import { h, replace, toast } from './dom.js';
import { login, logout, session } from './server.js';
import { Overview } from './overview.js';
import { Keys } from './keys.js';
import { Key } from './key.js';
import { Outbox } from './outbox.js';
import { Activity } from './activity.js';
import { help } from './dialogs.js';

const PAGES = [
    { path: 'overview', title: 'Overview', key: 'o', make: () => new Overview() },
    { path: 'keys', title: 'Keys', key: 'k', make: (query) => new Keys(query) },
    { path: 'unknowns', title: 'Unknowns', key: 'u', make: (query) => new Keys(query, { title: 'Unknowns', fixed: { states: 'unknown' }, lead: h('p', { class: 'lead' }, 'Each of these may have happened. Find out, then say so on its page: the caller’s next try is answered by what you say.') }) },
    { path: 'outbox', title: 'Outbox', key: 'x', make: (query) => new Outbox(query) },
    { path: 'activity', title: 'Activity', key: 'a', make: () => new Activity() },
];
const DETAILS = { key: { make: (query) => new Key(query), under: 'keys' } };
const SHORTCUTS = [['g o', 'Overview'], ['g k', 'Keys'], ['g u', 'Unknowns'], ['g x', 'Outbox'], ['g a', 'Activity'], ['/', 'Search'], ['j k', 'Next row, row before'], ['Enter', 'Open'], ['n', 'Next page'], ['r', 'Load again'], ['Esc', 'Close, or leave the field'], ['?', 'This help']];

const app = document.getElementById('app');
let page = null;
let main = null;

/** The parameters stay encoded: keys are bytes, and not all of them are UTF-8. */
function where() {
    const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
    const pairs = query.split('&').filter((p) => p !== '').map((p) => [p.split('=')[0], p.split('=').slice(1).join('=')]);
    return { path: path === '' ? 'overview' : path, query: new Map(pairs) };
}

function frame() {
    main = h('main', { id: 'main', tabindex: -1 });
    const links = PAGES.map((p) => h('a', { href: `#/${p.path}`, 'data-path': p.path }, p.title));
    const bar = h('header', { class: 'bar' }, h('a', { class: 'skip', href: '#main', onclick: (e) => {
        e.preventDefault();
        main.focus();
    } }, 'Skip to content'), h('a', { class: 'brand', href: '#/overview' }, h('img', { src: '/icon.svg', alt: '', width: 22, height: 22 }), 'Once'), h('nav', { 'aria-label': 'Pages' }, links),
    h('div', { class: 'who' }, h('button', { type: 'button', class: 'quiet', title: 'Keyboard shortcuts', 'aria-label': 'Keyboard shortcuts', onclick: () => help(SHORTCUTS) }, '?'), h('span', { class: 'name' }, session.name), h('button', { type: 'button', class: 'quiet', onclick: logout }, 'Sign out')));
    replace(app, bar, main);
}

/** `moved`: to another address. */
async function show(moved = false) {
    if (session.csrf === null) {
        signIn();
        return;
    }
    if (location.hash.startsWith('#token=')) history.replaceState(null, '', location.pathname);
    if (main === null) frame();
    const { path, query } = where();
    const chosen = PAGES.find((p) => p.path === path) ?? DETAILS[path] ?? PAGES[0];
    page?.stop();
    const shownPage = (page = chosen.make(query));
    document.title = `${page.title} · Once console`;
    for (const link of document.querySelectorAll('header.bar nav a')) {
        if (link.dataset.path === (chosen.under ?? chosen.path)) link.setAttribute('aria-current', 'page');
        else link.removeAttribute('aria-current');
    }
    const focused = document.activeElement?.matches('.filter input') ? document.activeElement : null;
    replace(main, page.element);
    // Who goes through the conditions of a search with the keyboard stays where they are.
    if (focused !== null) [...page.element.querySelectorAll('.filter input')].find((i) => i.name === focused.name && (i.type !== 'checkbox' || i.value === focused.value))?.focus();
    else if (moved) main.focus({ preventScroll: true });
    try {
        await page.start();
    } catch (problem) {
        if (page === shownPage && problem.status !== 401) replace(main, h('div', { class: 'notice bad', role: 'alert' }, h('b', {}, 'This did not work. '), problem.message, ' ', h('button', { type: 'button', onclick: () => show() }, 'Try again')));
    }
    if (page === shownPage) main.setAttribute('data-ready', chosen.path ?? path);
}

function signIn() {
    page?.stop();
    page = null;
    main = null;
    document.title = 'Sign in · Once console';
    const given = /^#token=([!-~]+)$/.exec(location.hash)?.[1];
    // The token must not stay in the address, which browsers remember.
    if (given !== undefined) history.replaceState(null, '', location.pathname);
    const error = h('p', { class: 'notice bad', role: 'alert', hidden: true });
    const token = h('input', { name: 'token', type: 'password', required: true, autocomplete: 'off', spellcheck: 'false', value: given === undefined ? '' : decodeURIComponent(given), placeholder: 'from the daemon’s log, or your token file' });
    const name = h('input', { name: 'name', required: true, maxlength: 64, autocomplete: 'username', placeholder: 'e.g. ann' });
    const form = h('form', { class: 'panel sign-in', onsubmit: async (event) => {
        event.preventDefault();
        error.hidden = true;
        try {
            await login(token.value, name.value.trim());
            await show();
        } catch (problem) {
            error.textContent = problem.message;
            error.hidden = false;
            token.select();
        }
    } }, h('img', { src: '/icon.svg', alt: '', width: 40, height: 40 }), h('h1', {}, 'Once console'), h('label', { class: 'field wide' }, 'Token', token), h('label', { class: 'field wide' }, 'Your name', name, h('small', {}, 'Goes into the audit trail, beside what you do.')), error, h('button', { class: 'primary' }, 'Sign in'));
    replace(app, h('main', { class: 'door', 'data-ready': 'sign-in' }, form));
    (given === undefined ? token : name).focus();
}

// ---------------------------------------------------------------- the keyboard

let pending = null;

function go(event) {
    const target = PAGES.find((p) => p.key === event.key);
    pending = null;
    if (target === undefined) return;
    event.preventDefault();
    location.hash = `#/${target.path}`;
}

document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]') !== null || session.csrf === null) return;
    const typing = event.target.matches('input:not([type=checkbox]), textarea, select');
    if (typing) {
        if (event.key === 'Escape') event.target.blur();
        return;
    }
    if (pending !== null && Date.now() - pending < 1500) {
        go(event);
        return;
    }
    const act = {
        g: () => (pending = Date.now()),
        '/': () => page?.search?.focus(),
        '?': () => help(SHORTCUTS),
        j: () => page?.move?.(1),
        k: () => page?.move?.(-1),
        n: () => document.querySelector('a[rel=next]')?.click(),
        r: () => show(),
    }[event.key];
    if (act === undefined) return;
    event.preventDefault();
    act();
});

window.addEventListener('hashchange', () => {
    replace(document.getElementById('toasts'));
    scrollTo(0, 0);
    show(true);
});
window.addEventListener('signed-out', () => {
    if (main !== null) toast('You are signed out', 'bad');
    signIn();
});
show();
