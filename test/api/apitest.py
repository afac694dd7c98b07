"""What the tests of the HTTP listener share: a server of their own, requests, TAP."""
import http.client
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib.tap import equal, finish, ok  # noqa: F401, for tests that import this
from lib.wait import SECONDS, wait_for  # noqa: F401


class Server:
    """api_server on a store of its own; options are its NAME=VALUE."""

    def __init__(self, *options, store="sqlite:%s/once.db", env=None):
        self.folder = tempfile.mkdtemp(prefix="once-api-")
        self.errors = open(self.folder + "/stderr", "w+")
        self.process = subprocess.Popen(
            [os.environ["ONCE_API_SERVER"], store % self.folder, *options], stdout=subprocess.PIPE,
            stderr=self.errors, env={**os.environ, **(env or {})}, text=True)
        if not select.select([self.process.stdout], [], [], SECONDS)[0]:
            raise RuntimeError("the server did not start")
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            self.process.wait()
            raise RuntimeError("the server ended: " + self.said())
        host, port = self.address.rsplit(":", 1)
        self.host, self.port = host.strip("[]"), int(port)

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def connect(self):
        return socket.create_connection((self.host, self.port), timeout=SECONDS)

    def client(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=SECONDS)

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, body: JSON where it is). A store that took longer than /healthz waits for it says how busy this machine
        is: asked again."""
        end = time.monotonic() + SECONDS
        while True:
            client = self.client()
            try:
                answer = ask_on(client, method, path, body, headers)
            finally:
                client.close()
            late = path == "/healthz" and answer[0] == 503 and (method == "HEAD" or "has not answered" in str(answer[2]))
            if not late or time.monotonic() > end:
                return answer

    def post(self, verb, **members):
        status, _, answer = self.ask("POST", "/v1/" + verb, members)
        if status != 200:
            raise RuntimeError("%s: %d %r" % (verb, status, answer))
        return answer

    def look(self, key, tenant=""):
        return self.ask("GET", "/v1/records?tenant=%s&key=%s" % (tenant, key))[2]

    def metrics(self):
        text = self.ask("GET", "/metrics")[2]
        return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))

    def stop(self, name="the server"):
        """Ends it; it must end well, and have complained about nothing."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = "did not end"
        said = self.said()
        ok(code == 0 and said == "", name + " ends well", "exit: %s" % code, said)
        self.process.stdout.close()
        self.errors.close()
        shutil.rmtree(self.folder)


def encode(body):
    if body is None or isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def read_answer(response):
    data = response.read()
    kind = response.getheader("Content-Type", "")
    if kind in ("application/json", "application/problem+json") and data:
        return response.status, response.headers, json.loads(data)
    return response.status, response.headers, data.decode()


def ask_on(client, method, path, body=None, headers=None):
    """Headers: a dict, or a list of pairs to send some twice; {"Host": ...} replaces it."""
    pairs = list(headers.items()) if isinstance(headers, dict) else list(headers or [])
    names = [name.lower() for name, _ in pairs]
    client.putrequest(method, path, skip_host="host" in names, skip_accept_encoding=True)
    body = encode(body)
    if body is not None and "content-type" not in names:
        pairs.append(("Content-Type", "application/json"))
    if body is not None and "content-length" not in names and "transfer-encoding" not in names:
        pairs.append(("Content-Length", str(len(body))))
    for name, value in pairs:
        if value is not None:
            client.putheader(name, value)
    client.endheaders()
    if body:
        client.send(body)
    return read_answer(client.getresponse())


def raw_answer(connection, method="GET"):
    response = http.client.HTTPResponse(connection, method=method)
    response.begin()
    return read_answer(response)


def grant(answer):
    return {"record": answer["record"], "fence": answer["fence"]}
