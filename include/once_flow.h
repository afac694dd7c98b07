/*
 * once_flow.h - handlers that are resumed, not repeated.
 *
 * A handler that writes to its own database and calls another service over the network can die
 * between any two of its steps. As a flow, the handler is a table of named steps: local phases
 * and calls. The next attempt, made for a retrying client or by a completer, continues where the
 * last one stopped:
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
 * The steps of that run; each line but the call is one commit of the caller's own database:
 *
 *     claim the key, store the request             recovery point  orders/received
 *     insert_order's writes, advance                               orders/order
 *         charge_card, with no transaction open, with its child key; the lease is renewed
 *     stage_receipt's writes, finish               the outcome, which every retry gets
 *
 * The library ensures the following, or stops the program with an assertion:
 *   - A phase cannot forget to advance: it must return the result of a once_local_*() function,
 *     and the recovery point commits with its writes (K11), or both are rolled back.
 *   - No transaction is open during a call. A call gets no connection; if it leaves a transaction
 *     open on yours, an assertion fails.
 *   - A call cannot invent a key: it gets the child key, derived from the record and the step's
 *     name, the same on every attempt. It does not see the client's key.
 *   - A worker that was taken over changes nothing: each phase checks its fence first and advances
 *     last (K3). The worker then answers from the stored record.
 *   - If the answer to a COMMIT is lost, the flow looks up whether it took effect (K10).
 *
 * A final failure is an ordinary outcome: a declined card finishes with 402 in the phase after the
 * call. It is replayed, and the card is not charged again.
 *
 * docs/flows.md is the tutorial, examples/orders a complete service. The rules of once.h about
 * spans, errors and replies hold here. Assertions print a line to standard error and abort():
 * they report mistakes in the program, not in its input.
 */
#ifndef ONCE_FLOW_H
#define ONCE_FLOW_H

#include <once.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ONCE_FLOW_STEPS_MAX 24    /* steps of one flow */
#define ONCE_FLOW_NAME_LEN_MAX 30 /* bytes of a flow's or a step's name: FLOW/STEP? is a recovery point */
#define ONCE_FLOW_CHECKPOINT_LEN_MAX (ONCE_CHECKPOINT_LEN_MAX - 16) /* request, state and answer together */
#define ONCE_FLOW_ATTEMPTS_MAX_DEFAULT 20
#define ONCE_FLOW_CRASHES_MAX_DEFAULT 5
#define ONCE_FLOW_BACKOFF_MS_DEFAULT 1000
#define ONCE_FLOW_BACKOFF_MS_MAX_DEFAULT (5 * 60 * 1000)

/* ---------------------------------------------------------------- a local phase */

struct sqlite3;
struct pg_conn; /* libpq's PGconn */

/* How a step ended. A step must return the result of one of the functions below. */
typedef struct once_step_end {
    int how;
} once_step_end;

/* The input of a phase. Its transaction is open on your connection; the connection of the other
 * database is NULL. Do not end the transaction. Do nothing that a rollback would not undo. */
struct once_local {
    struct sqlite3 *sqlite;
    struct pg_conn *postgres;
    struct once_grant grant; /* of this attempt: record and fence */
    uint32_t attempt;
    once_span request; /* as the first attempt got it */
    once_span state;   /* as the last phase stored it; empty at first */
    once_span answer;  /* of the call before this phase; empty if there was no call */
};

typedef once_step_end once_local_fn(struct once_local *local, void *arg);

/* Continue with the next step. `state` (copied) is stored for the steps after this one. */
ONCE_API ONCE_CHECKED once_step_end once_local_next(struct once_local *local, once_span state);
/* End the flow: this outcome (copied), SUCCEEDED or finally FAILED, is stored with the phase's writes. */
ONCE_API ONCE_CHECKED once_step_end once_local_finish(struct once_local *local, const struct once_outcome *outcome);
/* The phase failed for now (a lock, a full disk); `why` is for the log. The phase is rolled back and
 * tried again later. The answer of a call before it stays stored. */
ONCE_API ONCE_CHECKED once_step_end once_local_fail(struct once_local *local, const char *why);

/* ---------------------------------------------------------------- a call to another service */

/* The abilities of the called service. They decide what the next attempt does if this one may have
 * sent its request and then died, or lost the answer. */
enum once_callee {
    ONCE_CALLEE_OPAQUE = 0, /* does not know keys: never called twice; the record becomes unknown */
    ONCE_CALLEE_IDEMPOTENT, /* honours the key: called again, with the same key */
    ONCE_CALLEE_PROBEABLE,  /* can be asked whether a call happened: `probe` first */
};

/* The input of a call. */
struct once_call {
    const char *key;         /* the child key, to send as the idempotency key: the same on every attempt */
    struct once_grant grant; /* its fence is for services that can refuse older ones */
    uint32_t attempt;
    once_span request, state; /* as in a phase */
};

typedef once_step_end once_call_fn(struct once_call *call, void *arg);

/* A complete answer came, good or bad (copied); the phase after the call judges it. From a probe: the
 * call happened, and this was its answer. */
ONCE_API ONCE_CHECKED once_step_end once_call_answered(struct once_call *call, once_span answer);
/* The call certainly did not happen, for instance because the connection was refused; it is tried
 * again later. From a probe: it did not happen and will not; the call is made now. */
ONCE_API ONCE_CHECKED once_step_end once_call_not_sent(struct once_call *call, const char *why);
/* Something may have been sent, and no complete answer came. From a probe: it found no answer. */
ONCE_API ONCE_CHECKED once_step_end once_call_lost(struct once_call *call, const char *why);

/* Where a service says, in answer to a GET, whether a call happened. */
struct once_probe_http {
    const char *url;    /* http://... or https://...; the call's key replaces {key} in it */
    once_span headers;  /* lines "Name: value\r\n", such as credentials; Once-Key and Once-Fence are added */
    int64_t timeout_ms; /* for the whole probe; 0: 10 s */
};

/* For a probe: sends the GET. A complete 200 with a body is the answer, as from once_call_answered(). A complete 404:
 * the call did not happen, and is made. Every other end counts as lost: redirects (not followed), other statuses, no
 * answer or an incomplete one, a body over ONCE_FLOW_CHECKPOINT_LEN_MAX or without a marked end. */
ONCE_API ONCE_CHECKED once_step_end once_call_probe_http(struct once_call *call, const struct once_probe_http *probe);

/* False if the lease is over, or another attempt took over: do not send any more. */
ONCE_API bool once_call_is_held(const struct once_call *call);

/* ---------------------------------------------------------------- a flow */

struct once_flow_step {
    const char *name; /* lower case letters, digits, '-'; "received" is taken */
    once_local_fn *local;
    once_call_fn *call;
    enum once_callee callee;
    once_call_fn *probe;   /* PROBEABLE: asks whether the call happened, and changes nothing */
    bool intent;           /* commit "about to call" first; an attempt that died before that commit has sent nothing.
                              Useful above all if the callee is OPAQUE */
    const char *probe_url; /* PROBEABLE, in place of `probe`: once_call_probe_http() with this URL */
};

#define ONCE_LOCAL(step, function)                                                                                     \
    {                                                                                                                  \
        .name = (step), .local = (function)                                                                            \
    }
/* The function, then further members: ONCE_CALL("charge", charge_card, .callee = ONCE_CALLEE_IDEMPOTENT). */
#define ONCE_CALL(step, ...)                                                                                           \
    {                                                                                                                  \
        .name = (step), .call = __VA_ARGS__                                                                            \
    }

/*
 * A static table. A local phase must follow every call, to store its result. Do not rename flows or steps while records
 * are unfinished: an attempt whose recovery point is not in the table is refused with ONCE_CORRUPT.
 */
struct once_flow {
    const char *name;
    struct once_flow_step steps[ONCE_FLOW_STEPS_MAX + 1]; /* the first step without a name ends the table */

    int64_t lease_ms;          /* renewed during a call; 0: 60 s */
    int64_t retention_ms;      /* from the finish; 0: 24 h; ONCE_NEVER */
    int64_t body_retention_ms; /* of the answer; 0: retention_ms, the maximum (once_claim in once.h) */
    uint32_t attempts_max;     /* when a completer has made so many, the record becomes unknown; 0: 20 */
    uint32_t crashes_max;      /* when so many attempts died without an end, likewise; 0: 5 */
    int64_t backoff_ms;        /* the pause before the second try; doubles, with jitter; 0: 1 s */
    int64_t backoff_ms_max;    /* 0: 5 min */
};

/* ONCE_INVALID, with a text, if the table is not valid. once_flow_run() asserts that it is. */
ONCE_API ONCE_CHECKED once_result once_flow_check(const struct once_flow *flow, struct once_error *err);

/* ---------------------------------------------------------------- the database */

/*
 * Your database connection, prepared for flows. You open it, configure it, and close it after
 * once_flow_close(). Do not use it while a flow runs. One thread at a time; use one connection per
 * thread.
 *
 * SQLite: missing tables of Once are created in your database. Set a busy timeout, and set
 * journal_mode and synchronous for the failures that you want to survive (docs/flows.md). Leases are
 * renewed on the same connection, under its mutex, during calls.
 * PostgreSQL: needs the schema (`once migrate`) and the role once_app. The library opens a second
 * connection with the same parameters when it needs it: to renew leases, and to look up whether a
 * COMMIT took effect whose answer was lost. It then resets your broken connection (PQreset). Handle
 * notices with PQsetNoticeProcessor(): your notice receiver would lose its argument.
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
    once_span request; /* all that the steps need: a completer has nothing else. No credentials.
                          Another request under the same key is compared with it */
};

/* What a run did, in addition to its reply. */
struct once_flow_report {
    bool executed;    /* this call held the record and ran steps; otherwise it answered from the record */
    bool fenced;      /* another attempt took over from this one: the reply is the stored one */
    uint32_t phases;  /* local phases that committed */
    uint32_t calls;   /* calls and probes that were made */
    char reason[200]; /* why it did not reach an outcome, for the log; otherwise empty */
};

/*
 * Run the flow, or answer from its record. With ONCE_OK the arm is
 *   REPLAY       the outcome of this attempt or of another; FAILED, retryable, with status 503: no call
 *                is open, retry later
 *   IN_PROGRESS  another attempt is running; or this one is postponed: the end of a call is not known,
 *                and it will be made again or probed, after retry_after_ms
 *   UNKNOWN      something may have been sent to an OPAQUE callee, or a limit was reached: an operator
 *                must decide (once keys resolve)
 *   MISMATCH     the key was used for another request
 *   FENCED       another attempt took over, and its record is gone, or the key names another operation
 * Any other result: the database failed. Writes that were not committed did not happen; the next attempt
 * continues from the record. ONCE_UNKNOWN: the answer to a COMMIT was lost, and the database could not
 * be asked whether it took effect; run the flow again under the same key.
 * `report` may be NULL.
 */
ONCE_API ONCE_CHECKED once_result once_flow_run(const struct once_flow *flow, struct once_flow_db *db,
                                                const struct once_flow_input *input, void *arg,
                                                struct once_flow_report *report, struct once_reply *reply,
                                                struct once_error *err);

/* ---------------------------------------------------------------- completing */

/* The position of a completer in its round over the records; begin with { 0 }. A round goes back to the oldest record
 * of the flow that was unfinished in the round before, and once an hour to the oldest record of all. */
struct once_flow_round {
    uint64_t before; /* 0: begin a round, with the newest record */
    uint64_t floor, lowest, mark, settled;
    once_time mark_at, whole_at; /* all members are private */
};

struct once_flow_step_report {
    uint32_t looked;    /* unfinished records of this flow that were seen */
    uint32_t taken;     /* abandoned records that this step took over */
    uint32_t ended;     /* of those: have an outcome now */
    uint32_t postponed; /* of those: will be tried again */
    uint32_t escalated; /* of those: are unknown now */
    uint32_t missed;    /* abandoned records that another attempt took over first */
    uint32_t stuck;     /* damaged, or at a step that the flow does not have; they are not changed */
    char reason[200];   /* of the first stuck record */
    bool more;          /* the round is not complete: step again without a pause */
};

/*
 * One bounded step of a completer. It reads a number of records, newest first, from the position of the
 * round, and runs the remaining steps of abandoned records of this flow: running with the lease over, or
 * failed, retryable and due (backoff with jitter). A takeover compares the fence, so only one completer
 * or client gets each record. A completer never begins a new record and never replays. Any number of
 * completers may run.
 */
ONCE_API ONCE_CHECKED once_result once_flow_complete(const struct once_flow *flow, struct once_flow_db *db, void *arg,
                                                     struct once_flow_round *round, struct once_flow_step_report *swept,
                                                     struct once_error *err);

/* The same in a loop, with `pause_ms` between rounds, until `stop` (called after every step, and ten times a second
 * during a pause) returns true. `each` (may be NULL) gets the report of each step, or its error. */
typedef bool once_flow_stop_fn(void *arg);
typedef void once_flow_each_fn(void *arg, once_result result, const struct once_flow_step_report *swept,
                               const struct once_error *err);
ONCE_API void once_flow_complete_until(const struct once_flow *flow, struct once_flow_db *db, void *arg,
                                       int64_t pause_ms, once_flow_stop_fn *stop, once_flow_each_fn *each);

#ifdef __cplusplus
}
#endif
#endif
