"""What the tests of the SQL functions are written with: a migrated database in the cluster
that ONCE_TEST_POSTGRES names, psql sessions, TAP."""
import collections
import os
import re
import select
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from lib.process import terminate  # noqa: F401, for tests that import this
from lib.tap import equal, finish, ok, skip_all, skip_if  # noqa: F401
from lib.wait import SECONDS, wait_for  # noqa: F401

PSQL = os.path.join(os.environ.get("ONCE_TEST_POSTGRES_BIN", ""), "psql")
ENV = dict(os.environ, PGCONNECT_TIMEOUT="120", PGOPTIONS="-c client_min_messages=error")
OURS = "sqltest"  # the application_name of what psql() below keeps connected


def url(database, user="postgres"):
    """The store's own limit for connecting, 10 s, is for servers that are not there."""
    return (os.environ["ONCE_TEST_POSTGRES"].replace("///postgres?", "///%s?" % database)
            .replace("user=postgres", "user=" + user) + "&connect_timeout=300")


class _Psql:
    """A psql that answers one text after the other. A new server process for each would load all
    that it needs of the catalogue anew, which takes longer than most of what is asked."""
    def __init__(self, database, user):
        self.p = subprocess.Popen([PSQL, "-XqAt", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-d", url(database, user)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=dict(ENV, PGAPPNAME=OURS))
        self.count = 0

    def say(self, sql):
        """What it printed, or None: it ended, as it does at the first error."""
        self.count += 1
        mark = "--end %d\n" % self.count
        end = "" if re.search(r"\\(gset|!|set|echo)\b", sql.rstrip().rsplit("\n", 1)[-1]) else ";"
        said = []
        try:
            self.p.stdin.write("%s%s\n\\echo --end %d\n" % (sql, end, self.count))
            self.p.stdin.flush()
        except BrokenPipeError:
            return None
        for line in self.p.stdout:
            if line == mark:
                return "".join(said)
            said.append(line)
        return None

    def is_fit(self):
        """Is its server still there?"""
        return self.say("SELECT") is not None

    def reset(self):
        """As if it had just connected, but for plans: DISCARD ALL would forget those, too."""
        return self.say("\\set VERBOSITY verbose\n\\set ON_ERROR_STOP 1\nROLLBACK; RESET SESSION AUTHORIZATION; RESET ALL; "
                        "DEALLOCATE ALL; DISCARD TEMP; SELECT pg_advisory_unlock_all()") is not None

    def close(self):
        """What it complained about."""
        try:
            self.p.stdin.close()
        except BrokenPipeError:
            pass
        self.p.stdout.read()
        said = self.p.stderr.read()
        self.p.wait()
        self.p.stdout.close()
        self.p.stderr.close()
        return said


_idle = collections.defaultdict(list)  # (database, user): those that nobody uses just now


def psql(sql, database="test", user="postgres"):
    """Values of all rows, as psql -At prints them; or the first error. Nothing of an earlier call is left in its
    session: no setting, no transaction, no temporary table."""
    idle = _idle[database, user]
    try:
        session = idle.pop()
    except IndexError:
        session = None
    if session and not session.is_fit():
        session.close()
        session = None
    session = session or _Psql(database, user)
    said = session.say(sql)
    if said is None:
        complaint = session.close()
        error = re.search(r"ERROR:  (.*)", complaint)
        return error.group(1) if error else complaint
    if session.reset():
        idle.append(session)
    else:
        session.close()
    return said.rstrip("\n")


def migrated(database="test", options=""):
    psql("CREATE DATABASE %s %s" % (database, options), "postgres")
    subprocess.run([os.environ["ONCE_BIN"], "migrate", "--store", url(database)], check=True,
                   stdout=subprocess.DEVNULL)


class Session:
    """A psql that stays, for races: send() does not wait, get() does."""
    def __init__(self, database="test", user="postgres"):
        self.p = subprocess.Popen([PSQL, "-XqAt", "-d", url(database, user)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENV)
        os.set_blocking(self.p.stdout.fileno(), False)
        self.count, self.seen = 0, ""
        self.pid = self.run("SELECT pg_backend_pid()")

    def send(self, sql):
        self.count += 1
        end = "" if "\\gset" in sql.splitlines()[-1] else ";"
        self.p.stdin.write(("%s%s\n\\echo --end %d\n" % (sql, end, self.count)).encode())
        self.p.stdin.flush()

    def poll(self, seconds):
        mark = "--end %d\n" % self.count
        until = time.monotonic() + seconds
        while mark not in self.seen and time.monotonic() < until:
            if select.select([self.p.stdout], [], [], min(seconds, 0.01))[0]:
                self.seen += (self.p.stdout.read() or b"").decode()
        return mark in self.seen

    def get(self):
        if not self.poll(SECONDS):
            return "(no answer)"
        answer, self.seen = self.seen.split("--end %d\n" % self.count, 1)
        answer = re.sub(r"(?m)^(LINE|DETAIL|CONTEXT|HINT|SQL |PL/pgSQL|at )[^\n]*\n?", "", answer)
        return answer.rstrip("\n")

    def run(self, sql):
        self.send(sql)
        return self.get()

    def blocks(self):
        """Does what was sent wait for a lock? Or it is answered."""
        end = time.monotonic() + SECONDS
        while not self.poll(0.001):
            if psql("SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted" % self.pid) == "1":
                return True
            if time.monotonic() > end:
                return "(neither)"
        return False

    def close(self):
        self.p.stdin.close()
        self.p.wait()
        self.p.stdout.close()


def once(*arguments, **environment):
    """Runs the program: its exit status and all that it printed."""
    done = subprocess.run([os.environ["ONCE_BIN"], *arguments], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=dict(os.environ, **environment))
    return done.returncode, done.stdout


def server(*action):
    """pg_ctl with this cluster. The server refuses to run as root."""
    command = [os.path.join(os.path.dirname(PSQL), "pg_ctl"), "-D", os.environ["ONCE_TEST_POSTGRES_DATA"], "-s", "-w",
               "-t", "%d" % SECONDS, *action]
    if os.geteuid() == 0:
        command = ["runuser", "-u", "postgres", "--"] + command
    subprocess.run(command, check=True, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def restart(how="immediate"):
    server("stop", "-m", how)
    start()


def start():
    server("-l", os.path.join(os.path.dirname(os.environ["ONCE_TEST_POSTGRES_DATA"]), "log"), "start")
