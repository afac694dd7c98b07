"""What the tests of `once reconcile` are written with: a store of each kind, records in each
state, TAP. Every case has a folder and a store of its own."""
import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ONCE = os.environ["ONCE_BIN"]
MAKER = os.environ["ONCE_TEST_MAKER"]
SECONDS = float(os.environ.get("ONCE_TEST_SECONDS", "120"))
SIZE = int(os.environ.get("SIZE", "1"))
_number = _failed = 0
_case = ""


def ok(passed, name, *notes):
    global _number, _failed
    _number += 1
    if not passed:
        _failed += 1
        for note in notes:
            for line in str(note).splitlines():
                print("# " + line)
    print("%sok %d - %s: %s" % ("" if passed else "not ", _number, _case, name), flush=True)


def equal(got, expected, name, *notes):
    ok(got == expected, name, "got:      %r" % (got,), "expected: %r" % (expected,), *notes)


def wait_for(condition, what):
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.01)


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
            path = os.path.join(folder, "s")
            self.daemon = subprocess.Popen([ONCE, "daemon", "--store", file, "--socket", path, "--quiet", "--http", "off"],
                                           stdout=subprocess.PIPE)
            self.daemon.stdout.readline()
            self.url = "once:" + path
        else:
            name = "case%d" % time.monotonic_ns()
            psql = os.path.join(os.environ["ONCE_TEST_POSTGRES_BIN"], "psql")
            subprocess.run([psql, "-Xq", "-d", os.environ["ONCE_TEST_POSTGRES"], "-c", "CREATE DATABASE " + name], check=True)
            self.url = os.environ["ONCE_TEST_POSTGRES"].replace("///postgres?", "///%s?" % name)
        if kind != "remote":
            subprocess.run([ONCE, "migrate", "--store", self.url, "--quiet"], check=True, stdout=subprocess.DEVNULL)

    def close(self):
        if self.daemon:
            self.daemon.terminate()
            self.daemon.wait()
            self.daemon.stdout.close()

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
    global _case
    wanted = sys.argv[2:]
    for case in cases:
        _case = case.__name__
        if wanted and not any(word in _case for word in wanted):
            continue
        folder = tempfile.mkdtemp(prefix="once-rec.")
        store = Store(kind, folder)
        try:
            case(store)
        except Exception as error:  # the other cases still count
            ok(False, "goes through", repr(error))
        finally:
            store.close()
            if not os.environ.get("ONCE_TEST_KEEP"):
                shutil.rmtree(folder)
    print("1..%d" % _number)
    sys.exit(_failed != 0)


def stopped(process):
    with open("/proc/%d/stat" % process.pid, encoding="ascii", errors="replace") as file:
        return ") T " in file.read()


def go_on(process):
    process.send_signal(signal.SIGCONT)
