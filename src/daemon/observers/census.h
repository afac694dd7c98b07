/*
 * census.h - counts what each tenant has, over and over, for quotas of records and bytes.
 *
 * A thread walks over the store in bounded steps (once_tally_step()) and rests in between, so that it takes a small
 * share of the writer's time however large the store is: 20 times as long as a step took. What is counted is right as
 * of the walk's beginning; the engine adds what it does itself since (engine/quota.h). The first walk hurries: the
 * daemon waits for it, for a moment, before it listens. While it is not through, counts are too low: some may be
 * admitted too much, nobody is refused wrongly.
 */
#ifndef ONCE_DAEMON_OBSERVERS_CENSUS_H
#define ONCE_DAEMON_OBSERVERS_CENSUS_H

#include "once.h"

struct census;

/* Walks for a moment, then starts the thread. ONCE_INVALID: this store cannot be counted. */
once_result census_start(struct once *once, struct census **out, struct once_error *err);
/* NULL is fine. */
void census_stop(struct census *census);

/* How long to rest, in ms: after a step of a walk, and between two walks. Pure. */
once_time census_rest(once_time step_ms, bool first);
once_time census_pause(once_time walk_ms);

#endif
