// format.js - numbers, sizes and times for people. English words, 24 hours, the reader's time zone.

const grouped = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
export const count = (n) => grouped.format(n);

export function size(bytes) {
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let unit = 0;
    let n = Math.abs(bytes);
    for (; n >= 1024 && unit < units.length - 1; unit++) n /= 1024;
    return `${bytes < 0 ? '−' : ''}${unit === 0 || n >= 100 || Number.isInteger(n) ? Math.round(n) : n.toFixed(1)} ${units[unit]}`;
}

export function rate(n) {
    if (n === 0) return '0';
    return n >= 100 ? grouped.format(n) : n >= 10 ? n.toFixed(0) : n.toFixed(1);
}

export function micros(us) {
    if (us === 0) return '0';
    if (us < 1000) return `${Math.round(us)} µs`;
    const ms = us / 1000;
    return ms < 10 && !Number.isInteger(ms) ? `${ms.toFixed(1)} ms` : ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

/** A length of time to two units: nobody reads more. */
export function span(ms) {
    const s = Math.round(Math.abs(ms) / 1000);
    if (Math.abs(ms) < 1000) return `${Math.round(Math.abs(ms))} ms`;
    const parts = [[Math.floor(s / 86400), 'd'], [Math.floor(s / 3600) % 24, 'h'], [Math.floor(s / 60) % 60, 'm'], [s % 60, 's']];
    const first = parts.findIndex(([n]) => n > 0);
    return parts.slice(first, first + 2).filter(([n]) => n > 0).map(([n, unit]) => n + unit).join(' ');
}

export const ago = (at, now) => (Math.abs(at - now) < 1000 ? 'just now' : at > now ? `in ${span(at - now)}` : `${span(now - at)} ago`);

const two = (n) => String(n).padStart(2, '0');
export function clock(at, milliseconds = false) {
    const d = new Date(at);
    return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}${milliseconds ? '.' + String(d.getMilliseconds()).padStart(3, '0') : ''}`;
}
export function time(at) {
    const d = new Date(at);
    return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${clock(at)}`;
}
export const utc = (at) => new Date(at).toISOString();

/** "90", "15m", "2h", "3d" in milliseconds; null if it is none of these. */
export function parseSpan(text) {
    const match = /^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*$/.exec(text);
    return match === null ? null : Math.round(Number(match[1]) * { ms: 1, s: 1000, m: 60000, h: 3600000, d: 86400000 }[match[2] ?? 's']);
}
