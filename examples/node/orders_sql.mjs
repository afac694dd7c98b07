// A shop that takes each order once, with Once's SQL functions in its own transactions (node-postgres).
//
//     POST /orders {"item": "tea", "amount": 2500}    booked, charged at the payment provider, its receipt staged
//     POST /stock  {"item": "tea", "count": 5}        goods came in: nothing but our own database
//
// An order is three steps. Each transaction commits its writes together with what Once has to know of them:
//
//     transaction   claim the key, book the order, record the recovery point `ordered`
//     call          charge, with a key that is derived from the record: the same on every attempt
//     transaction   the order is paid, its receipt is in the outbox, the answer is stored
//
// Killed anywhere, the next request with the same key goes on at `ordered` as soon as the lease is over, with the same
// order and the same key for the provider. That is what `takeover => 'rerun'` allows, and it is right because the
// provider honours keys. One that does not, and cannot be asked: 'escalate' (the record becomes `unknown`, and a person
// looks). One that can be asked: 'probe' (the claim says `probe`: ask first). docs/sql.md has all functions.
//
// DATABASE_URL has the schema `once` (once migrate) and schema.sql; PROVIDER_URL, PORT, ORDERS_LEASE: see below.
import http from 'node:http';
import pg from 'pg';

const DATABASE = process.env.DATABASE_URL ?? 'postgresql://127.0.0.1/shop?user=shop';
const PROVIDER = process.env.PROVIDER_URL ?? 'http://127.0.0.1:9100';
const PORT = Number(process.env.PORT ?? 9000);
const LEASE = process.env.ORDERS_LEASE ?? '30 seconds'; // longer than the call may take: then nobody has to renew it
const CALL_MS = 1000 * Number(process.env.ORDERS_CALL_SECONDS ?? 10);
const BODY_MAX = 65536;
const TENANT = 'shop'; // of many shops in one database: whoever is logged in, so that they do not meet each other's keys

const pool = new pg.Pool({ connectionString: DATABASE, max: 20 });
pool.on('error', (error) => console.error(`orders: ${error.message}`)); // of a connection that nobody uses just now

class Refused extends Error {} // no order: nothing was claimed, the key is as good as new
class NotCharged extends Error {} // the provider certainly did nothing
class MaybeCharged extends Error {} // no answer that says anything

// ---------------------------------------------------------------- POST /orders

async function postOrder(key, body) {
    const [item, amount] = read(body, 'amount');
    const [claim, order, chargeKey] = await beginOrder(key, body, item, amount);
    if (claim.arm !== 'execute') return answerFrom(claim);
    let charge;
    try {
        charge = await callProvider(order, amount, chargeKey);
    } catch (error) {
        if (error instanceof NotCharged) // it stays `failed`, to be retried, at `ordered`: who asks next need not wait for the lease
            await pool.query('SELECT once.release($1, $2)', [claim.record, claim.fence]);
        else if (error instanceof MaybeCharged) // it stays as it is; its lease is the pause until the same call is made again
            await pool.query("SELECT once.extend($1, $2, '1 second')", [claim.record, claim.fence]);
        else throw error;
        return problem(503, 'No word from the payment provider; ask again under the same key', { 'Retry-After': '1' });
    }
    try {
        return await endOrder(claim, order, charge);
    } catch (error) {
        if (error.code !== 'ONC01') throw error;
        // We were thought dead and somebody took over. Our writes are rolled back, and its answer is the answer.
        return answerFrom((await pool.query('SELECT * FROM once.lookup($1, $2)', [TENANT, key])).rows[0]);
    }
}

function beginOrder(key, body, item, amount) {
    return inTransaction(async (db) => {
        const claim = (await db.query(
            `SELECT * FROM once.claim($1, $2, once.fingerprint($1, 'POST', '/orders', '', $3, json => true),
                                      lease => $4::interval, takeover => 'rerun')`,
            [TENANT, key, body, LEASE])).rows[0];
        if (claim.arm !== 'execute') return [claim];
        let order;
        if (claim.recovery_point === 'ordered') { // an earlier attempt came as far as this
            order = claim.checkpoint.toString();
        } else {
            order = (await db.query("INSERT INTO orders (item, amount, status) VALUES ($1, $2, 'new') RETURNING id",
                                    [item, amount])).rows[0].id;
            await db.query("SELECT once.advance($1, $2, 'ordered', $3)", [claim.record, claim.fence, Buffer.from(order)]);
        }
        const chargeKey = (await db.query("SELECT once.child_key($1, 'charge') AS key", [claim.record])).rows[0].key;
        return [claim, order, chargeKey];
    });
}

// 'paid ch_17' or 'declined'. Outside of any transaction: nothing of ours is locked while they think.
async function callProvider(order, amount, key) {
    let answer, text;
    try {
        answer = await fetch(`${PROVIDER}/charges`, {
            method: 'POST',
            headers: { 'Idempotency-Key': `"${key}"`, 'Content-Type': 'application/x-www-form-urlencoded' },
            body: `order=${order}&cents=${amount}`,
            signal: AbortSignal.timeout(CALL_MS),
        });
        text = await answer.text();
    } catch (error) {
        if (error.cause?.code === 'ECONNREFUSED') throw new NotCharged(error.message);
        throw new MaybeCharged(error.message);
    }
    if (answer.status === 200) return text;
    if (answer.status === 402) return 'declined';
    if (answer.status === 429 || answer.status === 503) throw new NotCharged(text);
    throw new MaybeCharged(text);
}

function endOrder(claim, order, charge) {
    const [word, id] = charge.split(' ');
    return inTransaction(async (db) => {
        // If somebody took over meanwhile, this fails the transaction; from here to its end nobody can.
        await db.query('SELECT once.guard($1, $2)', [claim.record, claim.fence]);
        await db.query('UPDATE orders SET status = $1, charge = $2 WHERE id = $3', [word, id ?? null, order]);
        if (word === 'paid') {
            const receipt = Buffer.from(JSON.stringify({ order: Number(order), charge: id }));
            await db.query("SELECT once.enqueue('receipts', $1, $2, content_type => 'application/json')", [order, receipt]);
            return finish(db, claim, 201, { order: Number(order), status: 'paid', charge: id }, 'succeeded');
        }
        // Declined is an outcome like any other: it is stored, and the card is not tried again under this key.
        return finish(db, claim, 402, { order: Number(order), status: 'declined' }, 'failed');
    });
}

// ---------------------------------------------------------------- POST /stock

// Where all of the work is in this database, one transaction is all there is to it. A second request with the same key
// waits for the first one's end, then replays it, or executes if it was rolled back.
async function postStock(key, body) {
    const [item, count] = read(body, 'count');
    return inTransaction(async (db) => {
        const claim = (await db.query(
            "SELECT * FROM once.claim($1, $2, once.fingerprint($1, 'POST', '/stock', '', $3, json => true))",
            [TENANT, key, body])).rows[0];
        if (claim.arm !== 'execute') return answerFrom(claim);
        const now = (await db.query(
            `INSERT INTO stock VALUES ($1, $2) ON CONFLICT (item) DO UPDATE SET count = stock.count + excluded.count
             RETURNING count`, [item, count])).rows[0].count;
        return finish(db, claim, 200, { item, count: Number(now) }, 'succeeded');
    });
}

// ---------------------------------------------------------------- answers

async function inTransaction(work) {
    const db = await pool.connect();
    let failed = true;
    try {
        await db.query('BEGIN');
        const result = await work(db);
        await db.query('COMMIT');
        failed = false;
        return result;
    } finally {
        db.release(failed); // closes a connection on which something failed: that rolls back
    }
}

// Stores the answer with the work. What is given back is sent only after the transaction's commit.
async function finish(db, claim, status, document, state) {
    const body = Buffer.from(JSON.stringify(document) + '\n');
    await db.query('SELECT once.finish($1, $2, $3, $4, $5, state => $6)',
                   [claim.record, claim.fence, status, body, 'Content-Type: application/json\r\n', state]);
    return { status, body, headers: { 'Content-Type': 'application/json' } };
}

// What to say when we are not the one who executes.
function answerFrom(record) {
    if (record.arm === 'mismatch') return problem(422, 'This key was used for another request');
    if (record.state === 'unknown')
        return problem(502, 'It is not known how this ended; somebody will look', { 'Idempotency-Outcome': 'unknown' });
    if ((record.state === 'succeeded' || record.state === 'failed') && !record.retryable) {
        const lines = (record.headers ?? Buffer.alloc(0)).toString('latin1').split('\r\n').filter((line) => line !== '');
        const headers = Object.fromEntries(lines.map((line) => line.split(/: (.*)/s, 2)));
        return { status: record.status, body: record.body ?? Buffer.alloc(0), headers: { ...headers, 'Idempotency-Replayed': 'true' } };
    }
    const seconds = Math.max(1, Math.ceil(Number(record.retry_after_ms ?? 0) / 1000));
    return problem(409, 'This request is being worked on', { 'Retry-After': String(seconds) });
}

function problem(status, title, headers = {}) {
    const body = Buffer.from(JSON.stringify({ title, status }) + '\n');
    return { status, body, headers: { 'Content-Type': 'application/problem+json', ...headers } };
}

// ---------------------------------------------------------------- HTTP

// The item, and the member called `number`.
function read(body, number) {
    let document;
    try {
        document = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
    } catch (error) {
        throw new Refused(error.message);
    }
    const [item, value] = [document?.item, document?.[number]];
    if (typeof item !== 'string' || !/^[A-Za-z0-9 ._-]{1,100}$/.test(item)) throw new Refused('item');
    if (!Number.isInteger(value) || value < 1 || value > 1e9) throw new Refused(number);
    return [item, value];
}

// Quoted, as the draft has it, or bare, as many clients send it. Two of them arrive here as one with ", " in it.
function readKey(field) {
    const match = /^(?:"([!#-[\]-~]{1,255})"|([!#-[\]-~]{1,255}))$/.exec(field ?? '');
    return match && (match[1] ?? match[2]);
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

const routes = { '/orders': postOrder, '/stock': postStock };

async function respond(request) {
    const handler = request.method === 'POST' && Object.hasOwn(routes, request.url) ? routes[request.url] : null;
    const body = await readBody(request);
    const key = readKey(request.headers['idempotency-key']);
    if (body === null) return problem(413, `A body of up to ${BODY_MAX} bytes`, { Connection: 'close' });
    if (handler === null) return problem(404, 'POST /orders and POST /stock are all there is');
    if (key === null) return problem(400, 'This needs one Idempotency-Key, of 1 to 255 visible characters');
    try {
        return await handler(key, body);
    } catch (error) {
        if (error instanceof Refused) return problem(400, 'It takes a JSON object: an item and an amount for an order, an item and a count for stock');
        // Also where the answer to a COMMIT was lost: whether it took effect is what the next request finds out.
        console.error(`orders: ${key}: ${error.message}`);
        return problem(503, 'Ask again under the same key', { 'Retry-After': '1' });
    }
}

const server = http.createServer(async (request, response) => {
    try {
        const answer = await respond(request);
        response.writeHead(answer.status, { ...answer.headers, 'Content-Length': answer.body.length });
        response.end(answer.body);
    } catch (error) { // the client is gone
        response.destroy();
    }
});
server.listen(PORT, '127.0.0.1', () => console.log(`orders: listening on http://127.0.0.1:${PORT}`));
