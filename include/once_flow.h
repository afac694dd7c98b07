/*
 * once_flow.h - handlers that are resumed, not repeated.
 *
 * A handler that writes to its own database and calls somebody else over the network can die
 * between any two of its steps. Written as a flow it is a table of named steps, local phases
 * and foreign calls by turns, and whoever comes next, a retrying client or a completer, goes on
 * where the last attempt stopped:
 *
 *     static const struct once_flow place_order = {
 *         .name = "orders",
 *         .steps = {
 *             ONCE_LOCAL("order", insert_order),
 *             ONCE_CALL("charge", charge_card, .callee = ONCE_CALLEE_IDEMPOTENT),
 *             ONCE_LOCAL("receipt", stage_receipt),
 *         },
 *     };
 *
 *     struct once_flow_input input = { .key = key, .request = body };
 *     once_result r = once_flow_run(&place_order, db, &input, arg, NULL, &reply, &err);
 *     if (r == ONCE_OK && reply.arm == ONCE_ARM_REPLAY)
 *         answer(reply.record.status, reply.record.body);
 *     once_reply_release(&reply);
 *
 * What happens then, each line one commit of the caller's own database:
 *
 *     claim the key, keep the request              recovery point  orders/received
 *     insert_order's writes, advance                               orders/order
 *         charge_card, with no transaction open, with its derived key, its lease renewed
 *     stage_receipt's writes, finish               the outcome, which every retry gets
 *
 * What cannot go wrong, because the library does it or stops the program:
 *   - A phase cannot forget to advance: it can only end by what once_local_*() return, and the
 *     recovery point commits with its writes (K11), or both are rolled back.
 *   - A transaction cannot be open during a call. A call is not given a connection, and one that
 *     leaves a transaction open on yours is stopped by an assertion.
 *   - A call cannot use a key of its own making: it is handed the one that is derived from record
 *     and name, the same on every attempt. The client's own key is not in reach.
 *   - A worker that was only thought dead changes nothing: each phase begins by guarding and ends
 *     by advancing, under its fence (K3). It answers from the stored record.
 *   - A lost answer to COMMIT is looked up, never guessed (K10).
 *
 * A failure that is final is an outcome like any other: a declined card finishes with 402 in the
 * phase after the call, is replayed, and is never charged again.
 *
 * docs/flows.md is the walk-through, examples/orders a whole service. The rules of once.h about
 * spans, errors and replies hold here. Assertions print a line to the error output and abort():
 * they are about mistakes in the program, not in its input.
 */
#ifndef ONCE_FLOW_H
#define ONCE_FLOW_H

#include <once.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ONCE_FLOW_STEPS_MAX 24    /* of one flow */
#define ONCE_FLOW_NAME_LEN_MAX 30 /* of a flow, of a step: FLOW/STEP? is a recovery point */
#define ONCE_FLOW_CHECKPOINT_LEN_MAX (ONCE_CHECKPOINT_LEN_MAX - 16) /* request, state and answer together */
#define ONCE_FLOW_ATTEMPTS_MAX_DEFAULT 20
#define ONCE_FLOW_CRASHES_MAX_DEFAULT 5
#define ONCE_FLOW_BACKOFF_MS_DEFAULT 1000
#define ONCE_FLOW_BACKOFF_MS_MAX_DEFAULT (5 * 60 * 1000)

/* ---------------------------------------------------------------- a local phase */

struct sqlite3;
struct pg_conn; /* libpq's PGconn */

/* How a step ended. Only the functions below make one: return what they return. */
typedef struct once_step_end {
    int how;
} once_step_end;

/* What a phase is given. Its transaction is open, on your connection: whichever of the two this
 * flow runs on. Do not end it. Do nothing in a phase that a roll back would not undo. */
struct once_local {
    struct sqlite3 *sqlite;
    struct pg_conn *postgres;
    struct once_grant grant; /* of this attempt: record and fence */
    uint32_t attempt;
    once_span request; /* as it was given to the first attempt */
    once_span state;   /* what the last phase kept; empty at first */
    once_span answer;  /* of the call before this phase; empty where there is none */
};

typedef once_step_end once_local_fn(struct once_local *local, void *arg);

/* Go on with the next step, and keep `state` (copied) for the phases and calls after this one. */
ONCE_API ONCE_CHECKED once_step_end once_local_next(struct once_local *local, once_span state);
/* The end: this outcome (copied) is stored with the phase's writes. SUCCEEDED, or FAILED for good. */
ONCE_API ONCE_CHECKED once_step_end once_local_finish(struct once_local *local, const struct once_outcome *outcome);
/* It did not work now (a lock, a full disk); `why` is for the log. The phase is rolled back and tried
 * again later; what a call before it answered is kept. */
ONCE_API ONCE_CHECKED once_step_end once_local_fail(struct once_local *local, const char *why);

/* ---------------------------------------------------------------- a foreign call */

/* What is known of the one who is called: what a next attempt may do when this one died, or lost
 * its answer, after something may have been sent. */
enum once_callee {
    ONCE_CALLEE_OPAQUE = 0, /* does not know keys: never called twice; the record becomes unknown */
    ONCE_CALLEE_IDEMPOTENT, /* honours the key: called again, with the same one */
    ONCE_CALLEE_PROBEABLE,  /* can be asked whether it happened: `probe` first */
};

/* What a call is given. */
struct once_call {
    const char *key;         /* to send as the idempotency key: the same on every attempt */
    struct once_grant grant; /* its fence: for callees that can refuse older ones */
    uint32_t attempt;
    once_span request, state; /* as a phase has them */
};

typedef once_step_end once_call_fn(struct once_call *call, void *arg);

/* A complete answer came, good or bad (copied): the phase after the call judges it. Of a probe: it
 * happened, and this is what was answered then. */
ONCE_API ONCE_CHECKED once_step_end once_call_answered(struct once_call *call, once_span answer);
/* It certainly did not happen, e.g. the connection was refused: to be tried again later. Of a probe:
 * it did not happen, and will not; the call is made. */
ONCE_API ONCE_CHECKED once_step_end once_call_not_sent(struct once_call *call, const char *why);
/* Something may have been sent, and no complete answer came. Of a probe: it could not tell. */
ONCE_API ONCE_CHECKED once_step_end once_call_lost(struct once_call *call, const char *why);

/* Where a callee tells by GET whether a call happened. */
struct once_probe_http {
    const char *url;    /* http://... or https://..., with {key} in it: there stands the call's key */
    once_span headers;  /* lines "Name: value\r\n", besides Once-Key and Once-Fence: credentials, say */
    int64_t timeout_ms; /* of all of it; 0: 10 s */
};

/* For a probe: asks there. A whole 200 with a body: that is the answer, as once_call_answered() takes it. A whole 404:
 * it did not happen, and the call is made. Anything else tells nothing: redirects, which are not followed, other
 * statuses, no answer or half of one, one over ONCE_FLOW_CHECKPOINT_LEN_MAX or without a length. */
ONCE_API ONCE_CHECKED once_step_end once_call_probe_http(struct once_call *call, const struct once_probe_http *probe);

/* False once the lease is over unrenewed, or somebody took over: do not send any more. */
ONCE_API bool once_call_is_held(const struct once_call *call);

/* ---------------------------------------------------------------- a flow */

struct once_flow_step {
    const char *name; /* lower case letters, digits, '-'; "received" is taken */
    once_local_fn *local;
    once_call_fn *call;
    enum once_callee callee;
    once_call_fn *probe;   /* PROBEABLE: asks, and changes nothing */
    bool intent;           /* commit "about to call" first: then a crash before it is known to have sent nothing,
                              which matters most where the callee is OPAQUE */
    const char *probe_url; /* PROBEABLE, in place of `probe`: once_call_probe_http() with this URL */
};

#define ONCE_LOCAL(step, function)                                                                                     \
    {                                                                                                                  \
        .name = (step), .local = (function)                                                                            \
    }
/* The function, and what else is to be said: ONCE_CALL("charge", charge_card, .callee = ONCE_CALLEE_IDEMPOTENT). */
#define ONCE_CALL(step, ...)                                                                                           \
    {                                                                                                                  \
        .name = (step), .call = __VA_ARGS__                                                                            \
    }

/*
 * A static table. After every call comes a local phase: there is always something to keep. Do not rename flows or steps
 * while records are under way: an attempt that finds itself at a step that is not there is refused with ONCE_CORRUPT.
 */
struct once_flow {
    const char *name;
    struct once_flow_step steps[ONCE_FLOW_STEPS_MAX + 1]; /* the first without a name ends it */

    int64_t lease_ms;          /* renewed while a call works; 0: 60 s */
    int64_t retention_ms;      /* from the finish; 0: 24 h; ONCE_NEVER */
    int64_t body_retention_ms; /* of the answer, at most retention_ms; 0: as long (once_claim in once.h) */
    uint32_t attempts_max;     /* a completer's; then the record becomes unknown. 0: 20 */
    uint32_t crashes_max;      /* attempts that just ended, of anybody; then likewise. 0: 5 */
    int64_t backoff_ms;        /* before the second try; doubles, with jitter. 0: 1 s */
    int64_t backoff_ms_max;    /* 0: 5 min */
};

/* What is wrong with the table; ONCE_OK if nothing is. once_flow_run() asserts this. */
ONCE_API ONCE_CHECKED once_result once_flow_check(const struct once_flow *flow, struct once_error *err);

/* ---------------------------------------------------------------- the database */

/*
 * Your connection, ready for flows. It stays yours: open it, configure it, close it after
 * once_flow_close(). While a flow runs it belongs to the flow. One thread at a time; for more, one
 * connection each.
 *
 * SQLite: Once's tables are made in your database where they are missing. Set a busy time-out, and
 * journal_mode and synchronous to what you want to survive (docs/flows.md). Leases are renewed on
 * the same connection, under its mutex, while a call has no use for it.
 * PostgreSQL: needs the schema (`once migrate`) and the role once_app. Leases are renewed on a second
 * connection with the same parameters, opened when the first renewal is due, which also looks what
 * became of a COMMIT whose answer was lost; then a broken connection of yours is reset (PQreset). Handle
 * notices with PQsetNoticeProcessor(): a notice receiver of yours would lose its argument.
 */
struct once_flow_db;

ONCE_API ONCE_CHECKED once_result once_flow_open_sqlite(struct sqlite3 *db, struct once_flow_db **out,
                                                        struct once_error *err);
ONCE_API ONCE_CHECKED once_result once_flow_open_postgres(struct pg_conn *conn, struct once_flow_db **out,
                                                          struct once_error *err);
ONCE_API void once_flow_close(struct once_flow_db *db); /* NULL is fine */

/* ---------------------------------------------------------------- running */

struct once_flow_input {
    once_span tenant, key;
    once_span request; /* everything the steps need to know: a completer has nothing else. No
                          credentials. Also what another request under the same key is held against */
};

/* What a run did, besides its reply. */
struct once_flow_report {
    bool executed;    /* this call held the record and ran steps; else it was answered from it */
    bool fenced;      /* it did, and lost it: the reply is what is stored, nothing of ours */
    uint32_t phases;  /* local phases that committed */
    uint32_t calls;   /* calls, and probes, that were made */
    char reason[200]; /* why it did not come to an end, for the log; else empty */
};

/*
 * Run the flow, or answer from its record. With ONCE_OK the arm is
 *   REPLAY       the outcome, whoever produced it; FAILED, retryable, with status 503: nothing is in
 *                flight, ask again later
 *   IN_PROGRESS  somebody is at it; or it is postponed: a call's end is not known, and it will be
 *                called again or asked about. retry_after_ms tells when
 *   UNKNOWN      something may have been sent to an OPAQUE callee, or limits were reached: a person
 *                must look (once keys resolve)
 *   MISMATCH     the key was used for another request
 *   FENCED       it was taken over, and the record is gone since, or the key stands for another operation
 * Any other result: the database failed. What was not committed did not happen; the record tells the
 * next attempt the rest. ONCE_UNKNOWN: a COMMIT's answer was lost, and what became of it could not be
 * seen; ask again under the same key.
 * `report` may be NULL.
 */
ONCE_API ONCE_CHECKED once_result once_flow_run(const struct once_flow *flow, struct once_flow_db *db,
                                                const struct once_flow_input *input, void *arg,
                                                struct once_flow_report *report, struct once_reply *reply,
                                                struct once_error *err);

/* ---------------------------------------------------------------- completing */

/* Where a completer is in its round over the records; begin with { 0 }. A round goes back to the oldest record of
 * the flow that was not at its end in the round before; once an hour to the very oldest. */
struct once_flow_round {
    uint64_t before; /* 0: begin anew, with the newest */
    uint64_t floor, lowest, mark, settled;
    once_time mark_at, whole_at; /* all of this is ours */
};

struct once_flow_step_report {
    uint32_t looked;    /* records of this flow that were not at their end */
    uint32_t taken;     /* abandoned ones that were taken over here */
    uint32_t ended;     /* of these: have an outcome now */
    uint32_t postponed; /* were tried, and will be again */
    uint32_t escalated; /* are unknown now */
    uint32_t missed;    /* were abandoned, but somebody else was faster */
    uint32_t stuck;     /* cannot go on: damaged, or at a step that the flow does not have. They stay as they are */
    char reason[200];   /* of the first of those */
    bool more;          /* the round is not over: step again without a pause */
};

/*
 * One bounded step of completing what was abandoned: looks at a number of records, newest first, from
 * where the round is, and drives those of this flow to an end whose holder's lease is over, or which
 * failed, may be tried again and are due (backoff with jitter). Each is taken over only as it was
 * seen (compare-and-set on its fence), by one completer, whatever clients do meanwhile. Never
 * begins a record anew, never replays. Any number of completers may run.
 */
ONCE_API ONCE_CHECKED once_result once_flow_complete(const struct once_flow *flow, struct once_flow_db *db, void *arg,
                                                     struct once_flow_round *round, struct once_flow_step_report *swept,
                                                     struct once_error *err);

/* The same in a loop, with `pause_ms` between rounds, until `stop` (asked after every step, and ten times a second
 * during a pause) says so. What a step did, or why it failed, is told to `each`, which may be NULL. */
typedef bool once_flow_stop_fn(void *arg);
typedef void once_flow_each_fn(void *arg, once_result result, const struct once_flow_step_report *swept,
                               const struct once_error *err);
ONCE_API void once_flow_complete_until(const struct once_flow *flow, struct once_flow_db *db, void *arg,
                                       int64_t pause_ms, once_flow_stop_fn *stop, once_flow_each_fn *each);

#ifdef __cplusplus
}
#endif
#endif
