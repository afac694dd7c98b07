/* wire.c - see wire.h. */
#include "wire/wire.h"

#include "wire/wire_bytes.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"

#include <endian.h>

static const uint8_t magic[4] = { 'O', 'N', 'C', 'E' };

/* ------------------------------------------------------------------ frames */

once_result wire_next(once_span bytes, struct wire_frame *frame, size_t *used, struct once_error *err)
{
    *used = 0;
    if (bytes.len < 4)
        return ONCE_OK;
    struct wire_input s = { .left = bytes };
    uint32_t len = take_u32(&s);
    if (len < WIRE_HEAD_LEN - 4 || len > WIRE_FRAME_LEN_MAX)
        return once_fail(err, ONCE_INVALID, "a frame of %u bytes; it must have %d to %d", len, WIRE_HEAD_LEN - 4,
                         WIRE_FRAME_LEN_MAX);
    if (s.left.len < len)
        return ONCE_OK;
    frame->id = take_u32(&s);
    frame->type = take_u8(&s);
    frame->payload = once_span_of(s.left.ptr, len - (WIRE_HEAD_LEN - 4));
    *used = 4 + (size_t)len;
    return ONCE_OK;
}

size_t wire_begin(struct once_buf *buf, uint32_t id, enum wire_type type)
{
    size_t begin = buf->len;
    once_buf_add_u32(buf, 0);
    once_buf_add_u32(buf, id);
    put_u8(buf, type);
    return begin;
}

once_result wire_end(struct once_buf *buf, size_t begin, struct once_error *err)
{
    size_t len = buf->len - begin - 4;
    if (buf->result != ONCE_OK || len > WIRE_FRAME_LEN_MAX) {
        once_result r = buf->result != ONCE_OK ? buf->result : ONCE_LIMIT;
        buf->len = begin;
        buf->result = ONCE_OK;
        return once_fail(err, r, "no room for a frame");
    }
    store_u32(buf->ptr + begin, (uint32_t)len);
    return ONCE_OK;
}

/* The same for callers that check the buffer: its result stays, a partial frame is removed. */
static void end(struct once_buf *buf, size_t begin)
{
    once_result r = wire_end(buf, begin, NULL);
    if (r != ONCE_OK)
        buf->result = r;
}

/* ------------------------------------------------------------------ hello */

void wire_put_hello(struct once_buf *buf, uint32_t id, const struct wire_hello *hello)
{
    size_t begin = wire_begin(buf, id, WIRE_HELLO);
    put_bytes(buf, magic, sizeof magic);
    once_buf_add_u32(buf, hello->version);
    once_buf_add_sized(buf, hello->name);
    end(buf, begin);
}

once_result wire_get_hello(once_span payload, struct wire_hello *hello, struct once_error *err)
{
    struct wire_input s = { .left = payload };
    uint8_t head[4] = { 0 };
    take_bytes(&s, head, sizeof head);
    if (memcmp(head, magic, sizeof magic) != 0)
        return once_fail(err, ONCE_INVALID, "this is not Once's protocol");
    hello->version = take_u32(&s);
    hello->name = take_span(&s);
    return taken(&s, "hello", err);
}

void wire_put_welcome(struct once_buf *buf, uint32_t id, const struct wire_welcome *welcome)
{
    size_t begin = wire_begin(buf, id, WIRE_WELCOME);
    once_buf_add_u32(buf, welcome->version);
    put_bytes(buf, welcome->secret, sizeof welcome->secret);
    once_buf_add_byte(buf, welcome->best_effort);
    end(buf, begin);
}

once_result wire_get_welcome(once_span payload, struct wire_welcome *welcome, struct once_error *err)
{
    struct wire_input s = { .left = payload };
    welcome->version = take_u32(&s);
    take_bytes(&s, welcome->secret, sizeof welcome->secret);
    welcome->best_effort = take_bool(&s);
    return taken(&s, "welcome", err);
}

/* ------------------------------------------------------------------ operations */

static void put_outcome(struct once_buf *b, const struct once_outcome *o)
{
    put_u8(b, o->state);
    put_u8(b, o->retryable);
    put_u8(b, o->undelivered);
    put_u8(b, o->body_dropped);
    once_buf_add_u32(b, (uint32_t)o->status);
    once_buf_add_sized(b, o->headers);
    once_buf_add_sized(b, o->body);
}

static void take_outcome(struct wire_input *s, struct once_outcome *o)
{
    o->state = (enum once_state)take_enum(s, ONCE_STATE_UNKNOWN);
    o->retryable = take_bool(s);
    o->undelivered = take_bool(s);
    o->body_dropped = take_bool(s);
    o->status = (int32_t)take_u32(s);
    o->headers = take_span(s);
    o->body = take_span(s);
}

static void put_claim(struct once_buf *b, const struct once_claim *c)
{
    once_buf_add_sized(b, c->tenant);
    once_buf_add_sized(b, c->key);
    put_bytes(b, c->fingerprint.bytes, sizeof c->fingerprint.bytes);
    put_i64(b, c->lease_ms);
    put_i64(b, c->retention_ms);
    put_i64(b, c->body_retention_ms);
    put_i64(b, c->wait_ms);
    put_u8(b, c->takeover);
    put_u8(b, c->intent);
    put_u8(b, c->key_time);
    once_buf_add_sized(b, c->request);
    once_buf_add_sized(b, c->route);
    put_bytes(b, c->nonce, sizeof c->nonce);
}

static void take_claim(struct wire_input *s, struct once_claim *c)
{
    c->tenant = take_span(s);
    c->key = take_span(s);
    take_bytes(s, c->fingerprint.bytes, sizeof c->fingerprint.bytes);
    c->lease_ms = take_i64(s);
    c->retention_ms = take_i64(s);
    c->body_retention_ms = take_i64(s);
    c->wait_ms = take_i64(s);
    c->takeover = (enum once_takeover)take_enum(s, ONCE_TAKEOVER_COMPLETER);
    c->intent = take_bool(s);
    c->key_time = take_bool(s);
    c->request = take_span(s);
    c->route = take_span(s);
    take_bytes(s, c->nonce, sizeof c->nonce);
}

static void put_resolve(struct once_buf *b, const struct once_resolve *v)
{
    once_buf_add_sized(b, v->tenant);
    once_buf_add_sized(b, v->key);
    once_buf_add_u64(b, v->fence);
    put_u8(b, v->verdict);
    put_outcome(b, &v->outcome);
    once_buf_add_sized(b, v->actor);
    once_buf_add_sized(b, v->reason);
}

static void take_resolve(struct wire_input *s, struct once_resolve *v)
{
    v->tenant = take_span(s);
    v->key = take_span(s);
    v->fence = take_u64(s);
    v->verdict = (enum once_verdict)take_enum(s, ONCE_VERDICT_RELEASE);
    take_outcome(s, &v->outcome);
    v->actor = take_span(s);
    v->reason = take_span(s);
}

static void put_take_over(struct once_buf *b, const struct once_take_over *t)
{
    put_bytes(b, t->seen.record, sizeof t->seen.record);
    once_buf_add_u64(b, t->seen.fence);
    put_i64(b, t->lease_ms);
    put_u8(b, t->intent);
    put_bytes(b, t->nonce, sizeof t->nonce);
}

static void take_take_over(struct wire_input *s, struct once_take_over *t)
{
    take_bytes(s, t->seen.record, sizeof t->seen.record);
    t->seen.fence = take_u64(s);
    t->lease_ms = take_i64(s);
    t->intent = take_bool(s);
    take_bytes(s, t->nonce, sizeof t->nonce);
}

static void put_forget(struct once_buf *b, const struct once_forget *f)
{
    once_buf_add_sized(b, f->tenant);
    once_buf_add_sized(b, f->key);
    put_bytes(b, f->seen.record, sizeof f->seen.record);
    once_buf_add_u64(b, f->seen.fence);
    put_u8(b, f->drop);
    once_buf_add_sized(b, f->actor);
    once_buf_add_sized(b, f->reason);
}

static void take_forget(struct wire_input *s, struct once_forget *f)
{
    f->tenant = take_span(s);
    f->key = take_span(s);
    take_bytes(s, f->seen.record, sizeof f->seen.record);
    f->seen.fence = take_u64(s);
    f->drop = take_bool(s);
    f->actor = take_span(s);
    f->reason = take_span(s);
}

void wire_put_call(struct once_buf *buf, uint32_t id, const struct wire_call *call)
{
    const struct once_request *r = &call->request;
    size_t begin = wire_begin(buf, id, WIRE_CALL);
    put_u8(buf, r->verb);
    put_u8(buf, call->again);
    put_bytes(buf, call->nonce, sizeof call->nonce);
    put_bytes(buf, r->grant.record, sizeof r->grant.record);
    once_buf_add_u64(buf, r->grant.fence);
    switch (r->verb) {
    case ONCE_VERB_CLAIM:
        put_claim(buf, &r->claim);
        break;
    case ONCE_VERB_EXTEND:
        put_i64(buf, r->extend.lease_ms);
        break;
    case ONCE_VERB_ADVANCE:
        once_buf_add_sized(buf, r->advance.point);
        once_buf_add_sized(buf, r->advance.checkpoint);
        break;
    case ONCE_VERB_FINISH:
        put_outcome(buf, &r->outcome);
        break;
    case ONCE_VERB_RELEASE:
        break;
    case ONCE_VERB_LOOKUP:
        once_buf_add_sized(buf, r->lookup.tenant);
        once_buf_add_sized(buf, r->lookup.key);
        put_u8(buf, r->lookup.request);
        break;
    case ONCE_VERB_RESOLVE:
        put_resolve(buf, &r->resolve);
        break;
    case ONCE_VERB_TAKE_OVER:
        put_take_over(buf, &r->take_over);
        break;
    case ONCE_VERB_FORGET:
        put_forget(buf, &r->forget);
        break;
    }
    end(buf, begin);
}

once_result wire_get_call(once_span payload, struct wire_call *call, struct once_error *err)
{
    struct wire_input s = { .left = payload };
    *call = (struct wire_call){ .again = false };
    struct once_request *r = &call->request;
    r->verb = (enum once_verb)take_enum(&s, ONCE_VERB_FORGET);
    call->again = take_bool(&s);
    take_bytes(&s, call->nonce, sizeof call->nonce);
    take_bytes(&s, r->grant.record, sizeof r->grant.record);
    r->grant.fence = take_u64(&s);
    switch (r->verb) {
    case ONCE_VERB_CLAIM:
        take_claim(&s, &r->claim);
        break;
    case ONCE_VERB_EXTEND:
        r->extend.lease_ms = take_i64(&s);
        break;
    case ONCE_VERB_ADVANCE:
        r->advance.point = take_span(&s);
        r->advance.checkpoint = take_span(&s);
        break;
    case ONCE_VERB_FINISH:
        take_outcome(&s, &r->outcome);
        break;
    case ONCE_VERB_RELEASE:
        break;
    case ONCE_VERB_LOOKUP:
        r->lookup.tenant = take_span(&s);
        r->lookup.key = take_span(&s);
        r->lookup.request = take_bool(&s);
        break;
    case ONCE_VERB_RESOLVE:
        take_resolve(&s, &r->resolve);
        break;
    case ONCE_VERB_TAKE_OVER:
        take_take_over(&s, &r->take_over);
        break;
    case ONCE_VERB_FORGET:
        take_forget(&s, &r->forget);
        break;
    default:
        s.bad = true;
    }
    return taken(&s, "call", err);
}

/* ------------------------------------------------------------------ records */

static void put_record(struct once_buf *b, const struct once_record *r)
{
    put_bytes(b, r->grant.record, sizeof r->grant.record);
    once_buf_add_u64(b, r->grant.fence);
    once_buf_add_sized(b, r->tenant);
    once_buf_add_sized(b, r->key);
    put_bytes(b, r->fingerprint.bytes, sizeof r->fingerprint.bytes);
    put_u8(b, r->state);
    put_u8(b, r->retryable);
    put_u8(b, r->undelivered);
    put_u8(b, r->body_dropped);
    put_u8(b, r->body_expired);
    put_u8(b, r->body_sealed);
    put_u8(b, r->lease_live);
    put_u8(b, r->has_request);
    put_u8(b, r->forgotten);
    put_u8(b, r->takeover);
    once_buf_add_u32(b, r->attempt);
    once_buf_add_u32(b, (uint32_t)r->status);
    put_i64(b, r->retention_ms);
    put_i64(b, r->body_retention_ms);
    put_i64(b, r->created_at);
    put_i64(b, r->claimed_at);
    put_i64(b, r->lease_until);
    put_i64(b, r->finished_at);
    put_i64(b, r->expires_at);
    once_buf_add_sized(b, r->recovery_point);
    once_buf_add_sized(b, r->checkpoint);
    once_buf_add_sized(b, r->headers);
    once_buf_add_sized(b, r->body);
    once_buf_add_sized(b, r->request);
    once_buf_add_sized(b, r->route);
}

static void take_record(struct wire_input *s, struct once_record *r)
{
    *r = (struct once_record){ .status = 0 };
    take_bytes(s, r->grant.record, sizeof r->grant.record);
    r->grant.fence = take_u64(s);
    r->tenant = take_span(s);
    r->key = take_span(s);
    take_bytes(s, r->fingerprint.bytes, sizeof r->fingerprint.bytes);
    r->state = (enum once_state)take_enum(s, ONCE_STATE_UNKNOWN);
    r->retryable = take_bool(s);
    r->undelivered = take_bool(s);
    r->body_dropped = take_bool(s);
    r->body_expired = take_bool(s);
    r->body_sealed = take_bool(s);
    r->lease_live = take_bool(s);
    r->has_request = take_bool(s);
    r->forgotten = take_bool(s);
    r->takeover = (enum once_takeover)take_enum(s, ONCE_TAKEOVER_COMPLETER);
    r->attempt = take_u32(s);
    r->status = (int32_t)take_u32(s);
    r->retention_ms = take_i64(s);
    r->body_retention_ms = take_i64(s);
    r->created_at = take_i64(s);
    r->claimed_at = take_i64(s);
    r->lease_until = take_i64(s);
    r->finished_at = take_i64(s);
    r->expires_at = take_i64(s);
    r->recovery_point = take_span(s);
    r->checkpoint = take_span(s);
    r->headers = take_span(s);
    r->body = take_span(s);
    r->request = take_span(s);
    r->route = take_span(s);
}

void wire_put_reply(struct once_buf *buf, uint32_t id, const struct once_reply *reply)
{
    size_t begin = wire_begin(buf, id, WIRE_REPLY);
    put_u8(buf, reply->arm);
    put_i64(buf, reply->retry_after_ms);
    put_record(buf, &reply->record);
    end(buf, begin);
}

once_result wire_get_reply(once_span payload, enum once_arm *arm, int64_t *retry_after_ms, struct once_record *record,
                           struct once_error *err)
{
    struct wire_input s = { .left = payload };
    *arm = (enum once_arm)take_enum(&s, ONCE_ARM_EXPIRED);
    s.bad = s.bad || *arm == ONCE_ARM_NONE;
    *retry_after_ms = take_i64(&s);
    take_record(&s, record);
    return taken(&s, "reply", err);
}

void wire_put_failed(struct once_buf *buf, uint32_t id, once_result result, const char *text)
{
    size_t begin = wire_begin(buf, id, WIRE_FAILED);
    put_u8(buf, result);
    once_buf_add_sized(buf, once_span_str(text));
    end(buf, begin);
}

once_result wire_get_failed(once_span payload, struct once_error *err)
{
    struct wire_input s = { .left = payload };
    once_result result = (once_result)take_enum(&s, ONCE_QUOTA);
    once_span text = take_span(&s);
    once_result r = taken(&s, "failed", err);
    if (r != ONCE_OK)
        return r;
    if (result == ONCE_OK)
        return once_fail(err, ONCE_INVALID, "a frame 'failed' contains the result OK");
    return once_fail(err, result, "%.*s", ONCE_SPAN_ARGS(text));
}

/* ------------------------------------------------------------------ looking */

void wire_put_list(struct once_buf *buf, uint32_t id, const struct once_filter *filter)
{
    size_t begin = wire_begin(buf, id, WIRE_LIST);
    once_buf_add_u32(buf, filter->states);
    put_u8(buf, filter->tenant != NULL);
    once_buf_add_sized(buf, filter->tenant != NULL ? *filter->tenant : once_span_of(NULL, 0));
    once_buf_add_sized(buf, filter->key_prefix);
    once_buf_add_sized(buf, filter->route);
    put_i64(buf, filter->age_ms_min);
    put_u8(buf, filter->abandoned);
    put_u8(buf, filter->with_request);
    once_buf_add_u64(buf, filter->before);
    once_buf_add_u32(buf, filter->limit);
    end(buf, begin);
}

once_result wire_get_list(once_span payload, struct once_filter *filter, once_span *tenant, struct once_error *err)
{
    struct wire_input s = { .left = payload };
    *filter = (struct once_filter){ .states = take_u32(&s) };
    filter->tenant = take_bool(&s) ? tenant : NULL;
    *tenant = take_span(&s);
    s.bad = s.bad || (filter->tenant == NULL && tenant->len > 0);
    filter->key_prefix = take_span(&s);
    filter->route = take_span(&s);
    filter->age_ms_min = take_i64(&s);
    filter->abandoned = take_bool(&s);
    filter->with_request = take_bool(&s);
    filter->before = take_u64(&s);
    filter->limit = take_u32(&s);
    return taken(&s, "list", err);
}

void wire_put_page(struct once_buf *buf, uint32_t id, const struct once_page *page)
{
    size_t begin = wire_begin(buf, id, WIRE_PAGE);
    once_buf_add_u64(buf, page->next);
    once_buf_add_u32(buf, (uint32_t)page->count);
    for (size_t i = 0; i < page->count; i++)
        put_record(buf, &page->records[i]);
    end(buf, begin);
}

/* Reads whether another item follows; *more is false after the last. */
static bool step(struct wire_reader *reader, struct wire_input *s, bool *more)
{
    *s = (struct wire_input){ .left = reader->left };
    *more = reader->count > 0;
    if (*more)
        reader->count--;
    return *more;
}

/* After each item: remembers where the next one begins; after the last, no bytes may be left. */
static once_result stepped(struct wire_reader *reader, const struct wire_input *s, bool more, const char *what,
                           struct once_error *err)
{
    reader->left = s->left;
    if (s->bad || !more)
        return taken(s, what, err);
    return ONCE_OK;
}

once_result wire_read_page(once_span payload, struct wire_reader *reader, uint64_t *next, struct once_error *err)
{
    struct wire_input s = { .left = payload };
    *next = take_u64(&s);
    uint32_t count = take_u32(&s);
    *reader = (struct wire_reader){ s.left, count };
    if (s.bad || count > ONCE_LIST_LIMIT_MAX)
        return once_fail(err, ONCE_INVALID, "a frame 'page' is cut off or too long");
    return ONCE_OK;
}

once_result wire_read_record(struct wire_reader *reader, struct once_record *record, bool *more, struct once_error *err)
{
    struct wire_input s;
    if (step(reader, &s, more))
        take_record(&s, record);
    return stepped(reader, &s, *more, "page", err);
}

void wire_put_history(struct once_buf *buf, uint32_t id, const uint8_t record[16])
{
    size_t begin = wire_begin(buf, id, WIRE_HISTORY);
    put_bytes(buf, record, 16);
    end(buf, begin);
}

once_result wire_get_history(once_span payload, uint8_t record[16], struct once_error *err)
{
    struct wire_input s = { .left = payload };
    take_bytes(&s, record, 16);
    return taken(&s, "history", err);
}

void wire_put_events(struct once_buf *buf, uint32_t id, const struct once_history *history)
{
    size_t begin = wire_begin(buf, id, WIRE_EVENTS);
    once_buf_add_u32(buf, (uint32_t)history->count);
    for (size_t i = 0; i < history->count; i++) {
        const struct once_event *e = &history->events[i];
        put_i64(buf, e->at);
        once_buf_add_sized(buf, once_span_str(e->what));
        once_buf_add_u64(buf, e->fence);
        once_buf_add_u32(buf, e->attempt);
        put_u8(buf, e->state);
        once_buf_add_u32(buf, (uint32_t)e->status);
        once_buf_add_sized(buf, e->actor);
        once_buf_add_sized(buf, e->reason);
    }
    end(buf, begin);
}

once_result wire_read_events(once_span payload, struct wire_reader *reader, struct once_error *err)
{
    struct wire_input s = { .left = payload };
    uint32_t count = take_u32(&s);
    *reader = (struct wire_reader){ s.left, count };
    if (s.bad || count > ONCE_HISTORY_LEN_MAX)
        return once_fail(err, ONCE_INVALID, "a frame 'events' is cut off or too long");
    return ONCE_OK;
}

once_result wire_read_event(struct wire_reader *reader, struct once_event *e, once_span *what, bool *more,
                            struct once_error *err)
{
    struct wire_input s;
    if (step(reader, &s, more)) {
        *e = (struct once_event){ .at = take_i64(&s) };
        *what = take_span(&s);
        e->fence = take_u64(&s);
        e->attempt = take_u32(&s);
        e->state = (enum once_state)take_enum(&s, ONCE_STATE_UNKNOWN);
        e->status = (int32_t)take_u32(&s);
        e->actor = take_span(&s);
        e->reason = take_span(&s);
    }
    return stepped(reader, &s, *more, "events", err);
}

/* ------------------------------------------------------------------ upkeep */

void wire_put_number(struct once_buf *buf, uint32_t id, enum wire_type type, uint64_t value)
{
    size_t begin = wire_begin(buf, id, type);
    once_buf_add_u64(buf, value);
    end(buf, begin);
}

once_result wire_get_number(once_span payload, uint64_t *value, struct once_error *err)
{
    struct wire_input s = { .left = payload };
    *value = take_u64(&s);
    return taken(&s, "number", err);
}

void wire_put_expired(struct once_buf *buf, uint32_t id, uint64_t removed, bool more)
{
    size_t begin = wire_begin(buf, id, WIRE_EXPIRED);
    once_buf_add_u64(buf, removed);
    put_u8(buf, more);
    end(buf, begin);
}

once_result wire_get_expired(once_span payload, uint64_t *removed, bool *more, struct once_error *err)
{
    struct wire_input s = { .left = payload };
    *removed = take_u64(&s);
    *more = take_bool(&s);
    return taken(&s, "expired", err);
}

/* All counters, in the order of struct once_stats. */
#define COUNTERS(X)                                                                                                    \
    X(operations)                                                                                                      \
    X(batches)                                                                                                         \
    X(commits)                                                                                                         \
    X(busy) X(recovered) X(fenced) X(replays) X(executions) X(attempts) X(bytes) X(lost) X(evicted) X(restarts)

void wire_put_counts(struct once_buf *buf, uint32_t id, const struct once_stats *stats)
{
    size_t begin = wire_begin(buf, id, WIRE_COUNTS);
#define PUT(name) once_buf_add_u64(buf, stats->name);
    COUNTERS(PUT)
#undef PUT
    put_i64(buf, stats->now);
    end(buf, begin);
}

once_result wire_get_counts(once_span payload, struct once_stats *stats, struct once_error *err)
{
    struct wire_input s = { .left = payload };
#define TAKE(name) stats->name = take_u64(&s);
    COUNTERS(TAKE)
#undef TAKE
    stats->now = take_i64(&s);
    return taken(&s, "counts", err);
}

/* ------------------------------------------------------------------ traces */

void wire_put_context(struct once_buf *buf, uint32_t id, const struct wire_context *c)
{
    size_t begin = wire_begin(buf, id, WIRE_CONTEXT);
    once_buf_add_u32(buf, c->call);
    put_bytes(buf, c->trace.trace, sizeof c->trace.trace);
    put_bytes(buf, c->trace.span, sizeof c->trace.span);
    put_u8(buf, c->trace.sampled);
    once_buf_add_sized(buf, c->route);
    end(buf, begin);
}

/* A short text that a client chose. */
static once_span take_text(struct wire_input *s)
{
    once_span text = take_span(s);
    s->bad = s->bad || text.len > ONCE_TENANT_LEN_MAX;
    return text;
}

once_result wire_get_context(once_span payload, struct wire_context *c, struct once_error *err)
{
    struct wire_input s = { .left = payload };
    *c = (struct wire_context){ .call = take_u32(&s) };
    take_bytes(&s, c->trace.trace, sizeof c->trace.trace);
    take_bytes(&s, c->trace.span, sizeof c->trace.span);
    c->trace.sampled = take_bool(&s);
    c->route = take_text(&s);
    return taken(&s, "context", err);
}

void wire_put_spans(struct once_buf *buf, uint32_t id, uint32_t lost, const struct once_trace_report *r)
{
    size_t begin = wire_begin(buf, id, WIRE_SPANS);
    once_buf_add_u32(buf, lost);
    put_bytes(buf, r->trace, sizeof r->trace);
    put_bytes(buf, r->record, sizeof r->record);
    once_buf_add_u64(buf, r->fence);
    once_buf_add_u32(buf, r->attempt);
    once_buf_add_sized(buf, r->tenant);
    once_buf_add_sized(buf, r->route);
    put_u8(buf, (unsigned)r->count);
    for (size_t i = 0; i < r->count; i++) {
        const struct once_trace_span *span = &r->spans[i];
        put_u8(buf, span->name);
        put_bytes(buf, span->id, sizeof span->id);
        put_bytes(buf, span->parent, sizeof span->parent);
        once_buf_add_u64(buf, span->start_ns);
        once_buf_add_u64(buf, span->end_ns);
        put_u8(buf, span->arm);
        once_buf_add_u32(buf, (uint32_t)span->status);
        put_u8(buf, span->failed);
    }
    end(buf, begin);
}

static void take_traced(struct wire_input *s, struct once_trace_span *span)
{
    span->name = (enum once_trace_name)take_enum(s, ONCE_TRACE_SEND);
    s->bad = s->bad || span->name == 0;
    take_bytes(s, span->id, sizeof span->id);
    take_bytes(s, span->parent, sizeof span->parent);
    span->start_ns = take_u64(s);
    span->end_ns = take_u64(s);
    span->arm = (enum once_arm)take_enum(s, ONCE_ARM_EXPIRED);
    span->status = (int32_t)take_u32(s);
    span->failed = take_bool(s);
}

once_result wire_get_spans(once_span payload, uint32_t *lost, struct once_trace_report *r, struct once_error *err)
{
    struct wire_input s = { .left = payload };
    *r = (struct once_trace_report){ .count = 0 };
    *lost = take_u32(&s);
    take_bytes(&s, r->trace, sizeof r->trace);
    take_bytes(&s, r->record, sizeof r->record);
    r->fence = take_u64(&s);
    r->attempt = take_u32(&s);
    r->tenant = take_text(&s);
    r->route = take_text(&s);
    r->count = take_enum(&s, ONCE_TRACE_SPANS_MAX);
    for (size_t i = 0; i < r->count; i++)
        take_traced(&s, &r->spans[i]);
    return taken(&s, "spans", err);
}

/* ------------------------------------------------------------------ checks */

/* The totals come first in the frame, but are known last. */
enum { CHECKED_HEAD_LEN = 4 * 8 + 4 };

size_t wire_begin_checked(struct once_buf *buf, uint32_t id)
{
    size_t begin = wire_begin(buf, id, WIRE_CHECKED);
    for (int i = 0; i < CHECKED_HEAD_LEN / 4; i++)
        once_buf_add_u32(buf, 0);
    return begin;
}

void wire_add_problem(struct once_buf *buf, const struct once_problem *problem)
{
    once_buf_add_u64(buf, problem->fence);
    once_buf_add_sized(buf, once_span_str(problem->invariant));
    once_buf_add_sized(buf, once_span_str(problem->text));
}

static void store_u64(uint8_t *at, uint64_t value)
{
    store_u32(at, (uint32_t)(value >> 32));
    store_u32(at + 4, (uint32_t)value);
}

once_result wire_end_checked(struct once_buf *buf, size_t begin, uint64_t cursor,
                             const struct once_check_report *report, struct once_error *err)
{
    if (buf->result == ONCE_OK) {
        uint8_t *at = buf->ptr + begin + WIRE_HEAD_LEN;
        store_u64(at, cursor);
        store_u64(at + 8, report->records);
        store_u64(at + 16, report->attempts);
        store_u64(at + 24, report->problems);
        store_u32(at + 32, (uint32_t)report->problems);
    }
    return wire_end(buf, begin, err);
}

once_result wire_read_checked(once_span payload, struct wire_reader *reader, uint64_t *cursor,
                              struct once_check_report *report, struct once_error *err)
{
    struct wire_input s = { .left = payload };
    *cursor = take_u64(&s);
    report->records = take_u64(&s);
    report->attempts = take_u64(&s);
    report->problems = take_u64(&s);
    uint32_t count = take_u32(&s);
    *reader = (struct wire_reader){ s.left, count };
    if (s.bad || count != report->problems)
        return once_fail(err, ONCE_INVALID, "a frame 'checked' is cut off or has a wrong count");
    return ONCE_OK;
}

once_result wire_read_problem(struct wire_reader *reader, uint64_t *fence, once_span *invariant, once_span *text,
                              bool *more, struct once_error *err)
{
    struct wire_input s;
    if (step(reader, &s, more)) {
        *fence = take_u64(&s);
        *invariant = take_span(&s);
        *text = take_span(&s);
    }
    return stepped(reader, &s, *more, "checked", err);
}

/* ------------------------------------------------------------------ how a daemon is */

void wire_put_state(struct once_buf *buf, uint32_t id, const struct wire_state *state,
                    const struct wire_number *numbers, size_t count)
{
    size_t begin = wire_begin(buf, id, WIRE_STATE);
    put_u8(buf, state->ready);
    once_buf_add_sized(buf, state->reason);
    once_buf_add_sized(buf, state->version);
    once_buf_add_sized(buf, state->store);
    once_buf_add_u32(buf, (uint32_t)count);
    for (size_t i = 0; i < count; i++) {
        once_buf_add_sized(buf, numbers[i].name);
        put_i64(buf, numbers[i].value);
    }
    end(buf, begin);
}

once_result wire_read_state(once_span payload, struct wire_reader *reader, struct wire_state *state,
                            struct once_error *err)
{
    struct wire_input s = { .left = payload };
    state->ready = take_bool(&s);
    state->reason = take_span(&s);
    state->version = take_span(&s);
    state->store = take_span(&s);
    uint32_t count = take_u32(&s);
    *reader = (struct wire_reader){ s.left, count };
    if (s.bad || count > WIRE_NUMBERS_MAX)
        return once_fail(err, ONCE_INVALID, "a frame 'state' is cut off or too long");
    return ONCE_OK;
}

once_result wire_read_number(struct wire_reader *reader, struct wire_number *number, bool *more, struct once_error *err)
{
    struct wire_input s;
    if (step(reader, &s, more)) {
        number->name = take_span(&s);
        number->value = take_i64(&s);
    }
    return stepped(reader, &s, *more, "state", err);
}
