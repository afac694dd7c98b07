"""A proxy before a PostgreSQL server that cuts a connection at a chosen moment of a COMMIT.

It knows the wire format well enough to find, in a pipeline, the COMMIT that the client sends
and the server's answer to it. A cut is made at one POINT

    before     of the COMMIT nothing is passed on: the server rolls back (FAULT-18)
    executed   the same, but the client gets the statements' answers: all but the COMMIT's
    sent       it was passed on, its answer is not waited for (FAULT-19)
    answered   the server said that it committed; the client does not hear it (FAULT-19)
    ready      the client heard it, but not that the server is ready for more
    late       the statements were executed, then the server process is stopped (SIGSTOP), the
               COMMIT passed on and the connection closed: it commits when it is continued
    unread     the server process is stopped before it saw anything of the transaction

and in one WAY
    fin        both connections are closed
    rst        both are reset
    hole       both stay open, and nothing is passed on any more (FAULT-20)
"""
import os
import select
import signal
import socket
import struct
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib.process import is_stopped
from lib.wait import becomes_true


class Plan:
    """One cut, at the nth transaction from now on. `done` when it was made."""
    def __init__(self, point, way, nth):
        self.point, self.way, self.nth = point, way, nth
        self.done = threading.Event()
        self.pid = None  # of the server process


class Connection(threading.Thread):
    """One client and the server behind it. Only this thread touches the two sockets."""
    def __init__(self, proxy, client):
        super().__init__(daemon=True)
        self.proxy, self.client = proxy, client
        self.server = socket.create_connection(proxy.upstream)
        for s in (self.client, self.server):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.wake, self.waker = socket.socketpair()
        self.buffers = {client: b"", self.server: b""}
        self.prepared = {}     # name: statement
        self.started = False   # the first message of a client has no type
        self.pid = None
        self.plan = None       # ours, from its COMMIT (or BEGIN) on
        self.held = None       # messages from COMMIT on
        self.executes = self.completes = 0
        self.committed = False
        self.over = self.hole = False

    def run(self):
        try:
            while not self.over:
                wanted = [self.wake] if self.hole else [self.client, self.server, self.wake]
                for s in select.select(wanted, [], [])[0]:
                    if s is self.wake:
                        self.close()
                    elif not self.over and not self.hole:
                        self.receive(s)
        except OSError:
            self.close()

    def receive(self, s):
        data = s.recv(65536)
        if not data:
            self.close()
            return
        self.buffers[s] += data
        while not self.over and not self.hole:
            message = self.next_message(s)
            if message is None:
                return
            (self.from_client if s is self.client else self.from_server)(*message)

    def next_message(self, s):
        """(type, all of its bytes), or None if it is not complete yet."""
        buffer = self.buffers[s]
        head = 0 if s is self.client and not self.started else 1
        if len(buffer) < head + 4:
            return None
        size = head + struct.unpack_from("!I", buffer, head)[0]
        if len(buffer) < size:
            return None
        self.buffers[s] = buffer[size:]
        if head == 0:
            self.started = True
        return (buffer[:1] if head else b""), buffer[:size]

    def statement_of(self, kind, raw):
        """What a message asks for. A statement with a name is asked for when it is bound."""
        first, second = (raw[5:].split(b"\0", 2) + [b"", b""])[:2]
        if kind == b"Q":
            return first.upper()
        if kind == b"P" and first:
            self.prepared[first] = second.upper()
        elif kind == b"P":
            return second.upper()
        elif kind == b"B":
            return self.prepared.get(second, b"")
        return b""

    def from_client(self, kind, raw):
        statement = self.statement_of(kind, raw)
        if self.plan is None and statement.startswith(b"BEGIN"):
            self.plan = self.proxy.take("BEGIN")
            self.executes = self.completes = 0
            if self.plan:
                self.stop_server()
        if self.plan is None and statement.startswith(b"COMMIT"):
            self.plan = self.proxy.take("COMMIT")
            self.committed = False
            if self.plan and self.plan.point == "before":
                self.cut()
                return
            if self.plan and self.plan.point in ("late", "executed"):
                self.held = []
                self.server.sendall(b"H\0\0\0\4")  # Flush: do it, and say so
        if self.held is not None:
            self.held.append((kind, raw))
            self.when_executed()
            return
        self.executes += kind in (b"E", b"Q")
        self.server.sendall(raw)
        if kind in (b"S", b"Q") and self.plan and self.plan.point in ("sent", "unread"):
            self.cut()

    def from_server(self, kind, raw):
        if kind == b"K" and self.pid is None:
            self.pid = struct.unpack_from("!I", raw, 5)[0]
        if kind == b"C":
            self.completes += 1
            self.committed = raw[5:].startswith(b"COMMIT")
        if self.held is not None:
            if self.plan.point == "executed":
                self.client.sendall(raw)
            self.when_executed()
            return
        if self.plan and self.committed and \
           (kind, self.plan.point) in ((b"C", "answered"), (b"Z", "ready")):
            self.cut()
        elif not (self.plan and self.plan.point == "unread"):
            self.client.sendall(raw)

    def when_executed(self):
        """All before the COMMIT was executed, and all of the COMMIT is here."""
        if self.completes < self.executes or self.held[-1][0] not in (b"S", b"Q"):
            return
        if self.plan.point == "late":
            self.stop_server()
            self.server.sendall(b"".join(raw for _, raw in self.held))
        self.cut()

    def stop_server(self):
        self.plan.pid = self.pid
        os.kill(self.pid, signal.SIGSTOP)
        becomes_true(lambda: is_stopped(self.pid))

    def cut(self):
        if self.plan.way == "hole":
            self.hole = True
        else:
            self.close(reset=self.plan.way == "rst")
        self.plan.done.set()

    def close(self, reset=False):
        self.over = True
        for s in (self.server, self.client):
            if reset:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()


class Proxy(threading.Thread):
    """Listens on `port` of 127.0.0.1. cut() says what happens to one of the next transactions."""
    def __init__(self, upstream_port):
        super().__init__(daemon=True)
        self.upstream = ("127.0.0.1", upstream_port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.plan = None
        self.refusing = 0       # how many of the next connections are closed at once
        self.refused = self.accepted = 0
        self.connections = []
        self.start()

    def url(self, database, parameters=""):
        return ("postgresql://127.0.0.1:%d/%s?user=postgres&sslmode=disable&gssencmode=disable&connect_timeout=300%s"
                % (self.port, database, parameters))

    def run(self):
        while True:
            client, _ = self.listener.accept()
            with self.lock:
                if self.refusing > 0:
                    self.refusing -= 1
                    self.refused += 1
                    client.close()
                    continue
                self.accepted += 1
            try:
                connection = Connection(self, client)
            except OSError:  # the server is not there
                client.close()
                continue
            self.connections = [c for c in self.connections if not c.over] + [connection]
            connection.start()

    def cut(self, point, way="fin", nth=1):
        with self.lock:
            self.plan = Plan(point, way, nth)
            return self.plan

    def take(self, statement):
        """The plan, if this is the moment for it; nobody else gets it then."""
        with self.lock:
            plan = self.plan
            if plan is None or (statement == "BEGIN") != (plan.point == "unread"):
                return None
            plan.nth -= 1
            if plan.nth > 0:
                return None
            self.plan = None
            return plan

    def close(self, holes_only=False):
        """Every connection there is; or those that stayed open with nothing passed on."""
        for c in self.connections:
            if not c.over and (c.hole or not holes_only):
                c.waker.send(b"x")
