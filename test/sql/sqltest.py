"""What the tests of the SQL functions are written with: a migrated database in the cluster
that ONCE_TEST_POSTGRES names, psql sessions, TAP."""
import os
import re
import select
import subprocess
import sys
import time

PSQL = os.path.join(os.environ.get("ONCE_TEST_POSTGRES_BIN", ""), "psql")
ENV = dict(os.environ, PGCONNECT_TIMEOUT="10", PGOPTIONS="-c client_min_messages=error")
_number = _failed = 0


def ok(passed, name, *notes):
    global _number, _failed
    _number += 1
    if not passed:
        _failed += 1
        for note in notes:
            for line in str(note).splitlines():
                print("# " + line)
    print("%sok %d - %s" % ("" if passed else "not ", _number, name), flush=True)


def equal(got, expected, name):
    ok(got == expected, name, "got:      %r" % (got,), "expected: %r" % (expected,))


def finish():
    print("1..%d" % _number)
    sys.exit(_failed != 0)


def url(database, user="postgres"):
    return (os.environ["ONCE_TEST_POSTGRES"].replace("///postgres?", "///%s?" % database)
            .replace("user=postgres", "user=" + user))


def psql(sql, database="test", user="postgres"):
    """Values of all rows, as psql -At prints them; or the first error."""
    done = subprocess.run([PSQL, "-XqAt", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-d",
                           url(database, user), "-f", "-"], input=sql, text=True, capture_output=True, env=ENV)
    if done.returncode != 0:
        error = re.search(r"ERROR:  (.*)", done.stderr)
        return error.group(1) if error else done.stderr
    return done.stdout.rstrip("\n")


def migrated(database="test"):
    psql("CREATE DATABASE %s" % database, "postgres")
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
            if select.select([self.p.stdout], [], [], 0.01)[0]:
                self.seen += (self.p.stdout.read() or b"").decode()
        return mark in self.seen

    def get(self):
        if not self.poll(120):
            return "(no answer)"
        answer, self.seen = self.seen.split("--end %d\n" % self.count, 1)
        answer = re.sub(r"(?m)^(LINE|DETAIL|CONTEXT|HINT|SQL |PL/pgSQL|at )[^\n]*\n?", "", answer)
        return answer.rstrip("\n")

    def run(self, sql):
        self.send(sql)
        return self.get()

    def blocks(self):
        """Does what was sent wait for a lock?"""
        for _ in range(200):
            if self.poll(0.01):
                return False
            if psql("SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted" % self.pid) == "1":
                return True
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


def until(condition, what, seconds=120, pause=0.005):
    """Waits for it. No answer in all that time ends the test."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            print("Bail out! waited %d s for %s" % (seconds, what))
            sys.exit(1)
        time.sleep(pause)


def server(*action):
    """pg_ctl with this cluster. The server refuses to run as root."""
    command = [os.path.join(os.path.dirname(PSQL), "pg_ctl"), "-D", os.environ["ONCE_TEST_POSTGRES_DATA"], "-s", "-w",
               *action]
    if os.geteuid() == 0:
        command = ["runuser", "-u", "postgres", "--"] + command
    subprocess.run(command, check=True, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def restart(how="immediate"):
    server("stop", "-m", how)
    start()


def start():
    server("-l", os.path.join(os.path.dirname(os.environ["ONCE_TEST_POSTGRES_DATA"]), "log"), "start")
