// key.js - one record: what it is, what happened to it, what it holds, and an operator's word on it.

import { h, replace, empty, toast } from './dom.js';
import { get, post } from './server.js';
import { asMember, bytesOf, frames, fromPercent, hexDump, isText, shown, textOf } from './bytes.js';
import * as format from './format.js';
import { badge } from './keys.js';
import { ask, reason } from './dialogs.js';

const SAID = {
    done: 'Further tries get this outcome',
    'not done': 'The next try executes',
    release: 'Forgotten: the next try begins anew',
};
const IN_THE_WAY = {
    absent: 'There is no such record any more.',
    replay: 'Nothing to decide: its outcome stands.',
    'in progress': 'Its holder is alive: the lease was renewed.',
    unknown: 'It is not decided how it ended: say that first.',
    fenced: 'It changed since you looked. The page was loaded again: look again.',
};

function copyButton(bytes) {
    const text = textOf(bytes);
    if (text === null) return null;
    return h('button', { type: 'button', class: 'quiet', title: 'Copy the exact text', onclick: () => navigator.clipboard.writeText(text).then(() => toast('Copied'), () => toast('The browser does not let us copy', 'bad')) }, 'Copy');
}

/** Bytes of a body: text as text, else as a dump; what `once run` kept, by stream. */
function body(bytes, contentType) {
    const run = contentType === 'application/vnd.once.run' ? frames(bytes) : null;
    if (bytes.length === 0) return h('p', { class: 'dim' }, 'Empty.');
    if (run !== null) return h('div', {}, run.map((f) => h('div', { class: `stream ${f.stream}` }, h('span', { class: 'tag' }, f.stream), h('pre', { class: 'code' }, shown(f.bytes, { lines: true })))));
    const mostlyText = isText(bytes) || textOf(bytes) !== null;
    const text = h('pre', { class: 'code' }, shown(bytes, { lines: true, most: 1 << 18 }));
    if (mostlyText) {
        const json = /json/.test(contentType) ? pretty(textOf(bytes)) : null;
        if (json === null) return text;
        const formatted = h('pre', { class: 'code', hidden: true }, shown(new TextEncoder().encode(json), { lines: true }));
        const toggle = h('button', { type: 'button', class: 'quiet', onclick: () => {
            text.hidden = !text.hidden;
            formatted.hidden = !formatted.hidden;
            toggle.textContent = text.hidden ? 'As stored' : 'Formatted';
        } }, 'Formatted');
        return h('div', {}, h('div', { class: 'bar' }, toggle), text, formatted);
    }
    return h('div', {}, h('p', { class: 'dim' }, 'These bytes are no text.'), h('pre', { class: 'code dump' }, hexDump(bytes)));
}

function pretty(text) {
    try {
        return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
        return null;
    }
}

export class Key {
    constructor(query) {
        this.key = fromPercent(query.get('key') ?? '');
        this.tenant = fromPercent(query.get('tenant') ?? '');
        this.title = 'Key';
        this.encoded = { tenant: { encoded: query.get('tenant') ?? '' }, key: { encoded: query.get('key') ?? '' } };
        this.element = h('div', { class: 'key' });
    }

    async start() {
        const r = await get('/api/key', this.encoded);
        this.record = r;
        const title = h('header', { class: 'title' }, h('div', {}, h('p', { class: 'over' }, h('a', { href: '#/keys' }, 'Keys'), this.tenant.length > 0 ? [' / ', shown(this.tenant)] : null),
            h('h1', { class: 'mono' }, shown(this.key)), h('div', { class: 'under' }, r.arm === 'found' ? badge(r) : null, copyButton(this.key))), r.arm === 'found' ? this.actions() : null);
        replace(this.element, title, r.arm === 'found' ? this.advice() : null, r.arm === 'found'
            ? h('div', { class: 'columns' }, h('div', {}, this.facts(), this.timeline()), h('div', {}, this.response(), this.request(), this.checkpoint(), this.children(), this.messages()))
            : [h('section', { class: 'panel' }, empty('No such key', 'There is none, or it is past its retention and counts as new. Keys are compared byte by byte.')), r.history.length > 0 ? this.timeline() : null]);
    }

    stop() {}

    /** Undecided: unknown, or running with nobody at it. */
    get isOpen() {
        return this.record.state === 'unknown' || (this.record.state === 'running' && !this.record.lease_live);
    }

    /** Unknown, although an answer came: a 500, say, which does not tell how it ended. */
    get wasAnswered() {
        const r = this.record;
        return r.state === 'unknown' && (r.body_len > 0 || r.headers_len > 0 || r.body_dropped);
    }

    advice() {
        const r = this.record;
        const happened = this.wasAnswered ? `The answer was ${r.status}, which does not say whether it was done.` : 'Something was sent, and no complete answer came back.';
        if (r.state === 'unknown') return h('p', { class: 'notice warn' }, h('b', {}, 'Nobody knows how this ended. '), happened, ' Look at the other side, with the child key if it keeps that, then say what happened.');
        if (this.isOpen) return h('p', { class: 'notice warn' }, h('b', {}, 'Its holder is gone. '), r.takeover === 'escalate' ? 'The next try makes it unknown. You can say now what happened.' : `The next try takes over (${r.takeover}), or you say now what happened.`);
        return null;
    }

    actions() {
        if (!this.isOpen) {
            const why = this.record.state === 'running' ? 'Its holder is at work.' : this.record.state === 'failed' && this.record.retryable ? 'The next try executes again.' : 'Its outcome is final.';
            const forget = this.record.forgotten ? h('p', { class: 'dim' }, 'It was forgotten: names, answer, request and checkpoint are erased.')
                : this.record.state === 'running' ? null : h('button', { type: 'button', class: 'danger', onclick: () => this.forget() }, 'Forget…');
            return h('div', { class: 'nothing' }, h('p', { class: 'dim' }, `Nothing to decide. ${why}`), forget);
        }
        return h('div', { class: 'actions' }, h('button', { type: 'button', class: 'primary', onclick: () => this.done() }, 'It happened…'),
            h('button', { type: 'button', onclick: () => this.notDone() }, 'Run again…'), h('button', { type: 'button', class: 'danger', onclick: () => this.release() }, 'Release…'));
    }

    async resolve(verdict, values) {
        const answer = await post('/api/resolve', { ...asMember('tenant', this.tenant), ...asMember('key', this.key), fence: this.record.fence, verdict, ...values });
        if (answer.arm === 'done') toast(SAID[verdict]);
        else toast(IN_THE_WAY[answer.arm] ?? `The store answered: ${answer.arm}`, 'bad');
        return answer;
    }

    async afterwards(question) {
        if ((await question) !== null) await this.start();
    }

    done() {
        const run = this.record.content_type === 'application/vnd.once.run';
        return this.afterwards(ask({ title: 'It happened', lead: 'Every further try is answered with this outcome, for as long as it is kept.', action: 'Keep this outcome',
            fields: [h('div', { class: 'fields' }, h('label', { class: 'field' }, 'Status', h('input', { name: 'status', type: 'number', min: 0, max: 2147483647, required: true, value: run ? 0 : 200 }), h('small', {}, 'of HTTP, or of the command')),
                h('label', { class: 'field' }, 'Outcome', h('select', { name: 'outcome' }, h('option', { value: 'succeeded' }, 'succeeded'), h('option', { value: 'failed' }, 'failed, finally')))),
            h('label', { class: 'field wide' }, 'Answer', h('textarea', { name: 'body', rows: 3, class: 'mono', placeholder: 'What further tries are answered; may be empty' })),
            h('label', { class: 'field wide' }, 'Content type of the answer', h('input', { name: 'type', placeholder: 'none', autocomplete: 'off', pattern: '[!-~][ -~]*' })), reason('How do you know? e.g. it is in the ledger, line 117')],
            submit: (v) => this.resolve('done', { status: Number(v.status), failed: v.outcome === 'failed', body: v.body, headers: v.type === '' ? '' : `Content-Type: ${v.type}\r\n`, reason: v.reason }) }));
    }

    notDone() {
        return this.afterwards(ask({ title: 'Run again', lead: `It did not happen, or not completely. The next try executes${this.record.recovery_point ? ', from its recovery point' : ''}${this.record.request ? '; where a completer serves its upstream, that sends the stored request' : ''}.`, action: 'Let it run again',
            fields: [reason('How do you know? e.g. the provider has no such charge')], submit: (v) => this.resolve('not done', v) }));
    }

    release() {
        return this.afterwards(ask({ title: 'Release', lead: 'Nothing of it happened at all: the record is forgotten and the key is free, for anything. Its history stays in the audit trail.', action: 'Forget the record', kind: 'danger',
            fields: [reason('How do you know? e.g. a typo in the key, the request never left')], submit: (v) => this.resolve('release', v) }));
    }

    forget() {
        return this.afterwards(ask({ title: 'Forget', lead: 'For a request of erasure: the names of tenant and key, the answer, the stored request and the checkpoint are erased, for good. A retry is still not executed again: it is told that it was done.', action: 'Erase', kind: 'danger',
            fields: [reason('Why? e.g. erasure request 4711; nobody’s data, please')],
            submit: async (v) => {
                const answer = await post('/api/forget', { ...asMember('tenant', this.tenant), ...asMember('key', this.key), fence: this.record.fence, reason: v.reason });
                if (answer.arm === 'done') toast('Forgotten: a retry is told that it was done');
                else toast(IN_THE_WAY[answer.arm] ?? `The store answered: ${answer.arm}`, 'bad');
                return answer;
            } }));
    }

    facts() {
        const r = this.record;
        const at = (t) => (t === null ? null : t === 'never' ? 'never' : [format.time(t), h('small', { title: format.utc(t) }, format.ago(t, r.now))]);
        const rows = [
            ['Status', r.state === 'succeeded' || r.state === 'failed' ? r.status : null], ['Attempt', r.attempt], ['Created', at(r.created_at)], ['Claimed', r.attempt > 1 ? at(r.claimed_at) : null], ['Lease until', at(r.lease_until)],
            ['Finished', at(r.finished_at)], ['Expires', at(r.expires_at)], ['Route', bytesOf(r, 'route').length > 0 ? shown(bytesOf(r, 'route')) : null], ['Replays', this.replays()], ['Retention', r.retention_ms === null ? 'for ever' : format.span(r.retention_ms)], ...(typeof r.body_retention_ms === 'number' ? [['Response retention', format.span(r.body_retention_ms)]] : []), ['Takeover', r.takeover],
            ['Recovery point', bytesOf(r, 'recovery_point').length > 0 ? shown(bytesOf(r, 'recovery_point')) : null], ['Fence', r.fence], ['Record', h('span', { class: 'mono' }, r.record)], ['Traces', r.traces_url ? h('a', { class: 'traces', href: r.traces_url, target: '_blank', rel: 'noopener noreferrer' }, 'traces of this key') : null], ['Fingerprint', h('span', { class: 'mono', title: r.fingerprint }, `${r.fingerprint.slice(0, 32)}…`)],
        ];
        return h('section', { class: 'panel' }, h('header', {}, h('h3', {}, 'Record')), h('dl', { class: 'rows' }, rows.filter(([, v]) => v !== null && v !== undefined).map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)])));
    }

    /** A replay writes nothing: who counts is the daemon, as long as it runs. */
    replays() {
        const { seen, now } = this.record;
        if (!seen) return null;
        const since = `since this daemon began, ${format.ago(seen.since, now)}`;
        if (!seen.whole) return ['not known', h('small', {}, `${since}: it counts those of the last 16384 keys`)];
        return [String(seen.replays), h('small', {}, seen.replays > 0 ? `${since}; the last ${format.ago(seen.last_replay, now)}` : since)];
    }

    /** What the store keeps, and what this daemon has seen besides, in the order of time. Their clocks are two, which may
        differ by a little: a renewal lies between its claim and its end all the same. */
    events() {
        const { history, seen } = this.record;
        const claims = new Map(history.filter((e) => e.state === 'running').map((e) => [e.fence, e]));
        const ends = new Map(history.filter((e) => e.attempt > 0 && e.state !== 'running').map((e) => [e.fence, e.at]));
        const within = (m) => Math.max(claims.get(m.fence)?.at ?? 0, m.what === 'fenced' ? m.at : Math.min(m.at, ends.get(m.fence) ?? m.at));
        const moments = (seen?.recent_events ?? []).map((m) => ({ ...m, at: within(m), attempt: claims.get(m.fence)?.attempt ?? 0, state: null, seen: true }));
        const rank = (e) => (e.seen ? 1 : e.state === 'running' ? 0 : 2);
        return history.concat(moments).sort((a, b) => a.at - b.at || Number(BigInt(a.fence) - BigInt(b.fence)) || rank(a) - rank(b));
    }

    timeline() {
        const item = (e) => h('li', { class: e.state ?? (e.actor || e.actor_base64 ? 'word' : 'plain') }, h('p', {}, h('b', {}, e.what), bytesOf(e, 'point').length > 0 ? [' to ', shown(bytesOf(e, 'point'))] : null, e.state && e.state !== 'running' ? ` ${e.state}${e.state === 'unknown' ? '' : `, status ${e.status}`}` : null, e.attempt > 0 ? h('span', { class: 'dim' }, ` attempt ${e.attempt}`) : null),
            bytesOf(e, 'actor').length > 0 ? h('p', {}, 'by ', shown(bytesOf(e, 'actor'))) : null, bytesOf(e, 'reason').length > 0 ? h('blockquote', {}, shown(bytesOf(e, 'reason'), { lines: true })) : null,
            h('p', { class: 'dim' }, h('time', { datetime: format.utc(e.at), title: format.utc(e.at) }, `${format.time(e.at)}.${String(e.at % 1000).padStart(3, '0')}`), ` · fence ${e.fence}`, e.seen ? ' · seen by this daemon' : ''));
        return h('section', { class: 'panel' }, h('header', {}, h('h3', {}, 'Timeline'), h('p', {}, 'attempts that are still kept, every word of an operator, and the renewals that this daemon has seen since it began')), h('ol', { class: 'timeline' }, this.events().map(item)));
    }

    /** A part that is hidden until somebody asks for it. */
    hidden(what, title, about, contentType) {
        const place = h('div', { class: 'hidden-part' });
        const reveal = async (all) => {
            const answer = await post('/api/reveal', { ...asMember('tenant', this.tenant), ...asMember('key', this.key), fence: this.record.fence, what, all });
            if (answer.arm !== 'found') {
                toast(IN_THE_WAY[answer.arm], 'bad');
                await this.start();
                return;
            }
            const bytes = bytesOf(answer, 'body');
            replace(place, answer.method !== undefined || answer.method_base64 !== undefined ? h('p', { class: 'mono' }, shown(bytesOf(answer, 'method')), ' ', shown(bytesOf(answer, 'target'))) : null,
                this.headerLines(bytesOf(answer, 'headers')), body(bytes, contentType), bytes.length < answer.body_len ? h('button', { type: 'button', onclick: () => reveal(true).catch((e) => toast(e.message, 'bad')) }, `Show all ${format.size(answer.body_len)}`) : null);
        };
        replace(place, h('p', { class: 'dim' }, about), h('div', { class: 'revealing' }, h('button', { type: 'button', 'data-reveal': what, onclick: () => reveal(false).catch((e) => toast(e.message, 'bad')) }, 'Reveal'), h('small', {}, 'That you looked is noted.')));
        return h('section', { class: 'panel' }, h('header', {}, h('h3', {}, title)), place);
    }

    headerLines(bytes) {
        if (bytes.length === 0) return null;
        const lines = [];
        for (let at = 0; at < bytes.length; ) {
            let end = bytes.indexOf(10, at);
            if (end < 0) end = bytes.length;
            lines.push(bytes.subarray(at, end > at && bytes[end - 1] === 13 ? end - 1 : end));
            at = end + 1;
        }
        return h('ul', { class: 'headers mono' }, lines.map((line) => h('li', {}, shown(line))));
    }

    response() {
        const r = this.record;
        if (r.state === 'running' || (r.state === 'unknown' && !this.wasAnswered)) return h('section', { class: 'panel' }, h('header', {}, h('h3', {}, 'Response')), empty(r.state === 'running' ? 'Not finished' : 'None came back', 'Once there is an outcome, its answer is kept here and replayed byte for byte.'));
        if (r.body_dropped) {
            const why = r.forgotten ? 'It was forgotten' : r.body_expired ? 'Its own retention is over' : r.body_sealed ? 'The key that it is sealed with is gone' : 'It was larger than what is kept';
            const [title, then] = r.state === 'unknown' ? ['Answer not kept', 'it does not say whether it was done'] : ['Executed, answer not kept', 'further tries are told that it was done'];
            return h('section', { class: 'panel' }, h('header', {}, h('h3', {}, 'Response')), empty(title, `${why}: ${then}.`));
        }
        const type = bytesOf(r, 'content_type');
        return this.hidden('response', 'Response', ['Status ', h('b', {}, r.status), ', ', format.size(r.body_len), type.length > 0 ? [' of ', shown(type)] : ''], textOf(type) ?? '');
    }

    request() {
        const q = this.record.request;
        if (!q) return null;
        const about = bytesOf(q, 'method').length > 0 ? [h('span', { class: 'mono' }, shown(bytesOf(q, 'method')), ' ', shown(bytesOf(q, 'path'))), ', ', format.size(q.body_len), ' to ', shown(bytesOf(q, 'upstream')), q.needs_identity ? ', the client had credentials, which are not kept' : ''] : format.size(q.len);
        const section = this.hidden('request', 'Stored request', about, '');
        if (q.traceparent) section.append(h('p', { class: 'trace' }, 'Trace ', h('span', { class: 'mono' }, q.traceparent.split('-')[1]), copyButton(new TextEncoder().encode(q.traceparent.split('-')[1]))));
        return section;
    }

    /** A message does not know the operation it came from; those of the same order have its key as theirs. */
    messages() {
        if (!this.record.outbox || this.key.length === 0) return null;
        const place = h('div', { class: 'messages' }, h('p', { class: 'loading' }, 'Looking…'));
        const row = (m) => h('li', {}, h('span', { class: `badge ${m.state === 'dead' ? 'failed' : m.state === 'retrying' ? 'unknown' : 'running'}` }, m.state), ' ', h('span', { class: 'mono' }, shown(bytesOf(m, 'topic'))), ' ', h('span', { class: 'mono dim' }, m.id));
        get('/api/outbox', { message_key: this.encoded.key }).then((answer) => replace(place,
            answer.messages.length > 0 ? h('ul', { class: 'plain' }, answer.messages.map(row)) : h('p', { class: 'dim' }, 'None waits, and none was given up.'),
            answer.more ? h('p', { class: 'dim' }, 'There may be more: the oldest 5000 messages were looked at.') : null), (problem) => replace(place, h('p', { class: 'dim' }, problem.message)));
        return h('section', { class: 'panel' }, h('header', {}, h('h3', {}, 'Messages'), h('p', {}, 'in the outbox, with this key as their message key')), place);
    }

    checkpoint() {
        return this.record.checkpoint_len > 0 ? this.hidden('checkpoint', 'Checkpoint', [format.size(this.record.checkpoint_len), ' kept with the recovery point'], '') : null;
    }

    children() {
        const r = this.record;
        const place = h('dl', { class: 'rows' }, h('dt', {}, 'upstream'), h('dd', { class: 'mono' }, r.child_key, ' ', copyButton(new TextEncoder().encode(r.child_key))));
        const form = h('form', { class: 'inline', onsubmit: async (event) => {
            event.preventDefault();
            const call = new FormData(event.target).get('call');
            try {
                const answer = await post('/api/child-key', { record: r.record, call });
                place.append(h('dt', {}, call), h('dd', { class: 'mono' }, answer.child_key, ' ', copyButton(new TextEncoder().encode(answer.child_key))));
                event.target.reset();
            } catch (problem) {
                toast(problem.message, 'bad');
            }
        } }, h('input', { name: 'call', required: true, maxlength: 255, placeholder: 'name of a call, e.g. charge', 'aria-label': 'Name of a call', autocomplete: 'off' }), h('button', {}, 'Derive'));
        return h('section', { class: 'panel' }, h('header', {}, h('h3', {}, 'Child keys'), h('p', {}, 'what callees were sent, the same on every attempt')), place, form);
    }
}
