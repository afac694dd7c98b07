#!/usr/bin/env python3
"""Metrics agree with a known workload exactly: what was counted in is what the sums say, by route and outcome.

Every request is asked for by the test and its answer is known, so each has one place where it must be counted, once:
also when a worker's connection to the daemon breaks and what was under way is sent again. Where the daemon was late there is
more to count than was asked for: such a case is done again, with another gateway."""
import functools
import os
import re
import socket
import subprocess
import threading
import urllib.request

from gateway import (BOUND_S, COUNTED, Client, Failed, Gateway, Late, Location, Suite, expect, expect_equal, in_parallel, is_answered, new_token,
                     quiet_end, request_bytes, wait_for, SIZE, ONCE)
from lib.listener import Listener, in_thread

suite = Suite()
SINGLE = "once_tenant -;"
ROUTES = {
    "/plain/": (),                                    # the location's name
    "/named/": ("once_route orders;",),
    "/by/": ("once_route $arg_route;",),              # whatever a variable holds
    "/none/": ("once_route -;",),
    "/refused/": ("once_route refused;",),
    "/rerun/": ("once_takeover rerun;", "once_route rerun;"),
}
LOCATIONS = [Location(prefix, "once on;", SINGLE, *once, to="refusing" if prefix == "/refused/" else "app") for prefix, once in ROUTES.items()]


# ------------------------------------------------------------------ reading

LINE = re.compile(r'^([a-z_]+)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


class Scrape:
    """All samples: name and labels to value."""

    def __init__(self, text):
        self.values = {}
        for line in text.splitlines():
            if line.startswith("#") or not line:
                continue
            match = LINE.match(line)
            expect(match, "this is no sample: %r" % line)
            labels = frozenset((name, re.sub(r"\\(.)", r"\1", value)) for name, value in LABEL.findall(match[2] or ""))
            expect((match[1], labels) not in self.values, "twice: %s" % line)
            self.values[match[1], labels] = float(match[3])

    def __call__(self, name, **labels):
        return self.values.get((name, frozenset(labels.items())), 0)

    def sum(self, name, **labels):
        wanted = set(labels.items())
        return sum(value for (n, have), value in self.values.items() if n == name and wanted <= have)

    def routes(self, name):
        return {dict(labels).get("route", "") for (n, labels) in self.values if n == name}


def scrape(port):
    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=BOUND_S) as answer:
        return Scrape(answer.read().decode())


class Book:
    """What the test itself counted: (route, arm) and (route, state)."""

    def __init__(self):
        self.lock = threading.Lock()
        self.claims, self.outcomes = {}, {}

    def claim(self, route, arm):
        with self.lock:
            self.claims[route, arm] = self.claims.get((route, arm), 0) + 1

    def outcome(self, route, state):
        with self.lock:
            self.outcomes[route, state] = self.outcomes.get((route, state), 0) + 1

    def check(self, before, after, exact=True):
        for kind, name, label, book in (("claims", "once_claims_total", "arm", self.claims), ("outcomes", "once_outcomes_total", "state", self.outcomes)):
            seen = {}
            for (n, labels), value in after.values.items():
                if n == name and value != before.values.get((n, labels), 0):
                    labels = dict(labels)
                    seen[labels.get("route", ""), labels[label]] = value - before.values.get((n, frozenset(labels.items())), 0)
            expect_equal(seen, book, kind)
        claims, answered = sum(self.claims.values()), sum(n for (_, state), n in self.outcomes.items() if state != "released")
        expect_equal(after.sum("once_claim_seconds_count") - before.sum("once_claim_seconds_count"), claims - WAITED, "timed claims")
        expect_equal(after.sum("once_finish_seconds_count") - before.sum("once_finish_seconds_count"), answered, "timed finishes")
        expect_equal(after("once_executions_total") - before("once_executions_total"),
                     sum(n for (_, arm), n in self.claims.items() if arm in ("execute", "probe")), "executions")
        expect_equal(after("once_replays_total") - before("once_replays_total"),
                     sum(n for (_, arm), n in self.claims.items() if arm == "replay"), "replays")
        for name in ("once_claim_seconds", "once_finish_seconds"):
            for route in after.routes(name + "_count"):
                labels = {"route": route} if route else {}
                expect_equal(after(name + "_bucket", le="+Inf", **labels), after(name + "_count", **labels), "the last bucket of %s" % name)


WAITED = 0  # claims that waited for another's outcome are not timed


# ------------------------------------------------------------------ the workload

def counting(function):
    """A case that counts at `gateway`: what came too late is counted, too, whenever that is, so another one takes its place."""
    @suite.case
    @functools.wraps(function)
    def whole():
        try:
            function()
        except Late:
            quiet_end(gateway)
            begin()
            raise


def arrives(at, client, token):
    """A request that was sent is held by the service."""
    wait_for(lambda: at.effects(token) == 1 or is_answered(client), "it to arrive")
    if at.effects(token) != 1:
        raise Late() if client.read().code() == "store-unavailable" else Failed("an answer where none was due")


def fresh(book, path, route, **named):
    key, token = new_token("key"), new_token()
    answer = gateway.ask(path, key, token, **named)
    expect_equal((answer.status, answer.replayed), (201, False), "a first request to %s" % path)
    book.claim(route, "execute")
    book.outcome(route, "succeeded")
    return key, token


def one_of_each(book, number):
    prefix, route = [("/plain/normal", "/plain/"), ("/named/normal", "orders"), ("/by/normal?route=a", "a"), ("/none/normal", "")][number % 4]
    base = prefix.split("normal")[0]
    key, token = fresh(book, prefix, route)
    for _ in range(number % 3 + 1):
        expect(gateway.ask(prefix, key, token).replayed, "no replay")
        book.claim(route, "replay")
    expect_equal(gateway.ask(prefix, key, token, body=b'{"amount":26}').status, 422, "another body")
    book.claim(route, "mismatch")
    # Somebody is at it.
    key, token = new_token("key"), new_token()
    held = prefix.replace("normal", "held")
    with Client(gateway.port) as first:
        first.send(request_bytes("POST", held, [("Host", "x"), ("Idempotency-Key", '"%s"' % key), ("X-Test", token), ("Content-Length", "2")], b"{}"))
        arrives(gateway, first, token)
        try:
            for _ in range(2):
                expect_equal(gateway.ask(held, key, token, body=b"{}").status, 409, "in progress")
                book.claim(route, "in progress")
        finally:
            gateway.upstream.open_gate(token)
        expect_equal(first.read().status, 201, "the first answer")
    book.claim(route, "execute")
    book.outcome(route, "succeeded")
    # Nobody knows how it ended.
    key, token = new_token("key"), new_token()
    broken = prefix.replace("normal", "close_after_reading")
    expect_equal(gateway.ask(broken, key, token).status, 502, "an answer that broke off")
    book.claim(route, "execute")
    book.outcome(route, "unknown")
    expect_equal(gateway.ask(broken, key, token).status, 502, "its retry")
    book.claim(route, "unknown")
    # Nothing of the daemon's: no key, a key that is none, reading.
    for answer in (gateway.ask(prefix, None, new_token()), gateway.ask(prefix, b'"', new_token()), gateway.ask(prefix, key, new_token(), method="GET", body=None)):
        expect(answer.status in (201, 400, 200), "a request without a claim: %s" % answer)
    del base


@counting
def sums_agree_with_a_known_workload():
    book, before = Book(), scrape(http)
    in_parallel(lambda n: one_of_each(book, n), range(16 * SIZE), 8)
    for _ in range(3):  # refused before a byte was sent: released, and free again
        key = new_token("key")
        for _ in range(2):
            expect_equal(gateway.ask("/refused/normal", key, new_token()).status, 502, "a service that is not there")
            book.claim("refused", "execute")
            book.outcome("refused", "released")
    for _ in range(3):  # failed, and may be tried again
        key, token = new_token("key"), new_token()
        expect_equal(gateway.ask("/rerun/fails_once", key, token).status, 503, "a failure")
        book.claim("rerun", "execute")
        book.outcome("rerun", "failed")
        expect_equal(gateway.ask("/rerun/fails_once", key, token).status, 200, "its retry")
        book.claim("rerun", "execute")
        book.outcome("rerun", "succeeded")
    book.check(before, scrape(http))


@counting
def routes_that_do_not_fit_are_made_to():
    book, before = Book(), scrape(http)
    fresh(book, "/by/normal?route=" + "x" * 200, "x" * 64)
    fresh(book, "/by/normal?route=%22%5C", "%22%5C")
    fresh(book, "/by/normal?route=\"\\", "\"\\")
    fresh(book, "/by/normal", "")
    fresh(book, "/by/normal?route=caf\xe9", "caf_")
    book.check(before, scrape(http))


@suite.case
def many_routes_are_other():
    """Names come from outside: there are 62 of them, then "other", in the numbers and in the records."""
    with_many = Gateway([Location("/by/", "once on;", SINGLE, "once_route $arg_route;")])
    with_many.patient = COUNTED
    port = free_http(with_many)
    with_many.start()
    before, book = scrape(port), Book()
    for n in range(76):
        expect_equal(with_many.ask("/by/normal?route=r%d" % n, new_token("key"), new_token()).status, 201, "status")
        book.claim("r%d" % n if n < 62 else "other", "execute")
        book.outcome("r%d" % n if n < 62 else "other", "succeeded")
    book.check(before, scrape(port))
    records = with_many.records().values()
    expect_equal(sum(r["route"] == "other" for r in records), 14, "records that are other")
    expect_equal(len({r["route"] for r in records}), 63, "routes in the records")
    with_many.stop()
    with_many.remove()


@suite.case
def records_are_found_by_their_route():
    key, token = new_token("key"), new_token()
    expect_equal(gateway.ask("/by/normal?route=found", key, token, patient=True).status, 201, "status")
    expect_equal(gateway.ask("/by/normal?route=found", key, token, patient=True).replayed, True, "replay")
    expect_equal(gateway.record(key)["route"], "found", "the record's route")
    run = subprocess.run([ONCE, "keys", "list", "--route", "found", "--quiet", "--store", "once:" + gateway.daemon.socket], stdout=subprocess.PIPE, text=True)
    expect_equal([line.split()[0] for line in run.stdout.splitlines()], ["KEY", key], "once keys list --route")
    run = subprocess.run([ONCE, "keys", "list", "--route", "nobody's", "--quiet", "--store", "once:" + gateway.daemon.socket], stdout=subprocess.PIPE, text=True)
    expect_equal(run.stdout, "", "another route")


# ------------------------------------------------------------------ connections that break

class Relay(Listener):
    """Between nginx and the daemon: passes everything on, and cuts when told to, after it passed on a request to the daemon,
    and before its answer."""

    def __init__(self, path, to):
        self.to, self.cutting, self.lock = to, False, threading.Lock()
        super().__init__(self.connect, path)
        os.chmod(path, 0o666)

    def connect(self, near):
        far = socket.socket(socket.AF_UNIX)
        far.connect(self.to)
        in_thread(self.carry, near, far, False)
        self.carry(far, near, True)

    def carry(self, source, target, answers):
        try:
            while data := source.recv(65536):
                if answers and self.cutting:
                    with self.lock:
                        swallowed = self.cutting
                        self.cutting = False
                    if swallowed:
                        break  # the daemon did it, and nobody hears of that
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut_next_answer(self):
        with self.lock:
            self.cutting = True


@suite.case
def what_is_sent_again_is_counted_once():
    """The daemon answers, the answer is lost, nginx asks again: claims, finishes and replays count once."""
    own = Gateway([Location("/plain/", "once on;", SINGLE)])
    own.patient = COUNTED
    port = free_http(own)
    own.daemon.start()
    real = own.daemon.socket
    relay = Relay(os.path.join(own.folder, "relay.sock"), real)
    own.daemon.socket = os.path.join(own.folder, "relay.sock")
    own.start_nginx()
    own.daemon.socket = real
    expect_equal(own.ask("/plain/normal", new_token("key"), new_token()).status, 201, "the gateway")
    book, before = Book(), scrape(port)
    for n in range(6):
        key, token = new_token("key"), new_token()
        relay.cut_next_answer()  # of the claim
        expect_equal(own.ask("/plain/normal", key, token).status, 201, "an answer over a connection that broke")
        expect(not relay.cutting, "nothing was cut")
        book.claim("/plain/", "execute")
        book.outcome("/plain/", "succeeded")
        relay.cut_next_answer()  # of the replay
        expect(own.ask("/plain/normal", key, token).replayed, "no replay")
        book.claim("/plain/", "replay")
        key, token = new_token("key"), new_token()
        with Client(own.port) as client:
            client.send(request_bytes("POST", "/plain/held", [("Host", "x"), ("Idempotency-Key", '"%s"' % key), ("X-Test", token), ("Content-Length", "0")], b""))
            arrives(own, client, token)
            relay.cut_next_answer()  # of the finish
            own.upstream.open_gate(token)
            expect_equal(client.read().status, 201, "the answer")
        book.claim("/plain/", "execute")
        book.outcome("/plain/", "succeeded")
    expect_equal(own.effects(token), 1, "effects")
    book.check(before, scrape(port))
    relay.close()
    own.stop()
    own.remove()


def free_http(of):
    """The daemon's HTTP port: chosen before, so that it is known."""
    from lib.ports import free_port
    port = free_port()
    of.daemon.arguments = ["--http", "127.0.0.1:%d" % port]
    return port


def begin():
    global gateway, http
    gateway = Gateway(LOCATIONS, workers=2)
    gateway.patient = COUNTED
    http = free_http(gateway)
    gateway.start()


def main():
    suite.require()
    begin()
    suite.run(width=1, gateways=[("the gateway", lambda: gateway)])


main()
