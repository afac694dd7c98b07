#!/usr/bin/env python3
"""Every answer through the best-effort tier says so: nginx, the JSON API, the metrics, the program.

A real nginx with the module, `once daemon` on a Redis (ONCE_TEST_REDIS, by with-redis), a scripted upstream.

usage: with-redis tier.py [CASE]
"""
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "gateway"), os.path.join(HERE, "..")]
import redisserver
from gateway import BOUND_S, ONCE, SINGLE, Gateway, Location, Suite, expect, expect_equal, new_token, wait_for
from lib.ports import free_port

LOCATIONS = (Location("/plain/", "once on;", SINGLE),
             Location("/required/", "once required;", SINGLE),
             Location("/never/", "once on;", SINGLE, "once_retention never;"),
             Location("/pass/", "once on;", SINGLE, "once_retention never;", "once_store_down pass;"),
             Location("/observed/", "once observe;", SINGLE, "once_retention never;"))
SECRET = "a password that nobody may read"

suite = Suite()
gateway = full = None
http = free_port()


def api(path, body=None):
    """Status, headers and body."""
    request = urllib.request.Request("http://127.0.0.1:%d%s" % (http, path), data=body and json.dumps(body).encode(),
                                     headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=BOUND_S) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.headers, answer.read()


@suite.case
def every_keyed_answer_carries_the_label():
    key, token = new_token("key"), new_token()
    first = gateway.ask("/plain/normal", key, token)
    expect_equal((first.status, first.get("Once-Tier")), (201, "best-effort"), "the first answer")
    retry = gateway.ask("/plain/normal", key, token)
    expect_equal((retry.status, retry.replayed, retry.get("Once-Tier")), (201, True, "best-effort"), "the replay")
    other = gateway.ask("/plain/normal", key, token, body=b'{"amount":26}')
    expect_equal((other.status, other.get("Once-Tier")), (422, "best-effort"), "the mismatch")
    missing = gateway.ask("/required/normal", None, token)
    expect_equal((missing.status, missing.get("Once-Tier")), (400, "best-effort"), "the missing key")
    expect_equal(gateway.effects(token), 1, "effects")


@suite.case
def the_label_is_not_stored():
    token = new_token()
    head = gateway.ask("/plain/normal", new_token("key"), token).head.decode("latin-1").lower()
    expect_equal(head.count("once-tier:"), 1, "labels in an answer")


@suite.case
def the_full_tier_has_no_label():
    answer = full.ask("/plain/normal", new_token("key"), new_token())
    expect_equal((answer.status, answer.get("Once-Tier")), (201, None), "an answer from SQLite")
    kept = full.ask("/never/normal", new_token("key"), new_token())
    expect_equal((kept.status, kept.get("Idempotency-Expires")), (201, "never"), "retention never, from SQLite")


@suite.case
def retention_never_is_refused_and_not_executed():
    for path in ("/never/normal", "/pass/normal"):
        token = new_token()
        answer = gateway.ask(path, new_token("key"), token)
        problem = json.loads(answer.body)
        expect_equal((answer.status, problem["code"], problem["retryable"]), (500, "tier-refused", False), path)
        expect_equal(answer.get("Once-Tier"), "best-effort", "the label")
        expect_equal(gateway.effects(token), 0, "effects at " + path)
    wait_for(lambda: "once_retention never" in gateway.text("error.log"), "the log to say why")


@suite.case
def observing_refuses_nothing():
    token = new_token()
    expect_equal(gateway.ask("/observed/normal", new_token("key"), token).status, 201, "the status")
    expect_equal(gateway.effects(token), 1, "effects")


@suite.case
def the_json_api_carries_the_label():
    status, headers, body = api("/v1/claim", {"key": new_token("key")})
    expect_equal((status, headers.get("Once-Tier")), (200, "best-effort"), "a claim: %r" % body)
    status, headers, body = api("/v1/claim", {"key": new_token("key"), "retention_ms": "never"})
    expect_equal((status, headers.get("Once-Tier")), (400, "best-effort"), "a claim for ever: %r" % body)
    expect(b"best-effort" in body, "the problem says why: %r" % body)
    expect_equal(api("/v1/nothing")[1].get("Once-Tier"), "best-effort", "a path that is none")


@suite.case
def metrics_say_tier_and_losses():
    text = api("/metrics")[2].decode()
    for line in ('once_store_tier{tier="best-effort"} 1', "once_store_lost_total 0", "once_store_restarts_total 0",
                 "once_store_evicted_total 0"):
        expect(line + "\n" in text, "no line %r in %s" % (line, text[:400]))


@suite.case
def the_program_says_it_too():
    socket = "once:" + gateway.daemon.socket
    for store in (gateway.daemon.store, socket):
        run = subprocess.run([ONCE, "check", "--store", store], stdout=subprocess.PIPE, text=True)
        expect(run.returncode == 0 and "tier best-effort" in run.stdout, "`once check`: %s" % run.stdout)
        expect("K4: durable first" in run.stdout, "what is not promised: %s" % run.stdout)
    run = subprocess.run([ONCE, "run", "--store", socket, "--key", new_token(), "--retention", "never", "--", "true"],
                         stderr=subprocess.PIPE, text=True)
    expect(run.returncode != 0 and "best-effort" in run.stderr, "retention never: %d %s" % (run.returncode, run.stderr))
    # A claim that no replica acknowledged: nobody knows whether it is there, but that nothing was executed is known.
    ran = gateway.path("ran")
    run = subprocess.run([ONCE, "run", "--store", gateway.daemon.store + "&wait=1&wait_ms=100", "--key", new_token(), "--", "touch", ran],
                         stderr=subprocess.PIPE, text=True)
    expect_equal((run.returncode, "did not execute the command" in run.stderr, os.path.exists(ran)), (69, True, False), run.stderr)


@suite.case
def passwords_are_in_no_log_and_come_from_outside():
    admin = redisserver.Client(os.environ["ONCE_TEST_REDIS"])
    text = open(os.path.join(HERE, "..", "..", "docs", "redis.md"), encoding="utf-8").read()
    rights = [line.split() for line in text.splitlines() if line.startswith("~once:* ")][0]
    admin("ACL", "SETUSER", "app", "on", ">" + SECRET, *rights)
    place = os.path.join(gateway.folder, "password")
    with open(place, "w", encoding="utf-8") as file:
        file.write(SECRET + "\n")
    base = "redis+unix:%s?db=3&tier=best-effort&user=app" % os.environ["ONCE_TEST_REDIS"]
    run = [ONCE, "run", "--key", new_token(), "--store"]
    good = subprocess.run([*run, base + "&password_file=" + place, "--", "true"], stderr=subprocess.PIPE, text=True)
    expect_equal(good.returncode, 0, "with the file, and the rights of docs/redis.md: %s" % good.stderr)
    for verb in (["check"], ["keys", "list"], ["expire"]):
        other = subprocess.run([ONCE, *verb, "--store", base + "&password_file=" + place], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        expect_equal(other.returncode, 0, "%s with those rights: %s" % (verb, other.stderr))
    expect("Redis itself removes" in other.stdout, "what `once expire` says: %s" % other.stdout)
    env = dict(os.environ, ONCE_REDIS_PASSWORD=SECRET)
    good = subprocess.run([*run, base, "--", "true"], env=env, stderr=subprocess.PIPE, text=True)
    expect_equal(good.returncode, 0, "with the environment: %s" % good.stderr)
    env["ONCE_REDIS_PASSWORD"] = SECRET + "x"
    bad = subprocess.run([*run, base, "--", "true"], env=env, stderr=subprocess.PIPE, text=True)
    expect(bad.returncode == 69 and "user and password" in bad.stderr, "a wrong one: %d %s" % (bad.returncode, bad.stderr))
    expect(SECRET not in bad.stderr, "the password is told")
    admin.close()
    env["ONCE_REDIS_PASSWORD"] = SECRET
    deaf = redisserver.Redis(os.path.join(gateway.folder, "deaf"), settings=("--rename-command", "AUTH", "")).start()
    bad = subprocess.run([*run, deaf.url(), "--", "true"], env=env, stderr=subprocess.PIPE, text=True)
    expect(bad.returncode == 69 and "AUTH" in bad.stderr, "a server that knows no AUTH: %d %s" % (bad.returncode, bad.stderr))
    expect(SECRET not in bad.stderr, "the password is told by Redis, and told on")
    deaf.stop()


@suite.case
def what_expired_unfinished_leaves_no_name():
    admin = redisserver.Client(os.environ["ONCE_TEST_REDIS"])
    store = "redis+unix:%s?prefix=names&tier=best-effort" % os.environ["ONCE_TEST_REDIS"]
    for number in range(3):
        subprocess.run([ONCE, "run", "--quiet", "--store", store, "--retention", "1s" if number < 2 else "1h", "--key",
                        "k%d" % number, "--", "false"])
    expect_equal(admin("ZCARD", "names:open"), 3, "failures that may be retried")
    wait_for(lambda: len(admin("KEYS", "names:r:*")) == 1, "Redis to remove what expired")
    subprocess.run([ONCE, "expire", "--quiet", "--store", store], check=True)
    expect_equal(admin("ZCARD", "names:open"), 1, "what is left of them")
    admin.close()


@suite.case
def what_is_unknown_is_told_without_its_key():
    key = new_token("key")
    answer = gateway.ask("/plain/reset_after_reading", key, new_token())
    expect_equal((answer.get("Idempotency-Outcome"), answer.get("Once-Tier")), ("unknown", "best-effort"), "the answer")
    shown = subprocess.run([ONCE, "keys", "show", key, "--json", "--store", "once:" + gateway.daemon.socket], stdout=subprocess.PIPE, check=True)
    wait_for(lambda: "escalated once-%s-" % json.loads(shown.stdout)["record"] in gateway.daemon.said(), "the daemon to tell")
    expect(key not in gateway.daemon.said(), "its log has the key: %s" % gateway.daemon.said())


@suite.case
def the_daemon_tells_how_safe_it_is():
    said = gateway.daemon.said()
    expect("tier best-effort" in said and "appendonly no" in said, "its log: %s" % said)
    expect("warning: no append-only file" in said, "its log: %s" % said)


def main():
    global gateway, full
    suite.require()
    gateway = Gateway(LOCATIONS, store="redis+unix:%s?tier=best-effort" % os.environ["ONCE_TEST_REDIS"])
    gateway.patient = True
    gateway.daemon.arguments = ["--http", "127.0.0.1:%d" % http]
    gateway.start()
    full = Gateway(LOCATIONS).start()
    suite.run(gateways=[("the gateway on Redis", gateway), ("the gateway on SQLite", full)])


main()
