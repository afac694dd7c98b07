"""FACT-6, FAULT-24: a COMMIT that waits for a standby, and whose wait is cut short.

The server is told to wait for a standby that does not exist. Cancelling the wait makes COMMIT
succeed with a WARNING: it stands here, and a failover would forget it.

K4   such a commit is not believed. The library settles, and its barrier waits for the standby
     as well; only when there is none to wait for any more does the caller hear its own claim.
FAULT-20  a wait that takes longer than an answer may take ends as UNKNOWN, and is not cancelled.
     Nor is it believed if the caller's session hides warnings.

usage: with-postgres warned.py
"""
import os
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sql")]

import sqltest
from cutcase import says
from sqltest import equal, ok, psql
from standby import standby, waiting
from steps import Step, value
from lib.wait import becomes_true


def persist(client, line):
    """Asks until it is not for want of time that there is no answer."""
    said = [""]
    becomes_true(lambda: said.append(client.ask(line)) or "no answer" not in said[-1])
    return said[-1]


def newest(key):
    return psql("SELECT max(fence) FROM once.claim WHERE key = '%s'" % key)


sqltest.migrated()
# One role as it comes; one whose sessions hide warnings.
for role in ("loud", "quiet", "short"):
    psql("CREATE ROLE %s LOGIN; GRANT once_ops TO %s" % (role, role))
psql("ALTER ROLE quiet SET client_min_messages = error")
clients = {role: Step(sqltest.url("test", role)) for role in ("loud", "quiet")}
SHORT = sqltest.url("test", "short") + "&tcp_user_timeout=600"
clients["short"] = Step(SHORT)
opened = [c.opened for c in clients.values()]
if "no answer" in opened[2]:  # in that time, by a server that is busy
    opened[2] = persist(clients["short"], "open " + SHORT)
equal(opened, ["OK"] * 3, "the stores open")

ok(standby("nobody"), "commits wait for a standby")
for role, client in clients.items():
    client.send("claim %s nonce=%s" % (role, role))
cancelled = {}
for role in ("loud", "quiet"):
    becomes_true(lambda: waiting(role))
    cancelled[role] = waiting(role)
    for pid in cancelled[role]:
        psql("SELECT pg_cancel_backend(%s)" % pid)
for role in ("loud", "quiet"):
    # The commit returned; somebody else waits now: the barrier.
    again = becomes_true(lambda: clients[role].has_answered() or waiting(role) - cancelled[role])
    ok(again and not clients[role].has_answered(), "K4 FACT-6 FAULT-24: a commit with a warning is not believed (%s)" % role,
       clients[role].get() if clients[role].has_answered() else "")
short = clients["short"].get()
ok(says(short, "UNKNOWN"), "K10 FACT-6 FAULT-20: a wait that takes too long is unknown", short)
ok(standby(""), "there is no standby to wait for any more")
for role in ("loud", "quiet"):
    answer = clients[role].get()
    ok(says(answer, "OK execute attempt=1") and value(answer, "fence") == newest(role),
       "K10 FACT-6: then the claim is its caller's (%s)" % role, answer)
answer = persist(clients["short"], "claim short nonce=short")
ok(says(answer, "OK execute attempt=1") and value(answer, "fence") == newest("short"),
   "K10 FACT-6: what was unknown is found when it is asked for again", answer)
equal(psql("SELECT count(*) FROM once.claim"), "3", "K1 FACT-6: three claims were made")
for client in clients.values():
    equal(client.close(), 0, "the client closed")
sqltest.finish()
