#!/usr/bin/env python3
"""The same shop behind Once's gateway: no keys, no claims, no replays here; only how far a request has come.

    once serve --upstream http://127.0.0.1:9000 --required --takeover rerun --complete

The gateway lets each request through once at a time, and tells the service in header fields which one it is (docs/nginx.md):

    Once-Record, Once-Fence    who we are when we speak to the daemon's JSON API (docs/api.md)
    Once-Key                   the same on every attempt of a request, and on no other
    Once-Recovery-Point        how far an earlier attempt came; not there: nowhere
    Once-Checkpoint            what it kept there, as :base64:

The order is in our database and the recovery point in the daemon's: these are two commits, and we may be killed between them.
So what comes before a point must be harmless to repeat. The order's row is, for Once-Key is unique in it; the charge
is, for the provider honours the key that we send. A point saves the repetition, and keeps what it brought.

Whoever lost its request to a successor is told `fenced` by the JSON API, and stops: the gateway answers its client from
the record. Killed, the service is sent the request again: by the client's retry, or by the daemon without one (--complete).
`--takeover rerun` allows that, because all steps can be repeated; a service for which that is not so takes 'probe' or 'escalate'.

DATABASE_URL has the tables of schema.sql, and nothing of Once; PROVIDER_URL, ONCE_API, PORT: see below.
"""
import base64
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

DATABASE = os.environ.get("DATABASE_URL", "postgresql://127.0.0.1/shop?user=shop")
PROVIDER = os.environ.get("PROVIDER_URL", "http://127.0.0.1:9100")
API = os.environ.get("ONCE_API", "http://127.0.0.1:7411")
PORT = int(os.environ.get("PORT", "9000"))
CALL_SECONDS = float(os.environ.get("ORDERS_CALL_SECONDS", "10"))
BODY_MAX = 65536


class NotNow(Exception):
    """503: the gateway notes that it failed and may be tried again, which begins at the last recovery point."""


class Attempt(NamedTuple):
    """A request as the gateway let it through."""
    record: str
    fence: int
    key: str
    point: str | None
    checkpoint: str


def read_attempt(headers):
    """None: it did not come through the gateway, or without a key. Nobody else can make these fields: the gateway drops a
    client's own, and we listen where only the gateway connects."""
    record, fence, key = (headers.get(name) for name in ("Once-Record", "Once-Fence", "Once-Key"))
    if not record or not key or not re.fullmatch("[0-9]{1,19}", fence or ""):
        return None
    checkpoint = base64.b64decode(headers.get("Once-Checkpoint", "").strip(":")).decode()
    return Attempt(record, int(fence), key, headers.get("Once-Recovery-Point"), checkpoint)


# ---------------------------------------------------------------- the JSON API

def ask_once(verb, **members):
    request = urllib.request.Request(f"{API}/v1/{verb}", json.dumps(members).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=CALL_SECONDS) as answer:
            return json.load(answer)
    except (OSError, http.client.HTTPException, ValueError) as error:  # HTTPError is an OSError
        raise NotNow(f"once, {verb}: {error}") from error


def advance(attempt, point, checkpoint):
    """From here on the next attempt begins after this. Repeating the same point is fine."""
    answer = ask_once("advance", record=attempt.record, fence=attempt.fence, point=point, checkpoint=checkpoint)
    if answer["arm"] != "done":
        raise NotNow("fenced: somebody else has this request by now")


# ---------------------------------------------------------------- POST /orders

def transaction():
    """`with transaction() as db`: committed at the end of the block, rolled back if it raises. (From a psycopg_pool, in earnest.)"""
    return psycopg.connect(DATABASE)


def post_order(attempt, item, amount):
    if attempt.point is None:
        order = book(attempt.key, item, amount)
        advance(attempt, "ordered", str(order))
    else:
        order = int(attempt.checkpoint.split()[0])
    if attempt.point != "charged":
        charge_key = ask_once("child-key", record=attempt.record, call="charge")["child_key"]
        charge = call_provider(order, amount, charge_key)
        advance(attempt, "charged", f"{order} {charge}")
    else:
        charge = attempt.checkpoint.split(" ", 1)[1]
    word, _, charge_id = charge.partition(" ")
    with transaction() as db:
        db.execute("UPDATE orders SET status = %s, charge = %s WHERE id = %s", (word, charge_id or None, order))
    if word == "paid":
        return 201, {"order": order, "status": "paid", "charge": charge_id}
    return 402, {"order": order, "status": "declined"}


def book(key, item, amount):
    """One row per Once-Key, whoever comes, and its id also if it was there."""
    with transaction() as db:
        return db.execute("INSERT INTO orders (item, amount, status, once_key) VALUES (%s, %s, 'new', %s)"
                          " ON CONFLICT (once_key) DO UPDATE SET once_key = excluded.once_key RETURNING id",
                          (item, amount, key)).fetchone()[0]


def call_provider(order, amount, key):
    """'paid ch_17' or 'declined'."""
    request = urllib.request.Request(PROVIDER + "/charges", f"order={order}&cents={amount}".encode(),
                                     {"Idempotency-Key": f'"{key}"', "Content-Type": "application/x-www-form-urlencoded"})
    try:
        with urllib.request.urlopen(request, timeout=CALL_SECONDS) as answer:
            return answer.read(1000).decode()
    except urllib.error.HTTPError as error:
        if error.code == 402:
            return "declined"
        raise NotNow(f"provider: {error}") from error
    except (OSError, http.client.HTTPException) as error:  # whether it charged or not: it is asked again with the same key
        raise NotNow(f"provider: {error}") from error


# ---------------------------------------------------------------- HTTP

def read(body):
    """(item, amount), or None."""
    try:
        document = json.loads(body.decode())
        item, amount = document["item"], document["amount"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    good = isinstance(item, str) and re.fullmatch(r"[A-Za-z0-9 ._-]{1,100}", item) and type(amount) is int and 1 <= amount <= 10**9
    return (item, amount) if good else None


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        length = int(length) if re.fullmatch(r"[0-9]{1,9}", length) else -1
        body = self.rfile.read(min(max(length, 0), 16 * BODY_MAX))  # more than we take: or our answer may be lost with the rest
        if not 0 <= length <= BODY_MAX:
            self.close_connection = True  # which say() tells: who keeps connections must not send the next request here
            self.say(411 if length < 0 else 413, {"title": f"A body of up to {BODY_MAX} bytes, with its length"})
            return
        attempt, order = read_attempt(self.headers), read(body)
        if self.path != "/orders":
            self.say(404, {"title": "POST /orders is all there is"})
        elif attempt is None:
            self.say(400, {"title": "This needs an Idempotency-Key, and comes through the gateway"})
        elif order is None:
            self.say(400, {"title": "This is no order"})  # which the gateway stores, as any answer that is final
        else:
            self.say(*self.run(attempt, *order))

    def run(self, attempt, item, amount):
        try:
            return post_order(attempt, item, amount)
        except (NotNow, psycopg.Error) as error:
            print(f"orders: {attempt.record}: {error}", file=sys.stderr, flush=True)
            return 503, {"title": "Ask again under the same key"}

    def say(self, status, document):
        body = json.dumps(document).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Shop)
    print(f"orders: listening on http://127.0.0.1:{PORT}", flush=True)
    server.serve_forever()
