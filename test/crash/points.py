"""kill -9 at every crash point of `once run`, at each of its passings, then try again.

Under `escalate` the command's effect (a line in a file, synced) happens at most once, and
what was acknowledged (an exit status was seen) replays; else it is known, or unknown and
settled by `once keys resolve`. Under `rerun` each attempt has its effect at most once and
the last outcome stays. The store passes `once check` each time. A point that is listed and
never passed fails.

    points.py ONCE [CASE...]    SIZE=N: up to N times as many passings of a point
"""
import fcntl
import os
import signal
import subprocess

from harness import ONCE, expect, skip_all, tap, wait_for
from lib.process import is_stopped

COMMAND = 'echo "$ONCE_ATTEMPT" >>effects; sync effects; echo "out $ONCE_ATTEMPT"; echo "err $ONCE_ATTEMPT" >&2'
LEASES = ("200ms", "2s", "20s", "200s")  # the first one is waited for; the others where a machine is too busy to renew it
LEASE = LEASES[0]
# Under `rerun` a run that is not sure of its lease any more ends its command, which may be tried again.
DISMISSED = 128 + signal.SIGTERM
STOPS_MAX = 20
PASSES_MAX = 25 * int(os.environ.get("SIZE") or 1)


def run(case, policy, *options, env=None, lease=LEASE):
    return case.once("run", "--key", "k", "--lease", lease, "--takeover", policy, *options, "--", "sh", "-c", COMMAND,
                     env=env)


def retry(case, policy):
    """The lease that it waits for is the first one's; its own must hold on a slow machine."""
    return run(case, policy, "--quiet", "--wait", "60s", lease="60s")


def effects_are_right(case, policy, when):
    effects = case.lines("effects")
    expect(len(effects) == len(set(effects)), f"{when}: an attempt had its effect twice: {effects}")
    if policy == "escalate":
        expect(len(effects) <= 1, f"{when}: {len(effects)} effects under escalate")
    return effects


def settle(case, when):
    """It is unknown: says what is true, and sees that it is believed."""
    effects = case.lines("effects")
    status, _, err = retry(case, "escalate")
    expect(status == 70, f"{when}: unknown, then {status} {err}")
    verdict = ["--done", "--status", "0", "--body", "it was"] if effects else ["--not-done"]
    status, _, err = case.once("keys", "resolve", "k", *verdict, "--reason", "looked")
    expect(status == 0, f"{when}: once keys resolve: {status} {err}")
    case.check(when + ", resolved")
    status, out, err = retry(case, "escalate")
    expect(status == 0, f"{when}: after it was resolved: {status} {err}")
    after = case.lines("effects")
    if effects:
        expect(after == effects, f"{when}: resolved as done, executed again: {after}")
    else:
        expect(len(after) == 1, f"{when}: resolved as not done: effects {after}")
        expect(out == f"out {after[0]}\n", f"{when}: resolved as not done: {out!r}")


def conclude(case, policy, when, acknowledged):
    """The store after a death, or after none: everything that must hold."""
    case.check(when)
    status, out, err = retry(case, policy)
    effects = effects_are_right(case, policy, when)
    case.check(when + ", tried again")
    if acknowledged is not None:
        expect((status, out) == (0, acknowledged),
               f"{when}: acknowledged {acknowledged!r}, then {status} {out!r} {err}")
    if status == 70 and policy == "escalate":
        settle(case, when)
        return "unknown"
    expect(status == 0, f"{when}: tried again: {status} {err}")
    expect(effects != [] and out == f"out {effects[-1]}\n", f"{when}: outcome {out!r}, effects {effects}")
    expect(f"err {effects[-1]}\n" in err, f"{when}: error output {err!r}")
    again = retry(case, policy)
    expect(again[:2] == (status, out), f"{when}: replayed {again[:2]}, first {(status, out)}")
    expect(case.lines("effects") == effects, f"{when}: a replay had an effect")
    return "known"


def walk(point, policy):
    def function(case):
        ends, passed = {"known": 0, "unknown": 0}, False
        for n in range(1, PASSES_MAX + 1):
            case.clear()
            when = f"{point}:{n} under {policy}"
            env = {"ONCE_CRASH": f"{point}:{n}", "ONCE_CRASH_LOG": case.path("passed")}
            for lease in LEASES:
                status, out, err = run(case, policy, env=env, lease=lease)
                passed = passed or point in case.lines("passed")
                if policy != "rerun" or status != DISMISSED:
                    break
                conclude(case, policy, when + ", dismissed", None)
                case.clear()
            expect(status in (0, -signal.SIGKILL), f"{when}: exit status {status} {err}")
            ends[conclude(case, policy, when, out if status == 0 else None)] += 1
            if status == 0:
                break
        expect(passed and n > 1, f"{point} was never passed")
        return f"{point}, {policy}: {n} runs, known {ends['known']}, unknown {ends['unknown']}"
    return function


def twice(point, policy):
    """The first dies while its command runs, the second, which may take over, at the point."""
    def function(case):
        for first in ("run.exited:1", "run.claimed:1"):
            case.clear()
            when = f"{first}, then {point}:1 under {policy}"
            run(case, policy, env={"ONCE_CRASH": first})
            status, out, _ = run(case, policy, "--quiet", "--wait", "60s", env={"ONCE_CRASH": point + ":1"})
            allowed = (0, 70, -signal.SIGKILL) + ((DISMISSED,) if policy == "rerun" else ())
            expect(status in allowed, f"{when}: exit status {status}")
            conclude(case, policy, when, out if status == 0 else None)
    return function


def replayed(point):
    """Dies while it replays: that changes nothing."""
    def function(case):
        status, out, _ = run(case, "escalate")
        expect(status == 0, f"exit status {status}")
        run(case, "escalate", env={"ONCE_CRASH": point + ":1"})
        expect(conclude(case, "escalate", f"{point}:1 in a replay", out) == "known", "unknown after it was known")
    return function


def has_lock(case):
    """Is somebody at the store? A renewal may have been under way when it stopped; then nobody can take over from it."""
    with open(case.path("once.db-lock"), "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def zombie(point, policy):
    """Stopped at the point until its lease is over and somebody else decided; then it goes on."""
    def function(case):
        for n in range(STOPS_MAX):
            case.anew()
            first = case.start("run", "--key", "k", "--lease", LEASES[min(n, 2)], "--takeover", policy, "--", "sh", "-c", COMMAND,
                               env={"ONCE_CRASH": point + ":1:stop"})
            wait_for(lambda: is_stopped(first.pid) or first.poll() is not None, f"{point} to stop it")
            if first.poll() is None and not has_lock(case):
                break
            if first.poll() is None:
                first.kill()
                case.end(first)
            elif policy != "rerun" or first.poll() != DISMISSED:
                break
        expect(first.poll() is None, f"{point} was not passed")
        status, out, err = run(case, policy, "--quiet", "--wait", "60s", lease="60s")
        if policy == "rerun":
            expect((status, out) == (0, "out 2\n"), f"took over: {status} {out!r} {err}")
        else:
            expect(status == 70, f"escalated: {status} {err}")
        first.send_signal(signal.SIGCONT)
        late, late_out, late_err = case.end(first)
        effects_are_right(case, policy, "afterwards")
        case.check("afterwards")
        if policy == "rerun":
            expect(late == 0 and late_out.endswith("out 2\n"), f"the late one: {late} {late_out!r} {late_err}")
            expect(retry(case, policy)[:2] == (0, "out 2\n"), "the outcome changed")
        else:
            expect(late == 70, f"the late one: {late} {late_out!r} {late_err}")
            settle(case, "afterwards")
    return function


def main():
    points = subprocess.run([ONCE, "run", "--list-points"], capture_output=True, text=True, check=True).stdout.split()
    # In test/sql, gateway, orders, reconcile, outbox, inbox, client.
    elsewhere = ("migrate.", "daemon.", "completer.", "flow.", "reconcile.", "relay.", "consume.", "client.", "send.")
    points = [p for p in points if not p.startswith(elsewhere)]
    if not points:
        skip_all("built without crash points")
    held = ["run.claimed", "run.forked", "run.spawned", "run.output", "run.exited", "run.captured"]
    cases = [(f"{policy}, killed at {point}", walk(point, policy))
             for policy in ("escalate", "rerun") for point in points]
    cases += [(f"{policy}, killed twice, then at {point}", twice(point, policy))
              for policy in ("escalate", "rerun") for point in points]
    cases += [(f"replay, killed at {point}", replayed(point)) for point in points]
    cases += [(f"{policy}, stopped at {point}", zombie(point, policy))
              for policy in ("escalate", "rerun") for point in held]
    tap(cases)


if __name__ == "__main__":
    main()
