/*
 * sqlite_list.c - reading many records: listings, and the history of one.
 *
 * A listing walks the claims from the newest on and looks at a bounded number of rows per
 * call. It shows records, not attempts: a row counts only if it is its record's newest.
 */
#include "store/sqlite_store.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"

/* ------------------------------------------------------------------ which rows count */

/* Superseding a result clears its expiry, so a row that expires by itself is the newest;
 * only the others have to be looked up. */
static once_result is_newest(struct sqlite_store *s, const struct sqlite_attempt *a, bool *newest,
                             struct once_error *err)
{
    *newest = true;
    if (a->has_result && !a->superseded_expiry)
        return ONCE_OK;
    uint64_t fence = 0;
    once_result r = sqlite_index_find(&s->index, a->stored.record.grant.record, &fence, err);
    *newest = fence == a->stored.record.grant.fence;
    return r;
}

static bool matches(const struct once_filter *f, const struct once_record *r, once_time now)
{
    if (f->states != 0 && (f->states & 1u << r->state) == 0)
        return false;
    if (f->tenant != NULL && !once_span_equal(*f->tenant, r->tenant))
        return false;
    if (!once_span_starts(r->key, f->key_prefix))
        return false;
    return now - r->created_at >= f->age_ms_min;
}

/* ------------------------------------------------------------------ pages */

/* Records are gathered with their bytes in a buffer that may move, so their spans hold
 * offsets until the page is complete. */
struct gathering {
    struct once_record *records;
    size_t count;
    struct once_buf bytes;
};

static void keep_span(struct gathering *g, once_span *span)
{
    size_t at = g->bytes.len;
    once_buf_add(&g->bytes, *span);
    span->ptr = (const uint8_t *)(uintptr_t)at;
}

static void keep(struct gathering *g, const struct once_record *record)
{
    struct once_record *r = &g->records[g->count++];
    *r = *record;
    r->checkpoint = r->headers = r->body = once_span_of(NULL, 0);
    keep_span(g, &r->tenant);
    keep_span(g, &r->key);
    keep_span(g, &r->recovery_point);
}

static void settle_span(once_span *span, const uint8_t *base)
{
    span->ptr = base + (uintptr_t)span->ptr;
}

static once_result page_make(struct gathering *g, struct once_page *page, struct once_error *err)
{
    size_t head = g->count * sizeof *g->records;
    uint8_t *memory = malloc(head + g->bytes.len + 1);
    if (memory == NULL || g->bytes.result != ONCE_OK) {
        free(memory);
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a page of %zu records", g->count);
    }
    memcpy(memory, g->records, head);
    if (g->bytes.len > 0)
        memcpy(memory + head, g->bytes.ptr, g->bytes.len);
    page->memory = memory;
    page->records = (struct once_record *)memory;
    page->count = g->count;
    for (size_t i = 0; i < g->count; i++) {
        settle_span(&page->records[i].tenant, memory + head);
        settle_span(&page->records[i].key, memory + head);
        settle_span(&page->records[i].recovery_point, memory + head);
    }
    return ONCE_OK;
}

static once_result scan(struct sqlite_store *s, const struct once_filter *f, struct gathering *g, uint64_t *next,
                        struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&s->db, SQL_list);
    sqlite_bind_int(&q, f->before != 0 && f->before < INT64_MAX ? (int64_t)f->before : INT64_MAX);
    once_result r = ONCE_OK;
    size_t looked = 0;
    *next = 0;
    while (r == ONCE_OK && sqlite_step(&q)) {
        struct sqlite_attempt a;
        sqlite_attempt_read(&s->protocol, &q, &a);
        bool newest = false;
        if (!a.stored.released && !once_stored_is_expired(&a.stored, s->protocol.now) &&
            matches(f, &a.stored.record, s->protocol.now))
            r = is_newest(s, &a, &newest, err);
        if (newest)
            keep(g, &a.stored.record);
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
    struct gathering g = { .records = malloc(filter->limit * sizeof *g.records) };
    once_buf_init(&g.bytes,
                  (size_t)filter->limit * (ONCE_TENANT_LEN_MAX + ONCE_KEY_LEN_MAX + ONCE_POINT_LEN_MAX) + 1);
    if (g.records == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a page of %u records", filter->limit);
    once_result r = sqlite_store_begin(s, false, err);
    if (r == ONCE_OK) {
        r = scan(s, filter, &g, &page->next, err);
        sqlite_store_end_reading(s);
    }
    if (r == ONCE_OK)
        r = page_make(&g, page, err);
    free(g.records);
    once_buf_release(&g.bytes);
    return r;
}

/* ------------------------------------------------------------------ history */

struct story {
    struct once_event *events;
    size_t count;
    struct once_buf bytes; /* actors and reasons; spans hold offsets until the end */
};

static void tell(struct story *t, struct once_event event)
{
    if (t->count == ONCE_HISTORY_LEN_MAX)
        return;
    size_t at = t->bytes.len;
    once_buf_add(&t->bytes, event.actor);
    event.actor.ptr = (const uint8_t *)(uintptr_t)at;
    at = t->bytes.len;
    once_buf_add(&t->bytes, event.reason);
    event.reason.ptr = (const uint8_t *)(uintptr_t)at;
    t->events[t->count++] = event;
}

static bool is_verdict(const struct story *t, uint64_t fence)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->events[i].fence == fence && t->events[i].attempt == 0)
            return true;
    return false;
}

static void tell_attempt(struct story *t, const struct sqlite_attempt *a)
{
    const struct once_record *r = &a->stored.record;
    if (is_verdict(t, r->grant.fence))
        return; /* the audit trail told it */
    tell(t, (struct once_event){ .at = r->claimed_at,
                                 .what = a->stored.probing ? "claimed to probe" : "claimed",
                                 .fence = r->grant.fence,
                                 .attempt = r->attempt,
                                 .state = ONCE_STATE_RUNNING });
    if (a->has_result)
        tell(t, (struct once_event){ .at = r->finished_at,
                                     .what = a->stored.released ? "released" : "finished",
                                     .fence = r->grant.fence,
                                     .attempt = r->attempt,
                                     .state = a->stored.released ? ONCE_STATE_NONE : r->state,
                                     .status = r->status });
}

static const char *audit_name(once_span what)
{
    static const char *const names[] = { "resolved done", "resolved not done", "released" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (once_span_equal(what, once_span_str(names[i])))
            return names[i];
    return "?";
}

static once_result tell_audit(struct sqlite_store *s, const uint8_t record[16], struct story *t,
                              struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&s->db, SQL_audit_by_record);
    sqlite_bind_blob(&q, once_span_of(record, 16));
    sqlite_bind_int(&q, ONCE_HISTORY_LEN_MAX);
    while (sqlite_step(&q))
        tell(t, (struct once_event){ .at = sqlite_column_int(&q, 0),
                                     .fence = (uint64_t)sqlite_column_int(&q, 1),
                                     .what = audit_name(sqlite_column_span(&q, 2)),
                                     .actor = sqlite_column_span(&q, 3),
                                     .reason = sqlite_column_span(&q, 4) });
    return sqlite_end(&q, "read the audit trail", err);
}

static once_result tell_attempts(struct sqlite_store *s, const uint8_t record[16], struct story *t,
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
            tell_attempt(t, &a);
            fence = (uint64_t)a.prev;
        }
        r = sqlite_end(&q, "read a history", err);
    }
    return r;
}

static int by_time(const void *a, const void *b)
{
    const struct once_event *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    if (x->fence != y->fence)
        return x->fence < y->fence ? -1 : 1;
    return (x->state != ONCE_STATE_RUNNING) - (y->state != ONCE_STATE_RUNNING);
}

static once_result history_make(struct story *t, struct once_history *history, struct once_error *err)
{
    qsort(t->events, t->count, sizeof *t->events, by_time);
    size_t head = t->count * sizeof *t->events;
    uint8_t *memory = malloc(head + t->bytes.len + 1);
    if (memory == NULL || t->bytes.result != ONCE_OK) {
        free(memory);
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a history");
    }
    memcpy(memory, t->events, head);
    if (t->bytes.len > 0)
        memcpy(memory + head, t->bytes.ptr, t->bytes.len);
    history->memory = memory;
    history->events = (struct once_event *)memory;
    history->count = t->count;
    for (size_t i = 0; i < t->count; i++) {
        settle_span(&history->events[i].actor, memory + head);
        settle_span(&history->events[i].reason, memory + head);
    }
    return ONCE_OK;
}

once_result sqlite_store_history(struct once_store *base, const uint8_t record[16], struct once_history *history,
                                 struct once_error *err)
{
    struct sqlite_store *s = (struct sqlite_store *)base;
    struct story t = { .events = malloc(ONCE_HISTORY_LEN_MAX * sizeof *t.events) };
    once_buf_init(&t.bytes, (size_t)ONCE_HISTORY_LEN_MAX * (ONCE_ACTOR_LEN_MAX + ONCE_REASON_LEN_MAX));
    if (t.events == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a history");
    once_result r = sqlite_store_begin(s, false, err);
    if (r == ONCE_OK) {
        r = tell_audit(s, record, &t, err);
        if (r == ONCE_OK)
            r = tell_attempts(s, record, &t, err);
        sqlite_store_end_reading(s);
    }
    if (r == ONCE_OK)
        r = history_make(&t, history, err);
    free(t.events);
    once_buf_release(&t.bytes);
    return r;
}
