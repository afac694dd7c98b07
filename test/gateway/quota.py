#!/usr/bin/env python3
"""Quotas at the gateway: who has too much is told 429 with a problem document, nothing is passed on; what is there is
answered as ever, and so are the others.
"""
import json
import urllib.request

from gateway import (BOUND_S, Client, Gateway, Location, Suite, expect, expect_equal, free_port, in_parallel, new_token, request_bytes,
                     wait_for)

TENANT = "once_tenant $http_x_tenant;"
LOCATIONS = (Location("/t/", "once on;", TENANT),
             Location("/wait/", "once on;", TENANT, "once_wait 120s;"),
             Location("/pass/", "once on;", TENANT, "once_store_down pass;"))
RECORDS, WAITERS = 4, 2

suite = Suite()
gateway = None


def ask(path, tenant, key, token, **named):
    headers = [*named.pop("headers", ()), ("X-Tenant", tenant)]
    return gateway.ask(path, key, token, headers=headers, **named)


def fill(tenant, count=RECORDS):
    """As many records as it may have: (key, token, answer) of each."""
    made = [(new_token("key"), new_token()) for _ in range(count)]
    made = [(key, token, ask("/t/normal", tenant, key, token)) for key, token in made]
    expect_equal([answer.status for _, _, answer in made], [201] * count, "what is within the quota")
    return made


def expect_refused(answer, token, kind):
    expect_equal(answer.status, 429, "the status")
    problem = answer.problem()
    expect(problem is not None, "it is no problem document: %s" % answer)
    expect_equal((problem["type"], problem["code"], problem["status"], problem["retryable"]),
                 ("urn:once:problem:quota-exceeded", "quota-exceeded", 429, True), "the problem")
    expect("'%s'" % kind in problem["detail"], "the detail does not say which: %s" % problem["detail"])
    expect(1 <= int(answer.get("Retry-After") or 0) <= 60, "Retry-After: %s" % answer.get("Retry-After"))
    expect(token is None or gateway.effects(token) == 0, "it was passed on")


def hold(path, tenant, key, token):
    """A request that the service has, and does not answer until its gate is opened."""
    client = Client(gateway.port)
    client.send(request_bytes("POST", path, [("Host", "g"), ("X-Tenant", tenant), ("Idempotency-Key", '"%s"' % key),
                                             ("X-Test", token), ("Content-Length", "2")], b"{}"))
    return client


@suite.case
def a_new_key_is_429_and_is_not_passed_on():
    tenant, key, token = new_token("tenant"), new_token("key"), new_token()
    fill(tenant)
    for path in ("/t/normal", "/wait/normal", "/pass/normal"):
        expect_refused(ask(path, tenant, key, token), token, "records")
    expect(gateway.record(key, tenant) is None, "a refused request has a record")


@suite.case
def replays_and_mismatches_are_as_ever():
    tenant = new_token("tenant")
    for key, token, first in fill(tenant):
        again = ask("/t/normal", tenant, key, token)
        expect_equal((again.lasting(), again.replayed), (first.lasting(), True), "the replay")
        expect_equal(ask("/t/normal", tenant, key, token, body=b'{"another":1}').status, 422, "another request under that key")
        expect_equal(gateway.effects(token), 1, "effects")


@suite.case
def what_was_begun_is_finished():
    """At the limit there is one under way; its retry is told 409, and its answer is kept."""
    tenant, key, token = new_token("tenant"), new_token("key"), new_token()
    fill(tenant, RECORDS - 1)
    client = hold("/t/held", tenant, key, token)
    wait_for(lambda: gateway.effects(token), "the execution")
    other = new_token()
    expect_refused(ask("/t/normal", tenant, new_token("key"), other), other, "records")
    expect_equal(ask("/t/held", tenant, key, token, body=b"{}").code(), "in-progress", "its retry")
    gateway.upstream.open_gate(token)
    first = client.read()
    client.close()
    expect_equal(first.status, 201, "its answer")
    again = ask("/t/held", tenant, key, token, body=b"{}")
    expect_equal((again.status, again.replayed, again.body), (201, True, first.body), "the replay")


@suite.case
def others_are_not_concerned():
    greedy, modest = new_token("tenant"), new_token("tenant")
    fill(greedy)
    answers = in_parallel(lambda _: ask("/t/normal", greedy, new_token("key"), new_token()).status, range(40))
    expect_equal(set(answers), {429}, "the greedy one's")
    fill(modest)


@suite.case
def without_a_key_nothing_is_counted():
    """Requests without a key are nobody's records."""
    tenant, token = new_token("tenant"), new_token()
    fill(tenant)
    expect_equal(ask("/t/normal", tenant, None, token).status, 201, "without a key")


@suite.case
def waiters_have_a_limit():
    tenant, key, token = new_token("tenant"), new_token("key"), new_token()
    holder = hold("/wait/held", tenant, key, token)
    wait_for(lambda: gateway.effects(token), "the execution")
    refusals = metric('once_quota_refusals_total{kind="waiters"}')
    waiters = [hold("/wait/held", tenant, key, token) for _ in range(WAITERS)]
    wait_for(lambda: metric("once_waiting_claims") == WAITERS, "the waiters to wait")
    expect_refused(ask("/wait/held", tenant, key, token, body=b"{}"), None, "waiters")
    gateway.upstream.open_gate(token)
    answers = [client.read() for client in (holder, *waiters)]
    expect_equal([(a.status, a.body) for a in answers[1:]], [(201, answers[0].body)] * WAITERS, "who waited")
    expect_equal(gateway.effects(token), 1, "effects")
    expect_equal(metric('once_quota_refusals_total{kind="waiters"}') - refusals, 1, "the refusal is counted")
    for client in (holder, *waiters):
        client.close()


def metric(name):
    text = urllib.request.urlopen("http://%s/metrics" % gateway.api, timeout=BOUND_S).read().decode()
    return float(text.split("\n%s " % name)[1].split("\n")[0])


@suite.case
def the_policy_names_it():
    document = json.loads(gateway.ask("/.well-known/idempotency", None, None, method="GET", body=b"").body)
    expect_equal(document["errors"].get("quota_exceeded"), 429, "in the policy document")


def main():
    global gateway
    suite.require()
    policy = Location("= /.well-known/idempotency", to=None, more=("once_policy;",))
    gateway = Gateway((*LOCATIONS, policy), workers=2)
    gateway.api = "127.0.0.1:%d" % free_port()
    gateway.daemon.arguments = ["--http", gateway.api, "--quota", "records=%d,waiters=%d" % (RECORDS, WAITERS)]
    gateway.patient = True
    gateway.start()
    suite.run(width=1, gateways=[("the gateway", gateway)])


main()
