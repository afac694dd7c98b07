/*
 * relay_counters.h - the counters of a relay, for reports and for Prometheus.
 *
 * Model:   the relay's thread writes, any thread reads. Counters are by route, never by topic or key, so that enqueued
 *          messages cannot add series. The last row is for topics without a route.
 * Meaning: published, refused and unreached count what sinks reported, every time; a message that is published again
 *          after a crash is counted again. Dead letters are counted when they are committed. Crashed messages were in
 *          flight when another relay crashed; they are counted when they are tried again.
 *          The outbox's counts are read from the database now and then, and include the work of other relays.
 */
#ifndef ONCE_MESSAGES_RELAY_COUNTERS_H
#define ONCE_MESSAGES_RELAY_COUNTERS_H

#include "messages/outbox/outbox.h"

#include <stdatomic.h>
#include <stdio.h>

enum { RELAY_ROUTES_MAX = 64, RELAY_BUCKETS = 18 };

/* Durations, in buckets that end at relay_bucket_ms[]; the last bucket has no end. */
struct relay_histogram {
    _Atomic uint64_t counts[RELAY_BUCKETS + 1];
    _Atomic uint64_t sum_us;
};

struct relay_route_counters {
    _Atomic uint64_t published, refused, unreached, crashed;
    _Atomic uint64_t dead_refused, dead_crashed;
    struct relay_histogram publish; /* from its start to its confirmation */
    struct relay_histogram delay;   /* from its enqueue to its confirmation */
};

struct relay_counters {
    struct relay_route_counters rows[RELAY_ROUTES_MAX + 1];
    _Atomic uint64_t batches, unsettled, outages;
    _Atomic bool up;      /* connected to the outbox */
    _Atomic bool counted; /* the counts below were read over the current connection */
    _Atomic int64_t pending, stalled, scheduled, dead, lag_ms, stalled_lag_ms;
};

/* Sums over all routes. */
struct relay_sums {
    uint64_t published, refused, unreached, crashed, dead;
};

void relay_histogram_add(struct relay_histogram *h, uint64_t us);
void relay_counters_sum(const struct relay_counters *counters, struct relay_sums *out);
void relay_counters_count(struct relay_counters *counters, const struct outbox_counts *counts);

/* In Prometheus' text format 0.0.4. `patterns` are the routes'. */
void relay_counters_put(const struct relay_counters *counters, const char *const *patterns, size_t count, FILE *file);

#endif
