#!/usr/bin/env python3
"""A shop without retry safety: every request that reaches it is a new charge.

usage: orders.py FOLDER [PORT]

    POST /orders   takes 300 ms, charges, answers 201 with the number of the order
    POST /slow     the same, but takes 10 s
    POST /flaky    charges, then drops the connection without an answer
    GET  /count    how many charges there were

A charge is a line in FOLDER/ledger, synced to disk before the answer, so that the count
survives whatever happens to this process. Listens on 127.0.0.1, port 9000 or the one given
(0: any free one), and says so in its first line.
"""
import http.server
import json
import os
import socket
import sys
import threading
import time


class Ledger:
    """Charges, one per line; the number of an order is the number of its line."""

    def __init__(self, folder):
        self.lock = threading.Lock()
        self.file = open(os.path.join(folder, "ledger"), "a+b")

    def charge(self, what):
        with self.lock:
            number = self.count_lines() + 1
            self.file.write(b"%d %s\n" % (number, what.replace(b"\n", b" ")[:200]))
            self.file.flush()
            os.fsync(self.file.fileno())
            return number

    def count(self):
        with self.lock:
            return self.count_lines()

    def count_lines(self):
        self.file.seek(0)
        return sum(1 for _ in self.file)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seconds = {"/orders": 0.3, "/slow": 10, "/flaky": 0.3}

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.split("?")[0]
        if path not in self.seconds:
            return self.answer(404, {"error": "there is POST /orders, /slow, /flaky and GET /count"})
        say("working on POST %s" % path)
        time.sleep(self.seconds[path])
        number = self.server.ledger.charge(body)
        say("CHARGED: order %d" % number)
        if path == "/flaky":
            say("dropping the connection")
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return None
        return self.answer(201, {"order": number, "status": "charged"}, Location="/orders/%d" % number)

    def do_GET(self):
        if self.path == "/count":
            return self.answer(200, {"charges": self.server.ledger.count()})
        return self.answer(404, {"error": "there is GET /count"})

    def answer(self, status, document, **headers):
        body = json.dumps(document).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def say(text):
    print("orders: " + text, flush=True)


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    port = int(sys.argv[2]) if len(sys.argv) == 3 else 9000
    try:
        server = Server(("127.0.0.1", port), Handler)
    except OSError as error:
        sys.exit("orders: cannot listen on 127.0.0.1:%d: %s" % (port, error.strerror))
    server.ledger = Ledger(sys.argv[1])
    say("listening on http://127.0.0.1:%d, %d charges so far" % (server.server_port, server.ledger.count()))
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
