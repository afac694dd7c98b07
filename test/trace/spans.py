#!/usr/bin/env python3
"""What the gateway tells of its work: spans, a line per decision, variables for the access log. A case knows all that its requests leave
behind, and a request that the daemon was too late for leaves more: then the case is done again, with other tokens and traces."""
import json
import os
import re
import signal
import sys
import urllib.request

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../gateway")]
from collector import Collector
from gateway import (BOUND_S, COUNTED, Client, Closed, Gateway, Late, Location, SINGLE, Suite, expect, expect_equal, free_port, in_parallel,
                     kill, new_token, request_bytes, wait_for)

import upstream

suite = Suite()
suite.require()
TENANT = "once_tenant $http_x_tenant;"
LEASE = "once_lease 600s;"  # under rerun it ends with its worker; by itself it might before the service has been asked
LOG = ("log_format once '$once_status|$once_key_hash|$once_fence|$once_age|$once_trace_id|$once_arm|$once_attempt|$status|$http_x_test|$once_record';")
LOCATIONS = (Location("/on/", "once on;", SINGLE, "once_trace on;"),
             Location("/off/", "once on;", SINGLE, "once_trace off;"),
             Location("/none/", "once on;", SINGLE, "once_trace 0;"),
             Location("/required/", "once required;", SINGLE, "once_trace on;"),
             Location("/tenant/", "once on;", TENANT, "once_trace 1;"),
             Location("/wait/", "once on;", SINGLE, "once_trace on;", "once_wait 120s;"),
             Location("/rerun/", "once on;", SINGLE, "once_trace on;", "once_takeover rerun;", LEASE),
             Location("/refused/", "once on;", SINGLE, "once_trace on;", to="refusing"),
             Location("/observe/", "once observe;", SINGLE, "once_trace on;"),
             Location("/natural/", "once on;", SINGLE, "once_key_natural $once_json_id;", more=("client_max_body_size 1k;",)),
             Location("/complete/", "once on;", SINGLE, "once_trace on;", "once_takeover rerun;", LEASE, "once_complete app header=X-Test;"))
collector = Collector()
gateway = Gateway(LOCATIONS, http=LOG, tolerate=r"exited on signal 9|worker process \d+ exited")
gateway.server = "access_log %s once;" % gateway.path("access.log")
LOG_FILE = gateway.path("decisions.log")
METRICS = free_port()
HEADERS = gateway.path("otlp-headers")
with open(os.open(HEADERS, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
    file.write("X-Secret: s3cret\n# a remark\n")
gateway.daemon.arguments = ["--otlp", collector.url, "--otlp-header", "@" + HEADERS, "--otlp-header", "X-Plain: p", "--log-decisions", "json",
                            "--log-file", LOG_FILE, "--http", "127.0.0.1:%d" % METRICS, "--complete", "app=http://127.0.0.1:%d" % gateway.upstream.port,
                            "--complete-lease", "60s"]  # nothing waits for its end, and each renewal would be a line
gateway.patient = COUNTED
gateway.start()


@upstream.behaviour
def held_once(c):
    """Held the first time, well from then on."""
    n = c.work()
    if n == 1:
        c.hold()
    c.answer(201, ["Content-Type: application/json"], b'{"effect":%d}' % n)


def new_trace():
    return os.urandom(16).hex(), os.urandom(8).hex()


def parent_of(trace, span, flags="01"):
    return ("traceparent", "00-%s-%s-%s" % (trace, span, flags))


def spans_of(trace, count):
    """As soon as there are so many; and no more of them."""
    found = wait_for(lambda: len(collector.of(trace)) >= count and collector.of(trace), "%d spans of %s" % (count, trace))
    expect_equal(len(found), count, "spans of one request: %s" % found)
    return {s.name: s for s in found}


def lines(path=LOG_FILE):
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file.read().split("\n")[:-1]]  # whole lines
    except FileNotFoundError:
        return []


def decisions(**wanted):
    return [line for line in lines() if all(line.get(k) == v for k, v in wanted.items())]


def access(token, count=1):
    """The lines of a request and its retries: they are written when a request is over, which is after its answer."""
    def find():
        found = [line.split("|") for line in gateway.text("access.log").split("\n")[:-1] if line.count("|") == 9 and line.split("|")[8] == token]
        return len(found) >= count and found
    return wait_for(find, "%d lines in the access log" % count)


def metric(name):
    text = urllib.request.urlopen("http://127.0.0.1:%d/metrics" % METRICS, timeout=BOUND_S).read().decode()
    return int(re.search(r"^%s (\d+)$" % name, text, re.M).group(1))


def headers_of(answer):
    return {k.lower(): v for k, v in json.loads(answer.body)["headers"]}


def ask(path, token, trace=None, key=None, headers=(), **more):
    return gateway.ask(path, key=key or token, token=token, headers=[*([trace] if trace else []), *headers], **more)


@suite.case
def the_four_spans_of_a_request():
    token, (trace, span) = new_token(), new_trace()
    answer = ask("/on/echo", token, parent_of(trace, span), headers=[("tracestate", "a=1")])
    expect_equal(answer.status, 200, "answered")
    s = spans_of(trace, 4)
    request = s["once.request"]
    expect_equal(request.parent, span, "the request is the client's child")
    for name in ("once.claim", "once.upstream", "once.finish"):
        expect_equal(s[name].parent, request.id, "%s is the request's child" % name)
    seen = headers_of(answer)
    expect_equal(seen["traceparent"], "00-%s-%s-01" % (trace, s["once.upstream"].id), "the service is the upstream span's child")
    expect_equal(seen["tracestate"], "a=1", "tracestate travels")
    expect_equal(len([k for k, v in json.loads(answer.body)["headers"] if k.lower() == "traceparent"]), 1, "one traceparent")
    expect(s["once.claim"].end <= s["once.upstream"].start <= s["once.upstream"].end <= s["once.finish"].start, "one after the other: %s" % s)
    expect(request.start <= s["once.claim"].start and s["once.finish"].end <= request.end, "all within the request")
    expect_equal(len({x.key_hash for x in s.values()}), 1, "one key hash")
    expect_equal(s["once.claim"].attributes["once.arm"], "execute", "the claim's arm")
    expect_equal(s["once.finish"].attributes["once.arm"], "done", "the finish's arm")
    expect_equal(s["once.upstream"].attributes["http.response.status_code"], 200, "the service's status")
    expect_equal(request.attributes["http.response.status_code"], 200, "the gateway's status")
    expect_equal(request.attributes["http.route"], "/on/", "the route")
    expect_equal((request.attributes["once.attempt"], request.failed), (1, False), "attempt, failed")
    expect_equal((request.service, request.resource["process.pid"]), ("once", gateway.daemon.process.pid), "the resource")
    path, headers = collector.requests[0]
    expect_equal((path, headers["x-secret"], headers["x-plain"]), ("/v1/traces", "s3cret", "p"), "where and with what it is sent")
    line, = access(token)
    expect_equal(line[:1] + line[1:2] + line[4:5] + line[5:8], ["executed", request.key_hash, trace, "execute", "1", "200"], "the access log")
    expect_equal(line[9], line[1], "the key's hash is the record's name")
    expect_equal(int(line[2]), request.attributes["once.fence"], "the fence")
    expect(0 <= float(line[3]) < 60, "the age: %s" % line)


@suite.case
def a_retry_is_another_trace_of_the_same_key():
    token, (first, span), (second, _) = new_token(), new_trace(), new_trace()
    ask("/on/normal", token, parent_of(first, span))
    answer = ask("/on/normal", token, parent_of(second, span))
    expect(answer.replayed, "it is a replay")
    s = spans_of(second, 2)
    expect_equal(s["once.claim"].attributes["once.arm"], "replay", "the claim says so")
    expect_equal({x.key_hash for x in s.values()}, {x.key_hash for x in spans_of(first, 4).values()}, "the key's hash")
    expect_equal({x.trace for x in collector.of_key(s["once.claim"].key_hash)}, {first, second}, "both are found by it")
    line = access(token, 2)
    expect_equal([row[0] for row in line], ["executed", "replayed"], "the access log")


@suite.case
def what_is_no_traceparent_is_not_passed_on():
    trace, span = new_trace()
    for bad in ("00-%s-%s-01-x" % (trace, span), "00-%s-%s-01" % (trace.upper(), span), "ff-%s-%s-01" % (trace, span), "00-%s-%s-01" % ("0" * 32, span),
                "x", "", "00-%s-%s-01" % (trace, "g" * 16), "00-%s-%s-01, 00-%s-%s-01" % (trace, span, trace, span)):
        token = new_token()
        answer = ask("/on/echo", token, ("traceparent", bad), headers=[("tracestate", "a=1")])
        seen = headers_of(answer)
        own = re.fullmatch("00-([0-9a-f]{32})-([0-9a-f]{16})-01", seen["traceparent"])
        expect(own and own.group(1) != trace, "%r: a new one: %s" % (bad, seen))
        expect("tracestate" not in seen, "%r: its state is dropped, too" % bad)
        s = spans_of(own.group(1), 4)
        expect_equal((s["once.request"].parent, s["once.upstream"].id), (None, own.group(2)), "it begins here")
    token = new_token()
    answer = ask("/on/echo", token, parent_of(trace, span), headers=[parent_of(trace, span)])
    expect_equal([k.lower() for k, v in json.loads(answer.body)["headers"]].count("traceparent"), 1, "of two, none is taken, and one is sent")
    expect(trace not in headers_of(answer)["traceparent"], "a new trace")


@suite.case
def off_means_untouched():
    token, (trace, span) = new_token(), new_trace()
    for sent in ("00-%s-%s-01" % (trace, span), "no traceparent at all"):
        token = new_token()
        seen = headers_of(ask("/off/echo", token, ("traceparent", sent), headers=[("tracestate", "a=1")]))
        expect_equal((seen["traceparent"], seen["tracestate"]), (sent, "a=1"), "as the client sent it")
        line, = access(token)
        expect_equal((line[0], line[4]), ("executed", "-"), "no trace in the access log")
        wait_for(lambda: len(decisions(key_hash=line[1])) == 2, "its decisions")
        expect(all("trace_id" not in d for d in decisions(key_hash=line[1])), "the daemon is not told of a trace")
    expect("traceparent" not in headers_of(ask("/off/echo", new_token())), "none is made")


@suite.case
def what_is_not_sampled_is_passed_on_and_not_told():
    token, (trace, span) = new_token(), new_trace()
    sent = parent_of(trace, span, "00")
    expect_equal(headers_of(ask("/on/echo", token, sent))["traceparent"], sent[1], "as it came")
    expect_equal({d["op"] for d in wait_for(lambda: len(decisions(trace_id=trace)) == 2 and decisions(trace_id=trace), "both lines")},
                 {"claim", "finish"}, "the log has the trace all the same")
    own = headers_of(ask("/none/echo", new_token()))["traceparent"]
    expect(re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-00", own), "a share of 0: those after us are told so: %s" % own)
    token, (after, span) = new_token(), new_trace()
    ask("/on/normal", token, parent_of(after, span))
    spans_of(after, 4)
    expect_equal(collector.of(trace) + collector.of(own[3:35]), [], "nothing was told of the others")
    token, (asked, span) = new_token(), new_trace()
    ask("/none/normal", token, parent_of(asked, span))
    spans_of(asked, 4)


@suite.case
def a_wait_is_a_span_of_the_claim():
    token = new_token()
    (first, span), (second, other) = new_trace(), new_trace()
    answers = []

    def one():
        answers.append(ask("/wait/held", token, parent_of(first, span)))

    def two():
        wait_for(lambda: gateway.effects(token) or late, "the first to be at it")
        answers.append(ask("/wait/held", token, parent_of(second, other)))

    def gate():
        wait_for(lambda: gateway.effects(token) and metric("once_waiting_claims") == 1 or late, "the second to wait")
        gateway.upstream.open_gate(token)

    def try_it(part):
        try:
            part()
        except Late:  # so that nobody waits for it
            late.append(part)
    late = []
    in_parallel(try_it, [one, two, gate], 3)
    if late:
        raise Late()
    expect_equal(sorted(a.replayed for a in answers), [False, True], "one is executed, one replayed")
    s = spans_of(second, 3)
    expect_equal(s["once.wait"].parent, s["once.claim"].id, "the wait is the claim's child")
    expect_equal(s["once.wait"].key_hash, s["once.claim"].key_hash, "and has the key's hash")
    expect_equal(s["once.wait"].attributes["once.arm"], "replay", "it ended with a replay")
    expect_equal(set(spans_of(first, 4)), {"once.request", "once.claim", "once.upstream", "once.finish"}, "the first did not wait")


@suite.case
def attempts_of_an_operation_have_one_hash():
    token, (first, span), (second, _) = new_token(), new_trace(), new_trace()
    expect_equal(ask("/rerun/resets_once", token, parent_of(first, span)).status, 502, "its answer broke off")
    failed = spans_of(first, 4)
    expect(failed["once.upstream"].failed and failed["once.request"].failed and not failed["once.claim"].failed, "what failed: %s" % failed)
    expect_equal(ask("/rerun/resets_once", token, parent_of(second, span)).status, 200, "tried again")
    again = spans_of(second, 4)
    expect_equal({s.key_hash for s in again.values()}, {s.key_hash for s in failed.values()}, "the key's hash")
    expect_equal([s["once.request"].attributes["once.attempt"] for s in (failed, again)], [1, 2], "attempts")
    expect_equal([row[0] for row in access(token, 2)], ["failed", "executed"], "the access log")


def kill_workers_at_work(path, token, parent):
    """While the service is at a request, whose client hears nothing."""
    late = []

    def one(_):
        try:
            ask(path, token, parent)
        except Late:
            late.append(token)
        except (Closed, OSError):
            pass

    def two(_):
        wait_for(lambda: gateway.effects(token) or late, "the service to be at it")
        for pid in gateway.worker_pids():
            kill(pid)
    in_parallel(lambda f: f(0), [one, two], 2)
    gateway.upstream.open_gate(token)
    if late:
        raise Late()


@suite.case
def after_a_kill_the_hash_is_the_same():
    """A worker is killed while the service works: its spans die with it, its claim's line does not."""
    token, (first, span), (second, _) = new_token(), new_trace(), new_trace()

    kill_workers_at_work("/rerun/held", token, parent_of(first, span))
    answer = gateway.ask_until(lambda a: a.status == 201, "/rerun/held", key=token, token=token, headers=[parent_of(second, span)], patient=False)
    expect_equal(answer.status, 201, "tried again")
    found = wait_for(lambda: [s for s in collector.of(second) if s.name == "once.upstream"], "the spans of the second")
    claim, = wait_for(lambda: decisions(trace_id=first, op="claim"), "the line of the first")
    expect_equal((claim["key_hash"], claim["attempt"], claim["arm"]), (found[0].key_hash, 1, "execute"), "the first attempt's line")
    expect_equal(found[0].attributes["once.attempt"], 2, "the second attempt's span")


@suite.case
def the_completer_goes_on_with_the_trace():
    token, (trace, span) = new_token(), new_trace()

    kill_workers_at_work("/complete/held_once", token, parent_of(trace, span))
    done = wait_for(lambda: collector.of(trace, "once.complete"), "the completer's span")[0]
    claim, = wait_for(lambda: decisions(trace_id=trace, op="claim"), "the line of the claim")
    expect_equal(done.key_hash, claim["key_hash"], "the key's hash")
    expect_equal((done.attributes["once.attempt"], done.attributes["http.response.status_code"], done.failed), (2, 201, False), "its attempt")
    sent = [dict((k.lower(), v) for k, v in e["headers"]) for e in gateway.upstream.ledger.of(token)][-1]
    expect_equal(sent["traceparent"], "00-%s-%s-01" % (trace, done.id), "the service is its child")
    wait_for(lambda: {d["op"] for d in decisions(trace_id=trace, by="completer")} == {"take over", "finish"}, "its lines")


@suite.case
def every_answer_has_its_word():
    token = new_token()
    ask("/on/normal", token)
    ask("/on/normal", token, body=b"other")
    expect_equal([row[0] for row in access(token, 2)], ["executed", "mismatch"], "mismatch")
    rows = access(token)
    expect_equal(rows[0][1], rows[1][1], "a mismatch has its key's hash")
    expect_equal((rows[1][2], rows[1][3]), ("-", "-"), "and nothing else of the record")
    words = {}
    for name, path, headers, key in (("bypassed", "/on/normal", [], None), ("refused", "/required/normal", [], None), ("refused", "/on/normal", [], b'"'),
                                     ("refused", "/tenant/normal", [], "k"), ("not-sent", "/refused/normal", [], "k"), ("observed", "/observe/normal", [], "k")):
        token = new_token()
        gateway.ask(path, key=(key if isinstance(key, bytes) else key and key + token), token=token, headers=headers)
        row, = access(token)
        words.setdefault(name, []).append(row[0])
    expect_equal(words, {"bypassed": ["bypassed"], "refused": ["refused"] * 3, "not-sent": ["not-sent"], "observed": ["observed"]}, "words")
    token = new_token()
    expect_equal(ask("/on/reset_after_reading", token).status, 502, "broke off")
    ask("/on/reset_after_reading", token)
    expect_equal([row[0] for row in access(token, 2)], ["unknown", "unknown"], "unknown")


@suite.case
def what_did_not_come_in_whole_is_not_the_stores_fault():
    """Its client left before it was claimed, or its body is none: `unavailable` is for whoever watches the daemon."""
    def begin(token, *more, path="/on/normal"):
        client = Client(gateway.port)
        client.send(request_bytes("POST", path, [("Host", "g"), ("Idempotency-Key", '"%s"' % token), ("X-Test", token), *more], b""))
        return client
    left, bad = new_token(), new_token()
    with begin(left, ("Content-Length", "10")) as client:
        client.send(b"{")
        client.reset()
    with begin(bad, ("Transfer-Encoding", "chunked")) as client:
        client.send(b"no chunk\r\n")
        expect_equal(client.read().status, 400, "the answer to bad chunks")
    expect_equal([access(token)[0][:1] + access(token)[0][7:8] for token in (left, bad)], [["incomplete", "400"], ["incomplete", "400"]], "the words")
    expect(gateway.record(left) is None and gateway.record(bad) is None, "there are records")
    for body, words in ((b'{"id":"%s"}' % (b"x" * 2000), ["incomplete", "413"]), (b'{"other":1}', ["bypassed", "201"])):
        token = new_token()  # whose key is in its body
        with Client(gateway.port) as client:
            client.send(request_bytes("POST", "/natural/normal", [("Host", "g"), ("X-Test", token), ("Transfer-Encoding", "chunked")],
                                      b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"))
            client.read()
        expect_equal(access(token)[0][:1] + access(token)[0][7:8], words, "the word of %s" % body[:20])


@suite.case
def a_line_for_every_decision():
    token, (trace, span) = new_token(), new_trace()
    key = "key-that-must-not-be-seen-" + token
    hostile = 'evil","arm":"execute\\'
    ask("/tenant/normal", token, parent_of(trace, span), key=key, headers=[("X-Tenant", hostile)])
    found = wait_for(lambda: len(decisions(trace_id=trace)) == 2 and decisions(trace_id=trace), "two lines")
    claim, finish = found
    row, = access(token)
    expect_equal((claim["op"], claim["arm"], claim["route"], claim["attempt"], claim["by"]), ("claim", "execute", "/tenant/", 1, "socket"), "the claim")
    expect_equal(claim["tenant"], 'evil\\x22,\\x22arm\\x22:\\x22execute\\x5c', "a tenant is escaped")
    expect_equal((claim["key_hash"], str(claim["fence"])), (row[1], row[2]), "the hash and the fence are those of the access log")
    expect_equal((finish["op"], finish["arm"], finish["state"], finish["fence"]), ("finish", "done", "succeeded", claim["fence"]), "the finish")
    expect(isinstance(claim["duration_ms"], float) and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", claim["time"]), "times: %s" % claim)
    with open(LOG_FILE, encoding="utf-8") as file:
        expect(key not in file.read(), "the key is not in the log")
    ask("/tenant/normal", token, parent_of(trace, span), key=key, headers=[("X-Tenant", hostile)], body=b"another")
    mismatch = wait_for(lambda: decisions(trace_id=trace, arm="mismatch"), "the mismatch")[0]
    expect_equal((mismatch["key_hash"], mismatch["tenant"]), (claim["key_hash"], claim["tenant"]), "its key and tenant")
    expect("fence" not in mismatch and "attempt" not in mismatch, "and no more")
    expect(metric("once_decision_lines_total") >= 3 and metric("once_decision_lines_dropped_total") == 0, "metrics")


@suite.case
def the_json_api_is_logged_too():
    trace, span = new_trace()
    body = json.dumps({"key": "over-http", "tenant": "t", "takeover": "rerun"}).encode()
    request = urllib.request.Request("http://127.0.0.1:%d/v1/claim" % METRICS, body, {"Content-Type": "application/json", **dict([parent_of(trace, span)])})
    grant = json.loads(urllib.request.urlopen(request, timeout=BOUND_S).read())
    line = wait_for(lambda: decisions(trace_id=trace), "its line")[0]
    expect_equal((line["by"], line["op"], line["key_hash"], line["fence"], line["tenant"]), ("http", "claim", grant["record"], grant["fence"], "t"), "the line")


@suite.case
def the_log_is_opened_anew():
    moved = LOG_FILE + ".1"
    os.rename(LOG_FILE, moved)
    token, (trace, span) = new_token(), new_trace()
    gateway.daemon.process.send_signal(signal.SIGUSR1)
    wait_for(lambda: os.path.exists(LOG_FILE), "the new file")
    ask("/on/normal", token, parent_of(trace, span), patient=True)
    wait_for(lambda: len(decisions(trace_id=trace)) >= 2, "lines in the new file")
    expect(lines(moved) and not [d for d in lines(moved) if d.get("trace_id") == trace], "the old one is left alone")
    with open(LOG_FILE) as file, open(moved, "a") as old:  # for the cases that look into all of it
        old.write(file.read())
    os.rename(moved, LOG_FILE)
    gateway.daemon.process.send_signal(signal.SIGUSR1)
    token, (trace, span) = new_token(), new_trace()

    def arrives():
        ask("/on/normal", new_token(), parent_of(trace, span), patient=True)
        return decisions(trace_id=trace)
    wait_for(arrives, "lines in the first file again")


@suite.case
def a_collector_that_is_busy_is_tried_again():
    token, (trace, span) = new_token(), new_trace()
    failures = metric("once_otlp_failures_total")
    with collector.answering(503):
        ask("/on/normal", token, parent_of(trace, span))
        wait_for(lambda: metric("once_otlp_failures_total") > failures, "a failure")
    spans_of(trace, 4)


@suite.case
def a_collector_that_refuses_costs_nothing_but_spans():
    token, (trace, span) = new_token(), new_trace()
    dropped = metric("once_otlp_spans_dropped_total")
    with collector.answering(400):
        expect_equal(ask("/on/normal", token, parent_of(trace, span)).status, 201, "answered as ever")
        wait_for(lambda: metric("once_otlp_spans_dropped_total") >= dropped + 4, "they are counted")
    expect_equal(collector.of(trace), [], "they are gone")


@suite.case
def the_receiver_found_nothing_wrong():
    expect_equal(collector.bad, [], "what the collector refused")


if __name__ == "__main__":
    suite.run(gateways=[("the gateway", gateway)])
