// What people write themselves, for bench/gateway to compare with: a service that keeps keys in a table of its own, an
// INSERT and an UPDATE per request, or behind a lock in Redis, SET NX and then the answer.
//
// It is the usual twenty lines, with what the usual twenty lines leave out: the request is not compared with the key's
// first, a process that dies leaves its key "running" (a table: for good; Redis: for a minute, then it runs again), nothing fences a
// holder that was only slow. The work is done in this very process, which spares it the second hop that a gateway makes.
//
// usage: server.mjs PORT URL        of a PostgreSQL, or the path of a Redis's socket; prints "ready" when it listens
import http from "node:http";
import pg from "pg";
import { Redis } from "ioredis";

const ANSWER = '{"id": "ch_9f31c2a7", "status": "paid"}';
const CONNECTIONS = 64;
const DAY_MS = 24 * 60 * 60 * 1000;
const LOCK_MS = 60 * 1000;

// Both have claim(key): undefined: it is ours; null: somebody is at it; a text: the answer. And finish(key, answer).
async function table(url) {
  const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS });
  await pool.query(`DROP TABLE IF EXISTS homemade_keys`);
  await pool.query(`CREATE TABLE homemade_keys (key text PRIMARY KEY, status text NOT NULL, answer jsonb,
                    created_at timestamptz NOT NULL DEFAULT now(), expires_at timestamptz NOT NULL)`);
  await pool.query(`CREATE INDEX ON homemade_keys (expires_at)`);
  const claim = { name: "claim", text: `INSERT INTO homemade_keys (key, status, expires_at)
                  VALUES ($1, 'running', now() + interval '24 hours') ON CONFLICT DO NOTHING` };
  const look = { name: "look", text: `SELECT answer::text FROM homemade_keys WHERE key = $1` };
  const finish = { name: "finish", text: `UPDATE homemade_keys SET status = 'done', answer = $2 WHERE key = $1` };
  return {
    async claim(key) {
      const made = await pool.query({ ...claim, values: [key] });
      if (made.rowCount === 1) return undefined;
      const found = await pool.query({ ...look, values: [key] });
      return found.rows[0].answer;
    },
    finish: (key, answer) => pool.query({ ...finish, values: [key, answer] }),
  };
}

async function lock(path) {
  const redis = new Redis(path, { enableAutoPipelining: true });
  return {
    async claim(key) {
      if ((await redis.set(key, "", "PX", LOCK_MS, "NX")) === "OK") return undefined;
      return (await redis.get(key)) || null;
    },
    finish: (key, answer) => redis.set(key, answer, "PX", DAY_MS),
  };
}

async function answer(keys, request, response) {
  for await (const _ of request);
  const key = request.headers["idempotency-key"];
  const kept = await keys.claim(key);
  if (kept === null) {
    response.writeHead(409).end();
    return;
  }
  if (kept === undefined) await keys.finish(key, ANSWER);
  response.writeHead(201, { "Content-Type": "application/json" }).end(kept ?? ANSWER);
}

const [port, url] = process.argv.slice(2);
const keys = await (url.startsWith("/") ? lock(url) : table(url));
http
  .createServer((request, response) =>
    answer(keys, request, response).catch((why) => {
      console.error(why);
      response.writeHead(500).end();
    }))
  .listen(Number(port), "127.0.0.1", () => console.log("ready"));
process.on("SIGTERM", () => process.exit(0));
