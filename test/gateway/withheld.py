#!/usr/bin/env python3
"""Answers that are longer than what a worker holds in memory wait in a file (once_max_response SIZE memory=SIZE): stored,
sent and replayed byte for byte (K4, K5), from wherever they were. Where there is no room for them they are passed on and not kept; the
request is executed once either way.
"""
import gzip
import os
import subprocess

from upstream import behaviour
from gateway import (Client, Gateway, Location, SINGLE, Suite, expect, expect_equal, new_token, request_bytes, wait_for)

ON = ("once on;", SINGLE)
MEMORY, KEPT = 64 << 10, 4 << 20
LOCATIONS = (
    Location("/usual/", *ON, "once_max_response 4m;"),
    Location("/memory/", *ON, "once_max_response 4m memory=4m;"),
    Location("/file/", *ON, "once_max_response 4m memory=0;"),
    Location("/inner/", *ON, "once_max_response 4m;", to=None, more=("location /inner/tight/ { proxy_pass http://app; once_max_response 100k memory=1k; }",)),
    Location("/unbuffered/", *ON, "once_max_response 4m;", more=("proxy_buffering off;",)),
    Location("/gzip/", *ON, "once_max_response 4m;", more=("gzip on;", "gzip_types *;")),
    Location("/no-room/", *ON, "once_max_response 4m;", more=("client_body_temp_path removed;",)),
)

suite = Suite()
gateway = None


def numbered(size):
    """No two places of it look alike."""
    return b"".join(b"%015d\n" % n for n in range(size // 16 + 1))[:size]


def size_of(c):
    return int(c.path.split("?")[1])


@behaviour
def long(c):
    c.work()
    c.answer(200, [], numbered(size_of(c)))


@behaviour
def long_chunked(c):
    c.work()
    c.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    body = numbered(size_of(c))
    for at in range(0, len(body), 10007):
        part = body[at:at + 10007]
        c.send(b"%x\r\n" % len(part) + part + b"\r\n")
    c.send(b"0\r\n\r\n")


@behaviour
def long_held(c):
    """Its last byte waits."""
    c.work()
    body = numbered(size_of(c))
    c.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:-1])
    c.hold()
    c.send(body[-1:])


@behaviour
def long_broken(c):
    c.work()
    c.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2 * size_of(c)) + numbered(size_of(c)))
    c.close()


def begin(path, token):
    client = Client(gateway.port)
    client.send(request_bytes("POST", path, [("Host", "g"), ("Idempotency-Key", '"%s"' % token), ("X-Test", token), ("Content-Length", "2")], b"{}"))
    return client


def files_of_workers():
    """The sizes of files without a name that the workers have open in the folder of temporary files."""
    sizes = []
    for pid in gateway.worker_pids():
        for fd in os.listdir("/proc/%d/fd" % pid):
            path = "/proc/%d/fd/%s" % (pid, fd)
            try:
                if os.readlink(path).startswith(gateway.path("body")):
                    expect(os.readlink(path).endswith(" (deleted)"), "a file with a name: %s" % os.readlink(path))
                    sizes.append(os.stat(path).st_size)
            except FileNotFoundError:
                pass
    return sizes


def kept(path, size):
    token = new_token()
    first = gateway.ask("%s?%d" % (path, size), token, token)
    retry = gateway.ask("%s?%d" % (path, size), token, token)
    expect_equal((first.status, retry.status, retry.replayed), (200, 200, True), "the answers")
    expect(first.body == numbered(size), "the answer has other bytes: %d of them" % len(first.body))
    expect(retry.body == first.body, "the replay has other bytes: %d of them" % len(retry.body))
    expect_equal((gateway.effects(token), gateway.state(token)), (1, "succeeded"), "effects, state")


def not_kept(path, size):
    token = new_token()
    first = gateway.ask("%s?%d" % (path, size), token, token)
    expect_equal((first.status, first.body == numbered(size)), (200, True), "the answer: %d bytes" % len(first.body))
    retry = gateway.ask("%s?%d" % (path, size), token, token)
    expect_equal((retry.status, retry.code(), gateway.effects(token)), (410, "answer-not-kept", 1), "the retry, effects")


def waits(path, size, in_file):
    """Where it waits, while its last byte is missing; and that the file goes with the request."""
    token = new_token()
    with begin("%s/long_held?%d" % (path, size), token) as client:
        if in_file:
            wait_for(lambda: sum(files_of_workers()) >= size - MEMORY, lambda: "the file: %s" % files_of_workers())
        else:
            wait_for(lambda: gateway.effects(token), "the effect")
        gateway.upstream.open_gate(token)
        answer = client.read()
        expect(answer.body == numbered(size), "other bytes: %d of them" % len(answer.body))
    expect_equal([name for name in os.listdir(gateway.path("body")) if not os.path.isdir(os.path.join(gateway.path("body"), name))], [], "names")
    wait_for(lambda: not files_of_workers(), lambda: "files that stay open: %s" % files_of_workers())
    expect(gateway.ask("%s/long_held?%d" % (path, size), token, token, body=b"{}").body == answer.body, "the replay")


@suite.case
def withheld__in_memory_where_that_is_allowed():
    token = new_token()
    with begin("/memory/long_held?%d" % (2 << 20), token) as client:
        wait_for(lambda: gateway.effects(token), "the effect")
        gateway.ask("/memory/long?%d" % (2 << 20), new_token(), new_token())
        expect_equal(files_of_workers(), [], "files")
        gateway.upstream.open_gate(token)
        expect(client.read().body == numbered(2 << 20), "other bytes")


def own_memory():
    """Bytes of the workers that are no file's."""
    total = 0
    for pid in gateway.worker_pids():
        with open("/proc/%d/status" % pid, encoding="ascii") as file:
            total += sum(1024 * int(line.split()[1]) for line in file if line.startswith("RssAnon:"))
    return total


@suite.case
def withheld__long_answers_are_not_a_workers_memory():
    """Each has its limit in memory, and nginx's own buffers: far less than what it is."""
    many, size, buffers = 32, 2 << 20, 8 * (16 << 10)
    before = own_memory()
    tokens = [new_token() for _ in range(many)]
    clients = [begin("/usual/long_held?%d" % size, token) for token in tokens]
    wait_for(lambda: sum(files_of_workers()) >= many * (size - 2 * buffers), lambda: "the files: %s" % files_of_workers())
    grown = own_memory() - before
    expect(grown < many * size // 2, "the worker has %d bytes more, for %d answers of %d bytes" % (grown, many, size))
    for token, client in zip(tokens, clients):
        gateway.upstream.open_gate(token)
        with client:
            expect(client.read().body == numbered(size), "other bytes")


@suite.case
def withheld__a_client_that_leaves_loses_nothing():
    token = new_token()
    with begin("/usual/long_held?%d" % (2 << 20), token):
        wait_for(files_of_workers, "the file")
    gateway.upstream.open_gate(token)
    wait_for(lambda: gateway.state(token) == "succeeded", "the outcome")
    retry = gateway.ask("/usual/long_held?%d" % (2 << 20), token, token, body=b"{}")
    expect_equal((retry.replayed, retry.body == numbered(2 << 20), gateway.effects(token)), (True, True, 1), "the retry")
    wait_for(lambda: not files_of_workers(), "the file's end")


@suite.case
def withheld__what_breaks_off_is_not_an_answer():
    token = new_token()
    first = gateway.ask("/usual/long_broken?%d" % (2 << 20), token, token)
    retry = gateway.ask("/usual/long_broken?%d" % (2 << 20), token, token)
    expect_equal((first.status, first.code(), retry.code(), gateway.effects(token)), (502, "outcome-unknown", "outcome-unknown", 1), "the answers, effects")
    wait_for(lambda: not files_of_workers(), "the file's end")


@suite.case
def withheld__filters_see_all_of_it():
    token = new_token()
    for _ in range(2):
        answer = gateway.ask("/gzip/long?%d" % (2 << 20), token, token, headers=[("Accept-Encoding", "gzip")])
        expect_equal(answer.get("Content-Encoding"), "gzip", "the encoding")
        expect(gzip.decompress(answer.body) == numbered(2 << 20), "other bytes")
    expect_equal(gateway.effects(token), 1, "effects")


@suite.case
def withheld__over_http_2():
    token = new_token()
    for _ in range(2):
        run = subprocess.run(["curl", "-sS", "--http2-prior-knowledge", "--max-time", "180", "-d", "{}", "-H", 'Idempotency-Key: "%s"' % token, "-H", "X-Test: %s" % token,
                              "http://127.0.0.1:%d/usual/long?%d" % (gateway.port2, 3 << 20)], capture_output=True, check=False)
        expect_equal((run.returncode, run.stdout == numbered(3 << 20)), (0, True), "curl: %s" % run.stderr)
    expect_equal(gateway.effects(token), 1, "effects")


@suite.case
def withheld__without_room_it_is_passed_on_and_not_kept():
    """The folder of the files is gone, as on a full disk."""
    kept("/no-room/long", MEMORY)
    not_kept("/no-room/long", MEMORY + 1)
    not_kept("/no-room/long_chunked", 2 << 20)
    expect("once: no room to withhold an answer" in gateway.text("error.log"), "the log does not say so")


def main():
    global gateway
    suite.require()
    gateway = Gateway(LOCATIONS, listen="listen 127.0.0.1:PORT2 http2;", tolerate=r"open\(\) .*/removed/.* failed \(2: ")
    gateway.start()
    os.rmdir(gateway.path("removed"))
    for size in (1, MEMORY - 1, MEMORY, MEMORY + 1, 3 << 20, KEPT):
        for path in ("/usual/long", "/usual/long_chunked", "/file/long", "/memory/long", "/unbuffered/long_chunked"):
            suite.add("withheld, %s, %d bytes" % (path, size), kept, path, size)
    for path in ("/usual/long", "/usual/long_chunked", "/file/long", "/memory/long", "/unbuffered/long"):
        suite.add("too large, %s" % path, not_kept, path, KEPT + 1)
        suite.add("far too large, %s" % path, not_kept, path, 3 * KEPT)
    suite.add("a location of its own: kept", kept, "/inner/tight/long", 100 << 10)
    suite.add("a location of its own: too large", not_kept, "/inner/tight/long", (100 << 10) + 1)
    for path in ("/usual", "/file", "/unbuffered"):
        suite.add("waits in a file, %s" % path, waits, path, 2 << 20, True)
    suite.add("a small one waits in memory", waits, "/usual", 1000, False)
    suite.run(gateways=[("the gateway", gateway)])


main()
