/*
 * check.c - checks the invariants of a store in Redis: each record against itself, its key, its time to live and the
 * set of unfinished records (PREFIX:open).
 *
 * A step of a check is a step of SCAN. Lost writes leave no trace that a check could find; redis/open.c counts them.
 */
#include "store/redis/store.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "store/gather.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct check {
    struct redis_store *s;
    struct gather_problems to;
    once_time now;
    uint64_t newest; /* fence given */
};

static once_span span_of(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING ? once_span_of(reply->str, (size_t)reply->len) : once_span_of(NULL, 0);
}

/* The commands sent for each record. */
enum { Q_FIELDS, Q_TTL, Q_ATTEMPTS, Q_OPEN, Q_BODY, Q_COUNT };

static void put_questions(struct check *c, once_span key, const char *id)
{
    char hist[REDIS_PREFIX_MAX + 40], body[REDIS_PREFIX_MAX + 40], open[REDIS_PREFIX_MAX + 8];
    snprintf(body, sizeof body, "%sb:%s", c->s->url.prefix, id);
    snprintf(hist, sizeof hist, "%sh:%s", c->s->url.prefix, id);
    snprintf(open, sizeof open, "%sopen", c->s->url.prefix);
    struct redis_conn *conn = &c->s->conn;
    redis_conn_put(conn, 7,
                   (once_span[]){ ONCE_LIT("HMGET"), key, ONCE_LIT("m"), ONCE_LIT("t"), ONCE_LIT("k"), ONCE_LIT("o"),
                                  ONCE_LIT("p") });
    redis_conn_put(conn, 2, (once_span[]){ ONCE_LIT("PTTL"), key });
    redis_conn_put(conn, 2, (once_span[]){ ONCE_LIT("LLEN"), once_span_str(hist) });
    redis_conn_put(conn, 3, (once_span[]){ ONCE_LIT("ZSCORE"), once_span_str(open), once_span_str(id) });
    redis_conn_put(conn, 2, (once_span[]){ ONCE_LIT("GET"), once_span_str(body) });
}

static void check_place(struct check *c, const struct redis_meta *m, long long ttl, const redisReply *score)
{
    const struct once_record *r = &m->stored.record;
    uint64_t fence = r->grant.fence;
    bool open = r->state == ONCE_STATE_RUNNING || (r->state == ONCE_STATE_FAILED && r->retryable);
    bool stays = r->state == ONCE_STATE_RUNNING || r->state == ONCE_STATE_UNKNOWN;
    if (stays && ttl >= 0)
        gather_problem(&c->to, "K7", fence, "will be removed in %lld ms, and is not finished", ttl);
    if (!stays && ttl == -1)
        gather_problem(&c->to, "K8", fence, "is finished, and will never be removed");
    if (open && !m->stored.released && (score->type != REDIS_REPLY_STRING || strtoull(score->str, NULL, 10) != fence))
        gather_problem(&c->to, "K7", fence, "is not finished, and no completer will find it");
    if (fence > c->newest)
        gather_problem(&c->to, "K2", fence, "the last fence given is %" PRIu64, c->newest);
}

static void check_record(struct check *c, once_span key, const char *id, redisReply *const answers[Q_COUNT])
{
    const redisReply *fields = answers[Q_FIELDS];
    struct redis_meta m;
    if (fields->type == REDIS_REPLY_ARRAY && fields->elements == 5 && fields->element[0]->type == REDIS_REPLY_NIL)
        return; /* it expired between SCAN and here */
    if (fields->type != REDIS_REPLY_ARRAY || fields->elements != 5 ||
        !redis_meta_read(span_of(fields->element[0]), c->now, &m)) {
        gather_problem(&c->to, "format", 0, "the key '%.*s' holds no record", ONCE_SPAN_ARGS(key));
        return;
    }
    struct once_record *r = &m.stored.record;
    r->tenant = span_of(fields->element[1]);
    r->key = span_of(fields->element[2]);
    r->recovery_point = span_of(fields->element[4]);
    uint8_t own[16];
    char text[33];
    once_record_id(&c->s->base.secret, r->tenant, r->key, own);
    redis_record_text(own, text);
    if (r->key.len > 0 && strcmp(text, id) != 0)
        gather_problem(&c->to, "K9", r->grant.fence, "the record id is not that of its tenant and key");
    if (r->key.len > 0)
        memcpy(r->grant.record, own, sizeof own);
    const char *fault = once_record_fault(r);
    if (fault != NULL && !m.stored.released)
        gather_problem(&c->to, "format", r->grant.fence, "%s", fault);
    check_place(c, &m, answers[Q_TTL]->integer, answers[Q_OPEN]);
    bool finished = m.has_result && !m.stored.released && r->state != ONCE_STATE_UNKNOWN;
    if (finished && r->expires_at != r->finished_at + r->retention_ms)
        gather_problem(&c->to, "K8", r->grant.fence, "expires %lld ms after its finish, its retention is %lld",
                       (long long)(r->expires_at - r->finished_at), (long long)r->retention_ms);
    struct once_error err;
    once_span outcome = (m.flags & REDIS_APART) != 0 ? span_of(answers[Q_BODY]) : span_of(fields->element[3]);
    if (r->key.len > 0 && redis_outcome_read(&m, outcome, &c->s->scratch, r, &err) != ONCE_OK)
        gather_problem(&c->to, "FAULT-14", r->grant.fence, "%s", err.text);
    once_buf_clear(&c->s->scratch);
    c->to.report->attempts += 1 + (uint64_t)answers[Q_ATTEMPTS]->integer;
    c->to.report->records += !m.stored.released && !once_stored_is_expired(&m.stored, c->now);
}

/* The record's id: the rest of a key after the prefix. */
static const char *id_of(const struct check *c, const redisReply *key)
{
    size_t skip = strlen(c->s->url.prefix) + 2;
    return key->type == REDIS_REPLY_STRING && (size_t)key->len >= skip ? key->str + skip : "";
}

/* The keys of one step of SCAN, asked about in one pipeline. */
static once_result check_keys(struct check *c, const redisReply *keys, struct once_error *err)
{
    once_result r = ONCE_OK;
    for (size_t i = 0; i < keys->elements; i++)
        put_questions(c, span_of(keys->element[i]), id_of(c, keys->element[i]));
    for (size_t i = 0; r == ONCE_OK && i < keys->elements; i++) {
        redisReply *answers[Q_COUNT] = { NULL };
        for (int q = 0; r == ONCE_OK && q < Q_COUNT; q++)
            r = redis_conn_next(&c->s->conn, &answers[q], err);
        if (r == ONCE_OK)
            check_record(c, span_of(keys->element[i]), id_of(c, keys->element[i]), answers);
        for (int q = 0; q < Q_COUNT; q++)
            freeReplyObject(answers[q]);
    }
    return r == ONCE_UNKNOWN ? ONCE_UNAVAILABLE : r;
}

static once_result read_newest(struct check *c, struct once_error *err)
{
    char key[REDIS_PREFIX_MAX + 8];
    redisReply *reply = NULL;
    snprintf(key, sizeof key, "%sfence", c->s->url.prefix);
    once_result r = redis_store_ask(c->s, 2, (once_span[]){ ONCE_LIT("GET"), once_span_str(key) }, &reply, err);
    if (r == ONCE_OK && reply->type == REDIS_REPLY_STRING)
        c->newest = strtoull(reply->str, NULL, 10);
    freeReplyObject(reply);
    return r;
}

once_result redis_store_check(struct once_store *base, uint64_t *cursor, once_problem_fn *each, void *arg,
                              struct once_check_report *report, struct once_error *err)
{
    struct check c = { .s = (struct redis_store *)base, .to = { each, arg, report } };
    char from[24], count[12], match[REDIS_PREFIX_MAX + 8];
    snprintf(from, sizeof from, "%" PRIu64, *cursor);
    snprintf(count, sizeof count, "%d", ONCE_REDIS_SCAN_COUNT);
    snprintf(match, sizeof match, "%sr:*", c.s->url.prefix);
    once_span argv[] = { ONCE_LIT("SCAN"),     once_span_str(from), ONCE_LIT("MATCH"),
                         once_span_str(match), ONCE_LIT("COUNT"),   once_span_str(count) };
    redisReply *reply = NULL;
    once_result r = redis_store_now(c.s, &c.now, err);
    if (r == ONCE_OK)
        r = redis_store_ask(c.s, 6, argv, &reply, err);
    if (r == ONCE_OK)
        r = read_newest(&c, err); /* after SCAN, so that it is not smaller than any fence that SCAN showed */
    if (r == ONCE_OK && (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
                         reply->element[0]->type != REDIS_REPLY_STRING || reply->element[1]->type != REDIS_REPLY_ARRAY))
        r = once_fail(err, ONCE_CORRUPT, "Redis answered SCAN with an unexpected reply");
    if (r == ONCE_OK)
        r = check_keys(&c, reply->element[1], err);
    if (r == ONCE_OK)
        *cursor = strtoull(reply->element[0]->str, NULL, 10);
    freeReplyObject(reply);
    return r;
}
