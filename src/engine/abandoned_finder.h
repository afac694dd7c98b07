/*
 * abandoned_finder.h - lists abandoned records: running with their lease over, or failed and retryable.
 *
 * Most records are finished, and none of those may be read twice. So the finder sweeps over the attempts once, in the
 * order of their fences, and remembers the unfinished ones (a bounded number). A listing looks up those whose lease
 * should be over: a renewed one gets its new time; one that was finished or taken over is dropped, because the attempt
 * that took over has a later fence and the sweep will meet it.
 *
 * Invariants: FINDER-1 an unfinished attempt is reported until it is finished, as long as there is room.
 *             FINDER-2 a listing takes a bounded time of the writer: one sweep of ONCE_LIST_SCAN_MAX attempts and at
 *                most LOOKUPS_MAX look-ups, in small jobs, so that other jobs run in between.
 *             FINDER-3 if the room is full, the sweep pauses until there is room again, so the oldest are reported
 *                first. Failures take at most half of the room; those beyond wait for their client's retry.
 * A reported record may have changed since: once_take_over() compares.
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
