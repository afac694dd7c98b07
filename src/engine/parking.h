/*
 * parking.h - claims that wait for somebody else's outcome.
 *
 * A claim answered IN_PROGRESS that may wait is parked under its record. It is asked
 * again when an operation of this engine ended the record, when the holder's lease is
 * over, when its own patience is, or, where other processes write too, after a pause that
 * grows. Bounded; the engine's lock guards it.
 */
#ifndef ONCE_ENGINE_PARKING_H
#define ONCE_ENGINE_PARKING_H

#include "engine/engine.h"

enum { PARKING_LOTS = 256 };

struct parking {
    struct job *lots[PARKING_LOTS]; /* by the record's first byte */
    uint32_t count, max;
    bool shared; /* outcomes may come from other processes */
};

/* Should this answered claim wait, and is there room? */
bool parking_wants(const struct parking *parking, const struct job *job, once_time now);
/* Takes one in that it wants; its reply is released. */
void parking_take(struct parking *parking, struct job *job, once_time now);
/* Moves the claims that wait for `record` to *ready. */
void parking_wake(struct parking *parking, const uint8_t record[16], struct job **ready);
/* Moves those that are due to *ready; `all`: everything, not to be parked again. */
void parking_due(struct parking *parking, once_time now, bool all, struct job **ready);
/* When the next one is due; ONCE_NEVER if none is parked. */
once_time parking_next(const struct parking *parking);

#endif
