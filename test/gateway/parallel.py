#!/usr/bin/env python3
"""Many at once with one key (FAULT-33): one execution; the others are told that it is in progress, or
wait for it and get the same bytes. Through two workers, and through two gateways on one PostgreSQL.

SIZE=100 makes it 1000 requests at once.
"""
import os
import subprocess
import threading

from gateway import (Client, Gateway, Location, SINGLE, SIZE, Suite, expect, expect_equal, in_parallel, new_token, request_bytes,
                     wait_for)

COUNT = 10 * SIZE
LOCATIONS = (Location("/refuse/", "once on;", SINGLE),
             Location("/wait/", "once on;", SINGLE, "once_wait 300s;"),
             Location("/wait-rerun/", "once on;", SINGLE, "once_wait 300s;", "once_takeover rerun;"),
             Location("/wait-short/", "once on;", SINGLE, "once_wait 50ms;"))


def told_in_progress(answer):
    expect_equal(answer.status, 409, "the status")
    expect_equal(answer.problem()["title"], "A request is outstanding for this Idempotency-Key", "the title")
    expect(int(answer.get("Retry-After")) >= 1, "Retry-After: %s" % answer.get("Retry-After"))
    expect(answer.problem()["retryable"] is True, "the problem does not say that it may be retried")


def send_all(gateways, path, key, token):
    """One request each on connections of their own, all of them sent before any answer is read."""
    clients = [Client(gateways[i % len(gateways)].port) for i in range(COUNT)]
    data = request_bytes("POST", path, [("Host", "gateway.test"), ("Idempotency-Key", '"%s"' % key), ("X-Test", token),
                                        ("Content-Length", "2")], b"{}")
    in_parallel(lambda client: client.send(data), clients)
    return clients


def refused_while_it_runs(gateways):
    """All but one are answered while the one is held; then it is answered, and all retries replay it."""
    token = new_token()
    clients = send_all(gateways, "/refuse/held", token, token)
    lock, answers = threading.Lock(), []

    def read(client):
        answer = client.read()
        with lock:
            answers.append(answer)
            if len(answers) == COUNT - 1:
                gateways[0].upstream.open_gate(token)
    in_parallel(read, clients, width=COUNT)
    for client in clients:
        client.close()
    executed = [answer for answer in answers if answer.status == 201]
    expect_equal(len(executed), 1, "answers of an execution")
    expect(answers[-1].status == 201, "the execution was not the last to be answered")
    for answer in answers[:-1]:
        told_in_progress(answer)
    expect_equal(gateways[0].effects(token), 1, "effects")
    for retry in in_parallel(lambda i: gateways[i % len(gateways)].ask("/refuse/held", token, token, body=b"{}"), range(COUNT)):
        expect(retry.replayed, "a retry is no replay: %s" % retry)
        expect_equal(retry.lasting(), executed[0].lasting(), "a replay")
    expect_equal(gateways[0].effects(token), 1, "effects after the retries")


def same_bytes_after_waiting(gateways, path):
    """Nobody is answered while it runs; then all are, with the same bytes."""
    token = new_token()
    clients = send_all(gateways, path + "held", token, token)
    wait_for(lambda: gateways[0].effects(token) == 1, "the execution")
    gateways[0].upstream.open_gate(token)
    answers = in_parallel(Client.read, clients, width=COUNT)
    for client in clients:
        client.close()
    expect_equal([answer.status for answer in answers], [201] * COUNT, "the statuses")
    expect_equal(sum(not answer.replayed for answer in answers), 1, "answers that are no replay")
    expect_equal({str(answer.lasting()) for answer in answers}, {str(answers[0].lasting())}, "the answers")
    expect_equal(gateways[0].effects(token), 1, "effects")


def waiting_is_bounded(gateways):
    token = new_token()
    with Client(gateways[0].port) as first:
        first.send(request_bytes("POST", "/wait-short/held", [("Host", "g"), ("Idempotency-Key", '"%s"' % token), ("X-Test", token),
                                                              ("Content-Length", "2")], b"{}"))
        wait_for(lambda: gateways[0].effects(token) == 1, "the execution")
        for gateway in gateways:
            told_in_progress(gateway.ask("/wait-short/held", token, token, body=b"{}"))
        gateways[0].upstream.open_gate(token)
        expect_equal(first.read().status, 201, "the first one's status")


def others_are_not_held_up(gateways):
    """While one key is held, others are served, by every worker."""
    held = new_token()
    clients = send_all(gateways, "/wait/held", held, held)
    tokens = [new_token() for _ in range(COUNT * 4)]
    answers = in_parallel(lambda i: gateways[i % len(gateways)].ask("/wait/normal", tokens[i], tokens[i]), range(len(tokens)))
    expect_equal({answer.status for answer in answers}, {201}, "the statuses of other keys")
    expect_equal({gateways[0].effects(token) for token in tokens}, {1}, "effects of other keys")
    gateways[0].upstream.open_gate(held)
    expect_equal({answer.status for answer in in_parallel(Client.read, clients, width=COUNT)}, {201}, "the statuses of the held key")
    for client in clients:
        client.close()


def failures_wake_the_next(gateways):
    """rerun: an execution that failed lets one of those who wait execute, one after the other."""
    token = new_token()
    clients = send_all(gateways, "/wait-rerun/fails_once", token, token)
    answers = in_parallel(Client.read, clients, width=COUNT)
    for client in clients:
        client.close()
    statuses = sorted(answer.status for answer in answers)
    expect(set(statuses) <= {200, 503} and statuses.count(503) == 1, "the statuses: %s" % statuses)
    expect_equal(gateways[0].effects(token), 2, "effects")
    expect_equal({answer.body for answer in answers if answer.status == 200}, {b"well 2"}, "the answers")


def mixed_keys(gateways):
    """Several keys, several times each, in one storm."""
    tokens = [new_token() for _ in range(COUNT)]
    asked = [tokens[i % len(tokens)] for i in range(COUNT * 5)]
    answers = in_parallel(lambda i: (asked[i], gateways[i % len(gateways)].ask("/wait/normal", asked[i], asked[i])), range(len(asked)), 32)
    for token in tokens:
        mine = [answer for of, answer in answers if of == token]
        expect_equal({str(answer.lasting()) for answer in mine}, {str(mine[0].lasting())}, "the answers to one key")
        expect_equal(gateways[0].effects(token), 1, "effects")


def migrated(url):
    subprocess.run([os.environ["ONCE_BIN"], "migrate", "--store", url], check=True, stdout=subprocess.DEVNULL)
    return url


def main():
    suite = Suite()
    suite.require()
    two_workers = Gateway(LOCATIONS, workers=2).start()
    sets = [("two workers", [two_workers])]
    database = os.environ.get("ONCE_TEST_POSTGRES")
    if database:
        migrated(database)
        first = Gateway(LOCATIONS, workers=1, store=database).start()
        second = Gateway(LOCATIONS, workers=2, store=database, upstream=first.upstream).start()
        sets.append(("two gateways", [first, second]))
    for name, gateways in sets:
        suite.add("%s: refused while it runs" % name, refused_while_it_runs, gateways)
        suite.add("%s: waiting, the same bytes" % name, same_bytes_after_waiting, gateways, "/wait/")
        suite.add("%s: waiting, the same bytes, rerun" % name, same_bytes_after_waiting, gateways, "/wait-rerun/")
        suite.add("%s: waiting is bounded" % name, waiting_is_bounded, gateways)
        suite.add("%s: others are not held up" % name, others_are_not_held_up, gateways)
        suite.add("%s: failures wake the next" % name, failures_wake_the_next, gateways)
        suite.add("%s: mixed keys" % name, mixed_keys, gateways)
    suite.run(gateways=[(name, gateway) for name, gateways in sets for gateway in reversed(gateways)])


main()
