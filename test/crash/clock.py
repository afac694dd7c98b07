"""The wall clock jumps an hour back and a year ahead (FAULT-30), by libfaketime.

Between runs, and during one, in two variants: the wall clock alone jumps, as it does on a
real machine; and libfaketime's other way, in which the steady clocks are the faked wall
clock, decades off, as on no machine: even then nothing is executed twice. Where only the
wall clock jumps, leases and retentions run by the time that passed. `once check` finds
nothing wrong; of steady clocks that jumped it may say so ("clock").

    clock.py ONCE [CASE...]
"""
import glob
import json
import os
import signal

from harness import expect, skip_all, tap, wait_for

JUMPS = {"an hour back": "-3600", "a year ahead": "+31536000"}
COMMAND = "echo $ONCE_ATTEMPT >>effects; sync effects; echo out"
LONG = COMMAND + "; : >started; until [ -e go ]; do sleep 0.01; done"


def library():
    found = glob.glob("/usr/lib/*/faketime/libfaketime.so.1") + glob.glob("/usr/lib*/faketime/libfaketime.so.1")
    return found[0] if found else None


class Faked:
    """An environment in which the clock is off."""

    def __init__(self, jump, steady):
        self.jump, self.steady = jump, steady

    def env(self, case=None):
        env = {"LD_PRELOAD": library(), "FAKETIME_DONT_FAKE_MONOTONIC": "0" if self.steady else "1"}
        if case is None:
            env["FAKETIME"] = self.jump
        else:  # as the file says, at any moment
            env.update(FAKETIME_TIMESTAMP_FILE=case.path("clock"), FAKETIME_NO_CACHE="1")
        return env


def run(case, *options, env=None, command=COMMAND):
    return case.once("run", "--key", "k", *options, "--", "sh", "-c", command, env=env)


def once_executed(case, faked, when):
    expect(case.lines("effects") == ["1"], f"{when}: effects {case.lines('effects')}")
    case.check(when, except_for=("clock",) if faked.steady else ())


def replays(case, faked, when, *options, env=None):
    status, out, err = run(case, *options, env=env)
    expect((status, out) == (0, "out\n") and "replay" in err, f"{when}: {status} {out!r} {err}")
    once_executed(case, faked, when)


def before_and_after(faked, keep):
    """Executed at one time, tried again at the other."""
    def function(case):
        for first, second in ((None, faked.env()), (faked.env(), None)):
            case.clear()
            status, out, err = run(case, *keep, env=first)
            expect((status, out) == (0, "out\n"), f"executed: {status} {out!r} {err}")
            replays(case, faked, "at the other time", *keep, env=second)
            replays(case, faked, "and at the first again", *keep, env=first)
            if not faked.steady:
                case.check("checked at the other time", env=second)
    return function


def while_running(faked, keep):
    """One runs, another asks at the other time."""
    def function(case):
        holder = case.start("run", "--key", "k", *keep, "--", "sh", "-c", LONG)
        wait_for(lambda: os.path.exists(case.path("started")), "the command to run")
        status, _, err = run(case, *keep, env=faked.env(), command=LONG)
        # Decades by every clock there is: then its lease is over, and a person must look.
        allowed = (75, 70) if faked.steady else (75,)
        expect(status in allowed, f"asked meanwhile: {status} {err}")
        case.write("go", "")
        ended = case.end(holder)
        expect(ended[0] == (70 if status == 70 else 0), f"the holder: {ended}")
        once_executed(case, faked, "afterwards")
        status, out, err = run(case, *keep, command=LONG)
        expect(status == ended[0], f"tried again: {status} {out!r} {err}")
        once_executed(case, faked, "and tried again")
    return function


def lease_of(case):
    """When the lease ends, by a clock that did not jump."""
    shown = json.loads(case.once("keys", "show", "--json", "k")[1])
    expect(shown["state"] == "running", f"it is {shown['state']}")
    return shown["lease_until"]


def see_renewal(case):
    before = lease_of(case)
    wait_for(lambda: lease_of(case) > before, "the lease to be renewed")


def jump_within(faked, keep):
    """The clock of a process jumps while its command runs, longer than its lease."""
    def attempt(case, lease):
        case.write("clock", "+0")
        lease = ("--lease", lease, *keep)
        holder = case.start("run", "--key", "k", *lease, "--", "sh", "-c", LONG, env=faked.env(case))
        wait_for(lambda: os.path.exists(case.path("started")), "the command to run")
        case.write("clock.new", faked.jump)
        os.rename(case.path("clock.new"), case.path("clock"))
        # Its lease runs on: it is renewed, and who asks then is told that it is at work.
        if not faked.steady:
            for _ in range(2):
                see_renewal(case)
        asked, _, err = run(case, "--wait", "900ms" if faked.steady else "1ms", *lease, command=LONG)
        expect(asked in (75, 70), f"asked meanwhile: {asked} {err}")
        case.write("go", "")
        ended = case.end(holder)
        expect(ended[0] == (70 if asked == 70 else 0), f"the holder: {ended}")
        once_executed(case, faked, "afterwards")
        status, _, err = run(case, *lease, command=LONG)
        expect(status == ended[0], f"tried again: {status} {err}")
        once_executed(case, faked, "and tried again")
        return asked

    def function(case):
        if faked.steady:
            attempt(case, "300ms")
            return None
        if attempt(case, "9s") == 75:
            return None
        # A machine that stood still may have been too late to renew it, and then a person must look. Not twice.
        case.clear()
        expect(attempt(case, "120s") == 75, "asked meanwhile: it was said to be over")
        return "done again, with a longer lease"
    return function


def taken_over(faked):
    """The holder was killed: its lease ends by the time that passed, not by the date. A long one is
    not over; the end of a short one comes in less than an hour."""
    def function(case):
        for lease, wait, said in (("50m", "1ms", 75), ("700ms", "3m", 70)):
            case.clear()
            holder = case.start("run", "--key", "k", "--lease", lease, "--", "sh", "-c", LONG)
            wait_for(lambda: os.path.exists(case.path("started")), "the command to run")
            holder.send_signal(signal.SIGKILL)
            case.end(holder)
            status, _, err = run(case, "--wait", wait, env=faked.env(), command=LONG)
            expect(status == said, f"lease {lease}: {status} {err}")
            once_executed(case, faked, f"lease {lease}")
    return function


def expires(faked):
    """Retention is the time that passed since the finish."""
    def function(case):
        status, _, err = run(case, "--retention", "1s")
        expect(status == 0, f"executed: {status} {err}")
        env = faked.env()
        wait_for(lambda: case.once("keys", "show", "k", env=env)[0] == 1, "its retention to end")
        status, _, err = run(case, env=env)
        effects = case.lines("effects")
        expect(status == 0 and effects == ["1", "1"], f"a new life: {status} {effects} {err}")
        status, out, err = case.once("expire", env=env)
        expect(status == 0, f"once expire: {status} {out}{err}")
        case.check("afterwards")
        expect(run(case)[0] == 0 and case.lines("effects") == effects, "the new life was expired, too")
    return function


def works(case):
    status, _, _ = case.once("help", env=Faked("+0", False).env())
    expect(status == 0, "once does not run with libfaketime")


def main():
    if library() is None:
        skip_all("libfaketime is not installed (Debian package faketime)")
    if os.environ.get("ONCE_SANITIZED") == "1":
        skip_all("a sanitizer's runtime and libfaketime cannot both come first")
    cases = [("once runs with libfaketime", works)]
    for name, jump in JUMPS.items():
        for steady in (False, True):
            faked = Faked(jump, steady)
            what = f"{name}, {'all clocks' if steady else 'wall clock only'}"
            # Decades on the steady clock are decades: then only what is kept for ever must be there.
            keep = ("--retention", "never") if steady else ()
            cases += [(f"{what}: between runs", before_and_after(faked, keep)),
                      (f"{what}: one runs", while_running(faked, keep)),
                      (f"{what}: during a run", jump_within(faked, keep))]
            if not steady:
                cases += [(f"{what}: the holder dies", taken_over(faked)), (f"{what}: retention", expires(faked))]
    tap(cases)


if __name__ == "__main__":
    main()
