/*
 * health.h - is the daemon fit for work? Looked at by a thread, told to whoever asks.
 *
 * Every second a look-up goes the way of all operations: queue, writer, store, and back over the server's thread; it
 * counts as none. So
 * /readyz and `once status` cost the store nothing, however often they are asked, and are a second old at most.
 *
 * Ready:    the store answered the last look-up, that was not long ago, the queue has room, and nobody told the daemon
 *           to end. From the beginning: the store was opened just now.
 * Watchdog: the service manager is told that we live (WATCHDOG=1) only while a writer gets on: a call of the store came
 *           back, whatever it said. A store that is away is no reason to restart us; a writer that hangs is.
 */
#ifndef ONCE_DAEMON_OBSERVERS_HEALTH_H
#define ONCE_DAEMON_OBSERVERS_HEALTH_H

#include "once.h"

struct health;

struct health_view {
    bool ready, store; /* store: it answered the last look-up */
    char reason[540];  /* why it is not ready; "" */
    uint32_t queued, queue_max;
    once_time up_ms;
};

once_result health_start(struct once *once, uint32_t queue_max, struct health **out, struct once_error *err);
/* The daemon was told to end: not ready from now on. */
void health_end(struct health *health);
/* While the server still runs or after it: what was asked may be answered until the store is closed. NULL is fine. */
void health_stop(struct health *health);
/* From any thread. */
void health_read(struct health *health, struct health_view *view);

#endif
