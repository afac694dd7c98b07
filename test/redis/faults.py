#!/usr/bin/env python3
"""FAULT-29: what is lost when Redis fails is what docs/redis.md says, and it is counted.

Each case has servers of its own, and a worker (worker.c) that stays while they are killed, evict, or fail over.
It counts the writes that were acknowledged to it: a key that is claimed and finished is two.

usage: ONCE_REDIS_WORKER=FILE faults.py [CASE]     SIZE=N: N times as many keys
"""
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]
import redisserver
from lib.ports import free_port
from lib.tap import finish, ok, skip_all
from lib.wait import becomes_true
from redisserver import Redis

SIZE = int(os.environ.get("SIZE", "1"))
N = 40 * SIZE
class Worker:
    def __init__(self, url):
        self.p = subprocess.Popen([os.environ["ONCE_REDIS_WORKER"], url], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  text=True)
        self.told = []
        first = self.answer()
        if first != ["ready"]:
            sys.exit("the worker does not start: %s" % first)

    def answer(self):
        for line in self.p.stdout:
            if line.startswith("told: "):
                self.told.append(line[6:].strip())
            else:
                return line.split()
        return []

    def begin(self, text):
        self.p.stdin.write(text + "\n")
        self.p.stdin.flush()

    def __call__(self, text):
        self.begin(text)
        return self.answer()[1:]

    def stats(self):
        return [int(n) for n in self("stats")[:3]]

    def heard(self, text):
        return any(text in line for line in self.told)

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def written(server):
    """Everything is in the file. With everysec, Redis puts off writing for up to two seconds while a sync is under way."""
    client = server.client()
    done = becomes_true(lambda: b"aof_buffer_length:0\r\n" in client("INFO", "persistence"))
    client.close()
    return done


def killed_with_file(folder, fsync):
    """What was written to the file is there after the process died, whenever it is synced. With always that is before an
    answer goes out."""
    server = Redis(folder, fsync).start()
    worker = Worker(server.url())
    ok(worker("fill %d k" % N) == [str(N)], "appendfsync %s: all are acknowledged" % fsync)
    if fsync != "always":
        ok(written(server), "and written")
    server.kill()
    server.start()
    ok(worker("again %d k" % N)[:2] == [str(N), "0"], "killed: all are replayed, none is executed again")
    ok(worker.stats() == [0, 0, 1] and not worker.heard("LOST"), "and none is counted as lost", worker.told)
    ok(worker.heard("another process"), "the restart is told", worker.told)
    worker.close()
    server.stop()


def pressed(folder):
    """K10: killed in the middle of it, again and again. What was in flight is settled by its nonce or its fence. Each round
    ends before the next begins: so the worker meets every restart, also if it was through before the kill."""
    server = Redis(folder, "always").start()
    worker = Worker(server.url())
    kills = 3
    for number in range(kills):
        client = server.client()
        before = client("DBSIZE")
        worker.begin("press %d round%d-" % (3 * N, number))
        ok(becomes_true(lambda: client("DBSIZE") >= before + N), "round %d is under way" % number)
        client.close()
        server.kill()
        server.start()
        said = worker.answer()[1:]
        ok(said == [str(3 * N), "0", "0"], "killed under load: each is executed once, and its finish is its own", said)
    for number in range(kills):
        ok(worker("again %d round%d-" % (3 * N, number))[:2] == [str(3 * N), "0"], "and replayed")
    ok(worker.stats() == [0, 0, kills], "nothing is lost", worker.stats())
    worker.close()
    server.stop()


def always(folder):
    killed_with_file(folder, "always")


def everysec(folder):
    killed_with_file(folder, "everysec")


def no_file(folder):
    """Everything is lost; whoever was at it learns that, and its foreign calls keep their keys."""
    server = Redis(folder).start()
    worker = Worker(server.url())
    ok(worker.heard("warning: no append-only file"), "without a file: told at the start", worker.told)
    worker("fill %d k" % N)
    before = worker("hold h")
    server.kill()
    server.start()
    ok(worker("end") == ["fenced", "0"], "killed: who held a record is fenced, and there is no record")
    ok(worker.stats() == [2 * N + 1, 0, 1], "every acknowledged write is counted as lost", worker.stats(), 2 * N + 1)
    ok(worker.heard("LOST: everything"), "and told", worker.told)
    ok(worker("again %d k" % N) == ["0", str(N), "grown"], "all are executed again, under larger fences (K2)")
    ok(worker("hold h") == before, "a foreign call has the same key as before the loss", before)
    ok(worker.stats()[0] == 2 * N + 1, "what came after is not counted")
    worker.close()
    server.stop()


def aof_file(folder):
    place = os.path.join(folder, "appendonlydir")
    return [os.path.join(place, n) for n in os.listdir(place) if n.endswith(".incr.aof")][0]


def power(folder):
    """The machine fails: what was not synced is gone. The end of the file is cut off to that effect."""
    server = Redis(folder, "everysec").start()
    worker = Worker(server.url())
    ok(worker.heard("warning: appendfsync everysec"), "power with everysec: told at the start", worker.told)
    worker("fill %d old" % N)
    ok(written(server), "the first are written")
    size = os.path.getsize(aof_file(folder))
    worker("fill %d new" % (N // 2))
    server.kill()
    os.truncate(aof_file(folder), size)
    server.start()
    ok(worker("look %d old" % N) == [str(N), "0"], "what was synced is there")
    ok(worker("look %d new" % (N // 2)) == ["0", str(N // 2)], "what was not is gone")
    ok(worker.stats() == [N, 0, 1], "and counted, write by write", worker.stats(), N)
    ok(worker.heard("LOST: %d acknowledged writes" % N), "and told", worker.told)
    ok(worker("again %d new" % (N // 2)) == ["0", str(N // 2), "grown"], "it is executed again, under larger fences")
    worker.close()
    server.stop()


def eviction(folder):
    """volatile-ttl takes finished records only. What it took is what is missing, and what Redis counts."""
    server = Redis(folder, settings=["--maxmemory-policy", "volatile-ttl"]).start()
    client = server.client()
    worker = Worker(server.url())
    ok(worker.heard("may evict finished records"), "volatile-ttl: told at the start", worker.told)
    held = worker("hold h")
    ok(held[0] == "execute", "one is running")
    used = [int(l.split(b":")[1]) for l in client("INFO", "memory").split(b"\r\n") if l.startswith(b"used_memory:")][0]
    client("CONFIG", "SET", "maxmemory", used + (1 << 20))
    filled = worker("fill %d k 16000" % (5 * N))
    ok(filled == [str(5 * N)], "more is finished than there is room for", filled)
    client("CONFIG", "SET", "maxmemory", 0)
    found, absent = map(int, worker("look %d k" % (5 * N)))
    lost, evicted, restarts = worker.stats()
    ok(absent > 0 and found + absent == 5 * N, "some are gone", found, absent)
    ok(evicted == absent, "as many as the metric says", evicted, absent)
    ok((lost, restarts) == (0, 0), "which is no loss of writes, and no restart")
    ok(worker("end") == ["done", "2"], "what was running is not touched (K7)")
    worker.close()
    client.close()
    server.stop()


def pair(folder):
    """A master and its replica, and a name that leads to one of them."""
    master = Redis(os.path.join(folder, "m"), port=free_port()).start()
    replica = Redis(os.path.join(folder, "r"), port=free_port(),
                    settings=["--replicaof", "127.0.0.1 %d" % master.port]).start()
    name = os.path.join(folder, "name")
    os.symlink(master.path, name)
    client = replica.client()
    at_master = master.client()

    def flows():  # "online" is said before the stream does
        at_master("SET", "first", "1")
        return at_master("WAIT", 1, 100) == 1 and client("GET", "first") == b"1"
    if not becomes_true(flows):
        sys.exit("the replica does not come: " + replica.said())
    at_master.close()
    return master, replica, client, name


def lead_to(name, server):
    os.symlink(server.path, name + ".new")
    os.rename(name + ".new", name)


def failover(folder):
    """The replica did not have the last writes: they are lost with the master."""
    master, replica, client, name = pair(folder)
    worker = Worker("redis+unix:%s?tier=best-effort" % name)
    at_master = master.client()
    worker("fill %d old" % N)
    at_master("SET", "mark", "1")
    ok(becomes_true(lambda: client("GET", "mark") == b"1"), "failover: the replica has the first ones")
    client("REPLICAOF", "127.0.0.1", "1")  # a network that parts them
    ok(worker("fill %d new" % (N // 2)) == [str(N // 2)], "the master acknowledges more, which the replica never has")
    master.kill()
    said = worker("look 1 old")
    ok(said[:2] == ["0", "0"] and said[2] in ("UNAVAILABLE", "UNKNOWN"), "without a master nothing is answered", said)
    lead_to(name, replica)
    ok("replica" in " ".join(worker("look 1 old")), "a replica is not taken for one")
    client("REPLICAOF", "NO", "ONE")
    ok(worker("look %d old" % N) == [str(N), "0"], "promoted: what it had is there")
    ok(worker.stats() == [N, 0, 1], "what it had not is counted, write by write", worker.stats(), N)
    ok(worker("again %d new" % (N // 2)) == ["0", str(N // 2), "grown"], "and executed again, under larger fences (K2)")
    worker.close()
    client.close()
    at_master.close()
    replica.stop()


def waited(folder):
    """wait=1: what the replica does not have is not acknowledged, so no failover loses what was."""
    master, replica, client, name = pair(folder)
    worker = Worker("redis+unix:%s?tier=best-effort&wait=1&wait_ms=20000" % name)
    said = worker("fill %d k" % (N // 2))
    ok(said == [str(N // 2)], "wait=1: acknowledged once the replica has them", said)
    hasty = Worker("redis+unix:%s?tier=best-effort&wait=1&wait_ms=500" % name)
    client("REPLICAOF", "127.0.0.1", "1")
    said = hasty("fill 1 new")
    ok(said[:2] == ["0", "UNKNOWN"], "without the replica a write is not acknowledged", said)
    master.kill()
    lead_to(name, replica)
    client("REPLICAOF", "NO", "ONE")
    other = Worker("redis+unix:%s?tier=best-effort" % name)
    said = other("look %d k" % (N // 2))
    ok(said == [str(N // 2), "0"], "promoted: all that was acknowledged is there", said)
    other.close()
    said = hasty("look 1 k")
    ok("replicas" in said, "who waits for a replica of the new master gets no answer without", said)
    hasty.close()
    third = Redis(os.path.join(folder, "t"), port=free_port(), settings=["--replicaof", "127.0.0.1 %d" % replica.port]).start()
    ok(becomes_true(lambda: worker("look %d k" % (N // 2)) == [str(N // 2), "0"]), "and with one again, what was acknowledged", third.said())
    ok(worker.heard("another process") and not worker.heard("LOST"), "and nothing is counted as lost", worker.told)
    worker.close()
    client.close()
    third.stop()
    replica.stop()


CASES = [pressed, always, everysec, no_file, power, eviction, failover, waited]


def main():
    if not redisserver.available():
        skip_all("no redis-server is installed")
    for case in CASES:
        if len(sys.argv) > 1 and sys.argv[1] not in case.__name__:
            continue
        folder = tempfile.mkdtemp(prefix="once-rf-", dir="/tmp")
        try:
            case(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finish()


main()
