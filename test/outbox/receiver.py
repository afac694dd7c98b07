"""A receiver of webhooks that writes down what it got, and can be told to misbehave.

It is one process with its own threads, in the test itself; the relay sees a real HTTP server. `behave` is called
with the message's payload, and returns a status, or (status, headers); "hang" answers nothing, "cut" closes."""
import http.server
import os
import socket
import socketserver
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from ports import free_port


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

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def setup(self):
                super().setup()
                with outer.lock:
                    outer.connections.add(self.connection)

            def finish(self):
                with outer.lock:
                    outer.connections.discard(self.connection)
                try:
                    super().finish()
                except OSError:
                    pass

            def do_POST(self):
                payload = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                message = {"id": self.headers["webhook-id"], "key": self.headers.get("Once-Message-Key"), "payload": payload,
                           "path": self.path, "headers": dict((k.lower(), v) for k, v in self.headers.items())}
                how = outer.behave(payload)
                status, headers = how if isinstance(how, tuple) else (how, {})
                with outer.lock:
                    outer.got.append(message)
                    if isinstance(status, int) and 200 <= status < 300:
                        outer.confirmed.append(message)
                if status == "cut":
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True
            request_queue_size = 128
            allow_reuse_address = True

            def handle_error(self, *_):
                pass  # a relay that is killed leaves broken connections

        end = time.monotonic() + 120
        while self.server is None:
            try:
                self.server = Server(("127.0.0.1", self.port), Handler)
            except OSError:  # a process that is being started by another thread has the old socket until it is
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
        if self.tls:
            self.server.socket = self.tls.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

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
