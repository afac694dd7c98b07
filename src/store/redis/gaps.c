/*
 * gaps.c - the invariants that the best-effort tier does not keep, and when.
 *
 * The one list: `once check` prints it, docs/redis.md explains each row, and every case of the conformance suite that
 * is left out over Redis names one of them (test/redis/gaps.py holds the three against each other).
 */
#include "store/store.h"

static const struct once_gap gaps[] = {
    { "K1", "one holder: after a loss a record may be granted while its holder is still at work" },
    { "K2", "fence grows: after a loss only as far as Redis's clock was not set back" },
    { "K3", "newest only: a failover that forgets a takeover lets the older holder finish" },
    { "K4", "durable first: Redis may lose acknowledged writes (restart, power loss, failover)" },
    { "K5", "final is final: a finished outcome may be lost, or evicted under volatile-* policies" },
    { "K7", "nothing vanishes: a running or unknown record may be lost with the rest" },
    { "K8", "retention never: refused, since nothing here is kept for ever" },
    { "K10", "unknown is a state: a loss may turn it into a key that was never used" },
    { "K11", "forward only: a failover may bring back an earlier recovery point" },
    { "K12", "outbox: not supported, messages need a database transaction" },
    { "K13", "inbox: not supported, its marks need a database transaction" },
    { "erasure", "once_forget() is refused: records end with their retention, or are deleted in Redis" },
    { "sealing", "seal keys are refused: bytes are stored in plain" },
    { "quotas", "of records and bytes: refused, since usage is not counted by tenant" },
    { "routes", "a record does not keep its route: metrics have it, listings do not" },
    { "clock", "leases and retention go by Redis's wall clock, which may be set" },
    { "order", "listings: newest first only within a page; pages may repeat a record that moved" },
    { "sums", "FAULT-14: outcomes have a checksum, the other fields of a record do not" },
};

const struct once_gap *once_store_redis_gaps(size_t *count)
{
    *count = sizeof gaps / sizeof *gaps;
    return gaps;
}
