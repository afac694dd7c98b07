#!/usr/bin/env python3
"""once_client_*() from a C program that keeps its requests itself (api.c).   environment: ONCE_CLIENT_API"""
import os
import subprocess
import tempfile

from sendtest import BOUND_S, KEYS, Suite, TRIES, Upstream, answer, attempt, behaviour, effects, expect, expect_equal, honour, new_token, skip_all

API = os.environ.get("ONCE_CLIENT_API", "")
suite = Suite()
service = folder = None


@behaviour
def lost_once(c):
    n = attempt(c)
    replayed = honour(c)
    if n == 1:
        c.reset()
    answer(c, replayed)


@behaviour
def always_well(c):
    attempt(c)
    answer(c, honour(c))


def api(*arguments):
    run = subprocess.run([API, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=BOUND_S)
    expect("Sanitizer" not in run.stderr and "runtime error" not in run.stderr, run.stderr)
    return run.returncode, run.stdout, run.stderr


def url(name):
    return "http://127.0.0.1:%d/x/%s" % (service.port, name)


@suite.case
def sends_until_answered():
    token = new_token("api")
    status, out, err = api("send", url("lost_once"), token, os.path.join(folder, token))
    expect_equal((status, effects(token), TRIES[token]), (0, 1, 2), "status, effects, tries: " + err)
    expect_equal(out, "answered 201 replayed %s done %s\n" % (KEYS[token][0].strip('"'), token), "answer")


@suite.case
def resumes_after_a_crash():
    token = new_token("api")
    file = os.path.join(folder, token)
    expect_equal((api("send", url("lost_once"), token, file, "crash")[0], TRIES.get(token)), (99, None), "saved first: status, tries")
    for _ in range(2):
        status, out, err = api("resume", file)
        expect_equal((status, effects(token), len(set(KEYS[token]))), (0, 1, 1), "status, effects, keys: " + err)
    expect(out.startswith("answered 201 replayed "), out)
    with open(file, "ab") as more:
        more.write(b"x")
    status, out, err = api("resume", file)
    expect_equal((status, out), (1, ""), "damaged")
    expect("damaged" in err, err)


@suite.case
def one_client_many_requests():
    token = new_token("api")
    status, out, err = api("twice", url("always_well"), token)
    expect_equal((status, effects(token), len(set(KEYS[token]))), (0, 2, 2), "status, effects, keys: " + err)


@suite.case
def a_client_for_each_thread():
    token = new_token("api")
    status, out, err = api("threads", url("always_well"), token, "8")
    expect_equal((status, effects(token), len(set(KEYS[token]))), (0, 8, 8), "status, effects, keys: " + err)


if __name__ == "__main__":
    if not API:
        skip_all("ONCE_CLIENT_API does not name the program")
    with tempfile.TemporaryDirectory(prefix="once-api-") as folder:
        service = Upstream(folder)
        suite.run()
