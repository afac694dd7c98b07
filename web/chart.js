// chart.js - line charts as SVG, drawn here: lines over time, a grid, and a crosshair that follows
// the pointer or, when the chart has the focus, the arrow keys.

import { h, svg, replace } from './dom.js';
import { clock } from './format.js';

const HEIGHT = 168, LEFT = 58, RIGHT = 8, TOP = 10, BOTTOM = 22;

/** A round number at or above n: a short factor times a power of ten; for bytes, of two. */
function roundUp(n, binary) {
    if (n <= 0) return 1;
    if (binary) return 2 ** Math.ceil(Math.log2(n));
    const power = 10 ** Math.floor(Math.log10(n));
    return [1, 2, 3, 4, 6, 8, 10].map((m) => m * power).find((m) => m >= n * 0.999);
}

/** Breaks in the line where a value is null: nothing was measured then. */
function path(values, x, y) {
    let d = '';
    let open = false;
    values.forEach((value, i) => {
        if (value !== null) d += `${open ? 'L' : 'M'}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
        open = value !== null;
    });
    return d;
}

export class Chart {
    /** series: [{ name, color }], color is a class's number; format: of a value. */
    constructor({ title, note, series, format, binary = false, least = 0 }) {
        Object.assign(this, { title, series, format, binary, least, times: [], columns: series.map(() => []), at: null });
        this.legend = h('ul', { class: 'legend' });
        this.plot = h('div', { class: 'plot', tabindex: 0, role: 'img', onpointermove: (e) => this.point(e), onpointerleave: () => this.leave(),
            onkeydown: (e) => this.key(e), onblur: () => this.leave() });
        this.element = h('figure', { class: 'panel chart' }, h('figcaption', {}, h('h3', {}, title), note ? h('p', {}, note) : null), this.legend, this.plot);
        new ResizeObserver(() => this.draw()).observe(this.plot);
    }

    update(times, columns, slots) {
        Object.assign(this, { times, columns, slots });
        this.draw();
    }

    point(event) {
        const box = this.plot.getBoundingClientRect();
        const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
        const slot = Math.round(share * (this.slots - 1)) - (this.slots - this.times.length);
        this.at = slot < 0 || slot >= this.times.length ? null : slot;
        this.draw();
    }

    leave() {
        this.at = null;
        this.draw();
    }

    key(event) {
        const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
        if (step === undefined || this.times.length === 0) return;
        event.preventDefault();
        const from = this.at ?? this.times.length - (step > 0 ? 2 : 0);
        this.at = Math.max(0, Math.min(this.times.length - 1, from + step));
        this.draw();
    }

    draw() {
        const width = this.plot.clientWidth;
        if (width === 0) return;
        const values = this.columns.flat().filter((v) => v !== null);
        const top = roundUp(Math.max(this.least, ...values, 0), this.binary);
        const slots = Math.max(2, this.slots ?? 2);
        const offset = slots - this.times.length;
        const x = (i) => LEFT + ((i + offset) / (slots - 1)) * (width - LEFT - RIGHT);
        const y = (v) => TOP + (1 - v / top) * (HEIGHT - TOP - BOTTOM);
        const lines = [0, 0.5, 1].map((share) => [
            svg('line', { class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y(top * share), y2: y(top * share) }),
            svg('text', { class: 'tick', x: LEFT - 8, y: y(top * share) + 4, 'text-anchor': 'end' }, this.format(top * share)),
        ]);
        const ticks = this.times.length < 2 ? [] : [0, this.times.length - 1].map((i) =>
            svg('text', { class: 'tick', x: x(i), y: HEIGHT - 4, 'text-anchor': i === 0 && offset > 0 ? 'middle' : i === 0 ? 'start' : 'end' }, clock(this.times[i])))
            .filter((_, i) => i === 1 || x(this.times.length - 1) - x(0) > 110);
        const drawn = this.series.map((s, i) => svg('path', { class: `line c${s.color}`, d: path(this.columns[i], x, y) }));
        const cross = this.at === null || this.at >= this.times.length ? [] : [
            svg('line', { class: 'cross', x1: x(this.at), x2: x(this.at), y1: TOP, y2: HEIGHT - BOTTOM }),
            this.series.map((s, i) => (this.columns[i][this.at] === null ? null : svg('circle', { class: `dot c${s.color}`, cx: x(this.at), cy: y(this.columns[i][this.at]), r: 3 }))),
        ];
        replace(this.plot, svg('svg', { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, 'aria-hidden': 'true' }, lines, ticks, drawn, cross));
        this.tell();
    }

    tell() {
        const i = this.at ?? this.times.length - 1;
        const told = this.series.map((s, n) => [s, i < 0 || this.columns[n][i] === null || this.columns[n][i] === undefined ? '–' : this.format(this.columns[n][i])]);
        replace(this.legend, told.map(([s, value]) => h('li', {}, h('span', { class: `key c${s.color}` }), s.name, h('b', {}, value))),
            h('li', { class: 'when' }, this.at === null ? 'now' : clock(this.times[i])));
        this.plot.setAttribute('aria-label', `${this.title}, ${this.at === null ? 'now' : clock(this.times[i])}: ${told.map(([s, value]) => `${s.name} ${value}`).join(', ')}`);
    }
}

/** A line without axes, for a tile. */
export function spark(values, color) {
    const width = 120, height = 32, top = Math.max(...values, 1);
    const x = (i) => (values.length < 2 ? width : (i / (values.length - 1)) * width);
    const y = (v) => height - 2 - (v / top) * (height - 4);
    const d = path(values, x, y);
    return svg('svg', { class: 'spark', viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
        values.length > 1 ? svg('path', { class: `area c${color}`, d: `${d}L${width} ${height}L0 ${height}Z` }) : null,
        svg('path', { class: `line c${color}`, d }));
}
