#!/usr/bin/env python3
"""Two transactions at once, for every pair of calls that can meet: who waits, and what does it
answer when the other has committed or rolled back? Both orders, both endings (K1, K3, K5, K7, K13)."""
import itertools

from sqltest import Session, equal, finish, migrated, ok, psql

OTHER = {"COMMIT": 0, "ROLLBACK": 1}
_keys = itertools.count()


def held(lease="1 hour", **more):
    """A record that is running: key, record, fence."""
    key = "k%d" % next(_keys)
    record, fence = psql("SELECT record, fence FROM once.claim('', '%s', lease => '%s')" % (key, lease)).split("|")
    return key, record, fence


def over():
    """The same, its lease over."""
    return held("1 ms")


def claim(key, takeover="rerun"):
    return "SELECT arm FROM once.claim('', '%s', lease => '1 hour', takeover => '%s')" % (key, takeover)


def finishing(record, fence, body="x"):
    return "SELECT arm, convert_from(body, 'UTF8') FROM once.finish('%s', %s, 200, '%s')" % (record, fence, body)


# name, what makes the record, first call, its answer, second call, waits?, its answer if the
# first commits, and if it rolls back. {k} {r} {f}: key, record, fence.
FRESH = lambda: ("k%d" % next(_keys), None, None)
C = "SELECT arm FROM once.claim('', '{k}', lease => '1 hour', takeover => 'rerun')"
CE = "SELECT arm FROM once.claim('', '{k}', lease => '1 hour', takeover => 'escalate')"
CF = ("SELECT arm FROM (SELECT (once.finish(c.record, c.fence, 200, 'x')).arm FROM once.claim('', '{k}') c) f")
F = "SELECT arm, convert_from(body, 'UTF8') FROM once.finish('{r}', {f}, 200, 'x')"
F2 = "SELECT arm, convert_from(body, 'UTF8') FROM once.finish('{r}', {f}, 200, 'y')"
X = "SELECT arm FROM once.extend('{r}', {f}, '1 hour')"
R = "SELECT arm FROM once.release('{r}', {f})"
U = "SELECT once.consume('c', '{k}')"
Q = "SELECT arm FROM once.resolve('', '{k}', 'not done', 'r')"
SPECS = [
    ("claim/claim, fresh", FRESH, C, "execute", C, True, "in progress", "execute"),
    ("claim and finish/claim, fresh", FRESH, CF, "done", C, True, "replay", "execute"),
    ("claim/claim, lease over", over, C, "execute", C, True, "in progress", "execute"),
    ("claim/claim, lease over, escalating", over, CE, "unknown", CE, True, "unknown", "unknown"),
    ("finish/takeover", over, F, "done|x", C, True, "replay", "execute"),
    ("takeover/finish", over, C, "execute", F, True, "fenced|", "done|x"),
    ("finish/escalation", over, F, "done|x", CE, True, "replay", "unknown"),
    ("escalation/finish", over, CE, "unknown", F, True, "fenced|", "done|x"),
    ("finish/the same finish", held, F, "done|x", F, True, "done|x", "done|x"),
    ("finish/another finish", held, F, "done|x", F2, True, "fenced|x", "done|y"),
    ("release/claim", held, R, "done", C, False, "in progress", "in progress"),
    ("release/takeover", over, R, "done", C, True, "execute", "execute"),
    ("extend/takeover", over, X, "done", C, True, "in progress", "execute"),
    ("takeover/extend", over, C, "execute", X, True, "fenced", "done"),
    ("resolve/takeover", over, Q, "done", C, True, "execute", "execute"),
    ("takeover/resolve", over, C, "execute", Q, True, "in progress", "done"),
    ("consume/consume", FRESH, U, "t", U, True, "f", "t"),
]


def run_pairs():
    a, b = Session(), Session()
    for name, make, first, said, second, waits, committed, rolled_back in SPECS:
        for end, expected in (("COMMIT", committed), ("ROLLBACK", rolled_back)):
            key, record, fence = make()
            psql("SELECT pg_sleep(0.01)")
            fill = lambda sql: sql.format(k=key, r=record, f=fence)
            a.run("BEGIN")
            b.run("BEGIN")
            equal(a.run(fill(first)), said, "%s: the first" % name)
            b.send(fill(second))
            equal(b.blocks(), waits, "%s: does the second wait?" % name)
            a.run(end)
            equal(b.get(), expected, "%s: the second, after %s" % (name, end))
            b.run("COMMIT")
    a.close()
    b.close()


# once.expire must not wait for long: it gives way, and comes again.
def age_ring():
    """Everything stored so far is in a slot that is out of use."""
    psql("UPDATE once.ring SET period_ms = 1; SELECT pg_sleep(0.02); SELECT once.expire(); SELECT pg_sleep(0.02)")


def expired():
    key, record, fence = "k%d" % next(_keys), None, None
    record, fence = psql("SELECT record, fence FROM once.claim('', '%s', retention => '1 ms')" % key).split("|")
    psql("SELECT once.finish('%s', %s, 200, 'old')" % (record, fence))
    return key, record, fence


def expire_all():
    for _ in range(100):
        if psql("SELECT more FROM once.expire()") == "f":
            return


def run_expiry():
    a, b = Session(), Session()
    for name, make, first, said, later in [
            ("claim/expire", FRESH, C, "execute", "running"),
            ("claim of an expired key/expire", expired, C, "execute", "running"),
            ("finish/expire", held, F, "done|x", "succeeded"),
            ("extend/expire", held, X, "done", "running"),
            ("takeover/expire", over, C, "execute", "running")]:
        for end in ("COMMIT", "ROLLBACK"):
            key, record, fence = make()
            age_ring()
            a.run("BEGIN")
            equal(a.run(first.format(k=key, r=record, f=fence)), said, "%s: the first" % name)
            b.send("SELECT removed FROM once.expire()")
            ok(b.poll(5), "%s: expire gives way" % name)
            b.get()
            a.run(end)
            expire_all()
            age_ring()
            expire_all()
            expected = later if end == "COMMIT" else "" if make in (FRESH, expired) else "running"
            equal(psql("SELECT state FROM once.lookup('', '%s')" % key), expected,
                  "%s: after %s and a turn of the ring" % (name, end))
    # The other way round: who comes while a slot is emptied waits, and sees the record in its new place.
    for name, make, second, said in [
            ("expire/claim of an expired key", expired, C, "execute"),
            ("expire/claim of a running one", held, C, "in progress"),
            ("expire/finish", held, F, "done|x"),
            ("expire/extend", held, X, "done"),
            ("expire/takeover", over, C, "execute")]:
        key, record, fence = make()
        age_ring()
        psql("SELECT once.expire()")
        a.run("BEGIN; SELECT pg_advisory_xact_lock(8031153)")
        a.run("SELECT once.empty_slot(s.slot) FROM once.slot s WHERE s.closed_at IS NOT NULL ORDER BY s.closed_at")
        b.send(second.format(k=key, r=record, f=fence))
        equal(b.blocks(), True, "%s: the second waits" % name)
        a.run("COMMIT")
        equal(b.get(), said, "%s: the second, after it" % name)
    a.close()
    b.close()


def run_locked_newest():
    """A turn begun between the choice and the lock of what is moved or deleted is not split off."""
    a, b = Session(), Session()
    key = "k%d" % next(_keys)
    record, fence = psql("SELECT record, fence FROM once.claim('', '%s', retention => NULL)" % key).split("|")
    psql("SELECT once.finish('%s', %s, 503, state => 'failed', retryable => true)" % (record, fence))
    psql("UPDATE once.ring SET period_ms = 86400000, opened_at = once.now_ms()")
    slot = psql("SELECT slot FROM once.claim WHERE record = '%s'" % record)
    a.run("BEGIN")
    equal(a.run(claim(key)), "execute", "claim/move: the first")
    equal(b.run("SELECT once.move_finished(%s::smallint, 100)" % slot), "0", "claim/move: what is locked is not moved")
    a.run("COMMIT")
    equal(psql("SELECT count(DISTINCT slot), count(*) FROM once.claim WHERE record = '%s'" % record), "1|2",
          "claim/move: the record is in one piece")
    a.close()
    b.close()


migrated()
run_pairs()
run_expiry()
run_locked_newest()
equal(psql("SELECT count(*) FROM once.check_rows(0, 100000)"), "0", "no invariant is broken (check_rows)")
equal(psql("SELECT count(*) FROM once.check_orphans()"), "0", "no invariant is broken (check_orphans)")
finish()
