#!/usr/bin/env python3
"""A shop stopped past its lease at every point, and continued after another has taken over (FAULT-6, FAULT-38).

Whatever it goes on to do is fenced: its phase is refused by the guard, its call is not even made where it can
know, and its client gets the stored outcome. Where it holds the database itself (inside a transaction that
has locked something), nobody takes over: it finishes, and the other is told its outcome. The run counts
how often it was fenced and fails if it never was.
"""
import signal
import threading

from harness import KIND, expect, is_stopped, skip_without_points, tap, wait_for

fenced, lock = [0], threading.Lock()


def stop_at(case, point, options):
    """A shop that stops at the point, with a client that waits for its answer."""
    first = case.orders("--lease", "1500", "--threads", "1", *options, env={"ONCE_CRASH": point + ":stop"})
    answers = []
    client = threading.Thread(target=lambda: answers.append(case.post(first)))
    client.start()
    wait_for(lambda: is_stopped(first.pid) or first.poll() is not None or answers, point + " to stop it")
    expect(is_stopped(first.pid), "%s was not passed: %s" % (point, answers))
    return first, client, answers


def go_on(first, client, answers):
    first.send_signal(signal.SIGCONT)
    client.join()
    expect(answers[0] is not None, "the one that was stopped does not answer")
    return answers[0]


def count(case, first, point, expected):
    times = case.said(first).count("fenced, answered from the record")
    expect(times == expected, "%s: fenced %d times, not %d" % (point, times, expected))
    with lock:
        fenced[0] += times


def check_books(case, charges=(1,)):
    expect(len(case.charges()) in charges, "charges %s" % case.charges())
    expect(len(case.orders_in_books()) == 1, "orders %s" % case.orders_in_books())
    case.check_books("afterwards")


def taken_over(point, is_fenced):
    """Another shop takes over and finishes; then the first goes on."""
    def function(case):
        case.provider()
        first, client, answers = stop_at(case, point, [])
        second = case.orders("--lease", "60000")
        stored = case.post_until_final(second)
        expect(stored.status == 201, "the one that took over: %s" % stored)
        late = go_on(first, client, answers)
        expect((late.status, late.body) == (stored.status, stored.body), "stored %s, the late one says %s" % (stored, late))
        count(case, first, point, is_fenced)
        check_books(case)
        expect(len(case.receipts()) == 1, "receipts %s" % case.receipts())
    return function


def escalated(point, charges):
    """With a provider that cannot be asked, the record is unknown by the time the first goes on, and stays so."""
    def function(case):
        case.provider("--no-keys")
        first, client, answers = stop_at(case, point, ["--callee", "opaque"])
        second = case.orders("--lease", "60000", "--callee", "opaque")
        stored = case.post_until_final(second)
        expect(stored.unknown, "the one that took over: %s" % stored)
        late = go_on(first, client, answers)
        expect(late.unknown, "the late one says %s" % late)
        count(case, first, point, 1)
        check_books(case, charges)
        expect(case.receipts() == [], "receipts %s" % case.receipts())
    return function


def locked(point):
    """It has a lock that whoever takes over needs: that one waits, and is told what came of it."""
    def function(case):
        case.provider()
        first, client, answers = stop_at(case, point, [])
        second = case.orders("--lease", "60000")
        said = []
        waiting = threading.Thread(target=lambda: said.append(case.post_until_final(second)))
        waiting.start()
        if KIND == "postgres":
            wait_for(lambda: case.books.rows("SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND "
                                             "wait_event_type = 'Lock'") or said, "the other to wait for a lock")
            expect(not said, "%s: nothing was locked: %s" % (point, said))
        late = go_on(first, client, answers)
        waiting.join()
        expect(said and late.status in (201, 409), "the late one says %s, the other %s" % (late, said))
        expect(said[0].status == 201 and late.status == 409 or late.body == said[0].body, "%s, %s" % (late, said))
        with lock:  # after its phase committed it may well be fenced, or not
            fenced[0] += case.said(first).count("fenced, answered from the record")
        check_books(case)
        expect(len(case.receipts()) == 1, "receipts %s" % case.receipts())
    return function


def conclude():
    expect(fenced[0] >= 5, "fenced %d times in all: this proves nothing" % fenced[0])
    return "fenced %d times" % fenced[0]


def main():
    skip_without_points()
    # committed:1 claim, :2 order, :3 the outcome. After the outcome there is nothing left to fence.
    free = [("flow.called:1", 1), ("flow.committed:1", 1), ("flow.committed:2", 1), ("flow.calling:1", 1),
            ("flow.committed:3", 0)]
    in_transaction = ["flow.worked:1", "flow.written:2", "flow.worked:2", "flow.written:3"]
    if KIND == "postgres":  # there a transaction that has done nothing yet locks nothing
        free += [("flow.begun:1", 0), ("flow.begun:2", 1), ("flow.begun:3", 1)]
    else:
        in_transaction += ["flow.begun:1", "flow.written:1", "flow.begun:2", "flow.begun:3"]
    cases = [("unknown, stopped at flow.called:1", escalated("flow.called:1", (1,))),
             ("unknown, stopped at flow.committed:2", escalated("flow.committed:2", (0,))),
             ("unknown, stopped at flow.calling:1", escalated("flow.calling:1", (1,)))]
    cases += [("taken over, stopped at " + p, taken_over(p, n)) for p, n in free]
    cases += [("locked, stopped at " + p, locked(p)) for p in in_transaction]
    tap(cases, conclude=("it was fenced, and often", conclude))


if __name__ == "__main__":
    main()
