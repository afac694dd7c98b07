/*
 * claims.c - claims and takeovers: who may run a key now (K1, K2, K6).
 *
 * core/decide.h decides; this file writes the decision: a first attempt, a next one, a renewed lease, or the state
 * unknown (K10).
 */
#include "core/decide.h"
#include "core/limits.h"
#include "core/span.h"
#include "store/sqlite/op.h"
#include "store/sqlite/recent.h"
#include "store/sqlite/request.h"
#include "store/sqlite/route.h"

static struct sqlite_claim row_of_claim(struct sqlite_protocol *p, const struct once_op *op)
{
    const struct once_claim *claim = &op->request->claim;
    struct sqlite_claim c = {
        .attempt = 1,
        .flags = (claim->intent ? SQLITE_FLAG_INTENT : 0) | (claim->request.len > 0 ? SQLITE_FLAG_REQUEST : 0),
        .takeover = claim->takeover,
        .created_at = p->now,
        .claimed_at = p->now,
        .lease_ms = claim->lease_ms,
        .boot = p->db->boot,
        .retention_ms = claim->retention_ms,
        .body_retention_ms = claim->body_retention_ms,
        .fingerprint_version = SQLITE_FINGERPRINT_VERSION,
        .fingerprint = claim->fingerprint,
        .tenant = claim->tenant,
        .key = p->keytext ? claim->key : once_span_of(NULL, 0),
    };
    memcpy(c.nonce, claim->nonce, 16);
    memcpy(c.grant.record, op->record, 16);
    c.grant.fence = sqlite_index_next_fence(p->index);
    return c;
}

static struct once_record record_of_row(const struct sqlite_claim *c)
{
    return (struct once_record){
        .grant = c->grant,
        .fingerprint = c->fingerprint,
        .state = ONCE_STATE_RUNNING,
        .lease_live = true,
        .takeover = (enum once_takeover)c->takeover,
        .attempt = (uint32_t)c->attempt,
        .retention_ms = c->retention_ms,
        .body_retention_ms = c->body_retention_ms,
        .created_at = c->created_at,
        .claimed_at = c->claimed_at,
        .lease_until = c->claimed_at + c->lease_ms,
    };
}

static once_result route_of_claim(struct sqlite_protocol *p, const struct once_op *op, struct sqlite_claim *c,
                                  struct once_error *err)
{
    int64_t route = 0;
    once_result r = sqlite_route_id(p, op->request->claim.route, &route, err);
    c->flags |= route << SQLITE_ROUTE_SHIFT;
    return r;
}

static once_result claim_create(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    struct sqlite_claim c = row_of_claim(p, op);
    once_result r = route_of_claim(p, op, &c, err);
    if (r == ONCE_OK)
        r = sqlite_attempt_insert(p, &c, err);
    if (r == ONCE_OK && op->request->claim.request.len > 0)
        r = sqlite_request_put(p, c.grant, op->request->claim.request, err);
    struct once_record record = record_of_row(&c);
    sqlite_recent_put(p, &record, &op->request->claim);
    record.route = sqlite_route_name(p, c.flags >> SQLITE_ROUTE_SHIFT);
    return r == ONCE_OK ? sqlite_op_answer(op, ONCE_ARM_EXECUTE, &record, err) : r;
}

/* A takeover keeps the terms of the claim that it takes over, except those that it gives itself (ADR 7). */
static struct sqlite_claim row_of_take_over(struct sqlite_protocol *p, const struct once_op *op,
                                            const struct sqlite_attempt *old)
{
    const struct once_take_over *t = &op->request->take_over;
    const struct once_record *r = &old->stored.record;
    struct sqlite_claim c = {
        .flags = (t->intent ? SQLITE_FLAG_INTENT : 0) | old->route << SQLITE_ROUTE_SHIFT,
        .takeover = r->takeover,
        .claimed_at = p->now,
        .lease_ms = t->lease_ms != 0 ? t->lease_ms : old->stored.lease_ms,
        .boot = p->db->boot,
        .retention_ms = r->retention_ms,
        .body_retention_ms = r->body_retention_ms,
        .fingerprint_version = SQLITE_FINGERPRINT_VERSION,
        .fingerprint = r->fingerprint,
        .tenant = r->tenant,
        .key = r->key,
    };
    memcpy(c.nonce, t->nonce, sizeof c.nonce);
    memcpy(c.grant.record, op->record, 16);
    c.grant.fence = sqlite_index_next_fence(p->index);
    return c;
}

/* Moves the stored request to the new attempt, unless the claim brings its own. */
static once_result hand_request_on(struct sqlite_protocol *p, const struct once_op *op,
                                   const struct sqlite_attempt *old, struct sqlite_claim *c, struct once_error *err)
{
    uint64_t from = old->stored.record.grant.fence;
    bool claim = op->request->verb == ONCE_VERB_CLAIM;
    once_span request = claim ? op->request->claim.request : once_span_of(NULL, 0);
    once_result r = ONCE_OK;
    if (old->stored.has_request && request.len > 0)
        r = sqlite_request_drop(p, from, err);
    else if (old->stored.has_request)
        r = sqlite_request_move(p, from, c->grant.fence, err);
    if (r == ONCE_OK && request.len > 0)
        r = sqlite_request_put(p, c->grant, request, err);
    if (old->stored.has_request)
        c->flags |= SQLITE_FLAG_REQUEST;
    return r;
}

static once_result answer_granted(struct sqlite_protocol *p, struct once_op *op, enum once_arm arm,
                                  struct once_record *record, bool has_request, struct once_error *err)
{
    if (op->request->verb == ONCE_VERB_TAKE_OVER && has_request)
        return sqlite_op_answer_with_request(p, op, arm, record, err);
    return sqlite_op_answer(op, arm, record, err);
}

static once_result claim_take(struct sqlite_protocol *p, struct once_op *op, enum once_arm arm,
                              const struct sqlite_attempt *old, struct once_error *err)
{
    bool take_over = op->request->verb == ONCE_VERB_TAKE_OVER;
    struct sqlite_claim c = take_over ? row_of_take_over(p, op, old) : row_of_claim(p, op);
    c.prev = (int64_t)old->stored.record.grant.fence;
    c.attempt = (int64_t)old->stored.record.attempt + 1;
    c.created_at = old->stored.record.created_at;
    if (arm == ONCE_ARM_PROBE)
        c.flags |= SQLITE_FLAG_PROBING;
    if (!once_intent_holds(&old->stored))
        c.flags = (c.flags & ~SQLITE_FLAG_INTENT) | SQLITE_FLAG_DOUBT;
    once_result r = take_over ? ONCE_OK : route_of_claim(p, op, &c, err);
    if (r == ONCE_OK)
        r = hand_request_on(p, op, old, &c, err);
    if (r == ONCE_OK)
        r = sqlite_attempt_succeed(p, old, &c, err);
    struct once_record record = record_of_row(&c);
    record.recovery_point = old->stored.record.recovery_point;
    record.checkpoint = old->stored.record.checkpoint;
    record.route = sqlite_route_name(p, c.flags >> SQLITE_ROUTE_SHIFT);
    if (take_over) { /* a claimant knows them */
        record.tenant = c.tenant;
        record.key = c.key;
    }
    return r == ONCE_OK ? answer_granted(p, op, arm, &record, (c.flags & SQLITE_FLAG_REQUEST) != 0, err) : r;
}

static once_result claim_renew(struct sqlite_protocol *p, struct once_op *op, enum once_arm arm,
                               struct sqlite_attempt *own, struct once_error *err)
{
    struct once_record *record = &own->stored.record;
    record->lease_until = p->now + own->stored.lease_ms;
    record->lease_live = true;
    once_result r = sqlite_lease_put(p, own, record->lease_until, err);
    return r == ONCE_OK ? answer_granted(p, op, arm, record, own->stored.has_request, err) : r;
}

/* The holder may have sent something (K10): the state unknown is stored under the holder's own fence, so that its late
 * finish finds the record ended. */
static once_result claim_escalate(struct sqlite_protocol *p, struct once_op *op, struct sqlite_attempt *old,
                                  struct once_error *err)
{
    struct once_outcome unknown = { .state = ONCE_STATE_UNKNOWN };
    once_result r =
        sqlite_outcome_insert(p, old->stored.record.grant, &unknown, ONCE_STATE_UNKNOWN, ONCE_NEVER, 0, err);
    struct once_record *record = &old->stored.record;
    record->state = ONCE_STATE_UNKNOWN;
    record->lease_until = 0;
    record->finished_at = p->now;
    record->expires_at = ONCE_NEVER;
    return r == ONCE_OK ? sqlite_op_answer(op, ONCE_ARM_UNKNOWN, record, err) : r;
}

/* A claim, or a takeover of an attempt that the caller has seen. */
once_result sqlite_op_claim(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    struct sqlite_query query;
    struct sqlite_attempt attempt;
    bool found = false;
    once_result r = sqlite_op_load(p, op->record, &query, &attempt, &found, &op->err);
    if (r != ONCE_OK) {
        sqlite_op_unload(&query);
        return sqlite_op_fail(op, r, err);
    }
    const struct once_stored *stored = found ? &attempt.stored : NULL;
    struct once_decision d = op->request->verb == ONCE_VERB_TAKE_OVER
                                 ? once_decide_take_over(stored, &op->request->take_over, op->again, p->now)
                                 : once_decide_claim(stored, &op->request->claim, p->now);
    op->verified_not_applied = d.change != ONCE_CHANGE_RENEW;
    switch (d.change) {
    case ONCE_CHANGE_CREATE:
        r = claim_create(p, op, err);
        break;
    case ONCE_CHANGE_TAKE:
        r = claim_take(p, op, d.arm, &attempt, err);
        break;
    case ONCE_CHANGE_RENEW:
        r = claim_renew(p, op, d.arm, &attempt, err);
        break;
    case ONCE_CHANGE_ESCALATE:
        r = claim_escalate(p, op, &attempt, err);
        break;
    case ONCE_CHANGE_NONE:
        if (d.arm == ONCE_ARM_MISMATCH || d.arm == ONCE_ARM_ABSENT ||
            d.arm == ONCE_ARM_EXPIRED) /* K6: the record is not shown */
            r = sqlite_op_answer(op, d.arm, NULL, err);
        else if (d.arm == ONCE_ARM_FENCED)
            r = sqlite_op_answer_fenced(p, op, &attempt, err);
        else
            r = sqlite_op_answer_stored(p, op, d.arm, &attempt, err);
        break;
    }
    if (r == ONCE_OK && op->reply.arm == ONCE_ARM_IN_PROGRESS)
        op->reply.retry_after_ms =
            op->reply.record.lease_live ? op->reply.record.lease_until - p->now : ONCE_COMPLETER_PAUSE_MS;
    sqlite_op_unload(&query);
    return r;
}
