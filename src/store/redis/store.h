/*
 * store.h - a store in Redis, the best-effort tier: what its parts share.
 *
 * Each operation is one call of once.lua, a batch one pipeline. Invariants that hold as in any store, as long as Redis
 * keeps what it acknowledged: K1 to K3, K5, K6, K8 to K11; those that need more of a store than Redis gives are listed
 * in redis/gaps.c, and docs/redis.md says what each costs. redis/open.c counts lost writes where it can see them.
 *
 * The whole store is in one Redis. A cluster is refused: fences come from one sequence for the whole store, which must
 * outlive every record (K2), so every record would have to be in the sequence's hash slot, on one node.
 */
#ifndef ONCE_STORE_REDIS_STORE_H
#define ONCE_STORE_REDIS_STORE_H

#include "store/redis/conn.h"
#include "store/redis/op.h"
#include "store/store.h"

enum redis_script { REDIS_SCRIPT_ONCE, REDIS_SCRIPT_OPEN, REDIS_SCRIPT_ABANDONED, REDIS_SCRIPT_COUNT };

struct redis_store {
    struct once_store base;
    struct redis_url url;
    struct redis_conn conn;
    const struct once_clock *clock; /* a test's, or NULL */
    bool may_make;
    void (*warn)(void *arg, const char *text);
    void *warn_arg;

    char sha[REDIS_SCRIPT_COUNT][41];
    char handle[45];        /* this handle's name in PREFIX:witness: the time of its opening, and random digits */
    uint64_t told;          /* writes of this handle that were acknowledged to callers */
    uint64_t seen;          /* the same, and those that still wait for replicas */
    uint64_t floor;         /* the largest fence seen */
    char run_id[41];        /* of the server process */
    uint8_t generation[16]; /* of the store; a new one when the store was made again after its data was lost */
    bool opened;
    bool waiting; /* a WAIT timed out: no new writes before enough replicas have the last ones */

    uint64_t lost, restarts, evicted, evicted_seen; /* evicted_seen: of this server process */
    uint64_t commits;
    uint64_t tidied;    /* redis_store_tidy() goes on after this fence; 0: from the first */
    once_time next_try; /* when to connect again, after a failure */
    uint32_t pause_ms;
    struct once_buf scratch;
};

/* Connects and compares the server with the one that was known; after a failure, waits out the pause first. */
once_result redis_store_connect(struct redis_store *s, struct once_error *err);
/* Loads the scripts, e.g. after a SCRIPT FLUSH. */
once_result redis_store_load(struct redis_store *s, struct once_error *err);
/* A command that only reads; connects where there is no connection. The reply is never an error reply. */
once_result redis_store_ask(struct redis_store *s, int argc, const once_span *argv, redisReply **reply,
                            struct once_error *err);
/* The store's time. */
once_result redis_store_now(struct redis_store *s, once_time *now, struct once_error *err);
/* The value of the line "name:VALUE" in INFO's text; empty where there is no such line. */
once_span redis_info(once_span info, const char *name);
uint64_t redis_info_number(once_span info, const char *name);
__attribute__((format(printf, 2, 3))) void redis_store_warn(struct redis_store *s, const char *format, ...);

/* redis/list.c */
once_result redis_store_list(struct once_store *base, const struct once_filter *filter, struct once_page *page,
                             struct once_error *err);
once_result redis_store_lookup_many(struct once_store *base, const struct once_unfinished *wanted, size_t count,
                                    struct once_page *page, struct once_error *err);
once_result redis_store_history(struct once_store *base, const uint8_t record[16], struct once_history *history,
                                struct once_error *err);
/* One step over PREFIX:open: removes the ids of records that Redis has expired. *more: it removed some; call again. */
once_result redis_store_tidy(struct redis_store *s, uint32_t budget, bool *more, struct once_error *err);
once_result redis_store_stats(struct once_store *base, struct once_stats *stats, struct once_error *err);
/* redis/check.c */
once_result redis_store_check(struct once_store *base, uint64_t *cursor, once_problem_fn *each, void *arg,
                              struct once_check_report *report, struct once_error *err);

#endif
