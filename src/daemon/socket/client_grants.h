/*
 * client_grants.h - which grants each client of the daemon holds.
 *
 * A client that goes away leaves them behind. Where its claim said `rerun`, nothing is lost by
 * letting the next one take over at once instead of when the lease is over. A grant has one
 * holder: who was told of it last; or, where nobody is known, because his connection was lost or
 * the daemon is another one by now, who renews it.
 */
#ifndef ONCE_DAEMON_SOCKET_CLIENT_GRANTS_H
#define ONCE_DAEMON_SOCKET_CLIENT_GRANTS_H

#include "once.h"

enum { CLIENT_GRANTS_BUCKETS = 4096, CLIENT_GRANTS_MAX = 65536 };

struct client_grant {
    struct once_grant grant;
    const void *holder;
    struct client_grant *next;
};

struct client_grants {
    struct client_grant *buckets[CLIENT_GRANTS_BUCKETS]; /* by fence */
    struct client_grant *spare;                          /* for the next; at most CLIENT_GRANTS_MAX with those in use */
    size_t count;
};

/* Without memory, or with too many, it is not kept: then the lease has to run out. */
void client_grants_add(struct client_grants *table, const void *holder, const struct once_grant *grant);
void client_grants_renew(struct client_grants *table, const void *holder, const struct once_grant *grant);
void client_grants_remove(struct client_grants *table, uint64_t fence);
/* Forgets all grants of this holder; `each` (may be NULL) is told of every one. */
void client_grants_forget(struct client_grants *table, const void *holder,
                          void (*each)(void *arg, const struct once_grant *grant), void *arg);
void client_grants_release(struct client_grants *table);

#endif
