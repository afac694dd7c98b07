/* sqlite_protocol.c - see sqlite_protocol.h. */
#include "store/sqlite_protocol.h"

#include "core/decide.h"
#include "core/err.h"
#include "core/limits.h"
#include "core/outcome.h"
#include "core/span.h"
#include "store/sqlite_request.h"
#include "store/sqlite_route.h"

/* ------------------------------------------------------------------ just claimed */

static struct sqlite_recent *recent_slot(struct sqlite_protocol *p, uint64_t fence)
{
    return &p->recent[fence % SQLITE_RECENT_LEN];
}

static void recent_put(struct sqlite_protocol *p, const struct once_record *record, const struct once_claim *claim)
{
    if (p->recent == NULL)
        return;
    struct once_stored *s = &recent_slot(p, record->grant.fence)->stored;
    *s = (struct once_stored){
        .record = *record, .lease_ms = claim->lease_ms, .intent = claim->intent, .has_request = claim->request.len > 0
    };
    memcpy(s->nonce, claim->nonce, sizeof s->nonce);
}

/* Whoever takes an entry changes its record: it is used once. */
static bool recent_take(struct sqlite_protocol *p, struct once_grant grant, struct sqlite_attempt *out)
{
    if (p->recent == NULL || grant.fence == 0) /* 0: what an entry has that is empty or was taken */
        return false;
    struct once_record *r = &recent_slot(p, grant.fence)->stored.record;
    if (r->grant.fence != grant.fence || memcmp(r->grant.record, grant.record, 16) != 0)
        return false;
    *out = (struct sqlite_attempt){ .stored = recent_slot(p, grant.fence)->stored,
                                    .sum_is_right = true,
                                    .progress_sum_is_right = true };
    r->grant.fence = 0;
    return true;
}

void sqlite_protocol_rolled_back(struct sqlite_protocol *p)
{
    for (size_t i = 0; p->recent != NULL && i < SQLITE_RECENT_LEN; i++)
        p->recent[i].stored.record.grant.fence = 0;
}

/* ------------------------------------------------------------------ finding a record */

/* The record's newest attempt; *query stays open for its spans and must be ended.
 * A claim that is gone (expired) is an absent record. */
static once_result load(struct sqlite_protocol *p, const uint8_t record[16], struct sqlite_query *query,
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
    if (p->recent != NULL && recent_slot(p, fence)->stored.record.grant.fence == fence)
        recent_slot(p, fence)->stored.record.grant.fence = 0; /* somebody looks at it: it may change */
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

static void unload(struct sqlite_query *query)
{
    if (query->st != NULL)
        sqlite3_reset(query->st);
    query->st = NULL;
}

/* What was read is damaged, or what was asked is refused: that is the op's own failure and the
 * rest of the transaction goes on. Any other error is the transaction's: SQLite may have
 * rolled it back already. */
static once_result fail_op(struct once_op *op, once_result result, struct once_error *err)
{
    if (result != ONCE_CORRUPT && result != ONCE_INVALID && result != ONCE_LIMIT) {
        if (err != NULL)
            *err = op->err;
        return result;
    }
    op->result = result;
    return ONCE_OK;
}

static once_result answer(struct once_op *op, enum once_arm arm, const struct once_record *record,
                          struct once_error *err)
{
    op->result = ONCE_OK;
    return once_reply_set(&op->reply, arm, record, err);
}

/* The stored record with its outcome. What does not decode is the op's own failure. */
static once_result answer_stored(struct sqlite_protocol *p, struct once_op *op, enum once_arm arm,
                                 struct sqlite_attempt *attempt, struct once_error *err)
{
    once_result r = sqlite_attempt_decode(p, attempt, &op->err);
    if (r != ONCE_OK)
        return fail_op(op, r, err);
    attempt->stored.record.route = sqlite_route_name(p, attempt->route);
    return answer(op, arm, &attempt->stored.record, err);
}

/* Is this grant of the same life of the key? Another request's record (K6), or this one's in another life (K5), is no
 * answer for whoever held it. */
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

/* K3: the loser answers from what is stored; what is gone (K8) is not shown any more. */
static once_result answer_fenced(struct sqlite_protocol *p, struct once_op *op, struct sqlite_attempt *attempt,
                                 struct once_error *err)
{
    bool take_over = op->request->verb == ONCE_VERB_TAKE_OVER, same = false;
    struct once_grant grant = take_over ? op->request->take_over.seen : op->request->grant;
    once_result r = is_same_life(p, grant, &attempt->stored.record, &same, err);
    if (r != ONCE_OK)
        return r;
    if (!same || attempt->stored.released || once_stored_is_expired(&attempt->stored, p->now))
        return answer(op, ONCE_ARM_FENCED, NULL, err);
    return answer_stored(p, op, ONCE_ARM_FENCED, attempt, err);
}

/* ------------------------------------------------------------------ claim */

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
    recent_put(p, &record, &op->request->claim);
    record.route = sqlite_route_name(p, c.flags >> SQLITE_ROUTE_SHIFT);
    return r == ONCE_OK ? answer(op, ONCE_ARM_EXECUTE, &record, err) : r;
}

/* What a taker of exactly this record does not say is as the last claim said it (ADR 7). */
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

/* The request that is stored is the one that came last. */
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

/* Whoever took over, or asked for it, is told the request as well. */
static once_result answer_with_request(struct sqlite_protocol *p, struct once_op *op, enum once_arm arm,
                                       struct once_record *record, struct once_error *err)
{
    struct once_buf request;
    once_buf_init(&request, ONCE_REQUEST_LEN_MAX + ONCE_SEALED_MORE);
    once_result r = sqlite_request_get(p, record->grant, &request, &op->err);
    record->request = once_buf_span(&request);
    record->has_request = request.len > 0;
    r = r == ONCE_OK ? answer(op, arm, record, err) : fail_op(op, r, err);
    once_buf_release(&request);
    return r;
}

static once_result answer_granted(struct sqlite_protocol *p, struct once_op *op, enum once_arm arm,
                                  struct once_record *record, bool has_request, struct once_error *err)
{
    if (op->request->verb == ONCE_VERB_TAKE_OVER && has_request)
        return answer_with_request(p, op, arm, record, err);
    return answer(op, arm, record, err);
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
    if (take_over) { /* who claims knows them */
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

/* The holder may have sent something and nobody can know (K10): the fact is stored under
 * the holder's own fence, so that its late finish finds the record settled. */
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
    return r == ONCE_OK ? answer(op, ONCE_ARM_UNKNOWN, record, err) : r;
}

/* A claim, or a takeover of what was seen: they differ in how it is decided and in what is known. */
static once_result do_claim(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    struct sqlite_query query;
    struct sqlite_attempt attempt;
    bool found = false;
    once_result r = load(p, op->record, &query, &attempt, &found, &op->err);
    if (r != ONCE_OK) {
        unload(&query);
        return fail_op(op, r, err);
    }
    const struct once_stored *stored = found ? &attempt.stored : NULL;
    struct once_decision d = op->request->verb == ONCE_VERB_TAKE_OVER
                                 ? once_decide_take_over(stored, &op->request->take_over, op->again, p->now)
                                 : once_decide_claim(stored, &op->request->claim, p->now);
    op->not_in_effect = d.change != ONCE_CHANGE_RENEW;
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
            d.arm == ONCE_ARM_EXPIRED) /* K6: no more than that */
            r = answer(op, d.arm, NULL, err);
        else if (d.arm == ONCE_ARM_FENCED)
            r = answer_fenced(p, op, &attempt, err);
        else
            r = answer_stored(p, op, d.arm, &attempt, err);
        break;
    }
    if (r == ONCE_OK && op->reply.arm == ONCE_ARM_IN_PROGRESS)
        op->reply.retry_after_ms =
            op->reply.record.lease_live ? op->reply.record.lease_until - p->now : ONCE_COMPLETER_PAUSE_MS;
    unload(&query);
    return r;
}

/* ------------------------------------------------------------------ what a holder does */

/* A short answer: the caller knows the rest. */
static once_result answer_done(struct once_op *op, const struct once_record *record, struct once_error *err)
{
    struct once_record brief = *record;
    brief.tenant = brief.key = brief.recovery_point = brief.checkpoint = once_span_of(NULL, 0);
    brief.headers = brief.body = brief.request = once_span_of(NULL, 0);
    return answer(op, ONCE_ARM_DONE, &brief, err);
}

/* Finds the record of a grant. *held: the grant is the newest one (K3). If not, the op
 * has its answer, or its failure, already. */
static once_result load_held(struct sqlite_protocol *p, struct once_op *op, struct sqlite_query *query,
                             struct sqlite_attempt *attempt, bool *held, struct once_error *err)
{
    *held = false;
    *query = (struct sqlite_query){ .db = p->db };
    if (recent_take(p, op->request->grant, attempt)) {
        uint64_t newest = 0;
        once_result r = sqlite_index_find(p->index, op->record, &newest, err);
        *held = r == ONCE_OK && newest == op->request->grant.fence;
        if (r != ONCE_OK || *held)
            return r;
    }
    bool found = false;
    once_result r = load(p, op->record, query, attempt, &found, &op->err);
    if (r != ONCE_OK)
        return fail_op(op, r, err);
    if (!found)
        return answer(op, ONCE_ARM_FENCED, NULL, err);
    if (attempt->stored.record.grant.fence != op->request->grant.fence)
        return answer_fenced(p, op, attempt, err);
    *held = true;
    return ONCE_OK;
}

/* Is what stands there just what this finish wants to store? Then it is the same call
 * again, its first answer lost. Compared by content where the bytes differ: one of them
 * may not have been compressed. A tombstone has nothing left to compare, whether or not it is still there. */
static bool is_same_outcome(struct sqlite_protocol *p, struct sqlite_attempt *attempt,
                            const struct once_outcome *outcome, once_span encoded)
{
    const struct once_record *r = &attempt->stored.record;
    if (attempt->stored.released || r->state != outcome->state || r->retryable != outcome->retryable ||
        r->status != outcome->status || r->body_expired)
        return false;
    if (once_span_equal(attempt->outcome, encoded))
        return true;
    struct once_buf scratch;
    once_buf_init(&scratch, ONCE_BODY_LEN_MAX + 1);
    once_span headers, body;
    bool dropped = false;
    uint64_t seal = once_outcome_seal(r->grant, r->state, r->retryable, r->status);
    bool same = sqlite_attempt_decode(p, attempt, NULL) == ONCE_OK &&
                once_outcome_decode(encoded, seal, &scratch, &headers, &body, &dropped, NULL) == ONCE_OK &&
                r->body_dropped == dropped && once_span_equal(r->headers, headers) && once_span_equal(r->body, body);
    once_buf_release(&scratch);
    return same;
}

/* Is this what write_release() left? */
static bool is_release(struct sqlite_protocol *p, struct sqlite_attempt *attempt)
{
    const struct once_record *r = &attempt->stored.record;
    if (attempt->stored.released || attempt->given_back)
        return true;
    if (!attempt->has_result)
        return false;
    return r->state == ONCE_STATE_FAILED && r->retryable && r->status == 0 &&
           sqlite_attempt_decode(p, attempt, NULL) == ONCE_OK && !attempt->kept &&
           (r->body_expired || !r->body_dropped);
}

/* ------------------------------------------------------------------ what was done before */

/* By this very call: each point is kept with the beginning of its call's nonce. */
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

/* K10: an operation that is applied again after a lost answer, while others of its batch, or
 * other holders, went on from what it did: its own attempt shows whether it took effect. */
static once_result answer_if_done(struct sqlite_protocol *p, struct once_op *op, bool *done, struct once_error *err)
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
            r = answer_done(op, &own.stored.record, err);
    }
    once_result end = sqlite_end(&q, "read an attempt", r == ONCE_OK ? err : NULL);
    return r != ONCE_OK ? r : end;
}

static once_result do_extend(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    struct sqlite_query query;
    struct sqlite_attempt attempt;
    bool held = false;
    once_result r = load_held(p, op, &query, &attempt, &held, err);
    if (held && attempt.has_result) {
        r = answer_fenced(p, op, &attempt, err);
    } else if (held) {
        int64_t asked = op->request->extend.lease_ms;
        op->not_in_effect = true;
        struct once_record *record = &attempt.stored.record;
        record->lease_until = p->now + (asked != 0 ? asked : attempt.stored.lease_ms);
        record->lease_live = true;
        r = sqlite_lease_put(p, &attempt, record->lease_until, err);
        if (r == ONCE_OK)
            r = answer_done(op, record, err);
    }
    unload(&query);
    return r;
}

static once_result do_advance(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    struct sqlite_query query;
    struct sqlite_attempt attempt;
    bool held = false;
    once_result r = load_held(p, op, &query, &attempt, &held, err);
    if (held && attempt.has_result) {
        r = answer_fenced(p, op, &attempt, err);
    } else if (held) {
        once_span point = op->request->advance.point;
        struct once_record *record = &attempt.stored.record;
        once_result forward = once_point_check(attempt.points, record->recovery_point, point, &op->err);
        if (forward != ONCE_OK) {
            unload(&query);
            return fail_op(op, forward, err);
        }
        record->lease_until = p->now + attempt.stored.lease_ms;
        record->lease_live = true;
        op->not_in_effect = !once_span_equal(point, record->recovery_point);
        r = sqlite_progress_put(p, &attempt, point, op->request->advance.checkpoint, op->nonce, record->lease_until,
                                err);
        if (r == ONCE_OK)
            r = answer_done(op, record, err);
    }
    unload(&query);
    return r;
}

/* Nobody will execute this again: not by itself, nor by a person's word. */
static bool is_for_good(const struct once_outcome *outcome)
{
    return outcome->state == ONCE_STATE_SUCCEEDED || (outcome->state == ONCE_STATE_FAILED && !outcome->retryable);
}

static void set_finished(struct once_record *record, const struct once_outcome *outcome, once_time now,
                         once_time expires_at)
{
    record->state = outcome->state;
    record->retryable = outcome->retryable;
    record->status = outcome->status;
    record->body_dropped = outcome->body_dropped;
    record->lease_until = 0;
    record->lease_live = false;
    record->finished_at = now;
    record->expires_at = expires_at;
}

/* When headers and body of an outcome finished at `now` go; 0: with the record. Unknown waits for a person. */
static once_time body_until(const struct once_record *record, const struct once_outcome *outcome, once_time now)
{
    bool apart = record->body_retention_ms > 0 && outcome->state != ONCE_STATE_UNKNOWN;
    return apart ? now + record->body_retention_ms : 0;
}

static once_result do_finish(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    const struct once_outcome *outcome = &op->request->outcome;
    struct sqlite_query query;
    struct sqlite_attempt attempt;
    bool held = false;
    once_result r = load_held(p, op, &query, &attempt, &held, err);
    if (held && attempt.has_result) {
        if (is_same_outcome(p, &attempt, outcome, op->outcome))
            r = answer_done(op, &attempt.stored.record, err);
        else
            r = answer_fenced(p, op, &attempt, err);
    } else if (held) {
        struct once_record *record = &attempt.stored.record;
        once_time expires_at = once_expiry(outcome->state, record->retention_ms, p->now);
        op->not_in_effect = true;
        r = sqlite_result_insert(p, record->grant.fence, outcome->state, outcome->retryable, outcome->status,
                                 expires_at, body_until(record, outcome, p->now), op->outcome, err);
        if (r == ONCE_OK && attempt.stored.has_request && is_for_good(outcome))
            r = sqlite_request_drop(p, record->grant.fence, err);
        set_finished(record, outcome, p->now, expires_at);
        if (r == ONCE_OK)
            r = answer_done(op, record, err);
    }
    unload(&query);
    return r;
}

/* The attempt had no effect. What others before it may have had decides what is left. */
static once_result write_release(struct sqlite_protocol *p, const struct sqlite_attempt *attempt,
                                 struct once_grant grant, struct once_error *err)
{
    struct once_outcome nothing = { .state = ONCE_STATE_FAILED, .retryable = true };
    enum once_left left = once_decide_release(&attempt->stored, attempt->points);
    if (left == ONCE_LEFT_ABANDONED)
        return sqlite_lease_put(p, attempt, attempt->stored.record.claimed_at, err);
    bool free = left == ONCE_LEFT_FREE;
    once_time expires_at = free ? p->now : once_expiry(ONCE_STATE_FAILED, attempt->stored.record.retention_ms, p->now);
    once_result r = ONCE_OK;
    if (free && attempt->stored.has_request)
        r = sqlite_request_drop(p, grant.fence, err);
    return r != ONCE_OK ? r
                        : sqlite_outcome_insert(p, grant, &nothing, free ? SQLITE_STATE_RELEASED : ONCE_STATE_FAILED,
                                                expires_at, 0, err);
}

static once_result do_release(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    struct sqlite_query query;
    struct sqlite_attempt attempt;
    bool held = false;
    once_result r = load_held(p, op, &query, &attempt, &held, err);
    if (held && is_release(p, &attempt)) {
        r = answer(op, ONCE_ARM_DONE, NULL, err);
    } else if (held && attempt.has_result) {
        r = answer_fenced(p, op, &attempt, err);
    } else if (held) {
        op->not_in_effect = true;
        r = write_release(p, &attempt, attempt.stored.record.grant, err);
        if (r == ONCE_OK)
            r = answer(op, ONCE_ARM_DONE, NULL, err);
    }
    unload(&query);
    return r;
}

/* ------------------------------------------------------------------ looking, resolving */

static once_result answer_found(struct sqlite_protocol *p, struct once_op *op, struct sqlite_attempt *attempt,
                                struct once_error *err)
{
    if (!op->request->lookup.request || !attempt->stored.has_request)
        return answer_stored(p, op, ONCE_ARM_FOUND, attempt, err);
    once_result r = sqlite_attempt_decode(p, attempt, &op->err);
    return r == ONCE_OK ? answer_with_request(p, op, ONCE_ARM_FOUND, &attempt->stored.record, err)
                        : fail_op(op, r, err);
}

static once_result do_lookup(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    struct sqlite_query query;
    struct sqlite_attempt attempt;
    bool found = false;
    once_result r = load(p, op->record, &query, &attempt, &found, &op->err);
    if (r != ONCE_OK)
        r = fail_op(op, r, err);
    else if (!found || attempt.stored.released || once_stored_is_expired(&attempt.stored, p->now))
        r = answer(op, ONCE_ARM_ABSENT, NULL, err);
    else
        r = answer_found(p, op, &attempt, err);
    unload(&query);
    return r;
}

static once_result write_audit(struct sqlite_protocol *p, const struct once_op *op, uint64_t fence, const char *what,
                               once_span actor, once_span reason, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(p->db, SQL_audit_insert);
    sqlite_bind_int(&q, p->now);
    sqlite_bind_blob(&q, once_span_of(op->record, 16));
    sqlite_bind_int(&q, (int64_t)fence);
    sqlite_bind_text(&q, what);
    sqlite_bind_blob(&q, actor);
    sqlite_bind_blob(&q, reason);
    return sqlite_run(&q, "write the audit trail", err);
}

/* A verdict is a grant of its own: its fence shuts out a holder that was only thought dead. */
static struct sqlite_claim row_of_verdict(struct sqlite_protocol *p, const struct once_op *op,
                                          const struct sqlite_attempt *old)
{
    const struct once_record *record = &old->stored.record;
    struct sqlite_claim c = {
        .prev = (int64_t)record->grant.fence,
        .attempt = record->attempt,
        .flags = (old->stored.has_request ? SQLITE_FLAG_REQUEST : 0) | old->route << SQLITE_ROUTE_SHIFT,
        .takeover = record->takeover,
        .created_at = record->created_at,
        .claimed_at = p->now,
        .lease_ms = old->stored.lease_ms,
        .boot = p->db->boot,
        .retention_ms = record->retention_ms,
        .body_retention_ms = record->body_retention_ms,
        .fingerprint_version = SQLITE_FINGERPRINT_VERSION,
        .fingerprint = record->fingerprint,
        .tenant = record->tenant,
        .key = record->key,
    };
    memcpy(c.nonce, op->nonce, sizeof c.nonce);
    memcpy(c.grant.record, record->grant.record, 16);
    c.grant.fence = sqlite_index_next_fence(p->index);
    return c;
}

static once_result write_verdict(struct sqlite_protocol *p, const struct once_op *op, struct sqlite_attempt *old,
                                 struct once_error *err)
{
    const struct once_resolve *resolve = &op->request->resolve;
    struct sqlite_claim c = row_of_verdict(p, op, old);
    uint64_t before = old->stored.record.grant.fence;
    once_result r = ONCE_OK;
    if (old->stored.has_request)
        r = resolve->verdict == ONCE_VERDICT_NOT_DONE ? sqlite_request_move(p, before, c.grant.fence, err)
                                                      : sqlite_request_drop(p, before, err);
    if (r == ONCE_OK)
        r = sqlite_attempt_succeed(p, old, &c, err);
    static const char *const what[] = {
        [ONCE_VERDICT_DONE] = "resolved done",
        [ONCE_VERDICT_NOT_DONE] = "resolved not done",
        [ONCE_VERDICT_RELEASE] = "released",
    };
    if (r == ONCE_OK)
        r = write_audit(p, op, c.grant.fence, what[resolve->verdict], resolve->actor, resolve->reason, err);
    if (r != ONCE_OK)
        return r;
    struct once_record *record = &old->stored.record;
    struct once_outcome outcome = { .state = ONCE_STATE_FAILED, .retryable = true };
    if (resolve->verdict == ONCE_VERDICT_DONE)
        outcome = resolve->outcome;
    bool release = resolve->verdict == ONCE_VERDICT_RELEASE;
    once_time expires_at = release ? p->now : once_expiry(outcome.state, record->retention_ms, p->now);
    record->grant = c.grant;
    set_finished(record, &outcome, p->now, expires_at);
    return sqlite_outcome_insert(p, c.grant, &outcome, release ? SQLITE_STATE_RELEASED : (int64_t)outcome.state,
                                 expires_at, body_until(record, &outcome, p->now), err);
}

/* What an operator's word met, where it changed nothing. */
static once_result answer_operator(struct sqlite_protocol *p, struct once_op *op, enum once_arm arm,
                                   struct sqlite_attempt *attempt, struct once_error *err)
{
    if (arm == ONCE_ARM_ABSENT)
        return answer(op, arm, NULL, err);
    once_result r = answer_stored(p, op, arm, attempt, err);
    if (r == ONCE_OK && op->result == ONCE_OK && arm == ONCE_ARM_IN_PROGRESS)
        op->reply.retry_after_ms = op->reply.record.lease_until - p->now;
    return r;
}

static once_result do_resolve(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    const struct once_resolve *resolve = &op->request->resolve;
    struct sqlite_query query;
    struct sqlite_attempt attempt;
    bool found = false;
    once_result r = load(p, op->record, &query, &attempt, &found, &op->err);
    if (r != ONCE_OK) {
        unload(&query);
        return fail_op(op, r, err);
    }
    enum once_arm arm = once_decide_resolve(found ? &attempt.stored : NULL, resolve->fence, p->now);
    if (found && memcmp(attempt.stored.nonce, op->nonce, sizeof op->nonce) == 0) {
        r = answer_done(op, &attempt.stored.record, err); /* this very verdict, its first answer lost */
    } else if (arm == ONCE_ARM_DONE) {
        op->not_in_effect = true;
        r = write_verdict(p, op, &attempt, err);
        if (r == ONCE_OK)
            r = answer_done(op, &attempt.stored.record, err);
    } else {
        r = answer_operator(p, op, arm, &attempt, err);
    }
    unload(&query);
    return r;
}

/* ------------------------------------------------------------------ forgetting */

/* The record ends as one of which nothing happened, by a grant of its own: what held it is shut out. */
static once_result write_drop(struct sqlite_protocol *p, const struct once_op *op, struct sqlite_attempt *old,
                              struct once_error *err)
{
    struct once_outcome nothing = { .state = ONCE_STATE_FAILED, .retryable = true };
    struct sqlite_claim c = row_of_verdict(p, op, old);
    c.flags = SQLITE_FLAG_FORGOTTEN;
    c.tenant = c.key = once_span_of(NULL, 0);
    once_result r = sqlite_attempt_succeed(p, old, &c, err);
    if (r == ONCE_OK)
        r = sqlite_outcome_insert(p, c.grant, &nothing, SQLITE_STATE_RELEASED, p->now, 0, err);
    old->stored.record.grant = c.grant;
    return r;
}

/* `query` is what `old` was read by: it ends here, for the attempts are read by the same statement. */
static once_result write_forget(struct sqlite_protocol *p, const struct once_op *op, struct sqlite_query *query,
                                struct sqlite_attempt *old, struct once_error *err)
{
    const struct once_forget *forget = &op->request->forget;
    bool drop = forget->drop && !old->stored.released && !once_stored_is_expired(&old->stored, p->now);
    once_result r = drop ? write_drop(p, op, old, err) : ONCE_OK;
    unload(query);
    for (uint64_t fence = old->stored.record.grant.fence, prev; r == ONCE_OK && fence != 0; fence = prev)
        r = sqlite_attempt_erase(p, fence, &prev, err);
    if (r == ONCE_OK)
        r = write_audit(p, op, old->stored.record.grant.fence, drop ? "dropped" : "forgotten", forget->actor,
                        forget->reason, err);
    return r;
}

static once_result do_forget(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    const struct once_forget *forget = &op->request->forget;
    struct sqlite_query query;
    struct sqlite_attempt attempt;
    bool found = false;
    once_result r = load(p, op->record, &query, &attempt, &found, &op->err);
    if (r != ONCE_OK) {
        unload(&query);
        return fail_op(op, r, err);
    }
    enum once_arm arm = once_decide_forget(found ? &attempt.stored : NULL, forget->seen.fence, forget->drop, p->now);
    bool own = found && memcmp(attempt.stored.nonce, op->nonce, sizeof op->nonce) == 0; /* its first answer was lost */
    if (own || (arm == ONCE_ARM_DONE && attempt.stored.record.forgotten && !forget->drop)) {
        r = answer_done(op, &attempt.stored.record, err);
    } else if (arm == ONCE_ARM_DONE) {
        op->not_in_effect = true;
        r = write_forget(p, op, &query, &attempt, err);
        if (r == ONCE_OK)
            r = answer_done(op, &attempt.stored.record, err);
    } else {
        r = answer_operator(p, op, arm, &attempt, err);
    }
    unload(&query);
    return r;
}

once_result sqlite_protocol_do(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    bool done = false;
    once_result r = answer_if_done(p, op, &done, err);
    if (r != ONCE_OK || done)
        return r;
    switch (op->request->verb) {
    case ONCE_VERB_CLAIM:
    case ONCE_VERB_TAKE_OVER:
        return do_claim(p, op, err);
    case ONCE_VERB_EXTEND:
        return do_extend(p, op, err);
    case ONCE_VERB_ADVANCE:
        return do_advance(p, op, err);
    case ONCE_VERB_FINISH:
        return do_finish(p, op, err);
    case ONCE_VERB_RELEASE:
        return do_release(p, op, err);
    case ONCE_VERB_LOOKUP:
        return do_lookup(p, op, err);
    case ONCE_VERB_RESOLVE:
        return do_resolve(p, op, err);
    case ONCE_VERB_FORGET:
        return do_forget(p, op, err);
    }
    return once_fail(err, ONCE_INVALID, "verb %d is unknown", (int)op->request->verb);
}
