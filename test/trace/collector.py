"""A receiver of spans: OTLP over HTTP, as JSON. It refuses what the protocol's JSON mapping does not allow, and keeps the rest."""
import contextlib
import json
import os
import re
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib.http import Handler, Server

HEX = {"traceId": 32, "spanId": 16, "parentSpanId": 16}
KINDS = {"once.request": 2, "once.claim": 1, "once.wait": 1, "once.upstream": 3, "once.finish": 1, "once.complete": 3, "once.publish": 4,
         "once.deliver": 5, "once.send": 3}


class Span:
    """One span, its attributes as a dictionary."""

    def __init__(self, span, resource):
        for name, length in HEX.items():
            if name in span or name != "parentSpanId":
                assert re.fullmatch("[0-9a-f]{%d}" % length, span[name]), (name, span)
                assert set(span[name]) != {"0"}, (name, span)
        for name in ("startTimeUnixNano", "endTimeUnixNano"):
            assert isinstance(span[name], str) and span[name].isdigit(), (name, span)
        assert isinstance(span["kind"], int) and span["kind"] == KINDS[span["name"]], span
        assert set(span["status"]) <= {"code"} and span["status"].get("code", 2) == 2, span
        assert int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"]), span
        self.name, self.trace, self.id = span["name"], span["traceId"], span["spanId"]
        self.parent = span.get("parentSpanId")
        self.start, self.end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
        self.failed = "code" in span["status"]
        self.attributes = attributes(span["attributes"])
        self.service = resource["service.name"]
        self.resource = resource

    @property
    def key_hash(self):
        return self.attributes.get("once.key_hash")

    def __repr__(self):
        return "<%s %s %s in %s under %s %s>" % (self.service, self.name, self.id, self.trace, self.parent, self.attributes)


def attributes(entries):
    found = {}
    for entry in entries:
        (kind, value), = entry["value"].items()
        assert kind in ("stringValue", "intValue") and isinstance(value, str), entry
        assert entry["key"] not in found, entries
        found[entry["key"]] = int(value) if kind == "intValue" else value
    return found


class Collector:
    """Listens on a port of its own. `answer` may be another status, for a while: answering()."""

    def __init__(self):
        self.lock, self.all, self.bad, self.requests, self.answer = threading.Lock(), [], [], [], 200
        outer = self

        class Receive(Handler):
            def do_POST(self):
                body = self.body()
                self.answer(outer.take(self.path, self.lower_headers(), body), b"{}", [("Content-Type", "application/json")])

        self.server = Server(Receive)
        self.url = self.server.url

    def take(self, path, headers, body):
        with self.lock:
            self.requests.append((path, headers))
            if self.answer != 200:
                return self.answer
            try:
                assert headers["content-type"] == "application/json", headers
                document = json.loads(body)
                assert set(document) == {"resourceSpans"}, document
                for part in document["resourceSpans"]:
                    resource = attributes(part["resource"]["attributes"])
                    for scope in part["scopeSpans"]:
                        assert scope["scope"]["name"] == "once"
                        self.all += [Span(span, resource) for span in scope["spans"]]
            except (AssertionError, KeyError, TypeError, ValueError) as error:
                self.bad.append(repr(error))
                return 400
        return 200

    @contextlib.contextmanager
    def answering(self, status):
        self.answer = status
        try:
            yield
        finally:
            self.answer = 200

    def of(self, trace, name=None):
        """The spans of a trace, by their beginning."""
        with self.lock:
            found = [s for s in self.all if s.trace == trace and (name is None or s.name == name)]
        return sorted(found, key=lambda s: s.start)

    def of_key(self, key_hash):
        with self.lock:
            return sorted((s for s in self.all if s.key_hash == key_hash), key=lambda s: s.start)

    def close(self):
        self.server.stop()
