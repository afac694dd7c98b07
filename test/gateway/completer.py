#!/usr/bin/env python3
"""What clients and gateways left behind is driven to an end by the daemon's completer: the stored request is sent again, with
the same child key; credentials are never stored; what cannot be known is escalated, and told.

The completer is off while something is left behind and looked at, and on from complete() on; leases are long, and those of
who was killed are ended by the test (leases.py): what it finds does not depend on how fast anything is.

SIZE=10 abandons 1000 keys for two completers on one store, with a client that retries meanwhile (else 100)."""
import base64
import hashlib
import hmac
import json
import os
import signal
import subprocess
import threading
import urllib.request

from gateway import (BOUND_S, Daemon, Location, ONCE, SINGLE, SIZE, Suite, expect, expect_equal, free_port, in_parallel, kill,
                     new_token, wait_for)
from abandoned import Completing
from leases import LEASE, end_leases
import upstream
from lib import wireclient as w
from lib.http import Handler, Server
from way import Way, is_call

STORED = "once_complete app header=X-Test;"
KNOWN = "once_complete app identity header=X-Test;"
LOCATIONS = (Location("/rerun/", "once on;", SINGLE, LEASE, "once_takeover rerun;", STORED),
             Location("/escalate/", "once on;", SINGLE, LEASE, "once_takeover escalate;", STORED),
             Location("/known/", "once on;", SINGLE, LEASE, "once_takeover rerun;", KNOWN),
             Location("/known_escalate/", "once on;", SINGLE, LEASE, "once_takeover escalate;", KNOWN),
             Location("/intent/", "once on;", SINGLE, LEASE, "once_takeover escalate;", "once_intent on;", STORED),
             Location("/elsewhere/", "once on;", SINGLE, LEASE, "once_takeover rerun;", "once_complete nowhere header=X-Test;"),
             Location("/plain/", "once on;", SINGLE, LEASE, "once_takeover rerun;"))
SECRETS = [("Authorization", "Bearer S3CRET-a"), ("Cookie", "session=S3CRET-c"), ("X-Api-Key", "S3CRET-k"),
           ("Proxy-Authorization", "Basic S3CRET-p"), ("X-Not-Named", "S3CRET-n")]


DAEMONS = "Authorization: Bearer of-the-daemon\n"


@upstream.behaviour
def guarded(c):
    """Lets only the daemon in."""
    c.read_body()
    if c.header("authorization") != "Bearer of-the-daemon":
        c.answer(401, ["Content-Type: text/plain"], b"who are you?\n")
    else:
        c.answer(201, ["Content-Type: application/json"], b'{"effect":%d}' % c.effect())


@upstream.behaviour
def busy_once(c):
    """The first time it does nothing, and says so."""
    c.read_body()
    if [seen[0] for seen in c.upstream.seen].count(c.token) < 2:
        c.answer(429, ["Content-Type: text/plain", "Retry-After: 1"], b"slow down, nothing was done\n")
    else:
        c.answer(201, ["Content-Type: application/json"], b'{"effect":%d}' % c.effect())


@upstream.behaviour
def held_fails_once(c):
    """Held the first time, 503 the second, then well."""
    n = c.work()
    if n == 1:
        c.hold()
    c.answer(*((503, [], b"not yet") if n < 3 else (200, [], b"well %d" % n)))


@upstream.behaviour
def held_resets_once(c):
    n = c.work()
    if n == 1:
        c.hold()
    if n < 3:
        c.reset()
    c.answer(200, [], b"well %d" % n)


@upstream.behaviour
def held_503(c):
    if c.work() == 1:
        c.hold()
    c.answer(503, [], b"never")


class Hook(Server):
    """A webhook that keeps what it is told; refuses the first `refuse` times."""

    def __init__(self, refuse=0):
        self.told, self.refused, self.refuse = [], 0, refuse
        outer = self

        class Told(Handler):
            def do_POST(self):
                body = self.body()
                refuse = outer.refused < outer.refuse
                outer.refused += refuse
                if not refuse:
                    outer.told.append((dict(self.headers), body))
                self.answer(503 if refuse else 204)
        super().__init__(Told)
        self.url += "/hook"


class Case(Completing):
    """A gateway of this program's locations; its completer begins when it is told to."""

    def __init__(self, *arguments, **named):
        super().__init__(LOCATIONS, *arguments, **named)

    def sent(self, token):
        """Headers of the requests that had an effect, by lower-case name."""
        return [{name.lower(): value for name, value in effect["headers"]} for effect in self.gateway.upstream.ledger.of(token)]


class Between(Way):
    """One that ends before the first mark (ADVANCE): that one is heard of, and goes nowhere."""

    def __init__(self, gateway):
        self.marked = threading.Event()
        gateway.between = self
        super().__init__(gateway)

    def passes(self, frame):
        if not is_call(frame, w.ADVANCE):
            return True
        self.marked.set()
        return False


# A store that two daemons may use: PostgreSQL, or Redis.
SHARED = os.environ.get("ONCE_TEST_POSTGRES") or ("ONCE_TEST_REDIS" in os.environ and
                                                  "redis+unix:%s?tier=best-effort" % os.environ["ONCE_TEST_REDIS"]) or None
suite = Suite()


def case(function):
    def run():
        function()
    suite.add(function.__name__, run)
    return function


def leave(c, paths, headers=()):
    """A held request at each of these, abandoned; nobody but the next who asks is answered. Without a completer."""
    expect(not c.is_completing, "a completer may be there before anybody looks")
    tokens = [new_token("left") for _ in paths]
    clients = [c.hold(path, token, headers) for path, token in zip(paths, tokens)]
    wait_for(lambda: all(c.gateway.effects(token) for token in tokens), "the effects")
    c.abandon(tokens, clients)
    records = c.gateway.records()
    for token in tokens:
        expect_equal((records[("", token)]["state"], records[("", token)]["attempt"]), ("running", 1), "what was abandoned")
        c.gateway.upstream.open_gate(token)
    return tokens


def completed(c):
    """The completer has been through everything that there was before: it finished one that came later. Meanwhile it may have
    that one at any moment, also before its worker is killed."""
    token = new_token("later")
    client = c.hold("/rerun/held", token)
    c.abandon([token], [client])
    c.gateway.upstream.open_gate(token)
    c.wait_state(token, "succeeded")


def files_with(folder, needle):
    found = []
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.startswith("once.db") and os.path.isfile(path):
            with open(path, "rb") as file:
                if needle in file.read():
                    found.append(name)
    return found


@case
def abandoned_request_is_sent_again_with_the_same_child_key():
    c = Case(identity="Authorization: Bearer of-the-daemon\n# a comment\nX-Service: once\n")
    try:
        token = new_token("again")
        client = c.hold("/known/held?q=1&r=%2F", token, SECRETS)
        wait_for(lambda: c.gateway.effects(token) == 1, "the first effect")
        c.abandon([token], [client])
        c.gateway.upstream.open_gate(token)  # for whoever comes next: nobody waits for the first answer
        expect_equal(c.record(token)["state"], "running", "what was abandoned")
        expect(files_with(c.gateway.folder, b"amount"), "the request is not stored")
        for needle in (b"S3CRET", b"Bearer", b"session="):
            expect(not files_with(c.gateway.folder, needle), "%r is in %s" % (needle, files_with(c.gateway.folder, needle)))
        c.complete()
        record = c.wait_state(token, "succeeded")
        sent = c.sent(token)
        expect_equal((record["attempt"], len(sent)), (2, 2), "attempts, and effects")
        first, last = sent[0], sent[-1]
        expect_equal(last["once-key"], first["once-key"], "the child key")
        expect_equal(last["once-record"], first["once-record"], "the record's name")
        expect(int(last["once-fence"]) > int(first["once-fence"]), "the fence does not grow")
        expect_equal(last["once-attempt"], "2", "the attempt's number")
        expect_equal((last["content-type"], last["authorization"], last["x-service"]),
                     ("application/json", "Bearer of-the-daemon", "once"), "what was sent with it")
        for name in ("cookie", "x-api-key", "x-not-named", "idempotency-key", "expect", "accept"):
            expect(name not in last, "%s was sent again: %s" % (name, last))
        expect(("POST", "/known/held?q=1&r=%2F") == c.gateway.upstream.seen[-1][1:3], "the target: %s" % (c.gateway.upstream.seen,))
        # The client comes back, and is told what the completer got.
        answer = c.ask("/known/held?q=1&r=%2F", token, headers=[("Content-Type", "application/json")])
        expect(answer.status == 201 and answer.replayed, "the retry: %s" % answer)
        expect_equal(json.loads(answer.body)["effect"], len(sent), "the answer's effect")
        expect_equal(answer.get("Content-Type"), "application/json", "the kept header")
        c.gateway.daemon.end()
        text = subprocess.run(["sqlite3", c.gateway.path("once.db"), "SELECT count(*) FROM once_request"], stdout=subprocess.PIPE,
                              text=True).stdout.strip()
        expect_equal(text, "0", "requests that are still stored")
        c.gateway.daemon.start()
    finally:
        c.end()


@case
def what_has_no_stored_request_is_left_alone():
    c = Case()
    try:
        plain, stored = leave(c, ["/plain/held", "/rerun/held"])
        c.complete()
        c.wait_state(stored, "succeeded")
        expect_equal((c.record(plain)["state"], c.gateway.effects(plain)), ("running", 1), "what was not stored")
    finally:
        c.end()


@case
def its_own_retryable_failure_is_tried_again_until_it_succeeds():
    c = Case()
    try:
        fails, resets = leave(c, ["/rerun/held_fails_once", "/rerun/held_resets_once"])
        c.complete()
        for token in fails, resets:
            record = c.wait_state(token, "succeeded")
            expect_equal((record["attempt"], record["status"], c.gateway.effects(token)), (3, 200, 3), "attempts, status, effects")
        answer = c.ask("/rerun/held_resets_once", resets, headers=[("Content-Type", "application/json")])
        expect(answer.replayed and answer.body == b"well 3", "the retry: %s" % answer)
    finally:
        c.end()


@case
def what_a_daemon_left_failed_is_tried_again_by_the_next():
    """COMPLETER-5: that no client was told is in the record, not in the process."""
    c = Case("--complete-attempts", "20")
    try:
        token, = leave(c, ["/rerun/held_fails_once"])
        c.complete_and_die("completer.finished")
        record = c.record(token)
        expect_equal((record["state"], record["undelivered"], record["status"], c.gateway.effects(token)), ("failed", True, 503, 2),
                     "what it left")
        c.gateway.daemon.start()
        record = c.wait_state(token, "succeeded")
        expect_equal((record["attempt"], record["status"], c.gateway.effects(token)), (3, 200, 3), "attempts, status, effects")
    finally:
        c.end()


@case
def failure_that_was_answered_is_left_to_the_client():
    """COMPLETER-5: also where the daemon's rights would get it through, and where it could not send it at all."""
    c = Case(identity=DAEMONS)
    try:
        told = []
        for route in "rerun", "escalate", "known", "known_escalate", "elsewhere":
            for name, status in (("guarded", 401), ("busy_once", 429), ("fails_once", 503), ("resets_once", 502)):
                if "escalate" in route and status > 500:
                    continue  # unknown at once
                for headers in [], SECRETS[:1]:
                    token, path = new_token("told"), "/%s/%s" % (route, name)
                    expect_equal(c.ask(path, token, headers=headers).status, status, "%s: the first answer" % path)
                    told.append((path, name, token, headers))
        def seen():
            records = c.gateway.records()
            return {token: ({name: value for name, value in records[("", token)].items() if name != "age_ms"}, c.gateway.effects(token))
                    for _, _, token, _ in told}
        before = seen()
        # Longer than any of them waits: one that was left later has gone through two attempts.
        token, = leave(c, ["/rerun/held_fails_once"])
        c.complete()
        c.wait_state(token, "succeeded")
        completed(c)
        after = seen()
        c.idle()
        for path, name, token, headers in told:
            record = before[token][0]
            expect_equal(after[token], before[token], "%s: what was answered" % path)
            expect_equal((record["state"], record["retryable"], record["attempt"]), ("failed", True, 1), path)
            answer = c.ask(path, token, headers=headers)
            if name == "guarded":
                expect_equal((answer.status, c.gateway.effects(token)), (401, 0), "%s: asked again" % path)
            else:
                expect(answer.status < 300 and not answer.replayed, "%s: the retry: %s" % (path, answer))
    finally:
        c.end()


@case
def identity_goes_only_where_the_route_says_so():
    c = Case(identity=DAEMONS, workers=1)
    try:
        paths = ["/rerun/held", "/known/held"]
        plain, known = leave(c, paths)
        secret, known_secret = leave(c, paths, SECRETS[:1])
        c.complete()
        for token, wanted in (plain, None), (known, "Bearer of-the-daemon"), (known_secret, "Bearer of-the-daemon"):
            c.wait_state(token, "succeeded")
            expect_equal((c.gateway.effects(token), c.sent(token)[-1].get("authorization")), (2, wanted), "effects, and with what")
        c.wait_state(secret, "unknown")
        expect_equal(c.gateway.effects(secret), 1, "effects of one that nobody here may send")
        resolve(c, secret, "--not-done", "--reason", "looked")
        completed(c)
        record = c.record(secret)
        expect_equal((record["state"], record["retryable"], c.gateway.effects(secret)), ("failed", True, 1), "left to its client")
    finally:
        c.end()


@case
def identity_that_cannot_be_read_is_waited_for():
    c = Case(identity=DAEMONS, complete=True, workers=1)
    try:
        path, token = c.gateway.path("identity"), new_token("waits")
        os.rename(path, path + ".away")
        client = c.hold("/known/held", token, SECRETS[:1])
        wait_for(lambda: c.gateway.effects(token), "the effect")
        c.abandon([token], [client])
        c.gateway.upstream.open_gate(token)
        c.wait_said("what needs it waits")
        completed(c)
        record = c.record(token)
        expect_equal((record["state"], record["attempt"]), ("running", 1), "while there is no identity")
        os.rename(path + ".away", path)
        c.wait_state(token, "succeeded")
        expect_equal(c.gateway.daemon.said().count("what needs it waits"), 1, "lines about it")
    finally:
        c.end()


@case
def verdict_is_good_for_one_more_attempt():
    c = Case("--complete-attempts", "1", store=SHARED)
    try:
        token, = leave(c, ["/rerun/held_503"])
        c.complete()
        c.wait_state(token, "unknown")
        expect_equal(c.gateway.effects(token), 1, "effects beyond the limit")
        resolve(c, token, "--not-done", "--reason", "looked")
        wait_for(lambda: c.gateway.effects(token) == 2, "the attempt after the verdict")
        c.wait_state(token, "unknown")
        expect_equal(c.gateway.effects(token), 2, "effects after the verdict")
    finally:
        c.end()


@case
def declined_is_an_outcome_and_is_not_sent_again():
    c = Case()
    try:
        token, final = new_token("declined"), new_token("402")
        client = c.hold("/rerun/held_unread", token)
        c.abandon([token], [client])
        c.gateway.upstream.open_gate(token)
        expect_equal(c.ask("/rerun/status_402", final).status, 402, "declined")
        c.complete()
        c.wait_state(token, "succeeded")
        completed(c)
        expect_equal((c.record(final)["state"], c.gateway.effects(final)), ("failed", 1), "a final failure")
    finally:
        c.end()


def resolve(c, token, *arguments):
    run = subprocess.run([ONCE, "keys", "resolve", "--store", "once:" + c.gateway.daemon.socket, token, *arguments],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    expect_equal(run.returncode, 0, "keys resolve: %s" % run.stdout)


@case
def escalated_and_told_and_resolved():
    hook = Hook(refuse=1)
    secret = base64.b64encode(os.urandom(24)).decode()
    port = free_port()
    c = Case("--escalate-webhook", hook.url, "--escalate-secret", "SECRET", "--http", "127.0.0.1:%d" % port)
    try:
        with open(c.gateway.path("secret"), "w", encoding="ascii") as file:
            file.write("whsec_" + secret + "\n")
        c.more[c.more.index("SECRET")] = c.gateway.path("secret")
        one, two = leave(c, ["/escalate/held"] * 2)
        c.complete()
        for token in (one, two):
            c.wait_state(token, "unknown")
            expect_equal(c.gateway.effects(token), 1, "effects under escalate")
        wait_for(lambda: len(hook.told) == 2, "the webhook")
        for headers, body in hook.told:
            told = json.loads(body)
            expect(told["type"] == "once.unknown" and told["key"] in (one, two) and told["record"] and told["since"], "told: %s" % told)
            text = ("%s.%s." % (headers["webhook-id"], headers["webhook-timestamp"])).encode() + body
            wanted = base64.b64encode(hmac.new(base64.b64decode(secret), text, hashlib.sha256).digest()).decode()
            expect_equal(headers["webhook-signature"], "v1," + wanted, "the signature")
            expect_equal(headers["Idempotency-Key"], '"%s"' % headers["webhook-id"], "the stable id")
            expect("-%d" % told["fence"] in headers["webhook-id"], "the id names the fence")
        expect(len({headers["webhook-id"] for headers, _ in hook.told}) == 2, "two ids")
        metrics = lambda: urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port).read().decode()
        for line in ("once_escalations_total 2", "once_escalations_delivered_total 2", 'once_completer_ended_total{how="escalated"} 2'):
            wait_for(lambda: line in metrics(), lambda: "%s in the metrics: %s" % (line, metrics()[-1500:]))
        for token in (one, two):
            c.wait_said("escalated", c.id_end(token))
        log = [line for line in c.gateway.daemon.said().splitlines() if "escalated" in line]
        expect(len(log) == 2 and not any(key in line for line in log for key in (one, two)), "the log, of ids only: %s" % log)
        listed = subprocess.run([ONCE, "keys", "list", "--state", "unknown", "--store", "once:" + c.gateway.daemon.socket],
                                stdout=subprocess.PIPE, text=True).stdout
        expect(one in listed and two in listed, "keys list --state unknown: %s" % listed)
        # One happened, says a person: that is the answer. The other did not: the completer, or a retry, sends it again.
        resolve(c, one, "--done", "--status", "201", "--reason", "the provider has it")
        answer = c.ask("/escalate/held", one, headers=[("Content-Type", "application/json")])
        expect(answer.status == 201 and answer.replayed, "after 'done': %s" % answer)
        resolve(c, two, "--not-done", "--reason", "the provider does not have it")
        c.wait_state(two, "succeeded")
        expect_equal(c.gateway.effects(two), 2, "effects after 'not done'")
        shown = subprocess.run([ONCE, "keys", "show", "--store", "once:" + c.gateway.daemon.socket, two],
                               stdout=subprocess.PIPE, text=True).stdout
        expect("the provider does not have it" in shown, "the audit trail: %s" % shown)
    finally:
        c.end()
        hook.stop()


@case
def a_finish_as_unknown_is_told_too():
    hook = Hook()
    c = Case("--escalate-webhook", hook.url, complete=True)
    try:
        token = new_token("broken")
        answer = c.ask("/escalate/length_too_long", token)
        expect_equal(answer.code(), "outcome-unknown", "the first answer")
        wait_for(lambda: len(hook.told) == 1, "the webhook")
        for _ in range(3):
            expect_equal(c.ask("/escalate/length_too_long", token).code(), "outcome-unknown", "a retry")
        expect_equal(c.gateway.effects(token), 1, "effects")
        told = json.loads(hook.told[0][1])
        expect_equal((told["key"], told["status"]), (token, 502), "what was told")
        resolve(c, token, "--not-done", "--reason", "looked")
        record = c.wait_state(token, "unknown")  # the completer sent it again, and it broke off again
        wait_for(lambda: len(hook.told) == 2, "the webhook, of the second time")
        expect_equal(c.gateway.effects(token), 2, "effects")
    finally:
        c.end()
        hook.stop()


@case
def what_a_service_says_over_http_is_told_too():
    hook, port = Hook(), free_port()
    c = Case("--escalate-webhook", hook.url, "--http", "127.0.0.1:%d" % port, complete=True)
    try:
        def post(path, **members):
            request = urllib.request.Request("http://127.0.0.1:%d/v1/%s" % (port, path), json.dumps(members).encode(),
                                             {"Content-Type": "application/json"})
            return json.load(urllib.request.urlopen(request))
        claim = post("claim", tenant="shop", key="by-json", intent=True)
        expect_equal(post("finish", record=claim["record"], fence=claim["fence"], state="unknown", status=504)["arm"], "done", "the finish")
        gone = post("claim", tenant="shop", key="gone", lease_ms=1)
        expect_equal(gone["arm"], "execute", "a claim whose holder goes")
        wait_for(lambda: post("claim", tenant="shop", key="gone")["arm"] == "unknown", "the lease's end")
        post("claim", tenant="shop", key="gone")
        wait_for(lambda: len(hook.told) == 2, "the webhook")
        told = sorted((body["tenant"], body["key"]) for body in (json.loads(text) for _, text in hook.told))
        expect_equal(told, [("shop", "by-json"), ("shop", "gone")], "what was told")
    finally:
        c.end()
        hook.stop()


@case
def credentials_that_are_not_there_are_not_guessed():
    c = Case(workers=1)
    try:
        elsewhere, open_to_all = leave(c, ["/elsewhere/held", "/rerun/held"])
        token, known = leave(c, ["/rerun/held", "/known/held"], SECRETS[:1])
        c.complete()
        c.wait_state(open_to_all, "succeeded")
        for t in token, known:
            c.wait_state(t, "unknown")
            expect_equal(c.gateway.effects(t), 1, "effects")
            c.wait_said("no identity", c.id_end(t))
        completed(c)
        record = c.record(elsewhere)  # somebody else's, or nobody's
        expect_equal((record["state"], record["attempt"], c.gateway.effects(elsewhere)), ("running", 1, 1), "what another may send")
        answer = c.ask("/elsewhere/held", elsewhere, headers=[("Content-Type", "application/json")])
        expect(answer.status == 201 and not answer.replayed, "its client: %s" % answer)
    finally:
        c.end()


@case
def attempts_have_a_limit():
    c = Case("--complete-attempts", "3")
    try:
        token, = leave(c, ["/rerun/held_503"])
        c.complete()
        c.wait_state(token, "unknown")
        expect_equal(c.gateway.effects(token), 3, "effects")
        c.wait_said("too many attempts", c.id_end(token))
    finally:
        c.end()


@case
def a_request_that_kills_whoever_sends_it_is_not_sent_for_ever():
    """FAULT-9: the daemon dies each time, just when it sends."""
    c = Case()
    try:
        token, = leave(c, ["/rerun/held"])
        for _ in range(3):
            c.complete_and_die("completer.sending")
            c.idle()
            end_leases(c.gateway, token)
        c.complete()
        c.wait_state(token, "unknown")
        expect_equal(c.gateway.effects(token), 1, "effects")
        c.wait_said("nobody ended", c.id_end(token))
    finally:
        c.end()


def a_daemon_that_dies_is_followed_by_another(point, attempts, effects):
    """At each of the completer's points: whatever was stored stays, and it ends once."""
    c = Case()
    try:
        token, = leave(c, ["/rerun/held"])
        c.complete_and_die(point)
        c.complete()
        end_leases(c.gateway, token)
        record = c.wait_state(token, "succeeded")
        expect_equal((record["attempt"], c.gateway.effects(token)), (attempts, effects), "attempts, effects")
        answer = c.ask("/rerun/held", token, headers=[("Content-Type", "application/json")])
        expect(answer.replayed and answer.status == 201, "the retry: %s" % answer)
    finally:
        c.end()


for row in (("completer.taken", 3, 2), ("completer.sending", 3, 2), ("completer.answered", 3, 3), ("completer.finished", 2, 2)):
    suite.add("a_daemon_that_dies_at_%s_is_followed_by_another" % row[0], a_daemon_that_dies_is_followed_by_another, *row)


@case
def intent_that_was_not_marked_is_completed_also_under_escalate():
    """Everything dies between claim and mark: nothing was sent, so the completer may send it."""
    c = Case(workers=1, front=Between)
    try:
        daemon, token = c.gateway.daemon, new_token("unsent")
        client = c.begin("/intent/normal", token)
        wait_for(c.gateway.between.marked.is_set, "the mark")
        daemon.end(signal.SIGKILL)
        for pid in c.gateway.worker_pids():
            kill(pid)
        client.close()
        record = c.record(token)
        expect_equal((record["state"], record["recovery_point"], c.gateway.effects(token)), ("running", "", 0), "what was left behind")
        c.complete()
        end_leases(c.gateway, token)
        record = c.wait_state(token, "succeeded")
        expect_equal((c.gateway.effects(token), record["attempt"]), (1, 2), "effects and attempts")
    finally:
        c.end()


@case
def two_completers_and_a_retrying_client():
    """Each abandoned key ends once, whoever gets it; all who ask are told the same."""
    store = SHARED
    keys = [new_token("many") for _ in range(100 * SIZE)]
    c = Case(store=store)
    other = Daemon(c.gateway.folder, c.gateway.daemon.store, name="other")
    try:
        clients = in_parallel(lambda token: c.hold("/rerun/held", token), keys, width=16)
        wait_for(lambda: sum(1 for _ in open(c.gateway.upstream.ledger.path, encoding="utf-8")) >= len(keys), "the effects")
        c.abandon(keys, clients)
        for token in keys:
            c.gateway.upstream.open_gate(token)
        turned_away = set()  # of these a claim may have been made that nobody heard of, and was given back

        def ask(token):
            def is_final(answer):
                if answer.status == 503:
                    turned_away.add(token)
                return answer.status not in (409, 503)
            return c.gateway.ask_until(is_final, "/rerun/held", token, token, headers=[("Content-Type", "application/json")])
        asked = keys[::3]
        answers = {token: ask(token) for token in asked[:3]}  # surely by their clients; for the others it is a race
        if store:
            c.complete(other)
        c.complete()
        answers.update(zip(asked[3:], in_parallel(ask, asked[3:], width=8)))
        wait_for(lambda: (lambda all_of: all(all_of[("", token)]["state"] == "succeeded" for token in keys))(c.gateway.records()),
                 "all to be done", seconds=BOUND_S * 2)
        effects = {}
        with open(c.gateway.upstream.ledger.path, encoding="utf-8") as file:
            for line in file:
                effect = json.loads(line)
                effects.setdefault(effect["token"], []).append(effect["headers"])
        records = c.gateway.records()
        # The daemon does not send the client's key. Two thirds of them nobody but a completer asks for.
        by_client = [token for token in keys if any(name.lower() == "idempotency-key" for name, _ in effects[token][-1])]
        expect(set(asked[:3]) <= set(by_client) <= set(answers), "ended by clients: %d of %d" % (len(by_client), len(answers)))
        for token in keys:
            record = records[("", token)]
            expect_equal(len(effects[token]), 2, "effects of %s" % record)
            expect(record["attempt"] == 2 or token in turned_away, "attempts: %s" % record)
            again = ask(token) if token in answers or token.endswith("7") else None
            if token in answers:
                expect_equal(again.lasting(), answers[token].lasting(), "what is told later")
            if again:
                expect(again.status == 201 and again.replayed, "the retry: %s" % again)
    finally:
        if other.process:
            other.end()
        c.end()


def main():
    suite.require()
    if SHARED:
        subprocess.run([ONCE, "migrate", "--store", SHARED], check=True, stdout=subprocess.DEVNULL)
        suite.cases = [c for c in suite.cases if c[0] in ("verdict_is_good_for_one_more_attempt", "two_completers_and_a_retrying_client")]
        suite.run(width=1)  # one after the other: they share a database, and would complete each other's
    else:
        longest = ("two_completers", "failure_that_was", "a_request_that_kills", "identity_goes", "credentials_that")
        suite.cases.sort(key=lambda c: not c[0].startswith(longest))
        suite.run(width=10)  # they wait most of their time


main()
