#!/usr/bin/env python3
"""`once daemon --consume`: each message is delivered once, over kill -9 and over a broker that is away; SIGTERM ends it after the
deliveries that are under way; its numbers agree with the receiver's. On NATS and an SQLite store."""
import collections
import http.server
import os
import signal
import threading

from consumetest import *
from lib import daemon, metrics
from lib.tap import Cases

case = Cases()


class Endpoint:
    """Counts the bodies that it gets; a body that begins with "slow" is answered once `go` is set."""
    def __init__(self):
        self.got, self.lock, self.go = collections.Counter(), threading.Lock(), threading.Event()
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                with endpoint.lock:
                    endpoint.got[body] += 1
                if body.startswith("slow"):
                    endpoint.go.wait(300)
                try:
                    self.send_response(400 if body.startswith("bad") else 200)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except OSError:
                    pass  # the daemon was killed

            def log_message(self, *_):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = "http://127.0.0.1:%d/in" % self.server.server_address[1]

    def count(self):
        with self.lock:
            return sum(self.got.values())


class Daemon(daemon.Daemon):
    """With its own SQLite store; the consumer's is store()."""
    def __init__(self, source, endpoint, *options, lease=LONG, crash=None):
        super().__init__(folder)
        if os.path.exists(self.log_path):
            os.remove(self.log_path)
        self.start("--http", "127.0.0.1:0", "--consume", source, "--consumer", "c", "--consume-to", endpoint.url, "--consume-retention", "never",
                   "--consume-timeout", "300s", "--consume-lease", lease, "--consume-backoff", "1ms", "--consume-backoff-max", "10ms", *options,
                   env=dict(os.environ, ONCE_CONSUME_STORE=store(), **({"ONCE_CRASH": crash} if crash else {})))

    def metric(self, name):
        return metrics.parse(self.get("/metrics")[1]).get(("once_consume_" + name,))


@case
def usage():
    socket = ["--socket", folder + "/usage.sock"]
    rows = [
        (["--consume", "nats://h/S"], "--consumer NAME"),
        (["--consume", "nats://h/S", "--consumer", "c"], "--consume-to URL or --consume-exec COMMAND"),
        (["--consume", "ftp://h", "--consumer", "c", "--consume-to", "http://h/"], "there is no such source"),
        (["--consume-to", "http://h/"], "SOURCE is missing"),
        (["--consume-store", "sqlite:x"], "--consume-store is for --consume"),
        (["--consume", "nats://h/S", "--consumer", "c", "--consume-to", "http://h/"], "--consume-store URL"),
        (["--consume", "nats://h/S", "--consumer", "c", "--consume-to", "http://h/", "--consume-store", "once:/x"], "no table for dead letters"),
    ]
    for arguments, text in rows:
        code, said = once("daemon", "--store", store(), *socket, *arguments)
        ok(code == 64 and text in said, "usage: " + " ".join(arguments), said)


@case
def numbers_agree_with_what_happened():
    source, endpoint = stream("numbers"), Endpoint()
    for i in range(20):
        send("numbers", b"good%d" % i, {"Nats-Msg-Id": "g%d" % i})
    send("numbers", b"bad", {"Nats-Msg-Id": "b"})
    d = Daemon(source, endpoint)
    wait_for(lambda: d.metric("done_total") == 20 and d.metric("dead_letters_total") == 1, "all delivered, or dead")
    send("numbers", b"good0", {"Nats-Msg-Id": "g0"}, again=True)
    wait_for(lambda: d.metric("duplicates_total") == 1, "a duplicate is recognised")
    equal((endpoint.count(), d.metric("received_total"), d.metric("done_total"), d.metric("failed_total"), d.metric("up")), (21, 22, 21, 1, 1),
          "the numbers are the receiver's")
    wait_for(lambda: [letter["message_id"] for letter in letters()] == ["b"], "the dead letter is in the table")
    code, said = once("inbox", "retry", "--all-dead", "--reason", "test", "--store", store())
    equal(code, 0, "an operator retries it")
    wait_for(lambda: endpoint.count() == 22 and [letter["state"] for letter in letters()] == ["dead"], "a retry delivers it once more")
    equal((d.end(), "ended by signal" in d.log()), (0, True), "SIGTERM ends it")
    ok(all(n == 1 for body, n in endpoint.got.items() if body != "bad"), "each message was delivered once", endpoint.got)


@case
def killed_at_each_point():
    """One message at a time: at none of these points is one on its way to the endpoint."""
    one = ["--consume-parallel", "1", "--consume-window", "1"]
    for point in ("consume.received", "consume.delivering", "consume.finished", "consume.acknowledged"):
        name = point.replace(".", "")
        source, endpoint = stream(name), Endpoint()
        for i in range(5):
            send(name, b"m%d" % i, {"Nats-Msg-Id": str(i)})
        d = Daemon(source, endpoint, *one, lease="1s", crash=point + ":2")
        equal(d.process.wait(), -signal.SIGKILL, "killed at " + point)
        d = Daemon(source, endpoint, lease="1s")
        wait_for(lambda: d.metric("lag") == 0 and d.metric("in_flight") == 0 and len(endpoint.got) == 5, "all are delivered after the restart")
        equal(d.end(), 0, "SIGTERM ends it")
        ok(set(endpoint.got.values()) == {1}, "each was delivered once, killed at " + point, endpoint.got)


@case
def killed_while_delivering():
    """A delivery that was cut off may have arrived: it comes again, under the same key; the others do not."""
    source, endpoint = stream("cut"), Endpoint()
    for i in range(5):
        send("cut", b"m%d" % i, {"Nats-Msg-Id": str(i)})
    send("cut", b"slow", {"Nats-Msg-Id": "slow"})
    d = Daemon(source, endpoint, lease="1s")
    wait_for(lambda: d.metric("done_total") == 5 and endpoint.got["slow"] == 1, "all are under way, or done")
    d.end(signal.SIGKILL)
    endpoint.go.set()
    d = Daemon(source, endpoint, lease="1s")
    wait_for(lambda: endpoint.got["slow"] == 2 and d.metric("in_flight") == 0 and d.metric("done_total") >= 1, "the one that was cut off comes again")
    equal(d.end(), 0, "SIGTERM ends it")
    ok(all(endpoint.got["m%d" % i] == 1 for i in range(5)), "the others do not", endpoint.got)


@case
def term_waits_for_the_delivery_under_way():
    source, endpoint = stream("term"), Endpoint()
    send("term", b"slow", {"Nats-Msg-Id": "slow"})
    d = Daemon(source, endpoint)
    wait_for(lambda: endpoint.count() == 1, "it is being delivered")
    d.process.send_signal(signal.SIGTERM)
    wait_for(lambda: "consume: stopping after the deliveries under way" in d.log(), "it says what it waits for")
    endpoint.go.set()
    equal(d.end(), 0, "it ends after the answer")
    report = last_report(consume(source, "--exec", "touch %s/again" % folder, "--json", lease="1s")[1])
    equal((report["received"], os.path.exists(folder + "/again")), (0, False), "the message was acknowledged")


@case
def a_broker_that_is_away():
    source, endpoint = stream("away"), Endpoint()
    send("away", b"one", {"Nats-Msg-Id": "1"})
    nats.kill()
    d = Daemon(source, endpoint)
    ok(d.http, "the daemon serves without it")
    equal(d.metric("up"), 0, "and says that it is away")
    nats.start()
    wait_for(lambda: endpoint.count() == 1 and d.metric("up") == 1, "the message is delivered once the broker is back")
    ok(d.end() == 0 and d.log().count("cannot connect") == 1, "an outage is said once", d.log())


@case
def retention_is_checked():
    source, endpoint = stream("kept", max_age_s=3600), Endpoint()
    d = Daemon(source, endpoint, "--consume-retention", "1m")
    wait_for(lambda: "--retention 1m is shorter than the 1h" in d.log() and "consuming has ended" in d.log(), "a retention that is too short ends it")
    equal((d.end(), endpoint.count()), (0, 0), "the daemon goes on, and nothing was delivered")


main(case)
