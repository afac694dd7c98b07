#!/usr/bin/env python3
"""`once relay` on PostgreSQL, to webhooks: what is sent, what is retried, what is given up, what operators do."""
import base64
import hashlib
import hmac
import json
import ssl
import tempfile
import threading

from outboxtest import *
from lib.tap import Cases, chosen, remark

case = Cases()


def enqueue(topic, key, payload, more=""):
    return psql("SELECT once.enqueue('%s', %s, '%s'%s)" % (topic, "'%s'" % key if key else "NULL", payload, more))


@case
def a_message_arrives_whole():
    hook = Receiver()
    secret = bytes(range(32))
    with tempfile.NamedTemporaryFile("w") as keys:
        keys.write("whsec_%s\nwhsec_%s\n" % (base64.b64encode(secret).decode(), base64.b64encode(b"n" * 24).decode()))
        keys.flush()
        message = enqueue("orders.created", "k 1", "{}", ", headers => '{\"traceparent\": \"00-4bf9-00f0-01\", \"Host\": \"evil\", "
                          "\"Authorization\": \"x\", \"X-Empty\": \"\"}', content_type => 'application/json'")
        status, said = drain(url("test"), "--route", "orders.*=" + hook.url(), "--secret-file", keys.name, "--json")
    equal(status, 0, "drained")
    equal(len(hook.got), 1, "one request")
    h = hook.got[0]["headers"]
    equal(h["idempotency-key"], '"%s"' % message, "the message id is the Idempotency-Key")
    equal((h["content-type"], h["once-topic"], h["once-message-key"], h["traceparent"], h["x-empty"]),
          ("application/json", "orders.created", "k%201", "00-4bf9-00f0-01", ""), "content type, topic, key, its own headers")
    ok(h["host"].startswith("127.0.0.1") and "authorization" not in h, "headers that are HTTP's are not a message's to set", h)
    text = ("%s.%s." % (message, h["webhook-timestamp"])).encode() + hook.got[0]["payload"]
    expected = " ".join("v1," + base64.b64encode(hmac.new(k, text, hashlib.sha256).digest()).decode() for k in (secret, b"n" * 24))
    equal(h["webhook-signature"], expected, "signed with each key, as Standard Webhooks has it")
    report = json.loads(said)
    equal((report["published"], report["waiting"], report["dead_letters"]), (1, 0, 0), "the report")
    hook.stop()


@case
def committed_and_only_committed():
    hook = Receiver()
    late, gone = Session(), Session()
    late.run("BEGIN")
    late.run("SELECT once.enqueue('t', 'k', 'late')")
    gone.run("BEGIN")
    gone.run("SELECT once.enqueue('t', 'k', 'gone')")
    enqueue("t", "k", "early")
    drain(url("test"), "--route", "*=" + hook.url())
    equal(hook.firsts(), ["early"], "what is not committed is not published")
    gone.run("ROLLBACK")
    late.run("COMMIT")
    drain(url("test"), "--route", "*=" + hook.url())
    equal(hook.firsts(), ["early", "late"], "what commits late is not skipped, what is rolled back never published (FAULT-55)")
    equal(len(hook.got), 2, "each once")
    late.close(), gone.close(), hook.stop()


@case
def poison_goes_to_the_dead_letters_and_back():
    sick = [True]
    hook = Receiver(lambda payload: 500 if sick[0] and payload.startswith(b"bad") else 200)
    psql("SELECT once.enqueue('t', 'key' || n % 20, convert_to(CASE WHEN n % 100 = 7 THEN 'bad' ELSE 'good' END || n, 'UTF8')) "
         "FROM generate_series(1, 400) n")
    relay = Relay(url("test"), "--route", "t=" + hook.url(), "--attempts", "4", *QUICK)
    wait_for(outbox_is_empty, "everything published or given up")
    relay.stop()
    bad = sorted("bad%d" % n for n in (7, 107, 207, 307))
    equal(sorted(m["payload"].decode() for m in hook.confirmed), sorted("good%d" % n for n in range(1, 401) if n % 100 != 7),
          "all others arrived, once")
    dead = [json.loads(line) for line in once("outbox", "list", "--store", url("test"), "--state", "dead", "--json")[1].splitlines()]
    equal(sorted(psql("SELECT convert_from(payload, 'UTF8') FROM once.outbox_dead").split()), bad, "only the poison is dead (FAULT-57)")
    equal({(d["refusals"], d["crashes"], d["reason"]) for d in dead}, {(4, 0, "status 500")}, "with its reason, after 4 refusals")
    equal({len([m for m in hook.got if m["payload"].decode() == b]) for b in bad},
          {4}, "and was tried 4 times")
    sick[0] = False
    status, said = once("outbox", "retry", "--store", url("test"), "--all-dead", "--reason", "repaired")
    equal((status, said.count("retried")), (0, 4), "retried from there")
    drain(url("test"), "--route", "t=" + hook.url())
    equal(sorted(m["payload"].decode() for m in hook.confirmed if m["payload"].startswith(b"bad")), bad, "and published")
    ids = {m["payload"]: set() for m in hook.got}
    for m in hook.got:
        ids[m["payload"]].add(m["id"])
    equal(max(len(v) for v in ids.values()), 1, "every time under the same id")
    equal(psql("SELECT count(*), min(convert_from(reason, 'UTF8')) FROM once.audit WHERE what = 'message retried'"), "4|repaired",
          "the audit trail knows")
    hook.stop()


@case
def a_failing_key_holds_itself_only():
    hook = Receiver(lambda payload: 503 if payload == b"a/1" and not open_now[0] else 200)
    open_now = [False]
    psql("SELECT once.enqueue('t', 'a', convert_to('a/' || n, 'UTF8')) FROM generate_series(1, 300) n")
    psql("SELECT once.enqueue('t', 'b' || n % 90, convert_to('b' || n % 90 || '/' || n, 'UTF8')) FROM generate_series(1, 300) n")
    relay = Relay(url("test"), "--route", "t=" + hook.url(), "--batch", "64", *QUICK)
    wait_for(lambda: len(hook.firsts()) == 300, "the other keys")
    equal([p for p in hook.firsts() if p.startswith("a")], [], "its later messages wait")
    open_now[0] = True
    wait_for(outbox_is_empty, "the rest")
    equal([p for p in hook.firsts() if p.startswith("a")], ["a/%d" % n for n in range(1, 301)], "and come in order then")
    equal(per_key_in_order(hook), [], "every key in order")
    equal(psql("SELECT count(*) FROM once.outbox_stalled"), "0", "no key is held any more")
    relay.stop()
    hook.stop()


@case
def a_sink_that_is_away_is_no_refusal():
    hook = Receiver()
    hook.stop()
    enqueue("t", "k", "x")
    relay = Relay(url("test"), "--route", "t=" + hook.url(), "--attempts", "1", *QUICK)
    wait_for(lambda: psql("SELECT max(delays) FROM once.outbox_stalled") not in ("", "0", "1"), "two tries")
    equal(psql("SELECT refusals FROM once.outbox_stalled"), "0", "not reached is not refused")
    hook.start()
    wait_for(outbox_is_empty, "its return")
    equal((hook.firsts(), psql("SELECT count(*) FROM once.outbox_dead")), (["x"], "0"), "published when it is back, not dead")
    relay.stop()
    hook.stop()


@case
def answers_of_all_kinds():
    answers = {b"redirect": (307, {"Location": "http://127.0.0.1:1/"}), b"later": (429, {"Retry-After": "3600"}), b"cut": "cut"}
    hook = Receiver(lambda payload: answers.get(payload, 200))
    for payload in ("redirect", "later", "cut"):
        enqueue("t", payload, payload)
    enqueue("nobody", None, "unrouted")
    relay = Relay(url("test"), "--route", "t=" + hook.url(), "--attempts", "3", *QUICK)
    wait_for(lambda: psql("SELECT count(*) FROM once.outbox_dead") == "2", "two dead letters")
    wait_for(lambda: psql("SELECT refusals FROM once.outbox_stalled WHERE ordering_key = 'klater'") == "1", "an answer to the third")
    reasons = dict(r.split("|") for r in psql("SELECT message_key, reason FROM once.outbox_dead").splitlines())
    equal(reasons["redirect"], "status 307 (redirects are not followed)", "a redirect is not followed")
    ok(reasons["cut"].startswith("no complete answer: "), "a cut connection after sending is a refusal", reasons)
    equal(len([m for m in hook.got if m["payload"] == b"later"]), 1, "Retry-After is honoured")
    wait_for(lambda: psql("SELECT reason FROM once.outbox_stalled WHERE ordering_key LIKE 'm%'") == "no route for its topic", "the unrouted one held")
    relay.stop()
    code, listed = once("outbox", "list", "--store", url("test"))
    equal((code, listed.count("retrying"), listed.count(" dead ")), (0, 2, 2), "once outbox list")
    message = psql("SELECT id FROM once.outbox WHERE message_key = 'later'")
    equal(once("outbox", "retry", "--store", url("test"), message, "--reason", "now")[0], 0, "one that waits is due at once")
    equal(once("outbox", "show", "--store", url("test"), message, "--raw"), (0, "later"), "once outbox show --raw")
    equal(once("outbox", "drop", "--store", url("test"), message, "--reason", "no")[0], 0, "dropped")
    equal(once("outbox", "show", "--store", url("test"), message)[0], 1, "and gone")
    equal(psql("SELECT count(*) FROM once.outbox_stalled WHERE ordering_key = 'klater'"), "0", "its key is not held any more")
    equal(once("outbox", "drop", "--store", url("test"), message, "--reason", "no")[0], 1, "dropping twice says so")
    hook.stop()
    psql("TRUNCATE once.outbox, once.outbox_stalled, once.outbox_dead")


@case
def not_before_its_time():
    hook = Receiver()
    enqueue("t", "k", "later", ", not_before => now() + interval '1 hour'")
    enqueue("t", "k", "now")
    drain(url("test"), "--route", "t=" + hook.url())
    equal(hook.firsts(), ["now"], "it does not hold its key until then")
    psql("UPDATE once.outbox_scheduled SET not_before = 1")
    drain(url("test"), "--route", "t=" + hook.url())
    equal(hook.firsts(), ["now", "later"], "at its time it is published")
    hook.stop()


@case
def large_messages_come_in_small_batches():
    hook = Receiver()
    psql("SELECT once.enqueue('t', 'k', convert_to(repeat('x', 16777216), 'UTF8')) FROM generate_series(1, 5)")
    report = json.loads(drain(url("test"), "--route", "t=" + hook.url(), "--json")[1])
    equal((report["published"], report["batches"]), (5, 3), "at most 32 MiB, and one message, at a time")
    equal({len(m["payload"]) for m in hook.got}, {16777216}, "of 16 MiB each")
    ok("22023" in psql("SELECT once.enqueue('t', 'k', convert_to(repeat('x', 16777217), 'UTF8'))"), "more is refused")
    hook.stop()


@case
def a_sleeping_relay_is_woken():
    hook = Receiver()
    idle = lambda: psql("SELECT idle FROM once.outbox_ring") == "t"
    listener = Session()
    listener.run("LISTEN once_outbox")
    psql("UPDATE once.outbox_ring SET idle = false")
    enqueue("t", "k", "1")
    ok("notification" not in listener.run("SELECT 1"), "nobody sleeps: commits do not wait for a notification")
    relay = Relay(url("test"), "--route", "t=" + hook.url(), *QUICK)
    wait_for(lambda: idle() and outbox_is_empty(), "its sleep")
    enqueue("t", "k", "2")
    wait_for(lambda: "notification" in listener.run("SELECT 1"), "a notification")
    wait_for(outbox_is_empty, "the message")
    equal(hook.firsts(), ["1", "2"], "a relay that sleeps is woken by NOTIFY")
    relay.stop(), listener.close(), hook.stop()


@case
def tls_is_verified():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", folder + "/key", "-out",
                        folder + "/cert"], check=True, capture_output=True)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(folder + "/cert", folder + "/key")
        hook = Receiver(tls=tls)
        enqueue("t", "k", "x")
        relay = Relay(url("test"), "--route", "t=" + hook.url(), *QUICK)
        wait_for(lambda: psql("SELECT count(*) FROM once.outbox_stalled") == "1", "a try")
        relay.stop()
        equal(hook.got, [], "nothing is sent to whom is not trusted")
        ok("certificate" in psql("SELECT reason FROM once.outbox_stalled"), "and the reason says so")
        drain(url("test"), "--route", "t=" + hook.url(), "--ca-file", folder + "/cert")
        equal(hook.firsts(), ["x"], "with its certificate trusted it is")
        hook.stop()


@case
def a_poisoned_relay():
    """A message that kills every relay that sends it is found, alone, and the others are not blamed."""
    hook = Receiver()
    psql("SELECT once.enqueue('t', 'key' || n, convert_to('m' || n, 'UTF8')) FROM generate_series(1, 20) n")
    victims, known = [], threading.Lock()  # a relay may be at its work before we know its process

    def behave(payload):
        with known:
            return victims[-1].p.kill() or "cut" if payload == b"m7" else 200
    hook.behave = behave
    for _ in range(60):
        if outbox_is_empty():
            break
        with known:
            relay = Relay(url("test"), "--route", "t=" + hook.url(), "--crashes", "2", *QUICK)
            victims.append(relay)
        wait_for(lambda: outbox_is_empty() or not relay.alive(), "a relay's end")
        relay.stop()
        expire()
    equal(psql("SELECT convert_from(payload, 'UTF8'), crashes, refusals FROM once.outbox_dead"), "m7|2|0", "dead for its crashes, only it")
    equal(sorted(set(hook.firsts())), sorted("m%d" % n for n in range(1, 21) if n != 7), "all others arrived")
    hook.stop()


@case
def a_high_rate_leaves_no_bloat():
    hook = Receiver()
    psql("UPDATE once.outbox_ring SET turn_bytes = 65536")
    old = Session()  # holds back what vacuum could remove, as a long report does
    old.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
    relay = Relay(url("test"), "--route", "t=" + hook.url(), *QUICK)
    largest = 0
    for n in range(8):
        psql("SELECT count(once.enqueue('t', NULL, convert_to(repeat('x', 300), 'UTF8'))) FROM generate_series(1, 250)")
        wait_for(outbox_is_empty, "a part published")
        slots = psql("SELECT current FROM once.outbox_ring")
        psql("SELECT once.outbox_upkeep()")
        largest = max(largest, int(psql("SELECT sum(pg_total_relation_size(('once.outbox_' || n)::regclass)) FROM generate_series(1, 4) n")))
    relay.stop()
    old.run("COMMIT")
    ok(largest < 4 * 65536 + 900000, "2000 messages of 400 bytes, with an old snapshot: the tables stay small", largest, slots)
    equal(len(set(m["id"] for m in hook.confirmed)), 2000, "all arrived")
    left = lambda: (psql("SELECT once.outbox_upkeep()"),
                    int(psql("SELECT sum(pg_relation_size(('once.outbox_' || n)::regclass)) FROM generate_series(1, 4) n")))[1]
    wait_for(lambda: left() <= 2 * 65536 + 200000, "tables that are given back")  # not while a vacuum looks at one
    ok(True, "and are given back")
    psql("UPDATE once.outbox_ring SET turn_bytes = 8388608")
    hook.stop()


migrated()
for name, function in chosen(case, sys.argv[1:]):
    psql("TRUNCATE once.outbox, once.outbox_stalled, once.outbox_dead, once.outbox_scheduled; UPDATE once.outbox_lane SET lease_until = 0, flight = '{}'")
    remark(name)
    function()
finish()
