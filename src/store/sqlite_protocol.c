/* sqlite_protocol.c - see sqlite_protocol.h. */
#include "store/sqlite_protocol.h"

#include "core/decide.h"
#include "core/err.h"
#include "core/outcome.h"
#include "core/span.h"
#include "os/os.h"

#include <xxhash.h>

enum { FINGERPRINT_VERSION = 1, STATE_RELEASED = 5 };

/* The columns of record_by_fence.sql, list.sql and check_rows.sql. */
enum {
    C_RECORD, C_PREV, C_ATTEMPT, C_PROBING, C_TAKEOVER, C_CREATED, C_CLAIMED, C_LEASE, C_BOOT, C_RETENTION,
    C_FPVERSION, C_FINGERPRINT, C_NONCE, C_TENANT, C_KEY, C_SUM,
    P_LEASE_UNTIL, P_BOOT, P_POINT, P_POINTS, P_CHECKPOINT,
    R_STATE, R_RETRYABLE, R_STATUS, R_FINISHED, R_EXPIRES, R_OUTCOME, C_FENCE,
};

/* ------------------------------------------------------------------ rows */

struct claim_row {
    struct once_grant grant;
    int64_t prev, attempt, probing, takeover, created_at, claimed_at, lease_ms, boot, retention_ms;
    int64_t fingerprint_version;
    struct once_fingerprint fingerprint;
    uint8_t nonce[16];
    once_span tenant, key;
};

/* Binds all columns of a claim together: a flipped bit anywhere shows (F14). */
static int64_t claim_sum(const struct claim_row *c)
{
    int64_t numbers[] = { (int64_t)c->grant.fence, c->prev,     c->attempt,      c->probing,
                          c->takeover,             c->created_at, c->claimed_at, c->lease_ms,
                          c->boot,                 c->retention_ms, c->fingerprint_version,
                          (int64_t)c->tenant.len,  (int64_t)c->key.len };
    uint8_t bytes[sizeof numbers + 16 + 32 + 16 + ONCE_TENANT_LEN_MAX + ONCE_KEY_LEN_MAX];
    size_t len = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (int b = 0; b < 8; b++)
            bytes[len++] = (uint8_t)((uint64_t)numbers[i] >> (8 * b));
    memcpy(bytes + len, c->grant.record, 16);
    memcpy(bytes + len + 16, c->fingerprint.bytes, 32);
    memcpy(bytes + len + 48, c->nonce, 16);
    len += 64;
    if (c->tenant.len > 0)
        memcpy(bytes + len, c->tenant.ptr, c->tenant.len);
    len += c->tenant.len;
    if (c->key.len > 0)
        memcpy(bytes + len, c->key.ptr, c->key.len);
    len += c->key.len;
    return (int64_t)XXH64(bytes, len, 0);
}

static bool copy_exact(once_span from, uint8_t *to, size_t len)
{
    if (from.len == len)
        memcpy(to, from.ptr, len);
    return from.len == len;
}

static bool claim_row_read(struct sqlite_query *q, struct claim_row *c)
{
    *c = (struct claim_row){
        .grant.fence = (uint64_t)sqlite_column_int(q, C_FENCE),
        .prev = sqlite_column_int(q, C_PREV),
        .attempt = sqlite_column_int(q, C_ATTEMPT),
        .probing = sqlite_column_int(q, C_PROBING),
        .takeover = sqlite_column_int(q, C_TAKEOVER),
        .created_at = sqlite_column_int(q, C_CREATED),
        .claimed_at = sqlite_column_int(q, C_CLAIMED),
        .lease_ms = sqlite_column_int(q, C_LEASE),
        .boot = sqlite_column_int(q, C_BOOT),
        .retention_ms = sqlite_column_int(q, C_RETENTION),
        .fingerprint_version = sqlite_column_int(q, C_FPVERSION),
        .tenant = sqlite_column_span(q, C_TENANT),
        .key = sqlite_column_span(q, C_KEY),
    };
    if (c->tenant.len > ONCE_TENANT_LEN_MAX || c->key.len > ONCE_KEY_LEN_MAX)
        return false;
    bool whole = copy_exact(sqlite_column_span(q, C_RECORD), c->grant.record, 16);
    whole = copy_exact(sqlite_column_span(q, C_FINGERPRINT), c->fingerprint.bytes, 32) && whole;
    whole = copy_exact(sqlite_column_span(q, C_NONCE), c->nonce, 16) && whole;
    return whole && claim_sum(c) == sqlite_column_int(q, C_SUM);
}

static void result_columns_read(struct sqlite_query *q, struct sqlite_attempt *out)
{
    struct once_record *r = &out->stored.record;
    int64_t state = sqlite_column_int(q, R_STATE);
    out->stored.released = state == STATE_RELEASED;
    r->state = out->stored.released ? ONCE_STATE_FAILED : (enum once_state)state;
    r->retryable = sqlite_column_int(q, R_RETRYABLE) != 0;
    r->status = (int32_t)sqlite_column_int(q, R_STATUS);
    r->finished_at = sqlite_column_int(q, R_FINISHED);
    out->superseded_expiry = sqlite_column_is_null(q, R_EXPIRES);
    r->expires_at = out->superseded_expiry ? ONCE_NEVER : sqlite_column_int(q, R_EXPIRES);
    out->outcome = sqlite_column_span(q, R_OUTCOME);
}

void sqlite_attempt_read(struct sqlite_protocol *p, struct sqlite_query *q, struct sqlite_attempt *out)
{
    struct claim_row c;
    bool right = claim_row_read(q, &c);
    *out = (struct sqlite_attempt){ .prev = c.prev, .sum_is_right = right };
    out->stored.lease_ms = c.lease_ms;
    out->stored.probing = c.probing != 0;
    memcpy(out->stored.nonce, c.nonce, 16);
    struct once_record *r = &out->stored.record;
    r->grant = c.grant;
    r->tenant = c.tenant;
    r->key = c.key;
    r->fingerprint = c.fingerprint;
    r->takeover = (enum once_takeover)c.takeover;
    r->attempt = (uint32_t)c.attempt;
    r->retention_ms = c.retention_ms;
    r->created_at = c.created_at;
    r->claimed_at = c.claimed_at;
    out->points = sqlite_column_span(q, P_POINTS);
    r->recovery_point = sqlite_column_span(q, P_POINT);
    r->checkpoint = sqlite_column_span(q, P_CHECKPOINT);
    out->has_result = !sqlite_column_is_null(q, R_STATE);
    if (out->has_result) {
        result_columns_read(q, out);
        return;
    }
    bool renewed = !sqlite_column_is_null(q, P_LEASE_UNTIL);
    r->state = ONCE_STATE_RUNNING;
    r->lease_until = renewed ? sqlite_column_int(q, P_LEASE_UNTIL) : c.claimed_at + c.lease_ms;
    int64_t boot = renewed ? sqlite_column_int(q, P_BOOT) : c.boot;
    /* A lease does not outlive its boot: whoever held it is gone. */
    r->lease_live = boot == p->db->boot && r->lease_until > p->now;
}

once_result sqlite_attempt_decode(struct sqlite_protocol *p, struct sqlite_attempt *attempt, struct once_error *err)
{
    if (!attempt->has_result)
        return ONCE_OK;
    struct once_record *r = &attempt->stored.record;
    uint64_t seal = once_outcome_seal(r->grant, r->state, r->retryable, r->status);
    once_result result = once_outcome_decode(attempt->outcome, seal, &p->scratch, &r->headers, &r->body,
                                             &r->body_dropped, err);
    if (result != ONCE_OK)
        once_error_prefix(err, "record at fence %llu", (unsigned long long)r->grant.fence);
    return result;
}

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
    *s = (struct once_stored){ .record = *record, .lease_ms = claim->lease_ms };
    memcpy(s->nonce, claim->nonce, sizeof s->nonce);
}

/* Whoever takes an entry changes its record: it is used once. */
static bool recent_take(struct sqlite_protocol *p, struct once_grant grant, struct sqlite_attempt *out)
{
    if (p->recent == NULL)
        return false;
    struct once_record *r = &recent_slot(p, grant.fence)->stored.record;
    if (r->grant.fence != grant.fence || memcmp(r->grant.record, grant.record, 16) != 0)
        return false;
    *out = (struct sqlite_attempt){ .stored = recent_slot(p, grant.fence)->stored, .sum_is_right = true };
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
    } else if (!out->sum_is_right || memcmp(out->stored.record.grant.record, record, 16) != 0) {
        r = once_fail(err, ONCE_CORRUPT, "record at fence %llu does not match its checksum",
                      (unsigned long long)fence);
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

/* The op failed by itself; the rest of the transaction is not touched by that. */
static once_result fail_op(struct once_op *op, once_result result)
{
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
        return fail_op(op, r);
    return answer(op, arm, &attempt->stored.record, err);
}

/* ------------------------------------------------------------------ writing */

static once_result write_claim(struct sqlite_protocol *p, const struct claim_row *c, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(p->db, SQL_claim_insert);
    sqlite_bind_int(&q, (int64_t)c->grant.fence);
    sqlite_bind_blob(&q, once_span_of(c->grant.record, 16));
    sqlite_bind_int(&q, c->prev);
    sqlite_bind_int(&q, c->attempt);
    sqlite_bind_int(&q, c->probing);
    sqlite_bind_int(&q, c->takeover);
    if (c->created_at == c->claimed_at)
        sqlite_bind_null(&q);
    else
        sqlite_bind_int(&q, c->created_at);
    sqlite_bind_int(&q, c->claimed_at);
    sqlite_bind_int(&q, c->lease_ms);
    sqlite_bind_int(&q, c->boot);
    sqlite_bind_int(&q, c->retention_ms);
    sqlite_bind_int(&q, c->fingerprint_version);
    sqlite_bind_blob(&q, once_span_of(c->fingerprint.bytes, 32));
    sqlite_bind_blob(&q, once_span_of(c->nonce, 16));
    sqlite_bind_blob(&q, c->tenant);
    if (c->key.len > 0)
        sqlite_bind_blob(&q, c->key);
    else
        sqlite_bind_null(&q);
    sqlite_bind_int(&q, claim_sum(c));
    once_result r = sqlite_run(&q, "store a claim", err);
    return r == ONCE_OK ? sqlite_index_put(p->index, c->grant.record, c->grant.fence, err) : r;
}

static once_result write_result(struct sqlite_protocol *p, uint64_t fence, int64_t state, bool retryable,
                                int32_t status, once_time expires_at, once_span outcome, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(p->db, SQL_result_insert);
    sqlite_bind_int(&q, (int64_t)fence);
    sqlite_bind_int(&q, state);
    sqlite_bind_int(&q, retryable);
    sqlite_bind_int(&q, status);
    sqlite_bind_int(&q, p->now);
    if (expires_at == ONCE_NEVER)
        sqlite_bind_null(&q);
    else
        sqlite_bind_int(&q, expires_at);
    sqlite_bind_blob(&q, outcome);
    return sqlite_run(&q, "store an outcome", err);
}

/* For the outcomes that the store itself makes: encode, then write. */
static once_result write_outcome(struct sqlite_protocol *p, struct once_grant grant, const struct once_outcome *outcome,
                                 int64_t state, once_time expires_at, struct once_error *err)
{
    struct once_buf buf;
    once_buf_init(&buf, outcome->headers.len + outcome->body.len + 64);
    uint64_t seal = once_outcome_seal(grant, outcome->state, outcome->retryable, outcome->status);
    once_result r = once_outcome_encode(outcome, seal, &buf, err);
    if (r == ONCE_OK)
        r = write_result(p, grant.fence, state, outcome->retryable, outcome->status, expires_at,
                         once_buf_span(&buf), err);
    once_buf_release(&buf);
    return r;
}

static once_result write_lease(struct sqlite_protocol *p, uint64_t fence, once_time until, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(p->db, SQL_lease_put);
    sqlite_bind_int(&q, (int64_t)fence);
    sqlite_bind_int(&q, until);
    sqlite_bind_int(&q, p->db->boot);
    return sqlite_run(&q, "renew a lease", err);
}

/* The attempt after `old`: carries its progress over and takes its place at expiry. */
static once_result succeed_attempt(struct sqlite_protocol *p, const struct sqlite_attempt *old,
                                   const struct claim_row *c, struct once_error *err)
{
    once_result r = write_claim(p, c, err);
    if (r == ONCE_OK && old->stored.record.recovery_point.len > 0) {
        struct sqlite_query q = sqlite_query(p->db, SQL_progress_copy);
        sqlite_bind_int(&q, c->prev);
        sqlite_bind_int(&q, (int64_t)c->grant.fence);
        sqlite_bind_int(&q, c->claimed_at + c->lease_ms);
        sqlite_bind_int(&q, c->boot);
        r = sqlite_run(&q, "carry a recovery point over", err);
    }
    if (r == ONCE_OK && old->has_result && !old->superseded_expiry) {
        struct sqlite_query q = sqlite_query(p->db, SQL_result_supersede);
        sqlite_bind_int(&q, c->prev);
        r = sqlite_run(&q, "supersede an outcome", err);
    }
    return r;
}

/* ------------------------------------------------------------------ claim */

static struct claim_row row_of_claim(struct sqlite_protocol *p, const struct once_op *op)
{
    const struct once_claim *claim = &op->request->claim;
    struct claim_row c = {
        .attempt = 1,
        .takeover = claim->takeover,
        .created_at = p->now,
        .claimed_at = p->now,
        .lease_ms = claim->lease_ms,
        .boot = p->db->boot,
        .retention_ms = claim->retention_ms,
        .fingerprint_version = FINGERPRINT_VERSION,
        .fingerprint = claim->fingerprint,
        .tenant = claim->tenant,
        .key = p->keytext ? claim->key : once_span_of(NULL, 0),
    };
    memcpy(c.nonce, claim->nonce, 16);
    memcpy(c.grant.record, op->record, 16);
    c.grant.fence = sqlite_index_next_fence(p->index);
    return c;
}

static struct once_record record_of_row(const struct claim_row *c)
{
    return (struct once_record){
        .grant = c->grant,
        .fingerprint = c->fingerprint,
        .state = ONCE_STATE_RUNNING,
        .lease_live = true,
        .takeover = (enum once_takeover)c->takeover,
        .attempt = (uint32_t)c->attempt,
        .retention_ms = c->retention_ms,
        .created_at = c->created_at,
        .claimed_at = c->claimed_at,
        .lease_until = c->claimed_at + c->lease_ms,
    };
}

static once_result claim_create(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    struct claim_row c = row_of_claim(p, op);
    once_result r = write_claim(p, &c, err);
    struct once_record record = record_of_row(&c);
    recent_put(p, &record, &op->request->claim);
    return r == ONCE_OK ? answer(op, ONCE_ARM_EXECUTE, &record, err) : r;
}

static once_result claim_take(struct sqlite_protocol *p, struct once_op *op, enum once_arm arm,
                              const struct sqlite_attempt *old, struct once_error *err)
{
    struct claim_row c = row_of_claim(p, op);
    c.prev = (int64_t)old->stored.record.grant.fence;
    c.attempt = (int64_t)old->stored.record.attempt + 1;
    c.probing = arm == ONCE_ARM_PROBE;
    c.created_at = old->stored.record.created_at;
    once_result r = succeed_attempt(p, old, &c, err);
    struct once_record record = record_of_row(&c);
    record.recovery_point = old->stored.record.recovery_point;
    record.checkpoint = old->stored.record.checkpoint;
    return r == ONCE_OK ? answer(op, arm, &record, err) : r;
}

static once_result claim_renew(struct sqlite_protocol *p, struct once_op *op, enum once_arm arm,
                               struct sqlite_attempt *own, struct once_error *err)
{
    struct once_record *record = &own->stored.record;
    record->lease_until = p->now + own->stored.lease_ms;
    record->lease_live = true;
    once_result r = write_lease(p, record->grant.fence, record->lease_until, err);
    return r == ONCE_OK ? answer(op, arm, record, err) : r;
}

/* The holder may have sent something and nobody can know (K10): the fact is stored under
 * the holder's own fence, so that its late finish finds the record settled. */
static once_result claim_escalate(struct sqlite_protocol *p, struct once_op *op, struct sqlite_attempt *old,
                                  struct once_error *err)
{
    struct once_outcome unknown = { .state = ONCE_STATE_UNKNOWN };
    once_result r = write_outcome(p, old->stored.record.grant, &unknown, ONCE_STATE_UNKNOWN, ONCE_NEVER, err);
    struct once_record *record = &old->stored.record;
    record->state = ONCE_STATE_UNKNOWN;
    record->lease_until = 0;
    record->finished_at = p->now;
    record->expires_at = ONCE_NEVER;
    return r == ONCE_OK ? answer(op, ONCE_ARM_UNKNOWN, record, err) : r;
}

static once_result do_claim(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    struct sqlite_query query;
    struct sqlite_attempt attempt;
    bool found = false;
    once_result r = load(p, op->record, &query, &attempt, &found, &op->err);
    if (r != ONCE_OK) {
        unload(&query);
        return fail_op(op, r);
    }
    struct once_decision d = once_decide_claim(found ? &attempt.stored : NULL, &op->request->claim, p->now);
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
        if (d.arm == ONCE_ARM_MISMATCH) /* K6: it learns nothing else */
            r = answer(op, d.arm, NULL, err);
        else
            r = answer_stored(p, op, d.arm, &attempt, err);
        break;
    }
    if (r == ONCE_OK && op->reply.arm == ONCE_ARM_IN_PROGRESS)
        op->reply.retry_after_ms = op->reply.record.lease_until - p->now;
    unload(&query);
    return r;
}

/* ------------------------------------------------------------------ what a holder does */

/* A short answer: the caller knows the rest. */
static once_result answer_done(struct once_op *op, const struct once_record *record, struct once_error *err)
{
    struct once_record brief = *record;
    brief.tenant = brief.key = brief.recovery_point = brief.checkpoint = once_span_of(NULL, 0);
    brief.headers = brief.body = once_span_of(NULL, 0);
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
        return fail_op(op, r);
    if (!found)
        return answer(op, ONCE_ARM_FENCED, NULL, err);
    if (attempt->stored.record.grant.fence != op->request->grant.fence)
        return answer_stored(p, op, ONCE_ARM_FENCED, attempt, err);
    *held = true;
    return ONCE_OK;
}

static once_result do_extend(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    struct sqlite_query query;
    struct sqlite_attempt attempt;
    bool held = false;
    once_result r = load_held(p, op, &query, &attempt, &held, err);
    if (held && attempt.has_result) {
        r = answer_stored(p, op, ONCE_ARM_FENCED, &attempt, err);
    } else if (held) {
        int64_t asked = op->request->extend.lease_ms;
        op->not_in_effect = true;
        struct once_record *record = &attempt.stored.record;
        record->lease_until = p->now + (asked != 0 ? asked : attempt.stored.lease_ms);
        record->lease_live = true;
        r = write_lease(p, record->grant.fence, record->lease_until, err);
        if (r == ONCE_OK)
            r = answer_done(op, record, err);
    }
    unload(&query);
    return r;
}

static once_result write_progress(struct sqlite_protocol *p, const struct sqlite_attempt *attempt, once_span point,
                                  once_span checkpoint, once_time lease_until, struct once_error *err)
{
    struct once_buf points;
    once_buf_init(&points, (ONCE_POINT_LEN_MAX + 1) * (ONCE_POINT_COUNT_MAX + 1));
    once_buf_add(&points, attempt->points);
    if (!once_span_equal(attempt->stored.record.recovery_point, point)) {
        once_buf_add(&points, point);
        once_buf_add_byte(&points, '\n');
    }
    struct sqlite_query q = sqlite_query(p->db, SQL_progress_put);
    sqlite_bind_int(&q, (int64_t)attempt->stored.record.grant.fence);
    sqlite_bind_int(&q, lease_until);
    sqlite_bind_int(&q, p->db->boot);
    sqlite_bind_blob(&q, point);
    sqlite_bind_blob(&q, once_buf_span(&points));
    sqlite_bind_blob(&q, checkpoint);
    once_result r = points.result == ONCE_OK ? sqlite_run(&q, "store a recovery point", err)
                                             : once_fail(err, points.result, "no memory for recovery points");
    once_buf_release(&points);
    return r;
}

static once_result do_advance(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    struct sqlite_query query;
    struct sqlite_attempt attempt;
    bool held = false;
    once_result r = load_held(p, op, &query, &attempt, &held, err);
    if (held && attempt.has_result) {
        r = answer_stored(p, op, ONCE_ARM_FENCED, &attempt, err);
    } else if (held) {
        once_span point = op->request->advance.point;
        struct once_record *record = &attempt.stored.record;
        once_result forward = once_point_check(attempt.points, record->recovery_point, point, &op->err);
        if (forward != ONCE_OK) {
            unload(&query);
            return fail_op(op, forward);
        }
        record->lease_until = p->now + attempt.stored.lease_ms;
        record->lease_live = true;
        op->not_in_effect = !once_span_equal(point, record->recovery_point);
        r = write_progress(p, &attempt, point, op->request->advance.checkpoint, record->lease_until, err);
        if (r == ONCE_OK)
            r = answer_done(op, record, err);
    }
    unload(&query);
    return r;
}

/* Is what stands there just what this finish wants to store? Then it is the same call
 * again, its first answer lost. Compared by content where the bytes differ: one of them
 * may not have been compressed. */
static bool is_same_outcome(struct sqlite_protocol *p, struct sqlite_attempt *attempt,
                            const struct once_outcome *outcome, once_span encoded)
{
    const struct once_record *r = &attempt->stored.record;
    if (attempt->stored.released || r->state != outcome->state || r->retryable != outcome->retryable ||
        r->status != outcome->status)
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
            r = answer_stored(p, op, ONCE_ARM_FENCED, &attempt, err);
    } else if (held) {
        struct once_record *record = &attempt.stored.record;
        once_time expires_at = once_expiry(outcome->state, record->retention_ms, p->now);
        op->not_in_effect = true;
        r = write_result(p, record->grant.fence, outcome->state, outcome->retryable, outcome->status, expires_at,
                         op->outcome, err);
        set_finished(record, outcome, p->now, expires_at);
        if (r == ONCE_OK)
            r = answer_done(op, record, err);
    }
    unload(&query);
    return r;
}

/* The attempt had no effect. If it was the first, the key is free again, for anything; an
 * earlier attempt may have had effects, so then the record stays and may be run again. */
static once_result write_release(struct sqlite_protocol *p, const struct sqlite_attempt *attempt,
                                 struct once_grant grant, struct once_error *err)
{
    struct once_outcome nothing = { .state = ONCE_STATE_FAILED, .retryable = true };
    bool first = attempt->stored.record.attempt == 1;
    once_time expires_at = first ? p->now : once_expiry(ONCE_STATE_FAILED, attempt->stored.record.retention_ms, p->now);
    return write_outcome(p, grant, &nothing, first ? STATE_RELEASED : ONCE_STATE_FAILED, expires_at, err);
}

/* What write_release() left for a later attempt; a holder's own finish has a status. */
static bool is_release(const struct sqlite_attempt *attempt)
{
    const struct once_record *r = &attempt->stored.record;
    return attempt->stored.released || (r->state == ONCE_STATE_FAILED && r->retryable && r->status == 0);
}

static once_result do_release(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    struct sqlite_query query;
    struct sqlite_attempt attempt;
    bool held = false;
    once_result r = load_held(p, op, &query, &attempt, &held, err);
    if (held && attempt.has_result) {
        if (is_release(&attempt))
            r = answer(op, ONCE_ARM_DONE, NULL, err);
        else
            r = answer_stored(p, op, ONCE_ARM_FENCED, &attempt, err);
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

static once_result do_lookup(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    struct sqlite_query query;
    struct sqlite_attempt attempt;
    bool found = false;
    once_result r = load(p, op->record, &query, &attempt, &found, &op->err);
    if (r != ONCE_OK)
        r = fail_op(op, r);
    else if (!found || attempt.stored.released || once_stored_is_expired(&attempt.stored, p->now))
        r = answer(op, ONCE_ARM_ABSENT, NULL, err);
    else
        r = answer_stored(p, op, ONCE_ARM_FOUND, &attempt, err);
    unload(&query);
    return r;
}

static once_result write_audit(struct sqlite_protocol *p, const struct once_op *op, uint64_t fence,
                               struct once_error *err)
{
    static const char *const what[] = {
        [ONCE_VERDICT_DONE] = "resolved done",
        [ONCE_VERDICT_NOT_DONE] = "resolved not done",
        [ONCE_VERDICT_RELEASE] = "released",
    };
    const struct once_resolve *resolve = &op->request->resolve;
    struct sqlite_query q = sqlite_query(p->db, SQL_audit_insert);
    sqlite_bind_int(&q, p->now);
    sqlite_bind_blob(&q, once_span_of(op->record, 16));
    sqlite_bind_int(&q, (int64_t)fence);
    sqlite_bind_text(&q, what[resolve->verdict]);
    sqlite_bind_blob(&q, resolve->actor);
    sqlite_bind_blob(&q, resolve->reason);
    return sqlite_run(&q, "write the audit trail", err);
}

/* A verdict is a grant of its own: its fence shuts out a holder that was only thought dead. */
static struct claim_row row_of_verdict(struct sqlite_protocol *p, const struct sqlite_attempt *old)
{
    const struct once_record *record = &old->stored.record;
    struct claim_row c = {
        .prev = (int64_t)record->grant.fence,
        .attempt = record->attempt,
        .takeover = record->takeover,
        .created_at = record->created_at,
        .claimed_at = p->now,
        .lease_ms = old->stored.lease_ms,
        .boot = p->db->boot,
        .retention_ms = record->retention_ms,
        .fingerprint_version = FINGERPRINT_VERSION,
        .fingerprint = record->fingerprint,
        .tenant = record->tenant,
        .key = record->key,
    };
    once_os_random(c.nonce, sizeof c.nonce);
    memcpy(c.grant.record, record->grant.record, 16);
    c.grant.fence = sqlite_index_next_fence(p->index);
    return c;
}

static once_result write_verdict(struct sqlite_protocol *p, const struct once_op *op, struct sqlite_attempt *old,
                                 struct once_error *err)
{
    const struct once_resolve *resolve = &op->request->resolve;
    struct claim_row c = row_of_verdict(p, old);
    once_result r = succeed_attempt(p, old, &c, err);
    if (r == ONCE_OK)
        r = write_audit(p, op, c.grant.fence, err);
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
    return write_outcome(p, c.grant, &outcome, release ? STATE_RELEASED : (int64_t)outcome.state, expires_at, err);
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
        return fail_op(op, r);
    }
    enum once_arm arm = once_decide_resolve(found ? &attempt.stored : NULL, resolve->fence, p->now);
    if (arm == ONCE_ARM_DONE) {
        op->not_in_effect = true;
        r = write_verdict(p, op, &attempt, err);
        if (r == ONCE_OK)
            r = answer_done(op, &attempt.stored.record, err);
    } else if (arm == ONCE_ARM_ABSENT) {
        r = answer(op, arm, NULL, err);
    } else {
        r = answer_stored(p, op, arm, &attempt, err);
    }
    if (r == ONCE_OK && op->result == ONCE_OK && arm == ONCE_ARM_IN_PROGRESS)
        op->reply.retry_after_ms = op->reply.record.lease_until - p->now;
    unload(&query);
    return r;
}

once_result sqlite_protocol_do(struct sqlite_protocol *p, struct once_op *op, struct once_error *err)
{
    switch (op->request->verb) {
    case ONCE_VERB_CLAIM:
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
    }
    return once_fail(err, ONCE_INVALID, "verb %d is unknown", (int)op->request->verb);
}
