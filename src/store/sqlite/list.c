/*
 * list.c - reading many records: listings, and the history of one.
 *
 * A listing walks the claims from the newest on and looks at a bounded number of rows per
 * call; a listing of unknown records only walks their index. It shows records, not attempts: a row counts only if it is
 * its record's newest.
 */
#include "store/sqlite/store.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "store/gather.h"
#include "store/sqlite/route.h"

/* ------------------------------------------------------------------ listings */

/* Superseding a result clears its expiry, so a row that expires by itself is the newest;
 * only the others have to be looked up. */
static once_result is_newest(struct sqlite_protocol *p, const struct sqlite_attempt *a, bool *newest,
                             struct once_error *err)
{
    *newest = true;
    if (a->has_result && !a->superseded_expiry)
        return ONCE_OK;
    uint64_t fence = 0;
    once_result r = sqlite_index_find(p->index, a->stored.record.grant.record, &fence, err);
    *newest = fence == a->stored.record.grant.fence;
    return r;
}

once_result sqlite_list_scan(struct sqlite_protocol *p, const struct once_filter *f, struct gather_page *g,
                             uint64_t *next, struct once_error *err)
{
    bool unknown_only = f->states == 1u << ONCE_STATE_UNKNOWN;
    struct sqlite_query q = sqlite_query(p->db, unknown_only ? SQL_list_unknown : SQL_list);
    sqlite_bind_int(&q, f->before != 0 && f->before < INT64_MAX ? (int64_t)f->before : INT64_MAX);
    once_result r = ONCE_OK;
    size_t looked = 0;
    *next = 0;
    while (r == ONCE_OK && sqlite_step(&q)) {
        struct sqlite_attempt a;
        sqlite_attempt_read(p, &q, &a);
        a.stored.record.route = sqlite_route_name(p, a.route);
        bool newest = false;
        if (!a.stored.released && !once_stored_is_expired(&a.stored, p->now) &&
            gather_matches(f, &a.stored.record, p->now))
            r = is_newest(p, &a, &newest, err);
        if (newest)
            gather_record(g, &a.stored.record);
        if (g->count == f->limit || ++looked == ONCE_LIST_SCAN_MAX) {
            *next = a.stored.record.grant.fence;
            break;
        }
    }
    once_result end = sqlite_end(&q, "list records", r == ONCE_OK ? err : NULL);
    return r != ONCE_OK ? r : end;
}

once_result sqlite_store_list(struct once_store *base, const struct once_filter *filter, struct once_page *page,
                              struct once_error *err)
{
    struct sqlite_store *s = (struct sqlite_store *)base;
    struct gather_page g;
    once_result r = gather_page_init(&g, filter->limit, err);
    if (r == ONCE_OK)
        r = sqlite_store_begin(s, false, err);
    if (r == ONCE_OK) {
        r = sqlite_list_scan(&s->protocol, filter, &g, &page->next, err);
        sqlite_store_end_reading(s);
    }
    if (r == ONCE_OK)
        r = gather_page_make(&g, page, err);
    gather_page_release(&g);
    return r;
}

/* ------------------------------------------------------------------ history */

static bool is_verdict(const struct gather_history *t, uint64_t fence)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->events[i].fence == fence && t->events[i].attempt == 0 && strcmp(t->events[i].what, "forgotten") != 0)
            return true;
    return false;
}

static void add_attempt(struct gather_history *t, const struct sqlite_attempt *a)
{
    const struct once_record *r = &a->stored.record;
    if (is_verdict(t, r->grant.fence))
        return; /* the audit trail shows it */
    gather_event(t, (struct once_event){ .at = r->claimed_at,
                                         .what = a->stored.probing ? "claimed to probe" : "claimed",
                                         .fence = r->grant.fence,
                                         .attempt = r->attempt,
                                         .state = ONCE_STATE_RUNNING });
    if (a->has_result)
        gather_event(t, (struct once_event){ .at = r->finished_at,
                                             .what = a->stored.released || (a->superseded && a->released_abandoned)
                                                         ? "released"
                                                     : a->superseded ? "superseded"
                                                                     : "finished",
                                             .fence = r->grant.fence,
                                             .attempt = r->attempt,
                                             .state = a->stored.released || a->superseded ? ONCE_STATE_NONE : r->state,
                                             .status = r->status });
}

static once_result add_audit(struct sqlite_store *s, const uint8_t record[16], struct gather_history *t,
                             struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&s->db, SQL_audit_by_record);
    sqlite_bind_blob(&q, once_span_of(record, 16));
    sqlite_bind_int(&q, ONCE_HISTORY_LEN_MAX);
    while (sqlite_step(&q))
        gather_event(t, (struct once_event){ .at = sqlite_column_int(&q, 0),
                                             .fence = (uint64_t)sqlite_column_int(&q, 1),
                                             .what = gather_event_name(sqlite_column_span(&q, 2)),
                                             .actor = sqlite_column_span(&q, 3),
                                             .reason = sqlite_column_span(&q, 4) });
    return sqlite_end(&q, "read the audit trail", err);
}

static once_result add_attempts(struct sqlite_store *s, const uint8_t record[16], struct gather_history *t,
                                struct once_error *err)
{
    uint64_t fence = 0;
    once_result r = sqlite_index_find(&s->index, record, &fence, err);
    while (r == ONCE_OK && fence != 0 && t->count < ONCE_HISTORY_LEN_MAX) {
        struct sqlite_query q = sqlite_query(&s->db, SQL_record_by_fence);
        sqlite_bind_int(&q, (int64_t)fence);
        fence = 0;
        if (sqlite_step(&q)) {
            struct sqlite_attempt a;
            sqlite_attempt_read(&s->protocol, &q, &a);
            add_attempt(t, &a);
            fence = (uint64_t)a.prev;
        }
        r = sqlite_end(&q, "read a history", err);
    }
    return r;
}

once_result sqlite_store_history(struct once_store *base, const uint8_t record[16], struct once_history *history,
                                 struct once_error *err)
{
    struct sqlite_store *s = (struct sqlite_store *)base;
    struct gather_history t;
    once_result r = gather_history_init(&t, err);
    if (r == ONCE_OK)
        r = sqlite_store_begin(s, false, err);
    if (r == ONCE_OK) {
        r = add_audit(s, record, &t, err);
        if (r == ONCE_OK)
            r = add_attempts(s, record, &t, err);
        sqlite_store_end_reading(s);
    }
    if (r == ONCE_OK)
        r = gather_history_make(&t, history, err);
    gather_history_release(&t);
    return r;
}
