#!/usr/bin/env python3
"""The relay inside `once daemon`, and its numbers: they agree with what a known workload did; claims do not wait for it; it ends
well, and outlives its database."""
import json
import re
import tempfile
import threading
import time

from outboxtest import *
from lib import daemon, http, metrics
from lib.ports import is_refused
from lib.tap import Cases, chosen, remark

case = Cases()
RELAY = ["--relay-backoff", "10ms", "--relay-backoff-max", "100ms", "--relay-timeout", "60s", "--relay-lease", "120s"]


def ask(address, path, body=None):
    """Status and answer; (None, None): there was none."""
    answer = http.request(address, path, body, {"Content-Type": "application/json"})
    return (answer[0], json.loads(answer[2])) if answer else (None, None)


def until_status(address, path, wanted, what):
    """Its answer."""
    return wait_for(lambda: (lambda status, answer: status == wanted and [answer])(*ask(address, path)), what)[0]


def numbers(address):
    """The metrics of a relay by itself."""
    return metrics.parse(wait_for(lambda: http.request(address, "/metrics"), "its metrics")[2].decode())


class Daemon(daemon.Daemon):
    """With a store of its own in SQLite; the outbox is in PostgreSQL, or where `outbox` says."""
    def __init__(self, folder, *options, outbox=None, crash=None):
        super().__init__(folder)
        env = dict(os.environ, ONCE_RELAY_STORE=outbox or url("test"), **({"ONCE_CRASH": crash} if crash else {}))
        self.start("--http", "127.0.0.1:0", *options, env=env)

    def metrics(self):
        return numbers(self.http)

    def up(self):
        return self.metrics()("once_relay_up") == 1

    def claim(self, key):
        """With a nonce: who asks again because the answer was late or lost gets the same grant."""
        body = json.dumps({"tenant": "t", "key": key, "nonce": os.urandom(16).hex(), "request": {"method": "POST", "path": "/", "body": ""}}).encode()
        status, answer = wait_for(lambda: (lambda a: a[0] not in (None, 429, 500, 503) and a)(ask(self.http, "/v1/claim", body)), "an answer to a claim")
        return answer.get("arm", (status, answer))

    def finish(self, number=signal.SIGTERM):
        """Its exit status, and what it said."""
        return self.end(number), self.log()


@case
def numbers_agree_with_what_happened(folder):
    hook = Receiver(lambda payload: 500 if payload.startswith(b"bad") else 200)
    away = Receiver()
    away.stop()
    began = time.monotonic()
    psql("SELECT once.enqueue('a.' || n % 50, 'key' || n % 40, convert_to(CASE WHEN n % 100 = 7 THEN 'bad' ELSE 'good' END || n, 'UTF8')) "
         "FROM generate_series(1, 500) n")
    psql("SELECT once.enqueue('b', 'b' || n, 'x') FROM generate_series(1, 3) n")
    psql("SELECT once.enqueue('nobody', 'n' || n, 'x') FROM generate_series(1, 2) n")
    psql("SELECT once.enqueue('b', NULL, 'x', not_before => now() + interval '1 hour')")
    d = Daemon(folder, "--relay", "a.*=" + hook.url(), "--relay", "b=" + away.url(), "--relay", 'with "quotes"\\=' + hook.url(),
               "--relay-attempts", "3", *RELAY)
    wait_for(lambda: psql("SELECT count(*) FROM once.outbox_dead") == "5" and psql("SELECT pending FROM once.outbox_counts()") == "0" and
          len(hook.confirmed) == 495, "all published, dead or held")
    wait_for(lambda: d.metrics().get(("once_outbox_messages", "state", "dead")) == 5 and
          d.metrics()("once_outbox_messages", state="stalled") == 5, "the outbox counted")
    m = d.metrics()
    refused = len(hook.got) - len(hook.confirmed)
    equal((m("once_relay_published_total", route="a.*"), m("once_relay_refused_total", route="a.*")), (len(hook.confirmed), refused),
          "published and refused are what the receiver counted (%d and %d)" % (len(hook.confirmed), refused))
    equal((len(hook.confirmed), refused), (495, 15), "which is what was to be")
    equal((m("once_relay_dead_letters_total", route="a.*", cause="refused"), m("once_relay_dead_letters_total", route="a.*", cause="crashed")), (5, 0),
          "the dead are those in the table")
    equal((m("once_relay_publish_seconds_count", route="a.*"), m("once_relay_delay_seconds_count", route="a.*")), (495, 495),
          "every publish is in the histograms")
    equal((m("once_relay_published_total", route="b"), m("once_relay_refused_total", route="b"), m("once_relay_unreached_total", route="b") > 0),
          (0, 0, True), "what is not reached is neither published nor refused")
    ok(m("once_relay_unreached_total", route="no route") > 0, "topics without a route have a row of their own")
    equal(m("once_relay_published_total", route='with \\"quotes\\"\\\\'), 0, "labels are escaped")
    equal([m("once_outbox_messages", state=s) for s in ("pending", "stalled", "scheduled", "dead")],
          [float(x) for x in psql("SELECT pending, stalled, scheduled, dead FROM once.outbox_counts()").split("|")], "the gauges are what the outbox says")
    ok(m("once_outbox_oldest_seconds", state="stalled") > 0 and m("once_outbox_oldest_seconds", state="pending") == 0, "and the oldest of them")
    ok(0 < m("once_relay_publish_seconds_sum", route="a.*") <= m("once_relay_delay_seconds_sum", route="a.*") < 495 * (time.monotonic() - began),
       "times are seconds, and not more than have passed")
    equal(len({key for key in m if key[0] == "once_relay_published_total"}), 4, "50 topics and 40 keys, and a series per route")
    equal((m("once_relay_up"), m("once_relay_outages_total"), m("once_relay_unsettled_total")), (1, 0, 0), "it is up")
    away.start()
    wait_for(lambda: d.metrics()("once_relay_published_total", route="b") == 3, "those of a sink that is back")
    equal(len(away.confirmed), 3, "each once")
    equal(d.end(), 0, "it ends well")
    hook.stop(), away.stop()


@case
def crashes_are_counted(folder):
    hook = Receiver()
    psql("SELECT once.enqueue('t', 'key' || n, convert_to('m' || n, 'UTF8')) FROM generate_series(1, 20) n")
    d = Daemon(folder, "--relay", "t=" + hook.url(), *RELAY, crash="relay.confirmed:3")
    equal(d.process.wait(), -9, "a daemon is killed in the middle of a batch")
    d.end()
    flight = int(psql("SELECT sum(cardinality(flight)) FROM once.outbox_lane"))
    expire()
    d = Daemon(folder, "--relay", "t=" + hook.url(), *RELAY)
    wait_for(outbox_is_empty, "everything published")
    equal((d.metrics()("once_relay_crashed_total", route="t"), flight > 0), (flight, True),
          "what it had under way, %d messages, is tried again, and counted" % flight)
    ok({m["payload"] for m in hook.confirmed} == {b"m%d" % n for n in range(1, 21)}, "nothing is lost")
    equal(d.end(), 0, "it ends well")
    hook.stop()


@case
def claims_do_not_wait_for_it(folder):
    gate = threading.Event()
    hook = Receiver(lambda payload: gate.wait(600) and 200)
    psql("SELECT once.enqueue('t', 'key' || n, 'x') FROM generate_series(1, 100) n")
    d = Daemon(folder, "--relay", "t=" + hook.url(), *RELAY[:4], "--relay-timeout", "600s", "--relay-lease", "1200s")
    wait_for(lambda: psql("SELECT count(*) FROM once.outbox_lane WHERE cardinality(flight) > 0") != "0", "messages under way")
    equal({d.claim("k%d" % n) for n in range(50)}, {"execute"}, "with a receiver that does not answer, 50 claims are answered")
    # The database of the outbox stops in the middle; the daemon's store is another.
    server("stop", "-m", "immediate")
    equal({d.claim("l%d" % n) for n in range(50)}, {"execute"}, "with its outbox gone, too")
    gate.set()
    wait_for(lambda: not d.up(), "its notice")
    start()
    wait_for(lambda: d.up(), "its return")
    wait_for(outbox_is_empty, "everything published")
    m = d.metrics()
    ok(m("once_relay_outages_total") >= 1, "the outage is counted")
    ok(len({x["id"] for x in hook.confirmed}) == 100, "all 100 arrived")
    code, said = d.finish()
    ok(code == 0 and "trying again" in said and "reachable again" in said, "the log tells of it", said)
    hook.stop()


@case
def it_drains_when_the_daemon_ends(folder):
    seen, gate = threading.Event(), threading.Event()
    hook = Receiver(lambda payload: (seen.set(), gate.wait(600)) and 200)
    psql("SELECT once.enqueue('t', 'k', convert_to('k/' || n, 'UTF8')) FROM generate_series(1, 3) n")
    d = Daemon(folder, "--relay", "t=" + hook.url(), *RELAY[:4], "--relay-timeout", "600s", "--relay-lease", "1200s")
    seen.wait(120)
    d.process.send_signal(signal.SIGTERM)
    wait_for(lambda: not os.path.exists(folder + "/once.sock") or is_refused(int(d.http.rsplit(":", 1)[1])), "its end to begin")
    ok(d.process.poll() is None, "it waits for what is under way")
    gate.set()
    equal(d.end(), 0, "and ends")
    equal((len(hook.got), psql("SELECT pending FROM once.outbox_counts()")), (1, "2"), "the one under way is settled, no other was started")
    equal(psql("SELECT count(*) FROM once.outbox_lane WHERE lease_until > 0 OR cardinality(flight) > 0"), "0", "its lanes are given back")
    hook.stop()


@case
def an_outbox_that_is_away_at_the_start(folder):
    hook = Receiver()
    psql("SELECT once.enqueue('t', 'k', 'x')")
    server("stop", "-m", "fast")
    d = Daemon(folder, "--relay", "t=" + hook.url(), *RELAY)
    wait_for(lambda: d.metrics()("once_relay_outages_total") == 1, "its notice")
    equal(d.claim("k"), "execute", "the daemon serves nevertheless")
    ok(("once_outbox_messages", "state", "pending") not in d.metrics(), "what nobody can count is left out")
    start()
    wait_for(lambda: d.up() and outbox_is_empty(), "the message")
    equal((len(hook.got), d.end()), (1, 0), "published when the database is there")
    hook.stop()


@case
def on_sqlite(folder):
    hook = Receiver()
    path = folder + "/shop.db"
    service = subprocess.Popen([os.environ["ONCE_TEST_ENQUEUE"], path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def do(*steps):
        for step in steps:
            service.stdin.write(step + "\n")
            service.stdin.flush()
            service.stdout.readline()

    do("begin", *["message t k%d k%d/%d" % (n % 5, n % 5, n) for n in range(100)], "commit")
    d = Daemon(folder, "--relay", "t=" + hook.url(), *RELAY, outbox="sqlite:" + path)
    wait_for(lambda: len(hook.confirmed) == 100, "all of them")
    do("begin", "message t - x")
    equal(d.claim("k"), "execute", "a service in a transaction holds up no claim")
    do("commit")
    wait_for(lambda: d.metrics()("once_relay_published_total", route="t") == 101 and
          d.metrics()("once_outbox_messages", state="pending") == 0, "the last")
    equal((per_key_in_order_of(hook, 100), d.end()), ([], 0), "each key in order")
    service.stdin.close()
    service.wait()
    service.stdout.close()
    hook.stop()


def per_key_in_order_of(hook, count):
    last, bad = {}, []
    for payload in hook.firsts()[:count]:
        key, number = payload.split("/")
        if int(number) < last.get(key, -1):
            bad.append(payload)
        last[key] = int(number)
    return bad


@case
def the_relay_by_itself_has_the_same(folder):
    hook = Receiver()
    psql("SELECT once.enqueue('t', 'k' || n, 'x') FROM generate_series(1, 30) n")
    relay = Relay(url("test"), "--route", "t=" + hook.url(), "--metrics", "127.0.0.1:0", *QUICK)
    address = re.search("http://([^/]*)/metrics", relay.p.stdout.readline()).group(1)
    wait_for(lambda: numbers(address)("once_relay_published_total", route="t") == 30, "30 in its metrics")
    m = numbers(address)
    equal((len(hook.got), ("once_store_up",) in m, m("once_relay_up")), (30, False, 1), "as many as arrived; of a store it knows nothing")
    equal(until_status(address, "/healthz", 200, "it to be healthy"), {"status": "ok"}, "/healthz")
    equal(until_status(address, "/v1/claim", 404, "its word about claims")["code"], "not-found", "there is nothing to claim")
    server("stop", "-m", "fast")
    wait_for(lambda: numbers(address)("once_relay_up") == 0, "its notice")
    ok("detail" in until_status(address, "/healthz", 503, "its word"), "/healthz says that the outbox is away")
    start()
    wait_for(lambda: numbers(address)("once_relay_up") == 1, "its return")
    equal(relay.stop()[0], 0, "it ends well")
    hook.stop()


@case
def what_is_wrong_is_said(folder):
    rows = [
        (["--relay", "t=http://127.0.0.1:1/"], "which outbox?", "no outbox"),
        (["--relay-store", "postgresql:///x"], "is for --relay", "no route"),
        (["--relay-timeout", "1s"], "is missing", "only a time"),
        (["--relay", "t"], "not PATTERN=SINK", "no sink"),
        (["--relay", "t=ftp://x"], "there is no such sink", "another sink"),
        (["--relay", "t=http://x/", "--relay", "t=http://y/"], "given twice", "a pattern twice"),
        (["--relay", "t=http://x/", "--relay-store", "once:/x"], "cannot have an outbox", "a daemon as outbox"),
        (["--relay", "t=http://x/", "--relay-lease", "2s"], "must be at least twice", "a short lease"),
        (["--relay", "t=http://x/", "--relay-store", "postgresql:///x", "--relay-secret-file", folder + "/none"], "--secret-file", "no file"),
    ]
    for options, said, name in rows:
        code, text = once("daemon", "--store", "sqlite:%s/x.db" % folder, "--socket", folder + "/x.sock", "--http", "off", *options,
                          ONCE_RELAY_STORE="")
        ok(code in (64, 69) and said in text, name, code, text)


migrated()
for name, function in chosen(case, sys.argv[1:]):
    psql("TRUNCATE once.outbox, once.outbox_stalled, once.outbox_dead, once.outbox_scheduled; UPDATE once.outbox_lane SET lease_until = 0, flight = '{}'")
    remark(name)
    with tempfile.TemporaryDirectory() as folder:
        function(folder)
finish()
