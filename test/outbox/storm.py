#!/usr/bin/env python3
"""K12 in a storm. Transactions commit, roll back and commit late; relays and receiver are killed, the server crashes. Then: the set that
was published is the set that was committed (HISTORY-13, FAULT-54, FAULT-55), each key's messages first arrived in the order of their commits,
and no message is dead that its receiver did not refuse (FAULT-57).

    storm.py [SINK] [points|storm|many]     SINK: webhook, kafka, rabbitmq, nats; SIZE=N: N times as much; SEED=N

Every message's number is counted in the transaction that enqueues it, under the lock of its key's row: so numbers of a key
are in the order of commits. The ids of what was committed are in a ledger, written in the same transactions."""
import random
import signal
import threading
import time

from outboxtest import *
from arrivals import AtWebhook, open_sink

SIZE = int(os.environ.get("SIZE", "1"))
SEED = int(os.environ.get("SEED", random.randrange(10 ** 6)))
SINK = open_sink(sys.argv[1] if sys.argv[1:] else "webhook")
WHAT = sys.argv[2:] or ["points", "storm"]
POINTS = ("taken", "sent", "confirmed", "marked", "settled")
RELAY = ["--backoff", "50ms", "--backoff-max", "500ms", *SINK.relay, "--quiet"]


def set_up(keys):
    psql("TRUNCATE once.outbox, once.outbox_stalled, once.outbox_dead, once.outbox_scheduled; UPDATE once.outbox_lane SET lease_until = 0, flight = '{}';"
         "CREATE TABLE IF NOT EXISTS counter (key text PRIMARY KEY, n integer); CREATE TABLE IF NOT EXISTS ledger (id uuid);"
         "TRUNCATE counter, ledger; INSERT INTO counter SELECT 'k' || n, 0 FROM generate_series(1, %d) n" % keys)


ENQUEUE = ("WITH c AS (UPDATE counter SET n = n + 1 WHERE key = '%s' RETURNING key, n), e AS (SELECT once.enqueue('t', key, "
           "convert_to(key || '/' || n, 'UTF8')) AS id FROM c) INSERT INTO ledger SELECT id FROM e;\n")


def transactions(rng, count, keys):
    script = ""
    for _ in range(count):
        script += "BEGIN;\n"
        for key in sorted(rng.sample(range(1, keys + 1), rng.randint(1, 4))):
            script += ENQUEUE % ("k%d" % key)
        if rng.random() < 0.15:
            script += "SELECT pg_sleep(%f);\n" % (rng.random() * 0.2)  # others commit, and are published, before it
        script += "ROLLBACK;\n" if rng.random() < 0.25 else "COMMIT;\n"
    return script


def write(rng, count, keys):
    """As many transactions, over several connections where the server crashes."""
    while count > 0:
        part = min(count, 10)
        done = subprocess.run([os.path.join(os.environ["ONCE_TEST_POSTGRES_BIN"], "psql"), "-XqAt", "-d", url("test")],
                              input=transactions(rng, part, keys), text=True, capture_output=True)
        if done.returncode == 0:
            count -= part
        else:
            time.sleep(0.05)  # the server is away


def settled():
    try:
        return outbox_is_empty()
    except ValueError:
        return False


def publish_all(hook):
    """Also what was tried in vain, and waits for another try: one that drains does not wait for that."""
    wait_for(lambda: (drain(url("test"), "--route", "t=" + hook.url(), *SINK.relay), settled())[1], "everything published", 240)


def judge(hook, what):
    hook.refresh()
    committed = set(psql("SELECT id FROM ledger").split())
    published = {m["id"] for m in hook.got}
    ok(committed, "%s: there were messages" % what)
    equal((len(committed - published), len(published - committed)), (0, 0),
          "%s: published is what was committed (%d messages, %d duplicates)" % (what, len(committed), len(hook.got) - len(published)))
    equal(per_key_in_order(hook)[:5], [], "%s: each key in order" % what)
    equal(psql("SELECT count(*), min(reason) FROM once.outbox_dead"), "0|", "%s: nobody is dead" % what)
    equal(psql("SELECT count(*) FROM once.outbox_stalled"), "0", "%s: nothing is held" % what)


def points():
    """kill -9 at each crash point of the relay: fetched, sent, confirmed, marked, committed."""
    with_log = os.path.join(os.path.dirname(os.environ["ONCE_TEST_POSTGRES_DATA"]), "points")
    reached = set()
    for point in POINTS:
        hook = SINK()
        set_up(5)
        write(random.Random(SEED), 10, 5)
        for n in range(1, 1 + (1 if point in ("taken", "marked", "settled") else 3) * SIZE):
            relay = Relay(url("test"), "--route", "t=" + hook.url(), "--drain", *RELAY, crash="relay.%s:%d" % (point, n))
            code = relay.stop_by_itself()
            reached.add((point, code))
            write(random.Random(SEED + n), 3, 5)
            expire()
        publish_all(hook)
        judge(hook, "killed at relay." + point)
        hook.stop()
    equal({point for point, code in reached if code == -9}, set(POINTS), "every point killed a relay")
    others()
    zombie()


def stands(relay):
    return open("/proc/%d/stat" % relay.p.pid).read().rsplit(")", 1)[1].split()[0] == "T"


def others():
    """While the relay stands at each of these points, the database is killed, or the receiver; then it goes on. What it does about the
    database differs by sink in one place only, where it is to delete what was confirmed (K12): the rest is for the fastest one."""
    for point in POINTS:
        for victim in ("database", "receiver") if SINK is AtWebhook or point == "confirmed" else ("receiver",):
            hook = SINK()
            set_up(5)
            write(random.Random(SEED), 10, 5)
            relay = Relay(url("test"), "--route", "t=" + hook.url(), *RELAY, crash="relay.%s:1:stop" % point)
            wait_for(lambda: stands(relay), "its stop")
            if victim == "database":
                restart("immediate")
            else:
                hook.kill()
            relay.p.send_signal(signal.SIGCONT)
            if victim == "receiver":
                hook.start()
            write(random.Random(SEED + 1), 5, 5)
            wait_for(settled, "everything published", 240)
            equal(relay.stop()[0], 0, "%s killed at relay.%s: the relay ends well" % (victim, point))
            judge(hook, "%s killed at relay.%s" % (victim, point))
            hook.stop()


def zombie():
    """A relay that is stopped at each point until its lease is over and others have done its work, then goes on (FAULT-6)."""
    for point in ("taken", "sent", "confirmed", "marked"):
        hook = SINK()
        set_up(5)
        write(random.Random(SEED), 10, 5)
        relay = Relay(url("test"), "--route", "t=" + hook.url(), "--drain", *RELAY, crash="relay.%s:1:stop" % point)
        wait_for(lambda: stands(relay), "its stop")
        if point == "marked":  # in the middle of its COMMIT it holds its rows
            relay.p.send_signal(signal.SIGCONT)
        expire()
        publish_all(hook)
        relay.p.send_signal(signal.SIGCONT)
        equal(relay.stop_by_itself(), 0, "stopped at relay.%s, then going on: it ends well" % point)
        publish_all(hook)
        judge(hook, "stopped at relay." + point)
        hook.stop()


def storm():
    print("# SEED=%d SIZE=%d" % (SEED, SIZE))
    rng = random.Random(SEED)
    keys = 40
    hook = SINK(random.Random(SEED))
    set_up(keys)
    start_relay = lambda: Relay(url("test"), "--route", "t=" + hook.url(), *RELAY)
    relays = [start_relay() for _ in range(3)]
    writers = [threading.Thread(target=write, args=(random.Random(SEED * 100 + w), 60 * SIZE, keys)) for w in range(4)]
    for w in writers:
        w.start()
    kills = crashes = cuts = 0
    while any(w.is_alive() for w in writers) or kills < 6 * SIZE:
        time.sleep(rng.random() * 0.3)  # a moment at random is the point
        if kills >= 3 * (crashes + 1) and crashes < 2 * SIZE:
            restart("immediate")
            crashes += 1
        elif rng.random() < 0.25:
            hook.kill()
            time.sleep(rng.random() * 0.2)  # nobody is there for a while
            hook.start()
            cuts += 1
        else:
            victim = rng.randrange(3)
            relays[victim].kill()
            relays[victim] = start_relay()
            expire()  # also of those that are alive
            kills += 1
    for w in writers:
        w.join()

    def revive():
        """One that met a server that was starting has ended."""
        for i, relay in enumerate(relays):
            if not relay.alive():
                relay.kill()
                relays[i] = start_relay()
    expire()
    wait_for(lambda: (revive(), settled())[1], "everything published", 180 + 60 * SIZE)
    for relay in relays:
        relay.stop()
    judge(hook, "storm, %d kills, %d crashes of the server, %d of the receiver" % (kills, crashes, cuts))
    hook.stop()


def many():
    """1000 messages per SIZE on 10 keys per SIZE with 3 relays that are restarted. SIZE=100: 100,000 on 1,000."""
    print("# SEED=%d SIZE=%d" % (SEED, SIZE))
    hook, rng = SINK(), random.Random(SEED)
    set_up(10 * SIZE)
    start_relay = lambda: Relay(url("test"), "--route", "t=" + hook.url(), *RELAY[:4], *SINK.relay, "--quiet")
    relays = [start_relay() for _ in range(3)]
    one_each = ("WITH c AS (UPDATE counter SET n = n + 1 RETURNING key, n), e AS (SELECT once.enqueue('t', key, convert_to(key || '/' || n, 'UTF8')) "
                "AS id FROM c) INSERT INTO ledger SELECT id FROM e;")
    writer = threading.Thread(target=lambda: [psql(one_each) for _ in range(100)])
    writer.start()
    busy = lambda: psql("SELECT relay IS NOT NULL FROM once.outbox_lane WHERE cardinality(flight) > 0 LIMIT 1") == "t"
    for _ in range(12):
        wait_for(lambda: busy() or not writer.is_alive(), "messages under way")
        victim = rng.randrange(3)
        (relays[victim].kill if rng.random() < 0.7 else relays[victim].stop)()
        relays[victim] = start_relay()
        time.sleep(rng.random() * 0.5)
    writer.join()
    wait_for(settled, "everything published", 1200)
    for relay in relays:
        relay.stop()
    judge(hook, "%d messages on %d keys" % (1000 * SIZE, 10 * SIZE))
    hook.stop()


migrated()
for name in WHAT:
    {"points": points, "storm": storm, "many": many}[name]()
finish()
