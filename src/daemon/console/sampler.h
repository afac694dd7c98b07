/*
 * sampler.h - the last quarter of an hour in numbers, for the console's charts.
 *
 * A thread reads the engine's counters every SAMPLE_MS, which costs nothing, and keeps the differences
 * in a ring. What has to be asked of the store (its size, what is running, what is abandoned) or of the
 * outbox it asks every LOOK_MS, and only while somebody watches; listings of one bounded step each (CONSOLE-4).
 */
#ifndef ONCE_DAEMON_CONSOLE_SAMPLER_H
#define ONCE_DAEMON_CONSOLE_SAMPLER_H

#include "core/json/out.h"
#include "once.h"

enum {
    CONSOLE_SAMPLE_MS = 2000,
    CONSOLE_SAMPLES = 450,
    CONSOLE_LOOK_MS = 6000,
    CONSOLE_RUNNING_SHOWN = 8,
    CONSOLE_LISTED = 200, /* running and abandoned records that are counted */
};

struct console;
struct console_sampler;

once_result console_sampler_start(struct console *console, struct console_sampler **out, struct once_error *err);
/* NULL is fine. */
void console_sampler_stop(struct console_sampler *sampler);
/* The members of the overview: samples after `since` (0: all that there are), and what was looked at last. */
void console_sampler_put(struct console_sampler *sampler, struct once_json *json, uint64_t since);

#endif
