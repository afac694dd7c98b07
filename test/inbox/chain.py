#!/usr/bin/env python3
"""The whole chain, with one broker: a producer's transaction, the outbox, `once relay`, the broker, `once consume`, a table. Relays die after they
published, consumers before and after the effect and the acknowledgement: each effect happens exactly once.

usage: chain.py nats|rabbitmq|kafka [SUBSTRING...]      SIZE=N: N times as many messages and kills; SEED=N"""
import random
import shutil

from inboxtest import *
from lib.tap import Cases, chosen, remark

SIZE, SEED = int(os.environ.get("SIZE", "1")), int(os.environ.get("SEED", "1"))
RELAY = ["--backoff", "10ms", "--backoff-max", "100ms", "--timeout", "60s", "--lease", "120s"]
case = Cases()


def publish(topic):
    """What is in the outbox goes to the broker; a relay dies after it published, so that some of it goes there twice."""
    relay = Relay(url("test"), "--route", "%s=%s" % (topic, broker.sink(topic)), "--drain", *RELAY, crash="relay.marked:1")
    relay.stop_by_itself()
    expire()
    broker.forget_ids(topic)
    relay = Relay(url("test"), "--route", "%s=%s" % (topic, broker.sink(topic)), *RELAY)
    wait_for(outbox_is_empty, "everything published")
    relay.stop()


@case
def killed_at_each_point():
    """kill -9 at each crash point of the consumer, several times each, with duplicates from the relay."""
    topic = "chain.points"
    broker.create(topic)
    set_up()
    endpoint = Endpoint()
    expected, killed = enqueue(topic, 0, 40 * SIZE, 7), set()
    publish(topic)
    for point in ("received", "delivering", "delivered", "finished", "acknowledged"):
        for n in range(1, 2 * SIZE, 2):
            crash = "consume.%s:%d" % (point, n)
            code, said = Consumer(broker.source(topic), "--to", endpoint.url(), crash=crash, drained=True).wait()
            if code == -9:
                killed.add(point)
                end_of(broker, topic)
            else:
                ok(code == 0, "%s: ended well" % crash, said)
    code, said = Consumer(broker.source(topic), "--to", endpoint.url(), drained=True).wait()
    equal(code, 0, "the last one drains it")
    equal(killed, {"received", "delivering", "delivered", "finished", "acknowledged"}, "every point killed a consumer")
    judge(expected, "killed at each point")
    ok(len(broker.messages(topic)) > len(expected), "there were duplicates in the broker, too (%d of %d)" % (len(broker.messages(topic)), len(expected)))
    equal(broker.unacknowledged(topic, "billing"), 0, "everything is acknowledged")
    equal(psql("SELECT count(*) FROM once.inbox_dead"), "0", "nothing is dead")
    endpoint.close()


@case
def what_was_finished_is_not_sent_again():
    topic = "chain.finished"
    broker.create(topic)
    set_up()
    endpoint = Endpoint()
    expected = enqueue(topic, 0, 20, 3)
    publish(topic)
    # By the one worker itself: whoever acknowledges does so while the worker has begun the next.
    for point in ("finished:2", "finished:5", "finished:7"):
        Consumer(broker.source(topic), "--to", endpoint.url(), "--parallel", "1", crash="consume." + point, drained=True).wait()
        end_of(broker, topic)
    said = Consumer(broker.source(topic), "--to", endpoint.url(), "--json", drained=True).wait()[1]
    judge(expected, "killed after the finish")
    equal(set(endpoint.requests.values()), {1}, "each was sent once: redeliveries are answered from the store")
    last = json.loads([line for line in said.splitlines() if line.startswith("{")][-1])
    ok(last["duplicates"] > 0, "and are told as duplicates", last)
    equal((last["waiting"], last["here"], last["dead_letters"]), (0, 0, 0), "the report's end")
    endpoint.close()


@case
def killed_while_one_is_held_up():
    """Later messages are done and told the broker, the first is not: after kill -9 it comes again."""
    topic = "chain.held"
    broker.create(topic)
    set_up()
    killed, held = threading.Event(), threading.Event()

    def behave(payload):
        if payload != "k0/0" or killed.is_set():
            return None
        held.set()
        killed.wait(1000)
        return 500
    endpoint = Endpoint(behave)
    expected = enqueue(topic, 0, 40, 7)
    publish(topic)
    consumer = Consumer(broker.source(topic), "--to", endpoint.url(), "--window", "1000", "--timeout", "1000s")
    wait_for(lambda: held.is_set() and len(effects()) == 40 - 6, "all but those of its key")
    for _ in range(3):  # reports: what is done was told the broker in between
        consumer.p.stdout.readline()
    consumer.kill()
    killed.set()
    end_of(broker, topic)
    equal(Consumer(broker.source(topic), "--to", endpoint.url(), drained=True).wait()[0], 0, "drained by another")
    judge(expected, "held up")
    equal(endpoint.requests["k1/1"], 1, "what was done is not sent again")
    endpoint.close()


@case
def killed_while_others_work():
    """Two consumers, killed at random moments, while messages come; a command this time."""
    topic = "chain.storm"
    broker.create(topic)
    set_up()
    rng = random.Random(SEED)
    expected = []
    relay = Relay(url("test"), "--route", "%s=%s" % (topic, broker.sink(topic)), *RELAY)
    endpoint = Endpoint(lambda payload: 503 if rng.random() < 0.1 else "after" if rng.random() < 0.05 else None)
    start = lambda: Consumer(broker.source(topic), "--to", endpoint.url(), "--attempts", "1000", "--lease", "2s")  # others wait for its end
    consumers = [start(), start()]
    for n in range(4 * SIZE):
        expected += enqueue(topic, 1000 * n, 30, 5)
        wait_for(lambda: len(effects()) > len(expected) - 60, "some progress", 300)
        victim = rng.randrange(2)
        consumers[victim].kill()
        consumers[victim] = start()
    wait_for(lambda: len(effects()) >= len(expected), "everything done", 300)
    wait_for(lambda: broker.unacknowledged(topic, "billing") == 0, "everything acknowledged", 300)
    for consumer in consumers:
        equal(consumer.stop()[0], 0, "a consumer ends in order")
    relay.stop()
    got = effects()
    equal((len(got), sorted(got)), (len(set(got)), sorted(expected)), "storm: each of %d effects exactly once" % len(expected))
    endpoint.close()


@case
def poison():
    """1 % fails: the dead letters are those, only those, and can be retried."""
    topic = "chain.poison"
    broker.create(topic)
    set_up()
    count = 100 * SIZE
    sick = lambda payload: int(payload.split("/")[1]) % 100 == 42
    broken = [True]
    endpoint = Endpoint(lambda payload: 500 if broken[0] and sick(payload) else None)
    expected = enqueue(topic, 0, count, 9)
    publish(topic)
    for crash in ("consume.dead_lettered:1", None):  # also killed between burying and acknowledging
        _, said = Consumer(broker.source(topic), "--to", endpoint.url(), "--attempts", "3", "--retention", "1d", crash=crash, drained=True).wait()
        end_of(broker, topic)
    ok("delivered twice (--retention" in said, "FAULT-59: a retention that may be too short is warned about: the broker keeps for ever, or does not tell", said)
    dead = [json.loads(line) for line in once("inbox", "list", "--store", url("test"), "--json")[1].splitlines()]
    payloads = sorted(once("inbox", "show", d["id"], "--raw", "--store", url("test"))[1] for d in dead)
    equal(payloads, sorted(filter(sick, expected)), "the dead letters are those that fail, and only those")
    # The consumer was killed at one's burial. Where there are more, another's last failure may have been recorded, and is
    # buried by the next consumer, or another's attempt cut short, and is made again.
    reasons = ("status 500", "3 attempts have failed") if SIZE > 1 else ("status 500",)
    ok({(d["failures"], d["reason"], d["consumer"], d["topic"]) for d in dead} <= {(3, why, "billing", topic) for why in reasons},
       "each says why", dead)
    ok({endpoint.requests[p] for p in payloads} <= ({3, 4} if SIZE > 1 else {3}), "after 3 attempts each", endpoint.requests)
    judge([p for p in expected if not sick(p)], "poison: the others")
    equal(broker.unacknowledged(topic, "billing"), 0, "everything is acknowledged")
    consumer = Consumer(broker.source(topic), "--to", endpoint.url(), "--attempts", "2")
    once("inbox", "retry", dead[0]["id"], "--reason", "to see it fail", "--store", url("test"))
    wait_for(lambda: psql("SELECT attempts FROM once.inbox_dead WHERE id = '%s' AND NOT retry" % dead[0]["id"]) == "2", "its second death")
    broken[0] = False
    code, said = once("inbox", "retry", "--all-dead", "--consumer", "billing", "--reason", "repaired", "--store", url("test"))
    equal(code, 0, "retried")
    wait_for(lambda: psql("SELECT count(*) FROM once.inbox_dead") == "0", "the dead letters are delivered")
    consumer.stop()
    equal(sorted(effects()), sorted(expected), "and then each effect happened exactly once")
    endpoint.close()


@case
def poison_to_a_topic():
    topic, dead_topic = "chain.sick", "chain.dead"
    broker.create(topic)
    broker.create(dead_topic)
    set_up()
    broken = [True]
    endpoint = Endpoint(lambda payload: 422 if broken[0] and payload.endswith("/3") else None)
    expected = enqueue(topic, 0, 8, 2)
    publish(topic)
    code, said = Consumer(broker.source(topic), "--to", endpoint.url(), "--dead-letter", dead_topic, drained=True).wait()
    equal(code, 0, "drained")
    dead = broker.messages(dead_topic)
    equal({payload for _, payload in dead}, {b"k1/3"}, "the message is in the topic for dead letters")
    ok("status 422" in str(dead[0][0].get("Dead-Letter-Reason")) and dead[0][0].get("Dead-Letter-Consumer") == "billing", "with its reason", dead[0][0])
    equal(endpoint.requests["k1/3"], 1, "422 is tried once")
    broken[0] = False
    Consumer(broker.source(dead_topic), "--to", endpoint.url(), drained=True).wait()
    equal(sorted(effects()), sorted(expected), "consumed from there it is delivered, and each effect happened exactly once")
    endpoint.close()


broker = side(sys.argv[1])
try:
    migrated()
    for name, function in chosen(case, sys.argv[2:]):
        remark(name)
        function()
finally:
    broker.broker.__exit__()
    shutil.rmtree(broker.broker.folder, ignore_errors=True)
finish()
