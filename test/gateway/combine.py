#!/usr/bin/env python3
"""The module together with the rest of nginx (FAULT-46): limits, rewrites, error pages, mirrors, filters.
However a request gets to its upstream, it gets there once. What does not combine is refused by
`nginx -t`, with file and line; so are wrong values.
"""
import collections
import gzip
import json
import os
import re
import signal
import socket
import struct
import threading

from upstream import behaviour
from gateway import Client, Gateway, Location, SINGLE, Suite, expect, expect_equal, new_token, request_bytes, tested, wait_for

ON = ("once on;", SINGLE)
LOCATIONS = (
    Location("/on/", *ON),
    Location("/limited/", *ON, "once_pass @limited;", to=None),
    Location("@limited", to="app", more=("limit_req zone=one;",)),
    Location("/rewritten/", to=None, more=("rewrite ^/rewritten/(.*) /on/$1 last;",)),
    Location("/broken-rewrite/", *ON, more=("rewrite ^/broken-rewrite/(.*) /other/$1 break;",)),
    Location("/error-page/", *ON, more=("error_page 404 500 502 504 @fallback;", "proxy_intercept_errors on;")),
    Location("/error-page-silent/", *ON, more=("error_page 404 500 502 504 @fallback;", "proxy_intercept_errors on;", "proxy_read_timeout 250ms;")),
    Location("/error-page-refused/", *ON, to="refusing", more=("error_page 502 @fallback;",)),
    Location("/error-page-well/", *ON, to="refusing", more=("error_page 502 = @well;",)),
    Location("@well", to=None, more=("return 200 well;",)),
    Location("/fallback/", *ON, to="refusing", more=("error_page 502 = @fallback;",)),
    Location("/fallback-also-on/", *ON, to="refusing", more=("error_page 502 = @fallback-on;",)),
    Location("@fallback-on", *ON, "once_key_header X-Key;"),
    Location("/handed-early/", *ON, to="kept"),
    Location("/told-status/", *ON, more=("add_header X-Upstream-Status $upstream_status always;",)),
    Location("/put-on/", *ON, "once_methods PUT;", "once_pass @put;", to=None),
    Location("@put", more=("add_header X-Body-File $request_body_file always;",)),
    Location("/fallback-by-variable/", *ON, to="refusing", more=("error_page 502 = @by-variable;",)),
    Location("@by-variable", to=None, more=("set $there 127.0.0.1:$http_x_there;", "rewrite ^/[^/]+/(.*) /$1 break;", "proxy_pass http://$there;")),
    Location("/fallback-denied/", *ON, to="refusing", more=("error_page 502 = @denied;",)),
    Location("@denied", more=("deny all;",)),
    Location("/fallback-refused/", *ON, to="refusing", more=("error_page 502 = @refused;",)),
    Location("@refused", to="refusing"),
    Location("/error-page-static/", *ON, more=("error_page 502 =200 /static;",)),
    Location("= /static", to=None, more=("return 200 static;",)),
    Location("@fallback"),
    Location("/mirrored/", *ON, more=("mirror /mirror;",)),
    Location("= /mirror", *ON, to=None, more=("internal;", "proxy_pass http://app/mirrored/echo;", "proxy_set_header X-Test mirror-$http_x_test;")),
    Location("/headers/", *ON, more=("add_header X-Added $request_id always;", "add_header Set-Cookie own=1 always;")),
    Location("/gzip/", *ON, more=("gzip on;", "gzip_types *;", "gzip_min_length 1;")),
    Location("/unbuffered/", *ON, more=("proxy_buffering off;",)),
    Location("/streamed/", *ON, more=("proxy_request_buffering off;",)),
    Location("/hasty/", *ON, more=("send_timeout 1ms;",)),
    Location("/ranges/", *ON, more=("proxy_force_ranges on;",)),
    Location("/files/", to=None, more=("internal;", "root ROOT;")),
    Location("/elsewhere/", to="app", more=("internal;",)),
    Location("/made/", to=None, more=("internal;", "return 200 made;")),
    Location("/small/", *ON, more=("client_max_body_size 1k;", "error_page 400 413 /files/thousand;")),
    Location("/small-named/", *ON, more=("client_max_body_size 1k;", "error_page 400 413 = @if;")),
    Location("/redirect/", *ON),
    Location("/charset/", *ON, more=("charset one;", "source_charset one;", "override_charset on;")),
    Location("/filtered/", *ON, more=("sub_filter and or;", "charset one;", "charset_types *;", "gzip on;")),
    Location("/dav/", *ON, "once_methods PUT DELETE;", to=None, more=("root ROOT;", "dav_methods PUT DELETE;")),
    Location("/grpc/", *ON, to=None, more=("set $there 127.0.0.1:$http_x_there;", "rewrite ^/grpc/(.*) /$1 break;", "grpc_pass grpc://$there;")),
    Location("/trailing/", more=("add_trailer grpc-status 5 always;",)),
    Location("/untold/", "once on;", to=None, more=("root ROOT;",)),
    Location("= /untold-policy", "once on;", "once_policy;", to=None),
    Location("/if/", *ON, "once_pass @if;", more=("if ($http_x_if) { set $seen 1; }",)),
    Location("@if", more=("add_header X-Passed yes always;",)),
)
CHARSETS = "charset_map one two { 30 78; }"  # 0 is x there
ZONE = "limit_req_zone $binary_remote_addr zone=one:1m rate=1r/m;"

suite = Suite()
gateway = fastcgi = None


def begin(path, token, body=b"{}", headers=()):
    client = Client(gateway.port)
    client.send(request_bytes("POST", path, [("Host", "g"), ("Idempotency-Key", '"%s"' % token), ("X-Test", token),
                                             ("Content-Length", str(len(body))), *headers], body))
    return client


def once_and_replayed(path, status=201, **named):
    token = new_token()
    first = gateway.ask(path, token, token, **named)
    retry = gateway.ask(path, token, token, **named)
    expect_equal((first.status, retry.status, retry.replayed), (status, status, True), "the answers: %s %s" % (first, retry))
    expect_equal(retry.body, first.body, "the bodies")
    expect_equal(gateway.effects(token), 1, "effects")
    return first, retry


@suite.case
def limit_req__replays_are_not_limited():
    first, _ = once_and_replayed("/limited/normal")
    expect_equal(first.status, 201, "the one that the limit allows")
    token = new_token()
    for _ in range(2):
        answer = gateway.ask("/limited/normal", token, token)
        expect(answer.status in (429, 503) and not answer.replayed, "the one too many: %s" % answer)
        expect(gateway.record(token) is None, "what was not sent has a record")
    expect_equal(gateway.effects(token), 0, "effects")


@behaviour
def handed(c):
    """Says which file nginx shall answer with, or which location."""
    c.work()
    c.answer(200, ["X-Accel-Redirect: " + c.path.split("?")[1], "Content-Type: text/x-receipt", "X-Secret: 1"], "not this")


@suite.case
def x_accel_redirect__the_file_is_the_outcome():
    """It is stored: a replay does not look at the file, nor ask the upstream."""
    path = gateway.path("files/receipt")
    with open(path, "w", encoding="ascii") as file:
        file.write("receipt " * 20000)
    token = new_token()
    first = gateway.ask("/on/handed?/files/receipt", token, token)
    expect_equal((first.status, first.get("Content-Type"), first.body), (200, "text/x-receipt", b"receipt " * 20000), "the answer")
    expect(first.get("Last-Modified") and first.get("ETag"), "no validators: %s" % first.head)
    with open(path, "w", encoding="ascii") as file:
        file.write("another")
    retry = gateway.ask("/on/handed?/files/receipt", token, token)
    expect_equal((retry.replayed, retry.lasting()), (True, first.lasting()), "the retry")
    expect_equal((gateway.effects(token), gateway.state(token)), (1, "succeeded"), "effects, state")


@suite.case
def x_accel_redirect__a_large_file_is_passed_on_and_not_kept():
    with open(gateway.path("files/large"), "wb") as file:
        file.write(b"0123456789abcdef" * (5 << 16))
    token = new_token()
    first = gateway.ask("/on/handed?/files/large", token, token)
    expect_equal((first.status, first.body == b"0123456789abcdef" * (5 << 16)), (200, True), "the answer")
    retry = gateway.ask("/on/handed?/files/large", token, token)
    expect_equal((retry.status, retry.code()), (410, "answer-not-kept"), "the retry")
    expect_equal(gateway.effects(token), 1, "effects")


@behaviour
def validated(c):
    n = c.work()
    c.answer(200, ['ETag: "v"', "Accept-Ranges: bytes", "Last-Modified: Mon, 28 Sep 1970 06:00:00 GMT"], ("%d " % n) * 500)


PARTS_AND_CONDITIONS = {
    "a range": ("Range", "bytes=0-9"), "ranges": ("Range", "bytes=0-3,10-20"), "a range beyond it": ("Range", "bytes=99999999-"),
    "if it is another": ("If-Match", '"another"'), "if not modified": ("If-Unmodified-Since", "Thu, 01 Jan 1970 00:00:01 GMT"),
    "if it is none": ("If-None-Match", "*"), "if modified": ("If-Modified-Since", "Mon, 28 Sep 2037 06:00:00 GMT")}


def the_whole_answer_is_the_outcome(path, header):
    """Parts and conditions are a GET's; what they would make of it is not what a retry gets. And whatever is sent has the length it
    says: the next answer on the connection is the next request's."""
    token, other = new_token(), new_token()
    with Client(gateway.port) as client:
        first = gateway.ask(path, token, token, headers=[header], client=client)
        expect_equal(gateway.ask("/on/normal", other, other, client=client).status, 201, "the next answer on the connection")
    expect_equal((first.status, len(first.body), first.get("Content-Range")), (200, 1000, None), "the answer")
    retry = gateway.ask(path, token, token, headers=[header])
    expect_equal((retry.replayed, retry.lasting()), (True, first.lasting()), "the retry")
    expect_equal((gateway.effects(token), gateway.state(token)), (1, "succeeded"), "effects, state")


def x_accel_redirect_to_no_content(path):
    """Executed, and there is no answer to keep: that is said, and it is not sent again."""
    token = new_token()
    for _ in range(2):
        answer = gateway.ask(path, token, token)
        expect_equal((answer.status, answer.code()), (502, "outcome-unknown"), "the answer: %s" % answer)
    expect_equal((gateway.effects(token), gateway.state(token)), (1, "unknown"), "effects, state")


@suite.case
def rewrite__last():
    once_and_replayed("/rewritten/normal")


@suite.case
def rewrite__break():
    once_and_replayed("/broken-rewrite/normal")


def sent_once_whatever_the_error_page(path):
    """An error page must not send a claimed request a second time."""
    token = new_token()
    answers = [gateway.ask(path, token, token) for _ in range(3)]
    wait_for(lambda: gateway.effects(token), "the effect")  # nginx may have given up before
    expect_equal(gateway.effects(token), 1, "effects; the answers were %s" % answers)
    expect_equal(gateway.state(token), "unknown", "the record's state")
    for retry in answers[1:]:
        expect("unknown" in (retry.code() or ""), "the retry: %s" % retry)


@suite.case
def error_page__does_not_replace_outcomes():
    """The upstream's 404 is the outcome, also where nginx is told to put its own pages instead."""
    first, _ = once_and_replayed("/error-page/status_404", 404)
    expect_equal(first.body, b'{"status":404,"effect":1}', "the body")


def error_page__not_sent_is_released(path):
    """The upstream refuses the connection. What nginx has to say of that is not the operation, nor is it well."""
    token = new_token()
    for _ in range(2):
        answer = gateway.ask(path, token, token)
        expect_equal((answer.status, answer.code()), (502, "upstream-unreachable"), "the answer: %s" % answer)
    expect_equal((gateway.effects(token), gateway.state(token)), (0, "absent"), "effects, state")


def error_page__to_another_upstream(path):
    """FACT-1: nothing was sent, so it goes there as the one try that it has, under its claim."""
    first, _ = once_and_replayed(path + "normal")
    expect_equal(first.get("Idempotency-Expires") is None, False, "it has no record: %s" % first)
    sent_once_whatever_the_error_page(path + "reset_after_reading")


@suite.case
def error_page__to_another_upstream_that_a_variable_names():
    """It is guarded as the first was: its client may go, and the work is finished and stored."""
    token, there = new_token(), [("X-There", str(gateway.upstream.port))]
    client = begin("/fallback-by-variable/held", token, headers=there)
    wait_for(lambda: gateway.effects(token), "the effect")
    client.close()
    for _ in range(5):  # turns of the worker's event loop
        gateway.ask("/on/normal", new_token(), new_token())
    expect_equal(gateway.state(token), "running", "the record's state")
    gateway.upstream.open_gate(token)
    wait_for(lambda: gateway.state(token) == "succeeded", "the outcome")
    expect(gateway.ask("/fallback-by-variable/held", token, token, headers=there, body=b"{}").replayed, "the retry is no replay")
    expect_equal(gateway.effects(token), 1, "effects")


@suite.case
def error_page__to_another_upstream_that_is_not_for_all():
    """Access control there says so itself: it is not that nobody was reached."""
    token = new_token()
    answer = gateway.ask("/fallback-denied/normal", token, token)
    expect_equal((answer.status, answer.code(), answer.get("Retry-After")), (403, None, None), "the answer: %s" % answer)
    expect_equal((gateway.effects(token), gateway.state(token)), (0, "absent"), "effects, state")


@behaviour
def handed_early(c):
    """An informational head with a length, an answer that nginx replaces, and its body later than that."""
    c.work()
    c.send("HTTP/1.1 103 Early Hints\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nX-Accel-Redirect: /made/\r\nContent-Length: 45\r\n\r\n")
    c.hold()
    c.send("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nanother")


@suite.case
def informational__a_connection_is_not_kept_in_the_middle_of_an_answer():
    """K9: what is left of one answer is not the next one's."""
    first, second = new_token(), new_token()
    expect_equal(gateway.ask("/handed-early/handed_early", first, first).body, b"made", "the answer")
    client = begin("/handed-early/connection_close", second)
    wait_for(lambda: gateway.effects(second), "the effect of the next request, over a connection of its own")
    expect_equal(client.read().status, 200, "its status")
    gateway.upstream.open_gate(first)


@suite.case
def informational__is_not_the_upstreams_status():
    token = new_token()
    answer = gateway.ask("/told-status/early_hints", token, token)
    expect_equal(answer.get("X-Upstream-Status"), str(answer.status), "$upstream_status")


@suite.case
def once_pass__a_body_is_not_written_to_a_file_for_nothing():
    token = new_token()
    answer = gateway.ask("/put-on/normal", token, token, method="PUT")
    expect_equal((answer.status, answer.get("X-Body-File")), (201, None), "the answer: %s" % answer)


@suite.case
def x_accel_redirect__to_an_answer_of_nginx():
    first, _ = once_and_replayed("/on/handed?/made/", 200)
    expect_equal(first.body, b"made", "the body")


@suite.case
def error_page__a_static_page_is_no_outcome():
    token = new_token()
    gateway.ask("/error-page-static/reset_after_reading", token, token)
    retry = gateway.ask("/error-page-static/reset_after_reading", token, token)
    expect("unknown" in (retry.code() or ""), "the retry: %s" % retry)
    expect_equal((gateway.effects(token), gateway.state(token)), (1, "unknown"), "effects, state")


@suite.case
def mirror():
    token = new_token()
    for _ in range(2):
        expect_equal(gateway.ask("/mirrored/normal", token, token).status, 201, "the status")
    expect_equal(gateway.effects(token), 1, "effects")
    expect(len(gateway.records()) >= 1 and gateway.record("mirror-" + token) is None, "the mirrored request has a record")


@suite.case
def add_header__is_added_to_replays_anew():
    first, retry = once_and_replayed("/headers/normal")
    for answer in (first, retry):
        expect_equal((len(answer.all("X-Added")), answer.all("Set-Cookie")), (1, ["own=1"]), "the added headers")
    expect(first.get("X-Added") != retry.get("X-Added"), "an added header was replayed")


@behaviour
def redirecting(c):
    n = c.work()
    c.answer(201, ["Location: http://app/redirect/%d" % n], "made")


@suite.case
def proxy_redirect__is_replayed_as_it_was():
    """K5: nginx makes one that it has rewritten absolute, by the request's own Host, where it is told by whom it is sent."""
    first, retry = once_and_replayed("/redirect/redirecting")
    expect_equal((first.get("Location"), retry.get("Location")), ("/redirect/1",) * 2, "the locations")


@behaviour
def recoded(c):
    c.work()
    c.answer(200, ["Content-Type: " + c.header("x-type")], "x and y")


def charset__replays_are_recoded_from_the_same(said, rest):
    """K5: from what the service said that it is, not from what the configuration takes for granted."""
    token = new_token()
    for _ in range(2):
        answer = gateway.ask("/charset/recoded", token, token, headers=[("X-Type", said)])
        expect_equal((answer.body, answer.get("Content-Type")), (b"0 and y", said.split(";")[0] + rest + "; charset=one"), "the answer: %s" % answer)
    expect_equal(gateway.effects(token), 1, "effects")


def types__replays_are_filtered_as_the_answer_was(said):
    """K5: a filter for some types sees the type that it saw before."""
    first, retry = once_and_replayed("/filtered/recoded", 200, headers=[("X-Type", said)])
    expect_equal(retry.lasting(), first.lasting(), "the replay")


@suite.case
def dav():
    """A PUT and a DELETE of nginx itself are outcomes like any other."""
    put, delete = new_token(), new_token()
    path = "dav/%s" % put
    for body in (b"", b"content", b"c" * (2 << 20)):
        token = new_token()
        answers = [gateway.ask("/" + path, token, token, method="PUT", body=body) for _ in range(2)]
        expect_equal([(a.status, a.replayed) for a in answers], [(204 if body else 201, False), (204 if body else 201, True)], "the answers: %s" % answers)
        with open(gateway.path(path), "rb") as file:
            expect(file.read() == body, "the file")
    answers = [gateway.ask("/" + path, delete, delete, method="DELETE", body=None) for _ in range(2)]
    expect_equal([(a.status, a.replayed) for a in answers], [(204, False), (204, True)], "the answers: %s" % answers)
    expect(not os.path.exists(gateway.path(path)), "the file is there")


@suite.case
def underscores_in_headers__what_the_service_is_told_is_ours():
    """To a service that gets its header as variables, Once_Fence is Once-Fence."""
    token = new_token()
    first = gateway.ask("/on/echo", token, token, headers=[("Once_Key", "forged"), ("oNcE_fence", "987654"), ("Once-Fence", "987654"), ("Once_Other", "kept")])
    told = [(name.lower().replace("_", "-"), value) for name, value in json.loads(first.body)["headers"]]
    names = [name for name, _ in told]
    expect_equal((names.count("once-key"), names.count("once-fence"), names.count("once-other")), (1, 1, 1), "what it was told: %s" % told)
    expect(("once-key", "forged") not in told and ("once-fence", "987654") not in told, "it was told what the client said: %s" % told)


@suite.case
def gzip__is_applied_to_replays_anew():
    token = new_token()
    zipped = [gateway.ask("/gzip/chunked", token, token, headers=[("Accept-Encoding", "gzip")]) for _ in range(2)]
    plain = gateway.ask("/gzip/chunked", token, token)
    for answer in zipped:
        expect_equal(answer.get("Content-Encoding"), "gzip", "the encoding")
        expect_equal(gzip.decompress(answer.body), b"chunk 1, the rest", "the body")
    expect_equal((plain.get("Content-Encoding"), plain.body, plain.replayed), (None, b"chunk 1, the rest", True), "without gzip")


def nothing_leaves_before_it_is_stored(path):
    """K4: no byte of an answer before its end was seen and its outcome is durable."""
    token = new_token()
    client = begin(path + "held_in_body", token)
    wait_for(lambda: gateway.effects(token), "the effect")
    for _ in range(5):
        gateway.ask("/on/normal", new_token(), new_token())
    client.connection.setblocking(False)
    expect(nothing_to_read(client), "bytes of an answer that has not ended")
    gateway.upstream.open_gate(token)
    client.connection.setblocking(True)
    expect_equal(client.read().status, 201, "the status")
    client.close()


def nothing_to_read(client):
    try:
        return client.connection.recv(1) is None
    except BlockingIOError:
        return True


def nothing_leaves_while_the_store_is_stopped(path, ends_its_side):
    """K4 again: the answer has ended, its outcome is not stored yet. Who waits for it gets it then, also one who will send nothing more."""
    token = new_token()
    client = begin(path + "held", token)
    wait_for(lambda: gateway.effects(token), "the effect")
    gateway.daemon.process.send_signal(signal.SIGSTOP)
    try:
        gateway.upstream.open_gate(token)
        wait_for(lambda: not gateway.upstream.connections, "nginx to have read the answer")  # it closes after that
        if ends_its_side:
            client.connection.shutdown(socket.SHUT_WR)
        for _ in range(3):
            gateway.ask("/on/normal", None, new_token())  # through the same worker, and past the daemon
        client.connection.setblocking(False)
        expect(nothing_to_read(client), "bytes of an answer whose outcome is not stored")
    finally:
        gateway.daemon.process.send_signal(signal.SIGCONT)
    client.connection.setblocking(True)
    answer = client.read()
    client.close()
    retry = gateway.ask_until(lambda a: a.status not in (409, 503), path + "held", token, token, body=b"{}")
    expect_equal((answer.status, retry.replayed, retry.lasting()), (201, True, answer.lasting()), "the answers")


@suite.case
def streamed_requests_are_read_before_the_claim():
    token = new_token()
    client = Client(gateway.port)
    client.send(request_bytes("POST", "/streamed/normal", [("Host", "g"), ("Idempotency-Key", '"%s"' % token), ("X-Test", token),
                                                           ("Content-Length", "100")], b"half"))
    gateway.ask("/on/normal", new_token(), new_token())
    expect(gateway.record(token) is None and not gateway.upstream.caller_of(token), "half a request was claimed or forwarded")
    client.close()
    once_and_replayed("/streamed/normal")


def error_page__of_a_body_that_is_refused(path, answered, rest):
    """Chunks tell late that they are too many, or none. Whoever sent them is answered, with the page that is meant for it."""
    token = new_token()
    with Client(gateway.port) as client:
        client.send(request_bytes("POST", path, [("Host", "g"), ("Idempotency-Key", '"%s"' % token), ("X-Test", token),
                                                 ("Transfer-Encoding", "chunked")], b"1\r\nx\r\n"))
        gateway.ask("/on/normal", new_token(), new_token())  # through the same worker: it waits for the rest
        client.send(rest)
        answer = client.read()
    expect_equal((answer.status, len(answer.body) if answer.status != 201 else 0), answered, "the answer: %s" % answer)
    expect_equal(gateway.state(token), "absent", "the record's state")


@suite.case
def once_pass__holds_also_in_an_if():
    """An `if` is a location of its own to nginx, and part of the one around it to who wrote it."""
    for headers in ([], [("X-If", "1")]):
        first, _ = once_and_replayed("/if/normal", headers=headers)
        expect_equal(first.get("X-Passed"), "yes", "it went past the named location with %s" % headers)


def a_tenant_that_nobody_said_is_nobody(path):
    """K9. `nginx -t` does not ask for one where nginx itself answers; a key that comes there nevertheless is nobody's."""
    token = new_token()
    answer = gateway.ask(path, token, token)
    expect_equal((answer.status, answer.code(), gateway.state(token)), (401, "tenant-missing", "absent"), "the answer: %s" % answer)


@suite.case
def grpc__an_answer_with_trailers_is_not_kept():
    """What became of the call is said in them, not in the answer's status; a replay has none."""
    token = new_token()
    there = [("X-There", str(gateway.port2))]
    first, retry = (gateway.ask("/grpc/trailing/normal", token, token, headers=there) for _ in range(2))
    expect_equal((first.status, retry.status, retry.code(), gateway.effects(token)), (201, 410, "answer-not-kept", 1), "the answers, effects")


# ------------------------------------------------------------------ FastCGI

FASTCGI_STDIN, FASTCGI_STDOUT, FASTCGI_END = 5, 6, 3


def fastcgi_record(kind, data):
    return struct.pack(">BBHHBB", 1, kind, 1, len(data), 0, 0) + data


class FastCgi:
    """A FastCGI service. The last part of the path says how its answer of ten bytes ends: all of it; or it closes the connection
    before its announced length, between two records, or in the middle of one; `-length` announces how long it is."""

    def __init__(self):
        self.effects = collections.Counter()
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            connection, _ = self.listening.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection:
            asked = b""
            while fastcgi_record(FASTCGI_STDIN, b"") not in asked:
                asked += connection.recv(65536)
            how, token = re.search(rb"/([a-z-]+)\?(t-[0-9-]+)", asked).groups()
            self.effects[token.decode()] += 1
            length = b"Content-Length: 10\r\n" if how.endswith(b"-length") else b""
            end = fastcgi_record(FASTCGI_STDOUT, b"") + fastcgi_record(FASTCGI_END, bytes(8))
            answer = fastcgi_record(FASTCGI_STDOUT, b"Status: 201 Created\r\nContent-Type: text/plain\r\n" + length + b"\r\n01234")
            rest = fastcgi_record(FASTCGI_STDOUT, b"56789")
            answer += {b"whole": rest + end, b"between": b"", b"within": rest[:10], b"short": end}[how.replace(b"-length", b"")]
            connection.sendall(answer)


def fastcgi__what_breaks_off_is_not_an_answer(place, how):
    """nginx takes the end of a connection that was not to be kept for the end of the answer."""
    token = new_token()
    answers = [gateway.ask("/%s/%s?%s" % (place, how, token), token, token) for _ in range(2)]
    if how.startswith("whole"):
        expect_equal([(a.status, a.replayed, a.body) for a in answers], [(201, False, b"0123456789"), (201, True, b"0123456789")], "the answers")
    else:
        expect_equal([(a.status, a.code()) for a in answers], [(502, "outcome-unknown")] * 2, "the answers")
    expect_equal((fastcgi.effects[token], gateway.state(token)), (1, "succeeded" if how.startswith("whole") else "unknown"), "effects, state")


# ------------------------------------------------------------------ what `nginx -t` says

def refused(directive, location):
    accepted, said, lines = tested(gateway, location)
    expect(not accepted, "it is accepted")
    name = directive.split()[0].rstrip(";")
    where = re.findall(r"nginx\.conf:(\d+)", said)
    expect("[emerg]" in said and where, "it does not say where: %s" % said)
    number = int(where[0])
    near = "\n".join(lines[max(0, number - 12):number + 12])
    expect(name in near, "line %d is not where it is: %s" % (number, said))


BAD_VALUES = ["once maybe;", "once;", "once on off;", "once_daemon;", "once_tenant;", "once_key_header;", 'once_key_header "a b";',
              "once_key_format json;", "once_methods;", "once_methods GETT;", "once_fingerprint sometimes;", "once_fingerprint credential=;", "once_fingerprint 'credential=a b';", "once_lease 0;", "once_lease 25h;",
              "once_lease abc;", "once_lease -1s;", "once_retention 0;", "once_retention 101y;", "once_retention soon;", "once_body_retention 0;", "once_body_retention 101y;", "once_body_retention soon;",
              "once_key_time maybe;", "once_wait 25h;",
              "once_wait x;", "once_takeover sometimes;", "once_final 99;", "once_final 700;", "once_final x;", "once_max_response 17m;",
              "once_max_response x;", "once_max_response 1m 2m;", "once_max_response 1m memory=;", "once_max_response 1m memory=17m;", "once_max_response 1m memory=1k 2k;", "once_store_down maybe;", "once_forward maybe;", "once_intent maybe;", "once_pass nowhere;"]


@suite.case
def conf__good_values_are_accepted():
    accepted, said, _ = tested(gateway, Location("/a/", *ON, "once_lease 5s;", "once_retention 7d;", "once_wait 10s;", "once_takeover rerun;",
                                        "once_max_response 2m memory=0;", "once_key_format sf;", "once_methods POST PUT;"))
    expect(accepted, said)


@suite.case
def conf__an_answer_goes_with_its_record_at_the_latest():
    for values in (("once_retention 1h;", "once_body_retention 2h;"), ("once_body_retention 25h;",), ("once_body_retention never;",)):
        refused("once_body_retention", Location("/a/", *ON, *values))
    for values in (("once_retention never;", "once_body_retention 1d;"), ("once_retention never;", "once_body_retention never;"),
                   ("once_body_retention 24h;",), ("once_retention 1h;", "once_body_retention off;")):
        accepted, said, _ = tested(gateway, Location("/a/", *ON, *values))
        expect(accepted, said)


@suite.case
def conf__a_tenant_must_be_said():
    """Never a shared bucket by accident."""
    refused("once", Location("/a/", "once on;"))
    refused("once", Location("/a/", "once on;", "once_pass @b;", to=None))


@suite.case
def conf__credentials_are_no_tenant():
    """They would be stored, and shown wherever keys are."""
    for value in ("$http_authorization", "$http_proxy_authorization", "$http_cookie", "$cookie_session", "$http_x_api_key", "a-${HTTP_Authorization}", "$remote_user$cookie_s",
                  "$http_x_session_token"):
        accepted, said, lines = tested(gateway, Location("/a/", "once on;", 'once_tenant "%s";' % value))
        expect(not accepted and "credentials would be stored and shown as a tenant's name" in said, "%s: %s" % (value, said))
        number = int(re.findall(r"nginx\.conf:(\d+)", said)[0])
        expect("once_tenant" in lines[number - 1], "line %d: %s" % (number, said))
    for value in ("$http_x_account", "$remote_user", "http_authorization", "$http_authorization_of"):
        accepted, said, _ = tested(gateway, Location("/a/", "once on;", 'once_tenant "%s";' % value))
        expect(accepted, "%s: %s" % (value, said))


@suite.case
def conf__http_1_0_is_warned_of():
    """nginx's default: most services mark no end then, and nothing would be replayed."""
    warning = "proxy_http_version 1.1"
    for once, more, warned in ((ON, ("proxy_http_version 1.0;",), True), (ON, (), False), (("once observe;", SINGLE), ("proxy_http_version 1.0;",), False),
                               (("once off;",), ("proxy_http_version 1.0;",), False)):
        accepted, said, _ = tested(gateway, Location("/a/", *once, more=more))
        expect(accepted and (warning in said) == warned and ("nginx.conf:" in said or not warned), "%s, %s: it said: %s" % (once, more, said))
    accepted, said, _ = tested(gateway, Location("/a/", *ON, to=None, more=("root /tmp;", "proxy_http_version 1.0;")))
    expect(accepted and warning not in said, "without a service: %s" % said)
    accepted, said, _ = tested(gateway, Location("/a/", *ON, "once_pass @b;", to=None), Location("@b", more=("proxy_http_version 1.0;",)))
    expect(accepted and '"@b"' in said and warning in said, "where once_pass goes: %s" % said)


NOT_COMBINED = {
    "proxy_cache where once_pass goes": ((Location("/a/", *ON, "once_pass @b;", to=None), Location("@b", more=("proxy_cache c;",))), "a cache does not combine"),
    "proxy_store where once_pass goes": ((Location("/a/", *ON, "once_pass @b;", to=None), Location("@b", more=("proxy_store on;",))), "does not combine"),
    "once_pass to nowhere": ((Location("/a/", *ON, "once_pass @b;", to=None), Location("@bb")), "names a location that this server does not have"),
    "once_pass to nowhere, in a server without names": ((Location("/a/", *ON, "once_pass @b;"),), "names a location that this server does not have"),
    "grpc_pass": ((Location("/a/", *ON, to=None, more=("grpc_pass grpc://app;",)),), '"grpc_pass" does not combine'),
    "grpc_pass where once_pass goes": ((Location("/a/", *ON, "once_pass @b;", to=None), Location("@b", to=None, more=("grpc_pass app;",))), '"grpc_pass" does not combine'),
    "error pages that hide": ((Location("/a/", *ON, more=("error_page 401 = @b;", "recursive_error_pages on;")), Location("@b", *ON)), "would look like an allowed one"),
    "error pages that hide, of a location without once": ((Location("/a/", "once off;", more=("error_page 401 = @b;", "recursive_error_pages on;")), Location("@b", *ON)), "would look like an allowed one"),
    "error pages that hide, of files": ((Location("/a/", *ON, to=None, more=("error_page 502 403 = @b;", "recursive_error_pages on;")), Location("@b", *ON)), "would look like an allowed one"),
    "error pages that hide, by a variable": ((Location("/a/", *ON, more=("error_page 404 /x;", "error_page 401 = $http_x;", "recursive_error_pages on;")), Location("@b", *ON)), "would look like an allowed one"),
}
COMBINED = {
    "grpc_pass without keys": (Location("/a/", "once off;", to=None, more=("grpc_pass grpc://app;",)), Location("/b/", *ON)),
    "recursive error pages that show": (Location("/a/", *ON, more=("error_page 401 @b;", "error_page 403 = /b;", "recursive_error_pages on;")), Location("@b")),
    "error pages that hide, to a location without once": (Location("/a/", *ON, more=("error_page 401 = @b;", "recursive_error_pages on;")), Location("@b")),
    "error pages of upstreams": (Location("/a/", *ON, more=("error_page 502 504 = @b;", "recursive_error_pages on;")), Location("@b", *ON)),
    "error pages that hide, once": (Location("/a/", *ON, more=("error_page 401 = @b;",)), Location("@b")),
    "once_pass": (Location("/a/", *ON, "once_pass @b;", more=("if ($http_x) { set $y 1; }",)), Location("@a"), Location("@b")),
}


def not_combined(locations, why):
    """FAULT-46, K9: what cannot be kept, or would be given to the wrong one, is refused before anything runs."""
    accepted, said, lines = tested(gateway, *locations, http="proxy_cache_path cache keys_zone=c:1m;")
    expect(not accepted and why in said, "it said: %s" % said)
    number = int(re.findall(r"nginx\.conf:(\d+)", said)[0])
    expect_equal(lines[number - 1].strip(), "once on;", "line %d" % number)


def combined(locations):
    accepted, said, _ = tested(gateway, *locations)
    expect(accepted, said)


def main():
    global gateway, fastcgi
    suite.require()
    fastcgi = FastCgi()
    passed = ("fastcgi_pass 127.0.0.1:%d;" % fastcgi.port, "fastcgi_param REQUEST_METHOD $request_method;", "fastcgi_param REQUEST_URI $request_uri;",
              "fastcgi_param CONTENT_LENGTH $content_length;")
    gateway = Gateway((*LOCATIONS, Location("/fastcgi/", *ON, to=None, more=passed),
                       Location("/fastcgi-kept/", *ON, to=None, more=(*passed, "fastcgi_keep_conn on;")),
                       Location("/fastcgi-unbuffered/", *ON, to=None, more=(*passed, "fastcgi_buffering off;"))), http=ZONE + CHARSETS, listen="listen 127.0.0.1:PORT2 http2;",
                      server="underscores_in_headers on;")
    gateway.patient = True
    os.mkdir(gateway.path("files"))
    os.mkdir(gateway.path("dav"))
    with open(gateway.path("files/thousand"), "wb") as file:
        file.write(b"0123456789" * 100)
    gateway.start()
    for path in ("/on/handed?/files/thousand", "/on/validated", "/ranges/validated"):
        for name, header in PARTS_AND_CONDITIONS.items():
            suite.add("%s, %s: the whole answer is the outcome" % (path, name), the_whole_answer_is_the_outcome, path, header)
    for place in ("fastcgi", "fastcgi-kept", "fastcgi-unbuffered"):
        for how in ("whole", "whole-length", "between", "between-length", "within", "within-length", "short-length"):
            suite.add("%s, %s" % (place, how), fastcgi__what_breaks_off_is_not_an_answer, place, how)
    for name, rest, status in (("too large", b"800\r\n" + b"x" * 2048 + b"\r\n0\r\n\r\n", 413), ("malformed", b"no chunk\r\n", 400)):
        for path, answered in (("/small/normal", (status, 1000)), ("/small-named/normal", (201, 0))):
            suite.add("error_page, a body that is %s, %s" % (name, path), error_page__of_a_body_that_is_refused, path, answered, rest)
    for said, rest in (("text/html; charset=two", ""), ("text/html;charset=\"two\"", ""), ("text/html; x=y; charset=two", "; x=y")):
        suite.add("charset, %s: replays are recoded from the same" % said, charset__replays_are_recoded_from_the_same, said, rest)
    for said in ("text/html; x=y", "text/html", "text/html;", "text/plain;charset=two"):
        suite.add("types, %s: replays are filtered as the answer was" % said, types__replays_are_filtered_as_the_answer_was, said)
    for path in ("/untold/normal", "/untold-policy"):
        suite.add("a tenant that nobody said is nobody, %s" % path, a_tenant_that_nobody_said_is_nobody, path)
    for path in ("/on/handed?/files/missing", "/on/handed?/elsewhere/normal"):
        suite.add("X-Accel-Redirect, %s: unknown" % path, x_accel_redirect_to_no_content, path)
    for path in ("/error-page-well/normal", "/fallback-refused/normal", "/error-page-refused/normal"):
        suite.add("error_page, %s: released" % path, error_page__not_sent_is_released, path)
    for path in ("/fallback/", "/fallback-also-on/"):
        suite.add("error_page to another upstream, %s" % path, error_page__to_another_upstream, path)
    for name in ("status_500", "reset_after_reading", "length_too_long", "silence"):
        place = "/error-page-silent/" if name == "silence" else "/error-page/"
        suite.add("error_page, %s: sent once" % name, sent_once_whatever_the_error_page, place + name)
    for path in ("/on/", "/unbuffered/", "/hasty/"):
        for ends_its_side in (False, True):
            suite.add("nothing leaves while the store is stopped, %s%s" % (path, ", half closed" if ends_its_side else ""),
                      nothing_leaves_while_the_store_is_stopped, path, ends_its_side)
    for path in ("/on/", "/unbuffered/"):
        suite.add("nothing leaves before it is stored, %s" % path, nothing_leaves_before_it_is_stored, path)
    for name, (locations, why) in NOT_COMBINED.items():
        suite.add("conf: %s: refused" % name, not_combined, locations, why)
    for name, locations in COMBINED.items():
        suite.add("conf: %s: accepted" % name, combined, locations)
    for value in BAD_VALUES:
        suite.add("conf: %s is refused" % value, refused, value, Location("/a/", *[line for line in ON if line.split()[0] != value.split()[0].rstrip(";")], value))
    suite.run(gateways=[("the gateway", gateway)])


main()
