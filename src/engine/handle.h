/*
 * handle.h - what a `struct once` is made of.
 */
#ifndef ONCE_ENGINE_HANDLE_H
#define ONCE_ENGINE_HANDLE_H

#include "engine/engine.h"

struct keeper;
struct finder;

struct once {
    struct once_store *store; /* the writer's, but for its secret, which never changes */
    struct engine *engine;
    struct keeper *keeper; /* renews leases for once_run() */
    struct finder *finder; /* finds abandoned records, where the store does not list them itself */
};

/* The public calls as a daemon makes them for others: with the nonce that the asker gave its
 * operation and whether it was sent before, to be followed by a kick when all were submitted that
 * are there; by record; one step of a check at a time. */
once_result once_submit_for(struct once *once, const struct once_request *request, const uint8_t nonce[16], bool again,
                            once_done_fn *done, void *arg, struct once_error *err);
void once_kick(struct once *once);
/* In a callback of once_dispatch(): was this a claim that waited for another's outcome? */
bool once_dispatched_waited(void);
/* Before the end: no claim waits for another's outcome any more, also none that comes later. */
void once_end_waits(struct once *once);
once_result once_history_of(struct once *once, const uint8_t record[16], struct once_history *history,
                            struct once_error *err);
once_result once_lookup_request_of(struct once *once, const uint8_t record[16], struct once_reply *reply,
                                   struct once_error *err);
once_result once_check_step(struct once *once, uint64_t *cursor, once_problem_fn *each, void *arg,
                            struct once_check_report *report, struct once_error *err);

#endif
