#!/usr/bin/env python3
"""Two processes on one database, fifty callers on every key (FAULT-25, FAULT-33, K1).

Each key is executed once, everybody gets its answer. 100 keys; SIZE=10 makes it 1000. Then the
same with holders that are slower than their lease, so that finishes and takeovers cross each
other in transactions of both processes. And a deadlock made on purpose, with the store as its
victim: what the database rolls back is repeated below the callers, none of them hears of it."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sql"))
from check import check_all
from load import SIZE, Ask, Load, Server, finish, ok, wait_for
from sqltest import Session

CALLERS = 25  # in each of the two
TRIES = 20
KEYS = {"strict": 100 * SIZE, "rerun": 30 * SIZE}

server = Server()
server.migrate()


def contend():
    load = Load()
    for kind, keys in KEYS.items():
        load.workers = [load.start(kind, server.url, threads=CALLERS, keys=keys, rounds=1) for _ in range(2)]
        ok(not load.end(), "%s: every caller comes to its end" % kind)
    histories = check_all(load, server, KEYS)
    for kind, h in histories.items():
        ok(len(h.acks) == KEYS[kind] and all(len(answers) == 2 * CALLERS for answers in h.acks.values()),
           "K1 %s: every key was answered to every caller" % kind)
        ok(not [t for t in h.troubles() if "BUSY" not in t], "K10 %s: without a fault no call fails" % kind, h.troubles())
        deadlocks = [note[-1] for note in h.notes if "deadlock" in note[-1]]
        ok(not deadlocks, "FAULT-25 %s: no deadlock reaches a caller" % kind, *deadlocks)
    ok(histories["rerun"].fenced, "HISTORY-19 K3 rerun: somebody came too late")


# A gate in the store's own transaction, between the ring and the key; and there it has all the time it needs.
GATE = """
CREATE FUNCTION public.gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('application_name') = 'once' THEN
        PERFORM set_config('lock_timeout', '0', true), pg_advisory_xact_lock(1);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER gate BEFORE INSERT ON once.claim FOR EACH ROW EXECUTE FUNCTION public.gate();
"""


def waits(condition):
    return server.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND " + condition)


def deadlock(key):
    """A session holds the key and then wants the ring, the store the other way round: it has the ring when it comes
    to the gate, and goes on to the key when the session waits for the ring. What the store's caller was told; early: before
    the session ended; and how often there was one so far."""
    session, keeper, ask = Session(), Session(), Ask(server.url)
    opened = ask.get()
    session.run("SET deadlock_timeout = '1h'")  # so it is the store that finds it
    keeper.run("SELECT pg_advisory_lock(1)")
    session.run("BEGIN")
    session.run("SELECT once.claim('', '%s', lease => '1 hour')" % key)
    ask.send("claim " + key)
    wait_for(lambda: ask.has_answered() or waits("application_name = 'once'"), "the store to come to the gate")
    session.send("SELECT pg_advisory_xact_lock(8031153)")
    wait_for(lambda: session.poll(0) or waits("pid = " + session.pid), "the session to wait for the ring")
    keeper.run("SELECT pg_advisory_unlock(1)")
    session.get()  # the store was rolled back
    found, early = server.cluster.said().count("deadlock detected"), ask.has_answered()
    session.run("COMMIT")
    said = [opened, ask.get()]
    session.close()
    keeper.close()
    return said, early, found


def deadlocks():
    """The store bears with the ring's lock for a second: where a machine takes longer to come to the COMMIT it says BUSY, and
    it is done again."""
    server.sql(GATE)
    before = server.cluster.said().count("deadlock detected")
    for n in range(TRIES):
        said, early, found = deadlock("deadlock-%d" % n)
        if not said[1].startswith("BUSY"):
            break
        before = found
    ok(found > before, "HISTORY-19 FAULT-25: there was a deadlock")
    ok(not early, "K1: the store waits for the key again", said)
    ok(said[0] == "open" and "deadlock" not in said[1] and said[1].startswith("OK in progress"),
       "FAULT-25: a caller whose transaction lost a deadlock does not hear of it", *said)


contend()
deadlocks()
finish()
