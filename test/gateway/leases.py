"""What a test needs so that no verdict depends on a clock: the state of a record, looked at without a process for each
look, and the end of a lease whose holder is gone, at the moment that the test wants it.

Leases are LEASE in such tests: none of them runs out because a machine is slow. When a test has killed who held a
record, it ends that lease as the holder could (EXTEND by its fence) instead of waiting for it. A holder that is alive is
not spoken for; one that was fenced meanwhile has none.
"""
import collections
import struct

from gateway import BOUND_S, expect, wait_for
from lib import wireclient as w

LEASE = "once_lease 600s;"
STATES = ("absent", "running", "succeeded", "failed", "unknown")

Seen = collections.namedtuple("Seen", "state attempt live lease_until grant")


def ask_about(client, key):
    """What the daemon has of it; None: it went away."""
    try:
        answer = client.ask(w.lookup(key))
    except OSError:
        return None
    if answer is None or answer.kind != w.REPLY:
        return None
    if answer.arm != w.FOUND:
        return Seen("absent", 0, False, 0, None)
    at = 33  # arm, retry_after_ms, id and fence of the record
    for _ in range(2):  # tenant, key
        at += 4 + struct.unpack_from("!I", answer.payload, at)[0]
    state, live, attempt, lease_until = struct.unpack_from("!32xB5xB3xI4x32xq", answer.payload, at)
    return Seen(STATES[state], attempt, bool(live), lease_until, answer.grant)


def look(gateway, key):
    """By the daemon's socket; None: it is not there."""
    try:
        client = w.Client(gateway.daemon.socket, seconds=BOUND_S)
    except OSError:
        return None
    try:
        return ask_about(client, key) if client.welcome else None
    finally:
        client.close()


def state_of(gateway, key):
    seen = look(gateway, key)
    return seen and seen.state


def end_leases(gateway, *keys, daemon=None):
    """Of holders that are dead, or are to be taken for it. On return none of these has a live lease, unless somebody took it
    over; what has no record has none."""
    client = w.Client((daemon or gateway.daemon).socket, seconds=BOUND_S)

    def is_over(key, grant):
        seen = ask_about(client, key)
        expect(seen is not None, "the daemon went away")
        if not seen.live or seen.grant != grant:
            return True
        client.ask(w.call(w.EXTEND, struct.pack("!q", 1), *grant))
        return False
    for key in keys:
        grant = ask_about(client, key).grant
        wait_for(lambda: is_over(key, grant), "the end of a lease")
    client.close()
