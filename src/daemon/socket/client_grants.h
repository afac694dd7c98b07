/*
 * client_grants.h - the grants that each client of the daemon holds, of claims with takeover `rerun`.
 *
 * When a client hangs up, the daemon ends their leases, so that the next claim can take over at once. A grant belongs
 * to the connection that was sent it last; or, if that connection is lost or was another daemon's, to the connection
 * that renews it.
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
    struct client_grant *spare;                          /* free entries; at most CLIENT_GRANTS_MAX with those in use */
    size_t count;
};

/* Without memory, or if there are too many, the grant is not kept: then its lease ends by itself. */
void client_grants_add(struct client_grants *table, const void *holder, const struct once_grant *grant);
void client_grants_renew(struct client_grants *table, const void *holder, const struct once_grant *grant);
void client_grants_remove(struct client_grants *table, uint64_t fence);
/* Forgets all grants of this holder; calls `each` (may be NULL) for every one. */
void client_grants_forget(struct client_grants *table, const void *holder,
                          void (*each)(void *arg, const struct once_grant *grant), void *arg);
void client_grants_release(struct client_grants *table);

#endif
