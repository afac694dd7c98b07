"""Where a storm's messages arrive: at a webhook, or in a topic, queue or stream of a real broker.

Each has `url()` for a route, `got` (messages in the order of arrival, per key), `firsts()`; `refresh()` looks again,
`kill()` and `start()` it. `open_sink(name)` starts the broker, once for the whole program."""
import atexit
import contextlib
import tempfile

from outboxtest import skip_if
from receiver import Receiver

# Nobody is dead who was not refused for good: a machine that is too busy to confirm in time, or to keep a lease, makes repeats only.
TIMES = ["--timeout", "5s", "--lease", "10s", "--attempts", "100000", "--crashes", "1000"]
_brokers = contextlib.ExitStack()
atexit.register(_brokers.close)


class AtWebhook(Receiver):
    relay = TIMES

    def __init__(self, rng=None):
        super().__init__(lambda payload: 503 if rng is not None and rng.random() < 0.1 else 200)

    def refresh(self):
        pass


class AtBroker:
    relay = TIMES
    broker = None
    number = 0

    def __init__(self, rng=None):
        type(self).number += 1
        self.place = "place%d" % type(self).number
        self.got = []
        self.away = False
        self.make()

    def firsts(self):
        first = {}
        for m in self.got:
            first.setdefault(m["id"], m["payload"].decode())
        return list(first.values())

    def kill(self):
        self.wait()
        self.broker.kill()

    def start(self):
        """It answers some seconds later; meanwhile the storm goes on."""
        self.broker.launch()
        self.away = True

    def wait(self):
        if self.away:
            self.broker.wait()
            self.away = False

    def stop(self):
        self.wait()


class AtKafka(AtBroker):
    def make(self):
        self.broker.create_topic(self.place)

    def url(self):
        return self.broker.url + "/" + self.place

    def refresh(self):
        self.wait()
        self.got = [{"id": dict(headers)["Once-Message-Id"].decode(), "payload": value} for _, _, headers, value in self.broker.messages(self.place)]


class AtRabbitMQ(AtBroker):
    def make(self):
        """Long before it is used: a queue that was declared a moment ago may be gone when its broker is killed."""
        if self.number == 1:
            for number in range(1, 65):
                self.broker.declare("place%d" % number)

    def url(self):
        return self.broker.url + "?routing-key=" + self.place

    def refresh(self):
        self.wait()
        self.got += [{"id": properties.message_id, "payload": body} for _, properties, body in self.broker.take_all(self.place)]


class AtNats(AtBroker):
    """Every place has the topic as its subject, so there is one stream, emptied."""

    def make(self):
        self.broker.ask("STREAM.DELETE.STORM", {})
        self.broker.create_stream("STORM", ["t"])

    def url(self):
        return self.broker.url

    def refresh(self):
        self.wait()
        self.got = [{"id": headers["Nats-Msg-Id"], "payload": payload} for _, headers, payload in self.broker.messages("STORM")]


def open_sink(name):
    """The class to make places of; skips the whole program where there is no such broker."""
    if name == "webhook":
        return AtWebhook
    if name == "kafka":
        from kafka import Kafka as Broker
        kind = AtKafka
    elif name == "rabbitmq":
        from rabbitmq import RabbitMQ as Broker
        kind = AtRabbitMQ
    else:
        from nats import Nats as Broker
        kind = AtNats
    skip_if(Broker.missing())
    kind.broker = Broker(_brokers.enter_context(tempfile.TemporaryDirectory(prefix="once-%s-" % name)))
    _brokers.enter_context(kind.broker)
    return kind
