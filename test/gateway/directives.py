#!/usr/bin/env python3
"""What docs/nginx.md says of single directives, each against its default: what counts in the fingerprint, which methods, which
statuses are final, which headers a replay has, what the upstream is told. The gateway refuses the names of headers that are never replayed."""
import json

from gateway import Gateway, Location, SINGLE, Suite, expect, expect_equal, new_token, tested
import upstream

ON = ("once on;", SINGLE)
LOCATIONS = (Location("/on/", *ON),
             Location("/exact/", *ON, "once_fingerprint exact;"),
             Location("/region/", *ON, "once_fingerprint header=X-Region;"),
             Location("/but/", *ON, "once_fingerprint json exclude=/sent_at exclude=/meta/trace;"),
             Location("/every/", *ON, "once_methods POST PATCH PUT DELETE;"),
             Location("/post/", *ON, "once_methods POST;"),
             Location("/all/", *ON, "once_final all;"),
             Location("/success/", *ON, "once_final 2xx;", "once_takeover rerun;"),
             Location("/but-404/", *ON, "once_final default -404;", "once_takeover rerun;"),
             Location("/headers/", *ON, "once_replay_headers X-Order;"),
             Location("/more-headers/", *ON, "once_replay_headers default X-Order;"),
             Location("/untold/", *ON, "once_forward off;"))
JSON = ("Content-Type", "application/json")
TOLD = {"once-key", "once-record", "once-fence", "once-attempt"}
suite = Suite()
gateway = None


@upstream.behaviour
def ordered(c):
    c.work()
    c.answer(201, ["X-Order: 17", 'ETag: "v1"', "Location: /orders/17"], "done")


SAME = [  # (name, path, how the first and the second differ, what the second is told)
    ("json: order and blanks", "/on/normal", {"headers": [JSON], "body": b'{"a":1,"b":2}'}, {"headers": [JSON], "body": b'{ "b": 2, "a": 1 }'}, 201),
    ("exact: order and blanks", "/exact/normal", {"headers": [JSON], "body": b'{"a":1,"b":2}'}, {"headers": [JSON], "body": b'{ "b": 2, "a": 1 }'}, 422),
    ("another header that does not count", "/on/normal", {"headers": [("X-Region", "eu")]}, {"headers": [("X-Region", "us")]}, 201),
    ("another header that counts", "/region/normal", {"headers": [("X-Region", "eu")]}, {"headers": [("X-Region", "us")]}, 422),
    ("a header that counts is missing", "/region/normal", {"headers": [("X-Region", "eu")]}, {}, 422),
    ("another member that is left out", "/but/normal", {"headers": [JSON], "body": b'{"a":1,"sent_at":1,"meta":{"trace":1}}'},
     {"headers": [JSON], "body": b'{"a":1,"sent_at":2,"meta":{"trace":2}}'}, 201),
    ("another member beside it", "/but/normal", {"headers": [JSON], "body": b'{"a":1,"meta":{"trace":1,"b":1}}'},
     {"headers": [JSON], "body": b'{"a":1,"meta":{"trace":1,"b":2}}'}, 422),
    ("another type", "/on/normal", {"headers": [JSON]}, {"headers": [("Content-Type", "text/plain")]}, 422),
]


def same_request(path, first, second, status):
    token = new_token()
    expect_equal(gateway.ask(path, token, token, **first).status, 201, "the first")
    answer = gateway.ask(path, token, token, **second)
    expect_equal((answer.status, answer.replayed), (status, status == 201), "the second: %s" % answer)
    expect_equal(gateway.effects(token), 1, "effects")


METHODS = [("/on/", {"POST", "PATCH"}), ("/every/", {"POST", "PATCH", "PUT", "DELETE"}), ("/post/", {"POST"})]


def method_counts(path, method, counts):
    token = new_token()
    answers = [gateway.ask(path + "normal", token, token, method=method) for _ in range(2)]
    expect_equal([answer.replayed for answer in answers], [False, counts], "replays")
    expect_equal(gateway.effects(token), 1 if counts else 2, "effects")


FINAL = [("/on/", 404, True), ("/on/", 429, False), ("/all/", 429, True), ("/all/", 500, True), ("/all/", 401, True), ("/success/", 404, False),
         ("/but-404/", 404, False), ("/but-404/", 422, True)]


def status_is_final(path, status, final):
    token = new_token()
    answers = [gateway.ask("%sstatus_%d" % (path, status), token, token) for _ in range(2)]
    expect_equal([(answer.status, answer.replayed) for answer in answers], [(status, False), (status, final)], "the answers")
    expect_equal(gateway.effects(token), 1 if final else 2, "effects")


REPLAYED = [("/on/", {"etag", "location"}), ("/headers/", {"x-order"}), ("/more-headers/", {"etag", "location", "x-order"})]


def headers_of_a_replay(path, wanted):
    token = new_token()
    first, retry = gateway.ask(path + "ordered", token, token), gateway.ask(path + "ordered", token, token)
    for answer, names in ((first, {"etag", "location", "x-order"}), (retry, wanted)):
        expect_equal({name.lower() for name, _ in answer.headers} & {"etag", "location", "x-order"}, names, "headers of %s" % answer)
    expect(retry.replayed, "it is no replay: %s" % retry)


@suite.case
def forward__the_upstream_is_told_of_the_attempt():
    """And of what the client said about it, nothing."""
    forged = [(name, "forged") for name in ("Once-Key", "once-record", "ONCE-FENCE", "Once-Attempt", "Once-Recovery-Point", "Once-Checkpoint")]
    token = new_token()
    seen = [(name.lower(), value) for name, value in json.loads(gateway.ask("/on/echo", token, token, headers=forged).body)["headers"] if name.lower().startswith("once-")]
    expect_equal({name for name, _ in seen}, TOLD, "what the upstream is told")
    expect_equal(len(seen), len(TOLD), "and each of it once")
    expect("forged" not in dict(seen).values() and dict(seen)["once-attempt"] == "1", "what it is told: %s" % seen)
    for path, key in (("/on/echo", None), ("/on/echo?a", token + "-2")):
        seen = json.loads(gateway.ask(path, key, token + "-2", headers=forged).body)["headers"]
        expect("forged" not in [value for name, value in seen], "a client's own came through: %s" % seen)
    token = new_token()
    seen = {name.lower() for name, _ in json.loads(gateway.ask("/untold/echo", token, token).body)["headers"]}
    expect(not seen & TOLD, "once_forward off: %s" % seen)


NEVER = ["Set-Cookie", "set-cookie", "WWW-Authenticate", "Proxy-Authenticate", "Authorization", "Authentication-Info", "X-Auth-Token", "X-Api-Key", "Connection",
         "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Date", "Age", "Retry-After",
         "RateLimit", "RateLimit-Remaining", "X-RateLimit-Limit", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers",
         "Idempotency-Replayed", "Idempotency-Expires", "Idempotency-Outcome"]


def is_never_replayed(name):
    accepted, said, _ = tested(gateway, Location("/a/", *ON, "once_replay_headers ETag %s;" % name))
    expect(not accepted and name in said and "nginx.conf:" in said, "it said: %s" % said)


@suite.case
def conf__what_keeps_answers_elsewhere_does_not_combine():
    for line, word in (("proxy_store on;", "proxy_store"), ("proxy_cache c;", "proxy_cache")):
        accepted, said, _ = tested(gateway, Location("/a/", *ON, more=(line,)), http="proxy_cache_path cache keys_zone=c:1m;")
        expect(not accepted and word in said and "nginx.conf:" in said, "%s: it said: %s" % (line, said))


def main():
    global gateway
    suite.require()
    gateway = Gateway(LOCATIONS).start()
    gateway.patient = True
    for name, path, first, second, status in SAME:
        suite.add("fingerprint, %s: %d" % (name, status), same_request, path, first, second, status)
    for path, methods in METHODS:
        for method in ("POST", "PATCH", "PUT", "DELETE"):
            suite.add("methods, %s %s" % (method, path), method_counts, path, method, method in methods)
    for path, status, final in FINAL:
        suite.add("final, %s %d: %s" % (path, status, final), status_is_final, path, status, final)
    for path, wanted in REPLAYED:
        suite.add("headers of a replay, %s" % path, headers_of_a_replay, path, wanted)
    for name in NEVER:
        suite.add("conf: %s is never replayed" % name, is_never_replayed, name)
    suite.run(gateways=[("the gateway", gateway)])


main()
