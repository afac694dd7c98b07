/*
 * once.h - retry safety as a library.
 *
 * A caller that lost an answer sends its request again. With Once in between,
 * the request takes effect once and every retry gets the same answer. The unit is
 * a record: one per (tenant, key). It says whether the operation is running,
 * finished (and with which outcome) or unknown. docs/glossary.md defines the terms.
 *
 *     struct once *once = NULL;
 *     struct once_error err;
 *     if (once_open("sqlite:/var/lib/shop/once.db", NULL, &once, &err) != ONCE_OK)
 *         die(err.text);
 *
 *     struct once_claim claim = { .key = ONCE_LIT("order-17") };
 *     struct once_reply reply;
 *     once_result r = once_run(once, &claim, &(struct once_run_options){ 0 },
 *                              charge_the_card, &order, NULL, &reply, &err);
 *     if (r == ONCE_OK && reply.arm == ONCE_ARM_REPLAY)
 *         answer(reply.record.status, reply.record.body);
 *     once_reply_release(&reply);
 *     once_close(once);
 *
 * The promise (docs/design.md): an effect in the same database transaction as the
 * key happens exactly once. A call to another service happens exactly once if that
 * service honours the child key. If it does not, the call happens at most once, and
 * the record may end `unknown`, which is stored and shown, never guessed.
 *
 * Rules that hold for every function here:
 *   - Bytes are spans, borrowed for the call; a NUL is an ordinary byte.
 *   - A once_result says whether the call worked. The answer of the store (execute,
 *     here is the stored outcome, another attempt is running) is the reply's `arm`.
 *   - `err` may be NULL. It is written only when the result is not ONCE_OK.
 *   - A reply is always written and always needs once_reply_release(), which is
 *     harmless after a failure. Its spans live until then.
 *   - Options are structs in which zero means the default; values outside the
 *     documented range are refused with ONCE_INVALID.
 *   - All functions on a `struct once` may be called from any thread, except
 *     once_close(), which frees the handle.
 *   - Do not use a handle in a child process after fork().
 */
#ifndef ONCE_H
#define ONCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ONCE_VERSION_MAJOR 0
#define ONCE_VERSION_MINOR 1
#define ONCE_VERSION_PATCH 0

#if defined(__GNUC__)
#define ONCE_API __attribute__((visibility("default")))
#define ONCE_CHECKED __attribute__((warn_unused_result))
#else
#define ONCE_API
#define ONCE_CHECKED
#endif

/* The version of the library at run time, such as "0.1.0"; compare it with the macros above. */
ONCE_API const char *once_version(void);

/* ---------------------------------------------------------------- bytes, time */

typedef struct once_span {
    const uint8_t *ptr;
    size_t len;
} once_span;

#define ONCE_LIT(s) ((once_span){ (const uint8_t *)(s), sizeof(s) - 1 })

/* Milliseconds since 1970-01-01 UTC on the store's clock (docs/internals/clock.md). */
typedef int64_t once_time;

#define ONCE_NEVER ((int64_t)-1) /* as a retention: keep for ever; as a time: never */

/* ---------------------------------------------------------------- limits */

#define ONCE_KEY_LEN_MAX 255               /* bytes of a key; the same limit as that of Stripe */
#define ONCE_TENANT_LEN_MAX 255            /* bytes of a tenant; the empty tenant is the single tenant */
#define ONCE_POINT_LEN_MAX 64              /* bytes of a recovery point's name */
#define ONCE_POINT_COUNT_MAX 64            /* recovery points one record may pass */
#define ONCE_CHECKPOINT_LEN_MAX (64 << 10) /* bytes kept with a recovery point */
#define ONCE_HEADERS_LEN_MAX (64 << 10)    /* bytes of stored header lines */
#define ONCE_BODY_LEN_MAX (16 << 20)       /* bytes of a stored body */
#define ONCE_REQUEST_LEN_MAX ((1 << 20) + ONCE_HEADERS_LEN_MAX) /* bytes of a stored request */
#define ONCE_REASON_LEN_MAX 1000 /* bytes of an operator's reason; the actor's name: 255 */
#define ONCE_LEASE_MS_DEFAULT 60000
#define ONCE_LEASE_MS_MAX (24LL * 3600 * 1000)
#define ONCE_RETENTION_MS_DEFAULT (24LL * 3600 * 1000)
#define ONCE_RETENTION_MS_MAX (100LL * 366 * 24 * 3600 * 1000)
#define ONCE_WAIT_MS_MAX (24LL * 3600 * 1000)
#define ONCE_KEY_SKEW_MS_MAX (5LL * 60 * 1000) /* how far the clock that a UUIDv7 was made with may be off */
#define ONCE_CHILD_KEY_LEN 48                  /* printable; callees accept at least 64 */
#define ONCE_UUID_LEN 36
#define ONCE_LIST_LIMIT_MAX 1000
#define ONCE_ROUTE_LEN_MAX 64   /* bytes of a route's name, visible ASCII */
#define ONCE_ROUTE_COUNT_MAX 62 /* names that a store keeps; it stores any further name as "other" */

/* ---------------------------------------------------------------- results */

/* Each code exists because some caller acts differently on it. */
#define ONCE_RESULTS(X)                                                                                                \
    X(OK, "done")                                                                                                      \
    X(INVALID, "the caller's input is not acceptable")                                                                 \
    X(LIMIT, "a documented limit was reached")                                                                         \
    X(BUSY, "no room right now, try again later; nothing was changed")                                                 \
    X(UNAVAILABLE, "the store was not reached or refused; nothing was changed")                                        \
    X(UNKNOWN, "the answer was lost; it may have taken effect")                                                        \
    X(CORRUPT, "stored data breaks an invariant")                                                                      \
    X(NO_MEMORY, "out of memory; nothing was changed")                                                                 \
    X(QUOTA, "the tenant has reached its quota; nothing was changed")

typedef enum once_result {
#define ONCE__RESULT(name, text) ONCE_##name,
    ONCE_RESULTS(ONCE__RESULT)
#undef ONCE__RESULT
} once_result;

/* "BUSY" and "no room right now, ...". Never NULL. */
ONCE_API const char *once_result_name(once_result result);
ONCE_API const char *once_result_text(once_result result);

/* An error for a person: what failed, on which input, and what to do. */
struct once_error {
    once_result result;
    char text[500];
};

/* ---------------------------------------------------------------- the record */

#define ONCE_STATES(X)                                                                                                 \
    X(RUNNING, "running")                                                                                              \
    X(SUCCEEDED, "succeeded")                                                                                          \
    X(FAILED, "failed")                                                                                                \
    X(UNKNOWN, "unknown")

enum once_state {
    ONCE_STATE_NONE = 0,
#define ONCE__STATE(name, text) ONCE_STATE_##name,
    ONCE_STATES(ONCE__STATE)
#undef ONCE__STATE
};

/* The policy for a record whose lease is over while it is running: what the next claim of the key gets. */
#define ONCE_TAKEOVERS(X)                                                                                              \
    X(ESCALATE, "escalate")                                                                                            \
    X(RERUN, "rerun")                                                                                                  \
    X(PROBE, "probe")                                                                                                  \
    X(COMPLETER, "completer") /* a completer takes over (once_take_over() answers PROBE); claims get IN_PROGRESS */

enum once_takeover {
    ONCE_TAKEOVER_DEFAULT = 0, /* escalate: nothing is executed twice without consent */
#define ONCE__TAKEOVER(name, text) ONCE_TAKEOVER_##name,
    ONCE_TAKEOVERS(ONCE__TAKEOVER)
#undef ONCE__TAKEOVER
};

ONCE_API const char *once_state_name(enum once_state state);
ONCE_API const char *once_takeover_name(enum once_takeover takeover);

/* A hash of the request; see once_fingerprint_http(). */
struct once_fingerprint {
    uint8_t bytes[32];
};

/* The right to execute: the record's id, and the fence of this grant (K2: fences only
 * grow). Send the fence to services that can refuse older ones. */
struct once_grant {
    uint8_t record[16];
    uint64_t fence;
};

/* How an attempt ended. */
struct once_outcome {
    enum once_state state; /* SUCCEEDED, FAILED or UNKNOWN */
    bool retryable;        /* FAILED only: the next claim executes again */
    bool undelivered;      /* retryable only: no client was told this; a completer may send the request again */
    bool body_dropped;     /* executed, but the answer was too large to store; `body` is empty */
    int32_t status;        /* an HTTP status, an exit status: the caller's, replayed as given */
    once_span headers;     /* lines "Name: value\r\n"; may be empty */
    once_span body;
};

/* A record as it was read. A span without a value is empty. */
struct once_record {
    struct once_grant grant; /* the newest grant */
    once_span tenant, key;   /* the key is empty if the store does not keep key texts */
    struct once_fingerprint fingerprint;
    enum once_state state;
    bool retryable;
    bool undelivered;
    bool body_dropped; /* executed, but the answer is not stored: headers and body are empty */
    bool body_expired; /* headers and body are empty because their retention is over: a tombstone */
    bool body_sealed;  /* headers and body are empty because this process does not have the key to unseal them */
    bool lease_live;   /* RUNNING only: the holder's lease is not over */
    bool has_request;  /* a request is stored; set only by once_take_over() and in a listing by `abandoned` */
    bool forgotten;    /* once_forget() erased its names, answers, requests and checkpoints */
    enum once_takeover takeover;
    uint32_t attempt; /* 1 for the first */
    int32_t status;
    int64_t retention_ms;      /* or ONCE_NEVER */
    int64_t body_retention_ms; /* 0: headers and body are kept as long as the record */
    once_time created_at;      /* of the first attempt */
    once_time claimed_at;      /* of this attempt */
    once_time lease_until;     /* RUNNING only, else 0 */
    once_time finished_at;     /* 0 while running */
    once_time expires_at;      /* 0 while running; ONCE_NEVER */
    once_span recovery_point, checkpoint;
    once_span headers, body;
    once_span request; /* only in the reply of once_take_over() and once_lookup_request() */
    once_span route;   /* of the newest claim, or "other"; may be empty in a replay */
};

/* The answer of the store. */
#define ONCE_ARMS(X)                                                                                                   \
    X(EXECUTE, "execute")         /* the caller holds the record: do the work, then finish */                          \
    X(PROBE, "probe")             /* the caller holds the record: ask whether the work happened, */                    \
                                  /* then finish with that answer, or do the work */                                   \
    X(REPLAY, "replay")           /* the reply has the stored outcome */                                               \
    X(MISMATCH, "mismatch")       /* the key was used for another request */                                           \
    X(IN_PROGRESS, "in progress") /* another attempt is running; see retry_after_ms */                                 \
    X(UNKNOWN, "unknown")         /* the effect may have happened; an operator must decide */                          \
    X(DONE, "done")               /* of extend, advance, finish, release, resolve, forget: it took effect */           \
    X(FENCED, "fenced")           /* the grant is not the newest any more: answer from the record */                   \
    X(FOUND, "found")             /* of a look-up */                                                                   \
    X(ABSENT, "absent")           /* there is no such record, or its retention is over */                              \
    X(EXPIRED, "expired")         /* claim with key_time: no record, and the key's time is outside the window */

enum once_arm {
    ONCE_ARM_NONE = 0,
#define ONCE__ARM(name, text) ONCE_ARM_##name,
    ONCE_ARMS(ONCE__ARM)
#undef ONCE__ARM
};

ONCE_API const char *once_arm_name(enum once_arm arm);

struct once_reply {
    enum once_arm arm;
    int64_t retry_after_ms;    /* IN_PROGRESS: how long to wait before the next claim */
    struct once_record record; /* MISMATCH, ABSENT and EXPIRED: empty */
    void *memory;              /* private */
};

ONCE_API void once_reply_release(struct once_reply *reply);

/* ---------------------------------------------------------------- open, close */

struct once;

/* Both clocks in milliseconds. `steady` never jumps while the machine is up and
 * counts suspended time (CLOCK_BOOTTIME); `wall` may jump; `boot` names this run
 * of the machine. Provide your own only for tests. */
struct once_clock {
    once_time (*wall)(void *arg);
    once_time (*steady)(void *arg);
    void (*boot)(void *arg, uint8_t id[16]);
    void *arg;
};

struct once_options {
    bool shared;           /* lock the store for each step only, for short-lived processes; the
                              default is to own the store until once_close(), which is faster */
    bool poll;             /* once_dispatch() runs the callbacks; otherwise the engine's thread does */
    bool no_migrate;       /* refuse an empty or older store instead of upgrading it */
    uint32_t queue_len;    /* at most this many queued operations; 0: 4096, up to 65536 */
    uint32_t batch_len;    /* at most this many operations in one commit; 0: 1024, up to 4096 */
    uint32_t waiter_len;   /* at most this many claims that wait for another's outcome; 0: 4096, up to 65536 */
    uint32_t lock_wait_ms; /* shared: how long a step waits for the lock; 0: 10 s */
    const struct once_clock *clock;
    /* Receives the store's warnings to its operator, a line each: settings that are less safe than they could be,
     * losses. Called from once_open() and from the engine's thread. May be NULL. */
    void (*warn)(void *arg, const char *text);
    void *warn_arg;
    /* Seal (AES-256-GCM) bodies, header lines, stored requests and checkpoints with keys from a file (mode 0600), or
     * from the output of a command: docs/sealing.md. NULL: do not seal. A store with sealed bytes cannot be opened
     * without its keys. Not for `once:` URLs: a daemon seals its own store. */
    const char *seal_keys;
    const char *seal_keys_command;
    bool without_keys; /* open a sealed store without its keys, for maintenance: sealed bytes read as not stored, and
                          claim, advance and finish are refused */
};

/*
 * Open the store that `url` names:
 *   sqlite:PATH[?keytext=off][&reserve=BYTES]   a file
 *   postgresql://...                            a database, as a URL of libpq, also through a
 *                                               pooler; connect_timeout is 10 s and
 *                                               tcp_user_timeout 30 s unless the URL sets them
 *   redis://HOST:PORT/DB?tier=best-effort       Redis, which may lose acknowledged writes (docs/redis.md);
 *                                               rediss:// with TLS, redis+unix:PATH
 *   once:PATH                                   the store of a daemon, through its socket
 *   trace+URL, fault+URL                        wrappers for debugging and tests
 * An empty or missing file becomes a new store (mode 0600). `options` may be NULL.
 * *out is written only on success.
 */
ONCE_API ONCE_CHECKED once_result once_open(const char *url, const struct once_options *options, struct once **out,
                                            struct once_error *err);

/* Create the store, or upgrade it. once_open() does this by itself for a file, and never for
 * a PostgreSQL database. *version (may be NULL) is the store's version afterwards. */
ONCE_API ONCE_CHECKED once_result once_migrate(const char *url, int *version, struct once_error *err);

/* Complete the submitted requests, then free everything. NULL is fine. No other thread
 * may be inside a call on the same handle. */
ONCE_API void once_close(struct once *once);

/* The promise of the store: "full", or "best-effort" (Redis), which applications should tell their clients. The
 * best-effort tier refuses a claim with retention ONCE_NEVER with ONCE_INVALID. */
ONCE_API const char *once_tier(const struct once *once);

/* The invariants that the store does not keep; an empty list if the tier is full. */
struct once_gap {
    const char *invariant, *text;
};
ONCE_API const struct once_gap *once_gaps(const struct once *once, size_t *count);

/* ---------------------------------------------------------------- the protocol */

struct once_claim {
    once_span tenant;
    once_span key;                       /* 1 to 255 bytes */
    struct once_fingerprint fingerprint; /* of the request; all zero is an ordinary value */
    int64_t lease_ms;                    /* 0: 60 s */
    int64_t retention_ms;                /* from the finish; 0: 24 h; ONCE_NEVER (not on the best-effort tier) */
    int64_t body_retention_ms;           /* of headers and body, from the finish; 0: retention_ms, the maximum */
    int64_t wait_ms;                     /* while in progress, wait this long for the outcome; 0: do not wait */
    enum once_takeover takeover;
    bool intent;       /* the caller promises to store a recovery point, such as ONCE_POINT_SENDING, before it
                          sends anything; a takeover without that point knows that nothing was sent */
    bool key_time;     /* without a record, a UUIDv7 whose time is outside the window is EXPIRED; see below */
    once_span request; /* stored until the finish, for the next attempt. The format is the caller's; leave
                          credentials out. Empty: the request of an earlier attempt stays */
    once_span route;   /* a label such as "orders", to count and find records by; it decides nothing.
                          Use few different ones. Empty: no label */
    uint8_t nonce[16]; /* identifies this call; all zero: the library makes one. A claim that is repeated
                          with its nonce after a lost answer returns the same grant */
};

/*
 * Ask to execute. The arms, in the order in which they are decided:
 *   absent, expired or released   EXECUTE (a new record); with key_time perhaps EXPIRED
 *   another fingerprint           MISMATCH
 *   finished for good             REPLAY
 *   failed, retryable             EXECUTE (next attempt)
 *   unknown                       UNKNOWN
 *   running, lease live           IN_PROGRESS
 *   running, lease over           by this claim's takeover: EXECUTE, PROBE or UNKNOWN; but EXECUTE
 *                                 if the holder had intent and stored no point: nothing was sent.
 *                                 `completer`: IN_PROGRESS if the holder's claim said so too, else UNKNOWN
 * EXECUTE and PROBE are answered after the claim is durable (K4). A daemon with quotas answers ONCE_QUOTA to a claim
 * that would make a new record, or wait, when its tenant has reached a quota. It never refuses a replay for that.
 *
 * body_retention_ms: when it is over, the record is a tombstone. It still replays its status, with body_dropped and
 * body_expired and without headers and body; it is never executed again. This does not wait for once_expire(), which
 * only frees the space. An unknown record keeps its headers and body until it is resolved. A finish that is repeated
 * after that time cannot be compared any more and is FENCED.
 *
 * key_time: "exactly once" ends with the retention; a later retry looks like a new request. A UUIDv7 contains the time
 * when it was made. If there is no record, a UUIDv7 that is as old as the retention, or comes from the future, is
 * EXPIRED and never executed. The store's clock decides. It may differ from the clock that made the key by a skew of 5
 * minutes, or half the retention if that is less: a key is accepted up to that much before its time, and is EXPIRED
 * that much before the retention is over. So a key that was accepted once cannot be accepted again after its record
 * expired, whichever clock made it, if all its claims have the same retention. Other keys, and all keys under
 * ONCE_NEVER, are not affected. Leave key_time off if keys are ids of objects that may be older than the operation.
 */
ONCE_API ONCE_CHECKED once_result once_claim(struct once *once, const struct once_claim *claim,
                                             struct once_reply *reply, struct once_error *err);

struct once_take_over {
    struct once_grant seen; /* the record's newest grant, as a listing or a look-up showed it */
    int64_t lease_ms;       /* 0: that of the attempt before */
    bool intent;            /* as in a claim */
    uint8_t nonce[16];      /* as in a claim */
};

/*
 * Take over an abandoned record, for completers. The record's newest grant must still be `seen`, and
 * the record must be running with its lease over, or failed and retryable. Then, by the policy of the
 * claim that made `seen`:
 *   failed, retryable             EXECUTE (next attempt)
 *   running, lease over           by the stored takeover: EXECUTE, PROBE (also for `completer`), or
 *                                 UNKNOWN, which is then stored; but EXECUTE if the holder had
 *                                 intent and stored no point
 * with recovery point, checkpoint and stored request in the reply. In all other cases nothing changes: FENCED
 * with the current record (see once_extend()), ABSENT if there is no record. Never begins a new life of
 * a key and never replays.
 */
ONCE_API ONCE_CHECKED once_result once_take_over(struct once *once, const struct once_take_over *take_over,
                                                 struct once_reply *reply, struct once_error *err);

/* Renew the lease: lease_ms from now (0: as claimed). DONE, or FENCED with the current record. Here and below,
 * FENCED comes without a record (state NONE) if the record is gone, or if the key now names another operation:
 * that of another request, or the same request in a later life of the key (K5, K6). */
ONCE_API ONCE_CHECKED once_result once_extend(struct once *once, struct once_grant grant, int64_t lease_ms,
                                              struct once_reply *reply, struct once_error *err);

/* A recovery point that says no more than "about to send". Names that begin with "once:" are reserved. */
#define ONCE_POINT_SENDING "once:sending"

/* Store a recovery point and its checkpoint for the next attempt. Points only move
 * forward (K11): ONCE_INVALID if this one was passed before; the current one may be
 * repeated. Renews the lease. DONE or FENCED. */
ONCE_API ONCE_CHECKED once_result once_advance(struct once *once, struct once_grant grant, once_span point,
                                               once_span checkpoint, struct once_reply *reply, struct once_error *err);

/* Store the outcome. DONE after it is durable, and again if repeated; FENCED, with
 * the stored record, if a newer grant exists or another outcome is stored (K3, K5). */
ONCE_API ONCE_CHECKED once_result once_finish(struct once *once, struct once_grant grant,
                                              const struct once_outcome *outcome, struct once_reply *reply,
                                              struct once_error *err);

/*
 * Give the grant back: this attempt definitely had no effect. DONE or FENCED. It says nothing about earlier
 * attempts (ADR 8). The record is then
 *   a first attempt, no recovery point       gone; the key can be claimed for any request
 *   it took over a running attempt, which    running with its lease over; the next claim's takeover
 *   may have sent something                  decides
 *   otherwise                                failed, retryable; the recovery point stays
 * ONCE_POINT_SENDING does not count as a recovery point here.
 */
ONCE_API ONCE_CHECKED once_result once_release(struct once *once, struct once_grant grant, struct once_reply *reply,
                                               struct once_error *err);

/* Read a record; changes nothing. FOUND or ABSENT. */
ONCE_API ONCE_CHECKED once_result once_lookup(struct once *once, once_span tenant, once_span key,
                                              struct once_reply *reply, struct once_error *err);

/* The same by the record's id, which logs and traces show instead of the key (`key_hash`), for any tenant. The reply
 * has tenant and key, as far as the store keeps them. */
ONCE_API ONCE_CHECKED once_result once_lookup_record(struct once *once, const uint8_t record[16],
                                                     struct once_reply *reply, struct once_error *err);

/* As once_lookup(), with the stored request. */
ONCE_API ONCE_CHECKED once_result once_lookup_request(struct once *once, once_span tenant, once_span key,
                                                      struct once_reply *reply, struct once_error *err);

/* An operator's decision on a record that is unknown, or running with its lease over. */
enum once_verdict {
    ONCE_VERDICT_DONE = 1, /* the effect happened, with this outcome */
    ONCE_VERDICT_NOT_DONE, /* it did not happen, or only in part: the next claim executes, from the recovery point */
    ONCE_VERDICT_RELEASE,  /* nothing happened: remove the record */
};

struct once_resolve {
    once_span tenant, key;
    uint64_t fence; /* the fence that the operator saw; 0: any */
    enum once_verdict verdict;
    struct once_outcome outcome; /* VERDICT_DONE: SUCCEEDED or FAILED, final */
    once_span actor, reason;     /* kept in the audit trail; the reason is required */
};

/* DONE; or nothing changed: ABSENT, REPLAY (it is finished, or failed and retryable),
 * IN_PROGRESS (its lease is live), FENCED (it changed after the operator saw it). */
ONCE_API ONCE_CHECKED once_result once_resolve(struct once *once, const struct once_resolve *resolve,
                                               struct once_reply *reply, struct once_error *err);

/* For a request to erase somebody's data. */
struct once_forget {
    once_span tenant, key;   /* the record; an empty key: the record of `seen`, as a listing showed it */
    struct once_grant seen;  /* forget it only if it still has this fence; 0: any */
    bool drop;               /* remove the whole record: the next claim of its key EXECUTES AGAIN */
    once_span actor, reason; /* kept in the audit trail; the reason is required; no personal data */
};

/*
 * Erases the texts of a record that may hold personal data: tenant and key, header lines, bodies, requests and
 * checkpoints, of all its attempts. The rest (record id, fingerprint, state, status, times) stays until its retention
 * ends: a retry is not executed again but told that the operation was done and that its answer is not stored
 * (`body_dropped`; an empty answer is replayed as before).
 * DONE, also if it was forgotten before; ABSENT; FENCED (it is not as it was seen). A record that is not finished is
 * not changed: IN_PROGRESS (its lease is live), UNKNOWN (its outcome is unknown, or an attempt is to continue from a
 * recovery point: resolve it first). With `drop`, an unknown record is removed as well. docs/sealing.md says where
 * erased bytes may remain.
 */
ONCE_API ONCE_CHECKED once_result once_forget(struct once *once, const struct once_forget *forget,
                                              struct once_reply *reply, struct once_error *err);

/* ---------------------------------------------------------------- asynchronously */

enum once_verb {
    ONCE_VERB_CLAIM = 1,
    ONCE_VERB_EXTEND,
    ONCE_VERB_ADVANCE,
    ONCE_VERB_FINISH,
    ONCE_VERB_RELEASE,
    ONCE_VERB_LOOKUP,
    ONCE_VERB_RESOLVE,
    ONCE_VERB_TAKE_OVER,
    ONCE_VERB_FORGET,
};

/* The calls above as data: fill in what the verb's function takes. */
struct once_request {
    enum once_verb verb;
    struct once_grant grant; /* EXTEND, ADVANCE, FINISH, RELEASE; LOOKUP without a key: its record is read */
    union {
        struct once_claim claim;
        struct once_resolve resolve;
        struct once_take_over take_over;
        struct once_forget forget;
        struct once_outcome outcome; /* FINISH */
        struct {
            int64_t lease_ms;
        } extend;
        struct {
            once_span point, checkpoint;
        } advance;
        struct {
            once_span tenant, key;
            bool request; /* read the stored request as well */
        } lookup;
    };
};

/* Called once per accepted request. The callback releases the reply; `err` is valid
 * only until it returns. It must not block, and must not call the synchronous
 * functions of the same handle. It may submit further requests. */
typedef void once_done_fn(void *arg, once_result result, struct once_reply *reply, const struct once_error *err);

/* Queue a request; its bytes are copied. ONCE_BUSY if the queue is full. `done` is
 * called only if the result is ONCE_OK. */
ONCE_API ONCE_CHECKED once_result once_submit(struct once *once, const struct once_request *request, once_done_fn *done,
                                              void *arg, struct once_error *err);

/* With options.poll: a descriptor that is readable while completions are waiting, and the
 * call that runs at most `max` of their callbacks on this thread (it returns how many). The
 * engine begins with the requests that those callbacks submit when the last of them has
 * returned, or earlier if they fill a batch or the queue. Without options.poll: -1 and 0. */
ONCE_API int once_eventfd(const struct once *once);
ONCE_API size_t once_dispatch(struct once *once, size_t max);

/* ---------------------------------------------------------------- claim, work and finish in one call */

struct once_attempt; /* one execution, inside a callback of once_run() */

enum once_work {
    ONCE_WORK_ENDED = 1,   /* *outcome says how; once_finish() stores it */
    ONCE_WORK_NOT_STARTED, /* the work certainly had no effect; once_release() follows */
    ONCE_WORK_UNKNOWN,     /* something was sent and no complete answer came: the record becomes unknown */
};

/* Does the work. Spans put into *outcome must live until once_run() returns. */
typedef enum once_work once_work_fn(struct once_attempt *attempt, void *arg, struct once_outcome *outcome);

struct once_run_options {
    once_work_fn *probe; /* for takeover `probe`: ENDED stores that outcome, NOT_STARTED runs the
                            work, UNKNOWN makes the record unknown. It gets the work's `arg` */
};

/*
 * Claim; if the arm is EXECUTE, run `work` while a thread renews the lease; store the
 * outcome; answer. The arm is then REPLAY (the outcome of this attempt or of another),
 * UNKNOWN, MISMATCH, IN_PROGRESS, EXPIRED, DONE (released), or FENCED (another attempt took
 * over, and its record is gone). The result ONCE_UNKNOWN after the work: the work was done,
 * but its outcome could not be stored. `*executed` (may be NULL) says whether this call did
 * the work. If another attempt took over meanwhile, the reply has the stored outcome, never
 * that of this call (K3).
 */
ONCE_API ONCE_CHECKED once_result once_run(struct once *once, const struct once_claim *claim,
                                           const struct once_run_options *options, once_work_fn *work, void *arg,
                                           bool *executed, struct once_reply *reply, struct once_error *err);

/* The record as it was claimed: attempt number, fence, recovery point, checkpoint. */
ONCE_API const struct once_record *once_attempt_record(const struct once_attempt *attempt);
/* False after a renewal of the lease was refused: stop sending; the outcome will not be stored. */
ONCE_API bool once_attempt_is_held(const struct once_attempt *attempt);
/* once_advance() for this attempt; ONCE_OK also means that it was not fenced. */
ONCE_API ONCE_CHECKED once_result once_attempt_advance(struct once_attempt *attempt, once_span point,
                                                       once_span checkpoint, struct once_error *err);
/* once_child_key() for this attempt. */
ONCE_API void once_attempt_child_key(const struct once_attempt *attempt, once_span call,
                                     char out[ONCE_CHILD_KEY_LEN + 1]);

/* ---------------------------------------------------------------- keys, fingerprints */

enum once_key_format {
    ONCE_KEY_LENIENT = 0, /* an sf-string, or the bare text that many clients send */
    ONCE_KEY_STRICT,      /* an RFC 9651 sf-string only: "abc" */
};

/* Read the value of an Idempotency-Key header into `out` (NUL-terminated; *len is its
 * length: 1 to 255 visible ASCII characters). */
ONCE_API ONCE_CHECKED once_result once_key_parse(once_span field, enum once_key_format format,
                                                 char out[ONCE_KEY_LEN_MAX + 1], size_t *len, struct once_error *err);

/* Make a UUIDv7; read the time that a UUIDv7 contains (ONCE_NEVER if the key is not a UUIDv7). */
ONCE_API void once_key_new(char out[ONCE_UUID_LEN + 1]);
ONCE_API once_time once_key_time(once_span key);

/* The child key for the call named `call` to another service, on behalf of a record: the
 * same on every attempt, printable, different from the caller's key. */
ONCE_API void once_child_key(const struct once *once, const struct once_grant *grant, once_span call,
                             char out[ONCE_CHILD_KEY_LEN + 1]);

struct once_header {
    once_span name, value;
};

struct once_http {
    once_span method, path, query;
    const struct once_header *headers; /* the ones to include; names in any case, in any order */
    size_t header_count;
    once_span body;
    bool json;                /* canonicalise the body as JSON; if it is not JSON, its exact bytes are hashed */
    const once_span *exclude; /* JSON Pointers of members to leave out */
    size_t exclude_count;
};

/* HMAC-SHA-256, salted per store and tenant (docs/internals/fingerprint.md). */
ONCE_API ONCE_CHECKED once_result once_fingerprint_http(const struct once *once, once_span tenant,
                                                        const struct once_http *http, struct once_fingerprint *out,
                                                        struct once_error *err);
/* The same for a list of byte strings, such as the arguments of a command. */
ONCE_API void once_fingerprint_list(const struct once *once, once_span tenant, const once_span *parts, size_t count,
                                    struct once_fingerprint *out);

/* ---------------------------------------------------------------- operating a store */

struct once_filter {
    unsigned states;         /* bits 1u << state; 0: all */
    const once_span *tenant; /* NULL: all */
    once_span key_prefix;
    once_span route;    /* empty: all */
    int64_t age_ms_min; /* only records created at least this long ago */
    bool abandoned;     /* only abandoned records: running with the lease over, or failed and retryable */
    bool with_request;  /* with `abandoned`: only records with a stored request */
    uint64_t before;    /* continue a listing: once_page.next */
    uint32_t limit;     /* records at most; 0: 100 */
};

struct once_page {
    struct once_record *records; /* newest first; without checkpoint, headers, body, body_dropped */
    size_t count;
    uint64_t next; /* 0: this is the last page. An earlier page may be short or empty: each call
                      reads a bounded number of rows */
    void *memory;
};

/*
 * List records. A listing by `abandoned` is oldest first and does not read finished records again and again: the handle
 * sweeps over each attempt once, one bounded step per call (10000 attempts on SQLite, about 7 ms; 1000 on PostgreSQL,
 * about 10 ms), and remembers the unfinished ones (262144 at most, half of them failed ones). The first sweep after
 * once_open() begins at the oldest attempt; until it is complete, pages have a `next`. After that, a call reads the
 * attempts that are new, and up to 1024 whose lease should be over. A lease that was ended early, and a failure before
 * the end of its lease, are noticed within 5 s. A record may have changed since it was listed: once_take_over()
 * compares.
 */
ONCE_API ONCE_CHECKED once_result once_list(struct once *once, const struct once_filter *filter, struct once_page *page,
                                            struct once_error *err);
ONCE_API void once_page_release(struct once_page *page);

/* The history of one record, oldest first: its stored attempts, and all decisions of
 * operators, including those from earlier lives of the key. */
struct once_event {
    once_time at;
    const char *what; /* "claimed", "finished", "resolved done", ... */
    uint64_t fence;
    uint32_t attempt;
    enum once_state state;
    int32_t status;
    once_span actor, reason;
};

struct once_history {
    struct once_event *events;
    size_t count;
    void *memory;
};

ONCE_API ONCE_CHECKED once_result once_history(struct once *once, once_span tenant, once_span key,
                                               struct once_history *history, struct once_error *err);
ONCE_API void once_history_release(struct once_history *history);

/* Remove records past their retention, and headers and bodies past theirs: one bounded step of at most `budget`
 * of each (0: 1000, up to 10000). *removed counts records. *more: there is more to remove. Records count as expired
 * without this call (K8); it only frees their space. */
ONCE_API ONCE_CHECKED once_result once_expire(struct once *once, uint32_t budget, uint64_t *removed, bool *more,
                                              struct once_error *err);

/* Verify every invariant that can be checked on stored data. Calls `each` for every problem found. */
struct once_problem {
    const char *invariant; /* "K5", "format", ... */
    uint64_t fence;        /* of the row; 0 if the problem is not in one row */
    const char *text;
};
typedef void once_problem_fn(void *arg, const struct once_problem *problem);
struct once_check_report {
    uint64_t records, attempts, problems;
};
ONCE_API ONCE_CHECKED once_result once_check(struct once *once, once_problem_fn *each, void *arg,
                                             struct once_check_report *report, struct once_error *err);

/* Counters since once_open(). */
struct once_stats {
    uint64_t operations, batches, commits, busy, recovered, fenced, replays, executions;
    uint64_t attempts; /* in the store, approximately: a record has one for each execution that was granted */
    uint64_t bytes;    /* of the store's files */
    /* Best-effort tier, as seen by this handle (or the daemon's): */
    uint64_t lost;     /* acknowledged writes of this handle that were found missing */
    uint64_t evicted;  /* keys that the server evicted */
    uint64_t restarts; /* times that the server restarted or failed over */
    once_time now;     /* the store's clock */
};
ONCE_API ONCE_CHECKED once_result once_stats(struct once *once, struct once_stats *stats, struct once_error *err);

/* ---------------------------------------------------------------- in your own transaction */

/*
 * SQLite, inside your own transaction on your own database: key, work and outcome
 * commit together, so a local effect happens exactly once without leases.
 *
 *     sqlite3_exec(db, "BEGIN IMMEDIATE", ...);
 *     once_sqlite_claim(bound, &claim, &reply, &err);
 *     if (reply.arm == ONCE_ARM_EXECUTE) {
 *         ... your own writes on db ...
 *         once_sqlite_finish(bound, reply.record.grant, &outcome, &reply2, &err);
 *     }
 *     sqlite3_exec(db, "COMMIT", ...);
 *
 * Call once_sqlite_bind() outside a transaction; it creates Once's tables (their names
 * begin with once_) if they are missing. Call the other functions inside a transaction;
 * they refuse to work outside one. One thread at a time, as with the connection itself.
 * The claim's wait_ms must be 0.
 */
struct sqlite3;
struct once_sqlite;

ONCE_API ONCE_CHECKED once_result once_sqlite_bind(struct sqlite3 *db, const struct once_clock *clock,
                                                   struct once_sqlite **out, struct once_error *err);
ONCE_API void once_sqlite_unbind(struct once_sqlite *bound);
ONCE_API ONCE_CHECKED once_result once_sqlite_claim(struct once_sqlite *bound, const struct once_claim *claim,
                                                    struct once_reply *reply, struct once_error *err);
ONCE_API ONCE_CHECKED once_result once_sqlite_take_over(struct once_sqlite *bound,
                                                        const struct once_take_over *take_over,
                                                        struct once_reply *reply, struct once_error *err);
ONCE_API ONCE_CHECKED once_result once_sqlite_advance(struct once_sqlite *bound, struct once_grant grant,
                                                      once_span point, once_span checkpoint, struct once_reply *reply,
                                                      struct once_error *err);
ONCE_API ONCE_CHECKED once_result once_sqlite_finish(struct once_sqlite *bound, struct once_grant grant,
                                                     const struct once_outcome *outcome, struct once_reply *reply,
                                                     struct once_error *err);
ONCE_API ONCE_CHECKED once_result once_sqlite_release(struct once_sqlite *bound, struct once_grant grant,
                                                      struct once_reply *reply, struct once_error *err);
ONCE_API ONCE_CHECKED once_result once_sqlite_lookup(struct once_sqlite *bound, once_span tenant, once_span key,
                                                     struct once_reply *reply, struct once_error *err);
ONCE_API ONCE_CHECKED once_result once_sqlite_extend(struct once_sqlite *bound, struct once_grant grant,
                                                     int64_t lease_ms, struct once_reply *reply,
                                                     struct once_error *err);
/* once_list() for the records in your database. */
ONCE_API ONCE_CHECKED once_result once_sqlite_list(struct once_sqlite *bound, const struct once_filter *filter,
                                                   struct once_page *page, struct once_error *err);
/* Is this grant still the newest, and its record running? ONCE_INVALID ("fenced: ...") if not: roll back. With this
 * call a worker that was taken over has no effect either, not only no outcome. The answer holds until the end of a
 * transaction that was begun with BEGIN IMMEDIATE. In SQL, also in triggers, on a bound connection:
 * once_guard(record, fence), which returns 1 or fails the statement. */
ONCE_API ONCE_CHECKED once_result once_sqlite_guard(struct once_sqlite *bound, struct once_grant grant,
                                                    struct once_error *err);
/* once_child_key() for a record in your database. */
ONCE_API void once_sqlite_child_key(const struct once_sqlite *bound, const struct once_grant *grant, once_span call,
                                    char out[ONCE_CHILD_KEY_LEN + 1]);

/* ---------------------------------------------------------------- messages */

#define ONCE_TOPIC_LEN_MAX 255
#define ONCE_PAYLOAD_LEN_MAX (16 << 20)
#define ONCE_MESSAGE_HEADERS_LEN_MAX (16 << 10)

/* A message that a relay publishes (docs/messages.md). */
struct once_message {
    once_span topic;        /* 1 to 255 visible ASCII characters; relay routes match it */
    once_span key;          /* messages with the same key are published in order; empty: in any order */
    once_span payload;      /* up to 16 MiB */
    once_span content_type; /* empty: application/octet-stream */
    once_span headers;      /* lines "Name: value\r\n", such as a traceparent */
    once_time not_before;   /* publish it, and place it in the order of its key, then; 0: now */
};

/* Stage a message in the caller's transaction: a relay publishes it if and only if that commits, at least
 * once, always with the id that is written to `id` (K12). In SQL: once.enqueue(). */
ONCE_API ONCE_CHECKED once_result once_sqlite_enqueue(struct once_sqlite *bound, const struct once_message *message,
                                                      char id[ONCE_UUID_LEN + 1], struct once_error *err);
/* The same on your PostgreSQL connection, inside a transaction. It needs the schema (`once migrate`) and the role
 * once_app. After a failure other than ONCE_INVALID about an argument the transaction must be rolled back. */
struct pg_conn; /* libpq's PGconn */
ONCE_API ONCE_CHECKED once_result once_pg_enqueue(struct pg_conn *conn, const struct once_message *message,
                                                  char id[ONCE_UUID_LEN + 1], struct once_error *err);

/*
 * The inbox, for consumers: a broker delivers at least once, so a consumer enters each message id into the inbox, in
 * the transaction of its effect, and skips a message whose id is there already (K13). Ack after the commit.
 *
 *     BEGIN
 *     once_sqlite_consume(bound, ONCE_LIT("billing"), message_id, &fresh, &err);
 *     if (fresh) ... your own writes ...
 *     COMMIT, then ack
 *
 * The id is that of the message, or a natural key of its subject ("order-17 paid"), which also detects an event that
 * was published twice. Two transactions with the same message run one after the other.
 */
#define ONCE_INBOX_RETENTION_MS_DEFAULT (7LL * 24 * 3600 * 1000)

struct once_consumer {
    once_span name;               /* 1 to 255 bytes */
    int64_t retention_ms;         /* how long its inbox entries are kept; 0: 7 days; ONCE_NEVER */
    int64_t redelivery_window_ms; /* how long the broker may deliver a message again, such as the retention of a topic;
                                     0: not known */
};

/* Set how long inbox entries are kept, for instance when the program starts; in your own transaction. ONCE_INVALID if
 * the retention is shorter than the redelivery window: the same message could be processed twice. Without this call,
 * the entries of a consumer are kept for ever. In SQL: once.consumer(). */
ONCE_API ONCE_CHECKED once_result once_sqlite_consumer(struct once_sqlite *bound, const struct once_consumer *consumer,
                                                       struct once_error *err);
ONCE_API ONCE_CHECKED once_result once_pg_consumer(struct pg_conn *conn, const struct once_consumer *consumer,
                                                   struct once_error *err);
/* Enter a message into the inbox. *fresh: it was not there before. In SQL: once.consume(). On PostgreSQL, consumer
 * and id must be UTF-8. */
ONCE_API ONCE_CHECKED once_result once_sqlite_consume(struct once_sqlite *bound, once_span consumer,
                                                      once_span message_id, bool *fresh, struct once_error *err);
ONCE_API ONCE_CHECKED once_result once_pg_consume(struct pg_conn *conn, once_span consumer, once_span message_id,
                                                  bool *fresh, struct once_error *err);

#ifdef __cplusplus
}
#endif
#endif
