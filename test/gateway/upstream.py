#!/usr/bin/env python3
"""The service behind the gateway: it counts effects durably and answers as badly as it is told.

The last segment of a request's path names the behaviour; its header X-Test is the token that
effects are counted by. An effect is a line in a file, appended before any byte of the answer: so
whichever process is killed, none is forgotten. A behaviour is a function of one connection, made
known by @behaviour; what the gateway must make of it stands in behaviours.py.

Behaviours that hold wait for the file FOLDER/gate/TOKEN (open_gate()), or for the caller's end.

As a program, for tests that kill it:   upstream.py FOLDER [PORT]
It prints its port and serves until its end.
"""
import gzip
import json
import os
import select
import socket
import struct
import sys
import threading
import time

HOLD_BOUND_S = 120
BEHAVIOURS = {}


def behaviour(function):
    BEHAVIOURS[function.__name__] = function
    return function


class Gone(Exception):
    """The caller went away, or a behaviour ended the connection."""


class Ledger:
    """Effects, one JSON line each, in a file that several processes may write and read. It only grows, so each reads what
    is new: tests ask for a count again and again."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "effects")
        self.lock = threading.Lock()
        self.reading, self.read_to, self.counts = threading.Lock(), 0, {}
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, token, name, headers):
        line = json.dumps({"token": token, "behaviour": name, "headers": headers}) + "\n"
        with self.lock:
            os.write(self.fd, line.encode())
            return self.count(token)

    def of(self, token):
        with open(self.path, encoding="utf-8") as file:
            return [effect for effect in map(json.loads, file) if effect["token"] == token]

    def count(self, token):
        with self.reading:
            while (data := os.pread(self.fd, 1 << 20, self.read_to)).count(b"\n"):
                whole = data[:data.rindex(b"\n") + 1]
                self.read_to += len(whole)
                for line in whole.splitlines():
                    name = json.loads(line)["token"]
                    self.counts[name] = self.counts.get(name, 0) + 1
            return self.counts.get(token, 0)


def gate_path(folder, token):
    return os.path.join(folder, "gate", token)


class Conversation:
    """One connection from the gateway: what was read of it, and ways to answer."""

    def __init__(self, upstream, connection):
        self.upstream = upstream
        self.connection = connection
        self.buffer = b""
        self.clear()

    def clear(self):
        self.method = self.path = self.name = self.token = ""
        self.headers = []
        self.body = b""

    def _more(self):
        data = self.connection.recv(65536)
        if not data:
            raise Gone
        self.buffer += data

    def read_head(self):
        self.clear()
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.path, _version = lines[0].split(" ", 2)
        self.headers = [tuple(part.strip() for part in line.split(":", 1)) for line in lines[1:]]
        self.name = self.path.split("?")[0].rsplit("/", 1)[-1]
        self.token = self.header("x-test") or ""

    def header(self, name):
        for key, value in self.headers:
            if key.lower() == name:
                return value
        return None

    def read_body(self):
        if (self.header("transfer-encoding") or "").lower() == "chunked":
            while True:
                while b"\r\n" not in self.buffer:
                    self._more()
                size, self.buffer = self.buffer.split(b"\r\n", 1)
                length = int(size.split(b";")[0], 16)
                while len(self.buffer) < length + 2:
                    self._more()
                self.body += self.buffer[:length]
                self.buffer = self.buffer[length + 2:]
                if length == 0:
                    return
        length = int(self.header("content-length") or 0)
        while len(self.buffer) < length:
            self._more()
        self.body, self.buffer = self.buffer[:length], self.buffer[length:]

    def effect(self):
        return self.upstream.ledger.add(self.token, self.name, self.headers)

    def work(self):
        """What a sound service does first. The number of this effect."""
        self.read_body()
        return self.effect()

    def send(self, data):
        self.connection.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))

    def answer(self, status=200, headers=(), body=b"", reason="Whatever"):
        """With a length, as most do; the connection stays."""
        if isinstance(body, str):
            body = body.encode()
        lines = ["HTTP/1.1 %d %s" % (status, reason), *headers, "Content-Length: %d" % len(body), "", ""]
        self.send("\r\n".join(lines).encode("latin-1") + body)

    def close(self):
        raise Gone

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Gone

    def hold(self):
        """Until the gate is open, or the caller is gone."""
        path = gate_path(self.upstream.folder, self.token)
        until = time.monotonic() + HOLD_BOUND_S
        while not os.path.exists(path):
            readable = select.select([self.connection], [], [], 0.005)[0]
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                raise Gone
            if readable:
                time.sleep(0.005)
            if time.monotonic() > until or self.upstream.ended:
                raise Gone

    def serve(self):
        try:
            while True:
                self.read_head()
                with self.upstream.lock:
                    self.upstream.seen.append((self.token, self.method, self.path, self.connection.getpeername()[1]))
                BEHAVIOURS.get(self.name, normal)(self)
        except (Gone, OSError, ValueError):
            pass
        finally:
            self.connection.close()
            with self.upstream.lock:
                self.upstream.connections.discard(self.connection)


class Upstream:
    """Listens on a port of its own; a thread per connection."""

    def __init__(self, folder, port=0):
        self.folder = folder
        os.makedirs(os.path.join(folder, "gate"), exist_ok=True)
        self.ledger = Ledger(folder)
        self.lock = threading.Lock()
        self.seen = []          # (token, method, path, caller's port) of every request whose head was read
        self.connections = set()
        self.accepted = 0
        self.ended = False
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(1024)
        self.port = self.listener.getsockname()[1]
        self.refusing = socket.socket()  # bound, and does not listen: connections are refused
        self.refusing.bind(("127.0.0.1", 0))
        self.refusing_port = self.refusing.getsockname()[1]
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.accepted += 1
                self.connections.add(connection)
            threading.Thread(target=Conversation(self, connection).serve, daemon=True).start()

    def caller_of(self, token):
        """The port that a request came from, or None."""
        with self.lock:
            return next((seen[3] for seen in self.seen if seen[0] == token), None)

    def open_gate(self, token):
        open(gate_path(self.folder, token), "w").close()

    def effects(self, token):
        return self.ledger.count(token)

    def stop(self):
        self.ended = True
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.refusing.close()
        with self.lock:
            for connection in self.connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


# ------------------------------------------------------------------ sound answers

JSON = "Content-Type: application/json"


@behaviour
def normal(c):
    n = c.work()
    c.answer(201, [JSON], '{"effect":%d,"token":"%s"}' % (n, c.token))


@behaviour
def echo(c):
    """The request as it arrived: method, path, headers, the body's length."""
    c.work()
    c.answer(200, [JSON], json.dumps({"method": c.method, "path": c.path, "headers": c.headers, "length": len(c.body)}))


@behaviour
def held(c):
    """Has its effect, then answers when it is told to."""
    n = c.work()
    c.hold()
    c.answer(201, [JSON], '{"effect":%d,"held":true}' % n)


@behaviour
def held_denied(c):
    """Held the first time, and then a 401 that is too large to keep; well after that."""
    n = c.work()
    if n == 1:
        c.hold()
        c.answer(401, [], b"n" * (3 << 20))
    else:
        c.answer(201, [JSON], '{"effect":%d}' % n)


@behaviour
def held_before(c):
    """Waits with the effect, too."""
    c.read_body()
    c.hold()
    n = c.effect()
    c.answer(201, [JSON], '{"effect":%d}' % n)


@behaviour
def held_unread(c):
    """Has read the head only while it waits."""
    c.hold()
    n = c.work()
    c.answer(201, [JSON], '{"effect":%d}' % n)


@behaviour
def held_in_headers(c):
    n = c.work()
    body = b'{"effect":%d}' % n
    c.send("HTTP/1.1 201 Created\r\nContent-Le")
    c.hold()
    c.send(b"ngth: %d\r\n\r\n" % len(body) + body)


@behaviour
def held_in_body(c):
    n = c.work()
    body = b'{"effect":%d,"padding":"%s"}' % (n, b"x" * 1000)
    c.send(b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:500])
    c.hold()
    c.send(body[500:])


@behaviour
def slow(c):
    n = c.work()
    time.sleep(0.3)
    c.answer(200, [], "slow %d" % n)


@behaviour
def slow_headers(c):
    n = c.work()
    body = b"slow headers %d" % n
    for byte in b"HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: %d\r\n\r\n" % len(body):
        c.send(bytes([byte]))
        time.sleep(0.004)
    c.send(body)


@behaviour
def slow_body(c):
    n = c.work()
    body = b"slow body %d" % n + b"." * 40
    c.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
    for byte in body:
        c.send(bytes([byte]))
        time.sleep(0.004)


def chunk(data):
    return b"%x\r\n" % len(data) + data + b"\r\n"


CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"


@behaviour
def chunked(c):
    n = c.work()
    c.send(CHUNKED + chunk(b"chunk %d" % n) + chunk(b", the rest") + b"0\r\n\r\n")


@behaviour
def chunked_in_bytes(c):
    n = c.work()
    c.send(CHUNKED + b"".join(chunk(bytes([byte])) for byte in b"one by one %d" % n * 50) + b"0\r\n\r\n")


@behaviour
def chunked_extension(c):
    n = c.work()
    c.send(CHUNKED + b'5;name="value"\r\nhello\r\n' + chunk(b" %d" % n) + b"0\r\n\r\n")


@behaviour
def chunked_empty(c):
    c.work()
    c.send(CHUNKED + b"0\r\n\r\n")


@behaviour
def trailers(c):
    n = c.work()
    c.send(b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"with trailers %d" % n) +
           b"0\r\nX-Sum: 17\r\nSet-Cookie: late=1\r\n\r\n")


@behaviour
def until_eof(c):
    """HTTP/1.0: the end of the connection is the end of the body."""
    n = c.work()
    c.send(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the end %d" % n)
    c.close()


@behaviour
def http_1_0(c):
    n = c.work()
    body = b"HTTP/1.0 %d" % n
    c.send(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    c.close()


@behaviour
def connection_close(c):
    n = c.work()
    c.answer(200, ["Connection: close"], "closing %d" % n)
    c.close()


@behaviour
def connection_names(c):
    """Headers named by Connection are hop by hop."""
    n = c.work()
    c.answer(200, ["Connection: X-Hop", "X-Hop: secret", "Keep-Alive: timeout=5"], "hop %d" % n)


@behaviour
def empty(c):
    c.work()
    c.answer(200, [JSON], b"")


@behaviour
def no_content(c):
    c.work()
    c.send("HTTP/1.1 204 No Content\r\nETag: \"v1\"\r\n\r\n")


@behaviour
def not_modified(c):
    c.work()
    c.send("HTTP/1.1 304 Not Modified\r\nETag: \"v1\"\r\n\r\n")


@behaviour
def binary(c):
    n = c.work()
    c.answer(200, ["Content-Type: application/octet-stream"], bytes(range(256)) * 16 + b"\0" * 100 + b"%d" % n)


@behaviour
def gzipped(c):
    n = c.work()
    c.answer(200, [JSON, "Content-Encoding: gzip", "Vary: Accept-Encoding"], gzip.compress(b'{"effect":%d}' % n * 100))


@behaviour
def set_cookie(c):
    n = c.work()
    c.answer(200, ["Set-Cookie: session=secret", "Set-Cookie: other=secret", "WWW-Authenticate: Basic", "X-RateLimit-Remaining: 3",
                   "Access-Control-Allow-Origin: *", "Date: Thu, 01 Jan 1970 00:00:00 GMT", "Age: 17"], "cookie %d" % n)


@behaviour
def location(c):
    n = c.work()
    c.answer(201, ["Location: /orders/%d" % n, 'ETag: "abc"', "Content-Language: de",
                   "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"], "made %d" % n)


@behaviour
def see_other(c):
    n = c.work()
    c.answer(303, ["Location: http://elsewhere.example/orders/%d" % n], "")


@behaviour
def duplicate_headers(c):
    n = c.work()
    c.answer(200, ["Link: </a>; rel=a", "Link: </b>; rel=b", "Content-Type: text/plain"], "links %d" % n)


@behaviour
def many_headers(c):
    n = c.work()
    c.answer(200, ["X-Many-%d: %d" % (i, i) for i in range(100)] + ['ETag: "many"'], "many %d" % n)


@behaviour
def large_header(c):
    """Within nginx's proxy_buffer_size, which the harness makes 16 KiB."""
    n = c.work()
    c.answer(200, ["Link: <%s>" % ("x" * 8000)], "large %d" % n)


@behaviour
def odd_case(c):
    n = c.work()
    body = b"odd %d" % n
    c.send(b"HTTP/1.1 200\r\ncOnTeNt-TyPe:text/odd\r\netag:   \"odd\"   \r\ncontent-length:%d\r\n\r\n" % len(body) + body)


@behaviour
def odd_status(c):
    n = c.work()
    c.answer(299, [], "odd status %d" % n)


@behaviour
def mib(c):
    c.work()
    c.answer(200, [], b"m" * (1 << 20))


@behaviour
def mib_and_1(c):
    c.work()
    c.answer(200, [], b"m" * ((1 << 20) + 1))


@behaviour
def mib_and_1_chunked(c):
    c.work()
    c.send(CHUNKED + chunk(b"m" * (1 << 20)) + chunk(b"m") + b"0\r\n\r\n")


@behaviour
def mib_20(c):
    c.work()
    c.answer(200, [], b"0123456789abcdef" * (20 << 16))


@behaviour
def mib_20_truncated(c):
    c.work()
    c.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (20 << 20) + b"0" * (10 << 20))
    c.close()


@behaviour
def accel_headers(c):
    n = c.work()
    c.answer(200, ["X-Accel-Expires: 100", "X-Accel-Limit-Rate: 1000000", "X-Accel-Buffering: no", "Cache-Control: no-store"],
             "accel %d" % n)


@behaviour
def extra_bytes(c):
    """More than the length says: another answer, smuggled."""
    n = c.work()
    body = b"honest %d" % n
    c.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body + b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled")
    c.close()


def status_answer(status):
    def answer(c):
        n = c.work()
        c.answer(status, [JSON], '{"status":%d,"effect":%d}' % (status, n))
    answer.__name__ = "status_%d" % status
    return behaviour(answer)


FINAL_STATUSES = (200, 202, 206, 301, 302, 307, 308, 400, 402, 404, 405, 410, 412, 413, 418, 422, 451)
REFUSING_STATUSES = (401, 403, 408, 409, 425, 429)
FAILING_STATUSES = (500, 501, 502, 503, 504, 507, 511, 599)
for number in FINAL_STATUSES + REFUSING_STATUSES + FAILING_STATUSES:
    status_answer(number)


@behaviour
def fails_once(c):
    """The first time 503, then well."""
    n = c.work()
    if n == 1:
        c.answer(503, ["Retry-After: 1"], "not yet")
    else:
        c.answer(200, [], "well %d" % n)


@behaviour
def resets_once(c):
    n = c.work()
    if n == 1:
        c.reset()
    c.answer(200, [], "well %d" % n)


# ------------------------------------------------------------------ informational answers, upgrades

@behaviour
def continue_100(c):
    n = c.work()
    c.send("HTTP/1.1 100 Continue\r\n\r\n")
    c.answer(200, [], "continued %d" % n)


@behaviour
def early_hints(c):
    n = c.work()
    c.send("HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n")
    c.answer(200, [], "hinted %d" % n)


INFORMATIONAL = ("HTTP/1.1 102 Processing\r\n\r\n"
                 "HTTP/1.1 103 Early Hints\r\nETag: \"early\"\r\nLocation: /early\r\nContent-Length: 3\r\nConnection: close\r\n\r\n")


@behaviour
def many_informational(c):
    n = c.work()
    c.send(INFORMATIONAL * 5)
    c.answer(200, ['ETag: "last"'], "at last %d" % n)


@behaviour
def informational_in_bytes(c):
    """Each byte by itself, as far as the network lets it."""
    n = c.work()
    for byte in INFORMATIONAL:
        c.send(byte)
        time.sleep(0.001)
    c.answer(200, ['ETag: "last"'], "at last %d" % n)


@behaviour
def informational_only(c):
    c.work()
    c.send(INFORMATIONAL)
    c.close()


@behaviour
def informational_then_upgrade(c):
    c.work()
    c.send(INFORMATIONAL + "HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\nother protocol")
    c.close()


@behaviour
def too_many_informational(c):
    """More than nginx has room for: the bound is proxy_buffer_size."""
    n = c.work()
    c.send(INFORMATIONAL * 1000)
    c.answer(200, [], "at last %d" % n)


@behaviour
def upgrade(c):
    """Switches protocols though nobody asked."""
    c.work()
    c.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\nother protocol")
    c.close()


# ------------------------------------------------------------------ answers that do not end as they should

@behaviour
def length_too_long(c):
    n = c.work()
    c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort %d" % n)
    c.close()


@behaviour
def length_one_too_long(c):
    c.work()
    c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nshort")
    c.close()


@behaviour
def length_without_body(c):
    c.work()
    c.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
    c.close()


@behaviour
def chunked_truncated(c):
    c.work()
    c.send(CHUNKED + b"10\r\nhalf")
    c.close()


@behaviour
def chunked_without_end(c):
    c.work()
    c.send(CHUNKED + chunk(b"whole"))
    c.close()


@behaviour
def chunked_half_end(c):
    """The last chunk's line, and no empty line after it."""
    c.work()
    c.send(CHUNKED + chunk(b"whole") + b"0\r\n")
    c.close()


@behaviour
def trailers_truncated(c):
    c.work()
    c.send(CHUNKED + chunk(b"whole") + b"0\r\nX-Sum: 1")
    c.close()


@behaviour
def chunked_reset(c):
    c.work()
    c.send(CHUNKED + chunk(b"whole"))
    c.reset()


@behaviour
def reset_unread(c):
    """The head was read, the body not: nobody knows what it did with it."""
    c.reset()


@behaviour
def close_unread(c):
    c.close()


@behaviour
def reset_after_reading(c):
    c.work()
    c.reset()


@behaviour
def close_after_reading(c):
    c.work()
    c.close()


@behaviour
def reset_in_status(c):
    c.work()
    c.send("HTTP/1.1 2")
    c.reset()


@behaviour
def close_in_status(c):
    c.work()
    c.send("HTTP/1.1 2")
    c.close()


@behaviour
def close_in_headers(c):
    c.work()
    c.send("HTTP/1.1 200 OK\r\nContent-Type: text/pl")
    c.close()


@behaviour
def reset_in_headers(c):
    c.work()
    c.send("HTTP/1.1 200 OK\r\nContent-Type: text/pl")
    c.reset()


@behaviour
def close_before_empty_line(c):
    c.work()
    c.send("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n")
    c.close()


@behaviour
def reset_after_headers(c):
    c.work()
    c.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    c.reset()


@behaviour
def reset_in_body(c):
    c.work()
    c.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + "b" * 500)
    c.reset()


@behaviour
def until_eof_reset(c):
    """No length, and the end is a reset: not an end."""
    c.work()
    c.send("HTTP/1.0 200 OK\r\n\r\nuntil" + "." * 3000)
    time.sleep(0.05)  # what a reset overtakes would be lost
    c.reset()


# ------------------------------------------------------------------ answers that are none

@behaviour
def bad_status_line(c):
    c.work()
    c.send("HTTP/1.1 abc What\r\nContent-Length: 5\r\n\r\nhello")
    c.close()


@behaviour
def status_too_short(c):
    c.work()
    c.send("HTTP/1.1 20 OK\r\nContent-Length: 5\r\n\r\nhello")
    c.close()


@behaviour
def http_0_9(c):
    c.work()
    c.send("just text, no status line\n")
    c.close()


@behaviour
def other_protocol(c):
    c.work()
    c.send("SSH-2.0-OpenSSH_9.2\r\n")
    c.close()


@behaviour
def nothing_but_newlines(c):
    c.work()
    c.send("\r\n\r\n\r\n")
    c.close()


@behaviour
def header_without_colon(c):
    c.work()
    c.send("HTTP/1.1 200 OK\r\nthis is no header\r\nContent-Length: 5\r\n\r\nhello")
    c.close()


@behaviour
def header_with_nul(c):
    c.work()
    c.send("HTTP/1.1 200 OK\r\nLink: a\0b\r\nContent-Length: 5\r\n\r\nhello")
    c.close()


@behaviour
def huge_header(c):
    c.work()
    c.send("HTTP/1.1 200 OK\r\nLink: " + "x" * (1 << 20) + "\r\nContent-Length: 5\r\n\r\nhello")
    c.close()


@behaviour
def bad_chunk_size(c):
    c.work()
    c.send(CHUNKED + chunk(b"good") + b"xyz\r\nbad\r\n0\r\n\r\n")
    c.close()


@behaviour
def bad_chunk_end(c):
    c.work()
    c.send(CHUNKED + b"4\r\ngoodbad\r\n0\r\n\r\n")
    c.close()


@behaviour
def huge_chunk_size(c):
    c.work()
    c.send(CHUNKED + b"ffffffffffffffffff\r\nbad\r\n0\r\n\r\n")
    c.close()


@behaviour
def negative_length(c):
    c.work()
    c.send("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello")
    c.close()


@behaviour
def two_lengths(c):
    c.work()
    c.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nhello")
    c.close()


@behaviour
def length_and_chunked(c):
    c.work()
    c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"hello") + b"0\r\n\r\n")
    c.close()


@behaviour
def unknown_coding(c):
    """A transfer coding that nginx does not know: where the body ends is a guess."""
    c.work()
    c.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello")
    c.close()


# ------------------------------------------------------------------ silence

@behaviour
def silence(c):
    c.work()
    c.hold()
    c.close()


@behaviour
def silence_unread(c):
    c.hold()
    c.close()


@behaviour
def silence_in_headers(c):
    c.work()
    c.send("HTTP/1.1 200 OK\r\nContent-Le")
    c.hold()
    c.close()


@behaviour
def silence_in_body(c):
    c.work()
    c.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
    c.hold()
    c.close()


@behaviour
def silence_in_chunks(c):
    c.work()
    c.send(CHUNKED + chunk(b"whole"))
    c.hold()
    c.close()


# ------------------------------------------------------------------ the request's other half

@behaviour
def answers_unread(c):
    """Answers before the request's body was read, and reads it after that."""
    n = c.effect()
    c.answer(200, [], "hasty %d" % n)
    c.read_body()


@behaviour
def refuses_unread(c):
    """Answers before the body was read, and closes."""
    c.effect()
    c.answer(413, ["Connection: close"], "too large")
    c.connection.shutdown(socket.SHUT_WR)
    while c.connection.recv(65536):  # so that the answer is not overtaken by a reset
        pass
    c.close()


@behaviour
def closes_after_answer(c):
    """Keepalive promised, and not kept: the next request on it meets a closed connection."""
    n = c.work()
    c.answer(200, [], "and closed %d" % n)
    c.connection.recv(1)  # of the next request
    c.reset()


def main():
    folder = sys.argv[1]
    upstream = Upstream(folder, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(upstream.port, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
