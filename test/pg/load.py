"""What the tests under load are written with: the servers that with-postgres made, worker
processes, callers on a string (ask.c), TAP. Nothing sleeps in the hope that something has
happened by then: wait_for() polls, with a bound. Every process started here is waited for, or
killed by its id, in the end. SEED and SIZE come from the environment (docs/internals/testing.md)."""
import atexit
import functools
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile

from cluster import Cluster
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib import wait
from lib.tap import bail, finish, ok, remark  # noqa: F401, for tests that import this

SEED = int(os.environ.get("SEED") or "1")
SIZE = int(os.environ.get("SIZE") or "1")
BOUND_S = 2 * wait.SECONDS * SIZE
wait_for = functools.partial(wait.wait_for, seconds=BOUND_S)
ONCE, WORKER, ASK = (os.environ.get(name, "") for name in ("ONCE_BIN", "ONCE_TEST_WORKER", "ONCE_TEST_ASK"))
BIN = os.environ.get("ONCE_TEST_POSTGRES_BIN", "")
LEASE_LONG = 24 * 3600 * 1000  # of holders that are never given up
signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # through atexit


class Server:
    """A server of with-postgres: control of it, and SQL in the store's database."""

    def __init__(self, which=""):
        # The store's own limit for connecting, 10 s, is for servers that are not there.
        self.url = os.environ["ONCE_TEST_POSTGRES" + which].replace("///postgres?", "///test?") + "&connect_timeout=300"
        self.admin_url = os.environ["ONCE_TEST_POSTGRES" + which]
        self.host = re.search(r"host=([^&]*)", self.url).group(1)
        self.cluster = Cluster(BIN, os.environ["ONCE_TEST_POSTGRES%s_DATA" % which])

    def sql(self, sql, url=None):
        """Values of all rows, as psql -At prints them."""
        done = subprocess.run([os.path.join(BIN, "psql"), "-XqAt", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-d",
                               url or self.url, "-f", "-"], input=sql, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=dict(os.environ, PGOPTIONS="-c client_min_messages=error"))
        if done.returncode != 0:
            bail("%s: %s" % (sql, done.stderr))
        return done.stdout.rstrip("\n")

    def migrate(self):
        self.sql("CREATE DATABASE test", self.admin_url)
        subprocess.run([ONCE, "migrate", "--store", self.url], check=True, stdout=subprocess.DEVNULL)

    def waiting(self, column="pid"):
        """The backends of stores that wait in their COMMIT for a standby."""
        return self.sql("SELECT %s FROM pg_stat_activity WHERE application_name = 'once' AND wait_event = 'SyncRep'"
                        % column).split()

    def start(self):
        self.cluster.start() or bail("a server does not start: " + self.cluster.said()[-2000:])

    def stop(self, mode="immediate"):
        self.cluster.stop(mode) or bail("a server does not stop")

    def restart(self):
        self.stop()
        self.start()


def either(*servers):
    """The URL of whichever of them takes writes. A commit may wait for its standby for as long as the test likes."""
    return "%s&target_session_attrs=read-write&tcp_user_timeout=3600000" % servers[0].url.replace(
        "host=" + servers[0].host, "host=" + ",".join(s.host for s in servers))


class Process:
    """A child that is not left behind."""

    def __init__(self, command, **options):
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        atexit.register(self.kill)

    def kill(self):
        if self.p.poll() is None:
            self.p.kill()
            self.p.wait()


class Worker(Process):
    def __init__(self, load, url, name, kind, threads, keys, rounds):
        self.load, self.name, self.threads, self.killed = load, name, threads, False
        takeover, lease, slow = load.KINDS[kind]
        super().__init__([WORKER, "--store", url, "--folder", load.folder, "--name", name, "--prefix", kind,
                          "--takeover", takeover, "--lease", str(lease), "--slow", str(slow), "--threads", str(threads),
                          "--keys", str(keys), "--rounds", str(rounds), "--seed", str(SEED)], text=True)

    def acks(self):
        return self.load.count("\t%s\n" % self.name)

    def end(self):
        """No more keys; waits for what it has begun. What it said of itself."""
        try:
            said, _ = self.p.communicate(timeout=BOUND_S)
        except subprocess.TimeoutExpired:
            return "%s did not end; %s" % (self.name, self.load.last_of(self.name))
        return said.strip() if self.p.returncode == 0 else "%s exited %s" % (self.name, self.p.returncode)


class Load:
    """Workers on one folder. A `kind` is a prefix of keys with the policy they are used under,
    and is how check.py knows what may become of them."""
    KINDS = {  # takeover, lease in ms, one in how many is slower than that at first
        "strict": ("escalate", LEASE_LONG, 0),  # nobody is given up: all is executed once
        "escalate": ("escalate", 50, 8),        # holders are given up: at most once
        "rerun": ("rerun", 50, 8),              # and here at least once
        "newer": ("escalate", LEASE_LONG, 0),
    }

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="once-load-")
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.workers, self.names, self.said = [], 0, []

    def start(self, kind, url, threads=4, keys=20, rounds=0):
        self.names += 1
        worker = Worker(self, url, "%s%d" % (kind, self.names), kind, threads, keys, rounds)
        self.workers.append(worker)
        return worker

    def lines(self, name):
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            return [line.rstrip("\n").split("\t") for line in file if line.endswith("\n")]

    def last_of(self, name):
        return [line for line in self.lines("notes") if line[3] == name][-5:]

    def count(self, ending):
        """Acknowledged answers, cheaply: it is asked for again and again."""
        path = os.path.join(self.folder, "acks")
        if not os.path.exists(path):
            return 0
        with open(path, "rb") as file:
            return file.read().count(ending.encode())

    def acks(self):
        return self.count("\n")

    def wait_for_acks(self, more):
        """Until so many more calls were answered."""
        least = self.acks() + more
        wait_for(lambda: self.acks() >= least or any(w.p.poll() for w in self.workers if not w.killed),
                 "%d answers" % least)

    def kill(self, worker):
        worker.killed = True
        worker.kill()

    def end(self):
        """Ends all of them; what went wrong, if anything."""
        for worker in self.workers:
            worker.p.stdin.close()
            worker.p.stdin = None
        self.said = [w.end() for w in self.workers if not w.killed]
        remark("\n".join(self.said))
        return [line for line in self.said if "operations" not in line]

    def settled(self):
        """Lost answers that the engines found out about by themselves."""
        return sum(int(n) for line in self.said for n in re.findall(r"settled (\d+)", line))

    def killed(self):
        return {w.name for w in self.workers if w.killed}


class Ask(Process):
    """A caller that makes one call at a time (ask.c)."""

    def __init__(self, url):
        super().__init__([ASK, url])
        os.set_blocking(self.p.stdout.fileno(), False)
        self.seen = b""

    def send(self, line):
        self.p.stdin.write((line + "\n").encode())
        self.p.stdin.flush()

    def has_answered(self):
        if select.select([self.p.stdout], [], [], 0)[0]:
            self.seen += self.p.stdout.read() or b""
        return b"\n" in self.seen

    def get(self):
        wait_for(self.has_answered, "an answer")
        line, self.seen = self.seen.split(b"\n", 1)
        return line.decode().rstrip()

    def call(self, line):
        self.send(line)
        return self.get()

    def peek(self):
        return self.seen.decode() if self.has_answered() else "(no answer yet)"
