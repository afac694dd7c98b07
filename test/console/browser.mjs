// The console in a browser: browser.mjs SETTINGS.json
// Settings: origin, token, wrong, hostile (name to base64), count (of keys key-000001...), shots (a folder), chromium.
// Prints TAP. What only the other side can do (a record changes meanwhile) is asked for by a line "# do WORD", answered on stdin.
import { chromium } from 'playwright-core';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

const settings = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
let count = 0;
let failed = 0;

function ok(good, name, ...more) {
    count++;
    if (!good) failed++;
    console.log(`${good ? '' : 'not '}ok ${count} - ${name.replace(/#/g, '')}`);
    if (!good) for (const text of more) for (const line of String(text).slice(0, 1500).split('\n')) console.log(`#   ${line}`);
}
const equal = (got, wanted, name) => ok(JSON.stringify(got) === JSON.stringify(wanted), name, `got ${JSON.stringify(got)}`, `not ${JSON.stringify(wanted)}`);
async function ask(word) {
    console.log(`# do ${word}`);
    return (await lines.next()).value;
}

const browser = await chromium.launch({ executablePath: settings.chromium, timeout: 120000, args: ['--no-sandbox', '--disable-background-networking'] });
const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, colorScheme: 'light', reducedMotion: 'reduce' });
const page = await context.newPage();
page.setDefaultTimeout(120000);
const complaints = [];
const elsewhere = [];
let expected = null; // a status that is part of the test
page.on('pageerror', (error) => complaints.push(error.message));
page.on('dialog', (dialog) => {
    complaints.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
});
page.on('console', (message) => {
    if (message.type() === 'error' && !(expected !== null && message.text().includes(String(expected)))) complaints.push(message.text());
});
page.on('request', (request) => {
    if (!request.url().startsWith(`${settings.origin}/`)) elsewhere.push(request.url());
});
await page.addInitScript(() => document.addEventListener('securitypolicyviolation', (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`)));

const shot = async (name, options = {}) => settings.shots && page.screenshot({ path: `${settings.shots}/${name}.png`, ...options });
/** Does what leads to another address, and waits until what is there is shown: for a while the address is the new one, the page the old one. */
const lead = async (act, ready) => {
    await page.evaluate(() => document.getElementById('main')?.removeAttribute('data-ready'));
    await act();
    await page.waitForSelector(`[data-ready=${ready}]`);
};
const go = (hash, ready) => lead(() => page.evaluate((h) => (location.hash = h), hash), ready);
/** g and a letter. They count as one command if the second follows soon, which on a busy machine it may not. */
const jump = async (letter, ready) => {
    const there = page.waitForSelector(`[data-ready=${ready}] tbody`).then(() => true);
    const later = () => new Promise((resolve) => setTimeout(resolve, 3000, false));
    do {
        await page.keyboard.press('g');
        await page.keyboard.press(letter);
    } while (!(await Promise.race([there, later()])));
};
const texts = (selector) => page.locator(selector).allInnerTexts();
const percent = (bytes) => Array.from(bytes, (b) => `%${b.toString(16).padStart(2, '0').toUpperCase()}`).join('');
const keyPage = (key, tenant = '') => go(`#/key?tenant=${percent(Buffer.from(tenant))}&key=${percent(Buffer.from(key))}`, 'key');

// ---------------------------------------------------------------- signing in
await page.goto(`${settings.origin}/`);
await page.waitForSelector('[data-ready=sign-in]');
ok(await page.evaluate(() => document.activeElement.name === 'token'), 'the token field has the focus');
expected = 401;
await page.fill('[name=token]', settings.wrong);
await page.fill('[name=name]', 'ann');
await page.keyboard.press('Enter');
await page.waitForSelector('.notice.bad:not([hidden])');
ok((await page.innerText('.notice.bad')).includes('not the token'), 'a wrong token is refused, and says so');
expected = null;
await page.goto(`${settings.origin}/#token=${settings.token}`);
await page.waitForFunction((token) => document.querySelector('[name=token]')?.value === token, settings.token);
ok(!page.url().includes(settings.token) && (await page.inputValue('[name=token]')) === settings.token, 'a token in the address is taken out of it');
await page.fill('[name=name]', 'ann');
await page.keyboard.press('Enter');
await page.waitForSelector('[data-ready=overview]');
ok(!(await page.evaluate(() => document.cookie)).includes('once'), 'no script can read the cookie');

// ---------------------------------------------------------------- overview
await page.waitForFunction((n) => Number(document.querySelector('[data-tile=claims] .sub b')?.textContent.replace(/\D/g, '')) > n, 200);
await page.waitForSelector('[data-fact=outbox]');
await page.waitForFunction(() => [...document.querySelectorAll('.chart')].every((c) => c.querySelectorAll('path.line').length > 0 && [...c.querySelectorAll('path.line')].every((p) => p.getAttribute('d').length > 40)), null, { timeout: 180000 });
if (settings.patience) await page.waitForTimeout(settings.patience); // for a picture with a story
equal(await texts('.tile h3'), ['Requests', 'Executions', 'Replays', 'Conflicts', 'Mismatches', 'Unknowns'], 'tiles');
equal(await texts('.chart h3'), ['Requests', 'Claim latency', 'Finish latency', 'Group commit', 'Store size'], 'charts');
const totals = Object.fromEntries(await page.$$eval('.tile', (all) => all.map((t) => [t.dataset.tile, Number(t.querySelector('.sub b').textContent.replace(/\D/g, ''))])));
ok(totals.executions > 0 && totals.replays > 0 && totals.conflicts > 0 && totals.mismatches > 0 && totals.unknowns > 0, 'all kinds of answers are counted', JSON.stringify(totals));
equal(await page.innerText('[data-fact=dead] dd'), '2\nlist', 'dead letters');
await page.waitForFunction((n) => document.querySelector('[data-fact=unknown] dd')?.innerText === `${n}\nwork list`, settings.unknowns, { timeout: 180000 }); // all was walked through
ok(true, 'what is unknown now');
equal(await page.innerText('[data-fact=escalations] dd'), `${settings.unknowns}\nsince the daemon began`, 'what became so');
await page.focus('.chart .plot');
await page.keyboard.press('ArrowLeft');
ok(/\d\d:\d\d:\d\d/.test(await page.innerText('.chart .when')), 'the arrow keys move the crosshair');
await page.locator('.chart .plot').first().blur();
await shot('overview');
await page.emulateMedia({ colorScheme: 'dark' });
await shot('overview-dark');
const dark = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
await page.emulateMedia({ colorScheme: 'light' });
ok(dark !== (await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor)), 'dark is another colour');
await ask('calm');

// ---------------------------------------------------------------- keys: pages, searches
await go('#/keys?tenant=bulk', 'keys');
const first = await texts('tbody tr td:first-child');
equal([first.length, first[0]], [50, `key-${String(settings.count).padStart(6, '0')}`], 'fifty keys, the newest first');
await page.click('a[rel=next]');
await page.waitForFunction((old) => document.querySelector('tbody td')?.innerText && document.querySelector('tbody td').innerText !== old, first[0]);
const second = await texts('tbody tr td:first-child');
equal(second[0], `key-${String(settings.count - 50).padStart(6, '0')}`, 'the next page goes on');
for (let i = 0; i < 8; i++) {
    const last = (await texts('tbody tr td:first-child'))[0];
    await page.keyboard.press('n');
    await page.waitForFunction((old) => document.querySelector('tbody td')?.innerText && document.querySelector('tbody td').innerText !== old, last);
}
equal((await texts('tbody tr td:first-child'))[0], `key-${String(settings.count - 450).padStart(6, '0')}`, 'and on, by a key');
await page.goBack();
await page.waitForFunction((key) => document.querySelector('tbody td')?.innerText === key, `key-${String(settings.count - 400).padStart(6, '0')}`);
ok(true, 'and back');
await go('#/keys', 'keys');
await page.fill('[name=prefix]', 'key-00001');
await page.fill('[name=tenant]', 'bulk');
await lead(() => page.keyboard.press('Enter'), 'keys');
let turns = 0;
while ((await page.locator('.empty a, a[rel=next]').count()) > 0 && (await page.locator('tbody tr').count()) === 0 && turns < 20) {
    await lead(() => page.click('a[rel=next]'), 'keys');
    turns++;
}
ok(turns > 0 && turns < 20, `a search among ${settings.count} goes on in turns`, turns);
equal((await texts('tbody tr td:first-child')).at(-1), 'key-000010', 'and finds what is there');
await page.fill('[name=prefix]', 'key-000777');
await page.click('text=Open this key');
await page.waitForSelector('h1');
equal(await page.innerText('h1'), 'key-000777', 'a key by its name');
await go('#/keys?states=unknown&tenant=acme', 'keys');
equal(await texts('tbody .badge'), Array(settings.unknowns).fill('unknown'), 'by state');
ok(await page.isChecked('[value=unknown]'), 'the form shows what was asked for');
await go('#/keys?prefix=no-such-key&tenant=nobody', 'keys');
ok((await page.locator('.empty').count()) === 1, 'nothing found is said in words');
await go('#/keys?tenant=shop', 'keys');
await shot('keys');

// ---------------------------------------------------------------- routes, and what only the daemon has seen
equal(await ask('seen'), 'replay replay', 'a key that was replayed twice');
await go('#/keys', 'keys');
await page.fill('[name=route]', 'orders');
await lead(() => page.keyboard.press('Enter'), 'keys');
equal([await texts('tbody tr td:first-child'), await texts('tbody tr td:nth-child(4)')], [['seen'], ['orders']], 'found by its route');
await page.click('tbody a');
await page.waitForSelector('[data-ready=key] .timeline');
const facts = await page.$$eval('dl.rows dt', (all) => Object.fromEntries(all.map((t) => [t.textContent, t.nextElementSibling.textContent])));
ok(facts.Route === 'orders' && /^2since this daemon began/.test(facts.Replays), 'its route, and how often it was replayed since the daemon began', JSON.stringify(facts));
const happened = (await texts('.timeline li')).map((t) => t.split('\n')[0]);
ok(happened.length === 4 && happened[0].startsWith('claimed') && happened[1].startsWith('extended') && happened[2].startsWith('advanced to charged') && happened[3].startsWith('finished succeeded'), 'its timeline has the renewals', happened);
ok((await page.innerText('.timeline li:nth-child(2)')).includes('seen by this daemon') && happened[1].includes('attempt 1'), 'by which attempt, and who says so');
await context.route('http://traces.example/**', (route) => route.fulfill({ contentType: 'text/plain', body: 'found' }));
equal(await page.getAttribute('a.traces', 'rel'), 'noopener noreferrer', 'a link to its traces');
const opened = context.waitForEvent('page');
await page.click('text=traces of this key');
const traces = await opened;
await traces.waitForLoadState();
equal(traces.url(), settings.traces.replace('{key_hash}', facts.Record), 'its traces are found by its hash, in a page of their own');
ok(await traces.evaluate(() => window.opener === null && document.referrer === ''), 'which knows nothing of this one');
await traces.close();
await page.waitForSelector('.messages p:not(.loading)');
equal(await page.innerText('.messages'), 'None waits, and none was given up.', 'its messages');

// ---------------------------------------------------------------- hostile bytes
const scripts = await page.evaluate(() => document.scripts.length);
for (const [name, base64] of Object.entries(settings.hostile)) {
    const key = Buffer.from(base64, 'base64');
    await go(`#/key?tenant=hostile&key=${percent(key)}`, 'key');
    await page.click('[data-reveal=response]');
    await page.waitForSelector('.hidden-part pre');
    const seen = await page.evaluate(() => ({ heading: document.querySelector('h1').textContent, escapes: [...document.querySelectorAll('h1 .esc')].map((e) => e.textContent), body: document.querySelector('.hidden-part pre').textContent,
        title: document.title, scripts: document.scripts.length, images: document.querySelectorAll('main img, main script, main iframe, main b > i').length }));
    ok(seen.title === 'Key · Once console' && seen.scripts === scripts && seen.images === 0, `${name}: stays text`, JSON.stringify(seen));
    ok(seen.body.includes('<script>') || /3c 73 63 72/.test(seen.body), `${name}: its body is shown`, seen.body);
    // eslint-disable-next-line no-control-regex
    ok(!/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/.test(seen.heading), `${name}: nothing that cannot be seen`, JSON.stringify(seen.heading));
    const wanted = { 'right to left': '\\u{202e}', 'a NUL': '\\0', 'no UTF-8': '\\xff', 'escape sequences': '\\e', blanks: '\\u{200b}', marks: '\\u{335}' }[name];
    if (wanted) ok(seen.escapes.includes(wanted), `${name}: ${wanted} is marked`, seen.escapes);
    if (name === 'no UTF-8') await shot('bytes');
}
await go('#/keys?tenant=hostile', 'keys');
equal(await page.locator('tbody tr').count(), Object.keys(settings.hostile).length, 'a list of them');
equal(await page.evaluate(() => [document.title, document.scripts.length, document.querySelectorAll('main img').length]), ['Keys · Once console', scripts, 0], 'is harmless, too');

// ---------------------------------------------------------------- unknowns, verdicts
await jump('u', 'unknowns');
equal(await page.locator('tbody tr').count(), settings.unknowns, 'the work list');
await page.keyboard.press('j');
await page.keyboard.press('j');
await page.keyboard.press('k');
await page.keyboard.press('Enter');
await page.waitForSelector('[data-ready=key] .actions');
ok((await page.innerText('h1')).startsWith('pay-'), 'opened by the keyboard');
await keyPage('pay-1', 'acme');
await shot('key');
await page.click('text=It happened…');
await page.fill('dialog [name=status]', '201');
await page.fill('dialog [name=body]', '{"order": 1}');
await page.fill('dialog [name=type]', 'application/json');
await page.click('dialog button.primary');
ok(await page.isVisible('dialog[open]'), 'without a reason nothing is said');
await page.fill('dialog [name=reason]', 'it is in the <b>ledger</b>, line 117');
if (settings.shots) await page.waitForTimeout(2000); // the browser's own remark about the reason goes away
await shot('resolve');
await page.click('dialog button.primary');
await page.waitForSelector('.badge.succeeded');
const told = (await texts('.timeline li')).at(-1);
ok(told.includes('resolved done') && told.includes('by ann (console)') && told.includes('it is in the <b>ledger</b>, line 117'), 'the timeline has it, as text', told);
equal(await page.locator('.actions button').count(), 0, 'there is nothing more to decide');
await page.click('[data-reveal=response]');
await page.click('text=Formatted');
equal(await page.innerText('.hidden-part pre:not([hidden])'), '{\n  "order": 1\n}', 'JSON in lines, where that is wanted');
equal(await ask('claim pay-1'), 'replay 201 {"order": 1}', 'a retry gets exactly that');
await page.click('text=Forget…');
await page.click('dialog button.danger');
ok(await page.isVisible('dialog[open]'), 'without a reason nothing is erased');
await page.fill('dialog [name=reason]', 'erasure request 4711');
await page.click('dialog button.danger');
await page.waitForSelector('text=It was forgotten: names');
ok(await page.isVisible('text=Executed, answer not kept') && (await page.locator('text=Forget…').count()) === 0, 'it is erased, once');
ok((await texts('.timeline li')).at(-1).includes('erasure request 4711'), 'and the timeline says why');
equal(await ask('claim pay-1'), 'replay 201 ', 'a retry is told that it was done');
await keyPage('pay-2', 'acme');
ok((await page.innerText('.notice')).includes('The answer was 500, which does not say whether it was done.'), 'unknown, and answered: what was said');
await page.click('[data-reveal=response]');
equal(await page.innerText('.hidden-part pre:not([hidden])'), 'out of paper', 'and all of it, for who has to find out');
await page.click('text=Run again…');
await page.fill('dialog [name=reason]', 'the provider has no such charge');
await page.click('dialog button.primary');
await page.waitForSelector('.badge.failed');
ok((await ask('claim pay-2')).startsWith('execute'), 'run again: the next try executes');
await keyPage('pay-3', 'acme');
await page.click('text=Release…');
await page.keyboard.press('Escape');
await page.waitForFunction(() => document.querySelector('dialog') === null);
ok(await page.isVisible('.badge.unknown'), 'Escape changes nothing');
await page.click('text=Release…');
await page.fill('dialog [name=reason]', 'a typo');
await page.click('dialog button.danger');
await page.waitForSelector('text=No such key');
ok((await texts('.timeline li')).at(-1).includes('a typo'), 'released: gone, but for the audit trail');
await keyPage('pay-4', 'acme');
await ask('resolve pay-4');
await page.click('text=Run again…');
await page.fill('dialog [name=reason]', 'too late');
await page.click('dialog button.primary');
const complaint = await (await page.waitForSelector('.toast.bad')).innerText();
await page.waitForSelector('.badge.succeeded');
ok(complaint.includes('It changed since you looked'), 'who was faster wins, and the page says so', complaint);
await keyPage('gone', 'acme');
ok(await page.isVisible('text=Its holder is gone.'), 'a record that nobody is at');
await keyPage('at-work', 'acme');
ok((await page.innerText('.nothing')).includes('Its holder is at work'), 'and one that somebody is at');
await page.fill('[name=call]', 'charge');
await page.click('text=Derive');
await page.waitForFunction(() => document.querySelectorAll('.rows dd.mono').length === 2);
ok(/^[0-9a-f]{48}/.test((await texts('.rows dd.mono')).at(-1)), 'a child key');
await keyPage('resend', 'acme');
ok((await page.innerText('.trace')).includes('0af7651916cd43dd8448eb211c80319c') && !(await page.innerText('main')).includes('secret=1'), 'a stored request: its trace, not its query');
await page.click('[data-reveal=request]');
await page.waitForSelector('text=/orders?secret=1');
ok((await page.innerText('main')).includes('"eur": 25'), 'all of it, when asked for');
await keyPage('stored', 'acme');
await page.click('[data-reveal=checkpoint]');
await page.waitForSelector('text=receipt-17');
ok(true, 'a checkpoint, when asked for');

// ---------------------------------------------------------------- outbox
await go('#/outbox', 'outbox');
equal((await texts('tbody .badge')).sort(), ['dead', 'dead', 'pending'], 'messages');
await shot('outbox');
await go('#/outbox?states=dead', 'outbox');
equal(await texts('tbody .badge'), ['dead', 'dead'], 'dead letters');
await page.click('tbody button.link');
ok((await page.innerText('dialog')).includes('<script>'), 'its payload, as text');
await page.keyboard.press('Escape');
await page.click('tbody tr:first-child >> text=Retry…');
await page.fill('dialog [name=reason]', 'the receiver is repaired');
await page.click('dialog button.primary');
await page.waitForFunction(() => document.querySelectorAll('tbody tr').length === 1);
await page.click('tbody tr:first-child >> text=Drop…');
await page.fill('dialog [name=reason]', 'a test order');
await page.click('dialog button.danger');
await page.waitForSelector('.empty');
equal(await ask('outbox'), 'pending pending', 'one is retried, the other one dropped');

// ---------------------------------------------------------------- activity, help, narrow
await go('#/activity', 'activity');
const activity = (await texts('tbody tr')).join('\n');
ok(activity.includes('revealed the response') && activity.includes('resolved: done') && activity.includes('resolved: release') && activity.includes('signed in'), 'what was done is listed', activity);
await page.keyboard.press('?');
await page.waitForSelector('dialog.help');
await page.keyboard.press('Escape');
await jump('k', 'keys');
await page.keyboard.press('/');
ok(await page.evaluate(() => document.activeElement.name === 'prefix'), 'a slash searches');
await page.keyboard.press('Escape');
await page.keyboard.press('Tab');
ok(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle !== 'none'), 'where the focus is can be seen');
await page.setViewportSize({ width: 390, height: 844 });
for (const [hash, ready] of [['#/overview', 'overview'], ['#/keys?tenant=hostile', 'keys'], ['#/unknowns', 'unknowns'], ['#/outbox', 'outbox'], ['#/activity', 'activity']]) {
    await go(hash, ready);
    ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${ready} fits a phone`, await page.evaluate(() => document.documentElement.scrollWidth));
    if (ready === 'overview') await shot('phone-overview');
}
await keyPage('pay-1', 'acme');
ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'a key fits a phone');
await page.setViewportSize({ width: 1280, height: 860 });

// ---------------------------------------------------------------- leaving
await page.click('text=Sign out');
await page.waitForSelector('[data-ready=sign-in]');
ok((await page.evaluate(() => localStorage.getItem('once-console'))) === null, 'signed out: nothing is kept');
await page.fill('[name=token]', await ask('token'));
await page.fill('[name=name]', 'ann');
await page.keyboard.press('Enter');
await page.waitForSelector('#main[data-ready]');
equal(await ask('crowd'), '16', 'others sign in');
expected = 401;
await page.keyboard.press('r');
await page.waitForSelector('[data-ready=sign-in]');
ok((await page.innerText('#toasts')).includes('signed out'), 'a session that ended leads back to the door');
expected = null;
equal(elsewhere, [], 'nothing was loaded from elsewhere');
equal(complaints, [], 'nothing was complained about');
await browser.close();
console.log(`1..${count}`);
process.exit(failed > 0 ? 1 : 0);
