#!/usr/bin/env python3
"""The console on a PostgreSQL store: the same answers, and the store's own outbox without an option."""
from consoletest import *
sys.path.insert(0, os.path.join(HERE, "../sql"))
from sqltest import migrated, psql, url

migrated()
daemon = Daemon(store=url("test"))
ann = daemon.login()
for name, key in HOSTILE.items():
    if b"\0" not in key:  # a text of PostgreSQL cannot have one
        daemon.record(key, finish="succeeded", status=200, body_base64=b64(key))
for i in range(1, 4):
    daemon.record("pay-%d" % i, tenant="acme", finish="unknown", point="charged")
daemon.record("gone", tenant="acme", lease_ms=1)
listed = ann.get("/api/keys", tenant="")[2]["records"]
wanted = [key for key in HOSTILE.values() if b"\0" not in key]
equal(sorted(bytes_of(r, "key") for r in listed), sorted(wanted), "keys of any bytes")
for key in wanted:
    one = ann.key(key)
    shown = ann.post("/api/reveal", key_base64=b64(key), fence=one["fence"], what="response")[2]
    equal(bytes_of(shown, "body"), key, "%r is revealed as stored" % key[:12])
equal([r["key"] for r in ann.get("/api/keys", states="unknown")[2]["records"]], ["pay-3", "pay-2", "pay-1"], "the work list")


def verdict(key, **more):
    fence = ann.key(key.encode(), b"acme")["fence"]
    return ann.post("/api/resolve", tenant="acme", key=key, fence=fence, reason="looked", **more)[2]["arm"]


equal((verdict("pay-1", verdict="done", status=201, body="charged"), daemon.api("claim", tenant="acme", key="pay-1")["body"]), ("done", "charged"), "it happened")
equal((verdict("pay-2", verdict="not done"), daemon.api("claim", tenant="acme", key="pay-2")["arm"]), ("done", "execute"), "run again")
equal((verdict("pay-3", verdict="release"), ann.key(b"pay-3", b"acme")["arm"]), ("done", "absent"), "released")
last = ann.key(b"pay-1", b"acme")["history"][-1]
equal((last["what"], last["actor"], last["reason"]), ("resolved done", "ann (console)", "looked"), "the audit trail")
wait_for(lambda: [r["key"] for r in ann.get("/api/keys", abandoned="1", tenant="acme")[2]["records"]] == ["gone"], "the abandoned one is found")
psql("SELECT once.enqueue('orders.paid', 'order-17', '\\x7b7d'::bytea)")
messages = ann.get("/api/outbox")[2]["messages"]
equal([(m["topic"], m["message_key"], m["state"]) for m in messages], [("orders.paid", "order-17", "pending")], "the store's own outbox")
equal(ann.post("/api/outbox/reveal", id=messages[0]["id"])[2]["messages"][0]["body"], "{}", "its payload")
answer = wait_for(lambda: (lambda a: a if a["looked"] and a.get("outbox") else None)(ann.get("/api/overview")[2]), "the overview")
equal((answer["store"], answer["outbox"]["pending"], answer["running_count"]), ("PostgreSQL", 1, 2), "the overview")
equal(ann.post("/api/outbox/action", id=messages[0]["id"], action="drop", reason="a test")[2]["did"], "dropped", "dropped")
equal(ann.get("/api/outbox")[2]["messages"], [], "and gone")
daemon.stop()
finish()
