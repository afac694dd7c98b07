#!/usr/bin/env python3
"""The outbox in a service's own SQLite database: once_sqlite_enqueue(), and `once relay` from it."""
import json
import sqlite3
import tempfile

from outboxtest import *


class Service:
    def __init__(self, path):
        self.p = subprocess.Popen([os.environ["ONCE_TEST_ENQUEUE"], path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def do(self, *steps):
        answers = []
        for step in steps:
            self.p.stdin.write(step + "\n")
            self.p.stdin.flush()
            answers.append(self.p.stdout.readline().rstrip("\n"))
        return answers

    def end(self):
        self.p.stdin.close()
        self.p.wait()
        self.p.stdout.close()


def count(path, table="once_outbox"):
    db = sqlite3.connect(path, timeout=60)
    try:
        return db.execute("SELECT count(*) FROM " + table).fetchone()[0]
    finally:
        db.close()


def shift_lease(path):
    db = sqlite3.connect(path, timeout=60)
    db.execute("UPDATE once_outbox_relay SET lease_until = 0")
    db.commit()
    db.close()


def simple(store, path, service):
    hook = Receiver()
    equal(service.do("message t k x")[0], "not inside a transaction: BEGIN IMMEDIATE first", "outside of a transaction it is refused")
    answers = service.do("begin", "message t k gone", "rollback", "begin", "message t k a/1", "message t k a/2", "message t - free",
                         "message t k later 3600000", "commit")
    equal(drain(store, "--route", "t=" + hook.url())[0], 0, "drained")
    got = hook.firsts()
    equal(sorted(got), ["a/1", "a/2", "free"], "published is what was committed, and is due")
    ok(got.index("a/1") < got.index("a/2"), "in order")
    equal([m["id"] for m in hook.got if m["payload"] == b"a/1"], [answers[4]], "under the id that enqueue told")
    equal((hook.got[0]["headers"]["content-type"], hook.got[0]["headers"]["traceparent"]), ("text/plain", "00-1-2-01"), "content type and headers")
    equal(count(path), 1, "the one for later waits")
    db = sqlite3.connect(path)
    db.execute("UPDATE once_outbox SET due = 1")
    db.commit()
    db.close()
    drain(store, "--route", "t=" + hook.url())
    equal((hook.firsts()[-1], count(path)), ("later", 0), "and is published at its time")
    hook.stop()


def poison(store, path, service):
    hook = Receiver(lambda payload: 500 if payload == b"k1/1" and sick[0] else 200)
    sick = [True]
    service.do("begin", *["message t k%d k%d/%d" % (n % 5, n % 5, n) for n in range(1, 51)], "commit")
    relay = Relay(store, "--route", "t=" + hook.url(), "--attempts", "3", *QUICK)
    wait_for(lambda: count(path) == 0, "all published or dead")
    relay.stop()
    equal(per_key_in_order(hook), [], "each key in order")
    dead = [json.loads(x) for x in once("outbox", "list", "--store", store, "--state", "dead", "--json")[1].splitlines()]
    equal([(d["message_key"], d["refusals"], d["reason"]) for d in dead], [("k1", 3, "status 500")], "only the poison is dead")
    sick[0] = False
    equal(once("outbox", "retry", "--store", store, dead[0]["id"], "--reason", "repaired")[0], 0, "retried")
    drain(store, "--route", "t=" + hook.url())
    equal((len(hook.firsts()), count(path, "once_outbox_dead")), (50, 0), "and published")
    equal(count(path, "once_audit"), 1, "the audit trail knows")
    hook.stop()


def points(store, path, service):
    for point in ("taken", "sent", "confirmed", "marked", "settled"):
        hook = Receiver()
        committed = set()
        for n in (1, 2):
            answers = service.do("begin", *["message t k%d k%d/%d" % (i % 3, i % 3, n * 100 + i) for i in range(12)], "commit")
            committed.update(answers[1:-1])
            relay = Relay(store, "--route", "t=" + hook.url(), "--drain", *QUICK, crash="relay.%s:%d" % (point, n if point in ("sent", "confirmed") else 1))
            equal(relay.stop_by_itself(), -9, "relay.%s kills" % point)
            shift_lease(path)
        drain(store, "--route", "t=" + hook.url())
        equal(({m["id"] for m in hook.got} == committed, count(path)), (True, 0), "killed at relay.%s: published is what was committed" % point)
        equal(per_key_in_order(hook), [], "killed at relay.%s: in order" % point)
        equal(count(path, "once_outbox_dead"), 0, "killed at relay.%s: nobody is dead" % point)
        hook.stop()


def two_relays(store, path, service):
    hook = Receiver()
    relays = [Relay(store, "--route", "t=" + hook.url(), *QUICK) for _ in range(2)]
    ids = set()
    for n in range(20):
        ids.update(service.do("begin", *["message t k%d k%d/%d" % (i, i, n) for i in range(10)], "commit")[1:-1])
    wait_for(lambda: count(path) == 0, "all published")
    for relay in relays:
        equal(relay.stop()[0], 0, "a relay ends when asked")
    equal({m["id"] for m in hook.got} == ids, True, "two relays, and a service that writes: all arrived")
    equal(per_key_in_order(hook), [], "in order")
    hook.stop()


with tempfile.TemporaryDirectory() as folder:
    for f in (simple, poison, points, two_relays):
        path = os.path.join(folder, f.__name__ + ".db")
        service = Service(path)
        service.do("begin", "commit")
        f("sqlite:" + path, path, service)
        service.end()
    code, said = once("relay", "--store", "sqlite:%s/none.db" % folder, "--route", "*=http://127.0.0.1:1/")
    equal((code, os.path.exists(folder + "/none.db")), (69, False), "no database: says so, and makes none")
finish()
