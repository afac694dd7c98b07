/*
 * lease_keeper.h - renews the lease of an attempt during its call.
 *
 * A connection runs one flow at a time, so it has one lease at most to renew. One thread per
 * connection does it, started with the first call, three times per lease. This process's own clock
 * decides whether the lease can still be ours: it counts from the moment before the lease was asked for.
 */
#ifndef ONCE_FLOW_LEASE_KEEPER_H
#define ONCE_FLOW_LEASE_KEEPER_H

#include "core/lease.h"

#include <pthread.h>

struct once_flow_db;

struct flow_lease_keeper {
    struct once_flow_db *db;
    pthread_mutex_t lock; /* guards the members below, except the atomics */
    pthread_cond_t changed;
    pthread_t thread;
    bool running, stopping;
    bool active, busy; /* a call is running; a renewal is running, without the lock */
    struct once_grant grant;
    struct once_lease lease;
};

/* Extends the lease by `lease_ms` from now. ONCE_OK and *fenced: another attempt has taken over. */
once_result flow_renew(struct once_flow_db *db, struct once_grant grant, int64_t lease_ms, bool *fenced,
                       struct once_error *err);

void flow_lease_keeper_init(struct flow_lease_keeper *k, struct once_flow_db *db);
void flow_lease_keeper_release(struct flow_lease_keeper *k);

/* The lease was granted; it was asked for at `asked`. */
void flow_lease_keeper_granted(struct flow_lease_keeper *k, once_time asked, int64_t lease_ms);
/* Starts renewing; stop ends it, and returns when no renewal is running any more. */
once_result flow_lease_keeper_start(struct flow_lease_keeper *k, struct once_grant grant, struct once_error *err);
void flow_lease_keeper_stop(struct flow_lease_keeper *k);

/* Is the lease certainly ours for another `ms`? */
bool flow_lease_keeper_is_held(const struct flow_lease_keeper *k, int64_t ms);

#endif
