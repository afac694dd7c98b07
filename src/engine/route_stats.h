/*
 * route_stats.h - what an engine counts by route: claims by what they were answered, outcomes, refusals, times.
 *
 * The sums over all routes, none included, are those of engine_stats.h, exactly: each claim and each outcome is counted
 * once. What came again because its answer was lost (`again`) is recognised: a claim by its nonce, an end by its fence.
 * A finish does not say its route; it is known from the grant. All of that is remembered for the last 16384 and
 * forgotten in sets of eight, oldest first: only under more grants at a time is an outcome counted without its route.
 *
 * Bounds: ONCE_ROUTE_COUNT_MAX names, the rest is "other".
 * Called with the engine's lock held.
 */
#ifndef ONCE_ENGINE_ROUTE_STATS_H
#define ONCE_ENGINE_ROUTE_STATS_H

#include "core/limits.h"
#include "engine/engine_stats.h"

enum { ROUTE_STATS_MAX = ONCE_ROUTE_OTHER + 1 }; /* 0: none; the last one: other */

/* Of one route. */
struct engine_route_stats {
    char name[ONCE_ROUTE_LEN_MAX + 1];         /* "": those without */
    uint64_t claims[ONCE_ARM_EXPIRED + 1];     /* by arm */
    uint64_t failed;                           /* claims that could not be done, or were refused for want of room */
    uint64_t outcomes[ONCE_STATE_UNKNOWN + 1]; /* finishes that were stored; 0: releases */
    struct engine_latency claim, finish;
};

/* A lease that a holder in good health renews long before. */
enum { LEASE_ENDING_MS = 5000 };

struct engine_lease_counts {
    uint64_t held, ending; /* those that are not over; of them, over soon */
};

struct once_op; /* store/store.h */
struct route_stats;

struct route_stats *route_stats_new(void);
void route_stats_free(struct route_stats *route_stats);
/* The number of a route here, which is not the store's. */
uint8_t route_stats_find(struct route_stats *route_stats, once_span name);
void route_stats_refused(struct route_stats *route_stats, uint8_t route);
void route_stats_waited(struct route_stats *route_stats, uint8_t route); /* in steps, in vain */

/* Counts what is answered now: the route is the claim's. False: it was counted before, it came again. */
bool route_stats_count(struct route_stats *route_stats, const struct once_op *op, uint8_t route, uint64_t now_ns,
                       uint64_t ns, bool timed);
/* Of the leases that were granted here. */
void route_stats_leases(const struct route_stats *route_stats, once_time now, struct engine_lease_counts *out);
/* Writes out all that there are, "" first; how many. `out` has room for ROUTE_STATS_MAX. */
size_t route_stats_read(const struct route_stats *route_stats, struct engine_route_stats *out);

/* Of a handle's own engine, allocated; *count of them. NULL: no memory. */
struct engine_route_stats *once_route_stats(struct once *once, size_t *count, struct engine_lease_counts *leases);

#endif
