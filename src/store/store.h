/*
 * store.h - the interface of a store: one durable step at a time over a set of records.
 *
 * A store applies a batch of operations as one transaction and answers each of them after that
 * is durable. The engine does everything else (queueing, waiting, settling a lost answer). An
 * implementation is a table of functions. Only the wrappers in store.c call through the table;
 * they check what goes in and what comes out.
 *
 * The result of apply() is for the whole batch:
 *   ONCE_OK           durable; every operation has its own result and reply
 *   ONCE_UNKNOWN      the commit's answer was lost (K10). The engine reopens the store. If reopen() can
 *                     tell that the step committed, the operations keep their results and replies.
 *                     Otherwise the engine applies them again, one by one; the store recognises each
 *                     by its nonce or fence
 *   anything else     nothing was changed
 * A new store is complete when it passes the conformance suite (test/conformance).
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
    bool again;                         /* applied before, and it is not known whether that took effect */
    uint8_t nonce[16];                  /* RESOLVE, ADVANCE, FORGET: names this call, as a claim's nonce does */
    once_result result;                 /* out, as are the rest */
    once_result tentative;              /* used by the engine: the result if the step turns out to be committed */
    bool verified_not_applied; /* the store checked that no earlier try took effect: if the step fails after that,
                           the failure is definite */
    struct once_reply reply;
    struct once_error err;
};

/* An attempt that nobody has finished: running, or failed and retryable. */
struct once_unfinished {
    uint8_t record[16];
    uint64_t fence;
    once_time due; /* when its lease ends; 0: it has ended, or there is none */
    bool failed;
    bool has_request; /* may have a stored request; false: certainly has none */
};

/* One step over the attempts after fence `after`, in the order of fences; ONCE_LIST_SCAN_MAX at most. */
struct once_sweep {
    uint64_t after;                /* in: where to begin; out: where the next step begins */
    struct once_unfinished *found; /* the unfinished ones among them */
    size_t count, room;
    bool more;     /* out: there are more after that */
    once_time now; /* out: the store's */
};

/* One step over the attempts after fence `after`, in the order of fences, that adds up the quota usage of tenants:
 * records that are not past their retention, and the bytes stored with them (requests, checkpoints, outcomes, as
 * stored).
 */
struct once_usage {
    uint64_t after; /* in: where to begin; out: where the next step begins */
    uint64_t last;  /* in: the last fence that counts, 0: the newest; out: that fence */
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
enum { ONCE_SEAL_KEY_REFS_MAX = 256 }; /* keys without a tenant that one store may have used */
struct once_seal_key_refs {
    struct once_seal_key_ref refs[ONCE_SEAL_KEY_REFS_MAX];
    size_t count;
};

/* Whether the step whose answer was lost was committed. */
enum once_fate { ONCE_FATE_UNSURE, ONCE_FATE_COMMITTED, ONCE_FATE_NOT_COMMITTED };

struct once_store_ops {
    const char *name;
    once_result (*apply)(struct once_store *store, struct once_op *const *ops, size_t count, struct once_error *err);
    /* After ONCE_UNKNOWN: drops everything remembered and reads the durable state again. */
    once_result (*reopen)(struct once_store *store, enum once_fate *fate, struct once_error *err);
    once_result (*list)(struct once_store *store, const struct once_filter *filter, struct once_page *page,
                        struct once_error *err);
    once_result (*history)(struct once_store *store, const uint8_t record[16], struct once_history *history,
                           struct once_error *err);
    /* Only where has_sweep (below). lookup_many() makes a page of exactly `count` records, in that order, without
     * checkpoint, headers and body; state NONE where the record does not exist any more. */
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
    /* NULL: not supported. */
    once_result (*usage)(struct once_store *store, struct once_usage *usage, struct once_error *err);
    /* The keys that bytes of this store are sealed with (store/seal.h); `add` (may be NULL) becomes one of them. NULL:
     * the daemon that owns the store seals it. */
    once_result (*seal_keys)(struct once_store *store, const struct once_seal_key_ref *add,
                             struct once_seal_key_refs *out, struct once_error *err);
    /* Another handle of the same store, for steps side by side with this one's. NULL: the store has one writer. */
    once_result (*open_another)(struct once_store *store, struct once_store **out, struct once_error *err);
    void (*close)(struct once_store *store);
};

/* Embedded first in every implementation. */
struct once_store {
    const struct once_store_ops *ops;
    struct once_mac secret; /* names records, salts fingerprints, derives child keys */
    bool shared;            /* other processes write too: a waiting claim has to poll for their outcomes */
    bool has_sweep;         /* implements sweep() and lookup_many(); otherwise list(abandoned) scans */
    bool encoded;           /* keeps outcomes as core/outcome.h encodes them */
    bool best_effort;       /* may lose what it acknowledged: its answers are labelled so */
    int schema_version;     /* of what it stores; 0: a daemon's */
};

enum once_store_kind { ONCE_STORE_SQLITE = 1, ONCE_STORE_POSTGRES, ONCE_STORE_REDIS, ONCE_STORE_DAEMON };

/* Checks the form of a store's URL, wrappers included, without connecting: ONCE_OK, ONCE_INVALID or ONCE_LIMIT. *kind
 * (may be NULL) is the kind of store. */
once_result once_store_url_check(const char *url, enum once_store_kind *kind, struct once_error *err);

/* Opens the store that `url` names, wrappers included. `options` has its defaults filled in. */
once_result once_store_open(const char *url, const struct once_options *options, struct once_store **out,
                            struct once_error *err);
void once_store_close(struct once_store *store);
/* Creates the store that `url` names, or upgrades it; *version is its version after that. */
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
/* ONCE_INVALID: this store does not support it. */
once_result once_store_usage(struct once_store *store, struct once_usage *usage, struct once_error *err);
once_result once_store_accepts(const struct once_store *store, const struct once_request *request,
                               struct once_error *err);
const struct once_gap *once_store_gaps(const struct once_store *store, size_t *count);
/* The store's clock. */
once_result once_store_clock(struct once_store *store, once_time *now, struct once_error *err);
/* ONCE_UNAVAILABLE: the store has one writer. The new handle must be closed before `store`. */
once_result once_store_open_another(struct once_store *store, struct once_store **out, struct once_error *err);

/* A parameter of a store's URL: `name` in "sqlite:PATH?a=1&name=VALUE". False if absent. */
bool once_url_param(once_span query, const char *name, once_span *value);
/* Refuses parameters that are not in the NULL-terminated list. */
once_result once_url_check(once_span query, const char *const *known, struct once_error *err);

/* The implementations, each with a check of its URL's form. */
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
/* The invariants that a best-effort store does not keep. */
const struct once_gap *once_store_redis_gaps(size_t *count);
once_result once_store_remote_open(once_span rest, struct once_store **out, struct once_error *err);
once_result once_store_postgres_migrate(const char *url, int *version, struct once_error *err);
/* Schedules the expiry as a job of the database's pg_cron, or removes that job. */
once_result once_store_postgres_cron(const char *url, bool on, struct once_error *err);
/* These wrap an open store and own it from then on, even when they fail. */
once_result once_store_trace_wrap(struct once_store *inner, struct once_store **out, struct once_error *err);
once_result once_store_fault_wrap(struct once_store *inner, struct once_store **out, struct once_error *err);
/* If the options have seal keys, *store becomes a store around it that seals (store/wrap/seal.c). On failure it stays
 * the caller's. */
once_result once_store_seal(struct once_store **store, const struct once_options *options, struct once_error *err);

#endif
