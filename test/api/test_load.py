#!/usr/bin/env python3
"""Many at once, slow ones, those who leave; bounds; a store that fails; stopping; counters."""
import base64
import http.client
import json
import re
import signal
import socket
import threading
import time

from apitest import SECONDS, Server, ask_on, equal, finish, grant, ok, raw_answer, wait_for


def together(count, work):
    """Runs work(i) in `count` threads that begin at the same time; what they return."""
    gate, results = threading.Barrier(count), [None] * count

    def run(i):
        gate.wait()
        try:
            results[i] = work(i)
        except Exception as error:
            results[i] = error
    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def head(path, length, more=""):
    return ("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n"
            % (path, length, more)).encode()


def is_closed(connection):
    """Whether the other side ends the connection within the bound."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    except socket.timeout:
        return False
    return True


def case(name):
    print("# " + name, flush=True)


# ----------------------------------------------------------------
case("50 clients, one key")
server = Server()
arms = [a["arm"] for a in together(50, lambda i: server.post("claim", key="one"))]
equal(sorted(arms), ["execute"] + ["in progress"] * 49, "one executes")


def wait_or_work(i):
    answer = server.post("claim", key="two", wait_ms=60000)
    if answer["arm"] == "execute":
        wait_for(lambda: int(server.metrics()["once_http_connections"]) >= 50, "all are there")
        server.post("finish", **grant(answer), state="succeeded", body="by %d" % i)
        return "worked"
    return answer["arm"], answer["body"]


answers = together(50, wait_or_work)
ok(answers.count("worked") == 1 and len(set(map(str, answers))) == 2 and
   [a for a in answers if a != "worked"][0] == ("replay", "by %d" % answers.index("worked")),
   "the others wait for the same bytes", answers[:5])
begin = time.monotonic()
server.post("claim", key="three")
answer = server.post("claim", key="three", wait_ms=1200)
ok(answer["arm"] == "in progress" and time.monotonic() - begin >= 1.2, "who waits in vain is told so, not sooner")
keys = together(20, lambda i: [server.post("claim", key="many-%d-%d" % (i, n))["arm"] for n in range(20)])
ok(all(arms == ["execute"] * 20 for arms in keys), "400 keys of 20 clients", keys)

# ----------------------------------------------------------------
case("one connection, many requests")
client = server.client()
got = [ask_on(client, "POST", "/v1/claim", {"key": "kept"})[2]["arm"] for _ in range(20)]
equal(got, ["execute"] + ["in progress"] * 19, "kept alive")
client.close()
connection = server.connect()
bodies = [json.dumps({"key": "piped-%d" % (i // 2)}).encode() for i in range(20)]
connection.sendall(b"".join(head("/v1/claim", len(body)) + body for body in bodies))
stream = connection.makefile("rb")


class Kept:
    """What http.client wants of a socket, with one buffer for all answers."""

    def makefile(self, *_):
        return self

    def close(self):
        pass

    def __getattr__(self, name):
        return getattr(stream, name)


got = [raw_answer(Kept())[2]["arm"] for _ in range(20)]
equal(got, ["execute", "in progress"] * 10, "sent ahead, answered in their order")
stream.close()
connection.close()
connection = server.connect()
for byte in head("/v1/claim", 17) + b'{"key":"by bytes"}'[:17]:
    connection.sendall(bytes([byte]))
got = raw_answer(connection)
equal((got[0], got[2]["code"]), (400, "invalid"), "byte by byte; a body that is cut is not JSON")
connection.close()
connection = server.connect()
body = b'{"key":"pieces"}'
connection.sendall(b"POST /v1/claim HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
for byte in body:
    connection.sendall(b"1\r\n%c\r\n" % byte)
connection.sendall(b"0\r\n\r\n")
got = raw_answer(connection)
equal((got[2]["arm"], got[1]["Connection"], is_closed(connection)), ("execute", "close", True), "in pieces, then closed")
connection.close()

# ----------------------------------------------------------------
case("who leaves")
for n in range(1, 16):
    connection = server.connect()
    connection.sendall(head("/v1/claim", 16) + b'{"key":"half"}  '[:n])
    connection.close()
wait_for(lambda: server.metrics()["once_http_connections"] == "1", "they are gone")
equal(server.look("half")["arm"], "absent", "a half-sent claim claims nothing")
slow = [server.connect() for _ in range(200)]
for connection in slow:
    connection.sendall(head("/v1/claim", 50) + b'{"key":"half"')
wait_for(lambda: server.metrics()["once_http_connections"] == "201", "200 are sending")
equal([server.post("claim", key="among %d" % i)["arm"] for i in range(20)], ["execute"] * 20,
      "200 that do not finish their requests are in nobody's way")
for connection in slow:
    connection.close()
wait_for(lambda: server.metrics()["once_http_connections"] == "1", "they are gone, too")
equal(server.look("half")["arm"], "absent", "and have claimed nothing")
server.post("claim", key="left", lease_ms=600000)
connection = server.connect()
body = b'{"key":"left","wait_ms":60000}'
connection.sendall(head("/v1/claim", len(body)) + body)
wait_for(lambda: server.metrics()["once_http_connections"] == "2", "it waits")
connection.close()
wait_for(lambda: server.metrics()["once_http_connections"] == "1", "it is not waited for")
equal(server.look("left")["lease_live"], True, "a wait ends when its client has left")
server.stop()

# ----------------------------------------------------------------
case("who is slow")
LIMIT = 4.0  # long enough for a small request of a busy machine
server = Server("request_ms=%d" % (LIMIT * 1000))
other = Server("answer_ms=%d" % (LIMIT * 1000))  # it may take its time with requests: one is large
still = Server("request_ms=%d" % (LIMIT * 1000))


def ask_in_time(request):
    """The answer to a request that was sent sooner than it has to be: where this machine took longer, to be closed is right, and it
    is sent anew. What was sent is read before the time is looked at."""
    while True:
        begin = time.monotonic()
        with server.connect() as connection:
            connection.sendall(request)
            if time.monotonic() - begin < LIMIT / 2:
                return raw_answer(connection)[2]


def stops_sending(begun):
    connection = server.connect()
    connection.sendall(begun)
    return is_closed(connection)


def trickles():
    connection = server.connect()
    try:
        connection.sendall(head("/v1/claim", 100000))
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            connection.sendall(b" ")
            time.sleep(0.02)
    except ConnectionError:
        return "closed"
    return "still there"


def comes_back():
    """A pause of a fourth of what it may be, six times; then for ever. Where this machine made more of a pause than it
    may be, being closed is right: begun anew. For the server it began when it sent its last answer, which is after that was asked for."""
    last, connection, got = time.monotonic(), server.connect(), []
    while len(got) < 6:
        time.sleep(LIMIT / 4 if got else 0)
        now = time.monotonic()
        try:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            got.append(raw_answer(connection)[0])
            last = now
        except (ConnectionError, http.client.HTTPException) as error:
            if time.monotonic() - last < LIMIT:
                return got + [error], False
            last, connection, got = time.monotonic(), server.connect(), []
    return got, is_closed(connection)


def finds_it_as_it_was():
    """The server stands still for longer than a request may take, and the client speaks when it goes on: that was not the client's
    pause. Where this machine was slow beside that, it is done again."""
    while True:
        begin = time.monotonic()
        with still.connect() as connection:
            wait_for(lambda: still.metrics()["once_http_connections"] == "2", "it is accepted")
            still.process.send_signal(signal.SIGSTOP)
            over = time.monotonic() + LIMIT + 1
            wait_for(lambda: time.monotonic() > over, "it is late")
            still.process.send_signal(signal.SIGCONT)
            for _ in range(5):
                still.metrics()
            try:
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                answer = raw_answer(connection)[0]
            except (ConnectionError, http.client.HTTPException) as error:
                answer = error
            if time.monotonic() - begin < LIMIT + 1 + LIMIT / 2:
                return answer


def waits_for_the_store():
    ask_in_time(head("/v1/claim", 11) + b'{"key":"w"}')
    begin = time.monotonic()
    wait = LIMIT + 0.5
    body = b'{"key":"w","wait_ms":%d}' % (wait * 1000)
    return ask_in_time(head("/v1/claim", len(body)) + body)["arm"], time.monotonic() - begin >= wait


def takes_no_answer():
    """How much of it arrived, when it was closed."""
    data = base64.b64encode(b"\0" * (8 << 20)).decode()
    other.post("finish", **grant(other.post("claim", key="large")), state="succeeded", body_base64=data)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(SECONDS)
    connection.connect((other.host, other.port))
    connection.sendall(b"GET /v1/records?key=large HTTP/1.1\r\nHost: localhost\r\n\r\n")
    wait_for(lambda: int(other.metrics()["once_http_timeouts_total"]) >= 1, "it is closed")
    received = 0
    try:
        while piece := connection.recv(1 << 20):
            received += len(piece)
    except ConnectionError:
        pass
    return received


begun = [b"", b"GET /he", b"GET /healthz HTTP/1.1\r\nHost: lo", head("/v1/claim", 100) + b'{"key":"slow"']
work = [lambda b=b: stops_sending(b) for b in begun] + [trickles, comes_back, finds_it_as_it_was, waits_for_the_store, takes_no_answer]
*stopped, trickled, came_back, found, waited, received = together(len(work), lambda i: work[i]())
equal(stopped, [True] * 4, "who stops sending is closed")
equal(trickled, "closed", "who sends a byte now and then, too")
metrics = ask_in_time(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
ok(int(re.search(r"^once_http_timeouts_total (\d+)$", metrics, re.M)[1]) >= 6, "they are counted")
equal(came_back[0], [200] * 6, "who comes back in time is not, however long it stays")
ok(came_back[1], "until it is silent")
equal(found, 200, "nor who had to wait for a server that stood still")
equal(waited, ("in progress", True), "who waits for the store is not slow")
ok(received < 8 << 20, "who does not take its answer is closed", received)
equal(ask_in_time(b"GET /v1/records?key=slow HTTP/1.1\r\nHost: localhost\r\n\r\n")["arm"], "absent", "a claim that did not come claims nothing")
server.stop()
other.stop()
still.stop()

# ----------------------------------------------------------------
case("bounds")
server = Server("connection_max=8", "bytes_max=100K")
idle = [server.connect() for _ in range(7)]
wait_for(lambda: server.metrics()["once_http_connections"] == "8", "all are accepted")
idle.append(server.connect())
late = server.connect()
late.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
late.settimeout(0.3)
try:
    late.recv(1)
    ok(False, "one more is not served")
except socket.timeout:
    ok(True, "one more than may be is not served")
late.settimeout(SECONDS)
for connection in idle:
    connection.close()
equal(raw_answer(late)[0], 200, "until there is room")
late.close()
status, headers, problem = server.ask("POST", "/v1/claim", b'{"key":"b"}' + b" " * 200000)
equal((status, problem["code"], problem["retryable"], headers["Retry-After"]), (429, "busy", True, "1"),
      "more bytes than all may take: busy", problem)
equal(server.look("b")["arm"], "absent", "nothing was done")
connection = server.connect()
connection.sendall(b"POST /v1/claim HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   b"Transfer-Encoding: chunked\r\n\r\n" + (b"2710\r\n" + b" " * 10000 + b"\r\n") * 20 + b"0\r\n\r\n")
got = raw_answer(connection)
equal((got[0], got[2]["code"]), (429, "busy"), "also where they come in pieces")
connection.close()
halves = []


def has_taken_its_room():
    if len(halves) == 0 or server.metrics()["once_http_connections"] == "1":  # on a slow machine it is cut off sooner
        halves.append(server.connect())
        halves[-1].sendall(head("/v1/claim", 90000))
    return server.ask("POST", "/v1/claim", b" " * 80000 + b"{}")[0] == 429


wait_for(has_taken_its_room, "it has taken its room")
half = halves.pop()
for connection in halves:
    connection.close()
equal(server.post("claim", key="small")["arm"], "execute", "what is small finds room all the same")
half.close()
wait_for(lambda: server.metrics()["once_http_connections"] == "1", "it is gone")
equal(server.ask("POST", "/v1/claim", b'{"key":"b"}' + b" " * 90000)[2]["arm"], "execute", "less fits, and again")
equal(server.ask("POST", "/v1/claim", b'{"key":"b"}' + b" " * 90000)[2]["arm"], "in progress", "and again")
held = server.post("claim", key="c")
server.post("finish", **grant(held), state="succeeded", body="x" * 80000)
status, headers, problem = server.ask("GET", "/v1/records?key=c")
equal((status, problem["code"]), (429, "busy"), "an answer for which there is no room: busy")
server.stop()

# ----------------------------------------------------------------
case("a store that fails")
for fault, status, code in ("refuse:1+", 503, "store-unavailable"), ("lose-before:1+", 500, "answer-lost"):
    server = Server(store="fault+sqlite:%s/once.db", env={"ONCE_FAULT": fault})
    got, headers, problem = server.ask("POST", "/v1/claim", {"key": "k"})
    equal((got, problem["code"], problem["retryable"], headers["Content-Type"]),
          (status, code, True, "application/problem+json"), "claim, store: " + fault, problem)
    equal(headers["Retry-After"], "1" if status == 503 else None, "when to come again")
    got, headers, problem = server.ask("GET", "/healthz")
    equal((got, problem["code"], headers["Retry-After"]), (503, "store-unavailable", "1"), "health: " + fault, problem)
    server.stop()

server = Server(store="fault+sqlite:%s/once.db", env={"ONCE_FAULT": "lose:2+"})
arms = [server.post("claim", key="k%d" % (i // 2))["arm"] for i in range(20)]
equal(arms, ["execute", "in progress"] * 10, "answers that were lost and found again are not noticed")
ok(int(server.metrics()["once_recovered_total"]) > 0, "but counted")
server.stop()

# ----------------------------------------------------------------
case("stopping")
server = Server("drain_ms=600000")  # as long as it takes to be read, on any machine
server.post("claim", key="s")
server.post("finish", **grant(server.post("claim", key="large")), state="succeeded", body="x" * (8 << 20))
waiting, idle, half, taking = (server.connect() for _ in range(4))
body = b'{"key":"s","wait_ms":60000}'
waiting.sendall(head("/v1/claim", len(body)) + body)
half.sendall(head("/v1/claim", 100) + b'{"key":"half"')
taking.sendall(b"GET /v1/records?key=large HTTP/1.1\r\nHost: localhost\r\n\r\n")
wait_for(lambda: server.metrics()["once_http_connections"] == "5", "all are there")
server.process.terminate()
got = raw_answer(waiting)
equal((got[0], got[2]["arm"], got[1]["Connection"]), (200, "in progress", "close"), "who waits is told to come again")
got = raw_answer(taking)
equal((got[0], len(got[2]["body"])), (200, 8 << 20), "who is being answered has it")
ok(is_closed(half) and is_closed(idle), "the others are closed")
for connection in waiting, idle, half, taking:
    connection.close()
server.stop("a server that was busy")

# ----------------------------------------------------------------
case("counters, with a handle like the daemon's")
server = Server("poll=1")
equal(server.ask("GET", "/healthz")[2], {"status": "ok"}, "health")
for _ in range(3):
    server.post("claim", key="m")
server.post("finish", **grant(server.look("m")), state="succeeded")
server.post("claim", key="m")
server.ask("GET", "/nothing")
server.ask("GET", "/nothing")
status, headers, text = server.ask("GET", "/metrics")
equal((status, headers["Content-Type"]), (200, "text/plain; version=0.0.4; charset=utf-8"), "the format")
seen, current = set(), None
wrong = []
for line in text.splitlines():
    if line.startswith("# HELP "):
        current = line.split()[2]
        wrong += [line] if current in seen or len(line.split()) < 4 else []
        seen.add(current)
    elif line.startswith("# TYPE "):
        wrong += [line] if line.split()[2] != current or line.split()[3] not in ("counter", "gauge", "histogram") else []
        counter = line.split()[3] == "counter"
        wrong += [line] if counter != current.endswith("_total") else []
    else:
        match = re.fullmatch(r'([a-z_]+)(\{[a-z]+="[^"]*"\})? [0-9]+(\.[0-9]+)?', line)
        named = match and (match[1] == current or re.fullmatch(current + "_(bucket|sum|count)", match[1]))
        wrong += [line] if not named else []
ok(not wrong and text.endswith("\n"), "each has its HELP and TYPE before it, once", wrong)
metrics = server.metrics()
for name, value in {"once_store_up": "1", "once_executions_total": "1", "once_replays_total": "1", "once_attempts": "1",
                    "once_fenced_total": "0", "once_busy_total": "0", "once_recovered_total": "0",
                    'once_claims_total{arm="execute"}': "1", 'once_claims_total{arm="in progress"}': "2",
                    'once_claims_total{arm="replay"}': "1", 'once_claims_total{arm="mismatch"}': "0",
                    'once_outcomes_total{state="succeeded"}': "1", 'once_outcomes_total{state="unknown"}': "0",
                    "once_claim_seconds_count": "4", "once_finish_seconds_count": "1",
                    'once_claim_seconds_bucket{le="+Inf"}': "4",
                    'once_http_requests_total{code="404"}': "2", 'once_http_requests_total{code="200"}': "8"}.items():
    equal(metrics.get(name), value, name)
wait_for(lambda: server.metrics()["once_http_connections"] == "1", "only this one is open")
ok(all(name in metrics for name in ("once_operations_total", "once_batches_total", "once_store_bytes",
                                    "once_uptime_seconds", "once_http_timeouts_total")), "and the others", metrics)
server.stop()
finish()
