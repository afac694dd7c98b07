#!/usr/bin/env python3
"""A finish that a daemon's client sends again, in one batch with finishes that are new: each is
told what is true of itself (K3, K10)."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sql"))
from sqltest import finish, migrated, ok, url
from steps import Step

migrated()
a, b = Step(url("test")), Step(url("test"))
for order in ("finish {j} y ; finish {k} x retryable again", "finish {k} x retryable again ; finish {j} y"):
    names = {"j": "j%d" % len(order.split("again")[0]), "k": "k%d" % len(order.split("again")[0]), "l": "l"}
    for line in ("claim {j}", "claim {k} takeover=rerun", "finish {k} x retryable"):
        a.ask(line.format(**names))
    went_on = b.ask("claim {k} takeover=rerun".format(**names))
    ok("OK execute" in went_on and "attempt=2" in went_on, "the record went on", went_on)
    said = a.ask(order.format(**names))
    ok([one.split()[1] for one in said.split(" ; ")] == ["done", "done"], "'%s': both were done" % order, said)
    fenced = a.ask("finish {k} x retryable ; finish {j} y succeeded again".format(**names))
    ok([one.split()[1] for one in fenced.split(" ; ")] == ["fenced", "done"], "what is not sent again is fenced", fenced)
a.close()
b.close()
finish()
