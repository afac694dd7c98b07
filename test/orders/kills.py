#!/usr/bin/env python3
"""kill -9 of the shop at every boundary of a phase and inside its call; then a client that asks again, or a
completer instead. One order, one charge, one receipt, and the same answer ever after; with a provider that
ignores keys at most one charge, and `unknown` exactly where the rule says that something may have been
sent (FAULT-1 to FAULT-4).

A flow without intent commits claim, order, receipt; with intent, one more before the call.
"""
import signal
import threading

from harness import BOUND_S, KIND, SIZE, expect, skip_without_points, tap, wait_for

PHASES = {False: 3, True: 4}  # commits, without intent and with


def places(intent):
    """Where it is killed, in the order of the run, and whether the record may then say that something was sent."""
    claim, order, receipt = 1, 2, PHASES[intent]
    before = receipt - 1  # the last commit before the call: the order's, or the intent's
    found = []
    for n in range(claim, before + 1):
        found.append(("flow.begun:%d" % n, False))
        if n == order:
            found.append(("flow.worked:1", False))
        found.append(("flow.written:%d" % n, False))
        found.append(("flow.committed:%d" % n, n == before))
    found += [("flow.calling:1", True), ("hold", True), ("hold-answer", True), ("flow.called:1", True)]
    found += [("flow.begun:%d" % receipt, True), ("flow.worked:2", True), ("flow.written:%d" % receipt, True),
              ("flow.committed:%d" % receipt, False)]
    return found


def die(case, place, options):
    """Starts a shop, asks it, and has it killed at the place. Returns whether a charge was asked for."""
    crash = {} if place.startswith("hold") else {"ONCE_CRASH": place}
    shop = case.orders("--lease", "200", *options, env=crash)
    if not crash:
        case.mode(place)
        asking = threading.Thread(target=case.post, args=(shop,))
        asking.start()
        wait_for(lambda: case.held() == 1, "the provider to hold the charge")
        case.kill(shop)
        asking.join()
        case.mode("ok")
        wait_for(lambda: case.held() == 0, "the provider to let go")
    else:
        answer = case.post(shop)
        expect(answer is None, "%s was not passed: %s" % (place, answer))
        shop.wait(timeout=BOUND_S)
        expect(shop.returncode == -signal.SIGKILL, "exit status %s" % shop.returncode)


def check_end(case, answer, unknown, when):
    charges, orders, receipts = case.charges(), case.orders_in_books(), case.receipts()
    expect(len(charges) <= 1, "%s: charged %d times" % (when, len(charges)))
    expect(len(orders) == 1, "%s: orders %s" % (when, orders))
    if unknown:
        expect(answer.status == 502 and answer.unknown, "%s: not unknown: %s" % (when, answer))
        expect(receipts == [], "%s: unknown, with a receipt" % when)
    else:
        expect(answer.status == 201, "%s: %s" % (when, answer))
        expect(len(charges) == 1 and len(receipts) == 1, "%s: charges %s, receipts %s" % (when, charges, receipts))
        expect(orders[0][1] == "paid", "%s: order is %s" % (when, orders))


def killed(place, sent, callee, intent, recovery, keys):
    def function(case):
        when = "killed at %s" % place
        case.provider(*([] if keys else ["--no-keys"]))
        options = ["--callee", callee] + (["--intent"] if intent else [])
        die(case, place, options)
        unknown = sent and callee == "opaque"
        if recovery == "completer":
            case.sweep_until_done(*options)
        shop = case.orders("--lease", "60000", *options)
        answer = case.post_until_final(shop)
        check_end(case, answer, unknown, when)
        began = not (place.startswith(("flow.begun:1", "flow.written:1")))
        if recovery == "completer" and began and not unknown:
            expect(answer.replayed, "%s: the client executed what the completer should have" % when)
        again = case.post(shop)
        expect((again.status, again.body) == (answer.status, answer.body), "%s: then %s, first %s" % (when, again, answer))
        expect(unknown or again.replayed, "%s: executed again" % when)
        check_end(case, again, unknown, when + ", asked again")
        case.check_books(when)
        return "%s: %s, %d charges" % (place, "unknown" if unknown else answer.status, len(case.charges()))
    return function


def resolved(verdict):
    """A person looks, and says what is true; that goes on from there."""
    def function(case):
        case.provider("--no-keys")
        place = "flow.calling:1" if verdict == "--not-done" else "flow.called:1"
        die(case, place, ["--callee", "opaque"])
        shop = case.orders("--lease", "60000", "--callee", "opaque")
        answer = case.post_until_final(shop)
        check_end(case, answer, True, "killed")
        happened = verdict == "--done"
        expect(len(case.charges()) == happened, "charges %s" % case.charges())
        said = case.once("keys", "resolve", "k", verdict, "--reason", "it is in the ledger, or not",
                         *(["--status", "201", "--body", "seen"] if happened else []))
        expect(said.returncode == 0, "once keys resolve: " + said.stdout)
        answer = case.post_until_final(shop)
        expect(answer.status == 201, "after %s: %s" % (verdict, answer))
        expect(len(case.charges()) == 1, "after %s: charges %s" % (verdict, case.charges()))
        expect(not happened or answer.body == b"seen", "the operator's answer: %s" % answer)
    return function


def crashing(case):
    """FAULT-9: a request that kills whoever works on it is not tried for ever, by clients and completers alike."""
    case.provider()
    for _ in range(3):
        shop = case.orders("--lease", "50", "--crashes", "3", env={"ONCE_CRASH": "flow.worked:1"})
        wait_for(lambda: (case.post(shop) or True) and shop.poll() is not None, "the shop to crash")
    shop = case.orders("--crashes", "3")
    answer = case.post_until_final(shop)
    expect(answer.status == 502 and answer.unknown, "after three crashes: %s" % answer)
    expect(case.charges() == [] and case.orders_in_books() == [], "a request that crashes had effects")


CALLEES = ("idempotent", "opaque", "probeable", "probeable-by-url")
EVERYDAY = [("idempotent", False, "retry"), ("idempotent", False, "completer"), ("opaque", True, "retry"), ("opaque", False, "completer"),
            ("probeable", False, "completer"), ("probeable-by-url", False, "retry")]


def everyday():
    """(callee, intent, recovery, place, whether something may have been sent)"""
    for callee, intent, recovery in EVERYDAY[1:3] if KIND == "postgres" else EVERYDAY:
        for place, sent in places(intent):
            if callee == "idempotent" or sent or place.startswith("flow.committed"):  # before the call all callees are alike
                yield callee, intent, recovery, place, sent


def everything(quarter):
    """Likewise. A quarter has each place with intent and without, by a client and by a completer, and the callees in turn."""
    for c, callee in enumerate(CALLEES):
        for intent in (False, True):
            for r, recovery in enumerate(("retry", "completer")):
                for n, (place, sent) in enumerate(places(intent)):
                    if not quarter or c == (n + 2 * r + intent) % len(CALLEES):
                        yield callee, intent, recovery, place, sent


def main():
    """SIZE=2: what SIZE=1 leaves out, on PostgreSQL a quarter of it; SIZE=3: all there is."""
    skip_without_points()
    chosen = list(everyday())
    if SIZE == 2:
        chosen = [what for what in everything(quarter=KIND == "postgres") if what not in chosen]
    elif SIZE > 2:
        chosen = everything(quarter=False)
    cases = []
    for callee, intent, recovery, place, sent in chosen:
        # A charge that is still on its way cannot be asked about; only a key helps.
        keys = callee == "idempotent" or (callee.startswith("probeable") and place == "hold")
        cases.append(("%s%s, %s, killed at %s" % (callee, " with intent" if intent else "", recovery, place),
                      killed(place, sent, callee, intent, recovery, keys)))
    if SIZE != 2:
        cases += [("unknown, then resolved " + v[2:], resolved(v)) for v in ("--done", "--not-done")]
        cases += [("a request that crashes whoever works on it", crashing)]
    tap(cases)


if __name__ == "__main__":
    main()
