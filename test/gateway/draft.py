#!/usr/bin/env python3
"""draft-ietf-httpapi-idempotency-key-header-07, statement by statement (M1 to M6 are its MUSTs, S1 to
S7 its SHOULDs), and what it leaves open, as Once decided it."""
import glob
import json
import os
import re
import uuid

from gateway import (Client, Gateway, HERE, Location, SINGLE, Suite, expect, expect_equal, new_token, request_bytes, wait_for)

POLICY = "/.well-known/idempotency"
EVERYTHING = ("once required;", "once_tenant $http_x_account;", "once_key_header X-Key;", "once_key_format sf;", "once_methods POST PUT DELETE;",
              "once_fingerprint json header=X-Region exclude=/sent_at exclude=/meta/trace credential=X-My-Token;", "once_lease 10s;",
              "once_retention 2h;", "once_body_retention 1h;", "once_key_time off;", "once_wait 3s;", "once_takeover rerun;",
              "once_final 2xx 404 -204;", "once_max_response 2m;", "once_replay_headers ETag X-Order;")
# What is published of that.
SAID = {"mode": "required", "header": "X-Key", "key": {"format": "sf-string", "min_length": 1, "max_length": 255}, "methods": ["POST", "PUT", "DELETE"],
        "scope": "the caller", "fingerprint": {"body": "json", "headers": ["X-Region"], "credentials": ["X-My-Token"],
                                               "excluded_members": ["/sent_at", "/meta/trace"]},
        "retention_seconds": 7200, "body_retention_seconds": 3600, "key_time": False, "lease_seconds": 10, "wait_seconds": 3, "takeover": "rerun",
        "final_statuses": [[200, 203], [205, 299], [404, 404]], "max_response_bytes": 2 << 20, "replayed_headers": ["ETag", "X-Order"]}

LOCATIONS = (Location("/on/", "once on;", SINGLE),
             Location("/required/", "once required;", SINGLE),
             Location("/strict/", "once on;", SINGLE, "once_key_format sf;"),
             Location("/off/", "once off;"),
             Location("/observe/", "once observe;", SINGLE),
             Location("/named/", "once required;", SINGLE, "once_key_header PayPal-Request-Id;"),
             Location("/brief/", "once on;", SINGLE, "once_retention 1s;"),
             Location("= /.well-known/idempotency", "once_policy;", to=None),
             Location("= /policy", "once_policy;", "once required;", SINGLE, "once_key_header X-Key;", "once_retention 1h;",
                      "once_wait 2s;", "once_takeover rerun;", to=None),
             Location("= /everything", "once_policy;", *EVERYTHING, to=None),
             Location("/offering/", "once on;", SINGLE,
                      more=("proxy_http_version 1.1;", "proxy_set_header Upgrade $http_upgrade;", "proxy_set_header Connection $http_connection;")),
             Location("/plain/"))

suite = Suite()
gateway = None


def told(answer, status, title=None):
    """A problem document as the draft shows it (2.7), with a link to documentation."""
    expect_equal(answer.status, status, "the status of %s" % answer)
    problem = answer.problem()
    expect(problem is not None, "the answer is no problem document: %s" % answer)
    for member in ("type", "title", "detail", "code"):
        expect(isinstance(problem.get(member), str) and problem[member], "the problem has no %s: %s" % (member, problem))
    expect_equal(problem["status"], status, "the problem's status")
    expect(isinstance(problem.get("retryable"), bool), "the problem does not say whether to retry: %s" % problem)
    expect_equal(problem.get("error"), {"type": "idempotency_error" if status < 500 else "api_error", "code": problem["code"],
                                        "message": problem["detail"]}, "what Stripe's SDK looks at")
    expect_equal(problem["documentation"], POLICY, "where the documentation is")
    expect_equal(answer.all("Link"), ['<%s>; rel="describedby"; type="application/json"' % POLICY], "the link to documentation")
    expect_equal(answer.all("Content-Language"), ["en"], "the language")
    expect_equal(answer.all("Cache-Control"), ["no-store"], "who may keep it")
    expect_equal(problem["type"], "urn:once:problem:" + problem["code"], "the type")
    if title:
        expect_equal(problem["title"], title, "the title")
    expect(not answer.replayed, "an error says that it is a replay")
    return problem


MISSING = "Idempotency-Key is missing"
USED = "Idempotency-Key is already used"
OUTSTANDING = "A request is outstanding for this Idempotency-Key"


def ask(path, key=None, token=None, **named):
    return gateway.ask(path, key, token, **named)


# ------------------------------------------------------------------ M1: the field

ACCEPTED = [  # (name, the field's bytes with %s for a word of its own, the key that it is)
    ("quoted", b'"%s"', "%s"),
    ("bare", b"%s", "%s"),
    ("an escaped quote", b'"%s\\"b"', '%s"b'),
    ("an escaped backslash", b'"%s\\\\b"', "%s\\b"),
    ("a comma in quotes", b'"%s,b"', "%s,b"),
    ("a semicolon in quotes", b'"%s;b"', "%s;b"),
    ("blanks around", b'  \t"%s"\t ', "%s"),
    ("all kinds of visible characters", b"\"%s!#$%%&'()*+,-./:;<=>?@[]^_`{|}~\"", "%s!#$%%&'()*+,-./:;<=>?@[]^_`{|}~"),
    ("a bare backslash", b"%s\\b", "%s\\b"),
]


def accepted(path, field, key):
    token = new_token("k")
    value, key = field % token.encode(), key % token
    first = ask(path, value, token)
    expect_equal(first.status, 201, "the status")
    retry = ask(path, value, token)
    expect(retry.replayed, "the retry is no replay: %s" % retry)
    expect_equal(retry.lasting(), first.lasting(), "the replay")
    expect(gateway.record(key) is not None, "no record has the key %r" % key)
    expect_equal(gateway.effects(token), 1, "effects")


REFUSED = [  # (name, the field's bytes)
    ("empty", b""),
    ("blanks", b"   "),
    ("empty quotes", b'""'),
    ("256 quoted", b'"' + b"x" * 256 + b'"'),
    ("256 bare", b"x" * 256),
    ("256 by an escape", b'"' + b"x" * 255 + b'\\""'),
    ("7000 characters", b"x" * 7000),
    ("UTF-8 quoted", '"schlüssel"'.encode()),
    ("UTF-8 bare", "schlüssel".encode()),
    ("Latin-1", b'"schl\xfcssel"'),
    ("a control character", b'"a\x01b"'),
    ("DEL", b'"a\x7fb"'),
    ("a tab inside", b'"a\tb"'),
    ("a space in quotes", b'"a b"'),
    ("a space in a bare key", b"a b"),
    ("no closing quote", b'"abc'),
    ("no opening quote", b'abc"'),
    ("a lone quote", b'"'),
    ("an unknown escape", b'"a\\nb"'),
    ("bytes after the quote", b'"a"b'),
    ("a list", b'"a", "b"'),
    ("a bare list", b"a, b"),
    ("two strings", b'"a" "b"'),
    ("parameters", b'"a";v=1'),
    ("an inner list", b'("a")x"'),
]


def refused(path, field):
    """M6: and again, the same way. Nothing is forwarded, nothing stored."""
    token = new_token()
    before = set(gateway.records())
    problems = [told(ask(path, field, token), 400) for _ in range(2)]
    expect_equal(problems[0], problems[1], "the same request's second answer")
    expect_equal(gateway.effects(token), 0, "effects")
    expect(token not in str(gateway.upstream.seen), "it was forwarded")
    expect(not set(gateway.records()) - before, "a record was made")


@suite.case
def m1__255_characters_are_accepted():
    for form in (b"%s", b'"%s"'):
        key = (new_token() + "x" * 255)[:255]
        expect_equal(ask("/on/normal", form % key.encode(), key).status, 201, "the status")
        expect_equal(gateway.effects(key), 1, "effects")
    key = (new_token() + "x" * 255)[:254]
    expect_equal(ask("/on/normal", b'"' + key.encode() + b'\\""', key).status, 201, "the status of 255 by an escape")


@suite.case
def m1__quoted_and_bare_are_the_same_key():
    token = new_token()
    first = ask("/on/normal", token, token)
    retry = ask("/on/normal", token.encode(), token)
    expect(retry.replayed, "the bare form is another key")
    expect_equal(retry.lasting(), first.lasting(), "the replay")


@suite.case
def m1__strict_refuses_bare_keys():
    refused("/strict/normal", b"abc")
    refused("/strict/normal", b"3fa85f64-5717-4562-b3fc-2c963f66afa6")


@suite.case
def m1__a_repeated_field_is_no_item():
    for first, second in ((b'"a"', b'"b"'), (b'"a"', b'"a"'), (b"", b'"a"'), (b'"a"', b"")):
        token = new_token()
        answer = ask("/on/normal", first, token, headers=[("idempotency-key", second)])
        told(answer, 400)
        expect_equal(gateway.effects(token), 0, "effects")


@suite.case
def m1__a_nul_is_refused():
    token = new_token()
    answer = ask("/on/normal", b'"a\0b"', token)
    expect_equal(answer.status, 400, "the status")
    expect_equal(gateway.effects(token), 0, "effects")


@suite.case
def m1__a_folded_field_is_refused():
    token = new_token()
    answer = ask("/on/normal", b'"a\r\n b"', token)
    expect_equal(answer.status, 400, "the status")
    expect_equal(gateway.effects(token), 0, "effects")


@suite.case
def m1__the_names_case_does_not_matter():
    token = new_token()
    for name in ("idempotency-key", "IDEMPOTENCY-KEY", "Idempotency-Key"):
        answer = ask("/on/normal", None, token, headers=[(name, '"%s"' % token)])
        expect_equal(answer.status, 201, "the status")
    expect_equal(gateway.effects(token), 1, "effects")


@suite.case
def recommended__uuids_are_keys():
    for key in (str(uuid.uuid4()), str(uuid.uuid4()).upper()):
        token = new_token()
        for _ in range(2):
            expect_equal(ask("/on/normal", key, token).status, 201, "the status")
        expect_equal(gateway.effects(token), 1, "effects")


# ------------------------------------------------------------------ M2, S5: another payload

def mismatch(change):
    """422; and the record is as it was: the first request's retry is a replay (K6)."""
    token = new_token()
    first = ask("/on/normal?a=1", token, token)
    before = gateway.record(token)
    request = {"path": "/on/normal?a=1", "method": "POST", "body": b'{"amount":25}'}
    request.update(change)
    for _ in range(2):
        problem = told(ask(request["path"], token, token, method=request["method"], body=request["body"]), 422, USED)
        expect(problem["retryable"] is False, "a mismatch says that it may be retried")
        expect(str(first.body) not in str(problem), "the mismatch tells the first answer")
    expect_equal(gateway.effects(token), 1, "effects")
    after = gateway.record(token)
    for name in ("fence", "attempt", "state", "expires_at"):
        expect_equal(after[name], before[name], "the record's %s" % name)
    expect_equal(ask("/on/normal?a=1", token, token).lasting(), first.lasting(), "the first request's retry")


CHANGES = {
    "another body": {"body": b'{"amount":26}'},
    "an empty body": {"body": b""},
    "no body": {"body": None},
    "one byte more": {"body": b'{"amount":25}x'},
    "another number's spelling": {"body": b'{"amount":25.0}'},
    "another method": {"method": "PATCH"},
    "another path": {"path": "/on/echo?a=1"},
    "another query": {"path": "/on/normal?a=2"},
    "no query": {"path": "/on/normal"},
    "another path's spelling": {"path": "/on/normal/?a=1"},
}


@suite.case
def m2__another_serialisation_of_the_same_json_is_the_same_request():
    token = new_token()
    kind = [("Content-Type", "application/json")]
    first = ask("/on/normal", token, token, headers=kind, body=b'{"amount":25,"to":["ann",null]}')
    retry = ask("/on/normal", token, token, headers=kind, body=b'{ "to": ["ann",\n null], "amount":25 }')
    expect(retry.replayed, "the retry is no replay: %s" % retry)
    expect_equal(retry.lasting(), first.lasting(), "the replay")


@suite.case
def m2__a_mismatch_while_it_runs_is_told_so():
    token = new_token()
    with Client(gateway.port) as first:
        first.send(request("/on/held", token, b"{}"))
        wait_for(lambda: gateway.effects(token), "the execution")
        told(ask("/on/held", token, token, body=b"[]"), 422, USED)
        gateway.upstream.open_gate(token)
        expect_equal(first.read().status, 201, "the first one's status")


def request(path, token, body):
    return request_bytes("POST", path, [("Host", "g"), ("Idempotency-Key", '"%s"' % token), ("X-Test", token),
                                        ("Content-Length", str(len(body)))], body)


# ------------------------------------------------------------------ until when a key counts

EXPIRES = "Idempotency-Expires"


@suite.case
def expiry__is_said_wherever_there_is_a_record():
    """By the answer itself and its replays: one and the same moment. In progress: not before. Unknown: not
    without a person."""
    token = new_token()
    first = ask("/on/normal", token, token)
    expect(re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", first.get(EXPIRES) or ""), "no date: %s" % first)
    expect_equal(ask("/on/normal", token, token).get(EXPIRES), first.get(EXPIRES), "the replay's")
    held = new_token()
    with Client(gateway.port) as client:
        client.send(request("/on/held", held, b"{}"))
        wait_for(lambda: gateway.effects(held), "the execution")
        busy = ask("/on/held", held, held, body=b"{}")
        expect_equal((busy.status, (busy.get(EXPIRES) or "")[-4:]), (409, " GMT"), "in progress: %s" % busy)
        gateway.upstream.open_gate(held)
        client.read()
    broken = new_token()
    for _ in range(2):
        answer = ask("/on/reset_after_reading", broken, broken)
        expect_equal((answer.code(), answer.get(EXPIRES)), ("outcome-unknown", "never"), "unknown: %s" % answer)


@suite.case
def expiry__is_not_said_where_there_is_no_record():
    """Or where it is another's request's: that learns nothing about it (K6)."""
    token = new_token()
    ask("/on/normal", token, token)
    answer = ask("/on/normal", token, token, body=b"other")
    expect_equal((answer.status, answer.get(EXPIRES)), (422, None), "a mismatch: %s" % answer)
    for field in (b'"', b""):
        answer = ask("/on/normal", field, new_token())
        expect_equal((answer.status, answer.get(EXPIRES)), (400, None), "refused: %s" % answer)


# ------------------------------------------------------------------ M3 to M5, S1: published

def policy(path):
    answer = gateway.ask(path, method="GET", body=None)
    expect_equal(answer.status, 200, "the status")
    expect((answer.get("Content-Type") or "").startswith("application/json"), "its type is %s" % answer.get("Content-Type"))
    return json.loads(answer.body)


@suite.case
def m3_m4_m5_s1__a_policy_is_published():
    """How a key looks, for whom it counts, what it is compared with, when it expires."""
    said = policy("/policy")
    expect_equal((said["mode"], said["header"], said["retention_seconds"], said["wait_seconds"]), ("required", "X-Key", 3600, 2), "the policy")
    expect_equal(said["key"]["max_length"], 255, "a key's length")
    expect_equal(said["takeover"], "rerun", "the takeover")
    for name in ("methods", "scope", "fingerprint", "final_statuses", "replayed_headers", "errors"):
        expect(name in said, "the policy does not say %s" % name)


@suite.case
def m3_m4_m5_s1__the_policy_says_what_is_configured():
    """Every member of it, in words that differ from the defaults; where nothing was said, the defaults."""
    said = policy("/everything")
    expect_equal({name: said.get(name) for name in SAID}, SAID, "the policy")
    expect_equal(set(said), {*SAID, "errors", "locations"}, "its members")
    default = next(place for place in said["locations"] if place["location"] == "/on/")
    expect_equal((default["mode"], default["methods"], default["scope"], default["takeover"]), ("on", ["POST", "PATCH"], "all callers", "escalate"), "the defaults")
    expect_equal(default["final_statuses"], [[200, 400], [402, 402], [404, 407], [410, 424], [426, 428], [430, 499]], "the final statuses")
    expect_equal(default["fingerprint"], {"body": "json if the Content-Type is JSON, otherwise exact", "headers": [], "credentials": [], "excluded_members": []}, "the fingerprint")
    expect_equal((default["retention_seconds"], default["max_response_bytes"], default["key_time"]), (86400, 1 << 20, True), "the defaults")


@suite.case
def m4__the_errors_that_are_published_are_those_that_come():
    said, token = policy("/policy")["errors"], new_token()
    ask("/on/normal", token, token)
    late = "01000000-0000-7000-8000-%012x" % int(token.split("-")[2])
    ahead = "ff000000-0000-7000-8000-000000000000"
    for name, answer in (("missing", ask("/required/normal", None, new_token())), ("malformed", ask("/on/normal", b'"', new_token())),
                         ("reused", ask("/on/normal", token, token, body=b"another")), ("key_expired", ask("/on/normal", late, late)),
                         ("key_from_future", ask("/on/normal", ahead, ahead))):
        expect_equal(answer.status, said[name], name)


@suite.case
def m4__every_code_has_its_line_in_the_documentation():
    """Of the problem documents that the module makes, in the reference and in the failure guide."""
    codes = set()
    for path in glob.glob(os.path.join(HERE, "../../src/gateway/*.c")):
        with open(path, encoding="utf-8") as file:
            codes |= set(re.findall(r'"([a-z]+(?:-[a-z]+)+)",\s*(?:"[A-Z]|record)', file.read()))  # a title follows
    expect(len(codes) > 15, "codes in the module: %s" % codes)
    for page in ("nginx.md", "failures.md"):
        with open(os.path.join(HERE, "../../docs", page), encoding="utf-8") as file:
            text = file.read()
        expect_equal([code for code in sorted(codes) if "`%s`" % code not in text], [], "codes that %s does not have" % page)


@suite.case
def m4__the_policy_is_that_of_every_location():
    """Where locations differ, so does what is published about them."""
    text = json.dumps(policy("/.well-known/idempotency")).lower()
    for word in ("/on/", "/required/", "/brief/", "paypal-request-id"):
        expect(word in text, "the policy does not say %s: %s" % (word, text))
    expect("/plain/" not in text, "the policy has a location where nothing is promised")


@suite.case
def s1__after_its_retention_a_key_is_like_new():
    token = new_token()
    first = ask("/brief/normal", token, token)
    expect_equal(first.status, 201, "the status")
    again = gateway.ask_until(lambda answer: not answer.replayed, "/brief/normal", token, token)
    expect_equal(again.status, 201, "the status")
    expect_equal(gateway.effects(token), 2, "effects")


@suite.case
def s1__answers_carry_their_expiry():
    token = new_token()
    first = ask("/on/normal", token, token)
    retry = ask("/on/normal", token, token)
    names = [name for name, _ in first.headers if "expir" in name.lower()]
    expect(names, "no expiry in %s" % first)
    expect_equal(retry.get(names[0]), first.get(names[0]), "the replay's expiry")


# ------------------------------------------------------------------ M6, S2 to S7: enforcement

@suite.case
def s3_s4__a_new_key_executes_and_a_retry_gets_its_result():
    token = new_token()
    first = ask("/on/normal", token, token)
    expect_equal(first.status, 201, "the status")
    for _ in range(3):
        retry = ask("/on/normal", token, token)
        expect(retry.replayed, "the retry is no replay")
        expect_equal(retry.lasting(), first.lasting(), "the replay")
    expect_equal(gateway.effects(token), 1, "effects")


@suite.case
def s4__a_retry_gets_an_error_too():
    token = new_token()
    first = ask("/on/status_402", token, token)
    retry = ask("/on/status_402", token, token)
    expect_equal((first.status, retry.status, retry.replayed), (402, 402, True), "the answers")
    expect_equal(retry.lasting(), first.lasting(), "the replay")


@suite.case
def s6__while_it_runs_409():
    token = new_token()
    with Client(gateway.port) as first:
        first.send(request("/on/held", token, b"{}"))
        wait_for(lambda: gateway.effects(token), "the execution")
        answer = ask("/on/held", token, token, body=b"{}")
        problem = told(answer, 409, OUTSTANDING)
        expect(problem["retryable"] is True, "the problem does not say that it may be retried")
        expect(int(answer.get("Retry-After")) >= 1, "Retry-After: %s" % answer.get("Retry-After"))
        gateway.upstream.open_gate(token)
        stored = first.read()
    expect_equal(ask("/on/held", token, token, body=b"{}").lasting(), stored.lasting(), "the retry after that")


@suite.case
def s7_m6__a_required_key_is_missing():
    token = new_token()
    for path, method in (("/required/normal", "POST"), ("/required/normal", "PATCH"), ("/named/normal", "POST")):
        problems = [told(ask(path, None, token, method=method), 400) for _ in range(2)]
        expect_equal(problems[0], problems[1], "the second answer")
    told(ask("/required/normal", None, token), 400, MISSING)
    expect_equal(gateway.effects(token), 0, "effects")


@suite.case
def m6__other_keys_are_not_touched_by_a_bad_request():
    token = new_token()
    first = ask("/on/normal", token, token)
    told(ask("/on/normal", b'"%s' % token.encode(), token), 400)
    expect_equal(ask("/on/normal", token, token).lasting(), first.lasting(), "the replay")


# ------------------------------------------------------------------ what the draft leaves open

@suite.case
def open__without_a_key_nothing_is_kept():
    token = new_token()
    for _ in range(2):
        answer = ask("/on/normal", None, token)
        expect_equal((answer.status, answer.replayed), (201, False), "the answer")
    expect_equal(gateway.effects(token), 2, "effects")


@suite.case
def open__get_and_head_are_safe_anyway():
    for method in ("GET", "HEAD", "OPTIONS"):
        token = new_token()
        for path in ("/on/normal", "/required/normal"):
            answer = ask(path, token, token, method=method, body=None)
            expect_equal((answer.status, answer.replayed), (201, False), "the answer to %s %s" % (method, path))
        expect_equal(gateway.effects(token), 2, "requests that were passed on")
        expect(gateway.record(token) is None, "a record was made")


@suite.case
def open__off_means_off():
    token = new_token()
    for field in (token, token, b'"malformed'):
        expect_equal(ask("/off/normal", field, token).status, 201, "the status")
    expect_equal(gateway.effects(token), 3, "effects")


@suite.case
def open__observe_changes_nothing():
    token = new_token()
    for field in (token, token, b'"malformed'):
        answer = ask("/observe/normal", field, token)
        expect_equal((answer.status, answer.replayed), (201, False), "the answer")
    expect_equal(gateway.effects(token), 3, "effects")


@suite.case
def open__another_fields_name():
    token = new_token()
    for _ in range(2):
        expect_equal(ask("/named/normal", None, token, headers=[("PayPal-Request-Id", token)]).status, 201, "the status")
    expect_equal(gateway.effects(token), 1, "effects")
    other = new_token()
    told(ask("/named/normal", other, other), 400)  # this name is not the key's here


@suite.case
def open__an_upgrade_with_a_key_is_refused():
    for protocols in (["websocket"], ["h2c, websocket"], ["h2c", "websocket"], ["websocket", "h2c"], ["h2"], ["h2cc"]):
        token = new_token()
        told(ask("/on/normal", token, token, headers=[("Connection", "Upgrade"), *(("Upgrade", name) for name in protocols)]), 400)
        expect_equal(gateway.effects(token), 0, "effects of an upgrade to %s" % protocols)


@suite.case
def open__an_offer_of_http_2_is_ignored():
    """Java's HttpClient makes it with every POST over plain HTTP, unless told not to; so does curl --http2."""
    for offer in ("h2c", "H2C"):
        for path in ("/on/echo", "/offering/echo"):
            token = new_token()
            headers = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", offer), ("HTTP2-Settings", "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA")]
            first, retry = ask(path, token, token, headers=headers), ask(path, token, token)
            expect_equal((first.status, retry.status, retry.replayed), (200, 200, True), "the answers to an offer, and without")
            expect_equal(gateway.effects(token), 1, "effects")
            seen = {name.lower() for name, _ in json.loads(first.body)["headers"]}
            expect(not seen & {"upgrade", "http2-settings"}, "the upstream was offered it: %s" % seen)


@suite.case
def open__the_upstream_never_gets_the_raw_key_twice():
    """What is forwarded of the key is one field at most, and never two."""
    token = new_token()
    seen = json.loads(ask("/on/echo", token, token).body)["headers"]
    names = [name.lower() for name, _ in seen]
    expect(names.count("idempotency-key") <= 1, "forwarded: %s" % seen)


@suite.case
def open__no_replay_is_cached():
    """A shared cache must not take an answer to a keyed request for everybody's."""
    token = new_token()
    first, retry = ask("/on/normal", token, token), ask("/on/normal", token, token)
    expect("public" not in str(retry.get("Cache-Control")), "Cache-Control: %s" % retry.get("Cache-Control"))
    expect_equal(first.status, 201, "the status")


def main():
    global gateway
    suite.require()
    gateway = Gateway(LOCATIONS).start()
    gateway.patient = True
    for name, field, key in ACCEPTED:
        suite.add("m1: %s is accepted" % name, accepted, "/on/normal", field, key)
        if field.strip()[:1] == b'"':
            suite.add("m1: %s is accepted, strict" % name, accepted, "/strict/normal", field, key)
    for name, field in REFUSED:
        for path in ("/on/normal", "/strict/normal", "/required/normal"):
            suite.add("m1, m6: %s is refused, %s" % (name, path.split("/")[1]), refused, path, field)
    for name, change in CHANGES.items():
        suite.add("m2, s5: %s is a mismatch" % name, mismatch, change)
    suite.run(gateways=[("the gateway", gateway)])


main()
