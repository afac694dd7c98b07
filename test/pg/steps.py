"""Processes that run step.c, to be steered from a test."""
import os
import select
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from lib.wait import SECONDS


class Step:
    """send() hands in a line, get() waits for its answer, ask() does both."""
    def __init__(self, url):
        self.p = subprocess.Popen([os.environ["ONCE_STEP"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.seen = b""
        self.opened = self.ask("open " + url)

    def send(self, line):
        self.p.stdin.write(line.encode() + b"\n")
        self.p.stdin.flush()

    def has_answered(self, seconds=0):
        while b"\n" not in self.seen and select.select([self.p.stdout], [], [], seconds)[0]:
            data = os.read(self.p.stdout.fileno(), 65536)
            if not data:
                return False
            self.seen += data
        return b"\n" in self.seen

    def get(self):
        if not self.has_answered(SECONDS):
            return "(no answer)"
        line, self.seen = self.seen.split(b"\n", 1)
        return line.decode()

    def ask(self, line):
        self.send(line)
        return self.get()

    def close(self):
        self.p.stdin.close()
        try:
            self.p.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()
        self.p.stdout.close()
        return self.p.returncode


def value(answer, name):
    """of name=value in an answer"""
    for word in answer.split():
        if word.startswith(name + "="):
            return word[len(name) + 1:]
    return None
