"""The table of operations that connections are cut under: what each needs before, what it must
answer, and what the store must hold after it, whatever happened to the connection.

A row is
    prepare  [(who, line)]: `a` is the client whose connection is cut, `b` has one of its own
    does     the line under test; several operations with " ; " are one batch
    answers  what they say, one per operation: how it begins, and any name=value
    after    [(who, line, what the answer says)]
    facts    "claims/results/verdicts" that the store then holds of each key: one effect, not two
{k} is the case's key; {l}, {m}, {n} are more of them.
"""

ROWS = {
    "claim": dict(
        prepare=[], does="claim {k}", answers=["OK execute attempt=1"],
        after=[("b", "claim {k}", "OK in progress"), ("a", "finish {k} body", "OK done"),
               ("b", "claim {k}", "OK replay body=body")],
        facts={"k": "1/1/0"}),
    "claim of a failed one": dict(
        prepare=[("a", "claim {k}"), ("a", "finish {k} x retryable")], does="claim {k}",
        answers=["OK execute attempt=2"],
        after=[("b", "lookup {k}", "OK found"), ("a", "finish {k} body", "OK done")],
        facts={"k": "2/2/0"}),
    "takeover": dict(
        prepare=[("b", "claim {k} lease=1"), ("b", "until-over {k}")], does="claim {k} takeover=rerun",
        answers=["OK execute attempt=2"],
        after=[("b", "finish {k} stale", "OK fenced"), ("a", "finish {k} body", "OK done"),
               ("b", "claim {k}", "OK replay body=body")],
        facts={"k": "2/2/0"}),
    "escalation": dict(
        prepare=[("b", "claim {k} lease=1"), ("b", "until-over {k}")], does="claim {k}",
        answers=["OK unknown"], after=[("b", "claim {k}", "OK unknown")], facts={"k": "1/1/0"}),
    "replay": dict(
        prepare=[("b", "claim {k}"), ("b", "finish {k} body")], does="claim {k}",
        answers=["OK replay body=body"], after=[], facts={"k": "1/1/0"}),
    "finish": dict(
        prepare=[("a", "claim {k}")], does="finish {k} body", answers=["OK done"],
        after=[("b", "claim {k}", "OK replay body=body"), ("a", "finish {k} body", "OK done"),
               ("a", "finish {k} other", "OK fenced")],
        facts={"k": "1/1/0"}),
    "advance": dict(
        prepare=[("a", "claim {k}")], does="advance {k} paid receipt", answers=["OK done"],
        after=[("b", "lookup {k}", "OK found point=paid checkpoint=receipt"),
               ("a", "advance {k} sent mail", "OK done"), ("a", "advance {k} paid again", "INVALID"),
               ("b", "lookup {k}", "OK found point=sent checkpoint=mail")],
        facts={"k": "1/0/0"}),
    "extend": dict(
        prepare=[("a", "claim {k} lease=60000")], does="extend {k} 600000", answers=["OK done"],
        after=[("b", "claim {k}", "OK in progress"), ("a", "finish {k} body", "OK done")],
        facts={"k": "1/1/0"}),
    "release": dict(
        prepare=[("a", "claim {k}")], does="release {k}", answers=["OK done"],
        after=[("b", "lookup {k}", "OK absent"), ("b", "claim {k}", "OK execute"),
               ("a", "finish {k} stale", "OK fenced")],
        facts={"k": "2/1/0"}),
    "resolve": dict(
        prepare=[("a", "claim {k}"), ("a", "finish {k} - unknown")], does="resolve {k} done body",
        answers=["OK done"], after=[("b", "claim {k}", "OK replay body=body")], facts={"k": "2/2/1"}),
    "lookup": dict(
        prepare=[("a", "claim {k}")], does="lookup {k}", answers=["OK found"], after=[],
        facts={"k": "1/0/0"}),
    "batch": dict(
        prepare=[("a", "claim {k}"), ("a", "claim {l}"), ("a", "claim {m}")],
        does="claim {n} ; finish {k} body ; advance {l} paid receipt ; release {m} ; claim {k}",
        answers=["OK execute", "OK done", "OK done", "OK done", "OK replay body=body"],
        after=[("b", "claim {n}", "OK in progress"), ("b", "lookup {l}", "OK found point=paid checkpoint=receipt"),
               ("b", "lookup {m}", "OK absent"), ("a", "finish {n} body", "OK done")],
        facts={"k": "1/1/0", "l": "1/0/0", "m": "1/1/0", "n": "1/1/0"}),
    # What a busy daemon does, after enough of it that the store expects it (postgres/batch.c).
    "the usual": dict(
        prepare=[("a", " ; ".join("claim {%s}%d" % (letter, i) for i in range(8))) for letter in "klm"],
        does=" ; ".join(["claim {n}"] + ["claim {n}%d" % i for i in range(5)] +
                        ["finish {k}%d body" % i for i in range(5)]),
        answers=["OK execute attempt=1"] * 6 + ["OK done"] * 5,
        after=[("b", "claim {n}3", "OK in progress"), ("b", "claim {k}3", "OK replay body=body"),
               ("a", "finish {n} body", "OK done"), ("a", "finish {k}4 other", "OK fenced"),
               ("b", "claim {n}", "OK replay body=body")],
        facts={"n": "1/1/0"}),
    # Applied again one by one, each of these finds its own work behind that of the next.
    "two points": dict(
        prepare=[("a", "claim {k}")], does="advance {k} paid receipt ; advance {k} sent mail",
        answers=["OK done", "OK done"], after=[("b", "lookup {k}", "OK found point=sent checkpoint=mail")],
        facts={"k": "1/0/0"}),
    "failure and next attempt": dict(
        prepare=[("a", "claim {k}")], does="finish {k} x retryable ; claim {k}",
        answers=["OK done", "OK execute attempt=2"], after=[("a", "finish {k} body", "OK done")],
        facts={"k": "2/2/0"}),
    "release and claim": dict(
        prepare=[("a", "claim {k}")], does="release {k} ; claim {k}",
        answers=["OK done", "OK execute attempt=1"], after=[("a", "finish {k} body", "OK done")],
        facts={"k": "2/2/0"}),
}
