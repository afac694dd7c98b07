"""Runs a row of operations.py while its connection is cut, and says what is wrong after it."""
from operations import ROWS
from steps import value
from lib.wait import becomes_true


def says(answer, expected):
    """Begins as the words without '=', and has all those with."""
    words = expected.split()
    begins = " ".join(w for w in words if "=" not in w)
    return answer.startswith(begins) and all(w in answer.split() for w in words if "=" in w)


def is_waited_for(db, pid):
    """Does somebody wait for a lock of this server process?"""
    return db.run("SELECT count(*) FROM pg_stat_activity WHERE %d = ANY (pg_blocking_pids(pid))" % pid) != "0"


class Case:
    """One row under one cut. a: the client through the proxy, b: one of its own; db: a psql."""
    number = 0

    def __init__(self, name, a, b, db):
        Case.number += 1
        self.row, self.a, self.b, self.db = ROWS[name], a, b, db
        self.keys = {letter: "%s%d" % (letter, Case.number) for letter in "klmn"}
        self.problems = []
        self.fences = {}

    def line(self, text):
        return text.format(**self.keys)

    def prepare(self):
        for who, text in self.row["prepare"]:
            if text.startswith("until-over"):
                self.until_over(self.line(text.split()[1]))
                continue
            answer = (self.a if who == "a" else self.b).ask(self.line(text))
            if not answer.startswith("OK"):
                self.problems.append("%s: %s" % (text, answer))

    def until_over(self, key):
        """until its lease is over"""
        becomes_true(lambda: " live" not in self.b.ask("lookup " + key))

    def does(self):
        return self.line(self.row["does"])

    def nth(self):
        """Which transaction from now on is the one to cut: a look-up goes before a batch."""
        return 2 if " ; " in self.row["does"] else 1

    def judge(self, answer):
        """The answer, then what the store shows to everybody."""
        parts = answer.split(" ; ")
        lines = self.row["does"].split(" ; ")
        for part, expected, line in zip(parts, self.row["answers"], lines):
            if not says(part, expected):
                self.problems.append("%s: '%s' instead of '%s'" % (line, part, expected))
            if expected.startswith("OK execute"):
                self.fences[line.split()[1]] = value(part, "fence")
        if len(parts) != len(lines):
            self.problems.append("%d answers: %s" % (len(parts), answer))
        self.check_fences()
        for who, text, expected in self.row["after"]:
            part = (self.a if who == "a" else self.b).ask(self.line(text))
            if not says(part, expected):
                self.problems.append("then %s: '%s' instead of '%s'" % (text, part, expected))
        for letter, facts in self.row["facts"].items():
            found = self.facts(self.keys[letter])
            if found != facts:
                self.problems.append("claims/results/verdicts of {%s}: %s instead of %s" % (letter, found, facts))
        return self.problems

    def check_fences(self):
        """Who was told to execute holds the newest claim, by its own fence."""
        for key, fence in self.fences.items():
            newest = self.db.run("SELECT max(fence) FROM once.claim WHERE key = '%s'" % self.line(key))
            if newest != fence:
                self.problems.append("%s was granted fence %s, the store has %s" % (key, fence, newest))

    def facts(self, key):
        return self.db.run("""
            SELECT (SELECT count(*) FROM once.claim c WHERE c.key = '{0}') || '/' ||
                   (SELECT count(*) FROM once.result r WHERE r.fence IN
                       (SELECT c.fence FROM once.claim c WHERE c.key = '{0}')) || '/' ||
                   (SELECT count(*) FROM once.audit a WHERE a.record IN
                       (SELECT c.record FROM once.claim c WHERE c.key = '{0}'))""".format(key))
