// bytes.js - stored bytes: as they came from the server, in addresses, and for people to see.
//
// Keys, bodies and reasons may hold anything: control characters, marks that turn the direction of
// text around, bytes that are no UTF-8. What cannot be seen is shown as a marked escape, so that no
// two keys look alike because of something invisible, and nothing rearranges the page.

/** The bytes of member `name`: text, or base64. */
export function bytesOf(object, name) {
    const text = object[name];
    if (typeof text === 'string') return new TextEncoder().encode(text);
    const base64 = object[`${name}_base64`];
    return typeof base64 === 'string' ? Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)) : new Uint8Array();
}

/** The same as members of what is sent. */
export function asMember(name, bytes) {
    let binary = '';
    for (let i = 0; i < bytes.length; i += 8192) binary += String.fromCharCode(...bytes.subarray(i, i + 8192));
    return { [`${name}_base64`]: btoa(binary) };
}

export const percent = (bytes) => Array.from(bytes, (b) => (/[A-Za-z0-9._~-]/.test(String.fromCharCode(b)) ? String.fromCharCode(b) : '%' + b.toString(16).padStart(2, '0').toUpperCase())).join('');

export function fromPercent(text) {
    const pieces = text.split(/(%[0-9A-Fa-f]{2})/).filter((piece) => piece !== '');
    return Uint8Array.from(pieces.flatMap((piece) => (/^%[0-9A-Fa-f]{2}$/.test(piece) ? [parseInt(piece.slice(1), 16)] : [...new TextEncoder().encode(piece)])));
}

/** The code point at `at` and its length; length 0: this byte is no UTF-8. */
function decode(bytes, at) {
    const first = bytes[at];
    if (first < 0x80) return [first, 1];
    const length = first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
    if (length === 0 || at + length > bytes.length) return [first, 0];
    let code = first & (0x7f >> length);
    for (let i = 1; i < length; i++) {
        if ((bytes[at + i] & 0xc0) !== 0x80) return [first, 0];
        code = (code << 6) | (bytes[at + i] & 0x3f);
    }
    const least = [0, 0, 0x80, 0x800, 0x10000][length];
    if (code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return [first, 0];
    return [code, length];
}

export function isText(bytes) {
    for (let i = 0; i < bytes.length; ) {
        const [code, length] = decode(bytes, i);
        if (length === 0 || (code < 0x20 && code !== 9 && code !== 10 && code !== 13) || code === 0x7f) return false;
        i += length;
    }
    return true;
}

/** The bytes as text, if they are UTF-8; else null. */
export function textOf(bytes) {
    try {
        return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
        return null;
    }
}

// Controls, formats (direction, joiners, tags), separators, unassigned, private use; blanks that are no space; letters that
// are blank; variation selectors.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}]|(?! )\p{Zs}|[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0f]/u;
const MARK = /\p{M}/u;
const NAMED = { 0: '\\0', 9: '\\t', 10: '\\n', 13: '\\r', 27: '\\e' };

function escape(code, isByte) {
    const span = document.createElement('span');
    span.className = 'esc';
    span.textContent = isByte ? '\\x' + code.toString(16).padStart(2, '0') : NAMED[code] ?? (code < 0x100 ? '\\x' + code.toString(16).padStart(2, '0') : `\\u{${code.toString(16)}}`);
    span.title = isByte ? `byte 0x${code.toString(16)}, no UTF-8` : `U+${code.toString(16).toUpperCase().padStart(4, '0')}`;
    return span;
}

/** Bytes for people: what can be seen as it is, the rest as marked escapes. `lines`: LF and tab do what they do. */
export function shown(bytes, { lines = false, most = Infinity } = {}) {
    const isolated = document.createElement('bdi');
    isolated.className = lines ? 'bytes lines' : 'bytes';
    let plain = '';
    let marks = 0;
    const flush = () => {
        if (plain !== '') isolated.append(plain);
        plain = '';
    };
    const end = Math.min(bytes.length, most);
    for (let i = 0; i < end; ) {
        const [code, length] = decode(bytes, i);
        const text = length > 0 ? String.fromCodePoint(code) : '';
        marks = length > 0 && MARK.test(text) ? marks + 1 : 0; // a heap of marks climbs over its neighbours
        const keeps = lines && (code === 10 || code === 9);
        if (length > 0 && (keeps || (!HIDDEN.test(text) && marks < 3 && !(marks > 0 && i === 0)))) {
            plain += text;
        } else {
            flush();
            isolated.append(escape(code, length === 0));
        }
        i += length || 1;
    }
    flush();
    if (end < bytes.length) isolated.append('…');
    return isolated;
}

/** Offsets, hex and letters, as od(1) and its kind show them. */
export function hexDump(bytes, most = 16384) {
    const out = [];
    for (let at = 0; at < Math.min(bytes.length, most); at += 16) {
        const row = bytes.subarray(at, at + 16);
        const hex = Array.from(row, (b) => b.toString(16).padStart(2, '0')).join(' ');
        const letters = Array.from(row, (b) => (b >= 0x20 && b < 0x7f ? String.fromCharCode(b) : '·')).join('');
        out.push(`${at.toString(16).padStart(6, '0')}  ${hex.padEnd(47)}  ${letters}`);
    }
    if (bytes.length > most) out.push(`… ${bytes.length - most} more bytes`);
    return out.join('\n');
}

/** What `once run` keeps: frames of stream, length, bytes. Null: it is something else. */
export function frames(bytes) {
    const found = [];
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (let at = 0; at < bytes.length; ) {
        const stream = bytes[at];
        if ((stream !== 1 && stream !== 2) || at + 5 > bytes.length) return null;
        const length = view.getUint32(at + 1);
        if (length === 0 || at + 5 + length > bytes.length) return null;
        found.push({ stream: stream === 1 ? 'stdout' : 'stderr', bytes: bytes.subarray(at + 5, at + 5 + length) });
        at += 5 + length;
    }
    return found;
}
