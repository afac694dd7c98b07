#!/usr/bin/env python3
"""once reconcile that asks: a command per key, a URL per key."""
import os
import signal
import sys
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib.http import Handler, Server
from reconciletest import equal, ok, run, wait_for


def exec__answers(store):
    store.have(*(("succeeded", key) for key in "abcde"), ("failed", "f"), ("unknown", "u"))
    ask = store.write("ask", """#!/bin/sh
case $2 in
a) echo done ;;
b) echo not-done ;;
c) echo absent ;;
d) echo undecided ;;
e) echo '{"charge": {"status": "paid"}}' ;;
f) printf '{"charge": {"status": "paid"}}' ;;
u) echo '{"charge": {"status": "void"}}' ;;
esac
""")
    os.chmod(ask, 0o755)
    terms = ("--outcome", "/charge/status", "--done", "paid", "--not-done", "void")
    done = store.reconcile("--exec", "./ask live", *terms, "--json")
    equal((done.code, done.kinds()), (1, {"b": "outcome", "c": "no-charge", "f": "outcome", "u": "unknown"}), "each answer", done.said)
    summary = done.objects()[1]
    equal((summary["asked"], summary["by_kind"]["equal"], summary["by_kind"]["pending"]), (7, 2, 1), "summary")
    done = store.reconcile("--exec", "./ask live", *terms, "--resolve", "not-done", "--apply", "--json")
    equal((done.objects()[1]["resolved"], store.show("u")["state"]), (1, "failed"), "an answer needs nobody to vouch for it", done.said)
    ok("asked by --exec: not done (void)" in store.once("keys", "show", "u").out, "the audit trail")


def exec__only_answers_are_answers(store):
    rows = [("a failure", "exit 1", "the command exited with 1"), ("silence", ":", "the command printed nothing"),
            ("an answer, then a failure", "echo done; exit 3", "the command exited with 3"),
            ("a signal", "kill -9 $$", "the command was killed by signal 9"), ("nonsense", "echo yes; :", "it is not a JSON object"),
            ("no such command", "./missing", "the command exited with 127"), ("too slow", "sleep 100; :", "the command took too long"),
            ("a child that stays", "sleep 100 & echo; :", "it is not a JSON object"),
            ("too much", "head -c 2000000 /dev/zero; :", "the command printed more than 1 MiB"),
            ("a word in no list", "echo '{\"s\":\"odd\"}'; :", "is not in --done"), ("no outcome", "echo '{}'; :", "'s' is missing")]
    store.have(("unknown", "k"))
    for name, command, said in rows:
        timeout = "300ms" if name == "too slow" else "60s"
        done = store.reconcile("--exec", command, "--outcome", "s", "--done", "ok", "--timeout", timeout, "--resolve", "done,not-done",
                               "--status", "0", "--apply", "--json")
        findings, _ = done.objects()
        equal((done.code, findings[0]["kind"], findings[0]["theirs"]), (66, "not-compared", None), name, done.said)
        ok(said in findings[0]["remark"], name + ": said", findings[0])
    equal(store.show("k")["state"], "unknown", "nothing was resolved")


def exec__keys_are_no_code(store):
    keys = ["$(touch pwned)", "`touch pwned`", "'; touch pwned; '", '"; touch pwned; "', "a b  c", "*", "x\ny", "\u00fc"]
    store.have(*(("succeeded", key) for key in [*keys, "--version"]))
    ask = store.write("ask", '#!/bin/sh\n[ $# = 1 ] && printf "%s\\0" "$1" >>asked\necho done\n')
    os.chmod(ask, 0o755)
    done = store.reconcile("--exec", "./ask", "--jobs", "1", "--json")
    equal((done.code, done.kinds()), (66, {"--version": "not-compared"}), "all but the option", done.said)
    equal(sorted(open(store.path("asked"), encoding="utf-8").read().rstrip("\0").split("\0")), sorted(keys), "each as it is, as one argument")
    ok(not os.path.exists(store.path("pwned")), "none was executed")
    done = store.reconcile("--exec", "./ask", "--call", "run", "--json")
    equal(done.code, 0, "derived keys are harmless", done.said)


def exec__some_at_a_time(store):
    """They wait for each other: with fewer at a time none would end."""
    store.have(*(("succeeded", "k%d" % i) for i in range(12)))
    command = 'touch at.$$; while [ $(ls at.* | wc -l) -lt 6 ]; do sleep 0.01; done; echo done; :'
    equal(store.reconcile("--exec", command, "--jobs", "6").code, 0, "--jobs 6")
    store.write("log", "")
    command = 'echo + >>log; sleep 0.02; echo - >>log; echo done; :'
    equal(store.reconcile("--exec", command, "--jobs", "2").code, 0, "--jobs 2")
    most = now = 0
    for line in open(store.path("log")):
        now += 1 if line == "+\n" else -1
        most = max(most, now)
    ok(1 <= most <= 2, "never more", most)  # on a slow machine perhaps never two either


def exec__interrupt_ends_the_commands(store):
    store.have(("succeeded", "a"), ("succeeded", "b"))
    for number in signal.SIGINT, signal.SIGTERM:
        verb = store.start("reconcile", "--grace", "0s", "--exec", "echo $$ >pid.$1; exec sleep 1000; :")
        wait_for(lambda: all(os.path.exists(store.path("pid." + k)) and open(store.path("pid." + k)).read().endswith("\n") for k in "ab"),
                 "the commands to start")
        verb.send_signal(number)
        done = store.end(verb)
        equal(done.code, -number, "dies of signal %d" % number, done.said)
        for key in "ab":
            pid = int(open(store.path("pid." + key)).read())
            ok(not os.path.exists("/proc/%d" % pid), "its command is gone, too")
            os.unlink(store.path("pid." + key))


class Side(Handler):
    """The other side. What it answers is in `answers`, by path."""
    answers, asked = {}, []

    def do_GET(self):
        Side.asked.append((self.path, self.headers.get("Authorization")))
        status, body, *header = Side.answers.get(self.path, (404, b""))
        if status == 0:  # says nothing until we are gone
            self.rfile.read()
            self.drop()
            return
        self.answer(status, body, header)


def serve(answers):
    Side.answers, Side.asked = answers, []
    server = Server(Side)
    return server, server.url


def url__answers(store):
    store.have(*(("succeeded", key) for key in "abcd"), ("unknown", "u"), ("unknown", "v"))
    server, base = serve({"/charges/a": (200, b'{"status":"ok"}'), "/charges/b": (200, b'{"status":"void"}'),
                          "/charges/d": (201, b'{"status":"ok"}'), "/charges/u": (200, b'{"status":"ok","id":"ch_1"}')})
    terms = ("--url", base + "/charges/{key}", "--outcome", "status", "--done", "ok", "--not-done", "void")
    store.write("secret", "Authorization: Bearer 1234\n\n")
    done = store.reconcile(*terms, "--header", "@secret", "--json")
    equal((done.code, done.kinds()), (1, {"b": "outcome", "c": "no-charge", "u": "unknown", "v": "unknown"}), "each answer", done.said)
    equal({a for _, a in Side.asked}, {"Bearer 1234"}, "the header was sent")
    equal(len(Side.asked), 6, "each is asked about once")
    done = store.reconcile(*terms, "--resolve", "done,not-done", "--status", "200", "--answer", "*", "--apply", "--json")
    equal((done.objects()[1]["resolved"], store.show("u")["body"], store.show("v")["retryable"]), (2, '{"status":"ok","id":"ch_1"}', True),
          "resolved with its answer; and not done", done.said)
    server.stop()


def url__only_answers_are_answers(store):
    store.have(("unknown", "k"))
    server, base = serve({})
    elsewhere, other = serve({})
    rows = [("an error", (500, b"{}"), "it answered with status 500"), ("not allowed", (403, b"{}"), "it answered with status 403"),
            ("a redirect", (302, b"", ("Location", other + "/there")), "it answered with status 302"),
            ("no JSON", (200, b"<html>"), "it is not a JSON object"), ("silence", (0, b""), "time"),
            ("too much", (200, b"{" + b" " * 1100000 + b"}"), "longer than 1 MiB"), ("no outcome", (200, b"{}"), "'s' is missing")]
    for number, (name, answer, said) in enumerate(rows):  # each with a place of its own: what comes late is not the next one's
        Side.answers, Side.asked = {"/%d/k" % number: answer}, []
        timeout = "500ms" if name == "silence" else "60s"
        done = store.reconcile("--url", "%s/%d/{key}" % (base, number), "--outcome", "s", "--done", "ok", "--timeout", timeout, "--resolve",
                               "done,not-done", "--status", "0", "--apply", "--json")
        findings, _ = done.objects()
        asked = [path for path, _ in Side.asked if path == "/%d/k" % number or not path.endswith("/k")]
        equal((done.code, findings[0]["kind"]), (66, "not-compared"), name, done.said)
        # Who has half a second may have given up before the other side heard anything, or even before it was asked.
        ok(len(asked) == 1 or (name == "silence" and not asked), name + ": it is asked once", Side.asked)
        ok(said in findings[0]["remark"], name + ": said", findings[0])
    server.stop()
    done = store.reconcile("--url", base + "/{key}")
    equal(done.code, 66, "nobody is there", done.said)
    equal(store.show("k")["state"], "unknown", "nothing was resolved")
    done = store.reconcile("--url", other + "/wrong/{key}", "--resolve", "not-done", "--apply", "--json")
    finding = done.objects()[0][0]
    equal((done.code, finding["why_not"], store.show("k")["state"]), (1, "no proof: the other side knows none of our keys", "unknown"),
          "404 for everything is a wrong URL", done.said)
    elsewhere.shutdown()
    elsewhere.server_close()


def url__keys_stay_in_their_place(store):
    keys = ["a/b", "..", "x?y=1#z", "%2e", "a b", "\u00fc&", "@evil", "../../up"]
    store.have(*(("succeeded", key) for key in keys))
    server, base = serve({})
    done = store.reconcile("--url", base + "/v1/{key}/charge?again={key}", "--json")
    equal((done.code, set(done.kinds().values())), (1, {"no-charge"}), "nobody knows them", done.said)
    want = set()
    for key in keys:
        quoted = urllib.parse.quote(key, safe="")
        want.add("/v1/%s/charge?again=%s" % (quoted, quoted))
    equal({path for path, _ in Side.asked}, want, "percent-encoded, dots as they are")
    server.stop()


run("sqlite", [exec__answers, exec__only_answers_are_answers, exec__keys_are_no_code, exec__some_at_a_time,
               exec__interrupt_ends_the_commands, url__answers, url__only_answers_are_answers, url__keys_stay_in_their_place])
