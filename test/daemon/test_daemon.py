#!/usr/bin/env python3
"""`once daemon`: who may speak, what is refused, who goes away, what survives.

Each case has a daemon, a folder and a store of its own."""
import json
import os
import pwd
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import shutil
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib import daemon, wireclient as w
from lib.daemon import ONCE
from lib.process import is_stopped
from lib.tap import finish, ok, run_results
from lib.wait import SECONDS, wait_for


class Daemon(daemon.Daemon):
    def start(self, *options, env=None, **named):
        return super().start("--quiet", *(options or self.options), env=dict(os.environ, **(env or {})), **named)


# ------------------------------------------------------------------ frames

def frames__that_are_wrong_are_refused(d):
    rows = [
        ("another magic", w.hello(magic=b"HTTP"), "not Once's protocol"),
        ("another version", w.hello(version=9), "supports version 1"),
        ("a call before the hello", w.claim("a"), "first frame must be a hello"),
        ("a hello that is cut off", w.frame(w.HELLO, b"ONCE\0\0"), "cut off"),
        ("a length that no frame has", struct.pack("!I", 0xffffffff) + bytes(20), "must have"),
        ("a length shorter than its head", struct.pack("!I", 3) + bytes(20), "must have"),
    ]
    for name, data, said in rows:
        c = d.client(greet=False)
        answer = c.ask(data)
        ok(answer is not None and answer.kind == w.FAILED and said in answer.text and c.get() is None,
           "%s is told and ends the connection" % name, answer and (answer.kind, answer.text))
        c.close()
    rows = [
        ("a type that does not exist", w.frame(99, b""), "not a query"),
        ("an answer instead of a question", w.frame(w.REPLY, b""), "not a query"),
        ("a call that is cut off", w.claim("a")[:4 + 5 + 30].replace(w.claim("a")[:4], struct.pack("!I", 35), 1), "cut off"),
        ("a verb that does not exist", w.call(77, b""), "does not exist"),
        ("bytes after a call", w.call(w.RELEASE, b"xyz"), "3 extra bytes"),
        ("an empty key", w.claim(""), "key"),
        ("a key of 256 bytes", w.claim("k" * 256), "256"),
        ("a takeover that does not exist", w.claim("a", takeover=9), "does not exist"),
        ("a list with bits that are not a state", w.frame(w.LIST, struct.pack("!IB", 0x40, 0) + w.text("") * 3 +
                                                 struct.pack("!qBBQI", 0, 0, 0, 0, 10)), "not a state"),
    ]
    c = d.client()
    for name, data, said in rows:
        answer = c.ask(data)
        ok(answer is not None and answer.kind == w.FAILED and said in answer.text, "%s is told" % name,
           answer and (answer.kind, answer.text))
    ok(c.ask(w.claim("a")).arm == w.EXECUTE, "after all that the connection still works")


def frames__may_come_in_any_pieces(d):
    data = w.hello() + w.claim("a", 7) + w.claim("b", 8)
    c = d.client(greet=False)
    for i in range(len(data)):
        c.send(data[i:i + 1])
    answers = [c.get() for _ in range(3)]
    ok(answers[0].kind == w.WELCOME and sorted(a.number for a in answers[1:]) == [7, 8] and
       all(a.arm == w.EXECUTE for a in answers[1:]), "byte by byte")


# ------------------------------------------------------------------ who

def as_nobody(*command):
    return subprocess.run(["runuser", "-u", "nobody", "--", *command], capture_output=True, text=True)


def peers__others_are_refused(d):
    if os.geteuid() != 0:
        ok(True, "another user # SKIP this needs root")
        return
    d.end()
    os.chmod(d.folder, 0o755)
    verbs = [("keys", "list", "--store", "once:" + d.socket), ("run", "--store", "once:" + d.socket, "--key", "k", "--", "true"),
             ("status", "--socket", d.socket)]
    refusal = "user %d is not allowed at this daemon (see its --allow)" % pwd.getpwnam("nobody").pw_uid
    d.start("--allow", "daemon")
    for verb in verbs * 5:  # whoever is first, it or the daemon
        said = as_nobody(ONCE, *verb)
        ok(said.returncode == 69 and refusal in said.stderr, "once %s by a user that was not named" % verb[0], said)
    d.end()
    ok(d.log().count("refused user") == 15, "the log names each", d.log())
    d.start("--allow", "nobody")
    for verb in verbs:
        said = as_nobody(ONCE, *verb)
        ok("allowed" not in said.stderr and (said.returncode == 0 or verb[0] == "status"), "once %s by one that was named by --allow" % verb[0], said)


def peers__the_reason_is_told_also_to_one_who_asks_late(d):
    """The connection was closed when it sends its hello."""
    if os.geteuid() != 0:
        ok(True, "another user # SKIP this needs root")
        return
    d.end()
    os.chmod(d.folder, 0o755)
    d.start("--allow", "daemon")
    probe = ("import sys, select; sys.path.insert(0, %r); from lib import wireclient as w\n"
             "c = w.Client(%r, greet=False); p = select.poll(); p.register(c.s, 0); p.poll()\n"
             "try: c.send(w.hello())\n"
             "except BrokenPipeError: print('closed', c.get().text)" % (os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."), d.socket))
    said = as_nobody("python3", "-c", probe)
    ok(said.stdout.startswith("closed user"), "and can be read", said)


def open__what_is_lost_before_the_welcome_was_never_asked(d):
    """Somebody listens who closes every connection, before or after he has read the hello."""
    d.end()
    for name, reads in (("at once", False), ("after the hello", True)):
        listener = w.socket.socket(w.socket.AF_UNIX)
        listener.bind(d.folder + "/closes")
        listener.listen()
        p = subprocess.Popen([ONCE, "run", "--store", "once:%s/closes" % d.folder, "--key", "k", "--", "true"], stderr=subprocess.PIPE, text=True)
        peer = listener.accept()[0]
        if reads:
            peer.recv(1 << 16)
        peer.close()
        said = p.communicate()[1]
        ok(p.returncode == 69 and "does not say welcome" in said and "lost" not in said, "closed %s: unavailable" % name, p.returncode, said)
        listener.close()
        os.unlink(d.folder + "/closes")


def socket__stale_is_replaced_live_is_not(d):
    second = subprocess.run([ONCE, "daemon", "--store", "sqlite:" + d.folder + "/other.db", "--socket", d.socket, "--http", "off"],
                            capture_output=True, text=True)
    ok(second.returncode == 69 and "listening on" in second.stderr, "a second daemon says that one is there", second.stderr)
    ok(d.client().ask(w.claim("a")).arm == w.EXECUTE, "and has not disturbed it")
    d.end(signal.SIGKILL)
    ok(os.path.exists(d.socket), "kill -9 leaves the socket file behind")
    d.start()
    ok(d.client().ask(w.claim("b")).arm == w.EXECUTE, "the next one replaces it")
    ok(d.end() == 0 and not os.path.exists(d.socket), "SIGTERM removes it")


def socket__that_cannot_be_asked_is_left_alone(d):
    """Somebody's, like that of a system log: it takes datagrams, and a connection is no way to ask who is there."""
    path = d.folder + "/log.sock"
    with w.socket.socket(w.socket.AF_UNIX, w.socket.SOCK_DGRAM) as log:
        log.bind(path)
        daemon = subprocess.run([ONCE, "daemon", "--store", "sqlite:" + d.folder + "/other.db", "--socket", path, "--http", "off"],
                                capture_output=True, text=True, timeout=SECONDS)
        ok(daemon.returncode == 69 and "cannot be connected to" in daemon.stderr and os.path.exists(path), "a daemon says so and ends", daemon)


def socket__whose_daemon_does_not_accept_is_not_waited_for(d):
    """One that stands still has a queue, and it may be full."""
    path, waiting = d.folder + "/still.sock", []
    with w.socket.socket(w.socket.AF_UNIX) as still:
        still.bind(path)
        still.listen(0)
        try:
            while len(waiting) < 100:
                waiting.append(w.socket.socket(w.socket.AF_UNIX))
                waiting[-1].setblocking(False)
                waiting[-1].connect(path)
        except BlockingIOError:
            pass
        daemon = subprocess.run([ONCE, "daemon", "--store", "sqlite:" + d.folder + "/other.db", "--socket", path, "--http", "off"],
                                capture_output=True, text=True, timeout=SECONDS)
        ok(daemon.returncode == 69 and "listening on" in daemon.stderr and os.path.exists(path), "another says that one is there", daemon)
    for s in waiting:
        s.close()


def socket__is_taken_by_one_of_many_that_start_at_once(d):
    """Each with a store of its own, over the socket of one that was killed: what one of them has made
    the others leave alone, and the one that says it is ready is the one that is reached."""
    d.end(signal.SIGKILL)
    wrong = []
    for round_ in range(8):
        daemons = [subprocess.Popen([ONCE, "daemon", "--store", "sqlite:%s/many-%d.db" % (d.folder, i), "--socket", d.socket,
                                     "--quiet", "--http", "off"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for i in range(6)]
        ready = [p for p in daemons if p.stdout.readline()]
        c = d.client()
        c.ask(w.claim("round %d" % round_))
        pid = struct.unpack("iii", c.s.getsockopt(w.socket.SOL_SOCKET, w.socket.SO_PEERCRED, 12))[0]
        if [p.pid for p in ready] != [pid]:
            wrong.append("round %d: %s are ready, %d is reached" % (round_, [p.pid for p in ready], pid))
        c.close()
        for p in daemons:
            p.send_signal(signal.SIGKILL) if p in ready else None
            said = p.communicate()[1]
            if p not in ready and (p.returncode != 69 or "already" not in said):
                wrong.append("round %d: exit %d: %s" % (round_, p.returncode, said))
    ok(not wrong, "one is ready, the others say that it is there", *wrong)
    d.start()


def socket__of_the_next_is_not_removed_by_the_last(d):
    """One that stops listens no more, and another takes the path while it still drains."""
    c = d.client()
    grant = c.ask(w.claim("a")).grant
    d.process.send_signal(signal.SIGSTOP)
    c.send(w.finish(grant, b"x"))
    d.process.send_signal(signal.SIGTERM)
    os.unlink(d.socket)
    last, d.store = d.process, "sqlite:" + d.folder + "/next.db"
    d.start()
    last.send_signal(signal.SIGCONT)
    last.communicate()
    ok(last.returncode == 0 and os.path.exists(d.socket) and d.client().ask(w.claim("b")).arm == w.EXECUTE,
       "the next one is reached after the last one's end")


# ------------------------------------------------------------------ load

def backpressure__many_calls_before_the_first_answer_is_read(d):
    count = 20000
    c = d.client()
    sender = threading.Thread(target=lambda: [c.send(w.claim("k%d" % i, i)) for i in range(count)])
    sender.start()
    answers = [c.get() for _ in range(count)]
    sender.join()
    ok(sorted(a.number for a in answers) == list(range(count)) and all(a.arm == w.EXECUTE for a in answers),
       "each is answered once")


def backpressure__one_who_does_not_read_holds_up_nobody(d):
    writer = d.client()
    grant = writer.ask(w.claim("large")).grant
    ok(writer.ask(w.finish(grant, os.urandom(1 << 20))).arm == w.DONE, "a body of 1 MiB")
    deaf = d.client()
    deaf.s.settimeout(0.2)
    sent = 0
    try:
        for i in range(100000):
            deaf.send(w.claim("large", i))
            sent += 1
    except OSError:
        pass
    ok(sent < 100000, "he is not read from any more")
    rss = int([l for l in open("/proc/%d/status" % d.process.pid) if l.startswith("VmRSS")][0].split()[1]) >> 10
    ok(rss < 1300, "what waits for him is bounded", "%d MiB" % rss)
    ok(d.client().ask(w.claim("b")).arm == w.EXECUTE, "others are served")


# ------------------------------------------------------------------ going away

def holder__gone_lets_rerun_go_on_at_once(d):
    a, b = d.client(), d.client()
    first = a.ask(w.claim("r", takeover=w.RERUN, lease_ms=3600000))
    ok(first.arm == w.EXECUTE and b.ask(w.claim("r", takeover=w.RERUN)).arm == w.IN_PROGRESS, "while he is there, it is his (K1)")
    a.close()
    second = b.ask(w.claim("r", takeover=w.RERUN, wait_ms=int(SECONDS * 1000)))
    ok(second.arm == w.EXECUTE and second.attempt() == 2 and second.grant[1] > first.grant[1],
       "when his connection is gone the next takes over, with a larger fence (K2)")
    ok(b.ask(w.finish(first.grant)).arm == w.FENCED, "and he is fenced (K3)")


def holder__gone_is_noticed_also_after_it_came_back(d):
    """Over another connection, to another daemon: it renews what it holds, and its end is an end there, too."""
    first = d.client().ask(w.claim("c", takeover=w.RERUN, lease_ms=3600000))
    d.end(signal.SIGKILL)
    d.start()
    holder, helper, b = d.client(), d.client(), d.client()
    renew = w.call(w.EXTEND, struct.pack("!q", 3600000), *first.grant)
    ok(holder.ask(renew).arm == w.DONE and helper.ask(renew).arm == w.DONE, "it renews, and so does one who helps it")
    helper.close()
    d.client().ask(w.claim("marker"))
    ok(b.ask(w.claim("c", takeover=w.RERUN)).arm == w.IN_PROGRESS, "that he is gone changes nothing (K1)")
    holder.close()
    second = b.ask(w.claim("c", takeover=w.RERUN, wait_ms=int(SECONDS * 1000)))
    ok(second.arm == w.EXECUTE and second.grant[1] > first.grant[1], "when the holder is gone the next takes over (K2)", second.arm)


def holder__gone_changes_nothing_under_escalate(d):
    a, b = d.client(), d.client()
    a.ask(w.claim("e", lease_ms=3600000))
    a.close()
    marker = d.client()  # served after the daemon has noticed
    marker.ask(w.claim("x"))
    ok(b.ask(w.claim("e")).arm == w.IN_PROGRESS, "the lease runs on")


def stopped_with_a_claim_in_hand(d, data):
    """A daemon that has read a claim and stops before it is durable; the claim's client."""
    d.end()
    d.start(env={"ONCE_CRASH": "engine.taken:1:stop"})
    client = d.client()
    client.send(data)
    wait_for(lambda: is_stopped(d.process.pid), "the daemon to stop")
    return client


def holder__gone_before_its_grant_was_sent_has_executed_nothing(d):
    stopped_with_a_claim_in_hand(d, w.claim("g", lease_ms=3600000)).close()
    d.process.send_signal(signal.SIGCONT)
    b = d.client()
    answer = b.ask(w.claim("g", wait_ms=int(SECONDS * 1000)))
    ok(answer.arm == w.EXECUTE and answer.attempt() == 1, "its claim is given back, also under escalate (K7)", answer.arm)
    ok(b.ask(w.finish(answer.grant, b"x")).arm == w.DONE, "and the next finishes it")


def holder__gone_with_claims_that_have_no_nonce_has_executed_nothing(d):
    """They are not one claim that was sent twice, though both say zeros."""
    keys = ["u", "v"]
    stopped_with_a_claim_in_hand(d, b"".join(w.claim(key, lease_ms=3600000, nonce=bytes(16)) for key in keys)).close()
    d.process.send_signal(signal.SIGCONT)
    b = d.client()
    arms = [b.ask(w.claim(key, wait_ms=int(SECONDS * 1000))).arm for key in keys]
    ok(arms == [w.EXECUTE] * 2, "each is given back (K7)", arms)


def holder__gone_after_it_handed_in_its_finishes_has_finished(d):
    """More of them than a connection may have under way, and all unread when it hangs up: with it the outcomes would be
    gone, and nobody else knows them."""
    count = 1500
    a, b = d.client(), d.client()
    a.send(b"".join(w.claim("f%d" % i, i, lease_ms=3600000) for i in range(count)))
    grants = {answer.number: answer.grant for answer in (a.get() for _ in range(count))}
    d.process.send_signal(signal.SIGSTOP)
    a.s.setsockopt(w.socket.SOL_SOCKET, w.socket.SO_SNDBUF, 1 << 20)
    a.s.setblocking(False)
    data = b"".join(w.finish(grant, b"f%d" % i, i) for i, grant in grants.items())
    sent = a.s.send(data)
    taken = sent // (len(data) // count + 1)
    a.close()
    d.process.send_signal(signal.SIGCONT)
    answers = [b.ask(w.claim("f%d" % i)) for i in list(grants)[:taken]]
    ok(taken > 1024 and all(x.arm == w.REPLAY for x in answers), "its outcomes are stored (K4)", taken, [x.arm for x in answers].count(w.REPLAY))
    ok([x.body() for x in answers] == [b"f%d" % i for i in list(grants)[:taken]], "each its own")


def holder__that_asks_again_keeps_its_grant(d):
    data = w.claim("h", lease_ms=3600000, nonce=b"n" * 16)
    a = stopped_with_a_claim_in_hand(d, data)
    b = d.client(greet=False)  # it is read when the daemon goes on
    b.send(w.hello() + data)
    a.close()
    d.process.send_signal(signal.SIGCONT)
    b.get()
    answer = b.get()
    ok(answer.arm == w.EXECUTE, "the same claim over another connection")
    ok(b.ask(w.finish(answer.grant, b"mine")).arm == w.DONE, "finishes: nobody gave its grant back (K1)")
    ok(b.ask(w.claim("h")).body() == b"mine", "and is replayed")


def holder__that_asked_again_and_was_answered_first_keeps_its_grant(d):
    """Its claim waits twice in the engine, of two connections, and the one over the living connection is
    answered first: the other, which gets the same grant, is for nobody, but must not give it back. The
    first is asked again in between, when the holder's lease would have ended, and so comes after the second."""
    keys = ["t%d" % i for i in range(20)]
    a, first, second = d.client(), d.client(), d.client()
    grants = [a.ask(w.claim(key, lease_ms=500)).grant for key in keys]
    claims = b"".join(w.claim(key, number=i, takeover=w.RERUN, lease_ms=3600000, wait_ms=60000, nonce=os.urandom(16))
                      for i, key in enumerate(keys))
    first.send(claims)
    first.close()
    for grant in grants:
        a.ask(w.call(w.EXTEND, struct.pack("!q", 2000), *grant))
    second.send(claims)
    arms = {second.get().arm for _ in keys}
    ok(arms == {w.EXECUTE}, "it is granted when the lease is over", arms)
    d.client().ask(w.claim("marker"))  # in a batch after whatever was done about the first
    arms = {second.ask(w.claim(key, takeover=w.RERUN)).arm for key in keys}
    ok(arms == {w.IN_PROGRESS}, "and to nobody else (K1)", arms)


def holder__that_finished_leaves_nothing_to_end(d):
    a, b = d.client(), d.client()
    grant = a.ask(w.claim("f", takeover=w.RERUN)).grant
    a.ask(w.finish(grant, b"done"))
    a.close()
    answer = b.ask(w.claim("f", takeover=w.RERUN))
    ok(answer.arm == w.REPLAY and answer.body() == b"done", "its outcome stands (K5)")


def holder__keeps_its_lease_over_a_restart_of_the_daemon(d):
    a = d.client()
    grant = a.ask(w.claim("r", takeover=w.RERUN, lease_ms=3600000)).grant
    d.end()  # it is the daemon that goes away, not he
    d.start()
    b = d.client()
    ok(b.ask(w.claim("r", takeover=w.RERUN)).arm == w.IN_PROGRESS, "nobody takes over from him (K1)")
    ok(b.ask(w.finish(grant, b"x")).arm == w.DONE, "and he finishes, over another connection")


def holder__that_asked_again_keeps_its_lease(d):
    """Its first connection went away with the claim under way: what it got over the second is not
    taken from it."""
    for i in range(50):
        claim = w.claim("k%d" % i, takeover=w.RERUN, lease_ms=3600000, nonce=os.urandom(16))
        first, second = d.client(), d.client()
        first.send(claim)
        first.close()
        granted = second.ask(claim)
        marker = d.client()
        marker.ask(w.claim("m%d" % i))  # in a batch after whatever was done about the first
        marker.close()
        third = second.ask(w.claim("k%d" % i, takeover=w.RERUN))
        second.close()
        if granted.arm != w.EXECUTE or third.arm != w.IN_PROGRESS:
            ok(False, "round %d" % i, granted.arm, third.arm)
            return
    ok(True, "it is in progress (K1)")


def client__of_libonce_is_not_told_that_nothing_happened(d):
    """Its claim is done and the answer lost; asked again the daemon is busy. That says nothing about
    the claim (K10): it asks until it knows."""
    real, front = d.socket, d.folder + "/front.sock"
    listener = w.socket.socket(w.socket.AF_UNIX, w.socket.SOCK_STREAM)
    listener.bind(front)
    listener.listen()
    listener.settimeout(SECONDS)
    p = subprocess.Popen([ONCE, "run", "--store", "once:" + front, "--key", "k", "--", "echo", "ran"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    before_call = 0
    for step in ("lose the answer", "busy", "pass on"):
        peer, behind = w.Client.of(listener.accept()[0]), w.Client(real, greet=False)
        while True:
            asked = peer.get()
            if asked is None:
                break
            behind_answer = None
            if step == "busy" and asked.kind == w.CALL:
                peer.send(w.frame(w.FAILED, bytes([w.BUSY]) + w.text("many wait"), asked.number))
                break
            behind_answer = behind.ask(w.frame(asked.kind, asked.payload, asked.number))
            if step == "lose the answer" and asked.kind == w.CALL:
                break
            peer.send(w.frame(behind_answer.kind, behind_answer.payload, behind_answer.number))
        if step == "busy":
            peer.get()  # until it hangs up
        peer.close()
        behind.close()
    out, err = p.communicate(timeout=SECONDS)
    listener.close()
    ok(p.returncode == 0 and out == "ran\n", "it runs, once", p.returncode, out, err)


def expiry__goes_on_while_questions_are_asked(d):
    c = d.client()
    grant = c.ask(w.call(w.CLAIM, w.text("") + w.text("short") + bytes(32) + w.terms(1000, retention_ms=1) +
                         w.text("") * 2 + os.urandom(16))).grant
    c.ask(w.finish(grant))

    def records():
        return struct.unpack_from("!9Q", c.ask(w.frame(w.STATS, struct.pack("!Q", 0))).payload)[8]
    ok(wait_for(lambda: records() == 0, "expiry"), "what expired goes")


def questions__of_one_who_is_gone_are_not_asked(d):
    """As many as may wait: others would have to come again, for answers that nobody reads."""
    gone, c = d.client(), d.client()
    question = w.frame(w.LIST, struct.pack("!IB", 0, 0) + w.text("") * 3 + struct.pack("!qBBQI", 0, 0, 0, 0, 10))
    d.process.send_signal(signal.SIGSTOP)
    gone.send(question * 256 + w.claim("a"))
    gone.close()
    c.send(question)
    d.process.send_signal(signal.SIGCONT)
    answer = c.get()
    while answer.kind == w.FAILED and "waiting already" in answer.text:  # before the daemon noticed the hang-up: ask again
        answer = c.ask(question)
    ok(answer.kind == w.PAGE, "another is answered", answer.text)
    answer = c.ask(w.claim("a", wait_ms=int(SECONDS * 1000)))
    ok(answer.arm == w.EXECUTE, "a claim that came with them was done, and given back", answer.arm)


def descriptors__that_run_out_are_waited_for(d):
    d.end()
    d.start(before=("sh", "-c", "ulimit -n 24; exec \"$0\" \"$@\""))
    waiting = [d.client(greet=False) for _ in range(30)]
    wait_for(lambda: "cannot accept" in d.log(), "it to say so")
    spent = lambda: sum(map(int, open("/proc/%d/stat" % d.process.pid).read().split(") ")[1].split()[11:13]))
    switches = lambda: int(open("/proc/%d/status" % d.process.pid).read().split("\nvoluntary_ctxt_switches:")[1].split()[0])
    first, turns = spent(), switches()
    wait_for(lambda: switches() > turns + 20, "it to try on, a few times a second")
    ok(spent() - first < 20, "it does not go round and round", spent() - first)
    for c in waiting[:20]:
        c.close()
    ok(waiting[-1].ask(w.hello()).kind == w.WELCOME, "who waits is let in when there is room")
    for c in waiting[20:]:
        c.close()
    d.end()
    ok(d.log().count("cannot accept") == d.log().count("accepts connections again") == 1, "and neither is said more than once", d.log())


def descriptors__are_had_for_all_clients_whatever_a_shell_allows(d):
    """As many as are let in need more than a soft limit may allow: it is raised."""
    d.end()
    d.start(before=("sh", "-c", "ulimit -Sn 256; exec \"$0\" \"$@\""))
    clients = [d.client() for _ in range(300)]
    ok({c.welcome.kind for c in clients} == {w.WELCOME}, "300 are served where the shell said 256")
    for c in clients:
        c.close()


def buffers__that_are_given_back_let_others_go_on(d):
    """Half-received frames of 256 MiB in all: then one at a time. When that one hangs up it is
    somebody else's turn."""
    frame = w.finish((bytes(16), 1), bytes(16 << 20))
    holders = [d.client() for _ in range(16)]
    for c in holders:
        c.send(frame[:-1])
    ok(True, "16 clients with half a frame each")
    late = d.client()
    late.s.settimeout(1)
    sent = 0
    try:
        while sent < len(frame):
            sent += late.s.send(frame[sent:sent + 65536])
    except OSError:
        pass
    ok(sent < len(frame), "one more has to wait")
    for c in holders:
        c.close()
    late.s.settimeout(SECONDS)
    late.send(frame[sent:])
    ok(late.get().arm == w.FENCED, "until they are gone")


# ------------------------------------------------------------------ the file beneath

def is_displaced(answer):
    return answer.kind == w.FAILED and answer.result == w.UNAVAILABLE and "was removed or replaced" in answer.text


def file__that_was_moved_away_takes_nothing_more(d):
    """What would be written to it is lost with the process: nothing of it is acknowledged (K4)."""
    c, db = d.client(), d.folder + "/once.db"
    ok(c.ask(w.claim("before")).arm == w.EXECUTE, "while it is there")
    os.rename(db, db + ".away")
    answer = c.ask(w.claim("away"))
    ok(is_displaced(answer), "a claim is refused, and says why", answer.kind, answer.text)
    os.rename(db + ".away", db)
    ok(c.ask(w.claim("away")).arm == w.EXECUTE, "and not when it is put back")
    d.end(signal.SIGKILL)
    d.start()
    c = d.client()
    ok([c.ask(w.lookup(key)).arm for key in ("before", "away")] == [w.FOUND] * 2, "what was acknowledged is there (K4)")


def file__that_was_replaced_is_the_successors(d):
    """The one that still has the old file open leaves the new one's log alone."""
    c, db = d.client(), d.folder + "/once.db"
    c.ask(w.claim("old"))
    for name in os.listdir(d.folder):
        if name.startswith("once.db"):
            os.rename(os.path.join(d.folder, name), os.path.join(d.folder, "old-" + name))
    first = d.process
    d.socket = d.folder + "/next.sock"
    d.start()
    successor = d.client()
    grant = successor.ask(w.claim("new")).grant
    ok(is_displaced(c.ask(w.claim("more"))), "the old one takes nothing more")
    first.send_signal(signal.SIGTERM)
    first.communicate()
    ok(first.returncode == 0 and os.path.exists(db + "-wal"), "and when it ends the log stays", d.log())
    ok(successor.ask(w.finish(grant, b"x")).arm == w.DONE, "the new one goes on")
    d.end(signal.SIGKILL)
    d.start()
    ok(d.client().ask(w.claim("new")).body() == b"x", "and lost nothing (K4)")


def file__whose_lock_was_removed_has_one_owner(d):
    c = d.client()
    c.ask(w.claim("a"))
    os.unlink(d.folder + "/once.db-lock")
    first, d.socket = d.process, d.folder + "/next.sock"
    d.start()
    ok(d.client().ask(w.claim("b")).arm == w.EXECUTE, "another takes it")
    ok(is_displaced(c.ask(w.claim("b"))), "the first one grants nothing more (K1)")
    first.send_signal(signal.SIGTERM)
    first.communicate()
    ok(d.client().ask(w.lookup("a")).arm == w.FOUND, "and ends")


# ------------------------------------------------------------------ ends

def end__sigterm_answers_what_was_taken(d):
    c = d.client()
    for i in range(500):
        c.send(w.claim("k%d" % i, i))
    first = c.get()
    d.process.send_signal(signal.SIGTERM)
    answered = {first.number}
    while True:
        answer = c.get()
        if answer is None:
            break
        answered.add(answer.number)
    ok(d.end() == 0, "exit status")
    d.start()
    c = d.client()
    lost = [i for i in answered if c.ask(w.lookup("k%d" % i)).arm != w.FOUND]
    ok(not lost, "everything answered is there (K4)", lost)


def end__sigterm_does_not_wait_for_those_who_wait(d):
    holder, waiter = d.client(), d.client()
    grant = holder.ask(w.claim("a", lease_ms=3600000)).grant
    waiter.send(w.claim("a", wait_ms=3600000))
    waiter.send(w.claim("b", 2))
    waiter.get()  # the second: the first is in
    waiter.s.settimeout(SECONDS)
    d.process.send_signal(signal.SIGTERM)
    answer = waiter.get()
    # Before that it went away unanswered, after the ten seconds of a drain.
    ok(answer is not None and answer.arm == w.IN_PROGRESS, "a claim that waits is told in progress", answer)
    ok(waiter.get() is None and d.end() == 0, "and that is the end")
    d.start()
    ok(d.client().ask(w.finish(grant, b"x")).arm == w.DONE, "the holder finishes with the next daemon")


def end__kill_loses_nothing_acknowledged(d):
    for round_ in range(5):
        c = d.client()
        acknowledged = []
        for i in range(2000):
            key = "r%d-%d" % (round_, i)
            c.send(w.claim(key, i))
        killed = False
        while True:
            answer = c.get()
            if answer is None:
                break
            acknowledged.append(("r%d-%d" % (round_, answer.number), answer.grant))
            if len(acknowledged) == 300 and not killed:
                killed = True
                d.process.send_signal(signal.SIGKILL)
        d.end(signal.SIGKILL)
        d.start()
        c = d.client()
        lost = []
        for key, grant in acknowledged:
            found = c.ask(w.lookup(key))
            if found.arm != w.FOUND or found.grant != grant:
                lost.append(key)
        ok(len(acknowledged) >= 300 and not lost, "round %d (K4)" % round_, lost[:5])


def client__of_libonce_goes_on_after_a_restart(d):
    url = "once:" + d.socket
    script = "; ".join(["echo $ONCE_ATTEMPT >>%s/ran" % d.folder, "touch %s/started" % d.folder,
                        "while [ ! -e %s/go ]; do sleep 0.02; done" % d.folder, "echo over"])
    p = subprocess.Popen([ONCE, "run", "--store", url, "--key", "k", "--", "sh", "-c", script], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    wait_for(lambda: os.path.exists(d.folder + "/started"), "the command")
    d.end(signal.SIGKILL)
    d.start()
    open(d.folder + "/go", "w").close()
    out, err = p.communicate(timeout=SECONDS)
    ok(p.returncode == 0 and out == "over\n", "a command that ran over a restart is finished", out, err)
    again = subprocess.run([ONCE, "run", "--store", url, "--key", "k", "--", "sh", "-c", script], capture_output=True, text=True)
    ok(again.stdout == "over\n" and open(d.folder + "/ran").read().count("\n") == 1, "and replayed (K5)", again.stderr)


def client__without_a_daemon_is_told(d):
    d.end()
    said = subprocess.run([ONCE, "run", "--store", "once:" + d.socket, "--key", "k", "--", "true"], capture_output=True, text=True)
    ok(said.returncode == 69 and "cannot reach the daemon" in said.stderr, "which daemon", said.stderr)


def is_healthy(address):
    """Not where the store took two seconds for it, which says how busy this machine is."""
    try:
        return urllib.request.urlopen("http://%s/healthz" % address, timeout=SECONDS).status == 200
    except urllib.error.HTTPError:
        return False


def http__is_served_beside_the_socket(d):
    d.end()
    address = d.start("--http", "127.0.0.1:0").http
    claim = urllib.request.Request("http://%s/v1/claim" % address, b'{"key": "h"}', {"Content-Type": "application/json"})
    said = json.load(urllib.request.urlopen(claim, timeout=SECONDS))
    ok(said["arm"] == "execute", "a claim over HTTP", said)
    ok(d.client().ask(w.lookup("h")).arm == w.FOUND, "is there over the socket")
    ok(wait_for(lambda: is_healthy(address), "health"), "it is healthy")
    metrics = urllib.request.urlopen("http://%s/metrics" % address, timeout=SECONDS).read().decode()
    ok("once_" in metrics and "# TYPE" in metrics, "and counts", metrics[:200])
    taken = subprocess.run([ONCE, "daemon", "--store", "sqlite:%s/other.db" % d.folder, "--socket", d.folder + "/other.sock",
                            "--http", address], capture_output=True, text=True, timeout=SECONDS)
    ok(taken.returncode == 69 and address in taken.stderr and not os.path.exists(d.folder + "/other.sock"),
       "a port that is taken is named", taken.stderr)


def usage__mistakes_are_told(_):
    rows = [(["--socket"], 64, "needs a value"), (["--allow", "no-such-user"], 64, "there is no user"),
            (["extra"], 64, "too much"), (["--socket", "/nonexistent/s"], 69, "cannot listen"), (["--store", "nonsense"], 64, "not a store")]
    early = [(["--socket", "/x" * 99], 64, "the limit is 107"), (["--console", "0.0.0.0:1"], 64, "other machines"), (["--http", "0.0.0.0:1"], 64, "other machines"),
             (["--escalate-webhook", "http://127.0.0.1:9/", "--escalate-secret", "/nonexistent"], 64, "'/nonexistent' cannot be read"),
             (["--escalate-webhook", "nowhere"], 64, "nowhere")]
    for options, code, said in rows + early:
        with tempfile.TemporaryDirectory() as folder:
            given = options if "--store" in options else ["--store", "sqlite:%s/x.db" % folder] + options
            p = subprocess.run([ONCE, "daemon", "--http", "off"] + given, capture_output=True, text=True, timeout=SECONDS)
            ok(p.returncode == code and said in p.stderr, " ".join(options)[:40], p.returncode, p.stderr)
            if (options, code, said) in early:
                ok(os.listdir(folder) == [], "neither a store nor a socket was made for " + options[-2], os.listdir(folder))


CASES = [f for name, f in sorted(globals().items()) if "__" in name and callable(f) and not name.startswith("_")]


def run_case(case):
    folder = tempfile.mkdtemp(prefix="once-daemon-")
    d = Daemon(folder)
    d.start()
    try:
        case(d)
    finally:
        d.end()
        if "Sanitizer" in d.log():
            ok(False, "no sanitizer had anything to say", d.log())
        shutil.rmtree(folder)


# Half of the time they wait for a clock, so some wait together.
run_results([(case.__name__, lambda case=case: run_case(case)) for case in CASES], sys.argv[1:], width=4)
finish()
