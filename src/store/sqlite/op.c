/* op.c - see sqlite/op.h. */
#include "store/sqlite/op.h"

#include "core/decide.h"
#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "store/sqlite/recent.h"
#include "store/sqlite/request.h"
#include "store/sqlite/route.h"

/* ------------------------------------------------------------------ finding a record */

once_result sqlite_op_load(struct sqlite_protocol *p, const uint8_t record[16], struct sqlite_query *query,
                           struct sqlite_attempt *out, bool *found, struct once_error *err)
{
    *found = false;
    *query = (struct sqlite_query){ .db = p->db };
    uint64_t fence = 0;
    once_result r = sqlite_index_find(p->index, record, &fence, err);
    if (r != ONCE_OK || fence == 0)
        return r;
    *query = sqlite_query(p->db, SQL_record_by_fence);
    sqlite_bind_int(query, (int64_t)fence);
    if (!sqlite_step(query)) {
        once_result end = sqlite_end(query, "read a record", err);
        query->st = NULL;
        return end;
    }
    sqlite_recent_drop(p, fence); /* the operation may change it */
    sqlite_attempt_read(p, query, out);
    const char *fault = query->rc == SQLITE_OK ? once_record_fault(&out->stored.record) : NULL;
    if (query->rc != SQLITE_OK) {
        r = sqlite_end(query, "read a record", err);
        query->st = NULL;
    } else if (!out->sum_is_right || !out->progress_sum_is_right ||
               memcmp(out->stored.record.grant.record, record, 16) != 0) {
        r = once_fail(err, ONCE_CORRUPT, "record at fence %llu does not match its checksum", (unsigned long long)fence);
    } else if (fault != NULL && !out->stored.released) {
        r = once_fail(err, ONCE_CORRUPT, "record at fence %llu is impossible: %s", (unsigned long long)fence, fault);
    }
    *found = r == ONCE_OK;
    return r;
}

void sqlite_op_unload(struct sqlite_query *query)
{
    if (query->st != NULL)
        sqlite3_reset(query->st);
    query->st = NULL;
}

once_result sqlite_op_fail(struct once_op *op, once_result result, struct once_error *err)
{
    if (result != ONCE_CORRUPT && result != ONCE_INVALID && result != ONCE_LIMIT) {
        if (err != NULL)
            *err = op->err;
        return result;
    }
    op->result = result;
    return ONCE_OK;
}

/* ------------------------------------------------------------------ answering */

once_result sqlite_op_answer(struct once_op *op, enum once_arm arm, const struct once_record *record,
                             struct once_error *err)
{
    op->result = ONCE_OK;
    return once_reply_set(&op->reply, arm, record, err);
}

once_result sqlite_op_answer_stored(struct sqlite_protocol *p, struct once_op *op, enum once_arm arm,
                                    struct sqlite_attempt *attempt, struct once_error *err)
{
    once_result r = sqlite_attempt_decode(p, attempt, &op->err);
    if (r != ONCE_OK)
        return sqlite_op_fail(op, r, err);
    attempt->stored.record.route = sqlite_route_name(p, attempt->route);
    return sqlite_op_answer(op, arm, &attempt->stored.record, err);
}

/* Whether this grant is of the same life of the key. Its holder must not be shown another request's record (K6), or
 * that of a later life (K5). */
static once_result is_same_life(struct sqlite_protocol *p, struct once_grant grant, const struct once_record *newest,
                                bool *same, struct once_error *err)
{
    *same = grant.fence == newest->grant.fence;
    if (*same)
        return ONCE_OK;
    struct sqlite_query q = sqlite_query(p->db, SQL_claim_life);
    sqlite_bind_int(&q, (int64_t)grant.fence);
    if (sqlite_step(&q))
        *same = once_span_equal(sqlite_column_span(&q, 0), once_span_of(newest->grant.record, 16)) &&
                once_span_equal(sqlite_column_span(&q, 1), once_span_of(newest->fingerprint.bytes, 32)) &&
                sqlite_column_int(&q, 2) == newest->created_at;
    return sqlite_end(&q, "read an attempt", err);
}

once_result sqlite_op_answer_fenced(struct sqlite_protocol *p, struct once_op *op, struct sqlite_attempt *attempt,
                                    struct once_error *err)
{
    bool take_over = op->request->verb == ONCE_VERB_TAKE_OVER, same = false;
    struct once_grant grant = take_over ? op->request->take_over.seen : op->request->grant;
    once_result r = is_same_life(p, grant, &attempt->stored.record, &same, err);
    if (r != ONCE_OK)
        return r;
    if (!same || attempt->stored.released || once_stored_is_expired(&attempt->stored, p->now))
        return sqlite_op_answer(op, ONCE_ARM_FENCED, NULL, err);
    return sqlite_op_answer_stored(p, op, ONCE_ARM_FENCED, attempt, err);
}

once_result sqlite_op_answer_with_request(struct sqlite_protocol *p, struct once_op *op, enum once_arm arm,
                                          struct once_record *record, struct once_error *err)
{
    struct once_buf request;
    once_buf_init(&request, ONCE_REQUEST_LEN_MAX + ONCE_SEALED_MORE);
    once_result r = sqlite_request_get(p, record->grant, &request, &op->err);
    record->request = once_buf_span(&request);
    record->has_request = request.len > 0;
    r = r == ONCE_OK ? sqlite_op_answer(op, arm, record, err) : sqlite_op_fail(op, r, err);
    once_buf_release(&request);
    return r;
}

once_result sqlite_op_answer_done(struct once_op *op, const struct once_record *record, struct once_error *err)
{
    struct once_record brief = *record;
    brief.tenant = brief.key = brief.recovery_point = brief.checkpoint = once_span_of(NULL, 0);
    brief.headers = brief.body = brief.request = once_span_of(NULL, 0);
    return sqlite_op_answer(op, ONCE_ARM_DONE, &brief, err);
}

/* ------------------------------------------------------------------ ending */

void sqlite_op_set_finished(struct once_record *record, const struct once_outcome *outcome, once_time now,
                            once_time expires_at)
{
    record->state = outcome->state;
    record->retryable = outcome->retryable;
    record->undelivered = outcome->undelivered;
    record->status = outcome->status;
    record->body_dropped = outcome->body_dropped;
    record->lease_until = 0;
    record->lease_live = false;
    record->finished_at = now;
    record->expires_at = expires_at;
}

once_time sqlite_op_body_until(const struct once_record *record, const struct once_outcome *outcome, once_time now)
{
    bool apart = record->body_retention_ms > 0 && outcome->state != ONCE_STATE_UNKNOWN;
    return apart ? now + record->body_retention_ms : 0;
}

/* ------------------------------------------------------------------ the verbs */

static once_result answer_found(struct sqlite_protocol *p, struct once_op *op, struct sqlite_attempt *attempt,
                                struct once_error *err)
{
    if (!op->request->lookup.request || !attempt->stored.has_request)
        return sqlite_op_answer_stored(p, op, ONCE_ARM_FOUND, attempt, err);
    once_result r = sqlite_attempt_decode(p, attempt, &op->err);
    return r == ONCE_OK ? sqlite_op_answer_with_request(p, op, ONCE_ARM_FOUND, &attempt->stored.record, err)
                        : sqlite_op_fail(op, r, err);
}

static once_result lookup(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    struct sqlite_query query;
    struct sqlite_attempt attempt;
    bool found = false;
    once_result r = sqlite_op_load(p, op->record, &query, &attempt, &found, &op->err);
    if (r != ONCE_OK)
        r = sqlite_op_fail(op, r, err);
    else if (!found || attempt.stored.released || once_stored_is_expired(&attempt.stored, p->now))
        r = sqlite_op_answer(op, ONCE_ARM_ABSENT, NULL, err);
    else
        r = answer_found(p, op, &attempt, err);
    sqlite_op_unload(&query);
    return r;
}

once_result sqlite_op_apply(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    bool done = false;
    once_result r = sqlite_op_answer_if_done(p, op, &done, err);
    if (r != ONCE_OK || done)
        return r;
    switch (op->request->verb) {
    case ONCE_VERB_CLAIM:
    case ONCE_VERB_TAKE_OVER:
        return sqlite_op_claim(p, op, err);
    case ONCE_VERB_EXTEND:
    case ONCE_VERB_ADVANCE:
    case ONCE_VERB_FINISH:
    case ONCE_VERB_RELEASE:
        return sqlite_op_held(p, op, err);
    case ONCE_VERB_LOOKUP:
        return lookup(p, op, err);
    case ONCE_VERB_RESOLVE:
    case ONCE_VERB_FORGET:
        return sqlite_op_verdict(p, op, err);
    }
    return once_fail(err, ONCE_INVALID, "verb %d is unknown", (int)op->request->verb);
}
