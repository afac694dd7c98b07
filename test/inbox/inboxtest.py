"""What the tests of `once consume` share: brokers by one name each, consumers that are started and killed, and an endpoint whose
effects are rows of a database."""
import collections
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../outbox")]
from outboxtest import drain, equal, expire, finish, migrated, ok, once, ONCE, outbox_is_empty, psql, QUICK, Relay, Session, skip_if, terminate, wait_for, url
from lib.http import Handler, Server
from lib.ports import free_port


class NatsSide:
    """A stream without a duplicate window worth the name, so that what is published twice arrives twice."""
    def __init__(self, folder):
        from nats import Nats
        self.missing = Nats.missing()
        self.make = lambda: Nats(folder)

    def start(self):
        self.broker = self.make()
        self.broker.start()

    def create(self, topic, horizon_s=0):
        name = topic.replace(".", "-")
        answer = self.broker.ask("STREAM.CREATE." + name, {"name": name, "subjects": [topic], "storage": "file", "max_age": horizon_s * 10 ** 9,
                                                           "duplicate_window": 100 * 10 ** 6})
        assert "error" not in answer, answer

    def sink(self, topic):
        return self.broker.url

    def source(self, topic):
        return "%s/%s" % (self.broker.url, topic.replace(".", "-"))

    def messages(self, topic):
        """[(headers, payload)]"""
        return [(headers, payload) for _, headers, payload in self.broker.messages(topic.replace(".", "-"))]

    def give_back(self, topic, consumer):
        wait_for(lambda: self.broker.clients("once-consume") == 0, "the end of a connection")
        self.broker.give_back(topic.replace(".", "-"), consumer)

    def forget_ids(self, topic):
        """Until the stream takes the last it has once more: then it takes all of them."""
        stored = self.broker.messages(topic.replace(".", "-"))
        if stored:
            self.broker.publish_again(*stored[-1])

    def unacknowledged(self, topic, consumer):
        info = self.broker.ask("CONSUMER.INFO.%s.%s" % (topic.replace(".", "-"), consumer), {})
        return info["num_pending"] + info["num_ack_pending"]


class RabbitSide:
    source_shape = "amqp://127.0.0.1:1?queue=x"

    def __init__(self, folder):
        from rabbitmq import RabbitMQ
        self.missing = RabbitMQ.missing()
        self.make = lambda: RabbitMQ(folder)

    def start(self):
        self.broker = self.make()
        self.broker.start()

    def create(self, topic):
        self.broker.declare(topic)
        self.broker.declare(topic + ".copy", "all." + topic, "#")  # sees what the queue gets
        connection = self.broker.connection()
        connection.channel().queue_bind(topic, "all." + topic, "#")
        connection.close()

    def sink(self, topic):
        return "%s?exchange=all.%s" % (self.broker.url, topic)

    def source(self, topic):
        return "%s?queue=%s" % (self.broker.url, topic)

    def messages(self, topic):
        """Of a topic that nobody consumes, or of its copy."""
        if not hasattr(self, "seen"):
            self.seen = {}
        queue = topic if topic.endswith(".dead") else topic + ".copy"
        new = [] if topic in self.seen and topic.endswith(".dead") else [(p.headers, body) for _, p, body in self.broker.take_all(queue)]
        if queue == topic:  # back, for whoever consumes it next
            connection = self.broker.connection()
            channel = connection.channel()
            import pika
            for headers, body in new:
                channel.basic_publish("", topic, body, pika.BasicProperties(headers=headers, delivery_mode=2))
            connection.close()
        self.seen[topic] = self.seen.get(topic, []) + new
        return self.seen[topic]

    def give_back(self, topic, consumer):
        """The broker does so with the connection that is gone; when it has seen that, the queue has no consumer any more."""
        wait_for(lambda: self.queue(topic).consumer_count == 0, "the end of a connection")

    def forget_ids(self, topic):
        pass

    def queue(self, topic):
        connection = self.broker.connection()
        found = connection.channel().queue_declare(topic, passive=True).method
        connection.close()
        return found

    def unacknowledged(self, topic, consumer):
        """Nobody consumes now, so what is not acknowledged is ready again."""
        return self.queue(topic).message_count


class KafkaSide:
    source_shape = "kafka://127.0.0.1:1/x"

    def __init__(self, folder):
        from kafka import Kafka
        self.missing = Kafka.missing()
        self.make = lambda: Kafka(folder, group_min_session_timeout_ms="100")

    def start(self):
        self.broker = self.make()
        self.broker.start()

    def create(self, topic):
        self.broker.create_topic(topic, 3, retention_ms=-1)

    def sink(self, topic):
        return self.broker.url

    def source(self, topic):
        return "%s/%s" % (self.broker.url, topic)

    def messages(self, topic):
        return [({k: v.decode() for k, v in headers}, value) for _, _, headers, value in self.broker.messages(topic)]

    def give_back(self, topic, consumer):
        self.broker.end_members(consumer)

    def forget_ids(self, topic):
        pass

    def unacknowledged(self, topic, consumer):
        import confluent_kafka
        c = confluent_kafka.Consumer({"bootstrap.servers": self.broker.servers, "group.id": consumer, "log_level": 0})
        places = [confluent_kafka.TopicPartition(topic, n) for n in range(3)]
        left = 0
        for place in self.broker.patiently(lambda: c.committed(places, timeout=120)):
            left += self.broker.patiently(lambda: c.get_watermark_offsets(place, timeout=120))[1] - max(place.offset, 0)
        c.close()
        return left


SIDES = {"nats": NatsSide, "rabbitmq": RabbitSide, "kafka": KafkaSide}


class Consumer:
    """`once consume`, under way. Its lease does not run out, however busy the machine is: end_of() is the end of one that is dead."""
    def __init__(self, source, *arguments, store=None, name="billing", crash=None, log=None, drained=False):
        env = dict(os.environ)
        if crash:
            env["ONCE_CRASH"] = crash
        if log:
            env["ONCE_CRASH_LOG"] = log
        command = [ONCE, "consume", source, "--store", store or url("test"), "--consumer", name, "--lease", "120s", "--timeout", "120s",
                   "--backoff", "10ms", "--backoff-max", "50ms", "--retention", "never", "--report", "500ms", *arguments]
        self.p = subprocess.Popen(command + ["--drain"] * drained, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def alive(self):
        return self.p.poll() is None

    def kill(self):
        self.p.kill()
        self.p.wait()
        self.p.stdout.close()

    def wait(self):
        """Its end by itself: exit status (negative: a signal), and what it said."""
        said = self.p.stdout.read()
        self.p.stdout.close()
        return self.p.wait(), said

    def stop(self):
        terminate(self.p)
        return self.wait()


class Endpoint:
    """A service that takes messages in: each effect is a row, marked by once.consume in the same transaction. `behave(payload)` may
    give another status instead of doing it; "after" does it and then says 500."""
    def __init__(self, behave=lambda payload: None, consumer="billing"):
        self.requests, self.lock, self.behave = collections.Counter(), threading.Lock(), behave
        self.order, self.headers = [], {}
        self.session = Session()
        self.port = free_port()
        self.consumer = consumer
        outer = self

        class Effect(Handler):
            def do_POST(self):
                payload = self.body().decode()
                how = outer.behave(payload)
                with outer.lock:
                    outer.requests[payload] += 1
                    outer.headers[payload] = self.lower_headers()
                    if how in (None, "after"):
                        outer.effect(self.headers["Idempotency-Key"].strip('"'), payload)
                self.answer(how if isinstance(how, int) else 500 if how == "after" else 204)

        self.server = Server(Effect, self.port)

    def url(self):
        return "http://127.0.0.1:%d/in" % self.port

    def effect(self, message_id, payload):
        answer = self.session.run("WITH m AS (SELECT once.consume('%s', '%s') AS fresh) INSERT INTO effect (payload) SELECT '%s' FROM m WHERE fresh"
                                  % (self.consumer, message_id, payload))
        assert answer == "", answer

    def close(self):
        self.server.stop()
        self.session.close()


def end_of(side, topic, consumer="billing"):
    """All consumers are dead: their leases are over, and the broker knows. What they had asked for last may still be under way at the server."""
    wait_for(lambda: psql("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'once%'") == "0",
          "the end of their sessions")
    psql("UPDATE once.claim SET lease_ms = 1; UPDATE once.progress SET lease_until = 1")
    side.give_back(topic, consumer)


def set_up(database="test"):
    psql("DROP TABLE IF EXISTS effect; CREATE TABLE effect (n bigint GENERATED ALWAYS AS IDENTITY, payload text);"
         "TRUNCATE once.inbox, once.inbox_dead", database)


def enqueue(topic, first, count, keys):
    """Payloads KEY/NUMBER, in one transaction, after one that was rolled back."""
    one = "SELECT count(once.enqueue('%s', 'k' || i %% %d, convert_to('k' || i %% %d || '/' || i, 'UTF8'))) FROM generate_series(%d, %d) i"
    psql("BEGIN; %s; ROLLBACK" % (one % (topic, keys, keys, first + 1000000, first + 1000000 + count - 1)))
    psql(one % (topic, keys, keys, first, first + count - 1))
    return ["k%d/%d" % (i % keys, i) for i in range(first, first + count)]


def effects():
    return psql("SELECT payload FROM effect ORDER BY n").split()


def judge(expected, what):
    """Each effect exactly once, per key in order."""
    got = effects()
    equal((sorted(set(expected) - set(got))[:5], sorted(set(got) - set(expected))[:5], len(got) - len(set(got))), ([], [], 0),
          "%s: each of %d effects exactly once" % (what, len(expected)))
    last, bad = {}, []
    for payload in got:
        key, number = payload.split("/")
        if int(number) < last.get(key, -1):
            bad.append(payload)
        last[key] = int(number)
    equal(bad[:5], [], "%s: each key in order" % what)


def side(name):
    folder = tempfile.mkdtemp(prefix="once-inbox-")
    s = SIDES[name](folder)
    skip_if(s.missing)
    code, said = once("consume", s.source_shape if hasattr(s, "source_shape") else "nats://127.0.0.1:1/X", "--consumer", "c", "--exec", "true", "--store",
                      "sqlite:%s/x.db" % folder)
    skip_if(code == 64 and "built without" in said and said)
    s.start()
    return s
