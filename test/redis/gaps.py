#!/usr/bin/env python3
"""What the best-effort tier does not promise is the same in three places: what `once check` says, the table of
docs/redis.md, and the cases that the conformance suite leaves out, each by an invariant of that table.

usage: ONCE_BIN=FILE ONCE_CONFORMANCE_REDIS=FILE with-redis gaps.py DOCS
"""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib.tap import equal, finish, ok


def rows(text, title):
    """The rows of the table under a heading, as lists of cells without quotes."""
    part = text.split("\n## " + title + "\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[2:]]


def main():
    url = "redis+unix:%s?tier=best-effort&db=5" % os.environ["ONCE_TEST_REDIS"]
    once = os.environ["ONCE_BIN"]
    subprocess.run([once, "run", "--store", url, "--key", "k", "--", "true"], check=True)
    said = json.loads(subprocess.run([once, "check", "--json", "--store", url], stdout=subprocess.PIPE, text=True).stdout)
    left_out = subprocess.run([os.environ["ONCE_CONFORMANCE_REDIS"], "--gaps"], stdout=subprocess.PIPE, text=True).stdout
    text = open(sys.argv[1], encoding="utf-8").read()
    promised_not = {g["invariant"]: g["text"] for g in said["not_promised"]}
    documented = {row[0]: row[1] for row in rows(text, "What it does not promise")}
    cases = [line.split("\t") for line in left_out.splitlines()]
    documented_cases = rows(text, "What the conformance suite leaves out")
    ok(said["tier"] == "best-effort" and len(promised_not) > 5, "once check tells", said)
    ok(promised_not == documented, "once check and docs/redis.md agree", sorted(set(promised_not.items()) ^ set(documented.items())))
    equal(cases, documented_cases, "the suite and docs/redis.md agree")
    ok(all(c[1] in promised_not for c in cases), "every case that is left out has its invariant", cases)
    ok(all(re.fullmatch(r"[A-Za-z0-9_]+", c[0]) for c in cases) and len(cases) > 0, "and a name", cases)
    finish()


main()
