#!/usr/bin/env python3
"""`once serve`, running: order of start and end, children that die, users, and requests through it."""
import datetime
import json
import os
import pwd
import re
import select
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import threading

from harness import (MODULE, ONCE, ROOT, SECONDS, Skipped, contains, expect_equal, free_port, free_ports, http_off, is_alive, is_refused,
                     main, need_module, need_plain_user, put_program, request, uid_of, wait_for)

HERE = os.path.dirname(os.path.abspath(__file__))
from lib import wireclient as w
from lib.http import Handler, Server


def answers(gateway):
    return lambda: (request(gateway.port, timeout=5) or (0,))[0] == 201


def end_lease(gateway, key):
    """Of a holder that is dead, as it could itself (EXTEND by its fence): one that ran out by itself might do so too early."""
    client = w.Client(gateway.socket(), seconds=SECONDS)
    expect_equal(client.ask(w.call(w.EXTEND, struct.pack("!q", 1), *client.ask(w.lookup(key)).grant)).arm, w.DONE, "the end of a lease")
    client.close()


def is_utc(text, what):
    """ISO 8601, UTC, milliseconds; between the epoch of this test's file and far away: no verdict on how fast it was."""
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text), (what, text)
    age = datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.fromisoformat(text[:-1] + "+00:00")
    assert abs(age.total_seconds()) < 3600, (what, text, "is local time, or of another clock")


def test_start__passes_requests_on_and_tells_where_things_are(world):
    need_module()
    gateway = world.serve("--log-requests").ready()
    status, _, body = request(gateway.port)
    expect_equal((status, body), (201, b"number 1 host 127.0.0.1:%d\n" % gateway.port), "the answer")
    log = gateway.log()
    for part in ("once serve: configuration %s/nginx.conf\n" % gateway.folder(),
                 "once serve: store         sqlite:%s\n" % world.path("once.db"),
                 "once serve: ready: http://127.0.0.1:%d -> %s\n" % (gateway.port, gateway.service.url),
                 "once serve: see the keys:   once keys list --store once:%s\n" % gateway.socket()):
        contains(log, part, "the log")
    line = re.compile(r'^nginx: (\S+) 127\.0\.0\.1 "POST / HTTP/1\.1" 201 bypassed key=-$', re.M)
    wait_for(lambda: line.search(gateway.log()), "the request in the log")
    is_utc(line.search(gateway.log()).group(1), "its time")
    status, out, err = world.once("keys", "list", "--store", "once:" + gateway.socket())
    expect_equal((status, err), (0, ""), "keys list through the daemon: " + out)
    gateway.end()


def test_start__credentials_stay_out_of_nginx(world):
    """Its workers keep a copy of what it was started with in their memory, though not in /proc."""
    need_module()
    if world.bin:
        raise Skipped("nginx is started by another script here")
    secret = "a-password-of-the-store"
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    os.mkdir(world.path("bin"))
    put_program(world.path("bin/nginx"), "#!/bin/sh\nenv >>%s\nexec %s \"$@\"\n" % (world.path("seen"), shutil.which("nginx", path=path)))
    world.env.update(ONCE_REDIS_PASSWORD=secret, PGPASSWORD=secret, PATH=world.path("bin") + ":" + path)
    gateway = world.serve().ready()
    with open(world.path("seen"), encoding="utf-8") as seen:
        lines = seen.read().splitlines()
    assert any(line.startswith("PATH=") for line in lines), "nothing was seen"
    expect_equal([line for line in lines if secret in line], [], "what nginx is told")
    with open("/proc/%d/environ" % gateway.daemon()[0], "rb") as f:
        contains(f.read().decode(), secret, "the daemon's environment")
    gateway.end()


def test_end__each_signal_ends_all_and_it_can_start_again(world):
    need_module()
    port = free_port()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        gateway = world.serve(port=port).ready()
        wait_for(answers(gateway), "an answer")
        gateway.end(number)
        expect_equal(request(port, timeout=5), None, "after the end")


def test_end__before_anything_runs_leaves_nothing(world):
    """While nginx -t takes its time, as where a name is looked up and nobody answers."""
    slow = world.path("slow")
    with open(slow, "w", encoding="ascii") as f:
        f.write("#!/bin/sh\n: > %s.began\nexec sleep 600\n" % slow)
    os.chmod(slow, 0o755)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        gateway = world.serve("--nginx", slow, "--module", "/dev/null")
        wait_for(lambda: os.path.exists(slow + ".began"), "nginx -t")
        os.unlink(slow + ".began")
        gateway.process.send_signal(signal.SIGHUP)  # nothing was read yet that could be read again
        gateway.process.send_signal(number)
        expect_equal(gateway.process.wait(SECONDS), 0, "its exit status by signal %d: %s" % (number, gateway.log()))
        expect_equal(os.path.exists("/run/once-serve-127.0.0.1-%d" % gateway.port), False, "its folder")
        expect_equal(os.path.exists(world.path("once.db")), False, "a store")


def test_end__a_request_in_flight_is_finished(world):
    need_module()
    gateway = world.serve().ready()
    got = []
    thread = threading.Thread(target=lambda: got.append(request(gateway.port, "/wait")))
    thread.start()
    wait_for(gateway.service.arrived.is_set, "the request to arrive")
    gateway.all()
    gateway.send(signal.SIGTERM)
    wait_for(lambda: is_refused(gateway.port), "new connections to be refused")
    assert gateway.process.poll() is None, "did not wait"
    assert gateway.daemon(), "SERVE-1: the daemon ended before nginx"
    gateway.service.go_on.set()
    thread.join()
    expect_equal(got[0] and got[0][0], 201, "the answer")
    expect_equal(gateway.ended(), 0, "exit status")
    gateway.nothing_left()


def test_complete__what_a_killed_worker_left_is_sent_again(world):
    need_module()
    world.tolerate = "exited on signal 9"
    gateway = world.serve("--complete", "--takeover", "rerun", "--lease", "1h").ready()  # it ends with its worker
    wait_for(answers(gateway), "an answer")
    before = gateway.service.count
    thread = threading.Thread(target=lambda: request(gateway.port, "/wait", "left", body=b"order"))
    thread.start()
    wait_for(gateway.service.arrived.is_set, "the request to arrive")
    for pid in gateway.workers():
        os.kill(pid, signal.SIGKILL)
    thread.join()
    gateway.service.go_on.set()

    def done():
        _, out, _ = world.once("keys", "list", "--json", "--store", "once:" + gateway.socket())
        return "succeeded" in out
    wait_for(done, "the daemon to finish it")
    expect_equal(gateway.service.count, before + 2, "requests that reached the service")
    status, headers, body = wait_for(lambda: request(gateway.port, "/wait", "left", body=b"order"), "an answer")
    expect_equal((status, body), (201, b"number %d host 127.0.0.1:%d\n" % (before + 2, gateway.port)), "the retry")
    gateway.end()


def test_complete__what_a_killed_worker_left_is_asked_about(world):
    need_module()
    world.tolerate = "exited on signal 9"
    gateway = world.serve("--complete", "--takeover", "probe", "--probe", "/by-key/{key}", "--lease", "1h").ready()
    wait_for(answers(gateway), "an answer")
    before = gateway.service.count
    thread = threading.Thread(target=lambda: request(gateway.port, "/wait", "left", body=b"order"))
    thread.start()
    wait_for(gateway.service.arrived.is_set, "the request to arrive")
    for pid in gateway.workers():
        os.kill(pid, signal.SIGKILL)
    thread.join()
    gateway.service.go_on.set()
    end_lease(gateway, "left")

    def told():
        got = request(gateway.port, "/wait", "left", body=b"order")
        return got if got and got[0] not in (409, 503) else None
    status, headers, body = wait_for(told, "an answer")
    expect_equal((status, body), (200, b"it is done\n"), "the service's word")
    expect_equal(gateway.service.count, before + 1, "requests that had an effect")
    gateway.end()


def test_end__a_second_signal_hurries(world):
    world.tolerate = r"open socket #\d+ left|aborting$"  # what nginx says when it is cut off while it quits
    need_module()
    gateway = world.serve().ready()
    thread = threading.Thread(target=lambda: request(gateway.port, "/wait"))
    thread.start()
    wait_for(gateway.service.arrived.is_set, "the request to arrive")
    gateway.all()

    def pressed():
        try:
            gateway.send(signal.SIGTERM)
        except ProcessLookupError:
            pass
        return gateway.process.poll() is not None
    wait_for(pressed, "the end")
    contains(gateway.log(), "once serve: nginx still has requests in flight; they are cut off\n", "the log")
    gateway.nothing_left()
    gateway.service.go_on.set()
    thread.join()


def test_die__daemon_is_started_again(world):
    need_module()
    gateway = world.serve().ready()
    for turn in range(2):
        [old] = gateway.daemon()
        os.kill(old, signal.SIGKILL)
        wait_for(lambda: gateway.daemon() not in ([], [old]), "another daemon")
        wait_for(lambda: gateway.log().count("once serve: daemon is up again\n") == turn + 1, "it to be ready")
    contains(gateway.log(), "once serve: daemon was killed by signal 9 (Killed); it is restarted in ", "the log")
    wait_for(answers(gateway), "an answer")
    status, _, err = world.once("keys", "list", "--store", "once:" + gateway.socket())
    expect_equal((status, err), (0, ""), "keys list through the new daemon")
    gateway.end()


def test_die__nginx_is_started_again_and_its_orphans_end(world):
    need_module()
    gateway = world.serve().ready()
    [old], workers = gateway.master(), gateway.workers()
    os.kill(old, signal.SIGKILL)
    wait_for(lambda: not any(is_alive(p) for p in workers), "the old workers to end")
    wait_for(lambda: gateway.master() not in ([], [old]), "another master")
    wait_for(answers(gateway), "an answer")
    wait_for(lambda: len(gateway.workers()) == 2, "two workers")
    contains(gateway.log(), "once serve: nginx was killed by signal 9 (Killed); it is restarted in ", "the log")
    gateway.end()


def test_die__a_worker_is_nginxs_own_matter(world):
    world.tolerate = "exited on signal 9"
    need_module()
    gateway = world.serve().ready()
    [master], worker = gateway.master(), gateway.workers()[0]
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: gateway.has_new_workers([worker]), "another worker")
    expect_equal(gateway.master(), [master], "the master")
    gateway.end()


def test_die__once_serve_itself(world):
    need_module()
    gateway = world.serve().ready()
    gateway.all()
    os.kill(gateway.pid(), signal.SIGKILL)
    gateway.nothing_left()
    # What it left in its folders is no obstacle.
    again = world.serve(port=gateway.port).ready()
    wait_for(answers(again), "an answer")
    again.end()


def test_die__daemon_that_cannot_start_ends_it(world):
    need_module()
    gateway = world.serve("--store", "sqlite:/nonexistent/folder/once.db")
    expect_equal(gateway.ended(), 69, "exit status")
    contains(gateway.log(), "once serve: daemon exited with status 69 before it was ready\n", "the log")
    contains(gateway.log(), "\nonce daemon: cannot open the store: ", "the log")


def test_reload__new_workers_same_master(world):
    need_module()
    gateway = world.serve().ready()
    [master], old = gateway.master(), gateway.workers()
    gateway.send(signal.SIGHUP)
    wait_for(lambda: gateway.has_new_workers(old), "new workers only")
    expect_equal(gateway.master(), [master], "the master")
    wait_for(answers(gateway), "an answer")
    gateway.end()


def test_terminal__that_is_gone_ends_it(world):
    need_module()
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    gateway = world.serve(stderr=theirs)
    os.close(theirs)
    shown = bytearray()

    def shows(text):
        try:
            shown.extend(os.read(ours, 65536))
        except BlockingIOError:
            pass
        return text in shown
    wait_for(lambda: shows(b"once serve: ready: "), "once serve to be ready")
    gateway.send(signal.SIGHUP)
    wait_for(lambda: shows(b"reloads its configuration"), "a reload")
    wait_for(lambda: len(gateway.workers()) == 2, "two workers")
    gateway.all()
    os.close(ours)
    gateway.send(signal.SIGHUP)
    expect_equal(gateway.ended(), 0, "exit status")
    gateway.nothing_left()


def test_log__that_nobody_reads_holds_nobody_up(world):
    """Lines are dropped, and how many is said when somebody reads again; it answers, and it ends."""
    need_module()
    ours, theirs = os.pipe()
    gateway = world.serve("--log-requests", stderr=theirs)
    os.close(theirs)
    os.set_blocking(ours, False)
    said = bytearray()

    def says(text):
        try:
            said.extend(os.read(ours, 1 << 20))
        except BlockingIOError:
            pass
        return text in said

    def flood():
        """300 kB of lines, where a pipe has room for 64; how many requests were answered."""
        return sum(request(gateway.port, "/" + "x" * 1500, method="GET") is not None for _ in range(200))
    wait_for(lambda: says(b"once serve: ready: "), "once serve to be ready")
    expect_equal(flood(), 200, "requests that were answered")
    wait_for(lambda: says(b"lines were dropped here") or not request(gateway.port, method="GET"), "what is missing to be told")
    expect_equal(flood(), 200, "requests that were answered again")
    gateway.all()
    gateway.send(signal.SIGTERM)
    expect_equal(gateway.ended(), 0, "exit status")
    os.close(ours)
    gateway.nothing_left()


def test_address__is_had_by_one(world):
    need_module()
    gateway = world.serve().ready()
    status, _, err = world.once("serve", "--upstream", "http://127.0.0.1:9", "--listen", str(gateway.port), "--store",
                                "sqlite:" + world.path("other.db"), "--module", need_module())
    expect_equal(status, 69, "exit status")
    contains(err, "cannot listen on 127.0.0.1:%d: Address already in use" % gateway.port, "message")
    wait_for(answers(gateway), "the first to answer")
    gateway.end()


def test_config__stays_where_it_was_asked_for(world):
    need_module()
    path = world.path("etc/nginx.conf")
    for _ in range(2):  # the second time it is overwritten
        gateway = world.serve("--config", world.path("etc")).ready()
        with open(path, encoding="utf-8") as f:
            contains(f.read(), "listen 127.0.0.1:%d;" % gateway.port, "the file")
        gateway.end()
        assert os.path.exists(path), "it is gone"


def test_daemon__that_runs_already(world):
    need_module()
    first = world.serve().ready()
    second = world.serve("--store", "once:" + first.socket()).ready()
    wait_for(answers(second), "an answer")
    expect_equal(second.daemon(), [], "no daemon of its own")
    second.send(signal.SIGTERM)
    expect_equal(second.ended(), 0, "exit status")
    second.nothing_left()
    assert os.path.exists(first.socket()), "the other's socket is gone"
    first.end()


def test_http__is_the_daemons(world):
    need_module()
    if not http_off():
        raise Skipped("this daemon has no JSON API")
    port = free_port()
    gateway = world.serve("--http", "127.0.0.1:%d" % port).ready()
    contains(gateway.log(), "once serve: the JSON API:   http://127.0.0.1:%d\n" % port, "the log")
    wait_for(lambda: request(port, "/healthz", method="GET", body=None)[0] == 200, "a store that answers in time")
    gateway.end()
    assert is_refused(port), "it is still there"


def test_relay__is_the_daemons(world):
    need_module()
    port = free_port()
    with open(world.path("keys"), "w", encoding="ascii") as f:
        f.write("whsec_" + "QUJD" * 8 + "\n")
    gateway = world.serve("--http", str(port), "--relay", "orders.*=http://127.0.0.1:9/in", "--relay", "*=http://127.0.0.1:9/rest",
                          "--relay-store", "sqlite:" + world.path("no-such.db"), "--relay-secret-file", world.path("keys"),
                          "--relay-timeout", "1s").ready()
    wait_for(answers(gateway), "an answer, with an outbox that is not there")

    def metrics():
        return request(port, "/metrics", method="GET", body=None)[2].decode()
    wait_for(lambda: "once_relay_outages_total 1\n" in metrics(), "its notice")
    contains(metrics(), 'once_relay_published_total{route="orders.*"} 0\n', "the metrics")
    contains(metrics(), "once_relay_up 0\n", "the metrics")
    with open("/proc/%d/cmdline" % gateway.daemon()[0], encoding="utf-8") as f:
        words = f.read().split("\0")
    expect_equal([w for w in words if "no-such" in w], [], "arguments, which everybody sees, that name the outbox")
    expect_equal(words[words.index("--relay-secret-file") + 1], os.path.realpath(world.path("keys")), "the file, wherever the daemon is")
    gateway.end()
    contains(gateway.log(), "relay: ", "the log")


def test_console__is_the_daemons(world):
    need_module()
    port, traces = free_port(), "https://jaeger.example/search?tags=%7B%22once.key_hash%22%3A%22{key_hash}%22%7D"
    gateway = world.serve("--console", "127.0.0.1:%d" % port, "--console-outbox", "sqlite:" + world.path("no-such.db"),
                          "--console-traces", traces, "--console-origin", "https://console.example").ready()
    expect_equal(request(port, "/", method="GET", body=None)[0], 200, "the console")
    with open("/proc/%d/cmdline" % gateway.daemon()[0], encoding="utf-8") as f:
        words = f.read().split("\0")
    expect_equal(words[words.index("--console-traces") + 1], traces, "where traces are")
    expect_equal(words[words.index("--console-origin") + 1], "https://console.example", "where browsers find it")
    expect_equal([w for w in words if "no-such" in w], [], "arguments, which everybody sees, that name the outbox")
    gateway.end()


def test_telling__is_the_daemons(world):
    """Decisions go to a file, which USR1 opens anew; spans to a collector."""
    need_module()
    taken, log, moved = [], world.path("decisions.log"), world.path("decisions.old")

    class Collector(Handler):
        def do_POST(self):
            taken.append(json.loads(self.body()))
            self.answer(200)
    collector = Server(Collector)
    if ROOT:
        os.chmod(world.folder, 0o777)
    gateway = world.serve("--log-decisions", "json", "--log-file", log, "--otlp", collector.url).ready()

    def decided(path, count):
        try:
            with open(path, encoding="utf-8") as f:
                return len([json.loads(line)["key_hash"] for line in f if line.endswith("\n")]) >= count
        except FileNotFoundError:
            return False
    wait_for(lambda: request(gateway.port, key="k1")[0] < 500, "an answer")
    wait_for(lambda: decided(log, 2), "lines")
    os.rename(log, moved)
    gateway.send(signal.SIGUSR1)
    wait_for(lambda: os.path.exists(log), "the file anew")
    request(gateway.port, key="k2")
    wait_for(lambda: decided(log, 2), "lines there")
    spans = lambda: [s["name"] for t in taken for r in t["resourceSpans"] for c in r["scopeSpans"] for s in c["spans"]]
    wait_for(lambda: sorted(set(spans())) == ["once.claim", "once.finish", "once.request", "once.upstream"], "spans")
    gateway.end()
    collector.stop()


def test_telling__lines_have_a_time_in_utc(world):
    """Of requests, decisions, what the daemon says and what we say, wherever the machine is; a decision's line stays JSON."""
    need_module()
    world.env["TZ"] = "XXX-9"
    gateway = world.serve("--log-decisions", "json", "--log-requests").ready()
    wait_for(lambda: request(gateway.port, key="k1")[0] == 201, "an answer")
    wait_for(lambda: '"op":"finish"' in gateway.log(), "its end in the log")
    os.kill(gateway.daemon()[0], signal.SIGKILL)
    wait_for(lambda: "once serve: daemon is up again\n" in gateway.log(), "it to be ready")
    gateway.end()
    log = gateway.log()
    decided = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert {"claim", "finish"} <= {d["op"] for d in decided}, log
    for d in decided:
        is_utc(d["time"], "a decision")
    for pattern in (r'^nginx: (\S+) 127\.0\.0\.1 "POST / HTTP/1\.1" 201 \S+ key=[0-9a-f]{32}$', r"^(\S+) once serve: daemon is up again$", r"^(\S+) once serve: daemon was killed by signal 9",
                    r"^(\S+) once daemon: ended by signal \d+$"):
        found = re.findall(pattern, log, re.M)
        assert found, (pattern, log)
        for at in found:
            is_utc(at, pattern)
    assert "daemon: {" not in log and "daemon: once daemon" not in log, log


def test_telling__the_journal_has_times_of_its_own(world):
    """Then ours are left out, also those of the daemon, whose standard error is a pipe to us."""
    need_module()
    path = world.path("log.%d" % len(world.started))
    with open(path, "wb"):
        seen = os.stat(path)
    world.env["JOURNAL_STREAM"] = "%d:%d" % (seen.st_dev, seen.st_ino)
    gateway = world.serve().ready()
    expect_equal(gateway.log_path, path, "its standard error")
    for pid in gateway.daemon():
        with open("/proc/%d/environ" % pid) as file:
            assert "JOURNAL_STREAM" not in file.read(), "a child is told that its pipe to us is the journal"
    gateway.end()
    contains(gateway.log(), "\nonce daemon: ended by signal ", "the daemon's")
    contains(gateway.log(), "\nonce serve: stopping: ", "our own")


def test_tls__is_served(world):
    need_module()
    cert, key = world.path("cert.pem"), world.path("key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert], check=True, capture_output=True)
    gateway = world.serve("--tls-cert", cert, "--tls-key", key).ready()
    out = subprocess.run(["curl", "-sS", "--cacert", cert, "-w", "%{http_version}", "-d", "x",
                          "https://localhost:%d/" % gateway.port], capture_output=True, text=True, check=False)
    expect_equal((out.stdout, out.stderr), ("number 1 host localhost:%d\n2" % gateway.port, ""), "the answer, over HTTP/2")
    gateway.end()


# ---------------------------------------------------------------- users

def test_user__root_gives_up_what_it_need_not_have(world):
    if not ROOT:
        raise Skipped("not root")
    need_plain_user()  # others can reach this build
    daemon = pwd.getpwnam("daemon")
    os.mkdir(world.path("data"), 0o700)
    os.chown(world.path("data"), daemon.pw_uid, daemon.pw_gid)
    gateway = world.serve("--user", "daemon", "--store", "sqlite:" + world.path("data/once.db")).ready()
    expect_equal({uid_of(p) for p in gateway.workers()}, {pwd.getpwnam("www-data").pw_uid}, "the workers' user")
    expect_equal([uid_of(p) for p in gateway.daemon()], [daemon.pw_uid], "the daemon's user")
    with open("/proc/%d/status" % gateway.daemon()[0], encoding="ascii") as f:
        groups = next(line for line in f if line.startswith("Groups:")).split()[1:]
    assert "0" not in groups, "the daemon is in root's group"
    wait_for(answers(gateway), "an answer")
    for user, allowed in (("www-data", True), ("nobody", False)):
        status, _, err = world.once("keys", "list", "--store", "once:" + gateway.socket(), user=user)
        expect_equal(status == 0, allowed, "the daemon lets %s in: %s" % (user, err))
    os.kill(gateway.daemon()[0], signal.SIGKILL)
    wait_for(lambda: "daemon is up again" in gateway.log(), "another daemon")
    expect_equal([uid_of(p) for p in gateway.daemon()], [daemon.pw_uid], "the next daemon's user")
    gateway.end()


def test_user__a_plain_one_works_in_his_own_folders(world):
    user = need_plain_user()
    if user is not None:
        uid = pwd.getpwnam(user).pw_uid
        for name in ("state", "run"):
            os.mkdir(world.path(name), 0o700)
            os.chown(world.path(name), uid, -1)
    else:
        uid = os.getuid()
    gateway = world.serve("--store", "sqlite:" + world.path("state/once.db"), user=user).ready()
    expect_equal({uid_of(p) for p in gateway.workers() + gateway.daemon() + gateway.master()}, {uid}, "their user")
    assert gateway.folder().startswith(world.path("run/once/")), gateway.folder()
    expect_equal(request(gateway.port, body=b"y" * 3000000)[0], 201, "a body that goes through a temporary file")
    gateway.end()


def test_user__a_plain_one_without_a_runtime_folder(world):
    user = need_plain_user()
    if user is not None:
        os.mkdir(world.path("state"), 0o700)
        os.chown(world.path("state"), pwd.getpwnam(user).pw_uid, -1)
    del world.env["XDG_RUNTIME_DIR"]
    gateway = world.serve("--store", "sqlite:" + world.path("state/once.db"), user=user).ready()
    assert gateway.folder().startswith(world.path("state/once/run/")), gateway.folder()
    wait_for(answers(gateway), "an answer")
    gateway.end()


# ---------------------------------------------------------------- keys, with the real module

def test_keys__are_executed_once(world):
    need_module()
    gateway = world.serve("--wait", "120s").ready()
    first, second = request(gateway.port, key="a"), request(gateway.port, key="a")
    expect_equal((first[0], second[0], second[2]), (201, 201, first[2]), "the replay")
    expect_equal((first[1]["Idempotency-Replayed"], second[1]["Idempotency-Replayed"]), (None, "true"), "the mark")
    expect_equal(request(gateway.port, key="a", body=b"other")[0], 422, "another body")
    before, got = gateway.service.count, []
    threads = [threading.Thread(target=lambda: got.append(request(gateway.port, key="b"))) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect_equal((len({answer[2] for answer in got}), gateway.service.count - before), (1, 1), "ten at once")
    gateway.end()


def test_keys__survive_the_death_of_either(world):
    need_module()
    gateway = world.serve().ready()
    first = request(gateway.port, key="a")
    os.kill(gateway.daemon()[0], signal.SIGKILL)
    wait_for(lambda: (request(gateway.port, key="a") or (0, 0, b""))[2] == first[2], "the replay")
    os.kill(gateway.master()[0], signal.SIGKILL)
    wait_for(lambda: (request(gateway.port, key="a") or (0, 0, b""))[2] == first[2], "the replay")
    expect_equal(gateway.service.count, 1, "executions")
    gateway.end()


def test_keys__a_request_in_flight_at_the_end_is_stored(world):
    need_module()
    gateway = world.serve().ready()
    got = []
    thread = threading.Thread(target=lambda: got.append(request(gateway.port, "/wait", key="a")))
    thread.start()
    wait_for(gateway.service.arrived.is_set, "the request to arrive")
    gateway.send(signal.SIGTERM)
    wait_for(lambda: is_refused(gateway.port), "new connections to be refused")
    gateway.service.go_on.set()
    thread.join()
    expect_equal(gateway.ended(), 0, "exit status")
    again = world.serve(upstream=gateway.service.url).ready()
    expect_equal(request(again.port, "/wait", key="a")[2], got[0][2], "the replay after a restart")
    expect_equal(gateway.service.count, 1, "executions")
    again.end()


def test_keys__a_client_that_goes_away_gets_the_answer_later(world):
    need_module()
    gateway = world.serve().ready()
    while not gateway.service.arrived.is_set():
        client = socket.create_connection(("127.0.0.1", gateway.port))
        client.sendall(b"POST /wait HTTP/1.1\r\nHost: x\r\nIdempotency-Key: \"a\"\r\nContent-Length: 1\r\n\r\nx")
        wait_for(lambda: gateway.service.arrived.is_set() or select.select([client], [], [], 0)[0], "the request to arrive")
        if not gateway.service.arrived.is_set():  # the daemon was late: asked again, until the claim that came too late was given back
            said = client.recv(65536)
            assert b'"store-unavailable"' in said or b'"in-progress"' in said, said
        client.close()
    gateway.service.go_on.set()
    wait_for(lambda: request(gateway.port, "/wait", key="a")[1]["Idempotency-Replayed"] == "true", "the replay")
    expect_equal(gateway.service.count, 1, "executions")
    gateway.end()


def test_keys__tenant_and_required(world):
    need_module()
    gateway = world.serve("--required", "--tenant-header", "X-Tenant").ready()
    expect_equal(request(gateway.port)[0], 400, "no key")
    expect_equal(request(gateway.port, key="a")[0], 401, "no tenant")
    expect_equal(gateway.service.count, 0, "executions")
    for tenant in ("ann", "bob", "ann", "bob"):
        expect_equal(request(gateway.port, key="a", **{"X-Tenant": tenant})[0], 201, tenant)
    expect_equal(gateway.service.count, 2, "executions")
    status, headers, body = request(gateway.port, "/.well-known/idempotency", method="GET", body=None)
    expect_equal((status, headers["Content-Type"]), (200, "application/json"), "the policy")
    contains(body, b'"mode":"required"', "the policy")
    gateway.end()


def account(gateway, key, token=None, path="/account"):
    """(status, body, is it a replay)"""
    headers = {"Authorization": "Bearer " + token} if token else {}
    status, sent, body = request(gateway.port, path, key, **headers)
    return status, body, sent["Idempotency-Replayed"] == "true"


def test_credentials__nobody_gets_the_answer_of_another(world):
    """The service knows its callers, the gateway does not: no options."""
    need_module()
    gateway = world.serve().ready()
    expect_equal(account(gateway, "au-1"), (401, b"who are you?\n", False), "nobody comes first: and takes no key")
    expect_equal(account(gateway, "au-1", "of-alice"), (201, b"number 1 account alice\n", False), "alice")
    for token in (None, "of-bob", "of-alice-too", ""):
        status, body, replayed = account(gateway, "au-1", token)
        expect_equal((status, replayed), (422, False), "with alice's key, and %r" % token)
        assert b"alice" not in body, "her answer: %s" % body
    expect_equal(account(gateway, "au-1", "of-alice"), (201, b"number 1 account alice\n", True), "alice again")
    expect_equal(gateway.service.count, 1, "executions")
    gateway.service.accounts["Bearer of-alice-2"] = gateway.service.accounts.pop("Bearer of-alice")
    expect_equal([account(gateway, "au-2", token)[:2] for token in ("of-alice", "of-alice-2")],
          [(401, b"who are you?\n"), (201, b"number 2 account alice\n")], "a token that is over, and the next one, with one key")
    contains(gateway.log(), "once serve: keys          shared by all clients; a retry needs the same credentials (Authorization, Cookie and the like)\n",
             "what is said at the start")
    gateway.end()
    with open(world.path("once.db"), "rb") as f:
        assert b"of-alice" not in f.read(), "a token is in the store"


def test_credentials__others_or_none(world):
    need_module()
    rows = ({"X-Shop-Key": "a"}, {"X-Shop-Key": "a", "Authorization": "Bearer b"}, {"X-Shop-Key": "b"}, {}, {"X-Shop-Key": "a", "X-Shop-User": "u"})
    for only, expected, said in (((), [201, 422], "credentials (Authorization, Cookie and the like), X-Shop-Key, X-Shop-User"),
                                 (("--credentials", "none"), [201, 201], "X-Shop-Key, X-Shop-User")):
        other = world.serve("--credentials", "X-Shop-Key", "--credentials", "X-Shop-User", *only, "--store",
                            "sqlite:" + world.path("other%d.db" % len(only))).ready()
        expect_equal([request(other.port, key="k", **headers)[0] for headers in rows], expected + [422] * 3, "%s %s" % (rows, only))
        contains(other.log(), "keys          shared by all clients; a retry needs the same %s\n" % said, "what is said")
        other.end()
    none = world.serve("--credentials", "none", "--store", "sqlite:" + world.path("none.db")).ready()
    expect_equal([account(none, "k", token)[::2] for token in ("of-alice", None)], [(201, False), (201, True)], "whoever knows the key")
    contains(none.log(), "keys          shared by all clients: every client that knows a key gets its answer (--credentials none)\n", "what is said")
    none.end()
    named = world.serve("--tenant-header", "X-Tenant", "--store", "sqlite:" + world.path("named.db")).ready()
    for token in ("a", "b"):
        expect_equal(request(named.port, key="k", **{"X-Tenant": "ann", "Authorization": token})[0], 201, "an account whose token was renewed")
    expect_equal(named.service.count, 1, "executions")
    contains(named.log(), "keys          per tenant, from X-Tenant, which a proxy before the gateway must check or set\n", "what is said")
    contains(named.log(), "try this twice: curl -i -X POST -H 'Idempotency-Key: \"try-1\"' -H 'X-Tenant: me' http://127.0.0.1:%d/\n" % named.port, "the curl")
    named.end()


def test_policy__final_headers_sizes_and_members(world):
    """The options that are directives of the module: each does something."""
    need_module()
    gateway = world.serve("--final", "default,5xx", "--replay-header", "X-Incident", "--max-response", "20", "--exclude", "/at").ready()
    first, retry = (request(gateway.port, "/broken", "b") for _ in range(2))
    expect_equal((first[0], retry[0], retry[1]["Idempotency-Replayed"]), (500, 410, "true"), "a 5xx is final; its answer is longer than 20 bytes")
    gateway.end()
    gateway = world.serve("--final", "default,5xx", "--replay-header", "X-Incident", "--exclude", "/at", "--store", "sqlite:" + world.path("2.db")).ready()
    first, retry = (request(gateway.port, "/broken", "b", body=b'{"a":1,"at":%d}' % at, **{"Content-Type": "application/json"}) for at in (1, 2))
    expect_equal((first[0], retry[0], retry[2]), (500, 500, first[2]), "a 5xx is final, and /at may differ")
    expect_equal([retry[1][name] for name in ("Idempotency-Replayed", "X-Incident", "Content-Type")], ["true", "i-17", "text/plain"], "headers of the replay")
    expect_equal(gateway.service.count, 1, "executions")
    gateway.end()


def test_quota__is_the_daemons(world):
    need_module()
    gateway = world.serve("--tenant-header", "X-Tenant", "--quota", "records=1", "--quota-tenant", "bob:records=2").ready()
    status = lambda key, tenant: request(gateway.port, key=key, **{"X-Tenant": tenant})[0]
    expect_equal([status(key, "ann") for key in "aba"], [201, 429, 201], "one of ann's, and its replay")
    expect_equal([status(key, "bob") for key in "abcab"], [201, 201, 429, 201, 201], "two of bob's, and their replays")
    expect_equal(gateway.service.count, 3, "executions")
    gateway.end()


# ---------------------------------------------------------------- the demo

def demo(world, *options, log="demo.log"):
    module = ["--module", MODULE] if MODULE else []
    log = open(world.path(log), "wb")
    return subprocess.Popen([sys.executable, os.path.join(HERE, "../../demo/run"), ONCE, world.path("demo"), *options,
                             *http_off(), *module], env=world.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def demo_log(world, name="demo.log"):
    with open(world.path(name), encoding="utf-8", errors="replace") as f:
        return f.read()


def start_another(world):
    """In the same folder: it says so, and leaves what is there alone."""
    files = sorted(os.listdir(world.path("demo")))
    other = demo(world, "--service", "0", "--shop", str(free_ports(2)), log="other.log")
    wait_for(lambda: other.poll() is not None, "the other one's end")
    assert other.returncode != 0, "two in one folder"
    contains(demo_log(world, "other.log"), "demo is another run's: make run RUN=", "what it says")
    expect_equal(sorted(os.listdir(world.path("demo"))), files, "what is in the folder")


def kill_the_shop(world, shop):
    """As the list says: killed after the charge, finished by the completer (K11, FAULT-6)."""
    def order():
        return request(shop, "/orders", key="tea-1", body=b'{"item": "tea", "cents": 2500}')

    request(shop + 1, "/mode/hold-answer", method="PUT", body=b"")
    first = threading.Thread(target=order)
    first.start()
    wait_for(lambda: request(shop + 1, "/held", method="GET", body=None)[2] == b"1", "the charge")
    with open(world.path("demo/shop.pid"), encoding="ascii") as f:
        os.kill(int(f.read()), signal.SIGKILL)
    first.join()
    request(shop + 1, "/mode/ok", method="PUT", body=b"")
    wait_for(lambda: (order() or (0,))[0] == 201, "the completer")
    ledger = sqlite3.connect(world.path("demo/provider.db"))
    expect_equal(ledger.execute("SELECT count(*) FROM charge").fetchone(), (1,), "charges")
    ledger.close()


def test_demo__runs_and_ends(world):
    need_module()
    port, service, shop, console = free_port(), free_port(), free_ports(2), free_port()
    process = demo(world, "--listen", "127.0.0.1:%d" % port, "--service", str(service), "--shop", str(shop),
                   "--console", "127.0.0.1:%d" % console)
    try:
        wait_for(lambda: "Things to try" in demo_log(world) or process.poll() is not None, "the list")
        contains(demo_log(world), "The same in a browser: http://127.0.0.1:%d/#token=" % console, "where the console is")
        expect_equal(request(console, "/", method="GET", body=None)[0], 200, "the console")
        start_another(world)
        expect_equal(request(port, "/orders")[0], 201, "an order")
        expect_equal(request(port, "/flaky")[0], 502, "a dropped connection")
        expect_equal(request(port, "/count", method="GET", body=None)[2], b'{"charges": 2}\n', "the count")
        with open(world.path("demo/orders.pid"), encoding="ascii") as f:
            os.kill(int(f.read()), signal.SIGKILL)
        wait_for(lambda: demo_log(world).count("starting it again") == 1, "the service to come back")
        wait_for(lambda: request(port, "/count", method="GET", body=None)[2] == b'{"charges": 2}\n', "the same count")
        kill_the_shop(world, shop)
        process.send_signal(signal.SIGINT)
        wait_for(lambda: process.poll() is not None, "the end")
        expect_equal(process.returncode, 0, "exit status")
        expect_equal([request(p, timeout=5) for p in (port, service, shop, shop + 1, console)], [None] * 5, "who is left")
    finally:
        process.terminate()
        process.wait()


def test_demo__ports_in_use_are_said(world):
    need_module()
    with socket.socket() as taken:
        port = free_ports(2)  # the shop's provider listens on the next one
        taken.bind(("127.0.0.1", port))
        taken.listen()
        address = "127.0.0.1:%d" % port
        in_use = "cannot listen on %s: Address already in use" % address
        for options, message, said in ((("--service", str(port)), in_use, "make run SERVICE="),
                                       (("--service", "0", "--shop", str(port)), "cannot listen on port %d" % port, "SHOP="),
                                       (("--service", "0", "--shop", str(free_ports(2)), "--listen", address), in_use,
                                        "make run LISTEN=")):
            process = demo(world, *options)
            wait_for(lambda: process.poll() is not None, "the end")
            assert process.returncode != 0, "it said that all was well"
            contains(demo_log(world), message, "the message")
            contains(demo_log(world), said, "the hint")


main(sys.modules[__name__])
