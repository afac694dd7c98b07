#!/usr/bin/env python3
"""`once migrate` on PostgreSQL leaves nothing behind or everything, whoever dies meanwhile and
however many there are; a second migration, an edited one, missing rights, --print.

Where a migrator is to be caught at work, an event trigger waits for an advisory lock that the
test holds; or a crash point stops it before a statement. Every 24th command is tried; SIZE=24
in the environment tries all."""
import difflib
import os
import re
import signal
import subprocess
import sys

import sqltest
from sqltest import Session, equal, finish, ok, once, psql, restart, skip_all, url, wait_for
from lib.process import is_stopped

NEXT, BROKEN, EDITED = sys.argv[1:4]
STEP = max(1, 24 // int(os.environ.get("SIZE") or 1))
VERSION_1 = "the PostgreSQL store is at version 1\n"

# All that a migration makes, except what is random or a time.
CATALOGUE = """
SELECT md5(string_agg(line, E'\\n' ORDER BY line)) FROM (
    SELECT pg_get_functiondef(p.oid) || coalesce(p.proacl::text, '') || coalesce(obj_description(p.oid, 'pg_proc'), '')
      FROM pg_proc p WHERE p.pronamespace = to_regnamespace('once')
    UNION ALL
    SELECT c.relkind::text || c.relname::text || coalesce(c.relacl::text, '') || coalesce(pg_get_expr(c.relpartbound, c.oid), '') ||
           coalesce(string_agg(a.attname || format_type(a.atttypid, a.atttypmod) || a.attnotnull, ',' ORDER BY a.attnum), '')
      FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
     WHERE c.relnamespace = to_regnamespace('once') GROUP BY c.oid
    UNION ALL
    SELECT r.conname::text || pg_get_constraintdef(r.oid) FROM pg_constraint r WHERE r.connamespace = to_regnamespace('once')
    UNION ALL
    SELECT t.typname::text FROM pg_type t WHERE t.typnamespace = to_regnamespace('once')
    UNION ALL
    SELECT nspname::text || nspacl::text FROM pg_namespace WHERE nspname = 'once') l (line)"""
ROWS = ("SELECT (SELECT string_agg(number || name || checksum, ' ' ORDER BY number) FROM once.migration), "
        "(SELECT count(*) FROM once.store), (SELECT count(*) FROM once.slot), (SELECT count(*) FROM once.ring)")
NOTHING = ""


def state(database):
    """Of what belongs to Once in a database: NOTHING, or the same text for the same store."""
    catalogue = psql(CATALOGUE, database)
    assert re.fullmatch("[0-9a-f]{32}|", catalogue), catalogue
    return catalogue and catalogue + " " + psql(ROWS, database)


def secret(database):
    return psql("SELECT store_id, secret FROM once.store", database)


def create(*databases):
    for name in databases:
        psql("CREATE DATABASE " + name, "postgres")


def run(program, database):
    done = subprocess.run([program, url(database)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def start(database, program=None, **environment):
    command = [program, url(database)] if program else [os.environ["ONCE_BIN"], "migrate", "--store", url(database)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env=dict(os.environ, **environment))


def end(process):
    said = process.communicate(timeout=sqltest.SECONDS)[0]
    return process.returncode, said


def waiting(database):
    """How many there wait for a lock."""
    return int(psql("SELECT count(*) FROM pg_stat_activity WHERE datname = '%s' AND wait_event_type = 'Lock'" % database,
                    "postgres"))


def gone(database):
    """Has everybody left, but us?"""
    return psql("SELECT count(*) FROM pg_stat_activity WHERE datname = '%s' AND application_name <> '%s'" %
                (database, sqltest.OURS), "postgres") == "0"


# ------------------------------------------------------------------ roles, which belong to the cluster

def roles():
    """First of all: no roles are there yet."""
    psql("CREATE ROLE plain LOGIN; CREATE ROLE nobody LOGIN", "postgres")
    create("r1", "r2", "r3")
    psql("GRANT CREATE ON DATABASE r1 TO plain", "postgres")
    status, said = once("migrate", "--store", url("r1", "nobody"))
    equal(status, 69, "without any rights: exit status")
    ok("permission denied for database r1" in said and "needs CREATE on the database" in said,
       "without any rights: what is missing is named", said)
    status, said = once("migrate", "--store", url("r1", "plain"))
    ok(status == 69 and "permission denied to create role" in said and "CREATEROLE" in said,
       "may not make roles: that is named", said)
    equal(state("r1"), NOTHING, "without rights: nothing is left behind")
    # Two databases at once: the one waits for the other's roles, and finds them made.
    first = start("r2", ONCE_CRASH="migrate.statement:4:stop")
    wait_for(lambda: is_stopped(first.pid), "the first to stop before COMMIT")
    second = start("r3")
    wait_for(lambda: waiting("r3"), "the second to wait for the roles")
    first.send_signal(signal.SIGCONT)
    equal([end(first), end(second)], [(0, VERSION_1)] * 2, "two databases at once: both succeed")
    equal(once("migrate", "--store", url("r1", "plain")), (0, VERSION_1), "where the roles are, CREATE is enough")
    equal(state("r1").split(" ", 1)[1], state("r2").split(" ", 1)[1], "its store is like any other")
    status, said = once("migrate", "--store", url("r2", "nobody"))
    ok(status == 69 and "permission denied for schema once" in said and "owner" in said,
       "a store of somebody else: what is missing is named", said)


# ------------------------------------------------------------------ dying

def walk_points(reference):
    """Before each statement that is sent, and after COMMIT was answered."""
    create("points")
    for point, left in (("migrate.statement", NOTHING), ("migrate.committed", reference)):
        for n in range(1, 20):
            status, said = once("migrate", "--store", url("points"), ONCE_CRASH="%s:%d" % (point, n))
            if status == 0:
                break
            wait_for(lambda: gone("points"), "the server to notice")
            equal((status, state("points")), (-signal.SIGKILL, left),
                  "killed at %s:%d: %s" % (point, n, "nothing" if left == NOTHING else "everything"))
            before = left and secret("points")
            equal(once("migrate", "--store", url("points")), (0, VERSION_1), "and again: succeeds")
            ok(not left or secret("points") == before, "and again: the secret stays")
            psql("DROP SCHEMA once CASCADE", "points")
        ok(n > 1, "%s was passed %d times" % (point, n - 1))
        psql("DROP SCHEMA once CASCADE", "points")


TRAP = """
CREATE SEQUENCE public.passed;
CREATE TABLE public.trap (at bigint);
INSERT INTO public.trap VALUES (0);
CREATE FUNCTION public.trap() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('public.passed') = (SELECT at FROM public.trap) THEN
        PERFORM pg_advisory_xact_lock(1);
    END IF;
END $$;
CREATE EVENT TRIGGER trap ON ddl_command_end EXECUTE FUNCTION public.trap();
"""


def caught(database, holder, n, **environment):
    """A migrator whose server process waits after its n-th command."""
    holder.run("SELECT pg_advisory_lock(1); SELECT setval('public.passed', 1, false); UPDATE public.trap SET at = %d" % n)
    process = start(database, **environment)
    wait_for(lambda: holder.run("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'") == "1",
          "a migrator at its command %d" % n)
    return process


def release(holder):
    holder.run("SELECT pg_advisory_unlock(1)")


def walk_commands(reference):
    """kill -9 while the server is at each of the commands; it goes on with the rest of them."""
    create("commands")
    psql(TRAP, "commands")
    holder = Session("commands")
    once("migrate", "--store", url("commands"))
    count = int(holder.run("SELECT last_value FROM public.passed"))
    holder.run("DROP SCHEMA once CASCADE")
    ok(count > 50, "a migration has %d commands" % count)
    bad, tried = [], 0
    for n in [1, *range(2, count, STEP), count]:
        process = caught("commands", holder, n)
        process.kill()
        status, _ = end(process)
        others = holder.run("SELECT count(*) FROM pg_namespace WHERE nspname = 'once'")
        release(holder)
        wait_for(lambda: holder.run("SELECT count(*) FROM pg_stat_activity WHERE datname = 'commands' AND application_name NOT IN "
                                 "('%s', current_setting('application_name'))" % sqltest.OURS) == "0",
              "the killed one's server process to end")
        left = holder.run("SELECT count(*) FROM pg_namespace WHERE nspname = 'once'")
        tried += 1
        if (status, others, left) != (-signal.SIGKILL, "0", "0"):
            bad.append((n, status, others, left))
    equal(bad, [], "killed at %d of %d commands: nothing is seen meanwhile, and nothing is left" % (tried, count))
    # The next one comes while the dead one's transaction is still there, and waits for its end.
    process = caught("commands", holder, count // 2)
    process.kill()
    end(process)
    second = start("commands")
    wait_for(lambda: waiting("commands") == 2, "the next one to wait")
    release(holder)
    equal(end(second), (0, VERSION_1), "the next one waits for the dead one's end, and succeeds")
    equal(state("commands"), reference, "its store is complete")
    holder.close()


def server_dies(reference):
    create("dying")
    psql(TRAP, "dying")
    for n in (1, 60):
        holder = Session("dying")
        process = caught("dying", holder, n)
        restart()
        holder.close()
        status, said = end(process)
        ok(status == 69, "the server dies at command %d: the migrator says so" % n, status, said)
        equal(state("dying"), NOTHING, "the server dies at command %d: nothing is left" % n)
    process = start("dying", ONCE_CRASH="migrate.statement:4:stop")
    wait_for(lambda: is_stopped(process.pid), "it to stop before COMMIT")
    restart()
    process.send_signal(signal.SIGCONT)
    status, said = end(process)
    ok(status == 70 and "migrate again" in said, "the server dies before COMMIT: it may have happened", status, said)
    equal(state("dying"), NOTHING, "the server dies before COMMIT: nothing is left")
    psql("UPDATE public.trap SET at = 0", "dying")
    equal(once("migrate", "--store", url("dying")), (0, VERSION_1), "migrated again")
    before = secret("dying")
    restart()
    equal((state("dying"), secret("dying")), (reference, before), "what was acknowledged is there after a crash")


# ------------------------------------------------------------------ many at once, and repeated

def many(reference):
    for count in (2, 5):
        database = "many%d" % count
        create(database)
        holder = Session(database)
        holder.run("SELECT pg_advisory_lock(8031155)")
        migrators = [start(database) for _ in range(count)]
        wait_for(lambda: waiting(database) == count, "all migrators to wait")
        holder.run("SELECT pg_advisory_unlock(8031155)")
        holder.close()
        equal([end(m) for m in migrators], [(0, VERSION_1)] * count, "%d at once: all succeed" % count)
        equal(state(database), reference, "%d at once: one store, one secret" % count)


def repeated(reference):
    before = psql("SELECT pg_current_xact_id()", "first"), secret("first")
    equal(once("migrate", "--store", url("first")), (0, VERSION_1), "repeated: says the version")
    after = psql("SELECT pg_current_xact_id()", "first"), secret("first")
    equal((int(after[0]) - int(before[0]), after[1], state("first")), (1, before[1], reference),
          "repeated: nothing was written")


def dumped(database):
    dump = subprocess.run([os.path.join(os.path.dirname(sqltest.PSQL), "pg_dump"), "--schema-only", "-d", url(database)],
                          check=True, capture_output=True, text=True).stdout.splitlines()
    return [line for line in dump if not line.startswith(("\\restrict", "\\unrestrict"))]  # a random word follows


def no_cron(reference):
    status, said = once("migrate", "--pg-cron", "--store", url("first"))
    ok(status == 69 and "pg_cron" in said and "shared_preload_libraries = 'pg_cron'" in said and
       "cron.database_name = 'first'" in said and "CREATE EXTENSION pg_cron" in said,
       "--pg-cron on a server without it: what is needed is named", said)
    equal(state("first"), reference, "and nothing else is changed")


def printed(reference):
    create("printed")
    status, sql = once("migrate", "--print", "--store", url("printed"))
    equal((status, state("printed")), (0, NOTHING), "--print touches nothing")
    equal(psql(sql, "printed"), "", "--print | psql")
    equal(state("printed"), reference, "--print | psql: the same")
    dumps = [dumped("first"), dumped("printed")]
    ok(dumps[0] == dumps[1] and "CREATE TABLE once.claim (" in dumps[0], "--print | psql: pg_dump shows the same schema",
       *difflib.unified_diff(*dumps, lineterm="", n=0))
    before = secret("printed")
    ok(before != secret("first"), "--print | psql: a secret of its own")
    equal(once("migrate", "--store", url("printed")), (0, VERSION_1), "--print | psql: accepted")
    equal(secret("printed"), before, "--print | psql: and left alone")
    ok("already exists" in psql(sql, "printed") and state("printed") == reference, "--print | psql again changes nothing")


# ------------------------------------------------------------------ more migrations

def second(reference):
    create("fresh", "older", "walked", "broken")
    equal(run(NEXT, "fresh"), (0, "version 2\n"), "two migrations on an empty database")
    once("migrate", "--store", url("older"))
    before = secret("older")
    equal(run(NEXT, "older"), (0, "version 2\n"), "the second on a store of version 1")
    equal(psql("SELECT once.version(), x FROM once.next_one", "older") + secret("older"), "2|1" + before,
          "it was done, and the secret stays")
    equal(state("older"), state("fresh"), "both ways lead to the same store")
    status, said = once("migrate", "--store", url("older"))
    ok(status == 64 and "newer program" in said, "an older program refuses it", said)
    equal(state("older"), state("fresh"), "and leaves it alone")

    once("migrate", "--store", url("walked"))
    for n in range(1, 20):
        done = end(start("walked", NEXT, ONCE_CRASH="migrate.statement:%d" % n))
        if done[0] == 0:
            break
        wait_for(lambda: gone("walked"), "the server to notice")
        equal((done[0], state("walked")), (-signal.SIGKILL, reference), "killed at statement %d of the second: version 1" % n)
    equal((n > 3, state("walked")), (True, state("fresh")), "not killed: version 2")

    status, said = run(BROKEN, "broken")
    ok(status == 1 and "0002_broken" in said and "division" in said, "a migration that fails is named", said)
    equal(state("broken"), NOTHING, "on an empty database: nothing of the first one is left either")
    once("migrate", "--store", url("broken"))
    before = psql("SELECT period_ms FROM once.ring", "broken")
    equal(run(BROKEN, "broken")[0], 1, "the broken one on a store of version 1")
    equal((state("broken"), psql("SELECT period_ms FROM once.ring", "broken")), (reference, before), "changes nothing")

    status, said = run(EDITED, "first")
    ok(status == 1 and "0001_initial" in said and "never edited" in said, "an edited migration is noticed", said)
    equal(state("first"), reference, "and nothing is changed")


if once("run", "--list-points")[1] == "":
    skip_all("built without crash points")
roles()
create("first")
equal(once("migrate", "--store", url("first")), (0, VERSION_1), "an empty database is migrated")
whole = state("first")
walk_points(whole)
walk_commands(whole)
many(whole)
repeated(whole)
no_cron(whole)
printed(whole)
second(whole)
server_dies(whole)
finish()
