/*
 * usage.c - counts the quota usage of each tenant, a bounded number of attempts at a time.
 *
 * A record is counted at its newest attempt, and only if it is not past its retention (K8), whether or not expiry has
 * deleted it. The bytes of its earlier attempts count as well.
 */
#include "store/sqlite/store.h"

#include "core/limits.h"
#include "core/span.h"

enum { FENCE, RECORD, TENANT, STATE, EXPIRES, BYTES };

/* Superseding a result clears its expiry: so an attempt with an expiry is its record's newest, and so is one without a
 * result. Only the others have to be looked up. */
static once_result is_newest(struct sqlite_store *s, struct sqlite_query *q, bool *newest, struct once_error *err)
{
    *newest = true;
    if (sqlite_column_is_null(q, STATE) || !sqlite_column_is_null(q, EXPIRES))
        return ONCE_OK;
    once_span record = sqlite_column_span(q, RECORD);
    uint64_t fence = 0;
    once_result r = record.len == 16 ? sqlite_index_find(&s->index, record.ptr, &fence, err) : ONCE_OK;
    *newest = fence == (uint64_t)sqlite_column_int(q, FENCE);
    return r;
}

static once_result count_row(struct sqlite_store *s, struct sqlite_query *q, const struct once_usage *t,
                             struct once_error *err)
{
    bool newest = false;
    if (!sqlite_column_is_null(q, EXPIRES) && sqlite_column_int(q, EXPIRES) <= s->protocol.now)
        return ONCE_OK;
    once_result r = is_newest(s, q, &newest, err);
    once_span tenant = sqlite_column_span(q, TENANT);
    if (r == ONCE_OK && tenant.len <= ONCE_TENANT_LEN_MAX)
        t->each(t->arg, tenant, newest ? 1 : 0, (uint64_t)sqlite_column_int(q, BYTES));
    return r;
}

static once_result usage(struct sqlite_store *s, struct once_usage *t, struct once_error *err)
{
    int64_t first, last;
    once_result r = sqlite_store_fences(s, t->after, &first, &last, err);
    if (t->last == 0)
        t->last = (uint64_t)last;
    t->more = false;
    if (r != ONCE_OK || first == 0 || (uint64_t)first > t->last)
        return r;
    int64_t to = first + ONCE_LIST_SCAN_MAX - 1;
    if (to > (int64_t)t->last)
        to = (int64_t)t->last;
    struct sqlite_query q = sqlite_query(&s->db, SQL_usage);
    sqlite_bind_int(&q, first);
    sqlite_bind_int(&q, to);
    while (r == ONCE_OK && sqlite_step(&q))
        r = count_row(s, &q, t, err);
    t->after = (uint64_t)to;
    t->more = t->after < t->last;
    once_result end = sqlite_end(&q, "count usage", r == ONCE_OK ? err : NULL);
    return r != ONCE_OK ? r : end;
}

once_result sqlite_store_usage(struct once_store *base, struct once_usage *t, struct once_error *err)
{
    struct sqlite_store *s = (struct sqlite_store *)base;
    once_result r = sqlite_store_begin(s, false, err);
    if (r != ONCE_OK)
        return r;
    t->now = s->protocol.now;
    r = usage(s, t, err);
    sqlite_store_end_reading(s);
    return r;
}
