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


def free_port():
    """A TCP port of the loopback address that nothing uses, ours until this process ends."""
    end = max(_beginning_of_the_kernels_range(), LOWEST + 1000)
    for port in random.sample(range(LOWEST, end), 1000):
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind("\0once-test-port-%d" % port)
        except OSError:
            name.close()
            continue
        if _is_free(port):
            _reserved.append(name)
            return port
        name.close()
    raise RuntimeError("none of 1000 ports tried is free")
