#!/usr/bin/env python3
"""What the gateway makes of everything an upstream may do (FAULT-45): each behaviour of upstream.py,
under takeover `escalate` and `rerun`, asked twice with one key.

The table says per behaviour which of these it is:

  final      a whole answer whose status is final: stored, and the retry is a replay of it
  refused    a whole answer that says "not now" (401, 429, ...): passed on, the retry executes again
  failing    a whole 5xx: passed on. rerun: the retry executes again. escalate: it may have had its
             effect, so it is unknown, and the retry is told so
  broken     no certain end: nobody knows. rerun: 502 or 504, the retry executes again.
             escalate: unknown, and both are told so
  dropped    an answer that is too large to keep, or whose end is not marked, so that nobody knows
             whether it is whole: passed on; the retry is told that it was executed
  cut        too large to keep, and it broke off: so does what the client gets; else as dropped
  released   it was certainly not sent: 502, and nothing is remembered

and which effects there are after the first request. Never more than one per execution; and under
escalate never more than one, except where the upstream itself said that it did nothing (refused).
"""
from concurrent.futures import ThreadPoolExecutor

from gateway import Closed, Failed, Gateway, Location, SINGLE, Suite, expect, expect_equal, in_parallel, new_token, wait_for
import upstream

BIG = b"r" * (3 << 20)  # a request body that no socket buffer holds


class Row:
    def __init__(self, kind, name, status=None, effects=1, to="", body=b'{"amount":25}', check=None, again=None,
                 length=None):
        self.kind, self.name, self.status, self.effects, self.to, self.body = kind, name, status, effects, to, body
        self.check = check  # of (first answer, retry's answer), where there is more to say
        self.length = length  # dropped: of the first answer's body
        self.again = again  # rerun: what the second execution is answered with, where it differs


def lacks(*names):
    def check(first, retry):
        for name in names:
            expect(retry.get(name) is None, "a replay has %s: %s" % (name, retry.get(name)))
    return check


def has(**wanted):
    def check(first, retry):
        for name, value in wanted.items():
            for answer in (first, retry):
                expect_equal(answer.all(name.replace("_", "-")), [value] if isinstance(value, str) else value, name)
    return check


def body_is(function):
    def check(first, retry):
        expect(function(first.body), "the body: %r" % first.body[:200])
    return check


def empty_body(first, retry):
    expect_equal((first.body, retry.body), (b"", b""), "the bodies")


def not_its_date(first, retry):
    lacks("Set-Cookie", "WWW-Authenticate", "X-RateLimit-Remaining", "Access-Control-Allow-Origin", "Age")(first, retry)
    expect("1970" not in (retry.get("Date") or ""), "the upstream's Date was replayed")


def of_the_last_head(first, retry):
    """Nothing of the informational answers counts: neither their lengths, nor their fields."""
    for answer in (first, retry):
        expect_equal((answer.body, answer.all("ETag"), answer.all("Location"), answer.interim), (b"at last 1", ['"last"'], [], []), "the answer")


TABLE = [
    Row("final", "normal", 201),
    Row("final", "echo", 200),
    Row("final", "slow", 200),
    Row("final", "slow_headers", 200),
    Row("final", "slow_body", 200),
    Row("final", "chunked", 200, check=body_is(lambda b: b == b"chunk 1, the rest")),
    Row("final", "chunked_in_bytes", 200, check=body_is(lambda b: len(b) == 600)),
    Row("final", "chunked_extension", 200, check=body_is(lambda b: b == b"hello 1")),
    Row("final", "chunked_empty", 200, check=empty_body),
    Row("final", "trailers", 200, check=lacks("Set-Cookie", "X-Sum")),
    Row("final", "http_1_0", 200),
    Row("final", "connection_close", 200),
    Row("final", "connection_close", 200, to="kept"),
    Row("final", "connection_names", 200, check=lacks("X-Hop", "Keep-Alive")),
    Row("final", "empty", 200, check=empty_body),
    Row("final", "no_content", 204, check=has(ETag='"v1"')),
    Row("final", "not_modified", 304, check=has(ETag='"v1"')),
    Row("final", "binary", 200, check=body_is(lambda b: b[:256] == bytes(range(256)) and len(b) == 4197)),
    Row("final", "gzipped", 200, check=has(Content_Encoding="gzip")),
    Row("final", "set_cookie", 200, check=not_its_date),
    Row("final", "location", 201, check=has(ETag='"abc"', Content_Language="de", Last_Modified="Sun, 06 Nov 1994 08:49:37 GMT")),
    Row("final", "see_other", 303, check=has(Location="http://elsewhere.example/orders/1")),
    Row("final", "duplicate_headers", 200, check=has(Link=["</a>; rel=a", "</b>; rel=b"])),
    Row("final", "many_headers", 200, check=has(ETag='"many"')),
    Row("final", "large_header", 200, check=has(Link="<%s>" % ("x" * 8000))),
    Row("final", "odd_case", 200, check=has(ETag='"odd"', Content_Type="text/odd")),
    Row("final", "odd_status", 299),
    Row("final", "mib", 200),
    Row("final", "accel_headers", 200),
    Row("final", "extra_bytes", 200, check=body_is(lambda b: b == b"honest 1")),
    Row("final", "answers_unread", 200),
    Row("final", "answers_unread", 200, body=BIG),
    Row("final", "refuses_unread", 413, body=BIG),
    Row("final", "normal", 201, body=BIG),
    Row("final", "normal", 201, to="kept"),
    Row("final", "normal", 201, to="gzip"),
    Row("final", "length_and_chunked", 200),  # RFC 9112, 6.3: the chunks count
    *[Row("final", "continue_100", 200, to=to, check=body_is(lambda b: b == b"continued 1")) for to in ("", "kept")],
    *[Row("final", "early_hints", 200, to=to, check=body_is(lambda b: b == b"hinted 1")) for to in ("", "kept")],
    *[Row("final", name, 200, to=to, check=of_the_last_head) for name in ("many_informational", "informational_in_bytes") for to in ("", "kept")],
    Row("dropped", "mib_and_1", 200, length=(1 << 20) + 1),
    Row("dropped", "mib_and_1_chunked", 200, length=(1 << 20) + 1),
    Row("dropped", "mib_20", 200, length=20 << 20),
    Row("dropped", "until_eof", 200, length=15),
    Row("dropped", "negative_length", 200, length=5),
    Row("dropped", "unknown_coding", 200, length=5),
    Row("cut", "mib_20_truncated"),
    *[Row("final", "status_%d" % status, status) for status in upstream.FINAL_STATUSES],
    *[Row("refused", "status_%d" % status, status) for status in upstream.REFUSING_STATUSES],
    *[Row("failing", "status_%d" % status, status) for status in upstream.FAILING_STATUSES],
    Row("failing", "fails_once", 503, again=200),
    Row("broken", "resets_once", again=200),
    *[Row("broken", name) for name in (
        "upgrade", "informational_only", "informational_then_upgrade", "too_many_informational",
        "length_too_long", "length_one_too_long", "length_without_body",
        "chunked_truncated", "chunked_without_end", "chunked_half_end", "trailers_truncated", "chunked_reset",
        "reset_after_reading", "close_after_reading", "reset_in_status", "close_in_status", "close_in_headers",
        "reset_in_headers", "close_before_empty_line", "reset_after_headers", "reset_in_body", "until_eof_reset",
        "bad_status_line", "status_too_short", "http_0_9", "other_protocol", "nothing_but_newlines",
        "header_without_colon", "header_with_nul", "huge_header", "bad_chunk_size", "bad_chunk_end", "huge_chunk_size",
        "two_lengths")],
    *[Row("broken", name, effects=0) for name in ("reset_unread", "close_unread")],
    *[Row("broken", name, effects=0, body=BIG) for name in ("reset_unread", "close_unread")],
    *[Row("broken", name, 504, to="impatient") for name in ("silence", "silence_in_headers")],
    *[Row("broken", name, to="impatient") for name in ("silence_in_body", "silence_in_chunks")],
    *[Row("broken", "silence_unread", 504, effects=0, to="impatient", body=body) for body in (b"{}", BIG)],
    Row("released", "normal", 502, effects=0, to="refused"),
]


def variants(policy, takeover):
    once = ("once on;", SINGLE, "once_takeover %s;" % takeover)
    return [Location("/%s/" % policy, *once),
            Location("/%s-kept/" % policy, *once, to="kept"),
            Location("/%s-stale/" % policy, *once, to="stale"),
            Location("/%s-refused/" % policy, *once, to="refusing"),
            Location("/%s-gzip/" % policy, *once, more=("gzip on;", "gzip_types *;", "gzip_min_length 1;")),
            Location("/%s-impatient/" % policy, *once, more=("proxy_read_timeout 3s;", "proxy_send_timeout 3s;"))]


gateway = None


class Story:
    """A row under a policy: two requests with one key, and what was seen after each."""

    def __init__(self, row, policy):
        self.row, self.policy = row, policy
        self.key = self.token = new_token(row.name)
        self.path = "/%s%s/%s" % (policy, "-" + row.to if row.to else "", row.name)
        size = " with %d MiB" % (len(row.body) >> 20) if len(row.body) > 1000 else ""
        self.name = "%s%s%s, %s: %s" % (row.name, " (%s)" % row.to if row.to else "", size, policy, row.kind)
        self.answers, self.effects, self.records, self.error = [], [], [], None

    def ask(self):
        if self.error:
            return
        try:
            self.answers.append(gateway.ask(self.path, self.key, self.token, body=self.row.body))
        except Closed as closed:
            self.answers.append(closed)
            if self.row.kind != "cut":
                self.error = "request %d: %s" % (len(self.answers), closed)
        except Exception as error:
            self.error = "request %d: %s: %s" % (len(self.answers) + 1, type(error).__name__, error)

    def tell(self):
        """Both requests, by itself. On a machine that stands still nginx may have given up before the service came to its effect:
        it does come to it."""
        for times in (1, 2 if self.policy == "rerun" else 1):
            self.ask()
            if self.error:
                return
            try:
                wait_for(lambda: gateway.effects(self.token) >= times * self.row.effects, "the effect")
            except Failed as failed:
                self.error = str(failed)
            self.look(gateway.records())

    def look(self, records):
        self.effects.append(gateway.effects(self.token))
        self.records.append(records.get(("", self.key)))

    def states(self):
        return [r and r["state"] + (" retryable" if r["retryable"] else "") for r in self.records]

    def verify(self):
        try:
            if self.error:
                raise Failed(self.error)
            getattr(self, "verify_" + self.row.kind)(*self.answers)
            if self.row.check:
                self.row.check(*self.answers)
        except Failed as failure:
            raise Failed("%s\nstates %s, effects %s\nanswers %s" % (failure, self.states(), self.effects, self.answers))

    def seen(self, states, effects):
        expect_equal(self.states(), list(states), "the record's state after each request")
        expect_equal(self.effects, list(effects), "effects after each request")

    def verify_final(self, first, retry):
        expect_equal(first.status, self.row.status, "the first answer's status")
        expect(not first.replayed, "the first answer says that it is a replay")
        expect(retry.replayed, "the retry is no replay")
        expect_equal(retry.lasting(), first.lasting(), "the replay")
        state = "succeeded" if self.row.status < 400 else "failed"
        self.seen([state, state], [self.row.effects] * 2)
        expect_equal(self.records[0]["status"], self.row.status, "the stored status")

    def verify_refused(self, first, retry):
        expect_equal((first.status, retry.status), (self.row.status,) * 2, "the statuses")
        expect(not first.replayed and not retry.replayed, "an answer says that it is a replay")
        self.seen(["failed retryable"] * 2, [1, 2])

    def verify_failing(self, first, retry):
        expect_equal(first.status, self.row.status, "the first answer's status")
        expect(first.problem() is None, "the upstream's answer was not passed on")
        if self.policy == "rerun":
            expect_equal(retry.status, self.row.again or self.row.status, "the second execution's status")
            self.seen(["failed retryable", "succeeded" if self.row.again else "failed retryable"], [1, 2])
        else:
            told_unknown(retry)
            self.seen(["unknown"] * 2, [1, 1])

    def verify_broken(self, first, retry):
        if self.policy == "rerun":
            wanted = self.row.status or 502
            statuses = first.status, retry.status
            if self.row.to == "impatient":  # 504 also for what came too late to be broken
                statuses = tuple(wanted if status == 504 else status for status in statuses)
            expect_equal(statuses, (wanted, self.row.again or wanted), "the statuses")
            expect("replayed" not in str(first.headers).lower(), "it says that it is a replay")
            self.seen(["failed retryable", "succeeded" if self.row.again else "failed retryable"],
                      [self.row.effects, 2 * self.row.effects])
        else:
            told_unknown(first)
            told_unknown(retry)
            self.seen(["unknown"] * 2, [self.row.effects] * 2)

    def verify_dropped(self, first, retry):
        expect_equal(first.status, self.row.status, "the first answer's status")
        expect_equal(len(first.body), self.row.length, "the length of the first answer")
        self.told_dropped(retry)

    def verify_cut(self, first, retry):
        expect(isinstance(first, Closed), "the first answer is whole: %s" % first)
        self.told_dropped(retry)

    def told_dropped(self, retry):
        expect_equal(retry.status, 410, "the retry's status")
        expect(retry.problem() is not None, "the retry's answer is no problem document")
        self.seen(["succeeded"] * 2, [1, 1])

    def verify_released(self, first, retry):
        expect_equal((first.status, retry.status), (502, 502), "the statuses")
        self.seen([None, None], [0, 0])


def told_unknown(answer):
    problem = answer.problem()
    expect(problem is not None, "no problem document says that it is unknown")
    expect("unknown" in problem.get("code", ""), "the problem's code does not say unknown: %s" % problem)
    expect(problem.get("retryable") is False, "the problem says that it may be retried: %s" % problem)
    expect(answer.status >= 500, "unknown has status %d" % answer.status)


# ------------------------------------------------------------------ what takes more than one connection

def stale_connection(policy):
    """A kept connection that the upstream ends when the next request comes: that request was sent."""
    token, path = new_token("stale"), "/%s-stale/closes_after_answer" % policy
    expect_equal(gateway.ask(path, new_token(), new_token()).status, 200, "the request before")
    story = Story(Row("broken", "closes_after_answer", effects=0), policy)
    story.key = story.token = token
    story.path = path
    for _ in range(1 if policy == "rerun" else 2):
        story.ask()
        story.look(gateway.records())
    if policy == "rerun":  # the second execution has a new connection, and its effect
        expect_equal((story.answers[0].status, story.effects, story.states()), (502, [0], ["failed retryable"]), "the first")
        expect_equal(gateway.ask(path, token, token).status, 200, "the second execution")
    else:
        story.verify()


def next_upstream(method, name):
    """FACT-1: nginx repeats PUT and DELETE on the next peer by itself. Not with a claim."""
    token = new_token(method)
    answer = gateway.ask("/pair/" + name, token, token, method=method)
    expect_equal(gateway.effects(token), 1, "effects; the answer was %s" % answer)
    told_unknown(answer)
    told_unknown(gateway.ask("/pair/" + name, token, token, method=method))
    expect_equal(gateway.effects(token), 1, "effects after the retry")


def next_upstream_status(method):
    token = new_token(method)
    expect_equal(gateway.ask("/pair/status_503", token, token, method=method).status, 503, "the status")
    expect_equal(gateway.effects(token), 1, "effects")


PAIR = """upstream pair { server 127.0.0.1:UPSTREAM max_fails=0; server 127.0.0.1:UPSTREAM max_fails=0; }
    upstream stale { server 127.0.0.1:UPSTREAM; keepalive 1; }"""
ANY_METHOD = ("POST", "PATCH", "PUT", "DELETE")
PAIR_LOCATION = Location("/pair/", "once on;", SINGLE, "once_methods %s;" % " ".join(ANY_METHOD), to="pair",
                         more=("proxy_next_upstream error timeout invalid_header http_500 http_502 http_503 http_504 http_429 "
                               "non_idempotent;", "proxy_next_upstream_tries 5;"))


def main():
    global gateway
    suite = Suite()
    suite.require()
    gateway = Gateway(variants("escalate", "escalate") + variants("rerun", "rerun") + [PAIR_LOCATION], http=PAIR).start()
    gateway.patient = True
    stories = [Story(row, policy) for row in TABLE for policy in ("escalate", "rerun")]

    # Those that nginx gives up on take as long as it waits, which is long enough for the service to come as far as it
    # should on a busy machine. They begin, and wait beside the others.
    silent = [story for story in stories if story.row.to == "impatient"]
    with ThreadPoolExecutor(len(silent)) as pool:
        waiting = [pool.submit(Story.tell, story) for story in silent]
        others = [story for story in stories if story.row.to != "impatient"]
        for _ in range(2):
            in_parallel(Story.ask, others)
            records = gateway.records()
            for story in others:
                story.look(records)
        for future in waiting:
            future.result()
    for story in stories:
        suite.add(story.name, story.verify)
    suite.add("every behaviour is in the table", all_tested)
    for policy in ("escalate", "rerun"):
        suite.add("a stale connection, %s" % policy, stale_connection, policy)
    for method in ANY_METHOD:
        suite.add("%s goes to one peer, closed after reading" % method, next_upstream, method, "close_after_reading")
        suite.add("%s goes to one peer, bad header" % method, next_upstream, method, "header_without_colon")
        suite.add("%s goes to one peer, 503" % method, next_upstream_status, method)
    suite.run(gateways=[("the gateway", gateway)])


def all_tested():
    left = {n for n in upstream.BEHAVIOURS if not n.startswith("held")} - {row.name for row in TABLE}
    expect_equal(left, {"closes_after_answer"}, "behaviours without a row; it has cases of its own")


main()
