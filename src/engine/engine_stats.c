/* engine_stats.c - see engine_stats.h. */
#include "engine/engine_stats.h"

/* See ENGINE_LATENCY_BUCKETS. */
static unsigned bucket_of(uint64_t us)
{
    if (us < 4)
        return (unsigned)us;
    unsigned octave = 61u - (unsigned)__builtin_clzll(us); /* 4 to 7: 0 */
    unsigned bucket = 4 + 4 * octave + (unsigned)(us >> octave & 3);
    return bucket < ENGINE_LATENCY_BUCKETS ? bucket : ENGINE_LATENCY_BUCKETS - 1;
}

uint64_t engine_latency_bucket_us(unsigned bucket)
{
    if (bucket < 4)
        return bucket;
    unsigned octave = (bucket - 4) / 4;
    return ((4 + (uint64_t)(bucket & 3) + 1) << octave) - 1;
}

void engine_latency_add(struct engine_latency *times, uint64_t ns)
{
    times->count++;
    times->sum_ns += ns;
    times->buckets[bucket_of(ns / 1000)]++;
}

double engine_latency_quantile_us(const struct engine_latency *times, double q)
{
    if (times->count == 0)
        return 0;
    double wanted = q * (double)times->count, seen = 0;
    for (unsigned i = 0; i < ENGINE_LATENCY_BUCKETS; i++) {
        double here = (double)times->buckets[i];
        if (here > 0 && seen + here >= wanted) {
            double low = i > 0 ? (double)engine_latency_bucket_us(i - 1) + 1 : 0,
                   high = (double)engine_latency_bucket_us(i) + 1;
            return low + (high - low) * (wanted - seen) / here;
        }
        seen += here;
    }
    return (double)engine_latency_bucket_us(ENGINE_LATENCY_BUCKETS - 1);
}

void engine_latency_since(struct engine_latency *times, const struct engine_latency *before)
{
    times->count -= before->count;
    times->sum_ns -= before->sum_ns;
    for (unsigned i = 0; i < ENGINE_LATENCY_BUCKETS; i++)
        times->buckets[i] -= before->buckets[i];
}

void engine_stats_add_batch(struct once_engine_stats *engine_stats, size_t operations)
{
    unsigned bucket = 0;
    while (bucket < ENGINE_BATCH_BUCKETS - 1 && (size_t)1 << bucket < operations)
        bucket++;
    engine_stats->batch_sizes[bucket]++;
    engine_stats->batch_operations += operations;
}
