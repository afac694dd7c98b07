#!/usr/bin/env python3
"""`once send` through the real gateway: nginx with the module, the daemon, a service that knows nothing of keys.

usage: through.py [words that select cases]      environment: as ../gateway/gateway.py has it
"""
import os
import signal
import socket
import struct
import subprocess
import threading

from sendtest import BOUND_S, Send, expect, expect_equal, upstream, wait_for
from gateway import ESCALATE, Gateway, Location, ONCE, RERUN, SINGLE, SIZE, Suite, in_parallel
from lib.listener import Listener

suite = Suite()
gateway = None


@upstream.behaviour
def held(c):
    n = c.work()
    c.hold()
    c.answer(201, ["Content-Type: text/plain"], "effect %d\n" % n)


class Through(Send):
    def send(self, name, *arguments, prefix="escalate", port=None, **named):
        return self.run("POST", "http://127.0.0.1:%d/%s/%s" % (port or gateway.port, prefix, name), "-H", "X-Test: " + self.token,
                        *arguments, **named)

    def effects(self):
        return gateway.effects(self.token)

    def open_gate(self):
        os.close(os.open(upstream.gate_path(gateway.folder, self.token), os.O_CREAT | os.O_WRONLY))


class Dropper(Listener):
    """Between client and gateway. Every second connection is lost: by turns before anything was passed on, and after
    the gateway has answered."""

    def __init__(self, port):
        self.port_behind, self.count, self.lock = port, 0, threading.Lock()
        super().__init__(self.serve)

    def serve(self, front):
        with self.lock:
            self.count += 1
            number = self.count
        front.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with front:
            if number % 4 == 1:
                front.recv(65536)
                return
            with socket.create_connection(("127.0.0.1", self.port_behind)) as behind:
                front.settimeout(BOUND_S)
                behind.sendall(front.recv(65536))
                answer = behind.recv(65536)
                if number % 4 == 3:
                    return
                front.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
                front.sendall(answer)
                front.shutdown(socket.SHUT_WR)
                front.recv(1)


@suite.case
def fresh_then_replay():
    with Through() as s:
        first = s.send("normal", "--key", "fresh-" + s.token, "-d", '{"a":1}')
        again = s.send("normal", "--key", "fresh-" + s.token, "-d", '{"a":1}')
        expect_equal((first[0], again[0], first[1], s.effects()), (0, 0, again[1], 1), "statuses, answers, effects")
        expect("replay" not in first[2] and "once: replay: " in again[2] and "the server keeps its key until " in again[2], (first, again))


@suite.case
def both_spellings_are_one_key():
    """Bare, as Stripe's clients send it, and quoted."""
    with Through() as s:
        key = "spelled-" + s.token
        bare = s.send("normal", "--key", key, "--header-format", "bare")
        quoted = s.send("normal", "--key", key, "--header-format", "sf")
        expect_equal((bare[0], quoted[0], bare[1], s.effects()), (0, 0, quoted[1], 1), "statuses, answers, effects")
        expect(gateway.record(key), "its record")


@suite.case
def another_header_by_configuration():
    with Through() as s:
        for _ in range(2):
            status, _, err = s.send("normal", "--key", "pp-" + s.token, "--header-name", "PayPal-Request-Id", prefix="paypal")
            expect_equal(status, 0, "status: " + err)
        expect_equal(s.effects(), 1, "effects")


@suite.case
def mismatch_is_65():
    with Through() as s:
        key = ["--key", "reused-" + s.token]
        expect_equal(s.send("normal", *key, "-d", "a")[0], 0, "the first")
        status, out, err = s.send("normal", *key, "-d", "b")
        expect_equal((status, s.effects(), s.files()), (65, 1, []), "status, effects, files: " + err)
        expect(b"key-reused" in out, out)


@suite.case
def unknown_is_resolved_and_resumed():
    with Through() as s:
        status, out, err = s.send("reset_after_reading", "-d", "x")
        expect_equal((status, out, s.effects()), (70, b"", 1), "status, stdout, effects: " + err)
        key = s.kept()[0]["key"]
        expect_equal(s.run("--resume")[0], 70, "asking again is safe, and tells the same")
        subprocess.run([ONCE, "keys", "resolve", key, "--done", "--status", "201", "--body", "it is there", "--reason", "looked", "--store",
                        "once:" + gateway.daemon.socket], check=True, stdout=subprocess.PIPE)
        status, out, err = s.run("--resume")
        expect_equal((status, out, s.effects(), s.files()), (0, b"it is there", 1, []), "resumed: status, answer, effects, files: " + err)


@suite.case
def a_failure_is_tried_again():
    with Through() as s:
        status, out, err = s.send("fails_once", prefix="rerun")
        expect_equal((status, out), (0, b"well 2"), "status, answer: " + err)


@suite.case
def in_progress_until_it_is_done():
    with Through() as s, Through() as other:
        key = "both-" + s.token
        first = s.start("POST", "http://127.0.0.1:%d/escalate/held" % gateway.port, "-H", "X-Test: " + s.token, "--key", key)
        wait_for(s.effects, "the first at work")
        other.token = s.token
        second = other.start("POST", "http://127.0.0.1:%d/escalate/held" % gateway.port, "-H", "X-Test: " + s.token, "--key", key)
        line = second.stderr.readline()
        expect(b"HTTP 409: A request is outstanding" in line, line)
        s.open_gate()
        answers = [process.communicate(timeout=BOUND_S)[0] for process in (first, second)]
        expect_equal((first.returncode, second.returncode, s.effects()), (0, 0, 1), "statuses, effects")
        expect_equal(answers[0], answers[1], "answers")


@suite.case
def bad_network_one_effect_each():
    """Every second connection is lost, before or after the effect."""
    dropper = Dropper(gateway.port)

    def one(_):
        with Through() as s:
            status, out, err = s.send("normal", "-d", "x", port=dropper.port)
            expect_equal((status, s.effects(), s.files()), (0, 1, []), "status, effects, files: " + err)
            return "replay" in err
    replays = in_parallel(one, range(16 * SIZE), 4)
    dropper.close()
    expect(any(replays) and not all(replays), "some lost their answer, some did not: %s" % replays)


def killed_at(point):
    for n in (1, 2):
        with Through() as s:
            status, _, _ = s.send("normal", "-d", "x", env={"ONCE_CRASH": "%s:%d" % (point, n)})
            if status == 0:
                expect(n > 1, "%s was never passed" % point)
                return
            expect_equal(status, -signal.SIGKILL, "status")
            status, out, err = s.run("--resume")
            expect_equal((status, s.effects(), s.files()), (0, 1, []), "%s:%d: status, effects, files: %s" % (point, n, err))
            expect_equal("replay" in err, point in ("client.answered", "send.printed"), "%s: a replay" % point)


for point in ("client.saved", "client.sending", "client.answered", "send.printed"):
    suite.add("killed_at " + point, killed_at, point)


@suite.case
def http_2_and_certificates():
    with Through() as s:
        url = "https://127.0.0.1:%d/escalate/normal" % gateway.port2
        cert = gateway.path("cert.pem")
        status, out, err = s.run("POST", url, "-H", "X-Test: " + s.token, "-d", "x", "-i", "--cacert", cert)
        expect_equal((status, s.effects()), (0, 1), "status, effects: " + err)
        expect(out.startswith(b"HTTP/2 201"), out)
        status, out, err = s.run("POST", url, "-H", "X-Test: " + s.token, "-d", "x")
        expect_equal((status, out, s.effects()), (60, b"", 1), "not trusted: " + err)
        expect("again in" not in err, "it is not tried again: " + err)
        status, out, err = s.run("--resume", "--cacert", cert)
        expect_equal((status, s.effects()), (0, 2), "trusted at last: " + err)
        status, out, err = s.run("POST", url.replace("127.0.0.1", "127.0.0.2"), "--cacert", cert, "--tries", "1")
        expect(status != 0, "a certificate of another host")


@suite.case
def the_daemon_goes_and_comes():
    with Through() as s:
        gateway.daemon.end(signal.SIGKILL)
        process = s.start("POST", "http://127.0.0.1:%d/escalate/normal" % gateway.port, "-H", "X-Test: " + s.token, "-d", "x")
        line = process.stderr.readline()
        expect(b"HTTP 503" in line, line)
        gateway.daemon.start(gateway.daemon_env)
        _, err = process.communicate(timeout=BOUND_S)
        expect_equal((process.returncode, s.effects()), (0, 1), "status, effects: %r" % err)


if __name__ == "__main__":
    suite.require()
    paypal = Location("/paypal/", "once on;", SINGLE, "once_key_header PayPal-Request-Id;")
    gateway = Gateway(locations=(ESCALATE, RERUN, paypal))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", gateway.path("key.pem"), "-out", gateway.path("cert.pem")],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    gateway.listen = "listen 127.0.0.1:PORT2 ssl http2; ssl_certificate cert.pem; ssl_certificate_key key.pem;"
    gateway.start()
    suite.run(gateways=[("the gateway", gateway)])
