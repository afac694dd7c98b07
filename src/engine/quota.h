/*
 * quota.h - the usage of each tenant, and whether its quota allows more.
 *
 * An entry per tenant that has something: records and bytes in the store, grants in flight, claims that wait.
 *
 *   in flight, waiters   counted here, exactly; of this engine, since it was started. A grant is in flight until it
 *                        is finished or given back, or its lease is over.
 *   records, bytes       counted by walks over the store (quota_count.h in the daemon), one after the other. Between
 * them what this engine does is added; what expires, and what others do, shows with the next walk.
 *
 * Invariants: QUOTA-1 a claim of an existing record is never refused: admission.c asks only about claims that may make
 *                a record, and about claims that would begin to wait.
 *             QUOTA-2 one tenant's numbers never count for another (K9): entries are found by the whole name.
 *             QUOTA-3 bounded: QUOTA_TENANTS_MAX entries and QUOTA_GRANTS_MAX grants. A tenant beyond that is not
 *                counted, and therefore not refused: a client that invents so many tenants has as many quotas anyway,
 *                and must not shut out others. An entry without any usage is removed.
 *             QUOTA-4 an admitted claim keeps its place from then to its answer, so that a burst cannot pass together.
 *
 * Pure but for memory and the seed of its hash: time comes in as an argument. The engine's lock guards it.
 */
#ifndef ONCE_ENGINE_QUOTA_H
#define ONCE_ENGINE_QUOTA_H

#include "core/quota_rules.h"

enum {
    QUOTA_TENANTS_MAX = 65536, /* 10 to 25 MB, if there are so many */
    QUOTA_GRANTS_MAX = 131072, /* 4 times what may wait for an answer */
};

struct quota;
struct quota_entry;

/* Since the start, but for the last two. */
struct quota_counters {
    uint64_t refused[QUOTA_KIND_COUNT];
    uint64_t uncounted; /* claims of tenants that found no room */
    uint64_t scans;     /* over the store, whole ones */
    size_t tenants;     /* that have something now */
    size_t grants;      /* in flight now */
};

/* Copies the rules. NULL: no memory. */
struct quota *quota_create(const struct quota_rules *rules);
void quota_free(struct quota *quota);

/* May this tenant have another record? QUOTA_KIND_COUNT: it may, and *place is kept for it until quota_unreserve().
 * Else what it has too much of, and *place is NULL, as it is where it is not counted. `now`: once_os_lease_ms(). */
enum quota_kind quota_admit(struct quota *quota, once_span tenant, once_time now, struct quota_entry **reservation);
void quota_unreserve(struct quota *quota, struct quota_entry *reservation);
/* It was refused for that. */
void quota_note_refused(struct quota *quota, enum quota_kind kind);
uint64_t quota_limit(const struct quota *quota, once_span tenant, enum quota_kind kind);

/* A claim of this tenant would wait for another's outcome. False: enough of them do. *place as above. */
bool quota_wait(struct quota *quota, once_span tenant, struct quota_entry **reservation);
void quota_wait_ended(struct quota *quota, struct quota_entry *reservation);

struct quota_grant {
    uint64_t fence;
    bool created;    /* the record is new */
    uint64_t stored; /* bytes of its request */
    int64_t lease_ms;
};

/* What became of grants. One that is not known is of before the start, and of no account until the next walk. */
void quota_granted(struct quota *quota, once_span tenant, const struct quota_grant *grant, once_time now);
void quota_extended(struct quota *quota, uint64_t fence, int64_t lease_ms, once_time now);
void quota_advanced(struct quota *quota, uint64_t fence, size_t checkpoint_len, bool is_progress, once_time now);
void quota_finished(struct quota *quota, uint64_t fence, size_t outcome_len);
void quota_released(struct quota *quota, uint64_t fence);
void quota_lost(struct quota *quota, uint64_t fence);

/* A walk over the store, in the order of fences. Begin, any of add and at, end; one that is not ended is begun anew. */
void quota_scan_begin(struct quota *quota);
void quota_scan_add(struct quota *quota, once_span tenant, uint64_t records, uint64_t bytes);
/* It has come to fence `at`, and goes to `last`. */
void quota_scan_at(struct quota *quota, uint64_t at, uint64_t last);
void quota_scan_end(struct quota *quota, once_time now);

void quota_counters(const struct quota *quota, struct quota_counters *out);
/* What it is thought to have. */
uint64_t quota_usage(const struct quota *quota, once_span tenant, enum quota_kind kind);

#endif
