#!/usr/bin/env python3
"""Routes with `once_takeover probe`: what was abandoned is asked about before it is sent again. The service behind it ignores keys:
whoever sends twice has two effects. It tells by GET what it did, as it should, or as the case scripts it.
What is left behind is left before there is a completer (abandoned.py). A service that is slow may be asked again: of questions
a case knows only how few there can be.

On PostgreSQL (ONCE_TEST_POSTGRES) the cases that go through the store most."""
import base64
import http.client
import json
import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from gateway import (BOUND_S, Daemon, Gateway, Location, ONCE, SINGLE, Suite, expect, expect_equal, free_port, in_parallel, new_token,
                     nginx_environment, wait_for)
from abandoned import JSON_BODY, Completing
from leases import LEASE, end_leases
import upstream

STORED = "once_complete app header=X-Test;"
ASK = "once_probe /service/asked?key=$once_key&client=$once_client_key&record=$once_record after=100ms;"
PROBE = ("once on;", SINGLE, LEASE, "once_takeover probe;")
LOCATIONS = (Location("/probe/", *PROBE, STORED, ASK),
             Location("/known/", *PROBE, "once_complete app identity header=X-Test;", ASK),
             Location("/wait/", *PROBE, STORED, ASK, "once_wait 300s;"),
             Location("/intent/", *PROBE, STORED, ASK, "once_intent on;"),
             Location("/named/", *PROBE, STORED, "once_probe /of/$once_uri_json_order/asked after=100ms;"),
             Location("/raw/", *PROBE, STORED, "once_probe /of/$once_json_order/asked after=100ms;"),
             Location("/override/", *PROBE, "once_complete app header=X-Test header=X-HTTP-Method-Override header=X-Shop;", ASK),
             Location("/plain/", "once on;", SINGLE, LEASE))
SECRET = ("Authorization", "Bearer of-the-client")
JSON = "Content-Type: application/json"

SCRIPTS = {}  # token: what answers the next question about it; the last one stays
ASKED = {}    # token: the questions, with their headers
LOCK = threading.Lock()


# ------------------------------------------------------------------ a service that can be asked

def truth(c):
    """What a good service says: the answer of the request that had this key, or that there was none."""
    done = [effect for effect in c.upstream.ledger.of(c.token)
            if dict((k.lower(), v) for k, v in effect["headers"]).get("once-key") == c.header("once-key")]
    if not done:
        c.answer(404, [JSON], b'{"error":"no such request"}')
    else:
        c.answer(200, [JSON, "Once-Status: 201", "Location: /things/7", "Set-Cookie: a=b", "X-Other: x"],
                 b'{"effect":%d,"told":true}' % len(done))


@upstream.behaviour
def asked(c):
    with LOCK:
        ASKED.setdefault(c.token, []).append((c.method, c.path, {k.lower(): v for k, v in c.headers}, c.body))
        script = SCRIPTS.get(c.token, [truth])
        step = script[0]
        if len(script) > 1:
            SCRIPTS[c.token] = script[1:]
    step(c)


def says(status, *headers, body=b"words"):
    return lambda c: c.answer(status, [*headers], body)


def truncated(c):
    c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this")
    c.close()


def truncated_404(c):
    c.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 1000\r\n\r\nonly this")
    c.close()


def without_end(c):
    """Neither length nor chunks: nobody can know whether it is whole."""
    c.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nall of it, or not")
    c.close()


def nothing_without_end(c):
    c.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n")
    c.close()


def with_trailers(c):
    """What comes after the body is not about it."""
    c.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nOnce-Status: 201\r\nTrailer: Once-Status, Location\r\n\r\n"
           b"5\r\nwords\r\n0\r\nOnce-Status: 402\r\nLocation: /trailer\r\n\r\n")


def endless(c):
    c.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(2000):
        c.send(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        time.sleep(0.01)


def silent(c):
    c.hold()


def no_http(c):
    c.send(b"\x16\x03\x01 what?\r\n\r\n")
    c.close()


def elsewhere(c):
    c.answer(302, ["Location: http://127.0.0.1:%d/service/followed" % c.upstream.port], b"")


@upstream.behaviour
def followed(c):
    """Nobody should come here."""
    c.effect()
    c.answer(200, [JSON], b'{"followed":true}')


@upstream.behaviour
def resets(c):
    """Has its effect, and breaks off."""
    c.work()
    c.reset()


@upstream.behaviour
def says_500(c):
    c.work()
    c.answer(500, ["Content-Type: text/plain"], b"it may have worked\n")


@upstream.behaviour
def resets_once(c):
    """Breaks off, and did nothing, the first time."""
    c.read_body()
    if sum(seen[0] == c.token and seen[1] == "POST" for seen in c.upstream.seen) < 2:
        c.reset()
    c.answer(201, [JSON], b'{"effect":%d}' % c.effect())


@upstream.behaviour
def resets_then_503(c):
    """Did nothing and broke off; then did it, and said something else."""
    c.read_body()
    if sum(seen[0] == c.token and seen[1] == "POST" for seen in c.upstream.seen) < 2:
        c.reset()
    c.effect()
    c.answer(503, [], b"who knows")


class Case(Completing):
    def __init__(self, *arguments, identity=False, **named):
        super().__init__(LOCATIONS, *arguments, identity="Authorization: Bearer of-the-daemon\n" if identity else None,
                         store=os.environ.get("ONCE_TEST_POSTGRES"), **named)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.end()
        else:
            self.gateway.remove()

    def sent(self, token):
        with self.gateway.upstream.lock:
            return sum(seen[0] == token and seen[1] == "POST" for seen in self.gateway.upstream.seen)

    def left(self, path, behaviour, token, headers=(), body=JSON_BODY):
        """A request whose worker dies while the service has it, before there is a completer."""
        expect(not self.is_completing, "a completer may be there before anybody looks")
        client = self.hold(path + behaviour, token, headers, body)
        happens = behaviour == "held"
        wait_for(lambda: self.gateway.effects(token) == int(happens), "the request")
        self.abandon([token], [client])
        wait_for(lambda: not self.gateway.upstream.connections, "the service to notice")  # else it may still do it
        self.gateway.upstream.open_gate(token)
        expect_equal(self.gateway.effects(token), int(happens), "effects of the request that was left")

    def ask(self, path, token, headers=(), body=JSON_BODY):
        return super().ask(path, token, headers=[("Content-Type", "application/json"), *headers], body=body)

    def final(self, path, token, **named):
        """As a client does: asks until it is told how it ended."""
        def once():
            answer = self.ask(path, token, **named)
            return None if answer.status == 409 or answer.code() == "upstream-failed" else answer
        return wait_for(once, lambda: "an end of %s" % self.record(token))

    def adopted(self, path, token, answer=None, effects=1, **named):
        """It has the service's word as its outcome: once and for all."""
        answer = answer or self.final(path, token, **named)
        expect(answer.replayed, "not from the record: %s" % answer)
        expect_equal((answer.status, answer.body, answer.get("Location"), answer.get("Content-Type")),
                     (201, b'{"effect":%d,"told":true}' % effects, "/things/7", "application/json"), "what was adopted")
        for name in "Once-Status", "Set-Cookie", "X-Other":
            expect(answer.get(name) is None, "%s is replayed: %s" % (name, answer))
        for again in in_parallel(lambda _: self.ask(path, token, **named), range(4), width=4):
            expect_equal(again.lasting(), answer.lasting(), "a later replay")
        expect_equal(self.gateway.effects(token), effects, "effects")


suite = Suite()
on_postgres = []


def also_on_postgres(function):
    on_postgres.append(function.__name__)
    return suite.case(function)


# ------------------------------------------------------------------ kill -9

@also_on_postgres
def worker_killed_after_the_effect__adopted():
    with Case() as c:
        token = new_token("done")
        c.left("/probe/", "held", token)
        c.complete()
        c.adopted("/probe/held", token)
        expect_equal(c.sent(token), 1, "requests")
        method, path, headers, body = ASKED[token][0]
        first = {k.lower(): v for k, v in c.gateway.upstream.ledger.of(token)[0]["headers"]}
        expect_equal((method, body, headers["once-key"]), ("GET", b"", first["once-key"]), "the question")
        expect(path.startswith("/service/asked?key=%s&client=%s&record=" % (first["once-key"], token)), path)
        expect_equal(len(path.rsplit("=", 1)[1]), 32, "the record's name in %s" % path)
        expect(int(headers["once-fence"]) > int(first["once-fence"]), "the fence does not grow")
        for name in "content-type", "content-length", "idempotency-key", "authorization":
            expect(name not in headers, "the question has %s: %s" % (name, headers))
        expect(c.record(token)["attempt"] > len(ASKED[token]), "a question without an attempt of its own")


@also_on_postgres
def worker_killed_before_the_effect__sent_again():
    with Case() as c:
        token = new_token("not")
        c.left("/probe/", "held_before", token)
        c.complete()
        answer = c.final("/probe/held_before", token)
        expect_equal((answer.status, answer.replayed, answer.body), (201, True, b'{"effect":1}'), "the answer")
        expect_equal((c.gateway.effects(token), token in ASKED, c.sent(token)), (1, True, 2), "effects, whether it was asked, requests")


@suite.case
def a_retry_that_waits_is_told_what_was_adopted():
    with Case(complete=True) as c, ThreadPoolExecutor(1) as pool:
        token, told = new_token("wait"), threading.Event()

        def patient(call):
            told.wait(BOUND_S)
            truth(call)
        SCRIPTS[token] = [patient, truth]
        client = c.hold("/wait/held", token)
        wait_for(lambda: c.gateway.effects(token) == 1, "the effect")
        c.abandon([token], [client])
        wait_for(lambda: token in ASKED, "the question")
        waiting = pool.submit(c.ask, "/wait/held", token)
        told.set()
        c.adopted("/wait/held", token, answer=waiting.result())


@suite.case
def broken_answers_are_asked_about():
    """Nothing is stored about them; their clients are told to ask again."""
    with Case(complete=True) as c:
        def one(name):
            token = new_token(name)
            answer = c.ask("/probe/" + name, token)
            if name == "says_500":
                expect_equal((answer.status, answer.body), (500, b"it may have worked\n"), "what is passed on")
                expect(answer.get("Idempotency-Outcome") is None, "it is said to be unknown: %s" % answer)
            else:
                expect_equal((answer.status, answer.code()), (502, "upstream-failed"), name)
                expect(int(answer.get("Retry-After")) >= 1 and answer.problem()["retryable"], "what it may do: %s" % answer)
            if name == "resets_once":
                expect_equal(c.final("/probe/" + name, token).body, b'{"effect":1}', "sent again")
                expect_equal(c.gateway.effects(token), 1, "effects")
                return
            if name == "resets_then_503":  # what a completer sent, and got no outcome of, is asked about when its lease is over
                wait_for(lambda: c.gateway.effects(token) == 1, "the completer's request")
                end_leases(c.gateway, token)
            c.adopted("/probe/" + name, token)
        in_parallel(one, ["resets", "says_500", "resets_once", "resets_then_503"], width=4)


@suite.case
def nginx_that_is_told_to_stop_leaves_it():
    with Case(workers=1, complete=True) as c:
        token = new_token("term")
        client = c.hold("/probe/held", token)
        wait_for(lambda: c.gateway.effects(token) == 1, "the effect")
        c.gateway.end_nginx(signal.SIGTERM)
        client.close()
        end_leases(c.gateway, token)
        c.wait_state(token, "succeeded")
        c.gateway.start_nginx()
        c.adopted("/probe/held", token)


@suite.case
def service_killed_and_started_again():
    with Case(workers=1, complete=True, lasting=True) as c:
        token = new_token("service")
        gateway = c.gateway
        client = c.hold("/probe/held", token)
        wait_for(lambda: gateway.effects(token) == 1, "the effect")
        gateway.upstream.stop()
        expect_equal(client.read().status, 502, "the first answer")
        client.close()
        wait_for(lambda: c.record(token).get("attempt", 0) > 1, "a question that nobody hears")
        gateway.upstream = upstream.Upstream(gateway.folder, gateway.upstream.port)
        c.adopted("/probe/held", token)


def daemon_killed_at(point, behaviour):
    """Whatever it had in hand when it died: the next one asks before it sends."""
    with Case() as c:
        token = new_token("point")
        c.left("/probe/", behaviour, token)
        c.complete_and_die(point)
        c.complete()
        end_leases(c.gateway, token)
        c.wait_state(token, "succeeded")
        answer = c.final("/probe/" + behaviour, token)
        expect(answer.replayed and answer.status == 201, "the answer: %s" % answer)
        expect_equal(c.gateway.effects(token), 1, "effects")
        expect_equal(c.final("/probe/" + behaviour, token).lasting(), answer.lasting(), "a later replay")


def a_completer_that_slept_does_not_send():
    """Asked, and stopped before the answer: another asks and sends meanwhile. What it hears when it wakes up is old. It counts
    its lease itself, so that is a short one here; if it is so slow that it loses it earlier, the same holds."""
    with Case("--complete-lease", "1s") as c:
        token, awake = new_token("slept"), threading.Event()

        def late_404(call):
            awake.wait(BOUND_S)
            call.answer(404, [JSON], b"{}")
        SCRIPTS[token] = [late_404, truth]
        c.left("/probe/", "held_before", token)
        c.complete()
        wait_for(lambda: token in ASKED, "the question")
        other = Daemon(c.gateway.folder, c.gateway.daemon.store, name="other")
        other.arguments = c.gateway.daemon.arguments
        c.gateway.daemon.process.send_signal(signal.SIGSTOP)
        try:
            other.start()
            wait_for(lambda: c.gateway.effects(token) == 1, "the other's request")
        finally:
            awake.set()
            c.gateway.daemon.process.send_signal(signal.SIGCONT)
            if other.process:
                other.end()
        c.gateway.daemon.end()  # it ends what it has in hand
        c.gateway.daemon.start()
        c.wait_state(token, "succeeded")
        expect_equal((c.gateway.effects(token), c.sent(token)), (1, 2), "effects, requests")
        expect(len(ASKED[token]) >= 2, "only one has asked")


# ------------------------------------------------------------------ what it may say

def asked_again(rows, *options):
    with Case("--complete-attempts", "20", *options, complete=True) as c:
        def one(steps):
            token = new_token("again")
            SCRIPTS[token] = [*steps, truth]
            expect_equal(c.ask("/probe/resets", token).status, 502, "the first answer")
            c.adopted("/probe/resets", token)
            attempts = c.record(token)["attempt"]
            expect(len(steps) + 1 <= len(ASKED[token]) < attempts, "%d questions, %d attempts" % (len(ASKED[token]), attempts))
            expect_equal(c.sent(token), 1, "requests")
        in_parallel(one, rows, width=len(rows))
        expect(not any("followed" in seen[2] for seen in c.gateway.upstream.seen), "a redirect was followed")


@also_on_postgres
def not_known_is_asked_again():
    asked_again([[says(202)], [says(409), says(503, "Retry-After: 1")], [says(500)], [elsewhere], [truncated],
                 [truncated_404], [no_http], [says(401)], [says(204, body=b"")], [says(200, body=b"")],
                 [says(200, "Once-Status: 99")], [says(200, "Once-Status: 429")], [says(200, "Once-Status: 500")],
                 [says(200, "Once-Status: 2o1")], [says(200, "Once-Status: 201", "Once-Status: 201")],
                 [nothing_without_end], [says(200, "Once-Status: 402", *["Link: <%s>" % ("x" * 8000)] * 9)]])


@also_on_postgres
def no_end_is_asked_again():
    """Only these are given up on soon: of the others each that a busy machine gave up on would double the pause before the next."""
    asked_again([[silent], [endless]], "--complete-timeout", "3s")


@also_on_postgres
def never_known_is_escalated():
    with Case("--complete-attempts", "3", complete=True) as c:
        tokens = [new_token("never") for _ in range(2)]
        SCRIPTS[tokens[0]], SCRIPTS[tokens[1]] = [says(500)], [elsewhere]
        for token in tokens:
            expect_equal(c.ask("/probe/resets", token).status, 502, "the first answer")
        for token in tokens:
            record = c.wait_state(token, "unknown")
            expect_equal((record["attempt"], c.gateway.effects(token)), (3, 1), "attempts, effects")
            expect(1 <= len(ASKED[token]) <= 2, "%d questions" % len(ASKED[token]))
            answer = c.ask("/probe/resets", token)
            expect_equal((answer.status, answer.code()), (502, "outcome-unknown"), "what its client is told")
        c.wait_said("asked whether it happened, the service answered 500")
        run = subprocess.run([ONCE, "keys", "resolve", "--store", "once:" + c.gateway.daemon.socket, tokens[0], "--done", "--status", "201",
                              "--body", "seen", "--reason", "looked"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        expect_equal(run.returncode, 0, run.stdout)
        expect_equal(c.ask("/probe/resets", tokens[0]).body, b"seen", "after the verdict")


@suite.case
def what_happened_and_cannot_be_kept_is_not_sent_again():
    with Case(complete=True) as c:
        def one(step):
            token = new_token("large")
            SCRIPTS[token] = [step]
            c.ask("/probe/resets", token)
            answer = c.final("/probe/resets", token)
            expect_equal((answer.status, answer.code(), c.gateway.effects(token)), (410, "answer-not-kept", 1), "the answer")
        in_parallel(one, [says(200, body=b"x" * (3 << 20)), without_end, says(200, "Location: /a\rSet-Cookie: a=b")], width=3)


@suite.case
def a_failure_is_adopted_as_one():
    with Case(complete=True) as c:
        for status, wanted in ("402", 402), (None, 200), ("204", 204):
            token = new_token("402")
            SCRIPTS[token] = [says(200, *(["Once-Status: " + status] if status else []), body=b"so it ended")]
            c.ask("/probe/resets", token)
            answer = c.final("/probe/resets", token)
            body = b"" if wanted == 204 else b"so it ended"  # a 204 has none, whatever came with it
            expect_equal((answer.status, answer.body, answer.replayed), (wanted, body, True), "the answer")
        token = new_token("trailer")
        SCRIPTS[token] = [with_trailers]
        c.ask("/probe/resets", token)
        answer = c.final("/probe/resets", token)
        expect_equal((answer.status, answer.body, answer.get("Location")), (201, b"words", None), "the answer with trailers")


# ------------------------------------------------------------------ who may ask, and what

@suite.case
def credentials():
    with Case(identity=True) as c:
        known, plain, before = (new_token("who") for _ in range(3))
        c.left("/known/", "held_before", known, headers=[SECRET])
        c.left("/probe/", "held", plain, headers=[SECRET])
        c.left("/probe/", "held_before", before, headers=[SECRET])
        c.complete()
        answer = c.final("/known/held_before", known, headers=[SECRET])
        expect_equal((answer.status, c.gateway.effects(known)), (201, 1), "with the daemon's identity")
        expect_equal(ASKED[known][0][2].get("authorization"), "Bearer of-the-daemon", "the question's")
        # It can be asked about without; but only its client can send it.
        c.adopted("/probe/held", plain, headers=[SECRET])
        record = c.wait_state(before, "failed")
        expect_equal((record["retryable"], c.gateway.effects(before), before in ASKED), (True, 0, True), "what is left to its client")
        answer = c.ask("/probe/held_before", before, headers=[SECRET])
        expect_equal((answer.status, answer.replayed, c.gateway.effects(before)), (201, False, 1), "its client's retry")
        for token in plain, before:
            expect(all("authorization" not in question[2] for question in ASKED[token]), "a question with credentials")


@suite.case
def a_question_is_a_get_whatever_is_stored():
    with Case() as c:
        token, more = new_token("override"), [("X-HTTP-Method-Override", "POST"), ("X-Shop", "7")]
        c.left("/override/", "held", token, headers=more)
        c.complete()
        c.adopted("/override/held", token, headers=more)
        question = ASKED[token][0][2]
        expect_equal((question.get("x-http-method-override"), question.get("x-shop")), (None, "7"), "the question's headers")


@suite.case
def requests_that_others_store():
    """Over JSON: by the policy of their claim, and never with the daemon's credentials."""
    port = free_port()
    with Case("--http", "127.0.0.1:%d" % port, identity=True, complete=True) as c:
        def post(verb, **members):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=BOUND_S)
            connection.request("POST", "/v1/" + verb, json.dumps(members), {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())
            connection.close()
            return answer

        def stored(token, flags=0, asked=b"/service/asked"):
            parts = [b"app", b"POST", b"/service/ok", b"X-Test: %s\r\n" % token.encode(), b"Content-Type\n", b"{}"] + ([asked] if asked else [])
            return base64.b64encode(b"OR1" + bytes([flags | (4 if asked else 0)]) + (1 << 20).to_bytes(4, "big") + b"\xff" * 75 +
                                    b"".join(len(p).to_bytes(4, "big") + p for p in parts)).decode()

        unsent, done, nowhere, mine = (new_token("json") for _ in range(4))
        post("claim", key=unsent, lease_ms=1, takeover="completer", intent=True, stored_request_base64=stored(unsent))
        wait_for(lambda: c.sent(unsent), "what was not sent")
        expect(unsent not in ASKED, "it was asked about, and nothing had been sent")
        SCRIPTS[done] = [says(200, "Once-Status: 201", body=b"told")]
        post("claim", key=done, lease_ms=1, takeover="probe", stored_request_base64=stored(done))
        c.wait_state(done, "succeeded")
        expect_equal(post("claim", key=done).get("body"), "told", "what was adopted")
        expect_equal((done in ASKED, c.sent(done)), (True, 0), "asked, requests")
        post("claim", key=nowhere, lease_ms=1, takeover="probe", stored_request_base64=stored(nowhere, asked=None))
        c.wait_state(nowhere, "unknown")
        expect_equal((nowhere in ASKED, c.sent(nowhere)), (False, 0), "asked, requests")
        answer = post("claim", key=mine, lease_ms=1, takeover="rerun", stored_request_base64=stored(mine, flags=2))
        expect_equal((answer.get("status"), answer.get("member")), (400, "stored_request"), "a request for the daemon's identity: %s" % answer)
        for token in unsent, done:
            expect(not any(name == "authorization" for _, _, headers, _ in ASKED.get(token, []) for name in headers), "credentials")


@suite.case
def a_body_too_large_to_store_is_asked_about():
    body = b'{"padding":"%s"}' % (b"x" * (3 << 20))
    with Case() as c:
        done, not_done = new_token("big"), new_token("big")
        c.left("/probe/", "held", done, body=body)
        c.left("/probe/", "held_before", not_done, body=body)
        c.complete()
        c.adopted("/probe/held", done, body=body)
        expect_equal(c.wait_state(not_done, "failed")["retryable"], True, "what is left to its client")
        answer = c.ask("/probe/held_before", not_done, body=body)
        expect_equal((answer.status, answer.replayed, c.gateway.effects(not_done)), (201, False, 1), "its client's retry")


@suite.case
def with_intent_what_was_sent_is_asked_about():
    with Case() as c:
        sent = new_token("sent")
        c.left("/intent/", "held", sent)
        c.complete()
        c.adopted("/intent/held", sent)


@suite.case
def a_member_of_the_body_stays_where_it_is_put():
    with Case(complete=True) as c:
        token = new_token("member")
        body = json.dumps({"order": "a/b..?c#d e%2f"}).encode()
        c.ask("/named/resets", token, body=body)
        c.adopted("/named/resets", token, body=body)
        expect_equal(ASKED[token][0][1], "/of/a%2Fb..%3Fc%23d%20e%252f/asked", "where it was asked")
        # What leads elsewhere, or nowhere, is not stored, and so not asked about: unknown, as with escalate.
        for path, order in (("/named/resets", ".."), ("/named/resets", "x/../../y"), ("/raw/resets", "x/../../y"), ("/raw/resets", "a b"), ("/named/resets", ""),
                            ("/named/resets", None), ("/raw/resets", {})):
            token = new_token("bad")
            answer = c.ask(path, token, body=json.dumps({"order": order}).encode())
            expect_equal((answer.code(), c.record(token)["state"], token in ASKED), ("outcome-unknown", "unknown", False), order)


@suite.case
def without_a_completer_it_stays_in_progress():
    with Case() as c:
        token = new_token("nobody")
        c.ask("/probe/resets", token)
        wait_for(lambda: c.ask("/probe/resets", token).get("Retry-After") == "1", "the end of its lease")
        answer = c.ask("/probe/resets", token)
        expect_equal((answer.status, answer.code()), (409, "in-progress"), "what a client is told")
        expect_equal((c.record(token)["attempt"], c.gateway.effects(token)), (1, 1), "attempts, effects")
        expect_equal(c.gateway.daemon.said().count("no --complete app=URL"), 1, "how often the daemon says that nobody will ask")
    with Case(complete=True) as c:
        c.ask("/probe/ok", new_token("somebody"))
        expect("--complete" not in c.gateway.daemon.said(), c.gateway.daemon.said())


@suite.case
def configuration():
    rows = [
        ([], "needs \"once_probe\"", ("once_takeover probe;", STORED)),
        ([], "needs \"once_takeover probe\"", (ASK, STORED)),
        ([], "needs \"once_takeover probe\"", ("once_takeover rerun;", ASK, STORED)),
        ([], "needs \"once_complete\"", ("once_takeover probe;", ASK)),
        ([], "is duplicate", ("once_takeover probe;", ASK, ASK, STORED)),
        ([], "a path on the service", ("once_takeover probe;", "once_probe http://elsewhere/$once_key;", STORED)),
        ([], "a path on the service", ("once_takeover probe;", "once_probe $once_key;", STORED)),
        ([], "the same for all requests", ("once_takeover probe;", "once_probe /charges;", STORED)),
        ([], "an invalid character", ("once_takeover probe;", 'once_probe "/a b/$once_key";', STORED)),
        ([], "unknown \"once_nothing\" variable", ("once_takeover probe;", "once_probe /a/$once_nothing;", STORED)),
        ([], "must be after=TIME", ("once_takeover probe;", "once_probe /a/$once_key soon;", STORED)),
        ([], "1ms to 24h", ("once_takeover probe;", "once_probe /a/$once_key after=25h;", STORED)),
        ([], "1ms to 24h", ("once_takeover probe;", "once_probe /a/$once_key after=0s;", STORED)),
        ([], "after=x", ("once_takeover probe;", "once_probe /a/$once_key after=x;", STORED)),
        ([], "has further arguments after off", ("once_takeover escalate;", "once_probe off after=1s;", STORED)),
        (["once_takeover probe;", ASK], "needs \"once_complete\"", ()),
        (["once_takeover probe;", ASK, STORED], None, ()),
        (["once_takeover probe;", ASK, STORED], None, ("once_takeover escalate;",)),
        (["once_takeover probe;", ASK, STORED], None, ("once_takeover rerun;", "once_probe off;")),
        (["once_takeover probe;", ASK, STORED], "needs \"once_probe\"", ("once_probe off;",)),
        (["once_takeover probe;", STORED], None, ("once_probe /b/$once_record;",)),
    ]

    def one(row):
        server, wanted, once = row
        gateway = Gateway([Location("/a/", "once on;", SINGLE, *once)], server="\n".join(server))
        try:
            gateway.port = 1
            gateway.write_configuration()
            run = subprocess.run(gateway.nginx_command("-t"), env=nginx_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            said = run.stdout
            expect((run.returncode == 0) == (wanted is None), "%s: %s" % (row, said))
            expect(wanted is None or (wanted in said and ("nginx.conf:" in said or "variable" in wanted)), "%s: %s" % (row, said))
        finally:
            gateway.upstream.stop()
            gateway.remove()
    in_parallel(one, rows, width=4)


def main():
    suite.require()
    points = subprocess.run([ONCE, "run", "--list-points"], stdout=subprocess.PIPE, text=True).stdout.split()
    if "completer.probing" in points:
        for point, behaviour in (("completer.taken", "held"), ("completer.probing", "held"), ("completer.probed", "held"),
                                 ("completer.finished", "held"), ("completer.probed", "held_before"),
                                 ("completer.sending", "held_before"), ("completer.answered", "held_before"),
                                 ("completer.finished", "held_before")):
            suite.add("daemon_killed_at %s, %s" % (point, behaviour), daemon_killed_at, point, behaviour)
    if os.environ.get("ONCE_TEST_POSTGRES"):
        subprocess.run([ONCE, "migrate", "--store", os.environ["ONCE_TEST_POSTGRES"]], check=True, stdout=subprocess.DEVNULL)
        suite.cases = [c for c in suite.cases if c[0] in on_postgres]
        suite.add("a_completer_that_slept_does_not_send", a_completer_that_slept_does_not_send)
        suite.run(width=1)  # one after the other: they share a database, and would complete each other's
    else:
        suite.run(width=10)  # they wait most of their time


main()
