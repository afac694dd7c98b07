/*
 * verdict.c - the operator's verbs: resolve an unknown record, forget a record.
 *
 * Each is its own grant, whose fence shuts out a holder that was wrongly thought dead (K3), and adds a row to the audit
 * trail in the same transaction (K5).
 */
#include "core/decide.h"
#include "core/err.h"
#include "core/span.h"
#include "store/sqlite/op.h"
#include "store/sqlite/request.h"

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

/* A verdict is its own grant: its fence shuts out a holder that was wrongly thought dead. */
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
    sqlite_op_set_finished(record, &outcome, p->now, expires_at);
    return sqlite_outcome_insert(p, c.grant, &outcome, release ? ONCE_STORED_RELEASED : (int64_t)outcome.state,
                                 expires_at, sqlite_op_body_until(record, &outcome, p->now), err);
}

/* ------------------------------------------------------------------ forgetting */

/* Ends the record as released, under a new fence that shuts out its holder. */
static once_result write_drop(struct sqlite_protocol *p, const struct once_op *op, struct sqlite_attempt *old,
                              struct once_error *err)
{
    struct once_outcome nothing = { .state = ONCE_STATE_FAILED, .retryable = true };
    struct sqlite_claim c = row_of_verdict(p, op, old);
    c.flags = SQLITE_FLAG_FORGOTTEN;
    c.tenant = c.key = once_span_of(NULL, 0);
    once_result r = sqlite_attempt_succeed(p, old, &c, err);
    if (r == ONCE_OK)
        r = sqlite_outcome_insert(p, c.grant, &nothing, ONCE_STORED_RELEASED, p->now, 0, err);
    old->stored.record.grant = c.grant;
    return r;
}

/* Ends `query`, which read `old`: the same statement reads the other attempts. */
static once_result write_forget(struct sqlite_protocol *p, const struct once_op *op, struct sqlite_query *query,
                                struct sqlite_attempt *old, struct once_error *err)
{
    const struct once_forget *forget = &op->request->forget;
    bool drop = forget->drop && !old->stored.released && !once_stored_is_expired(&old->stored, p->now);
    once_result r = drop ? write_drop(p, op, old, err) : ONCE_OK;
    sqlite_op_unload(query);
    for (uint64_t fence = old->stored.record.grant.fence, prev; r == ONCE_OK && fence != 0; fence = prev)
        r = sqlite_attempt_erase(p, fence, &prev, err);
    if (r == ONCE_OK)
        r = write_audit(p, op, old->stored.record.grant.fence, drop ? "dropped" : "forgotten", forget->actor,
                        forget->reason, err);
    return r;
}

/* ------------------------------------------------------------------ both verbs */

/* The answer if the operation changed nothing. */
static once_result answer_unchanged(struct sqlite_protocol *p, struct once_op *op, enum once_arm arm,
                                    struct sqlite_attempt *attempt, struct once_error *err)
{
    if (arm == ONCE_ARM_ABSENT)
        return sqlite_op_answer(op, arm, NULL, err);
    once_result r = sqlite_op_answer_stored(p, op, arm, attempt, err);
    if (r == ONCE_OK && op->result == ONCE_OK && arm == ONCE_ARM_IN_PROGRESS)
        op->reply.retry_after_ms = op->reply.record.lease_until - p->now;
    return r;
}

/* Whether this is the same call again, after its first answer was lost. */
static bool is_repeated(const struct once_op *op, const struct sqlite_attempt *attempt)
{
    return memcmp(attempt->stored.nonce, op->nonce, sizeof op->nonce) == 0;
}

static once_result apply_verdict(struct sqlite_protocol *p, struct once_op *op, struct sqlite_query *query,
                                 struct sqlite_attempt *attempt, bool found, struct once_error *err)
{
    const struct once_request *request = op->request;
    bool forgets = request->verb == ONCE_VERB_FORGET;
    const struct once_stored *stored = found ? &attempt->stored : NULL;
    enum once_arm arm = forgets ? once_decide_forget(stored, request->forget.seen.fence, request->forget.drop, p->now)
                                : once_decide_resolve(stored, request->resolve.fence, p->now);
    bool nothing_left = forgets && arm == ONCE_ARM_DONE && stored->record.forgotten && !request->forget.drop;
    if ((found && is_repeated(op, attempt)) || nothing_left)
        return sqlite_op_answer_done(op, &attempt->stored.record, err);
    if (arm != ONCE_ARM_DONE)
        return answer_unchanged(p, op, arm, attempt, err);
    op->verified_not_applied = true;
    once_result r = forgets ? write_forget(p, op, query, attempt, err) : write_verdict(p, op, attempt, err);
    return r == ONCE_OK ? sqlite_op_answer_done(op, &attempt->stored.record, err) : r;
}

once_result sqlite_op_verdict(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    struct sqlite_query query;
    struct sqlite_attempt attempt;
    bool found = false;
    once_result r = sqlite_op_load(p, op->record, &query, &attempt, &found, &op->err);
    r = r == ONCE_OK ? apply_verdict(p, op, &query, &attempt, found, err) : sqlite_op_fail(op, r, err);
    sqlite_op_unload(&query);
    return r;
}
