#!/usr/bin/env python3
"""One trace across client, gateway, service, outbox, broker and consumer: `once send` to a gateway, before a service that enqueues in its own
PostgreSQL transaction; `once relay` to NATS or a webhook; `once consume` to an endpoint. The client is killed on the way and resumed, the service
drops its first answer, the endpoint refuses once: all of it is one tree of spans, and all attempts of one operation have one key hash."""
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../gateway"), os.path.join(HERE, "../inbox"), os.path.join(HERE, "../outbox"), os.path.join(HERE, "../brokers"),
                os.path.join(HERE, "../sql"), os.path.join(HERE, "..")]
from collector import Collector
import gateway as gw
from outboxtest import ONCE, Receiver, drain, equal, finish, migrated, once, outbox_is_empty, psql, skip_if, url, wait_for
from nats import Nats
from lib.http import Handler, Server

skip_if(Nats.missing())
skip_if(not gw.NGINX and "nginx is not installed")
skip_if(not (gw.MODULE and os.path.exists(gw.MODULE)) and "the nginx module is not built")


def serve(handle):
    """A service on a port of its own: handle(headers, body) gives a status, or None to drop the connection."""
    class Handle(Handler):
        def do_POST(self):
            status = handle(self.lower_headers(), self.body())
            if status is None:
                self.drop()
            else:
                self.answer(status)
    return Server(Handle)


class Service:
    """Takes orders: each is a message of its transaction, which carries the service's own span on."""

    def __init__(self, topic):
        self.topic, self.seen, self.spans = topic, [], []
        self.server = serve(self.handle)

    def handle(self, headers, body):
        version, trace, parent, flags = headers["traceparent"].split("-")
        own = os.urandom(8).hex()
        self.seen.append((headers["once-attempt"], trace, parent))
        if len(self.seen) == 1:
            return None  # nothing was committed
        self.spans.append((own, parent))
        done = psql("BEGIN; SELECT once.enqueue('%s', 'k', convert_to('%s', 'UTF8'), '{\"traceparent\": \"00-%s-%s-%s\"}') IS NOT NULL; COMMIT"
                    % (self.topic, body.decode(), trace, own, flags))
        return 201 if done == "t" else 500

    def forget(self):
        """All of it, and what it enqueued."""
        del self.seen[:], self.spans[:]
        psql("TRUNCATE once.outbox, once.outbox_stalled, once.outbox_dead, once.outbox_scheduled")


folder = tempfile.mkdtemp(prefix="once-one-trace-")
collector, nats = Collector(), Nats(os.path.join(folder, "nats"))
OTLP = ["--otlp", collector.url]


def send(port, payload, crash=None, *more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("ONCE_")}
    if crash:
        env["ONCE_CRASH"] = crash
    what = ["POST", "http://127.0.0.1:%d/orders" % port, "-d", payload, "--key", "order-" + payload] if not more else list(more)
    return subprocess.run([ONCE, "send", *what, "--state", os.path.join(folder, "send"), "--backoff", "1ms", "--quiet", *OTLP], env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)


def start_gateway(service):
    class Upstream:
        port = refusing_port = service.server.port

        def stop(self):
            pass
    gateway = gw.Gateway((gw.Location("/", "once required;", gw.SINGLE, "once_takeover rerun;", "once_trace on;"),), upstream=Upstream())
    gateway.daemon.arguments = OTLP
    return gateway.start()


def check_tree(trace, service, names):
    """Every span but the client's has its parent here, or it is the service's, whose parent is here."""
    wait_for(lambda: sorted(s.name for s in collector.of(trace)) == sorted(names),
          lambda: "all %d spans; there are %s" % (len(names), collector.of(trace)))
    spans = collector.of(trace)
    equal(sorted(s.name for s in spans), sorted(names), "the spans of the trace")
    ids = {s.id for s in spans} | {own for own, _ in service.spans}
    equal(len(ids), len(names) + len(service.spans), "each has an id of its own")
    equal([s for s in spans if s.parent not in ids and s.name != "once.send"], [], "each has its parent")
    equal([parent for _, parent in service.spans if parent not in ids], [], "the service's, too")
    equal([s.parent for s in spans if s.name == "once.send"], [None], "the client's begins it")
    return spans


def the_gateways_part(trace, service):
    spans = collector.of(trace)
    send_span, = (s for s in spans if s.name == "once.send")
    requests = [s for s in spans if s.name == "once.request"]
    equal([s.parent for s in requests], [send_span.id] * 2, "both requests are the client's children: one trace over its tries and its resumption")
    equal([s.attributes["once.attempt"] for s in requests], [1, 2], "two attempts")
    equal([s.failed for s in requests], [True, False], "the first failed")
    operation = [s for s in spans if s.name in ("once.request", "once.claim", "once.upstream", "once.finish")]
    equal(len({s.key_hash for s in operation}), 1, "one key hash on all spans of all attempts")
    equal(sorted(s.id for s in collector.of_key(operation[0].key_hash)), sorted(s.id for s in operation), "which finds them, and no others")
    upstreams = [s for s in spans if s.name == "once.upstream"]
    equal([parent for _, _, parent in service.seen], [s.id for s in upstreams], "the service is the upstream's child")
    equal(send_span.start <= requests[0].start and send_span.attributes["http.response.status_code"], 201, "the client's span is all of it")


def was_late(gateway):
    """The daemon: then a request was answered 503, and is one more than was asked for."""
    return "once: the daemon does not answer" in gateway.text("error.log")


def client_killed_and_resumed(service, payload):
    """The trace, when the gateway has told all of it. Where the daemon was late, it is another operation, by another gateway."""
    for n in range(gw.TRIES):
        gateway = start_gateway(service)
        killed = send(gateway.port, "%s-%d" % (payload, n), "client.answered:1")
        before = len(collector.of(service.seen[0][1], "once.send")) if service.seen else 0
        done = send(gateway.port, "", None, "--resume")
        gateway.stop()  # all that it had to tell was told
        if not was_late(gateway):
            break
        print("# the daemon was late: once more")
        service.forget()
    equal(killed.returncode, -9, "the client is killed after its first try")
    equal(before, 0, "it told nothing of itself")
    equal((done.returncode, done.stdout), (0, ""), "resumed")
    equal([seen[:2] for seen in service.seen], [("1", service.seen[0][1]), ("2", service.seen[0][1])], "the service got two attempts of one trace")
    return service.seen[0][1]


def through_nats():
    topic = "orders.nats"
    answer = nats.ask("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": [topic], "storage": "file"})
    assert "error" not in answer, answer
    service, arrivals = Service(topic), []

    def take(headers, body):
        arrivals.append((headers["traceparent"], headers["once-attempt"]))
        return 500 if len(arrivals) == 1 else 204
    endpoint = serve(take)
    trace = client_killed_and_resumed(service, "nats")
    code, said = drain(url("test"), "--route", "%s=%s" % (topic, nats.url), *OTLP)
    equal(code, 0, "relayed")
    (_, headers, payload), = nats.messages("ORDERS")
    code, said = once("consume", nats.url + "/ORDERS", "--store", "sqlite:%s/consume.db" % folder, "--consumer", "billing", "--to",
                      "http://127.0.0.1:%d/in" % endpoint.port, "--backoff", "1ms", "--backoff-max", "10ms", "--retention", "never", "--drain", *OTLP)
    equal(code, 0, "consumed")
    spans = check_tree(trace, service, ["once.send"] + 2 * ["once.request", "once.claim", "once.upstream", "once.finish"] + ["once.publish"] + 2 * ["once.deliver"])
    the_gateways_part(trace, service)
    publish, = (s for s in spans if s.name == "once.publish")
    delivers = [s for s in spans if s.name == "once.deliver"]
    equal((publish.parent, publish.service, publish.attributes["messaging.destination.name"]), (service.spans[0][0], "once-relay", topic), "the relay's span")
    equal(headers["traceparent"], "00-%s-%s-01" % (trace, publish.id), "is what the broker has")
    equal(publish.attributes["messaging.message.id"], headers["Nats-Msg-Id"], "the message's id")
    equal([s.parent for s in delivers], [publish.id] * 2, "deliveries are its children")
    equal(arrivals, [("00-%s-%s-01" % (trace, s.id), str(n)) for n, s in enumerate(delivers, 1)], "the endpoint is a delivery's child")
    equal([s.failed for s in delivers], [True, False], "the first failed")
    equal((len({s.key_hash for s in delivers}), [s.attributes["once.attempt"] for s in delivers]), (1, [1, 2]), "one key hash over its attempts")
    equal(delivers[0].key_hash in {s.key_hash for s in spans if s.name == "once.request"}, False, "which is the message's, not the request's")


def through_a_webhook():
    topic = "orders.hook"
    service, hook = Service(topic), Receiver(lambda payload: 500 if len(hook.got) == 0 else 200)
    trace = client_killed_and_resumed(service, "hook")
    # Draining ends when nothing is due: what was refused a moment ago may not be due yet.
    wait_for(lambda: drain(url("test"), "--route", "%s=%s" % (topic, hook.url()), *OTLP)[0] == 0 and outbox_is_empty(), "all to be relayed")
    spans = check_tree(trace, service, ["once.send"] + 2 * ["once.request", "once.claim", "once.upstream", "once.finish"] + 2 * ["once.publish"])
    published = [s for s in spans if s.name == "once.publish"]
    equal([m["headers"]["traceparent"] for m in hook.got], ["00-%s-%s-01" % (trace, s.id) for s in published], "each post has its span")
    equal([(s.failed, s.attributes["once.attempt"]) for s in published], [(True, 1), (False, 2)], "a refusal, and a confirmation")


def what_has_no_trace_passes_as_it_is():
    hook = Receiver()
    before = len(collector.all)
    psql("SELECT once.enqueue('plain', NULL, 'p1')")
    psql("SELECT once.enqueue('plain', NULL, 'p2', '{\"traceparent\": \"00-1\"}')")
    psql("SELECT once.enqueue('plain', NULL, 'p3', '{\"traceparent\": \"00-%s-%s-00\"}')" % ("a" * 32, "b" * 16))
    equal(drain(url("test"), "--route", "plain=" + hook.url(), *OTLP)[0], 0, "relayed")
    got = {m["payload"]: m["headers"].get("traceparent") for m in hook.got}
    equal(got, {b"p1": None, b"p2": "00-1", b"p3": "00-%s-%s-00" % ("a" * 32, "b" * 16)}, "messages without a sampled trace")
    equal(collector.all[before:], [], "and no spans")


def send_alone():
    """--trace without --otlp: one traceparent for all tries; under $TRACEPARENT, if that is one."""
    seen = []

    def handle(headers, body):
        seen.append(headers.get("traceparent"))
        return 503 if len(seen) % 3 else 200
    service = serve(handle)
    outer = "00-%s-%s-01" % ("c" * 32, "d" * 16)
    for env in ({}, {"TRACEPARENT": outer}, {"TRACEPARENT": "nonsense"}):
        subprocess.run([ONCE, "send", "POST", "http://127.0.0.1:%d/" % service.port, "--trace", "--backoff", "1ms", "--quiet", "--state", os.path.join(folder, "alone")],
                       env={**{k: v for k, v in os.environ.items() if k != "TRACEPARENT"}, **env}, check=True, timeout=120)
    equal([len(set(seen[i:i + 3])) for i in (0, 3, 6)], [1, 1, 1], "the same on every try")
    equal((seen[3][:36], seen[3] == outer), (outer[:36], False), "a span of its own in the trace around it")
    equal(len({t[3:35] for t in seen}), 3, "else a new trace")
    code, said = once("send", "POST", "http://127.0.0.1:%d/" % service.port, "--trace", "-H", "traceparent: " + outer)
    equal(code, 64, "not besides one of one's own")
    # The same command again, after a kill: what was left behind goes on under its own trace.
    del seen[:]
    again = [ONCE, "send", "POST", "http://127.0.0.1:%d/" % service.port, "--trace", "--key", "k1", "--backoff", "1ms", "--quiet", "--state",
             os.path.join(folder, "alone")]
    subprocess.run(again, env=dict(os.environ, ONCE_CRASH="client.answered:1"), timeout=120)
    subprocess.run(again, check=True, timeout=120)
    equal((len(seen), len(set(seen))), (3, 1), "also over a crash and the same command again")


try:
    migrated()
    nats.start()
    for case in (through_nats, through_a_webhook, what_has_no_trace_passes_as_it_is, send_alone):
        if len(sys.argv) == 1 or any(word in case.__name__ for word in sys.argv[1:]):
            print("# " + case.__name__)
            case()
    equal(collector.bad, [], "the collector found nothing wrong")
finally:
    nats.kill()
    shutil.rmtree(folder, ignore_errors=True)
finish()
