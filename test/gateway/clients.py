#!/usr/bin/env python3
"""Clients that go away, are slow, or speak otherwise (FAULT-40 to FAULT-44, FAULT-47): a request that did not arrive
whole claims nothing, one that did is finished and stored whether or not anybody waits for it.
"""
import json
import os
import socket
import ssl
import subprocess

from gateway import (Client, Closed, Failed, Gateway, Location, SINGLE, Suite, expect, expect_equal, in_parallel, new_token,
                     request_bytes, wait_for)

LOCATIONS = (Location("/on/", "once on;", SINGLE),
             Location("/rerun/", "once on;", SINGLE, "once_takeover rerun;"),
             Location("/wait/", "once on;", SINGLE, "once_wait 120s;"),
             Location("/small/", "once on;", SINGLE, more=("client_max_body_size 1k;",)))
BODY = b'{"amount":25}'

suite = Suite()
gateway = None


def lines(token, *more):
    return [("Host", "gateway.test"), ("Idempotency-Key", '"%s"' % token), ("X-Test", token), *more]


def request(path, token, body=BODY, *more):
    return request_bytes("POST", path, lines(token, *more, ("Content-Length", str(len(body)))), body)


def untouched(*tokens):
    records = gateway.records()
    for token in tokens:
        expect(("", token) not in records, "a record was made")
        expect_equal(gateway.effects(token), 0, "effects")


def flush():
    """A round trip through the worker: what came before it was seen."""
    expect_equal(gateway.ask("/on/normal", new_token(), new_token()).status, 201, "another request's status")


# ------------------------------------------------------------------ going away

def leaves_early(part, how):
    """`part` of the request was sent, not all."""
    token = new_token()
    data = request("/on/normal", token)
    client = Client(gateway.port)
    client.send(part(data))
    flush()
    getattr(client, how)()
    flush()
    untouched(token)
    answer = gateway.ask("/on/normal", token, token)
    expect_equal((answer.status, answer.replayed), (201, False), "the whole request after that")
    expect_equal(gateway.effects(token), 1, "effects")


PARTS = {
    "in the request line": lambda data: data[:12],
    "in the headers": lambda data: data[:60],
    "before the empty line": lambda data: data[:data.index(b"\r\n\r\n") + 2],
    "before the body": lambda data: data[:data.index(b"\r\n\r\n") + 4],
    "in the body": lambda data: data[:-5],
    "before the last byte": lambda data: data[:-1],
}


def leaves_later(behaviour, path, how):
    """The request was sent and is being worked on: it is finished and stored."""
    token = new_token()
    client = Client(gateway.port)
    client.send(request(path + behaviour, token))
    if behaviour == "held_before":
        wait_for(lambda: any(seen[0] == token for seen in gateway.upstream.seen), "the request")
    else:
        wait_for(lambda: gateway.effects(token), "the effect")
    getattr(client, how)()
    flush()
    expect_equal(gateway.state(token), "running", "the record's state")
    gateway.upstream.open_gate(token)
    wait_for(lambda: gateway.state(token) == "succeeded", "the outcome")
    retry = gateway.ask(path + behaviour, token, token)
    expect(retry.replayed and retry.status == 201, "the retry: %s" % retry)
    expect_equal(gateway.effects(token), 1, "effects")


def leaves_at_once(how):
    """Sent all of it and left: executed once, or not at all; never twice, never half."""
    tokens = [new_token() for _ in range(30)]
    for token in tokens:
        client = Client(gateway.port)
        client.send(request("/on/normal", token))
        getattr(client, how)()

    def ends(token):
        return gateway.ask_until(lambda answer: answer.status != 409, "/on/normal", token, token)
    for token, retry in zip(tokens, in_parallel(ends, tokens)):
        expect_equal(retry.status, 201, "the retry's status")
        expect_equal(gateway.effects(token), 1, "effects")


def leaves_while_waiting(how):
    """A second client waits for the first one's outcome, and goes: the first is not disturbed."""
    token = new_token()
    with Client(gateway.port) as first:
        first.send(request("/wait/held", token))
        wait_for(lambda: gateway.effects(token), "the effect")
        for _ in range(5):
            second = Client(gateway.port)
            second.send(request("/wait/held", token))
            flush()
            getattr(second, how)()
        flush()
        gateway.upstream.open_gate(token)
        expect_equal(first.read().status, 201, "the first one's status")
    expect_equal(gateway.effects(token), 1, "effects")


def leaves_in_the_answer(how):
    """The answer is large, some of it was read."""
    token = new_token()
    client = Client(gateway.port)
    client.send(request("/on/mib", token))
    client.connection.recv(1000)
    getattr(client, how)()
    retry = gateway.ask("/on/mib", token, token)
    expect_equal((retry.status, retry.replayed, len(retry.body)), (200, True, 1 << 20), "the retry")
    client = Client(gateway.port)
    client.send(request("/on/mib", token))
    client.connection.recv(1000)  # of a replay
    getattr(client, how)()
    expect_equal(gateway.ask("/on/mib", token, token).body, retry.body, "the replay after that")
    expect_equal(gateway.effects(token), 1, "effects")


@suite.case
def half_closed():
    """A client that sends all, ends its side, and reads."""
    token = new_token()
    with Client(gateway.port) as client:
        client.send(request("/on/slow", token))
        client.connection.shutdown(1)
        expect_equal(client.read().status, 200, "the status")
    retry = gateway.ask_until(lambda answer: answer.status != 409, "/on/slow", token, token)
    expect_equal((retry.status, retry.replayed, gateway.effects(token)), (200, True, 1), "the retry")


# ------------------------------------------------------------------ slow

@suite.case
def slow_senders_do_not_hold_the_store():
    """200 clients stop in their bodies; others are served; then they go on, byte by byte."""
    tokens = [new_token() for _ in range(200)]
    clients = []
    for token in tokens:
        client = Client(gateway.port)
        client.send(request("/on/normal", token)[:-6])
        clients.append(client)
    others = [new_token() for _ in range(100)]
    answers = in_parallel(lambda token: gateway.ask("/on/normal", token, token), others)
    expect_equal({answer.status for answer in answers}, {201}, "the statuses of the others")
    untouched(*tokens)
    for number in range(6, 0, -1):
        for client in clients:
            client.send(BODY[-number:][:1])
        if number > 1:
            untouched(tokens[number])
    for client, token in zip(clients, tokens):
        expect_equal(client.read().status, 201, "the status of a slow one")
        client.close()
    expect_equal({gateway.effects(token) for token in tokens}, {1}, "effects")


@suite.case
def slow_readers_do_not_hold_the_store():
    """Their outcomes are stored, their answers wait in nginx; others are served."""
    tokens = [new_token() for _ in range(40)]
    clients = []
    for token in tokens:
        client = Client(gateway.port)
        client.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.send(request("/on/mib", token))
        clients.append(client)
    wait_for(lambda: all_succeeded(tokens), "the outcomes of those who do not read")
    for token in (new_token() for _ in range(20)):
        expect_equal(gateway.ask("/on/normal", token, token).status, 201, "the status of another")
    retry = gateway.ask("/on/mib", tokens[0], tokens[0])
    expect_equal((retry.replayed, len(retry.body)), (True, 1 << 20), "a replay for one who reads")
    for client in clients[:5]:
        expect_equal(client.read().body, retry.body, "the answer of a slow reader")
    for client in clients:
        client.close()
    expect_equal({gateway.effects(token) for token in tokens}, {1}, "effects")


def all_succeeded(tokens):
    records = gateway.records()
    return all(records.get(("", token), {}).get("state") == "succeeded" for token in tokens)


# ------------------------------------------------------------------ one connection, several requests

@suite.case
def pipelining():
    """Twenty requests in one packet: twenty answers in their order; a repeated key is a replay."""
    tokens = [new_token() for _ in range(10)]
    order = [token for token in tokens for _ in range(2)]
    with Client(gateway.port) as client:
        client.send(b"".join(request("/on/normal", token) for token in order))
        answers = [client.read() for _ in order]
    for token, answer in zip(order, answers):
        expect(token in str(answer.body) and answer.status == 201, "the answers are out of order")
    expect_equal([answer.replayed for answer in answers], [False, True] * 10, "which are replays")
    expect_equal({gateway.effects(token) for token in tokens}, {1}, "effects")


@suite.case
def keepalive_through_all_kinds_of_answers():
    """Fresh, replay, mismatch, malformed, missing, in progress, unknown: the connection stays in step."""
    token, held = new_token(), new_token()
    with Client(gateway.port) as holder, Client(gateway.port) as client:
        holder.send(request("/on/held", held))
        wait_for(lambda: gateway.effects(held), "the effect")
        for _ in range(3):
            for wanted, path, key, body in ((201, "/on/normal", token, BODY), (422, "/on/normal", token, b"other"),
                                            (400, "/on/normal", b'"', BODY), (409, "/on/held", held, BODY),
                                            (201, "/on/normal", None, BODY), (204, "/on/no_content", token + "a", BODY),
                                            (200, "/on/empty", token + "b", b""), (200, "/on/mib", token + "c", BODY)):
                answer = gateway.ask(path, key, token if key != held else held, body=body, client=client)
                expect_equal(answer.status, wanted, "the status of %s %s" % (path, key))
        gateway.upstream.open_gate(held)
        expect_equal(holder.read().status, 201, "the held one's status")


@suite.case
def an_unread_body_does_not_become_a_request():
    """What a refusal leaves unread of a body is not taken for the next request."""
    token = new_token()
    inner = request("/on/normal", token)
    with Client(gateway.port) as client:
        client.send(request_bytes("POST", "/on/normal", [("Host", "g"), ("Idempotency-Key", '"'), ("Content-Length", str(len(inner)))],
                                  inner))
        expect_equal(client.read().status, 400, "the status")
        expect_equal(gateway.ask("/on/normal", None, None, client=client).status, 201, "the next request's status")
    untouched(token)


# ------------------------------------------------------------------ other ways to say it

@suite.case
def http_1_0():
    token = new_token()
    answers = []
    for _ in range(2):
        with Client(gateway.port) as client:
            client.send(request_bytes("POST", "/on/chunked", [("Idempotency-Key", '"%s"' % token), ("X-Test", token),
                                                              ("Content-Length", "2")], b"{}", "HTTP/1.0"))
            answers.append(client.read())
            expect_equal(client.connection.recv(1), b"", "the connection's end")
    expect(answers[0].get("Transfer-Encoding") is None and answers[1].get("Transfer-Encoding") is None, "chunked for HTTP/1.0")
    expect_equal((answers[0].status, answers[1].replayed, answers[1].lasting()), (200, True, answers[0].lasting()), "the answers")
    newer = gateway.ask("/on/chunked", token, token, body=b"{}")
    expect_equal((newer.replayed, newer.lasting()), (True, answers[0].lasting()), "the replay by HTTP/1.1")


def chunks(body, size):
    return b"".join(b"%x\r\n" % len(body[i:i + size]) + body[i:i + size] + b"\r\n" for i in range(0, len(body), size)) + b"0\r\n\r\n"


@suite.case
def chunked_requests():
    """However it is cut, it is the same request, also as one with a length."""
    token = new_token()
    for number, size in enumerate((1, 3, 1000)):
        with Client(gateway.port) as client:
            client.send(request_bytes("POST", "/on/normal", lines(token, ("Transfer-Encoding", "chunked")), chunks(BODY, size)))
            answer = client.read()
        expect_equal((answer.status, answer.replayed), (201, number > 0), "the answer to chunks of %d" % size)
    expect(gateway.ask("/on/normal", token, token).replayed, "with a length it is another request")
    expect_equal(gateway.effects(token), 1, "effects")


def malformed(*parts, status=400):
    token = new_token()
    with Client(gateway.port) as client:
        client.send(request_bytes("POST", "/on/normal", lines(token, *parts[:-1]), parts[-1]))
        try:
            expect_equal(client.read().status, status, "the status")
        except Closed:
            pass
    flush()
    untouched(token)


MALFORMED = {
    "a bad chunk": (("Transfer-Encoding", "chunked"), b"xyz\r\nabc\r\n0\r\n\r\n"),
    "a length and chunks": (("Content-Length", "3"), ("Transfer-Encoding", "chunked"), b"0\r\n\r\n"),
    "two lengths": (("Content-Length", "3"), ("Content-Length", "4"), b"abcd"),
    "a negative length": (("Content-Length", "-1"), b""),
    "no number as length": (("Content-Length", "abc"), b""),
}


@suite.case
def chunked_requests_that_do_not_end():
    token = new_token()
    client = Client(gateway.port)
    client.send(request_bytes("POST", "/on/normal", lines(token, ("Transfer-Encoding", "chunked")), chunks(BODY, 4)[:-2]))
    flush()
    untouched(token)
    client.close()
    flush()
    untouched(token)


@suite.case
def expect_100_continue():
    token = new_token()
    for number in range(2):
        with Client(gateway.port) as client:
            client.send(request_bytes("POST", "/on/normal", lines(token, ("Content-Length", str(len(BODY))), ("Expect", "100-continue")), b""))
            interim = client._until(b"\r\n\r\n")
            expect(interim.startswith(b"HTTP/1.1 100"), "the interim answer: %r" % interim)
            if number == 0:
                untouched(token)
            client.send(BODY)
            answer = client.read()
            expect_equal((answer.status, answer.replayed), (201, number > 0), "the answer")
    expect_equal(gateway.effects(token), 1, "effects")


@suite.case
def large_bodies():
    """Through temporary files: 5 MiB, and one byte that differs at its end."""
    token = new_token()
    body = os.urandom(5 << 20)
    seen = gateway.ask("/on/echo", token, token, body=body)
    expect_equal(json.loads(seen.body)["length"], len(body), "the length that the upstream got")
    expect(gateway.ask("/on/echo", token, token, body=body).replayed, "the retry is no replay")
    expect_equal(gateway.ask("/on/echo", token, token, body=body[:-1] + bytes([body[-1] ^ 1])).status, 422, "the status")
    expect_equal(gateway.effects(token), 1, "effects")


@suite.case
def too_large_bodies():
    token = new_token()
    expect_equal(gateway.ask("/small/normal", token, token, body=b"x" * 1025).status, 413, "the status")
    untouched(token)
    expect_equal(gateway.ask("/small/normal", token, token, body=b"x" * 1024).status, 201, "the status within the limit")


# ------------------------------------------------------------------ TLS, HTTP/2

def trusting():
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@suite.case
def tls():
    token = new_token()
    answers = [gateway.ask("/on/mib", token, token, port=gateway.port2, tls=trusting()) for _ in range(2)]
    expect_equal((answers[0].status, answers[1].replayed, answers[1].lasting()), (200, True, answers[0].lasting()), "the answers")
    expect_equal(gateway.ask("/on/mib", token, token).lasting(), answers[0].lasting(), "the replay without TLS")
    expect_equal(gateway.effects(token), 1, "effects")


def curl(*arguments):
    """[(status, HTTP version, replayed, body)] of what was fetched."""
    run = subprocess.run(["curl", "-sSk", "--max-time", "180", "-i", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    expect(run.returncode == 0, "curl %s ended with %d: %s %s" % (arguments, run.returncode, run.stdout[:600], run.stderr.decode()))
    head, body = run.stdout.split(b"\r\n\r\n", 1)
    while head.split(b" ")[1][:1] == b"1":
        head, body = body.split(b"\r\n\r\n", 1)
    version, status = head.split(b" ")[:2]
    return int(status), version.decode(), b"idempotency-replayed: true" in head.lower(), body


def refused_status(*arguments):
    """nginx ends the stream of a request whose body it does not need; curl 7.88 takes that for an
    error, unless the body was there first. So: until it was."""
    def once():
        try:
            return curl(*arguments)[0]
        except Failed as failure:
            expect(" ended with 92" in str(failure), str(failure))
            return None
    return wait_for(once, "curl to see an answer")


def http_2(url, *arguments):
    token = new_token()
    headers = ["-H", 'Idempotency-Key: "%s"' % token, "-H", "X-Test: " + token]
    answers = [curl(*arguments, *headers, "-d", "amount=25", url + "/on/normal") for _ in range(2)]
    expect_equal([answer[:3] for answer in answers], [(201, "HTTP/2", False), (201, "HTTP/2", True)], "the answers")
    expect_equal(answers[0][3], answers[1][3], "the bodies")
    expect_equal(curl(*arguments, *headers, "-d", "amount=26", url + "/on/normal")[0], 422, "a mismatch's status")
    expect_equal(refused_status(*arguments, "-H", 'Idempotency-Key: "', "-d", "a", url + "/on/normal"), 400, "a malformed key's status")
    expect_equal(refused_status(*arguments, "-H", 'Idempotency-Key: "a"', "-H", 'Idempotency-Key: "b"', "-d", "a", url + "/on/normal"), 400,
                 "a repeated key's status")
    expect_equal(gateway.effects(token), 1, "effects")
    big = new_token()
    for name, status in (("mib", 200), ("no_content", 204), ("location", 201), ("status_404", 404), ("empty", 200)):
        mine = ["-H", 'Idempotency-Key: "%s-%s"' % (big, name), "-H", "X-Test: %s-%s" % (big, name), "-d", "x" * 100]
        one, two = (curl(*arguments, *mine, url + "/on/" + name) for _ in range(2))
        expect_equal((one[0], two[0], two[2], one[3] == two[3]), (status, status, True, True), "the answers of " + name)


@suite.case
def http_2_without_tls():
    http_2("http://127.0.0.1:%d" % gateway.port3, "--http2-prior-knowledge")


@suite.case
def http_2_with_tls():
    http_2("https://127.0.0.1:%d" % gateway.port2, "--http2")


def leaves_by(url, *arguments):
    """A client of HTTP/2 or TLS is killed while the upstream works: it is finished and stored."""
    token = new_token()
    process = subprocess.Popen(["curl", "-sk", *arguments, "-H", 'Idempotency-Key: "%s"' % token, "-H", "X-Test: " + token,
                                "-H", "Content-Type: text/plain", "-d", "{}", url + "/on/held"], stdout=subprocess.DEVNULL)
    wait_for(lambda: gateway.effects(token), "the effect")
    process.kill()
    process.wait()
    flush()
    expect_equal(gateway.state(token), "running", "the record's state")
    gateway.upstream.open_gate(token)
    wait_for(lambda: gateway.state(token) == "succeeded", "the outcome")
    retry = gateway.ask("/on/held", token, token, headers=[("Content-Type", "text/plain")], body=b"{}")
    expect_equal((retry.status, retry.replayed, gateway.effects(token)), (201, True, 1), "the retry")


@suite.case
def leaves_by_http_2():
    leaves_by("http://127.0.0.1:%d" % gateway.port3, "--http2-prior-knowledge")


@suite.case
def leaves_by_tls():
    leaves_by("https://127.0.0.1:%d" % gateway.port2, "--http1.1")
    leaves_by("https://127.0.0.1:%d" % gateway.port2, "--http2")


@suite.case
def http_2_parallel_streams():
    """Twenty streams of one connection with one key: one execution, the same bytes for all."""
    token = new_token()
    url = "http://127.0.0.1:%d/wait/slow" % gateway.port3
    folder = gateway.path("streams")
    os.mkdir(folder)
    arguments = []
    for number in range(20):
        arguments += ["-H", 'Idempotency-Key: "%s"' % token, "-H", "X-Test: " + token, "-d", "{}", "-o", os.path.join(folder, str(number)),
                      url, "--next"]
    run = subprocess.run(["curl", "-sS", "--no-progress-meter", "--http2-prior-knowledge", "--parallel", "--parallel-max", "20", "--max-time", "180", *arguments[:-1]])
    expect_equal(run.returncode, 0, "curl's status")
    bodies = {open(os.path.join(folder, name), "rb").read() for name in os.listdir(folder)}
    expect_equal((len(os.listdir(folder)), bodies), (20, {b"slow 1"}), "the bodies")
    expect_equal(gateway.effects(token), 1, "effects")


def main():
    global gateway
    suite.require()
    gateway = Gateway(LOCATIONS, workers=2)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-keyout", gateway.path("key.pem"), "-out", gateway.path("cert.pem")],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    gateway.listen = ("listen 127.0.0.1:PORT2 ssl http2; listen 127.0.0.1:PORT3 http2; ssl_certificate cert.pem; "
                      "ssl_certificate_key key.pem;")
    gateway.patient = True
    gateway.start()
    for how in ("close", "reset"):
        for name, part in PARTS.items():
            suite.add("%s %s" % (how, name), leaves_early, part, how)
        for behaviour in ("held_before", "held", "held_in_headers", "held_in_body"):
            for path in ("/on/", "/rerun/"):
                suite.add("%s while it is %s, %s" % (how, behaviour, path), leaves_later, behaviour, path, how)
        suite.add("%s at once" % how, leaves_at_once, how)
        suite.add("%s while waiting" % how, leaves_while_waiting, how)
        suite.add("%s in the answer" % how, leaves_in_the_answer, how)
    for name, parts in MALFORMED.items():
        suite.add("malformed: %s" % name, malformed, *parts)
    suite.run(width=6, gateways=[("the gateway", gateway)])


main()
