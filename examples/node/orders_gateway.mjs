// The same shop behind Once's gateway: no keys, no claims, no replays here; only how far a request has come.
//
//     once serve --upstream http://127.0.0.1:9000 --required --takeover rerun --complete
//
// The gateway lets each request through once at a time, and tells the service in header fields which one it is
// (docs/nginx.md):
//
//     Once-Record, Once-Fence    who we are when we speak to the daemon's JSON API (docs/api.md)
//     Once-Key                   the same on every attempt of a request, and on no other
//     Once-Recovery-Point        how far an earlier attempt came; not there: nowhere
//     Once-Checkpoint            what it kept there, as :base64:
//
// The order is in our database and the recovery point in the daemon's: these are two commits, and we may be killed between
// them. So what comes before a point must be harmless to repeat. The order's row is, for Once-Key is unique in it; the
// charge is, for the provider honours the key that we send. A point saves the repetition, and keeps what it brought.
//
// Whoever lost its request to a successor is told `fenced` by the JSON API, and stops: the gateway answers its client from
// the record. Killed, the service is sent the request again: by the client's retry, or by the daemon without one
// (--complete). `--takeover rerun` allows that, because all steps can be repeated; a service for which that is not so
// takes 'probe' or 'escalate'.
//
// DATABASE_URL has the tables of schema.sql, and nothing of Once; PROVIDER_URL, ONCE_API, PORT: see below.
import http from 'node:http';
import pg from 'pg';

const DATABASE = process.env.DATABASE_URL ?? 'postgresql://127.0.0.1/shop?user=shop';
const PROVIDER = process.env.PROVIDER_URL ?? 'http://127.0.0.1:9100';
const API = process.env.ONCE_API ?? 'http://127.0.0.1:7411';
const PORT = Number(process.env.PORT ?? 9000);
const CALL_MS = 1000 * Number(process.env.ORDERS_CALL_SECONDS ?? 10);
const BODY_MAX = 65536;

const pool = new pg.Pool({ connectionString: DATABASE, max: 20 });
pool.on('error', (error) => console.error(`orders: ${error.message}`)); // of a connection that nobody uses just now

// A request as the gateway let it through. null: it did not come through the gateway, or without a key. Nobody else can
// make these fields: the gateway drops a client's own, and we listen where only the gateway connects.
function readAttempt(headers) {
    const [record, fence, key] = [headers['once-record'], headers['once-fence'], headers['once-key']];
    if (!record || !key || !/^[0-9]{1,19}$/.test(fence ?? '')) return null;
    const checkpoint = Buffer.from((headers['once-checkpoint'] ?? '').replaceAll(':', ''), 'base64').toString();
    return { record, fence, key, point: headers['once-recovery-point'] ?? null, checkpoint };
}

// ---------------------------------------------------------------- the JSON API

// `members` is JSON already: a fence is a 64-bit number, which JavaScript's are not.
async function askOnce(verb, members) {
    const answer = await fetch(`${API}/v1/${verb}`, {
        method: 'POST', headers: { 'Content-Type': 'application/json' }, body: members, signal: AbortSignal.timeout(CALL_MS),
    });
    if (answer.status !== 200) throw new Error(`once, ${verb}: ${await answer.text()}`);
    return answer.json();
}

// From here on the next attempt begins after this. Repeating the same point is fine.
async function advance(attempt, point, checkpoint) {
    const answer = await askOnce('advance', `{"record": ${JSON.stringify(attempt.record)}, "fence": ${attempt.fence},
        "point": ${JSON.stringify(point)}, "checkpoint": ${JSON.stringify(checkpoint)}}`);
    if (answer.arm !== 'done') throw new Error('fenced: somebody else has this request by now');
}

// ---------------------------------------------------------------- POST /orders

async function postOrder(attempt, item, amount) {
    let order, charge;
    if (attempt.point === null) {
        order = await book(attempt.key, item, amount);
        await advance(attempt, 'ordered', order);
    } else {
        order = attempt.checkpoint.split(' ')[0];
    }
    if (attempt.point !== 'charged') {
        const key = (await askOnce('child-key', JSON.stringify({ record: attempt.record, call: 'charge' }))).child_key;
        charge = await callProvider(order, amount, key);
        await advance(attempt, 'charged', `${order} ${charge}`);
    } else {
        charge = attempt.checkpoint.slice(order.length + 1);
    }
    const [word, id] = charge.split(' ');
    await pool.query('UPDATE orders SET status = $1, charge = $2 WHERE id = $3', [word, id ?? null, order]);
    if (word === 'paid') return [201, { order: Number(order), status: 'paid', charge: id }];
    return [402, { order: Number(order), status: 'declined' }];
}

// One row per Once-Key, whoever comes, and its id also if it was there.
async function book(key, item, amount) {
    const done = await pool.query(
        `INSERT INTO orders (item, amount, status, once_key) VALUES ($1, $2, 'new', $3)
         ON CONFLICT (once_key) DO UPDATE SET once_key = excluded.once_key RETURNING id`, [item, amount, key]);
    return done.rows[0].id;
}

// 'paid ch_17' or 'declined'. Whether it charged or not when this fails: it is asked again with the same key.
async function callProvider(order, amount, key) {
    const answer = await fetch(`${PROVIDER}/charges`, {
        method: 'POST',
        headers: { 'Idempotency-Key': `"${key}"`, 'Content-Type': 'application/x-www-form-urlencoded' },
        body: `order=${order}&cents=${amount}`,
        signal: AbortSignal.timeout(CALL_MS),
    });
    const text = await answer.text();
    if (answer.status === 402) return 'declined';
    if (answer.status !== 200) throw new Error(`provider: ${text}`);
    return text;
}

// ---------------------------------------------------------------- HTTP

// [item, amount], or null.
function read(body) {
    let document;
    try {
        document = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
    } catch {
        return null;
    }
    const [item, amount] = [document?.item, document?.amount];
    const good = typeof item === 'string' && /^[A-Za-z0-9 ._-]{1,100}$/.test(item) &&
                 Number.isInteger(amount) && amount >= 1 && amount <= 1e9;
    return good ? [item, amount] : null;
}

// null: more than we take.
async function readBody(request) {
    const parts = [];
    let length = 0;
    for await (const part of request) {
        length += part.length;
        if (length <= BODY_MAX) parts.push(part); // the rest is read and forgotten: else our answer may be lost with it
    }
    return length <= BODY_MAX ? Buffer.concat(parts) : null;
}

async function respond(request) {
    const body = await readBody(request);
    if (body === null) return [413, { title: `A body of up to ${BODY_MAX} bytes` }];
    const attempt = readAttempt(request.headers);
    const order = read(body);
    if (request.method !== 'POST' || request.url !== '/orders') return [404, { title: 'POST /orders is all there is' }];
    if (attempt === null) return [400, { title: 'This needs an Idempotency-Key, and comes through the gateway' }];
    if (order === null) return [400, { title: 'This is no order' }]; // which the gateway stores, as any answer that is final
    try {
        return await postOrder(attempt, ...order);
    } catch (error) {
        // The gateway notes that it failed and may be tried again, which begins at the last recovery point.
        console.error(`orders: ${attempt.record}: ${error.message}`);
        return [503, { title: 'Ask again under the same key' }];
    }
}

const server = http.createServer(async (request, response) => {
    try {
        const [status, document] = await respond(request);
        const body = Buffer.from(JSON.stringify(document) + '\n');
        response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': body.length });
        response.end(body);
    } catch (error) { // the client is gone
        response.destroy();
    }
});
server.keepAliveTimeout = 75000; // longer than the gateway keeps a connection: else it sends a request where nobody reads any more
server.listen(PORT, '127.0.0.1', () => console.log(`orders: listening on http://127.0.0.1:${PORT}`));
