/*
 * wire_random.h - frames with anything in them, from one number.
 *
 *     state_of_random = seed, pool.len = 0, len_scale = 20;
 *     put_any(&buf, WIRE_REPLY, id);
 *
 * Fields are zero, at the ends of their range, or anything; spans are empty, a few bytes, or every
 * byte value once. They lie in `pool` until the next frame is made.
 */
#ifndef ONCE_TEST_WIRE_RANDOM_H
#define ONCE_TEST_WIRE_RANDOM_H

#include "core/span.h"
#include "wire/wire.h"

#include "../test.h"

#include <stdlib.h>

static uint64_t state_of_random;

static uint64_t any(void) /* splitmix64 */
{
    uint64_t z = state_of_random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static unsigned below(unsigned count)
{
    return (unsigned)(any() % count);
}

static bool toss(void)
{
    return any() % 2 == 0;
}

/* Zero, the ends of its range, or anything. */
static int64_t any_i64(void)
{
    static const int64_t ends[] = { 0, 1, -1, INT64_MAX, INT64_MIN };
    return toss() ? ends[below(5)] : (int64_t)any();
}

static uint64_t any_u64(void)
{
    return (uint64_t)any_i64();
}

static uint32_t any_u32(void)
{
    return (uint32_t)any_i64();
}

static void any_bytes(uint8_t *to, size_t len)
{
    for (size_t i = 0; i < len; i++)
        to[i] = (uint8_t)any();
}

/* Lives until the next frame is made. */
static struct once_buf pool;
static once_span span_of_len(size_t len)
{
    once_span span = { pool.ptr + pool.len, len };
    if (pool.len + len > pool.cap)
        abort();
    any_bytes(pool.ptr + pool.len, len);
    pool.len += len;
    return span;
}

static size_t len_scale; /* how long random spans are */

/* Empty, every byte value once, or a few bytes. */
static once_span any_span(void)
{
    unsigned kind = below(len_scale > 256 ? 8 : 7);
    if (kind == 0)
        return once_span_of(NULL, 0);
    once_span span = span_of_len(kind == 7 ? 256 : below((unsigned)len_scale) + 1);
    for (size_t i = 0; kind == 7 && i < 256; i++)
        ((uint8_t *)(uintptr_t)span.ptr)[i] = (uint8_t)i;
    return span;
}

static const char *any_text(void)
{
    size_t len = below((unsigned)len_scale);
    char *text = (char *)(uintptr_t)span_of_len(len + 1).ptr;
    for (size_t i = 0; i < len; i++)
        text[i] = (char)(1 + below(255));
    text[len] = '\0';
    return text;
}

static void any_outcome(struct once_outcome *o)
{
    *o = (struct once_outcome){ .state = (enum once_state)below(ONCE_STATE_UNKNOWN + 1),
                                .retryable = toss(),
                                .undelivered = toss(),
                                .body_dropped = toss(),
                                .status = (int32_t)any_u32(),
                                .headers = any_span(),
                                .body = any_span() };
}

static struct wire_call any_call(enum once_verb verb)
{
    struct wire_call c = { .again = toss() };
    struct once_request *r = &c.request;
    r->verb = verb;
    any_bytes(c.nonce, sizeof c.nonce);
    any_bytes(r->grant.record, sizeof r->grant.record);
    r->grant.fence = any_u64();
    switch (verb) {
    case ONCE_VERB_CLAIM:
        r->claim = (struct once_claim){ .tenant = any_span(),
                                        .key = any_span(),
                                        .lease_ms = any_i64(),
                                        .retention_ms = any_i64(),
                                        .body_retention_ms = any_i64(),
                                        .wait_ms = any_i64(),
                                        .takeover = (enum once_takeover)below(ONCE_TAKEOVER_COMPLETER + 1),
                                        .intent = toss(),
                                        .key_time = toss(),
                                        .request = any_span(),
                                        .route = any_span() };
        any_bytes(r->claim.fingerprint.bytes, sizeof r->claim.fingerprint.bytes);
        any_bytes(r->claim.nonce, sizeof r->claim.nonce);
        break;
    case ONCE_VERB_EXTEND:
        r->extend.lease_ms = any_i64();
        break;
    case ONCE_VERB_ADVANCE:
        r->advance.point = any_span();
        r->advance.checkpoint = any_span();
        break;
    case ONCE_VERB_FINISH:
        any_outcome(&r->outcome);
        break;
    case ONCE_VERB_RELEASE:
        break;
    case ONCE_VERB_LOOKUP:
        r->lookup.tenant = any_span();
        r->lookup.key = any_span();
        r->lookup.request = toss();
        break;
    case ONCE_VERB_RESOLVE:
        r->resolve = (struct once_resolve){ .tenant = any_span(),
                                            .key = any_span(),
                                            .fence = any_u64(),
                                            .verdict = (enum once_verdict)below(ONCE_VERDICT_RELEASE + 1),
                                            .actor = any_span(),
                                            .reason = any_span() };
        any_outcome(&r->resolve.outcome);
        break;
    case ONCE_VERB_TAKE_OVER:
        r->take_over = (struct once_take_over){ .seen.fence = any_u64(), .lease_ms = any_i64(), .intent = toss() };
        any_bytes(r->take_over.seen.record, sizeof r->take_over.seen.record);
        any_bytes(r->take_over.nonce, sizeof r->take_over.nonce);
        break;
    case ONCE_VERB_FORGET:
        r->forget = (struct once_forget){ .tenant = any_span(),
                                          .key = any_span(),
                                          .seen.fence = any_u64(),
                                          .drop = toss(),
                                          .actor = any_span(),
                                          .reason = any_span() };
        any_bytes(r->forget.seen.record, sizeof r->forget.seen.record);
        break;
    }
    return c;
}

static struct once_record any_record(void)
{
    struct once_record r = { .tenant = any_span(),
                             .key = any_span(),
                             .state = (enum once_state)below(ONCE_STATE_UNKNOWN + 1),
                             .retryable = toss(),
                             .undelivered = toss(),
                             .body_dropped = toss(),
                             .body_expired = toss(),
                             .lease_live = toss(),
                             .has_request = toss(),
                             .forgotten = toss(),
                             .takeover = (enum once_takeover)below(ONCE_TAKEOVER_COMPLETER + 1),
                             .attempt = any_u32(),
                             .status = (int32_t)any_u32(),
                             .retention_ms = any_i64(),
                             .body_retention_ms = any_i64(),
                             .created_at = any_i64(),
                             .claimed_at = any_i64(),
                             .lease_until = any_i64(),
                             .finished_at = any_i64(),
                             .expires_at = any_i64(),
                             .recovery_point = any_span(),
                             .checkpoint = any_span(),
                             .headers = any_span(),
                             .body = any_span(),
                             .request = any_span(),
                             .route = any_span() };
    any_bytes(r.grant.record, sizeof r.grant.record);
    r.grant.fence = any_u64();
    any_bytes(r.fingerprint.bytes, sizeof r.fingerprint.bytes);
    return r;
}

static struct once_reply any_reply(void)
{
    return (struct once_reply){ .arm = (enum once_arm)(1 + below(ONCE_ARM_EXPIRED)),
                                .retry_after_ms = any_i64(),
                                .record = any_record() };
}

static struct once_event any_event(void)
{
    return (struct once_event){ .at = any_i64(),
                                .what = any_text(),
                                .fence = any_u64(),
                                .attempt = any_u32(),
                                .state = (enum once_state)below(ONCE_STATE_UNKNOWN + 1),
                                .status = (int32_t)any_u32(),
                                .actor = any_span(),
                                .reason = any_span() };
}

static struct once_stats any_stats(void)
{
    return (struct once_stats){ any_u64(), any_u64(), any_u64(), any_u64(), any_u64(), any_u64(), any_u64(),
                                any_u64(), any_u64(), any_u64(), any_u64(), any_u64(), any_u64(), any_i64() };
}

/* What a peer tells of traces has short texts only. */
static once_span any_short(void)
{
    once_span span = any_span();
    return once_span_of(span.ptr, span.len < ONCE_TENANT_LEN_MAX ? span.len : ONCE_TENANT_LEN_MAX);
}

static void put_any_context(struct once_buf *buf, uint32_t id)
{
    struct wire_context context = { .call = any_u32(), .trace.sampled = toss(), .route = any_short() };
    any_bytes(context.trace.trace, sizeof context.trace.trace);
    any_bytes(context.trace.span, sizeof context.trace.span);
    wire_put_context(buf, id, &context);
}

static void put_any_spans(struct once_buf *buf, uint32_t id)
{
    struct once_trace_report report = { .fence = any_u64(),
                                        .attempt = any_u32(),
                                        .tenant = any_short(),
                                        .route = any_short(),
                                        .count = below(ONCE_TRACE_SPANS_MAX + 1) };
    any_bytes(report.trace, sizeof report.trace);
    any_bytes(report.record, sizeof report.record);
    for (size_t i = 0; i < report.count; i++) {
        struct once_trace_span *span = &report.spans[i];
        *span = (struct once_trace_span){ .name = (enum once_trace_name)(1 + below(ONCE_TRACE_SEND)),
                                          .start_ns = any_u64(),
                                          .end_ns = any_u64(),
                                          .arm = (enum once_arm)below(ONCE_ARM_EXPIRED + 1),
                                          .status = (int32_t)any_u32(),
                                          .failed = toss() };
        any_bytes(span->id, sizeof span->id);
        any_bytes(span->parent, sizeof span->parent);
    }
    wire_put_spans(buf, id, any_u32(), &report);
}

static void put_any_checked(struct once_buf *buf, uint32_t id)
{
    struct once_check_report report = { .records = any_u64(), .attempts = any_u64(), .problems = below(4) };
    size_t begin = wire_begin_checked(buf, id);
    for (uint64_t i = 0; i < report.problems; i++) {
        struct once_problem problem = { .fence = any_u64() };
        problem.invariant = any_text();
        problem.text = any_text();
        wire_add_problem(buf, &problem);
    }
    CHECK(wire_end_checked(buf, begin, any_u64(), &report, NULL) == ONCE_OK);
}

/* Adds one frame of a type, with anything in it. */
static void put_any(struct once_buf *buf, enum wire_type type, uint32_t id)
{
    struct once_record records[3];
    struct once_event events[3];
    uint8_t name[16];
    switch (type) {
    case WIRE_HELLO:
        wire_put_hello(buf, id, &(struct wire_hello){ any_u32(), any_span() });
        break;
    case WIRE_WELCOME: {
        struct wire_welcome welcome = { .version = any_u32(), .best_effort = toss() };
        any_bytes(welcome.secret, sizeof welcome.secret);
        wire_put_welcome(buf, id, &welcome);
        break;
    }
    case WIRE_CALL: {
        struct wire_call call = any_call((enum once_verb)(1 + below(ONCE_VERB_FORGET)));
        wire_put_call(buf, id, &call);
        break;
    }
    case WIRE_REPLY: {
        struct once_reply reply = any_reply();
        wire_put_reply(buf, id, &reply);
        break;
    }
    case WIRE_LIST: {
        once_span tenant = any_span();
        struct once_filter filter = { .states = any_u32(),
                                      .abandoned = toss(),
                                      .with_request = toss(),
                                      .tenant = toss() ? &tenant : NULL,
                                      .key_prefix = any_span(),
                                      .route = any_span(),
                                      .age_ms_min = any_i64(),
                                      .before = any_u64(),
                                      .limit = any_u32() };
        wire_put_list(buf, id, &filter);
        break;
    }
    case WIRE_PAGE: {
        struct once_page page = { .records = records, .count = below(4), .next = any_u64() };
        for (size_t i = 0; i < page.count; i++)
            records[i] = any_record();
        wire_put_page(buf, id, &page);
        break;
    }
    case WIRE_HISTORY:
        any_bytes(name, sizeof name);
        wire_put_history(buf, id, name);
        break;
    case WIRE_EVENTS: {
        struct once_history history = { .events = events, .count = below(4) };
        for (size_t i = 0; i < history.count; i++)
            events[i] = any_event();
        wire_put_events(buf, id, &history);
        break;
    }
    case WIRE_EXPIRED:
        wire_put_expired(buf, id, any_u64(), toss());
        break;
    case WIRE_CHECKED:
        put_any_checked(buf, id);
        break;
    case WIRE_COUNTS: {
        struct once_stats stats = any_stats();
        wire_put_counts(buf, id, &stats);
        break;
    }
    case WIRE_FAILED:
        wire_put_failed(buf, id, (once_result)(1 + below(ONCE_QUOTA)), any_text());
        break;
    case WIRE_CONTEXT:
        put_any_context(buf, id);
        break;
    case WIRE_SPANS:
        put_any_spans(buf, id);
        break;
    case WIRE_EXPIRE:
    case WIRE_CHECK:
    case WIRE_STATS:
    case WIRE_STATUS:
        wire_put_number(buf, id, type, any_u64());
        break;
    case WIRE_STATE: {
        struct wire_state state = { toss(), any_span(), any_span(), any_span() };
        struct wire_number numbers[3];
        size_t count = below(4);
        for (size_t i = 0; i < count; i++)
            numbers[i] = (struct wire_number){ any_span(), any_i64() };
        wire_put_state(buf, id, &state, numbers, count);
        break;
    }
    }
}

#endif
