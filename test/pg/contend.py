#!/usr/bin/env python3
"""Two processes on one database, fifty callers on every key (F25, F33, K1).

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
        ok(not deadlocks, "F25 %s: no deadlock reaches a caller" % kind, *deadlocks)
    ok(histories["rerun"].fenced, "H19 K3 rerun: somebody came too late")


def deadlock(session, ask, key):
    """A session holds the key and then wants the ring, the store the other way round. False: the
    store gave up before it was one."""
    before = server.cluster.said().count("deadlock detected")
    session.run("SET deadlock_timeout = '1min'")  # so it is the store that finds it
    session.run("BEGIN")
    session.run("SELECT once.claim('', '%s', lease => '1 hour')" % key)
    ask.send("claim " + key)
    wait_for(lambda: ask.has_answered() or
             server.sql("SELECT 1 FROM pg_stat_activity WHERE application_name = 'once' AND wait_event_type = 'Lock'"),
             "the store to wait for the key")
    session.send("SELECT pg_advisory_xact_lock(8031153)")
    session.get()
    session.run("COMMIT")
    said = ask.get()
    found = server.cluster.said().count("deadlock detected") > before
    ok("deadlock" not in said and said.startswith("OK in progress" if found else ("OK", "BUSY")),
       "F25: a caller whose transaction lost a deadlock does not hear of it", said)
    return found


def deadlocks():
    session, ask = Session(), Ask(server.url)
    ok(ask.get() == "open", "a caller opens the store")
    ok(any(deadlock(session, ask, "deadlock-%d" % i) for i in range(10)), "H19 F25: there was a deadlock")
    session.close()


contend()
deadlocks()
finish()
