/* histogram.c - see histogram.h. */
#include "histogram.h"

static unsigned bucket_of(uint64_t ns)
{
    if (ns < HISTOGRAM_PARTS)
        return (unsigned)ns;
    unsigned power = 63 - (unsigned)__builtin_clzll(ns);
    unsigned part = (unsigned)(ns >> (power - 4)) & (HISTOGRAM_PARTS - 1);
    return power * HISTOGRAM_PARTS + part;
}

static double bucket_us(unsigned bucket)
{
    unsigned power = bucket / HISTOGRAM_PARTS;
    double base = (double)(1ULL << power);
    return power < 4 ? bucket / 1000.0 : base * (1 + (bucket % HISTOGRAM_PARTS + 0.5) / HISTOGRAM_PARTS) / 1000.0;
}

void histogram_add(struct histogram *h, uint64_t ns)
{
    h->counts[bucket_of(ns)]++;
    h->total++;
    if (ns > h->max_ns)
        h->max_ns = ns;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        into->counts[i] += from->counts[i];
    into->total += from->total;
    if (from->max_ns > into->max_ns)
        into->max_ns = from->max_ns;
}

double histogram_quantile_us(const struct histogram *h, double q)
{
    uint64_t wanted = (uint64_t)((double)h->total * q), seen = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->counts[i];
        if (seen > wanted)
            return bucket_us(i);
    }
    return 0;
}
