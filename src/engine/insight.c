/* insight.c - see insight.h. */
#include "engine/insight.h"

/* 0 to 3 are their own buckets; from then on each octave has four. */
static unsigned bucket_of(uint64_t us)
{
    if (us < 4)
        return (unsigned)us;
    unsigned octave = 61u - (unsigned)__builtin_clzll(us); /* 4 to 7: 0 */
    unsigned bucket = 4 + 4 * octave + (unsigned)(us >> octave & 3);
    return bucket < INSIGHT_TIMES ? bucket : INSIGHT_TIMES - 1;
}

uint64_t insight_bucket_us(unsigned bucket)
{
    if (bucket < 4)
        return bucket;
    unsigned octave = (bucket - 4) / 4;
    return ((4 + (uint64_t)(bucket & 3) + 1) << octave) - 1;
}

void insight_add_time(struct insight_times *times, uint64_t ns)
{
    times->count++;
    times->sum_ns += ns;
    times->buckets[bucket_of(ns / 1000)]++;
}

double insight_quantile_us(const struct insight_times *times, double q)
{
    if (times->count == 0)
        return 0;
    double wanted = q * (double)times->count, seen = 0;
    for (unsigned i = 0; i < INSIGHT_TIMES; i++) {
        double here = (double)times->buckets[i];
        if (here > 0 && seen + here >= wanted) {
            double low = i > 0 ? (double)insight_bucket_us(i - 1) + 1 : 0, high = (double)insight_bucket_us(i) + 1;
            return low + (high - low) * (wanted - seen) / here;
        }
        seen += here;
    }
    return (double)insight_bucket_us(INSIGHT_TIMES - 1);
}

void insight_since(struct insight_times *times, const struct insight_times *before)
{
    times->count -= before->count;
    times->sum_ns -= before->sum_ns;
    for (unsigned i = 0; i < INSIGHT_TIMES; i++)
        times->buckets[i] -= before->buckets[i];
}

void insight_add_batch(struct once_insight *insight, size_t operations)
{
    unsigned bucket = 0;
    while (bucket < INSIGHT_SIZES - 1 && (size_t)1 << bucket < operations)
        bucket++;
    insight->batch_sizes[bucket]++;
    insight->batch_operations += operations;
}
