#!/usr/bin/env python3
"""What clients tell the daemon over its socket and nobody answers: whose trace a call is part of, and spans. And the log's other form."""
import os
import re
import shutil
import struct
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]
from collector import Collector
from lib import daemon, wireclient as w
from lib.tap import equal, finish, ok
from lib.wait import wait_for

CONTEXT, SPANS = 18, 19
TRACE, SPAN = bytes(range(1, 17)), bytes(range(1, 9))


def context(call, trace=TRACE, route="/r", sampled=1):
    return w.frame(CONTEXT, struct.pack("!I", call) + trace + SPAN + bytes([sampled]) + w.text(route), 0)


def span(name=2, number=1):
    return bytes([name]) + struct.pack("!Q", number) + bytes(8) + struct.pack("!QQBiB", 10, 20, 1, 200, 0)


def spans(*parts, trace=TRACE, lost=0, tenant="t"):
    return w.frame(SPANS, struct.pack("!I", lost) + trace + bytes(16) + struct.pack("!QI", 1, 1) + w.text(tenant) + w.text("/r") + bytes([len(parts)]) +
                   b"".join(parts), 0)


class Daemon(daemon.Daemon):
    def __init__(self, *options):
        super().__init__(tempfile.mkdtemp(prefix="once-told-"))
        self.start("--http", "127.0.0.1:0", "--quiet", *options)

    def said(self):
        return self.log().splitlines()

    def end(self):
        code = super().end()
        shutil.rmtree(self.folder)
        return code


def context_counts_for_the_next_call_of_its_number():
    d = Daemon("--log-decisions", "logfmt")
    c = d.client()
    c.send(context(7) + w.claim("a", 7, tenant="x y") + w.claim("b", 8) + context(9) + w.claim("c", 10) + w.claim("d", 9))
    equal(sorted(c.get().number for _ in range(4)), [7, 8, 9, 10], "calls are answered, contexts are not")
    wait_for(lambda: len(d.said()) == 4, "four lines")
    traced = [line for line in d.said() if "trace_id=" in line]
    equal(len(traced), 1, "only the call that was named has it")
    ok(re.fullmatch(r'time=\S+Z op=claim tenant="x y" key_hash=[0-9a-f]{32} fence=\d+ attempt=1 arm=execute route=/r duration_ms=\d+\.\d{3} by=socket '
                    r'trace_id=%s' % TRACE.hex(), traced[0] if traced else ""), "the line", traced)
    equal(d.metrics().get("once_otlp_spans_total"), None, "nothing is exported here")
    equal((c.ask(spans(span()) + w.lookup("a", 11)).number, d.end()), (11, 0), "spans are taken all the same")


def what_cannot_be_read_is_refused_by_itself():
    collector = Collector()
    d = Daemon("--otlp", collector.url)
    c = d.client()
    for name, data in (("cut off", w.frame(CONTEXT, bytes(10), 0)), ("a route of 256 bytes", context(1, route="r" * 256)), ("sampled or not", context(1, sampled=2)),
                       ("five spans", spans(*[span()] * 5)), ("a name that does not exist", spans(span(name=10))), ("none", spans(span(name=0))),
                       ("a tenant of 256 bytes", spans(span(), tenant="t" * 256)), ("bytes too many", w.frame(SPANS, spans(span())[9:] + b"x", 0))):
        answer = c.ask(data)
        equal((answer.kind, answer.number, answer.result), (w.FAILED, 0, w.INVALID), name)
    equal(c.ask(w.claim("a", 5)).arm, w.EXECUTE, "the connection goes on")
    c.send(spans(span(number=2), span(3, 3), trace=bytes([7]) * 16, tenant=b"\xff\n"))
    wait_for(lambda: len(collector.of("07" * 16)) == 2, "two spans")
    found = collector.of("07" * 16)
    equal((sorted(s.name for s in found), {s.attributes["once.tenant"] for s in found}), (["once.claim", "once.wait"], {"\\xff\\x0a"}), "as they were told, escaped")
    equal((d.end(), collector.bad), (0, []), "it ends well")


def a_flood_is_dropped_and_counted():
    collector = Collector()
    collector.answer = 503
    d = Daemon("--otlp", collector.url)
    c = d.client()
    c.send(b"".join(spans(*[span(number=4 * n + i + 1) for i in range(4)], lost=1) for n in range(4000)))
    equal(c.ask(w.claim("a", 5)).arm, w.EXECUTE, "a call behind it is answered")
    ok(d.metrics().get("once_otlp_spans_dropped_total") >= 4000 + 16000 - 8192 - 1024, "what had no room is counted, here and before", d.metrics().get("once_otlp_spans_dropped_total"))
    equal(d.end(), 0, "it ends, though nobody takes the rest")
    collector.close()


for case in (context_counts_for_the_next_call_of_its_number, what_cannot_be_read_is_refused_by_itself, a_flood_is_dropped_and_counted):
    print("# " + case.__name__)
    case()
finish()
