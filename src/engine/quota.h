/*
 * quota.h - the usage of each tenant, and whether its quota allows more.
 *
 * There is an entry for each tenant with any usage: records and bytes in the store, grants in flight, waiting claims.
 *
 *   in flight, waiters   counted here, exactly, for this engine since its start. A grant is in flight until it is
 *                        finished or released, or its lease is over.
 *   records, bytes       counted by scans of the store (quota_count.h in the daemon), one after the other. Between
 *                        scans this engine's own changes are added; the next scan sees expiry and other processes.
 *
 * Invariants: QUOTA-1 a claim of an existing record is never refused: admission.c asks only about claims that may make
 *                a record, and about claims that would begin to wait.
 *             QUOTA-2 one tenant's numbers never count for another (K9): entries are found by the whole name.
 *             QUOTA-3 bounded: QUOTA_TENANTS_MAX entries and QUOTA_GRANTS_MAX grants. A tenant beyond that is not
 *                counted, and therefore not refused: a client that invents so many tenants has as many quotas anyway,
 *                and must not shut out others. An entry without any usage is removed.
 *             QUOTA-4 an admitted claim has a reservation until its answer, so that a burst cannot exceed the quota.
 *
 * Time comes in as an argument. The engine's lock guards it.
 */
#ifndef ONCE_ENGINE_QUOTA_H
#define ONCE_ENGINE_QUOTA_H

#include "core/quota_rules.h"

enum {
    QUOTA_TENANTS_MAX = 65536, /* 10 to 25 MB */
    QUOTA_GRANTS_MAX = 131072, /* 4 times the daemon's queue */
};

struct quota;
struct quota_entry;

/* Since the start, except for the last two. */
struct quota_counters {
    uint64_t refused[QUOTA_KIND_COUNT];
    uint64_t uncounted; /* claims of tenants for which there was no entry left */
    uint64_t scans;     /* complete ones */
    size_t tenants;     /* with any usage now */
    size_t grants;      /* in flight now */
};

/* Copies the rules. NULL: no memory. */
struct quota *quota_create(const struct quota_rules *rules);
void quota_free(struct quota *quota);

/* Asks for another record of this tenant. QUOTA_KIND_COUNT: admitted, and *reservation counts until quota_unreserve();
 * it is NULL if the tenant is not counted. Else the kind that is used up. `now`: once_os_lease_ms(). */
enum quota_kind quota_admit(struct quota *quota, once_span tenant, once_time now, struct quota_entry **reservation);
void quota_unreserve(struct quota *quota, struct quota_entry *reservation);
/* A claim was refused because of this kind. */
void quota_note_refused(struct quota *quota, enum quota_kind kind);
uint64_t quota_limit(const struct quota *quota, once_span tenant, enum quota_kind kind);

/* Asks whether another claim of this tenant may wait. *reservation as above, until quota_wait_ended(). */
bool quota_wait(struct quota *quota, once_span tenant, struct quota_entry **reservation);
void quota_wait_ended(struct quota *quota, struct quota_entry *reservation);

struct quota_grant {
    uint64_t fence;
    bool created;    /* the record is new */
    uint64_t stored; /* bytes of its request */
    int64_t lease_ms;
};

/* Changes of grants. A fence from before the start is ignored: the next scan sees the change. */
void quota_granted(struct quota *quota, once_span tenant, const struct quota_grant *grant, once_time now);
void quota_extended(struct quota *quota, uint64_t fence, int64_t lease_ms, once_time now);
void quota_advanced(struct quota *quota, uint64_t fence, size_t checkpoint_len, bool is_progress, once_time now);
void quota_finished(struct quota *quota, uint64_t fence, size_t outcome_len);
void quota_released(struct quota *quota, uint64_t fence);
void quota_lost(struct quota *quota, uint64_t fence);

/* A scan of the store in the order of fences: begin, then add and at any number of times, then end. A scan that was not
 * ended is begun again. */
void quota_scan_begin(struct quota *quota);
void quota_scan_add(struct quota *quota, once_span tenant, uint64_t records, uint64_t bytes);
/* The scan is at fence `at`, and ends with `last`. */
void quota_scan_at(struct quota *quota, uint64_t at, uint64_t last);
void quota_scan_end(struct quota *quota, once_time now);

void quota_counters(const struct quota *quota, struct quota_counters *out);
/* The usage as far as it is known. */
uint64_t quota_usage(const struct quota *quota, once_span tenant, enum quota_kind kind);

#endif
