// Claim, replay, rollback and a second claimer that waits, through node's driver `pg`.
import pg from 'pg';

let number = 0, failed = 0;
function equal(got, expected, name) {
  const same = JSON.stringify(got) === JSON.stringify(expected);
  if (!same) {
    failed++;
    console.log(`# got ${JSON.stringify(got)}, expected ${JSON.stringify(expected)}`);
  }
  console.log(`${same ? '' : 'not '}ok ${++number} - ${name}`);
}

async function connect() {
  const client = new pg.Client();
  await client.connect();
  return client;
}

const [a, b, watch] = [await connect(), await connect(), await connect()];
const row = async (client, sql, ...values) => (await client.query(sql, values)).rows[0];
const claim = (client, key) => row(client, 'SELECT * FROM once.claim($1, $2)', 'shop', key);
const finish = (client, c, body) =>
  row(client, 'SELECT * FROM once.finish($1, $2, $3, $4)', c.record, c.fence, 201, body);

await a.query('CREATE TABLE effect (key text)');
const { pid } = await row(b, 'SELECT pg_backend_pid() AS pid');

// The handler: one transaction with key, work and outcome.
async function handle(client, key, end = 'COMMIT') {
  await client.query('BEGIN');
  const c = await claim(client, key);
  if (c.arm === 'execute') {
    await client.query('INSERT INTO effect VALUES ($1)', [key]);
    await finish(client, c, Buffer.from([0, 255, 10]));
  }
  await client.query(end);
  return c;
}
const effects = async (key) => Number((await row(a, 'SELECT count(*) FROM effect WHERE key = $1', key)).count);

equal((await handle(a, 'k1')).arm, 'execute', 'the first executes');
const replay = await handle(b, 'k1');
equal([replay.arm, replay.status, [...replay.body]], ['replay', 201, [0, 255, 10]], 'the second replays the same bytes');
equal(await effects('k1'), 1, 'one effect');

equal((await handle(a, 'k2', 'ROLLBACK')).arm, 'execute', 'one that will roll back executes');
equal(await effects('k2'), 0, 'and leaves nothing');
equal((await handle(b, 'k2')).arm, 'execute', 'the next executes');
equal(await effects('k2'), 1, 'one effect after a rollback');

for (const [end, arm] of [['COMMIT', 'replay'], ['ROLLBACK', 'execute']]) {
  const key = `k3 ${end}`;
  await a.query('BEGIN');
  const first = await claim(a, key);
  await a.query('INSERT INTO effect VALUES ($1)', [key]);
  await finish(a, first, 'x');
  let answered = false;
  const second = handle(b, key).then((c) => { answered = true; return c; });
  const waits = () => row(watch, 'SELECT count(*) > 0 AS yes FROM pg_locks WHERE NOT granted AND pid = $1', pid);
  while (!answered && !(await waits()).yes);
  equal(answered, false, 'a second claimer waits while the first is at it');
  await a.query(end);
  equal((await second).arm, arm, `after ${end} it is answered ${arm}`);
  equal(await effects(key), 1, 'one effect');
}

const held = await claim(a, 'k4');
equal((await claim(b, 'k4')).arm, 'in progress', 'a committed claim is in progress for others');
equal((await row(b, 'SELECT arm FROM once.finish($1, $2, 500)', held.record, Number(held.fence) - 1)).arm, 'fenced',
  'an older fence is fenced');
equal((await finish(a, held, 'y')).arm, 'done', 'the holder finishes');
const codes = [];
for (const sql of ["SELECT once.claim('', '')", "SELECT once.resolve('', 'none', 'perhaps', 'r')"]) {
  try { await a.query(sql); } catch (error) { codes.push(error.code); }
}
equal(codes, ['22023', '22023'], 'wrong input is an error with its code');
equal([(await row(a, "SELECT once.consume('c', 'm') AS fresh")).fresh,
  (await row(b, "SELECT once.consume('c', 'm') AS fresh")).fresh], [true, false], 'a message is fresh once');
console.log(`1..${number}`);
await a.end();
await b.end();
await watch.end();
process.exit(failed ? 1 : 0);
