// server.js - the daemon. Every request needs the cookie, which this page cannot read, and the secret that
// was given to it when it signed in, which other pages cannot read.

const KEPT = 'once-console';

function kept() {
    try {
        return JSON.parse(localStorage.getItem(KEPT) ?? 'null');
    } catch {
        return null;
    }
}

export const session = { get csrf() { return kept()?.csrf ?? null; }, get name() { return kept()?.name ?? ''; } };

export class Refused extends Error {
    constructor(status, problem) {
        super(problem?.detail ?? `the daemon answered ${status}`);
        this.status = status;
        this.problem = problem;
    }
}

/** Times come as text, in UTC, and are milliseconds here; "never" stays what it is. Keys and other stored text have other names. */
const TIMES = /^(at|since|lease_until|first_replay|last_replay|.*_at)$/;
const revive = (name, value) => (typeof value === 'string' && value !== 'never' && TIMES.test(name) ? Date.parse(value) : value);

async function ask(method, path, body) {
    const headers = {};
    if (session.csrf !== null) headers['X-Once-Csrf'] = session.csrf;
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    let response;
    try {
        response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), credentials: 'same-origin', cache: 'no-store', redirect: 'error' });
    } catch {
        throw new Refused(0, { detail: 'the daemon does not answer' });
    }
    const answer = await response.text().then((text) => JSON.parse(text, revive)).catch(() => null);
    if (response.ok) return answer;
    if (response.status === 401 && path !== '/api/login') {
        localStorage.removeItem(KEPT);
        window.dispatchEvent(new Event('signed-out'));
    }
    throw new Refused(response.status, answer);
}

/** Parameters are text, or already encoded as { encoded }. Those that are null stay away. */
export function get(path, parameters = {}) {
    const query = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined)
        .map(([name, value]) => `${name}=${typeof value === 'object' ? value.encoded : encodeURIComponent(value)}`).join('&');
    return ask('GET', query === '' ? path : `${path}?${query}`);
}

export const post = (path, body = {}) => ask('POST', path, body);

export async function login(token, name) {
    const answer = await post('/api/login', { token, name });
    localStorage.setItem(KEPT, JSON.stringify({ csrf: answer.csrf, name: answer.name }));
}

export async function logout() {
    await post('/api/logout').catch(() => null);
    localStorage.removeItem(KEPT);
    window.dispatchEvent(new Event('signed-out'));
}
