/*
 * bodies.c - see sqlite/bodies.h.
 *
 * A result past its body retention is replaced by one that says "executed, answer not kept": its state stays, its bytes
 * go to the file's free list. Readers do not depend on this (K8: sqlite/attempt.c decides by the clock). A result with
 * a wrong checksum is left as it is, for a replay and a check to find: a new checksum would hide a flipped bit
 * (FAULT-14).
 */
#include "store/sqlite/bodies.h"

#include "core/err.h"
#include "core/outcome.h"
#include "core/span.h"

/* Bytes read and overwritten in one step: keeps it near 10 ms if bodies are large. */
enum { STEP_BYTES = 16 << 20 };

struct due {
    struct once_grant grant;
    struct once_outcome left; /* without headers and body */
    bool sum_is_right;
};

static void read_due(struct sqlite_query *q, struct due *d)
{
    once_span record = sqlite_column_span(q, 1);
    *d = (struct due){ .grant.fence = (uint64_t)sqlite_column_int(q, 0),
                       .left = { .state = (enum once_state)sqlite_column_int(q, 2),
                                 .retryable = (sqlite_column_int(q, 3) & SQLITE_RESULT_RETRYABLE) != 0,
                                 .undelivered = (sqlite_column_int(q, 3) & SQLITE_RESULT_UNDELIVERED) != 0,
                                 .status = (int32_t)sqlite_column_int(q, 4),
                                 .body_dropped = true } };
    memcpy(d->grant.record, record.ptr, record.len < 16 ? record.len : 16);
    uint64_t sum_seed = once_outcome_sum_seed(d->grant, &d->left);
    d->sum_is_right = once_outcome_sum_is_right(sqlite_column_span(q, 5), sum_seed);
}

static once_result drop(struct sqlite_store *s, const struct due *d, struct once_error *err)
{
    struct once_buf buf;
    once_buf_init(&buf, ONCE_OUTCOME_LEN_MIN);
    once_result r = once_outcome_encode(&d->left, once_outcome_sum_seed(d->grant, &d->left), &buf, err);
    if (r == ONCE_OK) {
        struct sqlite_query q = sqlite_query(&s->db, SQL_body_drop);
        sqlite_bind_int(&q, (int64_t)d->grant.fence);
        if (d->sum_is_right)
            sqlite_bind_blob(&q, once_buf_span(&buf));
        else
            sqlite_bind_null(&q);
        r = sqlite_run(&q, "drop a body", err);
    }
    once_buf_release(&buf);
    return r;
}

once_result sqlite_bodies_drop(struct sqlite_store *s, uint32_t budget, bool *more, struct once_error *err)
{
    struct due *due = NULL;
    size_t count = 0, cap = 0, bytes = 0;
    once_result r = ONCE_OK;
    struct sqlite_query q = sqlite_query(&s->db, SQL_body_due);
    sqlite_bind_int(&q, s->protocol.now);
    sqlite_bind_int(&q, budget);
    while (r == ONCE_OK && bytes < STEP_BYTES && sqlite_step(&q)) {
        if (count == cap) {
            cap = cap == 0 ? 256 : cap * 2;
            struct due *bigger = realloc(due, cap * sizeof *bigger);
            if (bigger == NULL) {
                r = once_fail(err, ONCE_NO_MEMORY, "no memory to drop bodies");
                break;
            }
            due = bigger;
        }
        read_due(&q, &due[count++]);
        bytes += sqlite_column_span(&q, 5).len;
    }
    once_result end = sqlite_end(&q, "find bodies that are due", r == ONCE_OK ? err : NULL);
    r = r != ONCE_OK ? r : end;
    *more = count == budget || bytes >= STEP_BYTES;
    for (size_t i = 0; r == ONCE_OK && i < count; i++)
        r = drop(s, &due[i], err);
    free(due);
    return r;
}
