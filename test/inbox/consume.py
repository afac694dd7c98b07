#!/usr/bin/env python3
"""`once consume` by itself: commands and endpoints, ids, refusals, stopping, retention; on NATS and an SQLite store.

usage: consume.py [SUBSTRING...]"""
import shutil
import signal
import socket
import sqlite3
import threading
import time

from consumetest import *
from lib.http import Handler, Server
from lib.tap import Cases
from lib.listener import Listener, in_thread

case = Cases()


@case
def usage():
    rows = [
        ([], 64, "SOURCE is missing"),
        (["ftp://x"], 64, "there is no such source"),
        (["nats://h"], 64, "nats://HOST[:PORT]/STREAM"),
        (["nats://u:p@h/S"], 64, "--nats-creds"),
        (["amqp://h"], 64, "amqp://HOST[:PORT][/VHOST]?queue=NAME"),
        (["kafka://h"], 64, "it has no topic"),
        (["nats://h/S"], 64, "--consumer"),
        (["nats://h/S", "--consumer", "c"], 64, "--to URL or --exec COMMAND"),
        (["nats://h/S", "--consumer", "c", "--to", "ftp://x"], 64, "--to"),
        (["nats://h/S", "--consumer", "c", "--to", "http://x", "--exec", "y"], 64, "one --to or --exec"),
        (["nats://h/S", "--consumer", "c", "--exec", "y", "--id-from", "x"], 64, "header, header:NAME, position, json:POINTER"),
        (["nats://h/S", "--consumer", "c", "--exec", "y", "--id-from", "json:x"], 64, "not a JSON Pointer"),
        (["nats://h/S", "--consumer", "c", "--exec", "y", "--takeover", "probe"], 64, "neither 'rerun' nor 'escalate'"),
        (["nats://h/S", "--consumer", "c", "--exec", "y", "--parallel", "257"], 64, "--parallel"),
        (["nats://127.0.0.1:1/S", "--consumer", "c", "--exec", "y"], 69, "cannot connect"),
        ([nats.url + "/NONE", "--consumer", "c", "--exec", "y"], 69, "there is no stream 'NONE'"),
        ([nats.url + "/NONE", "--consumer", "a.b", "--exec", "y"], 64, "cannot name a consumer of NATS"),
    ]
    for url in ("nats://user:secret@h/S", "amqp://user:sec@ret@h?queue=q", "kafka://user:secret@h/t", "ftp://user:secret@h"):
        got = once("consume", url, "--store", store())[1] + once("relay", "--route", "a=" + url, "--store", store())[1]
        ok("@h" in got and "user:" not in got and "sec" not in got, "a password that should not be in a URL is not in the answer either: " + url, got)
    got = once("consume", "nats://h/S", "--consumer", "c", "--to", "http://user:secret@h/in", "--store", store())
    ok(got[0] == 64 and "'http://...@h/in' contains credentials" in got[1] and "secret" not in got[1], "nor is one of an endpoint", got)
    for arguments, code, text in rows:
        got = once("consume", *arguments, "--store", store())
        ok(got[0] == code and text in got[1], "usage: %s" % " ".join(arguments), got)


@case
def a_command_gets_all_of_it():
    source = stream("exec")
    send("exec", b"pay\0load", {"Nats-Msg-Id": "id 1", "Once-Message-Key": "k", "Content-Type": "text/plain", "X-Trace.id": "t=1"})
    out = os.path.join(folder, "out")
    code, said = consume(source, "--exec", "env | grep ^ONCE_ | sort > %s; cat >> %s; echo said; echo why >&2" % (out, out), "--json",
                         env={"ONCE_HEADER_X": "ours"})
    equal(code, 0, "drained")
    got = open(out, "rb").read()
    ok(got.endswith(b"pay\0load"), "the payload on standard input", got)
    env = dict(line.split("=", 1) for line in got.decode().splitlines() if "=" in line)
    equal({k: env.get(k) for k in ("ONCE_MESSAGE_ID", "ONCE_CONSUMER", "ONCE_TOPIC", "ONCE_MESSAGE_KEY", "ONCE_CONTENT_TYPE", "ONCE_ATTEMPT",
                                   "ONCE_HEADER_X_TRACE_ID", "ONCE_HEADER_X")},
          {"ONCE_MESSAGE_ID": "id 1", "ONCE_CONSUMER": "c", "ONCE_TOPIC": "exec", "ONCE_MESSAGE_KEY": "k", "ONCE_CONTENT_TYPE": "text/plain",
           "ONCE_ATTEMPT": "1", "ONCE_HEADER_X_TRACE_ID": "t=1", "ONCE_HEADER_X": None}, "the rest in the environment, and nothing of our own")
    equal(len(env["ONCE_KEY"]), 48, "a key to send along")
    ok("said" in said and "why" in said, "what it prints is shown")
    send("exec", b"pay\0load", {"Nats-Msg-Id": "id 1", "Once-Message-Key": "k"}, again=True)
    os.remove(out)
    report = last_report(consume(source, "--exec", "touch " + out, "--json")[1])
    equal((os.path.exists(out), report["duplicates"]), (False, 1), "the same id again: not delivered")


@case
def exit_statuses():
    source = stream("exits")
    for i, status in enumerate(("0", "65", "75", "1", "kill")):
        send("exits", status.encode(), {"Nats-Msg-Id": "e%d" % i})
    log = os.path.join(folder, "exits")
    script = 'read s; echo $s >> %s; [ "$s" = kill ] && kill -9 $$; [ "$s" = 75 ] && [ $(grep -c 75 %s) -ge 6 ] && exit 0; exit $s' % (log, log)
    consume(source, "--exec", script, "--attempts", "3")
    tries = open(log).read().split()
    equal({s: tries.count(s) for s in ("0", "65", "75", "1", "kill")}, {"0": 1, "65": 1, "75": 6, "1": 3, "kill": 3},
          "0 is done, 65 refuses at once, 75 counts for nothing, others are tried 3 times")
    dead = letters()
    equal(sorted((d["message_id"], d["failures"], d["reason"]) for d in dead),
          [("e1", 1, "exit status 65"), ("e3", 3, "exit status 1"), ("e4", 3, "killed by signal 9")], "dead letters, with reasons")
    equal(once("inbox", "drop", dead[0]["id"], "--reason", "test", "--store", store())[0], 0, "dropped")
    equal(once("inbox", "drop", dead[0]["id"], "--reason", "test", "--store", store())[0], 1, "once")
    equal(len(letters()), 2, "two are left")
    equal(once("check", "--store", store())[0], 0, "the store is sound")


@case
def http_statuses():
    source = stream("http")
    answers = {"200": [200], "422": [422], "429": [429, 429, 204], "503": [503, 204], "404": [404, 404, 404], "cut": ["cut", 204]}
    got = []

    class Service(Handler):
        def do_POST(self):
            body = self.body().decode()
            got.append((body, self.headers["Idempotency-Key"], self.headers["Once-Attempt"], self.headers["X-Own"], self.headers["Authorization"]))
            status = answers[body].pop(0)
            if status == "cut":
                self.drop()
                return
            self.answer(status)

    server = Server(Service)
    for body in answers:
        send("http", body.encode(), {"Nats-Msg-Id": "h" + body, "X-Own": "1", "Authorization": "evil"})
    equal(consume(source, "--to", server.url + "/in", "--attempts", "3")[0], 0, "drained")
    equal({body: left for body, left in answers.items() if left}, {}, "each was tried as often as it takes")
    equal(sorted((d["message_id"], d["reason"]) for d in letters()), [("h404", "status 404"), ("h422", "status 422")], "422 at once, 404 after 3")
    equal({key for body, key, *_ in got if body == "429"}, {'"h429"'}, "the same Idempotency-Key every time")
    equal({(own, authorization) for *_, own, authorization in got}, {("1", None)}, "a message's own headers, but none that authenticate")
    server.stop()


@case
def ids():
    source = stream("ids")
    send("ids", b'{"order": {"id": 17}}', {})
    send("ids", b'{"order": {"id": 17}}', {})
    send("ids", b'{"order": {"id": "a/b"}}', {})
    send("ids", b"no json", {"My-Id": "m"})
    send("ids", b"nothing", {})
    out = os.path.join(folder, "ids")
    consume(source, "--exec", "echo $ONCE_MESSAGE_ID >> " + out, "--id-from", "json:/order/id", "--id-from", "header:My-Id")
    equal(sorted(open(out).read().split()), ["17", "a/b", "m"], "natural keys, and a header; a repeat is one")
    equal([(d["reason"], d["message_id"]) for d in letters()], [("the message has no id (--id-from)", "ids/5")], "one without an id is a dead letter")
    os.remove(out)
    consume(source, "--exec", "echo $ONCE_MESSAGE_ID >> " + out, "--id-from", "position", name="p")
    equal(sorted(open(out).read().split()), ["ids/%d" % i for i in range(1, 6)], "by position all are different")
    send("ids", b"other", {"My-Id": "m"})
    consume(source, "--exec", "true", "--id-from", "json:/order/id", "--id-from", "header:My-Id")
    ok("another message had the same id" in [d["reason"] for d in letters()], "another payload under a known id is a dead letter")


@case
def stops_in_order():
    source = stream("stop")
    for i in range(20):
        send("stop", b"%d" % i, {"Nats-Msg-Id": "s%d" % i, "Once-Message-Key": "k%d" % (i % 3)})
    out, go = os.path.join(folder, "stop"), os.path.join(folder, "go")
    p = start(source, "--exec", "echo $(cat) >> %s; while [ ! -e %s ]; do sleep 0.05; done" % (out, go), "--parallel", "2")
    wait_for(lambda: os.path.exists(out) and len(open(out).read().split()) == 2, "two under way")
    p.send_signal(signal.SIGTERM)
    said = ""
    while "stopping after" not in said:
        said += p.stdout.readline()
    open(go, "w").close()
    said += p.stdout.read()
    p.wait()
    equal(p.returncode, 0, "ended by TERM")
    done = open(out).read().split()
    equal(len(done), 2, "what was under way was finished, and nothing else begun")
    ok("done 2 " in said.splitlines()[-1], "and said so", said)
    consume(source, "--exec", "echo $(cat) >> %s" % out, "--parallel", "2")
    all_done = open(out).read().split()
    equal(sorted(all_done, key=int), [str(i) for i in range(20)], "the next one does the rest, each once, without waiting for a lease")
    ok(all([int(x) for x in all_done if int(x) % 3 == k] == list(range(k, 20, 3)) for k in range(3)), "each key in order", all_done)


class Progress(threading.Thread):
    """Listens to what a consumer says about its messages: {sequence: times at which it was in progress}."""
    def __init__(self, stream, consumer):
        super().__init__(daemon=True)
        self.told, self.socket = {}, socket.create_connection(("127.0.0.1", nats.port))
        self.lines = self.socket.makefile("rb")
        self.lines.readline()
        self.socket.sendall(b'CONNECT {"verbose":false}\r\nSUB $JS.ACK.%s.%s.> 1\r\nPING\r\n' % (stream.encode(), consumer.encode()))
        while not self.lines.readline().startswith(b"PONG"):
            pass
        self.start()

    def run(self):
        for line in self.lines:
            words = line.split()
            if words[0] == b"PING":
                self.socket.sendall(b"PONG\r\n")
            elif words[0] == b"MSG" and self.lines.read(int(words[-1]) + 2).startswith(b"+WPI"):
                self.told.setdefault(int(words[1].split(b".")[5]), []).append(time.monotonic())

    def longest_gap(self, began):
        told = [list(times) for times in dict(self.told).values()]
        return max(b - a for times in told for a, b in zip([began] + times, times + [time.monotonic()]))


@case
def bounded():
    """Backpressure: no more than the window is taken from the broker, and it is told that those are in progress."""
    source = stream("window")
    for i in range(50):
        send("window", b"%d" % i, {"Nats-Msg-Id": "w%d" % i})
    go, began, progress = os.path.join(folder, "go2"), time.monotonic(), Progress("window", "c")
    p = start(source, "--exec", "while [ ! -e %s ]; do sleep 0.05; done" % go, "--parallel", "3", "--window", "5", lease="1500ms")
    info = lambda: nats.ask("CONSUMER.INFO.window.c", {})
    wait_for(lambda: len([t for t in dict(progress.told).values() if len(t) >= 4]) >= 5, "word that they are in progress, for longer than their lease")
    out, again = info()["num_ack_pending"], info()["num_redelivered"]
    # On a busy machine a fetch may be over before what the server had sent for it came: that waits in the client.
    ok(5 <= out < 50, "five are out, or what was asked for, and not more", (out, again))
    if out == 5 and progress.longest_gap(began) < 1.0:  # it was heard in time
        equal(again, 0, "and none was delivered again")
    open(go, "w").close()
    wait_for(lambda: info()["num_pending"] + info()["num_ack_pending"] == 0, "the rest")
    p.send_signal(signal.SIGTERM)
    p.communicate()
    equal(p.returncode, 0, "ended well")
    progress.socket.close()


@case
def escalates():
    """--takeover escalate: what was cut off is not delivered again."""
    source = stream("esc")
    send("esc", b"x", {"Nats-Msg-Id": "x"})
    out = os.path.join(folder, "esc")
    for crash in ("consume.delivered:1", None):  # the second waits for the end of the first one's lease
        consume(source, "--exec", "echo >> " + out, "--takeover", "escalate", crash=crash, lease="1s")
    equal(len(open(out).readlines()), 1, "delivered once")
    dead = letters()
    equal([(d["message_id"], d["reason"]) for d in dead],
          [("x", "not known whether it was delivered: attempt 1 began, and its end was not recorded")], "it is a dead letter, with its reason")
    equal(once("keys", "resolve", "x", "--tenant", "c", "--not-done", "--reason", "looked", "--store", store())[0], 0, "somebody looks, and says so")
    once("inbox", "retry", dead[0]["id"], "--reason", "looked", "--store", store())
    p = start(source, "--exec", "echo >> " + out)
    wait_for(lambda: letters() == [], "its delivery")
    p.terminate()
    p.communicate()
    equal(len(open(out).readlines()), 2, "and then it is delivered")


@case
def retention_and_horizon():
    source = stream("hor", max_age_s=3600)
    for arguments, code, text in ((["--retention", "59m"], 64, "is shorter than"), (["--retention", "61m"], 0, ""), (["--retention", "never"], 0, ""),
                                  (["--retention", "1m", "--redelivery-window", "30s"], 0, ""), (["--retention", "1m", "--redelivery-window", "2m"], 64, "is shorter than")):
        got = consume(source, "--exec", "true", *arguments)
        ok(got[0] == code and text in got[1], "FAULT-59: %s" % " ".join(arguments), got)
    got = consume(stream("endless"), "--exec", "true", "--retention", "1h")
    ok(got[0] == 0 and "keeps messages without end" in got[1], "a stream that keeps for ever is warned about", got)


@case
def a_letter_fails_again():
    """Retried from a topic of dead letters, and dead again: it is another message there, also for a stream that drops repeats."""
    source = stream("first")
    nats.create_stream("graves", ["graves"])  # a duplicate window of 2 minutes
    send("first", b"m", {"Nats-Msg-Id": "m"})
    equal(consume(source, "--exec", "exit 65", "--dead-letter", "graves")[0], 0, "given up")
    out = os.path.join(folder, "graves")
    equal(consume(nats.url + "/graves", "--exec", "echo >> %s; [ $(wc -l < %s) -ge 3 ] || exit 65" % (out, out), "--dead-letter", "graves")[0], 0, "retried")
    equal(len(open(out).readlines()), 3, "it was tried until it was delivered, not lost")
    equal([h["Dead-Letter-Id"] for _, h, _ in nats.messages("graves")], ["m"] * 3, "each death is a letter of the same message")


@case
def a_letter_without_an_id():
    source = stream("noid")
    send("noid", b"m", {})
    consume(source, "--exec", "true")
    with sqlite3.connect(store()[7:]) as db:  # RabbitMQ's messages have no position
        db.execute("UPDATE once_inbox_dead SET message_id = x''")
    db.close()
    [letter] = letters()
    retry = lambda: once("inbox", "retry", letter["id"], "--reason", "r", "--store", store())
    retry()
    p = start(source, "--exec", "exit 65", "--attempts", "7")
    wait_for(lambda: [d["reason"] for d in letters() if d["state"] == "dead"] == ["exit status 65"], "its delivery")
    equal([(d["id"], d["failures"]) for d in letters()], [(letter["id"], 1)], "tried, and the same letter still")
    p.terminate()
    p.communicate()
    retry()
    p = start(source, "--exec", "true")
    wait_for(lambda: letters() == [], "its delivery")
    p.terminate()
    p.communicate()
    equal(p.returncode, 0, "delivered")


def break_off(*connections):
    for connection in connections:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Cut(Listener):
    """A proxy to the server that lets through only the first messages of its first connection, and then breaks it."""
    def __init__(self, messages):
        self.left, self.cut = messages, threading.Event()
        super().__init__(self.connect)

    def connect(self, ours):
        theirs = socket.create_connection(("127.0.0.1", nats.port))
        in_thread(self.pump, ours, theirs, None)
        self.pump(theirs, ours, None if self.cut.is_set() else self.left)

    def pump(self, source, target, left):
        try:
            for line in source.makefile("rb"):
                if left is not None and line.startswith(b"HMSG"):
                    left -= 1
                    if left < 0:
                        self.cut.set()
                        break
                target.sendall(line)
        except OSError:
            pass
        break_off(source, target)


@case
def order_over_a_lost_connection():
    """The server counts as out what it had sent when the connection broke, and goes on with later ones."""
    source = stream("lost")
    for i in range(40):
        send("lost", b"%d" % i, {"Nats-Msg-Id": "l%d" % i, "Once-Message-Key": "k"})
    out = os.path.join(folder, "lost")
    proxy = Cut(5)
    code, said = consume(source.replace(str(nats.port), str(proxy.port)), "--exec", "echo $(cat) >> " + out, "--window", "16", lease="2s")
    proxy.close()
    ok(proxy.cut.is_set(), "the connection was broken")
    equal((code, open(out).read().split()), (0, [str(i) for i in range(40)]), "each once, in order")


class Late(Cut):
    """A proxy that keeps the first 16 messages back until something else is answered: then 10 come, and the others a little later."""
    def __init__(self):
        super().__init__(0)

    def pump(self, source, target, left):
        held = []
        try:
            lines = source.makefile("rb")
            for line in lines:
                if line.startswith(b"HMSG"):
                    line += lines.read(int(line.split()[-1]) + 2)
                if left is None or self.cut.is_set():
                    target.sendall(line)
                elif b" $JS.ACK." in line:
                    held.append(line)
                elif line.startswith(b"MSG") and len(held) >= 16:
                    target.sendall(b"".join(held[:10]) + line + lines.read(int(line.split()[-1]) + 2))
                    time.sleep(0.05)
                    target.sendall(b"".join(held[10:]))
                    self.cut.set()
                else:
                    target.sendall(line)
        except OSError:
            pass
        break_off(source, target)


@case
def late_messages():
    """Messages that come when nobody waits for them any more are taken with the next ones, and are more than those."""
    source = stream("late")
    for i in range(40):
        send("late", b"%d" % i, {"Nats-Msg-Id": "t%d" % i, "Once-Message-Key": "k"})
    out = os.path.join(folder, "late")
    proxy = Late()
    code, said = consume(source.replace(str(nats.port), str(proxy.port)), "--exec", "echo $(cat) >> " + out, "--window", "16")
    proxy.close()
    ok(proxy.cut.is_set(), "they came late")
    equal((code, open(out).read().split()), (0, [str(i) for i in range(40)]), "each once, in order")


@case
def the_broker_goes_away():
    source = stream("away")
    out = os.path.join(folder, "away")
    p = start(source, "--exec", "echo $(cat) >> %s" % out, lease="2s")  # what was out when it died is waited for
    send("away", b"1", {"Nats-Msg-Id": "a1", "Once-Message-Key": "k"})
    wait_for(lambda: os.path.exists(out), "the first")
    nats.kill()
    nats.start()
    send("away", b"2", {"Nats-Msg-Id": "a2", "Once-Message-Key": "k"})
    wait_for(lambda: sorted(set(open(out).read().split())) == ["1", "2"], "the second")
    p.terminate()
    p.communicate()
    equal(open(out).read().split(), ["1", "2"], "each once")


main(case)
