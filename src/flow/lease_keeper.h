/*
 * lease_keeper.h - renews the lease of the attempt whose call is under way.
 *
 * A connection runs one flow at a time, so there is one lease to keep at most, by one thread per
 * connection, started with the first call. It renews three times per lease. Whether the lease can
 * still be ours is told by this process's own clock: from the moment before it was asked for.
 */
#ifndef ONCE_FLOW_LEASE_KEEPER_H
#define ONCE_FLOW_LEASE_KEEPER_H

#include "once.h"

#include <pthread.h>
#include <stdatomic.h>

struct once_flow_db;

struct flow_lease_keeper {
    struct once_flow_db *db;
    pthread_mutex_t lock; /* guards what follows, but for the atomics */
    pthread_cond_t changed;
    pthread_t thread;
    bool running, stopping;
    bool active, busy; /* a call is under way; a renewal is, outside of the lock */
    struct once_grant grant;
    int64_t lease_ms;
    once_time renew_at;        /* monotonic ms */
    _Atomic once_time lost_at; /* monotonic ms: not ours any more, unless renewed */
    atomic_bool fenced;
};

/* Extends the lease by `lease_ms` from now. ONCE_OK and *fenced: another attempt has taken over. */
once_result flow_renew(struct once_flow_db *db, struct once_grant grant, int64_t lease_ms, bool *fenced,
                       struct once_error *err);

void flow_lease_keeper_init(struct flow_lease_keeper *k, struct once_flow_db *db);
void flow_lease_keeper_release(struct flow_lease_keeper *k);

/* The lease was asked for at `asked`, and granted. */
void flow_lease_keeper_granted(struct flow_lease_keeper *k, once_time asked, int64_t lease_ms);
/* From now on, until stop, which returns when no renewal is under way any more. */
once_result flow_lease_keeper_start(struct flow_lease_keeper *k, struct once_grant grant, int64_t lease_ms,
                                    struct once_error *err);
void flow_lease_keeper_stop(struct flow_lease_keeper *k);

/* Is the lease certainly ours for another `ms`? */
bool flow_lease_keeper_is_held(const struct flow_lease_keeper *k, int64_t ms);

#endif
