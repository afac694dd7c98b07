/*
 * load.h - a closed-loop load on a store: N callers, each with one operation under way.
 *
 * A caller claims a fresh key, finishes it, claims the next; or replays keys that were
 * finished before. Latency is from submit to durable answer. Callers are completions of
 * asynchronous requests on one thread, as a daemon has them, or threads that block.
 */
#ifndef ONCE_BENCH_LOAD_H
#define ONCE_BENCH_LOAD_H

#include "histogram.h"
#include "once.h"

enum load_kind { LOAD_FRESH, LOAD_REPLAY };

struct load {
    enum load_kind kind;
    unsigned callers;
    bool threads;         /* callers are threads; the store must then not be opened for polling */
    double seconds;       /* how long, or */
    uint64_t records;     /* how many fresh records, whichever comes first; 0: no such bound */
    uint64_t first, next; /* fresh keys are numbered from `next` on; replays are of [first, next) */
    once_span body;
    int64_t retention_ms; /* 0: an hour */
};

struct load_result {
    uint64_t operations, records, errors;
    double seconds;
    double p50_us, p99_us, max_us;
    struct once_error err; /* of the first error */
};

/* Runs it. load->next moves on past the keys that were used. */
void load_run(struct load *load, struct once *once, struct load_result *result);

/* The key of a number: the text of a UUID, as services use it. */
enum { LOAD_KEY_SIZE = 37 };
void load_key(uint64_t number, char key[LOAD_KEY_SIZE]);

/* Fills it with a JSON answer of just that length: an object as services give them, or a number where there is no room
 * for one. A design that keeps JSON and one that keeps bytes then keep about as much. */
void load_body(uint8_t *body, size_t len);

void load_latencies(struct load_result *result, const struct histogram *h);

static inline double load_rate(const struct load_result *r)
{
    return r->seconds > 0 ? (double)r->operations / r->seconds : 0;
}

#endif
