/*
 * expire.c - gives back the space of records that are past their retention, and of bodies past theirs.
 *
 * One bounded step: finds the records that are longest due, deletes their claims, progress and results, and updates the
 * key index. Claims made one after the other mostly expire in that order, so rows are deleted in runs of neighbouring
 * fences, a statement per run: expiry must keep up with new claims, on the same thread.
 *
 * Readers do not depend on this (K8: core/record.c decides by the clock). Only finished records are ever due (K7:
 * running and unknown ones have no expiry). On a full disk a step first frees the reserve (FACT-5).
 */
#include "store/sqlite/bodies.h"

#include "core/err.h"
#include "core/span.h"

enum { RESERVE_BUDGET = 256 }; /* with small bodies, the log of such a step fits the reserve */

struct gone {
    uint8_t record[16];
    uint64_t fence;
};

struct expiring {
    int64_t *due; /* fences of attempts to delete */
    size_t due_len, due_cap;
    size_t records;    /* how many of them are records, not earlier attempts of one */
    struct gone *gone; /* deleted claims, for the key index */
    size_t gone_len, gone_cap;
    bool more_bodies; /* more bodies are due, of records that stay */
};

static once_result due_add(struct expiring *h, int64_t fence, struct once_error *err)
{
    if (h->due_len == h->due_cap) {
        size_t cap = h->due_cap == 0 ? 1024 : h->due_cap * 2;
        int64_t *bigger = realloc(h->due, cap * sizeof *bigger);
        if (bigger == NULL)
            return once_fail(err, ONCE_NO_MEMORY, "no memory to expire records");
        h->due = bigger;
        h->due_cap = cap;
    }
    h->due[h->due_len++] = fence;
    return ONCE_OK;
}

static once_result collect_due(struct sqlite_store *s, uint32_t budget, struct expiring *h, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&s->db, SQL_due);
    sqlite_bind_int(&q, s->protocol.now);
    sqlite_bind_int(&q, budget);
    once_result r = ONCE_OK;
    while (r == ONCE_OK && sqlite_step(&q))
        r = due_add(h, sqlite_column_int(&q, 0), err);
    once_result end = sqlite_end(&q, "find due records", r == ONCE_OK ? err : NULL);
    h->records = h->due_len;
    return r != ONCE_OK ? r : end;
}

static once_result gone_add(struct expiring *h, once_span record, int64_t fence, struct once_error *err)
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
    *g = (struct gone){ .fence = (uint64_t)fence };
    memcpy(g->record, record.ptr, record.len < 16 ? record.len : 16);
    return ONCE_OK;
}

/* Reads the records of a run of claims. Earlier attempts of the same records are due as well and are added to the list,
 * for a later pass. */
static once_result read_run(struct sqlite_store *s, int64_t from, int64_t to, struct expiring *h,
                            struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&s->db, SQL_claim_links);
    sqlite_bind_int(&q, from);
    sqlite_bind_int(&q, to);
    once_result r = ONCE_OK;
    while (r == ONCE_OK && sqlite_step(&q)) {
        int64_t prev = sqlite_column_int(&q, 2);
        r = gone_add(h, sqlite_column_span(&q, 1), sqlite_column_int(&q, 0), err);
        if (r == ONCE_OK && prev != 0)
            r = due_add(h, prev, err);
    }
    once_result end = sqlite_end(&q, "expire records", r == ONCE_OK ? err : NULL);
    return r != ONCE_OK ? r : end;
}

static once_result delete_run(struct sqlite_store *s, int64_t from, int64_t to, struct expiring *h,
                              struct once_error *err)
{
    static const enum sqlite_statement tables[] = { SQL_result_delete, SQL_progress_delete, SQL_request_delete,
                                                    SQL_claim_delete };
    size_t first = h->gone_len;
    once_result r = read_run(s, from, to, h, err);
    for (size_t i = 0; r == ONCE_OK && i < sizeof tables / sizeof *tables; i++) {
        struct sqlite_query q = sqlite_query(&s->db, tables[i]);
        sqlite_bind_int(&q, from);
        sqlite_bind_int(&q, to);
        r = sqlite_run(&q, "expire records", err);
    }
    for (size_t i = first; r == ONCE_OK && i < h->gone_len; i++)
        r = sqlite_index_drop_entry(&s->index, h->gone[i].record, h->gone[i].fence, err);
    return r;
}

static int by_fence(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Passes over the list until no pass adds earlier attempts to it. */
static once_result delete_records(struct sqlite_store *s, struct expiring *h, struct once_error *err)
{
    once_result r = ONCE_OK;
    size_t start = 0;
    while (r == ONCE_OK && start < h->due_len) {
        size_t end = h->due_len;
        qsort(h->due + start, end - start, sizeof *h->due, by_fence);
        for (size_t i = start, next; r == ONCE_OK && i < end; i = next) {
            for (next = i + 1; next < end && h->due[next] - h->due[next - 1] <= 1;)
                next++;
            r = delete_run(s, h->due[i], h->due[next - 1], h, err);
        }
        start = end;
    }
    return r == ONCE_OK ? sqlite_index_compact(&s->index, err) : r;
}

static once_result expire_step(struct sqlite_store *s, uint32_t budget, struct expiring *h, struct once_error *err)
{
    h->due_len = h->gone_len = 0;
    once_result r = sqlite_store_begin(s, true, err);
    if (r != ONCE_OK)
        return r;
    r = collect_due(s, budget, h, err);
    if (r == ONCE_OK)
        r = delete_records(s, h, err);
    if (r == ONCE_OK)
        r = sqlite_bodies_drop(s, budget, &h->more_bodies, err);
    if (r != ONCE_OK) {
        sqlite_store_rollback(s);
        return r;
    }
    r = sqlite_store_commit(s, err);
    for (size_t i = 0; r == ONCE_OK && i < h->gone_len; i++)
        sqlite_index_forget(&s->index, h->gone[i].record, h->gone[i].fence);
    return r;
}

/* The freed space is first used by a checkpoint, since the database file may have to grow for pages of the log; after
 * that the log starts again from its beginning and has room. It grows with the rows that a step deletes (Debian's
 * SQLite overwrites deleted pages): so steps get smaller until one fits. */
static once_result expire_on_full_disk(struct sqlite_store *s, uint32_t *budget, struct expiring *h,
                                       struct once_error *err)
{
    sqlite_files_reserve_give(&s->files);
    sqlite_store_checkpoint(s, false);
    once_result r = ONCE_UNAVAILABLE;
    if (*budget > RESERVE_BUDGET)
        *budget = RESERVE_BUDGET;
    for (;; *budget = (*budget + 3) / 4) {
        s->db.full = false;
        r = expire_step(s, *budget, h, err);
        if (r != ONCE_UNAVAILABLE || !s->db.full || *budget == 1)
            break;
    }
    if (r == ONCE_OK)
        sqlite_store_checkpoint(s, false);
    return r;
}

once_result sqlite_store_expire(struct once_store *base, uint32_t budget, uint64_t *removed, bool *more,
                                struct once_error *err)
{
    struct sqlite_store *s = (struct sqlite_store *)base;
    struct expiring h = { .due = NULL };
    s->db.full = false;
    once_result r = expire_step(s, budget, &h, err);
    if (r == ONCE_UNAVAILABLE && s->db.full)
        r = expire_on_full_disk(s, &budget, &h, err);
    if (r == ONCE_OK) {
        *removed = h.records;
        *more = h.records == budget || h.more_bodies;
        if (!*more && !s->callers && sqlite_files_reserve_is_gone(&s->files)) {
            sqlite_store_checkpoint(s, true);
            sqlite_files_reserve_fill(&s->files);
        }
    }
    free(h.due);
    free(h.gone);
    return r;
}
