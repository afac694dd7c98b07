/*
 * held.h - which grants each client of the daemon holds.
 *
 * A client that goes away leaves them behind. Where its claim said `rerun`, nothing is lost by
 * letting the next one take over at once instead of when the lease is over. A grant has one
 * holder: who was told of it last; or, where nobody is known, because his connection was lost or
 * the daemon is another one by now, who renews it.
 */
#ifndef ONCE_DAEMON_SOCKET_HELD_H
#define ONCE_DAEMON_SOCKET_HELD_H

#include "once.h"

enum { HELD_BUCKETS = 4096, HELD_MAX = 65536 };

struct held {
    struct once_grant grant;
    const void *holder;
    struct held *next;
};

struct held_table {
    struct held *buckets[HELD_BUCKETS]; /* by fence */
    struct held *spare;                 /* for the next; at most HELD_MAX with those in use */
    size_t count;
};

/* Without memory, or with too many, it is not kept: then the lease has to run out. */
void held_add(struct held_table *table, const void *holder, const struct once_grant *grant);
void held_renew(struct held_table *table, const void *holder, const struct once_grant *grant);
void held_remove(struct held_table *table, uint64_t fence);
/* Forgets all grants of this holder; `each` (may be NULL) is told of every one. */
void held_forget(struct held_table *table, const void *holder, void (*each)(void *arg, const struct once_grant *grant),
                 void *arg);
void held_release(struct held_table *table);

#endif
