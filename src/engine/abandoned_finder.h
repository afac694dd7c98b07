/*
 * abandoned_finder.h - which records are abandoned: running with their lease over, or failed and retryable.
 *
 * Finished records are by far the most, and none of them may be looked at twice. So a finder
 * sweeps over the attempts in the order of their fences, each once, and keeps those that nobody
 * has finished (a bounded number). A listing looks again at those of them whose lease should be over by now: one that
 * was renewed gets its new time, one that was finished or taken over is dropped (a taker's own attempt has a later
 * fence and is swept over in its turn).
 *
 * Invariants: FINDER-1 an attempt that stays unfinished is reported until it is not, as long as there is room.
 *             FINDER-2 a listing takes a bounded time of the writer's: one sweep of ONCE_LIST_SCAN_MAX attempts
 *                and LOOKS_MAX looks at most, in steps, so that others come in between.
 *             FINDER-3 when the room is full the sweep stands still until there is room again: oldest
 *                first. Failures take at most half of it; those beyond are left to whoever retries.
 * What it reports is a hint (it may have changed since): once_take_over() compares.
 */
#ifndef ONCE_ENGINE_ABANDONED_FINDER_H
#define ONCE_ENGINE_ABANDONED_FINDER_H

#include "engine/engine.h"

struct abandoned_finder;

struct abandoned_finder *abandoned_finder_create(void); /* NULL: no memory */
void abandoned_finder_free(struct abandoned_finder *abandoned_finder);
/* A page, oldest first, from filter->before on (0: from the start). */
once_result abandoned_finder_list(struct abandoned_finder *abandoned_finder, struct engine *engine,
                                  const struct once_filter *filter, struct once_page *page, struct once_error *err);

#endif
