#!/usr/bin/env python3
"""tools/citations accepts a small tree without a fault, and refuses each kind of fault in it.

usage: citations.py TOOL"""
import os
import subprocess
import sys
import tempfile

GOOD = {
    "docs/design.md": "# Design\n\n## 1. Idea\n\n[faults](faults.md#faults), [idea](#1-idea), `flight.h`, `src/flight.h`\n\n"
                      "```sh\necho >made.c\n```\n\n`made.c`, `sql/NAME.sql`\n\n| K1 | one holder |\n",
    "docs/faults.md": "# Faults\n\n| FAULT-1 | killed |\n| FACT-2 | measured |\n",
    "docs/adr/0001-use-c.md": "# 1. Use C\n",
    "src/flight.h": "/*\n * flight.h - messages in flight (ADR 1, K1, FAULT-1, FACT-2, docs/design.md section 1).\n *\n"
                    " * Invariants: FLIGHT-1 a message ends once.\n *             FLIGHT-2 and is reported: SHA-256 (FLIGHT-1).\n */\n",
    "sql/relay.sql": "-- Relay.\n--     RELAY-1 confirmed first (docs/adr/0001-use-c.md).\n",
    "test/data.py": '"""An order is called ORDER-1 here."""\n',
}
FAULTS = [  # where, what is added there, what is said of it
    ("src/flight.h", "/* ADR 2 */", "ADR 2: no docs/adr/0002-*"),
    ("src/flight.h", "/* FAULT-9 */", "FAULT-9 is not defined"),
    ("src/flight.h", "/* FACT-9 */", "FACT-9 is not defined"),
    ("test/data.py", "# FLIGHT-3", "FLIGHT-3 is not defined"),
    ("src/flight.h", "/* LANE-1 */", "LANE-1 is not defined"),
    ("src/flight.h", "/* K2 */", "K2 is not an invariant of docs/design.md"),
    ("src/flight.h", "/* docs/design.md section 2 */", "docs/design.md has no section 2"),
    ("src/flight.h", " *             FLIGHT-2 again", "FLIGHT-2 is defined twice, also in src/flight.h:5"),
    ("sql/relay.sql", "--     FLIGHT-1 here, too", "FLIGHT-1 is defined twice"),
    ("docs/faults.md", "| FAULT-1 | again |", "FAULT-1 is defined twice"),
    ("docs/adr/0001-use-rust.md", "# 1. Use Rust", "ADR 1 is defined twice"),
    ("src/flight.h", "/* docs/nothing.md */", "docs/nothing.md does not exist"),
    ("docs/design.md", "[x](nothing.md)", "nothing.md does not exist"),
    ("docs/design.md", "[x](faults.md#nothing)", "faults.md#nothing: no such heading"),
    ("docs/design.md", "`src/nothing.c`", "src/nothing.c does not exist"),
    ("docs/design.md", "`nothing.c`", "nothing.c does not exist"),
]


def run(folder, files):
    for path, text in files.items():
        full = os.path.join(folder, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w") as f:
            f.write(text)
    subprocess.run(["git", "init", "-q", folder], check=True)
    done = subprocess.run([sys.argv[1], folder], stdout=subprocess.PIPE, text=True)
    return done.returncode, done.stdout


def said_of(files):
    with tempfile.TemporaryDirectory() as folder:
        return run(folder, files)


def main():
    print("1..%d" % (len(FAULTS) + 1))
    status, said = said_of(GOOD)
    good = status == 0 and said == ""
    print("%s 1 - a tree without a fault" % ("ok" if good else "not ok"), *said.split("\n"), sep="\n# " if said else "")
    for number, (path, added, expected) in enumerate(FAULTS, 2):
        files = dict(GOOD, **{path: GOOD.get(path, "") + added + "\n"})
        status, said = said_of(files)
        refused = status == 1 and len(said.splitlines()) == 1 and expected in said
        print("%s %d - %s" % ("ok" if refused else "not ok", number, expected))
        if not refused:
            print("# exit %d, said %r" % (status, said))
        good = good and refused
    sys.exit(0 if good else 1)


main()
