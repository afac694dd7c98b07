"""The server cannot be reached, for a while or without a word.

FAULT-20  a connection that is half open: nothing comes and nobody closes it. It is given up after
     a bounded time and settled on a new one.
FAULT-21  new connections are refused: tried again with pauses; then UNKNOWN for what was under
     way, UNAVAILABLE (nothing was changed) for what comes after it, until the server is back.
     The server is killed and comes back by itself.
K1, K4, K10  as in cuts.py: nothing happens twice, and nothing acknowledged is lost.

usage: with-postgres --tcp away.py
"""
import os
import subprocess
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sql")]

import sqltest
from cutcase import Case, says
from pgproxy import Proxy
from sqltest import equal, ok
from steps import Step
from lib.wait import SECONDS, becomes_true

PORT = int(os.environ["ONCE_TEST_POSTGRES_PORT"])
TRIES = 5
WHERE = {"before": "not sent yet", "sent": "sent", "answered": "answered"}
SILENCE = "&tcp_user_timeout=4000"  # ms that an answer may take; one that takes longer is asked for again


def waited_for(db):
    """The server processes that somebody waits for."""
    return set(db.run("SELECT DISTINCT unnest(pg_blocking_pids(pid)) FROM pg_stat_activity").split())


def nobody_closes(b, db):
    """All at the same time: each takes as long as silence is borne. Where a machine is so busy that the store
    has given up before the server was let find out, which is UNKNOWN, it is done again."""
    todo = [(name, point) for point in ("before", "sent", "answered")
            for name in ("claim", "takeover", "finish", "advance", "release", "resolve", "batch")]
    for turn in range(TRIES):
        todo = in_silence(todo, b, db, turn == TRIES - 1)


def opened(url):
    """A client; that it was silent for too long while it was opened is not what this is about."""
    client = Step(url)
    becomes_true(lambda: client.opened == "OK" or setattr(client, "opened", client.ask("open " + url)))
    return client


def in_silence(todo, b, db, last):
    """Before COMMIT the server waits too, and holds its locks: the settling write waits until the server
    finds out. That it does so is seen, and then the hole is closed at once: it does not wait for ever."""
    running, again = [], []
    for name, point in todo:
        proxy = Proxy(PORT)
        case = Case(name, opened(proxy.url("test", SILENCE)), b, db)
        case.prepare()
        running.append((name, point, case, proxy))
    plans = []
    for name, point, case, proxy in running:
        plans.append(proxy.cut(point, "hole", case.nth()))
        case.a.send(case.does())
    problems = {case: [] for _, _, case, _ in running}
    for (_, _, case, _), plan in zip(running, plans):
        if not plan.done.wait(SECONDS):
            problems[case].append("nothing was cut")
    open_ones = {str(c.pid): (case, proxy) for _, point, case, proxy in running if point == "before"
                 for c in proxy.connections if c.hole}

    def close_those_that_are_waited_for():
        awaited = waited_for(db)
        for pid, (case, proxy) in list(open_ones.items()):
            early = case.a.has_answered()
            if early:
                problems[case].append("it was answered while the first try was in doubt")
            if early or pid in awaited:
                proxy.close(holes_only=True)
                del open_ones[pid]
        return not open_ones

    if not becomes_true(close_those_that_are_waited_for):
        print("# nobody waits for", open_ones)
    for name, point, case, proxy in running:
        proxy.close(holes_only=True)
        said = case.a.get()
        if point == "before" and "UNKNOWN" in said and not last:
            again.append((name, point))
            continue
        wrong = problems[case] + case.judge(said)
        ok(not wrong, "K1 K10 FAULT-20: %s, silence when COMMIT is %s" % (name, WHERE[point]), *wrong)
    for _, _, case, _ in running:
        case.a.close()
    return again


def refused_for_a_moment(proxy, a, b, db):
    for name in ("claim", "finish", "advance", "release", "resolve", "batch"):
        case = Case(name, a, b, db)
        case.prepare()
        proxy.refused, proxy.refusing = 0, 2
        proxy.cut("answered", "fin", case.nth())
        problems = case.judge(a.ask(case.does()))
        if proxy.refused != 2:
            problems.append("%d connections were refused" % proxy.refused)
        ok(not problems, "K10 FAULT-21: %s is settled at the third connection" % name, *problems)


# row, line, what it answers when it is repeated
LONG = (
    ("claim", "claim {k} nonce={k}", "OK execute attempt=1"),
    ("finish", "finish {k} body", "OK done"),
    ("advance", "advance {k} paid receipt", "OK done"),
    ("release", "release {k}", "OK done"),
    ("resolve", "resolve {k} done body", "OK replay"),
)


def refused_for_long(proxy, a, b, db):
    for name, line, again in LONG:
        case = Case(name, a, b, db)
        case.prepare()
        proxy.refusing = 1 << 30
        proxy.cut("answered")
        first, other = a.ask(case.line(line)), a.ask(case.line("claim {n}"))
        listing, stats = a.ask("list"), a.ask("stats")
        proxy.refusing = 0
        free = b.ask(case.line("claim {n}"))
        repeated = a.ask(case.line(line))
        problems = [text for text, expected in
                    ((first, "UNKNOWN"), (other, "UNAVAILABLE"), (listing, "UNAVAILABLE"), (stats, "UNAVAILABLE"),
                     (free, "OK execute"), (repeated, again)) if not says(text, expected)]
        ok(not problems, "K10 FAULT-21: %s without a server is unknown, what follows is not begun" % name, *problems)


def asked_while_away(proxy, a):
    """Only questions come while the server is away; then an operation, when it is back."""
    proxy.refusing = 1 << 30
    proxy.close()
    first, second = a.ask("list"), a.ask("list")
    proxy.refusing = 0
    answer = a.ask("claim asked")
    ok(says(first, "UNAVAILABLE") and says(second, "UNAVAILABLE") and says(answer, "OK execute"),
       "FAULT-21: a question that failed does not keep operations from connecting", first, second, answer)


def killed(a, b):
    """The server is stopped as in a crash and started again, under a claim."""
    claimed = a.ask("claim crash")
    command = [os.path.join(os.environ["ONCE_TEST_POSTGRES_BIN"], "pg_ctl"), "restart", "-D",
               os.environ["ONCE_TEST_POSTGRES_DATA"], "-m", "immediate", "-w", "-t", "300", "-s", "-l", os.devnull]
    if os.geteuid() == 0:
        command = ["runuser", "-u", "postgres", "--"] + command
    restart = subprocess.Popen(command, cwd="/")
    answers = []
    becomes_true(lambda: answers.append(a.ask("finish crash body")) or answers[-1].startswith("OK"))
    equal(restart.wait(), 0, "the server was restarted")
    replays = []
    becomes_true(lambda: replays.append(b.ask("claim crash")) or replays[-1].startswith("OK"))
    ok(says(claimed, "OK execute") and says(answers[-1], "OK done") and says(replays[-1], "OK replay body=body"),
       "K4 FAULT-21: a claim outlives the server's crash", claimed, answers[-1], replays[-1])
    equal([x for x in answers[:-1] if not says(x, "UNKNOWN") and not says(x, "UNAVAILABLE")], [],
          "K10 FAULT-21: while the server is down, a finish is unknown or not begun")


sqltest.migrated()
proxy = Proxy(PORT)
a, b, db = Step(proxy.url("test")), Step(sqltest.url("test")), sqltest.Session()
nobody_closes(b, db)
refused_for_a_moment(proxy, a, b, db)
refused_for_long(proxy, a, b, db)
asked_while_away(proxy, a)
killed(a, b)
for step in (a, b):
    equal(step.close(), 0, "the client closed")
sqltest.finish()
