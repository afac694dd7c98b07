/*
 * lease_keeper.h - a thread that renews the leases of running attempts.
 *
 * A slow attempt must not be taken for a dead one, so its lease is extended three times per lease length. All renewals
 * that are due are submitted together and share a commit. The thread starts with the first attempt. An attempt that was
 * fenced, or whose lease ended without a renewal, can ask (lease_keeper_is_held) and should stop sending; its finish is
 * refused in any case (K3).
 */
#ifndef ONCE_ENGINE_LEASE_KEEPER_H
#define ONCE_ENGINE_LEASE_KEEPER_H

#include "core/lease.h"

struct lease_keeper;
struct renewal;

struct kept_lease {
    struct once_grant grant;
    struct once_lease lease;
    bool busy;               /* a renewal is under way, outside the keeper's lock */
    struct renewal *renewal; /* the operation that extends it */
    struct kept_lease *next, *next_due;
};

once_result lease_keeper_create(struct once *once, struct lease_keeper **out, struct once_error *err);
void lease_keeper_free(struct lease_keeper *lease_keeper);

/* `asked`: when the grant was asked for, by once_os_lease_ms(). */
once_result lease_keeper_add(struct once *once, struct kept_lease *kept_lease, struct once_grant grant,
                             int64_t lease_ms, once_time asked, struct once_error *err);
bool lease_keeper_is_held(const struct kept_lease *kept_lease);
/* Another call was answered FENCED: a later attempt took over. */
void lease_keeper_set_fenced(struct kept_lease *kept_lease);
/* Returns after a renewal that is under way. */
void lease_keeper_remove(struct once *once, struct kept_lease *kept_lease);

#endif
