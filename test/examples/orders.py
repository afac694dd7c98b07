#!/usr/bin/env python3
"""The shop of examples/ in every language, as processes: paid, refused, raced, killed -9 in each of its phases and asked again. One
order, one charge, one receipt, and the same bytes ever after. A language that is not installed is skipped.

    orders.py postgres [CASE...]     under with-postgres --tcp; SIZE=2: what SIZE=1 leaves out; SIZE=3: all of it

Nothing in the examples helps: they are killed from outside. Triggers on the table `orders` wait for advisory locks, one
inside each transaction and one at the end of its COMMIT; the test holds the lock, and kills the service in the middle; or stops
it, lets the COMMIT through, and kills it before it can hear of that. The payment provider holds calls likewise.
"""
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "../orders"))
import harness  # noqa: E402
from harness import BOUND_S, ONCE, SIZE, Case, Failed, PostgresBooks, Skipped, expect, free_port, is_stopped, request, tap, wait_for  # noqa: E402
import toolchains  # noqa: E402

_spec = importlib.util.spec_from_file_location("serve_harness", os.path.join(HERE, "../serve/harness.py"))
serving = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(serving)

ORDER = {"item": "tea", "amount": 2500}
# Neither a lease nor a call ends by itself, however busy the machine is: where a lease's end is wanted, end_leases() is it. Only the
# gateway's are short where its completer waits for their end.
LEASE_S, SHORT_LEASE_S, CALL_S = 600, 3, 300
# Where it can be killed, in the order of an order, and the lock that is waited for there.
GATES = {"booking": 1, "booked": 2, "paying": 3, "paid": 4}
PLACES = ["booking", "booked", "hold", "hold-answer", "paying", "paid"]
BUILT = {}

TRIGGERS = """
CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN PERFORM pg_advisory_xact_lock_shared(TG_ARGV[0]::bigint); RETURN NULL; END$$;
CREATE TRIGGER booking AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION gate(1);
CREATE CONSTRAINT TRIGGER booked AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION gate(2);
CREATE TRIGGER paying AFTER UPDATE OF status ON orders FOR EACH ROW EXECUTE FUNCTION gate(3);
CREATE CONSTRAINT TRIGGER paid AFTER UPDATE OF status ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION gate(4);
"""


class Books(PostgresBooks):
    """As the examples want it: a role `shop` that may do no more than docs/sql.md says, and owns its tables."""

    def make(self, name):
        if PostgresBooks.made == 1:
            self.admin("CREATE ROLE shop LOGIN")
            self.admin("CREATE DATABASE shop0 OWNER shop")
            subprocess.run([ONCE, "migrate", "--store", self.of("shop0")], check=True, stdout=subprocess.DEVNULL)
            self.admin("GRANT once_app TO shop")
            with open(os.path.join(toolchains.EXAMPLES, "schema.sql"), encoding="utf-8") as file:
                self.psql(self.of("shop0").replace("user=postgres", "user=shop"), file.read())
            self.psql(self.of("shop0"), TRIGGERS)
        self.admin("CREATE DATABASE %s TEMPLATE shop0" % name)
        PostgresBooks.pool.append(name)

    @property
    def service_url(self):
        return "postgresql://127.0.0.1:%s/%s?user=shop" % (os.environ["ONCE_TEST_POSTGRES_PORT"], self.name)

    def close(self):
        self.end_session()
        self.psql(self.url, "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database() "
                            "AND pid <> pg_backend_pid(); TRUNCATE orders, stock, once.claim, once.result, once.progress, "
                            "once.outbox, once.audit")
        with harness._lock:
            PostgresBooks.pool.append(self.name)


harness.BOOKS["postgres"] = Books


class Gate:
    """Holds whoever comes to that place."""

    def __init__(self, case, place):
        self.books, self.number = case.books, GATES[place]
        psql = os.path.join(os.environ["ONCE_TEST_POSTGRES_BIN"], "psql")
        self.process = subprocess.Popen([psql, "-XqAt", "-d", self.books.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write("SELECT pg_advisory_lock(%d);\n\\echo held\n" % self.number)
        self.process.stdin.flush()
        while "held" not in self.process.stdout.readline():
            expect(self.process.poll() is None, "psql ended")

    def has_somebody(self):
        return self.books.rows("SELECT 1 FROM pg_locks JOIN pg_database ON oid = database WHERE datname = current_database() "
                               "AND locktype = 'advisory' AND objid = %d AND NOT granted" % self.number)

    def open(self):
        self.process.stdin.close()
        self.process.wait(timeout=BOUND_S)
        self.process.stdout.close()


class Shop(Case):
    """A case: a database, a provider, a service in some language; `gateway` in front of it, if there is one."""

    def __init__(self, root, name):
        super().__init__(root, name)
        self.language, self.kind = name.split()[:2]
        self.world = self.gateway = None
        self.port = free_port()
        built = BUILT[self.language]
        if isinstance(built, toolchains.Missing):
            self.program = None
        elif isinstance(built, Exception):
            self.close()
            raise Failed(str(built))
        else:
            self.program = built[self.kind]

    def begin(self, provider=(), lease_s=LEASE_S):
        """The provider, the service and, if that is wanted, the gateway. Returns the service."""
        self.lease_s = lease_s
        if self.program is None:
            raise Skipped(str(BUILT[self.language]))
        if provider is not None:
            self.provider(*provider)
        if self.kind == "gateway":
            try:
                serving.need_module()
            except Skipped as why:
                raise Skipped(str(why)) from why
            self.world = serving.World("examples")
            self.api = free_port()
            self.gateway = self.world.serve("--required", "--takeover", "rerun", "--complete", "--lease", "%ds" % lease_s,
                                            "--http", "127.0.0.1:%d" % self.api, upstream="http://127.0.0.1:%d" % self.port)
        shop = self.shop()
        if self.gateway:
            self.gateway.ready()
        return shop

    def shop(self, port=None):
        port = port or self.port
        environment = {"DATABASE_URL": self.books.service_url, "PROVIDER_URL": "http://127.0.0.1:%d" % self.provider_port,
                       "PORT": str(port), "ORDERS_LEASE": "%d seconds" % self.lease_s, "ORDERS_CALL_SECONDS": str(CALL_S)}
        if self.gateway:
            environment["ONCE_API"] = "http://127.0.0.1:%d" % self.api
        process = self.start(self.program, ready=True, env=environment)
        process.port = port
        return process

    def ask(self, body=None, key="k", path="/orders", port=None, alone=True):
        """Of the gateway, where there is one. Where its daemon was late nothing was executed, and it is asked again; by whoever is alone
        with that key, until the claim that came too late was given back."""
        body = body if isinstance(body, (bytes, str)) else json.dumps(body or ORDER)
        due, until = (b'"store-unavailable"',), time.monotonic() + BOUND_S
        while True:
            answer = request(port or (self.gateway.port if self.gateway else self.port), "POST", path, body, key)
            if not answer or not any(code in answer.body for code in due) or time.monotonic() > until:
                return answer
            due = (b'"store-unavailable"', b'"in-progress"') if alone else due
            time.sleep(0.1)

    def ask_until_final(self, body=None, key="k", port=None):
        def once():
            answer = self.ask(body, key, port=port)
            return answer if answer and (answer.status not in (409, 502, 503, 504) or answer.unknown) else None
        return wait_for(once, "a final answer")

    def record(self, key="k"):
        """In the gateway's store."""
        return json.loads(request(self.api, "GET", "/v1/records?key=" + key).body)

    def end_leases(self):
        """Of services that are dead, or stopped; in their own database."""
        self.books.psql(self.books.url, "UPDATE once.claim SET lease_ms = 1; UPDATE once.progress SET lease_until = 1")

    def orders_in_books(self):
        return self.books.rows("SELECT id, status, coalesce(charge, '') FROM orders")

    def check_one(self, answer, when):
        """One of everything, and that is what the answer says."""
        expect(answer.status == 201, "%s: %s" % (when, answer))
        orders, charges, receipts = self.orders_in_books(), self.charges(), self.receipts()
        told = json.loads(answer.body)
        expect(len(charges) == 1, "%s: charges %s" % (when, charges))
        expect(orders == [(str(told["order"]), "paid", told["charge"])], "%s: orders %s, answer %s" % (when, orders, told))
        expect(charges[0][1] == "order=%d&cents=%d" % (told["order"], ORDER["amount"]), "%s: charged for %s" % (when, charges))
        expect(len(charges[0][0]) == 48, "%s: the provider's key is %s" % (when, charges))
        if self.kind == "sql":
            expect(receipts == [(str(told["order"]),)], "%s: receipts %s" % (when, receipts))
        again = self.ask()
        expect(again and again.replayed and (again.status, again.body) == (answer.status, answer.body),
               "%s: then %s, first %s" % (when, again, answer))
        expect(len(self.charges()) == 1, "%s: a replay charged" % when)
        if self.kind == "sql":
            self.check_books(when)

    def end_all(self):
        found = super().end_all()
        if self.world:
            found += "".join("in the gateway's log: %s\n" % line for line in self.world.alarms())
        return found

    def close(self):
        if self.world:
            self.world.close()
        super().close()


def asked(case, shop=None):
    """A client that waits, in a thread, and the list that its answer will be in."""
    answers = []
    client = threading.Thread(target=lambda: answers.append(case.ask(port=shop.port if shop and not case.gateway else None)))
    client.start()
    return client, answers


def die(case, shop, place):
    """Asks, and kills the service at the place."""
    gate = None
    if place in GATES:
        gate = Gate(case, place)
    else:
        case.mode(place)
    client, answers = asked(case)
    wait_for(lambda: gate.has_somebody() if gate else case.held() == 1, "somebody at " + place)
    if place in ("booked", "paid"):
        shop.send_signal(signal.SIGSTOP)
        wait_for(lambda: is_stopped(shop.pid), "the service to stop")
        gate.open()
        wanted = {"booked": "new", "paid": "paid"}[place]
        wait_for(lambda: [row[1] for row in case.orders_in_books()] == [wanted], "the commit")
        shop.kill()  # without the SIGCONT of Case.kill: it must not hear of its commit
        shop.wait(timeout=BOUND_S)
    else:
        case.kill(shop)
        if gate:
            gate.open()
        else:
            case.mode("ok")
    client.join()
    answer = answers[0]
    expect(answer is None or answer.status in (502, 504), "the client of a service that died was told %s" % answer)


# ---------------------------------------------------------------- cases

HOSTILE = [b"", b"{", b"[]", b"null", b'"tea"', b"17", b"{}", b'{"item": "tea"}', b'{"amount": 5}', b"[" * 20000, b'{"item": {}, "amount": 5}',
           b'{"item": "tea", "amount": "5"}', b'{"item": "tea", "amount": 1.5}', b'{"item": "tea", "amount": true}',
           b'{"item": "tea", "amount": 0}', b'{"item": "tea", "amount": -5}', b'{"item": "tea", "amount": 1e99}',
           b'{"item": "tea", "amount": 100000000000000000000000000000000}', b'{"item": "", "amount": 5}',
           b'{"item": "a\\u0000b", "amount": 5}', b'{"item": "\\ud800", "amount": 5}', b'{"item": "\xff", "amount": 5}',
           b'{"item": "' + b"x" * 101 + b'", "amount": 5}', b'{"item": "tea\\n", "amount": 5}', b'{"item": "tea", "amount": 5} x']


def refused(case, shop):
    """What is no order is nothing at all. (Behind the gateway it is an outcome, which is stored.)"""
    for number, body in enumerate(HOSTILE):
        answer = case.ask(body, "bad-%d" % number)
        expect(answer and answer.status == 400, "%r: %s" % (body[:60], answer))
    answer = case.ask(b'{"item": "' + b"x" * 70000 + b'", "amount": 5}', "large")
    expect(answer is None or answer.status == 413, "70000 bytes: %s" % answer)
    expect(case.ask(key=None).status == 400, "without a key")
    for key in ("", "x" * 256, "a b"):
        if not case.gateway:  # which knows more forms of keys
            expect(case.ask(key=key).status == 400, "the key %r" % key)
    answer = case.ask(key="other", path="/other")
    expect(answer.status == 404, "another path: %s" % answer)
    with socket.create_connection(("127.0.0.1", shop.port)) as garbage:
        garbage.sendall(b"\x16\x03\x01 no HTTP at all\r\n\r\n")
    expect(case.orders_in_books() == [] and case.charges() == [], "orders %s, charges %s" % (case.orders_in_books(), case.charges()))
    if not case.gateway:
        expect(case.books.rows("SELECT count(*) FROM once.claim") == [("0",)], "something was claimed")


def usual(case):
    """Refused, paid, replayed; another body; without the gateway, nobody."""
    shop = case.begin()
    refused(case, shop)
    first = case.ask()
    expect(not first.replayed, "first %s" % first)
    case.check_one(first, "paid")
    expect(case.ask({"item": "tea", "amount": 2501}).status == 422, "another order under the same key")
    if not case.gateway:  # which looks into a body only if its type says JSON
        same = case.ask('{"amount":2500,  "item":"tea"}')
        expect(same.replayed and same.body == first.body, "the same order, written otherwise: %s" % same)
    else:
        for forged in ({}, {"Once-Fence": "1"}, {"Once-Fence": "1, 2", "Once-Record": "x", "Once-Key": "y"}):
            answer = serving.request(case.port, "/orders", "k", json.dumps(ORDER), **forged)
            expect(answer and answer[0] == 400, "asked without the gateway, with %s: %s" % (forged, answer))


def killed(place):
    """kill -9 there, a new service, and the client asks again."""
    def function(case):
        die(case, case.begin(), place)
        if case.gateway and place in ("paying", "paid"):
            case.mode("busy")  # the charge is in the checkpoint: nobody need be asked for it
        case.end_leases()
        case.shop()
        answer = case.ask_until_final()
        if place == "paid" and case.kind == "sql":
            expect(answer.replayed, "the outcome was committed, and executed again: %s" % answer)
        case.check_one(answer, "killed at " + place)
    return function


def in_parallel(case):
    """Ten at once with one key: one executes, and all are told the same in the end."""
    case.begin()
    case.mode("hold")
    with ThreadPoolExecutor(10) as pool:
        for _ in range(20):
            waiting = [pool.submit(case.ask, alone=False) for _ in range(10)]
            wait_for(lambda: sum(f.done() for f in waiting) >= 9, "nine to be told that it is in progress")
            wait_for(lambda: case.held() == 1 or all(f.done() for f in waiting), "the tenth to call")
            if not all(f.done() and f.result().status == 409 for f in waiting):
                break  # else a claim that came too late was in the way of all of them
        case.mode("ok")
        answers = [f.result() for f in waiting]
    expect(sorted(a.status for a in answers) == [201] + [409] * 9, "answers %s" % answers)
    case.check_one(next(a for a in answers if a.status == 201), "ten at once")


def declined(case):
    case.begin(provider=["--mode", "decline"])
    first = case.ask()
    expect(first.status == 402 and not first.replayed, "declined: %s" % first)
    case.mode("ok")
    again = case.ask()
    expect(again.replayed and (again.status, again.body) == (402, first.body), "then %s" % again)
    expect(case.charges() == [] and [row[1] for row in case.orders_in_books()] == ["declined"], "orders %s" % case.orders_in_books())
    expect(case.receipts() == [], "a receipt")


def away(case):
    """The provider is not there, then busy, then drops the connection with the charge made; it is one order throughout."""
    case.begin(provider=None)
    expect(case.ask().status == 503, "nobody there")
    case.provider("--mode", "busy")
    expect(case.ask().status == 503, "busy")  # at once: nothing was sent, so there is nothing to wait for
    case.mode("drop")
    lost = case.ask()
    expect(lost.status == 503, "dropped: %s" % lost)
    expect(len(case.charges()) == 1, "charges %s" % case.charges())
    case.mode("ok")
    case.end_leases()
    case.check_one(case.ask_until_final(), "asked again")


def stock(case):
    """One transaction: all of many with one key are answered with its outcome."""
    shop = case.begin(provider=None)
    goods = {"item": "tea", "count": 5}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: case.ask(goods, "delivery-1", "/stock"), range(8)))
    expect({(a.status, a.body) for a in answers} == {(200, answers[0].body)} and json.loads(answers[0].body) == {"item": "tea", "count": 5},
           "answers %s" % answers)
    expect(sum(not a.replayed for a in answers) == 1, "executed by %s" % answers)
    expect(case.ask(goods, "delivery-1").status == 400 and case.ask({"item": "tea", "count": 6}, "delivery-1", "/stock").status == 422,
           "something else under the same key")
    expect(json.loads(case.ask(goods, "delivery-2", "/stock").body)["count"] == 10, "another delivery")
    expect(case.ask({"item": "tea", "count": 0}, "delivery-3", "/stock").status == 400, "no delivery")
    case.kill(shop)
    case.shop()
    again = case.ask(goods, "delivery-1", "/stock")
    expect(again.replayed and again.body == answers[0].body, "after a kill: %s" % again)
    expect(case.books.rows("SELECT count FROM stock") == [("10",)], "stock %s" % case.books.rows("SELECT * FROM stock"))


def zombie(case):
    """Stopped during the call, and taken over; when it goes on, its writes are rolled back and it tells its client what the other did."""
    first = case.begin()
    second = case.shop(free_port())
    case.mode("hold")
    client, answers = asked(case, first)
    wait_for(lambda: case.held() == 1, "the call")
    first.send_signal(signal.SIGSTOP)
    wait_for(lambda: is_stopped(first.pid), "the service to stop")
    case.mode("ok")
    case.end_leases()
    answer = case.ask_until_final(port=second.port)
    first.send_signal(signal.SIGCONT)
    client.join()
    expect(answers[0] and answers[0].replayed and (answers[0].status, answers[0].body) == (answer.status, answer.body),
           "the late one says %s, the other %s" % (answers[0], answer))
    case.check_one(answer, "taken over")


def abandon(case):
    """A request at the provider, whose gateway lost its workers."""
    case.mode("hold")
    client, _ = asked(case)
    wait_for(lambda: case.held() >= 1, "the call")
    case.world.tolerate = "exited on signal 9|worker process"
    old = case.gateway.workers()
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    client.join()
    return old


def completed(case):
    """Gateway and service die; nobody asks again, and the daemon has it finished all the same, from the recovery point on."""
    shop = case.begin(lease_s=SHORT_LEASE_S)
    old = abandon(case)
    case.kill(shop)
    wait_for(lambda: case.gateway.has_new_workers(old), "new workers")
    expect(case.record()["state"] != "succeeded", "abandoned: %s" % case.record())
    expect(case.record()["recovery_point"] == "ordered", "abandoned: %s" % case.record())
    case.shop()
    case.mode("ok")
    wait_for(lambda: case.record()["state"] == "succeeded", "the completer")
    answer = case.ask_until_final()
    expect(answer.replayed, "executed by the client after all: %s" % answer)
    case.check_one(answer, "completed")


def fenced(case):
    """The gateway dies and the service does not: the daemon sends the request to it a second time, and the first is stopped."""
    shop = case.begin(lease_s=SHORT_LEASE_S)
    abandon(case)
    wait_for(lambda: case.held() >= 2, "the completer")
    case.mode("ok")
    wait_for(lambda: "fenced" in case.said(shop), "the first attempt to be told that it is over")
    wait_for(lambda: case.record()["state"] == "succeeded", "the second to end")
    answer = case.ask_until_final()
    expect(answer.replayed, "executed again: %s" % answer)
    case.check_one(answer, "fenced")


def main():
    if "ONCE_TEST_POSTGRES_PORT" not in os.environ:
        sys.exit("orders.py: run me under test/pg/with-postgres --tcp")
    cases = []
    for n, language in enumerate(toolchains.LANGUAGES):
        sql, gateway = language + " sql ", language + " gateway "
        # Not every place in every language every day: what is left out then is for SIZE=2, and SIZE=3 is all of it.
        today = {sql: PLACES[n + 2], gateway: PLACES[(n + 3) % 4 + 1]}
        for way, place in today.items():
            if SIZE != 2:
                cases.append((way + "usual", usual))
            places = [place] if SIZE == 1 else [p for p in PLACES if SIZE > 2 or p != place]
            cases += [(way + "killed at " + place, killed(place)) for place in places]
        if SIZE > 1:
            cases += [(sql + "in parallel", in_parallel), (gateway + "in parallel", in_parallel), (sql + "declined", declined),
                      (gateway + "declined", declined), (sql + "provider away", away), (gateway + "provider away", away),
                      (sql + "stock", stock), (sql + "zombie", zombie), (gateway + "completed", completed), (gateway + "fenced", fenced)]
    with tempfile.TemporaryDirectory(prefix="once-examples.") as root:
        os.chmod(root, 0o755)
        wanted = {name.split()[0] for name, _ in cases if not sys.argv[2:] or any(word in name for word in sys.argv[2:])}
        with ThreadPoolExecutor(4) as pool:
            BUILT.update(zip(wanted, pool.map(lambda language: toolchains.build(language, root), wanted)))
        tap(cases, at_a_time=4, world=Shop)


if __name__ == "__main__":
    main()
