#!/usr/bin/env python3
"""How a daemon is: /readyz, `once status`, what a service manager is told, and that dashboard and alerts name metrics that exist.

The writer that hangs is a real one: its thread is stopped, and all others go on."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib import daemon, wireclient as w
from lib.daemon import ONCE
from lib.ports import free_port
from lib.tap import equal, finish, ok
from lib.wait import SECONDS, wait_for

SOURCE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..")


class Manager:
    """What systemd would hear: datagrams, as they came. It listens all the time: a socket holds ten, and what comes then is lost."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.heard = []
        self.listener = threading.Thread(target=self.hear, daemon=True)
        self.listener.start()

    def hear(self):
        while (data := self.socket.recv(4096)) != b"(over)":
            self.heard += data.decode().split("\n")

    def listen(self):
        return list(self.heard)

    def end(self):
        """All that was sent was heard."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"(over)", self.path)
        self.listener.join()
        self.socket.close()
        return self.heard

    def wait(self, line):
        return wait_for(lambda: line in self.listen(), "%r, heard %r" % (line, self.heard))


class Daemon(daemon.Daemon):
    def __init__(self, *options, env=None, store=None, stderr=None):
        super().__init__(tempfile.mkdtemp(prefix="once-status-"), store)
        self.manager = Manager(self.folder)
        own = {k: v for k, v in os.environ.items() if not k.startswith(("ONCE_", "NOTIFY", "WATCHDOG"))}
        own.update(NOTIFY_SOCKET=self.manager.path, **(env or {}))
        self.start("--http", "127.0.0.1:%d" % free_port(), *options, env=own, stderr=stderr)

    def status(self, *options):
        run = subprocess.run([ONCE, "status", "--socket", self.socket, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return run.returncode, run.stdout, run.stderr

    def end(self):
        super().end()
        self.manager.end()
        shutil.rmtree(self.folder, ignore_errors=True)


def test_ready():
    d = Daemon()
    code, text = d.get("/readyz")
    ok(code == 200 or "has not answered" in text, "it is ready when it says so, unless this machine stood still", code, text)
    wait_for(lambda: d.get("/readyz")[0] == 200, "it to be ready")
    equal(json.loads(d.get("/readyz")[1]), {"status": "ready"}, "/readyz says so")
    ok(d.manager.wait("READY=1") and d.manager.wait("STATUS=ready"), "the manager was told")
    ok("WATCHDOG=1" not in d.manager.heard, "nobody wanted a watchdog")
    c = d.client()
    equal(c.ask(w.claim("a", route="orders")).arm, w.EXECUTE, "a claim with a route")
    code, out, err = wait_for(lambda: (s := d.status("--json"))[0] == 0 and s, "it to be ready still, or again")
    said = json.loads(out)
    equal((code, err, said["ready"], said["reason"], said["store"], said["store_up"], said["queue_max"]), (0, "", True, "", "SQLite", 1, 32768), "once status --json")
    ok(said["pid"] == d.process.pid and said["uptime_ms"] >= 0 and said["clients"] == 1, "pid, uptime, clients", said)
    code, out, err = wait_for(lambda: (s := d.status())[0] == 0 and s, "it to be ready still, or again")
    ok(code == 0 and re.search(r"^state +ready$", out, re.M) and re.search(r"^uptime +\S+$", out, re.M), "as text", out, err)
    equal(wait_for(lambda: (s := d.status("--quiet"))[0] == 0 and s, "it to be ready still, or again")[:2], (0, ""), "quiet")
    ok(wait_for(lambda: "\nonce_ready 1\n" in d.get("/metrics")[1], "it in /metrics"), "in /metrics")
    equal(d.get("/metrics")[1].count("\nonce_queue_capacity 32768\n"), 1, "and the queue's size")
    c.s.close()
    d.end()
    ok("STOPPING=1" in d.manager.listen(), "the manager was told of the end", d.manager.heard)
    code, out, err = d.status()
    ok(code == 69 and out == "" and "no daemon at" in err, "nobody there: 69", code, err)


def test_not_one_query_per_probe():
    d = Daemon()
    wait_for(lambda: d.get("/readyz")[0] == 200, "it to be ready")

    def lookups():
        return float(re.search(r"^once_operations_total (\d+)$", d.get("/metrics")[1], re.M)[1])
    before = lookups()
    for _ in range(200):
        d.get("/readyz")
    equal(lookups(), before, "200 probes make no operation of their own")
    d.end()


DRAIN_S = 10  # so long it waits for those who do not take their answers


def drained():
    """What was seen after the signal; None: this machine was so slow that the daemon had ended by then, as it should."""
    d = Daemon()
    try:
        wait_for(lambda: d.get("/readyz")[0] == 200, "it to be ready")
        c = d.client()
        # A client that does not take its answers, more than a socket holds, keeps the daemon from ending.
        for n in range(3000):
            c.send(w.claim("big-%d" % n, number=n + 1))
        wait_for(lambda: json.loads(d.status("--json")[1])["executions"] >= 3000, "the claims")
        begin = time.monotonic()
        d.process.send_signal(signal.SIGTERM)
        d.manager.wait("STOPPING=1")
        try:
            return d.get("/readyz"), d.get("/metrics")[1]
        except OSError:
            if time.monotonic() - begin < DRAIN_S:
                raise
            return None
        finally:
            c.s.close()
    finally:
        d.end()


def test_drain():
    """While it ends it is not ready, and still answers."""
    seen, metrics = wait_for(drained, "a look while it ends")
    ok(seen[0] == 503 and "told to end" in seen[1], "/readyz is 503 from the signal on", seen)
    equal(metrics.count("\nonce_ready 0\n"), 1, "and once_ready is 0")


def test_watchdog():
    """A writer that hangs: not ready, and the watchdog is not fed; both come back with it."""
    d = Daemon(env={"WATCHDOG_USEC": "300000"})
    d.manager.wait("WATCHDOG=1")
    wait_for(lambda: d.get("/readyz")[0] == 200, "it to be ready")
    # The writer's thread alone is stopped: with a debugger's means, so that all others go on.
    thread = next(t for t in os.listdir("/proc/%d/task" % d.process.pid) if open("/proc/%d/task/%s/comm" % (d.process.pid, t)).read().strip() == "once-writer")
    tracer = Tracer(int(thread))
    if not tracer.attached:
        ok(True, "skipped: tracing is not allowed here # SKIP")
        d.end()
        return
    try:
        answer = wait_for(lambda: (a := d.get("/readyz"))[0] == 503 and a, "it to notice")
        ok("has not answered for" in answer[1], "a writer that hangs is not ready", answer)
        code, out, err = d.status("--json")
        said = json.loads(out)
        ok(code == 69 and not said["ready"] and "has not answered" in said["reason"] and said["store_up"] == 0, "once status: 69, at once", code, out, err)
        wait_for(lambda: any(line.startswith("STATUS=not ready: the store has not answered") for line in d.manager.listen()), "STATUS=")
        count = d.manager.listen().count("WATCHDOG=1")
        time.sleep(1)  # heartbeats that do not come
        equal(d.manager.listen().count("WATCHDOG=1"), count, "the watchdog is not fed")
    finally:
        tracer.release()
    wait_for(lambda: d.get("/readyz")[0] == 200, "it to be ready again")
    wait_for(lambda: d.manager.listen().count("WATCHDOG=1") > count, "the watchdog to be fed again")
    ok(True, "and is fed again with the first answer")
    d.end()


class Tracer:
    """Holds one thread of another process."""

    def __init__(self, thread):
        import ctypes
        self.libc, self.thread = ctypes.CDLL(None, use_errno=True), thread
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self.attached = self.libc.ptrace(16, thread, None, None) == 0  # PTRACE_ATTACH
        if self.attached:
            os.waitpid(thread, 0x40000000)  # __WALL

    def release(self):
        self.libc.ptrace(17, self.thread, None, None)  # PTRACE_DETACH


def test_other_watchdogs():
    d = Daemon(env={"WATCHDOG_USEC": "200000", "WATCHDOG_PID": "1"})
    wait_for(lambda: d.get("/readyz")[0] == 200, "it to be ready")
    d.manager.wait("STATUS=ready")
    ok("WATCHDOG=1" not in d.manager.listen(), "a watchdog for another process is not ours")
    d.end()


def test_log_says_what_clients_are_told():
    """That the store cannot do its work, and why: whoever gets a 503 cannot free a disk."""
    with tempfile.TemporaryFile() as log:
        d = Daemon(env={"ONCE_FAULT": "refuse:1+"}, store="fault+sqlite:" + os.path.join(tempfile.mkdtemp(prefix="once-status-"), "once.db"), stderr=log)
        c = d.client()
        equal([c.ask(w.claim("k%d" % n)).result for n in range(3)], [w.UNAVAILABLE] * 3, "three claims are refused")
        c.s.close()

        def said():
            log.seek(0)
            return log.read().decode()
        pattern = r"^\S+Z once daemon: [123] operations could not be done; the last: .*was refused on purpose"
        ok(wait_for(lambda: re.search(pattern, said(), re.M), "the log to say so"), "the log says so, and why")
        ok(len(re.findall("could not be done", said())) <= 2, "not for each", said())
        d.end()


def gauge(d, name):
    found = re.search(r"^%s (\S+)$" % name, d.get("/metrics")[1], re.M)
    return float(found[1]) if found else None


def make_unknown(d, count, others=0):
    c = d.client()
    for n in range(count + others):
        c.send(w.claim("k%d" % n, number=n + 1))
    grants = [c.get().grant for _ in range(count + others)]
    for n, grant in enumerate(grants):
        c.send(w.finish(grant, number=n + 1, state=w.UNKNOWN_STATE if n < count else w.SUCCEEDED))
    equal({c.get().arm for _ in grants}, {w.DONE}, "%d are unknown, %d are not" % (count, others))
    c.s.close()


def test_log_that_nobody_reads():
    """What it has to say is dropped and counted: a full pipe holds up nobody, nor the end."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    filled = 0
    try:
        while True:
            filled += os.write(writer, b"." * 4095 + b"\n")
    except BlockingIOError:
        os.set_blocking(writer, True)
    d = Daemon(stderr=writer)
    make_unknown(d, 3)
    ok(wait_for(lambda: gauge(d, "once_log_lines_dropped_total") >= 3, "them to be told"), "three lines are dropped, and counted")
    equal(d.status("--quiet")[0], 0, "it is well")
    while filled > 0:
        filled -= len(os.read(reader, filled))
    c = d.client()
    with os.fdopen(reader, encoding="utf-8") as log:
        c.ask(w.finish(c.ask(w.claim("later")).grant, state=w.UNKNOWN_STATE))
        line = log.readline()
        said = re.fullmatch(r"\S+Z once daemon: ([0-9]+) lines were dropped here: standard error was not read\n", line)
        ok(said and int(said[1]) >= 3, "the next says how many", line)
        ok(wait_for(lambda: " once daemon: escalated once-" in log.readline(), "what comes after"), "and goes on")
        c.s.close()
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"." * 4095 + b"\n")
        except BlockingIOError:
            os.set_blocking(writer, True)
        d.process.send_signal(signal.SIGTERM)
        try:
            equal(d.process.wait(SECONDS), 0, "it ends, though it cannot say so")
        except subprocess.TimeoutExpired:
            ok(False, "it ends, though it cannot say so")
    os.close(writer)
    d.end()


def test_log_has_what_waited_at_the_end():
    """A webhook that does not answer holds up the others' lines; SIGTERM does not take them away."""
    count = 200
    webhook = socket.create_server(("127.0.0.1", 0))
    with tempfile.TemporaryFile() as log:
        d = Daemon("--escalate-webhook", "http://127.0.0.1:%d/" % webhook.getsockname()[1], stderr=log)
        make_unknown(d, count)
        held = webhook.accept()[0]
        d.process.send_signal(signal.SIGTERM)
        equal(d.process.wait(SECONDS), 0, "it ends")
        held.close()
        log.seek(0)
        said = log.read().decode()
        told = set(re.findall(r"escalated (once-[0-9a-f]{32}-[0-9]+): ", said))
        equal(len(told), count, "each record that became unknown has its line (K10)")
        ok(said.count("the webhook was not told") >= count - 1, "which says that nobody else was told", said)
        d.end()
    webhook.close()


def test_unknown_now():
    """How many records are unknown, whoever made them so: more than a listing has at once, also after a restart, until they are resolved (K10)."""
    many = 1500
    d = Daemon()
    wait_for(lambda: gauge(d, "once_unknown_records") == 0, "a first count")
    ok(gauge(d, "once_unknown_records_age_seconds") >= 0, "and how old it is")
    make_unknown(d, many, others=10)
    ok(wait_for(lambda: gauge(d, "once_unknown_records") == many, "all of them to be counted"), "they are counted, others are not")
    d.process.send_signal(signal.SIGTERM)
    equal(d.process.wait(SECONDS), 0, "it ends")
    d.start(env={**os.environ, "NOTIFY_SOCKET": d.manager.path})
    ok(wait_for(lambda: gauge(d, "once_unknown_records") == many, "them to be counted again"), "so they are after a restart")
    equal(gauge(d, "once_escalations_total"), 0, "which the counter of escalations has forgotten")
    for n in range(2):
        subprocess.run([ONCE, "keys", "resolve", "k%d" % n, "--not-done", "--reason", "looked", "--quiet", "--store", "once:" + d.socket], check=True)
    ok(wait_for(lambda: gauge(d, "once_unknown_records") == many - 2, "two less"), "what was resolved is not counted any more")
    d.end()


def names_in(text):
    return set(re.findall(r"\bonce_[a-z_]+[a-z]\b", text))


def test_dashboard():
    """Whatever dashboard and alerts ask for is there, in a daemon that relays and completes."""
    folder = tempfile.mkdtemp(prefix="once-outbox-")
    outbox = "sqlite:" + os.path.join(folder, "outbox.db")
    subprocess.run([ONCE, "migrate", "--store", outbox], check=True, stdout=subprocess.DEVNULL)
    d = Daemon("--relay", "a.*=http://127.0.0.1:9/", "--relay-store", outbox, "--complete", "app=http://127.0.0.1:9/")
    c = d.client()
    for n in range(3):
        c.send(w.claim("k%d" % n, number=n + 1, route="orders"))
    wait_for(lambda: json.loads(d.status("--json")[1])["executions"] >= 3, "claims")
    text = wait_for(lambda: "once_outbox_oldest_seconds" in (t := d.get("/metrics")[1]) and "once_unknown_records" in t and t, "the outbox's numbers")
    c.s.close()
    have = set(re.findall(r"^([a-z_]+)", text, re.M))
    dashboard = open(os.path.join(SOURCE, "packaging/grafana/once.json"), encoding="utf-8").read()
    alerts = open(os.path.join(SOURCE, "packaging/prometheus/alerts.yml"), encoding="utf-8").read()
    panels = json.loads(dashboard)["panels"]
    expressions = [t["expr"] for p in panels for t in p.get("targets", [])]
    ok(len(expressions) > 30, "the dashboard asks for something")
    equal(sorted(names_in("\n".join(expressions)) - have), [], "metrics that the dashboard names and nobody has")
    named = {name for line in re.findall(r"^\s+expr: (.*)$", alerts, re.M) for name in names_in(line)}
    ok(len(named) > 10, "the alerts ask for something")
    equal(sorted(named - have), [], "metrics that the alerts name and nobody has")
    manual = open(os.path.join(SOURCE, "docs/operations.md"), encoding="utf-8").read() + open(os.path.join(SOURCE, "docs/messages.md"), encoding="utf-8").read()
    plain = {re.sub(r"_(bucket|sum|count)$", "", name) for name in have if name.startswith("once_")}
    abbreviated = lambda name: "..._" + "_".join(name.split("_")[2:])  # `..._unreached_total`
    equal(sorted(name for name in plain if name not in manual and abbreviated(name) not in manual), [], "metrics that the manual does not name")
    labels = set(re.findall(r'arm="([^"]*)"', text))
    equal(sorted(set(re.findall(r'arm="([a-z ]+)"', alerts)) - labels), [], "arms of the alerts")
    promtool = shutil.which("promtool")
    if promtool is None:
        ok(True, "promtool is not installed # SKIP")
    else:
        run = subprocess.run([promtool, "check", "metrics"], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        ok(run.returncode == 0, "promtool check metrics", run.stdout)
        run = subprocess.run([promtool, "check", "rules", "packaging/prometheus/alerts.yml"], cwd=SOURCE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        ok(run.returncode == 0, "promtool check rules", run.stdout)
        run = subprocess.run([promtool, "test", "rules", "alerts_test.yml"], cwd=os.path.join(SOURCE, "packaging/prometheus"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        ok(run.returncode == 0, "promtool test rules", run.stdout)
        asked = [e.replace("$__rate_interval", "5m").replace("$instance", ".*").replace("$route", ".*") for e in expressions]  # as Grafana would send it
        rules = ", ".join("{record: 'a:b%d', expr: %s}" % (n, json.dumps(e)) for n, e in enumerate(asked))
        run = subprocess.run([promtool, "check", "rules", "/dev/stdin"], input="groups: [{name: g, rules: [%s]}]" % rules, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        ok(run.returncode == 0 and "%d rules found" % len(asked) in run.stdout, "PromQL of the dashboard", run.stdout)
    d.end()
    shutil.rmtree(folder, ignore_errors=True)


def main():
    for name, function in list(globals().items()):
        if name.startswith("test_") and (len(sys.argv) < 2 or any(word in name for word in sys.argv[1:])):
            print("# %s" % name, flush=True)
            function()
    finish()


main()
