#!/usr/bin/env python3
"""once reconcile with exports: each kind of difference, what is not comparable yet, resolving.

usage: compare.py sqlite|remote|postgres [CASE...]; the last two run those cases in which the
store has a part."""
import sys

from reconciletest import ONCE, SIZE, equal, go_on, ok, run, stopped, wait_for

import json
import os
import resource
import secrets
import signal
import subprocess

TERMS = ("--key", "key", "--outcome", "status", "--done", "succeeded", "--not-done", "failed", "--undecided", "pending")


def provider(store):
    """A made-up provider's export, with each kind of difference. The provider knows derived keys."""
    child = store.have(*(("succeeded", key) for key in ("equal", "twice", "gone", "refused", "listed")), ("failed", "declined"),
                       ("retryable", "retry"), *(("unknown", key) for key in ("done-there", "failed-there", "not-there")))
    rows = [["id", "key", "status", "answer"],
            ["1", child["equal"], "succeeded", ""],
            ["2", child["twice"], "succeeded", ""],
            ["3", child["twice"], "succeeded", ""],
            ["4", "f" * 48, "succeeded", ""],
            ["5", child["refused"], "failed", ""],
            ["6", child["declined"], "succeeded", ""],
            ["7", child["retry"], "succeeded", ""],
            ["8", child["listed"], "succeeded", ""],
            ["9", child["listed"], "failed", ""],
            ["10", child["done-there"], "succeeded", "charged 25"],
            ["11", child["failed-there"], "failed", ""],
            ["12", "e" * 48, "failed", ""],
            ["13", "d" * 48, "pending", ""],
            ["14", "", "succeeded", ""],
            ["15", "", "failed", ""]]
    want = {"twice": "charged-twice", "f" * 48: "no-record", 15: "no-record", "gone": "no-charge", "refused": "outcome",
            "declined": "outcome", "retry": "outcome", "listed": "listed-twice", "done-there": "unknown",
            "failed-there": "unknown", "not-there": "unknown"}
    return rows, want


def kinds__each_is_found(store):
    rows, want = provider(store)
    file = store.write_csv("charges.csv", rows)
    done = store.reconcile("--from", file, "--call", "run", *TERMS, "--json")
    equal(done.code, 1, "exit status", done.said)
    equal(done.kinds(), want, "kinds")
    findings, summary = done.objects()
    equal([o["kind"] for o in findings], sorted((o["kind"] for o in findings), key=
          "charged-twice no-record outcome no-charge value listed-twice unknown".split().index), "their order")
    by_key = {o.get("key"): o for o in findings}
    equal((by_key["twice"]["lines"], by_key["twice"]["line"]), (2, 3), "charged twice: where")
    equal((by_key["refused"]["state"], by_key["refused"]["theirs"], by_key["refused"]["said"]), ("succeeded", "not done", "failed"),
          "both sides are shown")
    equal((summary["lines"], summary["records"], summary["differences"]), (15, 10, 11), "summary")
    equal((summary["by_kind"]["equal"], summary["by_kind"]["pending"], summary["without_key"]), (2, 1, 1), "the rest")
    table = store.reconcile("--from", file, "--call", "run", *TERMS)
    equal(table.code, 1, "exit status of the table")
    ok(table.out.startswith("KIND "), "a table", table.said)
    ok("11 different (1 charged-twice, 2 no-record, 3 outcome, 1 no-charge, 1 listed-twice, 3 unknown)" in table.out, "a summary",
       table.out)
    equal(table.err, "", "nothing on stderr")
    equal(store.reconcile("--from", file, "--call", "run", *TERMS, "--quiet").out.count("\n"), 12, "--quiet: no summary")
    lines = "\n".join(json.dumps(dict(zip(rows[0], row))) for row in rows[1:])
    jsonl = store.reconcile("--from", "-", "--format", "jsonl", "--call", "run", *TERMS, "--json", stdin=lines)
    want[14] = want.pop(15)  # no line of column names
    equal((jsonl.code, jsonl.kinds()), (1, want), "the same as JSON lines", jsonl.said)
    other = store.reconcile("--from", file, "--call", "other", *TERMS, "--json").objects()[1]["by_kind"]
    equal((other["no-record"], other["no-charge"]), (7, 5), "another call has other keys")
    skip = store.reconcile("--from", file, "--call", "run", *TERMS, "--json", "--skip-no-key")
    ok(15 not in skip.kinds(), "--skip-no-key")


def equal__is_0(store):
    store.have(("succeeded", "a"), ("succeeded", "b"), ("failed", "c"), ("retryable", "d"))
    file = store.write("x.csv", "key\na\nb\n")
    done = store.reconcile("--from", file, "--key", "key")
    equal((done.code, done.out), (0, "2 lines, 4 records: 4 equal\n"), "own keys, no outcome", done.said)
    done = store.reconcile("--from", store.write("x.csv", "key\na\n"), "--key", "key", "--json")
    equal((done.code, done.kinds()), (1, {"b": "no-charge"}), "one less", done.said)
    done = store.reconcile("--from", store.write("x.csv", "key\n"), "--key", "key", "--json")
    equal(done.kinds(), {"a": "no-charge", "b": "no-charge"}, "none at all", done.said)
    done = store.reconcile("--from", store.write("x.csv", "key\na\n"), "--key", "key", "--tenant", "other", "--json")
    equal(done.kinds(), {"a": "no-record"}, "another tenant has other keys")


def traffic__gives_no_false_alarm(store):
    store.have(("succeeded", "fresh"), ("abandoned", "left"), ("unknown", "doubt"))
    holder = store.start("run", "--key", "busy", "--", "sh", "-c", "echo; read _")
    holder.stdout.readline()
    file = store.write("x.csv", "key,status\nnobody,failed\n")
    done = store.reconcile("--from", file, *TERMS, grace="1h")
    equal((done.code, done.out), (0, "1 lines, 4 records: 1 equal, 4 not comparable yet (1 abandoned, 1 running, 2 young)\n"),
          "an old export", done.said)
    done = store.reconcile("--from", file, *TERMS, "--all", "--json", grace="1h")
    equal((done.code, done.kinds()), (0, {"left": "abandoned", "busy": "running", "fresh": "young", "doubt": "young"}), "--all", done.said)
    done = store.reconcile("--from", file, *TERMS, "--complete-until", "1h", "--json")
    equal((done.code, done.objects()[1]["by_kind"]["young"]), (0, 2), "newer than --complete-until is young", done.said)
    done = store.reconcile("--from", store.write("y.csv", "key,status\nbusy,succeeded\nbusy,succeeded\n"), *TERMS, "--json", grace="1h")
    equal((done.code, done.kinds()), (1, {"busy": "charged-twice"}), "but two charges are two charges", done.said)
    holder.stdin.close()
    holder.stdin = None
    store.end(holder)


def window__of_records_and_charges(store):
    store.have(("succeeded", "a"), ("failed", "b"))
    empty = store.write("x.csv", "key\n")
    for arguments, kinds in [(("--since", "1h"), {"a": "no-charge"}), (("--until", "1h"), {}),
                             (("--since", "2020-01-01", "--until", "2999-01-01T00:00:00+02:00"), {"a": "no-charge"}),
                             (("--until", "@1000"), {})]:
        done = store.reconcile("--from", empty, "--key", "key", "--json", *arguments)
        equal((done.code, done.kinds()), (1 if kinds else 0, kinds), " ".join(arguments), done.said)
    charges = store.write("y.csv", "key,at\na,2020-01-01\nb,2020-01-01\nold,2020-01-01T00:00:00Z\nnew,1800000000\n")
    done = store.reconcile("--from", charges, "--key", "key", "--time", "at", "--since", "2026-01-01", "--json")
    equal((done.code, done.kinds()), (1, {"b": "outcome", "new": "no-record"}), "charges that have no record", done.said)
    equal(done.objects()[1]["outside"], 1, "one is outside")
    done = store.reconcile("--from", charges, "--key", "key", "--until", "1h", "--json")
    ok("b" in done.kinds(), "a record outside is compared with the charge that names it", done.said)


def values__are_compared(store):
    store.have(("succeeded", "a", '{"charge": {"eur": 25.00}}'), ("succeeded", "b", '{"charge": {"eur": 25}}'),
               ("succeeded", "c", "no json"), ("failed", "d"))
    file = store.write("x.csv", "key,amount,code\na,25,201\nb,24.99,201\nc,25,201\n")
    compare = ("--compare", "amount=/charge/eur", "--compare", "code=status")
    done = store.reconcile("--from", file, "--key", "key", *compare, "--json")
    equal((done.code, done.kinds()), (1, {"b": "value", "c": "not-compared"}), "kinds", done.said)
    equal({o["key"]: o["remark"] for o in done.objects()[0]},
          {"b": "amount: here 25, there 24.99", "c": "our answer cannot be compared: it is not a JSON object"}, "remarks")
    done = store.reconcile("--from", store.write("y.csv", "key,amount,code\na,25.0,200\nb,25,201\nc,1,201\n"), "--key", "key", "--compare",
                           "code=status", "--json")
    equal((done.code, done.kinds()), (1, {"a": "value"}), "a status", done.said)
    done = store.reconcile("--from", store.write("z.csv", "key,amount\na,25.0\nb,25\nc,1\n"), "--key", "key", "--compare", "amount=/charge/eur")
    equal(done.code, 66, "not compared is no agreement", done.said)


def resolve__by_rule(store):
    rows, want = provider(store)
    file = store.write_csv("charges.csv", rows)
    base = ("--from", file, "--call", "run", *TERMS, "--json", "--resolve")
    before = {key: store.show(key)["fence"] for key in ("done-there", "failed-there", "not-there")}
    dry = store.reconcile(*base, "done,not-done", "--status", "0", "--answer", "answer", "--complete-until", "0s")
    actions = {o["key"]: o.get("action") for o in dry.objects()[0] if o["kind"] == "unknown"}
    equal(actions, {"done-there": "would be resolved done", "failed-there": "would be resolved not done",
                    "not-there": "would be resolved not done"}, "what it would do", dry.said)
    equal(({key: store.show(key)["fence"] for key in before}, dry.code), (before, 1), "nothing was done")
    done = store.reconcile(*base, "done", "--status", "7", "--answer", "answer", "--reason", "ticket 5", "--apply")
    equal((done.objects()[1]["resolved"], done.code), (1, 1), "one by --resolve done", done.said)
    equal([store.show(key)["state"] for key in before], ["succeeded", "unknown", "unknown"], "that one only")
    shown = store.show("done-there")
    equal((shown["status"], shown["body"]), (7, "charged 25"), "further tries get status and answer", shown)
    history = store.once("keys", "show", "done-there").out
    ok("once reconcile: charges.csv, line 11: done (succeeded); ticket 5" in history, "the audit trail", history)
    done = store.reconcile(*base, "not-done", "--complete-until", "1h", "--apply")
    equal((done.objects()[1]["resolved"], done.objects()[1]["by_kind"]["young"]), (0, 4), "an older export proves nothing", done.said)
    done = store.reconcile(*base, "not-done", "--complete-until", "0s", "--apply", grace="1h")
    equal((done.objects()[1]["resolved"], done.objects()[1]["by_kind"]["young"]), (0, 4), "nor within the grace", done.said)
    done = store.reconcile(*base, "not-done", "--complete-until", "0s", "--apply")
    equal(done.objects()[1]["resolved"], 2, "both by --resolve not-done", done.said)
    ok("line 12: not done (failed)" in store.once("keys", "show", "failed-there").out, "said")
    ok(": absent, complete until 20" in store.once("keys", "show", "not-there").out, "absent")
    for key in "failed-there", "not-there":
        equal((store.show(key)["state"], store.show(key)["retryable"]), ("failed", True), key + " is executed by the next try")
    equal({k: v for k, v in want.items() if v != "unknown"}, store.reconcile("--from", file, "--call", "run", *TERMS, "--json").kinds(),
          "all others are as they were")


def resolve__needs_a_side_that_knows_us(store):
    store.have(("unknown", "a"), ("succeeded", "b"))
    file = store.write("x.csv", "key\nzz\n")
    arguments = ("--from", file, "--key", "key", "--resolve", "not-done", "--complete-until", "0s", "--apply", "--json")
    done = store.reconcile(*arguments)
    finding = [o for o in done.objects()[0] if o.get("key") == "a"][0]
    equal((finding.get("why_not"), store.show("a")["state"]), ("no proof: the other side knows none of our keys", "unknown"),
          "a wrong column proves nothing", done.said)
    store.write("x.csv", "key\nzz\nb\n")
    equal((store.reconcile(*arguments).objects()[1]["resolved"], store.show("a")["state"]), (1, "failed"), "one that it knows is enough")


def none_known__is_asked_about(store):
    hint = "the other side knew none of these keys: check --key and --call\n"
    child = store.have(("succeeded", "a"), ("succeeded", "b"))
    file = store.write("x.csv", "key\n%s\n%s\n" % (child["a"], child["b"]))
    done = store.reconcile("--from", file, "--key", "key", "--grace", "0s")
    equal((done.code, done.out.endswith(hint)), (1, True), "the wrong keys", done.said)
    done = store.reconcile("--from", file, "--key", "key", "--grace", "0s", "--call", "run")
    equal((done.code, hint in done.out), (0, False), "the right ones", done.said)
    store.write("x.csv", "key\n%s\n" % child["a"])
    done = store.reconcile("--from", file, "--key", "key", "--grace", "0s", "--call", "run")
    equal((done.code, hint in done.out), (1, False), "one is known", done.said)


def resolve__loses_against_a_takeover(store):
    """Stopped between its last look and its word, while the record goes on."""
    file = store.write("x.csv", "key,status\na,failed\nb,succeeded\nc,succeeded\n")
    for key, what, state in [("a", "executed again", "succeeded"), ("b", "to be executed again", None),
                             ("c", "executed again, and unknown again", "unknown")]:
        store.have(("unknown", key))
        verb = store.start("reconcile", "--grace", "0s", "--from", file, *TERMS, "--resolve", "done,not-done", "--status", "0",
                           "--complete-until", "0s", "--apply", "--json", ONCE_CRASH="reconcile.looked:1:stop")
        wait_for(lambda: stopped(verb), "it to stop")
        store.once("keys", "resolve", key, "--not-done", "--reason", "test")
        if state:
            store.have((state, key))
        before = store.show(key)
        equal(before["state"], state or "failed", what)
        go_on(verb)
        done = store.end(verb)
        finding = [o for o in done.objects()[0] if o.get("key") == key][0]
        ok(finding.get("why_not", "").startswith("not resolved: "), what + ": it says so", done.said)
        after = store.show(key)
        equal((after["state"], after["fence"]), (before["state"], before["fence"]), what + ": and changes nothing")
        if state == "unknown":
            store.once("keys", "release", key, "--reason", "test")


def resolve__survives_a_kill(store):
    """At each of its points; the next run does the rest, and nothing twice."""
    keys = ["k%d" % i for i in range(4)]
    store.have(("succeeded", "known"), *(("unknown", key) for key in keys))
    file = store.write("x.csv", "key\nknown\n" + "".join(key + "\n" for key in keys))
    base = ("reconcile", "--grace", "0s", "--from", file, "--key", "key", "--resolve", "done", "--status", "0", "--apply")
    for point in "reconcile.page:1", "reconcile.looked:1", "reconcile.looked:2", "reconcile.resolved:1":
        equal(store.once(*base, ONCE_CRASH=point).code, -signal.SIGKILL, "killed at " + point)
    equal(sorted(store.show(key)["state"] for key in keys), ["succeeded"] * 2 + ["unknown"] * 2, "what was resolved is resolved")
    done = store.once(*base)
    equal((done.code, "2 resolved" in done.out), (0, True), "the next run resolves the rest", done.said)
    for key in keys:
        equal(store.once("keys", "show", key).out.count("resolved done"), 1, key + ": once")


def findings__are_looked_at_again(store):
    """What is settled between the listing and the report is not reported."""
    store.have(("unknown", "a"), ("retryable", "b"), ("unknown", "c"))
    file = store.write("x.csv", "key,status\na,succeeded\nb,succeeded\nc,succeeded\n")
    verb = store.start("reconcile", "--grace", "0s", "--from", file, *TERMS, ONCE_CRASH="reconcile.page:1:stop")
    wait_for(lambda: stopped(verb), "it to stop")
    store.once("keys", "resolve", "a", "--done", "--status", "0", "--reason", "test")
    store.have(("succeeded", "b"))
    store.once("keys", "release", "c", "--reason", "test")
    go_on(verb)
    done = store.end(verb)
    equal((done.code, done.out), (0, "3 lines, 3 records: 2 equal, 1 not comparable yet (1 young)\n"), "nothing to report", done.said)


def listing__record_that_moves_is_met(store):
    """It is claimed again while the listing is past the newest, and not yet at it."""
    child = store.have(("retryable", "moves"))["moves"]
    made = store.make("k", 1500)
    by_child = store.write("x.csv", "key\n%s\n" % child + "".join(row[1] + "\n" for row in made))
    by_own = store.write("y.csv", "key\nmoves\n" + "".join(row[0] + "\n" for row in made))
    by_own_many = store.write("z.csv", open(by_own).read() + "".join("nobody%d\n" % i for i in range(1100)))
    exports = [("--from", by_child, "--call", "run"), ("--from", by_own), ("--from", by_own_many)]
    for turn, arguments in enumerate(exports if store.kind == "sqlite" else exports[:2]):
        verb = store.start("reconcile", "--grace", "1h", *arguments, "--key", "key", "--json", ONCE_CRASH="reconcile.page:1:stop")
        wait_for(lambda: stopped(verb), "it to stop")
        store.have(("retryable", "moves"))
        go_on(verb)
        done = store.end(verb)
        kinds = {key: kind for key, kind in done.kinds().items() if not key.startswith("nobody")}
        equal(kinds, {"moves": "outcome"}, "its charge has a record (%s)" % arguments[-1], done.out[-2000:], done.err)
        equal(done.objects()[1]["records"], 1501 + 1500 * turn, "it is counted once")
        store.make("again%d." % turn, 1500)  # it is at the end of the listing again


def keytext_off__needs_derived_keys(store):
    store.url += "2?keytext=off"
    child = store.have(("succeeded", "a"), ("unknown", "b"))["a"]
    file = store.write("x.csv", "key\n%s\n" % child)
    done = store.reconcile("--from", file, "--key", "key")
    equal(done.code, 64, "own keys are refused", done.said)
    ok("keytext=off" in done.err, "and it says why")
    done = store.reconcile("--from", file, "--key", "key", "--call", "run", "--resolve", "not-done", "--complete-until", "0s", "--apply", "--json")
    findings, summary = done.objects()
    equal((done.code, [o["kind"] for o in findings], summary["by_kind"]["equal"]), (1, ["unknown"], 1), "derived keys are compared", done.said)
    ok("does not keep its key" in findings[0]["why_not"], "but nothing is resolved")


BAD = [  # name, file's name, bytes, arguments, what it says
    ("an open quote", "x.csv", b'key\na\n"b\nc\n', (), "line 3: a quote that is never closed"),
    ("text after a quote", "x.csv", b'key\na\n"b"c\n', (), "line 3: text after a closing quote"),
    ("a quote inside", "x.csv", b'key\na"b\n', (), "line 2: a quote inside"),
    ("a NUL", "x.csv", b"key\na\0\n", (), "line 2: a NUL byte"),
    ("too few fields", "x.csv", b"key,b\na,b\nc\n", (), "line 3: it has 1 fields, the first line has 2"),
    ("too many fields", "x.csv", b"key\na,b\n", (), "line 2: it has 2 fields, the first line has 1"),
    ("lines after embedded newlines", "x.csv", b'key,b\n"a\n\n",b\nc\n', (), "line 5: it has 1 fields"),
    ("two bad lines", "x.csv", b'key\na"\nb\nc"\n', (), "2 bad lines"),
    ("too many bad lines", "x.csv", b"key\n" + b'a"\n' * 50, (), "20 or more bad lines"),
    ("a long line", "x.csv", b"key\n" + b"a" * (1 << 20) + b"b\n", (), "line 2: the row is longer than 1 MiB"),
    ("no such column", "x.csv", b"id\na\n", (), "its first line has no column 'key'"),
    ("two such columns", "x.csv", b"key,key\na,b\n", (), "two columns are named 'key'"),
    ("an empty file", "x.csv", b"", (), "is empty: it has no line of column names"),
    ("a word in no list", "x.csv", b"key,s\na,odd\n", ("--outcome", "s", "--done", "ok"), "line 2: 's' is 'odd', which is not in --done"),
    ("a word in another case", "x.csv", b"key,s\na,OK\n", ("--outcome", "s", "--done", "ok"), "which is not in --done"),
    ("no time", "x.csv", b"key,t\na,yesterday\n", ("--time", "t"), "line 2: 't' is 'yesterday', which is not a time"),
    ("a time without zone", "x.csv", b"key,t\na,2026-01-01T10:00:00\n", ("--time", "t"), "which is not a time with a zone"),
    ("no JSON", "x.jsonl", b'{"key":"a"}\n{"key":\n', (), "line 2: it is not a JSON object"),
    ("a JSON list", "x.jsonl", b'[{"key":"a"}]\n', (), "line 1: it is not a JSON object"),
    ("a JSON text over two lines", "x.jsonl", b'{\n"key":"a"}\n', (), "line 1: it is not a JSON object"),
    ("a member twice", "x.jsonl", b'{"key":"a","key":"b"}\n', (), "line 1: a member occurs twice"),
    ("a key that is an object", "x.jsonl", b'{"key":{}}\n', (), "line 1: 'key' is a list or an object"),
    ("no outcome", "x.jsonl", b'{"key":"a"}\n', ("--outcome", "s", "--done", "ok"), "line 1: 's' is missing"),
    ("bytes that are no UTF-8", "x.jsonl", b'{"key":"\xff"}\n', (), "line 1: it is not a JSON object"),
    ("a long line of JSON", "x.jsonl", b'\n{"key":"' + b"a" * (1 << 20) + b'"}\n', (), "line 2: it is longer than 1 MiB"),
    ("deep JSON", "x.jsonl", b'{"key":' + b"[" * 5000 + b"\n", (), "line 1: it is nested too deeply"),
    ("a folder", ".", None, ("--format", "csv"), "cannot read"),
    ("no file", "missing.csv", None, (), "cannot read"),
]

GOOD = [  # name, file's name, bytes, arguments
    ("CRLF, a byte order mark, quotes", "x.csv", b'\xef\xbb\xbf"key","b"\r\n"a","x\r\ny"\r\nb,\r\n', ()),
    ("semicolons", "x.csv", b"key;b\na;1\nb;2\n", ("--separator", ";")),
    ("tabs", "x.csv", b"key\tb\na\t1\nb\t2", ("--separator", "tab")),
    ("no header", "x.csv", b"1,a\n2,b\n", ("--no-header",)),
    ("another name", "export", b"key\na\nb\n", ("--format", "csv")),
    ("JSON lines, a pointer", "x.ndjson", b'\xef\xbb\xbf{"m":{"k":["a"]}}\r\n\n{"x":{"m":{}},"m":{"k":["b"]}}', ("--key", "/m/k/0")),
    ("any other word", "x.csv", b"key,s\na,odd\nb,\n", ("--outcome", "s", "--done", "*", "--not-done", "no")),
]


def input__malformed_is_named_by_line(store):
    store.have(("succeeded", "a"), ("succeeded", "b"))
    for name, file, text, arguments, said in BAD:
        if text is not None:
            store.write(file, text)
        done = store.reconcile("--from", file, "--key", "key", *arguments)
        equal((done.code, done.out, said in done.err), (66, "", True), name, done.said[:1000])
        if "." in file and text is not None:
            os.unlink(store.path(file))
    for name, file, text, arguments in GOOD:
        store.write(file, text)
        key = "2" if "--no-header" in arguments else "key"
        done = store.reconcile("--from", file, "--key", key, *arguments)
        equal(done.code, 0, "good: " + name, done.said)
    equal(store.reconcile("--from", store.write("x.csv", "a\n"), "--key", "2", "--no-header").code, 64, "a column that is not there")


def output__that_nobody_reads_ends_it(store):
    store.have(("unknown", "z"))
    file = store.write("x.csv", "key\nz\n" + "".join("x%d\n" % i for i in range(5000)))
    verb = store.start("reconcile", "--grace", "0s", "--from", file, "--key", "key", "--resolve", "done", "--status", "0", "--apply", "--json")
    verb.stdin.close()
    verb.stdout.readline()
    verb.stdout.close()
    err = verb.stderr.read()
    equal((verb.wait(), "cannot write" in err), (74, True), "exit status", err)
    equal(store.show("z")["state"], "unknown", "nothing is resolved unseen")


def interrupt__leaves_nothing(store):
    store.have(("succeeded", "a"))
    os.mkdir(store.path("tmp"))
    for number in signal.SIGINT, signal.SIGTERM:
        verb = store.start("reconcile", "--from", "-", "--format", "csv", "--key", "key", TMPDIR=store.path("tmp"))
        verb.stdin.write("key\n" + "x\n" * 50000)
        verb.stdin.flush()
        verb.send_signal(number)
        done = store.end(verb, None)
        equal((done.code, done.out), (-number, ""), "dies of signal %d" % number, done.said[:500])
        ok("interrupted" in done.err, "and says so", done.err)
    equal(os.listdir(store.path("tmp")), [], "no files are left")
    verb = store.start("reconcile", "--from", "-", "--format", "csv", "--key", "key", TMPDIR=store.path("tmp"))
    verb.stdin.write("key\n" + "x\n" * 50000)
    verb.stdin.flush()
    verb.kill()
    store.end(verb, None)
    equal(os.listdir(store.path("tmp")), [], "nor by a kill")


def large__in_bounded_memory(store):
    """SIZE=50 is a million lines."""
    count = 2000 * SIZE
    made = store.make("k", count)
    gone, wrong = made[3], made[-2]
    with open(store.path("x.csv"), "w", encoding="ascii") as file:
        file.write("key,eur,padding\n")
        for key, child, eur in made:
            if key != gone[0]:
                file.write('%s,%s,"%s"\n' % (child, eur + (".01" if key == wrong[0] else ".00"), "x" * 40))
        for _ in range(9 * count):
            file.write("%s,1,\n" % secrets.token_hex(24))
    done = store.reconcile("--from", "x.csv", "--key", "key", "--call", "run", "--compare", "eur=/eur", "--json")
    kinds = done.kinds()
    equal((done.code, kinds.pop(gone[0], None), kinds.pop(wrong[0], None)), (1, "no-charge", "value"), "the two are found", done.err)
    equal(set(kinds.values()), {"no-record"}, "the others have no record")
    equal(len(kinds), 9 * count, "all of them")
    rss = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    sanitized = subprocess.run(["grep", "-q", "__asan_init\\|__tsan_init", ONCE]).returncode == 0
    ok(rss < 250 << 10 or sanitized, "with less than 250 MiB", rss)


ALL = [kinds__each_is_found, equal__is_0, traffic__gives_no_false_alarm, window__of_records_and_charges, values__are_compared,
       none_known__is_asked_about, resolve__by_rule, resolve__needs_a_side_that_knows_us, resolve__loses_against_a_takeover, resolve__survives_a_kill,
       findings__are_looked_at_again, listing__record_that_moves_is_met, keytext_off__needs_derived_keys, input__malformed_is_named_by_line,
       output__that_nobody_reads_ends_it, interrupt__leaves_nothing, large__in_bounded_memory]
OF_STORES = [values__are_compared, resolve__by_rule, resolve__loses_against_a_takeover, listing__record_that_moves_is_met]
run(sys.argv[1], ALL if sys.argv[1] == "sqlite" else OF_STORES)
