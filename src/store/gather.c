/* gather.c - see gather.h. */
#include "store/gather.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"

#include <stdarg.h>

bool gather_matches(const struct once_filter *f, const struct once_record *r, once_time now)
{
    if (f->states != 0 && (f->states & 1u << r->state) == 0)
        return false;
    if (f->tenant != NULL && !once_span_equal(*f->tenant, r->tenant))
        return false;
    if (!once_span_starts(r->key, f->key_prefix))
        return false;
    if (f->route.len > 0 && !once_span_equal(f->route, r->route))
        return false;
    return now - r->created_at >= f->age_ms_min;
}

/* ------------------------------------------------------------------ pages */

static void keep_span(struct gather_page *g, once_span *span)
{
    size_t at = g->bytes.len;
    once_buf_add(&g->bytes, *span);
    span->ptr = (const uint8_t *)(uintptr_t)at;
}

void gather_record(struct gather_page *g, const struct once_record *record)
{
    struct once_record *r = &g->records[g->count++];
    *r = *record;
    r->checkpoint = r->headers = r->body = r->request = once_span_of(NULL, 0);
    keep_span(g, &r->tenant);
    keep_span(g, &r->key);
    keep_span(g, &r->recovery_point);
    keep_span(g, &r->route);
}

static void settle_span(once_span *span, const uint8_t *base)
{
    span->ptr = base + (uintptr_t)span->ptr;
}

once_result gather_page_make(struct gather_page *g, struct once_page *page, struct once_error *err)
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
        settle_span(&page->records[i].route, memory + head);
    }
    return ONCE_OK;
}

once_result gather_page_init(struct gather_page *g, uint32_t limit, struct once_error *err)
{
    *g = (struct gather_page){ .records = malloc(limit * sizeof *g->records) };
    once_buf_init(&g->bytes,
                  (size_t)limit * (ONCE_TENANT_LEN_MAX + ONCE_KEY_LEN_MAX + ONCE_POINT_LEN_MAX + ONCE_ROUTE_LEN_MAX) +
                      1);
    return g->records != NULL ? ONCE_OK : once_fail(err, ONCE_NO_MEMORY, "no memory for a page of %u records", limit);
}

void gather_page_release(struct gather_page *g)
{
    free(g->records);
    once_buf_release(&g->bytes);
}

/* ------------------------------------------------------------------ histories */

void gather_event(struct gather_history *t, struct once_event event)
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

static int by_time(const void *a, const void *b)
{
    const struct once_event *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    if (x->fence != y->fence)
        return x->fence < y->fence ? -1 : 1;
    return (x->state != ONCE_STATE_RUNNING) - (y->state != ONCE_STATE_RUNNING);
}

once_result gather_history_make(struct gather_history *t, struct once_history *history, struct once_error *err)
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

once_result gather_history_init(struct gather_history *t, struct once_error *err)
{
    *t = (struct gather_history){ .events = malloc(ONCE_HISTORY_LEN_MAX * sizeof *t->events) };
    once_buf_init(&t->bytes, (size_t)ONCE_HISTORY_LEN_MAX * (ONCE_ACTOR_LEN_MAX + ONCE_REASON_LEN_MAX));
    return t->events != NULL ? ONCE_OK : once_fail(err, ONCE_NO_MEMORY, "no memory for a history");
}

void gather_history_release(struct gather_history *t)
{
    free(t->events);
    once_buf_release(&t->bytes);
}

const char *gather_event_name(once_span what)
{
    static const char *const names[] = { "claimed",    "claimed to probe", "finished",
                                         "superseded", "resolved done",    "resolved not done",
                                         "released",   "escalated",        "forgotten",
                                         "dropped" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (once_span_equal(what, once_span_str(names[i])))
            return names[i];
    return "?";
}

/* ------------------------------------------------------------------ problems, seal keys */

void gather_problem(struct gather_problems *p, const char *invariant, uint64_t fence, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p->report->problems++;
    if (p->each != NULL)
        p->each(p->arg, &(struct once_problem){ .invariant = invariant, .fence = fence, .text = text });
}

once_result gather_seal_key(struct once_seal_key_refs *out, once_span id, once_span proof, struct once_error *err)
{
    struct once_seal_key_ref *ref = &out->refs[out->count];
    if (out->count == ONCE_SEAL_KEY_REFS_MAX || id.len >= sizeof ref->id || proof.len != sizeof ref->proof)
        return once_fail(err, ONCE_CORRUPT, "the list of keys that the store was sealed with is damaged");
    memcpy(ref->id, id.ptr, id.len);
    ref->id[id.len] = '\0';
    memcpy(ref->proof, proof.ptr, proof.len);
    out->count++;
    return ONCE_OK;
}
