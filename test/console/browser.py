#!/usr/bin/env python3
"""The console in headless Chromium: every page, every action, bytes that are meant to hurt, 100,000 keys.

playwright-core comes from npm, into a private folder; without it, node or Chromium this is skipped. SIZE=N: N times
100,000 keys. ONCE_CONSOLE_SHOTS=FOLDER keeps the pictures that docs/console.md shows."""
import random
import signal
import threading
import time

from consoletest import *
sys.path.insert(0, os.path.join(HERE, "../outbox"))
from lib.npm import install
from lib.tap import skip_all
from receiver import Receiver

COUNT = 100000 * int(os.environ.get("SIZE", "1"))
SHOTS = os.environ.get("ONCE_CONSOLE_SHOTS")
UNKNOWNS = 5
TRACES = "http://traces.example/search?tags=%7B%22once.key_hash%22%3A%22{key_hash}%22%7D"
calm = threading.Event()


def load(daemon, number):
    """Requests of all kinds, until it is calm; harder and softer, so that there is something to see."""
    choose, turn = random.Random(number), 0
    while not calm.is_set():
        key = "checkout-%d-%05d" % (number, turn)
        turn += 1
        held = daemon.api("claim", key=key, tenant="shop")
        if choose.random() < 0.2:
            daemon.api("claim", key=key, tenant="shop")
        daemon.api("finish", record=held["record"], fence=held["fence"], state="succeeded", status=201, headers="Content-Type: application/json\r\n", body='{"order": %d}' % turn)
        for _ in range(choose.choice((0, 1, 1, 2))):
            daemon.api("claim", key=key, tenant="shop")
        if choose.random() < 0.08:
            daemon.api("claim", key=key, tenant="shop", fingerprint="11" * 32)
        if choose.random() < 0.05:
            daemon.api("claim", key="pay-5", tenant="acme")
        calm.wait(choose.random() * 0.04 * (1.3 + abs((time.monotonic() / 9) % 2 - 1)))


def stage(path):
    service = subprocess.Popen([os.environ["ONCE_TEST_ENQUEUE"], path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    receiver = Receiver(lambda payload: 500)

    def do(*steps):
        for step in ("begin", *steps, "commit"):
            service.stdin.write(step + "\n")
            service.stdin.flush()
            service.stdout.readline()
    do("message orders.paid order-17 <script>document.title='pwned'</script>", "message orders.paid order-18 receipt")
    subprocess.run([ONCE, "relay", "--store", "sqlite:" + path, "--route", "*=" + receiver.url(), "--attempts", "1", "--drain", "--quiet"], check=True, timeout=SECONDS)
    do("message orders.shipped order-19 parcel")
    service.stdin.close()
    service.wait()
    service.stdout.close()


def seed(daemon):
    for key in HOSTILE.values():
        daemon.record(key, tenant="hostile", finish="succeeded", status=200, headers="Content-Type: text/html\r\n", body_base64=b64(HOSTILE["a script"] + b"\0\x1b[31m" + key))
    for i in range(1, UNKNOWNS + 1):
        answered = {"status": 500, "headers": "Content-Type: text/plain\r\n", "body": "out of paper"} if i == 2 else {}
        daemon.record("pay-%d" % i, tenant="acme", finish="unknown", point="charged", **answered)
    daemon.record("stored", tenant="acme", finish="failed", retryable=True, status=503, point="charged")
    daemon.record("declined", tenant="acme", finish="failed", status=402, headers="Content-Type: application/json\r\n", body='{"error": "card declined"}')
    daemon.record("gone", tenant="acme", lease_ms=1)
    daemon.record("at-work", tenant="acme", lease_ms=3600000)


def hand_out(daemon):
    """A token for the browser: nobody else's any more."""
    token = daemon.token()
    daemon.used.add(token)
    return token


def answer(daemon, word, session):
    """What the browser's side asked for."""
    what, _, key = word.partition(" ")
    if what == "calm":
        calm.set()
        return "ok"
    if what == "claim":
        got = daemon.api("claim", tenant="acme", key=key)
        return "%s %s %s" % (got["arm"], got.get("status"), got.get("body", ""))
    if what == "resolve":
        done = subprocess.run([ONCE, "keys", "resolve", key, "--tenant", "acme", "--done", "--status", "200", "--reason", "meanwhile", "--store", "once:%s/once.sock" % daemon.folder, "--quiet"], timeout=SECONDS)
        return "ok" if done.returncode == 0 else "failed"
    if what == "token":
        return hand_out(daemon)
    if what == "crowd":
        return str(sum(isinstance(daemon.login(name="s%d" % i), Session) for i in range(16)))
    if what == "seen":
        held = daemon.api("claim", tenant="acme", key="seen", route="orders")
        grant = {"record": held["record"], "fence": held["fence"]}
        daemon.api("extend", **grant)
        daemon.api("advance", **grant, point="charged")
        daemon.api("finish", **grant, state="succeeded", status=201)
        return " ".join(daemon.api("claim", tenant="acme", key="seen", route="orders")["arm"] for _ in range(2))
    assert what == "outbox", word
    return " ".join(sorted(m["state"] for m in session.get("/api/outbox")[2]["messages"]))


def main():
    folder = tempfile.mkdtemp(prefix="once-console-")
    why = install(folder + "/npm", "playwright-core@1", os.path.join(HERE, "browser.mjs"), ("chromium", "node", "npm"))
    if why:
        shutil.rmtree(folder)
        skip_all(why)
    fill("sqlite:%s/once.db" % folder, COUNT)
    fill("sqlite:%s/once.db" % folder, "request")
    stage(folder + "/shop.db")
    daemon = Daemon("--console-outbox", "sqlite:%s/shop.db" % folder, "--console-traces", TRACES, folder=folder)
    seed(daemon)
    session = daemon.login(name="the test")
    threads = [threading.Thread(target=load, args=(daemon, i), daemon=True) for i in range(4)]
    for thread in threads:
        thread.start()
    with open(folder + "/npm/settings.json", "w", encoding="ascii") as file:
        json.dump({"origin": daemon.origin, "token": hand_out(daemon), "wrong": "0" * 64, "hostile": {name: b64(key) for name, key in HOSTILE.items()}, "count": COUNT,
                   "unknowns": UNKNOWNS, "traces": TRACES, "shots": os.path.abspath(SHOTS) if SHOTS else None, "patience": 60000 if SHOTS else 0, "chromium": shutil.which("chromium")}, file)
    browser = subprocess.Popen(["node", "browser.mjs", "settings.json"], cwd=folder + "/npm", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in browser.stdout:
        if line.startswith("# do "):
            browser.stdin.write(answer(daemon, line[5:].strip(), session) + "\n")
            browser.stdin.flush()
        else:
            print(line if line.startswith(("ok", "not ok", "#", "1..")) else "# " + line, end="", flush=True)
    calm.set()
    for thread in threads:
        thread.join()
    code = browser.wait()
    daemon.process.send_signal(signal.SIGTERM)
    ended = daemon.process.wait(SECONDS)
    shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if code != 0 or ended != 0 else 0)


main()
