/*
 * store.h - what a store is: one durable step at a time over a set of records.
 *
 * A store applies a batch of operations as one transaction and answers each of them
 * after that is durable. Everything else (queueing, waiting, settling a lost answer)
 * is the engine's. An implementation is a table of functions; nobody calls through
 * the table but the wrappers in store.c, which check what goes in and what comes out.
 *
 * The result of apply() speaks for the whole batch:
 *   ONCE_OK           durable; every operation has its own result and reply
 *   ONCE_UNKNOWN      the commit's answer was lost (K10). The engine reopens the store;
 *                     one that can tell whether the step committed says so, and then the
 *                     operations' results and replies stand. Else they are applied again,
 *                     one by one, and recognise themselves by nonce or fence
 *   anything else     nothing was changed
 * A store is done when the conformance suite (test/conformance) passes over it.
 */
#ifndef ONCE_STORE_STORE_H
#define ONCE_STORE_STORE_H

#include "core/mac.h"
#include "once.h"

struct once_op {
    const struct once_request *request; /* checked, defaults filled in */
    uint8_t record[16];                 /* which record it is about */
    once_span outcome;                  /* FINISH: encoded (core/outcome.h), where the store wants that;
                                           then the request's own headers and body are gone */
    uint8_t route;                      /* CLAIM: the number of its route, where the store has looked; 0: none */
    bool again;                         /* applied once already, and nobody knows whether that stands */
    uint8_t nonce[16];                  /* RESOLVE, ADVANCE: of this call, as a claim has one */
    once_result result;                 /* out, as are the rest */
    once_result tentative;              /* the engine's: what it would be, had the commit answered */
    bool verified_not_applied;          /* the store looked, and has not done it: if the step fails after
                                    that, nothing of it happened, also not by an earlier try */
    struct once_reply reply;
    struct once_error err;
};

/* An attempt that nobody has finished: running, or failed and retryable. */
struct once_unfinished {
    uint8_t record[16];
    uint64_t fence;
    once_time due; /* when its lease is over; 0: it is, or has none */
    bool failed;
    bool has_request; /* perhaps: those without need not be looked at by who wants one */
};

/* One step over the attempts after fence `after`, in the order of fences; ONCE_LIST_SCAN_MAX at most. */
struct once_sweep {
    uint64_t after;                /* in: where to begin; out: where the next step begins */
    struct once_unfinished *found; /* those that are not finished */
    size_t count, room;
    bool more;     /* out: there are more after that */
    once_time now; /* out: the store's */
};

/* One step over the attempts after fence `after`, in the order of fences, that adds up what tenants have: records that
 * are not past their retention, and the bytes that are stored with them (requests, checkpoints, outcomes, as stored).
 */
struct once_usage {
    uint64_t after; /* in: where to begin; out: where the next step begins */
    uint64_t last;  /* in: the last fence that counts, 0: of now; out: that */
    void (*each)(void *arg, once_span tenant, uint64_t records, uint64_t bytes); /* a tenant may come several times */
    void *arg;
    bool more;     /* out */
    once_time now; /* out: the store's */
};

struct once_store;

/* A key that sealed something: its id, and a proof of it (core/seal.h). */
struct once_seal_key_ref {
    char id[33];
    uint8_t proof[16];
};
enum { ONCE_SEAL_KEY_REFS_MAX = 256 }; /* keys without a tenant that one store had */
struct once_seal_key_refs {
    struct once_seal_key_ref refs[ONCE_SEAL_KEY_REFS_MAX];
    size_t count;
};

/* What became of the step whose answer was lost. */
enum once_fate { ONCE_FATE_UNSURE, ONCE_FATE_COMMITTED, ONCE_FATE_NOT_COMMITTED };

struct once_store_ops {
    const char *name;
    once_result (*apply)(struct once_store *store, struct once_op *const *ops, size_t count, struct once_error *err);
    /* After ONCE_UNKNOWN: forget everything remembered, look at the durable state anew. */
    once_result (*reopen)(struct once_store *store, enum once_fate *fate, struct once_error *err);
    once_result (*list)(struct once_store *store, const struct once_filter *filter, struct once_page *page,
                        struct once_error *err);
    once_result (*history)(struct once_store *store, const uint8_t record[16], struct once_history *history,
                           struct once_error *err);
    /* Only where the store finds (below). A page of just `count` records, in that order, without checkpoint, headers
     * and body; state NONE where one is gone. */
    once_result (*sweep)(struct once_store *store, struct once_sweep *sweep, struct once_error *err);
    once_result (*lookup_many)(struct once_store *store, const struct once_unfinished *wanted, size_t count,
                               struct once_page *page, struct once_error *err);
    once_result (*expire)(struct once_store *store, uint32_t budget, uint64_t *removed, bool *more,
                          struct once_error *err);
    /* One step of a check, from *cursor (0 at first) on; *cursor is 0 again at the end. */
    once_result (*check)(struct once_store *store, uint64_t *cursor, once_problem_fn *each, void *arg,
                         struct once_check_report *report, struct once_error *err);
    once_result (*stats)(struct once_store *store, struct once_stats *stats, struct once_error *err);
    /* The store's time. Cheap, unlike stats(). */
    once_result (*clock)(struct once_store *store, once_time *now, struct once_error *err);
    /* ONCE_INVALID: this store never does what a well-formed request asks for. NULL: it does everything. */
    once_result (*accepts)(const struct once_store *store, const struct once_request *request, struct once_error *err);
    /* The promises that this store does not keep. NULL: it keeps all. */
    const struct once_gap *(*gaps)(const struct once_store *store, size_t *count);
    /* NULL: it cannot. */
    once_result (*usage)(struct once_store *store, struct once_usage *usage, struct once_error *err);
    /* The keys that bytes of this store are sealed with (store/seal.h); `add` (NULL: none) becomes one of them. NULL:
     * it is sealed elsewhere. */
    once_result (*seal_keys)(struct once_store *store, const struct once_seal_key_ref *add,
                             struct once_seal_key_refs *out, struct once_error *err);
    /* Another handle of the same store, for steps side by side with this one's. NULL: its
     * steps come one after the other anyway. */
    once_result (*open_another)(struct once_store *store, struct once_store **out, struct once_error *err);
    void (*close)(struct once_store *store);
};

/* Embedded first in every implementation. */
struct once_store {
    const struct once_store_ops *ops;
    struct once_mac secret; /* names records, salts fingerprints, derives child keys */
    bool shared;            /* other processes write too: outcomes may come from elsewhere */
    bool has_sweep;         /* has sweep and look; else its list also finds what is abandoned */
    bool encoded;           /* keeps outcomes as core/outcome.h encodes them */
    bool best_effort;       /* may lose what it acknowledged: its answers are labelled so */
    int schema_version;     /* of what it stores; 0: a daemon's */
};

enum once_store_kind { ONCE_STORE_SQLITE = 1, ONCE_STORE_POSTGRES, ONCE_STORE_REDIS, ONCE_STORE_DAEMON };

/* Whether `url` can be a store's, wrappers included, without looking whether there is one: ONCE_INVALID or ONCE_LIMIT
 * if not. *kind, where wanted, is what it would be. */
once_result once_store_url_check(const char *url, enum once_store_kind *kind, struct once_error *err);

/* Opens what `url` names, wrappers included. `options` is complete (no zeros left). */
once_result once_store_open(const char *url, const struct once_options *options, struct once_store **out,
                            struct once_error *err);
void once_store_close(struct once_store *store);
/* Creates or upgrades what `url` names; *version is what it has then. */
once_result once_store_migrate(const char *url, const struct once_options *options, int *version,
                               struct once_error *err);

once_result once_store_apply(struct once_store *store, struct once_op *const *ops, size_t count,
                             struct once_error *err);
once_result once_store_reopen(struct once_store *store, enum once_fate *fate, struct once_error *err);
once_result once_store_list(struct once_store *store, const struct once_filter *filter, struct once_page *page,
                            struct once_error *err);
once_result once_store_history(struct once_store *store, const uint8_t record[16], struct once_history *history,
                               struct once_error *err);
once_result once_store_sweep(struct once_store *store, struct once_sweep *sweep, struct once_error *err);
once_result once_store_lookup_many(struct once_store *store, const struct once_unfinished *wanted, size_t count,
                                   struct once_page *page, struct once_error *err);
once_result once_store_expire(struct once_store *store, uint32_t budget, uint64_t *removed, bool *more,
                              struct once_error *err);
once_result once_store_check(struct once_store *store, uint64_t *cursor, once_problem_fn *each, void *arg,
                             struct once_check_report *report, struct once_error *err);
once_result once_store_stats(struct once_store *store, struct once_stats *stats, struct once_error *err);
once_result once_store_seal_keys(struct once_store *store, const struct once_seal_key_ref *add,
                                 struct once_seal_key_refs *out, struct once_error *err);
/* ONCE_INVALID: this store cannot. */
once_result once_store_usage(struct once_store *store, struct once_usage *usage, struct once_error *err);
once_result once_store_accepts(const struct once_store *store, const struct once_request *request,
                               struct once_error *err);
const struct once_gap *once_store_gaps(const struct once_store *store, size_t *count);
once_result once_store_clock(struct once_store *store, once_time *now, struct once_error *err);
/* ONCE_UNAVAILABLE where there is none to be had. It must be closed before this one. */
once_result once_store_open_another(struct once_store *store, struct once_store **out, struct once_error *err);

/* A parameter of a store's URL: `name` in "sqlite:PATH?a=1&name=VALUE". False if absent. */
bool once_url_param(once_span query, const char *name, once_span *value);
/* Refuses parameters that are not in the NULL-terminated list. */
once_result once_url_check(once_span query, const char *const *known, struct once_error *err);

/* The implementations, each with what it says of a URL alone. */
once_result once_store_sqlite_url_check(once_span rest, struct once_error *err);
once_result once_store_postgres_url_check(const char *url, struct once_error *err);
once_result once_store_redis_url_check(once_span url, struct once_error *err);
once_result once_store_remote_url_check(once_span rest, struct once_error *err);
once_result once_store_sqlite_open(once_span rest, const struct once_options *options, struct once_store **out,
                                   struct once_error *err);
once_result once_store_postgres_open(const char *url, const struct once_options *options, struct once_store **out,
                                     struct once_error *err);
once_result once_store_redis_open(once_span url, const struct once_options *options, struct once_store **out,
                                  struct once_error *err);
/* What a best-effort store does not promise, by invariant. */
const struct once_gap *once_store_redis_gaps(size_t *count);
once_result once_store_remote_open(once_span rest, struct once_store **out, struct once_error *err);
once_result once_store_postgres_migrate(const char *url, int *version, struct once_error *err);
/* Lets the database's pg_cron run the expiry, or no longer. */
once_result once_store_postgres_cron(const char *url, bool on, struct once_error *err);
/* These wrap an open store and own it from then on, also when they fail. */
once_result once_store_trace_wrap(struct once_store *inner, struct once_store **out, struct once_error *err);
once_result once_store_fault_wrap(struct once_store *inner, struct once_store **out, struct once_error *err);
/* Where bytes are sealed, *store becomes a store around it (store/wrap/seal.c). On failure it stays the caller's. */
once_result once_store_seal(struct once_store **store, const struct once_options *options, struct once_error *err);

#endif
