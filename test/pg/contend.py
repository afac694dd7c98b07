#!/usr/bin/env python3
"""Two processes on one database, fifty callers on every key (F25, F33, K1).

Each key is executed once, everybody gets its answer, and no deadlock shows: what the database
rolls back is repeated below the callers. 100 keys; SIZE=10 makes it 1000. Then the same with
leases that are over at once, so that finishes and takeovers of many keys cross each other in
transactions of both processes: that is where deadlocks come from."""
from check import check_all
from load import SIZE, Load, Server, finish, ok, remark

CALLERS = 25  # in each of the two

server = Server()
server.migrate()
load = Load()
for kind, keys in (("strict", 100 * SIZE), ("hasty", 15 * SIZE)):
    load.workers = [load.start(kind, server.url, threads=CALLERS, keys=keys, rounds=1) for _ in range(2)]
    ok(not load.end(), "%s: every caller comes to its end" % kind)
histories = check_all(load, server, ("strict", "hasty"))
strict, hasty = histories["strict"], histories["hasty"]
ok(all(len(answers) == 2 * CALLERS for answers in strict.acks.values()) and len(strict.acks) == 100 * SIZE,
   "K1 strict: every key was answered to every caller")
ok(not [n for h in (strict, hasty) for n in h.notes if "deadlock" in n[-1]], "F25: no deadlock reaches a caller",
   "\n".join(n[-1] for n in strict.notes + hasty.notes if "deadlock" in n[-1]))
ok(not [t for t in strict.troubles() if "BUSY" not in t], "K10 strict: without a fault no call fails",
   strict.troubles())
ok(any(len(e) > 1 for e in hasty.effects.values()), "H19 hasty: there were takeovers")
remark("%d deadlocks in the server's log" % server.cluster.said().count("deadlock detected"))
finish()
