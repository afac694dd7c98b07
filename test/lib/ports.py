"""Ports for servers that a test starts, stops and starts again on the same address.

A port that the kernel picked (bind to 0, then close) may be somebody's outgoing connection a
moment later. These are below the range that the kernel picks from, and each is reserved until
this process ends, among all tests of this machine, by a name in the abstract socket namespace.
"""
import random
import socket

LOWEST = 10000
_reserved = []


def _beginning_of_the_kernels_range():
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        return int(file.read().split()[0])


def _is_free(port):
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False


def _reserve(port):
    """The name that makes `port` ours, or None if it is somebody else's or in use."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind("\0once-test-port-%d" % port)
    except OSError:
        name.close()
        return None
    if _is_free(port):
        return name
    name.close()
    return None


def free_ports(count):
    """The first of `count` TCP ports of the loopback address that follow each other and that
    nothing uses, ours until this process ends."""
    end = max(_beginning_of_the_kernels_range(), LOWEST + 1000)
    for first in random.sample(range(LOWEST, end - count + 1), 900):
        names = []
        for port in range(first, first + count):
            name = _reserve(port)
            if name is None:
                break
            names.append(name)
        if len(names) == count:
            _reserved.extend(names)
            return first
        for name in names:
            name.close()
    raise RuntimeError("none of 900 ports tried is free")


def free_port():
    """One such port."""
    return free_ports(1)


def is_open(port):
    """Does somebody accept connections there?"""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
        return True
    except OSError:
        return False


def is_refused(port):
    """Nobody does: an answer that is late, or a connection that breaks, is not enough."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False
