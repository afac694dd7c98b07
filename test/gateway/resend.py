#!/usr/bin/env python3
"""The completer makes the same of everything an upstream may do as the gateway does (FAULT-45): each behaviour of upstream.py is asked
for through nginx, and as a stored request that was abandoned before it was sent; the records must be alike."""
import json
import os
import struct
import subprocess

from gateway import Closed, Gateway, Location, ONCE, SINGLE, SIZE, Suite, expect, expect_equal, in_parallel, new_token, wait_for
from leases import LEASE, state_of
import upstream
from lib import wireclient as w

LOCATION = Location("/escalate/", "once on;", SINGLE, LEASE, "once_takeover escalate;")
IMPATIENT = Location("/escalate/", "once on;", SINGLE, LEASE, "once_takeover escalate;", more=("proxy_read_timeout 3s;",))
KEPT = ("Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition", "Content-Location", "Location", "ETag",
        "Last-Modified", "Link", "Preference-Applied")
# What waits for a gate; what only a reused connection shows; and an upstream that never answers takes its time in one place.
LEFT_OUT = ("held", "held_before", "held_unread", "held_in_headers", "held_in_body", "held_denied", "never", "hangs")
# Where libcurl and nginx differ, and either is right: what is not certain is not stored as done.
DIFFERENT = {
    "too_many_informational": ("succeeded", False, 200, False, [], "at last 1"),  # nginx has a buffer for them, libcurl reads on
    "mib_20_truncated": ("unknown",),  # nginx has passed on the beginning when it breaks off, and said that it is done
    "negative_length": ("unknown",),
    "unknown_coding": ("unknown",),
}


def final_statuses():
    bits = bytearray(75)
    for status in range(200, 500):
        if status not in (401, 403, 408, 409, 425, 429):
            bits[status // 8] |= 1 << status % 8
    return bytes(bits)


def stored(name, token, body):
    """src/core/http/resend.h"""
    headers = "Content-Type: application/json\r\nX-Test: %s\r\n" % token
    return (b"OR1\0" + struct.pack("!I", 1 << 20) + final_statuses() + w.text("app") + w.text("POST") +
            w.text("/escalate/" + name) + w.text(headers) + w.text("".join(name + "\n" for name in KEPT)) + w.text(body))


def claim(key, request):
    """With intent, and not marked: nothing was sent, so it may be, once, and is then judged as under escalate."""
    return w.call(w.CLAIM, w.text("") + w.text(key) + bytes(32) + w.terms(1, intent=1) + w.text(request) + w.text("") +
                  os.urandom(16))


def show(gateway, key):
    run = subprocess.run([ONCE, "keys", "show", key, "--json", "--full", "--store", "once:" + gateway.daemon.socket], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    return json.loads(run.stdout) if run.returncode == 0 else {"state": "absent"}


def lasting(record, token):
    if record["state"] not in ("succeeded", "failed"):
        return record["state"],
    headers = sorted(line.lower() for line in (record["headers"] or "").split("\r\n") if line)
    body = record.get("body_hex") or record["body"]
    return (record["state"], record["retryable"], record["status"], record["body_dropped"], headers,
            body.replace(token, "TOKEN").replace(token.encode().hex(), "TOKEN"))


def both(gateway, name):
    one, two = new_token("same"), new_token("same")
    try:
        gateway.ask("/escalate/" + name, one, one, headers=[("Content-Type", "application/json")], patient=True)
    except Closed:
        pass
    client = w.Client(gateway.daemon.socket)
    expect_equal(client.ask(claim(two, stored(name, two, b'{"amount":25}'))).arm, w.EXECUTE, "the claim")
    client.close()
    wait_for(lambda: state_of(gateway, one) not in (None, "running"), "the gateway's record")
    wait_for(lambda: state_of(gateway, two) in ("succeeded", "unknown") or
             state_of(gateway, two) == "failed" and not show(gateway, two).get("retryable", True),
             lambda: "the completer's record, now %s" % show(gateway, two))
    direct, tried = show(gateway, one), show(gateway, two)
    effects = gateway.effects(one), gateway.effects(two)
    if direct["state"] == "absent" or direct.get("retryable"):  # nothing happened: it is tried again, and too often
        expect_equal(tried["state"], "unknown", "%s: what may be tried again, after too many attempts" % name)
        return name, effects
    wanted = DIFFERENT.get(name, lasting(direct, one))
    got = lasting(tried, two)
    if name not in ("echo", "gzipped"):  # which show the headers they got, and the time
        expect_equal(got, wanted, "%s: the completer's record, and the gateway's" % name)
    expect_equal(effects[1], effects[0], "%s: effects" % name)
    return name, effects


def alike(names, location, timeout):
    gateway = Gateway([location], workers=1)
    gateway.daemon.arguments = ["--complete", "app=http://127.0.0.1:%d" % gateway.upstream.port, "--complete-attempts", "2",
                                "--complete-lease", "600s", "--complete-timeout", timeout]
    gateway.start()
    try:
        problems = [p for p in in_parallel(lambda name: attempt(gateway, name), names, width=16) if p]
        print("# %d behaviours" % len(names))
        expect(not problems, "\n".join(problems))
    finally:
        gateway.stop()
        gateway.remove()


def attempt(gateway, name):
    try:
        both(gateway, name)
        return None
    except Exception as problem:  # all of them, together
        return "%s: %s" % (name, problem)


def main():
    suite = Suite()
    suite.require()
    names = sorted(name for name in upstream.BEHAVIOURS if name not in LEFT_OUT and not name.startswith("status_"))
    names += ["status_200", "status_402", "status_429", "status_503"]
    if SIZE == 1:  # what takes its time
        names = [name for name in names if not name.startswith(("silence", "slow", "mib_20", "status_429"))]
    silent = [name for name in names if name.startswith("silence")]
    suite.add("the completer makes the same of an upstream as the gateway", alike, [n for n in names if n not in silent], LOCATION, "300s")
    if silent:  # of whom nobody waits for an answer
        suite.add("also of one that says nothing", alike, silent, IMPATIENT, "3s")
    suite.run()


main()
