#!/usr/bin/env python3
"""The server is stopped in the middle of everything, again and again, under load (FAULT-18, FAULT-19, FAULT-21).

Workers of three kinds go on while the server is stopped with -m immediate, which is a crash, and
started again; at every other time one worker is killed too and another takes its place. The
moments are some number of answers apart, from SEED. In the end nothing acknowledged is lost or
changed, nothing is executed twice that must not be, and everything is finished: by those who
were at it, or, where their lease was short, as unknown or by somebody else. 6 crashes; SIZE=10
makes it 60, which are about a minute."""
import random

from check import check_all
from load import SEED, SIZE, Load, Server, finish, ok, remark

KINDS = ("strict", "escalate", "rerun")

server = Server()
server.migrate()
load = Load()
dice = random.Random(SEED)
for kind in KINDS:
    for _ in range(2):
        load.start(kind, server.url)
for crash in range(6 * SIZE):
    load.wait_for_acks(dice.randint(20, 200))
    if crash % 2 == 1:  # only of those whose leases end: nobody may be cut off of the others
        victim = dice.choice([w for w in load.workers if not w.killed and not w.name.startswith("strict")])
        load.kill(victim)
        load.start(victim.name.rstrip("0123456789"), server.url)
    server.restart()
load.wait_for_acks(50)
ok(not load.end(), "HISTORY-9: every worker comes to its end")
histories = check_all(load, server, KINDS)
ends = [end for h in histories.values() for end in h.troubles()]
ok(any("UNKNOWN" in end for end in ends) or load.settled() > 0, "HISTORY-19 FAULT-19: answers were lost", ends)
remark("%d came too late (K3)" % sum(len(h.fenced) for h in histories.values()))
finish()
