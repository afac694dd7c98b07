#!/usr/bin/env python3
"""`once send` against servers that misbehave: one effect, one key, and the truth about how it ended.

usage: send.py [words that select cases]      environment: ONCE_BIN, ONCE_TEST_KEEP=1
"""
import array
import fcntl
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import termios

from sendtest import (BOUND_S, KEYS, ONCE, REQUESTS, Send, Suite, TRIES, Upstream, answer, attempt, behaviour, effects, expect, expect_equal,
                      honour, problem, upstream, wait_for, skip_all)

suite = Suite()
service = None


def told(err, pattern):
    expect(re.search(pattern, err, re.M), "stderr should say %r: %s" % (pattern, err))


# ------------------------------------------------------------------ the service

@behaviour
def well(c):
    attempt(c)
    answer(c, honour(c))


@behaviour
def drops_every_second(c):
    """Odd tries are lost: the first of four before the effect, the third after it."""
    n = attempt(c)
    if n % 4 == 1:
        c.read_body()
        c.reset()
    replayed = honour(c)
    if n % 2 == 1:
        c.reset()
    answer(c, replayed)


@behaviour
def lost_twice(c):
    n = attempt(c)
    replayed = honour(c)
    if n < 3:
        c.reset()
    answer(c, replayed)


@behaviour
def slow_once(c):
    n = attempt(c)
    replayed = honour(c)
    if n == 1:
        c.hold()
        c.close()
    answer(c, replayed and not c.header("x-plain"))


@behaviour
def slow_always(c):
    attempt(c)
    honour(c)
    c.hold()
    c.close()


@behaviour
def busy_once(c):
    n = attempt(c)
    if n == 1:
        c.read_body()
        c.answer(503, ["Retry-After: 1"], "busy")
        return
    answer(c, honour(c))


@behaviour
def busy_for_an_hour(c):
    attempt(c)
    c.read_body()
    c.answer(429, ["Retry-After: 3600"], "later")


@behaviour
def in_progress_once(c):
    n = attempt(c)
    if n == 1:
        c.read_body()
        problem(c, 409, "in-progress", True, ["Retry-After: 0"], "A request is outstanding for this Idempotency-Key")
        return
    answer(c, honour(c), status=200)


@behaviour
def in_progress_always(c):
    attempt(c)
    honour(c)
    problem(c, 409, "in-progress", True)


@behaviour
def conflict(c):
    attempt(c)
    honour(c)
    answer(c, status=409, body="it is sold\n")


@behaviour
def refused_for_good(c):
    attempt(c)
    honour(c)
    problem(c, 503, "over", False)


@behaviour
def fails_then_replays_that(c):
    """Stripe's way: what failed stays failed under its key."""
    attempt(c)
    honour(c)
    answer(c, status=500, more=["Idempotent-Replayed: true"], body="no\n")


@behaviour
def unknown(c):
    attempt(c)
    honour(c)
    problem(c, 502, "outcome-unknown", False, ["Idempotency-Outcome: unknown"])


@behaviour
def mismatch(c):
    attempt(c)
    honour(c)
    problem(c, 422, "key-reused", False, title="Idempotency-Key is already used")


@behaviour
def invalid(c):
    attempt(c)
    honour(c)
    answer(c, status=422, body="no such amount\n")


@behaviour
def redirects(c):
    attempt(c)
    honour(c)
    answer(c, status=307, more=["Location: /x/well"], body="")


@behaviour
def large(c):
    attempt(c)
    answer(c, honour(c), body="x" * 100000)


@behaviour
def until_eof(c):
    attempt(c)
    honour(c)
    c.send("HTTP/1.1 200 OK\r\n\r\nall there is\n")
    c.close()


@behaviour
def lost_then_denied(c):
    n = attempt(c)
    if n == 1:
        honour(c)
        c.reset()
    if n == 2:
        c.read_body()
        c.answer(401, [], "who are you\n")
        return
    answer(c, honour(c))


@behaviour
def stripe(c):
    """In use, then a failure that may be retried, then its answer."""
    n = attempt(c)
    replayed = honour(c)
    kind = ["Content-Type: application/json"]
    if n == 1:
        c.answer(409, kind, '{"error":{"code":"idempotency_key_in_use","message":"in use","type":"invalid_request_error"}}')
    elif n == 2:
        c.answer(400, [*kind, "Stripe-Should-Retry: true"], '{"error":{"message":"lock","type":"api_error"}}')
    else:
        answer(c, status=200, more=["Idempotent-Replayed: true"] if replayed else [])


@behaviour
def stripe_says_no(c):
    attempt(c)
    honour(c)
    c.answer(500, ["Content-Type: application/json", "Stripe-Should-Retry: false"], '{"error":{"type":"api_error"}}')


@behaviour
def stripe_mismatch(c):
    attempt(c)
    honour(c)
    c.answer(400, ["Content-Type: application/json"], '{"error":{"type":"idempotency_error","message":"Keys for idempotent requests ..."}}')


@behaviour
def adyen(c):
    n = attempt(c)
    replayed = honour(c)
    if n == 1:
        c.answer(422, ["Content-Type: application/json", "transient-error: true"], '{"status":422,"message":"later"}')
    else:
        answer(c, status=200, more=["idempotency-key: " + c.header("idempotency-key")])


@behaviour
def paypal_mismatch(c):
    attempt(c)
    honour(c)
    c.answer(422, ["Content-Type: application/json"], '{"name":"UNPROCESSABLE_ENTITY","details":[{"issue":"PAYPAL_REQUEST_ID_PREVIOUSLY_USED"}]}')


def bad_first(name):
    """The first try is answered as upstream.py's behaviour of this name does, the second well."""
    def first_bad(c):
        n = attempt(c)
        if n > 1:
            answer(c, honour(c), status=200)
            return
        c.effect = lambda: 1
        upstream.BEHAVIOURS[name](c)
    return first_bad


GARBAGE = ["length_too_long", "length_without_body", "chunked_truncated", "chunked_without_end", "reset_in_headers", "close_in_status",
           "close_in_headers", "close_before_empty_line", "bad_status_line", "http_0_9", "other_protocol", "two_lengths", "huge_header",
           "bad_chunk_size", "negative_length", "reset_in_body", "close_unread"]
for name in GARBAGE:
    upstream.BEHAVIOURS["first_" + name] = bad_first(name)


# ------------------------------------------------------------------ answers

@suite.case
def first_answer_is_final():
    with Send() as s:
        status, out, err = s.post(service.port, "well", "-d", '{"a":1}', "-H", "Content-Type: application/json")
        expect_equal((status, out, err), (0, b"done %s\n" % s.token.encode(), ""), "answer")
        method, target, headers, body = REQUESTS[s.token][0]
        expect_equal((method, target, body), ("POST", "/x/well", b'{"a":1}'), "request")
        lower = [(k.lower(), v) for k, v in headers]
        expect(("content-type", "application/json") in lower and len([k for k, _ in lower if k == "content-type"]) == 1, headers)
        expect(re.fullmatch(r'"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"', s.one_key()), s.one_key())
        expect_equal(s.files(), [], "what is left after success")


@suite.case
def every_second_connection_is_dropped():
    for _ in range(8):
        with Send() as s:
            status, out, err = s.post(service.port, "drops_every_second", "-d", "x")
            expect_equal((status, effects(s.token)), (0, 1), "status, effects: " + err)
            s.one_key()
            expect_equal(TRIES[s.token], 2, "tries")
    with Send() as s:
        status, out, err = s.post(service.port, "lost_twice", "-d", "x", "-i")
        expect_equal((status, effects(s.token), TRIES[s.token]), (0, 1, 3), "status, effects, tries")
        told(err, r"^once: try 1: .*; again in ")
        told(err, r"^once: replay: ")
        expect(out.startswith(b"HTTP/1.1 201 Fine\r\n") and b"\r\nIdempotency-Replayed: true\r\n" in out, out)
        s.one_key()


@suite.case
def no_sign_of_keys_is_remarked():
    remarked = "nothing in this answer says that the server honours the key"
    with Send() as s:
        expect(remarked in s.post(service.port, "slow_once", "--timeout", "1s", "-H", "X-Plain: 1")[2], "a try was lost, no sign")
    with Send() as s:
        expect(remarked not in s.post(service.port, "lost_twice")[2], "the answer says that it is a replay")
    with Send() as s:
        expect(remarked not in s.post(service.port, "in_progress_once")[2], "no try was lost")


@suite.case
def quiet_says_nothing():
    with Send() as s:
        status, out, err = s.post(service.port, "lost_twice", "--quiet")
        expect_equal((status, err), (0, ""), "status, stderr")


@suite.case
def slow_is_asked_again():
    with Send() as s:
        status, _, err = s.post(service.port, "slow_once", "--timeout", "1s")
        expect_equal((status, effects(s.token)), (0, 1), "status, effects: " + err)
        expect(TRIES[s.token] >= 2, "tries: %d" % TRIES[s.token])  # more where an answer takes a second anyway
        s.one_key()


@suite.case
def max_time_is_for_all_of_it():
    for _ in range(20):
        with Send() as s:
            status, out, err = s.post(service.port, "slow_always", "--timeout", "1s", "--max-time", "4s")
            expect(TRIES.get(s.token, 0) <= 5, TRIES)
            expect_equal([k["state"] for k in s.kept()], ["pending"], "kept")
            if status == 69:  # the machine stood still until the time was up
                told(err, "nothing was sent$")
                expect(s.token not in TRIES, TRIES)
                continue
            expect_equal((status, out), (75, b""), "status, stdout: " + err)
            told(err, "the request may have taken effect")
            return
    raise AssertionError("nothing is ever sent")


@suite.case
def retry_after_is_waited_for():
    with Send() as s:
        status, _, err = s.post(service.port, "busy_once")
        expect_equal((status, TRIES[s.token]), (0, 2), "status, tries: " + err)
        wait = re.search(r"try 1: HTTP 503; again in 1s(\d+ms)?$", err, re.M)
        expect(wait, err)


@suite.case
def retry_after_beyond_the_budget_ends_it_at_once():
    with Send() as s:
        status, _, err = s.post(service.port, "busy_for_an_hour", "--max-time", "59m")
        expect_equal((status, TRIES[s.token]), (75, 1), "status, tries: " + err)
        told(err, "gave up after 1 try: HTTP 429")


@suite.case
def in_progress_is_asked_again():
    with Send() as s:
        status, out, err = s.post(service.port, "in_progress_once")
        expect_equal((status, TRIES[s.token]), (0, 2), "status, tries: " + err)
    with Send() as s:
        status, out, err = s.post(service.port, "in_progress_always", "--tries", "3")
        expect_equal((status, out, TRIES[s.token]), (75, b"", 3), "status, stdout, tries")
        told(err, "still in progress after 3 tries")


@suite.case
def final_answers_are_not_repeated():
    for name, exit_code in (("conflict", 22), ("refused_for_good", 22), ("fails_then_replays_that", 22), ("invalid", 22), ("mismatch", 65),
                            ("redirects", 22)):
        with Send() as s:
            status, out, err = s.post(service.port, name)
            expect_equal((status, TRIES[s.token]), (exit_code, 1), "%s: status, tries: %s" % (name, err))
            expect(out or name == "redirects", "%s: its answer is printed" % name)
            expect_equal(s.files(), [], "%s: files left" % name)
            if name == "redirects":
                told(err, "the redirect .HTTP 307. is not followed: /x/well")


@suite.case
def unknown_is_70_and_stays():
    with Send() as s:
        status, out, err = s.post(service.port, "unknown")
        expect_equal((status, out, TRIES[s.token]), (70, b"", 1), "status, stdout, tries")
        told(err, "does not know whether it executed this request")
        expect_equal(len(s.kept()), 1, "kept")
        upstream.BEHAVIOURS["unknown"] = well   # somebody resolved it
        try:
            status, out, _ = s.run("--resume")
        finally:
            upstream.BEHAVIOURS["unknown"] = unknown
        expect_equal((status, len(set(KEYS[s.token])), s.files()), (0, 1, []), "resumed: status, keys, files")


def garbage_first(name):
    with Send() as s:
        status, out, err = s.post(service.port, "first_" + name, "-d", "x")
        expect_equal((status, out), (0, b"done %s\n" % s.token.encode()), "status, stdout: " + err)
        s.one_key()


for name in GARBAGE:
    suite.add("garbage_is_no_answer " + name, garbage_first, name)


@suite.case
def nothing_marks_the_end():
    with Send() as s:
        status, out, err = s.post(service.port, "until_eof")
        expect_equal((status, out), (0, b"all there is\n"), "answer")
        told(err, "it may be cut off")


@suite.case
def answers_have_a_limit():
    with Send() as s:
        status, out, err = s.post(service.port, "large", "--max-answer", "99999")
        expect_equal((status, out, TRIES[s.token]), (63, b"", 1), "status, stdout, tries: " + err)
        status, out, err = s.run("--resume", "--max-answer", "100000", "-o", "there")
        expect_equal((status, out, os.path.getsize(s.path("there"))), (0, b"", 100000), "resumed: " + err)
        expect_equal((effects(s.token), s.files()), (1, []), "effects, files")


@suite.case
def not_reached_is_69_then_75():
    with Send() as s:
        status, out, err = s.post(service.refusing_port, "well", "--tries", "2")
        expect_equal((status, out), (69, b""), "status, stdout")
        told(err, "nothing was sent$")
        status, out, err = s.run("--resume", "--tries", "1")
        expect_equal(status, 75, "resumed, nobody knows what the first did")
        told(err, "nothing was sent this time$")


@suite.case
def denied_after_a_lost_try_is_kept():
    with Send() as s:
        status, out, err = s.post(service.port, "lost_then_denied", "-H", "Authorization: old")
        expect_equal((status, out), (22, b"who are you\n"), "status, stdout")
        told(err, "says nothing about earlier tries")
        status, out, err = s.run("--resume", "-H", "Authorization: new")
        expect_equal((status, effects(s.token), s.files()), (0, 1, []), "resumed: status, effects, files: " + err)
        s.one_key()


# ------------------------------------------------------------------ servers that are not Once

@suite.case
def stripe_style():
    with Send() as s:
        status, _, err = s.post(service.port, "stripe", "--header-format", "bare", "-d", "amount=1")
        expect_equal((status, effects(s.token), TRIES[s.token]), (0, 1, 3), "status, effects, tries: " + err)
        told(err, "^once: try 1: HTTP 409: in use; again in")
        told(err, "^once: replay: ")
        expect(re.fullmatch("[0-9a-f-]{36}", s.one_key()), s.one_key())
    for name, code in (("stripe_says_no", 22), ("stripe_mismatch", 65)):
        with Send() as s:
            status, out, _ = s.post(service.port, name, "--header-format", "bare")
            expect_equal((status, TRIES[s.token], s.files()), (code, 1, []), name + ": status, tries, files")


@suite.case
def adyen_and_paypal_style():
    with Send() as s:
        status, _, err = s.post(service.port, "adyen", "--header-format", "bare")
        expect_equal((status, TRIES[s.token]), (0, 2), "status, tries: " + err)
    with Send() as s:
        status, _, err = s.post(service.port, "paypal_mismatch", "--header-name", "PayPal-Request-Id")
        expect_equal((status, TRIES[s.token]), (65, 1), "status, tries: " + err)


# ------------------------------------------------------------------ output

@suite.case
def output_is_whole_or_not_there():
    with Send() as s:
        with open(s.path("answer"), "w") as file:
            file.write("older")
        status, _, _ = s.post(service.port, "in_progress_always", "--tries", "2", "-o", "answer")
        expect_equal((status, open(s.path("answer")).read()), (75, "older"), "without an answer")
        expect_equal(sorted(os.listdir(s.folder)), ["answer", "state"], "files")
    with Send() as s:
        status, out, _ = s.post(service.port, "well", "-o", "answer")
        expect_equal((status, out, open(s.path("answer")).read()), (0, b"", "done %s\n" % s.token), "with one")


@suite.case
def output_that_fails_is_74_and_nothing_is_lost():
    for how in ("stdout", "option", "folder"):
        with Send() as s:
            if how == "stdout":
                with open("/dev/full", "wb") as full:
                    status, _, err = s.post(service.port, "well", stdout=full)
            else:
                status, _, err = s.post(service.port, "well", "-o", "/dev/full" if how == "option" else "no/such/folder")
            expect_equal(status, 74, how + ": " + err)
            status, out, err = s.run("--resume")
            expect_equal((status, out, effects(s.token)), (0, b"done %s\n" % s.token.encode(), 1), how + ": resumed")
            told(err, "^once: replay")


# ------------------------------------------------------------------ what is kept

@suite.case
def resume_sends_the_same_bytes():
    with Send() as s:
        body = bytes(range(256)) * 40
        with open(s.path("body"), "wb") as file:
            file.write(body)
        arguments = ["-H", "X-B: two", "-H", "X-A:", "-d", "@body", "--tries", "1"]
        status, _, _ = s.run("PATCH", s.url(service.port, "lost_twice") + "?q=%20a", "-H", "X-Test: " + s.token, *arguments)
        expect_equal(status, 75, "status")
        with open(s.path("body"), "w") as file:
            file.write("something else")
        expect_equal(s.run("--resume", "--tries", "1")[0], 75, "the second")
        status, out, err = s.run("--resume")
        expect_equal(status, 0, "the third: " + err)
        seen = REQUESTS[s.token]
        expect_equal(len(seen), 3, "requests")
        expect(all(r == seen[0] for r in seen), "they differ: %s" % [r[:3] for r in seen])
        expect_equal((seen[0][0], seen[0][1], seen[0][3]), ("PATCH", "/x/lost_twice?q=%20a", body), "request")
        expect(("X-A", "") in seen[0][2] and ("X-B", "two") in seen[0][2], seen[0][2])


@suite.case
def credentials_are_not_saved():
    with Send() as s:
        secret = "sesame-%s" % s.token
        with open(s.path("credentials"), "w") as file:
            file.write("Authorization: Bearer %s\n\nX-Shop-Token: %s\n" % (secret, secret))
        status, _, err = s.post(service.port, "lost_twice", "--tries", "1", "-H", "@credentials")
        expect_equal(status, 75, "status")
        told(err, r"--resume [0-9a-f-]{36} --state \S+ -H 'Authorization: ...' -H 'X-Shop-Token: ...'$")
        saved = open(os.path.join(s.state, s.files()[0]), "rb").read()
        expect(secret.encode() not in saved and b"X-Shop-Token" in saved, "the file has credentials, or not their names")
        expect_equal(s.kept()[0]["withheld"], ["Authorization", "X-Shop-Token"], "withheld")
        expect_equal(os.stat(os.path.join(s.state, s.files()[0])).st_mode & 0o777, 0o600, "mode of the file")
        expect_equal(os.stat(s.state).st_mode & 0o777, 0o700, "mode of the folder")
        status, _, err = s.run("--resume", "-H", "Authorization: x")
        expect_equal(status, 64, "without all of them")
        told(err, "header 'X-Shop-Token' was not saved")
        status, _, err = s.run("--resume", "-H", "@credentials", "-H", "X-New: 1")
        expect_equal(status, 64, "with others")
        expect_equal(TRIES[s.token], 1, "nothing of that was sent")
        expect_equal(s.run("--resume", "-H", "@credentials")[0], 0, "with all of them")
        expect(("Authorization", "Bearer " + secret) in REQUESTS[s.token][-1][2], REQUESTS[s.token][-1][2])
    with Send() as s:
        expect_equal(s.post(service.port, "lost_twice", "--tries", "1", "-H", "Authorization: x", "--save-secrets")[0], 75, "status")
        expect_equal(s.run("--resume")[0], 0, "saved, because it was asked for")


@suite.case
def key_of_ones_own():
    with Send() as s:
        key = ["--key", "order 17"]
        expect_equal(s.post(service.port, "lost_twice", *key)[0], 64, "a space in a key")
        key = ["--key", 'order-"17"']
        expect_equal(s.post(service.port, "lost_twice", *key, "-d", "a", "--tries", "1")[0], 75, "status")
        expect_equal(s.run("--resume", 'order-"18"')[0], 1, "another key")
        expect_equal(s.run("--resume", 'order-"17"', "--max-age", "1ms")[0], 70, "found by its key")
        status, _, err = s.post(service.port, "lost_twice", *key, "-d", "b")
        expect_equal((status, TRIES[s.token]), (65, 1), "another body under a key that is kept: " + err)
        status, _, err = s.post(service.port, "lost_twice", *key, "-d", "a")
        expect_equal((status, effects(s.token), s.one_key()), (0, 1, '"order-\\"17\\""'), "the same again: " + err)
        expect_equal(s.files(), [], "files")


@suite.case
def other_headers_for_the_key():
    for arguments, header, key in ((["--header-format", "bare"], "Idempotency-Key", "k1"), (["--header-name", "PayPal-Request-Id"], "PayPal-Request-Id", "k1"),
                                   (["--header-name", "PayPal-Request-Id", "--header-format", "sf"], "PayPal-Request-Id", '"k1"'),
                                   (["--header-name", "idempotency-key"], "idempotency-key", '"k1"')):
        with Send() as s:
            expect_equal(s.post(service.port, "lost_twice", "--key", "k1", *arguments, "--tries", "1")[0], 75, "status")
            expect_equal(s.run("--resume")[0], 0, "resumed")  # it needs to be told neither
            expect(all((header, key) in request[2] for request in REQUESTS[s.token]), REQUESTS[s.token])


@suite.case
def old_ones_are_not_resumed():
    with Send() as s:
        expect_equal(s.post(service.port, "lost_twice", "--tries", "1")[0], 75, "status")
        status, _, err = s.run("--resume", "--max-age", "1ms")
        expect_equal((status, TRIES[s.token]), (70, 1), "status, tries")
        told(err, "the server may have forgotten its key")
        expect_equal(s.run("--resume", "--max-age", "never")[0], 0, "it remembers for ever")


@suite.case
def one_process_at_a_time():
    with Send() as s:
        first = s.start("POST", s.url(service.port, "slow_once"), "-H", "X-Test: " + s.token)
        try:
            wait_for(lambda: TRIES.get(s.token), "the first request")
            expect_equal([k["state"] for k in s.kept()], ["sending"], "listed")
            status, _, err = s.run("--resume")
            expect_equal(status, 75, "resumed meanwhile: " + err)
            expect_equal(s.run_plain("--forget", s.files()[0])[0], 75, "forgotten meanwhile")
            os.close(os.open(upstream.gate_path(service.folder, s.token), os.O_CREAT | os.O_WRONLY))
            first.communicate(timeout=BOUND_S)
            expect_equal((first.returncode, effects(s.token)), (0, 1), "the first: status, effects")
        finally:
            first.kill()
            first.communicate()


@suite.case
def several_are_told_apart():
    with Send() as s:
        for _ in range(3):
            s.post(service.refusing_port, "well", "--tries", "1")
        ids = [k["id"] for k in s.kept()]
        expect_equal(len(ids), 3, "kept")
        status, out, err = s.run("--resume")
        expect_equal(status, 64, "which?")
        told(err, "3 requests are pending: give an ID")
        expect_equal(s.run("--resume", "0000000000")[0], 1, "none of that name")
        expect_equal(s.run_plain("--forget", ids[1])[0], 0, "forgotten")
        expect_equal([k["id"] for k in s.kept()], [ids[0], ids[2]], "left")
        expect_equal(s.run_plain("--forget", ids[1])[0], 1, "forgotten twice")
        with open(os.path.join(s.state, ids[0]), "r+b") as file:
            file.seek(30)
            file.write(b"\xff")
        status, _, err = s.run("--resume", ids[0])
        expect_equal(status, 70, "a damaged one")
        expect_equal({k["id"]: k["state"] for k in s.kept()}, {ids[0]: "damaged", ids[2]: "pending"}, "listed")
        expect_equal(s.run_plain("--forget", ids[0])[0], 0, "a damaged one is forgotten")
        status, out, _ = s.run_plain("--list")
        expect(ids[2] in out.decode() and "POST" in out.decode() and "pending" in out.decode(), out)
    with Send() as s:
        expect_equal(s.run_plain("--list")[:2], (0, b""), "nothing, without a folder")
        expect_equal(s.run("--resume")[0], 1, "nothing to resume")
        expect_equal(s.files(), [], "looking makes nothing")


@suite.case
def what_cannot_be_saved_is_not_sent():
    with Send() as s:
        with open(s.state, "w"):
            pass
        status, out, err = s.post(service.port, "well")
        expect_equal((status, out, TRIES.get(s.token)), (69, b"", None), "status, stdout, tries: " + err)


@suite.case
def a_full_disk_sends_nothing():
    with Send() as s:
        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        run = subprocess.run([ONCE, "send", "--state", s.state, "POST", s.url(service.port, "well"), "-H", "X-Test: " + s.token, "-d", "x" * 1000],
                             env=s.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=small_files)
        expect_equal((run.returncode, run.stdout, TRIES.get(s.token), s.files()), (69, b"", None, []), "status, stdout, tries, files")
        told(run.stderr.decode(), "so nothing was sent")


@suite.case
def default_folder():
    with Send() as s:
        run = subprocess.run([ONCE, "send", "POST", s.url(service.port, "lost_twice"), "-H", "X-Test: " + s.token, "--tries", "1"], env=s.environment(),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        expect_equal((run.returncode, len(os.listdir(s.path("xdg/once/send")))), (75, 1), "status, files")
        run = subprocess.run([ONCE, "send", "--resume"], env=s.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        expect_equal((run.returncode, os.listdir(s.path("xdg/once/send"))), (0, []), "status, files")


# ------------------------------------------------------------------ the rest of the command line

@suite.case
def body_from_standard_input():
    with Send() as s:
        expect_equal(s.post(service.port, "well", "-d", "@-", data=b"a\0b\r\n")[0], 0, "status")
        expect_equal(REQUESTS[s.token][0][3], b"a\0b\r\n", "body")
        expect(("Content-Type", "application/x-www-form-urlencoded") in REQUESTS[s.token][0][2], REQUESTS[s.token][0][2])
    with Send() as s:
        expect_equal(s.post(service.port, "well", "-d", "-", data=b"from outside")[0], 0, "status")
        expect_equal(REQUESTS[s.token][0][3], b"from outside", "a dash is standard input, as in every verb")
    with Send() as s:
        expect_equal(s.post(service.port, "well", "-H", "-", "-d", "x", data=b"X-One: 1\r\nX-Two: 2\n")[0], 0, "status")
        expect(("X-Two", "2") in REQUESTS[s.token][0][2], REQUESTS[s.token][0][2])
    with Send() as s:
        status, _, said = s.post(service.port, "well", "-H", "@-", "-d", "-", data=b"X-One: 1\n")
        expect_equal((status, TRIES.get(s.token)), (64, None), "both would be read from it")
        told(said, "--data: --header reads standard input already")
    with Send() as s:
        expect_equal(s.post(service.port, "well", "-d", "@nowhere")[0], 64, "no such file")
        expect_equal(s.post(service.port, "well", "-d", "@-", data=b"x" * ((16 << 20) + 1))[0], 64, "too large")
        expect_equal((TRIES.get(s.token), s.files()), (None, []), "tries, files")
        expect_equal(s.post(service.port, "well", "-d", "@-", data=b"x" * (16 << 20))[0], 0, "the largest")
        expect_equal(len(REQUESTS[s.token][0][3]), 16 << 20, "its length")


@suite.case
def other_methods():
    for method in ("GET", "DELETE", "PUT", "HEAD"):
        with Send() as s:
            status, out, _ = s.run(method, s.url(service.port, "well"), "-H", "X-Test: " + s.token)
            expect_equal((status, REQUESTS[s.token][0][0]), (0, method), "status, method")


@suite.case
def proxy_of_the_environment():
    with Send() as s:
        status, _, err = s.run("POST", "http://shop.invalid/x/well", "-H", "X-Test: " + s.token,
                               env={"http_proxy": "http://127.0.0.1:%d" % service.port})
        expect_equal((status, REQUESTS[s.token][0][1]), (0, "http://shop.invalid/x/well"), "status, target: " + err)
    with Send() as s:
        status, _, err = s.run("POST", "http://shop.invalid/x/well", "-H", "X-Test: " + s.token, "--proxy", "http://127.0.0.1:%d" % service.port)
        expect_equal(status, 0, "--proxy: " + err)


@suite.case
def handshake_that_fails():
    """No TLS there at all: tried again, and nothing was sent."""
    with Send() as s:
        status, _, err = s.run("POST", s.url(service.port, "well", scheme="https"), "--tries", "2", "--connect-timeout", "100ms")
        expect_equal(status, 69, "status: " + err)


# ------------------------------------------------------------------ signals, crashes

@suite.case
def interrupted_while_it_waits():
    for how in (signal.SIGINT, signal.SIGTERM):
        with Send() as s:
            process = s.start("POST", s.url(service.port, "busy_for_an_hour"), "-H", "X-Test: " + s.token, "--max-time", "2h")
            line = process.stderr.readline()
            expect(b"again in 1h" in line, line)
            process.send_signal(how)
            out, err = process.communicate(timeout=BOUND_S)
            expect_equal((process.returncode, out), (-how, b""), "status, stdout")
            told(err.decode(), "stopped; the request may have taken effect\nto continue: once send --resume")
            expect_equal([k["state"] for k in s.kept()], ["pending"], "kept")


@suite.case
def interrupted_while_it_sends():
    with Send() as s:
        process = s.start("POST", s.url(service.port, "slow_once"), "-H", "X-Test: " + s.token)
        wait_for(lambda: TRIES.get(s.token), "the request")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=BOUND_S)
        expect_equal(process.returncode, -signal.SIGINT, "status")
        expect_equal((s.run("--resume")[0], effects(s.token), s.files()), (0, 1, []), "resumed: status, effects, files")
        s.one_key()


@suite.case
def interrupted_while_it_prints():
    """Whoever reads the answer has stopped reading."""
    with Send() as s:
        process = s.start("POST", s.url(service.port, "large"), "-H", "X-Test: " + s.token)
        wait_for(lambda: is_stuck(process), "a full pipe")
        process.send_signal(signal.SIGINT)
        process.wait(BOUND_S)
        expect_equal(process.returncode, -signal.SIGINT, "status")
        process.communicate()
        status, out, _ = s.run("--resume")
        expect_equal((status, len(out), effects(s.token), s.files()), (0, 100000, 1, []), "resumed: status, answer, effects, files")


def is_stuck(process):
    """Is there as much in its output as fits?"""
    count = array.array("i", [0])
    fcntl.ioctl(process.stdout.fileno(), termios.FIONREAD, count)
    return count[0] >= 65536


@suite.case
def synced_before_it_is_sent():
    """The file, its name, its folder; then the connection."""
    if not shutil.which("strace"):
        return
    with Send() as s:
        os.mkdir(s.state, 0o700)
        trace = s.path("trace")
        run = subprocess.run(["strace", "-f", "-o", trace, "-e", "trace=openat,write,fsync,linkat,unlinkat,connect", ONCE, "send", "--state", s.state,
                              "POST", s.url(service.port, "well"), "-H", "X-Test: " + s.token, "-o", "answer"],
                             cwd=s.folder, env=s.environment({"ASAN_OPTIONS": "detect_leaks=0"}), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        lines = open(trace).read() if os.path.exists(trace) else ""
        if "linkat(" not in lines:
            return  # not permitted here
        expect_equal(run.returncode, 0, "status: %r" % run.stderr)
        new = re.search(r'openat\(\d+, "\.new-[^"]*", .*\) = (\d+)$', lines, re.M)
        folder = re.search(r'openat\(AT_FDCWD, "%s", .*\) = (\d+)$' % re.escape(s.state), lines, re.M)
        connect = re.search(r"connect\(\d+, \{sa_family=AF_INET, sin_port=htons\(%d\)" % service.port, lines)
        link = lines.index("linkat(")
        expect(new and folder and connect, lines)
        file_synced = lines.index("fsync(%s)" % new.group(1), new.start())
        folder_synced = lines.index("fsync(%s)" % folder.group(1), link)
        expect(new.start() < file_synced < link < folder_synced < connect.start(), lines)
        removed = lines.rindex("unlinkat(")
        expect("fsync(" in lines[connect.start():removed], "the answer is synced before the request is removed: " + lines)
        expect("fsync(%s)" % folder.group(1) in lines[removed:], "its removal is synced: " + lines)


@suite.case
def killed_while_it_sends():
    with Send() as s:
        process = s.start("POST", s.url(service.port, "slow_once"), "-H", "X-Test: " + s.token)
        wait_for(lambda: effects(s.token), "the effect")
        process.kill()
        process.communicate()
        expect_equal((s.run("--resume")[0], effects(s.token), s.files()), (0, 1, []), "resumed: status, effects, files")
        s.one_key()


POINTS = ["send.written", "client.saved", "client.sending", "client.answered", "send.printed", "send.forgotten"]


def killed_at(point):
    """At each passing of the point; then resumed, or begun anew where nothing was kept: one effect, one key."""
    for n in range(1, 6):
        with Send() as s:
            log = s.path("passed")
            status, out, _ = s.post(service.port, "lost_twice", "-d", "x", env={"ONCE_CRASH": "%s:%d" % (point, n), "ONCE_CRASH_LOG": log})
            passed = open(log).read().split().count(point)
            if status == 0:
                expect_equal(passed, n - 1, "%s: passings of a run that survived" % point)
                expect(n > 1, "%s was never passed" % point)
                return
            expect_equal(status, -signal.SIGKILL, "%s:%d: status" % (point, n))
            kept = s.kept()
            if point == "send.written":
                expect_equal((len(kept), TRIES.get(s.token)), (0, None), "before it is saved nothing is sent")
                continue
            if point == "send.forgotten":
                expect_equal((len(kept), out), (0, b"done %s\n" % s.token.encode()), "after all of it")
                continue
            expect_equal(len(kept), 1, "%s:%d: kept" % (point, n))
            status, out, err = s.run("--resume")
            expect_equal((status, out, effects(s.token), s.files()), (0, b"done %s\n" % s.token.encode(), 1, []),
                         "%s:%d: resumed: %s" % (point, n, err))
            expect_equal(s.one_key(), '"%s"' % kept[0]["key"], "%s:%d: the key" % (point, n))
    raise AssertionError("%s is passed for ever" % point)


for point in POINTS:
    suite.add("killed_at " + point, killed_at, point)


@suite.case
def killed_again_and_again():
    """Each of nine resumptions dies at a point, then one does not."""
    with Send() as s:
        expect_equal(s.post(service.port, "lost_twice", env={"ONCE_CRASH": "client.saved:1"})[0], -9, "the first")
        for n in range(9):
            point = ("client.sending", "client.answered", "send.printed")[n % 3]
            if s.run("--resume", env={"ONCE_CRASH": point + ":1"})[0] != -9:
                expect(False, "it should have died at %s" % point)
        status, out, err = s.run("--resume")
        expect_equal((status, effects(s.token), s.files()), (0, 1, []), "status, effects, files: " + err)
        s.one_key()


@suite.case
def half_written_ones_are_removed_when_they_are_old():
    with Send() as s:
        s.post(service.port, "well", env={"ONCE_CRASH": "send.written:1"})
        new = [name for name in s.files() if name.startswith(".new-")]
        expect_equal(len(new), 1, "half written")
        expect_equal(s.kept(), [], "kept")
        expect_equal(s.files(), new, "a young one may be somebody's")
        os.utime(os.path.join(s.state, new[0]), (1, 1))
        expect_equal((s.kept(), s.files()), ([], []), "kept, files")


if __name__ == "__main__":
    if not ONCE:
        skip_all("ONCE_BIN does not name the program")
    with tempfile.TemporaryDirectory(prefix="once-send-service-") as folder:
        service = Upstream(folder)
        suite.run(width=4)
