#!/usr/bin/env python3
"""tools/protocol_numbers.py: SQL and Lua have no number of the protocol typed by hand, and each kind of one is found.
usage: numbers.py SOURCE_ROOT"""
import os
import subprocess
import sys
import tempfile

from sqltest import equal, finish, ok

TOOL = os.path.join(sys.argv[1], "tools/protocol_numbers.py")
FOUND = [
    "SELECT * FROM once.result r WHERE r.state & 15 = ONCE_STATE_UNKNOWN",
    "SELECT c.takeover >> 9 FROM once.claim c",
    "SELECT * FROM once.stored s WHERE s.state = 4",
    "SELECT * FROM once.stored s WHERE s.state IN (2, 3)",
    "SELECT CASE s.takeover WHEN 2 THEN 'rerun' END FROM once.stored s",
    "SELECT coalesce(a.takeover, 1) FROM a",
    "SELECT once.close_claim(s, 6, 0, NULL, NULL)",
    "SELECT length(body) > 16777216",
    "SELECT c.claimed_at + coalesce(c.lease_ms, 60000) FROM once.claim c",
    "SELECT point ~ '^[!-~]{1,64}$'",
    "SELECT pg_advisory_xact_lock(8031153)",
]
FOUND_LUA = ["if r.state == 3 then return end", "r.flags = bit.bor(r.flags, 16)", "if v.verdict ~= 2 then return end"]
NOT_FOUND = [
    "SELECT * FROM once.result r WHERE r.state & PG_STATE_MASK = ONCE_STATE_UNKNOWN AND r.state & PG_RETRYABLE <> 0",
    "SELECT 'state = 4' -- state = 4",
]


def run(*args):
    said = subprocess.run([sys.executable, TOOL, *args], capture_output=True, text=True, check=False)
    return said.returncode, said.stdout, said.stderr


def write(folder, name, line):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        f.write("-- A comment.\n" + line + "\n")


def main():
    equal(run("check", os.path.join(sys.argv[1], "sql")), (0, "", ""), "no number of the protocol is typed by hand in sql/")
    for ending, lines in (("sql", FOUND), ("lua", FOUND_LUA)):
        for line in lines:
            with tempfile.TemporaryDirectory() as folder:
                write(folder, "one." + ending, line)
                status, said, _ = run("check", folder)
                ok(status == 1 and "one.%s:2: " % ending in said, "is found: " + line, said)
    for line in NOT_FOUND:
        with tempfile.TemporaryDirectory() as folder:
            write(folder, "one.sql", line)
            equal(run("check", folder), (0, "", ""), "is not found: " + line)
    with tempfile.TemporaryDirectory() as folder:
        write(folder, "one.sql", "SELECT ONCE_STATE_FAILED, 'ONCE_STATE_FAILED' -- ONCE_STATE_FAILED")
        equal(run("expand", os.path.join(folder, "one.sql"))[1], "-- A comment.\nSELECT 3, '3' -- ONCE_STATE_FAILED\n",
              "a name becomes its value, but not in a comment")
        write(folder, "two.sql", "SELECT ONCE_STATE_SOMETHING")
        status, _, said = run("expand", os.path.join(folder, "two.sql"))
        ok(status == 1 and "two.sql:2: ONCE_STATE_SOMETHING is not defined" in said, "an unknown name is refused", said)
    finish()


main()
