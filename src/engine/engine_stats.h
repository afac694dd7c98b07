/*
 * engine_stats.h - what an engine counts besides once_stats(): claims by what they were answered,
 * outcomes by state, how long claims and finishes take, how large batches are.
 *
 * Counted by the writers under the lock that they hold anyway; one reading of the clock per
 * operation is all that it costs. What waited for another's outcome (a parked claim) is
 * counted when it is answered, and not timed: that would be the other's time.
 */
#ifndef ONCE_ENGINE_ENGINE_STATS_H
#define ONCE_ENGINE_ENGINE_STATS_H

#include "once.h"

/* Times in microseconds: 0 to 3 have a bucket each, then every octave has four; the last one
 * begins after minutes. A quantile is right to within a fifth. */
enum { ENGINE_LATENCY_BUCKETS = 112, ENGINE_BATCH_BUCKETS = 13, ENGINE_FAILURE_LEN = 300 };

struct engine_latency {
    uint64_t count, sum_ns;
    uint64_t buckets[ENGINE_LATENCY_BUCKETS];
};

struct once_engine_stats {
    uint64_t claims[ONCE_ARM_EXPIRED + 1];     /* by arm */
    uint64_t verbs[ONCE_VERB_FORGET + 1];      /* operations that were answered */
    uint64_t outcomes[ONCE_STATE_UNKNOWN + 1]; /* finishes that were stored */
    uint64_t errors;                           /* operations that could not be done */
    uint64_t failures;                         /* of these, those that were the store's fault, or this machine's */
    char failure[ENGINE_FAILURE_LEN];          /* why the last of them could not, cut */
    struct engine_latency claim, finish;
    uint64_t batch_sizes[ENGINE_BATCH_BUCKETS]; /* batches of up to 1 << n operations */
    uint64_t batch_operations;                  /* in all of them */
    uint32_t queued, queue_max;                 /* waiting for the writer now; at most */
    uint32_t waiting;                           /* claims that wait for another's outcome now */
    uint64_t store_calls;                       /* calls of the store that came back, however */
};

void engine_latency_add(struct engine_latency *times, uint64_t ns);
/* Microseconds that the share `q` (0 to 1) took at most; 0 where there are none. */
double engine_latency_quantile_us(const struct engine_latency *times, double q);
/* What was counted since `before`. */
void engine_latency_since(struct engine_latency *times, const struct engine_latency *before);
/* The largest microseconds that go into a bucket. */
uint64_t engine_latency_bucket_us(unsigned bucket);
void engine_stats_add_batch(struct once_engine_stats *engine_stats, size_t operations);

/* Of a handle's own engine. Does not ask the store. */
void once_engine_stats(struct once *once, struct once_engine_stats *out);

#endif
