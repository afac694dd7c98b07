/*
 * handle.h - what a `struct once` is made of.
 */
#ifndef ONCE_ENGINE_HANDLE_H
#define ONCE_ENGINE_HANDLE_H

#include "engine/engine.h"

struct lease_keeper;
struct abandoned_finder;

struct once {
    struct once_store *store; /* the writer's, but for its secret, which never changes */
    struct engine *engine;
    struct lease_keeper *lease_keeper;         /* renews leases for once_run() */
    struct abandoned_finder *abandoned_finder; /* finds abandoned records, where the store does not list them itself */
};

/* The public calls as a daemon makes them for others: with the nonce that the asker gave its
 * operation and whether it was sent before, to be followed by a kick when all were submitted that
 * are there; by record; one step of a check at a time. */
once_result once_submit_for(struct once *once, const struct once_request *request, const uint8_t nonce[16], bool again,
                            once_done_fn *done, void *arg, struct once_error *err);
void once_kick(struct once *once);
/* One of the steps of a claim that waits, but not in the engine: the claim counts as one. */
once_result once_claim_step(struct once *once, const struct once_claim *claim, struct once_reply *reply,
                            struct once_error *err);
void once_claim_gave_up(struct once *once, const struct once_claim *claim); /* the last step said IN_PROGRESS */
/* Asks the store for a record that nobody has, all the way through queue, writer and store; counts as nothing. */
once_result once_check_health(struct once *once, once_done_fn *done, void *arg, struct once_error *err);
/* In a callback of once_dispatch(): was this a claim that waited for another's outcome? */
bool once_dispatched_waited(void);
/* Before the end: no claim waits for another's outcome any more, also none that comes later. */
void once_end_waits(struct once *once);
once_result once_history_of(struct once *once, const uint8_t record[16], struct once_history *history,
                            struct once_error *err);
once_result once_lookup_request_of(struct once *once, const uint8_t record[16], struct once_reply *reply,
                                   struct once_error *err);
/* Quotas per tenant (quota.h), before anything is asked; one step of a walk that counts what tenants have. */
once_result once_set_quotas(struct once *once, const struct quota_rules *rules, struct once_error *err);
once_result once_usage_step(struct once *once, struct once_usage *usage, struct once_error *err);
void once_quota_counters(struct once *once, struct quota_counters *out);
/* What time it is for the store. Cheap, unlike once_stats(). */
once_result once_read_clock(struct once *once, once_time *now, struct once_error *err);
once_result once_check_step(struct once *once, uint64_t *cursor, once_problem_fn *each, void *arg,
                            struct once_check_report *report, struct once_error *err);

#endif
