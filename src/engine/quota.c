/* quota.c - see quota.h. */
#include "engine/quota.h"

#include "core/span.h"
#include "os/os.h"

#include <assert.h>
#include <stdlib.h>
#include <xxhash.h>

enum {
    TENANT_BUCKETS = 16384,
    GRANT_BUCKETS = 16384,
    PURGE_EVERY_MS = 200, /* reads all grants: up to 2 ms */
};

/* May be negative for a while: a release may be counted before the scan counts its record. */
struct amount {
    int64_t records, bytes;
};

struct quota_entry {
    struct quota_entry *next;
    struct quota_limits limits;
    struct amount counted; /* by the last complete scan */
    struct amount since;   /* changes since that scan began */
    struct amount scanned; /* by the scan under way, so far */
    struct amount during;  /* changes since it began that it will not see */
    uint32_t reservations; /* admitted claims that are not answered yet */
    uint32_t in_flight, waiters;
    uint8_t tenant_len;
    uint8_t tenant[];
};

struct grant {
    struct grant *next;
    struct quota_entry *entry;
    uint64_t fence, stored, checkpoint;
    once_time until;
    int64_t lease_ms;
    bool created;
};

struct quota {
    struct quota_rules rules;
    uint64_t seed; /* clients choose tenants: they must not be able to choose their hashes */
    struct quota_entry *tenants[TENANT_BUCKETS];
    struct grant *grants[GRANT_BUCKETS];
    struct grant *spare;
    once_time purged_at;
    bool counts; /* there is a limit of records or bytes, so there are scans */
    bool scanning;
    uint64_t scan_at, scan_last;
    struct quota_counters counters;
};

static_assert(ONCE_TENANT_LEN_MAX <= UINT8_MAX, "a tenant's length is kept in a byte");

/* ------------------------------------------------------------------ entries */

static struct quota_entry **bucket_of(const struct quota *q, once_span tenant)
{
    uint64_t hash = XXH3_64bits_withSeed(tenant.ptr != NULL ? (const void *)tenant.ptr : "", tenant.len, q->seed);
    return (struct quota_entry **)&q->tenants[hash % TENANT_BUCKETS];
}

static struct quota_entry *find(const struct quota *q, once_span tenant)
{
    struct quota_entry *e = *bucket_of(q, tenant);
    while (e != NULL && !once_span_equal(tenant, once_span_of(e->tenant, e->tenant_len)))
        e = e->next;
    return e;
}

/* NULL: no room (QUOTA-3). */
static struct quota_entry *find_or_add(struct quota *q, once_span tenant)
{
    assert(tenant.len <= ONCE_TENANT_LEN_MAX);
    struct quota_entry *e = find(q, tenant);
    if (e != NULL)
        return e;
    if (q->counters.tenants < QUOTA_TENANTS_MAX)
        e = malloc(sizeof *e + tenant.len);
    if (e == NULL)
        return NULL;
    struct quota_entry **bucket = bucket_of(q, tenant);
    *e = (struct quota_entry){ .next = *bucket,
                               .limits = quota_rules_find(&q->rules, tenant),
                               .tenant_len = (uint8_t)tenant.len };
    if (tenant.len > 0)
        memcpy(e->tenant, tenant.ptr, tenant.len);
    *bucket = e;
    q->counters.tenants++;
    return e;
}

static bool is_nothing(const struct amount *a)
{
    return a->records == 0 && a->bytes == 0;
}

static bool is_empty(const struct quota_entry *e)
{
    return e->reservations == 0 && e->in_flight == 0 && e->waiters == 0 && is_nothing(&e->counted) &&
           is_nothing(&e->since) && is_nothing(&e->scanned) && is_nothing(&e->during);
}

static void drop_if_empty(struct quota *q, struct quota_entry *e)
{
    if (!is_empty(e))
        return;
    struct quota_entry **at = bucket_of(q, once_span_of(e->tenant, e->tenant_len));
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    free(e);
    q->counters.tenants--;
}

/* The last complete scan is older; the scan under way may have counted more already. */
static uint64_t larger(int64_t known, int64_t seen)
{
    int64_t value = known > seen ? known : seen;
    return value > 0 ? (uint64_t)value : 0;
}

static uint64_t records_of(const struct quota_entry *e)
{
    return larger(e->counted.records + e->since.records, e->scanned.records + e->during.records);
}

static uint64_t bytes_of(const struct quota_entry *e)
{
    return larger(e->counted.bytes + e->since.bytes, e->scanned.bytes + e->during.bytes);
}

/* The scan under way will still count a record whose fence it has not reached. */
static void change(struct quota *q, struct quota_entry *e, uint64_t fence, int64_t records, int64_t bytes)
{
    if (!q->counts)
        return;
    bool to_be_seen = q->scanning && fence > q->scan_at && fence <= q->scan_last;
    e->since.records += records;
    e->since.bytes += bytes;
    if (q->scanning && !to_be_seen) {
        e->during.records += records;
        e->during.bytes += bytes;
    }
}

/* ------------------------------------------------------------------ grants */

static struct grant **grant_bucket(struct quota *q, uint64_t fence)
{
    static_assert(GRANT_BUCKETS == 1 << 14, "the hash has 14 bits");
    return &q->grants[fence * 0x9e3779b97f4a7c15ULL >> 50];
}

static struct grant **find_grant(struct quota *q, uint64_t fence)
{
    struct grant **at = grant_bucket(q, fence);
    while (*at != NULL && (*at)->fence != fence)
        at = &(*at)->next;
    return at;
}

static void remove_grant(struct quota *q, struct grant **at)
{
    struct grant *g = *at;
    *at = g->next;
    g->entry->in_flight--;
    drop_if_empty(q, g->entry);
    g->next = q->spare;
    q->spare = g;
    q->counters.grants--;
}

/* A grant whose lease is over is not in flight any more. */
static void purge(struct quota *q, once_time now)
{
    q->purged_at = now;
    for (size_t i = 0; i < GRANT_BUCKETS && q->counters.grants > 0; i++)
        for (struct grant **at = &q->grants[i]; *at != NULL;) {
            if ((*at)->until <= now)
                remove_grant(q, at);
            else
                at = &(*at)->next;
        }
}

static void purge_sometimes(struct quota *q, once_time now)
{
    if (now - q->purged_at >= PURGE_EVERY_MS || now < q->purged_at)
        purge(q, now);
}

static struct grant *new_grant(struct quota *q, once_time now)
{
    if (q->counters.grants >= QUOTA_GRANTS_MAX)
        purge_sometimes(q, now);
    struct grant *g = q->spare;
    if (g != NULL)
        q->spare = g->next;
    else if (q->counters.grants < QUOTA_GRANTS_MAX)
        g = malloc(sizeof *g);
    return g;
}

void quota_granted(struct quota *q, once_span tenant, const struct quota_grant *grant, once_time now)
{
    struct grant **at = find_grant(q, grant->fence);
    if (*at != NULL) { /* the same call again */
        (*at)->until = now + grant->lease_ms;
        return;
    }
    struct quota_entry *e = find_or_add(q, tenant);
    if (e == NULL)
        return;
    change(q, e, grant->fence, grant->created ? 1 : 0, (int64_t)grant->stored);
    e->in_flight++; /* so that purge() does not remove the entry */
    struct grant *g = new_grant(q, now);
    if (g == NULL) {
        q->counters.uncounted++;
        e->in_flight--;
        drop_if_empty(q, e);
        return;
    }
    at = grant_bucket(q, grant->fence);
    *g = (struct grant){ .next = *at,
                         .entry = e,
                         .fence = grant->fence,
                         .stored = grant->stored,
                         .until = now + grant->lease_ms,
                         .lease_ms = grant->lease_ms,
                         .created = grant->created };
    *at = g;
    q->counters.grants++;
}

void quota_extended(struct quota *q, uint64_t fence, int64_t lease_ms, once_time now)
{
    struct grant *g = *find_grant(q, fence);
    if (g != NULL)
        g->until = now + (lease_ms != 0 ? lease_ms : g->lease_ms);
}

void quota_advanced(struct quota *q, uint64_t fence, size_t checkpoint_len, bool is_progress, once_time now)
{
    struct grant *g = *find_grant(q, fence);
    if (g == NULL)
        return;
    change(q, g->entry, fence, 0, (int64_t)checkpoint_len - (int64_t)g->checkpoint);
    g->checkpoint = checkpoint_len;
    g->created = g->created && !is_progress; /* from now on a release keeps the record */
    g->until = now + g->lease_ms;
}

void quota_finished(struct quota *q, uint64_t fence, size_t outcome_len)
{
    struct grant **at = find_grant(q, fence);
    if (*at == NULL)
        return;
    change(q, (*at)->entry, fence, 0, (int64_t)outcome_len - (int64_t)(*at)->stored);
    remove_grant(q, at);
}

void quota_released(struct quota *q, uint64_t fence)
{
    struct grant **at = find_grant(q, fence);
    if (*at == NULL)
        return;
    if ((*at)->created)
        change(q, (*at)->entry, fence, -1, -(int64_t)((*at)->stored + (*at)->checkpoint));
    remove_grant(q, at);
}

void quota_lost(struct quota *q, uint64_t fence)
{
    struct grant **at = find_grant(q, fence);
    if (*at != NULL)
        remove_grant(q, at);
}

/* ------------------------------------------------------------------ admission */

enum quota_kind quota_admit(struct quota *q, once_span tenant, once_time now, struct quota_entry **reservation)
{
    *reservation = NULL;
    struct quota_entry *e = find_or_add(q, tenant);
    if (e == NULL) {
        q->counters.uncounted++;
        return QUOTA_KIND_COUNT;
    }
    const uint64_t *max = e->limits.max;
    e->reservations++; /* so that purge() does not remove the entry */
    if ((uint64_t)e->in_flight + e->reservations > max[QUOTA_IN_FLIGHT])
        purge_sometimes(q, now);
    enum quota_kind over = (uint64_t)e->in_flight + e->reservations > max[QUOTA_IN_FLIGHT]          ? QUOTA_IN_FLIGHT
                           : records_of(e) + e->reservations > max[QUOTA_RECORDS]                   ? QUOTA_RECORDS
                           : max[QUOTA_BYTES] != QUOTA_UNLIMITED && bytes_of(e) >= max[QUOTA_BYTES] ? QUOTA_BYTES
                                                                                                    : QUOTA_KIND_COUNT;
    if (over != QUOTA_KIND_COUNT)
        quota_unreserve(q, e);
    else
        *reservation = e;
    return over;
}

void quota_unreserve(struct quota *q, struct quota_entry *reservation)
{
    if (reservation == NULL)
        return;
    assert(reservation->reservations > 0);
    reservation->reservations--;
    drop_if_empty(q, reservation);
}

void quota_note_refused(struct quota *q, enum quota_kind kind)
{
    assert(kind < QUOTA_KIND_COUNT);
    q->counters.refused[kind]++;
}

uint64_t quota_limit(const struct quota *q, once_span tenant, enum quota_kind kind)
{
    return quota_rules_find(&q->rules, tenant).max[kind];
}

bool quota_wait(struct quota *q, once_span tenant, struct quota_entry **reservation)
{
    *reservation = NULL;
    struct quota_entry *e = find_or_add(q, tenant);
    if (e == NULL)
        return true;
    if (e->waiters >= e->limits.max[QUOTA_WAITERS]) {
        drop_if_empty(q, e);
        return false;
    }
    e->waiters++;
    *reservation = e;
    return true;
}

void quota_wait_ended(struct quota *q, struct quota_entry *reservation)
{
    if (reservation == NULL)
        return;
    assert(reservation->waiters > 0);
    reservation->waiters--;
    drop_if_empty(q, reservation);
}

/* ------------------------------------------------------------------ scans */

static void each_entry(struct quota *q, void (*each)(struct quota *q, struct quota_entry *e))
{
    for (size_t i = 0; i < TENANT_BUCKETS; i++)
        for (struct quota_entry *e = q->tenants[i], *next; e != NULL; e = next) {
            next = e->next;
            each(q, e);
        }
}

static void reset_scan(struct quota *q, struct quota_entry *e)
{
    e->scanned = e->during = (struct amount){ 0 };
    drop_if_empty(q, e);
}

void quota_scan_begin(struct quota *q)
{
    each_entry(q, reset_scan);
    q->scanning = true;
    q->scan_at = q->scan_last = 0;
}

void quota_scan_add(struct quota *q, once_span tenant, uint64_t records, uint64_t bytes)
{
    assert(q->scanning);
    struct quota_entry *e = find_or_add(q, tenant);
    if (e == NULL)
        return;
    e->scanned.records += (int64_t)records;
    e->scanned.bytes += (int64_t)bytes;
}

void quota_scan_at(struct quota *q, uint64_t at, uint64_t last)
{
    q->scan_at = at;
    q->scan_last = last;
}

static void apply_scan(struct quota *q, struct quota_entry *e)
{
    e->counted = e->scanned;
    e->since = e->during;
    e->scanned = e->during = (struct amount){ 0 };
    drop_if_empty(q, e);
}

void quota_scan_end(struct quota *q, once_time now)
{
    assert(q->scanning);
    each_entry(q, apply_scan);
    q->scanning = false;
    q->scan_at = q->scan_last = 0;
    q->counters.scans++;
    purge(q, now);
}

/* ------------------------------------------------------------------ create, free, read */

void quota_counters(const struct quota *q, struct quota_counters *out)
{
    *out = q->counters;
}

uint64_t quota_usage(const struct quota *q, once_span tenant, enum quota_kind kind)
{
    const struct quota_entry *e = find(q, tenant);
    if (e == NULL)
        return 0;
    return kind == QUOTA_RECORDS     ? records_of(e)
           : kind == QUOTA_BYTES     ? bytes_of(e)
           : kind == QUOTA_IN_FLIGHT ? e->in_flight
                                     : e->waiters;
}

struct quota *quota_create(const struct quota_rules *rules)
{
    struct quota *q = calloc(1, sizeof *q);
    struct quota_rule *own = rules->count > 0 ? calloc(rules->count, sizeof *own) : NULL;
    if (q == NULL || (own == NULL && rules->count > 0)) {
        free(q);
        free(own);
        return NULL;
    }
    if (rules->count > 0)
        memcpy(own, rules->rules, rules->count * sizeof *own);
    q->rules = *rules;
    q->rules.rules = own;
    q->counts = quota_rules_have(rules, QUOTA_RECORDS) || quota_rules_have(rules, QUOTA_BYTES);
    once_os_random(&q->seed, sizeof q->seed);
    return q;
}

static void free_grants(struct grant *g)
{
    for (struct grant *next; g != NULL; g = next) {
        next = g->next;
        free(g);
    }
}

void quota_free(struct quota *q)
{
    if (q == NULL)
        return;
    for (size_t i = 0; i < TENANT_BUCKETS; i++)
        for (struct quota_entry *e = q->tenants[i], *next; e != NULL; e = next) {
            next = e->next;
            free(e);
        }
    for (size_t i = 0; i < GRANT_BUCKETS; i++)
        free_grants(q->grants[i]);
    free_grants(q->spare);
    quota_rules_release(&q->rules);
    free(q);
}
