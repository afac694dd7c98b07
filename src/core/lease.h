/*
 * lease.h - a lease as its holder sees it: when to renew it, and until when the holder may count on it.
 *
 * The holder counts from the moment before it asked, the store from some moment after that. So a holder never believes
 * that it holds what the store has granted to another (FAULT-38). All times are by once_os_lease_ms().
 */
#ifndef ONCE_CORE_LEASE_H
#define ONCE_CORE_LEASE_H

#include "once.h"

#include <stdatomic.h>

struct once_lease {
    int64_t ms;                /* how long it is, from each renewal */
    once_time renew_at;        /* three times per lease; INT64_MAX: not any more */
    _Atomic once_time lost_at; /* not ours from then on, unless renewed; read by other threads, as the next */
    atomic_bool fenced;        /* a later attempt took over */
};

enum once_renewal {
    ONCE_RENEWAL_DONE,
    ONCE_RENEWAL_FENCED,
    ONCE_RENEWAL_FAILED, /* the store did not answer: the lease may still be there when it does */
};

/* Asked for at `asked`, and granted. */
void once_lease_granted(struct once_lease *lease, int64_t ms, once_time asked);
/* The end, at `now`, of a renewal that was asked for at `asked`. */
void once_lease_renewed(struct once_lease *lease, enum once_renewal how, once_time asked, once_time now);
/* Is it certainly ours at `time`, if nothing renews it? */
bool once_lease_is_held(const struct once_lease *lease, once_time time);

#endif
