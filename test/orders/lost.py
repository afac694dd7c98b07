#!/usr/bin/env python3
"""The answer to a COMMIT is lost, for every commit of a flow, at every moment (K10, FAULT-18, FAULT-19): what became of
it is looked up, never guessed. Where that settles it the flow goes on, and the client gets its 201 as if
nothing had happened; where it does not, nothing is answered but "ask again". One order, one charge, one
receipt, whatever happens. PostgreSQL, through test/pg/pgproxy.py.
"""
import os
import signal
import sys
import threading

sys.path[:0] = [os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "pg")]

from harness import expect, tap, wait_for
from pgproxy import Proxy

COMMITS = {1: "claim", 2: "order", 3: "receipt"}
SETTLED = ("sent", "answered", "ready", "late")


def lost(nth, point, way):
    def function(case):
        case.provider()
        proxy = Proxy(int(os.environ["ONCE_TEST_POSTGRES_PORT"]))
        case.books.shop_url = proxy.url(case.books.name)
        # So long that none is renewed: that would be one more COMMIT, and it is not the one that is meant.
        shop = case.orders("--threads", "1", "--lease", "86400000")
        expect(case.post(shop, "first").status == 201, "it does not work at all")
        plan = proxy.cut(point, way, nth)
        answers = []
        client = threading.Thread(target=lambda: answers.append(case.post(shop)))
        client.start()
        wait_for(plan.done.is_set, "the connection to be cut")
        if point == "late":
            if nth > 1:  # a first claim that nobody can see yet holds up nobody
                wait_for(lambda: case.books.rows("SELECT 1 FROM pg_stat_activity WHERE %d = ANY (pg_blocking_pids(pid))"
                                                 % plan.pid), "somebody to wait for the transaction in doubt")
            os.kill(plan.pid, signal.SIGCONT)
        client.join()
        if nth > 1 and point in SETTLED:
            expect(answers[0].status == 201, "it was not settled: %s %s" % (answers, case.said(shop)))
        elif nth > 1:
            expect(answers[0].status in (409, 503), "not committed, and yet %s" % answers)
        # Where nothing could be said, the lease has to run out: now.
        case.books.rows("UPDATE once.progress SET lease_until = 1")
        final = case.post_until_final(shop)
        expect(final.status == 201 and (answers[0].status != 201 or final.body == answers[0].body), "then %s" % final)
        for name, found in (("orders", case.orders_in_books()), ("charges", case.charges()), ("receipts", case.receipts())):
            expect(len(found) == 2, "%s: %s" % (name, found))
        case.check_books("afterwards")
        return case.said(shop).strip()
    return function


if __name__ == "__main__":
    tap([("%s, cut by %s, COMMIT %s" % (COMMITS[nth], way, point), lost(nth, point, way)) for nth in COMMITS
         for point in ("before", "executed", *SETTLED) for way in (("fin",) if point == "late" else ("fin", "rst"))])
