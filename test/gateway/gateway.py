"""What the gateway's suites share: a gateway of one's own, an exact client, waiting, TAP.

A Gateway is a private folder with a store, `once daemon`, nginx with the module, and the scripted
service of upstream.py. All of them listen on loopback or in the folder, and end with the test, by
their process ids. Stopping it also reads nginx's log: an alert, a leak, a word from a sanitizer
fails the suite, whatever the answers were.

The environment says where the pieces are: ONCE_BIN, ONCE_NGINX_MODULE, ONCE_NGINX (else `nginx`).
ONCE_NGINX_PRELOAD is a sanitizer's library, where the module was built with one.
ONCE_TEST_SECONDS bounds every wait, SIZE=N makes the suites larger, ONCE_TEST_KEEP=1 keeps folders.
"""
import atexit
import functools
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

sys.dont_write_bytecode = True
from upstream import Upstream
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib import daemon, sanitized, tap
from lib.ports import free_port, is_open  # noqa: F401, for suites that import this
from lib.process import children as children_of, is_alive, is_stopped, kill  # noqa: F401
from lib.tap import Failed, expect, expect_equal, shorten, skip_all  # noqa: F401
from lib.wait import SECONDS as BOUND_S, wait_for

SIZE = int(os.environ.get("SIZE", "1"))
TRIES = 20
HERE = os.path.dirname(os.path.realpath(__file__))
ONCE = os.environ.get("ONCE_BIN", "")
MODULE = os.environ.get("ONCE_NGINX_MODULE", "")
NGINX = os.environ.get("ONCE_NGINX") or shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")

# What must not be in nginx's log. [error] is about upstreams and clients, who misbehave here.
ALARMING = re.compile(r"\[(alert|emerg|crit)\]|leak|open socket|AddressSanitizer|LeakSanitizer|runtime error|"
                      r"ThreadSanitizer|Assertion|stack smashing", re.I)


class Late(Exception):
    """The daemon was late, so that there was more to count than was asked for: the case is done again."""


def in_time(answer):
    """The answer; of whoever counts requests, and cannot be patient."""
    if answer.code() == "store-unavailable":
        raise Late()
    return answer


def in_parallel(function, arguments, width=16):
    with ThreadPoolExecutor(width) as pool:
        return list(pool.map(function, arguments))


# ------------------------------------------------------------------ the client

class Answer:
    """One HTTP answer as it was read, and what came before it."""

    def __init__(self, head, body, interim):
        lines = head.split(b"\r\n")
        parts = lines[0].decode("latin-1").split(" ", 2)
        self.head, self.body, self.interim = head, body, interim
        self.status = int(parts[1])
        self.headers = [tuple(p.strip() for p in line.decode("latin-1").split(":", 1)) for line in lines[1:]]

    def all(self, name):
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def get(self, name):
        values = self.all(name)
        return values[0] if values else None

    @property
    def replayed(self):
        return self.get("Idempotency-Replayed") == "true"

    def problem(self):
        """The problem document, or None."""
        if (self.get("Content-Type") or "").split(";")[0] != "application/problem+json":
            return None
        return json.loads(self.body)

    def code(self):
        document = self.problem()
        return document.get("code") if document else None

    def lasting(self):
        """What a replay must repeat: status, the headers that are kept, body."""
        kept = [(k.lower(), v) for k, v in self.headers if k.lower() in KEPT_HEADERS]
        return self.status, sorted(kept), self.body

    def __repr__(self):
        return "<%r %s>" % (self.head.decode("latin-1"), shorten(self.body))


KEPT_HEADERS = ("content-type", "content-encoding", "content-language", "location", "content-location", "etag", "last-modified",
                "link")


class Closed(Exception):
    """The connection ended where an answer was due."""


class Client:
    """One connection to the gateway. Sends exactly the bytes it is given."""

    def __init__(self, port, tls=None, bound=None):
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=bound or BOUND_S)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            self.connection = tls.wrap_socket(self.connection, server_hostname="localhost")
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.connection.sendall(data)

    def close(self):
        self.connection.close()

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.connection.close()

    def _more(self):
        try:
            data = self.connection.recv(262144)
        except ConnectionResetError:
            data = b""
        if not data:
            return False
        self.buffer += data
        return True

    def _until(self, mark):
        while mark not in self.buffer:
            if not self._more():
                raise Closed("the connection ended after %s" % shorten(self.buffer))
        part, self.buffer = self.buffer.split(mark, 1)
        return part

    def _exactly(self, length):
        parts, have = [self.buffer], len(self.buffer)
        while have < length:
            data = self.connection.recv(262144)
            if not data:
                raise Closed("the body ended after %d of %d bytes" % (have, length))
            parts.append(data)
            have += len(data)
        data = b"".join(parts)
        self.buffer = data[length:]
        return data[:length]

    def read(self, method="POST"):
        """The next final answer on this connection."""
        interim = []
        head = self._until(b"\r\n\r\n")
        while head.split(b" ")[1][:1] == b"1" and head.split(b" ")[1] != b"101":
            interim.append(head)
            head = self._until(b"\r\n\r\n")
        answer = Answer(head, b"", interim)
        if method == "HEAD" or answer.status in (204, 304, 101):
            return answer
        if (answer.get("Transfer-Encoding") or "").lower() == "chunked":
            body = b""
            while True:
                length = int(self._until(b"\r\n").split(b";")[0], 16)
                body += self._exactly(length)
                expect_equal(self._exactly(2), b"\r\n", "the end of a chunk")
                if length == 0:
                    break
            answer.body = body
        elif answer.get("Content-Length") is not None:
            answer.body = self._exactly(int(answer.get("Content-Length")))
        else:
            while self._more():
                pass
            answer.body, self.buffer = self.buffer, b""
        return answer


def request_bytes(method, path, headers, body, version="HTTP/1.1"):
    """A request as bytes. A header whose value is bytes is sent as it is."""
    lines = [("%s %s %s" % (method, path, version)).encode("latin-1")]
    for name, value in headers:
        lines.append(name.encode("latin-1") + b": " + (value if isinstance(value, bytes) else value.encode("utf-8")))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


TOKENS = iter(range(1, 1 << 60))
TOKEN_LOCK = threading.Lock()


def new_token(word="t"):
    """A name that nothing else in this run has: for a key, for counting effects."""
    with TOKEN_LOCK:
        return "%s-%d-%06d" % (word, os.getpid(), next(TOKENS))  # all of one length, as answers show them


# ------------------------------------------------------------------ the gateway

class Location:
    """A `location` block: its prefix, its once directives, where it passes requests to."""

    def __init__(self, prefix, *once, to="app", more=()):
        self.prefix, self.once, self.to, self.more = prefix, once, to, more

    def text(self):
        lines = [*self.once, *self.more]
        if self.to:
            lines.append("proxy_pass http://%s;" % self.to)
        return "        location %s {\n%s\n        }" % (self.prefix, "\n".join("            " + line for line in lines))


COUNTED = "counted"  # Gateway.patient
SINGLE = "once_tenant -;"
ESCALATE = Location("/escalate/", "once on;", SINGLE, "once_takeover escalate;")
RERUN = Location("/rerun/", "once on;", SINGLE, "once_takeover rerun;")


@functools.lru_cache
def nginx_environment(folder=None):
    """NGINX would be sockets to inherit. What a sanitizer finds is written into the folder."""
    environment = {k: v for k, v in os.environ.items() if k != "NGINX"}
    environment.update(sanitized.environment(folder))
    return environment


class Daemon(daemon.Daemon):
    """With nothing of the test's own environment, and with `arguments`."""

    def __init__(self, folder, store, name="once"):
        super().__init__(folder, store, name)
        self.arguments = []

    def start(self, env=None, ready=True):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ONCE_")}
        environment.update(env or {})
        self.options = ()
        return super().start(*self.arguments, env=environment, ready=ready)

    def said(self):
        return self.log()[-20000:]


class Master:
    """An nginx that is nobody's child any more; used like a Popen."""

    def __init__(self, pid):
        self.pid = pid

    def poll(self):
        return None if is_alive(self.pid) else 0

    def wait(self, timeout=BOUND_S):
        try:
            wait_for(lambda: self.poll() is not None, "the end of nginx", timeout)
        except Failed as failure:
            raise subprocess.TimeoutExpired("nginx", timeout) from failure
        return 0

    def send_signal(self, number):
        kill(self.pid, number)

    def kill(self):
        kill(self.pid)


class Gateway:
    """Daemon, nginx, upstream. Everything may be ended and started again on its own."""

    # The module waits five seconds for the daemon, then says 503, which is safe to ask again. Where the daemon is up all
    # the time that says how busy this machine is, and ask() does: until the claim that came too late was given back.
    # COUNTED is for cases that count, or look at all that a request left behind: ask() gives up, see Late.
    patient = False

    def __init__(self, locations=(ESCALATE, RERUN), workers=1, store=None, http="", server="", listen="", upstream=None,
                 daemon_env=None, tolerate=None, foreground=True):
        self.folder = tempfile.mkdtemp(prefix="once-gw-", dir=temporary_folder())
        self.locations, self.workers, self.http, self.server, self.listen = locations, workers, http, server, listen
        self.own_upstream = upstream is None
        self.upstream = upstream or Upstream(self.folder)
        self.daemon = Daemon(self.folder, store or "sqlite:" + os.path.join(self.folder, "once.db"))
        self.tolerate = tolerate  # an expression: what this test's own violence puts into nginx's log
        self.foreground = foreground  # not: its binary may be upgraded
        self.nginx = self.old_nginx = None
        self.port = self.port2 = self.port3 = 0  # the second and third are for `listen` of the caller
        self.daemon_env = daemon_env
        self.front = None  # a socket between nginx and the daemon
        self.stopped = False
        ALL_GATEWAYS.append(self)

    def start(self):
        self.daemon.start(self.daemon_env)
        self.start_nginx()
        return self

    # -------- nginx

    def path(self, name):
        return os.path.join(self.folder, name)

    def configuration(self):
        user = "user root;" if os.geteuid() == 0 else ""
        return """# a private nginx for one test
daemon %(daemon)s;
%(env)s
%(user)s
worker_processes %(workers)d;
pid %(folder)s/nginx.pid;
error_log %(folder)s/error.log info;
load_module %(module)s;
events { worker_connections 4096; }
http {
    access_log off;
    client_body_temp_path %(folder)s/body;
    proxy_temp_path %(folder)s/proxy;
    fastcgi_temp_path %(folder)s/fastcgi;
    uwsgi_temp_path %(folder)s/uwsgi;
    scgi_temp_path %(folder)s/scgi;
    client_max_body_size 64m;
    keepalive_timeout 60s;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_buffer_size 16k;
    proxy_buffers 8 16k;
    proxy_read_timeout 180s;
    proxy_send_timeout 180s;
    client_header_timeout 180s;
    client_body_timeout 180s;
    send_timeout 180s;
    once_daemon %(socket)s;
    upstream app { server 127.0.0.1:%(upstream)d; }
    upstream kept { server 127.0.0.1:%(upstream)d; keepalive 4; }
    upstream refusing { server 127.0.0.1:%(refusing)d; }
    %(http)s
    server {
        listen 127.0.0.1:%(port)d;
        %(listen)s
        %(server)s
%(locations)s
    }
}
""" % {"daemon": "off" if self.foreground else "on", "env": "".join("env %s;" % name for name in sanitized.environment(self.folder)),
       "user": user, "workers": self.workers, "folder": self.folder, "module": MODULE, "socket": self.front or self.daemon.socket,
       "upstream": self.upstream.port, "refusing": self.upstream.refusing_port, "http": self.http.replace("UPSTREAM", str(self.upstream.port)), "port": self.port,
       "listen": self.listen.replace("PORT2", str(self.port2)).replace("PORT3", str(self.port3)), "server": self.server,
       "locations": "\n".join(location.text() for location in self.locations).replace("ROOT;", self.folder + ";")}

    def write_configuration(self):
        with open(self.path("nginx.conf"), "w", encoding="utf-8") as file:
            file.write(self.configuration())

    def nginx_command(self, *more):
        return [NGINX, "-p", self.folder, "-c", self.path("nginx.conf"), "-e", "stderr", *more]

    def start_nginx(self):
        again = self.port != 0
        for _ in range(20):
            if not again:
                self.port, self.port2, self.port3 = free_port(), free_port(), free_port()
            self.write_configuration()
            with open(self.path("nginx.stderr"), "ab") as log:
                self.nginx = subprocess.Popen(self.nginx_command(), cwd=self.folder, env=nginx_environment(self.folder),
                                              stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            if not self.foreground and self.nginx.wait(BOUND_S) == 0:
                self.nginx = Master(wait_for(self.master_pid, "the master's id"))
            try:
                wait_for(lambda: is_open(self.port) or self.nginx.poll() is not None, "nginx to listen")
            except Failed:
                self.nginx.kill()
                raise
            if self.nginx.poll() is None:
                self.wait_for_workers()
                return
            if "Address already in use" not in self.text("nginx.stderr") + self.text("error.log"):
                break
            time.sleep(0.05)
            for name in ("nginx.stderr", "error.log"):  # of an attempt that does not count
                if os.path.exists(self.path(name)) and not again:
                    os.unlink(self.path(name))
        raise Failed("nginx did not start: %s" % (self.text("nginx.stderr") + self.text("error.log"))[-2000:])

    def master_pid(self):
        text = self.text("nginx.pid").strip()
        return int(text) if text.isdigit() else None

    def wait_for_workers(self):
        wait_for(lambda: len(self.worker_pids()) >= self.workers, "the workers")

    def worker_pids(self):
        return children_of(self.nginx.pid)

    def end_nginx(self, number=signal.SIGTERM):
        if self.nginx is None:
            return
        self.nginx.send_signal(number)
        try:
            self.nginx.wait(BOUND_S)
        except subprocess.TimeoutExpired:
            self.nginx.kill()
            self.nginx.wait()
            raise Failed("nginx did not end by signal %d" % number)
        self.nginx = None

    def reload(self):
        """New workers serve, the old ones finish what they have."""
        before = self.worker_pids()
        self.nginx.send_signal(signal.SIGHUP)
        wait_for(lambda: len(set(self.worker_pids()) - set(before)) >= self.workers, "new workers")
        return before

    def upgrade(self):
        """Another master, started from the binary, beside the one before, which is returned. Both serve."""
        self.old_nginx = old = self.nginx
        old.send_signal(signal.SIGUSR2)
        self.nginx = Master(wait_for(lambda: self.master_pid() not in (None, old.pid) and self.master_pid(), "another master"))
        self.wait_for_workers()
        return old

    def text(self, name):
        try:
            with open(self.path(name), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def alarms(self):
        text = self.text("error.log") + self.text("nginx.stderr") + self.daemon.said()
        return [line for line in text.splitlines()
                if ALARMING.search(line) and not (self.tolerate and re.search(self.tolerate, line))] + sanitized.findings(self.folder)

    # -------- asking

    def ask(self, path, key=None, token=None, method="POST", headers=(), body=b'{"amount":25}', client=None, port=None, tls=None,
            patient=None):
        """One request. `key` is put between quotes; None sends none, bytes are sent as they are. `patient`: if not as the gateway."""
        lines = [("Host", "gateway.test")]
        if key is not None:
            lines.append(("Idempotency-Key", key if isinstance(key, bytes) else '"%s"' % key))
        if token is not None:
            lines.append(("X-Test", token))
        lines += list(headers)
        if body is not None:
            lines.append(("Content-Length", str(len(body))))
        data = request_bytes(method, path, lines, body or b"")
        answer = self._answer(data, method, client, port, tls)
        patient = self.patient if patient is None else patient
        if patient == COUNTED:
            return in_time(answer)
        if patient and answer.code() == "store-unavailable":
            again = time.monotonic() + BOUND_S
            while answer.code() in ("store-unavailable", "in-progress") and time.monotonic() < again:
                time.sleep(0.1)
                answer = self._answer(data, method, client, port, tls)
        return answer

    def _answer(self, data, method, client, port, tls):
        if client:
            client.send(data)
            return client.read(method)
        with Client(port or self.port, tls) as own:
            own.send(data)
            return own.read(method)

    def ask_until(self, condition, *arguments, **named):
        """Asks again and again, until the answer is as wanted."""
        def once():
            try:
                answer = self.ask(*arguments, **named)
            except (Closed, OSError):
                return None
            return answer if condition(answer) else None
        return wait_for(once, "an answer as wanted")

    def effects(self, token):
        return self.upstream.effects(token)

    def records(self):
        """All records by (tenant, key), from the daemon or, if it is down, from its store."""
        return records_of("once:" + self.daemon.socket if self.daemon.process else self.daemon.store)

    def record(self, key, tenant=""):
        return self.records().get((tenant, key))

    def state(self, key, tenant=""):
        record = self.record(key, tenant)
        return record["state"] if record else "absent"

    # -------- the end

    def stop(self):
        if self.stopped:
            return
        self.stopped = True
        self.end_nginx(signal.SIGQUIT)
        if self.own_upstream:
            self.upstream.stop()
        if self.daemon.process:
            code = self.daemon.end()
            expect_equal(code, 0, "the daemon's exit status: %s" % self.daemon.said())
        self.check()

    def check(self):
        run = subprocess.run([ONCE, "check", "--store", self.daemon.store], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        expect(run.returncode == 0, "`once check` of the store: %s" % run.stdout)

    def remove(self):
        for process in (self.old_nginx, self.nginx, self.daemon.process):
            if process and process.poll() is None:
                for pid in children_of(process.pid):
                    kill(pid)
                process.kill()
                process.wait()
        if os.environ.get("ONCE_TEST_KEEP"):
            print("# kept: %s" % self.folder)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


ALL_GATEWAYS = []


def records_of(store):
    run = subprocess.run([ONCE, "keys", "list", "--all", "--json", "--quiet", "--store", store], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    expect(run.returncode == 0, "`once keys list`: %s" % run.stderr)
    return {(r["tenant"], r["key"]): r for r in map(json.loads, run.stdout.splitlines())}


def temporary_folder():
    base = os.environ.get("TMPDIR", "/tmp")
    return base if len(base) < 60 else "/tmp"  # a socket's path has 107 bytes


def is_answered(client):
    return bool(select.select([client.connection], [], [], 0)[0])


def tested(gateway, *locations, http="", server=""):
    """What `nginx -t` makes of a configuration beside this gateway's: (it is accepted, what it said, the lines of the configuration)"""
    other = Gateway(locations, http=http, server=server, upstream=gateway.upstream)
    other.patient = True
    other.port = 1
    other.write_configuration()
    run = subprocess.run(other.nginx_command("-t"), cwd=other.folder, env=nginx_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = other.text("nginx.conf").splitlines()
    other.remove()
    return run.returncode == 0, run.stdout, lines


# ------------------------------------------------------------------ TAP

class Suite:
    """Cases, each a name and a function. Arguments of the program select by substring."""

    def __init__(self):
        self.cases = []

    def case(self, function):
        """@suite.case: the function's name is the case's."""
        self.add(function.__name__, function)
        return function

    def add(self, name, function, *arguments):
        self.cases.append((name, function, arguments))

    def require(self):
        """Without the pieces there is nothing to test."""
        if not ONCE or not os.access(ONCE, os.X_OK):
            skip_all("ONCE_BIN does not name the program")
        if not NGINX:
            skip_all("nginx is not installed")
        if not MODULE or not os.path.exists(MODULE):
            skip_all("the nginx module is not built")

    def run(self, width=1, gateways=()):
        tap.run([(name, functools.partial(attempt, function, arguments)) for name, function, arguments in self.cases], sys.argv[1:], width,
                [("%s ends well, its log has no alarm" % name, functools.partial(attempt, quiet_end, (gateway,))) for name, gateway in gateways])


def quiet_end(gateway):
    """A function tells which one, where cases change it."""
    gateway = gateway() if callable(gateway) else gateway
    gateway.stop()
    alarms = gateway.alarms()
    expect(not alarms, "in nginx's log:\n" + "\n".join(alarms[:20]))


def attempt(function, arguments):
    for _ in range(TRIES):
        try:
            return function(*arguments)
        except Late:
            tap.remark("the daemon was late: once more")
    raise Failed("the daemon was late %d times" % TRIES)


@atexit.register
def remove_all():
    for gateway in ALL_GATEWAYS:
        gateway.remove()
