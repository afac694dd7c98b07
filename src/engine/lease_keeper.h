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

#include "core/lease.h"

struct lease_keeper;
struct renewal;

struct kept_lease {
    struct once_grant grant;
    struct once_lease lease;
    bool busy;               /* being renewed right now, outside of the keeper's lock */
    struct renewal *renewal; /* the operation that extends it */
    struct kept_lease *next, *next_due;
};

once_result lease_keeper_create(struct once *once, struct lease_keeper **out, struct once_error *err);
void lease_keeper_free(struct lease_keeper *lease_keeper);

/* `asked`: when the grant was asked for, by once_os_lease_ms(). */
once_result lease_keeper_add(struct once *once, struct kept_lease *kept_lease, struct once_grant grant,
                             int64_t lease_ms, once_time asked, struct once_error *err);
bool lease_keeper_is_held(const struct kept_lease *kept_lease);
/* Somebody learnt that a later attempt took over. */
void lease_keeper_set_fenced(struct kept_lease *kept_lease);
/* Returns when no renewal of it is under way any more. */
void lease_keeper_remove(struct once *once, struct kept_lease *kept_lease);

#endif
