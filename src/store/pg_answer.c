/* pg_answer.c - see pg_answer.h. */
#include "store/pg_answer.h"

#include "core/err.h"
#include "core/record.h"
#include "core/span.h"
#include "store/pg_param.h"

static enum once_arm arm_of(once_span name)
{
    for (int arm = ONCE_ARM_EXECUTE; arm <= ONCE_ARM_ABSENT; arm++)
        if (once_span_equal(name, once_span_str(once_arm_name((enum once_arm)arm))))
            return (enum once_arm)arm;
    return ONCE_ARM_NONE;
}

static enum once_state state_of(once_span name)
{
    for (int state = ONCE_STATE_RUNNING; state <= ONCE_STATE_UNKNOWN; state++)
        if (once_span_equal(name, once_span_str(once_state_name((enum once_state)state))))
            return (enum once_state)state;
    return ONCE_STATE_NONE;
}

static enum once_takeover takeover_of(once_span name)
{
    for (int t = ONCE_TAKEOVER_ESCALATE; t <= ONCE_TAKEOVER_PROBE; t++)
        if (once_span_equal(name, once_span_str(once_takeover_name((enum once_takeover)t))))
            return (enum once_takeover)t;
    return ONCE_TAKEOVER_DEFAULT;
}

static void copy_bytes(const PGresult *result, int row, int column, uint8_t *to, size_t len)
{
    once_span bytes = pg_bytes(result, row, column);
    if (bytes.len == len)
        memcpy(to, bytes.ptr, len);
}

struct once_record pg_read_record(const PGresult *r, int row, int at)
{
    struct once_record record = {
        .grant.fence = (uint64_t)pg_int(r, row, at + PG_ANSWER_FENCE),
        .tenant = pg_bytes(r, row, at + PG_ANSWER_TENANT),
        .key = pg_bytes(r, row, at + PG_ANSWER_KEY),
        .state = state_of(pg_bytes(r, row, at + PG_ANSWER_STATE)),
        .retryable = pg_bool(r, row, at + PG_ANSWER_RETRYABLE),
        .body_dropped = pg_bool(r, row, at + PG_ANSWER_BODY_DROPPED),
        .lease_live = pg_bool(r, row, at + PG_ANSWER_LEASE_LIVE),
        .takeover = takeover_of(pg_bytes(r, row, at + PG_ANSWER_TAKEOVER)),
        .attempt = (uint32_t)pg_int(r, row, at + PG_ANSWER_ATTEMPT),
        .status = (int32_t)pg_int(r, row, at + PG_ANSWER_STATUS),
        .retention_ms = pg_int(r, row, at + PG_ANSWER_RETENTION),
        .created_at = pg_int(r, row, at + PG_ANSWER_CREATED),
        .claimed_at = pg_int(r, row, at + PG_ANSWER_CLAIMED),
        .lease_until = pg_int(r, row, at + PG_ANSWER_LEASE_UNTIL),
        .finished_at = pg_int(r, row, at + PG_ANSWER_FINISHED),
        .expires_at = pg_int(r, row, at + PG_ANSWER_EXPIRES),
        .recovery_point = pg_bytes(r, row, at + PG_ANSWER_POINT),
        .checkpoint = pg_bytes(r, row, at + PG_ANSWER_CHECKPOINT),
        .headers = pg_bytes(r, row, at + PG_ANSWER_HEADERS),
        .body = pg_bytes(r, row, at + PG_ANSWER_BODY),
        .request = pg_bytes(r, row, at + PG_ANSWER_REQUEST),
        .has_request = !PQgetisnull(r, row, at + PG_ANSWER_REQUEST),
    };
    copy_bytes(r, row, at + PG_ANSWER_RECORD, record.grant.record, 16);
    copy_bytes(r, row, at + PG_ANSWER_FINGERPRINT, record.fingerprint.bytes, 32);
    if (record.finished_at != 0 && PQgetisnull(r, row, at + PG_ANSWER_EXPIRES))
        record.expires_at = ONCE_NEVER;
    return record;
}

static once_result read_answer(const PGresult *r, int row, int at, struct once_op *op, struct once_error *err)
{
    enum once_arm arm = arm_of(pg_bytes(r, row, at + PG_ANSWER_ARM));
    struct once_record record = pg_read_record(r, row, at);
    bool has_record = !PQgetisnull(r, row, at + PG_ANSWER_FENCE);
    if (arm == ONCE_ARM_DONE) { /* the caller knows the rest */
        record.tenant = record.key = record.recovery_point = record.checkpoint = once_span_of(NULL, 0);
        record.headers = record.body = once_span_of(NULL, 0);
    }
    op->result = ONCE_OK;
    once_result result = once_reply_set(&op->reply, arm, has_record ? &record : NULL, err);
    if (result == ONCE_OK && arm == ONCE_ARM_IN_PROGRESS)
        op->reply.retry_after_ms = pg_int(r, row, at + PG_ANSWER_RETRY_AFTER);
    return result;
}

/* ------------------------------------------------------------------ many at a time */

enum { CLAIMS_N, CLAIMS_AT, CLAIMS_GRANTED, CLAIMS_FENCES, CLAIMS_ANSWER };
enum { FINISHES_N, FINISHES_DONE, FINISHES_TIMES, FINISHES_SEEN, FINISHES_RETENTIONS, FINISHES_ANSWER };

static once_result not_ours(struct once_error *err)
{
    return once_fail(err, ONCE_CORRUPT, "the database's functions are not ours");
}

static bool has_columns(const PGresult *r, int answer)
{
    return PQnfields(r) == answer + PG_ANSWER_COUNT && PQntuples(r) >= 1;
}

/* The rows after the first: each names its operation by its position, from 1. */
static once_result read_rest(const PGresult *r, int answer, struct once_op *const *ops, size_t count,
                             struct once_error *err)
{
    once_result result = ONCE_OK;
    for (int row = 1; row < PQntuples(r) && result == ONCE_OK; row++) {
        int64_t n = pg_int(r, row, 0);
        if (n < 1 || (size_t)n > count)
            return not_ours(err);
        result = read_answer(r, row, answer, ops[n - 1], err);
    }
    return result;
}

/* A fresh claim, as it was asked for. */
static once_result grant(struct once_op *op, uint64_t fence, once_time now, struct once_error *err)
{
    const struct once_claim *claim = &op->request->claim;
    struct once_record record = {
        .grant.fence = fence,
        .state = ONCE_STATE_RUNNING,
        .lease_live = true,
        .takeover = claim->takeover,
        .attempt = 1,
        .retention_ms = claim->retention_ms,
        .created_at = now,
        .claimed_at = now,
        .lease_until = now + claim->lease_ms,
        .fingerprint = claim->fingerprint,
    };
    memcpy(record.grant.record, op->record, sizeof op->record);
    op->result = ONCE_OK;
    return once_reply_set(&op->reply, ONCE_ARM_EXECUTE, &record, err);
}

once_result pg_read_claims(const PGresult *r, struct once_op *const *ops, size_t count, struct once_error *err)
{
    if (!has_columns(r, CLAIMS_ANSWER))
        return not_ours(err);
    struct pg_array granted = pg_array(r, 0, CLAIMS_GRANTED, 16), fences = pg_array(r, 0, CLAIMS_FENCES, 8);
    once_time now = pg_int(r, 0, CLAIMS_AT);
    once_result result = granted.count == fences.count ? ONCE_OK : not_ours(err);
    size_t at = 0;
    for (size_t i = 0; i < granted.count && result == ONCE_OK; i++) {
        /* Of several claims of one record it is the first that was inserted. */
        while (at < count && memcmp(ops[at]->record, pg_array_at(&granted, i), 16) != 0)
            at++;
        result = at < count ? grant(ops[at++], (uint64_t)pg_array_int64(&fences, i), now, err) : not_ours(err);
    }
    return result == ONCE_OK ? read_rest(r, CLAIMS_ANSWER, ops, count, err) : result;
}

static once_result finish(struct once_op *op, once_time finished_at, int64_t retention_ms, struct once_error *err)
{
    const struct once_outcome *outcome = &op->request->outcome;
    bool expires = retention_ms >= 0 && outcome->state != ONCE_STATE_UNKNOWN;
    struct once_record record = {
        .grant = op->request->grant,
        .state = outcome->state,
        .retryable = outcome->retryable,
        .body_dropped = outcome->body_dropped,
        .status = outcome->status,
        .finished_at = finished_at,
        .expires_at = expires ? finished_at + retention_ms : ONCE_NEVER,
        .retention_ms = retention_ms,
    };
    op->result = ONCE_OK;
    return once_reply_set(&op->reply, ONCE_ARM_DONE, &record, err);
}

once_result pg_read_finishes(const PGresult *r, struct once_op *const *ops, size_t count, struct once_error *err)
{
    if (!has_columns(r, FINISHES_ANSWER))
        return not_ours(err);
    struct pg_array done = pg_array(r, 0, FINISHES_DONE, 8), times = pg_array(r, 0, FINISHES_TIMES, 8);
    struct pg_array seen = pg_array(r, 0, FINISHES_SEEN, 8), kept = pg_array(r, 0, FINISHES_RETENTIONS, 8);
    once_result result = done.count == times.count && seen.count == kept.count ? ONCE_OK : not_ours(err);
    size_t at = 0, claim = 0;
    for (size_t i = 0; i < done.count && result == ONCE_OK; i++) {
        int64_t fence = pg_array_int64(&done, i);
        while (at < count && (int64_t)ops[at]->request->grant.fence != fence)
            at++;
        while (claim < seen.count && pg_array_int64(&seen, claim) != fence)
            claim++;
        result = at < count && claim < seen.count
                     ? finish(ops[at++], pg_array_int64(&times, i), pg_array_int64(&kept, claim), err)
                     : not_ours(err);
    }
    return result == ONCE_OK ? read_rest(r, FINISHES_ANSWER, ops, count, err) : result;
}

once_result pg_read_other(const PGresult *r, struct once_op *op, struct once_error *err)
{
    return has_columns(r, 0) ? read_answer(r, 0, 0, op, err) : not_ours(err);
}
