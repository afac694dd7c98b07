#!/usr/bin/env python3
"""`once daemon --quota`, and its reaper: what is refused and what never is, what survives a restart, who is not
disturbed, and that nothing is deleted by a clock that is wrong.

Each case has a daemon, a folder and a store of its own."""
import ctypes
import json
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib import daemon, http, wireclient as w
from lib.daemon import ONCE
from lib.tap import finish, ok, run_results
from lib.wait import SECONDS, wait_for


class Daemon(daemon.Daemon):
    def begin(self, *options):
        """A client of it."""
        return self.start("--quiet", "--http", "127.0.0.1:0", *options).client()

    def again(self, *options, number=signal.SIGTERM):
        """Ended by a signal, and started as before, or with these options."""
        self.end(number)
        return self.begin(*options) if options else self.start().client()


def claim(key, tenant="ann", retention_ms=0, lease_ms=60000, wait_ms=0, number=1, seed=0):
    return w.call(w.CLAIM, w.text(tenant) + w.text(key) + bytes([seed]) * 32 +
                  w.terms(lease_ms, retention_ms=retention_ms, wait_ms=wait_ms, takeover=w.ESCALATE) + w.text("") + w.text("") +
                  os.urandom(16),
                  number=number)


def is_refused(answer, kind):
    return answer is not None and answer.kind == w.FAILED and answer.result == w.QUOTA and "'%s'" % kind in answer.text


def done(c, key, **named):
    grant = c.ask(claim(key, **named)).grant
    return c.ask(w.finish(grant, b"body")).arm == w.DONE


# ------------------------------------------------------------------ what is refused

def records__new_ones_are_refused_and_what_is_there_is_not(d):
    c = d.begin("--quota", "records=3")
    a = c.ask(claim("a")).grant
    ok(done(c, "b") and done(c, "c"), "three")
    answer = c.ask(claim("d"))
    ok(is_refused(answer, "records") and "may have 3;" in answer.text, "the fourth is refused", answer.text)
    ok(c.ask(claim("b")).arm == w.REPLAY, "a replay is not")
    ok(c.ask(claim("a")).arm == w.IN_PROGRESS, "nor what is in progress")
    ok(c.ask(claim("b", seed=1)).arm == w.MISMATCH, "nor a mismatch")
    ok(c.ask(w.call(w.EXTEND, struct.pack("!q", 60000), *a)).arm == w.DONE, "a renewal")
    ok(c.ask(w.finish(a, b"x")).arm == w.DONE, "a finish")
    ok(c.ask(claim("d", tenant="bob")).arm == w.EXECUTE, "another tenant")
    ok(is_refused(c.ask(claim("d")), "records"), "and it is still refused")


def records__are_counted_again_after_a_restart(d):
    c = d.begin("--quota", "records=3")
    grants = [c.ask(claim(key)).grant for key in "abc"]
    c = d.again(number=signal.SIGKILL)
    ok(is_refused(c.ask(claim("d")), "records"), "after kill -9")
    ok(c.ask(w.finish(grants[0], b"x")).arm == w.DONE and c.ask(claim("a")).arm == w.REPLAY, "what was begun is finished")
    ok(c.ask(w.call(w.RELEASE, b"", *grants[1])).arm == w.DONE, "one is given back")
    ok(wait_for(lambda: c.ask(claim("d")).arm == w.EXECUTE, "room"), "which is noticed")
    ok(is_refused(c.ask(claim("e")), "records"), "and no more than that")
    c = d.again("--quota", "records=5")
    ok(c.ask(claim("e")).arm == w.EXECUTE and c.ask(claim("f")).arm == w.EXECUTE and is_refused(c.ask(claim("g")), "records"),
       "another limit is that of all there is")


def records__past_their_retention_make_room(d):
    c = d.begin("--quota", "records=2")
    done(c, "a", retention_ms=1)
    done(c, "b")
    ok(is_refused(c.ask(claim("c")), "records") or c.ask(claim("c")).arm == w.IN_PROGRESS, "full, or counted again already")
    ok(wait_for(lambda: c.ask(claim("c")).arm in (w.EXECUTE, w.IN_PROGRESS), "room"), "what is expired makes room")
    ok(is_refused(c.ask(claim("d")), "records"), "for one")


def bytes__are_those_of_what_is_kept(d):
    c = d.begin("--quota", "bytes=4K")
    a, b = c.ask(claim("a")).grant, c.ask(claim("b")).grant
    ok(c.ask(w.finish(a, os.urandom(5000))).arm == w.DONE, "an answer of 5000 bytes")
    ok(is_refused(c.ask(claim("c")), "bytes"), "then nothing new")
    ok(c.ask(w.finish(b, os.urandom(5000))).arm == w.DONE, "what was begun may bring as much as it likes")
    c = d.again()
    ok(is_refused(c.ask(claim("c")), "bytes"), "the same after a restart")
    ok(len(c.ask(claim("b")).body()) == 5000, "and it is replayed")


def in_flight__is_until_the_finish_or_the_end_of_the_lease(d):
    c = d.begin("--quota", "in-flight=2")
    a = c.ask(claim("a")).grant
    c.ask(claim("b", lease_ms=1))
    ok(wait_for(lambda: c.ask(claim("c")).arm in (w.EXECUTE, w.IN_PROGRESS), "the lease to end"), "a lease that is over does not count")
    ok(is_refused(c.ask(claim("d")), "in-flight"), "two are under way")
    c.ask(w.finish(a, b"x"))
    ok(c.ask(claim("d")).arm == w.EXECUTE, "one is finished, the next begins")
    ok(c.ask(claim("a")).arm == w.REPLAY, "replays need no place")


def waiters__have_a_limit(d):
    c = d.begin("--quota", "waiters=1")
    grant = c.ask(claim("a")).grant
    first, second = d.client(), d.client()
    first.send(claim("a", wait_ms=60000))
    wait_for(lambda: d.metrics()["once_waiting_claims"] == 1, "the first to wait")
    ok(is_refused(second.ask(claim("a", wait_ms=60000)), "waiters"), "the second is refused")
    ok(second.ask(claim("a")).arm == w.IN_PROGRESS, "who does not want to wait is told in progress")
    ok(second.ask(claim("a", tenant="bob")).arm == w.EXECUTE, "another tenant is not concerned")
    c.ask(w.finish(grant, b"x"))
    ok(first.get().arm == w.REPLAY, "the first gets the answer")


def tenants__may_have_limits_of_their_own(d):
    c = d.begin("--quota", "records=1", "--quota-tenant", "urn:bob:records=2", "--quota-tenant", "eve:records=none")
    ok(c.ask(claim("a")).arm == w.EXECUTE and is_refused(c.ask(claim("b")), "records"), "as all")
    ok([c.ask(claim(k, tenant="urn:bob")).arm for k in "ab"] == [w.EXECUTE] * 2 and
       is_refused(c.ask(claim("c", tenant="urn:bob")), "records"), "one has more")
    ok([c.ask(claim(k, tenant="eve")).arm for k in "abcdef"] == [w.EXECUTE] * 6, "one has no limit")


def http__is_429_with_a_problem(d):
    d.begin("--quota", "records=1")
    def post(key):
        return http.request(d.http, "/v1/claim", json.dumps({"key": key, "tenant": "ann"}), {"Content-Type": "application/json"})
    ok(post("a")[0] == 200, "the first")
    status, headers, body = post("b")
    body = json.loads(body)
    ok(status == 429 and headers["Content-Type"].startswith("application/problem+json") and int(headers["Retry-After"]) > 0,
       "the second is 429", status, headers)
    ok(body["type"] == "urn:once:problem:quota-exceeded" and body["code"] == "quota-exceeded" and body["retryable"] is True and
       "records" in body["detail"], "says why", body)
    numbers = d.metrics()
    ok(numbers['once_quota_refusals_total{kind="records"}'] == 1 and numbers['once_quota_refusals_total{kind="bytes"}'] == 0 and
       numbers["once_quota_tenants"] == 1 and numbers["once_quota_in_flight"] == 1 and numbers["once_errors_total"] == 0,
       "and it is counted", {k: v for k, v in numbers.items() if "quota" in k})


def run__ends_with_75_and_says_why(d):
    d.begin("--quota", "records=1")
    run = lambda key: subprocess.run([ONCE, "run", "--store", "once:" + d.socket, "--key", key, "--", "echo", "ran"],
                                     capture_output=True, text=True, timeout=SECONDS)
    ok(run("a").stdout == "ran\n", "the first runs")
    second = run("b")
    ok(second.returncode == 75 and second.stdout == "" and "the quota 'records' is reached" in second.stderr,
       "the second does not", second.returncode, second.stdout, second.stderr)
    ok(run("a").stdout == "ran\n" and run("a").returncode == 0, "the first is replayed")


# ------------------------------------------------------------------ the others

def others__are_not_disturbed_by_a_greedy_one(d):
    """It claims without end, thousands at a time; somebody else works as always."""
    c = d.begin("--quota", "records=100,in-flight=50")
    stop, counts = threading.Event(), {"execute": 0, "refused": 0, "else": 0}

    def be_greedy():
        greedy, number = d.client(), 0
        while not stop.is_set():
            greedy.send(b"".join(claim("g%d" % (number + i), tenant="greedy") for i in range(500)))
            number += 500
            for _ in range(500):
                answer = greedy.get()
                if answer.arm == w.EXECUTE:
                    counts["execute"] += 1
                    greedy.send(w.finish(answer.grant, b"x", number=7))
                elif answer.kind == w.FAILED and answer.result == w.QUOTA:
                    counts["refused"] += 1
                elif answer.arm == w.DONE:
                    greedy.get()
                else:
                    counts["else"] += 1

    thread = threading.Thread(target=be_greedy)
    thread.start()
    try:
        wait_for(lambda: counts["refused"] > 1000, "the greedy one to be over its quota")
        arms = []
        for i in range(100):
            answer = c.ask(claim("m%d" % i, tenant="modest"))
            arms.append(answer.arm)
            if answer.arm == w.EXECUTE:
                arms.append(c.ask(w.finish(answer.grant, b"x")).arm)
    finally:
        stop.set()
        thread.join()
    ok(arms == [w.EXECUTE, w.DONE] * 100, "whoever is within it is served", arms[-3:])
    ok(counts["execute"] <= 100 and counts["else"] == 0, "the other has what it may have", counts)
    ok(is_refused(c.ask(claim("m100", tenant="modest")), "records"), "and no more than that, whoever it is")


def others__who_are_invented_cost_little(d):
    """A claim that is refused, and a record that goes, leave nothing behind in the table."""
    c = d.begin("--quota", "records=0,in-flight=10")
    for i in range(500):
        c.send(claim("k", tenant="t%d" % i, number=i))
    ok(all(is_refused(c.get(), "records") for _ in range(500)), "500 tenants are refused")
    ok(d.metrics()["once_quota_tenants"] == 0, "and not remembered")


# ------------------------------------------------------------------ the reaper

def rows(c):
    return struct.unpack_from("!9Q", c.ask(w.frame(w.STATS, struct.pack("!Q", 0))).payload)[8]


def set_ahead(d, ms):
    """The store's clock, as if this machine had come up with a clock in the future and was corrected since."""
    xxh64 = ctypes.CDLL("libxxhash.so.0").XXH64
    xxh64.restype, xxh64.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
    with sqlite3.connect(d.folder + "/once.db") as db:
        seq, boot, wall, steady, was = db.execute("SELECT seq, boot_id, wall_ms, steady_ms, sum FROM once_boot").fetchone()
        total = lambda wall_ms: ctypes.c_int64(xxh64(struct.pack("<qqq", seq, wall_ms, steady) + boot, 40, 0)).value
        assert total(wall) == was, "this is not how the anchor is summed up"
        db.execute("UPDATE once_boot SET wall_ms = ?, sum = ?", (wall + ms, total(wall + ms)))


def reaper__does_not_delete_by_a_clock_that_is_ahead(d):
    c = d.begin()
    done(c, "kept", retention_ms=3600000)
    c.ask(claim("running", retention_ms=1))
    d.end()
    set_ahead(d, 2 * 3600 * 1000)
    c = d.begin()
    ok(c.ask(claim("kept")).arm == w.EXECUTE, "by that clock its retention is over (K8)")
    held = wait_for(lambda: d.metrics()["once_reaper_suspended"], "the reaper to look")
    numbers = d.metrics()
    ok(held == 1 and numbers['once_reaper_suspensions_total{reason="ahead"}'] == 1 and numbers["once_expired_total"] == 0 and rows(c) == 3,
       "but nothing is deleted", numbers, rows(c))
    ok("is ahead of this machine's by 2h" in d.log() and d.log().count("ahead of") == 1, "it is said, once", d.log())
    expire = subprocess.run([ONCE, "expire", "--store", "once:" + d.socket], capture_output=True, text=True, timeout=SECONDS)
    ok(expire.returncode == 0 and expire.stdout.startswith("1 removed"), "an operator who looked goes on", expire.stdout, expire.stderr)
    wait_for(lambda: d.metrics()["once_reaper_suspended"] == 0, "the reaper to go on")
    done(c, "short", retention_ms=1)
    wait_for(lambda: d.metrics()["once_expired_total"] == 1, "the reaper")
    ok(rows(c) == 2 and "removed again" in d.log(), "and so does the reaper; what is running it leaves alone (K7)", rows(c), d.log())


def reaper__counts_what_it_does(d):
    c = d.begin()
    for i in range(2500):
        c.send(claim("k%d" % i, retention_ms=1, number=i))
    for answer in [c.get() for _ in range(2500)]:
        c.send(w.finish(answer.grant, b"x"))
    arms = {c.get().arm for _ in range(2500)}
    ok(arms == {w.DONE}, "2500 records")
    wait_for(lambda: d.metrics()["once_expired_total"] == 2500, "expiry")
    n = wait_for(lambda: (lambda n: n["once_reaper_rounds_total"] >= 1 and n)(d.metrics()), "the turn's end")
    ok(n["once_reaper_steps_total"] >= 3 and n["once_reaper_suspended"] == 0 and n["once_reaper_paused"] == 0 and
       n["once_reaper_round_seconds"] <= n["once_reaper_seconds_total"] and n["once_expiry_lag_seconds"] < SECONDS,
       "in bounded steps", {k: v for k, v in n.items() if "reaper" in k or "expir" in k})


def usage__mistakes_are_told(d):
    rows_ = [(["--quota", "records"], "is not a limit"), (["--quota", "recs=1"], "is not records"),
             (["--quota-tenant", "records=1"], "is not TENANT"), (["--quota-tenant", "a:records=x"], "is not a size"),
             (["--quota-tenant", "a:records=1", "--quota-tenant", "a:bytes=1"], "given twice")]
    for options, said in rows_:
        p = subprocess.run([ONCE, "daemon", "--http", "off", "--store", d.store, *options], capture_output=True,
                           text=True, timeout=SECONDS)
        ok(p.returncode == 64 and said in p.stderr and options[0] in p.stderr, " ".join(options), p.returncode, p.stderr)


CASES = [f for name, f in sorted(globals().items()) if "__" in name and callable(f) and not name.startswith("_")]


def run_case(case):
    folder = tempfile.mkdtemp(prefix="once-quota-")
    d = Daemon(folder)
    try:
        case(d)
    finally:
        d.end()
        if "Sanitizer" in d.log():
            ok(False, "no sanitizer had anything to say", d.log())
        shutil.rmtree(folder)


# Most of the time they wait for a clock, so they wait together.
run_results([(case.__name__, lambda case=case: run_case(case)) for case in CASES], sys.argv[1:], width=6)
finish()
