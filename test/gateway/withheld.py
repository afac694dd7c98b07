#!/usr/bin/env python3
"""Answers that are longer than what a worker holds in memory wait in a file (once_max_response SIZE memory=SIZE): stored,
sent and replayed byte for byte (K4, K5), from wherever they were. Where there is no room for them they are passed on and not kept; the
request is executed once either way.
"""
import gzip
import os
import signal
import socket
import struct
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
    Location("/no-file/", *ON, "once_max_response 4m;", more=("proxy_max_temp_file_size 0;",)),
    Location("/charset/", *ON, "once_max_response 4m;", more=("charset two;", "source_charset one;")),
    Location("/gzip/", *ON, "once_max_response 4m;", more=("gzip on;", "gzip_types *;")),
    Location("/no-room/", *ON, "once_max_response 4m;", more=("client_body_temp_path removed;",)),
)

CHARSETS = "charset_map one two { 30 78; }"  # 0 is x there

suite = Suite()
gateway = limited = None


class Limited(Gateway):
    """No file of nginx's gets longer than this: a disk that is full in the middle of a write."""
    longest = 586 * 512

    def nginx_command(self, *more):
        return ["sh", "-c", "trap '' XFSZ; ulimit -f %d; exec \"$@\"" % (self.longest // 512), "sh", *super().nginx_command(*more)]


def numbered(size):
    """No two places of it look alike. Each is the beginning of a longer one, and the longest is kept: to make one takes long."""
    global longest_numbered
    if len(longest_numbered) < size:
        longest_numbered = b"".join(b"%015d\n" % n for n in range(size // 16 + 1))
    return longest_numbered[:size]


longest_numbered = b""


def size_of(c):
    return int(c.path.split("?")[1])


@behaviour
def long(c):
    c.work()
    c.answer(200, [], numbered(size_of(c)))


@behaviour
def long_html(c):
    c.work()
    c.answer(200, ["Content-Type: text/html"], numbered(size_of(c)))


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
    """The sizes of files without a name that the workers have open in the folder of temporary files. One that was just made has
    its name for a moment."""
    sizes = []
    for pid in gateway.worker_pids():
        for fd in os.listdir("/proc/%d/fd" % pid):
            path = "/proc/%d/fd/%s" % (pid, fd)
            try:
                name = os.readlink(path)
                if name.startswith(gateway.path("body")) and name.endswith(" (deleted)"):
                    sizes.append(os.stat(path).st_size)
            except FileNotFoundError:
                pass
    return sizes


def kept(path, size, of=None):
    g = of or gateway
    token = new_token()
    first = g.ask("%s?%d" % (path, size), token, token)
    retry = g.ask("%s?%d" % (path, size), token, token)
    expect_equal((first.status, retry.status, retry.replayed), (200, 200, True), "the answers")
    expect(first.body == numbered(size), "the answer has other bytes: %d of them" % len(first.body))
    expect(retry.body == first.body, "the replay has other bytes: %d of them" % len(retry.body))
    expect_equal((g.effects(token), g.state(token)), (1, "succeeded"), "effects, state")


def not_kept(path, size, of=None):
    g = of or gateway
    token = new_token()
    first = g.ask("%s?%d" % (path, size), token, token)
    expect_equal((first.status, first.body == numbered(size)), (200, True), "the answer: %d bytes" % len(first.body))
    retry = g.ask("%s?%d" % (path, size), token, token)
    expect_equal((retry.status, retry.code(), g.effects(token)), (410, "answer-not-kept", 1), "the retry, effects")


def nothing_to_read(client):
    client.connection.setblocking(False)
    try:
        return client.connection.recv(1) is None
    except BlockingIOError:
        return True
    finally:
        client.connection.setblocking(True)


def waits(path, size):
    """It is in a file while its last byte is missing, nothing of it is sent (K4), and the file goes with the request."""
    token = new_token()
    with begin("%s/long_held?%d" % (path, size), token) as client:
        wait_for(lambda: sum(files_of_workers()) >= size - MEMORY, lambda: "the file: %s" % files_of_workers())
        expect(nothing_to_read(client), "bytes of an answer that has not ended")
        gateway.upstream.open_gate(token)
        answer = client.read()
        expect(answer.body == numbered(size), "other bytes: %d of them" % len(answer.body))
    expect_equal([name for name in os.listdir(gateway.path("body")) if not os.path.isdir(os.path.join(gateway.path("body"), name))], [], "names")
    wait_for(lambda: not files_of_workers(), lambda: "files that stay open: %s" % files_of_workers())
    expect(gateway.ask("%s/long_held?%d" % (path, size), token, token, body=b"{}").body == answer.body, "the replay")


@suite.case
def withheld__in_memory_where_that_is_allowed():
    """The first of all: what was in memory and given back would not be seen to grow."""
    before, tokens = own_memory(), [new_token() for _ in range(8)]
    clients = [begin("/memory/long_held?%d" % KEPT, token) for token in tokens]
    wait_for(lambda: own_memory() - before > 6 * KEPT, lambda: "%d bytes in memory: there are %d more" % (8 * KEPT, own_memory() - before))
    expect_equal(files_of_workers(), [], "files")
    for token, client in zip(tokens, clients):
        gateway.upstream.open_gate(token)
        with client:
            expect(client.read().body == numbered(KEPT), "other bytes")


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
def withheld__filters_may_write_to_it():
    """The one that recodes does, in place: to what is sent, not to what is stored."""
    token = new_token()
    for _ in range(2):
        answer = gateway.ask("/charset/long_html?%d" % (2 << 20), token, token)
        expect(answer.body == numbered(2 << 20).replace(b"0", b"x"), "other bytes")
    expect_equal((gateway.effects(token), gateway.state(token)), (1, "succeeded"), "effects, state")


@suite.case
def withheld__over_http_2():
    token = new_token()
    for _ in range(2):
        run = subprocess.run(["curl", "-sS", "--http2-prior-knowledge", "--max-time", "180", "-d", "{}", "-H", 'Idempotency-Key: "%s"' % token, "-H", "X-Test: %s" % token,
                              "http://127.0.0.1:%d/usual/long?%d" % (gateway.port2, 3 << 20)], capture_output=True, check=False)
        expect_equal((run.returncode, run.stdout == numbered(3 << 20)), (0, True), "curl: %s" % run.stderr)
    expect_equal(gateway.effects(token), 1, "effects")


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def http_2_request(path, token):
    """A connection that sent it, as one whose windows take nothing."""
    fields = ((":method", "POST"), (":path", path), (":scheme", "http"), (":authority", "g"), ("idempotency-key", '"%s"' % token), ("x-test", token))
    header = b"".join(b"\0%c%s%c%s" % (len(name), name.encode(), len(value), value.encode()) for name, value in fields)
    connection = socket.create_connection(("127.0.0.1", gateway.port2))
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, struct.pack(">HI", 4, 0)) + frame(1, 5, 1, header))
    return connection


def too_large__for_a_client_of_http_2_that_leaves(path, leave):
    """It took nothing, so that nothing can be written to it: it is heard of nevertheless, and the upstream is not kept for it."""
    token = new_token()
    with http_2_request("%s?%d" % (path, 3 * KEPT), token) as connection:
        wait_for(lambda: gateway.state(token) == "succeeded", "the outcome")
        mine = gateway.upstream.caller_of(token)
        leave(connection)
        wait_for(lambda: not any(port_of(c) == mine for c in list(gateway.upstream.connections)), "the end of the connection upstream", 60)
    retry = gateway.ask("%s?%d" % (path, 3 * KEPT), token, token, body=None)
    expect_equal((retry.code(), gateway.effects(token)), ("answer-not-kept", 1), "the retry, effects")


@behaviour
def held_and_malformed(c):
    c.work()
    c.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
    c.hold()
    c.send(b"no chunk\r\n")


def a_failure_is_stored_while_its_client_leaves(leave):
    """Nothing of it stays in the worker: neither request nor connection."""
    token = new_token()
    gateway.ask("/usual/long?1", None, new_token())
    wait_for(lambda: not gateway.upstream.connections, "others to end")
    before = sockets_of_workers()
    with http_2_request("/usual/held_and_malformed", token) as connection:
        wait_for(lambda: gateway.effects(token), "the effect")
        gateway.daemon.process.send_signal(signal.SIGSTOP)
        try:
            gateway.upstream.open_gate(token)
            wait_for(lambda: not gateway.upstream.connections, "nginx to have read the answer")  # it closes after that
            leave(connection)
            gateway.ask("/usual/long?1", None, new_token())  # through the same worker, and past the daemon
        finally:
            gateway.daemon.process.send_signal(signal.SIGCONT)
        wait_for(lambda: gateway.state(token) == "unknown", "the outcome")
    wait_for(lambda: sockets_of_workers() <= before, lambda: "%d sockets, as before: there are %d" % (before, sockets_of_workers()), 60)


def sockets_of_workers():
    return sum(os.readlink(entry.path).startswith("socket:") for pid in gateway.worker_pids() for entry in os.scandir("/proc/%d/fd" % pid)
               if os.path.lexists(entry.path))


def port_of(connection):
    try:
        return connection.getpeername()[1]
    except OSError:
        return None


@suite.case
def withheld__without_room_it_is_passed_on_and_not_kept():
    """The folder of the files is gone."""
    kept("/no-room/long", MEMORY)
    not_kept("/no-room/long", MEMORY + 1)
    not_kept("/no-room/long_chunked", 2 << 20)
    expect("once: no room to withhold an answer" in gateway.text("error.log"), "the log does not say so")


@suite.case
def withheld__a_disk_that_gets_full_costs_the_replay_only():
    kept("/usual/long", Limited.longest - 1, of=limited)
    for path in ("/usual/long", "/usual/long_chunked", "/file/long_chunked", "/unbuffered/long"):
        for size in (Limited.longest + 1, 2 << 20):
            not_kept(path, size, of=limited)
    kept("/memory/long", 2 << 20, of=limited)
    expect("File too large" in limited.text("error.log"), "its disk was never full")


def main():
    global gateway, limited
    suite.require()
    gateway = Gateway(LOCATIONS, http=CHARSETS, listen="listen 127.0.0.1:PORT2 http2;", tolerate=r"open\(\) .*/removed/.* failed \(2: ")
    gateway.patient = True
    gateway.start()
    limited = Limited(LOCATIONS, http=CHARSETS, tolerate=r"pwrite\(\) .* failed \(27: |pwrite\(\) .* has written only")
    limited.start()
    os.rmdir(gateway.path("removed"))
    for size in (1, MEMORY - 1, MEMORY, MEMORY + 1, 3 << 20, KEPT):
        for path in ("/usual/long", "/usual/long_chunked", "/file/long", "/memory/long", "/unbuffered/long_chunked"):
            suite.add("withheld, %s, %d bytes" % (path, size), kept, path, size)
    for path in ("/usual/long", "/usual/long_chunked", "/file/long", "/memory/long", "/unbuffered/long"):
        suite.add("too large, %s" % path, not_kept, path, KEPT + 1)
        suite.add("far too large, %s" % path, not_kept, path, 3 * KEPT)
    suite.add("a location of its own: kept", kept, "/inner/tight/long", 100 << 10)
    suite.add("a location of its own: too large", not_kept, "/inner/tight/long", (100 << 10) + 1)
    ways_to_leave = (("closes", lambda c: c.close()), ("resets its stream", lambda c: c.sendall(frame(3, 0, 1, struct.pack(">I", 8)))))
    for name, leave in ways_to_leave:
        suite.add("a failure is stored while its client of HTTP/2 %s" % name, a_failure_is_stored_while_its_client_leaves, leave)
    for path in ("/unbuffered/long", "/no-file/long_chunked"):
        for name, leave in ways_to_leave:
            suite.add("too large, %s, for a client of HTTP/2 that %s" % (path, name), too_large__for_a_client_of_http_2_that_leaves, path, leave)
    for path in ("/usual", "/file", "/unbuffered"):
        suite.add("waits in a file, %s" % path, waits, path, 2 << 20)
    suite.run(gateways=[("the gateway", gateway), ("the one with a full disk", limited)])


main()
