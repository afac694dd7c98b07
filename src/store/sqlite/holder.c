/*
 * holder.c - the verbs of the holder of a grant: extend, advance, finish, release.
 *
 * Only the newest grant of a record changes anything (K3), and an attempt ends once (K5). Each verb recognises its own
 * earlier try whose answer was lost (K10).
 */
#include "core/decide.h"
#include "core/err.h"
#include "core/limits.h"
#include "core/outcome.h"
#include "core/span.h"
#include "store/sqlite/op.h"
#include "store/sqlite/recent.h"
#include "store/sqlite/request.h"

/* Finds the record of a grant. *held: the grant is the newest one (K3). If not, the op
 * has its answer, or its failure, already. */
static once_result load_held(struct sqlite_protocol *p, struct once_op *op, struct sqlite_query *query,
                             struct sqlite_attempt *attempt, bool *held, struct once_error *err)
{
    *held = false;
    *query = (struct sqlite_query){ .db = p->db };
    if (sqlite_recent_take(p, op->request->grant, attempt)) {
        uint64_t newest = 0;
        once_result r = sqlite_index_find(p->index, op->record, &newest, err);
        *held = r == ONCE_OK && newest == op->request->grant.fence;
        if (r != ONCE_OK || *held)
            return r;
    }
    bool found = false;
    once_result r = sqlite_op_load(p, op->record, query, attempt, &found, &op->err);
    if (r != ONCE_OK)
        return sqlite_op_fail(op, r, err);
    if (!found)
        return sqlite_op_answer(op, ONCE_ARM_FENCED, NULL, err);
    if (attempt->stored.record.grant.fence != op->request->grant.fence)
        return sqlite_op_answer_fenced(p, op, attempt, err);
    *held = true;
    return ONCE_OK;
}

/* Whether the stored outcome is the one that this finish wants to store: then it is the same call again, after its
 * first answer was lost. Compares the contents if the encoded bytes differ: perhaps only one is compressed. A tombstone
 * never matches, whether or not expiry has dropped its body. */
static bool is_same_outcome(struct sqlite_protocol *p, struct sqlite_attempt *attempt,
                            const struct once_outcome *outcome, once_span encoded)
{
    const struct once_record *r = &attempt->stored.record;
    if (attempt->stored.released || !once_outcome_is_of(outcome, r) || r->body_expired)
        return false;
    if (once_span_equal(attempt->outcome, encoded))
        return true;
    struct once_buf scratch;
    once_buf_init(&scratch, ONCE_BODY_LEN_MAX + 1);
    once_span headers, body;
    bool dropped = false;
    uint64_t sum_seed = once_outcome_sum_seed(r->grant, outcome);
    bool same = sqlite_attempt_decode(p, attempt, NULL) == ONCE_OK &&
                once_outcome_decode(encoded, sum_seed, &scratch, &headers, &body, &dropped, NULL) == ONCE_OK &&
                r->body_dropped == dropped && once_span_equal(r->headers, headers) && once_span_equal(r->body, body);
    once_buf_release(&scratch);
    return same;
}

/* Whether write_release() ended this attempt. */
static bool is_release(struct sqlite_protocol *p, struct sqlite_attempt *attempt)
{
    const struct once_record *r = &attempt->stored.record;
    if (attempt->stored.released || attempt->released_abandoned)
        return true;
    if (!attempt->has_result)
        return false;
    return r->state == ONCE_STATE_FAILED && r->retryable && r->status == 0 &&
           sqlite_attempt_decode(p, attempt, NULL) == ONCE_OK && !attempt->kept &&
           (r->body_expired || !r->body_dropped);
}

/* ------------------------------------------------------------------ repeated calls */

/* Whether this call passed the point: each point is stored with the beginning of its call's nonce. */
static bool was_passed(once_span points, const struct once_op *op)
{
    char call[10];
    snprintf(call, sizeof call, "%02x%02x%02x%02x", op->nonce[0], op->nonce[1], op->nonce[2], op->nonce[3]);
    while (points.len > 0) {
        once_span line, name, nonce;
        once_span_cut(points, '\n', &line, &points);
        once_span_cut(line, ' ', &name, &nonce);
        if (once_span_equal(name, op->request->advance.point) && once_span_equal(nonce, once_span_str(call)))
            return true;
    }
    return false;
}

static bool is_done(struct sqlite_protocol *p, const struct once_op *op, struct sqlite_attempt *own)
{
    switch (op->request->verb) {
    case ONCE_VERB_ADVANCE:
        return was_passed(own->points, op);
    case ONCE_VERB_FINISH:
        return own->has_result && is_same_outcome(p, own, &op->request->outcome, op->outcome);
    case ONCE_VERB_RELEASE:
        return is_release(p, own);
    default:
        return false;
    }
}

once_result sqlite_op_answer_if_done(struct sqlite_protocol *p, struct once_op *op, bool *done, struct once_error *err)
{
    *done = false;
    if (!op->again)
        return ONCE_OK;
    struct sqlite_query q = sqlite_query(p->db, SQL_record_by_fence);
    sqlite_bind_int(&q, (int64_t)op->request->grant.fence);
    once_result r = ONCE_OK;
    if (sqlite_step(&q)) {
        struct sqlite_attempt own;
        sqlite_attempt_read(p, &q, &own);
        *done = own.sum_is_right && own.progress_sum_is_right && is_done(p, op, &own);
        if (*done)
            r = sqlite_op_answer_done(op, &own.stored.record, err);
    }
    once_result end = sqlite_end(&q, "read an attempt", r == ONCE_OK ? err : NULL);
    return r != ONCE_OK ? r : end;
}

/* ------------------------------------------------------------------ the verbs: `a` is of the newest grant */

static once_result extend(struct sqlite_protocol *p, struct once_op *op, struct sqlite_attempt *a,
                          struct once_error *err)
{
    if (a->has_result)
        return sqlite_op_answer_fenced(p, op, a, err);
    int64_t asked = op->request->extend.lease_ms;
    op->verified_not_applied = true;
    struct once_record *record = &a->stored.record;
    record->lease_until = p->now + (asked != 0 ? asked : a->stored.lease_ms);
    record->lease_live = true;
    once_result r = sqlite_lease_put(p, a, record->lease_until, err);
    return r == ONCE_OK ? sqlite_op_answer_done(op, record, err) : r;
}

static once_result advance(struct sqlite_protocol *p, struct once_op *op, struct sqlite_attempt *a,
                           struct once_error *err)
{
    if (a->has_result)
        return sqlite_op_answer_fenced(p, op, a, err);
    once_span point = op->request->advance.point;
    struct once_record *record = &a->stored.record;
    once_result r = once_point_check(a->points, record->recovery_point, point, &op->err);
    if (r != ONCE_OK)
        return sqlite_op_fail(op, r, err);
    record->lease_until = p->now + a->stored.lease_ms;
    record->lease_live = true;
    op->verified_not_applied = !once_span_equal(point, record->recovery_point);
    r = sqlite_progress_put(p, a, point, op->request->advance.checkpoint, op->nonce, record->lease_until, err);
    return r == ONCE_OK ? sqlite_op_answer_done(op, record, err) : r;
}

/* Whether the outcome is final: neither a retry nor a verdict can cause another execution. */
static bool is_for_good(const struct once_outcome *outcome)
{
    return outcome->state == ONCE_STATE_SUCCEEDED || (outcome->state == ONCE_STATE_FAILED && !outcome->retryable);
}

static once_result finish(struct sqlite_protocol *p, struct once_op *op, struct sqlite_attempt *a,
                          struct once_error *err)
{
    const struct once_outcome *outcome = &op->request->outcome;
    struct once_record *record = &a->stored.record;
    if (a->has_result)
        return is_same_outcome(p, a, outcome, op->outcome) ? sqlite_op_answer_done(op, record, err)
                                                           : sqlite_op_answer_fenced(p, op, a, err);
    once_time expires_at = once_expiry(outcome->state, record->retention_ms, p->now);
    op->verified_not_applied = true;
    once_result r = sqlite_result_insert(p, record->grant.fence, outcome->state, outcome, expires_at,
                                         sqlite_op_body_until(record, outcome, p->now), op->outcome, err);
    if (r == ONCE_OK && a->stored.has_request && is_for_good(outcome))
        r = sqlite_request_drop(p, record->grant.fence, err);
    sqlite_op_set_finished(record, outcome, p->now, expires_at);
    return r == ONCE_OK ? sqlite_op_answer_done(op, record, err) : r;
}

/* This attempt had no effect. Whether earlier ones may have had one decides the new state. */
static once_result write_release(struct sqlite_protocol *p, const struct sqlite_attempt *attempt,
                                 struct once_grant grant, struct once_error *err)
{
    struct once_outcome nothing = { .state = ONCE_STATE_FAILED, .retryable = true };
    enum once_released left = once_decide_release(&attempt->stored, attempt->points);
    if (left == ONCE_RELEASED_ABANDONED)
        return sqlite_lease_put(p, attempt, attempt->stored.record.claimed_at, err);
    bool free = left == ONCE_RELEASED_FREE;
    once_time expires_at = free ? p->now : once_expiry(ONCE_STATE_FAILED, attempt->stored.record.retention_ms, p->now);
    once_result r = ONCE_OK;
    if (free && attempt->stored.has_request)
        r = sqlite_request_drop(p, grant.fence, err);
    return r != ONCE_OK ? r
                        : sqlite_outcome_insert(p, grant, &nothing, free ? ONCE_STORED_RELEASED : ONCE_STATE_FAILED,
                                                expires_at, 0, err);
}

static once_result release(struct sqlite_protocol *p, struct once_op *op, struct sqlite_attempt *a,
                           struct once_error *err)
{
    if (is_release(p, a))
        return sqlite_op_answer(op, ONCE_ARM_DONE, NULL, err);
    if (a->has_result)
        return sqlite_op_answer_fenced(p, op, a, err);
    op->verified_not_applied = true;
    once_result r = write_release(p, a, a->stored.record.grant, err);
    return r == ONCE_OK ? sqlite_op_answer(op, ONCE_ARM_DONE, NULL, err) : r;
}

once_result sqlite_op_held(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    enum once_verb verb = op->request->verb;
    struct sqlite_query query;
    struct sqlite_attempt a;
    bool held = false;
    once_result r = load_held(p, op, &query, &a, &held, err);
    if (held)
        r = verb == ONCE_VERB_EXTEND    ? extend(p, op, &a, err)
            : verb == ONCE_VERB_ADVANCE ? advance(p, op, &a, err)
            : verb == ONCE_VERB_FINISH  ? finish(p, op, &a, err)
                                        : release(p, op, &a, err);
    sqlite_op_unload(&query);
    return r;
}
