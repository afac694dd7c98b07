#!/usr/bin/env python3
"""What clients are told: outcomes are stored and replayed, also bad ones; what is not one is tried again."""
import threading
import time

from harness import BOUND_S, KIND, SIZE, Failed, expect, request, tap, wait_for


def paid(case):
    case.provider()
    shop = case.orders()
    first, second = case.post(shop), case.post(shop)
    expect(first.status == 201 and not first.replayed, "first %s" % first)
    expect(second.status == 201 and second.replayed and second.body == first.body, "second %s" % second)
    other = case.post(shop, order={"item": "tea", "cents": 2501})
    expect(other.status == 422, "another order under the same key: %s" % other)
    expect(len(case.charges()) == 1 and len(case.receipts()) == 1, "charges %s" % case.charges())
    key = case.charges()[0][0]
    expect(len(key) == 48 and key != "k", "the provider was sent the key %s" % key)


def declined(case):
    """402 is stored and replayed; the card is never charged again, though it could be by now."""
    case.provider("--mode", "decline")
    shop = case.orders()
    first = case.post(shop)
    expect(first.status == 402 and not first.replayed, "declined: %s" % first)
    case.mode("ok")
    for _ in range(3):
        again = case.post(shop)
        expect(again.status == 402 and again.replayed and again.body == first.body, "then %s" % again)
    expect(case.sweep()[0] == 0, "a completer finds it unfinished")
    expect(case.charges() == [] and case.receipts() == [], "charged %s" % case.charges())
    expect(case.orders_in_books()[0][1] == "declined", "order %s" % case.orders_in_books())


def down(recovery):
    """Nothing was sent: 503, and later it succeeds under the same key, and the same order."""
    def function(case):
        shop = case.orders()
        for _ in range(2):
            answer = case.post(shop)
            expect(answer.status == 503, "provider down: %s" % answer)
        expect(len(case.orders_in_books()) == 1, "orders %s" % case.orders_in_books())
        case.provider()
        if recovery == "completer":
            case.sweep_until_done()
        answer = case.post(shop)
        expect(answer.status == 201 and answer.replayed == (recovery == "completer"), "provider up: %s" % answer)
        expect(len(case.charges()) == 1 and len(case.orders_in_books()) == 1, "charges %s" % case.charges())
    return function


def dropped(callee):
    """Charged, and no answer came."""
    def function(case):
        case.provider("--mode", "drop", *([] if callee == "idempotent" else ["--no-keys"]))
        shop = case.orders("--callee", callee)
        answer = case.post(shop)
        if callee == "opaque":
            expect(answer.status == 502 and answer.unknown, "dropped: %s" % answer)
        else:
            expect(answer.status == 409, "dropped, to be called again: %s" % answer)
        case.mode("ok")
        final = case.post_until_final(shop)
        if callee == "opaque":
            expect(final.unknown, "then %s" % final)
        else:
            expect(final.status == 201, "then %s" % final)
        expect(len(case.charges()) == 1, "charges %s" % case.charges())
        expect(len(case.receipts()) == (callee != "opaque"), "receipts %s" % case.receipts())
    return function


def crashed(case):
    """The provider charges and dies, and comes back with its ledger."""
    provider = case.provider("--mode", "crash")
    shop = case.orders()
    answer = case.post(shop)
    expect(answer.status == 409, "the provider died: %s" % answer)
    provider.wait(timeout=BOUND_S)
    expect(case.post(shop).status == 409, "while it is away nobody knows, and nothing is forgotten")
    case.provider()
    final = case.post_until_final(shop)
    expect(final.status == 201 and len(case.charges()) == 1, "then %s, charges %s" % (final, case.charges()))


def slow(case):
    """A call that takes longer than its lease: it is renewed, and nobody takes over. A machine on which a renewal comes too
    late has shown nothing: there it is done again, with a longer lease."""
    case.provider("--mode", "hold")
    for number, lease_ms in enumerate((2400, 12000, 60000, 120000)):
        if outlasts(case, "k%d" % number, lease_ms):
            return "with a lease of %d ms" % lease_ms
    raise Failed("no lease was renewed in time, however long")


def outlasts(case, key, lease_ms):
    """False: it ran out, or may have, which is no fault of anybody's."""
    case.mode("hold")
    charges = len(case.charges())
    shop, other = case.orders("--lease", str(lease_ms)), case.orders("--lease", str(lease_ms))
    lease = "SELECT coalesce(max(lease_until), 0) FROM once%sprogress" % ("_" if KIND == "sqlite" else ".")
    seen = [time.monotonic(), int((case.books.rows(lease) or [(0,)])[0][0])]  # when it was looked up, and until when the lease is
    answers = []
    client = threading.Thread(target=lambda: answers.append(case.post(shop, key)))
    client.start()
    wait_for(lambda: case.held() == 1, "the provider to hold the charge")

    def is_renewed():
        asked, until = time.monotonic(), int(case.books.rows(lease)[0][0])
        if until == seen[1]:
            seen[0] = asked
        return until if until != seen[1] else None
    in_time = True
    for n in range(5):  # longer than the lease
        until = wait_for(is_renewed, "a lease to be renewed")
        in_time = in_time and (n == 0 or until - lease_ms < seen[1])
        answer = case.post(other, key)
        in_time = in_time and time.monotonic() < seen[0] + lease_ms / 1000
        if not in_time:
            break
        expect(answer.status == 409, "meanwhile %s" % answer)
        seen[:] = [time.monotonic(), until]
    case.mode("ok")
    client.join()
    final = case.post_until_final(other, key)
    expect(final.status == 201 and len(case.charges()) == charges + 1, "at last %s, %s" % (answers, final))
    if in_time:
        expect(answers[0].status == 201 and answers[0].body == final.body, "at last %s, %s" % (answers, final))
        expect("fenced" not in case.said(shop), case.said(shop))
    return in_time


def limits(case):
    """A completer does not try for ever."""
    case.provider("--mode", "busy")
    shop = case.orders()
    expect(case.post(shop).status == 503, "busy")
    wait_for(lambda: "1 unknown" in case.sweep("--attempts", "3")[1], "a completer to give up")
    answer = case.post(shop)
    expect(answer.unknown and case.charges() == [], "then %s" % answer)


def wrong(case):
    case.provider()
    shop = case.orders()
    for _ in range(2):
        answer = case.post(shop, order={"item": "tea"})
        expect(answer.status == 400, "an order without cents: %s" % answer)
    expect(request(shop.port, "POST", "/orders", "{}").status == 400, "without a key")
    expect(request(shop.port, "GET", "/orders").status == 404, "GET")
    expect(case.orders_in_books() == [], "orders %s" % case.orders_in_books())


def many(case):
    """More abandoned orders than one look shows (1000), among finished ones. What was asked is no order: no call is made."""
    shop = case.orders()  # makes the tables
    case.books.rows("SELECT count(once.finish(c.record, c.fence, 200)) FROM generate_series(1, 300) n, once.claim('', 'f' || n) c")
    for first in range(1, 1300, 100):  # all of them in one transaction take far longer
        case.books.rows("SELECT count(once.advance(c.record, c.fence, 'orders/received', "
                        "'\\x463100000000000200000000000000007b7d'::bytea)) FROM generate_series(%d, %d) n, "
                        "once.claim('', 'k' || n, lease => '1 ms', takeover => 'rerun') c" % (first, first + 99))
    seen, said = case.sweep()
    expect(seen == 1300, "a round saw %d" % seen)
    expect(said.count("took over") == 2 and "took over 1000: 1000 ended" in said, said)
    expect(case.sweep()[0] == 0, "something is left")
    expect(case.post(shop, "k1300", {}).status == 422, "the record has another fingerprint")


def hasty(case):
    """K4: a session that does not wait for the disk is made to, in a flow."""
    case.provider()
    case.books.rows("CREATE TABLE seen (level text); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
                    "$$BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN new; END$$; "
                    "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text, cents bigint, "
                    "status text, charge text); "
                    "CREATE TRIGGER note BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION note()")
    case.books.shop_url = case.books.url + "&options=-csynchronous_commit%3Doff"
    expect(case.post(case.orders()).status == 201, "it does not work at all")
    seen = case.books.rows("SELECT level FROM seen")
    case.books.rows("DROP TABLE orders, seen; DROP FUNCTION note")
    expect(seen == [("on",), ("on",)], "synchronous_commit in the phases: %s" % seen)


if __name__ == "__main__":
    tap([("paid, and replayed", paid), ("declined, and replayed", declined), ("provider down, asked again", down("retry")),
         ("provider down, completer", down("completer")), ("dropped, idempotent", dropped("idempotent")),
         ("dropped, probeable", dropped("probeable")),
         ("dropped, probeable by URL", dropped("probeable-by-url")), ("dropped, opaque", dropped("opaque")), ("provider crashed", crashed),
         ("slower than its lease", slow), ("too many attempts", limits), ("refused", wrong)] +
        ([("a session that does not wait for the disk", hasty)] if KIND == "postgres" else []) +
        ([("many abandoned", many)] if KIND == "postgres" and SIZE > 1 else []))
