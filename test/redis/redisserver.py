"""A Redis that a test starts, kills and starts again, in a folder of its own; and a client for it.

Nothing but the standard library: the protocol is short, and a test should not depend on what it tests.
"""
import os
import shutil
import signal
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib.wait import SECONDS, wait_for

PROGRAM = shutil.which("redis-server") or "/usr/bin/redis-server"


def available():
    return os.access(PROGRAM, os.X_OK)


class Client:
    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.s.settimeout(SECONDS)
        self.s.connect(path)
        self.f = self.s.makefile("rb")

    def __call__(self, *words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        self.s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        return self.read()

    def read(self):
        line = self.f.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.f.read(int(rest) + 2)[:-2]
        return None if rest == b"-1" else [self.read() for _ in range(int(rest))]

    def close(self):
        self.f.close()
        self.s.close()


class Redis:
    """aof: None, "always", "everysec" or "no"."""

    def __init__(self, folder, aof=None, port=0, settings=()):
        self.folder, self.path = folder, os.path.join(folder, "s")
        os.makedirs(folder, exist_ok=True)
        self.args = [PROGRAM, "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", self.path, "--dir", folder,
                     "--save", "", "--appendonly", "yes" if aof else "no", "--appendfsync", aof or "everysec",
                     "--logfile", os.path.join(folder, "log"), "--repl-diskless-sync-delay", "0", *settings]
        self.port, self.process = port, None

    def start(self):
        self.process = subprocess.Popen(self.args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        wait_for(self.answers, lambda: "redis-server: " + self.said())
        return self

    def answers(self):
        if self.process.poll() is not None:
            sys.exit("redis-server does not start:\n" + self.said())
        try:
            client = Client(self.path)
            answer = client("PING")
            client.close()
            return answer == "PONG"
        except (OSError, RuntimeError):  # not there yet, or loading
            return False

    def said(self):
        try:
            return open(os.path.join(self.folder, "log"), errors="replace").read()[-2000:]
        except OSError:
            return ""

    def kill(self):
        """As a crash of the process: no goodbye, nothing saved."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = None
        if os.path.exists(self.path):
            os.unlink(self.path)

    def stop(self):
        if self.process is not None:
            self.kill()

    def client(self):
        return Client(self.path)

    def url(self, more=""):
        return "redis+unix:%s?tier=best-effort%s" % (self.path, more)
