"""Did the load leave anything broken? Compares what the workers wrote down (worker.c) with each
other and with the store, for every kind of key (load.py):
    HISTORY-1 at most once: no effect twice, where holders are not rerun
    HISTORY-2 no lost answer: what was acknowledged is what the store has
    HISTORY-3 agreement: all acknowledged answers of one key are byte-equal
    HISTORY-4 monotone: checked by the workers as they go; reported in their notes
    HISTORY-6, K2 fencing: a fence is executed under once; a later attempt has a larger fence
    HISTORY-9 conservation: every key that anybody asked for is there, and finished
    HISTORY-10 unknown: only where a holder was really cut off
    HISTORY-16 integrity: `once check` has nothing to say
The store is asked by SQL and by the program, not by the library under test's own bookkeeping."""
import json
import subprocess
from collections import defaultdict

from load import ONCE, ok, remark

STORED = """
SELECT convert_from(a.key, 'UTF8'), a.fence, a.attempt, a.state, a.retryable, coalesce(a.status, 0),
       coalesce(encode(a.headers, 'hex'), ''), coalesce(encode(a.body, 'hex'), '')
  FROM (SELECT DISTINCT c.record FROM once.claim c) r, once.lookup_record(r.record) a
 WHERE a.arm = 'found'
"""


class History:
    """What happened to the keys of one kind."""

    def __init__(self, load, server, kind):
        def own(name):
            return [line for line in load.lines(name) if line[0].startswith(kind + "-")]
        self.kind, self.killed = kind, load.killed()
        self.acks, self.effects, self.granted, self.fenced = (defaultdict(list) for _ in range(4))
        self.broken = []
        for key, *answer in own("acks"):
            self.acks[key].append(answer)  # state, status, headers, body, how, process
        for key, fence, attempt, process in own("effects"):
            self.effects[key].append((int(fence), int(attempt), process))
        self.notes = own("notes")
        for key, fence, what, process, *text in self.notes:
            if what == "granted":
                self.granted[key, int(fence)].append(process)
            elif what == "fenced":
                self.fenced[key, int(fence)].append(process)
            elif what in ("HISTORY-4", "arm"):
                self.broken.append((key, what, process, text))
        self.stored = {}
        for row in server.sql(STORED).splitlines():
            key, fence, attempt, *answer = row.split("\t")
            if key.startswith(kind + "-"):
                self.stored[key] = (int(fence), int(attempt), answer)

    def state(self, key):
        return self.stored[key][2][0] if key in self.stored else "absent"

    def keys(self):
        return set(self.acks) | set(self.effects) | set(self.stored)

    def lost(self):
        """What was acknowledged, and the store has not, or otherwise."""
        lost = {}
        for key, answers in self.acks.items():
            stored = self.stored.get(key)
            if stored is None or [stored[2][0], *stored[2][2:]] != answers[0][:4]:
                lost[key] = (stored, answers[0])
        return lost

    def troubles(self):
        """Calls that did not work, by their end."""
        count = defaultdict(int)
        for note in self.notes:
            if " " in note[2]:
                count[note[2]] += 1
        return dict(count)


def first(rows):
    return "\n".join(str(row) for row in sorted(rows, key=str)[:5])


def check_effects(h):
    twice = {k: v for k, v in h.effects.items() if len(v) > 1}
    none = [k for k in h.keys() if h.state(k) == "succeeded" and not h.effects[k]]
    if h.kind != "rerun":
        ok(not twice, "HISTORY-1 %s: no key was executed twice (%d were executed)" % (h.kind, len(h.effects)),
           first(twice.items()))
    ok(not none, "HISTORY-9 %s: no key succeeded without being executed" % h.kind, first(none))


def check_answers(h):
    differing = {k: v for k, v in h.acks.items() if len({tuple(a[:4]) for a in v}) > 1}
    ok(not differing, "HISTORY-3 %s: all answers of a key are equal (%d keys, %d answers)" %
       (h.kind, len(h.acks), sum(len(v) for v in h.acks.values())), first(differing.items()))
    lost = h.lost()
    ok(not lost, "HISTORY-2 K4 %s: what was acknowledged is what the store has" % h.kind, first(lost.items()))
    made_up = [(k, a) for k, v in h.acks.items() for a in v if a[0] == "succeeded" and
               int(bytes.fromhex(a[3]).split()[0]) not in {fence for fence, _, _ in h.effects[k]}]
    ok(not made_up, "HISTORY-2 %s: every answer is that of an execution" % h.kind, first(made_up))


def check_fences(h):
    shared = {k: v for k, v in h.granted.items() if len(v) > 1}
    disorder = []
    for key, effects in h.effects.items():
        attempts = [attempt for _, attempt, _ in sorted(effects)]
        if any(a >= b for a, b in zip(attempts, attempts[1:])):
            disorder.append((key, effects))
        if key in h.stored and max(fence for fence, _, _ in effects) > h.stored[key][0]:
            disorder.append((key, effects, h.stored[key]))
    ok(not shared, "HISTORY-6 K1 %s: a fence is granted to one caller" % h.kind, first(shared.items()))
    ok(not disorder, "HISTORY-6 K2 %s: a later attempt has a larger fence" % h.kind, first(disorder))


def check_ends(h):
    allowed = {"succeeded", "unknown"} if h.kind == "escalate" else {"succeeded"}
    # A caller that was killed may have been the only one that wanted a key.
    wanted = [k for k in h.keys() if k in h.acks or not h.killed]
    undone = [(k, h.state(k)) for k in wanted if h.state(k) not in allowed]
    ok(not undone, "HISTORY-9 K7 %s: everything is finished" % h.kind, first(undone))
    dishonest = []
    for key, (fence, _, answer) in h.stored.items():
        holders = h.granted[key, fence]
        if answer[0] == "unknown" and holders and not h.fenced[key, fence] and not h.killed & set(holders):
            dishonest.append((key, fence, holders))
    ok(not dishonest, "HISTORY-10 %s: unknown is only what was cut off (%d are)" %
       (h.kind, sum(1 for k in h.stored if h.state(k) == "unknown")), first(dishonest))
    ok(not h.broken, "HISTORY-4 %s: nobody was told otherwise later" % h.kind, first(h.broken))


def check_integrity(server):
    said = subprocess.run([ONCE, "check", "--json", "--store", server.url], stdout=subprocess.PIPE, text=True)
    problems = json.loads(said.stdout)["problems"] if said.stdout else ["exit %d" % said.returncode]
    ok(said.returncode == 0 and not problems, "HISTORY-16: once check finds nothing", first(problems))


def check_all(load, server, kinds):
    """Returns the histories, for what a test wants to know besides."""
    histories = {kind: History(load, server, kind) for kind in kinds}
    for h in histories.values():
        check_effects(h)
        check_answers(h)
        check_fences(h)
        check_ends(h)
        remark("%s: %s" % (h.kind, ", ".join("%s: %d" % t for t in sorted(h.troubles().items())) or "no troubles"))
    check_integrity(server)
    return histories
