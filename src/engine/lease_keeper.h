/*
 * lease_keeper.h - renews the leases of attempts that are being worked on.
 *
 * A slow attempt is not a dead one: while it works, a thread of its handle extends its
 * lease, three times per lease. All that are due are submitted together and so share a
 * commit. The thread starts with the first attempt. An attempt that was fenced, or whose
 * lease ran out unrenewed, is told so (it should stop sending); it can only lose the race
 * for the finish, never win it wrongly (K3).
 */
#ifndef ONCE_ENGINE_LEASE_KEEPER_H
#define ONCE_ENGINE_LEASE_KEEPER_H

#include "engine/handle.h"

#include <stdatomic.h>

struct kept_lease {
    struct once_grant grant;
    int64_t lease_ms;
    once_time renew_at;        /* monotonic ms */
    _Atomic once_time lost_at; /* monotonic ms: not ours any more, unless renewed */
    atomic_bool fenced;
    bool busy;      /* being renewed right now, outside of the keeper's lock */
    struct job job; /* the renewal */
    sem_t answered;
    struct kept_lease *next, *next_due;
};

once_result lease_keeper_create(struct once *once, struct lease_keeper **out, struct once_error *err);
void lease_keeper_free(struct lease_keeper *lease_keeper);

/* `asked`: when the grant was asked for, by once_os_lease_ms(). The store counts the lease from some time after that,
 * so whoever counts from there never thinks that it holds what the store has given to another (FAULT-38). */
once_result lease_keeper_add(struct lease_keeper *lease_keeper, struct kept_lease *kept_lease, struct once_grant grant,
                             int64_t lease_ms, once_time asked, struct once_error *err);
bool lease_keeper_is_held(const struct kept_lease *kept_lease);
/* Somebody learnt that a later attempt took over. */
void lease_keeper_set_fenced(struct kept_lease *kept_lease);
/* Returns when no renewal of it is under way any more. */
void lease_keeper_remove(struct lease_keeper *lease_keeper, struct kept_lease *kept_lease);

#endif
