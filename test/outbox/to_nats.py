#!/usr/bin/env python3
"""`once relay` to a real NATS server: JetStream has each message, in order, over kills of relay and server."""
import tempfile

from outboxtest import *
from nats import Nats

skip_if(Nats.missing())
migrated()
code, said = once("relay", "--store", url("test"), "--route", "a=nats://127.0.0.1:1", "--drain")
skip_if(code == 64 and "built without libnats")
folder = tempfile.TemporaryDirectory()
server = Nats(folder.name)
server.start()
server.create_stream("ORDERS", ["orders.>"])


message = psql("SELECT once.enqueue('orders.created', 'k1', '{}', '{\"traceparent\": \"00-1\", \"Nats-Expected-Stream\": \"X\", \"Once-Message-Key\": \"evil\", \"content-type\": \"evil\"}', 'application/json')")
equal(drain(url("test"), "--route", "orders.*=" + server.url)[0], 0, "drained")
stored = server.messages("ORDERS")
equal([(s, p) for s, _, p in stored], [("orders.created", b"{}")], "the subject is the topic")
h = stored[0][1]
equal([name for name in h if "evil" in h[name]], [], "its own headers do not replace what is ours to say")
equal((h.get("Nats-Msg-Id"), h.get("Content-Type"), h.get("Once-Message-Key"), h.get("traceparent"), "Nats-Expected-Stream" in h),
      (message, "application/json", "k1", "00-1", False), "id, content type, key, its own headers, none that commands the server")

psql("SELECT once.enqueue('elsewhere', 'x', 'x')")
psql("SELECT once.enqueue('orders.*', 'y', 'y')")
relay = Relay(url("test"), "--route", "*=" + server.url, "--attempts", "2", *QUICK)
wait_for(lambda: psql("SELECT count(*) FROM once.outbox_dead") == "1" and psql("SELECT max(delays) FROM once.outbox_stalled") not in ("", "0"), "both answers")
relay.stop()
equal(psql("SELECT reason FROM once.outbox_stalled"), "no stream has this subject", "without a stream it waits: plain NATS confirms nothing")
ok("not a NATS subject" in psql("SELECT reason FROM once.outbox_dead"), "a topic that is no subject is refused")
psql("TRUNCATE once.outbox, once.outbox_stalled, once.outbox_dead")

# Kills of relay and server while messages flow.
start_relay = lambda: Relay(url("test"), "--route", "orders.*=" + server.url, "--backoff", "10ms", "--backoff-max", "100ms", "--attempts", "1000",
                            "--timeout", "5s", "--lease", "10s")
relays = [start_relay() for _ in range(2)]
total = 0
for n in range(6):
    psql("SELECT count(once.enqueue('orders.storm', 'k' || i %% 10, convert_to('k' || i %% 10 || '/' || i, 'UTF8'))) FROM generate_series(%d, %d) i"
         % (total + 1, total + 50))
    total += 50
    if n in (1, 3):
        server.kill()
        server.start()
    elif n == 2:
        relays[0].kill()
        relays[0] = start_relay()
        expire()
wait_for(outbox_is_empty, "everything published", 240)
for relay in relays:
    relay.stop()
storm = [p.decode() for s, _, p in server.messages("ORDERS") if s == "orders.storm"]
equal(sorted(set(storm), key=lambda p: int(p.split("/")[1])), ["k%d/%d" % (i % 10, i) for i in range(1, total + 1)],
      "the stream has every message (%d, %d duplicates)" % (total, len(storm) - len(set(storm))))
bad, last = [], {}
for p in dict.fromkeys(storm):
    key, number = p.split("/")
    if int(number) < last.get(key, 0):
        bad.append(p)
    last[key] = int(number)
equal(bad, [], "each key in order")
equal(psql("SELECT count(*) FROM once.outbox_dead"), "0", "and nobody is dead")
server.kill()
finish()
