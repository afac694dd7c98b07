/*
 * check.c - checks all invariants that the stored rows can show.
 *
 * The first step verifies the file as SQLite sees it and the tables as a whole, the
 * following ones a bounded number of attempts each. A problem names the invariant, the
 * row's fence and what is wrong.
 */
#include "store/sqlite/store.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "store/gather.h"

struct check {
    struct sqlite_store *s;
    struct gather_problems to;
};

/* ------------------------------------------------------------------ as a whole */

/* When out of memory SQLite may report pages that it could not read: a problem counts only if it is reported twice.
 * *found counts the reports. */
static once_result check_file(struct check *c, bool tell, int *found, struct once_error *err)
{
    sqlite3_stmt *st = NULL;
    *found = 0;
    int rc = sqlite3_prepare_v2(c->s->db.handle, "PRAGMA integrity_check(20)", -1, &st, NULL);
    while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(st, 0);
        bool bad = text == NULL || strcmp(text, "ok") != 0;
        *found += bad;
        if (bad && tell)
            gather_problem(&c->to, "format", 0, "SQLite: %s", text != NULL ? text : "?");
        rc = SQLITE_OK;
    }
    once_result r =
        rc == SQLITE_DONE || rc == SQLITE_OK ? ONCE_OK : sqlite_fail(c->s->db.handle, rc, "check the file", err);
    sqlite3_finalize(st);
    if (r == ONCE_CORRUPT) { /* that is a problem found, not a failure of the check */
        if (tell)
            gather_problem(&c->to, "format", 0, "SQLite cannot read the file to the end");
        *found += 1;
        r = ONCE_OK;
    }
    return r;
}

static once_result check_orphans(struct check *c, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&c->s->db, SQL_check_orphans);
    while (sqlite_step(&q))
        gather_problem(&c->to, "K7", (uint64_t)sqlite_column_int(&q, 1), "a %.*s row without its claim",
                       ONCE_SPAN_ARGS(sqlite_column_span(&q, 0)));
    return sqlite_end(&q, "look for orphans", err);
}

static once_result check_counters(struct check *c, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&c->s->db, SQL_index_read);
    if (sqlite_step(&q)) {
        int64_t sealed = sqlite_column_int(&q, 0), tail = sqlite_column_int(&q, 1);
        int64_t floor = sqlite_column_int(&q, 2), newest = sqlite_column_int(&q, 3);
        int64_t last = newest > floor ? newest : floor;
        if (sealed > tail || tail > last)
            gather_problem(&c->to, "K2", 0, "the key index reaches to %lld and %lld, the last fence given is %lld",
                           (long long)sealed, (long long)tail, (long long)last);
    }
    return sqlite_end(&q, "read the key index", err);
}

/* ------------------------------------------------------------------ one attempt */

static void check_claim(struct check *c, const struct sqlite_attempt *a)
{
    const struct once_record *r = &a->stored.record;
    uint64_t fence = r->grant.fence;
    if (!a->sum_is_right)
        gather_problem(&c->to, "FAULT-14", fence, "the claim does not match its checksum");
    if (!a->progress_sum_is_right)
        gather_problem(&c->to, "FAULT-14", fence, "the recovery point does not match its checksum");
    const char *fault = once_record_fault(r);
    if (fault != NULL && !a->stored.released)
        gather_problem(&c->to, "format", fence, "%s", fault);
    if (a->prev < 0 || (uint64_t)a->prev >= fence)
        gather_problem(&c->to, "K2", fence, "follows attempt %lld, which is not older", (long long)a->prev);
    if (a->prev == 0 && r->attempt != 1)
        gather_problem(&c->to, "K7", fence, "attempt %u has no attempt before it", r->attempt);
    uint8_t id[16];
    once_record_id(&c->s->db.secret, r->tenant, r->key, id);
    if (r->key.len > 0 && memcmp(id, r->grant.record, 16) != 0)
        gather_problem(&c->to, "K9", fence, "the record id is not that of its tenant and key");
    if (r->claimed_at > c->s->protocol.now)
        gather_problem(&c->to, "clock", fence, "claimed in the future");
}

/* K8: a body with its own retention has a time to be dropped, or was dropped. */
static void check_body(struct check *c, const struct sqlite_attempt *a)
{
    const struct once_record *r = &a->stored.record;
    bool apart = r->body_retention_ms > 0 && (r->state == ONCE_STATE_SUCCEEDED || r->state == ONCE_STATE_FAILED);
    if (a->body_until != 0 && !apart)
        gather_problem(&c->to, "K8", r->grant.fence, "its body is to be dropped, and must not");
    else if (a->body_until != 0 && a->body_until != r->finished_at + r->body_retention_ms)
        gather_problem(&c->to, "K8", r->grant.fence,
                       "its body is dropped %lld ms after its finish, its retention is %lld",
                       (long long)(a->body_until - r->finished_at), (long long)r->body_retention_ms);
    else if (a->body_until == 0 && apart && a->kept && !a->stored.released)
        gather_problem(&c->to, "K8", r->grant.fence, "its body will never be dropped, though its retention is %lld ms",
                       (long long)r->body_retention_ms);
}

static once_result check_outcome(struct check *c, struct sqlite_attempt *a, struct once_error *err)
{
    once_result r = sqlite_attempt_decode(&c->s->protocol, a, err);
    if (r == ONCE_OK)
        check_body(c, a);
    if (r != ONCE_CORRUPT)
        return r;
    gather_problem(&c->to, "FAULT-14", a->stored.record.grant.fence, "%s",
                   err != NULL ? err->text : "the outcome does not decode");
    return ONCE_OK;
}

static void check_times(struct check *c, const struct sqlite_attempt *a)
{
    const struct once_record *r = &a->stored.record;
    uint64_t fence = r->grant.fence;
    if (r->finished_at < r->claimed_at)
        gather_problem(&c->to, "clock", fence, "finished before it was claimed");
    if (a->superseded_expiry || a->stored.released)
        return;
    if (r->retention_ms == ONCE_NEVER || r->state == ONCE_STATE_UNKNOWN)
        gather_problem(&c->to, "K8", fence, "has an expiry that its state does not allow");
    else if (r->expires_at != r->finished_at + r->retention_ms)
        gather_problem(&c->to, "K8", fence, "expires %lld ms after its finish, its retention is %lld",
                       (long long)(r->expires_at - r->finished_at), (long long)r->retention_ms);
}

/* K1: a record has one newest attempt. K7: every older one was closed: superseded, or its record had expired. */
static once_result check_place(struct check *c, const struct sqlite_attempt *a, struct once_error *err)
{
    const struct once_record *r = &a->stored.record;
    uint64_t fence = 0;
    once_result result = sqlite_index_find(&c->s->index, r->grant.record, &fence, err);
    if (result != ONCE_OK)
        return result;
    if (fence < r->grant.fence) {
        gather_problem(&c->to, "K1", r->grant.fence, "the key index knows nothing newer than %llu of its record",
                       (unsigned long long)fence);
        return ONCE_OK;
    }
    if (fence == r->grant.fence) {
        c->to.report->records += !a->stored.released && !once_stored_is_expired(&a->stored, c->s->protocol.now);
        bool pinned = a->has_result && a->superseded_expiry;
        if (pinned && r->state != ONCE_STATE_UNKNOWN && r->retention_ms != ONCE_NEVER)
            gather_problem(&c->to, "K8", r->grant.fence, "will never expire, though its retention is %lld ms",
                           (long long)r->retention_ms);
        return ONCE_OK;
    }
    bool over = a->stored.released || once_stored_is_expired(&a->stored, c->s->protocol.now);
    if (!a->has_result)
        gather_problem(&c->to, "K7", r->grant.fence, "running, but its record went on without it at %llu",
                       (unsigned long long)fence);
    else if (!a->superseded_expiry && !over)
        gather_problem(&c->to, "K7", r->grant.fence, "finished and not expired, but its record went on at %llu",
                       (unsigned long long)fence);
    return ONCE_OK;
}

static once_result check_rows(struct check *c, uint64_t *cursor, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&c->s->db, SQL_check_rows);
    sqlite_bind_int(&q, (int64_t)*cursor);
    sqlite_bind_int(&q, ONCE_CHECK_SCAN_MAX);
    once_result r = ONCE_OK;
    int rows = 0;
    while (r == ONCE_OK && sqlite_step(&q)) {
        struct sqlite_attempt a;
        sqlite_attempt_read(&c->s->protocol, &q, &a);
        *cursor = a.stored.record.grant.fence;
        c->to.report->attempts++;
        rows++;
        check_claim(c, &a);
        r = check_place(c, &a, err);
        if (r == ONCE_OK && a.has_result) {
            check_times(c, &a);
            r = check_outcome(c, &a, err);
        }
    }
    once_result end = sqlite_end(&q, "check records", r == ONCE_OK ? err : NULL);
    if (rows < ONCE_CHECK_SCAN_MAX)
        *cursor = 0;
    return r != ONCE_OK ? r : end;
}

once_result sqlite_store_check(struct once_store *base, uint64_t *cursor, once_problem_fn *each, void *arg,
                               struct once_check_report *report, struct once_error *err)
{
    struct sqlite_store *s = (struct sqlite_store *)base;
    struct check c = { .s = s, .to = { each, arg, report } };
    once_result r = sqlite_store_begin(s, false, err);
    if (r != ONCE_OK)
        return r;
    if (*cursor == 0) {
        int found = 0;
        r = check_file(&c, false, &found, err);
        if (r == ONCE_OK && found > 0)
            r = check_file(&c, true, &found, err);
        if (r == ONCE_OK)
            r = check_orphans(&c, err);
        if (r == ONCE_OK)
            r = check_counters(&c, err);
    }
    if (r == ONCE_OK)
        r = check_rows(&c, cursor, err);
    sqlite_store_end_reading(s);
    return r;
}
