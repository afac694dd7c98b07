#!/usr/bin/env python3
"""What the console answers its page: lists, one record, what it holds, verdicts, messages; all bytes as they are."""

from consoletest import *
sys.path.insert(0, os.path.join(HERE, "../outbox"))
from receiver import Receiver

BODY = b"<script>document.title='pwned'</script>\0\xff\r\n"
MANY = 41000
folder = tempfile.mkdtemp(prefix="once-console-")
fill("sqlite:%s/once.db" % folder, MANY)
fill("sqlite:%s/once.db" % folder, "request")
service = subprocess.Popen([os.environ["ONCE_TEST_ENQUEUE"], folder + "/shop.db"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def stage(*steps):
    for step in ("begin", *steps, "commit"):
        service.stdin.write(step + "\n")
        service.stdin.flush()
        service.stdout.readline()


receiver = Receiver(lambda payload: 500)
stage("message bad.orders k1 <script>poison</script>")
subprocess.run([ONCE, "relay", "--store", "sqlite:%s/shop.db" % folder, "--route", "bad.*=" + receiver.url(), "--attempts", "1", "--drain", "--quiet"], check=True, timeout=SECONDS)
stage("message good k2 waits")
TRACES = "https://traces.example:3000/a/{key_hash}?q=%7B%22once.key_hash%22%3A%22{key_hash}%22%7D&x='$(id)'#{key_hash}"
daemon = Daemon("--console-outbox", "sqlite:%s/shop.db" % folder, "--console-traces", TRACES, folder=folder)

# ---------------------------------------------------------------- hostile bytes, there and back
for name, key in HOSTILE.items():
    daemon.record(key, finish="succeeded", status=201, headers="Content-Type: text/html\r\n", body_base64=b64(BODY + key))
ann = daemon.login()
listed = ann.get("/api/keys", tenant="")[2]
equal([bytes_of(r, "key") for r in listed["records"]], list(reversed(HOSTILE.values())), "listed newest first, byte for byte")
equal(listed["next"] is None, False, "there may be more")
ok("traces_url" not in dump(listed) and "traces_url" not in ann.key(b"no such key"), "a link to traces is for one record's page")
for name, key in HOSTILE.items():
    one = ann.key(key)
    good = one["arm"] == "found" and bytes_of(one, "key") == key and one["status"] == 201 and one["body_len"] == len(BODY + key)
    ok(good and "body" not in one and "headers" not in one, "%s: its page, without the body" % name, one)
    ok(re.fullmatch("[0-9a-f]{32}", one["record"]) and one["traces_url"] == TRACES.replace("{key_hash}", one["record"]), "%s: where its traces are" % name, one)
    shown = ann.post("/api/reveal", key_base64=b64(key), fence=one["fence"], what="response")[2]
    equal((bytes_of(shown, "body"), bytes_of(shown, "headers")), (BODY + key, b"Content-Type: text/html\r\n"), "%s: revealed as stored" % name)
lines = lambda: [line for line in daemon.log().splitlines() if "revealed the response" in line]
wait_for(lambda: len(lines()) >= len(HOSTILE), "the log has it")
revealed = lines()
equal(len(revealed), len(HOSTILE), "each look is in the log")
ok(all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z once daemon: console: ann: revealed the response: record ", line) for line in revealed), "with who and which", revealed[:2])
ok("script" not in daemon.log() and "naïve" not in daemon.log(), "without keys or bodies")
entries = ann.get("/api/activity")[2]["entries"]
equal([bytes_of(e, "key") for e in entries[:len(HOSTILE)]], list(reversed(HOSTILE.values())), "and on the page")

# ---------------------------------------------------------------- large bodies
large = bytes(range(256)) * 4096
big = daemon.record("big", finish="succeeded", status=200, body_base64=b64(large))
answer = ann.post("/api/reveal", key="big", fence=str(big["fence"]), what="response")[2]
equal((answer["body_len"], bytes_of(answer, "body")), (len(large), large[:256 << 10]), "the beginning of a large body")
answer = ann.post("/api/reveal", key="big", fence=str(big["fence"]), what="response", all=True)[2]
equal(bytes_of(answer, "body"), large, "all of it")
equal(ann.post("/api/reveal", key="big", fence="1", what="response")[2]["arm"], "fenced", "another fence: look again")
equal(ann.post("/api/reveal", key="none", fence="1", what="response")[2]["arm"], "absent", "no such key")

# ---------------------------------------------------------------- a stored request
one = ann.key(b"resend", b"acme")
told = {"len": one["request"]["len"], "upstream": "service", "method": "POST", "path": "/orders", "body_len": 11, "needs_identity": True,
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
equal(one["request"], told, "what a stored request is, without query, headers and body")
answer = ann.post("/api/reveal", tenant="acme", key="resend", fence=one["fence"], what="request")[2]
equal((answer["method"], answer["target"], answer["body"]), ("POST", "/orders?secret=1", '{"eur": 25}'), "all of it, when asked for")
ok("traceparent: 00-" in answer["headers"], "its headers, too", answer["headers"])

# ---------------------------------------------------------------- pages
seen, before, pages = [], None, 0
while pages < 400:
    answer = ann.get("/api/keys", tenant="bulk", limit="200", **({"before": before} if before else {}))[2]
    seen += [r["key"] for r in answer["records"]]
    before, pages = answer["next"], pages + 1
    if before is None:
        break
equal(seen, ["key-%06d" % i for i in range(MANY, 0, -1)], "%d keys in %d pages, each once" % (MANY, pages))
answer = ann.get("/api/keys", prefix="key-000001", tenant="bulk")[2]
equal(answer["records"], [], "a search stops after some rows")
ok(answer["next"] is not None, "and says how to go on", answer)
answer = ann.get("/api/keys", prefix="key-000001", tenant="bulk", before=answer["next"])[2]
equal([r["key"] for r in answer["records"]], ["key-000001"], "and finds it then")
equal(ann.get("/api/keys", prefix=HOSTILE["a NUL"])[2]["records"][0]["state"], "succeeded", "by the beginning, of any bytes")

# ---------------------------------------------------------------- states, verdicts
for key in ("pay-1", "pay-2", "pay-3", "pay-4"):
    daemon.record(key, tenant="acme", finish="unknown", point="charged")
daemon.record("at-work", tenant="acme")
daemon.record("gone", tenant="acme", lease_ms=1)
daemon.record("again", tenant="acme", finish="failed", retryable=True, status=503)
wait_for(lambda: not ann.key(b"gone", b"acme")["lease_live"], "its lease is over")
keys = lambda **p: sorted(r["key"] for r in ann.get("/api/keys", tenant="acme", **p)[2]["records"])
equal(keys(states="unknown"), ["pay-1", "pay-2", "pay-3", "pay-4"], "the unknown ones")
equal(keys(states="running"), ["at-work", "gone", "resend"], "the running ones")
equal(keys(states="running,failed"), ["again", "at-work", "gone", "resend"], "two states")
lost = ["again", "gone", "resend"]
equal(wait_for(lambda: (lambda k: k == lost and k)(keys(abandoned="1")), "found"), lost, "those that nobody is at")
equal(keys(older_ms="3600000"), [], "by age")
one = ann.key(b"pay-1", b"acme")
equal((one["state"], one["recovery_point"], one["checkpoint_len"]), ("unknown", "charged", 10), "an unknown one")
equal(ann.post("/api/reveal", tenant="acme", key="pay-1", fence=one["fence"], what="checkpoint")[2]["body"], "receipt-17", "its checkpoint")
word = {"tenant": "acme", "key": "pay-1", "fence": one["fence"], "verdict": "done", "status": 201, "body": "charged", "headers": "Content-Type: text/plain\r\n", "reason": "it is in the <b>ledger</b>"}
for missing in ("reason", "fence", "status", "verdict", "key"):
    equal(ann.post("/api/resolve", **{name: value for name, value in word.items() if name != missing})[0], 400, "a verdict without %s" % missing)
equal(ann.post("/api/resolve", **{**word, "reason": ""})[0], 400, "with an empty reason")
equal(ann.post("/api/resolve", **{**word, "reason": "x" * 1001})[0], 413, "with a long one")
equal(ann.post("/api/resolve", **{**word, "fence": "0"})[0], 400, "about whatever it is now")
equal(ann.post("/api/resolve", **{**word, "headers": "no header"})[0], 400, "with header lines that are none")
equal(ann.key(b"pay-1", b"acme")["state"], "unknown", "none of it changed anything")
equal(ann.post("/api/resolve", **word)[2]["arm"], "done", "it happened")
equal(ann.post("/api/resolve", **word)[2]["arm"], "fenced", "said twice: it changed since")
equal(ann.post("/api/resolve", **{**word, "fence": ann.key(b"pay-1", b"acme")["fence"]})[2]["arm"], "replay", "looked again: it stands")
replay = daemon.api("claim", tenant="acme", key="pay-1")
equal((replay["arm"], replay["status"], replay["body"]), ("replay", 201, "charged"), "a retry gets that")
last = ann.key(b"pay-1", b"acme")["history"][-1]
equal((last["what"], last["actor"], last["reason"]), ("resolved done", "ann (console)", word["reason"]), "and the audit trail has it")
out = subprocess.run([ONCE, "keys", "show", "pay-1", "--tenant", "acme", "--store", "once:%s/once.sock" % folder], stdout=subprocess.PIPE, text=True, timeout=SECONDS).stdout
ok("resolved done  by ann (console): it is in the <b>ledger</b>" in out, "also for once keys show", out)


def verdict(key, **more):
    fence = ann.key(key.encode(), b"acme")["fence"]
    return ann.post("/api/resolve", tenant="acme", key=key, fence=fence, reason="looked", **more)[2]["arm"]


equal((verdict("pay-2", verdict="not done"), daemon.api("claim", tenant="acme", key="pay-2")["arm"]), ("done", "execute"), "run again: the next try executes")
equal((verdict("pay-3", verdict="release"), ann.key(b"pay-3", b"acme")["arm"]), ("done", "absent"), "released: forgotten")
equal(ann.key(b"pay-3", b"acme")["history"][-1]["what"], "released", "but not its audit trail")
equal((verdict("pay-4", verdict="done", status=402, failed=True), ann.key(b"pay-4", b"acme")["state"]), ("done", "failed"), "it failed, finally")
equal(verdict("gone", verdict="not done"), "done", "one whose holder is gone")
equal(verdict("at-work", verdict="release"), "in progress", "not one whose holder is at work")
fence = ann.key(b"at-work", b"acme")["fence"]
equal(ann.post("/api/resolve", tenant="acme", key="pay-2", fence=fence, reason="r", verdict="release")[2]["arm"], "fenced", "nor one that was taken since")

# ---------------------------------------------------------------- erasure
one = ann.key(b"pay-1", b"acme")
word = {"tenant": "acme", "key": "pay-1", "fence": one["fence"], "reason": "ticket 4711"}
for missing in ("reason", "fence", "key"):
    equal(ann.post("/api/forget", **{name: value for name, value in word.items() if name != missing})[0], 400, "forgetting without %s" % missing)
equal(ann.post("/api/forget", **{**word, "reason": ""})[0], 400, "with an empty reason")
equal(ann.post("/api/forget", **{**word, "fence": "1"})[2]["arm"], "fenced", "what was not looked at")
equal(ann.post("/api/forget", tenant="acme", key="at-work", fence=fence, reason="r")[2]["arm"], "in progress", "not what is at work")
ok(not ann.key(b"pay-1", b"acme").get("forgotten"), "none of it changed anything")
equal(ann.post("/api/forget", **word)[2]["arm"], "done", "forgotten")
replay = daemon.api("claim", tenant="acme", key="pay-1")
equal((replay["arm"], replay["status"], replay["body_dropped"], replay["body"]), ("replay", 201, True, ""), "a retry is told, and not executed")
gone = ann.key(b"pay-1", b"acme")
equal((gone["forgotten"], gone["body_len"], gone["headers_len"]), (True, 0, 0), "there is nothing left to show")
equal((gone["history"][-1]["what"], gone["history"][-1]["actor"], gone["history"][-1]["reason"]), ("forgotten", "ann (console)", "ticket 4711"), "but who did it, and why")
ok("pay-1" not in keys(states="succeeded"), "nor is it the tenant's any more")
entry = ann.get("/api/activity")[2]["entries"][0]
ok(entry["what"] == "forgot a record" and "pay-1" not in str(entry), "the activity does not name it", entry)
key = ann.post("/api/child-key", record=one["record"], call="upstream")[2]["child_key"]
equal((key, key), (one["child_key"], daemon.api("child-key", record=one["record"], call="upstream")["child_key"]), "child keys are the library's")

# ---------------------------------------------------------------- the overview
daemon.api("claim", tenant="acme", key="pay-1", fingerprint="11" * 32)


def sampled():
    answer = ann.get("/api/overview")[2]
    return answer if answer["looked"] and answer["samples"] and answer.get("outbox") and sum(dict(zip(answer["fields"], s))["mismatches"] for s in answer["samples"]) else None


answer = wait_for(sampled, "samples")
total = {name: sum(dict(zip(answer["fields"], s))[name] for s in answer["samples"]) for name in answer["fields"]}
ok(total["executions"] >= len(HOSTILE) and total["replays"] == 2 and total["mismatches"] == 1 and total["conflicts"] == 0, "what was done is counted", total)
equal({name: answer["totals"][name] for name in ("replays", "mismatches", "conflicts", "unknowns")}, {"replays": 2, "mismatches": 1, "conflicts": 0, "unknowns": 0}, "in all, too")
equal((answer["attempts"] > MANY, answer["running_count"], answer["store"]), (True, 3, "SQLite"), "the store, and what is running", answer["running_count"])
daemon.record("pay-5", tenant="acme", finish="unknown")
whole = lambda: (lambda a: a if (a["unknown_count"], a["unknown_more"]) == (1, False) else None)(ann.get("/api/overview")[2])
ok(wait_for(whole, "all records to be walked through"), "what is unknown is counted, among more records than one step looks at")
equal(answer["outbox"], {"pending": 1, "stalled": 0, "scheduled": 0, "dead": 1, "lag_ms": answer["outbox"]["lag_ms"]}, "the outbox")
count = ann.get("/api/overview", since=str(answer["count"]))[2]
equal(len(count["samples"]), count["count"] - answer["count"], "only what is new is told again")

# ---------------------------------------------------------------- messages
listed = ann.get("/api/outbox")[2]["messages"]
equal(sorted((m["state"], m["topic"]) for m in listed), [("dead", "bad.orders"), ("pending", "good")], "messages, without payloads")
ok(all("body" not in m for m in listed), "really", listed)
equal([m["state"] for m in ann.get("/api/outbox", states="dead")[2]["messages"]], ["dead"], "by state")
equal([m["topic"] for m in ann.get("/api/outbox", topic="go")[2]["messages"]], ["good"], "by topic")
equal(ann.get("/api/outbox", states="alive")[0], 400, "of no such state")
dead = next(m for m in listed if m["state"] == "dead")
equal(ann.post("/api/outbox/reveal", id=dead["id"])[2]["messages"][0]["body"], "<script>poison</script>", "revealed")
ok(wait_for(lambda: "ann: revealed message " + dead["id"] in daemon.log(), "noted"), "and noted")
equal(ann.post("/api/outbox/action", id=dead["id"], action="retry")[0], 400, "a word without a reason")
equal(ann.post("/api/outbox/action", id="x", action="retry", reason="r")[0], 400, "on no message")
equal(ann.post("/api/outbox/action", id=dead["id"], action="burn", reason="r")[0], 400, "that is none")
equal(ann.post("/api/outbox/action", id=dead["id"], action="retry", reason="repaired")[2]["did"] != "absent", True, "retried")
equal(sorted(m["state"] for m in ann.get("/api/outbox")[2]["messages"]), ["pending", "pending"], "it waits again")
for m in ann.get("/api/outbox")[2]["messages"]:
    ann.post("/api/outbox/action", id=m["id"], action="drop", reason="a test")
equal(ann.get("/api/outbox")[2]["messages"], [], "dropped")
equal(ann.post("/api/outbox/action", id=dead["id"], action="drop", reason="again")[2]["did"], "absent", "and gone")
# ---------------------------------------------------------------- routes, and what only this daemon has seen
stage("message good k2 waits", "message good k1 waits", "message other k2 waits")
held = daemon.api("claim", key="k2", route="orders", takeover="rerun")
grant = {"record": held["record"], "fence": held["fence"]}
daemon.api("extend", **grant)
daemon.api("extend", **grant, lease_ms=90000)
daemon.api("advance", **grant, point="charged")
daemon.api("finish", **grant, state="succeeded", status=201, body="x")
for _ in range(3):
    equal(daemon.api("claim", key="k2", route="orders")["arm"], "replay", "a replay")
daemon.api("claim", key="unrouted")
one = ann.key(b"k2")
equal((one["route"], one["outbox"]), ("orders", True), "the route of a record")
seen = one["seen"]
equal((seen["whole"], seen["replays"], seen["renewals"], seen["fenced"]), (True, 3, 3, 0), "replays and renewals, as this daemon has seen them")
equal([(m["what"], m["fence"], m.get("point")) for m in seen["recent_events"]],
      [("extended", one["fence"], None), ("extended", one["fence"], None), ("advanced", one["fence"], "charged")], "when, of which attempt")
ok(seen["since"] <= seen["recent_events"][0]["at"] <= seen["first_replay"] <= seen["last_replay"], "in order", seen)
equal(ann.key(b"resend", b"acme")["seen"]["replays"], 0, "nothing was seen of what was made before it began")
equal([r["key"] for r in ann.get("/api/keys", route="orders")[2]["records"]], ["k2"], "found by its route")
equal(ann.get("/api/keys", route="none")[2]["records"], [], "another route")
equal(ann.get("/api/keys", route="a%20b")[0], 400, "what is no route is refused")
equal([(m["topic"], m["message_key"]) for m in ann.get("/api/outbox", message_key=b"k2")[2]["messages"]], [("good", "k2"), ("other", "k2")], "messages with this key")
equal(ann.get("/api/outbox", message_key=b"nobody")[2]["messages"], [], "none")
claim = daemon.api("claim", key="slow", lease_ms=1, takeover="rerun")
wait_for(lambda: daemon.api("claim", key="slow", takeover="rerun")["arm"] == "execute", "it is taken over")
equal(daemon.api("extend", record=claim["record"], fence=claim["fence"])["arm"], "fenced", "the first holder is fenced")
equal([(m["what"], m["fence"]) for m in ann.key(b"slow")["seen"]["recent_events"]], [("fenced", str(claim["fence"]))], "and that is seen")

service.stdin.close()
service.wait()
receiver.stop() if hasattr(receiver, "stop") else None
daemon.stop()
# ---------------------------------------------------------------- unknown before this daemon began
again = tempfile.mkdtemp(prefix="once-console-")
first = Daemon(store="sqlite:%s/once.db" % again)
for key in ("a", "b", "c"):
    first.record(key, finish="unknown")
first.record("d", finish="failed", retryable=True, status=503)
first.record("d", finish="failed", retryable=True, status=503)
first.stop("the first daemon")
second = Daemon(store="sqlite:%s/once.db" % again)
ann = second.login()
answer = wait_for(lambda: (lambda a: a if a["looked"] else None)(ann.get("/api/overview")[2]), "a look at the store")
equal((answer["unknown_count"], answer["unknown_more"], answer["escalations"]), (3, False, 0), "what was unknown before a restart is counted, and did not become so since")
checked = json.loads(subprocess.run([ONCE, "check", "--store", "once:%s/once.sock" % second.folder, "--json"], stdout=subprocess.PIPE, text=True, check=True, timeout=SECONDS).stdout)
equal((answer["attempts"], checked["attempts"], checked["records"]), (5, 5, 4), "what is called attempts are attempts")
second.stop("the second daemon")
shutil.rmtree(again)
none = Daemon(store="sqlite:%s?keytext=off" % (tempfile.mkdtemp(prefix="once-console-") + "/once.db"))
none.record("secret-17", finish="succeeded", status=200)
ann = none.login()
listed = ann.get("/api/keys")[2]["records"]
equal([(r["key"], len(r["record"])) for r in listed], [("", 32)], "where keys' texts are not kept there is the record's id")
equal(bytes_of(ann.key(b"secret-17"), "key"), b"secret-17", "and who knows the key finds it")
equal(ann.get("/api/outbox")[0], 400, "no outbox, where none is named")
ok("traces_url" not in ann.key(b"secret-17"), "nor a link to traces")
none.stop("without an outbox it")
finish()
