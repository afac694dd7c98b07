/*
 * route_stats.h - counters of an engine by route: claims by arm, outcomes, refusals, latency.
 *
 * The sums over all routes, including claims without a route, equal those of engine_stats.h: each claim and each
 * outcome is counted once. A call that is repeated because its answer was lost is recognised: a claim by its nonce, a
 * finish or release by its fence. A finish does not name its route; the grant's is remembered. Nonces and fences of the
 * last 16384 are remembered, in sets of eight, of which the oldest is replaced: with more grants at a time, some
 * outcomes are counted without their route.
 *
 * Bounds: ONCE_ROUTE_COUNT_MAX names; the others are counted as "other".
 * Called with the engine's lock held.
 */
#ifndef ONCE_ENGINE_ROUTE_STATS_H
#define ONCE_ENGINE_ROUTE_STATS_H

#include "core/limits.h"
#include "engine/engine_stats.h"

enum { ROUTE_STATS_MAX = ONCE_ROUTE_OTHER + 1 }; /* 0: no route; the last one: other */

struct engine_route_stats {
    char name[ONCE_ROUTE_LEN_MAX + 1];         /* "": claims without a route */
    uint64_t claims[ONCE_ARM_EXPIRED + 1];     /* by arm */
    uint64_t failed;                           /* claims that were answered with an error, a full queue included */
    uint64_t outcomes[ONCE_STATE_UNKNOWN + 1]; /* finishes that were stored; 0: releases */
    struct engine_latency claim, finish;
};

/* A lease this close to its end: a healthy holder has renewed it long before. */
enum { LEASE_ENDING_MS = 5000 };

struct engine_lease_counts {
    uint64_t held, ending; /* not over; of these, over within LEASE_ENDING_MS */
};

struct once_op; /* store/store.h */
struct route_stats;

struct route_stats *route_stats_new(void);
void route_stats_free(struct route_stats *route_stats);
/* The number of a route in these counters, which is not its number in the store. */
uint8_t route_stats_find(struct route_stats *route_stats, once_span name);
void route_stats_refused(struct route_stats *route_stats, uint8_t route);
void route_stats_waited(struct route_stats *route_stats, uint8_t route); /* engine_count_step() */

/* Counts an operation that is answered now; `route` is the claim's. False: a repeated call, counted before. */
bool route_stats_count(struct route_stats *route_stats, const struct once_op *op, uint8_t route, uint64_t now_ns,
                       uint64_t ns, bool timed);
/* Of the leases that were granted here. */
void route_stats_leases(const struct route_stats *route_stats, once_time now, struct engine_lease_counts *out);
/* Writes all routes, "" first, and returns how many. `out` has room for ROUTE_STATS_MAX. */
size_t route_stats_read(const struct route_stats *route_stats, struct engine_route_stats *out);

/* Allocated; *count of them. NULL: no memory. */
struct engine_route_stats *once_route_stats(struct once *once, size_t *count, struct engine_lease_counts *leases);

#endif
