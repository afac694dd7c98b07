/*
 * daemon_api.h - calls of a handle that once.h does not have: the daemon makes them, mostly for its clients.
 *
 * The daemon includes this and never sees what a handle is made of (handle.h) or the store behind it.
 */
#ifndef ONCE_ENGINE_DAEMON_API_H
#define ONCE_ENGINE_DAEMON_API_H

#include "engine/quota.h"
#include "once.h"

struct once_mac;

/* The store's secret: it names records, salts fingerprints and derives child keys. It never changes. */
const struct once_mac *once_secret(const struct once *once);
/* The store may lose what it acknowledged: its answers are labelled so. */
bool once_is_best_effort(const struct once *once);

/* once_submit() with the nonce that the client gave its operation and whether the client sent it before; to be followed
 * by one once_kick() when everything that arrived was submitted. */
once_result once_submit_for(struct once *once, const struct once_request *request, const uint8_t nonce[16], bool again,
                            once_done_fn *done, void *arg, struct once_error *err);
void once_kick(struct once *once);
/* In a callback of once_dispatch(): whether the answered request is a claim that waited for another's outcome. */
bool once_dispatched_waited(void);
/* Before the daemon ends: answers the waiting claims; no later claim waits. */
void once_end_waits(struct once *once);
/* A claim that waits in steps of its caller instead of in the engine: all its steps count as one claim. */
once_result once_claim_step(struct once *once, const struct once_claim *claim, struct once_reply *reply,
                            struct once_error *err);
void once_claim_gave_up(struct once *once, const struct once_claim *claim); /* the last step said IN_PROGRESS */

/* Looks up a record that does not exist, through queue, writer and store. No counter sees it. */
once_result once_check_health(struct once *once, once_done_fn *done, void *arg, struct once_error *err);
/* The store's time. Cheap, unlike once_stats(). */
once_result once_read_clock(struct once *once, once_time *now, struct once_error *err);

/* By record instead of by tenant and key. */
once_result once_history_of(struct once *once, const uint8_t record[16], struct once_history *history,
                            struct once_error *err);
once_result once_lookup_request_of(struct once *once, const uint8_t record[16], struct once_reply *reply,
                                   struct once_error *err);
/* A page of this one record, without checkpoint, headers and body; state NONE: it is gone. */
once_result once_lookup_brief(struct once *once, struct once_grant grant, struct once_page *page,
                              struct once_error *err);
/* One step of once_check(), from *cursor (0 at first) on; *cursor is 0 again at the end. */
once_result once_check_step(struct once *once, uint64_t *cursor, once_problem_fn *each, void *arg,
                            struct once_check_report *report, struct once_error *err);

/* Quotas per tenant (quota.h); before the first request. */
once_result once_set_quotas(struct once *once, const struct quota_rules *rules, struct once_error *err);
void once_quota_counters(struct once *once, struct quota_counters *out);
/* A scan of the store in the order of fences that counts what tenants use; all zero: from the start. */
struct quota_scan {
    uint64_t after, last;
    bool more; /* out */
};
once_result once_usage_step(struct once *once, struct quota_scan *scan, struct once_error *err);

#endif
