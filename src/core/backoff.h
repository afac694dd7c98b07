/*
 * backoff.h - how long to wait before the next try of something that failed. Pure: the random bits are an argument.
 *
 * The longest pause is first_ms, doubled with every further failure, up to max_ms. The jitter then picks a pause below
 * it, so that callers that failed together do not come back together. Random bits may be computed from a record's id or
 * fence where several processes have to arrive at the same pause without storing it.
 */
#ifndef ONCE_CORE_BACKOFF_H
#define ONCE_CORE_BACKOFF_H

#include <stdint.h>

enum once_jitter {
    ONCE_JITTER_FULL, /* from 0 up to the longest pause */
    ONCE_JITTER_HALF, /* from half of it up to it */
    ONCE_JITTER_NONE, /* the longest pause itself */
};

struct once_backoff {
    int64_t first_ms, max_ms;
    enum once_jitter jitter;
};

/* The pause in ms after `failures` earlier failures (0: the first pause). `random` is 32 random bits. */
int64_t once_backoff_ms(struct once_backoff policy, uint32_t failures, uint32_t random);

#endif
