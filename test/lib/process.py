"""Processes by their ids, as /proc shows them."""
import ctypes
import os
import re
import signal

from lib.wait import wait_for

_libc = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def state(pid):
    """The letter of its state, or None: it is gone."""
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as file:
            return file.read().rsplit(") ", 1)[1][0]
    except (OSError, IndexError):
        return None


def is_alive(pid):
    """A zombie is not."""
    return state(pid) not in (None, "Z", "X")


def is_stopped(pid):
    return state(pid) in ("T", "t")


def children(pid):
    found = []
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task), encoding="ascii") as file:
                found += [int(word) for word in file.read().split()]
    except OSError:
        pass
    return found


def descendants(pid):
    found = []
    for child in children(pid):
        found += [child] + descendants(child)
    return found


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def terminate(process):
    """SIGTERM, as soon as the process handles it: one that was started a moment ago would just die of it."""
    def handles_it():
        if process.poll() is not None:
            return True
        with open("/proc/%d/status" % process.pid, encoding="ascii", errors="replace") as status:
            masks = re.findall(r"^Sig(?:Blk|Cgt):\s*([0-9a-f]+)", status.read(), re.M)
        return any(int(mask, 16) >> (signal.SIGTERM - 1) & 1 for mask in masks)
    wait_for(handles_it, "a process that can be asked to end")
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)


def die_with_parent():
    """Between fork and exec: a test that is killed must not leave a server behind. The kernel watches the thread that
    started it, so servers are started from a thread that stays."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
