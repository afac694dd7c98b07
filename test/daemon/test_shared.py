#!/usr/bin/env python3
"""Daemons on one PostgreSQL database: quotas of what all of them made, a server whose clock is set, and a daemon whose
own clock is wrong.

usage: test_shared.py WITH_POSTGRES SHIFT_CLOCK    (which runs this again, beside a server with a clock that can be set)"""
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib import daemon, http, wireclient as w
from lib.daemon import ONCE
from lib.tap import finish, ok
from lib.wait import wait_for


def outer():
    with tempfile.NamedTemporaryFile(prefix="once-clock-") as clock:
        set_ahead(clock.name, 0)
        os.chmod(clock.name, 0o644)  # the server may be another user
        environment = dict(os.environ, LD_PRELOAD=os.path.abspath(sys.argv[2]), SHIFT_CLOCK=clock.name)
        command = [sys.argv[1], sys.executable, os.path.abspath(__file__)]
        sys.exit(subprocess.run(command, env=environment).returncode)


def set_ahead(clock, seconds):
    with open(clock, "r+b") as file:
        file.write(struct.pack("l", seconds))


def sql(text):
    psql = os.path.join(os.environ["ONCE_TEST_POSTGRES_BIN"], "psql")
    subprocess.run([psql, "-XqAt", "-d", os.environ["ONCE_TEST_POSTGRES"], "-c", text], check=True)


class Daemon(daemon.Daemon):
    def __init__(self, folder, name, *options, clock=None):
        """Its clock is right, or ahead by what a file says."""
        super().__init__(folder, os.environ["ONCE_TEST_POSTGRES"], name)
        environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "SHIFT_CLOCK")}
        if clock:
            environment.update(LD_PRELOAD=os.environ["LD_PRELOAD"], SHIFT_CLOCK=clock)
        self.start("--quiet", "--http", "127.0.0.1:0", *options, env=environment)
        self.client = w.Client(self.socket)

    def walk(self):
        """Until all was counted that is there now."""
        before = self.metrics()["once_quota_scans_total"]
        wait_for(lambda: self.metrics()["once_quota_scans_total"] >= before + 2, "two walks")

    def wall(self):
        """The time that it takes it to be."""
        headers = wait_for(lambda: http.request(self.http, "/metrics"), "its metrics")[1]
        return parsedate_to_datetime(headers["Date"]).timestamp()


SHORT_MS = 200
LEASE_MS = 12 * 3600 * 1000  # the other case sets the server's clock ahead by 2 h meanwhile: none of these ends by that


def claim(key, tenant):
    return w.claim(key, tenant=tenant, lease_ms=LEASE_MS)


def is_refused(answer):
    return answer.kind == w.FAILED and answer.result == w.QUOTA


def quotas_are_of_the_store(folder):
    a, b = (Daemon(folder, name, "--quota", "records=3,in-flight=2") for name in "ab")
    grants = [a.client.ask(claim(key, tenant="ann")).grant for key in "12"]
    ok(is_refused(a.client.ask(claim("3", tenant="ann"))), "two are under way at the first daemon")
    ok(a.client.ask(w.finish(grants[0], b"x")).arm == w.DONE and a.client.ask(claim("3", tenant="ann")).arm == w.EXECUTE,
       "one is finished, a third record is made")
    b.walk()
    answer = b.client.ask(claim("4", tenant="ann"))
    ok(is_refused(answer) and "'records'" in answer.text, "the second daemon has counted them", answer.text)
    ok(b.client.ask(claim("1", tenant="ann")).arm == w.REPLAY, "and replays")
    ok(b.client.ask(claim("2", tenant="ann")).arm == w.IN_PROGRESS, "and knows what is in progress at the other")
    ok(b.client.ask(claim("4", tenant="bob")).arm == w.EXECUTE, "others are not concerned")
    ok(b.client.ask(w.finish(grants[1], b"x")).arm == w.DONE, "what the first granted is finished at the second")
    b.end()
    c = Daemon(folder, "c", "--quota", "records=3")
    ok(is_refused(c.client.ask(claim("4", tenant="ann"))), "a daemon that just started has counted, too")
    for d in (a, c):
        d.end()


def a_clock_that_is_set_is_not_deleted_by(folder):
    d = Daemon(folder, "d")
    wait_for(lambda: d.metrics()["once_reaper_rounds_total"] >= 1, "the reaper's first look")
    ok(d.metrics()["once_reaper_suspended"] == 0, "a server whose clock is right")
    set_ahead(os.environ["SHIFT_CLOCK"], 2 * 3600)
    wait_for(lambda: d.metrics()["once_reaper_suspended"] == 1, "the reaper to notice")
    n = d.metrics()
    steps = n["once_reaper_steps_total"]
    ok(n['once_reaper_suspensions_total{reason="jumped"}'] == 1 and "jumped forward by 2h" in d.log(), "its clock is set ahead: it is said", d.log(), n)
    set_ahead(os.environ["SHIFT_CLOCK"], 0)
    wait_for(lambda: d.metrics()["once_reaper_suspended"] == 0, "the reaper to go on")
    ok(d.metrics()["once_reaper_steps_total"] >= steps and "removed again" in d.log(), "it is set right: it goes on", d.log())
    d.end()


def ask_until_unknown(d, key):
    """Of one whose holder is gone: claims are told that it is in progress until its lease is over."""
    d.client.ask(w.claim(key, lease_ms=SHORT_MS))
    wait_for(lambda: d.client.ask(w.claim(key, lease_ms=SHORT_MS)).arm == w.UNKNOWN, "the lease to end")


def told(d):
    return d.log().count("once daemon: escalated")


def what_becomes_unknown_is_told_by_the_stores_clock(folder):
    clock = os.path.join(folder, "clock")
    for ahead, name in (3 * 3600, "ahead of"), (-3 * 3600, "behind"):
        with open(clock, "wb") as file:
            file.write(struct.pack("l", ahead))
        with Daemon(folder, name[:5], clock=clock) as d:
            off = d.wall() - time.time()
            ok(abs(off - ahead) < abs(ahead) / 2, "a daemon whose clock is 3 h %s the store's" % name, off)
            ask_until_unknown(d, "gone, " + name)
            wait_for(lambda: told(d) == 1, "the escalation")
            ok(True, "tells what became unknown")
        sql("UPDATE once.result SET finished_at = finished_at - 7200000 WHERE state & 15 = 4")
        with Daemon(folder, name[:5] + "-2", clock=clock) as d:
            again = d.client.ask(w.claim("gone, " + name)).arm
            ask_until_unknown(d, "gone later, " + name)
            wait_for(lambda: told(d) >= 1, "the escalation")
            ok(again == w.UNKNOWN and told(d) == 1, "and not again what was two hours ago, after a restart", d.log())


def a_clock_that_is_set_is_noticed(folder):
    """Until its next look the daemon takes what is dated by it for old."""
    with Daemon(folder, "noticed") as d:
        set_ahead(os.environ["SHIFT_CLOCK"], -3 * 3600)
        keys = iter(range(1000000))
        wait_for(lambda: ask_until_unknown(d, "set back, %d" % next(keys)) or told(d) >= 1, "the escalation")
        ok(True, "a server's clock is set back: what becomes unknown is told before long")
        set_ahead(os.environ["SHIFT_CLOCK"], 0)


def run_case(case, folder):
    try:
        case(folder)
    except Exception as e:  # the other goes on
        ok(False, case.__name__ + " came to its end", repr(e))


def main():
    if len(sys.argv) > 2:
        outer()
    subprocess.run([ONCE, "migrate", "--quiet", "--store", os.environ["ONCE_TEST_POSTGRES"]], check=True,
                   env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"})
    folder = tempfile.mkdtemp(prefix="once-shared-")
    with ThreadPoolExecutor() as pool:  # mostly they wait
        list(pool.map(lambda case: run_case(case, folder), (quotas_are_of_the_store, a_clock_that_is_set_is_not_deleted_by)))
    for case in what_becomes_unknown_is_told_by_the_stores_clock, a_clock_that_is_set_is_noticed:
        run_case(case, folder)  # by themselves: the server's clock is everybody's
    shutil.rmtree(folder)
    finish()


main()
