#!/usr/bin/env python3
"""Shares of a set of tests, for a run that has no time for all of them.

Every test is in exactly one of the COUNT shares. A commit's id picks the share, so that a run can be repeated and
the landings together run everything. How long tests take balances the shares: test/durations.txt, which
`make durations` writes by running this file. A test that is not in the table counts as a short one.
"""
import hashlib
import json
import os

ROOT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..")
TABLE = os.path.join(ROOT, "test", "durations.txt")
BUILDS = {"plain": "build", "asan": "build-asan", "tsan": "build-tsan"}
SHORT = 2  # seconds of a test that is not in the table


def read_table(variant, path=TABLE):
    """{name: seconds} of a variant of the build: plain, asan or tsan."""
    found = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                if not line.startswith("#"):
                    of, seconds, name = line.rstrip("\n").split(" ", 2)
                    if of == variant:
                        found[name] = float(seconds)
    return found


def shares(names, seconds, count):
    """The names in `count` disjoint sets of about equal durations: the longest test first, each into the set that is shortest so far."""
    sets, totals = [set() for _ in range(count)], [0.0] * count
    for name in sorted(set(names), key=lambda name: (-seconds.get(name, SHORT), name)):
        shortest = totals.index(min(totals))
        sets[shortest].add(name)
        totals[shortest] += seconds.get(name, SHORT)
    return sets


def parse(text):
    """'2/5' as (2, 5)."""
    number, slash, count = text.partition("/")
    if not (slash and number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise ValueError("a share is N/M with 1 <= N <= M, such as 2/5, not '%s'" % text)
    return int(number), int(count)


def draw(commit, what, count):
    """A number from 1 to `count` by a commit's id; `what` makes the draws of one commit independent of each other."""
    return int(hashlib.sha256(("%s %s" % (commit, what)).encode()).hexdigest(), 16) % count + 1


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def renew(variant, build):
    """The table's part for a variant, with the durations that tools/run-tests wrote into its build folder, without tests that no longer exist."""
    seconds, measured = read_table(variant), os.path.join(build, "durations.json")
    if os.path.exists(measured):
        seconds.update(read_json(measured))
        there = {test["name"] for test in read_json(os.path.join(build, "meson-info", "intro-tests.json"))}
        seconds = {name: took for name, took in seconds.items() if name in there}
    return ["%s %.0f %s\n" % (variant, took, name) for name, took in sorted(seconds.items()) if took > SHORT]


def main():
    lines = [line for variant, build in BUILDS.items() for line in renew(variant, os.path.join(ROOT, build))]
    with open(TABLE, "w", encoding="utf-8") as file:
        file.write("# build, seconds, test: written by `make durations`, read by tools/share.py\n")
        file.writelines(lines)


if __name__ == "__main__":
    main()
