"""What the drivers in this folder share: TAP, a directory per case, running `once`, waiting.

Nothing sleeps in the hope that something has happened by then: wait_for() polls, with a
bound. Every process that was started is waited for, or killed by its id, in the end.
"""
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib import wait
from lib.tap import Failed, expect, run as run_cases, skip_all  # noqa: F401, for the drivers

BOUND_S = 2 * wait.SECONDS
wait_for = functools.partial(wait.wait_for, seconds=BOUND_S)
ONCE = os.path.realpath(os.environ.get("ONCE_BIN") or sys.argv.pop(1))


class Case:
    """A directory with a store of its own, and the processes started in it."""

    def __init__(self, root, name):
        self.home = self.folder = tempfile.mkdtemp(prefix=name.replace(" ", "-").replace("/", "-") + ".", dir=root)
        self.started = []

    def path(self, name):
        return os.path.join(self.folder, name)

    def text(self, name):
        try:
            with open(self.path(name), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def lines(self, name):
        return self.text(name).splitlines()

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def clear(self):
        for name in os.listdir(self.folder):
            os.unlink(self.path(name))

    def anew(self):
        """Another directory: whatever still goes on in the one before changes nothing here."""
        self.folder = tempfile.mkdtemp(prefix="again.", dir=self.home)

    def environment(self, more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("ONCE_", "FAKETIME")) and k != "LD_PRELOAD"}
        env.update(ONCE_STORE="sqlite:" + self.path("once.db"), LC_ALL="C.UTF-8", TZ="UTC")
        env.update(more or {})
        return env

    def start(self, *arguments, env=None):
        process = subprocess.Popen([ONCE, *arguments], cwd=self.folder, env=self.environment(env), text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.started.append(process)
        return process

    def once(self, *arguments, env=None):
        """Runs to its end: (exit status, output, error output)."""
        return self.end(self.start(*arguments, env=env))

    def end(self, process):
        try:
            out, err = process.communicate(timeout=BOUND_S)
        except subprocess.TimeoutExpired as late:
            raise Failed(f"{process.args[1:4]} took more than {BOUND_S} s") from late
        return process.returncode, out, err

    def check(self, when, env=None, except_for=()):
        if not os.path.exists(self.path("once.db")):
            return  # it died before there was a store
        status, out, err = self.once("check", "--json", env=env)
        problems = json.loads(out)["problems"] if status in (0, 1) else None
        wrong = None if problems is None else [p for p in problems if p["invariant"] not in except_for]
        expect(wrong == [], f"{when}: once check: {status} {wrong} {err}")

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.communicate()
        shutil.rmtree(self.home, ignore_errors=True)


def tap(cases):
    """Runs (name, function of a Case that may return a remark), several at a time."""
    root = tempfile.mkdtemp(prefix="once-crash.")

    def run(name, function):
        case = Case(root, name)
        try:
            return function(case)
        finally:
            case.close()

    try:
        run_cases([(name, functools.partial(run, name, function)) for name, function in cases], sys.argv[1:], width=(os.cpu_count() or 2) + 1)
    finally:
        shutil.rmtree(root, ignore_errors=True)
