"""A client of the daemon's socket that says exactly what it is told to: right and wrong frames.

docs/internals/wire.md has the protocol."""
import os
import select
import socket
import struct

HELLO, WELCOME, CALL, REPLY, LIST, PAGE, STATS, COUNTS, FAILED = 1, 2, 3, 4, 5, 6, 13, 14, 15
CLAIM, EXTEND, ADVANCE, FINISH, RELEASE, LOOKUP = 1, 2, 3, 4, 5, 6
EXECUTE, PROBE, REPLAY, MISMATCH, IN_PROGRESS, UNKNOWN, DONE, FENCED, FOUND, ABSENT, EXPIRED = range(1, 12)
ESCALATE, RERUN = 1, 2
INVALID, LIMIT, BUSY, UNAVAILABLE, QUOTA = 1, 2, 3, 4, 8
SUCCEEDED, UNKNOWN_STATE = 2, 4


def text(data):
    data = data.encode() if isinstance(data, str) else data
    return struct.pack("!I", len(data)) + data


def frame(kind, payload, number=1):
    return struct.pack("!IIB", 5 + len(payload), number, kind) + payload


def hello(version=1, magic=b"ONCE", name="test"):
    return frame(HELLO, magic + struct.pack("!I", version) + text(name), 0)


def call(verb, payload, record=bytes(16), fence=0, number=1):
    return frame(CALL, struct.pack("!BB16s16sQ", verb, 0, bytes(16), record, fence) + payload, number)


def terms(lease_ms, retention_ms=0, wait_ms=0, takeover=ESCALATE, intent=0):
    """What a claim says between its fingerprint and its request; its body is kept as long, its key's age does not count."""
    return struct.pack("!qqqqBBB", lease_ms, retention_ms, 0, wait_ms, takeover, intent, 0)


def claim(key, number=1, takeover=ESCALATE, lease_ms=60000, wait_ms=0, tenant="", nonce=None, route=""):
    return call(CLAIM, text(tenant) + text(key) + bytes(32) + terms(lease_ms, wait_ms=wait_ms, takeover=takeover) +
                text("") + text(route) + (nonce or os.urandom(16)), number=number)


def finish(grant, body=b"", number=1, status=200, state=SUCCEEDED):
    return call(FINISH, struct.pack("!BBBBi", state, 0, 0, 0, status) + text("") + text(body), *grant, number=number)


def lookup(key, number=1):
    return call(LOOKUP, text("") + text(key) + b"\0", number=number)


class Answer:
    def __init__(self, number, kind, payload):
        self.number, self.kind, self.payload = number, kind, payload
        self.arm = payload[0] if kind == REPLY else None
        self.grant = (payload[9:25], struct.unpack_from("!Q", payload, 25)[0]) if kind == REPLY else None
        self.result = payload[0] if kind == FAILED else None
        self.text = payload[5:].decode(errors="replace") if kind == FAILED else ""

    def attempt(self):
        at = 33
        for _ in range(2):  # tenant, key
            at += 4 + struct.unpack_from("!I", self.payload, at)[0]
        return struct.unpack_from("!I", self.payload, at + 32 + 10)[0]

    def body(self):
        rest, at = self.payload, 33
        for _ in range(2):
            at += 4 + struct.unpack_from("!I", rest, at)[0]
        at += 32 + 10 + 4 + 4 + 7 * 8
        for i in range(4):  # point, checkpoint, headers, body
            size = struct.unpack_from("!I", rest, at)[0]
            if i == 3:
                return rest[at + 4:at + 4 + size]
            at += 4 + size


class Client:
    def __init__(self, path, greet=True, seconds=120):
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.s.settimeout(seconds)
        self.s.connect(path)
        self.buffer = b""
        if greet:
            self.send(hello())
            self.welcome = self.get()

    @classmethod
    def of(cls, s, seconds=120):
        """The other side of a connection that was accepted."""
        peer = cls.__new__(cls)
        peer.s, peer.buffer = s, b""
        s.settimeout(seconds)
        return peer

    def send(self, data):
        self.s.sendall(data)

    def get(self):
        """The next frame; None: the daemon closed the connection."""
        while True:
            if len(self.buffer) >= 4:
                size = 4 + struct.unpack_from("!I", self.buffer)[0]
                if len(self.buffer) >= size:
                    raw, self.buffer = self.buffer[:size], self.buffer[size:]
                    number, kind = struct.unpack_from("!IB", raw, 4)
                    return Answer(number, kind, raw[9:])
            try:
                data = self.s.recv(1 << 16)
            except (ConnectionResetError, BrokenPipeError):
                return None
            if not data:
                return None
            self.buffer += data

    def ask(self, data):
        self.send(data)
        return self.get()

    def has_more(self, seconds):
        return bool(select.select([self.s], [], [], seconds)[0])

    def close(self):
        self.s.close()
