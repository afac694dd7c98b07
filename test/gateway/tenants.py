#!/usr/bin/env python3
"""K9: nothing that a tenant sees depends on another's records. The same requests are sent with a key
that another tenant used, finished, has in flight, or left unknown, and with one that nobody used:
status, headers and body must be equal, but for what is the request's own.
"""
import json
import os
import re
import subprocess

from gateway import (BOUND_S, Client, Closed, Gateway, Location, Suite, expect, expect_equal, new_token, request_bytes, wait_for)
from abandoned import hold
from leases import end_leases

TENANT = "once_tenant $http_x_tenant;"
LOCATIONS = (Location("/t/", "once on;", TENANT),
             Location("/required/", "once required;", TENANT),
             Location("/rerun/", "once on;", TENANT, "once_takeover rerun;"),
             Location("/wait/", "once on;", TENANT, "once_wait 120s;"),
             Location("/two/", "once on;", 'once_tenant "$http_x_tenant/$http_x_user";'),
             Location("/two/empty/", "once on;", "once_tenant $http_x_tenant$http_x_user;"),
             Location("/crumbs/", "once on;", "once_tenant -;", "once_fingerprint header=Cookie;"),
             Location("/other/", "once on;", "once_tenant -;",
                      more=("location /other/rerun/ { once_takeover rerun; once_lease 600s; keepalive_timeout 1h; proxy_pass http://app; }",)),
             Location("/known/", "once on;", "once_tenant -;", "once_fingerprint credentials;",
                      more=("location /known/rerun/ { once_takeover rerun; once_lease 600s; keepalive_timeout 1h; proxy_pass http://app; }",
                            "location /known/in/ { once_fingerprint json exclude=/at; proxy_pass http://app; }",
                            "location /known/off/ { once_fingerprint json exclude=/at credentials=none; proxy_pass http://app; }")),
             Location("/own/", "once on;", "once_tenant -;", "once_fingerprint json credential=X-Shop-Key exclude=/at;", "once_complete nobody;"))

suite = Suite()
gateway = None


def ask(path, tenant, key, token, **named):
    headers = list(named.pop("headers", ()))
    if tenant is not None:
        headers.append(("X-Tenant", tenant))
    return gateway.ask(path, key, token, headers=headers, **named)


def curl(path, version, *arguments):
    """Status, body, whether it is a replay."""
    run = subprocess.run(["curl", "-sS", "-i", "--max-time", str(BOUND_S), version, "http://127.0.0.1:%d%s" % (gateway.port2 if "2" in version else gateway.port, path), *arguments],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    expect_equal((run.returncode, run.stderr), (0, b""), "curl's exit status")
    answer = run.stdout
    while answer.split(b" ", 2)[1] == b"100":
        answer = answer.split(b"\r\n\r\n", 1)[1]
    head, body = answer.split(b"\r\n\r\n", 1)
    return int(head.split(b" ")[1]), body, b"idempotency-replayed: true" in head.lower()


# What differs between two requests anyway: times, and the words that we put in ourselves.
def neutral(answer, *words):
    head = answer.head.decode("latin-1")
    head = re.sub(r"(?im)^(date|idempotency-expires|expires|retry-after): .*$", r"\1: *", head)
    body = answer.body.decode("latin-1")
    for word in words:
        head, body = head.replace(word, "*"), body.replace(word, "*")
    return head, re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "*", body)


def same_as_never_used(prepare, path):
    """`prepare` does something as ann with a key; then bob asks with it, and with another one."""
    used, fresh = new_token("key"), new_token("key")
    after = prepare(used)
    expect(gateway.record(used, "ann") is not None, "ann has no record")
    tokens = new_token("tok"), new_token("tok")
    answers = [ask(path, "bob", key, token) for key, token in zip((used, fresh), tokens)]
    seen = [neutral(answer, used, fresh, *tokens) for answer in answers]
    expect_equal(seen[0], seen[1], "what bob sees of ann's key, and of a key that nobody used")
    expect_equal([gateway.effects(token) for token in tokens][0], gateway.effects(tokens[1]), "effects")
    retries = [ask(path, "bob", key, token) for key, token in zip((used, fresh), tokens)]
    expect_equal(*(neutral(retry, used, fresh, *tokens) for retry in retries), "what bob's retries see")
    if after:
        after()


def finished(path, body=b'{"secret":"of ann"}'):
    def prepare(key):
        ask(path, "ann", key, new_token(), body=body)
    return prepare


def in_flight(key):
    token = new_token()
    client = Client(gateway.port)
    client.send(request_bytes("POST", "/t/held", [("Host", "g"), ("X-Tenant", "ann"), ("Idempotency-Key", '"%s"' % key),
                                                  ("X-Test", token), ("Content-Length", "2")], b"{}"))
    wait_for(lambda: gateway.effects(token), "ann's execution")

    def after():
        gateway.upstream.open_gate(token)
        answer = client.read()
        client.close()
        expect_equal(answer.status, 201, "ann's own answer")
        expect_equal(gateway.state(key, "ann"), "succeeded", "ann's record")
    return after


STATES = {
    "finished": finished("/t/normal"),
    "finished, the same request": finished("/t/normal", b'{"amount":25}'),
    "failed": finished("/t/status_404"),
    "refused": finished("/t/status_429"),
    "unknown": finished("/t/status_500"),
    "not kept": finished("/t/mib_and_1"),
    "in flight": in_flight,
}
REQUESTS = {
    "an execution": "/t/normal",
    "an execution that waits": "/wait/normal",
    "an error": "/t/status_404",
    "a broken upstream": "/t/reset_after_reading",
    "a broken upstream, rerun": "/rerun/reset_after_reading",
}


@suite.case
def answers_are_the_own_ones():
    """Two tenants with one key: two executions, each replayed to its own."""
    key, tokens = new_token("key"), (new_token(), new_token())
    for _ in range(2):
        ann, bob = (ask("/t/normal", tenant, key, token) for tenant, token in zip(("ann", "bob"), tokens))
        expect(tokens[0] in str(ann.body) and tokens[1] in str(bob.body), "an answer went to the other tenant: %s %s" % (ann, bob))
    expect(ann.replayed and bob.replayed, "the second ones are no replays")
    expect_equal([gateway.effects(token) for token in tokens], [1, 1], "effects")


@suite.case
def an_empty_tenant_is_refused():
    """Never a shared bucket: 401, nothing is forwarded, nothing stored."""
    tokens = []
    for path in ("/t/normal", "/required/normal", "/rerun/normal", "/wait/normal"):
        for tenant in (None, "", "  "):
            token = new_token()
            tokens.append(token)
            answer = ask(path, tenant, token, token)
            expect_equal(answer.status, 401, "the status with tenant %r" % tenant)
            expect(answer.problem() is not None, "the answer is no problem document")
            expect_equal(gateway.effects(token), 0, "effects")
    expect(not {key for _, key in gateway.records()} & set(tokens), "a record was made")


@suite.case
def an_empty_tenant_does_not_wait():
    """Where a retry would wait for the outcome, who is nobody is told so while it is still under way: 401, and not when it ends."""
    key, token = new_token("key"), new_token()
    client = Client(gateway.port)
    client.send(request_bytes("POST", "/wait/held", [("Host", "g"), ("X-Tenant", "ann"), ("Idempotency-Key", '"%s"' % key), ("X-Test", token),
                                                     ("Content-Length", "2")], b"{}"))
    wait_for(lambda: gateway.effects(token), "the execution")
    answers = [ask("/wait/held", tenant, key, token, body=b"{}") for tenant in (None, "", "  ")]
    expect_equal([(a.status, a.code(), a.get("Idempotency-Expires"), a.get("Retry-After")) for a in answers], [(401, "tenant-missing", None, None)] * 3, "the answers")
    for version in ("--http1.1", "--http2-prior-knowledge"):
        expect_equal(curl("/wait/held", version, "-H", 'Idempotency-Key: "%s"' % key, "-d", "{}")[0], 401, "the status by " + version)
    expect_equal(gateway.state(key, "ann"), "running", "the state meanwhile")
    gateway.upstream.open_gate(token)
    expect_equal(client.read().status, 201, "the holder's own answer")
    client.close()
    expect_equal(gateway.effects(token), 1, "effects")


@suite.case
def an_empty_tenant_is_refused_over_http_2():
    """There the body is read before the refusal is sent: small, none, larger than the buffers. Never executed, nothing stored, and the connection goes on."""
    large = gateway.path("large.body")
    with open(large, "wb") as file:
        file.write(b"x" * 300000)
    for path in ("/t/normal", "/required/normal", "/wait/normal", "/two/empty/normal"):
        for body in (("-d", "{}"), ("-X", "POST"), ("--data-binary", "@" + large)):
            key, token = new_token("key"), new_token()
            arguments = ("-H", 'Idempotency-Key: "%s"' % key, "-H", "X-Test: " + token, *body)
            status, text, replayed = curl(path, "--http2-prior-knowledge", *arguments)
            expect_equal((status, json.loads(text)["code"], replayed), (401, "tenant-missing", False), "%s with %s" % (path, body[0]))
            expect_equal(gateway.effects(token), 0, "effects")
            expect(key not in {of for _, of in gateway.records()}, "a record was made")
            status, text, replayed = curl(path, "--http2-prior-knowledge", "-H", "X-Tenant: ann", *arguments)
            expect_equal((status, replayed, gateway.effects(token)), (201, False, 1), "the answer to ann")


@suite.case
def without_a_key_no_tenant_is_needed():
    token = new_token()
    expect_equal(ask("/t/normal", None, None, token).status, 201, "the status")
    expect_equal(gateway.effects(token), 1, "effects")


@suite.case
def an_empty_tenant_learns_nothing_of_keys():
    """The refusal is the same for a key that somebody has."""
    used, fresh = new_token("key"), new_token("key")
    ask("/t/normal", "ann", used, new_token())
    answers = [neutral(ask("/t/normal", None, key, "tok"), used, fresh) for key in (used, fresh)]
    expect_equal(answers[0], answers[1], "the refusals")


@suite.case
def tenants_do_not_run_into_each_other():
    """(ab, c) is not (a, bc); a tenant is no prefix of another; case matters; the single tenant is another one."""
    key = new_token("key")
    tokens = []
    for tenant in ("ann", "an", "annn", "Ann", "ann:" + key, "-", "0", "ann/", "%00"):
        token = new_token()
        tokens.append(token)
        expect(not ask("/t/normal", tenant, key, token).replayed, "%r got another tenant's answer" % tenant)
    for tenant, user in (("a", "b/c"), ("a/b", "d"), ("a/", "b"), ("a", "/c")):
        token = new_token()
        tokens.append(token)
        expect(not ask("/two/normal", tenant, key, token, headers=[("X-User", user)]).replayed, "%r got another's" % tenant)
    token = new_token()
    tokens.append(token)
    expect(not ask("/other/normal", None, key, token).replayed, "the single tenant got another's answer")
    expect_equal([gateway.effects(token) for token in tokens], [1] * len(tokens), "effects")


@suite.case
def long_tenants():
    """A token may be longer than a stored tenant's 255 bytes. Its end counts, too; and how a long one
    is stored is nobody's name: who calls himself so is somebody else."""
    key = new_token("key")
    long = "x" * 600
    for tenant in ("x" * 254 + "y", "x" * 254 + "z", "x" * 255, "x" * 256, long + "y", long + "z"):
        answer = ask("/t/normal", tenant, key, new_token())
        expect_equal((answer.status, answer.replayed), (201, False), "the answer to %d bytes" % len(tenant))
        expect(ask("/t/normal", tenant, key, new_token()).replayed, "the retry with %d bytes is no replay" % len(tenant))
    for tenant, of in list(gateway.records()):
        if of == key and tenant not in ("x" * 255, "x" * 254 + "y", "x" * 254 + "z"):
            answer = ask("/t/normal", tenant, key, new_token())
            expect(not answer.replayed, "%r got the answer of a long tenant that is stored so" % tenant)


@suite.case
def authorisation_runs_before_every_replay():
    """Who may not ask any more gets no replay; and the record is still there for who may."""
    key, token = new_token("key"), new_token()
    headers = [("X-Allowed", "yes")]
    first = ask("/guarded/normal", "ann", key, token, headers=headers)
    expect_equal(first.status, 201, "the status")
    denied = ask("/guarded/normal", "ann", key, token)
    expect_equal((denied.status, denied.replayed), (403, False), "the answer without permission")
    expect(token not in str(denied.body), "the refusal tells the answer")
    retry = ask("/guarded/normal", "ann", key, token, headers=headers)
    expect_equal((retry.lasting(), retry.replayed), (first.lasting(), True), "the replay")


@suite.case
def refused_requests_claim_nothing():
    key, token = new_token("key"), new_token()
    expect_equal(ask("/guarded/normal", "ann", key, token).status, 403, "the status")
    expect(gateway.record(key, "ann") is None, "a request that may not be made has a record")
    expect_equal(gateway.effects(token), 0, "effects")


# ------------------------------------------------------------------ one tenant, and credentials that count

ANN, BOB = [("Authorization", "Bearer of-ann")], [("Authorization", "Bearer of-bob")]


def is_refused(answer, what):
    expect_equal((answer.status, answer.code(), answer.replayed), (422, "key-reused", False), what)


@suite.case
def who_has_other_credentials_gets_no_answer():
    """Nor is it executed for him. What is missing, empty and there are three things; so are two lines and one."""
    for mine, others in ((ANN, (BOB, [], [("Authorization", "")], ANN + [("Cookie", "a=1")])),
                         ([], (ANN, [("Authorization", "")], [("Cookie", "")], [("X-Api-Key", "k")])),
                         ([("Cookie", "")], ([], [("Cookie", "a=1")], [("Authorization", "")])),
                         ([("X-API-KEY", "k")], ([], [("X-Api-Key", "K")], [("Api-Key", "k")], [("X-Api-Key", "k"), ("X-Api-Key", "k")]))):
        key, token = new_token("key"), new_token()
        first = ask("/known/normal", None, key, token, headers=mine)
        expect_equal((first.status, first.replayed), (201, False), "the first answer to %s" % mine)
        for other in others:
            is_refused(ask("/known/normal", None, key, token, headers=other), "the answer to %s with the key of %s" % (other, mine))
        retry = ask("/known/normal", None, key, token, headers=[(name.lower(), " %s " % value) for name, value in mine])
        expect_equal((retry.lasting(), retry.replayed), (first.lasting(), True), "the replay")
        expect_equal(gateway.effects(token), 1, "effects")


@suite.case
def how_cookies_are_cut_into_lines_makes_no_difference():
    """RFC 9113, 8.2.3: they are one list, joined by "; ". Their order counts, and so does each of them; other headers' lines stay lines."""
    def lines(*values):
        return [("Cookie", value) for value in values]
    for path in ("/known/normal", "/crumbs/normal"):
        key, token = new_token("key"), new_token()
        first = ask(path, None, key, token, headers=lines("a=1; b=2; c=3"))
        expect_equal((first.status, first.replayed), (201, False), "the first answer")
        for same in (lines("a=1", "b=2", "c=3"), lines("a=1; b=2", "c=3"), lines("a=1", "b=2; c=3"), lines("", "a=1; b=2", "", "c=3"),
                     [("cookie", "a=1"), ("X-Other", "x"), ("COOKIE", "b=2; c=3")]):
            retry = ask(path, None, key, token, headers=same)
            expect_equal((retry.lasting(), retry.replayed), (first.lasting(), True), "the answer to %s" % same)
        for other in (lines("b=2", "a=1", "c=3"), lines("a=1", "b=2"), lines("a=1", "b=2", "c=3", "d=4"), lines("a=1", "b=2", "c=4"), lines("a=1b=2", "c=3"),
                      lines("a=1;b=2", "c=3"), lines("")):
            is_refused(ask(path, None, key, token, headers=other), "the answer to %s" % other)
        expect_equal(gateway.effects(token), 1, "effects")
    key, token = new_token("key"), new_token()
    cookies = ["c%d=%d" % (n, n) for n in range(400)]
    expect_equal(ask("/known/normal", None, key, token, headers=lines(*cookies)).status, 201, "the answer to very many")
    expect(ask("/known/normal", None, key, token, headers=lines("; ".join(cookies))).replayed, "in one line they are others")
    key = new_token("key")
    ask("/known/normal", None, key, new_token(), headers=[("X-Api-Key", "a"), ("X-Api-Key", "b")])
    is_refused(ask("/known/normal", None, key, new_token(), headers=[("X-Api-Key", "a; b")]), "another header's lines in one")


@suite.case
def http_2_cuts_cookies_as_it_likes():
    """A browser sends each as a field of its own (RFC 9113, 8.2.3), and the next try may come over HTTP/1.1."""
    key, token = new_token("key"), new_token()
    def over(version, *cookies):
        return curl("/known/normal", version, "-H", 'Idempotency-Key: "%s"' % key, "-H", "X-Test: " + token, "-d", "{}", "-H", "Content-Type: application/json",
                    *(word for cookie in cookies for word in ("-H", "Cookie: " + cookie)))
    first = over("--http2-prior-knowledge", "a=1", "b=2", "c=3")
    expect_equal(first[0], 201, "the first answer")
    for retry in (over("--http2-prior-knowledge", "a=1; b=2; c=3"), over("--http1.1", "a=1", "b=2; c=3"), over("--http2-prior-knowledge", "a=1; b=2", "c=3")):
        expect_equal(retry, (201, first[1], True), "a retry")
    expect_equal(over("--http2-prior-knowledge", "b=2", "a=1", "c=3")[0], 422, "in another order")
    expect_equal(gateway.effects(token), 1, "effects")


@suite.case
def too_many_credentials_are_said_to_be_too_many():
    """Not that the key is malformed. Nothing is executed, nothing stored."""
    for count, status in ((63, 201), (64, 400), (90, 400)):  # and the Content-Type
        key, token = new_token("key"), new_token()
        answer = ask("/known/normal", None, key, token, headers=[("Content-Type", "application/json")] + [("X-Api-Key", "k%d" % n) for n in range(count)])
        expect_equal(answer.status, status, "the answer to %d lines" % count)
        expect_equal(gateway.effects(token), 1 if status == 201 else 0, "effects")
        if status == 400:
            problem = answer.problem()
            expect_equal((problem["code"], problem["detail"]), ("limit-exceeded", "%d headers are to be fingerprinted, the limit is 64" % (count + 1)), "the problem")
            expect(gateway.record(key) is None, "it has a record")


@suite.case
def what_is_new_with_every_request_does_not_count():
    """A proof of possession, a token against forgery: else nobody could ask again."""
    key, token = new_token("key"), new_token()
    for n in range(2):
        answer = ask("/known/normal", None, key, token, headers=ANN + [("DPoP", "p%d" % n), ("X-CSRF-Token", "c%d" % n)])
        expect_equal((answer.status, answer.replayed), (201, n == 1), "try %d" % n)


@suite.case
def who_is_not_let_in_takes_no_key():
    """401 and 403 say that nothing was done: another token, or another caller, may have the key."""
    for behaviour in ("status_401", "status_403"):
        key, token = new_token("key"), new_token()
        denied = ask("/known/" + behaviour, None, key, token, headers=BOB)
        expect_equal((denied.status, denied.get("Idempotency-Expires")), (int(behaviour[-3:]), None), "the first answer")
        expect(gateway.record(key) is None, "it has a record")
        expect_equal(ask("/known/normal", None, key, token, headers=ANN).status, 201, "the answer to another")
        is_refused(ask("/known/" + behaviour, None, key, token, headers=BOB), "the first one's retry")
    # without credentials in the fingerprint it is as ever: the key stands for this request
    key = new_token("key")
    ask("/other/status_401", None, key, new_token())
    expect_equal(gateway.state(key), "failed", "the state")


@suite.case
def a_large_401_after_another_attempts_answer_is_cut_off():
    """Who waited for it learns so at once, and not the 401: somebody took over, and was answered (K3, K5)."""
    for path in ("/known/rerun/held_denied", "/other/rerun/held_denied"):
        key, token = new_token("key"), new_token()
        data = request_bytes("POST", path, [("Host", "g"), ("Idempotency-Key", '"%s"' % key), ("X-Test", token), ("Content-Length", "2")], b"{}")

        def begin():
            client = Client(gateway.port)
            client.send(data)
            return client
        client = hold(gateway, begin, token)
        wait_for(lambda: gateway.effects(token), "the first execution")
        end_leases(gateway, key)
        second = gateway.ask(path, key, token, body=b"{}")
        expect_equal(second.status, 201, "the second attempt's answer")
        gateway.upstream.open_gate(token)
        try:
            raise AssertionError("the first client got %s" % client.read())
        except Closed:
            client.close()
        expect_equal(gateway.effects(token), 2, "effects")


@suite.case
def what_is_said_further_in_does_not_lose_them():
    """A location that says something else about fingerprints has the credentials of what is around it, unless it says none."""
    for path, status in (("/known/in/normal", 422), ("/known/off/normal", 201)):
        key, token = new_token("key"), new_token()
        expect_equal(ask(path, None, key, token, headers=ANN, body=b'{"at":1}').status, 201, "the first answer at " + path)
        other = ask(path, None, key, token, body=b'{"at":2}')
        expect_equal((other.status, other.replayed), (status, status == 201), "the answer to nobody at " + path)


@suite.case
def credentials_are_nowhere_in_the_store():
    """Also those that nobody but this configuration knows as such, and where requests are stored."""
    secret = new_token("secret")
    key, token = new_token("key"), new_token()
    first = ask("/own/normal", None, key, token, headers=[("X-Shop-Key", secret)], body=b'{"a":1,"at":2}')
    is_refused(ask("/own/normal", None, key, token, body=b'{"a":1,"at":2}'), "without")
    retry = ask("/own/normal", None, key, token, headers=[("X-Shop-Key", secret)], body=b'{"a":1,"at":3}')
    expect_equal((retry.lasting(), retry.replayed), (first.lasting(), True), "the replay")
    held = new_token("key")  # of a request that is under way, and stored with its claim
    client = Client(gateway.port)
    token = new_token()
    client.send(request_bytes("POST", "/own/held", [("Host", "g"), ("X-Shop-Key", secret), ("Idempotency-Key", '"%s"' % held), ("X-Test", token),
                                                    ("Content-Length", "2")], b"{}"))
    wait_for(lambda: gateway.effects(token), "the execution")
    for name in os.listdir(gateway.folder):
        if name.startswith("once.db"):
            with open(gateway.path(name), "rb") as file:
                expect(secret.encode() not in file.read(), "the secret is in %s" % name)
    gateway.upstream.open_gate(token)
    client.read()
    client.close()


@suite.case
def the_policy_names_the_credentials():
    document = json.loads(gateway.ask("/policy", method="GET", body=None).body)
    of = {place["location"]: place["fingerprint"]["credentials"] for place in document["locations"]}
    expect("Authorization" in of["/known/"] and "Cookie" in of["/known/"], "of /known/: %s" % of["/known/"])
    expect_equal((of["/own/"], of["/t/"]), (["X-Shop-Key"], []), "of /own/ and /t/")


GUARDED = Location("/guarded/", "once on;", TENANT, more=("auth_request /may;",))
MAY = Location("= /may", to=None, more=("internal;", "if ($http_x_allowed = yes) { return 204; }", "return 403;"))


def main():
    global gateway
    suite.require()
    gateway = Gateway((*LOCATIONS, GUARDED, MAY, Location("= /policy", to=None, more=("once_policy;",))), workers=2,
                      listen="listen 127.0.0.1:PORT2 http2;").start()
    gateway.patient = True
    for state, prepare in STATES.items():
        for request, path in REQUESTS.items():
            suite.add("another's key, %s: %s" % (state, request), same_as_never_used, prepare, path)
    suite.run(width=8, gateways=[("the gateway", gateway)])


main()
