"""What a test needs so that no verdict depends on a clock: the state of a record, looked at without a process for each
look, and the end of a lease whose holder is gone, at the moment that the test wants it.

Leases are LEASE in such tests: none of them runs out because a machine is slow. When a test has killed who held a
record, it ends that lease as the holder could (EXTEND by its fence) instead of waiting for it. A holder that is alive is
not spoken for; one that was fenced meanwhile has none.
"""
import os
import struct
import sys

from gateway import BOUND_S, HERE, records_of, wait_for
sys.path.insert(0, os.path.join(HERE, "..", "daemon"))
import wireclient as w

LEASE = "once_lease 600s;"
STATES = ("absent", "running", "succeeded", "failed", "unknown")


def look(gateway, key):
    """(state, attempt, lease_until) by the daemon's socket; None: it is not there."""
    try:
        client = w.Client(gateway.daemon.socket, seconds=BOUND_S)
    except OSError:
        return None
    try:
        answer = client.ask(w.lookup(key)) if client.welcome else None
    except OSError:
        answer = None
    finally:
        client.close()
    if answer is None or answer.kind != w.REPLY:
        return None
    if answer.arm != w.FOUND:
        return "absent", 0, 0
    at = 33  # arm, retry_after_ms, id and fence of the record
    for _ in range(2):  # tenant, key
        at += 4 + struct.unpack_from("!I", answer.payload, at)[0]
    state, attempt, lease_until = struct.unpack_from("!32xB7xI4x32xq", answer.payload, at)
    return STATES[state], attempt, lease_until


def state_of(gateway, key):
    seen = look(gateway, key)
    return seen and seen[0]


def end_leases(gateway, *keys, daemon=None):
    """Of holders that are dead, or are to be taken for it. On return none of these has a live lease, unless somebody took it
    over; what has no record has none."""
    path = (daemon or gateway.daemon).socket
    records = lambda: [record for record in records_of("once:" + path).values() if record["key"] in keys]
    seen = {record["key"]: record["fence"] for record in records()}

    def over():
        live = [record for record in records() if seen.get(record["key"]) == record["fence"] and record["lease_live"]]
        if not live:
            return True
        client = w.Client(path, seconds=BOUND_S)
        for record in live:
            client.ask(w.call(w.EXTEND, struct.pack("!q", 1), bytes.fromhex(record["record"]), record["fence"]))
        client.close()
        return False
    wait_for(over, "the leases' end")
