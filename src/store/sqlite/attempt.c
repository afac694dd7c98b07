/* attempt.c - see sqlite/attempt.h. */
#include "store/sqlite/attempt.h"

#include "core/err.h"
#include "core/outcome.h"
#include "core/span.h"

#include <xxhash.h>

/* The columns of record_by_fence.sql, list.sql and check_rows.sql. */
enum {
    C_RECORD,
    C_PREV,
    C_ATTEMPT,
    C_FLAGS,
    C_TAKEOVER,
    C_CREATED,
    C_CLAIMED,
    C_LEASE,
    C_BOOT,
    C_RETENTION,
    C_BODY_RETENTION,
    C_FPVERSION,
    C_FINGERPRINT,
    C_NONCE,
    C_TENANT,
    C_KEY,
    C_SUM,
    P_LEASE_UNTIL,
    P_BOOT,
    P_POINT,
    P_POINTS,
    P_CHECKPOINT,
    P_SUM,
    R_STATE,
    R_FLAGS,
    R_STATUS,
    R_FINISHED,
    R_EXPIRES,
    R_BODY_UNTIL,
    R_OUTCOME,
    C_FENCE,
};

/* ------------------------------------------------------------------ rows */

/* The checksum over all columns of a claim: it detects a flipped bit in any of them (FAULT-14). */
static int64_t claim_sum(const struct sqlite_claim *c)
{
    int64_t numbers[] = { (int64_t)c->grant.fence,
                          c->prev,
                          c->attempt,
                          c->flags,
                          c->takeover,
                          c->created_at,
                          c->claimed_at,
                          c->lease_ms,
                          c->boot,
                          c->retention_ms,
                          c->body_retention_ms,
                          c->fingerprint_version,
                          (int64_t)c->tenant.len,
                          (int64_t)c->key.len };
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

struct progress_row {
    uint64_t fence;
    once_time lease_until;
    int64_t boot;
    once_span point, points, checkpoint; /* all empty: there is no point yet */
};

static int64_t progress_sum(const struct progress_row *r)
{
    int64_t numbers[] = { (int64_t)r->fence,     r->lease_until,         r->boot,
                          (int64_t)r->point.len, (int64_t)r->points.len, (int64_t)r->checkpoint.len };
    uint8_t head[sizeof numbers];
    for (size_t i = 0; i < sizeof head; i++)
        head[i] = (uint8_t)((uint64_t)numbers[i / 8] >> (8 * (i % 8)));
    uint64_t sum = XXH64(head, sizeof head, 0);
    sum = XXH64(r->point.ptr, r->point.len, sum);
    sum = XXH64(r->points.ptr, r->points.len, sum);
    return (int64_t)XXH64(r->checkpoint.ptr, r->checkpoint.len, sum);
}

static bool copy_exact(once_span from, uint8_t *to, size_t len)
{
    if (from.len == len)
        memcpy(to, from.ptr, len);
    return from.len == len;
}

static bool claim_row_read(struct sqlite_query *q, struct sqlite_claim *c)
{
    *c = (struct sqlite_claim){
        .grant.fence = (uint64_t)sqlite_column_int(q, C_FENCE),
        .prev = sqlite_column_int(q, C_PREV),
        .attempt = sqlite_column_int(q, C_ATTEMPT),
        .flags = sqlite_column_int(q, C_FLAGS),
        .takeover = sqlite_column_int(q, C_TAKEOVER),
        .created_at = sqlite_column_int(q, C_CREATED),
        .claimed_at = sqlite_column_int(q, C_CLAIMED),
        .lease_ms = sqlite_column_int(q, C_LEASE),
        .boot = sqlite_column_int(q, C_BOOT),
        .retention_ms = sqlite_column_int(q, C_RETENTION),
        .body_retention_ms = sqlite_column_int(q, C_BODY_RETENTION),
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
    out->stored.released = state == ONCE_STORED_RELEASED;
    out->superseded = state == ONCE_STORED_SUPERSEDED;
    r->state = out->stored.released ? ONCE_STATE_FAILED : out->superseded ? ONCE_STATE_UNKNOWN : (enum once_state)state;
    r->retryable = (sqlite_column_int(q, R_FLAGS) & SQLITE_RESULT_RETRYABLE) != 0;
    r->undelivered = (sqlite_column_int(q, R_FLAGS) & SQLITE_RESULT_UNDELIVERED) != 0;
    r->status = (int32_t)sqlite_column_int(q, R_STATUS);
    r->finished_at = sqlite_column_int(q, R_FINISHED);
    out->superseded_expiry = sqlite_column_is_null(q, R_EXPIRES);
    r->expires_at = out->superseded_expiry ? ONCE_NEVER : sqlite_column_int(q, R_EXPIRES);
    out->body_until = sqlite_column_int(q, R_BODY_UNTIL);
    out->outcome = sqlite_column_span(q, R_OUTCOME);
}

void sqlite_attempt_read(struct sqlite_protocol *p, struct sqlite_query *q, struct sqlite_attempt *out)
{
    struct sqlite_claim c;
    bool right = claim_row_read(q, &c);
    *out = (struct sqlite_attempt){ .prev = c.prev, .route = c.flags >> SQLITE_ROUTE_SHIFT, .sum_is_right = right };
    out->stored.lease_ms = c.lease_ms;
    out->stored.probing = (c.flags & SQLITE_FLAG_PROBING) != 0;
    out->stored.intent = (c.flags & SQLITE_FLAG_INTENT) != 0;
    out->stored.has_request = (c.flags & SQLITE_FLAG_REQUEST) != 0;
    out->stored.in_doubt = (c.flags & SQLITE_FLAG_DOUBT) != 0;
    out->stored.record.forgotten = (c.flags & SQLITE_FLAG_FORGOTTEN) != 0;
    memcpy(out->stored.nonce, c.nonce, 16);
    struct once_record *r = &out->stored.record;
    r->grant = c.grant;
    r->tenant = c.tenant;
    r->key = c.key;
    r->fingerprint = c.fingerprint;
    r->takeover = (enum once_takeover)c.takeover;
    r->attempt = (uint32_t)c.attempt;
    r->retention_ms = c.retention_ms;
    r->body_retention_ms = c.body_retention_ms;
    r->created_at = c.created_at;
    r->claimed_at = c.claimed_at;
    out->points = sqlite_column_span(q, P_POINTS);
    r->recovery_point = sqlite_column_span(q, P_POINT);
    r->checkpoint = sqlite_column_span(q, P_CHECKPOINT);
    bool renewed = !sqlite_column_is_null(q, P_LEASE_UNTIL);
    struct progress_row progress = { .fence = c.grant.fence,
                                     .lease_until = sqlite_column_int(q, P_LEASE_UNTIL),
                                     .boot = sqlite_column_int(q, P_BOOT),
                                     .point = r->recovery_point,
                                     .points = out->points,
                                     .checkpoint = r->checkpoint };
    out->progress_sum_is_right = !renewed || progress_sum(&progress) == sqlite_column_int(q, P_SUM);
    out->has_result = !sqlite_column_is_null(q, R_STATE);
    r->has_request = out->stored.has_request;
    if (out->has_result)
        result_columns_read(q, out);
    bool ended = out->has_result && !out->superseded;
    out->released_abandoned =
        !ended && renewed && progress.lease_until == c.claimed_at; /* no real lease has length 0 */
    if (out->has_result) {
        r->has_request = r->has_request && (r->retryable || r->state == ONCE_STATE_UNKNOWN);
        r->body_expired = !out->stored.released && once_record_is_tombstone(r, p->now);
        return;
    }
    r->state = ONCE_STATE_RUNNING;
    r->lease_until = renewed ? sqlite_column_int(q, P_LEASE_UNTIL) : c.claimed_at + c.lease_ms;
    int64_t boot = renewed ? sqlite_column_int(q, P_BOOT) : c.boot;
    /* A lease does not outlive its boot: its holder ended with the machine. */
    r->lease_live = boot == p->db->boot && r->lease_until > p->now;
}

once_result sqlite_attempt_decode(struct sqlite_protocol *p, struct sqlite_attempt *attempt, struct once_error *err)
{
    if (!attempt->has_result)
        return ONCE_OK;
    struct once_record *r = &attempt->stored.record;
    struct once_outcome ended = once_outcome_of(r);
    uint64_t sum_seed = once_outcome_sum_seed(r->grant, &ended);
    once_result result =
        once_outcome_decode(attempt->outcome, sum_seed, &p->scratch, &r->headers, &r->body, &r->body_dropped, err);
    if (result != ONCE_OK)
        once_error_prefix(err, "record at fence %llu", (unsigned long long)r->grant.fence);
    attempt->kept = r->headers.len > 0 || r->body.len > 0;
    if (r->body_expired) /* whether or not expiry has dropped it already (K8) */
        once_record_expire_body(r);
    return result;
}

/* ------------------------------------------------------------------ writing */

once_result sqlite_attempt_insert(struct sqlite_protocol *p, const struct sqlite_claim *c, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(p->db, SQL_claim_insert);
    sqlite_bind_int(&q, (int64_t)c->grant.fence);
    sqlite_bind_blob(&q, once_span_of(c->grant.record, 16));
    sqlite_bind_int(&q, c->prev);
    sqlite_bind_int(&q, c->attempt);
    sqlite_bind_int(&q, c->flags);
    sqlite_bind_int(&q, c->takeover);
    if (c->created_at == c->claimed_at)
        sqlite_bind_null(&q);
    else
        sqlite_bind_int(&q, c->created_at);
    sqlite_bind_int(&q, c->claimed_at);
    sqlite_bind_int(&q, c->lease_ms);
    sqlite_bind_int(&q, c->boot);
    sqlite_bind_int(&q, c->retention_ms);
    sqlite_bind_int(&q, c->body_retention_ms);
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

once_result sqlite_result_insert(struct sqlite_protocol *p, uint64_t fence, int64_t state,
                                 const struct once_outcome *outcome, once_time expires_at, once_time body_until,
                                 once_span encoded, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(p->db, SQL_result_insert);
    sqlite_bind_int(&q, (int64_t)fence);
    sqlite_bind_int(&q, state);
    sqlite_bind_int(&q, (outcome->retryable ? SQLITE_RESULT_RETRYABLE : 0) |
                            (outcome->undelivered ? SQLITE_RESULT_UNDELIVERED : 0));
    sqlite_bind_int(&q, outcome->status);
    sqlite_bind_int(&q, p->now);
    if (expires_at == ONCE_NEVER)
        sqlite_bind_null(&q);
    else
        sqlite_bind_int(&q, expires_at);
    if (body_until == 0 || encoded.len <= ONCE_OUTCOME_LEN_MIN) /* there is nothing to drop */
        sqlite_bind_null(&q);
    else
        sqlite_bind_int(&q, body_until);
    sqlite_bind_blob(&q, encoded);
    return sqlite_run(&q, "store an outcome", err);
}

once_result sqlite_outcome_insert(struct sqlite_protocol *p, struct once_grant grant,
                                  const struct once_outcome *outcome, int64_t state, once_time expires_at,
                                  once_time body_until, struct once_error *err)
{
    struct once_buf buf;
    once_buf_init(&buf, outcome->headers.len + outcome->body.len + 64);
    once_result r = once_outcome_encode(outcome, once_outcome_sum_seed(grant, outcome), &buf, err);
    if (r == ONCE_OK)
        r = sqlite_result_insert(p, grant.fence, state, outcome, expires_at, body_until, once_buf_span(&buf), err);
    once_buf_release(&buf);
    return r;
}

/* ------------------------------------------------------------------ erasing */

static once_result erase_claim(struct sqlite_protocol *p, struct sqlite_claim *c, struct once_error *err)
{
    c->flags = (c->flags & ~SQLITE_FLAG_REQUEST) | SQLITE_FLAG_FORGOTTEN;
    c->tenant = c->key = once_span_of(NULL, 0);
    struct sqlite_query q = sqlite_query(p->db, SQL_claim_forget);
    sqlite_bind_int(&q, (int64_t)c->grant.fence);
    sqlite_bind_int(&q, c->flags);
    sqlite_bind_int(&q, claim_sum(c));
    return sqlite_run(&q, "erase a claim's names", err);
}

/* Replaces the outcome by "executed, the answer is not kept", as for an answer that was too large. */
static once_result erase_outcome(struct sqlite_protocol *p, const struct once_record *r, struct once_error *err)
{
    struct once_outcome left = once_outcome_of(r);
    left.body_dropped = true;
    struct once_buf buf;
    once_buf_init(&buf, 64);
    once_result result = once_outcome_encode(&left, once_outcome_sum_seed(r->grant, &left), &buf, err);
    if (result == ONCE_OK) {
        struct sqlite_query q = sqlite_query(p->db, SQL_result_forget);
        sqlite_bind_int(&q, (int64_t)r->grant.fence);
        sqlite_bind_blob(&q, once_buf_span(&buf));
        result = sqlite_run(&q, "erase an answer", err);
    }
    once_buf_release(&buf);
    return result;
}

static once_result erase_rows(struct sqlite_protocol *p, enum sqlite_statement table, uint64_t fence,
                              struct once_error *err)
{
    struct sqlite_query q = sqlite_query(p->db, table);
    sqlite_bind_int(&q, (int64_t)fence);
    sqlite_bind_int(&q, (int64_t)fence);
    return sqlite_run(&q, "erase an attempt", err);
}

once_result sqlite_attempt_erase(struct sqlite_protocol *p, uint64_t fence, uint64_t *prev, struct once_error *err)
{
    *prev = 0;
    struct sqlite_query q = sqlite_query(p->db, SQL_record_by_fence);
    sqlite_bind_int(&q, (int64_t)fence);
    struct sqlite_claim c;
    struct sqlite_attempt attempt;
    bool found = sqlite_step(&q), right = false, speaks = false;
    once_result r = ONCE_OK;
    if (found) {
        right = claim_row_read(&q, &c); /* a damaged row must not get a right checksum */
        sqlite_attempt_read(p, &q, &attempt);
        if (right && attempt.has_result)
            r = sqlite_attempt_decode(p, &attempt, err);
        speaks = attempt.kept; /* even if its own retention is over and expiry has not dropped it yet */
    }
    once_result end = sqlite_end(&q, "read an attempt", r == ONCE_OK ? err : NULL);
    if (r == ONCE_OK)
        r = end;
    if (r != ONCE_OK || !found)
        return r;
    if (!right)
        return once_fail(err, ONCE_CORRUPT, "record at fence %llu does not match its checksum",
                         (unsigned long long)fence);
    *prev = (uint64_t)c.prev;
    r = erase_claim(p, &c, err);
    if (r == ONCE_OK && speaks)
        r = erase_outcome(p, &attempt.stored.record, err);
    if (r == ONCE_OK)
        r = erase_rows(p, SQL_progress_delete, fence, err);
    if (r == ONCE_OK)
        r = erase_rows(p, SQL_request_delete, fence, err);
    return r;
}

/* ------------------------------------------------------------------ progress */

static once_result progress_write(struct sqlite_protocol *p, const struct progress_row *r, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(p->db, SQL_progress_put);
    sqlite_bind_int(&q, (int64_t)r->fence);
    sqlite_bind_int(&q, r->lease_until);
    sqlite_bind_int(&q, r->boot);
    const once_span *spans[] = { &r->point, &r->points, &r->checkpoint };
    for (size_t i = 0; i < 3; i++) {
        if (r->point.len > 0)
            sqlite_bind_blob(&q, *spans[i]);
        else
            sqlite_bind_null(&q);
    }
    sqlite_bind_int(&q, progress_sum(r));
    return sqlite_run(&q, "store progress", err);
}

once_result sqlite_lease_put(struct sqlite_protocol *p, const struct sqlite_attempt *attempt, once_time until,
                             struct once_error *err)
{
    const struct once_record *record = &attempt->stored.record;
    struct progress_row r = { record->grant.fence,    until,           p->db->boot,
                              record->recovery_point, attempt->points, record->checkpoint };
    return progress_write(p, &r, err);
}

once_result sqlite_attempt_succeed(struct sqlite_protocol *p, const struct sqlite_attempt *old,
                                   const struct sqlite_claim *c, struct once_error *err)
{
    once_result r = sqlite_attempt_insert(p, c, err);
    if (r == ONCE_OK && old->stored.record.recovery_point.len > 0) {
        struct progress_row row = { c->grant.fence, c->claimed_at + c->lease_ms,
                                    c->boot,        old->stored.record.recovery_point,
                                    old->points,    old->stored.record.checkpoint };
        r = progress_write(p, &row, err);
    }
    if (r == ONCE_OK && !old->has_result) {
        struct once_outcome nothing = { .state = ONCE_STATE_UNKNOWN };
        r = sqlite_outcome_insert(p, old->stored.record.grant, &nothing, ONCE_STORED_SUPERSEDED, ONCE_NEVER, 0, err);
    }
    if (r == ONCE_OK && old->has_result && !old->superseded_expiry) {
        struct sqlite_query q = sqlite_query(p->db, SQL_result_supersede);
        sqlite_bind_int(&q, c->prev);
        r = sqlite_run(&q, "supersede an outcome", err);
    }
    return r;
}

once_result sqlite_progress_put(struct sqlite_protocol *p, const struct sqlite_attempt *attempt, once_span point,
                                once_span checkpoint, const uint8_t nonce[16], once_time lease_until,
                                struct once_error *err)
{
    struct once_buf points;
    once_buf_init(&points, (ONCE_POINT_LEN_MAX + 11) * (ONCE_POINT_COUNT_MAX + 1));
    once_buf_add(&points, attempt->points);
    if (!once_span_equal(attempt->stored.record.recovery_point, point)) {
        once_buf_add(&points, point);
        once_buf_addf(&points, " %02x%02x%02x%02x\n", nonce[0], nonce[1], nonce[2], nonce[3]);
    }
    struct progress_row row = {
        attempt->stored.record.grant.fence, lease_until, p->db->boot, point, once_buf_span(&points), checkpoint
    };
    once_result r = points.result == ONCE_OK ? progress_write(p, &row, err)
                                             : once_fail(err, points.result, "no memory for recovery points");
    once_buf_release(&points);
    return r;
}
