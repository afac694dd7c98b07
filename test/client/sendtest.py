"""What the client's suites share: a service that honours keys and answers badly, and `once send` as a process.

The service is the gateway suites' scripted upstream (../gateway/upstream.py) with behaviours of its own. A behaviour that
takes effect asks honour() first: one effect per key, whatever the number of tries, like any server that keeps keys.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "gateway"))
import upstream
from gateway import BOUND_S, Failed, ONCE, Suite, expect, expect_equal, kill, new_token, shorten, skip_all, wait_for  # noqa: F401
from upstream import Upstream, behaviour

# What is synced here is there after a crash of the process, which is what is tested; that it is synced, strace tells.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
LOCK = threading.Lock()
TRIES = {}       # token -> requests seen, whole ones and others
KEYS = {}        # token -> values of the key's header, in order
REQUESTS = {}    # token -> (method, target, headers, body) of each whole request
EFFECTS = {}     # (token, key) -> number of the effect


def attempt(c):
    """The number of this request of its token, from 1."""
    with LOCK:
        TRIES[c.token] = TRIES.get(c.token, 0) + 1
        KEYS.setdefault(c.token, []).append(c.header("idempotency-key") or c.header("paypal-request-id"))
        return TRIES[c.token]


def honour(c):
    """Reads the request and takes effect, unless its key did before. Is it a replay?"""
    c.read_body()
    key = c.header("idempotency-key") or c.header("paypal-request-id")
    with LOCK:
        REQUESTS.setdefault(c.token, []).append((c.method, c.path, c.headers, c.body))
        replayed = (c.token, key) in EFFECTS
        if not replayed:
            EFFECTS[(c.token, key)] = len([k for k in EFFECTS if k[0] == c.token]) + 1
    return replayed


def effects(token):
    with LOCK:
        return len([k for k in EFFECTS if k[0] == token])


def answer(c, replayed=False, status=201, more=(), body=None):
    lines = ["Content-Type: text/plain", *more] + (["Idempotency-Replayed: true"] if replayed else [])
    c.answer(status, lines, "done %s\n" % c.token if body is None else body, "Fine")


def problem(c, status, code, retryable, more=(), title="Title"):
    document = {"type": "urn:once:problem:" + code, "title": title, "status": status, "code": code, "retryable": retryable}
    c.answer(status, ["Content-Type: application/problem+json", *more], json.dumps(document), "Problem")


class Send:
    """`once send` in a folder of its own, against one Upstream."""

    def __init__(self, word="send"):
        self.folder = tempfile.mkdtemp(prefix="once-send-", dir=MEMORY)
        self.token = new_token(word)
        self.state = os.path.join(self.folder, "state")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if os.environ.get("ONCE_TEST_KEEP"):
            print("# kept: %s" % self.folder)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def url(self, port, name, host="127.0.0.1", scheme="http"):
        return "%s://%s:%d/x/%s" % (scheme, host, port, name)

    def environment(self, more=None):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ONCE_") and not k.lower().endswith("_proxy")}
        kept["XDG_STATE_HOME"] = self.path("xdg")
        kept.update({k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")})
        kept.update(more or {})
        return kept

    def start(self, *arguments, env=None, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE):
        return subprocess.Popen([ONCE, "send", "--state", self.state, "--backoff", "5ms", *arguments], cwd=self.folder, stdin=stdin,
                                stdout=stdout, stderr=subprocess.PIPE, env=self.environment(env))

    def run(self, *arguments, env=None, data=None, stdout=subprocess.PIPE):
        """status, stdout, stderr"""
        process = self.start(*arguments, env=env, stdin=subprocess.PIPE if data is not None else subprocess.DEVNULL, stdout=stdout)
        try:
            out, err = process.communicate(data, BOUND_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Failed("once send %s does not end" % " ".join(arguments))
        text = err.decode("utf-8", "replace")
        expect("Sanitizer" not in text and "runtime error" not in text, text)
        return process.returncode, out, text

    def post(self, port, name, *arguments, token=True, **named):
        mark = ["-H", "X-Test: " + self.token] if token else []
        return self.run("POST", self.url(port, name), *mark, *arguments, **named)

    def kept(self):
        """What is kept, as --list --json tells it."""
        status, out, err = self.run_plain("--list", "--json")
        expect_equal(status, 0, "exit status of --list: " + err)
        return [json.loads(line) for line in out.decode().splitlines()]

    def run_plain(self, *arguments):
        run = subprocess.run([ONCE, "send", "--state", self.state, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment(), timeout=BOUND_S)
        return run.returncode, run.stdout, run.stderr.decode("utf-8", "replace")

    def one_key(self):
        """The key that all tries had."""
        keys = set(KEYS.get(self.token, []))
        expect_equal(len(keys), 1, "different keys sent: %s" % keys)
        return keys.pop()

    def files(self):
        return sorted(os.listdir(self.state)) if os.path.isdir(self.state) else []
