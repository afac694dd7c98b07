#!/usr/bin/env python3
"""Callers that commit in two phases: what is prepared is neither done nor not done until somebody says so."""
from sqltest import Session, equal, finish, migrated, ok, psql

WORK = ("SELECT (once.finish(c.record, c.fence, 200, 'x')).arm, once.consume('c', '{k}'), once.serialize('{k}') FROM once.claim('t', '{k}') c")


def prepared(key):
    psql("BEGIN; %s \\gset\nPREPARE TRANSACTION '%s'" % (WORK.format(k=key), key))
    equal(psql("SELECT count(*) FROM pg_prepared_xacts WHERE gid = '%s'" % key), "1", "%s: claim, finish, consume and serialize are prepared" % key)


def run_endings():
    for end, arm, fresh in (("COMMIT", "replay", "f"), ("ROLLBACK", "execute", "t")):
        key = end.lower()
        prepared(key)
        sessions = [Session(), Session(), Session()]
        for session, call in zip(sessions, ("SELECT arm FROM once.claim('t', '%s')", "SELECT once.consume('c', '%s')", "SELECT once.serialize('%s')")):
            session.send(call % key)
            equal(session.blocks(), True, "%s: who does the same waits" % key)
        equal(psql("SELECT removed, more FROM once.expire()"), "0|f", "%s: upkeep does not" % key)
        psql("%s PREPARED '%s'" % (end, key))
        equal([session.get() for session in sessions], [arm, fresh, ""], "%s: and is told how it ended (K1, K13)" % key)
        for session in sessions:
            session.close()


def run_upkeep():
    """A ring cannot turn below a transaction that is in doubt: nothing of it is lost meanwhile (K7)."""
    prepared("doubt")
    psql("UPDATE once.ring SET period_ms = 1")
    for _ in range(10):
        equal(psql("SELECT removed, more FROM once.expire()"), "0|f", "doubt: the ring stays")
    psql("COMMIT PREPARED 'doubt'")
    for _ in range(20):
        psql("SELECT once.expire()")
    equal(psql("SELECT arm FROM once.claim('t', 'doubt')"), "replay", "doubt: and turns when it has ended")
    ok(psql("SELECT current > 1 OR closed <> '{}' FROM once.ring") == "t", "doubt: it has")


def run_messages():
    """docs/messages.md: what wakes a relay cannot be prepared."""
    enqueue = "BEGIN; SELECT once.enqueue('x', 'k', '1') \\gset\nPREPARE TRANSACTION 'message'"
    equal(psql(enqueue), "", "message: prepared while no relay sleeps")
    psql("COMMIT PREPARED 'message'; UPDATE once.outbox_ring SET idle = true")
    equal(psql(enqueue)[:5], "0A000", "message: refused while one does")
    equal(psql("SELECT count(*) FROM once.outbox"), "1", "message: and rolled back")


migrated()
run_endings()
run_upkeep()
run_messages()
finish()
