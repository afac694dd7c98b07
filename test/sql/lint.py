#!/usr/bin/env python3
"""Does the hot path keep to SQL that the distributed relatives of PostgreSQL accept?

The hot path is what the store sends for a batch, as the server's log has it after a real
`once run`, and the installed functions that this calls, and those that they call. FORBIDDEN is
what Citus, YugabyteDB or CockroachDB refuse, or do in another way than PostgreSQL, with the
reason; what is used in spite of that is in EXCEPTIONS, function by function, with the mode in
which it works. None of the three was run: this reads SQL. Reasons are from their documentation and
issues; those that begin with "unverified" were not found there, or in an old version only."""
import os
import re

from sqltest import equal, finish, migrated, ok, once, psql, url

CITUS, YB, CRDB = "Citus", "YugabyteDB", "CockroachDB"

# name: pattern, a text that it must find, who and why.
FORBIDDEN = {
    "LOCK TABLE": (r"\bLOCK TABLE\b", "LOCK TABLE once.claim", {
        YB: "not supported (yugabyte-db #5384)"}),
    "TRUNCATE": (r"\bTRUNCATE\b", "TRUNCATE once.claim_1", {
        YB: "not transactional (yugabyte-db #8528)"}),
    "LISTEN/NOTIFY": (r"\b(UN)?LISTEN\b|\bNOTIFY\b|\bpg_notify\s*\(", "PERFORM pg_notify('a', 'b')", {
        YB: "not supported (yugabyte-db #1872)", CRDB: "unverified: not supported"}),
    "system columns": (r"\b(ctid|xmin|xmax|cmin|cmax)\b", "SELECT c.ctid FROM once.claim c", {
        YB: "unverified: rows are not in a heap", CRDB: "unverified: rows are not in a heap",
        CITUS: "unverified: means something in one shard only"}),
    "dynamic SQL": (r"\bEXECUTE\b", "EXECUTE format('x')", {
        CRDB: "not supported in PL/pgSQL (cockroach #115300)"}),
    "MERGE": (r"\bMERGE\s+INTO\b", "MERGE INTO once.claim", {
        CITUS: "between colocated tables only", CRDB: "unverified: not supported"}),
    "WITH RECURSIVE": (r"\bWITH\s+RECURSIVE\b", "WITH RECURSIVE a AS (SELECT 1)", {
        CITUS: "in queries of a single shard only"}),
    "TABLESAMPLE": (r"\bTABLESAMPLE\b", "FROM once.claim TABLESAMPLE system (1)", {
        CITUS: "in queries of a single shard only"}),
    "grouping sets": (r"\b(GROUPING SETS|CUBE|ROLLUP)\s*\(", "GROUP BY ROLLUP (a)", {
        CITUS: "in queries of a single shard only"}),
    "subquery in VALUES": (r"\bVALUES\s*\([^;]*\(\s*SELECT\b", "VALUES (1, (SELECT 2))", {
        CITUS: "subqueries within INSERT are not supported"}),
    "ON CONFLICT with an expression": (r"\bON CONFLICT\s*\([^)]*\(", "ON CONFLICT (lower(key)) DO NOTHING", {
        CRDB: "expressions as targets are not supported"}),
    "ON CONFLICT with a predicate": (r"\bON CONFLICT\s*\([^)]*\)\s*WHERE\b", "ON CONFLICT (a) WHERE b DO NOTHING", {
        CITUS: "unverified; keep to whole primary keys"}),
    "other sequence functions": (r"\b(setval|currval|lastval)\s*\(", "SELECT lastval()", {
        YB: "sequences are cached per connection or per server", CITUS: "each node counts for itself"}),
    "isolation levels": (r"\bSET\s+(SESSION|TRANSACTION)\b|\bISOLATION\s+LEVEL\b", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", {
        YB: "our rule: it is written for READ COMMITTED", CRDB: "our rule, likewise"}),
    "SKIP LOCKED, NOWAIT": (r"\bSKIP LOCKED\b|\bNOWAIT\b", "FOR UPDATE SKIP LOCKED", {
        CITUS: "row locks work in queries of a single shard only"}),
    "row locks": (r"\bFOR\s+(NO\s+KEY\s+)?(UPDATE|SHARE|KEY\s+SHARE)\b", "SELECT 1 FOR NO KEY UPDATE", {
        CITUS: "in queries of a single shard only"}),
    "advisory locks": (r"\bpg_(try_)?advisory_\w+\s*\(", "PERFORM pg_advisory_xact_lock(1)", {
        CRDB: "did nothing before transaction-scoped ones were implemented in 2026 (cockroach #13546, #168355)",
        YB: "since 2025.1 (yugabyte-db #3642)", CITUS: "unverified: hold on the node that was asked only"}),
    "nextval": (r"\bnextval\s*\(", "SELECT nextval('once.fence')", {
        YB: "cached per connection or server; unverified: whatever CACHE says, unless the server is told otherwise: K2",
        CITUS: "each node has numbers of its own range: K2"}),
    "data-modifying WITH": (r"\bAS\s+(NOT\s+)?(MATERIALIZED\s+)?\(\s*(INSERT|UPDATE|DELETE)\b", "WITH a AS (INSERT INTO b", {
        CITUS: "unverified: refused across nodes by 7.4, not named by 11.3", CRDB: "at most one of them per table"}),
    "outer joins": (r"\b(LEFT|RIGHT|FULL)\s+(OUTER\s+)?JOIN\b", "LEFT JOIN once.result r ON r.fence = c.fence", {
        CITUS: "between distributed tables on the distribution column only"}),
    "PERFORM": (r"\bPERFORM\b", "PERFORM once.lock_ring()", {
        CRDB: "listed as missing in PL/pgSQL (cockroach #108416, #117744)"}),
    "FOR loops": (r"\bFOR(EACH)?\s+\w+\s+IN\b", "FOR i IN 1..3 LOOP", {
        CRDB: "listed as missing in PL/pgSQL (cockroach #105246, #117744)"}),
    "RETURN QUERY, RETURN NEXT": (r"\bRETURN\s+(QUERY|NEXT)\b", "RETURN NEXT", {
        CRDB: "since 25.2 (cockroach #105240)"}),
    "SET of a function": (r"(?m)^ SET \w+ TO ", " SET search_path TO 'pg_catalog'\nAS", {
        CRDB: "unverified: not in the syntax of 22.2"}),
}

LOCAL = "plain PostgreSQL, and Citus where the tables of the schema are not distributed"
NOT_CRDB = "everywhere but CockroachDB, where the functions cannot be created as they are"
# construct, function ("*": any): why, and where it works.
EXCEPTIONS = {
    ("row locks", "lock_newest"): "one record's own row: one shard. Works in all",
    ("row locks", "close_claim"): "only in slot 0, one record's own row: one shard. Works in all",
    ("row locks", "lock_ring"): "only above READ COMMITTED, on the one row of the ring. Works in all, on Citus not distributed",
    ("advisory locks", "lock_ring"): "against TRUNCATE of a slot in use. Works in " + LOCAL +
        " and reached through one node; in YugabyteDB since 2025.1; in a CockroachDB whose locks are no-ops once.expire must not run",
    ("advisory locks", "fast_batch"): "as in lock_ring",
    ("nextval", "*"): "the fence must grow (K2). Works in " + LOCAL + "; in YugabyteDB with ysql_sequence_cache_minval=0 and "
        "ysql_sequence_cache_method=connection, so that CACHE 1 counts",
    ("data-modifying WITH", "*"): "one statement for a batch. Works in " + LOCAL + ", and in YugabyteDB",
    ("outer joins", "*"): "results and progress are found by fence. Works in " + LOCAL + ", and in YugabyteDB",
    ("PERFORM", "*"): NOT_CRDB,
    ("FOR loops", "*"): NOT_CRDB,
    ("RETURN QUERY, RETURN NEXT", "*"): "everywhere, in CockroachDB since 25.2",
    ("SET of a function", "*"): "a pinned search_path is what makes SECURITY DEFINER safe: " + NOT_CRDB,
}


def plain(sql):
    """Without comments and the texts of strings."""
    sql = re.sub(r"--[^\n]*|/\*.*?\*/", " ", sql, flags=re.S)
    return re.sub(r"'(?:[^']|'')*'", "''", sql)


def found_in(sql):
    return [name for name, (pattern, _, _) in FORBIDDEN.items() if re.search(pattern, plain(sql), re.I)]


def sent():
    """What the store sends between its BEGINs and COMMITs."""
    log = open(os.environ["ONCE_TEST_POSTGRES_DATA"] + ".log", errors="replace").read()
    statements, inside = [], False
    for text in re.findall(r"LOG:  execute [^:]*: (.*(?:\n\t.*)*)", log):
        if text.startswith(("BEGIN", "COMMIT")):
            inside = text.startswith("BEGIN")
        elif inside and text not in statements:
            statements.append(text)
    return statements


def functions():
    """name: the definitions of that name, as installed."""
    rows = psql("SELECT p.proname || ' ' || encode(convert_to(pg_get_functiondef(p.oid), 'UTF8'), 'hex') FROM pg_proc p "
                "WHERE p.pronamespace = to_regnamespace('once') ORDER BY 1")
    all_of = {}
    for row in rows.splitlines():
        name, body = row.split(" ")
        all_of.setdefault(name, []).append(bytes.fromhex(body).decode())
    return all_of


def body_of(definition):
    return definition[definition.index("\nAS "):]


def called_by(sql, known):
    names = re.findall(r"(INTO\s+)?\bonce\.(\w+)\s*\(", plain(sql), re.I)
    return {name for into, name in names if not into and name in known}


def reachable(statements, known):
    found, todo = {}, [(name, "the store") for s in statements for name in sorted(called_by(s, known))]
    while todo:
        name, by = todo.pop()
        if name not in found:
            found[name] = by
            todo += [(n, name) for d in known[name] for n in sorted(called_by(body_of(d), known))]
    return found


def allowed(construct, name):
    return (construct, name) in EXCEPTIONS or (construct, "*") in EXCEPTIONS


def check_tables():
    key = psql("SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
               "WHERE i.indrelid = 'once.claim'::regclass AND i.indisprimary")
    equal(key, "record", "the primary key of once.claim begins with the record: hashed, it spreads all keys evenly")
    equal(psql("SELECT count(*) FROM pg_index i WHERE i.indrelid = 'once.claim'::regclass AND i.indisunique AND NOT "
               "(SELECT attnum FROM pg_attribute WHERE attrelid = i.indrelid AND attname = 'record') = ANY (i.indkey)"), "0",
          "and every unique index of it has the record, so that Citus could distribute by it")
    equal(psql("SELECT attnotnull FROM pg_attribute WHERE attrelid = 'once.claim'::regclass AND attname = 'tenant'"), "t",
          "the tenant is a column of it, never NULL (a function of the record: rows of one record have one tenant)")
    equal(psql("SELECT conname FROM pg_constraint WHERE connamespace = to_regnamespace('once') AND (contype = 'x' OR "
               "condeferrable)"), "", "no exclusion constraints, none deferrable: YugabyteDB has neither")
    equal(psql("SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('once') AND relpersistence <> 'p'"), "",
          "no unlogged tables")
    equal(psql("SELECT seqcache FROM pg_sequence WHERE seqrelid = 'once.fence'::regclass"), "1", "fences are not cached (K2)")
    for table in ("result", "progress"):
        columns = psql("SELECT string_agg(attname, ' ') FROM pg_attribute WHERE attrelid = 'once.%s'::regclass AND attnum > 0"
                       % table).split()
        if "record" not in columns:
            print("# once.%s has no column record: Citus cannot distribute it beside once.claim" % table)


def main():
    for name, (pattern, sample, who) in FORBIDDEN.items():
        ok(re.search(pattern, plain(sample), re.I) and who, "is found where it is: " + name)
    migrated()
    for _ in range(2):  # claims and finishes; replays
        once("run", "--quiet", "--store", url("test"), "--key", "k", "--", "true")
    statements = sent()
    known = functions()
    hot = reachable(statements + ["once.fast_batch()", "once.fast_replays()"], known)  # of busy ones only
    ok(any(n.startswith("claim") for n in hot) and any(n.startswith("finish") for n in hot) and len(hot) > 5,
       "the hot path is %d statements and %d functions" % (len(statements), len(hot)), *statements)
    for statement in statements:
        equal(found_in(statement), [], "sent: " + statement[:70].replace("#", ""))
    used = {}
    for name in sorted(hot):
        found = sorted({construct for d in known[name] for construct in found_in(d)})
        bad = [construct for construct in found if not allowed(construct, name)]
        ok(not bad, "once.%s, called by %s" % (name, hot[name]),
           *["%s: %s %s" % (c, who, why) for c in bad for who, why in FORBIDDEN[c][2].items()])
        for construct in found:
            key = (construct, name) if (construct, name) in EXCEPTIONS else (construct, "*")
            used.setdefault(key, []).append(name)
    for key, names in used.items():
        if key in EXCEPTIONS:
            print("# %s (%s): %s" % (key[0], ", ".join(names), EXCEPTIONS[key]))
    for key in EXCEPTIONS.keys() - used.keys():
        print("# not needed any more: the exception for %s in %s" % key)
    check_tables()
    finish()


main()
