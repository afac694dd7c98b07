"""Waiting for a condition. Tests do not sleep in the hope that something has happened by then: they poll, with a bound that is
far away, so that no verdict rests on how fast a machine is."""
import os
import time

from lib.tap import Failed

SECONDS = float(os.environ.get("ONCE_TEST_SECONDS", "120"))  # no condition takes that long, however busy the machine


def wait_for(condition, what, seconds=SECONDS):
    """Its value, as soon as that is true. `what` names it, or is a function that tells what there is instead."""
    end = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        if now > end:
            raise Failed("waited %g s for %s" % (seconds, what() if callable(what) else what))
        time.sleep(min(max(0.005, now - began), 0.2))  # a condition that costs much is not asked all the time


def becomes_true(condition):
    """False: it did not within the bound."""
    try:
        return bool(wait_for(condition, "it"))
    except Failed:
        return False
