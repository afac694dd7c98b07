/* lease.c - see lease.h. */
#include "core/lease.h"

static once_time part_of(const struct once_lease *lease, int64_t parts)
{
    return lease->ms > parts ? lease->ms / parts : 1;
}

void once_lease_granted(struct once_lease *lease, int64_t ms, once_time asked)
{
    lease->ms = ms;
    lease->renew_at = asked + part_of(lease, 3);
    atomic_store(&lease->fenced, false);
    atomic_store(&lease->lost_at, asked + ms);
}

void once_lease_renewed(struct once_lease *lease, enum once_renewal how, once_time asked, once_time now)
{
    switch (how) {
    case ONCE_RENEWAL_DONE:
        atomic_store(&lease->lost_at, asked + lease->ms);
        lease->renew_at = now + part_of(lease, 3);
        break;
    case ONCE_RENEWAL_FENCED:
        atomic_store(&lease->fenced, true);
        lease->renew_at = INT64_MAX;
        break;
    case ONCE_RENEWAL_FAILED:
        lease->renew_at = now + part_of(lease, 10);
        break;
    }
}

bool once_lease_is_held(const struct once_lease *lease, once_time time)
{
    struct once_lease *l = (struct once_lease *)lease; /* atomics are read through a plain pointer */
    return !atomic_load(&l->fenced) && time < atomic_load(&l->lost_at);
}
