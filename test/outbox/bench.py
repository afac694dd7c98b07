#!/usr/bin/env python3
"""`once-bench relay`: that it measures, cleans up after itself, and touches nobody's messages. How fast is not a test's business."""
import json
import os
import subprocess
import time

from outboxtest import *


def bench(*arguments):
    run = subprocess.run([os.environ["ONCE_BENCH"], *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return run.returncode, run.stdout


migrated()
hook = Receiver()
code, said = bench("relay", "--store", url("test"), "--sink", hook.url(), "--messages", "300", "--seconds", "1", "--rounds", "1",
                  "--rate", "50", "--keys", "7", "--json")
lines = [json.loads(line) for line in said.splitlines()] if code == 0 else said
equal(code, 0, "it measures")
equal([line["design"] for line in lines], ["poll 100 every 500 ms", "publish and mark each", "relay"], "three designs")
ok(all(line["messages_per_s"] >= 0 and line["p99_ms"] >= line["p50_ms"] >= 0 for line in lines), "rates and latencies of each", lines)
equal(lines[1]["ratio"], 1.0, "ratios are to the second")
numbers = [int(m["payload"].split()[0]) for m in hook.got]
equal(len(set(numbers)), len(numbers), "every message arrived once")
ok(len(numbers) >= 300 + 1 + 1 + 3 * 50, "all of the relay's, of each of the others one at least; and those that latencies were measured of", len(numbers))
ok({len(m["payload"]) for m in hook.got} == {200}, "with the size that was asked for")
ok(outbox_is_empty(), "nothing is left in the outbox")
equal(psql("SELECT count(*) FROM pg_namespace WHERE nspname = 'once_bench'"), "0", "nor of the yardstick")
hook.behave = lambda payload: (time.sleep(1.1 if int(payload.split()[0]) in (1, 102) else 0), 200)[1]  # each design's first: longer than is measured
code, said = bench("relay", "--store", url("test"), "--sink", hook.url(), "--messages", "100", "--seconds", "1", "--rounds", "1",
                  "--rate", "1", "--json")
ok(code == 0 and [json.loads(line)["ratio"] for line in said.splitlines()][1] == 1.0, "of a sink that takes longer than is measured: one at least", said)
hook.behave = lambda payload: 200
psql("SELECT once.enqueue('real', 'k', 'x')")
before = len(hook.got)
code, said = bench("relay", "--store", url("test"), "--sink", hook.url())
equal((code, "take a database of its own" in said, len(hook.got)), (64, True, before), "an outbox with messages in it is left alone")
equal(bench("relay", "--store", "sqlite:/nonexistent/x.db", "--sink", hook.url())[0], 64, "only PostgreSQL")
equal(bench("relay", "--store", url("test"))[0], 64, "a sink is needed")
psql("TRUNCATE once.outbox")
hook.stop()
code, said = bench("relay", "--store", url("test"), "--sink", hook.url(),
                  "--messages", "100", "--seconds", "1", "--rounds", "1")
equal((code != 0, "not published" in said), (True, True), "a sink that is not there is said")
ok(outbox_is_empty(), "and nothing is left")
finish()
