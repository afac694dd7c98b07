#!/usr/bin/env python3
"""Two completers and a client that asks again, all at once, on the same abandoned orders: each ends once.

100 orders, SIZE=10 makes it 1000. Most were being charged when the shop was killed, the others failed while the
provider was busy. Who ended an order is counted: the completers' own counts and the answers that were no
replays add up to the number of orders, and each has one order, one charge, one receipt.
"""
import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

from harness import BOUND_S, SIZE, expect, tap, wait_for

KEYS = 100 * SIZE
AT_ONCE = 20
# Whoever meets a database that is locked for too long leaves its order until this is over: less than a client waits.
LEASE_MS = "20000"


def order_of(key):
    return {"item": key, "cents": 1000 + int(key[1:])}


def abandon(case, keys):
    """Killed while the provider holds all their charges."""
    case.mode("hold")
    shop = case.orders("--lease", "2000", "--threads", "0")
    clients = [threading.Thread(target=case.post, args=(shop, key, order_of(key))) for key in keys]
    for client in clients:
        client.start()
    wait_for(lambda: case.held() == len(keys), "the provider to hold all charges")
    case.kill(shop)
    for client in clients:
        client.join()
    case.mode("busy")
    wait_for(lambda: case.held() == 0, "the provider to let go")


def fail(case, keys):
    shop = case.orders("--threads", "4")
    for key in keys:
        answer = case.post(shop, key, order_of(key))
        expect(answer.status == 503, "provider busy: %s" % answer)
    case.kill(shop)


def race(case):
    keys = ["k%d" % n for n in range(KEYS)]
    case.provider("--mode", "busy")
    failed, killed = keys[::5], [k for i, k in enumerate(keys) if i % 5 != 0]
    fail(case, failed)
    for at in range(0, len(killed), AT_ONCE):
        abandon(case, killed[at:at + AT_ONCE])
    expect(len(case.orders_in_books()) == KEYS, "%d orders were begun" % len(case.orders_in_books()))
    case.mode("ok")
    completers = [case.start(case.command("--complete", "--lease", LEASE_MS)) for _ in range(2)]
    shop = case.orders("--lease", LEASE_MS, "--threads", "4")
    # Both sides get their share: a client that is alone for a while would leave them nothing.
    wait_for(lambda: any(status == "paid" for _, status in case.orders_in_books()), "the completers to begin")
    with ThreadPoolExecutor(max_workers=4) as pool:
        answers = list(pool.map(lambda key: case.post_until_final(shop, key, order_of(key)), keys))
    ended, missed = 0, 0
    for completer in completers:
        completer.send_signal(signal.SIGTERM)
        out, _ = completer.communicate(timeout=BOUND_S)
        for line in re.findall(r"took over (\d+): (\d+) ended, (\d+) postponed, (\d+) unknown; (\d+) were", out):
            ended, missed = ended + int(line[1]), missed + int(line[4])
            expect(line[3] == "0", "a completer gave up: " + out)
    by_client = sum(not answer.replayed for answer in answers)
    expect(all(answer.status == 201 for answer in answers), "answers %s" % {a.status for a in answers})
    expect(ended + by_client == KEYS, "%d ended by completers and %d by the client, of %d" % (ended, by_client, KEYS))
    again = [case.post(shop, key, order_of(key)) for key in keys[:50]]
    expect([a.body for a in again] == [a.body for a in answers[:50]], "answers changed")
    orders, charges, receipts = case.orders_in_books(), case.charges(), case.receipts()
    expect(len(orders) == KEYS and all(o[1] == "paid" for o in orders), "%d orders" % len(orders))
    expect(len(charges) == KEYS and len({key for key, _ in charges}) == KEYS, "%d charges" % len(charges))
    expect(len(receipts) == KEYS and len(set(receipts)) == KEYS, "%d receipts" % len(receipts))
    expect(ended > 0, "the completers did nothing: this proves nothing")
    case.check_books("afterwards")
    return "%d ended by completers, which came too late %d times, and %d by the client" % (ended, missed, by_client)


if __name__ == "__main__":
    tap([("two completers and a client, %d orders" % KEYS, race)])
