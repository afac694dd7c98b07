#!/usr/bin/env python3
"""The standby is promoted under load while the old primary lives on (FAULT-23, FAULT-24, K4).

Workers have both servers in their URL. After the promotion those on the old primary wait in
their commits for a standby that will never come back: they may not acknowledge a thing. Newcomers
on the new primary meanwhile ask for the same keys, and for others. Then the old primary crashes,
comes back as a primary that knows commits which the new one never saw, and goes for good. In the
end all workers have found the new one: nothing acknowledged is lost or changed, nothing is
executed twice that must not be, and everything is finished. SIZE makes the load before and
after it longer."""
from check import History, check_all
from load import SIZE, Ask, Load, Server, either, finish, ok, remark, wait_for

KINDS = ("strict", "escalate", "rerun")

old, new = Server(), Server("_STANDBY")
old.migrate()
old.sql("CREATE ROLE late LOGIN IN ROLE once_app")
load = Load()
first = [load.start(kind, either(old, new)) for kind in KINDS for _ in range(2)]
load.wait_for_acks(200 * SIZE)
new.cluster.promote()
before = [w.acks() for w in first]


def too_many():
    """Each caller may have had one answer on its way to its file when the standby turned."""
    return [(w.name, w.acks(), b) for w, b in zip(first, before) if w.acks() - b > w.threads]


wait_for(lambda: len(old.waiting()) >= len(first) or too_many(), "all stores on the old primary to wait in a commit")

newcomers = [load.start(kind, new.url) for kind in KINDS] + [load.start("newer", new.url)]
for worker in newcomers:
    wait_for(lambda: worker.acks() >= 20 or worker.p.poll(), "answers to %s" % worker.name)
ok(not too_many(), "K4 FAULT-23: the old primary acknowledges nothing", too_many())
for kind in KINDS:
    lost = History(load, new, kind).lost()
    ok(not lost, "HISTORY-2 FAULT-23 %s: the new primary has all that was acknowledged" % kind, lost)
remark("%d answers before the promotion, %d by newcomers" % (sum(before), sum(w.acks() for w in newcomers)))

old.restart()  # who is looking for a primary in this moment finds the new one
late = Ask(old.url.replace("user=postgres", "user=late"))
wait_for(lambda: late.has_answered() or "late" in old.waiting("usename"), "a late store to wait behind its barrier")
ok(not late.has_answered(), "FACT-6 FAULT-24: after a crash the old primary shows nobody what only it has", late.peek())

old.stop()
for worker in first:
    least = worker.acks() + 20 * SIZE
    wait_for(lambda: worker.acks() >= least or worker.p.poll(), "%s to find the new primary" % worker.name)
ok(not load.end(), "HISTORY-9: every worker comes to its end")
histories = check_all(load, new, KINDS + ("newer",))
ends = [end for h in histories.values() for end in h.troubles()]
ok(any("UNKNOWN" in end for end in ends) or load.settled() > 0, "HISTORY-19 FAULT-19: answers were lost", ends)
finish()
