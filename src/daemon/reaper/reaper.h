/*
 * reaper.h - gives back the space of what is past its retention, on a thread of its own.
 *
 * One bounded step of the store at a time (once_expire()), at the pace of reaper/pace.h, and only by a clock that can
 * be believed (reaper/clock.h). It never touches what is running or unknown: the stores take only finished records
 * whose time has come (K7, K8). A failure waits for the next turn; it shows in the next claim anyway.
 */
#ifndef ONCE_DAEMON_REAPER_REAPER_H
#define ONCE_DAEMON_REAPER_REAPER_H

#include "once.h"

#include <stdatomic.h>

/* Times in milliseconds of CLOCK_MONOTONIC. */
struct expiry_counters {
    _Atomic uint64_t removed;     /* records */
    _Atomic int64_t caught_up_ms; /* when nothing was left to be removed; of the start, until it was */
    _Atomic uint64_t rounds, steps;
    _Atomic uint64_t worked_ms; /* in steps */
    _Atomic uint64_t round_ms;  /* of these in the last turn */
    _Atomic uint64_t pauses;    /* times that it began to wait because of load */
    _Atomic bool paused;
    _Atomic uint64_t jumped, ahead; /* times that it began to refuse, by reason */
    _Atomic bool suspended;         /* it refuses now */
};

struct reaper;

/* `manual`: it takes no turn by itself. */
once_result reaper_start(struct once *once, bool manual, struct reaper **out, struct once_error *err);
void reaper_stop(struct reaper *reaper);
/* An operator removes expired records by hand: who does that has looked at the clock. From any thread. */
void reaper_accept_clock(struct reaper *reaper);
const struct expiry_counters *reaper_counters(const struct reaper *reaper);

#endif
