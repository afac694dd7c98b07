#!/usr/bin/env python3
"""kill -9 of everything, at every moment (FAULT-1 to FAULT-4): never two effects under `escalate`, never an
acknowledged answer lost, replays byte-equal.

The moments: the upstream holds the request where its behaviour's name says (from "nothing sent" to "response
complete"), the daemon dies at a crash point of its own (around the claim and the finish), or all is done. Then what was killed
is started again and the client, which lost its answer, asks until it is told something definite.

Leases are long, and the test ends what nobody is to hold any more (leases.py). A crash point that is passed by what the daemon
does by itself, earlier or later than usual, is as good a moment as any.

With ONCE_TEST_POSTGRES the database is killed, too. SIZE=N passes N times as many crash points.
"""
import os
import signal
import subprocess
import sys

from gateway import (Client, Closed, Failed, Gateway, HERE, Location, SINGLE, SIZE, Suite, expect, expect_equal, free_port,
                     in_parallel, is_answered, kill, new_token, request_bytes, wait_for, is_open, is_stopped)
from abandoned import VIOLENCE
from leases import LEASE, end_leases, look, state_of
from upstream import Ledger, gate_path

LOCATIONS = (Location("/escalate/", "once on;", SINGLE, LEASE, "once_takeover escalate;"),
             Location("/intent/", "once on;", SINGLE, LEASE, "once_takeover escalate;", "once_intent on;"),
             Location("/rerun/", "once on;", SINGLE, LEASE, "once_takeover rerun;"),
             Location("/renewed-escalate/", "once on;", SINGLE, "once_lease 15s;", "once_takeover escalate;"),
             Location("/renewed-rerun/", "once on;", SINGLE, "once_lease 15s;", "once_takeover rerun;"))
MOMENTS = ("held_unread", "held_before", "held", "held_in_headers", "held_in_body")


class UpstreamProcess:
    """upstream.py as a process of its own, on one port for all its lives."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(os.path.join(folder, "gate"), exist_ok=True)
        self.ledger = Ledger(folder)
        self.refusing_port = 9
        self.port = free_port()
        self.start()

    def start(self):
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "upstream.py"), self.folder, str(self.port)],
                                        stdout=subprocess.PIPE, text=True)
        expect(self.process.stdout.readline().strip() == str(self.port), "the upstream did not start")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def effects(self, token):
        return self.ledger.count(token)

    def open_gate(self, token):
        open(gate_path(self.folder, token), "w").close()

    def stop(self):
        self.kill()


def is_definite(answer):
    """Neither 'in progress' nor 'the store is away': what a client stops retrying at."""
    return answer.status not in (409, 503)


class Attempt:
    """A request that is under way, in a gateway of its own."""

    def __init__(self, policy, moment, store=None, process=False, **named):
        self.gateway = Gateway(LOCATIONS, workers=2, tolerate=VIOLENCE, store=store, **named)
        if process:
            self.gateway.upstream.stop()
            self.gateway.upstream = UpstreamProcess(self.gateway.folder)
        self.gateway.start()
        self.policy, self.token, self.path = policy, new_token(moment), "/%s/%s" % (policy, moment)
        self.client = self.begin()
        self.answer = None

    def begin(self):
        client = Client(self.gateway.port)
        client.send(request_bytes("POST", self.path, [("Host", "g"), ("Idempotency-Key", '"%s"' % self.token),
                                                      ("X-Test", self.token), ("Content-Length", "13")], b'{"amount":25}'))
        return client

    def is_at(self, moment):
        if moment in ("held_unread", "held_before"):
            return any(seen[0] == self.token for seen in self.gateway.upstream.seen)
        return self.gateway.effects(self.token)

    def wait_until_held(self, moment):
        """Begun again where the daemon was late, and until the claim that came too late was given back."""
        due = ("store-unavailable",)
        while True:
            wait_for(lambda: self.is_at(moment) or is_answered(self.client), "the request at the upstream, and its effect")
            if self.is_at(moment):
                return
            code = self.client.read().code()
            expect(code in due, "an answer where none was due: %s" % code)
            due = ("store-unavailable", "in-progress")
            self.client.close()
            self.client = self.begin()

    def open_gate(self):
        self.gateway.upstream.open_gate(self.token)

    def read(self):
        """What the first client gets, if anything."""
        try:
            self.answer = self.client.read()
        except (Closed, ConnectionError):
            self.answer = None
        self.client.close()

    def settle(self):
        """The lease of whoever began it is over. Asks until the answer is definite, then twice more; checks what must hold."""
        end_leases(self.gateway, self.token)
        ask = (self.path, self.token, self.token)
        retry = self.gateway.ask_until(is_definite, *ask)
        further = [self.gateway.ask_until(is_definite, *ask) for _ in range(2)]
        effects = self.gateway.effects(self.token)
        record = self.gateway.record(self.token)
        story = "first %s, retry %s, record %s, effects %d" % (self.answer, retry, record, effects)
        if not self.policy.endswith("rerun"):
            expect(effects <= 1, "two effects under escalate: " + story)
        else:
            expect(effects <= record["attempt"], "more effects than executions: " + story)
            expect_equal(retry.status, 201, "rerun gets it done: " + story)
        if self.answer is not None and self.answer.status < 300:
            expect_equal(retry.lasting(), self.answer.lasting(), "an acknowledged answer: " + story)
            expect(retry.replayed, "the retry is no replay: " + story)
        expect((retry.status == 201) == (record["state"] == "succeeded"), "the answer is not the record: " + story)
        if retry.status != 201:
            expect_equal(record["state"], "unknown", "the record's state: " + story)
            expect(retry.problem() is not None, "unknown is not told: " + story)
        for answer in further:
            expect_equal(answer.lasting(), retry.lasting(), "the same retry again: " + story)
        return retry, effects

    def end(self):
        try:
            self.gateway.stop()
            alarms = self.gateway.alarms()
            expect(not alarms, "in nginx's log:\n" + "\n".join(alarms[:20]))
        finally:
            self.client.close()
            self.gateway.remove()


# ------------------------------------------------------------------ the victims

def worker(attempt):
    """All workers: which one has the request is not known. The master starts new ones."""
    old = attempt.gateway.worker_pids()
    for pid in old:
        kill(pid)
    wait_for(lambda: not set(old) & set(attempt.gateway.worker_pids()), "the workers' end")
    attempt.gateway.wait_for_workers()


def master(attempt):
    """The master, and then the workers that it leaves behind."""
    gateway = attempt.gateway
    workers = gateway.worker_pids()
    kill(gateway.nginx.pid)
    gateway.nginx.wait()
    for pid in workers:
        kill(pid)
    wait_for(lambda: not is_open(gateway.port), "the end of the listening socket")
    gateway.start_nginx()


def daemon(attempt):
    attempt.gateway.daemon.end(signal.SIGKILL)
    attempt.gateway.daemon.start()


def everything(attempt):
    attempt.gateway.daemon.end(signal.SIGKILL)
    master(attempt)
    attempt.gateway.daemon.start()


def killed(victim, moment, policy):
    attempt = Attempt(policy, moment)
    try:
        attempt.wait_until_held(moment)
        victim(attempt)
        attempt.open_gate()
        attempt.read()
        attempt.settle()
    finally:
        attempt.end()


def killed_after(victim, policy):
    """All was done and acknowledged: nothing is lost."""
    attempt = Attempt(policy, "normal")
    try:
        attempt.read()
        expect(attempt.answer is not None and attempt.answer.status == 201, "the first answer: %s" % attempt.answer)
        victim(attempt)
        attempt.settle()
    finally:
        attempt.end()


def upstream_killed(moment, policy):
    """The request was sent; the upstream's effect, if any, stays; what it would have said is lost."""
    attempt = Attempt(policy, moment, process=True)
    try:
        if moment in ("held", "held_in_headers", "held_in_body"):
            wait_for(lambda: attempt.gateway.effects(attempt.token), "the effect")
        else:
            wait_for(lambda: state_of(attempt.gateway, attempt.token) == "running", "the claim")
        attempt.gateway.upstream.kill()
        attempt.read()
        expect(attempt.answer is not None, "the client got no answer, though only the upstream died")
        expect(attempt.answer.status in (500, 502, 504), "the first answer: %s" % attempt.answer)
        attempt.open_gate()
        attempt.gateway.upstream.start()
        attempt.settle()
    finally:
        attempt.end()


# ------------------------------------------------------------------ stopped, not dead (FAULT-6)

def worker_of(gateway, token):
    """The worker that holds the connection to the upstream on which the request arrived."""
    port = wait_for(lambda: gateway.upstream.caller_of(token), "the request at the upstream")
    with open("/proc/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in file]
    sockets = ["socket:[%s]" % row[9] for row in rows if row[1] == "0100007F:%04X" % port]
    for pid in gateway.worker_pids():
        for name in os.listdir("/proc/%d/fd" % pid):
            try:
                if os.readlink("/proc/%d/fd/%s" % (pid, name)) in sockets:
                    return pid
            except FileNotFoundError:
                pass
    raise Failed("no worker has a connection from port %d" % port)


def zombie(policy):
    """A worker is stopped past its lease and goes on when others have decided: it is fenced, and its
    client is told what is stored (K3)."""
    attempt = Attempt(policy, "held")
    pid = None
    try:
        attempt.wait_until_held("held")
        pid = worker_of(attempt.gateway, attempt.token)
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: is_stopped(pid), "the worker to stop")
        attempt.open_gate()
        retry, effects = attempt.settle()
        os.kill(pid, signal.SIGCONT)
        attempt.read()
        expect(attempt.answer is not None, "the zombie's client got no answer")
        expect_equal(attempt.answer.lasting(), retry.lasting(), "what the zombie's client is told, and the stored answer")
        again, effects_after = attempt.settle()
        expect_equal((again.lasting(), effects_after), (retry.lasting(), effects), "what is told after that")
    finally:
        if pid:
            kill(pid, signal.SIGCONT)
        attempt.end()


def lease_is_renewed(policy):
    """A slow request is not a dead one: its lease is renewed, again and again, and nobody takes over."""
    attempt = Attempt("renewed-" + policy, "held")
    try:
        attempt.wait_until_held("held")
        seen = set()

        def renewed():
            record = look(attempt.gateway, attempt.token)
            expect_equal((record.state, record.attempt), ("running", 1), "the record while it is held")
            seen.add(record.lease_until)
            return len(seen) >= 3
        wait_for(renewed, "two renewals")
        retry = attempt.gateway.ask(attempt.path, attempt.token, attempt.token)
        expect_equal(retry.status, 409, "a retry's status meanwhile")
        attempt.open_gate()
        attempt.read()
        expect_equal(attempt.answer and attempt.answer.status, 201, "the first answer's status")
        attempt.settle()
    finally:
        attempt.end()


# ------------------------------------------------------------------ the daemon's own crash points

def points_passed(policy="escalate"):
    """The crash points that one request passes in the daemon, and how often."""
    gateway = Gateway(LOCATIONS)
    log = gateway.path("points")
    gateway.daemon_env = {"ONCE_CRASH_LOG": log}
    gateway.start()
    before = len(gateway.text("points").splitlines())
    token = new_token()
    gateway.ask("/%s/normal" % policy, token, token)
    lines = gateway.text("points").splitlines()
    gateway.stop()
    gateway.remove()
    counted, passed = {}, []
    for number, name in enumerate(lines):
        counted[name] = counted.get(name, 0) + 1
        if number >= before:
            passed.append((name, counted[name]))
    return passed


def push(attempt, is_there, what):
    """Waits for the daemon to come to its point; once the request is answered, others bring it there."""
    def there():
        if is_there():
            return True
        if is_answered(attempt.client):
            token = new_token("push")
            try:
                attempt.gateway.ask("/%s/normal" % attempt.policy, token, token)
            except (Closed, OSError):
                pass
        return is_there()
    wait_for(there, what)


def daemon_crashes(name, count, policy):
    attempt = None
    try:
        attempt = Attempt(policy, "normal", daemon_env={"ONCE_CRASH": "%s:%d:kill" % (name, count)})
        process = attempt.gateway.daemon.process
        push(attempt, lambda: process.poll() is not None, "the daemon to die at %s" % name)
        expect_equal(process.returncode, -signal.SIGKILL, "the daemon's end at %s" % name)
        attempt.gateway.daemon.reap()
        attempt.gateway.daemon.start()
        attempt.read()
        attempt.settle()
    finally:
        if attempt:
            attempt.end()


# ------------------------------------------------------------------ intent: a smaller window

def all_die(name, count, policy):
    """Daemon and gateway die at once, at a point of the daemon's: nobody is left who knows more than the store. What a
    retry is told then, and whether anything had been sent."""
    attempt = None
    try:
        attempt = Attempt(policy, "normal", daemon_env={"ONCE_CRASH": "%s:%d:stop" % (name, count)})
        process = attempt.gateway.daemon.process
        push(attempt, lambda: is_stopped(process.pid), "the daemon to stop at " + name)
        sent = attempt.gateway.effects(attempt.token)
        everything(attempt)
        attempt.read()
        retry, effects = attempt.settle()
        expect(effects == 1 or retry.status != 201, "no effect, but %s" % retry)
        return retry.status, sent
    finally:
        if attempt:
            attempt.end()


def window_is_smaller():
    """After everything died: without intent all that was claimed is unknown, with it only what was about to be sent."""
    told = {}
    for policy in ("escalate", "intent"):
        # Not those that the daemon passes by itself as well.
        passed = [point for point in points_passed(policy) if point[0] not in ("sqlite.locked", "sqlite.begun")]
        chosen = passed if SIZE > 1 else [point for point in passed if point[0] in ("engine.taken", "engine.durable", "daemon.answer")]
        told[policy] = in_parallel(lambda point, policy=policy: (*point, *all_die(*point, policy)), chosen, width=8)
    unknown = {policy: sum(row[2] != 201 for row in rows) for policy, rows in told.items()}
    needless = {policy: sum(row[2] != 201 and not row[3] for row in rows) for policy, rows in told.items()}
    executed = {policy: sum(row[2] == 201 and not row[3] for row in rows) for policy, rows in told.items()}
    print("# of %s deaths: unknown %s, of which nothing had been sent %s; executed by a retry %s" % (
        {policy: len(rows) for policy, rows in told.items()}, unknown, needless, executed))
    expect(needless["escalate"] > 0, "without intent nothing was unknown needlessly: the walk missed its window: %s" % told)
    expect(executed["intent"] > executed["escalate"], "with intent no more was executed than without: %s" % told)


# ------------------------------------------------------------------ the database

def database_killed(moment, policy):
    from cluster import Cluster
    server = Cluster(os.environ["ONCE_TEST_POSTGRES_BIN"], os.environ["ONCE_TEST_POSTGRES_DATA"])
    attempt = Attempt(policy, moment, store=os.environ["ONCE_TEST_POSTGRES"])
    try:
        if moment == "normal":
            attempt.read()
            expect_equal(attempt.answer and attempt.answer.status, 201, "the first answer")
            server.stop("immediate")
        else:
            attempt.wait_until_held(moment)
            server.stop("immediate")
            attempt.open_gate()
        token = new_token()
        answer = attempt.gateway.ask("/escalate/normal", token, token)
        expect_equal(answer.status, 503, "the answer while the database is away")
        expect_equal(attempt.gateway.effects(token), 0, "effects while the database is away")
        expect(server.start(), "the server did not start again: %s" % server.said()[-1000:])
        if moment != "normal":
            attempt.read()
        attempt.settle()
    finally:
        if not server.is_up():
            server.start()
        attempt.end()


def main():
    suite = Suite()
    suite.require()
    database = os.environ.get("ONCE_TEST_POSTGRES")
    if database:
        sys.path.insert(0, os.path.join(HERE, "..", "pg"))
        subprocess.run([os.environ["ONCE_BIN"], "migrate", "--store", database], check=True, stdout=subprocess.DEVNULL)
        for moment in ("held", "held_in_body", "normal") if SIZE == 1 else (*MOMENTS, "normal"):
            for policy in ("escalate", "rerun"):
                suite.add("the database is killed, %s, %s" % (moment, policy), database_killed, moment, policy)
        suite.run(width=1)
    for policy in ("escalate", "rerun"):  # first: they wait longest
        suite.add("a lease is renewed, %s" % policy, lease_is_renewed, policy)
    for victim in (worker, master, daemon, everything):
        for policy in ("escalate", "rerun"):
            for moment in MOMENTS if SIZE > 1 or victim in (worker, daemon) else ("held_before", "held_in_body"):
                suite.add("%s killed, %s, %s" % (victim.__name__, moment, policy), killed, victim, moment, policy)
            suite.add("%s killed, all done, %s" % (victim.__name__, policy), killed_after, victim, policy)
    for moment in ("held_unread", "held"):
        suite.add("worker killed, %s, intent" % moment, killed, worker, moment, "intent")
    for moment in MOMENTS:
        for policy in ("escalate", "rerun"):
            suite.add("upstream killed, %s, %s" % (moment, policy), upstream_killed, moment, policy)
    for policy in ("escalate", "rerun"):
        suite.add("a worker is stopped past its lease, %s" % policy, zombie, policy)
    for name, count in points_passed():
        for policy in ("escalate", "rerun"):
            suite.add("the daemon dies at %s:%d, %s" % (name, count, policy), daemon_crashes, name, count, policy)
    suite.add("the unknown window is smaller with intent", window_is_smaller)
    suite.run(width=8)


main()
