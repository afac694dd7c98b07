#!/usr/bin/env python3
"""Batches in which all was as usual for a while are tried without a look (36_fast_path.sql). One in which it is not, after
them: each operation is told what is true of itself, and nothing is done twice (K1, K3, K5, K6). That
it does so is seen by the functions that it calls."""
import os
import sys
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sql"))
from sqltest import equal, finish, migrated, ok, psql, url
from steps import Step
from lib.wait import becomes_true

migrated()
psql("ALTER DATABASE test SET track_functions = 'all'")
a, b = Step(url("test")), Step(url("test"))
number = 0


def arms(lines):
    """What each says: 'execute', 'in progress', ..."""
    said = a.ask(" ; ".join(lines)).split(" ; ")
    return [" ".join(w for w in one.split()[1:3] if "=" not in w and w not in ("live",)) for one in said]


def usual(times):
    """Fresh claims, eight at a time, until the store expects them; their keys."""
    global number
    keys, said = [], []
    for _ in range(times):
        number += 1
        some = ["u%d-%d" % (number, i) for i in range(8)]
        said += arms(["claim " + k for k in some])
        keys += some
    equal(set(said), {"execute"}, "%d batches of the usual" % times)
    return keys


held = usual(8)
for key, line in (("x1", "finish x1 body"), ("x2", None)):
    b.ask("claim " + key)
    if line:
        b.ask(line)

said = arms(["claim v%d" % i for i in range(7)] + ["claim x1"])
equal(said, ["execute"] * 7 + ["replay"], "K1: one of them was finished by another")
held += usual(8)
said = arms(["claim w%d" % i for i in range(7)] + ["claim x2"])
equal(said, ["execute"] * 7 + ["in progress"], "K1: one of them is another's")
held += usual(12)
said = arms(["claim y%d" % i for i in range(7)] + ["claim y0"])
equal(said, ["execute"] * 7 + ["in progress"], "K1: one of them is there twice")

held += usual(20)
first = held[:8]
equal(arms(["finish %s body" % k for k in first]), ["done"] * 8, "finished as usual")
equal(arms(["finish %s other" % first[0]] + ["finish %s body" % k for k in held[8:16]]), ["fenced"] + ["done"] * 8,
      "K3 K5: one of them was finished before, otherwise")
held += usual(36)
equal(arms(["finish %s body" % held[8]] + ["finish %s body" % k for k in held[16:24]]), ["done"] * 9,
      "K5: one of them was finished before, just so")

held += usual(66)
psql("UPDATE once.ring SET period_ms = 1")
becomes_true(lambda: psql("SELECT once.expire(10000)") and psql("SELECT max(slot) FROM once.claim WHERE key = '%s'" % held[24]) == "0")
psql("UPDATE once.ring SET period_ms = 86400000, opened_at = once.now_ms()")
equal(arms(["finish %s body" % k for k in held[24:40]]), ["done"] * 16, "K3 K7: what was moved meanwhile is found")
equal(psql("SELECT count(*) FROM once.check_orphans()"), "0", "nothing is left over")
usual(66)
equal(arms(["claim z%d" % i for i in range(7)] + ["claim " + held[24]]), ["execute"] * 7 + ["replay"],
      "K1 K7: and is known also from there")
equal(psql("SELECT count(*) FROM (SELECT FROM once.claim GROUP BY key HAVING count(*) > 1) c"), "0", "K1: nobody has two claims")

# Where claims are replays for the most part, they are looked for first; what is none is told what it is, all the same.
done = held[:8] + held[16:24]
equal(set(arms(["claim " + k for k in done])), {"replay"}, "K4: replays")
b.ask("claim busy")
equal(arms(["claim " + done[0], "claim n1", "claim busy", "claim " + done[1], "claim n2", "claim " + done[0],
            "claim n1", "claim " + done[3], "claim " + held[24]]),
      ["replay", "execute", "in progress", "replay", "execute", "replay", "in progress", "replay", "replay"],
      "K1 K4 K7: replays, and what is none, of this slot and of others")
equal(set(arms(["claim " + k for k in done])), {"replay"}, "K4: replays again")
equal(set(arms(["claim m%d" % i for i in range(8)])), {"execute"}, "K1: and then fresh ones only")

# Keys that are UUIDs are stored as such, and shown as they were given.
usual(66)
ids = [str(uuid.uuid4()) for _ in range(8)]
odd = [ids[0].upper(), ids[1].replace("-", ""), ids[2][:-1] + "g", "-" * 36]
equal(arms(["claim " + k for k in ids + odd]), ["execute"] * 12, "UUIDs, and what looks like them")
equal(psql("SELECT count(*) || ' of ' || max(length(key)) FROM once.claim WHERE takeover & 128 <> 0"), "8 of 16", "they are short")
equal(arms(["finish %s body" % k for k in ids + odd]), ["done"] * 12, "finished")
equal({b.ask("claim " + k).split()[1] for k in ids + odd}, {"replay"}, "and replayed to another")
equal({psql("SELECT convert_from(s.key, 'UTF8') FROM once.stored s WHERE s.record = once.record_id('', '%s')" % k)
       for k in ids + odd}, set(ids + odd), "their texts are what they were")
equal(psql("SELECT count(*) FROM once.check_rows(0, 1000000)"), "0", "K9: their names are of their texts")
refused = psql("SELECT once.fast_batch(ARRAY[gen_random_uuid()], ARRAY[''::bytea], ARRAY['x'::bytea], ARRAY[decode(repeat('00', 32), "
               "'hex')], NULL, NULL, ARRAY[129], ARRAY[gen_random_uuid()], NULL, NULL, NULL, NULL, NULL, NULL)")
equal(refused.split(":")[0], "23502", "what cannot be a UUID is not taken for one")

# Where all claims were replays for a while, nothing else is looked for. What they are told is what everybody is told.
os.environ["ONCE_STEP_WHOLE"] = "1"
c, d = Step(url("test")), Step(url("test"))
claims = {"r1": "", "r2": "", "r3": "", "r4": "takeover=rerun", "r5": "retention=-1", "r6": "", "r7": "tenant=acme", "r8": "", "r9": ""}
for key, terms in claims.items():
    b.ask("claim %s %s" % (key, terms))
    if key == "r3":
        b.ask("advance r3 half checkpoint")
    if key == "r6":
        b.ask("finish r6 again retryable")
        b.ask("claim r6")
    b.ask("finish %s body-%s %s" % (key, key, "failed" if key == "r2" else "succeeded"))
psql("UPDATE once.claim SET body_retention_ms = 1 WHERE key = 'r8'; UPDATE once.claim SET key = NULL WHERE key = 'r2'")
equal(psql("SELECT arm FROM once.forget('', 'r9', 'asked')"), "done", "one is forgotten")
replays = ["claim %s tenant=acme" % k if k == "r7" else "claim " + k for k in list(claims) + ids[:2]]


def short():
    """How often replays only were asked for, by those who have closed."""
    return int(psql("SELECT pg_stat_force_next_flush(); SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions "
                    "WHERE funcname = 'fast_replays'").split()[-1])


def batch(lines):
    return d.ask(" ; ".join(lines)).split(" ; ")


alone = [c.ask(line) for line in replays]
equal({line.split()[1] for line in alone}, {"replay"}, "K4: replays of all kinds")
ok("body=body-r7" in alone[6] and "tenant=acme" in alone[6] and "body=" not in alone[7] and "key=r9" not in alone[8] and
   "point=half" in alone[2] and "attempt=2" in alone[5] and "state=failed" in alone[1] and "key=" + ids[0] in alone[9], "each as it is", alone)
for _ in range(4):
    equal(batch(replays), alone, "K4: and in batches, each is told the same")
equal(batch([*replays, replays[6], replays[0]]), [*alone, alone[6], alone[0]], "also twice in one")
d.close()
ok(becomes_true(lambda: short() == 3), "the last three of them as replays only", short())
d = Step(url("test"))
for _ in range(3):
    batch(replays)
psql("UPDATE once.result SET finished_at = finished_at - 86400000 WHERE fence = (SELECT fence FROM once.claim WHERE key = 'r1')")
equal([line.split()[1] for line in batch(replays)], ["execute"] + ["replay"] * 10, "K1 K8: one of them is expired")
for _ in range(5):
    batch(replays[1:])
b.ask("claim r10")
equal([line.split()[1] for line in batch([*replays, "claim r10", "claim r11"])], ["in"] + ["replay"] * 10 + ["in", "execute"],
      "K1: two are in progress, one is fresh")
d.close()
ok(becomes_true(lambda: short() >= 3 + 3), "they were asked for as replays only", short())
equal(psql("SELECT count(*) FROM once.fast_replays(ARRAY[once.record_id('', 'r3')], ARRAY[decode(repeat('01', 32), 'hex')])"), "0",
      "another request is no replay")
equal(c.close(), 0, "it closed")
del os.environ["ONCE_STEP_WHOLE"]

equal(a.close(), 0, "the client closed")
equal(b.close(), 0, "so did the other")


def calls():
    """How often each way was called; a session adds its own when its server process ends, a little after its client closed."""
    found = dict(line.split("|") for line in psql(
        "SELECT pg_stat_force_next_flush(); SELECT funcname, calls FROM pg_stat_user_functions WHERE funcname IN "
        "('fast_batch', 'claim_many', 'finish_many')").splitlines() if "|" in line)
    return {name: int(found.get(name, 0)) for name in ("fast_batch", "claim_many", "finish_many")}


ok(becomes_true(lambda: calls()["fast_batch"] > calls()["claim_many"] > 0), "most of it was tried without a look", calls())
ok(calls()["finish_many"] > 0, "not all of it", calls())
finish()
