"""FAULT-26: a pooler that gives every transaction another server process (pgbouncer, transaction
mode). Clients share sessions, so what one leaves there the next one finds.

K1, K4, K10  hold as without it, also when connections are cut on either side of it.
FACT-6       the commit, and the barrier, wait for what the server is configured for, whatever
             another client set for the session.
FAULT-25, FAULT-28  a lock is waited for no longer than ours should, whoever shares our session, and in
             the isolation level that the functions are written for.

usage: with-postgres --tcp pooled.py
"""
import os
import subprocess
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sql")]

import sqltest
from cutcase import Case, says
from operations import ROWS
from pgbouncer import Pooler
from pgproxy import Proxy
from sqltest import PSQL, equal, ok, psql
from standby import standby, waiting
from steps import Step
from lib.wait import becomes_true

ONCE = os.environ["ONCE_BIN"]
WHERE = {"before": "not sent", "sent": "sent", "answered": "answered"}
# What another client of the pool might leave behind in the session.
LEFT_BEHIND = """
    SET synchronous_commit = off; SET lock_timeout = 0; SET client_min_messages = error;
    SET default_transaction_isolation = 'repeatable read'; SET search_path = pg_temp"""
# At COMMIT, as what does a transaction of ours run?
WATCH = """
    CREATE TABLE public.seen (settings text);
    CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.seen SELECT concat_ws(' ', current_setting('synchronous_commit'),
            current_setting('lock_timeout'), current_setting('client_min_messages'),
            current_setting('transaction_isolation'));
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER see AFTER INSERT ON once.claim DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION public.see();
    CREATE CONSTRAINT TRIGGER see AFTER INSERT ON once.result DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION public.see()"""


def through(pooler, sql, database="test"):
    """In a session of the pool, as another client."""
    done = subprocess.run([PSQL, "-XqAt", "-d", pooler.url(database), "-c", sql], text=True, capture_output=True,
                          env=dict(os.environ, PGCONNECT_TIMEOUT="120"))
    return done.stdout.strip() or done.stderr.strip()


def once(pooler, *words):
    done = subprocess.run([ONCE, *words], text=True, capture_output=True,
                          env=dict(os.environ, ONCE_STORE=pooler.url("test")))
    return done.returncode, done.stdout + done.stderr


def every_operation(a, b, db):
    for name in ROWS:
        case = Case(name, a, b, db)
        case.prepare()
        problems = case.judge(a.ask(case.does()))
        ok(not problems, "K1 FAULT-26: %s" % name, *problems)


def sessions_are_shared(pooler, a, b):
    """One server process for all."""
    psql(WATCH)
    before = through(pooler, "SELECT pg_backend_pid()")
    said = [a.ask("claim first"), b.ask("claim second"), a.ask("finish first body")]
    equal(through(pooler, "SELECT pg_backend_pid()"), before, "one server process serves all")
    equal(through(pooler, "SELECT concat_ws(' ', current_setting('lock_timeout'), "
                          "current_setting('client_min_messages'), current_setting('synchronous_commit'))"),
          "0 notice on", "FAULT-26: nothing of ours is left in the session")
    through(pooler, LEFT_BEHIND)
    equal(through(pooler, "SHOW synchronous_commit"), "off", "what another client sets stays in the session")
    said += [a.ask("claim third"), b.ask("finish second body"), a.ask("advance third paid receipt"),
             a.ask("release third"), b.ask("stats"), b.ask("list")]
    equal([s for s in said if not s.startswith("OK")], [], "FAULT-26: all of it was done")
    equal(psql("SELECT DISTINCT settings FROM public.seen"), "on 1s warning read committed",
          "FACT-6 FAULT-25 FAULT-28: our transactions have their own settings, at COMMIT")


def locks_are_not_waited_for_long(pooler, a):
    through(pooler, LEFT_BEHIND)
    holder = sqltest.Session()
    holder.run("BEGIN")
    holder.run("SELECT once.claim('', 'held')")
    answer = a.ask("claim held")
    ok(says(answer, "BUSY"), "FAULT-25: a key in somebody's open transaction is busy", answer)
    holder.run("ROLLBACK")
    holder.close()
    answer = a.ask("claim held")
    ok(says(answer, "OK execute"), "FAULT-25: and free when that is over", answer)


def barrier_waits(pooler):
    """Where a session does not wait for a standby, the barrier still does."""
    through(pooler, LEFT_BEHIND)
    standby("nobody")
    c = subprocess.Popen([ONCE, "keys", "list", "--store", pooler.url("test")], stdout=subprocess.DEVNULL)
    waited = becomes_true(lambda: c.poll() is not None or waiting())
    running = c.poll() is None
    standby("")
    equal((waited, running, c.wait()), (True, True, 0), "FACT-6: the barrier of a new client waits for the standby")


def new_server_is_not_believed_at_once(pooler, a):
    """Somebody's finish stands here, and on no standby. The pooler connects anew, as after a
    failover, and does not say so."""
    said = [a.ask("claim foreign"), a.ask("lookup foreign")]
    psql("SET client_min_messages = error; BEGIN; SELECT once.finish(record, fence, 200, 'body') FROM once.claim "
         "WHERE key = 'foreign'; SET LOCAL synchronous_commit = local; COMMIT")
    standby("nobody")
    psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'once'")
    a.send("claim foreign")
    becomes_true(lambda: a.has_answered() or waiting())
    early = a.has_answered()
    standby("")
    said.append(a.get())
    ok(not early and says(said[-1], "OK replay body=body"),
       "FACT-6 FAULT-24 FAULT-26: what a server says that the pooler just connected to is believed after a barrier", *said)


def programs(pooler, folder):
    effect = os.path.join(folder, "effect")
    command = ["run", "--key", "program", "--wait", "10m", "--", "sh", "-c", "echo did it; echo x >>" + effect]
    first, second = once(pooler, *command), once(pooler, *command)
    equal((first[0], first[1]), (0, "did it\n"), "K1 FAULT-26: once run executes")
    ok(second[0] == 0 and second[1].startswith("did it\n") and "replay" in second[1], "K4 FAULT-26: once run replays",
       second)
    many = [subprocess.Popen([ONCE, "run", "--store", pooler.url("test"), "--quiet", "--key", "many", "--wait", "10m", "--",
                              "sh", "-c", "echo did it; echo x >>" + effect], stdout=subprocess.PIPE) for _ in range(6)]
    said = [p.communicate()[0] for p in many]
    equal((said, [p.returncode for p in many]), ([b"did it\n"] * 6, [0] * 6), "K1 FAULT-26: six at once answer alike")
    with open(effect) as f:
        equal(f.read(), "x\nx\n", "K1 FAULT-26: each key had one effect")
    code, text = once(pooler, "keys", "list", "--limit", "1000")
    ok(code == 0 and "program" in text and "many" in text, "FAULT-26: once keys list", text)
    code, text = once(pooler, "keys", "show", "program")
    ok(code == 0 and "succeeded" in text, "FAULT-26: once keys show", text)


def pooler_comes_and_goes(pooler, a):
    said = [a.ask("claim restart")]
    pooler.stop()
    pooler.start()
    said += [a.ask("finish restart body"), a.ask("claim restart")]
    ok(says(said[1], "OK done") and says(said[2], "OK replay body=body"), "K10 FAULT-26: the pooler is started again", *said)
    said = [a.ask("claim terminated")]
    psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'once'")
    said += [a.ask("finish terminated body"), a.ask("claim terminated")]
    ok(says(said[1], "OK done") and says(said[2], "OK replay body=body"), "K10 FAULT-26: its server process is ended", *said)


def cut_on_both_sides(b, db):
    """Between the client and the pooler, then between the pooler and the server."""
    port = int(os.environ["ONCE_TEST_POSTGRES_PORT"])
    pooler = Pooler()
    before = Proxy(pooler.port)
    behind = Proxy(port)
    second = Pooler("host=127.0.0.1 port=%d" % behind.port)
    for where, proxy, url in (("client side", before, before.url("test")), ("server side", behind, second.url("test"))):
        a = Step(url)
        for name in ("claim", "takeover", "finish", "advance", "release", "resolve", "batch"):
            for point in ("before", "sent", "answered"):
                case = Case(name, a, b, db)
                case.prepare()
                plan = proxy.cut(point, "fin", case.nth())
                problems = case.judge(a.ask(case.does()))
                if not plan.done.is_set():
                    problems.append("nothing was cut")
                ok(not problems, "K1 K10 FAULT-26: %s, cut on the %s, COMMIT %s" % (name, where, WHERE[point]), *problems)
        a.close()
    pooler.remove()
    second.remove()


one = Pooler(pool=1)
try:
    psql("CREATE DATABASE test", "postgres")
    equal(once(one, "migrate")[0], 0, "FAULT-26: once migrate")
    a, b, db = Step(one.url("test")), Step(one.url("test")), sqltest.Session()
    equal((a.opened, b.opened), ("OK", "OK"), "FAULT-26: the store opens")
    every_operation(a, b, db)
    sessions_are_shared(one, a, b)
    locks_are_not_waited_for_long(one, a)
    barrier_waits(one)
    new_server_is_not_believed_at_once(one, a)
    programs(one, one.folder)
    pooler_comes_and_goes(one, a)
    cut_on_both_sides(b, db)
    code, text = once(one, "check")
    ok(code == 0 and " 0 problems" in text, "FAULT-26: once check finds nothing wrong", text)
    for step in (a, b):
        equal(step.close(), 0, "the client closed")
    db.close()
finally:
    one.remove()
sqltest.finish()
