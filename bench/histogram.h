/* histogram.h - latencies, 6 % wide each, for quantiles. */
#ifndef ONCE_BENCH_HISTOGRAM_H
#define ONCE_BENCH_HISTOGRAM_H

#include <stdint.h>

/* By power of two of nanoseconds, each in 16 parts. */
enum { HISTOGRAM_PARTS = 16, HISTOGRAM_BUCKETS = 64 * HISTOGRAM_PARTS };

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t total, max_ns;
};

void histogram_add(struct histogram *h, uint64_t ns);
void histogram_merge(struct histogram *into, const struct histogram *from);
double histogram_quantile_us(const struct histogram *h, double q);

#endif
