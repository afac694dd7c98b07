/*
 * held.h - which grants each client of the daemon holds.
 *
 * A client that goes away leaves them behind. Where its claim said `rerun`, nothing is lost by
 * letting the next one take over at once instead of when the lease is over.
 */
#ifndef ONCE_DAEMON_HELD_H
#define ONCE_DAEMON_HELD_H

#include "once.h"

enum { HELD_BUCKETS = 4096 };

struct held {
    struct once_grant grant;
    const void *holder;
    struct held *next;
};

struct held_table {
    struct held *buckets[HELD_BUCKETS]; /* by fence */
};

/* Without memory it is not kept: then the lease has to run out. */
void held_add(struct held_table *table, const void *holder, const struct once_grant *grant);
void held_remove(struct held_table *table, uint64_t fence);
/* Takes one grant of this holder out; false: it has no more. */
bool held_take(struct held_table *table, const void *holder, struct once_grant *grant);
void held_release(struct held_table *table);

#endif
