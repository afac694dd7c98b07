/*
 * unfinished.c - finds unfinished attempts, and reads their records again.
 *
 * Fences are in the order of commits here, so a sweep never has to go back: later attempts have larger fences.
 */
#include "store/sqlite/store.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "store/gather.h"
#include "store/sqlite/route.h"

static once_result sweep(struct sqlite_store *s, struct once_sweep *w, struct once_error *err)
{
    int64_t first, last;
    once_result r = sqlite_store_fences(s, w->after, &first, &last, err);
    if (r != ONCE_OK || first == 0)
        return r;
    int64_t to = first + ONCE_LIST_SCAN_MAX - 1 < last ? first + ONCE_LIST_SCAN_MAX - 1 : last;
    struct sqlite_query q = sqlite_query(&s->db, SQL_unfinished);
    sqlite_bind_int(&q, first);
    sqlite_bind_int(&q, to);
    while (sqlite_step(&q)) {
        if (w->count == w->room) {
            to = (int64_t)w->found[w->count - 1].fence;
            break;
        }
        struct sqlite_attempt a;
        sqlite_attempt_read(&s->protocol, &q, &a);
        const struct once_record *record = &a.stored.record;
        struct once_unfinished *unfinished = &w->found[w->count++];
        *unfinished = (struct once_unfinished){ .fence = record->grant.fence,
                                                .failed = a.has_result,
                                                .has_request = a.stored.has_request };
        unfinished->due = record->lease_live ? record->lease_until : 0;
        memcpy(unfinished->record, record->grant.record, sizeof unfinished->record);
    }
    w->after = (uint64_t)to;
    w->more = to < last;
    return sqlite_end(&q, "find unfinished attempts", err);
}

once_result sqlite_store_sweep(struct once_store *base, struct once_sweep *w, struct once_error *err)
{
    struct sqlite_store *s = (struct sqlite_store *)base;
    once_result r = sqlite_store_begin(s, false, err);
    if (r != ONCE_OK)
        return r;
    w->now = s->protocol.now;
    r = sweep(s, w, err);
    sqlite_store_end_reading(s);
    return r;
}

/* Reads the record as it is now; state NONE if it does not exist any more, or is damaged: a look-up of that record
 * reports the damage. */
static once_result look(struct sqlite_store *s, const uint8_t id[16], struct gather_page *g, struct once_error *err)
{
    uint64_t fence = 0;
    struct once_record none = { .state = ONCE_STATE_NONE };
    once_result r = sqlite_index_find(&s->index, id, &fence, err);
    if (r != ONCE_OK)
        return r;
    struct sqlite_query q = sqlite_query(&s->db, SQL_record_by_fence);
    sqlite_bind_int(&q, (int64_t)fence);
    struct sqlite_attempt a = { .has_result = false };
    if (fence != 0 && sqlite_step(&q)) {
        sqlite_attempt_read(&s->protocol, &q, &a);
        a.stored.record.route = sqlite_route_name(&s->protocol, a.route);
        bool there = a.sum_is_right && a.progress_sum_is_right && !a.stored.released &&
                     memcmp(a.stored.record.grant.record, id, 16) == 0 &&
                     !once_stored_is_expired(&a.stored, s->protocol.now);
        gather_record(g, there ? &a.stored.record : &none);
    } else {
        gather_record(g, &none);
    }
    return sqlite_end(&q, "read unfinished records", err);
}

once_result sqlite_store_lookup_many(struct once_store *base, const struct once_unfinished *wanted, size_t count,
                                     struct once_page *page, struct once_error *err)
{
    struct sqlite_store *s = (struct sqlite_store *)base;
    struct gather_page g;
    once_result r = gather_page_init(&g, (uint32_t)count, err);
    if (r == ONCE_OK)
        r = sqlite_store_begin(s, false, err);
    if (r == ONCE_OK) {
        for (size_t i = 0; r == ONCE_OK && i < count; i++)
            r = look(s, wanted[i].record, &g, err);
        sqlite_store_end_reading(s);
    }
    if (r == ONCE_OK)
        r = gather_page_make(&g, page, err);
    gather_page_release(&g);
    return r;
}
