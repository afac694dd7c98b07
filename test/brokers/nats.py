"""NATS with JetStream, and just enough of a client to look into it."""
import base64
import json
import os
import shutil
import socket
import urllib.request

from broker import Broker, free_ports, wait_for

SERVER = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")


class Nats(Broker):
    def __init__(self, folder):
        super().__init__(folder)
        self.port = free_ports(2)
        self.url = "nats://127.0.0.1:%d" % self.port

    @staticmethod
    def missing():
        return None if SERVER is not None else "nats-server is not installed"

    def command(self):
        return [SERVER, "-a", "127.0.0.1", "-p", str(self.port), "-m", str(self.port + 1), "-js", "-sd", os.path.join(self.folder, "data")], {}

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

    def publish(self, subject, headers, payload):
        """The stream's confirmation; "duplicate" in it: its id was there within the duplicate window."""
        lines = b"NATS/1.0\r\n" + b"".join(b"%s: %s\r\n" % (k.encode(), v.encode()) for k, v in headers.items()) + b"\r\n"
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as s:
            f = s.makefile("rb")
            f.readline()
            s.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB answer 1\r\n')
            s.sendall(b"HPUB %s answer %d %d\r\n%s%s\r\n" % (subject.encode(), len(lines), len(lines) + len(payload), lines, payload))
            answer = self.answer(s, f)
            assert "error" not in answer, answer
            return answer

    def publish_again(self, subject, headers, payload):
        """When the stream has forgotten that it had this id, and with it all that it got before."""
        wait_for(lambda: not self.publish(subject, headers, payload).get("duplicate"), "the end of a stream's window for duplicates")

    def clients(self, name):
        """How many connections it has of those that call themselves so."""
        with urllib.request.urlopen("http://127.0.0.1:%d/connz?limit=1000" % (self.port + 1), timeout=120) as answer:
            return sum(c.get("name") == name for c in json.load(answer)["connections"])

    def give_back(self, stream, consumer):
        """What is out with a consumer that is dead is to be delivered again, as after its ack wait, and now. Its ack wait is made short
        until everything came again, here; then it is given back, in its order."""
        info = self.ask("CONSUMER.INFO.%s.%s" % (stream, consumer), {})
        if "error" in info or info["num_ack_pending"] == 0:
            return
        self.configure(info, ack_wait=10 ** 6)
        replies = {}
        while len([r for r in replies.values() if int(r.split(".")[4]) > 1]) < info["num_ack_pending"]:
            replies.update(self.pull(stream, consumer))
        self.configure(info)
        for _, reply in sorted(replies.items()):
            self.say(reply, b"-NAK")

    def configure(self, info, **changes):
        stream, name = info["stream_name"], info["name"]
        answer = self.ask("CONSUMER.DURABLE.CREATE.%s.%s" % (stream, name), {"stream_name": stream, "config": dict(info["config"], **changes)})
        assert "error" not in answer, answer

    def pull(self, stream, consumer):
        """{sequence: where it is acknowledged}, of what there is."""
        found = {}
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as s:
            f = s.makefile("rb")
            f.readline()
            body = b'{"batch":1000,"no_wait":true}'
            s.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB pulled 1\r\n'
                      b"PUB $JS.API.CONSUMER.MSG.NEXT.%s.%s pulled %d\r\n%s\r\n" % (stream.encode(), consumer.encode(), len(body), body))
            for line in f:
                words = line.split()
                if words[0] == b"PING":
                    s.sendall(b"PONG\r\n")
                elif words[0] in (b"MSG", b"HMSG"):
                    f.read(int(words[-1]) + 2)
                    reply = words[3].decode() if words[3].startswith(b"$JS.ACK.") else None
                    if reply is None:  # there is no more
                        break
                    found[int(reply.split(".")[5])] = reply
        return found

    def say(self, subject, payload):
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as s:
            f = s.makefile("rb")
            f.readline()
            s.sendall(b'CONNECT {"verbose":false}\r\nPUB %s %d\r\n%s\r\nPING\r\n' % (subject.encode(), len(payload), payload))
            while not f.readline().startswith(b"PONG"):
                pass

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
