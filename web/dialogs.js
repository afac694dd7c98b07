// dialogs.js - questions before something is changed. A word on a record needs a reason: it is kept for good.

import { h } from './dom.js';

/** Shows a dialog; `submit` gets the form's values, closes it by returning, keeps it open by throwing. */
export function ask({ title, lead, fields, action, kind = 'primary', submit }) {
    return new Promise((resolve) => {
        const error = h('p', { class: 'notice bad', role: 'alert', hidden: true });
        const button = h('button', { class: kind }, action);
        const dialog = h('dialog', { 'aria-label': title }, h('form', {
            async onsubmit(event) {
                event.preventDefault();
                button.disabled = true;
                try {
                    const answer = await submit(Object.fromEntries(new FormData(event.target)));
                    dialog.close();
                    resolve(answer);
                } catch (problem) {
                    error.textContent = problem.message;
                    error.hidden = false;
                    button.disabled = false;
                }
            },
        }, h('h2', {}, title), lead ? h('p', { class: 'lead' }, lead) : null, fields, error,
        h('div', { class: 'buttons' }, h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel'), button)));
        dialog.addEventListener('close', () => {
            dialog.remove();
            resolve(null);
        });
        document.body.append(dialog);
        dialog.showModal();
        dialog.querySelector('input, textarea, select')?.focus();
    });
}

export const reason = (placeholder) => h('label', { class: 'field wide' }, 'Reason', h('textarea', { name: 'reason', required: true, maxlength: 1000, rows: 2, placeholder }), h('small', {}, 'Kept in the audit trail, with your name and the time.'));

export function help(shortcuts) {
    const dialog = h('dialog', { class: 'help', 'aria-label': 'Keyboard shortcuts' }, h('h2', {}, 'Keyboard'),
        h('dl', {}, shortcuts.map(([keys, what]) => [h('dt', {}, keys.split(' ').map((k) => h('kbd', {}, k))), h('dd', {}, what)])),
        h('div', { class: 'buttons' }, h('button', { type: 'button', onclick: () => dialog.close() }, 'Close')));
    dialog.addEventListener('close', () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
}
