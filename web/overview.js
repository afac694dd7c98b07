// overview.js - how it goes: rates and latencies of the last quarter of an hour, the store, what is running.

import { h, replace, empty } from './dom.js';
import { Chart, spark } from './chart.js';
import { get } from './server.js';
import * as format from './format.js';
import { keyLink, badge } from './keys.js';

const EVERY_MS = 2000;
const TILES = [
    ['claims', 'Requests', 0, 'in all'],
    ['executions', 'Executions', 1, 'did the work'],
    ['replays', 'Replays', 2, 'stored answer'],
    ['conflicts', 'Conflicts', 3, 'already running'],
    ['mismatches', 'Mismatches', 4, 'other request'],
    ['unknowns', 'Unknowns', 5, 'told unknown'],
];

export class Overview {
    constructor() {
        this.title = 'Overview';
        this.samples = [];
        this.count = 0;
        this.tiles = h('div', { class: 'tiles' });
        this.facts = h('div', { class: 'facts' });
        this.running = h('section', { class: 'panel' });
        this.charts = {
            claims: new Chart({ title: 'Requests', note: 'Claims per second, by what they were answered', format: format.rate, least: 1,
                series: TILES.slice(1).map(([, name, color]) => ({ name, color })) }),
            claim: new Chart({ title: 'Claim latency', note: 'Arrival to durable answer', format: format.micros, least: 100, series: [{ name: 'p50', color: 1 }, { name: 'p99', color: 3 }] }),
            finish: new Chart({ title: 'Finish latency', note: 'Arrival to durable answer', format: format.micros, least: 100, series: [{ name: 'p50', color: 1 }, { name: 'p99', color: 3 }] }),
            batch: new Chart({ title: 'Group commit', note: 'Operations per commit, on average', format: (n) => format.rate(n), least: 1, series: [{ name: 'operations', color: 2 }] }),
            bytes: new Chart({ title: 'Store size', note: 'Bytes of the store', format: format.size, binary: true, least: 1024, series: [{ name: 'size', color: 1 }] }),
        };
        this.element = h('div', { class: 'overview' }, this.tiles, this.facts, h('div', { class: 'charts' }, Object.values(this.charts).map((c) => c.element)), this.running);
    }

    async start() {
        await this.refresh();
        this.timer = setInterval(() => document.hidden || this.refresh().catch(() => null), EVERY_MS);
    }

    stop() {
        clearInterval(this.timer);
    }

    async refresh() {
        const answer = await get('/api/overview', { since: this.count });
        const fresh = answer.samples.map((row) => Object.fromEntries(answer.fields.map((name, i) => [name, row[i]])));
        if (answer.count < this.count) this.samples = []; // another daemon
        this.count = answer.count;
        this.samples = this.samples.concat(fresh).slice(-answer.kept);
        this.slots = Math.max(30, Math.min(answer.kept, this.samples.length));
        this.drawTiles(answer);
        this.drawFacts(answer);
        this.drawCharts();
        this.drawRunning(answer);
    }

    perSecond(name) {
        return this.samples.map((s) => (s.ms > 0 ? (s[name] * 1000) / s.ms : 0));
    }

    drawTiles(answer) {
        replace(this.tiles, TILES.map(([name, title, color, what]) => {
            const values = this.perSecond(name);
            const total = name === 'claims' ? TILES.slice(1).reduce((sum, [other]) => sum + (answer.totals[other] ?? 0), 0) : answer.totals[name];
            return h('div', { class: `panel tile${name === 'unknowns' && values.slice(-30).some((v) => v > 0) ? ' alarming' : ''}`, 'data-tile': name }, h('h3', {}, title),
                h('p', { class: 'big' }, format.rate(values.at(-1) ?? 0), h('small', {}, '/s')),
                spark(values.slice(-60), color), h('p', { class: 'sub' }, h('b', {}, format.count(total)), ` ${what}`));
        }));
    }

    /** Bytes an hour, over the time that is kept. */
    growth() {
        const known = this.samples.filter((s) => s.bytes > 0);
        const ms = known.length < 2 ? 0 : known.at(-1).at - known[0].at;
        return ms < 20000 ? null : ((known.at(-1).bytes - known[0].bytes) * 3600000) / ms;
    }

    drawFacts(answer) {
        const growth = this.growth();
        const fact = (name, title, value, note, kind = '') => h('div', { class: `fact ${kind}`, 'data-fact': name }, h('dt', {}, title), h('dd', {}, value, note ? h('small', {}, note) : null));
        const more = (n, isMore) => (n === 0 && isMore ? '…' : `${format.count(n)}${isMore ? '+' : ''}`);
        const facts = [
            fact('attempts', 'Attempts kept', answer.looked ? format.count(answer.attempts) : '…', answer.store),
            fact('bytes', 'Store size', answer.looked ? format.size(answer.bytes) : '…', growth === null ? null : growth === 0 ? 'not growing' : `${growth > 0 ? '+' : ''}${format.size(growth)} / h`),
            fact('queue', 'Queue', format.count(answer.queued), 'waiting for a commit'),
            answer.expiry_lag_ms === undefined ? null : fact('expiry', 'Expiry', answer.expiry_lag_ms < 15000 ? 'caught up' : `behind ${format.span(answer.expiry_lag_ms)}`, `${format.count(answer.expired)} removed`, answer.expiry_lag_ms < 60000 ? '' : 'warn'),
            answer.looked ? fact('running', 'Running', more(answer.running_count, answer.running_more), h('a', { href: '#/keys?states=running' }, 'list')) : null,
            answer.looked ? fact('abandoned', 'Abandoned', more(answer.abandoned_count, answer.abandoned_more), h('a', { href: '#/keys?abandoned=1' }, 'list'), answer.abandoned_count > 0 ? 'warn' : '') : null,
            answer.looked ? fact('unknown', 'Unknown now', more(answer.unknown_count, answer.unknown_more), h('a', { href: '#/unknowns' }, 'work list'), answer.unknown_count > 0 ? 'warn' : '') : null,
            answer.escalations === undefined ? null : fact('escalations', 'Became unknown', format.count(answer.escalations), 'since the daemon began'),
            answer.completer ? fact('completer', 'Completer', `${format.count(answer.completer.finished)} finished`, `${format.count(answer.completer.taken)} taken over`) : null,
            answer.outbox ? fact('outbox', 'Outbox lag', answer.outbox.lag_ms > 0 ? format.span(answer.outbox.lag_ms) : 'none', `${format.count(answer.outbox.pending)} waiting`, answer.outbox.lag_ms > 60000 ? 'warn' : '') : null,
            answer.outbox ? fact('dead', 'Dead letters', format.count(answer.outbox.dead), h('a', { href: '#/outbox?states=dead' }, 'list'), answer.outbox.dead > 0 ? 'warn' : '') : null,
        ];
        const there = facts.filter((f) => f !== null);
        const list = h('dl', {}, there);
        list.style.setProperty('--columns', there.length > 7 ? Math.ceil(there.length / 2) : there.length);
        replace(this.facts, answer.store_error ? h('p', { class: 'notice bad', role: 'alert' }, `The store does not answer: ${answer.store_error}`) : null, list);
    }

    drawCharts() {
        const times = this.samples.map((s) => s.at);
        const where = (name, value) => this.samples.map((s) => (value(s) ? s[name] : null));
        const draw = (chart, columns) => this.charts[chart].update(times, columns, this.slots);
        draw('claims', TILES.slice(1).map(([name]) => this.perSecond(name)));
        draw('claim', [where('claim_p50_us', (s) => s.claim_p99_us > 0), where('claim_p99_us', (s) => s.claim_p99_us > 0)]);
        draw('finish', [where('finish_p50_us', (s) => s.finish_p99_us > 0), where('finish_p99_us', (s) => s.finish_p99_us > 0)]);
        draw('batch', [this.samples.map((s) => (s.batches > 0 ? s.operations / s.batches : null))]);
        draw('bytes', [where('bytes', (s) => s.bytes > 0)]);
    }

    drawRunning(answer) {
        const rows = answer.running ?? [];
        const heading = h('header', {}, h('h3', {}, 'Leases that end soonest'), h('p', {}, `of the ${format.count(answer.running_count ?? 0)}${answer.running_more ? ' newest' : ''} that are running`));
        replace(this.running, heading, rows.length === 0
            ? empty('Nothing is running', 'A key that is being worked on appears here, with the time that its holder has left to finish or to renew.')
            : h('div', { class: 'scroll' }, h('table', { class: 'list' }, h('thead', {}, h('tr', {}, ['Key', 'State', 'Attempt', 'Since', 'Lease'].map((t) => h('th', { scope: 'col' }, t)))),
                h('tbody', {}, rows.map((r) => h('tr', {}, h('td', {}, keyLink(r)), h('td', {}, badge(r)), h('td', { class: 'n' }, r.attempt),
                    h('td', { class: 'n' }, format.ago(r.claimed_at, answer.now)), h('td', { class: 'n' }, r.lease_live ? format.ago(r.lease_until, answer.now) : h('b', {}, 'over'))))))));
    }
}
