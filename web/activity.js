// activity.js - what was done through this console since the daemon began.

import { h, replace, empty } from './dom.js';
import { get } from './server.js';
import * as format from './format.js';
import { keyLink } from './keys.js';

export class Activity {
    constructor() {
        this.title = 'Activity';
        this.element = h('section', { class: 'panel results' });
    }

    async start() {
        const { entries } = await get('/api/activity');
        const row = (e) => h('tr', {}, h('td', { class: 'n' }, format.time(e.at)), h('td', {}, e.name), h('td', {}, e.what), h('td', {}, e.key !== undefined || e.key_base64 !== undefined ? keyLink(e) : null));
        replace(this.element, h('header', {}, h('h3', {}, 'Through this console'), h('p', {}, 'the last 200 since the daemon began; all of them are in its log, and verdicts in the store’s audit trail')),
            entries.length === 0 ? empty('Nothing yet', 'Who signs in, reveals a body or gives a verdict is noted here.') : h('div', { class: 'scroll' }, h('table', { class: 'list' }, h('thead', {}, h('tr', {}, ['When', 'Who', 'What', 'Key'].map((t) => h('th', { scope: 'col' }, t)))), h('tbody', {}, entries.map(row)))));
    }

    stop() {}
}
