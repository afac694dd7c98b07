#!/usr/bin/env python3
"""What clients and gateways left behind is driven to an end by the daemon's completer: the stored request is sent again, with
the same child key; credentials are never stored; what cannot be known is escalated, and told.

SIZE=10 abandons 1000 keys for two completers on one store, with a client that retries meanwhile (else 100)."""
import base64
import hashlib
import hmac
import http.server
import json
import os
import signal
import subprocess
import threading
import urllib.request

from gateway import (BOUND_S, Client, Daemon, Gateway, Location, ONCE, SINGLE, SIZE, Suite, expect, expect_equal,
                     free_port, in_parallel, kill, new_token, request_bytes, wait_for)
import upstream

STORED = "once_complete app header=X-Test;"
KNOWN = "once_complete app identity header=X-Test;"
LOCATIONS = (Location("/rerun/", "once on;", SINGLE, "once_lease 1s;", "once_takeover rerun;", STORED),
             Location("/escalate/", "once on;", SINGLE, "once_lease 1s;", "once_takeover escalate;", STORED),
             Location("/known/", "once on;", SINGLE, "once_lease 1s;", "once_takeover rerun;", KNOWN),
             Location("/known_escalate/", "once on;", SINGLE, "once_lease 1s;", "once_takeover escalate;", KNOWN),
             Location("/intent/", "once on;", SINGLE, "once_lease 1s;", "once_takeover escalate;", "once_intent on;", STORED),
             Location("/elsewhere/", "once on;", SINGLE, "once_lease 1s;", "once_takeover rerun;", "once_complete nowhere header=X-Test;"),
             Location("/plain/", "once on;", SINGLE, "once_lease 1s;", "once_takeover rerun;"))
VIOLENCE = r"exited on signal 9|worker process \d+ exited"
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


class Hook(http.server.ThreadingHTTPServer):
    """A webhook that keeps what it is told; refuses the first `refuse` times."""

    def __init__(self, refuse=0):
        self.told, self.refused, self.refuse = [], 0, refuse
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                refuse = outer.refused < outer.refuse
                outer.refused += refuse
                if not refuse:
                    outer.told.append((dict(self.headers), body))
                self.send_response(503 if refuse else 204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return "http://127.0.0.1:%d/hook" % self.server_port


class Case:
    """A gateway whose completer may begin later; what is abandoned is left by killing the workers."""

    def __init__(self, *arguments, identity=None, complete=True, workers=2, **named):
        self.gateway = Gateway(LOCATIONS, workers=workers, tolerate=VIOLENCE, **named)
        self.more = list(arguments)
        if identity is not None:
            path = self.gateway.path("identity")
            with open(path, "w", encoding="ascii") as file:
                file.write(identity)
            os.chmod(path, 0o600)
            self.more += ["--complete-identity", "app=" + path]
        if complete:
            self.gateway.daemon.arguments = self.completing()
        self.gateway.start()

    def completing(self):
        return ["--complete", "app=http://127.0.0.1:%d" % self.gateway.upstream.port, "--complete-lease", "1s", *self.more]

    def complete(self, daemon=None):
        """From now on."""
        daemon = daemon or self.gateway.daemon
        if daemon.process:
            daemon.end()
        daemon.arguments = self.completing()
        daemon.start()

    def begin(self, path, token, headers=(), body=b'{"amount":25}', method="POST"):
        """A request whose client waits for the answer."""
        client = Client(self.gateway.port)
        client.send(request_bytes(method, path, [("Host", "g"), ("Idempotency-Key", '"%s"' % token), ("X-Test", token),
                                                 ("Content-Type", "application/json"), *headers,
                                                 ("Content-Length", str(len(body)))], body))
        return client

    def abandon(self, *begun):
        """The workers die with all they hold; the clients hear nothing."""
        gateway = self.gateway
        old = gateway.worker_pids()
        for pid in old:
            kill(pid)
        wait_for(lambda: not set(old) & set(gateway.worker_pids()), "the workers' end")
        gateway.wait_for_workers()
        for client in begun:
            client.close()

    def ask(self, path, token, **named):
        """As soon as the gateway has found the daemon again."""
        return self.gateway.ask_until(lambda answer: answer.code() != "store-unavailable", path, token, token, **named)

    def record(self, token):
        return self.gateway.record(token) or {"state": "absent"}

    def wait_state(self, token, *states):
        return wait_for(lambda: (lambda r: r if r["state"] in states else None)(self.record(token)),
                        "the record to be %s; it is %s; %s" % (states, self.record(token), self.gateway.daemon.said()[-500:]))

    def sent(self, token):
        """Headers of the requests that had an effect, by lower-case name."""
        return [{name.lower(): value for name, value in effect["headers"]} for effect in self.gateway.upstream.ledger.of(token)]

    def end(self):
        try:
            self.gateway.stop()
            alarms = self.gateway.alarms()
            expect(not alarms, "in the logs:\n" + "\n".join(alarms[:20]))
        finally:
            self.gateway.remove()


# A store that two daemons may use: PostgreSQL, or Redis.
SHARED = os.environ.get("ONCE_TEST_POSTGRES") or ("ONCE_TEST_REDIS" in os.environ and
                                                  "redis+unix:%s?tier=best-effort" % os.environ["ONCE_TEST_REDIS"]) or None
suite = Suite()


def case(function):
    def run():
        function()
    suite.add(function.__name__, run)
    return function


def abandon_each(c, paths, headers=()):
    """A held request at each of these, abandoned; nobody but the next who asks is answered."""
    tokens = [new_token("left") for _ in paths]
    clients = [c.begin(path, token, headers) for path, token in zip(paths, tokens)]
    wait_for(lambda: all(c.gateway.effects(token) for token in tokens), "the effects")
    c.abandon(*clients)
    for token in tokens:
        expect_equal(c.record(token)["state"], "running", "what was abandoned")
        c.gateway.upstream.open_gate(token)
    return tokens


def completed(c, path="/rerun/held"):
    """The completer has been through everything that there was before: it finished one that came later."""
    c.ask("/plain/normal", new_token("up"))  # the (only) worker has found the daemon again
    token, = abandon_each(c, [path])
    return c.wait_state(token, "succeeded", "unknown")


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
    c = Case(identity="Authorization: Bearer of-the-daemon\n# a comment\nX-Service: once\n", complete=False)
    try:
        token = new_token("again")
        client = c.begin("/known/held?q=1&r=%2F", token, SECRETS)
        wait_for(lambda: c.gateway.effects(token) == 1, "the first effect")
        c.abandon(client)
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
        plain, stored = new_token("plain"), new_token("stored")
        clients = c.begin("/plain/held", plain), c.begin("/rerun/held", stored)
        wait_for(lambda: c.gateway.effects(plain) and c.gateway.effects(stored), "the effects")
        c.gateway.upstream.open_gate(stored)
        c.abandon(*clients)
        c.wait_state(stored, "succeeded")
        expect_equal((c.record(plain)["state"], c.gateway.effects(plain)), ("running", 1), "what was not stored")
    finally:
        c.end()


@case
def its_own_retryable_failure_is_tried_again_until_it_succeeds():
    c = Case()
    try:
        fails, resets = abandon_each(c, ["/rerun/held_fails_once", "/rerun/held_resets_once"])
        for token in fails, resets:
            record = c.wait_state(token, "succeeded")
            expect_equal((record["attempt"], record["status"], c.gateway.effects(token)), (3, 200, 3), "attempts, status, effects")
        answer = c.ask("/rerun/held_resets_once", resets, headers=[("Content-Type", "application/json")])
        expect(answer.replayed and answer.body == b"well 3", "the retry: %s" % answer)
    finally:
        c.end()


@case
def what_a_daemon_left_failed_is_tried_again_by_the_next():
    """C5: that no client was told is in the record, not in the process."""
    c = Case("--complete-attempts", "20", daemon_env={"ONCE_CRASH": "completer.finished:1"})
    try:
        token = new_token("next")
        client = c.begin("/rerun/held_fails_once", token)
        wait_for(lambda: c.gateway.effects(token), "the effect")
        c.abandon(client)
        expect_equal(c.gateway.daemon.reap(), -signal.SIGKILL, "the daemon's end")
        record = c.record(token)
        expect_equal((record["state"], record["retryable"], record["status"], c.gateway.effects(token)), ("failed", True, -503, 2),
                     "what it left")
        c.gateway.daemon.start()
        record = c.wait_state(token, "succeeded")
        expect_equal((record["attempt"], record["status"], c.gateway.effects(token)), (3, 200, 3), "attempts, status, effects")
    finally:
        c.end()


@case
def failure_that_was_answered_is_left_to_the_client():
    """C5: also where the daemon's rights would get it through, and where it could not send it at all."""
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
        seen = lambda token: ({name: value for name, value in c.record(token).items() if name != "age_ms"}, c.gateway.effects(token))
        before = {token: seen(token) for _, _, token, _ in told}
        # Longer than any of them waits: one that was left later has gone through two attempts.
        token, = abandon_each(c, ["/rerun/held_fails_once"])
        c.wait_state(token, "succeeded")
        completed(c)
        for path, name, token, headers in told:
            record = before[token][0]
            expect_equal(seen(token), before[token], "%s: what was answered" % path)
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
    c = Case(identity=DAEMONS, complete=False, workers=1)
    try:
        paths = ["/rerun/held", "/known/held"]
        plain, known = abandon_each(c, paths)
        secret, known_secret = abandon_each(c, paths, SECRETS[:1])
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
    c = Case(identity=DAEMONS, workers=1)
    try:
        path = c.gateway.path("identity")
        os.rename(path, path + ".away")
        token, = abandon_each(c, ["/known/held"], SECRETS[:1])
        wait_for(lambda: "what needs it waits" in c.gateway.daemon.said(), "the log")
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
        token, = abandon_each(c, ["/rerun/held_503"])
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
    c = Case(complete=False)
    try:
        token = new_token("declined")
        client = c.begin("/rerun/held_unread", token)
        wait_for(lambda: any(seen[0] == token for seen in c.gateway.upstream.seen), "the request")
        c.abandon(client)
        c.gateway.upstream.open_gate(token)
        c.complete()
        c.wait_state(token, "succeeded")
        final = new_token("402")
        expect_equal(c.ask("/rerun/status_402", final).status, 402, "declined")
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
    c = Case("--escalate-webhook", hook.url, "--escalate-secret", "SECRET", "--http", "127.0.0.1:%d" % port, complete=False)
    try:
        with open(c.gateway.path("secret"), "w", encoding="ascii") as file:
            file.write("whsec_" + secret + "\n")
        c.more[c.more.index("SECRET")] = c.gateway.path("secret")
        one, two = new_token("one"), new_token("two")
        clients = c.begin("/escalate/held", one), c.begin("/escalate/held", two)
        wait_for(lambda: c.gateway.effects(one) and c.gateway.effects(two), "the effects")
        c.abandon(*clients)
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
        metrics = urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port).read().decode()
        for line in ("once_escalations_total 2", "once_escalations_told_total 2", 'once_completer_ended_total{how="escalated"} 2'):
            expect(line in metrics, "%s is not in the metrics: %s" % (line, metrics[-1500:]))
        log = [line for line in c.gateway.daemon.said().splitlines() if "escalated" in line]
        expect(len(log) == 2 and not any(key in line for line in log for key in (one, two)), "the log, of ids only: %s" % log)
        listed = subprocess.run([ONCE, "keys", "list", "--state", "unknown", "--store", "once:" + c.gateway.daemon.socket],
                                stdout=subprocess.PIPE, text=True).stdout
        expect(one in listed and two in listed, "keys list --state unknown: %s" % listed)
        # One happened, says a person: that is the answer. The other did not: the completer, or a retry, sends it again.
        resolve(c, one, "--done", "--status", "201", "--reason", "the provider has it")
        answer = c.ask("/escalate/held", one, headers=[("Content-Type", "application/json")])
        expect(answer.status == 201 and answer.replayed, "after 'done': %s" % answer)
        c.gateway.upstream.open_gate(two)
        resolve(c, two, "--not-done", "--reason", "the provider does not have it")
        c.wait_state(two, "succeeded")
        expect_equal(c.gateway.effects(two), 2, "effects after 'not done'")
        shown = subprocess.run([ONCE, "keys", "show", "--store", "once:" + c.gateway.daemon.socket, two],
                               stdout=subprocess.PIPE, text=True).stdout
        expect("the provider does not have it" in shown, "the audit trail: %s" % shown)
    finally:
        c.end()
        hook.shutdown()


@case
def a_finish_as_unknown_is_told_too():
    hook = Hook()
    c = Case("--escalate-webhook", hook.url)
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
        hook.shutdown()


@case
def what_a_service_says_over_http_is_told_too():
    hook, port = Hook(), free_port()
    c = Case("--escalate-webhook", hook.url, "--http", "127.0.0.1:%d" % port)
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
        hook.shutdown()


@case
def credentials_that_are_not_there_are_not_guessed():
    c = Case(complete=False, workers=1)
    try:
        elsewhere, open_to_all = abandon_each(c, ["/elsewhere/held", "/rerun/held"])
        token, known = abandon_each(c, ["/rerun/held", "/known/held"], SECRETS[:1])
        c.complete()
        c.wait_state(open_to_all, "succeeded")
        for t in token, known:
            c.wait_state(t, "unknown")
            expect_equal(c.gateway.effects(t), 1, "effects")
            wait_for(lambda: any("no identity" in line and t in line for line in c.gateway.daemon.said().splitlines()), "the log")
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
        token, = abandon_each(c, ["/rerun/held_503"])
        c.wait_state(token, "unknown")
        expect_equal(c.gateway.effects(token), 3, "effects")
        expect("too many attempts" in c.gateway.daemon.said(), "the log")
    finally:
        c.end()


@case
def a_request_that_kills_whoever_sends_it_is_not_sent_for_ever():
    """F9: the daemon dies each time, just when it sends."""
    c = Case(complete=False)
    try:
        token = new_token("poison")
        client = c.begin("/rerun/held", token)
        wait_for(lambda: c.gateway.effects(token), "the effect")
        c.abandon(client)
        daemon = c.gateway.daemon
        daemon.end()
        daemon.arguments = c.completing()
        for _ in range(3):
            daemon.start(env={"ONCE_CRASH": "completer.sending:1:kill"}, ready=False)  # it may not come to that
            daemon.process.wait(BOUND_S)
            daemon.process.stdout.close()
        daemon.start(env={"ONCE_CRASH": "completer.sending:1:kill"})
        c.wait_state(token, "unknown")
        expect_equal(c.gateway.effects(token), 1, "effects")
        expect("nobody ended" in daemon.said(), "the log: %s" % daemon.said())
    finally:
        c.end()


@case
def a_daemon_that_dies_in_the_middle_is_followed_by_another():
    """At each of the completer's points: whatever was stored stays, and it ends once."""
    for point in ("completer.taken", "completer.sending", "completer.answered", "completer.finished"):
        c = Case(complete=False)
        try:
            token = new_token("dies")
            client = c.begin("/rerun/held", token)
            wait_for(lambda: c.gateway.effects(token), "the effect")
            c.abandon(client)
            c.gateway.upstream.open_gate(token)
            daemon = c.gateway.daemon
            daemon.end()
            expect_equal(c.gateway.record(token)["state"], "running", "what was abandoned")
            daemon.arguments = c.completing()
            daemon.start(env={"ONCE_CRASH": point + ":1:kill"}, ready=False)
            expect_equal(daemon.process.wait(BOUND_S), -signal.SIGKILL, "the daemon's end at " + point)
            daemon.process.stdout.close()
            daemon.start()
            record = c.wait_state(token, "succeeded")
            effects = c.gateway.effects(token)
            expect(effects <= record["attempt"], "more effects than attempts: %d, %s" % (effects, record))
            answer = c.ask("/rerun/held", token, headers=[("Content-Type", "application/json")])
            expect(answer.replayed and answer.status == 201, "the retry: %s" % answer)
        finally:
            c.end()


@case
def intent_that_was_not_marked_is_completed_also_under_escalate():
    """Everything dies between claim and mark: nothing was sent, so the completer may send it."""
    c = Case(complete=False, workers=1)
    try:
        daemon = c.gateway.daemon
        for _ in range(5):  # until nothing else was asked of the daemon in between: then its fifth batch is the mark
            warm, token = new_token("warm"), new_token("unsent")
            if daemon.process:
                daemon.end()
            daemon.start(env={"ONCE_CRASH": "engine.taken:5:stop"})
            c.gateway.ask_until(lambda answer: answer.status == 201, "/intent/normal", warm, warm)
            client = c.begin("/intent/normal", token)
            pid = daemon.process.pid
            wait_for(lambda: open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0] in "Tt", "the daemon to stop")
            daemon.end(signal.SIGKILL)
            c.abandon(client)
            record = c.record(token)
            if record["state"] == "running" and not record["recovery_point"]:
                break
        expect_equal((record["state"], c.gateway.effects(token)), ("running", 0), "what was left behind")
        daemon.arguments = c.completing()
        daemon.start()
        record = c.wait_state(token, "succeeded")
        expect_equal((c.gateway.effects(token), record["attempt"]), (1, 2), "effects and attempts")
    finally:
        c.end()


@case
def two_completers_and_a_retrying_client():
    """Each abandoned key ends once, whoever gets it; all who ask are told the same."""
    store = SHARED
    keys = [new_token("many") for _ in range(100 * SIZE)]
    c = Case(complete=False, store=store)
    other = Daemon(c.gateway.folder, c.gateway.daemon.store, name="other")
    try:
        clients = in_parallel(lambda token: c.begin("/rerun/held", token), keys, width=16)
        wait_for(lambda: sum(1 for _ in open(c.gateway.upstream.ledger.path, encoding="utf-8")) >= len(keys), "the effects")
        c.abandon(*clients)
        for token in keys:
            c.gateway.upstream.open_gate(token)
        ask = lambda token: c.gateway.ask_until(lambda a: a.status not in (409, 503), "/rerun/held", token, token,
                                                headers=[("Content-Type", "application/json")])
        asked = keys[::3]
        answers = {token: ask(token) for token in asked[:3]}  # surely by their clients; for the others it is a race
        if store:
            c.complete(other)
        c.complete()
        answers.update(zip(asked[3:], in_parallel(ask, asked[3:], width=8)))
        wait_for(lambda: (lambda all_of: all(all_of[("", token)]["state"] == "succeeded" for token in keys))(c.gateway.records()),
                 "all to be done", bound=BOUND_S * 2)
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
            expect(len(effects[token]) == record["attempt"] == 2, "effects %d, %s" % (len(effects[token]), record))
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
        suite.run(width=6)


main()
