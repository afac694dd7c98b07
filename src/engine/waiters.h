/*
 * waiters.h - claims that wait for somebody else's outcome.
 *
 * A claim answered IN_PROGRESS that may wait is parked under its record. It is asked
 * again when an operation of this engine ended the record, when the holder's lease is
 * over, when its own patience is, or, where other processes write too, after a pause that
 * grows. Bounded; the engine's lock guards it.
 */
#ifndef ONCE_ENGINE_WAITERS_H
#define ONCE_ENGINE_WAITERS_H

#include "engine/engine.h"

enum { WAITER_BUCKETS = 256 };

struct waiters {
    struct job *buckets[WAITER_BUCKETS]; /* by the record's first byte */
    uint32_t count, max;
    bool shared; /* outcomes may come from other processes */
};

/* Should this answered claim wait, and is there room? */
bool waiters_accepts(const struct waiters *waiters, const struct job *job, once_time now);
/* Takes one in that it wants; its reply is released. */
void waiters_add(struct waiters *waiters, struct job *job, once_time now);
/* Moves the claims that wait for `record` to *ready. */
void waiters_wake(struct waiters *waiters, const uint8_t record[16], struct job **ready);
/* Moves those that are due to *ready; `all`: everything, not to be parked again. */
void waiters_due(struct waiters *waiters, once_time now, bool all, struct job **ready);
/* When the next one is due; ONCE_NEVER if none is parked. */
once_time waiters_next_due(const struct waiters *waiters);

#endif
