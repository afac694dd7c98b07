/*
 * insight.h - what an engine counts besides once_stats(): claims by what they were answered,
 * outcomes by state, how long claims and finishes take, how large batches are.
 *
 * Counted by the writers under the lock that they hold anyway; one reading of the clock per
 * operation is all that it costs. What waited for another's outcome (a parked claim) is
 * counted when it is answered, and not timed: that would be the other's time.
 */
#ifndef ONCE_ENGINE_INSIGHT_H
#define ONCE_ENGINE_INSIGHT_H

#include "once.h"

/* Times in microseconds: 0 to 3 have a bucket each, then every octave has four; the last one
 * begins after minutes. A quantile is right to within a fifth. */
enum { INSIGHT_TIMES = 112, INSIGHT_SIZES = 13, INSIGHT_FAILURE_LEN = 300 };

struct insight_times {
    uint64_t count, sum_ns;
    uint64_t buckets[INSIGHT_TIMES];
};

struct once_insight {
    uint64_t claims[ONCE_ARM_EXPIRED + 1];     /* by arm */
    uint64_t verbs[ONCE_VERB_FORGET + 1];      /* operations that were answered */
    uint64_t outcomes[ONCE_STATE_UNKNOWN + 1]; /* finishes that were stored */
    uint64_t errors;                           /* operations that could not be done */
    uint64_t failures;                         /* of these, those that were the store's fault, or this machine's */
    char failure[INSIGHT_FAILURE_LEN];         /* why the last of them could not, cut */
    struct insight_times claim, finish;
    uint64_t batch_sizes[INSIGHT_SIZES]; /* batches of up to 1 << n operations */
    uint64_t batch_operations;           /* in all of them */
    uint32_t queued, queue_max;          /* waiting for the writer now; at most */
    uint32_t parked;                     /* claims that wait for another's outcome now */
    uint64_t turns;                      /* calls of the store that came back, however */
};

void insight_add_time(struct insight_times *times, uint64_t ns);
/* Microseconds that the share `q` (0 to 1) took at most; 0 where there are none. */
double insight_quantile_us(const struct insight_times *times, double q);
/* What was counted since `before`. */
void insight_since(struct insight_times *times, const struct insight_times *before);
/* The largest microseconds that go into a bucket. */
uint64_t insight_bucket_us(unsigned bucket);
void insight_add_batch(struct once_insight *insight, size_t operations);

/* Of a handle's own engine. Does not ask the store. */
void once_insight(struct once *once, struct once_insight *out);

#endif
