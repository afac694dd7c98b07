#!/usr/bin/env python3
"""`once-bench store`: it measures what it says, as ratios in one run. On a disk whose fsync takes 50 ms (SLOWSYNC, a library that is
loaded first) 64 callers share commits, 15 operations and more in each: that is what group commit means, on any machine, however
busy, so it may be asserted; what it is worth in time is for bench/store to tell, not for a test."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib.tap import finish, ok


def bench(*arguments, **env):
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run([os.environ["ONCE_BENCH"], "store", "--seconds", "1", "--rounds", "1", "--json", *arguments],
                             cwd=folder, env=dict(os.environ, **env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return run, [json.loads(line) for line in run.stdout.splitlines()], os.listdir(folder)


run, lines, left = bench("--callers", "64,256", "--grow", "20k", "--expire")
ok(run.returncode == 0 and run.stderr == "", "it ends well", run)
said = {(line["what"], line.get("callers")) for line in lines}
for what in "one commit per operation", "group commit", "replay":
    ok({(what, 64), (what, 256)} <= said, "%s, at 64 and 256 callers" % what, said)
ok(all(line["ops_per_s"] > 0 and line["p50_us"] <= line["p99_us"] <= line["max_us"] for line in lines if "ops_per_s" in line),
   "operations a second, and latencies", lines)
ok(all(line["bytes_per_record"] > 200 for line in lines if line["what"] == "size"), "bytes a record, more than its body", lines)
ok({"intake, all of it removed", "grown", "size"} <= {line["what"] for line in lines}, "expiry, growth and size", said)
ok(left == [], "its files are gone", left)

run, lines, left = bench("--callers", "64", SLOWSYNC_MS="50", LD_PRELOAD=os.environ["SLOWSYNC"])
each = [line["operations_per_commit"] for line in lines if line["what"] == "commits"]
ok(run.returncode == 0 and each and each[0] >= 15, "fsync of 50 ms: 64 callers share a commit, 15 and more", each or run)
run, lines, left = bench("--callers", "none")
ok(run.returncode == 64 and "--callers" in run.stderr and left == [], "what is no number of callers is refused", run)
finish()
