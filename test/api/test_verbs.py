#!/usr/bin/env python3
"""Every verb and every arm over HTTP, what bytes look like, and fingerprints."""
import base64
import json
import os

from apitest import Server, equal, finish, grant, ok, wait_for

server = Server()
post, look = server.post, server.look
ZERO = "0" * 64


def has(answer, name, **wanted):
    return equal({k: answer.get(k, "absent") for k in wanted}, wanted, name, json.dumps(answer))


# claim, finish, replay
first = post("claim", tenant="t", key="order-17")
has(first, "a new key executes", arm="execute", tenant="t", key="order-17", attempt=1, state="running", lease_live=True,
    takeover="escalate", status=None, retention_ms=86400000, finished_at=None, expires_at=None, fingerprint=ZERO,
    checkpoint="", recovery_point="", retryable=False, body_dropped=False, body_expired=False, body_retention_ms=None, body="absent", headers="absent")
again = post("claim", tenant="t", key="order-17")
has(again, "a second claim is told to wait", arm="in progress", fence=first["fence"], body="absent")
ok(0 < again["retry_after_ms"] <= 60000, "and for how long", again)
has(look("order-17", "t"), "a look-up finds it", arm="found", state="running", fence=first["fence"])
done = post("finish", **grant(first), state="succeeded", status=201, headers="A: b\r\n", body='{"paid":30}\n')
has(done, "finishing is done", arm="done", state="succeeded", body="absent", lease_until=None, **grant(first))
ok(done["finished_at"] < done["expires_at"], "and says until when it is kept", done)
has(post("finish", **grant(first), state="succeeded", status=201, headers="A: b\r\n", body='{"paid":30}\n'),
    "and again", arm="done")
has(post("claim", tenant="t", key="order-17"), "a retry replays", arm="replay", status=201, headers="A: b\r\n",
    body='{"paid":30}\n', fence=first["fence"], state="succeeded")
has(post("finish", **grant(first), state="failed", status=500), "another outcome is fenced, with the one that stands",
    arm="fenced", status=201, body='{"paid":30}\n')
has(look("order-17", "t"), "a look-up has the outcome", arm="found", body='{"paid":30}\n', headers="A: b\r\n")
has(look("order-17", "u"), "another tenant has no such key", arm="absent", key="absent", state="absent")
equal(look("never"), {"arm": "absent"}, "absent is all there is to say")
has(post("claim", tenant="u", key="order-17"), "and executes it", arm="execute", attempt=1)
equal(post("claim", tenant="t", key="order-17", fingerprint="ab" * 32), {"arm": "mismatch"},
      "another fingerprint is a mismatch, without the record")

# failures
claim = post("claim", key="fail")
post("finish", **grant(claim), state="failed", retryable=True, status=503, body="later")
retry = post("claim", key="fail")
has(retry, "a retryable failure executes again", arm="execute", attempt=2)
ok(retry["fence"] > claim["fence"], "with a larger fence")
has(post("finish", **grant(claim), state="succeeded"), "the former holder is fenced", arm="fenced", attempt=2)
has(post("extend", **grant(claim)), "its extension, too", arm="fenced")
has(post("finish", **grant(retry), state="failed", status=-7), "a final failure", arm="done", state="failed")
has(post("claim", key="fail"), "replays", arm="replay", state="failed", retryable=False, status=-7, body="")
claim = post("claim", key="lost")
has(post("finish", **grant(claim), state="unknown"), "an end that nobody knows", arm="done", state="unknown")
has(post("claim", key="lost"), "is told", arm="unknown", state="unknown")
claim = post("claim", key="big")
has(post("finish", **grant(claim), state="succeeded", status=200, body_dropped=True), "an answer that was not kept",
    arm="done")
has(post("claim", key="big"), "says so", arm="replay", body_dropped=True, body="")

# retention of the answer, age of the key
claim = post("claim", key="tomb", retention_ms="never", body_retention_ms=1)
has(claim, "a body for a shorter time", arm="execute", body_retention_ms=1, retention_ms=None, body_expired=False)
post("finish", **grant(claim), state="succeeded", status=201, headers="A: b\r\n", body="paid")
wait_for(lambda: look("tomb").get("body_expired"), "the body's retention to end")
has(post("claim", key="tomb"), "then only that it was done", arm="replay", status=201, body_dropped=True, body_expired=True,
    body="", headers="", expires_at="never")
has(post("claim", key="as long", body_retention_ms=86400000), "as long is not apart", arm="execute", body_retention_ms=None)
old = "018bcfe5-6800-7abc-8def-000000000001"
equal(post("claim", key=old, key_time=True), {"arm": "expired"}, "an old key is not executed as new")
has(post("claim", key=old), "unless nobody minds", arm="execute")
has(post("claim", key=old, key_time=True), "and with a record it is told of that", arm="in progress")

# holders
claim = post("claim", key="phases", lease_ms=60000, takeover="rerun", retention_ms="never")
has(claim, "for ever is null, as the program prints it", retention_ms=None, takeover="rerun")
longer = post("extend", **grant(claim), lease_ms=3600000)
has(longer, "holding on", arm="done", state="running")
ok(longer["lease_until"] > claim["lease_until"], "until later", longer, claim)
has(post("advance", **grant(claim), point="charged", checkpoint="id 9"), "a recovery point", arm="done",
    state="running", checkpoint="absent", **grant(claim))
has(look("phases"), "is there with its checkpoint", recovery_point="charged", checkpoint="id 9")
status, _, problem = server.ask("POST", "/v1/advance", {**grant(claim), "point": "p2"})
status, _, problem = server.ask("POST", "/v1/advance", {**grant(claim), "point": "charged"})
equal((status, problem["code"]), (400, "invalid"), "points go forward only", problem)
released = post("release", **grant(claim))
equal(released, {"arm": "done"}, "giving it back")
has(look("phases"), "forgets no recovery point", arm="found", state="failed", retryable=True, recovery_point="p2")
claim = post("claim", key="nothing")
equal(post("release", **grant(claim)), {"arm": "done"}, "giving back what did nothing")
has(look("nothing"), "leaves nothing", arm="absent")

# leases that are over
for takeover, arm, attempt in ("rerun", "execute", 2), ("probe", "probe", 2), ("escalate", "unknown", 1):
    claim = post("claim", key="over-" + takeover, lease_ms=1)
    post("advance", **grant(claim), point="p", checkpoint="so far")
    post("extend", **grant(claim), lease_ms=1)
    taken = wait_for(lambda: next((a for a in [post("claim", key="over-" + takeover, takeover=takeover)]
                                if a["arm"] != "in progress"), None), "the lease is over")
    has(taken, "a lease that is over: " + takeover, arm=arm, attempt=attempt, recovery_point="p", checkpoint="so far")
has(post("finish", **grant(claim), state="succeeded"), "the late holder of an unknown end is fenced", arm="fenced",
    state="unknown")
claim = post("claim", key="left", lease_ms=1, takeover="completer")
has(wait_for(lambda: next((a for a in [post("claim", key="left", takeover="completer")] if a["retry_after_ms"] == 1000), None),
          "the lease is over"), "what is left to a completer", arm="in progress", attempt=1)

# taking over what was seen
for takeover, arm in ("rerun", "execute"), ("probe", "probe"), ("completer", "probe"), ("escalate", "unknown"):
    claim = post("claim", key="seen-" + takeover, takeover=takeover, stored_request="what was asked")
    post("advance", **grant(claim), point="p", checkpoint="so far")
    has(post("take-over", **grant(claim)), "its holder is alive: " + takeover, arm="fenced", attempt=1)
    post("extend", **grant(claim), lease_ms=1)
    wait_for(lambda: not look("seen-" + takeover)["lease_live"], "the lease is over")
    seen, call = grant(look("seen-" + takeover)), os.urandom(16).hex()
    taken = post("take-over", **seen, lease_ms=30000, nonce=call)
    has(taken, "taken over: " + takeover, arm=arm, recovery_point="p", checkpoint="so far", attempt=1 if arm == "unknown" else 2,
        key="seen-" + takeover)
    if arm == "unknown":
        continue
    has(taken, "with the request", stored_request="what was asked", lease_live=True)
    has(post("take-over", **seen, nonce=call), "the same call again", arm=arm, fence=taken["fence"], stored_request="what was asked")
    has(post("take-over", **seen), "what was seen is not there any more", arm="fenced", fence=taken["fence"])
    has(post("finish", **grant(taken), state="succeeded", body="done"), "and finished", arm="done")
equal(post("take-over", record="0" * 32, fence=1), {"arm": "absent"}, "taking over nothing")

# a claim that is repeated
nonce = os.urandom(16).hex()
claim = post("claim", key="nonce", nonce=nonce)
has(post("claim", key="nonce", nonce=nonce), "a claim recognises itself by its nonce", arm="execute",
    fence=claim["fence"], attempt=1)

# bytes
BYTES = {
    "empty": b"", "text": "grüße\n\t\r\"\\".encode(), "nul": b"a\0b", "latin": b"gr\xfc\xdfe", "all": bytes(range(256)),
    "one": b"\xff", "two": b"\xff\xfe", "delete": b"\x7f", "large": bytes(range(256)) * 4096,
    "large text": b'{"a":"b"}\n' * 100000,
}
for name, data in BYTES.items():
    for how in "text", "base64":
        key = "bytes %s %s" % (name, how)
        plain = name in ("empty", "text", "large text")
        if how == "text" and not plain and name not in ("nul", "delete"):
            continue
        claim = post("claim", key=key)
        sent = {"body": data.decode()} if how == "text" else {"body_base64": base64.b64encode(data).decode()}
        post("finish", **grant(claim), state="succeeded", **sent)
        replay = post("claim", key=key)
        got = replay["body"].encode() if plain else base64.b64decode(replay["body_base64"])
        ok(got == data and ("body" in replay) != ("body_base64" in replay), "the same bytes: " + key, str(replay)[:200])
weird = base64.b64encode(b"k\xff\0").decode()
has(post("claim", tenant_base64=weird, key_base64=weird), "tenant and key may be any bytes", arm="execute",
    key_base64=weird, tenant_base64=weird, key="absent")
has(server.ask("GET", "/v1/records?tenant=k%ff%00&key=k%FF%00")[2], "also to look them up", arm="found",
    key_base64=weird)
by_key = server.ask("GET", "/v1/records?tenant=k%ff%00&key=k%FF%00")[2]
for form in "%s", "once-%s-17":
    equal(server.ask("GET", "/v1/records?record=" + form % by_key["record"])[2], by_key, "or by the record's id, as logs have it: " + form)
has(server.ask("GET", "/v1/records?record=" + "0f" * 16)[2], "an id that nobody has", arm="absent")
has(post("claim", key="\U0001f600 +&=%"), "a key of other characters", arm="execute")
has(server.ask("GET", "/v1/records?key=%f0%9f%98%80+%2b%26%3d%25")[2], "looked up as forms are encoded", arm="found",
    key="\U0001f600 +&=%", tenant="")
longest = "\0" * 255
has(post("claim", tenant=longest, key=longest), "the longest key, all of it escapes", arm="execute")
largest = os.urandom(16 << 20)
claim = post("claim", key="largest")
has(post("finish", **grant(claim), state="succeeded", body_base64=base64.b64encode(largest).decode(),
         headers="H: " + "x" * 65531 + "\r\n"), "the largest body and headers", arm="done")
replay = post("claim", key="largest")
ok(base64.b64decode(replay["body_base64"]) == largest and len(replay["headers"]) == 65536, "come back")

# what is asked
request = {"method": "POST", "path": "/pay", "query": "a=1", "headers": [["Content-Type", "application/json"]],
           "body": '{"amount":30,"sent_at":1}', "json": True, "exclude": ["/sent_at"]}
claim = post("claim", tenant="f", key="asked", request=request)
has(claim, "a described request", arm="execute")
ok(claim["fingerprint"] != ZERO, "has a fingerprint")
has(post("claim", tenant="f", key="asked", request={**request, "body": '{ "sent_at":2, "amount":30 }'}),
    "written another way it is the same", arm="in progress")
as_base64 = {k: v for k, v in request.items() if k != "body"}
as_base64["body_base64"] = base64.b64encode(request["body"].encode()).decode()
has(post("claim", tenant="f", key="asked", request=as_base64), "also as base64", arm="in progress")
for name, value in (("method", "PUT"), ("path", "/x"), ("query", ""), ("headers", []), ("body", '{"amount":31}'),
                    ("exclude", []), ("json", False)):
    equal(post("claim", tenant="f", key="asked", request={**request, name: value})["arm"], "mismatch",
          "another %s is another request" % name)
has(post("claim", tenant="f", key="asked", fingerprint=claim["fingerprint"].upper()), "or by its fingerprint",
    arm="in progress")

# child keys
child = post("child-key", record=claim["record"], call="charge")
equal((list(child), len(child["child_key"])), (["child_key"], 48), "a child key")
equal(post("child-key", record=claim["record"], call="charge"), child, "is the same every time")
ok(post("child-key", record=claim["record"], call="refund") != child, "and another for another call")

server.stop()
finish()
