// keys.js - the list of records, page by page, and the work list of those that are unknown.
//
// A search looks at a bounded number of rows per request, so a page may be short or empty and not be the
// last: then it says so, and goes on where it stopped.

import { h, replace, empty } from './dom.js';
import { get } from './server.js';
import { bytesOf, fromPercent, percent, shown } from './bytes.js';
import * as format from './format.js';

const STATES = ['running', 'succeeded', 'failed', 'unknown'];
const LIMIT = 50;
// The work list looks on by itself, with pauses, so that it takes a small part of the writer's time.
const TURNS = 25, PAUSE_MS = 300;

export const keyHref = (r) => `#/key?tenant=${percent(bytesOf(r, 'tenant'))}&key=${percent(bytesOf(r, 'key'))}`;

/** Where the store does not keep keys' texts there is only the record's id. */
export const keyLink = (r) => (bytesOf(r, 'key').length > 0 ? h('a', { class: 'mono', href: keyHref(r) }, shown(bytesOf(r, 'key'))) : h('span', { class: 'mono dim', title: 'this store does not keep the texts of keys' }, r.record));

export function badge(r) {
    const stale = r.state === 'running' && !r.lease_live;
    const text = stale ? 'abandoned' : r.state === 'failed' && r.retryable ? 'failed, retryable' : r.state;
    return h('span', { class: `badge ${stale ? 'stale' : r.state}` }, text);
}

const statusOf = (r) => (r.state === 'succeeded' || r.state === 'failed' ? r.status : '–');
const expiry = (r, now) => (r.expires_at === null ? '–' : r.expires_at === 'never' ? 'never' : r.expires_at <= now ? 'expired' : format.ago(r.expires_at, now));

export class Keys {
    /** fixed: what the search always has, e.g. { states: 'unknown' } of the work list. */
    constructor(query, { title = 'Keys', fixed = null, lead = null } = {}) {
        Object.assign(this, { title, fixed, query });
        this.path = fixed === null ? 'keys' : 'unknowns';
        this.form = fixed === null ? this.makeForm() : null;
        this.results = h('section', { class: 'panel results' });
        this.element = h('div', { class: 'keys' }, lead, this.form, this.results);
    }

    /** What the address says. */
    get filter() {
        return { states: this.query.get('states') ?? '', tenant: this.query.get('tenant') ?? null, prefix: this.query.get('prefix') ?? '', route: this.query.get('route') ?? '', older: this.query.get('older') ?? '',
            abandoned: this.query.get('abandoned') === '1', before: this.query.get('before') ?? null };
    }

    href(changes) {
        const all = { ...Object.fromEntries(this.query), before: null, ...changes };
        const query = Object.entries(all).filter(([, v]) => v !== null && v !== '').map(([name, v]) => `${name}=${v}`).join('&');
        return `#/${this.path}${query === '' ? '' : `?${query}`}`;
    }

    makeForm() {
        const { states, tenant, prefix, route, older, abandoned } = this.filter;
        const text = (encoded) => new TextDecoder().decode(fromPercent(encoded ?? ''));
        const chosen = new Set(states.split(',').filter((s) => s !== ''));
        this.search = h('input', { type: 'search', name: 'prefix', value: text(prefix), placeholder: 'Keys that begin with…', 'aria-label': 'Keys that begin with', autocomplete: 'off', spellcheck: 'false', maxlength: 255 });
        const tenantInput = h('input', { name: 'tenant', value: text(tenant), placeholder: 'any', autocomplete: 'off', spellcheck: 'false', maxlength: 255 });
        const routeInput = h('input', { name: 'route', value: text(route), placeholder: 'any', autocomplete: 'off', spellcheck: 'false', maxlength: 64 });
        const olderInput = h('input', { name: 'older', value: older, placeholder: 'e.g. 15m', autocomplete: 'off', size: 8 });
        const exact = h('button', { type: 'button', class: 'quiet', onclick: () => this.openExact(tenantInput.value) }, 'Open this key');
        const boxes = STATES.map((s) => h('label', { class: `chip ${s}` }, h('input', { type: 'checkbox', name: 'state', value: s, checked: chosen.has(s) }), s));
        const lost = h('label', { class: 'chip stale' }, h('input', { type: 'checkbox', name: 'abandoned', checked: abandoned }), 'abandoned');
        const go = (event) => {
            event.preventDefault();
            const ms = olderInput.value.trim() === '' ? '' : format.parseSpan(olderInput.value);
            olderInput.setCustomValidity(ms === null ? 'A time such as 90s, 15m, 2h or 3d, please' : '');
            if (!olderInput.reportValidity()) return;
            const encoded = (value) => percent(new TextEncoder().encode(value));
            location.hash = this.href({ prefix: encoded(this.search.value), tenant: encoded(tenantInput.value), route: encoded(routeInput.value), older: olderInput.value.trim(),
                states: boxes.filter((b) => b.firstChild.checked).map((b) => b.firstChild.value).join(','), abandoned: lost.firstChild.checked ? '1' : null });
        };
        return h('form', { class: 'panel filter', onsubmit: go, onchange: (e) => e.target.type === 'checkbox' && go(e) },
            h('div', { class: 'searching' }, this.search, h('button', { class: 'primary' }, 'Search'), exact),
            h('div', { class: 'fields' }, h('fieldset', {}, h('legend', {}, 'State'), boxes, lost), h('label', { class: 'field' }, 'Tenant', tenantInput), h('label', { class: 'field' }, 'Route', routeInput), h('label', { class: 'field' }, 'Older than', olderInput)));
    }

    openExact(tenant) {
        if (this.search.value === '') this.search.focus();
        else location.hash = `#/key?tenant=${percent(new TextEncoder().encode(tenant))}&key=${percent(new TextEncoder().encode(this.search.value))}`;
    }

    async start() {
        const { states, tenant, prefix, route, older, abandoned, before } = this.filter;
        const parameters = { states: states || null, tenant: tenant ? { encoded: tenant } : null, prefix: prefix ? { encoded: prefix } : null, route: route ? { encoded: route } : null, older_ms: older ? format.parseSpan(older) : null,
            abandoned: abandoned ? 1 : null, before, limit: LIMIT, ...this.fixed };
        replace(this.results, h('p', { class: 'loading' }, 'Looking…'));
        let answer = await get('/api/keys', parameters);
        for (let turn = 1; this.fixed !== null && answer.next !== null && answer.records.length < LIMIT && turn < TURNS && !this.stopped; turn++) {
            if (answer.records.length > 0) this.draw(answer);
            await new Promise((go) => setTimeout(go, PAUSE_MS));
            const more = await get('/api/keys', { ...parameters, before: answer.next, limit: LIMIT - answer.records.length });
            answer = { ...more, records: answer.records.concat(more.records) };
        }
        this.draw(answer);
    }

    stop() {
        this.stopped = true;
    }

    get rows() {
        return [...this.results.querySelectorAll('tbody tr')];
    }

    /** j and k: to the next row, or the one before. */
    move(step) {
        const rows = this.rows;
        const at = rows.indexOf(document.activeElement?.closest('tr'));
        rows[Math.max(0, Math.min(rows.length - 1, at + step))]?.querySelector('a')?.focus();
    }

    nothing(answer) {
        const searching = Object.values(this.filter).some((v) => v !== null && v !== '' && v !== false);
        if (answer.next !== null) return empty('None so far', 'Nothing among the rows that were looked at. The search goes on where it stopped.');
        if (this.fixed !== null) return empty('Nothing is unknown', 'When something was sent, and no answer came back that says how it ended, the record is kept as unknown: nobody guesses. It waits here until somebody has looked at the other side and says what happened.');
        if (this.filter.before !== null) return empty('That was all', 'There is nothing older.');
        if (searching) return empty('No key matches', 'The search is by the beginning of a key, to the letter. Try a shorter one, or fewer conditions.');
        return empty('No keys yet', 'The first request with an Idempotency-Key makes a record. Try one:', h('pre', { class: 'code' }, "once run --key order-17 -- ./charge 25\ncurl -H 'Idempotency-Key: \"order-17\"' -d '{}' http://127.0.0.1:8080/orders"));
    }

    draw(answer) {
        const now = answer.asked_at; // the daemon's clock, not the reader's
        const head = ['Key', 'State', 'Status', 'Route', 'Tenant', 'Created', 'Attempt', 'Expires'];
        const row = (r) => h('tr', { onclick: (e) => e.target.closest('a') || getSelection().toString() !== '' || (location.hash = keyHref(r)) },
            h('td', {}, keyLink(r)), h('td', {}, badge(r)), h('td', { class: 'n' }, statusOf(r)), h('td', { class: 'mono' }, bytesOf(r, 'route').length > 0 ? shown(bytesOf(r, 'route'), { most: 40 }) : h('span', { class: 'dim none' }, '–')),
            h('td', { class: 'mono' }, bytesOf(r, 'tenant').length > 0 ? shown(bytesOf(r, 'tenant'), { most: 60 }) : h('span', { class: 'dim none' }, '–')),
            h('td', { class: 'n', title: format.time(r.created_at) }, format.ago(r.created_at, now)), h('td', { class: 'n' }, r.attempt), h('td', { class: 'n' }, expiry(r, now)));
        const list = answer.records.length === 0 ? this.nothing(answer)
            : h('div', { class: 'scroll' }, h('table', { class: 'list keys' }, h('thead', {}, h('tr', {}, head.map((t) => h('th', { scope: 'col' }, t)))), h('tbody', {}, answer.records.map(row))));
        const first = this.filter.before === null;
        const pager = first && answer.next === null ? null : h('nav', { class: 'pager', 'aria-label': 'Pages' },
            h('button', { type: 'button', disabled: first, onclick: () => history.back() }, 'Back'),
            first ? null : h('a', { class: 'button', href: this.href({}) }, 'Newest'),
            answer.next === null ? h('span', { class: 'dim' }, 'That was all') : h('a', { class: 'button primary', rel: 'next', href: this.href({ before: answer.next }) }, answer.records.length < LIMIT ? 'Continue searching' : 'Next'));
        replace(this.results, list, pager);
    }
}
