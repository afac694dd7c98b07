#!/usr/bin/env python3
"""Reloads, exits and restarts with claims in flight (FAULT-5) lose nothing and repeat nothing. While the
daemon is away keyed requests get 503 + Retry-After and are not forwarded (fail closed), and
afterwards the workers are connected again by themselves.

SIZE=N makes the loads N times as long.
"""
import collections
import json
import os
import signal
import socket
import threading
import time

from gateway import (BOUND_S, Client, Closed, Gateway, Location, SINGLE, SIZE, Suite, children_of, expect, expect_equal,
                     new_token, request_bytes, wait_for, is_alive, is_open)
from abandoned import hold
from lib import wireclient as w
from way import Way, is_call

LOCATIONS = (Location("/on/", "once on;", SINGLE, "once_lease 1s;"),
             Location("/rerun/", "once on;", SINGLE, "once_lease 1s;", "once_takeover rerun;"),
             Location("/wait/", "once on;", SINGLE, "once_wait 300s;"),
             Location("/pass/", "once on;", SINGLE, "once_store_down pass;"),
             Location("/plain/"))
VIOLENCE = r"exited on signal 9|worker process \d+ exited on signal"

suite = Suite()


def begin(gateway, path, token):
    client = Client(gateway.port)
    client.send(request_bytes("POST", path, [("Host", "g"), ("Idempotency-Key", '"%s"' % token), ("X-Test", token),
                                             ("Content-Length", "2")], b"{}"))
    return client


def begin_held(gateway, path, tokens):
    """A request for each of these, all of which the upstream has worked on and does not answer yet."""
    clients = [hold(gateway, lambda: begin(gateway, path, token), token) for token in tokens]
    wait_for(lambda: all(gateway.effects(token) for token in tokens), "the effects")
    return clients


def told(gateway, client, path, token):
    """What one that waited is told; whose worker found no daemon in time asks again."""
    answer = client.read()
    client.close()
    if answer.code() == "store-unavailable":
        answer = gateway.ask_until(lambda a: a.status not in (409, 503), path, token, token, body=b"{}")
    return answer


class Load:
    """Clients that each send a request under a new key, and repeat it until its answer is final."""

    def __init__(self, gateway, path="/on/normal", width=4):
        self.gateway, self.path = gateway, path
        self.ended = False
        self.done = []          # (token, the final answer, how often it was asked, how often it was turned away)
        self.wrong = []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(width)]
        for thread in self.threads:
            thread.start()

    def run(self):
        while not self.ended:
            token, asked, turned_away = new_token("load"), 0, 0
            answer = None
            while answer is None:
                if asked > 0:
                    time.sleep(0.005)
                asked += 1
                try:
                    answer = self.gateway.ask(self.path, token, token, body=b"{}")
                except (Closed, OSError):
                    continue
                if answer.status == 503:
                    turned_away += 1
                    if not (answer.get("Retry-After") or "").isdigit() or answer.problem() is None:
                        self.wrong.append(answer)
                if answer.status in (409, 503):
                    answer = None
            with self.lock:
                self.done.append((token, answer, asked, turned_away))

    def count(self):
        with self.lock:
            return len(self.done)

    def wait_for_more(self, count):
        goal = self.count() + count
        wait_for(lambda: self.count() >= goal, "more of the load")

    def end(self, unknown_allowed=False):
        self.ended = True
        for thread in self.threads:
            thread.join()
        expect(not self.wrong, "503 without Retry-After or problem document: %s" % self.wrong[:1])
        with open(self.gateway.upstream.ledger.path, encoding="utf-8") as file:
            counted = collections.Counter(json.loads(line)["token"] for line in file)
        for token, answer, asked, turned_away in self.done:
            effects = counted[token]
            expect(effects <= 1, "%d effects of %s after %d requests" % (effects, token, asked))
            if answer.status == 201:
                expect_equal(effects, 1, "effects")
                expect(token in str(answer.body), "another's answer: %s" % answer)
            else:  # or a worker went while it still waited for a claim that its client was not told about
                expect(unknown_allowed or turned_away, "the answer, to one that was never turned away: %s" % answer)
                expect_equal(answer.code() and "unknown" in answer.code(), True, "the answer is %s" % answer)
        some = self.done[:: max(1, len(self.done) // 50)]
        for token, answer, _, _ in some:
            retry = self.gateway.ask_until(lambda a: a.status not in (409, 503), self.path, token, token, body=b"{}")
            expect_equal(retry.lasting(), answer.lasting(), "a retry at the end")
        return len(self.done)


class Case:
    """A gateway for one case; ends it and looks at its log."""

    def __init__(self, **named):
        self.gateway = Gateway(LOCATIONS, workers=2, **named)

    def __enter__(self):
        return self.gateway.start()

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.gateway.stop()
                alarms = self.gateway.alarms()
                expect(not alarms, "in nginx's log:\n" + "\n".join(alarms[:20]))
        finally:
            self.gateway.remove()


# ------------------------------------------------------------------ nginx

@suite.case
def reload__what_is_in_flight_is_finished():
    """Old workers stay until theirs are done, then they are gone."""
    with Case() as gateway:
        tokens = [new_token() for _ in range(8)]
        clients = begin_held(gateway, "/wait/held", tokens)
        waiting = [begin(gateway, "/wait/held", token) for token in tokens]
        old = gateway.reload()
        waiting += [begin(gateway, "/wait/held", token) for token in tokens]  # through new workers
        for token in tokens:
            gateway.upstream.open_gate(token)
        answers = [client.read() for client in clients]
        expect_equal({answer.status for answer in answers}, {201}, "the statuses through old workers")
        for token, client in zip(tokens * 2, waiting):
            expect_equal(told(gateway, client, "/wait/held", token).lasting(), answers[tokens.index(token)].lasting(), "an answer after waiting")
        expect_equal({gateway.effects(token) for token in tokens}, {1}, "effects")
        for client in clients:
            client.close()
        wait_for(lambda: not any(is_alive(pid) for pid in old), "the end of the old workers")


@suite.case
def reload__many_under_load():
    with Case() as gateway:
        load = Load(gateway)
        for _ in range(5 * SIZE):
            load.wait_for_more(20)
            gateway.reload()
        load.wait_for_more(20)
        expect(load.end() > 100, "too little load")


@suite.case
def reload__with_the_daemon_away():
    """New workers start without it, and find it when it comes."""
    with Case() as gateway:
        gateway.daemon.end()
        gateway.reload()
        token = new_token()
        expect_equal(gateway.ask("/on/normal", token, token).status, 503, "the status")
        gateway.daemon.start()
        gateway.ask_until(lambda answer: answer.status == 201, "/on/normal", token, token)
        expect_equal(gateway.effects(token), 1, "effects")


# ------------------------------------------------------------------ another binary

@suite.case
def upgrade__what_is_in_flight_is_finished():
    """Two masters serve beside each other, and one record is one record for both. The old one's workers
    stay until theirs are done."""
    with Case(foreground=False) as gateway:
        tokens = [new_token() for _ in range(8)]
        clients = begin_held(gateway, "/wait/held", tokens)
        old = gateway.upgrade()
        waiting = [begin(gateway, "/wait/held", token) for token in tokens]  # through either
        workers = set(children_of(old.pid)) - {gateway.nginx.pid}
        old.send_signal(signal.SIGWINCH)
        waiting += [begin(gateway, "/wait/held", token) for token in tokens]
        gateway.reload()
        waiting += [begin(gateway, "/wait/held", token) for token in tokens]
        for token in tokens:
            gateway.upstream.open_gate(token)
        answers = [client.read() for client in clients]
        expect_equal({answer.status for answer in answers}, {201}, "the statuses through the old master's workers")
        for token, client in zip(tokens * 3, waiting):
            expect_equal(told(gateway, client, "/wait/held", token).lasting(), answers[tokens.index(token)].lasting(), "an answer after waiting")
        for client in clients:
            client.close()
        wait_for(lambda: not any(is_alive(pid) for pid in workers), "the end of the old master's workers")
        old.send_signal(signal.SIGQUIT)
        old.wait()
        for token, answer in zip(tokens, answers):
            retry = gateway.ask_until(lambda a: a.status not in (409, 503), "/wait/held", token, token, body=b"{}")
            expect_equal((retry.replayed, retry.lasting()), (True, answer.lasting()), "a retry of the new master")
        expect_equal({gateway.effects(token) for token in tokens}, {1}, "effects")


@suite.case
def upgrade__many_under_load():
    """And back once: the new master is told to go, the old one serves again."""
    with Case(foreground=False) as gateway:
        load = Load(gateway)
        for round_ in range(3 * SIZE):
            load.wait_for_more(20)
            old = gateway.upgrade()
            load.wait_for_more(20)
            gateway.reload()
            old.send_signal(signal.SIGWINCH)
            load.wait_for_more(20)
            if round_ == 1:
                new, gateway.nginx = gateway.nginx, old
                old.send_signal(signal.SIGHUP)
                wait_for(lambda: len(set(gateway.worker_pids()) - {new.pid}) >= gateway.workers, "the old master's workers")
                new.send_signal(signal.SIGQUIT)
                new.wait()
            else:
                old.send_signal(signal.SIGQUIT)
                old.wait()
        load.wait_for_more(20)
        expect(load.end() > 100, "too little load")


@suite.case
def quit__finishes_what_is_in_flight():
    with Case() as gateway:
        tokens = [new_token() for _ in range(6)]
        clients = begin_held(gateway, "/on/held", tokens)
        gateway.nginx.send_signal(signal.SIGQUIT)
        wait_for(lambda: not is_open(gateway.port), "the end of the listening socket")
        for token in tokens:
            gateway.upstream.open_gate(token)
        expect_equal({client.read().status for client in clients}, {201}, "the statuses")
        gateway.nginx.wait(BOUND_S)
        gateway.start_nginx()
        for token in tokens:
            retry = gateway.ask_until(lambda a: a.status not in (409, 503), "/on/held", token, token, body=b"{}")
            expect(retry.replayed, "the retry is no replay: %s" % retry)
            expect_equal(gateway.effects(token), 1, "effects")


def fast_exit(policy, who):
    """SIGTERM cuts requests off. What was sent is unknown, or is run again where that is allowed."""
    with Case(tolerate=VIOLENCE) as gateway:
        token = new_token()
        client, = begin_held(gateway, "/%s/held" % policy, [token])
        if who == "master":
            gateway.nginx.send_signal(signal.SIGTERM)
            gateway.nginx.wait(BOUND_S)
            gateway.start_nginx()
        else:
            old = gateway.worker_pids()
            for pid in old:
                os.kill(pid, signal.SIGTERM)
            wait_for(lambda: not set(old) & set(gateway.worker_pids()), "the workers' end")
            if len(gateway.worker_pids()) == 0:  # the master does not start those again that were told to go
                gateway.end_nginx()
                gateway.start_nginx()
        client.close()
        gateway.upstream.open_gate(token)
        retry = gateway.ask_until(lambda answer: answer.status not in (409, 503), "/%s/held" % policy, token, token, body=b"{}")
        if policy == "on":
            expect("unknown" in (retry.code() or ""), "the retry: %s" % retry)
            expect_equal(gateway.effects(token), 1, "effects")
        else:
            expect_equal((retry.status, gateway.effects(token)), (201, 2), "the retry")


# ------------------------------------------------------------------ the daemon

def daemon_away(number):
    """503 + Retry-After, nothing forwarded; what needs no store is served; then all is as before."""
    with Case() as gateway:
        before = new_token()
        first = gateway.ask_until(lambda answer: answer.status == 201, "/on/normal", before, before)
        gateway.daemon.end(number)
        for path in ("/on/normal", "/rerun/normal", "/wait/normal"):
            for key in (new_token(), before):
                token = new_token()
                answer = gateway.ask(path, key, token)
                expect_equal(answer.status, 503, "the status")
                expect((answer.get("Retry-After") or "").isdigit(), "Retry-After: %s" % answer.get("Retry-After"))
                expect(answer.problem() and answer.problem()["retryable"] is True, "the problem: %s" % answer)
                expect_equal(gateway.effects(token), 0, "effects")
        for path, key in (("/plain/normal", "k"), ("/on/normal", None), ("/pass/normal", "k")):
            token = new_token()
            expect_equal(gateway.ask(path, key, token).status, 201, "the status of %s with key %s" % (path, key))
            expect_equal(gateway.effects(token), 1, "effects")
        gateway.daemon.start()
        retry = gateway.ask_until(lambda answer: answer.status != 503, "/on/normal", before, before)
        expect_equal((retry.replayed, retry.lasting()), (True, first.lasting()), "the retry")
        tokens = [new_token() for _ in range(20)]  # both workers
        for token in tokens:
            gateway.ask_until(lambda answer: answer.status == 201, "/on/normal", token, token)
        expect_equal({gateway.effects(token) for token in tokens}, {1}, "effects")


def daemon_restarts_under_load(number):
    """Again and again. Whatever was told to a client holds."""
    with Case() as gateway:
        load = Load(gateway)
        for _ in range(3 * SIZE):
            load.wait_for_more(20)
            gateway.daemon.end(number)
            token = new_token()  # those under way wait for its return; a new one is told at once
            gateway.ask_until(lambda answer: answer.status == 503, "/on/normal", token, token)
            expect_equal(gateway.effects(token), 0, "effects")
            gateway.daemon.start()
        load.wait_for_more(20)
        expect(load.end(unknown_allowed=True) > 60, "too little load")


def daemon_away_in_flight(number):
    """It goes while the upstream works and is back before the answer: the outcome is stored, or honest."""
    with Case() as gateway:
        tokens = [new_token() for _ in range(4)]
        clients = begin_held(gateway, "/wait/held", tokens)
        gateway.daemon.end(number)
        gateway.daemon.start()
        probe = new_token()
        gateway.ask_until(lambda answer: answer.status == 201, "/on/normal", probe, probe)
        for token in tokens:
            gateway.upstream.open_gate(token)
        for token, client in zip(tokens, clients):
            answer = client.read()
            client.close()
            retry = gateway.ask_until(lambda a: a.status not in (409, 503), "/wait/held", token, token, body=b"{}")
            expect_equal(gateway.effects(token), 1, "effects")
            if answer.status == 201:
                expect_equal((retry.replayed, retry.lasting()), (True, answer.lasting()), "the retry")
            else:
                expect(answer.problem() is not None, "the first answer: %s" % answer)
                expect(retry.status == 201 or "unknown" in (retry.code() or ""), "the retry: %s" % retry)


@suite.case
def who_left_before_a_refusal_is_gone():
    """What is answered without asking the daemon finds nobody there: the request ends once, and its connection with it."""
    gateway = Gateway((*LOCATIONS, Location("/known/", "once on;", SINGLE, "once_fingerprint credentials;"),
                       Location("/natural/", "once required;", SINGLE, "once_key_natural $once_json_order;")), workers=1)
    try:
        gateway.start_nginx()
        worker, = gateway.worker_pids()

        def key(text=None):
            return "Idempotency-Key", '"%s"' % new_token() if text is None else text

        def leave(path, *headers):
            os.kill(worker, signal.SIGSTOP)  # so that the reset is there before the request is read
            try:
                client = Client(gateway.port)
                client.send(request_bytes("POST", path, [("Host", "g"), *headers, ("Content-Length", "2")], b"{}"))
                client.reset()
            finally:
                os.kill(worker, signal.SIGCONT)
            expect_equal(gateway.ask("/plain/normal", None, new_token()).status, 201, "the next request")
        for _ in range(5):
            leave("/on/normal", key())
            leave("/wait/normal", key())
        gateway.daemon.start()
        token = new_token()
        gateway.ask_until(lambda answer: answer.status == 201, "/on/normal", token, token)
        for _ in range(5):
            leave("/known/normal", key(), *[("X-Api-Key", "%d" % n) for n in range(70)])
            leave("/natural/normal", ("Content-Type", "application/json"))
            leave("/on/normal", key('"'))
        expect_equal(gateway.worker_pids(), [worker], "the worker")
        gateway.stop()
        expect(not gateway.alarms(), "in nginx's log: %s" % gateway.alarms()[:5])
    finally:
        gateway.remove()


@suite.case
def nginx_starts_without_the_daemon():
    gateway = Gateway(LOCATIONS, workers=2)
    try:
        gateway.start_nginx()
        token = new_token()
        expect_equal(gateway.ask("/on/normal", token, token).status, 503, "the status")
        gateway.daemon.start()
        gateway.ask_until(lambda answer: answer.status == 201, "/on/normal", token, token)
        expect_equal(gateway.effects(token), 1, "effects")
        gateway.stop()
        expect(not gateway.alarms(), "in nginx's log: %s" % gateway.alarms()[:5])
    finally:
        gateway.remove()


@suite.case
def a_daemon_that_is_silent_does_not_hang_clients():
    """Stopped, not dead: keyed requests are answered all the same, in time, and go on afterwards."""
    with Case() as gateway:
        token = new_token()
        gateway.ask_until(lambda answer: answer.status == 201, "/on/normal", token, token)
        gateway.daemon.process.send_signal(signal.SIGSTOP)
        try:
            other = new_token()
            client = begin(gateway, "/on/normal", other)
            answer = client.read()
            client.close()
            expect_equal(answer.status, 503, "the status")
            expect_equal(gateway.effects(other), 0, "effects")
        finally:
            gateway.daemon.process.send_signal(signal.SIGCONT)
        gateway.ask_until(lambda a: a.status not in (409, 503), "/on/normal", new_token(), new_token())
        retry = gateway.ask_until(lambda a: a.status not in (409, 503), "/on/normal", token, token)
        expect(retry.replayed, "the retry is no replay: %s" % retry)


class Holding(Way):
    """One on which claims stay until the event says otherwise."""

    def __init__(self, gateway):
        self.claimed, self.go_on = threading.Event(), threading.Event()
        super().__init__(gateway)

    def passes(self, frame):
        if is_call(frame, w.CLAIM):
            self.claimed.set()
            self.go_on.wait()
        return True


def stood_still():
    """Status and effects of a request whose worker stood still for longer than a daemon may take. None: this machine was slow
    beside that, so that 503 is right."""
    gateway = Gateway(LOCATIONS, workers=1)
    try:
        gateway.daemon.start()
        held = Holding(gateway)
        gateway.front = held.path
        gateway.start_nginx()
        token, asked = new_token(), time.monotonic()
        client = begin(gateway, "/on/normal", token)
        wait_for(held.claimed.is_set, "the claim")
        worker, = gateway.worker_pids()
        os.kill(worker, signal.SIGSTOP)
        stopped = time.monotonic()
        wait_for(lambda: time.monotonic() > stopped + 6, "the worker to be late")
        os.kill(worker, signal.SIGCONT)
        again = time.monotonic()
        for _ in range(3):  # it looks at its timers before it answers
            expect_equal(gateway.ask("/plain/normal", None, new_token()).status, 201, "a request without a key")
        held.go_on.set()
        slow = max(stopped - asked, time.monotonic() - again) > 4
        status = client.read().status
        client.close()
        gateway.stop()
        expect(not gateway.alarms(), "in nginx's log: %s" % gateway.alarms()[:5])
        return None if slow and status == 503 else (status, gateway.effects(token))
    finally:
        gateway.remove()


@suite.case
def a_worker_that_stood_still_does_not_blame_the_daemon():
    """As on a machine that was paused: the daemon gets its time anew."""
    expect_equal(wait_for(stood_still, "a machine that is not slow"), (201, 1), "the status and effects")


@suite.case
def a_daemon_that_does_not_say_welcome():
    """It takes connections and says nothing, from the beginning: answered in time all the same, every time."""
    gateway = Gateway(LOCATIONS, workers=2)
    try:
        gateway.daemon.start()
        gateway.daemon.process.send_signal(signal.SIGSTOP)
        gateway.start_nginx()
        clients = [begin(gateway, "/on/normal", new_token()) for _ in range(4)]
        for client in clients:
            expect_equal(client.read().status, 503, "the status")
            client.close()
        gateway.daemon.process.send_signal(signal.SIGCONT)
        token = new_token()
        gateway.ask_until(lambda answer: answer.status == 201, "/on/normal", token, token)
        gateway.stop()
    finally:
        gateway.remove()


@suite.case
def a_daemon_that_refuses():
    """It says why and closes, as to a user who is not allowed: nginx's log has the reason, once, however often it tries."""
    gateway = Gateway(LOCATIONS, workers=1)
    try:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(gateway.daemon.socket)
        listener.listen()
        gateway.start_nginx()
        for _ in range(6):
            peer = listener.accept()[0]
            peer.sendall(w.frame(w.FAILED, bytes([w.UNAVAILABLE]) + w.text("user 33 is not allowed"), 0))
            peer.close()
        wait_for(lambda: "user 33" in gateway.text("error.log"), "the reason")
        log = gateway.text("error.log")
        expect_equal((log.count("refuses the connection: user 33 is not allowed"), log.count("is down")), (1, 0), "how often it was said: %s" % log)
        listener.close()
        gateway.daemon.start()
        token = new_token()
        gateway.ask_until(lambda answer: answer.status == 201, "/on/normal", token, token)
        gateway.stop()
    finally:
        gateway.remove()


@suite.case
def quit__with_a_daemon_that_does_not_answer():
    """A worker that is told to go does not stay for a daemon that is not coming back."""
    with Case() as gateway:
        for _ in range(8):  # both workers are connected
            gateway.ask_until(lambda answer: answer.status == 201, "/on/normal", "first", "first")
        gateway.daemon.process.send_signal(signal.SIGSTOP)
        token = new_token()
        expect_equal(gateway.ask("/on/normal", token, token).status, 503, "the status")
        gateway.end_nginx(signal.SIGQUIT)
        gateway.daemon.process.send_signal(signal.SIGCONT)
        gateway.start_nginx()
        gateway.ask_until(lambda answer: answer.status == 201, "/on/normal", token, token)
        expect_equal(gateway.effects(token), 1, "effects")


def outcome_that_cannot_be_stored():
    """Executed, and the daemon stays away: the client is not given an answer that nobody remembers."""
    with Case() as gateway:
        token = new_token()
        client, = begin_held(gateway, "/wait/held", [token])
        gateway.daemon.end(signal.SIGKILL)
        gateway.upstream.open_gate(token)
        answer = client.read()
        client.close()
        expect_equal((answer.status, answer.problem() is not None), (503, True), "the answer: %s" % answer)
        gateway.daemon.start()
        retry = gateway.ask_until(lambda a: a.status not in (409, 503), "/wait/held", token, token, body=b"{}")
        expect(retry.status == 201 or "unknown" in (retry.code() or ""), "the retry: %s" % retry)
        expect_equal(gateway.effects(token), 1, "effects")


def main():
    suite.require()
    if SIZE > 1:  # it takes as long as nginx waits
        suite.add("an outcome that cannot be stored", outcome_that_cannot_be_stored)
    for policy in ("on", "rerun"):
        for who in ("master", "workers"):
            suite.add("fast exit of the %s, %s" % (who, policy), fast_exit, policy, who)
    for number in (signal.SIGTERM, signal.SIGKILL):
        suite.add("the daemon is away by %s" % number.name, daemon_away, number)
        suite.add("the daemon restarts under load by %s" % number.name, daemon_restarts_under_load, number)
        suite.add("the daemon restarts in flight by %s" % number.name, daemon_away_in_flight, number)
    suite.run(width=10)  # they wait most of their time


main()
