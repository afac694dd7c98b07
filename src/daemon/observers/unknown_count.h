/*
 * unknown_count.h - how many records are unknown now, for /metrics: a count with its age.
 *
 * Model:  a thread lists them, newest first, a bounded step at a time, and rests in between as the census does: a
 *         twentieth of the time at most. SQLite and PostgreSQL have an index of them; on Redis that is a walk over all
 *         records. What is told is what the last whole walk found, and how long ago that walk began: what became
 *         unknown, or was resolved, since then may or may not be in it. It is of the store, whoever made it so.
 * Bounds: a step is one listing (ONCE_LIST_SCAN_MAX rows); nothing is kept but numbers. After a walk at the start it
 *         walks on only while somebody reads /metrics: at most UNKNOWN_COUNT_ASKED_MS ago.
 * Not here: the console's count, which goes to 1000 and is as new as the page that is looked at
 * (console/unknown_count.h).
 */
#ifndef ONCE_DAEMON_OBSERVERS_UNKNOWN_COUNT_H
#define ONCE_DAEMON_OBSERVERS_UNKNOWN_COUNT_H

#include "once.h"

#include <stdio.h>

enum { UNKNOWN_COUNT_ASKED_MS = 5 * 60 * 1000 }; /* as long as Prometheus takes a value for a present one */

struct unknown_count;

once_result unknown_count_start(struct once *once, struct unknown_count **out, struct once_error *err);
/* NULL is fine. */
void unknown_count_stop(struct unknown_count *unknown_count);
/* For /metrics; nothing before the first walk is through. NULL is fine. */
void unknown_count_put(struct unknown_count *unknown_count, FILE *file);

#endif
