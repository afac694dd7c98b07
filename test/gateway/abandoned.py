"""A gateway whose clients and workers leave requests behind, and whose daemon has a completer when the test wants one.

What is left is looked at before anybody goes on with it: the completer is off until complete(). Leases are long, and those of
who was killed are ended by the test (leases.py); so whatever a case sees does not depend on how fast anything is.
"""
import errno
import os
import signal

from gateway import Client, Gateway, expect, expect_equal, free_port, is_answered, kill, request_bytes, wait_for
from leases import end_leases, state_of
from upstream import Upstream

VIOLENCE = r"exited on signal 9|worker process \d+ exited"
JSON_BODY = b'{"amount":25}'


def hold(gateway, begin, token):
    """A request that the upstream has, begun again where its worker had not found the daemon yet, or the daemon was late; then
    until the claim that came too late was given back."""
    due = ("store-unavailable",)
    while True:
        client = begin()
        wait_for(lambda: gateway.upstream.caller_of(token) or is_answered(client), "a request at the upstream")
        if gateway.upstream.caller_of(token):
            return client
        code = client.read().code()
        expect(code in due, "an answer where none was due: %s" % code)
        due = ("store-unavailable", "in-progress")
        client.close()


def upstream_to_restart(folder):
    """On a port that nobody else's connection gets while it is away."""
    while True:
        try:
            return Upstream(folder, free_port())
        except OSError as error:  # somebody who does not reserve ports
            if error.errno != errno.EADDRINUSE:
                raise


class Completing:
    """`complete`: from the beginning, for a case that has another way to hold it back. `identity` is the text of its file,
    `front` makes a socket between nginx and the daemon, `lasting`: the service is started again on its port."""

    def __init__(self, locations, *arguments, identity=None, complete=False, workers=2, front=None, lasting=False, **named):
        self.gateway = Gateway(locations, workers=workers, tolerate=VIOLENCE, **named)
        if lasting:
            self.gateway.upstream.stop()
            self.gateway.upstream = upstream_to_restart(self.gateway.folder)
        if front:
            self.gateway.front = front(self.gateway).path
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
        lease = [] if "--complete-lease" in self.more else ["--complete-lease", "600s"]
        return ["--complete", "app=http://127.0.0.1:%d" % self.gateway.upstream.port, *lease, *self.more]

    @property
    def is_completing(self):
        return "--complete" in self.gateway.daemon.arguments

    def complete(self, daemon=None):
        """From now on."""
        daemon = daemon or self.gateway.daemon
        self.end_daemon(daemon)
        daemon.arguments = self.completing()
        daemon.start()

    def complete_and_die(self, point):
        """A completer that dies when it comes to this point."""
        daemon = self.gateway.daemon
        self.end_daemon(daemon)
        daemon.arguments = self.completing()
        daemon.start(env={"ONCE_CRASH": point + ":1:kill"}, ready=False)
        expect_equal(daemon.reap(), -signal.SIGKILL, "the daemon's end at " + point)

    def idle(self):
        """Nothing is completed any more."""
        self.end_daemon(self.gateway.daemon)
        self.gateway.daemon.arguments = []
        self.gateway.daemon.start()

    def end_daemon(self, daemon):
        if daemon.process:
            expect_equal(daemon.end(), 0, "the daemon's exit status: %s" % daemon.said())

    def begin(self, path, token, headers=(), body=JSON_BODY):
        """A request whose client waits for the answer."""
        client = Client(self.gateway.port)
        client.send(request_bytes("POST", path, [("Host", "g"), ("Idempotency-Key", '"%s"' % token), ("X-Test", token),
                                                 ("Content-Type", "application/json"), *headers,
                                                 ("Content-Length", str(len(body)))], body))
        return client

    def hold(self, path, token, headers=(), body=JSON_BODY):
        """The same, and the upstream has it."""
        return hold(self.gateway, lambda: self.begin(path, token, headers, body), token)

    def abandon(self, tokens, clients):
        """The workers die with all they hold, which nobody has then; the clients hear nothing."""
        gateway = self.gateway
        old = gateway.worker_pids()
        for pid in old:
            kill(pid)
        wait_for(lambda: not set(old) & set(gateway.worker_pids()), "the workers' end")
        gateway.wait_for_workers()
        for client in clients:
            client.close()
        end_leases(gateway, *tokens)

    def ask(self, path, token, **named):
        """As soon as the gateway has found the daemon again."""
        return self.gateway.ask_until(lambda answer: answer.code() != "store-unavailable", path, token, token, patient=True, **named)

    def record(self, token):
        return self.gateway.record(token) or {"state": "absent"}

    def wait_state(self, token, *states):
        wait_for(lambda: state_of(self.gateway, token) in states,
                 lambda: "the record to be %s; it is %s; %s" % (states, self.record(token), self.gateway.daemon.said()[-500:]))
        return self.record(token)

    def id_end(self, token):
        """What a record's id in the log ends with: its fence."""
        return "-%d: " % self.record(token)["fence"]

    def wait_said(self, *words):
        """A line of the daemon's log that has all of these: it is written after what it is about is stored."""
        log = os.path.basename(self.gateway.daemon.log_path)
        wait_for(lambda: any(all(word in line for word in words) for line in self.gateway.text(log).splitlines()),
                 lambda: "a line with %s: %s" % (words, self.gateway.daemon.said()))

    def end(self):
        try:
            self.gateway.stop()
            alarms = self.gateway.alarms()
            expect(not alarms, "in the logs:\n" + "\n".join(alarms[:20]))
        finally:
            self.gateway.remove()
