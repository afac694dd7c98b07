/* op.c - see redis/op.h. */
#include "store/redis/op.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/outcome.h"
#include "core/span.h"

#include <inttypes.h>
#include <stdio.h>

/* Milliseconds that records of tests outlive their expiry by the test's clock: Redis goes by its own clock. */
enum { LINGER_MS = 3600 * 1000 };

void redis_record_text(const uint8_t record[16], char out[33])
{
    for (int i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", record[i]);
}

/* ------------------------------------------------------------------ reading */

struct reader {
    const uint8_t *at;
};

static uint64_t take(struct reader *r, int len)
{
    uint64_t value = 0;
    for (int i = 0; i < len; i++)
        value = value << 8 | *r->at++;
    return value;
}

static void read_head(struct reader *in, struct redis_meta *out, unsigned *state)
{
    struct once_record *r = &out->stored.record;
    take(in, 1);
    *state = (unsigned)take(in, 1);
    out->flags = (unsigned)take(in, 2);
    r->takeover = (enum once_takeover)take(in, 1);
    r->attempt = (uint32_t)take(in, 4);
    r->status = (int32_t)(uint32_t)take(in, 4);
    r->grant.fence = take(in, 8);
    out->first = take(in, 8);
    r->created_at = (once_time)take(in, 8);
    r->claimed_at = (once_time)take(in, 8);
    out->stored.lease_ms = (int64_t)take(in, 8);
    r->lease_until = (once_time)take(in, 8);
    r->retention_ms = (int64_t)take(in, 8);
    r->finished_at = (once_time)take(in, 8);
    r->expires_at = (once_time)take(in, 8);
    r->body_retention_ms = (int64_t)take(in, 8);
    memcpy(r->fingerprint.bytes, in->at, 32);
    memcpy(out->stored.nonce, in->at + 32, 16);
}

bool redis_meta_read(once_span m, once_time now, struct redis_meta *out)
{
    *out = (struct redis_meta){ .flags = 0 };
    if (m.len != REDIS_META_LEN || m.ptr[0] != REDIS_META_VERSION)
        return false;
    struct reader in = { m.ptr };
    unsigned state;
    read_head(&in, out, &state);
    if (state < ONCE_STATE_RUNNING || state > ONCE_STORED_SUPERSEDED)
        return false;
    struct once_stored *s = &out->stored;
    s->released = state == ONCE_STORED_RELEASED;
    out->superseded = state == ONCE_STORED_SUPERSEDED;
    out->has_result = state != ONCE_STATE_RUNNING;
    s->record.state = s->released ? ONCE_STATE_FAILED : out->superseded ? ONCE_STATE_UNKNOWN : (enum once_state)state;
    s->probing = (out->flags & REDIS_PROBING) != 0;
    s->intent = (out->flags & REDIS_INTENT) != 0;
    s->has_request = (out->flags & REDIS_REQUEST) != 0;
    s->in_doubt = (out->flags & REDIS_DOUBT) != 0;
    s->record.retryable = (out->flags & REDIS_RETRYABLE) != 0;
    s->record.undelivered = (out->flags & REDIS_UNDELIVERED) != 0;
    s->record.has_request = s->has_request;
    s->record.body_expired = !s->released && !out->superseded && once_record_is_tombstone(&s->record, now);
    s->record.lease_live = state == ONCE_STATE_RUNNING && s->record.lease_until > now;
    return true;
}

once_result redis_outcome_read(const struct redis_meta *meta, once_span outcome, struct once_buf *scratch,
                               struct once_record *record, struct once_error *err)
{
    if (record->body_expired) { /* whether or not it is still there (K8) */
        once_record_expire_body(record);
        return ONCE_OK;
    }
    if (outcome.len == 0 && (meta->flags & REDIS_APART) != 0)
        record->body_dropped = true;           /* evicted early: do not show it as an empty answer */
    if (!meta->has_result || outcome.len == 0) /* attempts that the script itself ended have no outcome */
        return ONCE_OK;
    struct once_grant grant = record->grant;
    if ((meta->flags & REDIS_VERDICT) != 0)
        grant.fence = 0;
    struct once_outcome ended = once_outcome_of(record);
    uint64_t sum_seed = once_outcome_sum_seed(grant, &ended);
    once_result r =
        once_outcome_decode(outcome, sum_seed, scratch, &record->headers, &record->body, &record->body_dropped, err);
    if (r != ONCE_OK)
        once_error_prefix(err, "record at fence %" PRIu64, record->grant.fence);
    return r;
}

/* ------------------------------------------------------------------ calling */

enum { ARGS_MAX = 32, NUMBERS_MAX = 16 };

struct args {
    once_span list[ARGS_MAX];
    int count;
    char numbers[NUMBERS_MAX][24];
    int number_count;
};

static void add(struct args *a, once_span value)
{
    assert(a->count < ARGS_MAX);
    a->list[a->count++] = value;
}

static void add_int(struct args *a, int64_t value)
{
    assert(a->number_count < NUMBERS_MAX);
    char *text = a->numbers[a->number_count++];
    snprintf(text, sizeof a->numbers[0], "%" PRId64, value);
    add(a, once_span_str(text));
}

static void add_bool(struct args *a, bool value)
{
    add(a, value ? ONCE_LIT("1") : ONCE_LIT("0"));
}

static const char *verb_of(enum once_verb verb)
{
    static const char *const names[] = {
        [ONCE_VERB_CLAIM] = "claim",     [ONCE_VERB_EXTEND] = "extend",   [ONCE_VERB_ADVANCE] = "advance",
        [ONCE_VERB_FINISH] = "finish",   [ONCE_VERB_RELEASE] = "release", [ONCE_VERB_LOOKUP] = "lookup",
        [ONCE_VERB_RESOLVE] = "resolve", [ONCE_VERB_TAKE_OVER] = "take",
    };
    return names[verb];
}

static void add_claim(struct args *a, const struct once_claim *c, bool keytext)
{
    add(a, once_span_of(c->fingerprint.bytes, 32));
    add_int(a, c->lease_ms);
    add_int(a, c->retention_ms);
    add_int(a, c->takeover);
    add_bool(a, c->intent);
    add(a, once_span_of(c->nonce, 16));
    add(a, c->tenant);
    add(a, keytext ? c->key : once_span_of(NULL, 0));
    add(a, c->request);
    add_int(a, c->body_retention_ms);
    add_int(a, c->key_time && c->retention_ms != ONCE_NEVER ? once_key_time(c->key) : -1);
}

/* The verdict's outcome, sealed without its fence: the script takes that from the sequence. */
static once_result add_resolve(struct args *a, const struct once_op *op, struct once_buf *outcome,
                               struct once_error *err)
{
    const struct once_resolve *v = &op->request->resolve;
    bool done = v->verdict == ONCE_VERDICT_DONE;
    once_result r = ONCE_OK;
    if (done) {
        struct once_grant grant = { .fence = 0 };
        memcpy(grant.record, op->record, sizeof grant.record);
        r = once_outcome_encode(&v->outcome, once_outcome_sum_seed(grant, &v->outcome), outcome, err);
    }
    add_int(a, (int64_t)v->fence);
    add_int(a, v->verdict);
    add_int(a, done ? v->outcome.state : 0);
    add_int(a, done ? v->outcome.status : 0);
    add(a, once_buf_span(outcome));
    add(a, once_span_of(op->nonce, 16));
    add(a, v->actor);
    add(a, v->reason);
    return r;
}

static void add_holders(struct args *a, const struct once_op *op, char call[9])
{
    const struct once_request *q = op->request;
    add_int(a, (int64_t)q->grant.fence);
    switch (q->verb) {
    case ONCE_VERB_EXTEND:
        add_int(a, q->extend.lease_ms);
        break;
    case ONCE_VERB_ADVANCE:
        snprintf(call, 9, "%02x%02x%02x%02x", op->nonce[0], op->nonce[1], op->nonce[2], op->nonce[3]);
        add(a, q->advance.point);
        add(a, q->advance.checkpoint);
        add(a, once_span_str(call));
        break;
    case ONCE_VERB_FINISH:
        add_int(a, q->outcome.state);
        add_bool(a, q->outcome.retryable);
        add_int(a, q->outcome.status);
        add(a, op->outcome);
        add_bool(a, q->outcome.undelivered);
        break;
    default:
        break;
    }
}

static void add_take_over(struct args *a, const struct once_take_over *t)
{
    add_int(a, (int64_t)t->seen.fence);
    add_int(a, t->lease_ms);
    add_bool(a, t->intent);
    add(a, once_span_of(t->nonce, 16));
}

static void add_context(struct args *a, const struct redis_context *x, const struct once_op *op, const char *id)
{
    add(a, once_span_str(verb_of(op->request->verb)));
    add(a, once_span_str(x->handle));
    add_int(a, x->now);
    add_int(a, x->now != 0 ? LINGER_MS : 0);
    add_bool(a, x->sync || op->again); /* again: an earlier try's write may still wait for its replicas */
    add_bool(a, op->again);
    add_int(a, (int64_t)x->floor);
    add(a, once_span_str(id));
}

once_result redis_op_put(struct redis_conn *c, const struct redis_context *x, const struct once_op *op,
                         struct once_error *err)
{
    char id[33], keys[7][REDIS_PREFIX_MAX + 40], call[9];
    static const char *const names[7] = { "r:", "h:", "a:", "open", "fence", "witness", "b:" };
    struct args a = { .count = 0 };
    struct once_buf outcome;
    once_buf_init(&outcome, ONCE_OUTCOME_LEN_MAX);
    redis_record_text(op->record, id);
    add(&a, ONCE_LIT("EVALSHA"));
    add(&a, once_span_str(x->sha));
    add(&a, ONCE_LIT("7"));
    for (int i = 0; i < 7; i++) {
        snprintf(keys[i], sizeof keys[i], "%s%s%s", x->url->prefix, names[i], i < 3 || i == 6 ? id : "");
        add(&a, once_span_str(keys[i]));
    }
    add_context(&a, x, op, id);
    once_result r = ONCE_OK;
    switch (op->request->verb) {
    case ONCE_VERB_CLAIM:
        add_claim(&a, &op->request->claim, x->url->keytext);
        break;
    case ONCE_VERB_TAKE_OVER:
        add_take_over(&a, &op->request->take_over);
        break;
    case ONCE_VERB_LOOKUP:
        add_bool(&a, op->request->lookup.request);
        break;
    case ONCE_VERB_RESOLVE:
        r = add_resolve(&a, op, &outcome, err);
        break;
    default:
        add_holders(&a, op, call);
    }
    if (r == ONCE_OK) {
        size_t before = c->out.len;
        redis_conn_put(c, a.count, a.list);
        if (c->out.result != ONCE_OK) { /* remove the incomplete command; the others are whole */
            r = once_fail(err, c->out.result, "no room for a request of this size");
            c->out.len = before;
            c->out.result = ONCE_OK;
        }
    }
    once_buf_release(&outcome);
    return r;
}

/* ------------------------------------------------------------------ answers */

static once_result not_ours(struct once_error *err)
{
    return once_fail(err, ONCE_CORRUPT, "Redis answered a script with an unexpected reply");
}

static once_span span_at(const redisReply *reply, size_t i)
{
    if (i >= reply->elements || reply->element[i]->type != REDIS_REPLY_STRING)
        return once_span_of(NULL, 0);
    return once_span_of(reply->element[i]->str, (size_t)reply->element[i]->len);
}

/* The script compares checksums, but one outcome has two encodings if only one of them was compressed. */
static bool is_same_outcome(const struct once_op *op, const struct redis_meta *meta, const struct once_record *record)
{
    if (op->request->verb != ONCE_VERB_FINISH || record->grant.fence != op->request->grant.fence)
        return false;
    const struct once_outcome *o = &op->request->outcome;
    if (!meta->has_result || record->body_expired || meta->superseded || meta->stored.released ||
        !once_outcome_is_of(o, record))
        return false;
    struct once_buf scratch;
    once_buf_init(&scratch, ONCE_BODY_LEN_MAX + 1);
    once_span headers, body;
    bool dropped = false;
    uint64_t sum_seed = once_outcome_sum_seed(record->grant, o);
    bool same = once_outcome_decode(op->outcome, sum_seed, &scratch, &headers, &body, &dropped, NULL) == ONCE_OK &&
                dropped == record->body_dropped && once_span_equal(headers, record->headers) &&
                once_span_equal(body, record->body);
    once_buf_release(&scratch);
    return same;
}

static once_result take_record(const redisReply *reply, struct once_op *op, enum once_arm arm, once_time now,
                               struct once_buf *scratch, struct once_error *err)
{
    struct redis_meta meta;
    if (!redis_meta_read(span_at(reply, 4), now, &meta)) {
        op->result = not_ours(&op->err);
        return ONCE_OK;
    }
    struct once_record *record = &meta.stored.record;
    memcpy(record->grant.record, op->record, sizeof op->record);
    record->tenant = span_at(reply, 5);
    record->key = span_at(reply, 6);
    record->recovery_point = span_at(reply, 7);
    record->checkpoint = span_at(reply, 8);
    record->request = span_at(reply, 10);
    once_buf_clear(scratch);
    once_result r = redis_outcome_read(&meta, span_at(reply, 9), scratch, record, &op->err);
    if (r != ONCE_OK) {
        op->result = r;
        return r == ONCE_NO_MEMORY ? r : ONCE_OK;
    }
    if (arm == ONCE_ARM_FENCED && is_same_outcome(op, &meta, record))
        arm = ONCE_ARM_DONE;
    if (arm == ONCE_ARM_DONE) /* a short answer: the caller knows the rest */
        record->tenant = record->key = record->recovery_point = record->checkpoint = record->headers = record->body =
            record->request = once_span_of(NULL, 0);
    if (arm == ONCE_ARM_DONE && op->request->verb == ONCE_VERB_FINISH)
        record->body_dropped = op->request->outcome.body_dropped;
    if (arm == ONCE_ARM_DONE && op->request->verb == ONCE_VERB_RESOLVE)
        record->body_dropped = op->request->resolve.outcome.body_dropped;
    op->result = ONCE_OK;
    r = once_reply_set(&op->reply, arm, record, err);
    if (r == ONCE_OK && arm == ONCE_ARM_IN_PROGRESS)
        op->reply.retry_after_ms = record->lease_live ? record->lease_until - now : ONCE_COMPLETER_PAUSE_MS;
    return r;
}

/* { result, text, ... } */
static void take_refusal(const redisReply *reply, struct once_op *op)
{
    once_span text = span_at(reply, 1);
    long long code = reply->element[0]->integer;
    once_result result = code == ONCE_INVALID || code == ONCE_LIMIT ? (once_result)code : ONCE_CORRUPT;
    op->result = once_fail(&op->err, result, "%.*s", text.len < 300 ? (int)text.len : 300,
                           text.ptr != NULL ? (const char *)text.ptr : "");
}

once_result redis_op_take(const redisReply *reply, struct once_op *op, struct once_buf *scratch, uint64_t *writes,
                          struct once_error *err)
{
    *writes = 0;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 4 || reply->element[0]->type != REDIS_REPLY_INTEGER ||
        reply->element[2]->type != REDIS_REPLY_INTEGER || reply->element[3]->type != REDIS_REPLY_INTEGER) {
        op->result = not_ours(&op->err);
        return ONCE_OK;
    }
    *writes = (uint64_t)reply->element[3]->integer;
    if (reply->element[0]->integer != 0) {
        take_refusal(reply, op);
        return ONCE_OK;
    }
    long long said = reply->element[1]->integer;
    if (said < ONCE_ARM_EXECUTE || said > ONCE_ARM_EXPIRED) {
        op->result = not_ours(&op->err);
        return ONCE_OK;
    }
    enum once_arm arm = (enum once_arm)said;
    if (reply->elements > 4)
        return take_record(reply, op, arm, reply->element[2]->integer, scratch, err);
    op->result = ONCE_OK;
    return once_reply_set(&op->reply, arm, NULL, err);
}
