/* answer.c - see postgres/answer.h. */
#include "store/postgres/answer.h"

#include "core/err.h"
#include "core/record.h"
#include "core/span.h"
#include "store/format.h"
#include "store/postgres/param.h"
#include "store/postgres/route.h"

static enum once_arm arm_of(once_span name)
{
    for (int arm = ONCE_ARM_EXECUTE; arm <= ONCE_ARM_EXPIRED; arm++)
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
    for (int t = ONCE_TAKEOVER_ESCALATE; t <= ONCE_TAKEOVER_COMPLETER; t++)
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
        .undelivered = pg_bool(r, row, at + PG_ANSWER_UNDELIVERED),
        .body_dropped = pg_bool(r, row, at + PG_ANSWER_BODY_DROPPED),
        .lease_live = pg_bool(r, row, at + PG_ANSWER_LEASE_LIVE),
        .takeover = takeover_of(pg_bytes(r, row, at + PG_ANSWER_TAKEOVER)),
        .attempt = (uint32_t)pg_int(r, row, at + PG_ANSWER_ATTEMPT),
        .status = (int32_t)pg_int(r, row, at + PG_ANSWER_STATUS),
        .retention_ms = pg_int(r, row, at + PG_ANSWER_RETENTION),
        .body_retention_ms = pg_int(r, row, at + PG_ANSWER_BODY_RETENTION),
        .body_expired = pg_bool(r, row, at + PG_ANSWER_BODY_EXPIRED),
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
        .forgotten = pg_bool(r, row, at + PG_ANSWER_FORGOTTEN),
        .route = pg_bytes(r, row, at + PG_ANSWER_ROUTE),
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
        record.headers = record.body = record.route = once_span_of(NULL, 0);
    }
    op->result = ONCE_OK;
    once_result result = once_reply_set(&op->reply, arm, has_record ? &record : NULL, err);
    if (result == ONCE_OK && arm == ONCE_ARM_IN_PROGRESS)
        op->reply.retry_after_ms = pg_int(r, row, at + PG_ANSWER_RETRY_AFTER);
    return result;
}

/* ------------------------------------------------------------------ many at a time */

enum { CLAIMS_N, CLAIMS_AT, CLAIMS_GRANTED, CLAIMS_FENCES, CLAIMS_ANSWER };
enum { FINISHES_N, FINISHES_AT, FINISHES_DONE, FINISHES_ODD, FINISHES_TIMES, FINISHES_RETENTIONS, FINISHES_ANSWER };

static once_result not_ours(struct once_error *err)
{
    return once_fail(err, ONCE_CORRUPT, "the database's functions are not ours");
}

static bool has_columns(const PGresult *r, int answer)
{
    return PQnfields(r) == answer + PG_ANSWER_COUNT && PQntuples(r) >= 1;
}

/* A row of one operation, named by its position, from 1. */
static once_result read_one(const PGresult *r, int row, int answer, struct once_op *const *ops, size_t count,
                            struct once_error *err)
{
    int64_t n = pg_int(r, row, 0);
    if (n < 1 || (size_t)n > count)
        return not_ours(err);
    return read_answer(r, row, answer, ops[n - 1], err);
}

static bool is_of_many(const PGresult *r, int row)
{
    return PQgetisnull(r, row, 0);
}

/* The answer to a claim of a new key: all but the fence and the time is known from the request. */
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
        .body_retention_ms = claim->body_retention_ms,
        .created_at = now,
        .claimed_at = now,
        .lease_until = now + claim->lease_ms,
        .fingerprint = claim->fingerprint,
        .route = pg_route_of(op),
    };
    memcpy(record.grant.record, op->record, sizeof op->record);
    op->result = ONCE_OK;
    return once_reply_set(&op->reply, ONCE_ARM_EXECUTE, &record, err);
}

/* Reads the fences of granted records; of all, if the row names no records. */
static once_result read_grants(const PGresult *r, int row, struct once_op *const *ops, size_t count,
                               struct once_error *err)
{
    bool all = PQgetisnull(r, row, CLAIMS_GRANTED);
    struct pg_array granted = pg_array(r, row, CLAIMS_GRANTED, 16), fences = pg_array(r, row, CLAIMS_FENCES, 8);
    once_time now = pg_int(r, row, CLAIMS_AT);
    once_result result = fences.count == (all ? count : granted.count) ? ONCE_OK : not_ours(err);
    size_t at = 0;
    for (size_t i = 0; i < fences.count && result == ONCE_OK; i++) {
        /* Of several claims of one record the first was inserted. */
        while (!all && at < count && memcmp(ops[at]->record, pg_array_at(&granted, i), 16) != 0)
            at++;
        result = at < count ? grant(ops[at++], (uint64_t)pg_array_int64(&fences, i), now, err) : not_ours(err);
    }
    return result;
}

once_result pg_read_claims(const PGresult *r, struct once_op *const *ops, size_t count, struct once_error *err)
{
    once_result result = has_columns(r, CLAIMS_ANSWER) ? ONCE_OK : not_ours(err);
    for (int row = 0; row < PQntuples(r) && result == ONCE_OK; row++)
        result = is_of_many(r, row) ? read_grants(r, row, ops, count, err)
                                    : read_one(r, row, CLAIMS_ANSWER, ops, count, err);
    return result;
}

static once_result finish(struct once_op *op, once_time finished_at, int64_t retention_ms, struct once_error *err)
{
    const struct once_outcome *outcome = &op->request->outcome;
    bool expires = retention_ms >= 0 && outcome->state != ONCE_STATE_UNKNOWN;
    struct once_record record = {
        .grant = op->request->grant,
        .state = outcome->state,
        .retryable = outcome->retryable,
        .undelivered = outcome->undelivered,
        .body_dropped = outcome->body_dropped,
        .status = outcome->status,
        .finished_at = finished_at,
        .expires_at = expires ? finished_at + retention_ms : ONCE_NEVER,
        .retention_ms = retention_ms,
    };
    op->result = ONCE_OK;
    return once_reply_set(&op->reply, ONCE_ARM_DONE, &record, err);
}

/* Reads the finishes that were stored. The row has the time and retention of those that differ from the batch's time
 * and the default. */
static once_result read_done(const PGresult *r, int row, struct once_op *const *ops, size_t count,
                             struct once_error *err)
{
    struct pg_array done = pg_array(r, row, FINISHES_DONE, 8), odd = pg_array(r, row, FINISHES_ODD, 8);
    struct pg_array times = pg_array(r, row, FINISHES_TIMES, 8), kept = pg_array(r, row, FINISHES_RETENTIONS, 8);
    bool whole = odd.count == times.count && kept.count == odd.count;
    once_result result = whole ? ONCE_OK : not_ours(err);
    size_t at = 0, next = 0;
    for (size_t i = 0; i < done.count && result == ONCE_OK; i++) {
        int64_t fence = pg_array_int64(&done, i);
        while (at < count && (int64_t)ops[at]->request->grant.fence != fence)
            at++;
        if (at == count)
            return not_ours(err);
        while (next < odd.count && pg_array_int64(&odd, next) < fence) /* it was not done */
            next++;
        bool is_odd = next < odd.count && pg_array_int64(&odd, next) == fence;
        once_time finished_at = is_odd ? pg_array_int64(&times, next) : pg_int(r, row, FINISHES_AT);
        int64_t retention = is_odd ? pg_array_int64(&kept, next) : ONCE_RETENTION_MS_DEFAULT;
        result = finish(ops[at++], finished_at, retention, err);
    }
    return result;
}

once_result pg_read_finishes(const PGresult *r, struct once_op *const *ops, size_t count, struct once_error *err)
{
    once_result result = has_columns(r, FINISHES_ANSWER) ? ONCE_OK : not_ours(err);
    for (int row = 0; row < PQntuples(r) && result == ONCE_OK; row++)
        result = is_of_many(r, row) ? read_done(r, row, ops, count, err)
                                    : read_one(r, row, FINISHES_ANSWER, ops, count, err);
    return result;
}

enum { USUAL_AT, USUAL_FENCES, USUAL_COLUMNS };

once_result pg_read_fast_batch(const PGresult *r, const struct pg_fast_batch *fast, struct once_error *err)
{
    if (PQnfields(r) != USUAL_COLUMNS || PQntuples(r) != 1)
        return not_ours(err);
    struct pg_array fences = pg_array(r, 0, USUAL_FENCES, 8);
    once_time now = pg_int(r, 0, USUAL_AT);
    once_result result = fences.count == fast->claims ? ONCE_OK : not_ours(err);
    for (size_t i = 0; i < fast->claims && result == ONCE_OK; i++)
        result = grant(fast->ops[i], (uint64_t)pg_array_int64(&fences, i), now, err);
    for (size_t i = 0; i < fast->finishes && result == ONCE_OK; i++) {
        const struct pg_grant *granted = &fast->granted[i]; /* a clock that was set back must not make a negative age */
        result = finish(fast->ops[fast->claims + i], granted->claimed_at > now ? granted->claimed_at : now,
                        granted->retention_ms, err);
    }
    return result;
}

/* The columns of once.replayed. */
enum {
    REPLAYED_I,
    REPLAYED_FENCE,
    REPLAYED_ATTEMPT,
    REPLAYED_STATE,
    REPLAYED_STATUS,
    REPLAYED_HEADERS,
    REPLAYED_BODY,
    REPLAYED_BODY_EXPIRED,
    REPLAYED_POINT,
    REPLAYED_CHECKPOINT,
    REPLAYED_TAKEOVER,
    REPLAYED_CREATED,
    REPLAYED_CLAIMED,
    REPLAYED_FINISHED,
    REPLAYED_RETENTION,
    REPLAYED_BODY_RETENTION,
    REPLAYED_IS_NAMED,
    REPLAYED_COLUMNS
};

/* As once.replay_answers() does it; tenant and key are known from the request. */
static once_result replay(const PGresult *r, int row, struct once_op *op, struct once_error *err)
{
    const struct once_claim *claim = &op->request->claim;
    int64_t state = pg_int(r, row, REPLAYED_STATE), takeover = pg_int(r, row, REPLAYED_TAKEOVER);
    bool body_expired = pg_bool(r, row, REPLAYED_BODY_EXPIRED), forgotten = (takeover & PG_FLAG_FORGOTTEN) != 0;
    once_span none = once_span_of(NULL, 0);
    struct once_record record = {
        .grant.fence = (uint64_t)pg_int(r, row, REPLAYED_FENCE),
        .tenant = forgotten ? none : claim->tenant,
        .key = pg_bool(r, row, REPLAYED_IS_NAMED) ? claim->key : none,
        .state = (enum once_state)(state & PG_STATE_MASK),
        .body_dropped = (state & PG_BODY_DROPPED) != 0 || body_expired,
        .body_expired = body_expired,
        .takeover = (enum once_takeover)(takeover & PG_TAKEOVER_MASK),
        .attempt = (uint32_t)pg_int(r, row, REPLAYED_ATTEMPT),
        .status = (int32_t)pg_int(r, row, REPLAYED_STATUS),
        .retention_ms = pg_int(r, row, REPLAYED_RETENTION),
        .body_retention_ms = pg_int(r, row, REPLAYED_BODY_RETENTION),
        .created_at = pg_int(r, row, REPLAYED_CREATED),
        .claimed_at = pg_int(r, row, REPLAYED_CLAIMED),
        .finished_at = pg_int(r, row, REPLAYED_FINISHED),
        .fingerprint = claim->fingerprint,
        .recovery_point = pg_bytes(r, row, REPLAYED_POINT),
        .checkpoint = pg_bytes(r, row, REPLAYED_CHECKPOINT),
        .headers = pg_bytes(r, row, REPLAYED_HEADERS),
        .body = pg_bytes(r, row, REPLAYED_BODY),
        .forgotten = forgotten,
    };
    record.expires_at = record.retention_ms >= 0 ? record.finished_at + record.retention_ms : ONCE_NEVER;
    memcpy(record.grant.record, op->record, sizeof op->record);
    op->result = ONCE_OK;
    return once_reply_set(&op->reply, ONCE_ARM_REPLAY, &record, err);
}

once_result pg_read_replays(const PGresult *r, struct once_op *const *ops, size_t count, bool *all,
                            struct once_error *err)
{
    once_result result = PQnfields(r) == REPLAYED_COLUMNS ? ONCE_OK : not_ours(err);
    *all = result != ONCE_OK || (size_t)PQntuples(r) == count;
    for (int row = 0; *all && row < PQntuples(r) && result == ONCE_OK; row++) {
        int64_t i = pg_int(r, row, REPLAYED_I);
        bool ours = i >= 1 && (size_t)i <= count && ops[i - 1]->reply.arm == ONCE_ARM_NONE;
        result = ours ? replay(r, row, ops[i - 1], err) : not_ours(err);
    }
    return result;
}

once_result pg_read_other(const PGresult *r, struct once_op *op, struct once_error *err)
{
    return has_columns(r, 0) ? read_answer(r, 0, 0, op, err) : not_ours(err);
}
