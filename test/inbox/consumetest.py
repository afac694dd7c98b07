"""What consume.py is written with: a NATS server, streams and messages in it, a fresh SQLite store, `once consume`."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [os.path.join(HERE, "../sql"), os.path.join(HERE, "../brokers"), os.path.join(HERE, "..")]
from nats import Nats
from sqltest import equal, finish, ok, once, skip_if, wait_for
from lib.tap import chosen, remark

skip_if(Nats.missing())
folder = tempfile.mkdtemp(prefix="once-consume-")
nats = Nats(os.path.join(folder, "nats"))
_store = [0]
LONG = "10m"  # a lease that nothing here waits for, and that does not run out on any machine


def store():
    return "sqlite:%s/store%d.db" % (folder, _store[0])


def stream(name, max_age_s=0):
    """A stream, its source, and a store that nobody has used."""
    _store[0] += 1
    answer = nats.ask("STREAM.CREATE." + name, {"name": name, "subjects": [name], "storage": "file", "max_age": max_age_s * 10 ** 9,
                                                "duplicate_window": 100 * 10 ** 6})
    assert "error" not in answer, answer
    return "%s/%s" % (nats.url, name)


def send(subject, payload, headers, again=False):
    """Published, and confirmed by the stream; `again`: as soon as its own window for repeats lets it through."""
    (nats.publish_again if again else nats.publish)(subject, headers, payload)


def command(source, arguments, name, lease):
    retention = [] if "--retention" in arguments else ["--retention", "never"]
    return [os.environ["ONCE_BIN"], "consume", source, "--store", store(), "--consumer", name, "--lease", lease, "--timeout", "300s",
            "--backoff", "1ms", "--backoff-max", "10ms", *retention, *arguments]


def consume(source, *arguments, name="c", lease=LONG, crash=None, env=None):
    """Until it is drained: exit status, and what it said."""
    environment = dict(os.environ, **(env or {}))
    if crash:
        environment["ONCE_CRASH"] = crash
    done = subprocess.run(command(source, arguments, name, lease) + ["--drain"], env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=600)
    return done.returncode, done.stdout


def start(source, *arguments, name="c", lease=LONG):
    return subprocess.Popen(command(source, arguments, name, lease), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def last_report(said):
    return json.loads([line for line in said.splitlines() if line.startswith("{")][-1])


def letters():
    code, said = once("inbox", "list", "--store", store(), "--json")
    assert code == 0, said
    return [json.loads(line) for line in said.splitlines()]


def main(cases):
    try:
        nats.start()
        for name, function in chosen(cases, sys.argv[1:]):
            remark(name)
            function()
    finally:
        nats.kill()
        shutil.rmtree(folder, ignore_errors=True)
    finish()
