#!/usr/bin/env python3
"""Answers that are not kept as long as their records, and keys that tell their own age (ADR 29)."""
import itertools
import json
import os
import subprocess
import time

from gateway import Gateway, Location, ONCE, SINGLE, Suite, expect, expect_equal, new_token, wait_for

BOTH = ("once on;", SINGLE)
LOCATIONS = (Location("/tomb/", *BOTH, "once_retention never;", "once_body_retention 200ms;"),
             Location("/on/", *BOTH),
             Location("/short/", *BOTH, "once_retention 1h;"),
             Location("/brief/", *BOTH, "once_retention 8s;"),
             Location("/never/", *BOTH, "once_retention never;"),
             Location("/off/", *BOTH, "once_key_time off;"),
             Location("/observe/", "once observe;", SINGLE),
             Location("/natural/", *BOTH, "once_key_natural $http_x_order;"),
             Location("= /.well-known/idempotency", "once_policy;", to=None))
HOUR = 3600.0

suite = Suite()
gateway = None
counter = itertools.count(1)


def uuid7(age):
    """A UUIDv7 that was made `age` seconds ago."""
    ms = int((time.time() - age) * 1000)
    return "%08x-%04x-7abc-8def-%012x" % (ms >> 16, ms & 0xffff, next(counter))


def told(answer, status, code, outcome=None):
    expect_equal((answer.status, answer.code()), (status, code), "the answer %s" % answer)
    problem = answer.problem()
    expect_equal((problem["type"], problem["status"], problem["retryable"]), ("urn:once:problem:" + code, status, False), "the problem")
    expect_equal(answer.get("Idempotency-Outcome"), outcome, "Idempotency-Outcome")
    return problem


@suite.case
def tombstone__a_retry_is_told_that_it_was_done():
    token = new_token()
    first = gateway.ask("/tomb/normal", token, token)
    expect_equal(first.status, 201, "the status")
    gone = gateway.ask_until(lambda answer: answer.status == 410, "/tomb/normal", token, token)
    for answer in (gone, gateway.ask("/tomb/normal", token, token)):
        problem = told(answer, 410, "answer-not-kept")
        expect_equal(problem["title"], "This was executed, and its answer is no longer kept", "the title")
        expect(answer.replayed, "it does not say that it is a replay")
        expect_equal(answer.get("Idempotency-Expires"), "never", "the expiry")
    expect_equal(gateway.ask("/tomb/normal", token, token, body=b"something else").status, 422, "another request")
    expect_equal(gateway.effects(token), 1, "effects")
    record = gateway.record(token)
    expect_equal((record["state"], record["body_retention_ms"], record["retention_ms"]), ("succeeded", 200, None), "the record")


@suite.case
def key_time__an_old_key_is_not_executed_as_new():
    for path, age in (("/on/normal", 24 * HOUR + 1), ("/on/normal", 1000 * HOUR), ("/short/normal", HOUR)):
        token, key = new_token(), uuid7(age)
        for _ in range(2):
            told(gateway.ask(path, key, token), 410, "key-expired", "unknown")
        expect_equal((gateway.effects(token), gateway.state(key)), (0, "absent"), "effects and record")


@suite.case
def key_time__a_key_from_the_future_is_refused():
    token, key = new_token(), uuid7(-HOUR)
    told(gateway.ask("/on/normal", key, token), 400, "key-from-future")
    expect_equal(gateway.effects(token), 0, "effects")


@suite.case
def key_time__other_keys_are_taken():
    for what, path, key in (("fresh", "/on/normal", uuid7(0)), ("a day old, almost", "/on/normal", uuid7(23 * HOUR)),
                            ("of a clock a bit ahead", "/on/normal", uuid7(-60)), ("kept for ever", "/never/normal", uuid7(1000 * HOUR)),
                            ("switched off", "/off/normal", uuid7(1000 * HOUR)), ("observed", "/observe/normal", uuid7(1000 * HOUR)),
                            ("no UUIDv7", "/on/normal", uuid7(1000 * HOUR).replace("-7", "-4"))):
        token = new_token()
        expect_equal(gateway.ask(path, key, token).status, 201, what)
        expect_equal(gateway.effects(token), 1, what)


@suite.case
def key_time__a_record_is_replayed_to_its_end_and_never_executed_again():
    """Its retention is as long as a busy machine may take for the first request: the other cases run meanwhile."""
    while True:
        made, token, key = time.monotonic(), new_token(), uuid7(0)
        first = gateway.ask("/brief/normal", key, token)
        if first.status != 410 or time.monotonic() - made < 8:  # else it was too old when it came, and rightly refused
            break
    expect_equal(first.status, 201, "the status")
    seen = []

    def over():
        time.sleep(0.1)  # a pause, for the others
        seen.append(gateway.ask("/brief/normal", key, token))
        return seen[-1].status != 201
    wait_for(over, "the end of its retention")
    told(seen.pop(), 410, "key-expired", "unknown")
    for again in seen:
        expect(again.replayed, "no replay: %s" % again)
        expect_equal(again.lasting(), first.lasting(), "the replay")
    told(gateway.ask("/brief/normal", key, token), 410, "key-expired", "unknown")
    expect_equal(gateway.effects(token), 1, "effects")


@suite.case
def key_time__natural_keys_may_be_as_old_as_they_are():
    token, order = new_token(), uuid7(1000 * HOUR)
    expect_equal(gateway.ask("/natural/normal", None, token, headers=[("X-Order", order)]).status, 201, "the status")
    expect_equal(gateway.state(order), "succeeded", "the record of the natural key")


@suite.case
def policy__says_both():
    policy = json.loads(gateway.ask("/.well-known/idempotency", None, method="GET", body=b"").body)
    expect_equal(policy["errors"]["key_expired"], 410, "the policy's status")
    places = {place["location"]: place for place in policy["locations"]}
    expect_equal((places["/tomb/"]["body_retention_seconds"], places["/tomb/"]["retention_seconds"], places["/tomb/"]["key_time"]),
                 (0.2, None, True), "of tombstones")
    expect_equal((places["/on/"]["body_retention_seconds"], places["/off/"]["key_time"]), (86400, False), "of others")


def main():
    global gateway
    suite.require()
    database = os.environ.get("ONCE_TEST_POSTGRES")
    if database:
        subprocess.run([ONCE, "migrate", "--store", database], check=True, stdout=subprocess.DEVNULL)
    gateway = Gateway(LOCATIONS, store=database).start()
    gateway.patient = True
    suite.run(width=4, gateways=[("the gateway", gateway)])


main()
