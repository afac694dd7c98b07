#!/usr/bin/env python3
"""The gateway's module in a real nginx, with the real daemon and an upstream that counts: a first look.

usage: smoke.py [words that select cases]
environment: ONCE_BIN, ONCE_NGINX_MODULE, ONCE_TEST_KEEP=1, ONCE_NGINX_PRELOAD (a sanitizer's library)

Each case has its own keys; nginx, daemon and upstream are shared. Prints TAP.
"""
import datetime
import functools
import http.client
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

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib import daemon, sanitized, tap
from lib.daemon import ONCE
from lib.listener import Listener
from lib.ports import free_port, is_open
from lib.wait import SECONDS, wait_for

MODULE = os.environ["ONCE_NGINX_MODULE"]
BAD_LOG = re.compile(r"\[(alert|emerg|crit)\]|Sanitizer|runtime error|exited on signal")


# ---------------------------------------------------------------- the upstream

class Upstream(Listener):
    """Counts requests by path and does what the path says."""

    def __init__(self):
        self.lock = threading.Lock()
        self.seen = []
        self.gate = threading.Event()
        super().__init__(self.serve)

    def count(self, path):
        with self.lock:
            return sum(1 for p, _, _ in self.seen if p == path)

    def headers(self, path):
        with self.lock:
            return [h for p, h, _ in self.seen if p == path]

    def serve(self, s):
        try:
            with s, s.makefile("rb") as f:
                while self.one(s, f):
                    pass
        except OSError:
            pass

    def one(self, s, f):
        line = f.readline()
        if not line:
            return False
        path = line.split()[1].decode()
        headers = {}
        while True:
            h = f.readline().strip()
            if not h:
                break
            name, value = h.decode().split(":", 1)
            headers[name.lower()] = value.strip()
        body = f.read(int(headers.get("content-length", 0)))
        with self.lock:
            self.seen.append((path, headers, body))
            n = len(self.seen)
        return self.answer(s, path, n)

    def answer(self, s, path, n):
        what = path.split("/")[-1].split("-")[0]
        text = b"effect %d\n" % n
        ok = b"HTTP/1.1 201 Created\r\nContent-Type: text/plain; charset=utf-8\r\nLocation: /things/7\r\n" \
             b"Set-Cookie: a=b\r\nX-Trace: %d\r\n" % n
        if what == "gate":
            self.gate.wait(SECONDS)
        if what == "truncated":
            s.sendall(ok + b"Content-Length: 1000\r\n\r\n" + text)
            return False
        if what == "reset":
            return False
        if what == "chunked":
            s.sendall(ok + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n")
        elif what == "nothing":
            s.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        elif what == "large":
            s.sendall(ok + b"Content-Length: 3000000\r\n\r\n" + b"x" * 3000000)
        elif what == "closed":
            s.sendall(ok + b"Connection: close\r\n\r\n" + text)
            return False
        elif what == "error":
            s.sendall(b"HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\nno!\n")
        elif what == "denied":
            s.sendall(b"HTTP/1.1 403 No\r\nContent-Length: 4\r\n\r\nno!\n")
        elif what == "invalid":
            s.sendall(b"HTTP/1.1 422 No\r\nContent-Length: 4\r\n\r\nbad\n")
        else:
            s.sendall(ok + b"Content-Length: %d\r\n\r\n" % len(text) + text)
        return True


# ---------------------------------------------------------------- nginx, the daemon

class Gateway:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="once-gateway-")
        self.port = free_port()
        self.dead_port = free_port()
        self.upstream = Upstream()
        self.daemon = daemon.Daemon(self.dir)
        self.nginx = None

    def conf(self):
        return f"""
load_module {MODULE};
daemon off;
worker_processes 2;
{'user root;' if os.getuid() == 0 else ''}
pid {self.dir}/nginx.pid;
error_log {self.dir}/error.log info;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {self.dir}/t1; proxy_temp_path {self.dir}/t2; fastcgi_temp_path {self.dir}/t3;
    uwsgi_temp_path {self.dir}/t4; scgi_temp_path {self.dir}/t5;
    once_daemon {self.dir}/once.sock;
    once_tenant -;
    upstream app {{ server 127.0.0.1:{self.upstream.port}; keepalive 8; }}
    server {{
        listen 127.0.0.1:{self.port};
        client_max_body_size 8m;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        once on;
        add_header X-Once-Arm $once_arm always;
        add_header X-Once-Record $once_record always;
        location / {{ proxy_pass http://app; }}
        location /wait/ {{ once_wait 60s; proxy_pass http://app; }}
        location /required/ {{ once required; proxy_pass http://app; }}
        location /rerun/ {{ once_takeover rerun; proxy_pass http://app; }}
        location /all/ {{ once_final all; proxy_pass http://app; }}
        location /put/ {{ once_methods POST PUT DELETE; proxy_next_upstream error timeout non_idempotent http_500;
                          proxy_pass http://app; }}
        location /tenant/ {{ once_tenant $http_x_user; proxy_pass http://app; }}
        location /pass/ {{ once_store_down pass; proxy_pass http://app; }}
        location /observe/ {{ once observe; proxy_pass http://app; }}
        location /variable/ {{ set $app 127.0.0.1:{self.upstream.port}; proxy_pass http://$app; }}
        location /natural/ {{ once_key_natural $once_json_order; proxy_pass http://app; }}
        location /lease/ {{ once_lease 300ms; proxy_pass http://app; }}
        location /dead/ {{ proxy_pass http://127.0.0.1:{self.dead_port}; }}
        location /limited/ {{ once_pass @limited; }}
        location @limited {{ limit_req zone=one; proxy_pass http://app; }}
        location = /.well-known/idempotency {{ once_policy; }}
    }}
    limit_req_zone $server_port zone=one:1m rate=1r/m;
}}
"""

    def start_daemon(self):
        self.daemon.start()

    def stop_daemon(self, how=signal.SIGTERM):
        self.daemon.end(how)

    def start_nginx(self):
        with open(f"{self.dir}/nginx.conf", "w") as f:
            f.write(self.conf())
        env = dict(os.environ)
        env.update(sanitized.environment(self.dir))
        self.env = env
        self.nginx = subprocess.Popen(["nginx", "-p", self.dir, "-c", f"{self.dir}/nginx.conf", "-e", "stderr"],
                                      env=env, stderr=open(f"{self.dir}/stderr.log", "a"))
        wait_for(self.listens, "nginx listens: " + self.log())

    def listens(self):
        assert self.nginx.poll() is None, self.log()
        return is_open(self.port)

    def log(self):
        text = ""
        for name in ("error.log", "stderr.log", "once.log"):
            if os.path.exists(f"{self.dir}/{name}"):
                text += open(f"{self.dir}/{name}", errors="replace").read()
        return text

    def stop(self):
        if self.nginx and self.nginx.poll() is None:
            self.nginx.send_signal(signal.SIGQUIT)
            try:
                self.nginx.wait(SECONDS)
            except subprocess.TimeoutExpired:
                self.nginx.kill()
                self.nginx.wait()
                raise AssertionError("nginx does not quit")
        self.stop_daemon()

    def ask(self, path, key=None, body=b"{}", method="POST", headers=None, timeout=SECONDS):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        h = {"Content-Type": "application/json"}
        if key is not None:
            h["Idempotency-Key"] = key
        h.update(headers or {})
        c.request(method, path, body, h)
        r = c.getresponse()
        data = r.read()
        c.close()
        return Answer(r, data)


class Answer:
    def __init__(self, r, data):
        self.status, self.headers, self.body = r.status, r.headers, data

    def __repr__(self):
        return f"{self.status} {dict(self.headers.items())} {self.body[:200]!r}"

    @property
    def code(self):
        assert self.headers["Content-Type"] == "application/problem+json", self
        p = json.loads(self.body)
        assert p["status"] == self.status and p["type"].endswith(p["code"]) and p["title"] and p["detail"], p
        assert isinstance(p["retryable"], bool)
        return p["code"]


case = tap.Cases()


def is_replay(first, again):
    assert again.headers["Idempotency-Replayed"] == "true", again
    assert (again.status, again.body) == (first.status, first.body), (first, again)
    for name in ("Content-Type", "Location"):
        assert again.headers[name] == first.headers[name] is not None, (first, again)
    assert again.headers["Set-Cookie"] is None and again.headers["X-Trace"] is None, again
    assert again.headers["Idempotency-Expires"] == first.headers["Idempotency-Expires"] is not None, (first, again)


@case
def fresh_and_replay(g):
    first = g.ask("/a", '"k-fresh"', b'{"a":1, "b":2}')
    assert first.status == 201 and first.body.startswith(b"effect"), first
    assert first.headers["Idempotency-Replayed"] is None and first.headers["Set-Cookie"] == "a=b", first
    assert first.headers["X-Once-Arm"] == "execute", first
    is_replay(first, g.ask("/a", "k-fresh", b'{"b":2,"a":1}'))  # bare, and another order of members
    assert g.upstream.count("/a") == 1
    sent = g.upstream.headers("/a")[0]
    assert len(sent["once-key"]) == 48 and int(sent["once-fence"]) > 0 and sent["once-attempt"] == "1", sent
    assert sent["once-record"] == first.headers["X-Once-Record"] and len(sent["once-record"]) == 32, sent


@case
def without_a_key_nothing_is_kept(g):
    a, b = g.ask("/plain"), g.ask("/plain")
    assert a.status == b.status == 201 and a.body != b.body
    assert g.ask("/required/x").code == "key-missing"
    assert g.upstream.count("/required/x") == 0


@case
def mismatch(g):
    g.ask("/m", "k-mismatch", b'{"a":1}')
    a = g.ask("/m", "k-mismatch", b'{"a":2}')
    assert a.status == 422 and a.code == "key-reused", a
    for path, method in (("/m?x=1", "POST"), ("/m2", "POST"), ("/m", "PATCH")):
        assert g.ask(path, "k-mismatch", b'{"a":1}', method).status == 422
    assert g.upstream.count("/m") == 1


@case
def in_progress(g):
    g.upstream.gate.clear()
    answers = []
    t = threading.Thread(target=lambda: answers.append(g.ask("/gate-p", "k-progress")))
    t.start()
    wait_for(lambda: g.upstream.count("/gate-p") == 1, "the upstream is asked")
    a = g.ask("/gate-p", "k-progress")
    assert a.status == 409 and a.code == "in-progress" and int(a.headers["Retry-After"]) >= 1, a
    g.upstream.gate.set()
    t.join()
    is_replay(answers[0], g.ask("/gate-p", "k-progress"))


@case
def ten_at_once(g):
    for path, allowed in (("/ten", {201, 409}), ("/wait/ten", {201})):
        answers = []
        ts = [threading.Thread(target=lambda: answers.append(g.ask(path, "k-ten" + path[1:2]))) for _ in range(10)]
        [t.start() for t in ts]
        [t.join() for t in ts]
        assert {a.status for a in answers} <= allowed and len(answers) == 10, answers
        assert len({a.body for a in answers if a.status == 201}) == 1
        assert g.upstream.count(path) == 1


@case
def bad_keys(g):
    for key in ("", '""', "a b", '"a', "a,b", "x" * 256, '"a";b=1', "k\u00e4"):
        assert g.ask("/bad", key).code == "key-invalid", key
    s = socket.create_connection(("127.0.0.1", g.port))
    s.sendall(b"POST /bad HTTP/1.1\r\nHost: x\r\nIdempotency-Key: a\r\nIdempotency-Key: b\r\nContent-Length: 0\r\n"
              b"Connection: close\r\n\r\n")
    assert b" 400 " in s.makefile("rb").readline()
    s.close()
    assert g.ask("/bad", "k", headers={"Upgrade": "x", "Connection": "upgrade"}).code == "upgrade-refused"
    assert g.upstream.count("/bad") == 0
    assert g.ask("/good", "x" * 255).status == 201


@case
def tenants(g):
    a = g.ask("/tenant/x", "k-t", headers={"X-User": "ann"})
    b = g.ask("/tenant/x", "k-t", b"[2]", headers={"X-User": "bob"})
    assert a.status == b.status == 201 and g.upstream.count("/tenant/x") == 2
    assert g.ask("/tenant/x", "k-t").code == "tenant-missing"
    is_replay(a, g.ask("/tenant/x", "k-t", headers={"X-User": "ann"}))
    assert g.ask("/tenant/x", "k-t", headers={"X-User": "y" * 1000}).status == 201


@case
def client_abort(g):
    for path in ("/gate-a", "/variable/gate-a"):
        key = "k-abort" + path
        g.upstream.gate.clear()
        s = socket.create_connection(("127.0.0.1", g.port))
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nIdempotency-Key: {key}\r\nContent-Type: application/json\r\n"
                  "Content-Length: 2\r\n\r\n{}".encode())
        wait_for(lambda: g.upstream.count(path) == 1, "the upstream is asked")
        s.close()
        assert g.ask(path, key).status == 409  # and nginx had the time to see the client go
        g.upstream.gate.set()
        a = wait_for(lambda: (lambda a: a if a.status != 409 else None)(g.ask(path, key)), "stored")
        assert a.status == 201 and a.headers["Idempotency-Replayed"] == "true" and g.upstream.count(path) == 1, a


@case
def upstream_refused(g):
    a = g.ask("/dead/x", "k-dead")
    assert a.status == 502 and a.code == "upstream-unreachable", a
    assert g.ask("/dead/x", "k-dead", b"other").status == 502  # released: even for another request


@case
def upstream_breaks_off(g):
    for path in ("/truncated", "/reset"):
        a = g.ask(path, "k" + path[1:])
        assert a.status == 502 and a.code == "outcome-unknown" and a.headers["Idempotency-Outcome"] == "unknown", a
        b = g.ask(path, "k" + path[1:])
        assert b.status == 502 and b.code == "outcome-unknown" and g.upstream.count(path) == 1, b
        a = g.ask("/rerun" + path, "r" + path[1:])
        assert a.status == 502 and a.code == "upstream-failed" and json.loads(a.body)["retryable"], a
        g.ask("/rerun" + path, "r" + path[1:])
        assert g.upstream.count("/rerun" + path) == 2
        assert g.upstream.headers("/rerun" + path)[1]["once-attempt"] == "2"
        keys = {h["once-key"] for h in g.upstream.headers("/rerun" + path)}
        assert len(keys) == 1


@case
def one_try_for_every_method(g):
    for method in ("POST", "PUT", "DELETE"):
        path = "/put/reset-" + method
        g.ask("/put/warm", method="GET", body=None)  # leaves a connection to be reused
        assert g.ask(path, "k-" + method, method=method).status == 502
        assert g.upstream.count(path) == 1, method


@case
def statuses(g):
    for path, n in (("/error", 1), ("/denied", 2), ("/invalid", 1), ("/rerun/error", 2), ("/all/error", 1)):
        a, b = g.ask(path, "k" + path), g.ask(path, "k" + path)
        assert g.upstream.count(path) == n, path
        if path == "/error":
            assert a.body == b"no!\n" and a.headers["Idempotency-Outcome"] == "unknown" and b.code == "outcome-unknown", (a, b)
        else:
            assert a.status == b.status and a.body == b.body, (a, b)


@case
def shapes_of_answers(g):
    a = g.ask("/chunked", "k-chunked")
    assert a.body == b"abcdefg"
    is_replay(a, g.ask("/chunked", "k-chunked"))
    a, b = g.ask("/nothing", "k-204"), g.ask("/nothing", "k-204")
    assert a.status == b.status == 204 and b.headers["Idempotency-Replayed"] == "true"
    for path in ("/large", "/closed"):
        a, b = g.ask(path, "k" + path), g.ask(path, "k" + path)
        assert a.status == 201 and len(a.body) in (3000000, len(a.body.strip()) + 1), a
        assert b.status == 410 and b.code == "answer-not-kept" and g.upstream.count(path) == 1, b
    body = os.urandom(3 << 20)  # goes through a temporary file
    a = g.ask("/upload", "k-up", body)
    is_replay(a, g.ask("/upload", "k-up", body))
    assert g.ask("/upload", "k-up", body[:-1]).status == 422


def lease_until(g, key):
    r = subprocess.run([ONCE, "keys", "show", "--json", "--store", f"once:{g.dir}/once.sock", key], capture_output=True, text=True, check=True)
    return datetime.datetime.fromisoformat(json.loads(r.stdout)["lease_until"].replace("Z", "+00:00"))


@case
def the_lease_is_renewed(g):
    g.upstream.gate.clear()
    answers = []
    t = threading.Thread(target=lambda: answers.append(g.ask("/lease/gate-l", "k-lease")))
    t.start()
    wait_for(lambda: g.upstream.count("/lease/gate-l") == 1, "the upstream is asked")
    # Until it was renewed for five leases' time. By its record: somebody who asks would take over, rightly, in a moment
    # when a busy machine has not renewed it in time.
    first = wait_for(lambda: lease_until(g, "k-lease"), "a lease")
    wait_for(lambda: lease_until(g, "k-lease") >= first + datetime.timedelta(milliseconds=5 * 300), "the lease is renewed")
    g.upstream.gate.set()
    t.join()
    assert answers[0].status == 201, answers


@case
def replays_are_not_limited(g):
    a = g.ask("/limited/x", "k-limit")
    assert a.status == 201, a
    for _ in range(3):
        is_replay(a, g.ask("/limited/x", "k-limit"))
    for _ in range(2):  # a new one is, and its claim is given back
        assert g.ask("/limited/x", "k-limit2").status == 503
    assert g.upstream.count("/limited/x") == 1


@case
def observing_changes_nothing(g):
    a, b = g.ask("/observe/x", "k-ob"), g.ask("/observe/x", "k-ob")
    assert a.status == b.status == 201 and a.body != b.body and a.headers["X-Once-Arm"] == "absent", a
    assert g.ask("/observe/x", "a b").status == 201


@case
def natural_keys(g):
    a = g.ask("/natural/x", body=b'{"order": "n-17", "deep": {"order": "x"}}')
    is_replay(a, g.ask("/natural/x", body=b'{"deep":{"order":"x"},"order":"n-17"}'))
    assert g.ask("/natural/x", body=b'{"order": "n-17", "b": 2}').status == 422
    for body in (b'{"order": 12.50}', b'{"order": 12.5}', b'{"order":"a","order":"b"}', b'{"order":{}}', b"[1]", b"no"):
        assert g.ask("/natural/x", body=body).status == 201, body
    assert g.ask("/natural/x", body=b'{"order": 12.50}').headers["Idempotency-Replayed"] == "true"
    assert g.ask("/natural/x", body=b'{"order":"%s"}' % (b"x" * 300)).code == "key-invalid"


@case
def the_upstream_can_rely_on_our_headers(g):
    forged = {"Once-Fence": "1", "once-key": "x", "Once-Recovery-Point": "y", "Once-Record": "0" * 32}
    g.ask("/forged", headers=forged)
    g.ask("/forged", "k-forged", headers=forged)
    plain, keyed = g.upstream.headers("/forged")
    assert not [h for h in plain if h.startswith("once-")], plain
    assert len(keyed["once-key"]) == 48 and keyed["once-fence"] != "1" and "once-recovery-point" not in keyed, keyed
    assert len(keyed["once-record"]) == 32 and keyed["once-record"] != "0" * 32, keyed


@case
def policy(g):
    p = json.loads(g.ask("/.well-known/idempotency", method="GET", body=None).body)
    assert p["header"] == "Idempotency-Key" and p["retention_seconds"] == 86400 and p["methods"] == ["POST", "PATCH"]
    places = {x["location"]: x for x in p["locations"]}
    assert places["/required/"]["mode"] == "required" and places["/rerun/"]["takeover"] == "rerun", places


@case
def bad_configurations(g):
    good = g.conf()
    for old, new, says in (
            ("once_tenant -;", "", "once_tenant"), ("once on;", "once maybe;", "maybe"),
            ("once_wait 60s;", "once_wait soon;", "soon"), ("once_final all;", "once_final 7xx;", "7xx"),
            ("once_takeover rerun;", "once_takeover guess;", "guess"),
            ("once_final all;", "once_fingerprint exclude=a;", "exclude=a"),
            ("once_final all;", "once_replay_headers Set-Cookie;", "Set-Cookie"),
            ("once_final all;", "once_replay_headers ETag X-Auth-Token;", "X-Auth-Token"),
            ("once_final all;", "once_methods GET;", "GET"), ("once_final all;", "once_intent maybe;", "once_intent"),
            ("once_final all;", "proxy_cache z;", "cache")):
        text = good.replace(old, new)
        assert text != good
        if new == "proxy_cache z;":
            text = text.replace("limit_req_zone", f"proxy_cache_path {g.dir}/cache keys_zone=z:1m; limit_req_zone")
        with open(f"{g.dir}/bad.conf", "w") as f:
            f.write(text.replace("error.log", "bad.log").replace("nginx.pid", "bad.pid"))
        r = subprocess.run(["nginx", "-t", "-p", g.dir, "-c", f"{g.dir}/bad.conf", "-e", "stderr"], env=g.env,
                           capture_output=True, text=True)
        assert r.returncode != 0 and says in r.stderr and re.search(r"bad\.conf:\d+", r.stderr), (new, r.stderr)


@case
def daemon_down(g):
    a = g.ask("/down", "k-down")
    g.stop_daemon()
    b = wait_for(lambda: (lambda b: b if b.status == 503 else None)(g.ask("/down", "k-down")), "503")
    assert b.code == "store-unavailable" and b.headers["Retry-After"] == "1", b
    assert g.ask("/down", "k-down2").status == 503 and g.upstream.count("/down") == 1
    assert g.ask("/down").status == 201
    assert g.ask("/pass/x", "k-pass").status == 201
    g.start_daemon()
    again = wait_for(lambda: (lambda b: b if b.status != 503 else None)(g.ask("/down", "k-down")), "it is back")
    is_replay(a, again)


def until_served(ask):
    """Asks again while the store is away."""
    return wait_for(lambda: (lambda answer: answer if answer.status != 503 else None)(ask()), "the store is there")


@case
def daemon_killed_while_the_upstream_works(g):
    g.upstream.gate.clear()
    answers = []
    # The case before had no daemon: a worker may not have found the new one yet.
    t = threading.Thread(target=lambda: answers.append(until_served(lambda: g.ask("/gate-k", "k-kill"))))
    t.start()
    wait_for(lambda: g.upstream.count("/gate-k") == 1, "the upstream is asked")
    g.stop_daemon(signal.SIGKILL)
    g.upstream.gate.set()
    g.start_daemon()
    t.join()
    assert answers[0].status == 201, answers
    is_replay(answers[0], until_served(lambda: g.ask("/gate-k", "k-kill")))


@case
def reload_while_the_upstream_works(g):
    g.upstream.gate.clear()
    answers = []
    t = threading.Thread(target=lambda: answers.append(until_served(lambda: g.ask("/gate-r", "k-reload"))))
    t.start()
    wait_for(lambda: g.upstream.count("/gate-r") == 1, "the upstream is asked")
    g.nginx.send_signal(signal.SIGHUP)
    wait_for(lambda: "gracefully shutting down" in g.log(), "old workers quit")
    assert until_served(lambda: g.ask("/gate-r", "k-reload")).status == 409
    g.upstream.gate.set()
    t.join()
    is_replay(answers[0], until_served(lambda: g.ask("/gate-r", "k-reload")))


def quiet_end(g):
    try:
        g.stop()
    finally:
        bad = [line for line in g.log().splitlines() if BAD_LOG.search(line)] + sanitized.findings(g.dir)
        if os.environ.get("ONCE_TEST_KEEP"):
            tap.remark(g.dir)
        else:
            shutil.rmtree(g.dir, ignore_errors=True)
    tap.expect(not bad, "\n".join(bad))


def attempt(g, case):
    try:
        case(g)
    except Exception:
        g.upstream.gate.set()  # for the others
        raise


def main():
    g = Gateway()
    g.start_daemon()
    g.start_nginx()
    tap.run([(name, functools.partial(attempt, g, function)) for name, function in case], sys.argv[1:], 1,
            [("nothing to complain about in the logs", functools.partial(quiet_end, g))])


main()
