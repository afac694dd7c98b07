#!/usr/bin/env python3
"""The SQL functions from outside of C: arms, errors, names, fingerprints, roles."""
import os
import subprocess
import sys

from sqltest import equal, finish, migrated, ok, psql, url

ROWS = [  # name, SQL, expected: the last statement's answer, or the error's beginning
    ("claim: fresh executes", "SELECT arm, attempt, state FROM once.claim('t', 'a')", "execute|1|running"),
    ("claim: again is in progress", "SELECT arm FROM once.claim('t', 'a')", "in progress"),
    ("claim: another fingerprint is a mismatch and tells nothing",
     "SELECT arm, record, fence FROM once.claim('t', 'a', sha256('x'))", "mismatch||"),
    ("claim: the same key of another tenant executes", "SELECT arm FROM once.claim('u', 'a')", "execute"),
    ("claim: repeated with its nonce is the same grant",
     "SELECT fence FROM once.claim('t', 'n', nonce => '11111111-1111-1111-1111-111111111111') \\gset\n"
     "SELECT arm, fence = :fence FROM once.claim('t', 'n', nonce => '11111111-1111-1111-1111-111111111111')",
     "execute|t"),
    ("lookup: found and absent", "SELECT (once.lookup('t', 'a')).arm, (once.lookup('t', 'b')).arm", "found|absent"),
    ("claim: a route stays with its record, also after a takeover and a verdict",
     "SELECT route AS r1 FROM once.claim('routes', 'r', route => 'orders', lease => '1 ms', takeover => 'rerun') \\gset\n"
     "SELECT pg_sleep(0.02) \\gset\nSELECT l.record, l.fence, l.route AS r2 FROM once.lookup('routes', 'r') l \\gset\n"
     "SELECT route AS r3 FROM once.take_over(:'record', :fence, lease => '1 ms') \\gset\nSELECT pg_sleep(0.02) \\gset\n"
     "SELECT arm FROM once.resolve('routes', 'r', 'not done', 'why') \\gset\n"
     "SELECT :'r1', :'r2', :'r3', :'arm', route FROM once.lookup('routes', 'r')", "orders|orders|orders|done|orders"),
    ("claim: without a route it has none", "SELECT route IS NULL FROM once.claim('routes', 'r0')", "t"),
    ("claim: a new route is not made from an old snapshot, a known one is found there",
     "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT route AS r1 FROM once.claim('routes', 'r2', route => 'orders') \\gset\n"
     "SELECT route IS NULL AS r2 FROM once.claim('routes', 'r3', route => 'new') \\gset\nCOMMIT;\n"
     "SELECT :'r1', :'r2', count(*) FROM once.routes()", "orders|t|1"),
    ("claim: keys of a UUID's text with a route",
     "SELECT arm FROM once.claim('routes', '0e1d7a3c-62f4-4b6e-9d51-000000000001', route => 'orders') \\gset\n"
     "SELECT :'arm', convert_from(key, 'UTF8'), route FROM once.lookup('routes', '0e1d7a3c-62f4-4b6e-9d51-000000000001')",
     "execute|0e1d7a3c-62f4-4b6e-9d51-000000000001|orders"),
    ("claim: a route that is none", "SELECT once.claim('routes', 'r4', route => 'a b')", "22023: route 'a b' is not 1 to 64 visible ASCII characters"),
    ("finish: done, replayed byte for byte",
     "SELECT record, fence FROM once.claim('t', 'f') \\gset\n"
     "DO $$ BEGIN END $$; SELECT arm FROM once.finish(:'record', :fence, 201, '\\x00ff0a', E'A: b\\r\\n') \\gset\n"
     "SELECT :'arm', arm, status, body, headers FROM once.claim('t', 'f')",
     "done|replay|201|\\x00ff0a|\\x413a20620d0a"),
    ("replays, look-ups and claims in progress write nothing (K4): no transaction id",
     "SELECT record, fence FROM once.claim('t', 'w') \\gset\n"
     "SELECT arm FROM once.finish(:'record', :fence, 200) \\gset\n"
     "SELECT arm FROM once.claim('t', 'w2') \\gset\n"
     "BEGIN; SELECT (once.claim('t', 'w')).arm AS a1, (once.claim('t', 'w2')).arm AS a2, "
     "(once.lookup('t', 'w')).arm AS a3 \\gset\n"
     "SELECT string_agg((m.answer).arm, ',' ORDER BY m.n) AS many FROM once.claim_many("
     "ARRAY[once.record_id('t', 'w'), once.record_id('t', 'w2')], '{t,t}', '{w,w2}', "
     "(SELECT ARRAY[fingerprint, fingerprint] FROM once.lookup('t', 'w')), '{1000,1000}', '{1000,1000}', '{1,1}', "
     "ARRAY[gen_random_uuid(), gen_random_uuid()]) m \\gset\n"
     "SELECT :'a1', :'a2', :'a3', :'many', pg_current_xact_id_if_assigned() IS NULL",
     "replay|in progress|found|replay,in progress|t"),
    ("finish: retryable failure executes again",
     "SELECT record, fence FROM once.claim('t', 'g') \\gset\n"
     "SELECT arm FROM once.finish(:'record', :fence, 503, state => 'failed', retryable => true) \\gset\n"
     "SELECT :'arm', arm, attempt, fence > :fence FROM once.claim('t', 'g')", "done|execute|2|t"),
    ("takeover: rerun after the lease, the old holder is fenced",
     "SELECT record, fence FROM once.claim('t', 'h', lease => '1 ms') \\gset\n"
     "SELECT pg_sleep(0.02) \\gset\n"
     "SELECT arm AS a2, attempt AS n2 FROM once.claim('t', 'h', takeover => 'rerun') \\gset\n"
     "SELECT :'a2', :n2, (once.finish(:'record', :fence, 200)).arm, (once.extend(:'record', :fence)).arm, "
     "(once.advance(:'record', :fence, 'p')).arm, (once.release(:'record', :fence)).arm",
     "execute|2|fenced|fenced|fenced|fenced"),
    ("takeover: probe", "SELECT arm FROM once.claim('t', 'i', lease => '1 ms') \\gset\n"
     "SELECT pg_sleep(0.02) \\gset\nSELECT arm, attempt FROM once.claim('t', 'i', takeover => 'probe')", "probe|2"),
    ("takeover: escalates by default", "SELECT arm FROM once.claim('t', 'j', lease => '1 ms') \\gset\n"
     "SELECT pg_sleep(0.02) \\gset\nSELECT arm FROM once.claim('t', 'j')", "unknown"),
    ("take over: exactly what was seen, once, by the stored policy",
     "SELECT record, fence FROM once.claim('t', 'to1', lease => '1 ms', takeover => 'rerun') \\gset\n"
     "SELECT pg_sleep(0.02) \\gset\n"
     "SELECT arm AS a1, attempt AS n1, fence AS f1 FROM once.take_over(:'record', :fence, '1 minute') \\gset\n"
     "SELECT :'a1', :n1, :f1 > :fence, (once.take_over(:'record', :fence)).arm, (once.take_over(:'record', :f1)).arm, "
     "(once.take_over(gen_random_uuid(), 1)).arm", "execute|2|t|fenced|fenced|absent"),
    ("take over: escalates where the claim said so",
     "SELECT record, fence FROM once.claim('t', 'to2', lease => '1 ms') \\gset\nSELECT pg_sleep(0.02) \\gset\n"
     "SELECT arm AS a1 FROM once.take_over(:'record', :fence) \\gset\n"
     "SELECT :'a1', (once.take_over(:'record', :fence)).arm, (once.lookup('t', 'to2')).state", "unknown|fenced|unknown"),
    ("take over: what is left to a completer is in progress for claims",
     "SELECT record, fence FROM once.claim('t', 'to3', lease => '1 ms', takeover => 'completer') \\gset\n"
     "SELECT pg_sleep(0.02) \\gset\n"
     "SELECT arm AS a1, retry_after_ms AS r1 FROM once.claim('t', 'to3', takeover => 'completer') \\gset\n"
     "SELECT :'a1', :r1, arm, attempt, takeover FROM once.take_over(:'record', :fence)", "in progress|1000|probe|2|completer"),
    ("request: kept for whoever takes over, the latest one, and not longer than it is needed",
     "SELECT record, fence FROM once.claim('t', 'rq', lease => '1 ms', takeover => 'rerun', request => 'one') \\gset\n"
     "SELECT pg_sleep(0.02) \\gset\n"
     "SELECT request AS r1, fence AS f1 FROM once.take_over(:'record', :fence, '1 ms') \\gset\n"
     "SELECT pg_sleep(0.02) \\gset\n"
     "SELECT fence AS f2 FROM once.claim('t', 'rq', lease => '1 ms', takeover => 'rerun', request => 'two') \\gset\n"
     "SELECT pg_sleep(0.02) \\gset\n"
     "SELECT :'r1', request FROM once.take_over(:'record', :f2)", "\\x6f6e65|\\x74776f"),
    ("intent: without a point nothing was sent, with one something may have been",
     "SELECT record AS r1, fence AS f1 FROM once.claim('t', 'in1', lease => '1 ms', intent => true) \\gset\n"
     "SELECT record AS r2, fence AS f2 FROM once.claim('t', 'in2', lease => '1 ms', intent => true) \\gset\n"
     "SELECT (once.advance(:'r2', :f2, 'once:sending')).arm \\gset\n"
     "SELECT pg_sleep(0.02) \\gset\n"
     "SELECT arm AS a1, fence AS f3 FROM once.take_over(:'r1', :f1, '1 ms', intent => true) \\gset\n"
     "SELECT arm AS a2 FROM once.take_over(:'r2', :f2) \\gset\n"
     "SELECT pg_sleep(0.02) \\gset\n"
     "SELECT :'a1', :'a2', arm, attempt FROM once.claim('t', 'in1')", "execute|unknown|execute|3"),
    ("bad input: request", "SELECT once.claim('t', 'k', request => convert_to(repeat('x', 1114113), 'UTF8'))",
     "22023: request is 1114113 bytes long, the limit is 1114112"),
    ("take over: a lease out of range", "SELECT once.take_over(gen_random_uuid(), 1, '25 hours')",
     "22023: lease 25:00:00 is not between 1 ms and 24 hours"),
    ("retention: past it the key is free",
     "SELECT record, fence FROM once.claim('t', 'k', retention => '1 ms') \\gset\n"
     "SELECT arm FROM once.finish(:'record', :fence, 200) \\gset\nSELECT pg_sleep(0.02) \\gset\n"
     "SELECT arm AS before FROM once.lookup('t', 'k') \\gset\n"
     "SELECT :'before', arm, attempt FROM once.claim('t', 'k', sha256('other'))", "absent|execute|1"),
    ("body retention: past it the answer is gone, the record is not",
     "SELECT record AS r1, fence AS f1, body_retention_ms FROM once.claim('t', 'b', retention => NULL, body_retention => '20 ms') \\gset\n"
     "SELECT record AS r2, fence AS f2 FROM once.claim('t', 'c', retention => NULL, body_retention => '1 hour') \\gset\n"
     "SELECT arm FROM once.finish(:'r1', :f1, 201, 'body', E'A: b\\r\\n') \\gset\n"
     "SELECT arm FROM once.finish(:'r2', :f2, 201, 'body') \\gset\nSELECT pg_sleep(0.03) \\gset\n"
     "SELECT body_expired AS before, length(body) AS len FROM once.lookup('t', 'c') \\gset\n"
     "SELECT :body_retention_ms, :'before', :len, arm, status, body, headers, body_dropped, body_expired, expires_at FROM once.claim('t', 'b')",
     "20|f|4|replay|201|||t|t|"),
    ("body retention: none is as long as the record's",
     "SELECT body_retention_ms IS NULL, arm FROM once.claim('t', 'b2', retention => '1 hour', body_retention => '60 minutes')", "t|execute"),
    ("bad input: body retention", "SELECT once.claim('t', 'k', body_retention => '0 s')", "22023: body retention 00:00:00 is not between"),
    ("bad input: body retention longer than the record's",
     "SELECT once.claim('t', 'k', retention => '1 hour', body_retention => '2 hours')",
     "22023: body retention 02:00:00 is longer than the record's, 01:00:00"),
    ("key time: of a UUIDv7 only",
     "SELECT once.key_time('018bcfe5-6800-7abc-8def-000000000001'), once.key_time('018BCFE5-6800-7ABC-BDEF-000000000001'), "
     "once.key_time('018bcfe5-6800-4abc-8def-000000000001'), once.key_time('018bcfe5-6800-7abc-cdef-000000000001'), "
     "once.key_time('k'), once.key_time(E'018bcfe5-6800-7abc-8def-000000000001\\n')", "1700000000000|1700000000000||||"),
    ("key time: an old key is not executed as new",
     "SELECT arm AS a1, record IS NULL AS none FROM once.claim('t', '018bcfe5-6800-7abc-8def-000000000001', key_time => true) \\gset\n"
     "SELECT arm AS a2 FROM once.claim('t', '018bcfe5-6800-7abc-8def-000000000001', key_time => true, request => 'x') \\gset\n"
     "SELECT arm AS a3 FROM once.claim('t', '018bcfe5-6800-7abc-8def-000000000001', key_time => true, retention => NULL) \\gset\n"
     "SELECT :'a1', :'none', :'a2', :'a3', arm FROM once.claim('t', '018bcfe5-6800-7abc-8def-000000000001', key_time => true)",
     "expired|t|expired|execute|in progress"),
    ("advance: forward only (K11)",
     "SELECT record, fence FROM once.claim('t', 'l') \\gset\n"
     "SELECT once.advance(:'record', :fence, 'p1') \\gset x_\nSELECT once.advance(:'record', :fence, 'p2') \\gset x_\n"
     "SELECT once.advance(:'record', :fence, 'p1')", "22023: recovery point 'p1' was passed before; now at 'p2'"),
    ("one transaction: rolled back, nothing happened",
     "BEGIN; SELECT (once.claim('t', 'r')).arm \\gset\nROLLBACK; SELECT (once.lookup('t', 'r')).arm", "absent"),
    ("consume: fresh, then a duplicate; per consumer",
     "SELECT once.consume('c', 'm'), once.consume('c', 'm'), once.consume('d', 'm')", "t|f|t"),
    ("consume: rolled back, fresh again",
     "BEGIN; SELECT once.consume('c', 'm2') \\gset\nROLLBACK; SELECT once.consume('c', 'm2')", "t"),
    ("enqueue: staged if and only if committed",
     "BEGIN; SELECT once.enqueue('x', 'k', '1') \\gset\nROLLBACK; SELECT once.enqueue('x', 'k', '2') \\gset\n"
     "SELECT count(*), min(convert_from(payload, 'UTF8')) FROM once.outbox", "1|2"),
    ("serialize: holds a lock to the end of the transaction",
     "BEGIN; SELECT once.serialize('n') \\gset\nSELECT count(*) FROM pg_locks WHERE locktype = 'advisory'", "1"),
    ("bad input: tenant", "SELECT once.claim(repeat('t', 256), 'k')", "22023: tenant is 256 bytes long"),
    ("bad input: empty key", "SELECT once.claim('t', '')", "22023: key has 0 bytes"),
    ("bad input: NULL key", "SELECT once.claim('t', NULL)", "22023: key has 0 bytes"),
    ("bad input: NULL tenant", "SELECT once.claim(NULL, 'k')", "22023: tenant"),
    ("bad input: long key, counted in bytes", "SELECT once.claim('t', repeat(chr(228), 128))", "22023: key has 256"),
    ("bad input: fingerprint", "SELECT once.claim('t', 'k', 'short')", "22023: fingerprint has 5 bytes"),
    ("bad input: takeover", "SELECT once.claim('t', 'k', takeover => 'always')", "22023: takeover 'always'"),
    ("bad input: NULL nonce", "SELECT once.claim('t', 'k', nonce => NULL)", "22023: nonce"),
    ("bad input: lease", "SELECT once.claim('t', 'k', lease => '25 hours')", "22023: lease 25:00:00"),
    ("bad input: retention", "SELECT once.claim('t', 'k', retention => '-1 s')", "22023: retention"),
    ("bad input: lease of extend", "SELECT once.extend(gen_random_uuid(), 1, '-1 s')", "22023: lease"),
    ("bad input: state", "SELECT once.finish(gen_random_uuid(), 1, 200, state => 'fine')", "22023: state 'fine'"),
    ("bad input: retryable success", "SELECT once.finish(gen_random_uuid(), 1, 200, retryable => true)",
     "22023: only a failed"),
    ("bad input: headers", "SELECT once.finish(gen_random_uuid(), 1, 200, headers => 'no line')", "22023: headers"),
    ("bad input: point", "SELECT once.advance(gen_random_uuid(), 1, 'two words')", "22023: recovery point"),
    ("bad input: checkpoint", "SELECT once.advance(gen_random_uuid(), 1, 'p', decode(repeat('00', 65537), 'hex'))",
     "54000: checkpoint is 65537"),
    ("bad input: verdict", "SELECT once.resolve('t', 'a', 'perhaps', 'r')", "22023: verdict 'perhaps'"),
    ("bad input: no reason", "SELECT once.resolve('t', 'a', 'done', '')", "22023: a verdict needs a reason"),
    ("bad input: forget without a reason", "SELECT once.forget('t', 'a', '')", "22023: forgetting needs a reason"),
    ("bad input: exclude", "SELECT once.fingerprint('t', 'POST', '/', json => true, exclude => '{a}')",
     "22023: exclude: 'a'"),
    ("bad input: header pairs", "SELECT once.fingerprint('t', 'POST', '/', headers => '{a,b}')", "22023: headers"),
    ("bad input: a retention of -1 ms is not for ever", "SELECT once.claim('t', 'k', retention => '-1 ms')",
     "22023: retention -00:00:00.001 is not between"),
    ("bad input: NULL is no natural key, which would lock nothing", "SELECT once.serialize(NULL)", "22023: natural key is NULL"),
    ("bad input: NULL call of a child key", "SELECT once.child_key(gen_random_uuid(), NULL)", "22023: call is NULL"),
    ("bad input: NULL record of a child key", "SELECT once.child_key(NULL, 'charge')", "22023: record is NULL"),
    ("bad input: headers are counted in bytes",
     "SELECT once.finish(gen_random_uuid(), 1, 200, headers => E'A: ' || repeat(chr(228), 40000) || E'\\r\\n')",
     "54000: headers are 80005 bytes long, the limit is 65536"),
    ("bad input: body", "SELECT once.finish(gen_random_uuid(), 1, 200, convert_to(repeat('x', 16777217), 'UTF8'))",
     "54000: body is 16777217 bytes long, the limit is 16777216"),
    ("bad input: NULL status", "SELECT once.finish(gen_random_uuid(), 1, NULL)", "22023: status is NULL"),
    ("bad input: a verdict's headers are held to what an outcome's are",
     "SELECT once.resolve('t', 'a', 'done', 'r', 200, '', E'no line\\nSet-Cookie: x')", "22023: headers are not lines"),
    ("bad input: NULL status of a verdict", "SELECT once.resolve('t', 'a', 'done', 'r', NULL)", "22023: status is NULL"),
    ("bad input: NULL state of a verdict", "SELECT once.resolve('t', 'a', 'done', 'r', state => NULL)", "22023: state '<NULL>'"),
    ("forget: dropping that is NULL is not, and leaves alone what is not finished",
     "SELECT record, fence FROM once.claim('t', 'fn', lease => '1 ms', request => 'q') \\gset\n"
     "SELECT once.advance(:'record', :fence, 'p1', 'c') \\gset x_\nSELECT (once.extend(:'record', :fence, '1 ms')).arm \\gset x_\n"
     "SELECT pg_sleep(0.02) \\gset\nSELECT arm AS f FROM once.forget('t', 'fn', 'why', dropping => NULL) \\gset\n"
     "SELECT :'f', recovery_point, request FROM once.lookup_with_request(:'record')", "unknown|p1|\\x71"),
    ("bad input: not_before", "SELECT once.enqueue('x', 'k', '', not_before => 'infinity')", "22023: not_before is infinity, not a time"),
    ("no such grant is fenced", "SELECT (once.finish(gen_random_uuid(), 1, 200)).arm", "fenced"),
    ("REPEATABLE READ: a ring that turned since its snapshot is a serialisation failure",
     "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 AS one \\gset\n"
     "\\! \"$ONCE_TEST_POSTGRES_BIN/psql\" -Xqd \"$ONCE_TEST_DATABASE\" -c 'UPDATE once.ring SET current = current'\n"
     "SELECT (once.claim('t', 'rr')).arm", "40001: could not serialize"),
]

ROWS += [("bad input: NULL %s of %s" % (what, call.split("(")[0]), "SELECT once." + call, "22023: %s is NULL" % what)
         for what, calls in (("tenant", ("lookup(NULL, 'k')", "forget(NULL, 'k', 'r')", "resolve(NULL, 'k', 'done', 'r')")),
                             ("key", ("lookup('t', NULL)", "forget('t', NULL, 'r')", "resolve('t', NULL, 'done', 'r')")),
                             ("record", ("extend(NULL, 1)", "advance(NULL, 1, 'p')", "finish(NULL, 1, 200)", "release(NULL, 1)",
                                         "guard(NULL, 1)", "take_over(NULL, 1)")),
                             ("fence", tuple("%s(gen_random_uuid(), NULL%s)" % c for c in (
                                 ("extend", ""), ("advance", ", 'p'"), ("finish", ", 200"), ("release", ""), ("guard", ""), ("take_over", "")))))
         for call in calls]
ROWS += [("bad input: budget %s" % budget, "SELECT * FROM once.expire(%s)" % budget, "22023: budget %s is not between 1 and 10000" % said)
         for budget, said in (("NULL", "<NULL>"), ("0", "0"), ("-1", "-1"), ("10001", "10001"))]

ROLES = [  # name, role, SQL, expected
    ("once_app claims", "app", "SELECT (once.claim('r', 'a')).arm", "execute"),
    ("once_app uses every function of a service", "app",
     "SELECT record, fence FROM once.claim('r', 'b') \\gset\n"
     "SELECT (once.extend(:'record', :fence)).arm, (once.advance(:'record', :fence, 'p')).arm, "
     "(once.finish(:'record', :fence, 200)).arm, (once.lookup('r', 'b')).arm, once.consume('r', 'm'), "
     "once.enqueue('r', 'k', '') IS NULL, length(once.fingerprint('r', 'GET', '/'))", "done|done|done|found|t|f|32"),
    ("once_app may not resolve", "app", "SELECT once.resolve('r', 'a', 'release', 'r')", "42501: permission denied"),
    ("once_app expires", "app", "SELECT more FROM once.expire()", "f"),
    ("once_app may not call the insides", "app", "SELECT once.newest(gen_random_uuid())", "42501: permission denied"),
    ("once_app may not forget", "app", "SELECT once.forget('r', 'a', 'r')", "42501: permission denied"),
    ("once_ops forgets", "ops", "SELECT (once.forget('r', 'nothing', 'r')).arm", "absent"),
    ("once_ops resolves", "ops", "SELECT (once.resolve('r', 'nothing', 'release', 'r')).arm", "absent"),
    ("once_ops expires", "ops", "SELECT more FROM once.expire()", "f"),
    ("nobody else does anything", "stranger", "SELECT once.claim('r', 'a')", "42501: permission denied for schema"),
] + [("once_app may not %s" % sql.split(" once.")[0], "app", sql, "42501: permission denied for")
     for sql in ("SELECT * FROM once.claim", "DELETE FROM once.result", "UPDATE once.ring SET current = 1",
                 "INSERT INTO once.inbox VALUES ('a', 'b', 1)", "TRUNCATE once.claim_1", "SELECT secret FROM once.store",
                 "CREATE TABLE once.mine (x int)")]

ATTACK = """
CREATE FUNCTION pg_temp.now_ms() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
CREATE FUNCTION public.length(bytea) RETURNS integer LANGUAGE sql AS 'SELECT 32';
CREATE FUNCTION public.convert_to(text, text) RETURNS bytea LANGUAGE sql AS $$ SELECT 'same'::bytea $$;
CREATE FUNCTION public.sha256(bytea) RETURNS bytea LANGUAGE sql AS $$ SELECT 'same'::bytea $$;
CREATE FUNCTION public.nextval(text) RETURNS bigint LANGUAGE sql AS 'SELECT 7::bigint';
CREATE FUNCTION public.gen_random_uuid() RETURNS uuid LANGUAGE sql AS $$ SELECT NULL::uuid $$;
CREATE TEMP TABLE claim (record uuid);
CREATE TEMP TABLE ring (current smallint);
SET search_path = pg_temp, public, pg_catalog;
SELECT c.arm, l.claimed_at > 1600000000000, l.record = %s, length(l.tenant) FROM once.claim('attack', 'a') c, once.lookup('attack', 'a') l;
"""


def check_rows():
    os.environ["ONCE_TEST_DATABASE"] = url("test")
    import sqltest
    sqltest.ENV["ONCE_TEST_DATABASE"] = url("test")
    for name, sql, expected in ROWS:
        got = psql(sql)
        ok(got == expected or (":" in expected[:6] and got.startswith(expected)), name, "got " + got,
           "expected " + expected)


def check_roles():
    psql("CREATE ROLE app LOGIN IN ROLE once_app; CREATE ROLE ops LOGIN IN ROLE once_ops; CREATE ROLE stranger LOGIN;"
         "GRANT CREATE ON SCHEMA public TO app")
    for name, role, sql, expected in ROLES:
        got = psql(sql, user=role)
        ok(got == expected or (":" in expected[:6] and got.startswith(expected)), name, "got " + got,
           "expected " + expected)
    record = psql("SELECT once.record_id('attack', 'a')")
    equal(psql(ATTACK % ("'%s'::uuid" % record), user="app"), "execute|t|t|32",
          "functions and tables of the same name, found first, are not used inside")
    equal(psql("SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
               "WHERE n.nspname = 'once' AND (p.proconfig IS NULL OR NOT 'search_path=pg_catalog, pg_temp' = "
               "ANY (p.proconfig))"), "0", "every function has its search_path pinned")
    equal(psql("SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
               "WHERE n.nspname = 'once' AND has_function_privilege('stranger', p.oid, 'EXECUTE')"), "0",
          "PUBLIC may execute nothing")


def check_counts():
    """How much is stored is asked for with every look at the metrics: it must not be a walk through all of it."""
    actual = "SELECT attempts = (SELECT count(*) FROM once.claim) FROM once.counts()"
    equal(psql(actual), "t", "counts: exact where there is little")
    psql("""INSERT INTO once.claim (record, nonce, fence, claimed_at, claim_no, slot, takeover, fingerprint, tenant, key)
            SELECT gen_random_uuid(), gen_random_uuid(), 16 * n + 5, 0, 1, 5, 1, sha256('x'), 't',
                   convert_to(repeat('k', 1 + n %% 50), 'UTF8') FROM generate_series(1, %d) n""" % 50000)
    attempts, read = (int(x) for x in psql(
        "BEGIN; SELECT attempts FROM once.counts(); SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) "
        "FROM pg_stat_xact_user_tables WHERE schemaname = 'once' AND relname ~ '^claim_'; COMMIT").split())
    there = int(psql("SELECT count(*) FROM once.claim"))
    ok(abs(attempts - there) < there / 50, "counts: about what is there", attempts, there)
    ok(0 < read < 20000, "counts: of few rows", read)
    psql("TRUNCATE once.claim_5")
    equal(psql(actual), "t", "counts: exact again")


def check_unknown():
    """What is unknown is counted again and again (daemon/observers/unknown_count.h): neither those that are not, nor those that were resolved, are walked over."""
    psql("SELECT count(once.finish(c.record, c.fence, 0, state => 'unknown')) FROM generate_series(1, 5) n, "
         "once.claim('unknown', 'u' || n) c; "
         "SELECT once.resolve('unknown', 'u2', 'done', 'seen'); SELECT once.resolve('unknown', 'u4', 'not done', 'seen'); "
         "SELECT once.claim('unknown', 'u4')")
    psql("""INSERT INTO once.claim (record, nonce, fence, claimed_at, claim_no, slot, takeover, fingerprint, tenant, key)
            SELECT gen_random_uuid(), gen_random_uuid(), last_value + 16 * n + 5, 0, 1, 5, 1, sha256('x'), 't', 'k'
              FROM once.fence, generate_series(1, 20000) n;
            INSERT INTO once.result (fence, finished_at, status, slot, state) SELECT c.fence, 0, 0, 5, 2 FROM once.claim_5 c;
            SELECT setval('once.fence', last_value + 16 * 20001) FROM once.fence""")
    names = "SELECT string_agg(convert_from((l.answer).key, 'UTF8'), ',') || coalesce(max(l.next) FILTER (WHERE (l.answer).fence IS NULL), -1) FROM "
    equal(psql(names + "once.list_unknown(9000000000, 100) l WHERE (l.answer).tenant = 'unknown' OR (l.answer).fence IS NULL"), "u5,u3,u10",
          "list_unknown: in one step")
    equal(psql(names + "once.list_unknown(9000000000, 2) l"), psql("SELECT 'u5' || fence FROM once.claim_1 WHERE key = 'u4' ORDER BY fence LIMIT 1"),
          "list_unknown: a step of two of them")
    psql("VACUUM once.claim_5")  # its index knows them
    reads = ("SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables "
             "WHERE schemaname = 'once' AND relname ~ '^(result|claim)_';")
    before, _, after = psql("BEGIN; %s SELECT count(*) FROM once.list_unknown(9000000000, 100); %s COMMIT" % (reads, reads)).split()
    ok(0 < int(after) - int(before) < 5000, "list_unknown: of few rows", before, after)
    psql("TRUNCATE once.claim_5, once.result_5")


def check_derived(helper, corpus):
    lines = subprocess.run([helper, url("test"), corpus], check=True, text=True, stdout=subprocess.PIPE,
                           ).stdout.splitlines()
    for line in lines:
        name, first, second = line.split("\t")
        if name == "child":
            equal(psql("SELECT once.child_key(once.record_id('shop', 'order-1'), 'charge'), "
                       "replace(once.record_id('shop', 'order-1')::text, '-', '')"), first + "|" + second,
                  "child key and record id are libonce's")
            continue
        body = open(os.path.join(corpus, name), "rb").read().hex()
        call = ("encode(once.fingerprint('shop', 'POST', '/v1', 'q=1', '\\x%s', E'{{X-B,\" 2\\t\"},{x-a,1},{x-b,3}}',"
                " true%s), 'hex')")
        got = psql("SELECT %s, %s" % (call % (body, ""), call % (body, ", '{/a,/0,/b/c,/~1~0}'")))
        equal(got, first + "|" + second, "fingerprint is libonce's: " + name)


def check_vectors():
    """Those of docs/internals/fingerprint.md, under their secret."""
    pads = "".join("%02x" % (0x36 ^ (i if i < 32 else 0)) for i in range(64)), \
           "".join("%02x" % (0x5c ^ (i if i < 32 else 0)) for i in range(64))
    psql("UPDATE once.store SET secret = '\\x%s', inner_pad = '\\x%s', outer_pad = '\\x%s'" %
         (("".join("%02x" % i for i in range(32)),) + pads))
    equal(psql("SELECT encode(once.fingerprint('acme', 'POST', '/v1/charges', 'a=1', "
               "'{ \"items\": [\"a\", \"\\\\u0062\"], \"sent_at\": 5, \"amount\": 10.50 }', "
               "'{{X-Account,17},{Content-Type,\" application/json \"}}', true, '{/sent_at}'), 'hex')"),
          "74f9574e22993a9d4ccbcfbd4f76a4922e281d580ef7ceb727bd5a391310b136", "test vector 1")
    equal(psql("SELECT encode(once.fingerprint('', 'PUT', '/x', '', 'hello'), 'hex')"),
          "ebb865dbf1b4e2896db22171856f208881d4e0a2c1da62a12e728874ea9586e1", "test vector 3")


migrated()
check_rows()
check_roles()
check_counts()
check_unknown()
check_derived(sys.argv[1], sys.argv[2])
check_vectors()
finish()
