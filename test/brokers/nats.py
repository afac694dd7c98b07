"""NATS with JetStream, and just enough of a client to look into it."""
import base64
import json
import os
import shutil
import socket

from broker import Broker, free_port

SERVER = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")


class Nats(Broker):
    def __init__(self, folder):
        super().__init__(folder)
        self.port = free_port()
        self.url = "nats://127.0.0.1:%d" % self.port

    @staticmethod
    def missing():
        return None if SERVER is not None else "nats-server is not installed"

    def command(self):
        return [SERVER, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", os.path.join(self.folder, "data")], {}

    def answers(self):
        try:
            return "error" not in self.ask("INFO", {})
        except (OSError, ValueError):
            return False

    def ask(self, what, body):
        return self.ask_all([(what, body)])[0]

    def ask_all(self, requests):
        """Requests to JetStream's API, one after the other on a connection of their own."""
        answers = []
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as s:
            f = s.makefile("rb")
            f.readline()
            s.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB answer 1\r\n')
            for what, body in requests:
                payload = json.dumps(body).encode() if body else b""
                s.sendall(b"PUB $JS.API.%s answer %d\r\n%s\r\n" % (what.encode(), len(payload), payload))
                answers.append(self.answer(s, f))
        return answers

    @staticmethod
    def answer(s, f):
        while True:
            line = f.readline()
            if not line:
                raise OSError("closed")
            if line.startswith(b"PING"):
                s.sendall(b"PONG\r\n")
            elif line.startswith(b"HMSG"):
                raise OSError("no responders")
            elif line.startswith(b"MSG"):
                return json.loads(f.read(int(line.split()[-1])))

    def create_stream(self, name, subjects):
        answer = self.ask("STREAM.CREATE." + name, {"name": name, "subjects": subjects, "storage": "file",
                                                    "duplicate_window": 120 * 10 ** 9})
        assert "error" not in answer, answer

    def messages(self, name):
        """(subject, headers, payload) of all, in the order of the stream."""
        state = self.ask("STREAM.INFO." + name, {})["state"]
        found = []
        for answer in self.ask_all([("STREAM.MSG.GET." + name, {"seq": seq})
                                    for seq in range(state["first_seq"], state["last_seq"] + 1)]):
            message = answer["message"]
            lines = base64.b64decode(message.get("hdrs", "")).decode().split("\r\n")[1:]
            headers = dict(line.split(": ", 1) if ": " in line else line.split(":", 1) for line in lines if line)
            found.append((message["subject"], headers, base64.b64decode(message.get("data", ""))))
        return found
