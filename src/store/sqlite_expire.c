/*
 * sqlite_expire.c - gives back the space of records that are past their retention.
 *
 * One bounded step: take what is longest due, delete its claims, progress and results,
 * tell the key index. Being expired does not wait for this (K8: core/record.c decides by
 * the clock); only finished records are ever due (K7: running and unknown have no
 * expiry). A step on a full disk first gives up the reserve (FAULTS E5).
 */
#include "store/sqlite_store.h"

#include "core/err.h"
#include "core/span.h"

enum { RESERVE_BUDGET = 200 }; /* fits the reserve: a few hundred pages of log */

struct gone {
    uint8_t record[16];
    uint64_t fence;
};

struct harvest {
    int64_t *due; /* fences of results to expire */
    size_t due_len;
    struct gone *gone; /* claims that were deleted, for the key index */
    size_t gone_len, gone_cap;
};

static once_result collect_due(struct sqlite_store *s, uint32_t budget, struct harvest *h, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&s->db, SQL_due);
    sqlite_bind_int(&q, s->protocol.now);
    sqlite_bind_int(&q, budget);
    while (h->due_len < budget && sqlite_step(&q))
        h->due[h->due_len++] = sqlite_column_int(&q, 0);
    return sqlite_end(&q, "find what is due", err);
}

static once_result delete_row(struct sqlite_store *s, enum sqlite_statement statement, int64_t fence,
                              struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&s->db, statement);
    sqlite_bind_int(&q, fence);
    return sqlite_run(&q, "expire a record", err);
}

static once_result remember(struct harvest *h, const uint8_t record[16], int64_t fence, struct once_error *err)
{
    if (h->gone_len == h->gone_cap) {
        size_t cap = h->gone_cap == 0 ? 1024 : h->gone_cap * 2;
        struct gone *bigger = realloc(h->gone, cap * sizeof *bigger);
        if (bigger == NULL)
            return once_fail(err, ONCE_NO_MEMORY, "no memory to expire records");
        h->gone = bigger;
        h->gone_cap = cap;
    }
    struct gone *g = &h->gone[h->gone_len++];
    memcpy(g->record, record, 16);
    g->fence = (uint64_t)fence;
    return ONCE_OK;
}

/* One attempt; *prev is the one before it, 0 if there is none. */
static once_result delete_attempt(struct sqlite_store *s, int64_t fence, int64_t *prev, struct harvest *h,
                                  struct once_error *err)
{
    *prev = 0;
    uint8_t record[16] = { 0 };
    struct sqlite_query q = sqlite_query(&s->db, SQL_claim_link);
    sqlite_bind_int(&q, fence);
    bool there = sqlite_step(&q);
    if (there) {
        once_span id = sqlite_column_span(&q, 0);
        memcpy(record, id.ptr, id.len < 16 ? id.len : 16);
        *prev = sqlite_column_int(&q, 1);
    }
    once_result r = sqlite_end(&q, "expire a record", err);
    if (r == ONCE_OK && there)
        r = remember(h, record, fence, err);
    if (r == ONCE_OK && there)
        r = sqlite_index_bury(&s->index, record, (uint64_t)fence, err);
    if (r == ONCE_OK)
        r = delete_row(s, SQL_result_delete, fence, err);
    if (r == ONCE_OK)
        r = delete_row(s, SQL_progress_delete, fence, err);
    return r == ONCE_OK ? delete_row(s, SQL_claim_delete, fence, err) : r;
}

static once_result delete_records(struct sqlite_store *s, struct harvest *h, struct once_error *err)
{
    once_result r = ONCE_OK;
    for (size_t i = 0; r == ONCE_OK && i < h->due_len; i++) {
        int64_t fence = h->due[i];
        while (r == ONCE_OK && fence != 0)
            r = delete_attempt(s, fence, &fence, h, err);
    }
    return r == ONCE_OK ? sqlite_index_compact(&s->index, err) : r;
}

static once_result expire_step(struct sqlite_store *s, uint32_t budget, struct harvest *h, struct once_error *err)
{
    h->due_len = h->gone_len = 0;
    once_result r = sqlite_store_begin(s, true, err);
    if (r != ONCE_OK)
        return r;
    r = collect_due(s, budget, h, err);
    if (r == ONCE_OK)
        r = delete_records(s, h, err);
    if (r != ONCE_OK) {
        sqlite_store_rollback(s);
        return r;
    }
    r = sqlite_store_commit(s, err);
    for (size_t i = 0; r == ONCE_OK && i < h->gone_len; i++)
        sqlite_index_forget(&s->index, h->gone[i].record, h->gone[i].fence);
    return r;
}

once_result sqlite_store_expire(struct once_store *base, uint32_t budget, uint64_t *removed, bool *more,
                                struct once_error *err)
{
    struct sqlite_store *s = (struct sqlite_store *)base;
    struct harvest h = { .due = malloc(budget * sizeof(int64_t)) };
    if (h.due == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory to expire records");
    once_result r = expire_step(s, budget, &h, err);
    if (r == ONCE_UNAVAILABLE && sqlite_files_reserve_give(&s->files)) {
        budget = budget < RESERVE_BUDGET ? budget : RESERVE_BUDGET;
        r = expire_step(s, budget, &h, err);
        /* The freed pages are in the file; the log starts over at its beginning. */
        if (r == ONCE_OK)
            sqlite3_wal_checkpoint_v2(s->db.handle, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    }
    if (r == ONCE_OK) {
        *removed = h.due_len;
        *more = h.due_len == budget;
        if (!*more)
            sqlite_files_reserve_fill(&s->files);
    }
    free(h.due);
    free(h.gone);
    return r;
}
