"""A receiver of webhooks that writes down what it got, and can be told to misbehave.

It is one process with its own threads, in the test itself; the relay sees a real HTTP server. `behave` is called
with the message's payload, and returns a status, or (status, headers); "hang" answers nothing, "cut" closes."""
import os
import socket
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib.http import Handler, Server
from lib.ports import free_port
from lib.wait import wait_for


class Receiver:
    def __init__(self, behave=lambda payload: 200, tls=None):
        self.got, self.confirmed, self.lock = [], [], threading.Lock()
        self.connections = set()
        self.behave = behave
        self.port = free_port()
        self.server = None
        self.tls = tls
        self.start()

    def url(self, path="/in"):
        return "%s://%s:%d%s" % ("https" if self.tls else "http", "localhost" if self.tls else "127.0.0.1", self.port, path)

    def start(self):
        outer = self

        class Hook(Handler):
            def setup(self):
                super().setup()
                with outer.lock:
                    outer.connections.add(self.connection)

            def finish(self):
                with outer.lock:
                    outer.connections.discard(self.connection)
                super().finish()

            def do_POST(self):
                payload = self.body()
                message = {"id": self.headers["webhook-id"], "key": self.headers.get("Once-Message-Key"), "payload": payload,
                           "path": self.path, "headers": self.lower_headers()}
                how = outer.behave(payload)
                status, headers = how if isinstance(how, tuple) else (how, {})
                with outer.lock:
                    outer.got.append(message)
                    if isinstance(status, int) and 200 <= status < 300:
                        outer.confirmed.append(message)
                if status == "cut":
                    self.drop()
                    return
                self.answer(status, headers=headers.items())

        def listen():
            try:
                return Server(Hook, self.port, self.tls)
            except OSError:  # a process that is being started by another thread has the old socket until it is
                return None

        self.server = wait_for(listen, "the port of a receiver")

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.server = None

    def kill(self):
        """As kill -9 does: nobody listens, and whoever was connected is cut off, whatever it waits for."""
        self.stop()
        with self.lock:
            for connection in self.connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def firsts(self, key=None):
        """Payloads in the order of their first confirmed arrival."""
        seen, order = set(), []
        with self.lock:
            for m in self.confirmed:
                if (key is None or m["key"] == key) and m["id"] not in seen:
                    seen.add(m["id"])
                    order.append(m["payload"].decode())
        return order
