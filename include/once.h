/*
 * once.h - retry safety as a library.
 *
 * A caller that lost an answer asks again; with Once in between, the effect
 * happens once and every retry gets the same answer. The unit is a record: one
 * row per (tenant, key) that says whether the operation is running, finished
 * (and with which outcome) or unknown.
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
 * What it promises, and what it cannot: an effect in the same
 * database transaction as the key happens exactly once; a foreign call whose
 * callee honours the child key, exactly once; a foreign call whose callee does
 * not, at most once, and it may end `unknown`, which is stored and shown, never
 * guessed.
 *
 * Rules that hold for every function here:
 *   - Bytes are spans, borrowed for the call; a NUL is an ordinary byte.
 *   - A once_result says whether the call worked. What the store answered (run
 *     it, here is the stored answer, somebody is at it) is the reply's `arm`.
 *   - `err` may be NULL. It is written only when the result is not ONCE_OK.
 *   - A reply is always written and always needs once_reply_release(), which is
 *     harmless after a failure. Its spans live until then.
 *   - Options are structs in which zero means the default; values outside the
 *     documented range are refused with ONCE_INVALID.
 *   - All functions on a `struct once` may be called from any thread, except
 *     once_close(), after which the handle is gone.
 *   - Do not fork() and go on using the handle in the child.
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

/* "0.1.0": of the library at run time; compare with the macros above. */
ONCE_API const char *once_version(void);

/* ---------------------------------------------------------------- bytes, time */

typedef struct once_span {
    const uint8_t *ptr;
    size_t len;
} once_span;

#define ONCE_LIT(s) ((once_span){ (const uint8_t *)(s), sizeof(s) - 1 })

/* Milliseconds since 1970-01-01 UTC on the store's clock (docs/internals/clock.md). */
typedef int64_t once_time;

#define ONCE_NEVER ((int64_t)-1) /* as a retention: keep for ever; as a time: it never comes */

/* ---------------------------------------------------------------- limits */

#define ONCE_KEY_LEN_MAX 255               /* bytes of a key, as Stripe and the IETF draft's users have it */
#define ONCE_TENANT_LEN_MAX 255            /* bytes of a tenant; empty is allowed: the single tenant */
#define ONCE_POINT_LEN_MAX 64              /* bytes of a recovery point's name */
#define ONCE_POINT_COUNT_MAX 64            /* recovery points one record may pass */
#define ONCE_CHECKPOINT_LEN_MAX (64 << 10) /* bytes kept with a recovery point */
#define ONCE_HEADERS_LEN_MAX (64 << 10)    /* bytes of stored header lines */
#define ONCE_BODY_LEN_MAX (16 << 20)       /* bytes of a stored body */
#define ONCE_REQUEST_LEN_MAX ((1 << 20) + ONCE_HEADERS_LEN_MAX) /* bytes of a stored request */
#define ONCE_REASON_LEN_MAX 1000                                /* bytes of an operator's reason; the actor has 255 */
#define ONCE_LEASE_MS_DEFAULT 60000
#define ONCE_LEASE_MS_MAX (24LL * 3600 * 1000)
#define ONCE_RETENTION_MS_DEFAULT (24LL * 3600 * 1000)
#define ONCE_RETENTION_MS_MAX (100LL * 366 * 24 * 3600 * 1000)
#define ONCE_WAIT_MS_MAX (24LL * 3600 * 1000)
#define ONCE_KEY_SKEW_MS_MAX (5LL * 60 * 1000) /* how far the clock that made a UUIDv7 may be off */
#define ONCE_CHILD_KEY_LEN 48                  /* printable; callees accept at least 64 */
#define ONCE_UUID_LEN 36
#define ONCE_LIST_LIMIT_MAX 1000
#define ONCE_ROUTE_LEN_MAX 64   /* bytes of a route's name, visible ASCII */
#define ONCE_ROUTE_COUNT_MAX 62 /* names that a store keeps; all that come later are "other" */

/* ---------------------------------------------------------------- results */

/* A code exists only where a caller acts differently on it. */
#define ONCE_RESULTS(X)                                                                                                \
    X(OK, "done")                                                                                                      \
    X(INVALID, "the caller's input is not acceptable")                                                                 \
    X(LIMIT, "a documented limit was reached")                                                                         \
    X(BUSY, "no room right now, try again later; nothing was changed")                                                 \
    X(UNAVAILABLE, "the store was not reached or refused; nothing was changed")                                        \
    X(UNKNOWN, "the answer was lost; it may have taken effect")                                                        \
    X(CORRUPT, "stored data breaks an invariant")                                                                      \
    X(NO_MEMORY, "out of memory; nothing was changed")                                                                 \
    X(QUOTA, "the tenant has as much as it may have; nothing was changed")

typedef enum once_result {
#define ONCE__RESULT(name, text) ONCE_##name,
    ONCE_RESULTS(ONCE__RESULT)
#undef ONCE__RESULT
} once_result;

/* "BUSY" and "no room right now, ...". Never NULL. */
ONCE_API const char *once_result_name(once_result result);
ONCE_API const char *once_result_text(once_result result);

/* What went wrong, for a person: what failed, with what, and what to do. */
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

/* What a retry may do with a record whose holder's lease is over. */
#define ONCE_TAKEOVERS(X)                                                                                              \
    X(ESCALATE, "escalate")                                                                                            \
    X(RERUN, "rerun")                                                                                                  \
    X(PROBE, "probe")                                                                                                  \
    X(COMPLETER, "completer") /* left to those who call once_take_over(): they get PROBE, a claim IN_PROGRESS */

enum once_takeover {
    ONCE_TAKEOVER_DEFAULT = 0, /* escalate: no double charge without consent */
#define ONCE__TAKEOVER(name, text) ONCE_TAKEOVER_##name,
    ONCE_TAKEOVERS(ONCE__TAKEOVER)
#undef ONCE__TAKEOVER
};

ONCE_API const char *once_state_name(enum once_state state);
ONCE_API const char *once_takeover_name(enum once_takeover takeover);

/* 32 bytes that stand for what was asked; see once_fingerprint_http(). */
struct once_fingerprint {
    uint8_t bytes[32];
};

/* Proof of holding a record: which one, and the fence of this grant (K2: it only
 * grows). Hand the fence to callees that can refuse older ones. */
struct once_grant {
    uint8_t record[16];
    uint64_t fence;
};

/* How an attempt ended. */
struct once_outcome {
    enum once_state state; /* SUCCEEDED, FAILED or UNKNOWN */
    bool retryable;        /* FAILED only: the next claim executes again */
    bool undelivered;      /* retryable only: no client was told this; a completer may send the request again */
    bool body_dropped;     /* executed, but the answer was too large to keep; `body` is empty */
    int32_t status;        /* an HTTP status, an exit status: yours; replayed as given */
    once_span headers;     /* lines "Name: value\r\n"; may be empty */
    once_span body;
};

/* A record as it was read. Spans are empty where there is nothing. */
struct once_record {
    struct once_grant grant; /* the newest grant */
    once_span tenant, key;   /* the key is empty where the store does not keep key texts */
    struct once_fingerprint fingerprint;
    enum once_state state;
    bool retryable;
    bool undelivered;
    bool body_dropped; /* executed, but the answer is not kept: headers and body are empty */
    bool body_expired; /* likewise, because its body retention is over: a tombstone */
    bool body_sealed;  /* likewise: it is there, sealed with a key that whoever read it does not have */
    bool lease_live;   /* RUNNING only: the holder's lease is not over */
    bool has_request;  /* a request is stored with it; told by once_take_over() and in a listing by `abandoned` */
    bool forgotten;    /* by once_forget(): its names, answers, requests and checkpoints were erased */
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
    once_span route;   /* as the newest claim said, or "other"; a replay need not tell it */
};

/* What the store answered. */
#define ONCE_ARMS(X)                                                                                                   \
    X(EXECUTE, "execute")         /* you hold it: do the work, then finish */                                          \
    X(PROBE, "probe")             /* you hold it: ask whether it happened, then */                                     \
                                  /* finish with that answer, or do the work */                                        \
    X(REPLAY, "replay")           /* here is the stored outcome */                                                     \
    X(MISMATCH, "mismatch")       /* the key was used for something else */                                            \
    X(IN_PROGRESS, "in progress") /* somebody is at it; see retry_after_ms */                                          \
    X(UNKNOWN, "unknown")         /* it may have happened; a person must look */                                       \
    X(DONE, "done")               /* extend, advance, finish, release, resolve, forget */                              \
    X(FENCED, "fenced")           /* not yours any more: answer from the record */                                     \
    X(FOUND, "found")             /* look up */                                                                        \
    X(ABSENT, "absent")           /* no such record, or past its retention */                                          \
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
    int64_t retry_after_ms;    /* IN_PROGRESS: when asking again is worth it */
    struct once_record record; /* MISMATCH, ABSENT and EXPIRED: empty */
    void *memory;              /* ours */
};

ONCE_API void once_reply_release(struct once_reply *reply);

/* ---------------------------------------------------------------- open, close */

struct once;

/* Both clocks in milliseconds. `steady` never jumps while the machine is up and
 * counts suspended time (CLOCK_BOOTTIME); `wall` may jump; `boot` names this run
 * of the machine. Give your own only to test. */
struct once_clock {
    once_time (*wall)(void *arg);
    once_time (*steady)(void *arg);
    void (*boot)(void *arg, uint8_t id[16]);
    void *arg;
};

struct once_options {
    bool shared;           /* take the store's lock per step, for short-lived processes; the
                              default is to own the store until once_close(), which is faster */
    bool poll;             /* completions wait for once_dispatch(); else the engine's thread calls them */
    bool no_migrate;       /* refuse an empty or older store instead of bringing it up to date */
    uint32_t queue_len;    /* operations waiting at most; 0: 4096, up to 65536 */
    uint32_t batch_len;    /* operations in one commit at most; 0: 1024, up to 4096 */
    uint32_t waiter_len;   /* claims that may wait for another's outcome; 0: 4096, up to 65536 */
    uint32_t lock_wait_ms; /* shared: how long a step waits for its turn; 0: 10 s */
    const struct once_clock *clock;
    /* What a store has to say to whoever runs it, a line each: what it is not as safe as it could be, what it lost.
     * Called from once_open() and from the engine's thread; NULL: nobody listens. */
    void (*warn)(void *arg, const char *text);
    void *warn_arg;
    /* Bodies, header lines, stored requests and checkpoints are sealed (AES-256-GCM) with keys from a file (mode 0600),
     * or from what a command prints: docs/sealing.md. NULL: they are not. A store that has sealed bytes is refused
     * without its keys. Not for `once:`: what a daemon owns, it seals. */
    const char *seal_keys;
    const char *seal_keys_command;
    bool without_keys; /* open it all the same, to look after it: what is sealed reads as not kept, and nothing
                          is claimed, advanced or finished */
};

/*
 * Open the store that `url` names:
 *   sqlite:PATH[?keytext=off][&reserve=BYTES]   a file of its own
 *   postgresql://...                            a database, as libpq takes it, also through
 *                                               a pooler; where they are not given, connecting
 *                                               takes 10 s at most (connect_timeout) and an
 *                                               answer 30 s (tcp_user_timeout, ms)
 *   redis://HOST:PORT/DB?tier=best-effort       a Redis, which may lose what it acknowledged (docs/redis.md);
 *                                               rediss:// with TLS, redis+unix:PATH
 *   once:PATH                                   what a daemon owns, by its socket
 *   trace+URL, fault+URL                        wrappers for debugging and tests
 * An empty or missing file is made a store (mode 0600). `options` may be NULL.
 * *out is written only on success.
 */
ONCE_API ONCE_CHECKED once_result once_open(const char *url, const struct once_options *options, struct once **out,
                                            struct once_error *err);

/* Make the store, or bring it up to date: what once_open() does by itself for a file, and
 * never does in a PostgreSQL database. *version (may be NULL) is what it has then. */
ONCE_API ONCE_CHECKED once_result once_migrate(const char *url, int *version, struct once_error *err);

/* Finishes what was submitted, then frees everything. NULL is fine. Not while
 * another thread is inside a call on the same handle. */
ONCE_API void once_close(struct once *once);

/* How much the store promises: "full", or "best-effort" (Redis), where every answer should say so. A claim with
 * retention ONCE_NEVER is refused there with ONCE_INVALID. */
ONCE_API const char *once_tier(const struct once *once);

/* What the store does not promise, by invariant; none where the tier is full. */
struct once_gap {
    const char *invariant, *text;
};
ONCE_API const struct once_gap *once_gaps(const struct once *once, size_t *count);

/* ---------------------------------------------------------------- the protocol */

struct once_claim {
    once_span tenant;
    once_span key;                       /* 1 to 255 bytes */
    struct once_fingerprint fingerprint; /* of what is asked; all zero is a value like any other */
    int64_t lease_ms;                    /* 0: 60 s */
    int64_t retention_ms;                /* from the finish; 0: 24 h; ONCE_NEVER (not on the best-effort tier) */
    int64_t body_retention_ms;           /* of headers and body, from the finish, at most retention_ms; 0: as long */
    int64_t wait_ms;                     /* while in progress, wait this long for the outcome; 0: do not */
    enum once_takeover takeover;
    bool intent;       /* you will record a recovery point, e.g. ONCE_POINT_SENDING, before you send
                          anything: until then whoever takes over knows that nothing was sent */
    bool key_time;     /* where there is no record: a UUIDv7 whose time is outside the window is EXPIRED, see below */
    once_span request; /* kept until it is finished, for whoever takes over. Yours: leave credentials out.
                          Empty: what an earlier attempt stored stays */
    once_span route;   /* what kind of operation it is, e.g. "orders": a label to count and
                          to find it by. Few different ones; empty: none. Decides nothing */
    uint8_t nonce[16]; /* of this call; all zero: made for you. A claim repeated with
                          its nonce after a lost answer returns the same grant */
};

/*
 * Ask to execute. The arms, in the order they are decided:
 *   absent, expired or released   EXECUTE (a new record); with key_time perhaps EXPIRED
 *   another fingerprint           MISMATCH
 *   finished for good             REPLAY
 *   failed, retryable             EXECUTE (next attempt)
 *   unknown                       UNKNOWN
 *   running, lease live           IN_PROGRESS
 *   running, lease over           by this claim's takeover: EXECUTE, PROBE or UNKNOWN; but EXECUTE
 *                                 where its holder had intent and recorded no point: nothing was sent.
 *                                 `completer`: IN_PROGRESS if the holder's claim said so too, else UNKNOWN
 * EXECUTE and PROBE are answered after the claim is durable (K4). ONCE_QUOTA, from a daemon that has quotas: it would
 * be a new record, or would wait, and its tenant has as much as it may have. What is there is never refused for that.
 *
 * body_retention_ms: after it the record is a tombstone. It replays as ever, with status, body_dropped and
 * body_expired, and without headers and body; it is never executed again. That does not wait for once_expire(), which
 * gives the space back. What is unknown keeps what was stored with it until somebody resolved it. A finish that is
 * repeated after that time cannot be compared any more and is FENCED.
 *
 * key_time: "exactly once" ends with the retention, and a retry that comes later is like new. Keys that are UUIDv7s
 * tell when they were made: where there is no record, one that is as old as the retention, or comes from the future, is
 * EXPIRED and never executed. By the store's clock, which may differ from the one that made the key by a skew of 5
 * minutes, or half the retention if that is less: a key is accepted up to that much before its time, and is EXPIRED
 * that much before the retention is over. So no key that was accepted once can be accepted again after its record has
 * expired, whatever clock made it, as long as claims of it have the same retention. Other keys, and with ONCE_NEVER
 * all, are as without. Leave it off where keys are the ids of things that are older than what is done with them.
 */
ONCE_API ONCE_CHECKED once_result once_claim(struct once *once, const struct once_claim *claim,
                                             struct once_reply *reply, struct once_error *err);

struct once_take_over {
    struct once_grant seen; /* what was looked at: the newest grant, by a listing or a look-up */
    int64_t lease_ms;       /* 0: as the attempt before had it */
    bool intent;            /* as a claim's */
    uint8_t nonce[16];      /* as a claim's */
};

/*
 * Take over exactly what was seen: for those who finish what others left behind. The record's
 * newest grant must be `seen`, and it must be running with its lease over, or failed and
 * retryable. Then, as the claim that made `seen` said:
 *   failed, retryable             EXECUTE (next attempt)
 *   running, lease over           by the stored takeover: EXECUTE, PROBE (also for `completer`), or
 *                                 UNKNOWN, which is then stored; but EXECUTE where its holder
 *                                 had intent and recorded no point
 * with recovery point, checkpoint and stored request in the reply. Everything else changes nothing: FENCED
 * with the record as it is (see once_extend()), ABSENT if it is gone. Never begins a new life of a record
 * and never replays.
 */
ONCE_API ONCE_CHECKED once_result once_take_over(struct once *once, const struct once_take_over *take_over,
                                                 struct once_reply *reply, struct once_error *err);

/* Hold on for lease_ms from now (0: as claimed). DONE, or FENCED with the record as it is. Here and below
 * FENCED has no record (state NONE) if that is gone, or if the key stands for another operation by now: another
 * request's, or this one's in a later life of the key (K5, K6). */
ONCE_API ONCE_CHECKED once_result once_extend(struct once *once, struct once_grant grant, int64_t lease_ms,
                                              struct once_reply *reply, struct once_error *err);

/* The point of those who only say that they are about to send. Names that begin with "once:" are reserved. */
#define ONCE_POINT_SENDING "once:sending"

/* Record a recovery point and its checkpoint, which the next attempt will find.
 * Forward only (K11): a point that was passed before is refused with ONCE_INVALID,
 * the current one may be repeated. Extends the lease. DONE or FENCED. */
ONCE_API ONCE_CHECKED once_result once_advance(struct once *once, struct once_grant grant, once_span point,
                                               once_span checkpoint, struct once_reply *reply, struct once_error *err);

/* Store the outcome. DONE after it is durable, and again if repeated; FENCED, with
 * the stored record, if a newer grant exists or another outcome stands (K3, K5). */
ONCE_API ONCE_CHECKED once_result once_finish(struct once *once, struct once_grant grant,
                                              const struct once_outcome *outcome, struct once_reply *reply,
                                              struct once_error *err);

/*
 * Give it back: this attempt definitely had no effect. DONE or FENCED. It says nothing of others (ADR 8):
 *   a first attempt, no recovery point      the key is free, for anything
 *   it took over a running one, which may   running, its lease over: the next claim's takeover
 *   have sent something                     decides, as before
 *   else                                    failed, retryable; the recovery point stays
 * ONCE_POINT_SENDING alone counts as none.
 */
ONCE_API ONCE_CHECKED once_result once_release(struct once *once, struct once_grant grant, struct once_reply *reply,
                                               struct once_error *err);

/* Read without touching. FOUND or ABSENT. */
ONCE_API ONCE_CHECKED once_result once_lookup(struct once *once, once_span tenant, once_span key,
                                              struct once_reply *reply, struct once_error *err);

/* The same by a record's id, which is what logs and traces call a key by (`key_hash`), whosever it is. The answer has
 * tenant and key, as far as the store keeps them. */
ONCE_API ONCE_CHECKED once_result once_lookup_record(struct once *once, const uint8_t record[16],
                                                     struct once_reply *reply, struct once_error *err);

/* As once_lookup(), with the request that is stored with it. */
ONCE_API ONCE_CHECKED once_result once_lookup_request(struct once *once, once_span tenant, once_span key,
                                                      struct once_reply *reply, struct once_error *err);

/* An operator's word on a record that is unknown, or running with its lease over. */
enum once_verdict {
    ONCE_VERDICT_DONE = 1, /* it happened, with this outcome */
    ONCE_VERDICT_NOT_DONE, /* it did not happen (completely): the next claim executes, from its recovery point */
    ONCE_VERDICT_RELEASE,  /* nothing of it happened: forget the record */
};

struct once_resolve {
    once_span tenant, key;
    uint64_t fence; /* the fence that was looked at; 0: whatever it is now */
    enum once_verdict verdict;
    struct once_outcome outcome; /* VERDICT_DONE: SUCCEEDED or FAILED, final */
    once_span actor, reason;     /* kept in the audit trail; the reason is required */
};

/* DONE, or what stands in the way: ABSENT, REPLAY (final already; also a failure that
 * the next claim would run again), IN_PROGRESS (its holder is alive), FENCED (it changed
 * since it was looked at). */
ONCE_API ONCE_CHECKED once_result once_resolve(struct once *once, const struct once_resolve *resolve,
                                               struct once_reply *reply, struct once_error *err);

/* For a request of erasure. */
struct once_forget {
    once_span tenant, key;   /* the record; an empty key: the one that `seen` names, as a listing showed it */
    struct once_grant seen;  /* its fence: only if it is still this one; 0: whatever it is now */
    bool drop;               /* remove the record whole: the next claim of its key EXECUTES AGAIN */
    once_span actor, reason; /* kept in the audit trail; the reason is required: put nobody's data into it */
};

/*
 * Erases what a record says of anybody: tenant and key as text, header lines, bodies, requests, checkpoints, of all
 * its attempts. What is left (record id, fingerprint, state, status, times) answers until its retention ends: a retry
 * is not executed again but told that it was done and that the answer is not kept (`body_dropped`; an empty answer
 * is replayed as ever).
 * DONE, also if it was forgotten before; ABSENT; FENCED (it is not as it was seen). What is not finished is left
 * alone: IN_PROGRESS (its holder is alive), UNKNOWN (nobody knows how it ended, or it is to go on from a recovery
 * point: resolve it first). With `drop` also what is UNKNOWN goes. docs/sealing.md tells which bytes may be left where.
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
    struct once_grant grant; /* EXTEND, ADVANCE, FINISH, RELEASE; LOOKUP without a key: the record of it */
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
            bool request; /* the stored one, too */
        } lookup;
    };
};

/* Called once per accepted request. The reply is the callee's to release; `err`
 * is gone when the callback returns. It must not block, and must not call the
 * synchronous functions of the same handle; submitting more is what it is for. */
typedef void once_done_fn(void *arg, once_result result, struct once_reply *reply, const struct once_error *err);

/* Hand in a request; its bytes are copied. ONCE_BUSY when the queue is full: then,
 * and on any other result but ONCE_OK, `done` is not called. */
ONCE_API ONCE_CHECKED once_result once_submit(struct once *once, const struct once_request *request, once_done_fn *done,
                                              void *arg, struct once_error *err);

/* With options.poll: a descriptor that is readable while completions wait, and the
 * call that runs at most `max` of their callbacks on this thread (returns how many).
 * What those submit is taken up together, when the last of them has run, or sooner where
 * it is a whole batch or fills the queue. Without: -1 and 0. */
ONCE_API int once_eventfd(const struct once *once);
ONCE_API size_t once_dispatch(struct once *once, size_t max);

/* ---------------------------------------------------------------- the whole loop */

struct once_attempt; /* one execution, inside a callback of once_run() */

enum once_work {
    ONCE_WORK_ENDED = 1,   /* *outcome says how */
    ONCE_WORK_NOT_STARTED, /* it certainly had no effect: once_release() */
    ONCE_WORK_UNKNOWN,     /* something was sent, no complete answer came: escalate */
};

/* Does the work. Spans put into *outcome must live until once_run() returns. */
typedef enum once_work once_work_fn(struct once_attempt *attempt, void *arg, struct once_outcome *outcome);

struct once_run_options {
    once_work_fn *probe; /* for takeover `probe`: ENDED adopts the outcome, NOT_STARTED runs
                            the work, UNKNOWN escalates. Same `arg` as the work's */
};

/*
 * Claim; where it must be executed, run `work` while a helper thread renews the
 * lease; store the outcome; answer. Ends with arm REPLAY (the outcome, whoever
 * produced it), UNKNOWN, MISMATCH, IN_PROGRESS, EXPIRED, DONE (released), or FENCED (fenced, and
 * the record that fenced it is gone). ONCE_UNKNOWN after the work: it was done, but the
 * store could not be made to keep the outcome. `*executed`,
 * where wanted, tells an execution by this call from a replay; if another attempt
 * took over meanwhile, the reply holds the stored outcome, never this one's (K3).
 */
ONCE_API ONCE_CHECKED once_result once_run(struct once *once, const struct once_claim *claim,
                                           const struct once_run_options *options, once_work_fn *work, void *arg,
                                           bool *executed, struct once_reply *reply, struct once_error *err);

/* The record as claimed: attempt number, fence, recovery point, checkpoint. */
ONCE_API const struct once_record *once_attempt_record(const struct once_attempt *attempt);
/* False once a renewal was refused: stop sending, the outcome will not count. */
ONCE_API bool once_attempt_is_held(const struct once_attempt *attempt);
/* once_advance() for this attempt; ONCE_OK also means that it was not fenced. */
ONCE_API ONCE_CHECKED once_result once_attempt_advance(struct once_attempt *attempt, once_span point,
                                                       once_span checkpoint, struct once_error *err);
/* once_child_key() for this attempt. */
ONCE_API void once_attempt_child_key(const struct once_attempt *attempt, once_span call,
                                     char out[ONCE_CHILD_KEY_LEN + 1]);

/* ---------------------------------------------------------------- keys, fingerprints */

enum once_key_format {
    ONCE_KEY_LENIENT = 0, /* an sf-string, or the bare form real clients send */
    ONCE_KEY_STRICT,      /* an RFC 9651 sf-string only: "abc" */
};

/* Read the value of an Idempotency-Key field into `out` (NUL-terminated; *len says
 * how long, 1 to 255 visible ASCII characters). */
ONCE_API ONCE_CHECKED once_result once_key_parse(once_span field, enum once_key_format format,
                                                 char out[ONCE_KEY_LEN_MAX + 1], size_t *len, struct once_error *err);

/* A fresh UUIDv7, and the time that a UUIDv7 carries (ONCE_NEVER if it is none). */
ONCE_API void once_key_new(char out[ONCE_UUID_LEN + 1]);
ONCE_API once_time once_key_time(once_span key);

/* The key for a foreign call named `call` on behalf of a record: the same on every
 * attempt, printable, never the caller's own key. */
ONCE_API void once_child_key(const struct once *once, const struct once_grant *grant, once_span call,
                             char out[ONCE_CHILD_KEY_LEN + 1]);

struct once_header {
    once_span name, value;
};

struct once_http {
    once_span method, path, query;
    const struct once_header *headers; /* the ones that matter; names in any case, any order */
    size_t header_count;
    once_span body;
    bool json;                /* canonicalise the body as JSON; if it is none, its exact bytes count */
    const once_span *exclude; /* JSON Pointers of members that do not count */
    size_t exclude_count;
};

/* HMAC-SHA-256, salted per store and tenant (docs/internals/fingerprint.md). */
ONCE_API ONCE_CHECKED once_result once_fingerprint_http(const struct once *once, once_span tenant,
                                                        const struct once_http *http, struct once_fingerprint *out,
                                                        struct once_error *err);
/* The same for anything else: a list of byte strings, e.g. a command's arguments. */
ONCE_API void once_fingerprint_list(const struct once *once, once_span tenant, const once_span *parts, size_t count,
                                    struct once_fingerprint *out);

/* ---------------------------------------------------------------- looking after a store */

struct once_filter {
    unsigned states;         /* bits 1u << state; 0: all */
    const once_span *tenant; /* NULL: all */
    once_span key_prefix;
    once_span route;    /* empty: all */
    int64_t age_ms_min; /* created at least this long ago */
    bool abandoned;     /* only what nobody is at: running with its lease over, or failed and retryable */
    bool with_request;  /* of these, only what has a stored request */
    uint64_t before;    /* continue a listing: once_page.next */
    uint32_t limit;     /* records at most; 0: 100 */
};

struct once_page {
    struct once_record *records; /* newest first; without checkpoint, headers, body, body_dropped */
    size_t count;
    uint64_t next; /* 0: that was all. A page may be short, or empty, and not the last: a
                      call looks at a bounded number of rows */
    void *memory;
};

/*
 * A listing by `abandoned` is oldest first, and does not go through what is finished again and again: the handle
 * sweeps over each attempt once, one bounded step of a call (10000 attempts on SQLite, about 7 ms; 1000 on PostgreSQL,
 * about 10 ms), and remembers those that are not finished (262144 at most, half of them failed ones). The first
 * sweep after once_open() begins at the oldest attempt; until it is through, pages have a `next`. From then on a call
 * costs what came since, and a look at those whose lease should be over, 1024 of a call. A lease that was ended early,
 * and a failure before its lease's end, are noticed within 5 s. What is shown may have changed since: once_take_over()
 * compares.
 */
ONCE_API ONCE_CHECKED once_result once_list(struct once *once, const struct once_filter *filter, struct once_page *page,
                                            struct once_error *err);
ONCE_API void once_page_release(struct once_page *page);

/* What happened to one record: its attempts that are still kept, and every word of an
 * operator (also of earlier lives of the key), oldest first. */
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
 * of each (0: 1000, up to 10000). *removed counts records. *more tells whether another step is due. Expiry itself
 * does not wait for this (K8); it only gives the space back. */
ONCE_API ONCE_CHECKED once_result once_expire(struct once *once, uint32_t budget, uint64_t *removed, bool *more,
                                              struct once_error *err);

/* Verify everything a store at rest can show. Calls `each` per problem found. */
struct once_problem {
    const char *invariant; /* "K5", "format", ... */
    uint64_t fence;        /* of the row; 0 where it is not about one */
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
    uint64_t attempts; /* attempts in the store, about: a record has one for each time that it was begun */
    uint64_t bytes;    /* of the store's files */
    /* Best-effort tier, as seen by this handle, or the daemon's: */
    uint64_t lost;     /* its own writes that were acknowledged and are gone */
    uint64_t evicted;  /* keys that the server evicted */
    uint64_t restarts; /* times that the server was another process than before: restarted, or failed over */
    once_time now;     /* the store's clock */
};
ONCE_API ONCE_CHECKED once_result once_stats(struct once *once, struct once_stats *stats, struct once_error *err);

/* ---------------------------------------------------------------- in your own transaction */

/*
 * SQLite, inside a transaction of yours on a database of yours: key, work and
 * outcome commit together, so a local effect happens exactly once without leases.
 *
 *     sqlite3_exec(db, "BEGIN IMMEDIATE", ...);
 *     once_sqlite_claim(bound, &claim, &reply, &err);
 *     if (reply.arm == ONCE_ARM_EXECUTE) {
 *         ... your own writes on db ...
 *         once_sqlite_finish(bound, reply.record.grant, &outcome, &reply2, &err);
 *     }
 *     sqlite3_exec(db, "COMMIT", ...);
 *
 * once_sqlite_bind() creates Once's tables (names begin with once_) where they are
 * missing, outside any transaction. The calls then refuse to work outside of one.
 * One thread at a time, as with the connection itself. The claim's wait_ms must be 0.
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
/* once_list() of what is in your database. */
ONCE_API ONCE_CHECKED once_result once_sqlite_list(struct once_sqlite *bound, const struct once_filter *filter,
                                                   struct once_page *page, struct once_error *err);
/* Is this grant still the newest, its record running? ONCE_INVALID ("fenced: ...") if not: roll back. So that a
 * worker that was only thought dead has no effect either, not just no outcome. Holds until a transaction that was
 * begun with BEGIN IMMEDIATE ends. In SQL, also in triggers, the same is the function once_guard(record, fence),
 * there on a bound connection: it fails the statement, or is 1. */
ONCE_API ONCE_CHECKED once_result once_sqlite_guard(struct once_sqlite *bound, struct once_grant grant,
                                                    struct once_error *err);
/* once_child_key() where the store is your database. */
ONCE_API void once_sqlite_child_key(const struct once_sqlite *bound, const struct once_grant *grant, once_span call,
                                    char out[ONCE_CHILD_KEY_LEN + 1]);

/* ---------------------------------------------------------------- messages */

#define ONCE_TOPIC_LEN_MAX 255
#define ONCE_PAYLOAD_LEN_MAX (16 << 20)
#define ONCE_MESSAGE_HEADERS_LEN_MAX (16 << 10)

/* To be published by `once relay` (docs/messages.md). */
struct once_message {
    once_span topic;        /* 1 to 255 visible ASCII characters; routes go by it */
    once_span key;          /* messages of one key are published in order; empty: in none */
    once_span payload;      /* up to 16 MiB */
    once_span content_type; /* empty: application/octet-stream */
    once_span headers;      /* lines "Name: value\r\n", e.g. a traceparent */
    once_time not_before;   /* takes its place in its key's order then; 0: now */
};

/* Stages a message in the caller's transaction: it is published if and only if that commits, at least
 * once, every time under the id that is written to `id` (K12). In SQL it is once.enqueue(). */
ONCE_API ONCE_CHECKED once_result once_sqlite_enqueue(struct once_sqlite *bound, const struct once_message *message,
                                                      char id[ONCE_UUID_LEN + 1], struct once_error *err);
/* The same on a PostgreSQL connection of yours, inside a transaction: needs the schema (`once migrate`) and the role
 * once_app. A failure other than ONCE_INVALID about an argument leaves the transaction failed: roll it back. */
struct pg_conn; /* libpq's PGconn */
ONCE_API ONCE_CHECKED once_result once_pg_enqueue(struct pg_conn *conn, const struct once_message *message,
                                                  char id[ONCE_UUID_LEN + 1], struct once_error *err);

/*
 * The other end: brokers deliver at least once, so a consumer marks each message in the transaction of its effect,
 * and leaves out what is marked already (K13). Acknowledge after the commit.
 *
 *     BEGIN
 *     once_sqlite_consume(bound, ONCE_LIT("billing"), message_id, &fresh, &err);
 *     if (fresh) ... your own writes ...
 *     COMMIT, then acknowledge
 *
 * The id is the one that the message came with, or a natural key of what it is about ("order-17 paid"), which also
 * recognises what was published twice. Whoever takes in the same message at the same time waits for the other's end.
 */
#define ONCE_INBOX_RETENTION_MS_DEFAULT (7LL * 24 * 3600 * 1000)

struct once_consumer {
    once_span name;               /* 1 to 255 bytes */
    int64_t retention_ms;         /* how long its marks count; 0: 7 days; ONCE_NEVER */
    int64_t redelivery_window_ms; /* how long its broker may deliver a message again, e.g. a topic's retention; 0: not
                                     known */
};

/* Say how long marks are kept, once, e.g. at the start; in a transaction of yours. ONCE_INVALID if the retention is
 * shorter than the redelivery window: the same message could be taken in twice. Marks of a consumer that never said
 * anything are kept for ever. In SQL it is once.consumer(). */
ONCE_API ONCE_CHECKED once_result once_sqlite_consumer(struct once_sqlite *bound, const struct once_consumer *consumer,
                                                       struct once_error *err);
ONCE_API ONCE_CHECKED once_result once_pg_consumer(struct pg_conn *conn, const struct once_consumer *consumer,
                                                   struct once_error *err);
/* Mark a message: *fresh tells whether it was not marked before. In SQL it is once.consume(). On PostgreSQL consumer
 * and id must be UTF-8. */
ONCE_API ONCE_CHECKED once_result once_sqlite_consume(struct once_sqlite *bound, once_span consumer,
                                                      once_span message_id, bool *fresh, struct once_error *err);
ONCE_API ONCE_CHECKED once_result once_pg_consume(struct pg_conn *conn, once_span consumer, once_span message_id,
                                                  bool *fresh, struct once_error *err);

#ifdef __cplusplus
}
#endif
#endif
