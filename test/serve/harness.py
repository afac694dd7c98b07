"""What the tests of `once serve` share: TAP, private folders, free ports, waiting, processes.

A case is a function whose name begins with test_; arguments of the program select cases by
substring. ONCE_BIN is the program; ONCE_MODULE the nginx module, if it is not where `once
serve` finds it by itself. Nothing sleeps in the hope that something happened: wait_for() polls
a condition, with a bound (ONCE_TEST_SECONDS). ONCE_TEST_KEEP=1 keeps the folders.
Where the module was built with a sanitizer, ONCE_NGINX_PRELOAD is the sanitizer's library: it is for
nginx alone, so the nginx on a case's PATH is a script that adds it. What nginx or a sanitizer found
alarming fails the case.
"""
import functools
import inspect
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib import http, sanitized, tap
from lib.daemon import ONCE
from lib.http import Handler, Server
from lib.ports import free_port, free_ports, is_refused  # noqa: F401, for tests that import this
from lib.process import children, descendants, is_alive, kill
from lib.tap import Failed, Skipped, expect_equal
from lib.wait import SECONDS, wait_for

MODULE = os.environ.get("ONCE_MODULE")
WIDTH = 4  # cases at a time: mostly they wait for processes to come and go
ROOT = os.getuid() == 0
ALARMING = re.compile(r"\[(alert|emerg|crit)\]|open socket|Sanitizer|runtime error|Assertion|stack smashing")


def contains(text, part, what):
    assert part in text, "%s: %r is not in %r" % (what, part, text)


# ---------------------------------------------------------------- processes

def title(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            return f.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def uid_of(pid):
    return os.stat("/proc/%d" % pid).st_uid


# ---------------------------------------------------------------- the service behind

class Service:
    """Counts what reaches it. POST /wait answers when the test says so. GET /by-key/KEY tells whether that key was. /account is for
    whom it knows by Authorization (`accounts`), and answers with his name. /broken is answered with 500, and an X-Incident."""

    def __init__(self):
        service = self
        self.count, self.lock = 0, threading.Lock()
        self.arrived, self.go_on = threading.Event(), threading.Event()
        self.keys = set()
        self.accounts = {"Bearer of-alice": "alice", "Bearer of-bob": "bob"}

        class Handle(Handler):
            def do_POST(self):
                self.body()
                if self.path.startswith("/by-key/"):
                    self.reply(*((200, b"it is done\n") if self.path[8:] in service.keys else (404, b"no\n")))
                    return
                account = service.accounts.get(self.headers.get("Authorization"))
                if self.path == "/account" and account is None:
                    self.reply(401, b"who are you?\n")
                    return
                service.keys.add(self.headers.get("Once-Key"))
                with service.lock:
                    service.count += 1
                    number = service.count
                if self.path == "/wait":
                    service.arrived.set()
                    service.go_on.wait(SECONDS)
                body = b"number %d host %s\n" % (number, self.headers["Host"].encode())
                if self.path == "/account":
                    body = b"number %d account %s\n" % (number, account.encode())
                self.reply(500 if self.path == "/broken" else 201, body)

            def reply(self, status, body):
                self.answer(status, body, [("X-Incident", "i-17"), ("Content-Type", "text/plain")])

            do_GET = do_POST

        self.server = Server(Handle)
        self.url = self.server.url

    def close(self):
        self.go_on.set()
        self.server.stop()


def request(port, path="/", key=None, body=b"x", method="POST", timeout=None, **headers):
    """Returns (status, headers, body); None if there was no answer. A daemon that is late makes the gateway say 503, and nothing was
    executed: asked again, until the claim that came too late was given back."""
    if key is not None:
        headers["Idempotency-Key"] = '"%s"' % key
    due, until = (b'"store-unavailable"',), time.monotonic() + SECONDS
    while True:
        answer = http.request(port, path, body, headers, method, timeout or SECONDS)
        if not answer or not any(code in answer[2] for code in due) or time.monotonic() > until:
            return answer
        due = (b'"store-unavailable"', b'"in-progress"')
        time.sleep(0.1)


# ---------------------------------------------------------------- a case's world

def put_program(path, text):
    """By a process of its own: a file that this one has open for writing while another case starts a process cannot be executed for a
    moment ("text file busy")."""
    subprocess.run(["install", "-m", "755", "/dev/stdin", path], input=text, text=True, check=True)


class World:
    """A private folder, with what was started in it; all of it ends with the case."""

    def __init__(self, name):
        self.folder = tempfile.mkdtemp(prefix="once-serve.")
        os.chmod(self.folder, 0o755)
        self.name, self.started, self.services, self.tolerate = name, [], [], None
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("ONCE_", "XDG_"))}
        self.env.update(LC_ALL="C.UTF-8", HOME=self.folder, XDG_STATE_HOME=self.folder + "/state",
                        XDG_RUNTIME_DIR=self.folder + "/run")
        self.bin = None  # beside the folder, which is the case's own
        if sanitized.PRELOAD:
            self.bin = tempfile.mkdtemp(prefix="once-serve-nginx.")
            os.chmod(self.bin, 0o1777)
            self.put_before_nginx(sanitized.environment(self.bin))

    def put_before_nginx(self, settings):
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        assign = " ".join("%s=%s" % (name, shlex.quote(value)) for name, value in settings.items())
        put_program(self.bin + "/nginx", "#!/bin/sh\nexec env %s %s \"$@\"\n" % (assign, shutil.which("nginx", path=path)))
        self.env["PATH"] = self.bin + ":" + path

    def alarms(self):
        """In the logs of all that was started. `tolerate` is an expression, for a case whose violence has to be heard."""
        lines = [line for gateway in self.started for line in gateway.log().splitlines()
                 if ALARMING.search(line) and not (self.tolerate and re.search(self.tolerate, line))]
        return lines + (sanitized.findings(self.bin) if self.bin else [])

    def path(self, name):
        return os.path.join(self.folder, name)

    def service(self):
        self.services.append(Service())
        return self.services[-1]

    def once(self, *arguments, user=None, **more):
        """Runs it to its end: (status, stdout, stderr)."""
        done = subprocess.run(as_user(user) + [ONCE, *arguments], env={**self.env, **more}, capture_output=True,
                              stdin=subprocess.DEVNULL, text=True, timeout=2 * SECONDS, check=False)
        return done.returncode, done.stdout, done.stderr

    def serve(self, *arguments, user=None, upstream=None, port=None, stderr=None):
        gateway = Gateway(self, arguments, user, upstream, port, stderr)
        self.started.append(gateway)
        return gateway

    def close(self):
        for gateway in self.started:
            gateway.kill()
        for service in self.services:
            service.close()
        if not os.environ.get("ONCE_TEST_KEEP"):
            shutil.rmtree(self.folder, ignore_errors=True)
            shutil.rmtree(self.bin or self.folder, ignore_errors=True)


def as_user(user):
    return ["runuser", "-u", user, "--"] if user else []


class Gateway:
    """A running `once serve`."""

    def __init__(self, world, arguments, user, upstream, port, stderr):
        self.world, self.port = world, port or free_port()
        self.service = None
        if upstream is None:
            self.service = world.service()
            upstream = self.service.url
        self.log_path = world.path("log.%d" % len(world.started))
        arguments = ["--upstream", upstream, "--listen", "127.0.0.1:%d" % self.port, "--workers", "2", *arguments]
        if "--store" not in arguments:
            arguments += ["--store", "sqlite:" + world.path("once.db")]
        if MODULE and "--module" not in arguments:
            arguments += ["--module", MODULE]
        if "--http" not in arguments:
            arguments += http_off()
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(as_user(user) + [ONCE, "serve", *arguments], env=world.env,
                                            stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log if stderr is None else stderr, start_new_session=True)
        self.seen = set()

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def pid(self):
        """Of `once serve` itself: runuser stays as its parent."""
        for pid in [self.process.pid] + descendants(self.process.pid):
            if title(pid).startswith(ONCE + " serve"):
                return pid
        return self.process.pid

    def all(self):
        found = descendants(self.process.pid)
        self.seen.update(found)
        return found

    def daemon(self):
        return [p for p in self.all() if " daemon " in title(p) + " " and title(p).startswith("once daemon")]

    def master(self):
        # Not a worker that was forked just now and still has its parent's title.
        return [p for p in children(self.pid()) if title(p).startswith("nginx: master")]

    def workers(self):
        return [p for p in self.all() if title(p) == "nginx: worker process"]

    def ready(self):
        wait_for(lambda: "once serve: ready: " in self.log() or self.process.poll() is not None, "once serve to be ready")
        assert self.process.poll() is None, "once serve ended with %s: %s" % (self.process.returncode, self.log())
        wait_for(lambda: len(self.workers()) == 2, "two workers")
        expect_equal((len(self.daemon()), len(self.master())), (0 if "once:" in self.log_store() else 1, 1), "processes")
        return self

    def has_new_workers(self, old):
        now = set(self.workers())
        return len(now) == 2 and not now & set(old)

    def log_store(self):
        return next(line for line in self.log().splitlines() if line.startswith("once serve: store"))

    def socket(self):
        return self.log().split("daemon        socket ")[1].split()[0].rstrip(",")

    def folder(self):
        return os.path.dirname(os.path.dirname(self.socket()))

    def send(self, number):
        os.kill(self.pid(), number)

    def ended(self, what="once serve to end"):
        wait_for(lambda: self.process.poll() is not None, what)
        return self.process.returncode

    def nothing_left(self):
        wait_for(lambda: not any(is_alive(p) for p in self.seen),
                 "all processes to be gone: %s" % {p: title(p) for p in self.seen if is_alive(p)})

    def end(self, number=signal.SIGTERM):
        """Ends it well, and checks that nothing is left."""
        folder = self.folder()
        self.all()
        self.send(number)
        status = self.ended()
        expect_equal(status, 0, "exit status; " + self.log())
        self.nothing_left()
        assert not os.path.exists(folder), "%s is still there: %s" % (folder, os.listdir(folder))

    def kill(self):
        for pid in [self.process.pid, *self.all(), *self.seen]:
            if is_alive(pid):
                kill(pid)
        self.process.wait()
        if ROOT:  # a case that failed, or killed it
            for place in ("/run/once-", "/var/cache/once/"):
                shutil.rmtree("%sserve-127.0.0.1-%d" % (place, self.port), ignore_errors=True)


def http_off():
    """The daemon's JSON API is not needed here, and its default port may be taken."""
    text = subprocess.run([ONCE, "daemon", "--help"], capture_output=True, text=True, check=False).stdout
    return ["--http", "off"] if "  --http" in text else []


def need_module():
    if MODULE:
        return MODULE
    done = subprocess.run([ONCE, "serve", "--upstream", "http://h", "--print-config"], capture_output=True, text=True,
                          check=False)
    path = done.stdout.split('load_module "')[1].split('"')[0]
    if not os.path.exists(path):
        raise Skipped("the nginx module is not built")
    if not shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin"):
        raise Skipped("there is no nginx")
    return path


def need_plain_user():
    """A user for whom this program can be executed, or None if we are a plain one."""
    if not ROOT:
        return None
    done = subprocess.run(["runuser", "-u", "nobody", "--", "test", "-x", ONCE, "-a", "-r", need_module()], check=False)
    if done.returncode != 0:
        raise Skipped("user nobody cannot reach this build")
    return "nobody"


def main(module):
    cases = [(n, functools.partial(attempt, n, f)) for n, f in vars(module).items() if n.startswith("test_") and inspect.isfunction(f)]
    tap.run(cases, sys.argv[1:], WIDTH)


def attempt(name, function):
    """A case in a world of its own."""
    world = World(name)
    try:
        function(world)
        assert not world.alarms(), "in the log: %s" % world.alarms()[:10]
    except Skipped:
        raise
    except Exception:  # pylint: disable=broad-except
        lines = traceback.format_exc().splitlines()
        for gateway in world.started:
            lines += ["log: " + line for line in gateway.log().splitlines()[-30:]]
        raise Failed("\n".join(lines)) from None
    finally:
        world.close()
