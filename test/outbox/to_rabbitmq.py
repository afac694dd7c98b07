#!/usr/bin/env python3
"""`once relay` to a real RabbitMQ: what a message has, what is refused and why, kills of relay and broker."""
from sinktest import *
from rabbitmq import RabbitMQ

skip_if(RabbitMQ.missing())
skip_if("built without librabbitmq" in once("relay", "--store", "sqlite:x", "--route", "a=amqp://127.0.0.1")[1] and "built without librabbitmq")
folder = tempfile.TemporaryDirectory(prefix="once-rabbitmq-")
with RabbitMQ(folder.name, max_message_size="100000") as rabbit:
    migrated()
    rabbit.declare("q", "shop", "orders.*")
    shop = rabbit.url + "?exchange=shop"
    for queue in ("all", "kills"):
        rabbit.declare(queue)

    message = psql("SELECT once.enqueue('orders.created', 'k1', '{}', '{\"traceparent\": \"00-1\", \"CC\": \"all\", \"Once-Topic\": \"forged\"}', "
                   "'application/json')")
    equal(drain(url("test"), "--route", "*=" + shop)[0], 0, "drained")
    (method, p, body), = rabbit.take_all("q")
    equal((method.exchange, method.routing_key, body), ("shop", "orders.created", b"{}"), "the topic is the routing key")
    equal((p.message_id, p.content_type, p.delivery_mode, p.headers),
          (message, "application/json", 2, {"Once-Topic": "orders.created", "Once-Message-Key": "k1", "traceparent": "00-1"}),
          "id, content type, persistent; its own headers, none that commands the broker")
    equal(rabbit.take_all("all"), [], "nor did it obey one")
    equal(verdict(rabbit.url + "?routing-key=all", topic="whatever"), "published", "the exchange without a name, and one queue for all")
    equal([body for _, _, body in rabbit.take_all("all")], [b"x"], "are where it went")

    port = free_port()
    another = rabbit.tls_url.replace("localhost", "127.0.0.1")
    found = verdicts({"orders.x": rabbit.tls_url + "?exchange=shop", "elsewhere": shop, "key": shop + "&routing-key=x", "vhost": rabbit.url + "/a%2Fb",
                      "exchange": rabbit.url + "?exchange=nowhere", "nobody": "amqp://127.0.0.1:%d" % port, "name": another},
                     "--ca-file", rabbit.ca, "--amqp-login", file_with(folder.name, "guest:guest\n"))
    equal(found["orders.x"], "published", "over TLS")
    equal(found["elsewhere"], ("1", "f", "the broker returned it: 312 NO_ROUTE"), "what no queue takes is refused")
    equal(found["key"], ("1", "f", "the broker returned it: 312 NO_ROUTE"), "also by a key of the route's")
    equal(found["vhost"], ("0", "t", "530 NOT_ALLOWED - vhost a/b not found"), "an unknown vhost: not reached")
    equal(found["exchange"], ("0", "t", "404 NOT_FOUND - no exchange 'nowhere' in vhost '/'"), "an unknown exchange")
    equal(found["nobody"], ("0", "t", "cannot connect to 127.0.0.1:%d: a socket error occurred" % port), "nobody there")
    equal(found["name"], ("0", "t", "cannot connect to %s: SSL hostname verification failed" % another[8:]),
          "a certificate for another name is not trusted")
    equal(verdict(rabbit.tls_url), ("0", "t", "cannot connect to %s: SSL peer cert verification failed" % rabbit.tls_url[8:]),
          "nor is another authority")
    equal(verdict(shop, "--amqp-login", file_with(folder.name, "guest:wrong\n")),
          ("0", "t", "403 ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile."), "a wrong password")
    code, said = verdict(rabbit.tls_url, "--ca-file", folder.name + "/none")
    ok(code == 64 and "No such file" in said, "certificates that are not there: " + said.strip())
    code, said = verdict(shop, "--amqp-login", file_with(folder.name, "guest"))
    ok(code == 64 and "its first line is not USER:PASSWORD" in said, "a login that is none: " + said.strip())
    rabbit.take_all("q")

    arrived = lambda queue: lambda: [{"id": p.message_id, "payload": body} for _, p, body in rabbit.take_all(queue)]
    poison(shop, arrived("q"), 200000, "406 PRECONDITION_FAILED - message size 200000 is larger than configured max size 100000")

    rabbit.pause()  # it is there, but says nothing
    silent = "cannot log in: request timed out"
    equal(unreached({"orders.created": (shop, silent)}), {"orders.created": ("0", "t", silent)}, "a broker that is silent is not reached")
    rabbit.pause(False)
    kills(rabbit.url + "?routing-key=kills", arrived("kills"), rabbit)
finish()
