#!/usr/bin/env python3
"""A client that nobody here wrote: Stripe's SDK for Node, pointed at the gateway, with a service
behind it that drops every second attempt, half of them before the charge was made, half after. The SDK retries by
itself, with one Idempotency-Key per call; the service honours the key that the gateway derives from
it. So there is one charge each.

The package comes from npm, into a private folder; without it this is skipped. SIZE=N: 20 N charges.
"""
import json
import os
import shutil
import subprocess
import threading
import urllib.parse

from gateway import Gateway, HERE, Location, SINGLE, SIZE, Suite, expect, expect_equal
import upstream
from lib.npm import install
from lib.tap import skip_if

COUNT = 20 * SIZE
suite = Suite()
gateway = None
charges = {}     # what the service made, by the derived key
asked = {}       # how often it was asked, by description
lock = threading.Lock()


@upstream.behaviour
def charges_dropped(c):
    """POST /v1/charges of a service that honours Once-Key, on a bad network."""
    c.read_body()
    form = dict(urllib.parse.parse_qsl(c.body.decode()))
    description, key = form["description"], c.header("once-key")
    with lock:
        asked[description] = asked.get(description, 0) + 1
        dropped = asked[description] % 2 == 1
    late = int(form["amount"]) % 2 == 1
    if dropped and not late:
        c.reset()  # nothing happened
    with lock:
        if key not in charges:
            c.token = description
            c.effect()
            charges[key] = {"id": "ch_%d" % (len(charges) + 1), "object": "charge", "amount": int(form["amount"]), "description": description}
    if dropped:
        c.reset()  # it happened, and nobody is told
    c.answer(200, ["Content-Type: application/json", "Request-Id: req_%s" % description], json.dumps(charges[key]))


upstream.BEHAVIOURS["charges"] = charges_dropped


@suite.case
def one_charge_each():
    run = subprocess.run(["node", "stripe.mjs", "127.0.0.1", str(gateway.port), str(COUNT)], cwd=gateway.path("npm"),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    expect(run.returncode == 0, "node: %s" % run.stderr[-1500:])
    *results, reused = [json.loads(line) for line in run.stdout.splitlines()]
    expect_equal(len(results), COUNT, "results")
    expect(reused.pop("message", None), "a refusal without a word: %s" % reused)
    expect_equal(reused, {"type": "StripeIdempotencyError", "status": 422, "code": "key-reused"}, "what the SDK makes of a key used twice")
    failed = [result for result in results if "error" in result]
    expect(not failed, "charges that the SDK gave up: %s" % failed[:3])
    for result in results:
        expect_equal(gateway.effects(result["description"]), 1, "charges made for %s" % result["description"])
    expect_equal(len({result["id"] for result in results}), COUNT, "different charges")
    records = gateway.records().values()
    expect_equal(set(asked.values()), {2}, "how often the service was asked for a charge")
    expect_equal({record["state"] for record in records}, {"succeeded"}, "the records' states")
    expect_equal(len(records), COUNT + 1, "records")


def main():
    global gateway
    suite.require()
    gateway = Gateway([Location("/v1/", "once required;", SINGLE, "once_takeover rerun;", "once_wait 10s;", "once_forward on;")], workers=2)
    skip_if(install(gateway.path("npm"), "stripe@17", os.path.join(HERE, "stripe.mjs")))
    gateway.start()
    suite.run(gateways=[("the gateway", gateway)])


main()
