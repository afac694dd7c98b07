#!/usr/bin/env python3
"""K12 in a storm, on SQLite. A service commits, rolls back and commits late; it is killed in the middle of its transactions, and so
are the relays, at points and at random, the receiver, and all of them at once. Then: the set that was published is the set that was
committed (HISTORY-13, FAULT-54, FAULT-55), first arrivals of each key are in the order of commits, nobody is dead who was not refused (FAULT-57).

    sqlite_storm.py [points|storm]     SIZE=N: N times as much; SEED=N

What was committed is in a ledger, a table that is written in the same transactions. One process of the service at a time: its numbers
are given inside a transaction that has the lock, so they are in the order of commits."""
import itertools
import random
import sqlite3
import tempfile
import threading
import time

from outboxtest import *

SIZE = int(os.environ.get("SIZE", "1"))
SEED = int(os.environ.get("SEED", random.randrange(10 ** 6)))
WHAT = sys.argv[1:] or ["points", "storm"]
# Nobody is dead who was not refused for good: a machine that is too busy to confirm in time, or to keep a lease, makes repeats only.
RELAY = ["--backoff", "20ms", "--backoff-max", "200ms", "--timeout", "60s", "--lease", "120s", "--attempts", "100000", "--crashes", "1000",
         "--quiet"]
POINTS = ("taken", "sent", "confirmed", "marked", "settled")


def ask(path, sql):
    db = sqlite3.connect(path, timeout=60)
    try:
        rows = db.execute(sql).fetchall()
        db.commit()
        return rows
    finally:
        db.close()


class Service:
    """Writes transactions; when it is killed, the next one goes on."""
    def __init__(self, path, rng):
        self.path, self.rng, self.numbers, self.kills = path, rng, itertools.count(1), 0
        self.lock = threading.Lock()
        self.p = None
        self.start()
        self.do("CREATE TABLE IF NOT EXISTS ledger (id TEXT)")

    def start(self):
        p = subprocess.Popen([os.environ["ONCE_TEST_ENQUEUE"], self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with self.lock:
            self.p = p

    def do(self, step):
        self.p.stdin.write(step + "\n")
        self.p.stdin.flush()
        answer = self.p.stdout.readline()
        if not answer:
            raise BrokenPipeError
        return answer.rstrip("\n")

    def transaction(self, keys):
        answers = [self.do("begin")]
        for key in self.rng.sample(range(keys), self.rng.randint(1, 4)):
            message = self.do("message t k%d k%d/%d" % (key, key, next(self.numbers)))
            answers.append(self.do("INSERT INTO ledger VALUES ('%s')" % message))
        if self.rng.random() < 0.2:
            time.sleep(self.rng.random() * 0.03)  # it commits late: relays look meanwhile
        answers.append(self.do("rollback" if self.rng.random() < 0.25 else "commit"))
        if set(answers) != {"ok"}:
            raise RuntimeError(answers)

    def write(self, count, keys):
        while count > 0:
            try:
                self.transaction(keys)
                count -= 1
            except BrokenPipeError:
                self.reap()
                self.start()

    def kill(self):
        with self.lock:
            self.p.kill()
            self.kills += 1

    def reap(self):
        self.p.wait()
        try:
            self.p.stdin.close()
        except BrokenPipeError:
            pass
        self.p.stdout.close()

    def end(self):
        self.p.stdin.close()
        self.p.wait()
        self.p.stdout.close()


def is_empty(path):
    return ask(path, "SELECT count(*) FROM once_outbox") == [(0,)]


def judge(hook, path, what):
    committed = {row[0] for row in ask(path, "SELECT id FROM ledger")}
    published = {m["id"] for m in hook.got}
    ok(committed, "%s: there were messages" % what)
    equal((len(committed - published), len(published - committed)), (0, 0),
          "%s: published is what was committed (%d messages, %d duplicates)" % (what, len(committed), len(hook.got) - len(published)))
    equal(per_key_in_order(hook)[:5], [], "%s: each key in order" % what)
    equal(ask(path, "SELECT count(*), min(reason) FROM once_outbox_dead"), [(0, None)], "%s: nobody is dead" % what)
    equal((is_empty(path), ask(path, "PRAGMA integrity_check")), (True, [("ok",)]), "%s: nothing is left, and the file is sound" % what)


def end_leases(path):
    """Of a relay that is dead, or of one that is alive, which then only repeats what another does too (FAULT-6)."""
    ask(path, "UPDATE once_outbox_relay SET lease_until = 0")


def stands(relay):
    return open("/proc/%d/stat" % relay.p.pid).read().rsplit(")", 1)[1].split()[0] == "T"


def points(folder):
    """kill -9 of the relay at each crash point; and while it stands there, of the service in a transaction, and of the receiver."""
    for point in POINTS:
        path = "%s/%s.db" % (folder, point)
        store, hook, service = "sqlite:" + path, Receiver(), Service(path, random.Random(SEED))
        service.write(10, 5)
        for n in range(1, 1 + (1 if point in ("taken", "marked", "settled") else 3) * SIZE):
            relay = Relay(store, "--route", "t=" + hook.url(), "--drain", *RELAY, crash="relay.%s:%d" % (point, n))
            equal(relay.stop_by_itself(), -9, "relay.%s:%d kills" % (point, n))
            service.write(3, 5)
            end_leases(path)
        drain(store, "--route", "t=" + hook.url())
        judge(hook, path, "killed at relay." + point)
        service.write(5, 5)
        relay = Relay(store, "--route", "t=" + hook.url(), *RELAY, crash="relay.%s:1:stop" % point)
        wait_for(lambda: stands(relay), "its stop")
        if point != "marked":  # where the relay itself has the lock
            service.do("begin")
            message = service.do("message t k1 k1/%d" % next(service.numbers))
            service.do("INSERT INTO ledger VALUES ('%s')" % message)
        service.kill()
        service.reap()
        service.start()
        hook.kill()
        relay.p.send_signal(signal.SIGCONT)
        hook.start()
        service.write(5, 5)
        wait_for(lambda: is_empty(path), "everything published")
        equal(relay.stop()[0], 0, "the relay ends well")
        judge(hook, path, "service and receiver killed at relay." + point)
        service.end()
        hook.stop()


def storm(folder):
    print("# SEED=%d SIZE=%d" % (SEED, SIZE))
    rng, chance, path, keys = random.Random(SEED), random.Random(SEED), folder + "/storm.db", 40
    hook = Receiver(lambda payload: 503 if chance.random() < 0.1 else 200)
    service = Service(path, random.Random(SEED + 1))
    start_relay = lambda: Relay("sqlite:" + path, "--route", "t=" + hook.url(), *RELAY)
    relays = [start_relay() for _ in range(2)]
    writer = threading.Thread(target=service.write, args=(400 * SIZE, keys))
    writer.start()
    kills = {"relay": 0, "service": 0, "receiver": 0, "all": 0}
    while writer.is_alive() or sum(kills.values()) < 12 * SIZE:
        time.sleep(rng.random() * 0.2)  # a moment at random is the point
        what = rng.choice(["relay", "relay", "service", "receiver", "all"])
        kills[what] += 1
        victims = [rng.randrange(2)] if what == "relay" else [0, 1] if what == "all" else []
        for v in victims:
            relays[v].kill()
        if what in ("service", "all") and writer.is_alive():
            service.kill()
        if what in ("receiver", "all"):
            hook.kill()
            time.sleep(rng.random() * 0.2)  # nobody is there for a while
            hook.start()
        for v in victims:
            relays[v] = start_relay()
        if victims:
            end_leases(path)
    writer.join()
    wait_for(lambda: is_empty(path), "everything published", 180 + 60 * SIZE)
    for relay in relays:
        relay.stop()
    judge(hook, path, "storm, %s" % ", ".join("%d %s" % (n, what) for what, n in kills.items()))
    service.end()
    hook.stop()


with tempfile.TemporaryDirectory() as folder:
    for name in WHAT:
        {"points": points, "storm": storm}[name](folder)
finish()
