/*
 * store.h - a store in Redis, the best-effort tier: what its parts share.
 *
 * Each operation is one call of once.lua, a batch one pipeline. Invariants that hold as in any store, as long as Redis
 * keeps what it acknowledged: K1 to K3, K5, K6, K8 to K11; those that need more of a store than Redis gives are
 * listed in redis/gaps.c, and docs/redis.md says what each costs. What is lost is counted where it can be seen:
 * redis/open.c.
 *
 * All of a store is in one Redis. A cluster is refused: fences come from one sequence for the whole store, which must
 * outlive every record (K2), so record and sequence would have to be in one slot, and then all records would be.
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
    char handle[45];        /* this handle's name among the witnesses: the time of its opening, and chance */
    uint64_t told;          /* writes of this handle that its callers were told of */
    uint64_t seen;          /* the same, with those that wait for copies */
    uint64_t floor;         /* the largest fence seen */
    char run_id[41];        /* of the server process */
    uint8_t generation[16]; /* of the store; another one: it was made anew */
    bool opened;
    bool waiting; /* a WAIT came back too soon: nothing new before it is fulfilled */

    uint64_t lost, restarts, evicted, evicted_seen; /* evicted_seen: of this server process */
    uint64_t commits;
    uint64_t tidied;    /* redis_store_tidy() has come to this fence; 0: it begins */
    once_time next_try; /* to connect, after one that failed */
    uint32_t pause_ms;
    struct once_buf scratch;
};

/* Connects and looks at what is there; waits out the pause after one that failed. */
once_result redis_store_connect(struct redis_store *s, struct once_error *err);
/* Loads the scripts, e.g. after somebody flushed them. */
once_result redis_store_load(struct redis_store *s, struct once_error *err);
/* A command that only looks; connects where there is no connection. The reply is none of the error kind. */
once_result redis_store_ask(struct redis_store *s, int argc, const once_span *argv, redisReply **reply,
                            struct once_error *err);
/* The store's time. */
once_result redis_store_now(struct redis_store *s, once_time *now, struct once_error *err);
/* A line of INFO's text: what follows "name:". Empty where there is none. */
once_span redis_info(once_span info, const char *name);
uint64_t redis_info_number(once_span info, const char *name);
__attribute__((format(printf, 2, 3))) void redis_store_warn(struct redis_store *s, const char *format, ...);

/* redis/look.c */
once_result redis_store_list(struct once_store *base, const struct once_filter *filter, struct once_page *page,
                             struct once_error *err);
once_result redis_store_lookup_many(struct once_store *base, const struct once_unfinished *wanted, size_t count,
                                    struct once_page *page, struct once_error *err);
once_result redis_store_history(struct once_store *base, const uint8_t record[16], struct once_history *history,
                                struct once_error *err);
/* A step over the names of what is not finished: those whose record Redis removed go. *more: that helped, go on. */
once_result redis_store_tidy(struct redis_store *s, uint32_t budget, bool *more, struct once_error *err);
once_result redis_store_stats(struct once_store *base, struct once_stats *stats, struct once_error *err);
/* redis/check.c */
once_result redis_store_check(struct once_store *base, uint64_t *cursor, once_problem_fn *each, void *arg,
                              struct once_check_report *report, struct once_error *err);

#endif
