"""FAULT-19: the server commits late. Its process is stopped (SIGSTOP) while the connection is lost,
and goes on when the library is already settling on another one.

K10  the settling write waits for the transaction in doubt; it does not read a snapshot in
     which that is not there yet. Longer than it can wait for, the answer is UNKNOWN: it may
     have taken effect. Never that it did not, nor somebody else's.
K1, K5  what the late process then does adds nothing: one claim, one outcome.

usage: with-postgres --tcp late.py
"""
import os
import signal
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sql")]

import sqltest
from cutcase import Case, is_waited_for, says
from operations import ROWS
from pgproxy import Proxy
from sqltest import equal, ok
from steps import Step, value
from lib.wait import SECONDS, becomes_true

READS = ("replay", "lookup")  # these change nothing, so nothing waits for them
TRIES = 5
PORT = int(os.environ["ONCE_TEST_POSTGRES_PORT"])


def let_go_on(db, pid):
    """It reads what is in its socket, answers to nobody, and ends."""
    os.kill(pid, signal.SIGCONT)
    return becomes_true(lambda: db.run("SELECT count(*) FROM pg_stat_activity WHERE pid = %d" % pid) == "0")


def commits_while_settling(proxy, a, b, db):
    """Stopped with everything done but the COMMIT. Settling waits for seconds: where a machine is so busy that it has
    given up before we let the process go on, which is UNKNOWN, it is done again."""
    for name in ROWS:
        for _ in range(TRIES):
            said, problems = commits_late(name, proxy, a, b, db)
            if "UNKNOWN" not in said:
                break
        ok(not problems, "K10 FAULT-19: %s waits for the transaction in doubt" % name, *problems)


def commits_late(name, proxy, a, b, db):
    case = Case(name, a, b, db)
    case.prepare()
    plan = proxy.cut("late", "fin", case.nth())
    a.send(case.does())
    cut = plan.done.wait(SECONDS)
    waits = name not in READS
    waited = cut and waits and becomes_true(lambda: a.has_answered() or is_waited_for(db, plan.pid))
    early = waits and a.has_answered()
    gone = cut and let_go_on(db, plan.pid)
    said = a.get()
    problems = case.judge(said)
    if early or (waits and not waited):
        problems.append("it was answered while the first try was in doubt")
    if not gone:
        problems.append("the server process did not end")
    return said, problems


def begins_after_all_is_over(proxy, a, b, db):
    """Stopped before it read anything: there is nothing to wait for, and it comes last."""
    for name in ROWS:
        case = Case(name, a, b, db)
        case.prepare()
        plan = proxy.cut("unread", "fin", case.nth())
        answer = a.ask(case.does())
        problems = case.judge(answer)
        if not plan.done.is_set() or not let_go_on(db, plan.pid):
            problems.append("the server process was not stopped, or did not end")
        for letter, facts in case.row["facts"].items():
            found = case.facts(case.keys[letter])
            if found != facts:
                problems.append("the late process made %s of %s" % (found, facts))
        ok(not problems, "K1 K5 FAULT-19: %s, sent long ago, adds nothing" % name, *problems)


# row, the line (with a nonce of its own where it is a claim), what it answers when repeated
TOO_LATE = (
    ("claim", "claim {k} nonce={k}", "OK execute attempt=1"),
    ("takeover", "claim {k} takeover=rerun nonce={k}", "OK execute attempt=2"),
    ("finish", "finish {k} body", "OK done"),
    ("advance", "advance {k} paid receipt", "OK done"),
    ("release", "release {k}", "OK done"),
    ("resolve", "resolve {k} done body", "OK replay"),
)


def stays_longer_than_anybody_waits(b, db):
    """All of these at the same time: each takes as long as settling takes to give up."""
    running = []
    for name, line, again in TOO_LATE:
        proxy = Proxy(PORT)
        a = Step(proxy.url("test"))
        case = Case(name, a, b, db)
        case.prepare()
        plan = proxy.cut("late")
        a.send(case.line(line))
        running.append((name, line, again, case, a, plan))
        plan.done.wait(SECONDS)
    busy = b.ask(running[0][3].line("claim {k}"))
    ok(busy.startswith("BUSY"), "K1 FAULT-25: a key that is claimed or not is nobody else's meanwhile", busy)
    for name, line, again, case, a, plan in running:
        answer = a.get()
        ok(answer.startswith("UNKNOWN"), "K10 FAULT-19: %s that nobody could settle is unknown" % name, answer)
        other = a.ask(case.line("claim {n}"))
        ok(says(other, "OK execute"), "K10: after %s in doubt the client does other work" % name, other)
    for name, line, again, case, a, plan in running:
        let_go_on(db, plan.pid)
        answer = a.ask(case.line(line))
        problems = [] if says(answer, again) else [answer]
        newest = db.run("SELECT max(fence) FROM once.claim WHERE key = '%s'" % case.keys["k"])
        if name in ("claim", "takeover") and value(answer, "fence") != newest:
            problems.append("its fence is not the store's, which is %s: %s" % (newest, answer))
        ok(not problems, "K10: %s, repeated, finds what was done" % name, *problems)
        a.close()


# what was before; what was sent and not read; what came after it was settled; what must still stand
GHOSTS = (
    ("lease that is over", ["claim {k}"], "extend {k} 600000", ["finish {k} body"], "claim {k}", "OK replay body=body"),
    ("release of what was then claimed again", ["claim {k}"], "release {k}", ["claim {k}"], "lookup {k}",
     "OK found attempt=1 state=running"),
    ("verdict on what is then unknown again", ["claim {k}", "finish {k} - unknown"], "resolve {k} not-done",
     ["claim {k}", "finish {k} - unknown"], "lookup {k}", "OK found attempt=2 state=unknown"),
)

# No row of the store could stop these: the library ends the server process before it settles.
GHOSTS_ENDED = (
    ("claim of what was then released", [], "claim {k}", ["release {k}"], "lookup {k}", "OK absent"),
    ("claim of what then failed", [], "claim {k}", ["finish {k} x retryable"], "lookup {k}",
     "OK found attempt=1 state=failed"),
    ("checkpoint that was then replaced", ["claim {k}"], "advance {k} paid old", ["advance {k} paid new"],
     "lookup {k}", "OK found checkpoint=new"),
)


def comes_after_what_followed(rows, proxy, a, b, db):
    """Stopped before it read anything, and continued when the caller has gone on."""
    for name, before, does, then, look, expected in rows:
        case = Case("claim", a, b, db)
        said = [a.ask(case.line(text)) for text in before]
        plan = proxy.cut("unread")
        said += [a.ask(case.line(text)) for text in [does] + then]
        problems = [s for s in said if not s.startswith("OK")]
        if not plan.done.is_set() or not let_go_on(db, plan.pid):
            problems.append("the server process was not stopped, or did not end")
        answer = b.ask(case.line(look))
        if not says(answer, expected):
            problems.append("'%s' instead of '%s'" % (answer, expected))
        ok(not problems, "K1 K11 FAULT-19: a late %s changes nothing" % name, *problems)


def as_one_who_cannot_end_sessions(proxy, b, db):
    """Through a pooler, or where the function is not there: then the store's rows have to do it alone."""
    db.run("""DO $$ BEGIN
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC',
                       (SELECT oid::regprocedure FROM pg_proc WHERE proname = 'pg_terminate_backend'));
    END $$; CREATE ROLE late LOGIN IN ROLE once_app, once_ops""")
    a = Step(proxy.url("test").replace("user=postgres", "user=late"))
    begins_after_all_is_over(proxy, a, b, db)
    comes_after_what_followed(GHOSTS, proxy, a, b, db)
    equal(a.close(), 0, "the client closed")


sqltest.migrated()
proxy = Proxy(PORT)
a, b, db = Step(proxy.url("test")), Step(sqltest.url("test")), sqltest.Session()
commits_while_settling(proxy, a, b, db)
begins_after_all_is_over(proxy, a, b, db)
comes_after_what_followed(GHOSTS + GHOSTS_ENDED, proxy, a, b, db)
as_one_who_cannot_end_sessions(proxy, b, db)
stays_longer_than_anybody_waits(b, db)
for step in (a, b):
    equal(step.close(), 0, "the client closed")
db.close()
sqltest.finish()
