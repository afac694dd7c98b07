#!/usr/bin/env python3
"""What is refused: bad JSON, members, paths, methods, types, sizes, hosts, origins. None of it
does anything, and each answer is a problem document that says what is wrong."""
import base64
import json
import os
import random

from apitest import Server, ask_on, equal, finish, grant, ok, raw_answer

server = Server()
PROBLEM = {"type", "title", "status", "code", "detail", "retryable"}
held = grant(server.post("claim", key="held"))
record, fence = held["record"], held["fence"]


def refused(name, got, status, code, member=None, says=""):
    got_status, headers, answer = got
    good = (got_status == status and isinstance(answer, dict) and set(answer) - {"member"} == PROBLEM and
            answer["status"] == status and answer["code"] == code and answer["type"] == "urn:once:problem:" + code and
            answer.get("member") == member and says in answer["detail"] and
            headers["Content-Type"] == "application/problem+json")
    ok(good, name, "wanted %s %s %s %r" % (status, code, member, says), got_status, headers, answer)


# ---------------------------------------------------------------- bodies: (path, body, member, words)
deep = '{"key":%s1%s}' % ("[" * 5, "]" * 5)
parts = b"app", b"POST", b"/", b"", b"", b""
wants_identity = base64.b64encode(b"OR1\x02" + bytes(79) + b"".join(len(p).to_bytes(4, "big") + p for p in parts)).decode()
BODIES = [
    ("claim", b"", None, "empty"),
    ("claim", b"   ", None, "not JSON"),
    ("claim", b"{", None, "not JSON"),
    ("claim", b"{}}", None, "not JSON: wrong or incomplete at byte"),
    ("claim", b"{} {}", None, "not JSON"),
    ("claim", b"[]", None, "must be an object"),
    ("claim", b'"key"', None, "must be an object"),
    ("claim", b"null", None, "must be an object"),
    ("claim", b"17", None, "must be an object"),
    ("claim", b"{key:1}", None, "not JSON"),
    ("claim", b"{'key':'k'}", None, "not JSON"),
    ("claim", b'{"key":"k",}', None, "not JSON"),
    ("claim", b'{"key":"k" /* c */}', None, "not JSON"),
    ("claim", b'\xef\xbb\xbf{"key":"k"}', None, "not JSON"),
    ("claim", b'{"key":"k\x00"}', None, "not JSON"),
    ("claim", b'{"key":"k\n"}', None, "not JSON"),
    ("claim", b'{"key":"k', None, "not JSON"),
    ("claim", b'{"key":"\\x"}', None, "not JSON"),
    ("claim", b'{"key":"\\ud800"}', None, "not JSON"),
    ("claim", b'{"key":"\\udc00\\ud800"}', None, "not JSON"),
    ("claim", b'{"key":"\xff"}', None, "not UTF-8 at byte 8"),
    ("claim", b'{"key":"\xc0\xaf"}', None, "not UTF-8"),
    ("claim", b'{"key":"\xed\xa0\x80"}', None, "not UTF-8"),
    ("claim", b'{"key":"k"}\x0b', None, "not JSON"),
    ("claim", b'{"key":NaN}', None, "not JSON"),
    ("claim", b'{"key":"k","lease_ms":01}', None, "not JSON"),
    ("claim", deep.encode(), None, "deeper"),
    ("claim", b'{"key":"k","key":"k"}', "key", "repeated"),
    ("claim", b'{"key":"k","\\u006bey":"k"}', "key", "repeated"),
    ("claim", b'{"key":"k","x":{"a":1,"a":1}}', "a", "repeated"),
    ("claim", "{}", "key", "missing"),
    ("claim", {"key": "k", "x": 1}, "x", "known member"),
    ("claim", {"key": "k", "": 1}, None, "known member"),
    ("claim", {"key": "k", "stored_request_base64": wants_identity}, "stored_request", "the daemon's credentials"),
    ("claim", {"key": "k", "Key": "k"}, "Key", "known member"),
    ("claim", {"key": "k", "fence": 1}, "fence", "known member"),
    ("claim", {"key": None}, "key", "must be a text, is null"),
    ("claim", {"key": 17}, "key", "must be a text, is a number"),
    ("claim", {"key": ["k"]}, "key", "must be a text, is a list"),
    ("claim", {"key": {"k": 1}}, "key", "must be a text, is an object"),
    ("claim", {"key": True}, "key", "must be a text, is true or false"),
    ("claim", {"key": ""}, None, "key"),
    ("claim", {"key": "k" * 256}, None, "255"),
    ("claim", {"key": "k", "tenant": "t" * 256}, None, "255"),
    ("claim", {"key": "k", "tenant": None}, "tenant", "must be a text"),
    ("claim", {"key": "k", "key_base64": "aw=="}, "key_base64", "exclude each other"),
    ("claim", {"key_base64": "aw"}, "key_base64", "base64"),
    ("claim", {"key_base64": "a w="}, "key_base64", "base64"),
    ("claim", {"key_base64": "aw==\n"}, "key_base64", "base64"),
    ("claim", {"key_base64": "a==="}, "key_base64", "base64"),
    ("claim", {"key_base64": "===="}, "key_base64", "base64"),
    ("claim", {"key_base64": "_-=="}, "key_base64", "base64"),
    ("claim", {"key_base64": 1}, "key_base64", "must be a text"),
    ("claim", {"key": "k", "lease_ms": "1"}, "lease_ms", "must be a number"),
    ("claim", {"key": "k", "lease_ms": -1}, "lease_ms", "from 0 to 86400000"),
    ("claim", {"key": "k", "lease_ms": 86400001}, "lease_ms", "from 0 to 86400000"),
    ("claim", b'{"key":"k","lease_ms":1.0}', "lease_ms", "without point"),
    ("claim", b'{"key":"k","lease_ms":1e3}', "lease_ms", "without point"),
    ("claim", b'{"key":"k","lease_ms":99999999999999999999999}', "lease_ms", "whole number"),
    ("claim", b'{"key":"k","lease_ms":18446744073709551617}', "lease_ms", "whole number"),
    ("claim", {"key": "k", "retention_ms": "forever"}, "retention_ms", "must be a number"),
    ("claim", {"key": "k", "retention_ms": None}, "retention_ms", "must be a number"),
    ("claim", {"key": "k", "retention_ms": -1}, "retention_ms", "from 0"),
    ("claim", {"key": "k", "body_retention_ms": "forever"}, "body_retention_ms", "must be a number"),
    ("claim", {"key": "k", "body_retention_ms": -1}, "body_retention_ms", "from 0"),
    ("claim", {"key": "k", "body_retention_ms": 86400001}, None, "longer than the record's"),
    ("claim", {"key": "k", "body_retention_ms": "never"}, None, "for ever"),
    ("claim", {"key": "k", "key_time": "yes"}, "key_time", "must be"),
    ("claim", {"key": "k", "wait_ms": 60001}, "wait_ms", "from 0 to 60000"),
    ("claim", {"key": "k", "takeover": "steal"}, "takeover", "escalate, rerun, probe"),
    ("claim", {"key": "k", "takeover": 1}, "takeover", "must be a text"),
    ("claim", {"key": "k", "nonce": "ab"}, "nonce", "32 hex digits"),
    ("claim", {"key": "k", "nonce": "g" * 32}, "nonce", "32 hex digits"),
    ("claim", {"key": "k", "fingerprint": "ab" * 31}, "fingerprint", "64 hex digits"),
    ("claim", {"key": "k", "fingerprint": "ab" * 32, "request": {}}, "request", "exclude each other"),
    ("claim", {"key": "k", "request": "POST /"}, "request", "must be an object"),
    ("claim", {"key": "k", "request": {"x": 1}}, "request.x", "known member"),
    ("claim", {"key": "k", "request": {"path": 1}}, "request.path", "must be a text"),
    ("claim", {"key": "k", "request": {"json": 1}}, "request.json", "must be true or false"),
    ("claim", {"key": "k", "request": {"headers": {"a": "b"}}}, "request.headers", "must be a list"),
    ("claim", {"key": "k", "request": {"headers": ["a"]}}, "request.headers", "lists of 2 texts"),
    ("claim", {"key": "k", "request": {"headers": [["a"]]}}, "request.headers", "a list of 1 texts"),
    ("claim", {"key": "k", "request": {"headers": [["a", 1]]}}, "request.headers", "must be texts"),
    ("claim", {"key": "k", "request": {"json": True, "body": "{}", "exclude": ["x"]}}, None, "x"),
    ("claim", {"key": "k", "request": {"exclude": [1]}}, "request.exclude", "must be texts"),
    ("extend", {}, "record", "missing"),
    ("extend", {"record": record}, "fence", "missing"),
    ("extend", {"record": record[:-1], "fence": 1}, "record", "32 hex digits"),
    ("extend", {"record": 17, "fence": 1}, "record", "must be a text"),
    ("extend", {"record": record, "fence": "1"}, "fence", "must be a number"),
    ("extend", {"record": record, "fence": -1}, "fence", "whole number"),
    ("extend", b'{"record":"%s","fence":18446744073709551616}' % record.encode(), "fence", "whole number"),
    ("extend", {**held, "lease_ms": True}, "lease_ms", "must be a number"),
    ("extend", {**held, "point": "p"}, "point", "known member"),
    ("advance", {**held}, "point", "missing"),
    ("advance", {**held, "point": ""}, None, "point"),
    ("advance", {**held, "point": "p" * 65}, None, "64"),
    ("advance", {**held, "point": "p", "checkpoint": 5}, "checkpoint", "must be a text"),
    ("finish", {**held}, "state", "missing"),
    ("finish", {**held, "state": "running"}, "state", "succeeded, failed, unknown"),
    ("finish", {**held, "state": "done"}, "state", "succeeded, failed, unknown"),
    ("finish", {**held, "state": "succeeded", "status": 2147483648}, "status", "whole number"),
    ("finish", {**held, "state": "succeeded", "status": "200"}, "status", "must be a number"),
    ("finish", {**held, "state": "succeeded", "retryable": "no"}, "retryable", "must be true or false"),
    ("finish", {**held, "state": "succeeded", "retryable": True}, None, "retryable"),
    ("finish", {**held, "state": "succeeded", "body": {"a": 1}}, "body", "must be a text, is an object"),
    ("finish", {**held, "state": "succeeded", "body": "a", "body_base64": ""}, "body_base64", "exclude each other"),
    ("finish", {**held, "state": "succeeded", "body": "a", "body_dropped": True}, None, "body"),
    ("finish", {**held, "state": "succeeded", "headers": ["A: b"]}, "headers", "must be a text"),
    ("release", {"fence": fence}, "record", "missing"),
    ("release", {**held, "state": "failed"}, "state", "known member"),
    ("take-over", {"record": record}, "fence", "missing"),
    ("take-over", {**held, "lease_ms": 86400001}, "lease_ms", "whole number"),
    ("take-over", {**held, "intent": 1}, "intent", "must be true or false"),
    ("take-over", {**held, "takeover": "rerun"}, "takeover", "known member"),
    ("child-key", {"record": record}, "call", "missing"),
    ("child-key", {**held, "call": "c"}, "fence", "known member"),
]
for verb, body, member, words in BODIES:
    shown = body if isinstance(body, bytes) else json.dumps(body).encode()
    refused("%s %s" % (verb, shown[:60].decode("latin-1").encode("unicode_escape").decode()),
            server.ask("POST", "/v1/" + verb, body), 400, "invalid", member, words)
equal([server.look(k)["arm"] for k in ("k", "held")], ["absent", "found"], "none of that claimed anything")
equal(server.look("held")["state"], "running", "or finished anything")

# ---------------------------------------------------------------- bodies that nobody thought of
PARTS = [b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\u0000", b"\\ud800", b"null", b"true", b"1e5", b"-", b"\xff", b"=",
         b'"key"', b"18446744073709551616", b"\\", b"\0"]
SEEDS = [json.dumps({"key": "fuzz", "tenant_base64": "aw==", "lease_ms": 10, "takeover": "rerun", "nonce": "a" * 32,
                     "request": {"method": "P", "headers": [["a", "b"]], "body": "{}", "json": True, "exclude": ["/a"]}}),
         json.dumps({"record": "0" * 32, "fence": 1, "state": "succeeded", "status": 200, "headers": "A: b\r\n",
                     "body": "\U0001f600"})]
seed = int(os.environ.get("SEED", "1"))
chance, client, odd = random.Random(seed), server.client(), []
for n in range(2000):
    body = bytearray(chance.choice(SEEDS).encode())
    for _ in range(chance.randint(1, 6)):
        at, how = chance.randrange(len(body) + 1), chance.randrange(4)
        if how == 0:
            body[at:at + 1] = bytes([chance.randrange(256)])
        elif how == 1:
            body[at:at] = chance.choice(PARTS)
        elif how == 2:
            del body[at:at + chance.randint(1, 8)]
        else:
            body[at:at] = body[chance.randrange(len(body) + 1):][:chance.randint(1, 20)]
    verb = chance.choice(["claim", "take-over", "extend", "advance", "finish", "release", "child-key"])
    status, _, answer = ask_on(client, "POST", "/v1/" + verb, bytes(body))
    if status not in (200, 400) or not isinstance(answer, dict) or (status == 200) == ("code" in answer):
        odd.append((verb, bytes(body), status, answer))
client.close()
ok(not odd, "2000 broken bodies, SEED=%d" % seed, odd[:3])

# ---------------------------------------------------------------- sizes
LARGE = [
    ("extend", b" " * (16 << 10) + b"{}", 413, "limit-exceeded"),
    ("advance", b" " * (512 << 10) + b"{}", 413, "limit-exceeded"),
    ("finish", b" " * (24 << 20) + b"{}", 413, "limit-exceeded"),
    ("finish", {**held, "state": "succeeded", "body": "x" * ((16 << 20) + 1)}, 413, "limit-exceeded"),
    ("finish", {**held, "state": "succeeded", "headers": "x" * ((64 << 10) + 1)}, 413, "limit-exceeded"),
    ("advance", {**held, "point": "p", "checkpoint": "x" * ((64 << 10) + 1)}, 413, "limit-exceeded"),
    ("claim", {"key": "k", "request": {"exclude": ["/a"] * 65}}, 413, "limit-exceeded"),
    ("claim", {"key": "k", "request": {"headers": [["a", "b"]] * 65}}, 413, "limit-exceeded"),
    ("claim", {"key": "k", "stored_request": "x" * ((1 << 20) + (64 << 10) + 1)}, 413, "limit-exceeded"),
    ("claim", {"x%d" % i: 1 for i in range(1100)}, 413, "limit-exceeded"),
]
for verb, body, status, code in LARGE:
    got = server.ask("POST", "/v1/" + verb, body)
    refused("too large for %s" % verb, got, status, code, got[2].get("member"))
connection = server.connect()
connection.sendall(b"POST /v1/extend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   b"Transfer-Encoding: chunked\r\n\r\n" + (b"1000\r\n" + b" " * 4096 + b"\r\n") * 5 + b"0\r\n\r\n")
refused("too large in pieces", raw_answer(connection), 413, "limit-exceeded")
connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
equal(raw_answer(connection)[0], 200, "and the connection goes on")
connection.close()
connection = server.connect()
connection.sendall(b"POST /v1/finish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   b"Content-Length: 30000000\r\nExpect: 100-continue\r\n\r\n")
refused("too large, asked before it is sent", raw_answer(connection), 413, "limit-exceeded", says="30000000")
connection.close()
connection = server.connect()
connection.sendall(b"POST /v1/finish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   b"Content-Length: 99999999999999999999999\r\n\r\n")
ok(connection.recv(4096)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 413", b""), "a length without sense")
connection.close()
connection = server.connect()
body = b'{"key":"expect"}'
connection.sendall(b"POST /v1/claim HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(body))
equal(connection.recv(4096), b"HTTP/1.1 100 Continue\r\n\r\n", "what is welcome is told to come")
connection.sendall(body)
equal(raw_answer(connection)[2]["arm"], "execute", "and is answered")
connection.close()

# ---------------------------------------------------------------- queries
for query, member, words in [
    ("", "key", "missing"), ("?tenant=t", "key", "missing"), ("?key=a&key=b", "key", "repeated"),
    ("?key=a&x=1", "x", "known parameter"), ("?key=%", "key", "hex digits"), ("?key=%4", "key", "hex digits"),
    ("?key=%zz", "key", "hex digits"), ("?key=" + "k" * 257, "key", "too long"), ("?key=" + "k" * 256, None, "255"),
    ("?key=", None, "key"), ("?record=", "record", "hex digits"), ("?record=" + "0g" * 16, "record", "hex digits"),
    ("?record=" + "0" * 32, None, "key"), ("?key=k&record=" + "0f" * 16, "record", "combined"), ("?tenant=&record=" + "0f" * 16, "record", "combined"), ("?KEY=k", "KEY", "known parameter"), ("?key=a;tenant=b&", None, None),
]:
    got = server.ask("GET", "/v1/records" + query)
    if words is None:
        equal((got[0], got[2]["arm"]), (200, "absent"), "a key with a semicolon")
    else:
        refused("query '%s'" % query[:20], got, 400, "invalid", member, words)

# ---------------------------------------------------------------- paths, methods
for path in "/", "/v1", "/v1/", "/v1/claim/", "/v1/Claim", "/v2/claim", "//v1/claim", "/v1/%63laim", "/metrics/x", "*":
    refused("no such path " + path, server.ask("GET", path), 404, "not-found")
GET, POST = ["/v1/records", "/healthz", "/metrics"], ["claim", "take-over", "extend", "advance", "finish", "release", "child-key"]
for path in GET:
    for method in "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW":
        got = server.ask(method, path, b"{}" if method == "POST" else None)
        refused("%s %s" % (method, path), got, 405, "method-not-allowed", says="GET, HEAD")
        equal(got[1]["Allow"], "GET, HEAD", "what it allows")
for verb in POST:
    for method in "GET", "PUT", "OPTIONS":
        got = server.ask(method, "/v1/" + verb)
        refused("%s /v1/%s" % (method, verb), got, 405, "method-not-allowed")
        equal(got[1]["Allow"], "POST", "what it allows")
    status, headers, body = server.ask("HEAD", "/v1/" + verb)
    equal((status, headers["Allow"], body), (405, "POST", ""), "HEAD /v1/%s, without a body" % verb)
for path in "/healthz", "/metrics", "/v1/records?key=held":
    status, headers, body = server.ask("HEAD", path)
    equal((status, body, int(headers["Content-Length"]) > 5), (200, "", True), "HEAD " + path)

# ---------------------------------------------------------------- types
for kind in None, "", "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "text/json", "application/json-seq":
    refused("type %s" % kind, server.ask("POST", "/v1/claim", b'{"key":"k"}', {"Content-Type": kind}), 415,
            "unsupported-media-type")
for n, kind in enumerate(["application/json", "Application/JSON; charset=utf-8", "application/json ;charset=UTF-8"]):
    equal(server.ask("POST", "/v1/claim", {"key": "type %d" % n}, {"Content-Type": kind})[0], 200, "type " + kind)

# ---------------------------------------------------------------- hosts, origins
port = server.port
HOSTS = [
    ({"Host": "localhost"}, True), ({"Host": "LOCALHOST:%d" % port}, True), ({"Host": "127.0.0.1:%d" % port}, True),
    ({"Host": "127.9.9.9"}, True), ({"Host": "[::1]:9"}, True), ({"Host": "[::1]"}, True),
    ({"Host": "evil.example"}, False), ({"Host": "evil.example:%d" % port}, False), ({"Host": "10.0.0.1"}, False),
    ({"Host": "localhost.evil.example"}, False), ({"Host": "127.0.0.1.evil.example"}, False), ({"Host": ""}, False),
    ({"Host": "localhost:x"}, False), ({"Host": "[::1"}, False), ({"Host": "::1"}, False), ({"Host": "[::2]"}, False),
    ({"Host": "localhost@evil.example"}, False), ({"Host": "0x7f.1"}, False),
    ([("Host", "localhost"), ("Host", "evil.example")], False),
    ([("Host", "evil.example"), ("Host", "localhost")], False),
    ([("Origin", "http://evil.example"), ("Origin", "http://127.0.0.1:%d" % port)], False),
    ([("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Site", "none")], False),
    ({"Origin": "http://evil.example"}, False), ({"Origin": "null"}, False), ({"Origin": ""}, False),
    ({"Origin": "http://localhost:3000"}, False), ({"Origin": "https://127.0.0.1:%d" % port}, False),
    ({"Origin": "http://127.0.0.1:%d" % port}, True), ({"Origin": "http://127.0.0.1:%d.evil.example" % port}, False),
    ({"Host": "localhost:5", "Origin": "http://localhost:5"}, True),
    ({"Sec-Fetch-Site": "cross-site"}, False), ({"Sec-Fetch-Site": "same-site"}, False),
    ({"Sec-Fetch-Site": "same-origin"}, True), ({"Sec-Fetch-Site": "none"}, True),
]
for headers, welcome in HOSTS:
    for method, path, body in (("GET", "/healthz", None), ("POST", "/v1/claim", {"key": "host"})):
        if method == "POST" and welcome:
            continue
        got = server.ask(method, path, body, headers)
        if got[0] == 400 and not welcome and isinstance(got[2], str):
            ok(True, "%s with %s is not even HTTP" % (path, headers))
        elif welcome:
            equal(got[0], 200, "%s with %s" % (path, headers), got[2])
        else:
            refused("%s with %s" % (path, headers), got, 403, "forbidden")
equal(server.look("host")["arm"], "absent", "none of those claimed anything")
_, headers, _ = server.ask("OPTIONS", "/v1/claim", None, {"Origin": "http://127.0.0.1:%d" % port,
                                                          "Access-Control-Request-Method": "POST"})
ok(not [h for h in headers if h.lower().startswith("access-control")], "no page is let in by CORS")


def raw(request):
    connection = server.connect()
    connection.sendall(request)
    try:
        return connection.recv(65536)
    finally:
        connection.close()


ok(raw(b"GET /metrics HTTP/1.0\r\n\r\n")[9:12] == b"200", "HTTP/1.0 needs no Host")
ok(raw(b"GET /healthz HTTP/1.1\r\n\r\n")[9:12] in (b"400", b"403"), "HTTP/1.1 does")
for name, request in [
    ("no HTTP", b"hello\r\n\r\n"), ("a line without end", b"GET /" + b"a" * 100000),
    ("headers without end", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 20000),
    ("bytes", bytes(range(128, 256)) * 4 + b"\r\n\r\n"),
    ("a length and pieces", b"POST /v1/claim HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
     b"Transfer-Encoding: chunked\r\n\r\nzzzzz"),
    ("a negative length", b"POST /v1/claim HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n"),
]:
    try:
        said = raw(request)
    except ConnectionError:
        said = b""
    ok(said[9:12] in (b"", b"400", b"403", b"404", b"413", b"414", b"415", b"431"), "refused or closed: " + name, said)
equal(server.ask("GET", "/healthz")[0], 200, "and it lives")
server.stop()

# ---------------------------------------------------------------- addresses
for listen, words in [("0.0.0.0:0", "other machines"), ("[::]:0", "other machines"), ("10.1.2.3:0", "other machines"),
                      ("127.0.0.1", "ADDRESS:PORT"), ("127.0.0.1:", "ADDRESS:PORT"), (":80", "ADDRESS:PORT"),
                      ("127.0.0.1:65536", "ADDRESS:PORT"), ("127.0.0.1:1x", "ADDRESS:PORT"),
                      ("example.com:80", "in numbers"), ("::1:80", "in numbers"), ("[::1:80", "in numbers"),
                      ("[127.0.0.1]:0", "in numbers"), ("", "ADDRESS:PORT")]:
    try:
        Server("listen=" + listen).stop()
        ok(False, "listens on " + listen)
    except RuntimeError as error:
        ok(words in str(error), "does not listen on '%s'" % listen, error)
one = Server("listen=localhost:0")
try:
    Server("listen=" + one.address)
    ok(False, "two on one port")
except RuntimeError as error:
    ok("Address already in use" in str(error) and one.address in str(error), "a port that is taken", error)
one.stop()
wide = Server("listen=0.0.0.0:0", "any_address=1", "host=once.internal")
wide.host = "127.0.0.1"
for host, status in ("10.0.0.1", 200), ("once.internal", 200), ("ONCE.internal:80", 200), ("evil.example", 403):
    equal(wide.ask("GET", "/healthz", None, {"Host": host})[0], status, "told to listen everywhere: host " + host)
wide.stop()
try:
    six = Server("listen=[::1]:0")
    equal((six.address[:6], six.ask("GET", "/healthz")[0]), ("[::1]:", 200), "IPv6")
    six.stop()
except RuntimeError as error:
    ok("Cannot assign" in str(error) or "not supported" in str(error), "IPv6  SKIP there is none here", error)
finish()
