/*
 * quota_count.h - counts what each tenant has, over and over, for quotas of records and bytes.
 *
 * A thread walks over the store in bounded steps (once_usage_step()) and rests in between, so that it takes a small
 * share of the writer's time however large the store is: 20 times as long as a step took. What is counted is right as
 * of the walk's beginning; the engine adds what it does itself since (engine/quota.h). The first walk hurries: the
 * daemon waits for it, for a moment, before it listens. While it is not through, counts are too low: some may be
 * admitted too much, nobody is refused wrongly.
 */
#ifndef ONCE_DAEMON_OBSERVERS_QUOTA_COUNT_H
#define ONCE_DAEMON_OBSERVERS_QUOTA_COUNT_H

#include "once.h"

struct quota_count;

/* Walks for a moment, then starts the thread. ONCE_INVALID: this store cannot be counted. */
once_result quota_count_start(struct once *once, struct quota_count **out, struct once_error *err);
/* NULL is fine. */
void quota_count_stop(struct quota_count *quota_count);

/* How long to rest, in ms: after a step of a walk, and between two walks. Pure. */
once_time quota_count_rest_ms(once_time step_ms, bool first);
once_time quota_count_pause_ms(once_time walk_ms);

#endif
