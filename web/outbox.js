// outbox.js - messages that wait to be published, and dead letters.

import { h, replace, empty, toast } from './dom.js';
import { get, post } from './server.js';
import { bytesOf, hexDump, isText, shown } from './bytes.js';
import * as format from './format.js';
import { ask, reason } from './dialogs.js';

const STATES = ['pending', 'retrying', 'blocked', 'scheduled', 'dead'];

export class Outbox {
    constructor(query) {
        this.title = 'Outbox';
        this.states = query.get('states') ?? '';
        this.topic = query.get('topic') ?? '';
        this.results = h('section', { class: 'panel results' });
        this.element = h('div', {}, this.makeForm(), this.results);
    }

    makeForm() {
        const chosen = new Set(this.states.split(','));
        const boxes = STATES.map((s) => h('label', { class: `chip ${s === 'dead' ? 'failed' : s === 'retrying' ? 'unknown' : 'running'}` }, h('input', { type: 'checkbox', name: 'state', value: s, checked: chosen.has(s) }), s));
        this.search = h('input', { type: 'search', name: 'topic', value: decodeURIComponent(this.topic), placeholder: 'Topics that begin with…', 'aria-label': 'Topics that begin with', autocomplete: 'off', maxlength: 255 });
        const go = (event) => {
            event.preventDefault();
            const states = boxes.filter((b) => b.firstChild.checked).map((b) => b.firstChild.value).join(',');
            const query = [states === '' ? null : `states=${states}`, this.search.value === '' ? null : `topic=${encodeURIComponent(this.search.value)}`].filter((p) => p !== null).join('&');
            location.hash = `#/outbox${query === '' ? '' : `?${query}`}`;
        };
        return h('form', { class: 'panel filter', onsubmit: go, onchange: (e) => e.target.type === 'checkbox' && go(e) },
            h('div', { class: 'searching' }, this.search, h('button', { class: 'primary' }, 'Search')), h('div', { class: 'fields' }, h('fieldset', {}, h('legend', {}, 'State'), boxes)));
    }

    async start() {
        try {
            this.draw(await get('/api/outbox', { states: this.states || null, topic: this.topic ? { encoded: this.topic } : null }));
        } catch (problem) {
            if (problem.status !== 400) throw problem;
            replace(this.results, empty('No outbox is looked after here', 'Services stage messages in their own database, and once relay publishes them. Name that database to see them:', h('pre', { class: 'code' }, 'once daemon --console 127.0.0.1:7413 --console-outbox postgresql://…')));
        }
    }

    stop() {}

    move(step) {
        const rows = [...this.results.querySelectorAll('tbody tr')];
        const at = rows.indexOf(document.activeElement?.closest('tr'));
        rows[Math.max(0, Math.min(rows.length - 1, at + step))]?.querySelector('button')?.focus();
    }

    draw(answer) {
        const now = answer.asked_at;
        const kinds = { dead: 'failed', retrying: 'unknown' };
        const row = (m) => h('tr', {}, h('td', { class: 'mono' }, h('button', { type: 'button', class: 'link', title: 'Show the message; that you looked is noted', onclick: () => this.show(m) }, m.id)), h('td', {}, h('span', { class: `badge ${kinds[m.state] ?? 'running'}` }, m.state)),
            h('td', { class: 'mono' }, shown(bytesOf(m, 'topic'))), h('td', { class: 'mono' }, bytesOf(m, 'message_key').length > 0 ? shown(bytesOf(m, 'message_key')) : h('span', { class: 'dim' }, '–')),
            h('td', { class: 'n' }, m.created_at ? format.ago(m.created_at, now) : '–'), h('td', { class: 'n', title: `${m.refusals} refused, ${m.delays} delayed, ${m.crashes} crashed` }, m.refusals + m.delays + m.crashes),
            h('td', { class: 'why' }, shown(bytesOf(m, 'reason'), { most: 160 })),
            h('td', { class: 'do' }, m.state === 'dead' || m.state === 'retrying' ? h('button', { type: 'button', onclick: () => this.act(m, 'retry') }, 'Retry…') : null, h('button', { type: 'button', class: 'danger', onclick: () => this.act(m, 'drop') }, 'Drop…')));
        replace(this.results, answer.messages.length === 0
            ? empty(this.states === '' && this.topic === '' ? 'Nothing waits' : 'No message matches', 'Published messages are gone from here. What could not be delivered after all its tries stays as a dead letter, until somebody retries or drops it.')
            : h('div', { class: 'scroll' }, h('table', { class: 'list' }, h('thead', {}, h('tr', {}, ['Message', 'State', 'Topic', 'Key', 'Staged', 'Tries', 'Why', ''].map((t) => h('th', { scope: 'col' }, t)))), h('tbody', {}, answer.messages.map(row)))),
        answer.more ? h('p', { class: 'dim pager' }, 'These are the oldest; there are more. Narrow the search by topic or state.') : null);
    }

    async show(m) {
        try {
            const answer = await post('/api/outbox/reveal', { id: m.id });
            const found = answer.messages[0];
            const bytes = found ? bytesOf(found, 'body') : null;
            const dialog = h('dialog', { class: 'wide', 'aria-label': 'Message' }, h('h2', { class: 'mono' }, m.id), found === undefined ? empty('It was published', 'It is not here any more.')
                : [h('p', { class: 'dim' }, shown(bytesOf(found, 'content_type')), `, ${format.size(bytes.length)}`), h('pre', { class: 'code' }, shown(bytesOf(found, 'headers'), { lines: true })), h('pre', { class: isText(bytes) ? 'code' : 'code dump' }, isText(bytes) ? shown(bytes, { lines: true, most: 1 << 18 }) : hexDump(bytes))],
            h('div', { class: 'buttons' }, h('button', { type: 'button', onclick: () => dialog.close() }, 'Close')));
            dialog.addEventListener('close', () => dialog.remove());
            document.body.append(dialog);
            dialog.showModal();
        } catch (problem) {
            toast(problem.message, 'bad');
        }
    }

    async act(m, action) {
        const retry = action === 'retry';
        const answer = await ask({ title: retry ? 'Retry' : 'Drop', lead: retry ? 'A dead letter goes back into the outbox under its id, at the end of its key’s messages. One that waits after a failure is due at once.' : 'It will not be published any more. One that is under way just now may have been.',
            action: retry ? 'Publish it after all' : 'Never publish it', kind: retry ? 'primary' : 'danger', fields: [reason(retry ? 'e.g. the receiver is repaired' : 'e.g. a test order')], submit: (v) => post('/api/outbox/action', { id: m.id, action, reason: v.reason }) });
        if (answer === null) return;
        toast(answer.did === 'absent' ? 'It is not there any more.' : `Message ${answer.did}`, answer.did === 'absent' ? 'bad' : 'good');
        await this.start();
    }
}
