#!/usr/bin/env python3
"""The SQL functions answer the same whatever a server, a database, a role or a session has set.

Functions are read anew by each session that calls them, under that session's settings; so each setting here has a session of its
own, and sets it before anything is called."""
import re

from sqltest import Session, equal, finish, migrated, ok, psql

# Literals of the caller are written so that they mean the same under all of them.
CALLS = r"""
SELECT arm, attempt, state, retention_ms, request IS NULL FROM once.claim(:'t', 'a', once.fingerprint('shop', 'POST', '/x', 'q',
    convert_to(E'{"b":[1,2.50],"a":"\\u0041\\n\\"x\\\\"}', 'UTF8'), '{{A,b}}', true, '{/b/0}'), request => 'r', route => 'r1');
SELECT record, fence FROM once.lookup(:'t', 'a') \gset
SELECT arm FROM once.extend(:'record', :fence, '2 minutes');
SELECT arm, recovery_point FROM once.advance(:'record', :fence, 'p1', 'c');
SELECT arm, encode(checkpoint, 'hex') FROM once.advance(:'record', :fence, 'p2', decode('00ff5c', 'hex'));
SELECT once.guard(:'record', :fence);
SELECT arm, state, status, encode(headers, 'hex'), encode(body, 'hex')
  FROM once.finish(:'record', :fence, 201, decode('005c27ff', 'hex'), E'A: b\r\nC: d\r\n');
SELECT arm, status, encode(body, 'hex') FROM once.claim(:'t', 'a', once.fingerprint('shop', 'POST', '/x', 'q',
    convert_to(E'{"a":"A\\n\\"x\\\\","b":[7,2.50]}', 'UTF8'), '{{A,b}}', true, '{/b/0}'));
SELECT encode(once.json_canonical(convert_to(E'{"a/b~":"\\u0000\\ud83d\\ude00\\u00e9", "I":"\\t\\b\\f\\r\\/", "1":1e5}', 'UTF8'), '{/1}'), 'hex');
SELECT once.key_time('0190A1B2-C3D4-7E5F-8A6B-0123456789AB'),
       (once.claim(:'t', '0190A1B2-C3D4-7E5F-8A6B-0123456789AB', key_time => true)).arm;
SELECT record, fence FROM once.claim(:'t', 'u', lease => '1 ms', takeover => 'probe') \gset
SELECT pg_sleep(0.01);
SELECT arm FROM once.take_over(:'record', :fence);
SELECT record, fence FROM once.lookup(:'t', 'u') \gset
SELECT arm FROM once.release(:'record', :fence);
SELECT arm FROM once.claim(:'t', 'u', lease => '1 ms');
SELECT arm FROM once.resolve(:'t', 'u', 'done', E'a\\reason', 200, 'b', E'X: y\r\n');
SELECT what, convert_from(reason, 'UTF8') FROM once.history(once.record_id(convert_to(:'t', 'UTF8'), 'u')) WHERE actor <> '';
SELECT arm FROM once.forget(:'t', 'a', 'why');
SELECT arm, forgotten, headers IS NULL FROM once.lookup(:'t', 'a');
SELECT once.consumer(:'t', '1 day'), once.consume(:'t', 'm'), once.consume(:'t', 'm');
SELECT once.enqueue(:'t', 'k', 'x', '{"A":"b c"}', 'text/plain', now() + '1 hour') IS NULL, once.enqueue(:'t', 'k', 'x', '{"A":"b"}') IS NULL;
SELECT state, encode(convert_to(headers, 'UTF8'), 'hex'), content_type FROM once.outbox_list('', :'t', 2);
SELECT once.serialize('x'), length(once.child_key(:'record', 'c'));
SELECT removed, more FROM once.expire();
SELECT count(*) FROM once.check_rows(0, 10000);
SELECT count(*) FROM once.check_orphans();
SELECT count(*) > 1 FROM once.list(9000000000, 10000);
SELECT count(*) > 0 FROM once.unfinished_attempts(0, 10000);
SELECT attempts > 0, bytes > 0 FROM once.counts()"""

SETTINGS = [
    "standard_conforming_strings = off", "bytea_output = escape", "DateStyle = 'German, DMY'", "IntervalStyle = sql_standard",
    "IntervalStyle = postgres_verbose", "TimeZone = 'Asia/Kathmandu'", "extra_float_digits = -15", "plan_cache_mode = force_custom_plan",
    "plan_cache_mode = force_generic_plan", "enable_indexscan = off", "enable_nestloop = off", "enable_partition_pruning = off",
    "jit = on; SET jit_above_cost = 0", "transform_null_equals = on", "array_nulls = off", "plpgsql.extra_errors = 'all'",
    "plpgsql.variable_conflict = use_column", "plpgsql.variable_conflict = use_variable", "client_encoding = LATIN1",
    "row_security = off", "search_path = ''", "check_function_bodies = off", "default_transaction_deferrable = on",
]


def answers(setting, number):
    session = Session()
    try:
        session.run("SET client_min_messages = warning; SET %s" % setting)
        return re.sub(r"\bt%d\b" % number, "T", session.run("\\set t t%d\n%s" % (number, CALLS)))
    finally:
        session.close()


def check_settings():
    usual = answers("application_name = usual", 0)
    ok("ERROR" not in usual and "expired" in usual and usual.count("\n") > 25, "all of them work", usual)
    for number, setting in enumerate(SETTINGS, 1):
        equal(answers(setting, number), usual, setting)


def check_encodings():
    """A key is the bytes of its text in UTF-8 in every database: so is its name."""
    for encoding in ("LATIN1", "SQL_ASCII"):
        database = "in_" + encoding.lower()
        migrated(database, "ENCODING %s LOCALE 'C' TEMPLATE template0" % encoding)
        equal(psql("SET client_encoding = UTF8; SELECT arm FROM once.claim(U&'\\00e4', U&'\\00f6') \\gset\n"
                   "SELECT :'arm', tenant, key, record = once.record_id(tenant, key) FROM once.lookup(U&'\\00e4', U&'\\00f6')"
                   if encoding == "LATIN1" else
                   "SELECT arm FROM once.claim(E'\\303\\244', E'\\303\\266') \\gset\n"
                   "SELECT :'arm', tenant, key, record = once.record_id(tenant, key) FROM once.lookup(E'\\303\\244', E'\\303\\266')",
                   database), "execute|\\xc3a4|\\xc3b6|t", "a key of a database in " + encoding)
    equal(psql("SELECT once.claim('t', E'\\344')", "in_sql_ascii")[:5], "22021", "in SQL_ASCII what is no UTF-8 is refused")


migrated()
check_settings()
check_encodings()
finish()
