#!/usr/bin/env python3
"""`once relay` to a real Kafka: what a record has, what is refused and why, kills of relay and broker."""
from sinktest import *
from kafka import Kafka

skip_if(Kafka.missing())
skip_if("built without librdkafka" in once("relay", "--store", "sqlite:x", "--route", "a=kafka://127.0.0.1")[1] and "built without librdkafka")
folder = tempfile.TemporaryDirectory(prefix="once-kafka-")
with Kafka(folder.name) as kafka:
    migrated()
    for topic in ("orders.created", "all", "kills"):
        kafka.create_topic(topic)
    kafka.create_topic("small", partitions=1, max_message_bytes=3000)

    message = psql("SELECT once.enqueue('orders.created', 'k1', '{}', '{\"traceparent\": \"00-1\", \"Once-Message-Id\": \"forged\"}', "
                   "'application/json')")
    equal(drain(url("test"), "--route", "*=" + kafka.url, *PATIENT)[0], 0, "drained")
    psql("SELECT once.enqueue('no=topic!', NULL, '')")
    equal(drain(url("test"), "--route", "*=" + kafka.url + "/all", *PATIENT)[0], 0, "drained")
    (_, key, headers, value), = kafka.messages("orders.created")
    equal((key, value), (b"k1", b"{}"), "the message's topic and key are Kafka's")
    equal(headers, [("Once-Message-Id", message.encode()), ("Once-Topic", b"orders.created"), ("Content-Type", b"application/json"),
                    ("traceparent", b"00-1")], "id, topic, content type, its own headers, and no other id")
    (_, key, headers, value), = kafka.messages("all")
    equal((key, value, dict(headers)["Once-Topic"]), (None, b"", b"no=topic!"), "one topic for all; no key, and a payload that is empty, not none")

    found = verdicts({"plain": kafka.url + "/all", "tls": kafka.tls_url + "/all", "nowhere": kafka.url, "a/b": kafka.url}, "--ca-file", kafka.ca)
    equal((found["plain"], found["tls"]), ("published", "published"), "plain, and over TLS")
    equal(found["nowhere"], ("1", "f", "there is no such topic at the broker"), "a topic that is not there is refused")
    equal(found["a/b"], ("1", "f", "its topic is not valid in Kafka: up to 249 of a-z A-Z 0-9 . _ -"), "so is one that cannot be")
    found = unreached({"nobody": ("kafka://127.0.0.1:%d" % free_port(), "Connection refused"),
                       "name": (kafka.tls_url.replace("localhost", "127.0.0.1") + "/all", "certificate verify failed")}, "--ca-file", kafka.ca)
    equal(found["nobody"][:2], ("0", "t"), "nobody there: not reached: %s" % (found["nobody"],))
    equal(found["name"][:2], ("0", "t"), "a certificate for another name is not trusted: %s" % (found["name"],))
    login = "sasl.mechanism=PLAIN\nsasl.username = ann\nsasl.password=%s\n"
    equal(verdict(kafka.sasl_url, "--kafka-config", file_with(folder.name, login % "secret")), "published", "with a password")
    why = unreached({"orders.created": (kafka.sasl_url, "Authentication failed: Invalid username or password")},
                    "--kafka-config", file_with(folder.name, login % "wrong"))["orders.created"]
    equal(why[:2], ("0", "t"), "a wrong one: " + str(why))
    for text, expected in (("acks=1\n", "line 1: 'acks' cannot be set here"), ("# x\nlinger.ms\n", "line 2: it is not NAME=VALUE"),
                           ("enable.ssl.certificate.verification=false\n", "cannot be set here")):
        code, said = verdict(kafka.url, "--kafka-config", file_with(folder.name, text))
        ok(code == 64 and expected in said, "a setting that is not the operator's: " + said.strip())
    code, said = verdict(kafka.url, "--timeout", "1s", "--lease", "2s")
    ok(code == 64 and "--timeout must be at least 3 s for Kafka" in said, "too short a time: " + said.strip())

    arrived = lambda topic: lambda: [{"id": dict(h)["Once-Message-Id"].decode(), "payload": v} for _, _, h, v in kafka.messages(topic)]
    poison(kafka.url + "/small", arrived("small"), 10000, "Message size too large")
    kills(kafka.url + "/kills", arrived("kills"), kafka)
finish()
