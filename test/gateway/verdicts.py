#!/usr/bin/env python3
"""What retries are told, and operators see, where a person decides: outcomes that are unknown, and verdicts about them."""
import json
import subprocess

from gateway import ESCALATE, Gateway, ONCE, RERUN, Suite, expect, expect_equal, new_token

suite = Suite()
gateway = None


def once(*arguments):
    run = subprocess.run([ONCE, *arguments, "--store", "once:" + gateway.daemon.socket], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    expect_equal(run.returncode, 0, "once %s: %s" % (" ".join(arguments), run.stdout))
    return run.stdout


def resolved(*verdict):
    """The retry after a verdict, and one more, which must be the same."""
    key = new_token("key")
    gateway.ask("/escalate/status_500", key, key)
    once("keys", "resolve", key, "--done", *verdict, "--reason", "looked")
    answers = [gateway.ask("/escalate/status_500", key, key) for _ in range(2)]
    expect_equal([a.replayed for a in answers], [True, True], "they are replays")
    expect_equal(answers[0].lasting(), answers[1].lasting(), "two replays")
    expect_equal(gateway.effects(key), 1, "effects")
    return answers[0].status, answers[0].body


def any_status_is_answered(number):
    """A verdict's status may be a command's; who asks by HTTP gets one of HTTP."""
    expect_equal(resolved("--status", number, "--body", "done"), (200, b"done"), "succeeded, with a body")
    expect_equal(resolved("--status", number), (204, b""), "succeeded, without")
    expect_equal(resolved("--status", number, "--failed", "--body", "no"), (500, b"no"), "failed")


@suite.case
def a_status_of_http_stays():
    for number in (200, 201, 302, 404, 500, 599):
        expect_equal(resolved("--status", str(number), "--body", "b"), (number, b"b"), "the replay")


@suite.case
def a_whole_5xx_is_said_to_be_one():
    """It is unknown what it did, but not what it said: clients are told its status, operators see all of it."""
    for number in (500, 503, 502):
        key = new_token("key")
        path = "/escalate/status_%d" % number
        first = gateway.ask(path, key, key)
        expect_equal((first.status, first.code(), first.get("Idempotency-Outcome")), (number, None, "unknown"), "what was passed on")
        retry = gateway.ask(path, key, key)
        expect_equal((retry.status, retry.code(), retry.replayed, retry.get("Idempotency-Outcome")), (number, "outcome-unknown", False, "unknown"), "the retry")
        expect("the service answered %d, which does not say whether it was executed" % number in retry.problem()["detail"], "it says: %s" % retry.problem())
        expect(first.body not in retry.body, "the answer is given away")
        shown = once("keys", "show", key)
        expect("status         %d\n" % number in shown and first.body.decode().strip() in shown, "keys show: %s" % shown)
        told = json.loads(once("keys", "show", "--json", key))
        expect_equal((told["state"], told["status"], told["body"]), ("unknown", number, first.body.decode()), "keys show --json")


@suite.case
def no_answer_is_said_to_be_none():
    for behaviour in ("reset_after_reading", "length_too_long"):
        key = new_token("key")
        for answer in [gateway.ask("/escalate/" + behaviour, key, key) for _ in range(2)]:
            expect_equal((answer.status, answer.code()), (502, "outcome-unknown"), "the answer")
            expect("no complete answer came back" in answer.problem()["detail"], "it says: %s" % answer.problem())
        expect("body" not in once("keys", "show", key).split("history")[0], "there is a body")


def main():
    global gateway
    suite.require()
    gateway = Gateway((ESCALATE, RERUN)).start()
    gateway.patient = True
    for number in ("0", "99", "101", "199"):
        suite.add("a verdict with status %s is answered" % number, any_status_is_answered, number)
    suite.run(width=4, gateways=[("the gateway", gateway)])


main()
