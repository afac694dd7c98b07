"""What the tests of `once reconcile` are written with: a store of each kind, records in each
state, TAP. Every case has a folder and a store of its own."""
import csv
import functools
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib.daemon import ONCE, Daemon
from lib.process import is_stopped
from lib.tap import equal, finish, ok, run_results  # noqa: F401, for tests that import this
from lib.wait import SECONDS, wait_for

MAKER = os.environ["ONCE_TEST_MAKER"]
SIZE = int(os.environ.get("SIZE", "1"))


class Done:
    """A run of the program that has ended."""
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err
        self.said = "exit %d\n%s%s" % (code, out, err)

    def objects(self):
        """What --json printed: the findings, and the summary."""
        lines = [json.loads(line) for line in self.out.splitlines()]
        return lines[:-1], lines[-1]

    def kinds(self):
        """key -> kind; the other side's key where there is no record, its line where it has none."""
        return {o.get("key") or o.get("their_key") or o["line"]: o["kind"] for o in self.objects()[0]}


class Store:
    """A store and the folder of its case. Kinds: sqlite, remote (a daemon's), postgres."""
    def __init__(self, kind, folder):
        self.kind, self.folder, self.daemon = kind, folder, None
        file = "sqlite:" + os.path.join(folder, "once.db")
        if kind == "sqlite":
            self.url = file
        elif kind == "remote":
            self.daemon = Daemon(folder).start("--quiet")
            self.url = "once:" + self.daemon.socket
        else:
            name = "case%d" % time.monotonic_ns()
            psql = os.path.join(os.environ["ONCE_TEST_POSTGRES_BIN"], "psql")
            subprocess.run([psql, "-Xq", "-d", os.environ["ONCE_TEST_POSTGRES"], "-c", "CREATE DATABASE " + name], check=True)
            self.url = os.environ["ONCE_TEST_POSTGRES"].replace("///postgres?", "///%s?" % name)
        if kind != "remote":
            subprocess.run([ONCE, "migrate", "--store", self.url, "--quiet"], check=True, stdout=subprocess.DEVNULL)

    def close(self):
        if self.daemon:
            self.daemon.end()

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return self.path(name)

    def write_csv(self, name, rows):
        text = io.StringIO()
        csv.writer(text).writerows(rows)
        return self.write(name, text.getvalue())

    def start(self, *arguments, **env):
        return subprocess.Popen([ONCE, *arguments], cwd=self.folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env={**os.environ, "ONCE_STORE": self.url, "no_proxy": "127.0.0.1", **env})

    def end(self, process, stdin=""):
        out, err = process.communicate(stdin, timeout=SECONDS * max(1, SIZE // 4))
        return Done(process.returncode, out, err)

    def once(self, *arguments, stdin="", **env):
        return self.end(self.start(*arguments, **env), stdin)

    def reconcile(self, *arguments, grace="0s", **more):
        return self.once("reconcile", "--grace", grace, *arguments, **more)

    # -------------------------------------------------------------- records

    def have(self, *records):
        """Makes records: (state, key) or (state, key, answer). Returns the keys derived for "run", by key."""
        lines = "".join(" ".join([state, key.encode().hex(), *(part.encode().hex() for part in answer)]) + "\n"
                        for state, key, *answer in records)
        said = subprocess.run([MAKER, self.url, "run"], input=lines, check=True, text=True, stdout=subprocess.PIPE).stdout.split()
        for state, key, *_ in records:
            if state == "abandoned":
                wait_for(lambda: "lease over" in self.once("keys", "show", key).out, "the lease of " + key)
        return dict(zip((record[1] for record in records), said))

    def show(self, key):
        return json.loads(self.once("keys", "show", "--json", key).out)

    def make(self, prefix, count, call="run"):
        """Many that succeeded: (key, child key, number)."""
        lines = subprocess.run([MAKER, self.url, prefix, str(count), call], check=True, text=True, stdout=subprocess.PIPE).stdout
        return [line.split(",") for line in lines.splitlines()]


def run(kind, cases):
    """Cases whose names have one of the arguments in them, or all."""
    def run_one(case):
        folder = tempfile.mkdtemp(prefix="once-rec.")
        store = Store(kind, folder)
        try:
            case(store)
        finally:
            store.close()
            if not os.environ.get("ONCE_TEST_KEEP"):
                shutil.rmtree(folder)

    run_results([(case.__name__, functools.partial(run_one, case)) for case in cases], sys.argv[2:])
    finish()


def stopped(process):
    return is_stopped(process.pid)


def go_on(process):
    process.send_signal(signal.SIGCONT)
