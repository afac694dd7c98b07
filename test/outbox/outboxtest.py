"""What the tests of the outbox share: relays that are started and killed, and the checks of K12."""
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../sql"), os.path.join(HERE, "../brokers"), os.path.join(HERE, "..")]
from receiver import Receiver
from standing import forget, psql
import sqltest
from sqltest import SECONDS, Session, equal, finish, migrated, ok, once, skip_if, terminate, url, wait_for  # noqa: F401, for tests that import this

ONCE = os.environ["ONCE_BIN"]
# Times that do not run out, however busy the machine is: a receiver that is slow has not refused, a relay that is slow is not dead.
# Where a relay was killed, expire() is the end of its lease.
QUICK = ["--backoff", "10ms", "--backoff-max", "100ms", "--timeout", "60s", "--lease", "120s"]


class Relay:
    """`once relay`, under way."""
    def __init__(self, store, *arguments, crash=None, log=None):
        env = dict(os.environ)
        if crash:
            env["ONCE_CRASH"] = crash
        if log:
            env["ONCE_CRASH_LOG"] = log
        self.p = subprocess.Popen([ONCE, "relay", "--store", store, *arguments], env=env, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)

    def kill(self):
        self.p.kill()
        self.p.wait()
        self.p.stdout.close()

    def alive(self):
        return self.p.poll() is None

    def stop_by_itself(self):
        """Waits for its end; its exit status, negative: the signal."""
        self.p.stdout.read()
        self.p.stdout.close()
        return self.p.wait()

    def stop(self):
        """Its exit status, and what it said."""
        terminate(self.p)
        said = self.p.stdout.read()
        code = self.p.wait()
        self.p.stdout.close()
        return code, said


def drain(store, *arguments, **environment):
    return once("relay", "--store", store, "--drain", *QUICK, *arguments, **environment)


def expire():
    """Every lease is over: of relays that are dead, and of those that are alive, which then only repeat what others do too (FAULT-6)."""
    return psql("UPDATE once.outbox_lane SET lease_until = least(lease_until, 1)")


def server(*action):
    forget()
    sqltest.server(*action)


def start():
    forget()
    sqltest.start()


def restart(how="immediate"):
    server("stop", "-m", how)
    start()


def outbox_is_empty():
    return psql("SELECT pending + stalled + scheduled FROM once.outbox_counts()") == "0"


def per_key_in_order(receiver):
    """Payloads are KEY/NUMBER. First arrivals of each key must be in ascending order: the keys for which they are not."""
    last, bad = {}, []
    for payload in receiver.firsts():
        key, number = payload.rsplit("/", 1)
        if int(number) <= last.get(key, -1):
            bad.append((key, last[key], int(number)))
        last[key] = max(int(number), last.get(key, -1))
    return bad
