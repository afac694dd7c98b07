"""What the console's tests share: a daemon with a console, a session, bytes that are meant to hurt."""
import atexit
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [os.path.join(HERE, "../api"), os.path.join(HERE, "..")]
from apitest import SECONDS, ask_on, equal, finish, ok, wait_for  # noqa: F401, for tests that import this
import http.client
from lib import daemon
from lib.daemon import ONCE  # noqa: F401
from lib.ports import free_port, free_ports  # noqa: F401

TOKEN = re.compile(r"sign in once at \S*#token=([0-9a-f]{64})$", re.M)

HOSTILE = {
    "a script": b"<script>document.title='pwned'</script>",
    "an attribute": b"'\"><img src=x onerror=\"document.title='pwned'\">",
    "right to left": "\u202eexe.gnp\u2066".encode(),
    "a NUL": b"nul\0byte",
    "no UTF-8": b"\xff\xfe\x80raw",
    "escape sequences": b"\x1b[31mred\x1b[0m\r\n",
    "blanks": "zero\u200bwidth\u00a0space\u3164".encode(),
    "marks": ("z" + "\u0335" * 12).encode(),
    "letters": "na\u00efve-\u043a\u043b\u044e\u0447-\u9375".encode(),
    "percent": b"100%25&key=x#y?z=%00",
}


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=SECONDS)
        self.path = path

    def connect(self):
        import socket
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(SECONDS)
        self.sock.connect(self.path)


class Daemon(daemon.Daemon):
    """`once daemon --console` on a store of its own."""

    def __init__(self, *options, console=None, store=None, folder=None):
        super().__init__(folder or tempfile.mkdtemp(prefix="once-console-"), store)
        first = free_ports(2)
        self.port = first
        self.address = console or "127.0.0.1:%d" % first
        self.origin = "http://127.0.0.1:%d" % first
        self.api_port = first + 1
        self.used = set()
        self.start("--http", "127.0.0.1:%d" % self.api_port, "--console", self.address, *options)
        atexit.register(self.process.kill)  # also where the test itself fails

    def token(self):
        """The one that is good now: the last that was printed, and not used yet."""
        return wait_for(lambda: [t for t in TOKEN.findall(self.log()) if t not in self.used], "a token is printed")[-1]

    def client(self):
        return UnixConnection(self.address) if self.address[0] == "/" else http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)

    def ask(self, method, path, body=None, headers=None):
        client = self.client()
        try:
            return ask_on(client, method, path, body, headers)
        finally:
            client.close()

    def login(self, token=None, name="ann"):
        """A session, or what was answered instead."""
        token = token or self.token()
        status, headers, answer = self.ask("POST", "/api/login", {"token": token, "name": name}, {"Origin": self.origin})
        if status == 200:
            self.used.add(token)
        return Session(self, headers["Set-Cookie"].split(";")[0], answer["csrf"]) if status == 200 else (status, answer)

    def api(self, verb, **members):
        """The JSON API, to make records with."""
        client = http.client.HTTPConnection("127.0.0.1", self.api_port, timeout=SECONDS)
        try:
            status, _, answer = ask_on(client, "POST", "/v1/" + verb, members)
        finally:
            client.close()
        if status != 200:
            raise RuntimeError("%s: %s %s" % (verb, status, answer))
        return answer

    def record(self, key, tenant="", finish=None, lease_ms=3600000, point=None, **outcome):
        """A record in the state `finish`; None: it stays running."""
        held = self.api("claim", key_base64=b64(key), tenant=tenant, lease_ms=lease_ms)
        grant = {"record": held["record"], "fence": held["fence"]}
        if point:
            self.api("advance", **grant, point=point, checkpoint="receipt-17")
        if finish:
            self.api("finish", **grant, state=finish, **outcome)
        return held

    def stop(self, name="the daemon"):
        code, log = self.end(), self.log()
        ok(code == 0 and "Sanitizer" not in log and "runtime error" not in log, name + " ends well", code, log[-3000:])
        shutil.rmtree(self.folder, ignore_errors=True)


class Session:
    def __init__(self, daemon, cookie, csrf):
        self.daemon, self.cookie, self.csrf = daemon, cookie, csrf

    def headers(self, **changes):
        all_of_them = {"Cookie": self.cookie, "X-Once-Csrf": self.csrf, "Origin": self.daemon.origin, "Sec-Fetch-Site": "same-origin"}
        all_of_them.update({name.replace("_", "-"): value for name, value in changes.items()})
        return {name: value for name, value in all_of_them.items() if value is not None}

    def get(self, path, **parameters):
        query = "&".join("%s=%s" % (name, value if isinstance(value, str) else percent(value)) for name, value in parameters.items())
        return self.daemon.ask("GET", path + ("?" + query if query else ""), headers=self.headers())

    def post(self, path, **members):
        return self.daemon.ask("POST", path, members, self.headers())

    def key(self, key, tenant=b""):
        return self.get("/api/key", tenant=tenant, key=key)[2]


def b64(data):
    return base64.b64encode(data if isinstance(data, bytes) else data.encode()).decode()


def percent(data):
    return "".join("%%%02X" % byte for byte in data)


def bytes_of(answer, name):
    return base64.b64decode(answer[name + "_base64"]) if name + "_base64" in answer else answer[name].encode()


def fill(store, count):  # or "request"
    subprocess.run([os.environ["ONCE_TEST_FILL"], store, str(count)], check=True)


def dump(value):
    return json.dumps(value)[:300]
