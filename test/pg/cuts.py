"""Must-show 3: the connection is cut around COMMIT, for every operation, at every point.

K1   a key has one holder: what was cut is made, or found to be made, not made twice.
K4   an answer is given after its commit; the outcome in the store is the acknowledged one.
K10  a lost answer is settled on a new connection by a conflicting write: the claim that
     committed is answered to its own caller as execute, with its own fence.
FAULT-18 cut before COMMIT, FAULT-19 cut after it, FAULT-20 half open: nobody closes, FAULT-21 refused for a while

usage: with-postgres --tcp cuts.py
"""
import os
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sql")]

import sqltest
from cutcase import Case
from operations import ROWS
from pgproxy import Proxy
from sqltest import equal, ok
from steps import Step, value

FAULTS = {"before": "FAULT-18", "executed": "FAULT-18 K4", "sent": "FAULT-19", "answered": "FAULT-19 K4", "ready": "FAULT-19"}

WHERE = {"before": "not sent", "executed": "not sent, the rest answered", "sent": "sent", "answered": "answered",
         "ready": "answered and heard"}


def settled(step):
    return int(value(step.ask("stats"), "settled") or 0)


def cut_everything(proxy, a, b, db):
    for name in ROWS:
        for point in FAULTS:
            for way in ("fin", "rst"):
                case = Case(name, a, b, db)
                case.prepare()
                before = settled(a)
                plan = proxy.cut(point, way, case.nth())
                answer = a.ask(case.does())
                problems = case.judge(answer)
                if not plan.done.is_set():
                    problems.append("nothing was cut")
                if point != "ready" and settled(a) <= before:
                    problems.append("nothing was settled")
                ok(not problems, "K1 K10 %s: %s, %s, COMMIT %s" % (FAULTS[point], name, way, WHERE[point]), *problems)


sqltest.migrated()
proxy = Proxy(int(os.environ["ONCE_TEST_POSTGRES_PORT"]))
a, b, db = Step(proxy.url("test")), Step(sqltest.url("test")), sqltest.Session()
equal((a.opened, b.opened), ("OK", "OK"), "the store opens through the proxy")
cut_everything(proxy, a, b, db)
for step in (a, b):
    equal(step.close(), 0, "the client closed")
db.close()
sqltest.finish()
