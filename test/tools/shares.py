#!/usr/bin/env python3
"""Shares of the tests (tools/share.py, run-tests --share): no test is left out for ever, none runs in two shares.

usage: shares.py BUILD"""
import importlib.machinery
import importlib.util
import json
import os
import random
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
TOOLS = os.path.join(HERE, "..", "..", "tools")
sys.path[:0] = [os.path.join(HERE, ".."), TOOLS]
from lib.tap import equal, finish, ok
import share


def load(name):
    """A program of tools/ as a module."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), os.path.join(TOOLS, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def is_partition(names, sets):
    return sorted(name for one in sets for name in one) == sorted(set(names))


with open(os.path.join(sys.argv[1], "meson-info", "intro-tests.json"), encoding="utf-8") as file:
    tests = json.load(file)
names = [test["name"] for test in tests]
ok(len(names) > 100, "there are tests in this build", len(names))
for variant in share.BUILDS:
    seconds = share.read_table(variant)
    bad = [count for count in range(1, 12) if not is_partition(names, share.shares(names, seconds, count))]
    equal(bad, [], "%s: each test is in exactly one of 1 to 11 shares" % variant)

dice, bad = random.Random(1), []
for _ in range(300):
    some = ["t%d" % dice.randrange(60) for _ in range(dice.randrange(80))]
    seconds = {name: dice.expovariate(0.05) for name in dice.sample(some, len(some) // 2)}
    sets = share.shares(some, seconds, dice.randrange(1, 9))
    totals = [sum(seconds.get(name, share.SHORT) for name in one) for one in sets]
    longest = max((seconds.get(name, share.SHORT) for name in some), default=0)
    if not is_partition(some, sets) or max(totals) - min(totals) > longest + 1e-6 or sets != share.shares(reversed(some), seconds, len(sets)):
        bad.append(some)
equal(bad, [], "tests that come and go: a partition, which no order changes; no share is longer than another by more than a test")

commits = ["%040x" % dice.getrandbits(160) for _ in range(2000)]
stages = load("run-stages")
for name, count, *_ in stages.STAGES:
    drawn = [share.draw(commit, name, count) for commit in commits]
    ok(set(drawn) == set(range(1, count + 1)) and min(map(drawn.count, set(drawn))) > len(commits) / count / 2,
       "%s: commits draw each of its %d shares, about as often" % (name, count), sorted((n, drawn.count(n)) for n in set(drawn)))
pairs = {(share.draw(commit, "slow", 3), share.draw(commit, "asan", 3)) for commit in commits}
equal(len(pairs), 9, "the draws of one commit do not depend on each other")

for name, shares, *_ in stages.STAGES:
    if shares > 1:
        stage = stages.Stage(name, shares, 1, [], commits[0])
        named = {stage.command[-1]} | {command.split()[-1] for command in stage.rest()}
        equal(named, {"SHARE=%d/%d" % (n, shares) for n in range(1, shares + 1)}, "%s: its share and the rest are all of it" % name)
equal([stages.Stage(name, shares, 1, [], None).share for name, shares, *_ in stages.STAGES], [None] * len(stages.STAGES),
      "without a commit: all of each stage")

for text in "0/3", "4/3", "3", "1/x", "-1/3", "1/0", "":
    try:
        share.parse(text)
        ok(False, "the share '%s' is refused" % text)
    except ValueError as error:
        ok("N/M" in str(error), "the share '%s' is refused" % text, error)
equal(share.parse("2/5"), (2, 5), "a share")

done = subprocess.run([os.path.join(TOOLS, "run-stages"), "test", "none"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
ok(done.returncode == 1 and "unknown stage 'none'" in done.stderr, "an unknown stage is refused", done)

progress = load("run-tests").Progress
lines = ["  1/12 once:unit / key                   OK               0.05s   7 subtests passed",
         " 2/12 once:docs / docs/README.md        FAIL             1.00s   exit status 1",
         "10/12 once:fuzz / corpus csv            OK               0.01s"]
ok(all(progress.FINISHED.match(line) for line in lines), "lines of Meson about finished tests are recognized")
finish()
