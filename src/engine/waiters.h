/*
 * waiters.h - claims that wait for the outcome of another attempt.
 *
 * A claim that was answered IN_PROGRESS and may wait is kept here by its record. It is applied again when an operation
 * of this engine ends the record, when the holder's lease or the claim's own wait is over, or, if other processes write
 * to the store too, after a pause that doubles. Bounded. The engine's lock guards it.
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

/* Whether this job is a claim that has to wait, and there is room for it. */
bool waiters_accepts(const struct waiters *waiters, const struct job *job, once_time now);
/* Adds a claim that waiters_accepts(); releases its reply. */
void waiters_add(struct waiters *waiters, struct job *job, once_time now);
/* Moves the claims that wait for `record` to *ready. */
void waiters_wake(struct waiters *waiters, const uint8_t record[16], struct job **ready);
/* Moves the claims that are due to *ready; `all`: every claim, and none of them waits again. */
void waiters_due(struct waiters *waiters, once_time now, bool all, struct job **ready);
/* When the next one is due; ONCE_NEVER: none waits. */
once_time waiters_next_due(const struct waiters *waiters);

#endif
