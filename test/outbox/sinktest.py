"""What the tests of Kafka and RabbitMQ share: a relay's verdict about one message, and a run with kills."""
import tempfile

from outboxtest import *
from lib.ports import free_port

SHORT = ["--timeout", "3s", "--lease", "6s"]  # where its end is awaited
PATIENT = ["--timeout", "60s", "--lease", "120s"]  # a busy machine is no broker that is away


def clear():
    psql("TRUNCATE once.outbox, once.outbox_stalled, once.outbox_dead; UPDATE once.outbox_lane SET lease_until = 0, flight = '{}'")


def verdicts(routes, *arguments):
    """`routes`: topic -> sink. For each topic, what one relay says of one message: "published", or (refusals, "t" if the
    sink was not reached, why); or, if it does not start, its exit and what it said."""
    clear()
    for topic in routes:
        psql("SELECT once.enqueue('%s', NULL, 'x')" % topic)
    relay = Relay(url("test"), *(word for pair in routes.items() for word in ("--route", "%s=%s" % pair)), "--backoff", "1h",
                  "--backoff-max", "1h", "--quiet", *PATIENT, *arguments)
    held = lambda: psql("SELECT o.topic, h.refusals, h.delays > 0, h.reason FROM once.outbox o JOIN once.outbox_stalled h ON h.head = o.seq "
                        "WHERE h.refusals + h.delays > 0").splitlines()
    wait_for(lambda: len(held()) == int(psql("SELECT count(*) FROM once.outbox")) or not relay.alive(), "a verdict")
    found = {line.split("|", 1)[0]: tuple(line.split("|", 3)[1:]) for line in held()}
    code, said = relay.stop()
    clear()
    return {topic: (code, said) if code != 0 else found.get(topic, "published") for topic in routes}


def verdict(route, *arguments, topic="orders.created"):
    return verdicts({topic: route}, *arguments)[topic]


def unreached(routes, *arguments):
    """`routes`: topic -> (sink, why). One relay, which tries again until each message waits for that reason; what it says of each, as
    verdicts() has it. On a busy machine a first try may be over before it knows why."""
    clear()
    for topic in routes:
        psql("SELECT once.enqueue('%s', NULL, 'x')" % topic)
    relay = Relay(url("test"), *(word for topic, (sink, _) in routes.items() for word in ("--route", "%s=%s" % (topic, sink))),
                  "--backoff", "10ms", "--backoff-max", "100ms", "--quiet", *SHORT, *arguments)
    found = lambda: {line.split("|", 1)[0]: tuple(line.split("|", 3)[1:]) for line in psql(
        "SELECT o.topic, h.refusals, h.delays > 0, h.reason FROM once.outbox o JOIN once.outbox_stalled h ON h.head = o.seq").splitlines()}
    wait_for(lambda: all(why in found().get(topic, ("",))[-1] for topic, (_, why) in routes.items()), "why it is not reached: %s" % (routes,))
    last = found()
    equal(relay.stop()[0], 0, "the relay ends well")
    clear()
    return last


def file_with(folder, text):
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
        file.write(text)
    return file.name


def poison(route, arrived, bytes_of_poison, why):
    """One message that the broker refuses, among others that would go in the same batch: it alone is a dead letter."""
    clear()
    psql("SELECT count(once.enqueue('orders.created', 'p' || i, CASE WHEN i = 50 THEN convert_to(repeat('x', %d), 'UTF8') ELSE "
         "convert_to('p' || i || '/1', 'UTF8') END)) FROM generate_series(1, 100) i" % bytes_of_poison)
    psql("SELECT once.enqueue('orders.created', 'p50', 'p50/2')")
    relay = Relay(url("test"), "--route", "*=" + route, "--attempts", "4", "--backoff", "1ms", "--backoff-max", "10ms", "--quiet", *PATIENT)
    wait_for(lambda: psql("SELECT count(*) FROM once.outbox_dead") == "1" and outbox_is_empty(), "a dead letter")
    equal(relay.stop()[0], 0, "the relay ends well")
    dead = psql("SELECT message_key, refusals, reason FROM once.outbox_dead")
    ok(dead.startswith("p50|4|") and why in dead, "too large: a dead letter after 4 refusals, with what the broker said: " + dead)
    got = {m["payload"].decode() for m in arrived()}
    equal(got, {"p%d/1" % i for i in range(1, 101) if i != 50} | {"p50/2"}, "the others were not counted, and its key went on")
    clear()


def kills(route, arrived, broker):
    """kill -9 of a relay between confirmation and mark, and of the broker under way: by id, what arrived is what was committed."""
    clear()
    route = ["--route", "*=" + route]
    quick = ["--backoff", "20ms", "--backoff-max", "200ms", "--attempts", "1000", "--quiet", "--timeout", "5s", "--lease", "10s"]
    enqueue = lambda first, last: psql(
        "SELECT once.enqueue('orders.created', 'k' || i %% 10, convert_to('k' || i %% 10 || '/' || i, 'UTF8')) FROM generate_series(%d, %d) i"
        % (first, last)).split()
    committed = enqueue(1, 100)
    relay = Relay(url("test"), *route, *quick, crash="relay.confirmed:30")
    equal(relay.stop_by_itself(), -9, "a relay is killed after a confirmation, before its mark")
    expire()
    relay = Relay(url("test"), *route, *quick, crash="relay.sent:60:stop")
    wait_for(lambda: open("/proc/%d/stat" % relay.p.pid).read().rsplit(")", 1)[1].split()[0] == "T", "messages under way")
    broker.kill()
    committed += enqueue(101, 150)
    relay.p.send_signal(signal.SIGCONT)
    wait_for(lambda: psql("SELECT count(*) FROM once.outbox_stalled WHERE refusals + delays > 0") != "0", "failures")
    ok(relay.alive(), "the broker is killed under way, and the relay goes on")
    equal(psql("SELECT count(*) FROM once.outbox_dead"), "0", "nobody is dead for that")
    broker.start()
    committed += enqueue(151, 200)
    wait_for(outbox_is_empty, "everything published", 240)
    equal(relay.stop()[0], 0, "the relay ends well")
    messages = arrived()
    first = {}
    for m in messages:
        first.setdefault(m["id"], m["payload"].decode())
    equal(sorted(first), sorted(committed), "by id, what arrived is what was committed (%d, %d repeats)" % (len(first), len(messages) - len(first)))
    bad, last = [], {}
    for payload in first.values():
        key, number = payload.split("/")
        if int(number) < last.get(key, 0):
            bad.append(payload)
        last[key] = int(number)
    equal(bad, [], "each key in order")
