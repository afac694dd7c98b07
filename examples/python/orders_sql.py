#!/usr/bin/env python3
"""A shop that takes each order once, with Once's SQL functions in its own transactions (psycopg 3).

    POST /orders {"item": "tea", "amount": 2500}    booked, charged at the payment provider, its receipt staged
    POST /stock  {"item": "tea", "count": 5}        goods came in: nothing but our own database

An order is three steps. Each transaction commits its writes together with what Once has to know of them:

    transaction   claim the key, book the order, record the recovery point `ordered`
    call          charge, with a key that is derived from the record: the same on every attempt
    transaction   the order is paid, its receipt is in the outbox, the answer is stored

Killed anywhere, the next request with the same key goes on at `ordered` as soon as the lease is over, with the same
order and the same key for the provider. That is what `takeover => 'rerun'` allows, and it is right because the provider
honours keys. One that does not, and cannot be asked: 'escalate' (the record becomes `unknown`, and a person looks). One that
can be asked: 'probe' (the claim says `probe`: ask first). docs/sql.md has all functions.

DATABASE_URL has the schema `once` (once migrate) and schema.sql; PROVIDER_URL, PORT, ORDERS_LEASE: see below.
"""
import http.client
import json
import os
import re
import sys
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import psycopg
from psycopg.rows import namedtuple_row

DATABASE = os.environ.get("DATABASE_URL", "postgresql://127.0.0.1/shop?user=shop")
PROVIDER = os.environ.get("PROVIDER_URL", "http://127.0.0.1:9100")
PORT = int(os.environ.get("PORT", "9000"))
LEASE = os.environ.get("ORDERS_LEASE", "30 seconds")  # longer than the call may take: then nobody has to renew it
CALL_SECONDS = float(os.environ.get("ORDERS_CALL_SECONDS", "10"))
BODY_MAX = 65536
TENANT = "shop"  # of many shops in one database: whoever is logged in, so that they do not meet each other's keys


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: list[tuple[str, str]]


class Refused(Exception):
    """What the client sent is no order: nothing was claimed, the key is as good as new."""


class NotCharged(Exception):
    """The provider certainly did nothing."""


class MaybeCharged(Exception):
    """No answer that says anything."""


def transaction():
    """`with transaction() as db`: committed at the end of the block, rolled back if it raises. (From a psycopg_pool, in earnest.)"""
    return psycopg.connect(DATABASE, row_factory=namedtuple_row)


# ---------------------------------------------------------------- POST /orders

def post_order(key, body):
    item, amount = read(body, "amount")
    claim, order, charge_key = begin_order(key, body, item, amount)
    if claim.arm != "execute":
        return answer_from(claim)
    try:
        charge = call_provider(order, amount, charge_key)
    except NotCharged:
        # It stays `failed`, to be retried, at `ordered`: whoever asks next need not wait for the lease.
        with transaction() as db:
            db.execute("SELECT once.release(%s, %s)", (claim.record, claim.fence))
        return problem(503, "The payment provider is busy; ask again under the same key", ("Retry-After", "1"))
    except MaybeCharged:
        # Nobody knows, so it stays as it is; its lease is the pause until the same call is made again.
        with transaction() as db:
            db.execute("SELECT once.extend(%s, %s, '1 second')", (claim.record, claim.fence))
        return problem(503, "The payment provider did not answer; ask again under the same key", ("Retry-After", "1"))
    try:
        return end_order(claim, order, charge)
    except psycopg.Error as error:
        if error.sqlstate != "ONC01":
            raise
        # We were thought dead and somebody took over. Our writes are rolled back, and its answer is the answer.
        with transaction() as db:
            return answer_from(db.execute("SELECT * FROM once.lookup(%s, %s)", (TENANT, key)).fetchone())


def begin_order(key, body, item, amount):
    with transaction() as db:
        claim = db.execute(
            "SELECT * FROM once.claim(%s, %s, once.fingerprint(%s, 'POST', '/orders', '', %s, json => true),"
            " lease => %s::interval, takeover => 'rerun')", (TENANT, key, TENANT, body, LEASE)).fetchone()
        if claim.arm != "execute":
            return claim, None, None
        if claim.recovery_point == "ordered":  # an earlier attempt came as far as this
            order = int(claim.checkpoint)
        else:
            order = db.execute("INSERT INTO orders (item, amount, status) VALUES (%s, %s, 'new') RETURNING id",
                               (item, amount)).fetchone().id
            db.execute("SELECT once.advance(%s, %s, 'ordered', %s)", (claim.record, claim.fence, str(order).encode()))
        charge_key = db.execute("SELECT once.child_key(%s, 'charge') AS key", (claim.record,)).fetchone().key
    return claim, order, charge_key


def call_provider(order, amount, key):
    """'paid ch_17' or 'declined'. Outside of any transaction: nothing of ours is locked while they think."""
    request = urllib.request.Request(PROVIDER + "/charges", f"order={order}&cents={amount}".encode(),
                                     {"Idempotency-Key": f'"{key}"', "Content-Type": "application/x-www-form-urlencoded"})
    try:
        with urllib.request.urlopen(request, timeout=CALL_SECONDS) as answer:
            return answer.read(1000).decode()
    except urllib.error.HTTPError as error:
        if error.code == 402:
            return "declined"
        raise (NotCharged if error.code in (429, 503) else MaybeCharged) from error
    except urllib.error.URLError as error:
        raise (NotCharged if isinstance(error.reason, ConnectionRefusedError) else MaybeCharged) from error
    except (OSError, http.client.HTTPException) as error:
        raise MaybeCharged from error


def end_order(claim, order, charge):
    word, _, charge_id = charge.partition(" ")
    with transaction() as db:
        # If somebody took over meanwhile, this fails the transaction; from here to its end nobody can.
        db.execute("SELECT once.guard(%s, %s)", (claim.record, claim.fence))
        db.execute("UPDATE orders SET status = %s, charge = %s WHERE id = %s", (word, charge_id or None, order))
        if word == "paid":
            receipt = json.dumps({"order": order, "charge": charge_id}).encode()
            db.execute("SELECT once.enqueue('receipts', %s, %s, content_type => 'application/json')", (str(order), receipt))
            return finish(db, claim, 201, {"order": order, "status": "paid", "charge": charge_id}, "succeeded")
        # Declined is an outcome like any other: it is stored, and the card is not tried again under this key.
        return finish(db, claim, 402, {"order": order, "status": "declined"}, "failed")


# ---------------------------------------------------------------- POST /stock

def post_stock(key, body):
    """Where all of the work is in this database, one transaction is all there is to it. A second request with the
    same key waits for the first one's end, then replays it, or executes if it was rolled back."""
    item, count = read(body, "count")
    with transaction() as db:
        claim = db.execute(
            "SELECT * FROM once.claim(%s, %s, once.fingerprint(%s, 'POST', '/stock', '', %s, json => true))",
            (TENANT, key, TENANT, body)).fetchone()
        if claim.arm != "execute":
            return answer_from(claim)
        now = db.execute("INSERT INTO stock VALUES (%s, %s) ON CONFLICT (item) DO UPDATE SET count = stock.count + excluded.count"
                         " RETURNING count", (item, count)).fetchone().count
        return finish(db, claim, 200, {"item": item, "count": now}, "succeeded")


# ---------------------------------------------------------------- answers

def finish(db, claim, status, document, state):
    """Stores the answer with the work. What is given back is sent only after the transaction's commit."""
    body = json.dumps(document).encode() + b"\n"
    db.execute("SELECT once.finish(%s, %s, %s, %s, %s, state => %s)",
               (claim.record, claim.fence, status, body, "Content-Type: application/json\r\n", state))
    return Answer(status, body, [("Content-Type", "application/json")])


def answer_from(record):
    """What to say when we are not the one who executes."""
    if record.arm == "mismatch":
        return problem(422, "This key was used for another request")
    if record.state == "unknown":
        return problem(502, "It is not known how this ended; somebody will look", ("Idempotency-Outcome", "unknown"))
    if record.state in ("succeeded", "failed") and not record.retryable:
        lines = bytes(record.headers or b"").decode("latin-1").splitlines()
        headers = [tuple(line.split(": ", 1)) for line in lines]
        return Answer(record.status, bytes(record.body or b""), headers + [("Idempotency-Replayed", "true")])
    seconds = -(-(record.retry_after_ms or 0) // 1000)
    return problem(409, "This request is being worked on", ("Retry-After", str(max(seconds, 1))))


def problem(status, title, *headers):
    body = json.dumps({"title": title, "status": status}).encode() + b"\n"
    return Answer(status, body, [("Content-Type", "application/problem+json"), *headers])


# ---------------------------------------------------------------- HTTP

def read(body, number):
    """The item, and the member called `number`."""
    try:
        document = json.loads(body.decode())
        item, value = document["item"], document[number]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Refused from error
    if not isinstance(item, str) or not re.fullmatch(r"[A-Za-z0-9 ._-]{1,100}", item):
        raise Refused
    if type(value) is not int or not 1 <= value <= 10**9:
        raise Refused
    return item, value


def read_key(fields):
    """Quoted, as the draft has it, or bare, as many clients send it."""
    match = re.fullmatch(r'"([!#-\[\]-~]{1,255})"|([!#-\[\]-~]{1,255})', fields[0]) if len(fields) == 1 else None
    return match and (match.group(1) or match.group(2))


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    routes = {"/orders": post_order, "/stock": post_stock}

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        length = int(length) if re.fullmatch(r"[0-9]{1,9}", length) else -1
        body = self.rfile.read(min(max(length, 0), 16 * BODY_MAX))  # more than we take: or our answer may be lost with the rest
        if not 0 <= length <= BODY_MAX:
            self.close_connection = True  # which say() tells: who keeps connections must not send the next request here
            self.say(problem(411 if length < 0 else 413, f"A body of up to {BODY_MAX} bytes, with its length"))
            return
        key = read_key(self.headers.get_all("Idempotency-Key", []))
        handler = self.routes.get(self.path)
        if handler is None:
            self.say(problem(404, "POST /orders and POST /stock are all there is"))
        elif key is None:
            self.say(problem(400, "This needs one Idempotency-Key, of 1 to 255 visible characters"))
        else:
            self.say(self.run(handler, key, body))

    def run(self, handler, key, body):
        try:
            return handler(key, body)
        except Refused:
            return problem(400, "It takes a JSON object: an item and an amount for an order, an item and a count for stock")
        except psycopg.Error as error:
            # Also where the answer to a COMMIT was lost: whether it took effect is what the next request finds out.
            print(f"orders: {key}: {error}", file=sys.stderr, flush=True)
            return problem(503, "Ask again under the same key", ("Retry-After", "1"))

    def say(self, answer):
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Shop)
    print(f"orders: listening on http://127.0.0.1:{PORT}", flush=True)
    server.serve_forever()
