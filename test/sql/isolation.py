#!/usr/bin/env python3
"""Two transactions at once, for every pair of calls that can meet: who waits, and what does it
answer when the other has committed or rolled back? Both orders, both endings (K1, K3, K5, K7, K13)."""
import itertools

from sqltest import SECONDS, Session, equal, finish, migrated, ok, psql, wait_for

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
G = "\\set VERBOSITY sqlstate\nSELECT once.guard('{r}', {f})"
SPECS = [
    ("guard/takeover", over, G, "", C, True, "execute", "execute"),
    ("takeover/guard", over, C, "execute", G, True, "ERROR:  ONC01", ""),
    ("guard/finish of the same grant", held, G, "", F, False, "done|x", "done|x"),
    ("guard/extend of the same grant", held, G, "", X, True, "done", "done"),
    ("guard/guard", held, G, "", G, False, "", ""),
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


def expire_due():
    """As far as there is something to do now."""
    wait_for(lambda: psql("SELECT more FROM once.expire()") == "f", "nothing more to be due")


def expire_all():
    """A slot that was closed this moment is out of use only after some periods: till then nothing more is due."""
    wait_for(lambda: psql("SELECT more FROM once.expire(); SELECT count(*) FROM once.slot WHERE slot > 0 AND closed_at IS NOT NULL")
          == "f\n0", "all closed slots to be emptied")


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
            ok(b.poll(SECONDS), "%s: expire gives way" % name)   # while the first holds on
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
        psql("SELECT once.sweep_slot(s.slot, 1000) FROM once.slot s WHERE s.slot > 0 AND s.closed_at IS NOT NULL")
        a.run("BEGIN; SELECT pg_advisory_xact_lock(8031153)")
        a.run("SELECT once.empty_slot(s.slot) FROM once.slot s WHERE s.slot > 0 AND s.closed_at IS NOT NULL ORDER BY "
              "s.closed_at")
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
    slot = psql("SELECT slot FROM once.claim WHERE record = '%s'" % record)
    age_ring()
    a.run("BEGIN")
    equal(a.run(claim(key)), "execute", "claim/move: the first")
    equal(b.run("SELECT once.sweep_slot(%s::smallint, 100)" % slot), "f", "claim/move: a look at all of the slot")
    equal(slot_of(record), slot, "claim/move: what is locked is not moved")
    a.run("COMMIT")
    equal(psql("SELECT count(DISTINCT slot), count(*) FROM once.claim WHERE record = '%s'" % record), "1|2",
          "claim/move: the record is in one piece")
    a.close()
    b.close()


def run_earlier_block():
    """Expiry goes through a slot block by block. A turn that is begun in a block where it has been, of a
    record where it has not, is not lost (K1, K7)."""
    psql("UPDATE once.ring SET period_ms = 86400000, opened_at = once.now_ms()")
    first = psql("SELECT string_agg(c.record::text, ' ') FROM generate_series(1, 100) n, LATERAL once.claim('', 'block' || n, "
                 "retention => '1 day') c").split()
    slot = slot_of(first[0])
    blocks = lambda record: psql("SELECT string_agg(ctid::text, ' ' ORDER BY fence) FROM once.claim_%s WHERE record = '%s'"
                                 % (slot, record))
    before = [r for r in first if blocks(r).startswith(blocks(first[0]).split(",")[0] + ",")]
    psql("SELECT once.finish(record, fence, 200, body => '') FROM once.claim_%s WHERE key LIKE 'block%%'" % slot)
    key, record, fence = over()
    age_ring()
    while psql("SELECT once.blocks_of(%s::smallint) - blocks FROM once.slot WHERE slot = %s" % (slot, slot)) != "1":
        equal(psql("SELECT once.sweep_slot(%s::smallint, 1)" % slot), "f", "claim/sweep: a block is looked at")
    ok(before and slot_of(before[0]) == "0" and slot_of(record) == slot, "claim/sweep: all but the last")
    psql("VACUUM once.claim_%s" % slot)
    equal(psql(claim(key)), "execute", "claim/sweep: the next turn")
    places = [int(p.strip("()").split(",")[0]) for p in blocks(record).split()]
    ok(places[1] < places[0], "claim/sweep: in an earlier block", places)
    expire_all()
    equal(slot_of(record), "0", "claim/sweep: was moved")
    equal(psql("SELECT state, attempt FROM once.lookup('', '%s')" % key), "running|2", "claim/sweep: in one piece")


def slot_of(record):
    return psql("SELECT string_agg(DISTINCT slot::text, ' ') FROM once.claim WHERE record = '%s'" % record)


def in_closed_slot():
    """A running record in the only slot that is out of use."""
    psql("UPDATE once.ring SET period_ms = 1")
    expire_all()
    key, record, fence = held()
    while psql("SELECT current FROM once.ring") == slot_of(record):
        psql("SELECT once.expire()")
    return key, record, fence


def in_slot_0():
    """A running record whose grant was given in slot 0."""
    key, record, fence = over()
    psql("UPDATE once.ring SET period_ms = 1")
    while slot_of(record) != "0":
        psql("SELECT once.expire()")
    fence = psql("SELECT fence FROM once.claim('', '%s', retention => '1 ms', takeover => 'rerun')" % key)
    psql("UPDATE once.ring SET period_ms = 86400000, opened_at = once.now_ms()")   # it stands still
    return key, record, fence


def run_moved():
    """A finish whose statement began before somebody else closed its turn, and which waits for
    another record of its batch while that is moved, or deleted (K3, K5)."""
    many = ("SELECT string_agg(coalesce(n::text, '') || coalesce(done::text, (answer).arm), ' ') FROM once.finish_many("
            "ARRAY['%s','%s']::uuid[], ARRAY[%s,%s]::bigint[], ARRAY[2,2], ARRAY[200,200], ARRAY['','']::bytea[], "
            "ARRAY['one','two']::bytea[], false)")
    for name, make, then in (("finish/finish and move", in_closed_slot, "0"), ("finish/finish and delete", in_slot_0, "")):
        a, b = Session(), Session()
        key, record, fence = make()
        _, r1, f1 = held()
        a.run("BEGIN")
        equal(a.run(finishing(r1, f1)), "done|x", "%s: the first" % name)
        b.send(many % (record, r1, fence, f1))   # the newest slot's first
        equal(b.blocks(), True, "%s: the second waits" % name)
        equal(psql(finishing(record, fence, "other")), "done|other", "%s: somebody closes its other turn" % name)
        psql("SELECT pg_sleep(0.01); SELECT once.expire()")
        equal(slot_of(record), then, "%s: which goes from where it was" % name)
        a.run("COMMIT")
        equal(b.get(), "{} {} 1fenced 2fenced", "%s: the second changes nothing" % name)
        equal(psql("SELECT count(*) FROM once.check_orphans()"), "0", "%s: nothing is left over" % name)
        equal(psql("SELECT convert_from(body, 'UTF8') FROM once.lookup('', '%s')" % key), "other" if then else "",
              "%s: what stands" % name)
        a.close()
        b.close()


def run_granted():
    """A finish by who was granted it does not look at the claim. Where that was moved since, it is
    found there, also when its slot takes claims again (K3, K7); and the faster one wins (K5)."""
    many = ("SELECT string_agg(coalesce(n::text, '') || coalesce(done::text, (answer).arm), ' ') FROM once.finish_many("
            "ARRAY['%s']::uuid[], ARRAY[%s]::bigint[], ARRAY[2], ARRAY[200], ARRAY['']::bytea[], "
            "ARRAY['granted']::bytea[], false)")
    usual = ("SELECT at > 0 FROM once.fast_batch(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, ARRAY[%s]::bigint[], "
             "ARRAY[once.now_ms()], ARRAY[2], ARRAY[200], NULL, ARRAY['granted']::bytea[])")
    for name, tried, said, body, before in (
            ("in its slot", "t", "{} {} 1done", "granted", ""), ("after another", "23505", "{} {} 1fenced", "x", F),
            ("moved", "23502", "{} {} 1done", "granted", "move"), ("slot in use again", "23502", "{} {} 1done", "granted", "turn")):
        key, record, fence = held()
        slot = slot_of(record)
        psql("UPDATE once.ring SET period_ms = 1")
        while before in ("move", "turn") and slot_of(record) != "0":
            psql("SELECT once.expire()")
        while before == "turn" and psql("SELECT current FROM once.ring") != slot:
            held()   # what has no claims is not turned
            psql("SELECT once.expire()")
        psql("UPDATE once.ring SET period_ms = 86400000, opened_at = once.now_ms()")
        if before == F:
            psql(F.format(r=record, f=fence))
        equal(psql(usual % fence).split(":")[0], tried, "granted, %s: tried without a look" % name)
        equal(psql("SELECT count(*) FROM once.check_orphans()"), "0", "granted, %s: nothing was left behind" % name)
        equal(psql(many % (record, fence)), said.replace("%s", fence), "granted, %s: said" % name)
        equal(psql("SELECT convert_from(body, 'UTF8') FROM once.lookup('', '%s')" % key), body, "granted, %s: stands" % name)
        equal(psql("SELECT count(*) FROM once.check_orphans()"), "0", "granted, %s: nothing is left over" % name)


def run_old_snapshot():
    """A stale holder in a transaction that reads from one snapshot, taken before another took over and finished, or
    just finished: nothing of it passes (K3). Where that can only be known by looking, it is refused, also for who
    would take over, whatever the snapshot; where a unique index knows, it is 40001."""
    A = "SELECT arm FROM once.advance('{r}', {f}, 'p')"
    T = "SELECT arm FROM once.take_over('{r}', {f})"
    refused, again = "ERROR:  25001", "ERROR:  40001"
    none = lambda key, record, fence: None
    taken = lambda key, record, fence: psql(
        "SELECT (once.finish(c.record, c.fence, 200, 'new')).arm FROM once.claim('', '%s', takeover => 'rerun') c" % key)
    finished = lambda key, record, fence: psql(finishing(record, fence, "new"))
    extended = lambda key, record, fence: psql(X.format(r=record, f=fence))
    rows = [(name + " after " + what, make, did, call, said)
            for name, call in (("guard", G), ("advance", A), ("extend", X))
            for what, make, did, said in (("nothing", held, none, refused), ("a takeover", over, taken, refused),
                                          ("a finish", held, finished, refused))]
    rows += [(name + " after " + what, over, did, call, refused) for name, call in (("claim", C), ("take_over", T), ("resolve", Q))
             for what, did in (("nothing", none), ("an extend", extended), ("a takeover", taken))]
    rows += [("finish after a takeover", over, taken, F, again), ("finish after a finish", held, finished, F2, again),
             ("release after a takeover", over, taken, R, again), ("finish after nothing", held, none, F, "done|x"),
             ("claim and finish after nothing", FRESH, none, CF, "done"),
             ("claim and finish after a claim", FRESH, taken, CF, again),
             ("claim of a retryable failure", failed, none, C, "execute"),
             ("claim of a retryable failure after another", failed, taken, C, again),
             ("take_over of a retryable failure after another", failed, taken, T, again),
             ("claim of an expired key", expired, none, C, "execute"),
             ("claim of an expired key after another", expired, taken, C, again)]
    psql("UPDATE once.ring SET period_ms = 86400000, opened_at = once.now_ms()")   # it stands still
    a = Session()
    a.run("\\set VERBOSITY sqlstate")
    for level, some in (("REPEATABLE READ", rows), ("SERIALIZABLE", [r for r in rows if r[0].endswith(("a takeover", "a finish"))])):
        for name, make, did, call, said in some:
            key, record, fence = make()
            psql("SELECT pg_sleep(0.01)")
            a.run("BEGIN ISOLATION LEVEL %s; SELECT 1 FROM once.ring" % level)   # the snapshot
            did(key, record, fence)
            stored = "SELECT s.* FROM once.stored s WHERE s.key = '%s' ORDER BY s.fence" % key
            before = psql(stored)
            equal(a.run(call.format(k=key, r=record, f=fence)), said, "%s: %s" % (level, name))
            a.run("COMMIT")
            if said.startswith("ERROR"):
                equal(psql(stored), before, "%s: %s: nothing is changed" % (level, name))
    a.close()


def failed():
    """It failed, and may be tried again."""
    key, record, fence = held()
    psql("SELECT once.finish('%s', %s, 503, state => 'failed', retryable => true)" % (record, fence))
    return key, record, fence


def run_large():
    """A slot that grew since its statistics were made, or that has none: a step of expiry goes
    through it a few times, not once for each of its records."""
    count = 3000
    psql("UPDATE once.ring SET period_ms = 86400000, opened_at = once.now_ms()")
    psql("""DO $$ DECLARE names bytea[] := ARRAY(SELECT convert_to('large' || i, 'UTF8') FROM generate_series(1, %d) i);
                n int := %d; BEGIN
        PERFORM once.claim_many(ARRAY(SELECT once.record_id('', k) FROM unnest(names) k), array_fill(''::bytea, ARRAY[n]),
            names, array_fill(decode(repeat('00', 32), 'hex'), ARRAY[n]), array_fill(60000::bigint, ARRAY[n]),
            array_fill(1::bigint, ARRAY[n]), array_fill(1, ARRAY[n]), ARRAY(SELECT gen_random_uuid() FROM unnest(names)));
        PERFORM once.finish_many(array_agg(c.record), array_agg(c.fence), array_fill(2, ARRAY[n]), array_fill(200, ARRAY[n]),
            array_fill(''::bytea, ARRAY[n]), array_fill(''::bytea, ARRAY[n]), false)
           FROM once.claim c WHERE c.key = ANY (names); END $$""" % (count, count))
    psql("UPDATE once.ring SET period_ms = 1")
    left = "SELECT count(*) FROM once.claim WHERE convert_from(key, 'UTF8') LIKE 'large%'"
    most = 0
    equal(psql(left), str(count), "large: they are there")
    for _ in range(100):
        if psql(left) == "0":
            break
        read = psql("BEGIN; SELECT FROM once.expire(); SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) "
                    "FROM pg_stat_xact_user_tables WHERE schemaname = 'once'; COMMIT")
        most = max(most, int(read.split()[-1]))
    ok(0 < most < 30 * count, "large: a step of expiry reads each row a few times", most)


def run_gaps():
    """A completer's look at all that is unfinished does not walk through fences whose records are gone."""
    found, steps, before = [], 0, "9223372036854775807"
    at = [held() for _ in range(2)]
    for gap in (10 ** 3, 10 ** 5, 10 ** 9):
        psql("SELECT setval('once.fence', (SELECT last_value FROM once.fence) + 16 * %d::bigint)" % gap)
        at += [held() for _ in range(2)]
    psql("SELECT setval('once.fence', (SELECT last_value FROM once.fence) + 16 * 1000000000::bigint)")
    while before != "0" and steps < 2000:
        rows = psql("SELECT next, (answer).fence FROM once.unfinished(%s, 1000)" % before).splitlines()
        before, steps = rows[-1].split("|")[0], steps + 1
        found += [row.split("|")[1] for row in rows[:-1]]
    fences = [fence for _, _, fence in at]
    equal([f for f in found if f in fences], fences[::-1], "gaps: what is unfinished is found, newest first")
    equal(sorted(set(found)), sorted(found), "gaps: and each once")
    ok(steps < 50, "gaps: in few steps", steps)


def run_at_the_end_of_retention():
    """A retryable failure gets its next turn just before its retention ends, by who holds its row while
    its slot is gone through, or by a clock that was set back: that turn stays (K7, FAULT-30)."""
    psql("UPDATE once.ring SET period_ms = 1; UPDATE once.store SET test_clock = true")
    now = int(psql("SELECT once.now_ms()")) + 86400000
    at = lambda ms, sql: psql("SET once.now_ms = '%d'; " % ms + sql)
    again = "SELECT arm FROM once.claim('', '{k}', lease => '1 hour', retention => '3 s', takeover => 'rerun')"
    for name in ("held", "clock set back"):
        for now in range(now, now + 3000, 100):   # nothing else is left to be gone through
            at(now, "SELECT once.expire()")
        a = Session()
        key = "k%d" % next(_keys)
        record, fence = at(now, "SELECT record, fence FROM once.claim('', '%s', retention => '3 s')" % key).split("|")
        at(now, "SELECT once.finish('%s', %s, 503, state => 'failed', retryable => true)" % (record, fence))
        at(now + 100, "SELECT once.expire()")
        if name == "held":
            a.run("SET once.now_ms = '%d'" % (now + 2900))
            a.run("BEGIN")
            equal(a.run(again.format(k=key)), "execute", "end of retention, %s: the retry" % name)
        at(now + 3100, "SELECT once.expire()")
        if name == "held":
            a.run("COMMIT")
        else:
            equal(at(now + 2900, again.format(k=key)), "execute", "end of retention, %s: the retry" % name)
        for step in range(10):
            at(now + 3200 + 100 * step, "SELECT once.expire()")
        equal(at(now + 5000, again.format(k=key)), "in progress", "end of retention, %s: another" % name)
        equal(psql("SELECT count(*) FROM once.check_orphans()"), "0", "end of retention, %s: nothing is left over" % name)
        a.close()
        now += 10000
    psql("UPDATE once.store SET test_clock = false")
    psql("UPDATE once.ring SET opened_at = once.now_ms(); "   # what comes later has the real clock
         "UPDATE once.slot SET closed_at = once.now_ms() WHERE closed_at > once.now_ms()")



def run_forgotten():
    """Forgetting changes rows in place: they may go to a block that expiry has gone through already. They are there
    when the slot is emptied all the same (K7)."""
    psql("UPDATE once.ring SET period_ms = 1")
    expire_all()
    held()
    while psql("SELECT once.blocks_of(current) FROM once.ring") != "0":
        psql("SELECT once.expire()")
    psql("UPDATE once.ring SET period_ms = 86400000, opened_at = once.now_ms()")
    slot = psql("SELECT current FROM once.ring")
    psql("DO $$ DECLARE a once.answer; BEGIN FOR i IN 1..300 LOOP a := once.claim('t', 'f' || i, retention => '1 day'); "
         "PERFORM once.finish(a.record, a.fence, 200, 'x'); END LOOP; END $$")
    psql("UPDATE once.ring SET period_ms = 1")
    while psql("SELECT current FROM once.ring") == slot:
        psql("SELECT once.expire()")
    psql("UPDATE once.ring SET period_ms = 86400000")
    equal(psql("SELECT current <> %s FROM once.ring; SELECT once.blocks_of(%s::smallint) > 3" % (slot, slot)), "t\nt", "forgotten: a slot of several blocks that is out of use")
    psql("UPDATE once.slot SET closed_at = 0 WHERE slot = 0; SELECT once.note_slots(); SELECT once.sweep_slot(%s::smallint, 64)" % slot)
    psql("VACUUM once.claim_%s" % slot)   # the first block, whose records were moved, has room
    late = psql("SELECT convert_from(key, 'UTF8') FROM once.claim_%s WHERE (ctid::text::point)[0] = 2 LIMIT 1" % slot)
    equal(psql("SELECT arm FROM once.forget('t', '%s', 'r')" % late), "done", "forgotten: one of a later block")
    equal(psql("SELECT (ctid::text::point)[0] FROM once.claim_%s WHERE record = once.record_id('t', '%s')" % (slot, late)), "0", "forgotten: which is in the first one now")
    while psql("SELECT once.sweep_slot(%s::smallint, 1000)" % slot) == "f":
        pass
    equal(psql("SELECT count(*) FROM once.leftover"), "0", "forgotten: nothing is left to be moved under the lock")
    psql("SELECT once.empty_slot(%s::smallint)" % slot)
    equal(psql("SELECT arm, forgotten FROM once.claim('t', '%s')" % late), "replay|t", "forgotten: and there after all was emptied")
    equal(psql("SELECT count(*) FROM once.claim WHERE slot = 0 AND takeover & 256 <> 0"), "1", "forgotten: in slot 0")


def stand_still(period=86400000):
    psql("UPDATE once.ring SET period_ms = %d, opened_at = once.now_ms()" % period)


def closed_with(*keys):
    """A slot that was just closed, the only one: of an hour, with 300 lives that are over and these. Its number."""
    psql("UPDATE once.ring SET period_ms = 1")
    while psql("SELECT count(*) FROM once.slot WHERE slot > 0 AND closed_at IS NOT NULL") != "0":
        psql("SELECT once.expire(10000)")
    stand_still()
    slot = psql("SELECT current FROM once.ring")
    psql("DO $$ DECLARE a once.answer; BEGIN FOR i IN 1..300 LOOP a := once.claim('early', '%s' || i, retention => '1 ms'); "
         "PERFORM once.finish(a.record, a.fence, 200, 'x'); END LOOP; END $$" % slot)
    for make in keys:
        make()
    psql("SELECT pg_sleep(0.01); UPDATE once.ring SET opened_at = opened_at - 86400000; SELECT once.expire()")
    ok(psql("SELECT closed_at > 0 FROM once.slot WHERE slot = %s" % slot) == "t", "early: closed")
    return slot


def rows_of(slot):
    return int(psql("SELECT count(*) FROM once.claim WHERE slot = %s" % slot))


def run_early():
    """A closed slot of which all is over is emptied before it is out of use; where anything lives, nothing is moved, and
    nothing is lost (K7, K8). Nobody looks at it again before that is over."""
    outliving = "SELECT count(*) FROM once.claim WHERE slot = 0"
    slot = closed_with()
    ok(rows_of(slot) >= 300, "early: they are there")
    expire_due()
    equal(rows_of(slot), 0, "early: all of it over, it goes")
    for name, retention, then in (("wanted for a day", "1 day", None), ("for ever", None, None), ("for an hour", "1 hour", 0)):
        key = "early %s" % name
        told = "NULL" if retention is None else "'%s'" % retention
        slot = closed_with(lambda: psql("SELECT once.finish(c.record, c.fence, 200, 'x') FROM once.claim('', '%s', retention => %s) c" % (key, told)))
        before, moved = rows_of(slot), psql(outliving)
        psql("SELECT once.expire(64)")
        ok(int(psql("SELECT blocks FROM once.slot WHERE slot = %s" % slot)) == 1, "early: one %s: a block is gone through" % name)
        expire_due()
        equal(rows_of(slot), before, "early: one %s: it stays" % name)
        equal(psql("SELECT state FROM once.lookup('', '%s')" % key), "succeeded", "early: one %s: is there" % name)
        waits = int(psql("SELECT look_from - once.now_ms() FROM once.slot WHERE slot = %s" % slot))
        ok({"1 day": 86000000, None: 43000000, "1 hour": 3000000}[retention] < waits <= {"1 day": 86400000, None: 43200000, "1 hour": 3600000}[retention],
           "early: one %s: when it may be over" % name, waits)
        if then is not None:
            psql("UPDATE once.result SET finished_at = 0 WHERE slot = %s; UPDATE once.slot SET look_from = 0" % slot)   # as an hour later
            expire_due()
            equal(rows_of(slot), then, "early: one %s: goes when that is over" % name)
        equal(psql(outliving), moved, "early: one %s: nothing is moved" % name)
    look = "UPDATE once.slot SET look_from = 0"   # as half a period later
    for name, make, end in (("running", held, lambda k, r, f: psql(finishing(r, f))), ("retryable", failed, lambda k, r, f: None)):
        made = []
        slot = closed_with(lambda: made.append(make()))
        before = rows_of(slot)
        expire_due()
        equal(rows_of(slot), before, "early: one %s: it stays" % name)
        end(*made[0])
        psql(look)
        expire_due()
        equal(rows_of(slot), before, "early: one %s: and when that has ended, and is wanted" % name)
        psql("UPDATE once.ring SET period_ms = 1")
        expire_all()
        stand_still()
        equal(rows_of(slot), 0, "early: one %s: it goes when it is out of use" % name)
        equal(psql("SELECT slot FROM once.claim WHERE record = '%s'" % made[0][1]), "0", "early: one %s: and that is moved" % name)
    # What is forgotten may be in a block behind: then it is not before its time.
    slot = closed_with()
    psql("INSERT INTO once.leftover (record, fresh) VALUES (gen_random_uuid(), true)")
    expire_due()
    ok(rows_of(slot) > 0, "early: something was forgotten: it stays")
    psql("DELETE FROM once.leftover; " + look)
    expire_due()
    equal(rows_of(slot), 0, "early: and goes")
    # A clock that was set back: what was over is not, and is looked at again.
    slot = closed_with(lambda: psql("SELECT once.finish(c.record, c.fence, 200, 'x') FROM once.claim('', 'early back', retention => '1 hour') c"))
    psql("UPDATE once.store SET test_clock = true")
    later = int(psql("SELECT once.now_ms()")) + 2 * 3600000
    for _ in range(2):
        psql("SET once.now_ms = '%d'; SELECT once.expire(64 * 5)" % later)
    ok(int(psql("SELECT blocks FROM once.slot WHERE slot = %s" % slot)) >= 5, "early: gone through by a clock that is ahead")
    psql("UPDATE once.store SET test_clock = false")
    expire_due()
    equal(psql("SELECT state FROM once.lookup('', 'early back')"), "succeeded", "early: set back, what is wanted stays")
    ok(rows_of(slot) > 0, "early: set back, its slot too")


def run_written_anew():
    """A table that was written anew (VACUUM FULL, a dump that was restored) has its rows elsewhere: nothing that lives goes (K7)."""
    made = []

    def living():
        psql("BEGIN; SELECT count(*) FROM generate_series(1, 3000) i, LATERAL once.claim('t', 'aborted' || i) c; ROLLBACK")
        made.append(psql("SELECT record FROM once.claim('', 'anew', retention => NULL, lease => '24 hours')"))
    slot = closed_with(living)
    for _ in range(40):   # as far as it goes early
        psql("SELECT once.expire(64)")
    blocks = int(psql("SELECT blocks FROM once.slot WHERE slot = %s" % slot))
    psql("VACUUM FULL once.claim_%s" % slot)
    ok(blocks > int(psql("SELECT once.blocks_of(%s::smallint)" % slot)) - 1 > 0, "written anew: it takes fewer blocks than were looked at", blocks)
    psql("UPDATE once.slot SET look_from = 0")
    expire_due()
    equal(psql("SELECT state FROM once.lookup('', 'anew')"), "running", "written anew: what lives is there")
    equal(psql("SELECT slot FROM once.claim WHERE record = '%s'" % made[0]), slot, "written anew: where it was")


def run_far_apart():
    """Fences of a block that are far apart are looked for one by one; what is found is the same (K7)."""
    made = []
    slot = closed_with(lambda: made.append(over()), lambda: psql("SELECT setval('once.fence', nextval('once.fence') + 16 * 1000000::bigint)"),
                       lambda: psql(claim(made[0][0])))
    equal(psql("SELECT (max(fence) - min(fence)) / 16 > 1000000, count(*) > 300 FROM once.claim_%s" % slot), "t|t", "far apart: they are")
    size = psql("SELECT once.blocks_of(%s::smallint)" % slot)
    equal(psql("SELECT over, others, until FROM once.scan_blocks(%s::smallint, 0, %s)" % (slot, size)),
          "%d|{%s}|" % (rows_of(slot) - 2, made[0][1]), "far apart: one record is not over")


def run_upkeep_beside():
    """What somebody does in a transaction that stays open, and what somebody is about to do, is not in the way of upkeep."""
    psql("SELECT once.consumer('beside', '1 ms'); SELECT once.consume('beside', 'm'); SELECT pg_sleep(0.02)")
    session = Session()
    session.run("BEGIN; SELECT arm FROM once.claim('', 'beside', route => 'beside')")
    equal(psql("SELECT removed FROM once.expire()"), "1", "upkeep goes on beside a transaction that has made a route")
    session.run("ROLLBACK; BEGIN; SELECT removed FROM once.expire()")
    equal(psql("SELECT route FROM once.claim('', 'beside', route => 'beside')"), "beside", "a route is made beside upkeep")
    session.run("COMMIT")
    session.close()


def run_mark_taken_away():
    """A mark past its retention that upkeep takes away just when the message comes again: it is fresh (K8), and marked (K13)."""
    psql("SELECT once.consumer('away', '1 ms'); SELECT once.consume('away', 'm'); SELECT pg_sleep(0.02);"
         "CREATE FUNCTION public.wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
         "PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$;"
         "CREATE TRIGGER wait AFTER INSERT ON once.inbox FOR EACH STATEMENT EXECUTE FUNCTION public.wait()")
    gate, session = Session(), Session()
    gate.run("SELECT pg_advisory_lock(1)")
    session.send("SELECT once.consume('away', 'm')")
    equal(session.blocks(), True, "mark taken away: it was there, and the second look is about to come")
    psql("SELECT removed FROM once.expire()")
    equal(psql("SELECT count(*) FROM once.inbox WHERE consumer = 'away'"), "0", "mark taken away: it is")
    gate.run("SELECT pg_advisory_unlock(1)")
    equal(session.get(), "t", "mark taken away: the message is fresh")
    psql("DROP TRIGGER wait ON once.inbox; DROP FUNCTION public.wait()")
    equal(psql("SELECT count(*) FROM once.inbox WHERE consumer = 'away'"), "1", "mark taken away: and marked again")
    gate.close()
    session.close()


migrated()
run_upkeep_beside()
run_mark_taken_away()
run_pairs()
run_expiry()
run_locked_newest()
run_earlier_block()
run_moved()
run_granted()
run_old_snapshot()
run_large()
run_at_the_end_of_retention()
run_gaps()
run_forgotten()
run_early()
run_written_anew()
run_far_apart()
equal(psql("SELECT count(*) FROM once.check_rows(0, 100000)"), "0", "no invariant is broken (check_rows)")
equal(psql("SELECT count(*) FROM once.check_orphans()"), "0", "no invariant is broken (check_orphans)")
finish()
