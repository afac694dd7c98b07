/*
 * engine_stats.h - counters of an engine besides once_stats(): claims by arm, outcomes by state, the latency of claims
 * and finishes, the size of batches.
 *
 * The writers count while they hold the engine's lock anyway. A claim that waited for another attempt's outcome is
 * counted when it is answered, and not timed: it took the other attempt's time.
 */
#ifndef ONCE_ENGINE_ENGINE_STATS_H
#define ONCE_ENGINE_ENGINE_STATS_H

#include "once.h"

/* Times in microseconds: 0 to 3 have a bucket each, then every octave (4 to 7, 8 to 15, ...) has four; the last bucket
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
    uint64_t errors;                           /* operations that were answered with an error */
    uint64_t failures;                         /* of these: errors of the store or this machine */
    char failure[ENGINE_FAILURE_LEN];          /* the last of these errors, cut */
    struct engine_latency claim, finish;
    uint64_t batch_sizes[ENGINE_BATCH_BUCKETS]; /* batches of up to 1 << n operations */
    uint64_t batch_operations;                  /* in all of them */
    uint32_t queued, queue_max;                 /* jobs in the queue now; at most */
    uint32_t waiting;                           /* claims that wait for another attempt's outcome now */
    uint64_t store_calls;                       /* calls of the store that returned, with any result */
};

void engine_latency_add(struct engine_latency *times, uint64_t ns);
/* The time in microseconds that the share `q` (0 to 1) stays below; 0: nothing was timed. */
double engine_latency_quantile_us(const struct engine_latency *times, double q);
/* Subtracts an earlier reading. */
void engine_latency_since(struct engine_latency *times, const struct engine_latency *before);
/* The longest time of a bucket. */
uint64_t engine_latency_bucket_us(unsigned bucket);
void engine_stats_add_batch(struct once_engine_stats *engine_stats, size_t operations);

/* Does not call the store. */
void once_engine_stats(struct once *once, struct once_engine_stats *out);

#endif
