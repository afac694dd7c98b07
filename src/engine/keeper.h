/*
 * keeper.h - renews the leases of attempts that are being worked on.
 *
 * A slow attempt is not a dead one: while it works, a thread of its handle extends its
 * lease, three times per lease. All that are due are submitted together and so share a
 * commit. The thread starts with the first attempt. An attempt that was fenced, or whose
 * lease ran out unrenewed, is told so (it should stop sending); it can only lose the race
 * for the finish, never win it wrongly (K3).
 */
#ifndef ONCE_ENGINE_KEEPER_H
#define ONCE_ENGINE_KEEPER_H

#include "engine/handle.h"

#include <stdatomic.h>

struct kept {
    struct once_grant grant;
    int64_t lease_ms;
    once_time renew_at;        /* monotonic ms */
    _Atomic once_time lost_at; /* monotonic ms: not ours any more, unless renewed */
    atomic_bool fenced;
    bool busy;      /* being renewed right now, outside of the keeper's lock */
    struct job job; /* the renewal */
    sem_t answered;
    struct kept *next, *next_due;
};

once_result keeper_create(struct once *once, struct keeper **out, struct once_error *err);
void keeper_free(struct keeper *keeper);

/* `asked`: when the grant was asked for, by once_os_lease_ms(). The store counts the lease from some time after that,
 * so whoever counts from there never thinks that it holds what the store has given to another (FAULT-38). */
once_result keeper_add(struct keeper *keeper, struct kept *kept, struct once_grant grant, int64_t lease_ms,
                       once_time asked, struct once_error *err);
bool keeper_is_held(const struct kept *kept);
/* Somebody learnt that a later attempt took over. */
void keeper_tell_fenced(struct kept *kept);
/* Returns when no renewal of it is under way any more. */
void keeper_remove(struct keeper *keeper, struct kept *kept);

#endif
