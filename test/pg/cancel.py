#!/usr/bin/env python3
"""A commit whose wait for the standby was cut short is not a commit to anybody (FACT-6, FAULT-24, K4).

The primary has committed, everybody on it sees the row, and a failover forgets it. So nobody may
be told of it before it is on the standby: not the caller whose COMMIT ended with no more than a
warning; not one who connects after the primary crashed in that wait; and not one who was
connected all the time and reads what he finds. A and B are callers on a string (ask.c). Whether
somebody "does not answer" is seen where his backend waits, not by the clock."""
from load import Ask, Server, either, finish, ok, wait_for

primary, standby = Server(), Server("_STANDBY")
primary.migrate()
URL = either(primary, standby)


def caller(url=URL):
    ask = Ask(url)
    said = ask.get()
    ok(said == "open", "a caller opens the store", said)
    return ask


def silent(callers, name):
    """All of them wait for the standby. Or somebody answers, and that is wrong."""
    wait_for(lambda: any(c.has_answered() for c in callers) or len(primary.waiting()) == len(callers),
             "backends that wait for the standby")
    ok(not any(c.has_answered() for c in callers), name, *[c.peek() for c in callers])


def cancel(callers, how="pg_cancel_backend"):
    """Ends every wait there is, as an administrator would; waits for what comes of it."""
    pids = primary.waiting()
    primary.sql("SELECT %s(pid) FROM unnest('{%s}'::int[]) pid" % (how, ",".join(pids)))
    wait_for(lambda: any(c.has_answered() for c in callers) or not set(pids) & set(primary.waiting()), "the cancellation")


def followed():
    """The standby is back, and has everything."""
    standby.start()
    wait_for(lambda: primary.sql("SELECT sync_state FROM pg_stat_replication") == "sync", "the standby")


def persist(ask, call):
    """The answer to a call that waits already, repeated as long as there is none."""
    said = ask.get()
    while said.startswith(("UNKNOWN", "UNAVAILABLE")):
        said = ask.call(call)
    return said


def end(*callers):
    for c in callers:
        c.p.stdin.close()
        c.p.wait()


def shows(key):
    """Past the functions, which would wait for the standby as everybody does."""
    return primary.sql("SELECT r.state FROM once.claim c JOIN once.result r ON r.fence = c.fence "
                       "WHERE c.key = '%s'" % key) == "2"


def rows(server, key):
    return server.sql("SELECT count(*) FROM once.claim WHERE key = '%s'" % key)


def finish_is_cancelled(how, key):
    a, b, c = caller(), caller(), caller()
    ok(a.call("claim " + key).startswith("OK execute"), "K4: a claim is answered while the standby follows")
    standby.stop("fast")
    a.send("finish %s first" % key)
    silent([a], "K4: a finish is not answered before the standby has it")
    cancel([a], how)
    wait_for(lambda: shows(key), "the primary to show what it alone has")
    silent([a], "FACT-6: a finish whose wait was ended by %s is not answered; its caller waits behind the barrier" % how)
    b.send("claim " + key)
    silent([a, b], "FACT-6: nor is it replayed to one who was connected all the time")
    c.send("lookup " + key)
    silent([a, b, c], "FACT-6: nor shown to another")
    followed()
    ok(a.get().startswith("OK done"), "K10: with the standby back the finish is done")
    ok(b.get().endswith("succeeded 200 first"), "HISTORY-3: and everybody gets its outcome")
    ok(c.get().endswith("succeeded 200 first"), "HISTORY-3: however he asks")
    end(a, b, c)


def claim_is_cancelled():
    a = caller()
    standby.stop("fast")
    a.send("claim k2")
    silent([a], "K4: a claim is not answered before the standby has it")
    while not a.has_answered():  # the barriers after it too, until the engine gives up
        cancel([a])
    said = a.get()
    ok(said.startswith("UNKNOWN"), "FACT-6 K10: a claim whose every wait was cancelled is unknown", said)
    followed()
    said = a.call("claim k2")
    ok(said.startswith("OK execute"), "K10: repeated with its nonce it is granted", said)
    ok(rows(primary, "k2") == "1", "K1: by the one row there is")
    end(a)


def claim_in_a_crash():
    a = caller()
    standby.stop("fast")
    a.send("claim k3")
    silent([a], "K4: a claim is not answered before the standby has it")
    primary.restart()
    wait_for(lambda: a.has_answered() or primary.waiting(), "the caller's reconnect")
    ok(a.peek().startswith(("(no answer", "UNKNOWN")), "FAULT-19 K10: after a crash in the wait it is in doubt", a.peek())
    followed()
    said = persist(a, "claim k3")
    ok(said.startswith("OK execute"), "FAULT-19 K10: applied again with its nonce it is granted", said)
    ok(rows(primary, "k3") == "1", "K1: by the one row there is")
    end(a)


def finish_in_a_crash():
    """And then a failover: the primary's own rows are gone."""
    a = caller()
    ok(a.call("claim k4").startswith("OK execute"), "K4: a claim is answered while the standby follows")
    standby.stop("fast")
    a.send("finish k4 fourth")
    silent([a], "K4: a finish is not answered before the standby has it")
    primary.restart()
    ok(shows("k4"), "FACT-6: after its crash the primary shows what it alone has")
    if wait_for(lambda: a.has_answered() or primary.waiting(), "the caller's reconnect") is True:
        said = a.get()
        ok(said.startswith("UNKNOWN"), "K10: the server was away for too long, and the caller asks again", said)
        a.send("finish k4 fourth")
    b = Ask(URL)
    silent([a, b], "FACT-6 FAULT-24: neither its caller nor who connects now is told of it")
    primary.stop()
    standby.start()
    standby.cluster.promote()
    said = persist(a, "finish k4 fourth")
    ok(said.startswith("OK done"), "FAULT-23 K10: the finish is done where the standby took over, by its fence", said)
    said = caller().call("claim k4")
    ok(said.endswith("succeeded 200 fourth"), "HISTORY-2: what was acknowledged is there", said)
    ok(rows(standby, "k4") == "1", "HISTORY-1: it was granted once")


finish_is_cancelled("pg_cancel_backend", "k1")
finish_is_cancelled("pg_terminate_backend", "k5")
claim_is_cancelled()
claim_in_a_crash()
finish_in_a_crash()
finish()
