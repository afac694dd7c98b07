"""`once daemon` that a test starts, asks, ends and starts again."""
import os
import re
import signal
import subprocess

from lib import http, metrics, wireclient
from lib.tap import Failed
from lib.wait import SECONDS, wait_for

ONCE = os.path.realpath(os.environ["ONCE_BIN"]) if os.environ.get("ONCE_BIN") else ""


class Daemon:
    """On a store, by default in SQLite, with its socket and its log in a folder. The log is of all its lives."""

    def __init__(self, folder, store=None, name="once"):
        self.folder, self.name = folder, name
        self.store = store or "sqlite:" + os.path.join(folder, "once.db")
        self.socket = os.path.join(folder, name + ".sock")
        self.log_path = os.path.join(folder, name + ".log")
        self.options, self.process, self.line, self.http = (), None, "", None

    def start(self, *options, env=None, ready=True, stderr=None, before=()):
        """With these options, or as before. `env` is the whole environment, `stderr` is for another place than the log, `before` is a
        command that runs it. ready: its first line is waited for, and has to say so; False: it is not."""
        self.options = options or self.options
        http_option = [] if "--http" in self.options else ["--http", "off"]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([*before, ONCE, "daemon", "--store", self.store, "--socket", self.socket, *http_option, *self.options],
                                            cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                            stderr=log if stderr is None else stderr, text=True)
        if not ready:
            return self
        self.line = self.process.stdout.readline()
        if not self.line.startswith("once: ready: socket %s" % self.socket):
            self.process.wait()
            raise Failed("the daemon did not start: %r, %s" % (self.line, self.log()))
        address = re.search(r"http (\S+)$", self.line)
        self.http = address and address.group(1)
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def log(self):
        if not os.path.exists(self.log_path):
            return ""
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def client(self, **named):
        return wireclient.Client(self.socket, **named)

    def get(self, path):
        """(status, text), however late."""
        status, _, body = wait_for(lambda: http.request(self.http, path), "an answer to GET " + path)
        return status, body.decode()

    def metrics(self):
        return metrics.samples(self.get("/metrics")[1])

    def end(self, number=signal.SIGTERM):
        """Its exit status; None: there was none to end."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.reap()

    def reap(self):
        """The exit status of one that ends by itself."""
        try:
            code = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired as late:
            self.process.kill()
            self.process.wait()
            raise Failed("the daemon did not end") from late
        finally:
            self.process.stdout.close()
        self.process = None
        return code
