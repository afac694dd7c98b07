/*
 * test_wire.c - the daemon's frames: what is written is read, and nothing else is.
 *
 * Frames are made at random from one number that is printed where a case fails. All reading
 * is of bytes that end at a guard page.
 */
#include "wire/wire.h"

#include "../guard.h"
#include "../test.h"
#include "../wire_frames.h"
#include "wire_random.h"

enum { ROUNDS = 200, TYPES = WIRE_SPANS, BUF_MAX = 64 << 20 };

static const char *const type_names[] = {
#define NAME(name, value) [value] = #name,
    WIRE_TYPES(NAME)
#undef NAME
};

/* Not every number is taken. */
#define EACH_TYPE(type)                                                                                                \
    for (unsigned type = 1; type <= TYPES; type++)                                                                     \
        if (type_names[type] != NULL)

/* One frame of a type; the same one for the same round. */
static struct once_buf frame_of(unsigned type, unsigned round, size_t scale)
{
    struct once_buf buf;
    once_buf_init(&buf, BUF_MAX);
    pool.len = 0;
    state_of_random = type * 1000003u + round;
    len_scale = scale;
    put_any(&buf, (enum wire_type)type, (uint32_t)any());
    CHECK(buf.result == ONCE_OK);
    return buf;
}

static const char *row_of(unsigned type, unsigned round)
{
    static char row[64];
    snprintf(row, sizeof row, "%s, round %u", type_names[type], round);
    return row;
}

/* ------------------------------------------------------------------ reading at the guard page */

static struct wire_frame frame_in(once_span bytes)
{
    struct wire_frame frame = { .id = 0 };
    size_t used = 0;
    CHECK(wire_next(bytes, &frame, &used, NULL) == ONCE_OK);
    CHECK(used == bytes.len);
    return frame;
}

enum verdict { REFUSED, SAME, CHANGED };

/* Reads a payload of a type that ends at the guard page, and writes it again. */
static enum verdict read_payload(unsigned type, once_span payload, struct once_error *err)
{
    struct guard guard;
    struct wire_frame frame = { .id = 7,
                                .type = (uint8_t)type,
                                .payload = guard_copy(&guard, payload.ptr, payload.len) };
    struct once_buf out;
    once_buf_init(&out, BUF_MAX);
    bool exact = true;
    *err = (struct once_error){ .result = ONCE_OK };
    once_result r = frame_again(&frame, &out, &exact, err);
    enum verdict verdict = SAME;
    if (r != ONCE_OK) {
        EXPECT_ROW(type_names[type], r == ONCE_INVALID && err->result == r && err->text[0] != '\0');
        EXPECT_ROW(type_names[type], out.len == 0);
        verdict = REFUSED;
    } else if (exact && !once_span_equal(once_span_skip(once_buf_span(&out), WIRE_HEAD_LEN), payload)) {
        verdict = CHANGED;
    }
    once_buf_release(&out);
    guard_release(&guard);
    return verdict;
}

static once_span payload_of(const struct once_buf *frame)
{
    return once_span_skip(once_buf_span(frame), WIRE_HEAD_LEN);
}

/* ------------------------------------------------------------------ what is written is read */

static void round_trip__frames_of_every_type_come_out_as_the_same_bytes(void)
{
    struct once_error err;
    EACH_TYPE(type)
    {
        for (unsigned round = 0; round < ROUNDS; round++) {
            struct once_buf buf = frame_of(type, round, round % 2 == 0 ? 20 : 400);
            struct wire_frame frame = frame_in(once_buf_span(&buf));
            EXPECT_ROW(row_of(type, round), frame.type == type);
            EXPECT_ROW(row_of(type, round), read_payload(type, frame.payload, &err) == SAME);
            once_buf_release(&buf);
        }
    }
}

static bool same_outcome(const struct once_outcome *a, const struct once_outcome *b)
{
    return a->state == b->state && a->retryable == b->retryable && a->undelivered == b->undelivered &&
           a->body_dropped == b->body_dropped && a->status == b->status && once_span_equal(a->headers, b->headers) &&
           once_span_equal(a->body, b->body);
}

static bool same_claim(const struct once_claim *a, const struct once_claim *b)
{
    return once_span_equal(a->tenant, b->tenant) && once_span_equal(a->key, b->key) &&
           memcmp(&a->fingerprint, &b->fingerprint, sizeof a->fingerprint) == 0 && a->lease_ms == b->lease_ms &&
           a->retention_ms == b->retention_ms && a->body_retention_ms == b->body_retention_ms &&
           a->wait_ms == b->wait_ms && a->takeover == b->takeover && a->intent == b->intent &&
           a->key_time == b->key_time && once_span_equal(a->request, b->request) &&
           once_span_equal(a->route, b->route) && memcmp(a->nonce, b->nonce, sizeof a->nonce) == 0;
}

static bool same_resolve(const struct once_resolve *a, const struct once_resolve *b)
{
    return once_span_equal(a->tenant, b->tenant) && once_span_equal(a->key, b->key) && a->fence == b->fence &&
           a->verdict == b->verdict && same_outcome(&a->outcome, &b->outcome) && once_span_equal(a->actor, b->actor) &&
           once_span_equal(a->reason, b->reason);
}

static bool same_grant(const struct once_grant *a, const struct once_grant *b)
{
    return memcmp(a->record, b->record, sizeof a->record) == 0 && a->fence == b->fence;
}

static bool same_request(const struct once_request *a, const struct once_request *b)
{
    if (a->verb != b->verb || !same_grant(&a->grant, &b->grant))
        return false;
    switch (a->verb) {
    case ONCE_VERB_CLAIM:
        return same_claim(&a->claim, &b->claim);
    case ONCE_VERB_EXTEND:
        return a->extend.lease_ms == b->extend.lease_ms;
    case ONCE_VERB_ADVANCE:
        return once_span_equal(a->advance.point, b->advance.point) &&
               once_span_equal(a->advance.checkpoint, b->advance.checkpoint);
    case ONCE_VERB_FINISH:
        return same_outcome(&a->outcome, &b->outcome);
    case ONCE_VERB_RELEASE:
        return true;
    case ONCE_VERB_LOOKUP:
        return once_span_equal(a->lookup.tenant, b->lookup.tenant) && once_span_equal(a->lookup.key, b->lookup.key) &&
               a->lookup.request == b->lookup.request;
    case ONCE_VERB_RESOLVE:
        return same_resolve(&a->resolve, &b->resolve);
    case ONCE_VERB_TAKE_OVER:
        return same_grant(&a->take_over.seen, &b->take_over.seen) && a->take_over.lease_ms == b->take_over.lease_ms &&
               a->take_over.intent == b->take_over.intent &&
               memcmp(a->take_over.nonce, b->take_over.nonce, sizeof a->take_over.nonce) == 0;
    case ONCE_VERB_FORGET:
        return once_span_equal(a->forget.tenant, b->forget.tenant) && once_span_equal(a->forget.key, b->forget.key) &&
               same_grant(&a->forget.seen, &b->forget.seen) && a->forget.drop == b->forget.drop &&
               once_span_equal(a->forget.actor, b->forget.actor) && once_span_equal(a->forget.reason, b->forget.reason);
    }
    return false;
}

static void round_trip__a_call_arrives_with_all_its_fields(void)
{
    struct once_buf buf;
    once_buf_init(&buf, BUF_MAX);
    for (unsigned i = 0; i < 8 * ROUNDS; i++) {
        pool.len = 0;
        state_of_random = i;
        len_scale = 300;
        struct wire_call sent = any_call((enum once_verb)(1 + i % ONCE_VERB_FORGET)), got;
        once_buf_clear(&buf);
        wire_put_call(&buf, i, &sent);
        struct wire_frame frame = frame_in(once_buf_span(&buf));
        CHECK(frame.id == i && wire_get_call(frame.payload, &got, NULL) == ONCE_OK);
        CHECK(got.again == sent.again && memcmp(got.nonce, sent.nonce, sizeof got.nonce) == 0);
        CHECK(same_request(&sent.request, &got.request));
    }
    once_buf_release(&buf);
}

static bool same_record(const struct once_record *a, const struct once_record *b)
{
    return same_grant(&a->grant, &b->grant) && once_span_equal(a->tenant, b->tenant) &&
           once_span_equal(a->key, b->key) && memcmp(&a->fingerprint, &b->fingerprint, sizeof a->fingerprint) == 0 &&
           a->state == b->state && a->retryable == b->retryable && a->undelivered == b->undelivered &&
           a->body_dropped == b->body_dropped && a->body_expired == b->body_expired &&
           a->body_retention_ms == b->body_retention_ms && a->body_sealed == b->body_sealed &&
           a->lease_live == b->lease_live && a->has_request == b->has_request && a->forgotten == b->forgotten &&
           a->takeover == b->takeover && a->attempt == b->attempt && a->status == b->status &&
           a->retention_ms == b->retention_ms && a->created_at == b->created_at && a->claimed_at == b->claimed_at &&
           a->lease_until == b->lease_until && a->finished_at == b->finished_at && a->expires_at == b->expires_at &&
           once_span_equal(a->recovery_point, b->recovery_point) && once_span_equal(a->checkpoint, b->checkpoint) &&
           once_span_equal(a->headers, b->headers) && once_span_equal(a->body, b->body) &&
           once_span_equal(a->request, b->request) && once_span_equal(a->route, b->route);
}

static void round_trip__a_reply_arrives_with_all_its_fields(void)
{
    struct once_buf buf;
    once_buf_init(&buf, BUF_MAX);
    for (unsigned i = 0; i < ROUNDS; i++) {
        pool.len = 0;
        state_of_random = i;
        len_scale = 300;
        struct once_reply sent = any_reply(), got = { .memory = NULL };
        once_buf_clear(&buf);
        wire_put_reply(&buf, i, &sent);
        struct wire_frame frame = frame_in(once_buf_span(&buf));
        CHECK(wire_get_reply(frame.payload, &got.arm, &got.retry_after_ms, &got.record, NULL) == ONCE_OK);
        CHECK(got.arm == sent.arm && got.retry_after_ms == sent.retry_after_ms);
        CHECK(same_record(&sent.record, &got.record));
    }
    once_buf_release(&buf);
}

static void round_trip__counters_and_failures_arrive(void)
{
    struct once_buf buf;
    once_buf_init(&buf, BUF_MAX);
    struct once_stats sent = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, -14 }, got = { .now = 0 };
    wire_put_counts(&buf, 1, &sent);
    CHECK(wire_get_counts(payload_of(&buf), &got, NULL) == ONCE_OK);
    EXPECT(memcmp(&sent, &got, sizeof got) == 0); /* fourteen numbers of eight bytes: nothing between them */
    for (int result = ONCE_INVALID; result <= ONCE_QUOTA; result++) {
        struct once_error err = { .result = ONCE_OK };
        once_buf_clear(&buf);
        wire_put_failed(&buf, 1, (once_result)result, "what %s and 100% of it");
        EXPECT(wire_get_failed(payload_of(&buf), &err) == (once_result)result);
        EXPECT(err.result == (once_result)result && strcmp(err.text, "what %s and 100% of it") == 0);
    }
    once_buf_clear(&buf);
    wire_put_failed(&buf, 1, ONCE_OK, "nothing");
    EXPECT(wire_get_failed(payload_of(&buf), NULL) == ONCE_INVALID);
    once_buf_release(&buf);
}

static once_span filled(size_t len)
{
    return span_of_len(len);
}

/* The largest of everything that the limits allow fits into a frame. */
static void limits__the_largest_frames_fit(void)
{
    struct once_error err;
    struct once_buf buf;
    once_buf_init(&buf, BUF_MAX);
    pool.len = 0;
    struct once_reply reply = { .arm = ONCE_ARM_REPLAY };
    reply.record = (struct once_record){ .tenant = filled(ONCE_TENANT_LEN_MAX),
                                         .key = filled(ONCE_KEY_LEN_MAX),
                                         .recovery_point = filled(ONCE_POINT_LEN_MAX),
                                         .checkpoint = filled(ONCE_CHECKPOINT_LEN_MAX),
                                         .headers = filled(ONCE_HEADERS_LEN_MAX),
                                         .body = filled(ONCE_BODY_LEN_MAX) };
    wire_put_reply(&buf, 1, &reply);
    CHECK(buf.result == ONCE_OK && buf.len <= WIRE_FRAME_LEN_MAX + 4);
    EXPECT(read_payload(WIRE_REPLY, frame_in(once_buf_span(&buf)).payload, &err) == SAME);

    once_buf_clear(&buf);
    struct wire_call call = { .request = { .verb = ONCE_VERB_RESOLVE } };
    call.request.resolve =
        (struct once_resolve){ .tenant = reply.record.tenant,
                               .key = reply.record.key,
                               .outcome = { .headers = reply.record.headers, .body = reply.record.body },
                               .actor = filled(ONCE_ACTOR_LEN_MAX),
                               .reason = filled(ONCE_REASON_LEN_MAX) };
    wire_put_call(&buf, 1, &call);
    CHECK(buf.result == ONCE_OK);
    EXPECT(read_payload(WIRE_CALL, frame_in(once_buf_span(&buf)).payload, &err) == SAME);

    once_buf_clear(&buf);
    static struct once_record records[ONCE_LIST_LIMIT_MAX + 1];
    for (size_t i = 0; i <= ONCE_LIST_LIMIT_MAX; i++) {
        records[i] = reply.record;
        records[i].checkpoint = records[i].headers = records[i].body = (once_span){ NULL, 0 };
    }
    struct once_page page = { .records = records, .count = ONCE_LIST_LIMIT_MAX };
    wire_put_page(&buf, 1, &page);
    CHECK(buf.result == ONCE_OK);
    EXPECT(read_payload(WIRE_PAGE, frame_in(once_buf_span(&buf)).payload, &err) == SAME);
    once_buf_clear(&buf);
    page.count++;
    wire_put_page(&buf, 1, &page);
    EXPECT(read_payload(WIRE_PAGE, payload_of(&buf), &err) == REFUSED);

    once_buf_clear(&buf);
    static struct once_event events[ONCE_HISTORY_LEN_MAX + 1];
    for (size_t i = 0; i <= ONCE_HISTORY_LEN_MAX; i++)
        events[i] = (struct once_event){ .what = "resolved not done",
                                         .actor = call.request.resolve.actor,
                                         .reason = call.request.resolve.reason };
    struct once_history history = { .events = events, .count = ONCE_HISTORY_LEN_MAX };
    wire_put_events(&buf, 1, &history);
    CHECK(buf.result == ONCE_OK);
    EXPECT(read_payload(WIRE_EVENTS, frame_in(once_buf_span(&buf)).payload, &err) == SAME);
    once_buf_clear(&buf);
    history.count++;
    wire_put_events(&buf, 1, &history);
    EXPECT(read_payload(WIRE_EVENTS, payload_of(&buf), &err) == REFUSED);
    once_buf_release(&buf);
}

/* What would be too long for any reader is not written. */
static void limits__a_frame_that_is_too_long_is_not_begun(void)
{
    struct once_buf buf;
    once_buf_init(&buf, BUF_MAX);
    once_buf_add(&buf, ONCE_LIT("before"));
    pool.len = 0;
    struct wire_call call = { .request = { .verb = ONCE_VERB_FINISH } };
    call.request.outcome.body = filled(WIRE_FRAME_LEN_MAX);
    wire_put_call(&buf, 1, &call);
    EXPECT(buf.result == ONCE_LIMIT && buf.len == 6);

    once_buf_clear(&buf);
    size_t begin = wire_begin(&buf, 1, WIRE_CHECKED);
    once_buf_add(&buf, call.request.outcome.body);
    EXPECT(wire_end(&buf, begin, NULL) == ONCE_LIMIT);
    EXPECT(buf.result == ONCE_OK && buf.len == 0); /* this one tells its caller, the buffer goes on */
    begin = wire_begin(&buf, 1, WIRE_CHECKED);
    once_buf_add(&buf, once_span_of(call.request.outcome.body.ptr, WIRE_FRAME_LEN_MAX - (WIRE_HEAD_LEN - 4)));
    EXPECT(wire_end(&buf, begin, NULL) == ONCE_OK && buf.len == 4 + WIRE_FRAME_LEN_MAX);
    struct wire_frame frame;
    size_t used;
    EXPECT(wire_next(once_buf_span(&buf), &frame, &used, NULL) == ONCE_OK && used == buf.len);
    once_buf_release(&buf);
}

/* A buffer that ends anywhere in a frame has nothing of it. */
static void limits__no_half_frame_stays_in_a_full_buffer(void)
{
    EACH_TYPE(type)
    {
        if (type == WIRE_CHECKED)
            continue; /* ends with wire_end(): above */
        struct once_buf whole = frame_of(type, 1, 20);
        for (size_t max = 0; max < whole.len; max++) {
            struct once_buf buf;
            once_buf_init(&buf, max + 3);
            once_buf_add(&buf, ONCE_LIT("abc"));
            pool.len = 0;
            state_of_random = type * 1000003u + 1;
            put_any(&buf, (enum wire_type)type, (uint32_t)any());
            EXPECT_ROW(type_names[type], buf.result == ONCE_LIMIT && buf.len == 3);
            once_buf_release(&buf);
        }
        once_buf_release(&whole);
    }
}

/* ------------------------------------------------------------------ the bytes, as the document has them */

static void expect_hex(const char *name, const struct once_buf *buf, const char *want)
{
    char hex[1024] = "";
    CHECK(2 * buf->len < sizeof hex);
    for (size_t i = 0; i < buf->len; i++)
        snprintf(hex + 2 * i, 3, "%02x", buf->ptr[i]);
    if (strcmp(hex, want) != 0) {
        printf("# wanted: %s\n# got:    %s\n", want, hex);
        test_failed(__FILE__, __LINE__, name, "the bytes differ");
    }
}

/* From the first release on: if one of these changes, so must WIRE_VERSION (docs/internals/wire.md). */
static void format__is_the_one_of_version_1(void)
{
    struct once_buf buf;
    once_buf_init(&buf, BUF_MAX);
    wire_put_hello(&buf, 1, &(struct wire_hello){ 1, ONCE_LIT("nginx") });
    expect_hex("hello", &buf,
               "00000016"
               "00000001"
               "01"
               "4f4e4345"
               "00000001"
               "00000005"
               "6e67696e78");

    once_buf_clear(&buf);
    struct wire_call call = { .request = { .verb = ONCE_VERB_CLAIM, .grant = { .fence = 0 } } };
    call.request.claim = (struct once_claim){ .tenant = ONCE_LIT("t"),
                                              .key = ONCE_LIT("key"),
                                              .lease_ms = 1000,
                                              .retention_ms = ONCE_NEVER,
                                              .body_retention_ms = 7,
                                              .wait_ms = 5,
                                              .takeover = ONCE_TAKEOVER_RERUN,
                                              .route = ONCE_LIT("p/q") };
    memset(call.nonce, 0xaa, sizeof call.nonce);
    memset(call.request.claim.fingerprint.bytes, 0xbb, 32);
    memset(call.request.claim.nonce, 0xcc, 16);
    wire_put_call(&buf, 2, &call);
    expect_hex("claim", &buf,
               "00000099"
               "00000002"
               "03"
               "01"
               "00"
               "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
               "00000000000000000000000000000000"
               "0000000000000000"
               "00000001"
               "74"
               "00000003"
               "6b6579"
               "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
               "00000000000003e8"
               "ffffffffffffffff"
               "0000000000000007"
               "0000000000000005"
               "02"
               "00"
               "00"
               "00000000"
               "00000003"
               "702f71"
               "cccccccccccccccccccccccccccccccc");

    once_buf_clear(&buf);
    call = (struct wire_call){ .again = true, .request = { .verb = ONCE_VERB_FINISH, .grant = { .fence = 17 } } };
    memset(call.request.grant.record, 0x11, 16);
    call.request.outcome = (struct once_outcome){ .state = ONCE_STATE_FAILED,
                                                  .retryable = true,
                                                  .undelivered = true,
                                                  .status = 503,
                                                  .headers = ONCE_LIT("A: b\r\n"),
                                                  .body = ONCE_LIT("no") };
    wire_put_call(&buf, 3, &call);
    expect_hex("finish", &buf,
               "00000047"
               "00000003"
               "03"
               "04"
               "01"
               "00000000000000000000000000000000"
               "11111111111111111111111111111111"
               "0000000000000011"
               "03"
               "01"
               "01"
               "00"
               "000001f7"
               "00000006"
               "413a20620d0a"
               "00000002"
               "6e6f");

    once_buf_clear(&buf);
    struct once_reply reply = { .arm = ONCE_ARM_IN_PROGRESS, .retry_after_ms = 250 };
    reply.record = (struct once_record){ .grant = { .fence = 9 },
                                         .state = ONCE_STATE_RUNNING,
                                         .lease_live = true,
                                         .body_sealed = true,
                                         .takeover = ONCE_TAKEOVER_ESCALATE,
                                         .attempt = 2,
                                         .status = -1,
                                         .retention_ms = 1,
                                         .body_retention_ms = 7,
                                         .created_at = 2,
                                         .claimed_at = 3,
                                         .lease_until = 4,
                                         .finished_at = 5,
                                         .expires_at = 6,
                                         .recovery_point = ONCE_LIT("p") };
    wire_put_reply(&buf, 4, &reply);
    expect_hex("reply", &buf,
               "000000b1"
               "00000004"
               "04"
               "05"
               "00000000000000fa"
               "00000000000000000000000000000000"
               "0000000000000009"
               "00000000"
               "00000000"
               "0000000000000000000000000000000000000000000000000000000000000000"
               "01"
               "00"
               "00"
               "00"
               "00"
               "01"
               "01"
               "00"
               "00"
               "01"
               "00000002"
               "ffffffff"
               "0000000000000001"
               "0000000000000007"
               "0000000000000002"
               "0000000000000003"
               "0000000000000004"
               "0000000000000005"
               "0000000000000006"
               "00000001"
               "70"
               "00000000"
               "00000000"
               "00000000"
               "00000000"
               "00000000");

    once_buf_clear(&buf);
    wire_put_failed(&buf, 5, ONCE_BUSY, "full");
    expect_hex("failed", &buf,
               "0000000e"
               "00000005"
               "0f"
               "03"
               "00000004"
               "66756c6c");

    once_buf_clear(&buf);
    struct wire_context context = { .call = 7, .trace.sampled = true, .route = ONCE_LIT("/p") };
    memset(context.trace.trace, 0xdd, sizeof context.trace.trace);
    memset(context.trace.span, 0xee, sizeof context.trace.span);
    wire_put_context(&buf, 0, &context);
    expect_hex("context", &buf,
               "00000028"
               "00000000"
               "12"
               "00000007"
               "dddddddddddddddddddddddddddddddd"
               "eeeeeeeeeeeeeeee"
               "01"
               "00000002"
               "2f70");

    once_buf_clear(&buf);
    struct once_trace_report report = { .fence = 9, .attempt = 2, .tenant = ONCE_LIT("t"), .count = 1 };
    report.spans[0] = (struct once_trace_span){
        .name = ONCE_TRACE_UPSTREAM, .start_ns = 1, .end_ns = 2, .arm = ONCE_ARM_EXECUTE, .status = 201
    };
    wire_put_spans(&buf, 0, 3, &report);
    expect_hex("spans", &buf,
               "00000066"
               "00000000"
               "13"
               "00000003"
               "00000000000000000000000000000000"
               "00000000000000000000000000000000"
               "0000000000000009"
               "00000002"
               "00000001"
               "74"
               "00000000"
               "01"
               "04"
               "0000000000000000"
               "0000000000000000"
               "0000000000000001"
               "0000000000000002"
               "01"
               "000000c9"
               "00");
    once_buf_release(&buf);
}

/* ------------------------------------------------------------------ nothing else is read */

static void cut__a_payload_that_ends_anywhere_is_refused(void)
{
    struct once_error err;
    EACH_TYPE(type)
    {
        for (unsigned round = 0; round < 14; round++) {
            struct once_buf buf = frame_of(type, round, 12);
            once_span payload = payload_of(&buf);
            for (size_t len = 0; len < payload.len; len++)
                EXPECT_ROW(row_of(type, round), read_payload(type, once_span_of(payload.ptr, len), &err) == REFUSED);
            once_buf_release(&buf);
        }
    }
}

static void cut__a_frame_that_is_not_complete_is_waited_for(void)
{
    EACH_TYPE(type)
    {
        struct once_buf buf = frame_of(type, 3, 12);
        for (size_t len = 0; len < buf.len; len++) {
            struct guard guard;
            struct wire_frame frame;
            size_t used = 99;
            once_span bytes = guard_copy(&guard, buf.ptr, len);
            EXPECT_ROW(type_names[type], wire_next(bytes, &frame, &used, NULL) == ONCE_OK && used == 0);
            guard_release(&guard);
        }
        once_buf_release(&buf);
    }
}

static void long__bytes_after_the_last_field_are_refused(void)
{
    struct once_error err;
    EACH_TYPE(type)
    {
        for (unsigned round = 0; round < 14; round++) {
            struct once_buf buf = frame_of(type, round, 12);
            for (int more = 1; more <= 9; more++) {
                once_buf_add_byte(&buf, 0);
                EXPECT_ROW(row_of(type, round), read_payload(type, payload_of(&buf), &err) == REFUSED);
                char count[32];
                snprintf(count, sizeof count, " %d extra bytes", more);
                EXPECT_ROW(row_of(type, round), strstr(err.text, count) != NULL);
            }
            once_buf_release(&buf);
        }
    }
}

/* Each value is written as it is: one that does not exist must be refused, not bent. */
static void values__that_do_not_exist_are_refused(void)
{
    struct once_error err;
    struct once_buf buf;
    once_buf_init(&buf, BUF_MAX);
    const struct once_record plain = { .grant = { .fence = 1 } };
    for (int bad = 0; bad <= 255; bad++) {
#define TRY(type, put, lowest, highest)                                                                                \
    do {                                                                                                               \
        once_buf_clear(&buf);                                                                                          \
        put;                                                                                                           \
        bool exists = bad >= (lowest) && bad <= (highest);                                                             \
        EXPECT_ROW(#type ": " #highest, read_payload(type, payload_of(&buf), &err) == (exists ? SAME : REFUSED));      \
    } while (0)
        struct once_reply reply = { .arm = (enum once_arm)bad, .record = plain };
        TRY(WIRE_REPLY, wire_put_reply(&buf, 1, &reply), 1, ONCE_ARM_EXPIRED);
        reply = (struct once_reply){ .arm = ONCE_ARM_FOUND, .record = plain };
        reply.record.state = (enum once_state)bad;
        TRY(WIRE_REPLY, wire_put_reply(&buf, 1, &reply), 0, ONCE_STATE_UNKNOWN);
        reply.record = plain;
        reply.record.takeover = (enum once_takeover)bad;
        TRY(WIRE_REPLY, wire_put_reply(&buf, 1, &reply), 0, ONCE_TAKEOVER_COMPLETER);

        struct wire_call call = { .request = { .verb = ONCE_VERB_CLAIM } };
        call.request.claim.takeover = (enum once_takeover)bad;
        TRY(WIRE_CALL, wire_put_call(&buf, 1, &call), 0, ONCE_TAKEOVER_COMPLETER);
        call = (struct wire_call){ .request = { .verb = ONCE_VERB_FINISH } };
        call.request.outcome.state = (enum once_state)bad;
        TRY(WIRE_CALL, wire_put_call(&buf, 1, &call), 0, ONCE_STATE_UNKNOWN);
        call = (struct wire_call){ .request = { .verb = ONCE_VERB_RESOLVE } };
        call.request.resolve.verdict = (enum once_verdict)bad;
        TRY(WIRE_CALL, wire_put_call(&buf, 1, &call), 0, ONCE_VERDICT_RELEASE);
        call = (struct wire_call){ .request = { .verb = ONCE_VERB_RELEASE } };
        TRY(WIRE_CALL, (wire_put_call(&buf, 1, &call), buf.ptr[WIRE_HEAD_LEN + 1] = (uint8_t)bad), 0, 1);
        TRY(WIRE_CALL, (wire_put_call(&buf, 1, &call), buf.ptr[WIRE_HEAD_LEN] = (uint8_t)bad), ONCE_VERB_RELEASE,
            ONCE_VERB_RELEASE); /* the other verbs have more fields */

        struct once_event event = { .what = "claimed", .state = (enum once_state)bad };
        struct once_history history = { .events = &event, .count = 1 };
        TRY(WIRE_EVENTS, wire_put_events(&buf, 1, &history), 0, ONCE_STATE_UNKNOWN);
        TRY(WIRE_EXPIRED, (wire_put_expired(&buf, 1, 1, false), buf.ptr[buf.len - 1] = (uint8_t)bad), 0, 1);
        TRY(WIRE_FAILED, wire_put_failed(&buf, 1, (once_result)bad, "x"), 1, ONCE_QUOTA);
        struct once_filter all = { .limit = 1 };
        TRY(WIRE_LIST, (wire_put_list(&buf, 1, &all), buf.ptr[WIRE_HEAD_LEN + 4] = (uint8_t)bad), 0, 1);
        struct once_trace_report report = { .count = 1 };
        report.spans[0].name = (enum once_trace_name)bad;
        TRY(WIRE_SPANS, wire_put_spans(&buf, 0, 0, &report), 1, ONCE_TRACE_SEND);
        report.spans[0].name = ONCE_TRACE_CLAIM;
        report.spans[0].arm = (enum once_arm)bad;
        TRY(WIRE_SPANS, wire_put_spans(&buf, 0, 0, &report), 0, ONCE_ARM_EXPIRED);
#undef TRY
    }
    once_span tenant = ONCE_LIT("t");
    once_buf_clear(&buf);
    wire_put_list(&buf, 1, &(struct once_filter){ .tenant = &tenant });
    buf.ptr[WIRE_HEAD_LEN + 4] = 0; /* the name of a tenant, but none is meant */
    EXPECT(read_payload(WIRE_LIST, payload_of(&buf), &err) == REFUSED);
    static const uint8_t text[ONCE_TENANT_LEN_MAX + 1];
    for (size_t len = sizeof text - 1; len <= sizeof text; len++) {
        once_buf_clear(&buf);
        wire_put_context(&buf, 0, &(struct wire_context){ .route = once_span_of(text, len) });
        EXPECT(read_payload(WIRE_CONTEXT, payload_of(&buf), &err) == (len < sizeof text ? SAME : REFUSED));
    }
    once_buf_release(&buf);
}

/* Any four bytes may be a length: made huge, each is refused, or it was none. */
static void lengths__that_overflow_are_refused(void)
{
    static const uint32_t lengths[] = { UINT32_MAX, UINT32_MAX - 3, 1u << 31, (1u << 31) - 1, 1u << 30, 0x01000000 };
    struct once_error err;
    EACH_TYPE(type)
    {
        struct once_buf buf = frame_of(type, 5, 12);
        for (size_t at = WIRE_HEAD_LEN; at + 4 <= buf.len; at++) {
            uint8_t kept[4];
            memcpy(kept, buf.ptr + at, 4);
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
                for (int b = 0; b < 4; b++)
                    buf.ptr[at + (size_t)b] = (uint8_t)(lengths[i] >> (24 - 8 * b));
                EXPECT_ROW(row_of(type, 5), read_payload(type, payload_of(&buf), &err) != CHANGED);
            }
            memcpy(buf.ptr + at, kept, 4);
        }
        once_buf_release(&buf);
    }
}

static void lengths__of_frames_have_bounds(void)
{
    static const struct {
        uint32_t len;
        bool possible;
    } rows[] = { { 0, false },
                 { 4, false },
                 { 5, true },
                 { WIRE_FRAME_LEN_MAX, true },
                 { WIRE_FRAME_LEN_MAX + 1, false },
                 { 1u << 31, false },
                 { UINT32_MAX, false },
                 { 0x47455420 /* "GET " */, false } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t head[8] = { (uint8_t)(rows[i].len >> 24), (uint8_t)(rows[i].len >> 16), (uint8_t)(rows[i].len >> 8),
                            (uint8_t)rows[i].len };
        struct guard guard;
        struct wire_frame frame;
        struct once_error err = { .result = ONCE_OK };
        size_t used = 99;
        once_result r = wire_next(guard_copy(&guard, head, sizeof head), &frame, &used, &err);
        EXPECT(used == 0 && r == (rows[i].possible ? ONCE_OK : ONCE_INVALID));
        EXPECT(rows[i].possible || strstr(err.text, "bytes") != NULL);
        guard_release(&guard);
    }
}

/* Every byte of every frame, with every bit of it turned. */
static void bits__that_are_turned_never_change_what_is_said(void)
{
    struct once_error err;
    EACH_TYPE(type)
    {
        for (unsigned round = 0; round < 7; round++) {
            struct once_buf buf = frame_of(type, round, 12);
            for (size_t bit = 8 * WIRE_HEAD_LEN; bit < 8 * buf.len; bit++) {
                buf.ptr[bit / 8] ^= (uint8_t)(1u << bit % 8);
                EXPECT_ROW(row_of(type, round), read_payload(type, payload_of(&buf), &err) != CHANGED);
                buf.ptr[bit / 8] ^= (uint8_t)(1u << bit % 8);
            }
            once_buf_release(&buf);
        }
    }
}

static void hello__of_another_protocol_is_told_so(void)
{
    struct once_error err = { .result = ONCE_OK };
    struct wire_hello hello;
    static const char *const others[] = { "", "ONC", "ONCF\0\0\0\1\0\0\0\0", "GET / HTTP/1.1\r\n" };
    for (size_t i = 0; i < 4; i++) {
        EXPECT(wire_get_hello(once_span_of(others[i], i == 2 ? 12 : strlen(others[i])), &hello, &err) == ONCE_INVALID);
        EXPECT(strstr(err.text, "not Once's protocol") != NULL);
    }
}

/* ------------------------------------------------------------------ streams */

/* All types one after the other, cut in two everywhere: the same frames come out. */
static void stream__cut_at_every_byte_gives_the_same_frames(void)
{
    struct once_buf stream;
    once_buf_init(&stream, BUF_MAX);
    size_t ends[TYPES + 1] = { 0 };
    EACH_TYPE(type)
    {
        struct once_buf frame = frame_of(type, 2, 12);
        once_buf_add(&stream, once_buf_span(&frame));
        ends[type] = stream.len;
        once_buf_release(&frame);
    }
    for (size_t cut = 0; cut <= stream.len; cut++) {
        size_t at = 0;
        unsigned seen = 0;
        for (int part = 0; part < 2; part++) {
            struct guard guard;
            size_t until = part == 0 ? cut : stream.len, base = at;
            once_span bytes = guard_copy(&guard, stream.ptr + base, until - base);
            for (size_t used = 1; used > 0; at += used) {
                struct wire_frame frame;
                CHECK(wire_next(once_span_skip(bytes, at - base), &frame, &used, NULL) == ONCE_OK);
                if (used == 0)
                    continue;
                do
                    seen++;
                while (type_names[seen] == NULL);
                CHECK(frame.type == seen && at + used == ends[seen]);
                CHECK(frame.payload.len == used - WIRE_HEAD_LEN);
                CHECK(frame.payload.ptr == bytes.ptr + (at - base) + WIRE_HEAD_LEN);
            }
            guard_release(&guard);
        }
        CHECK(seen == TYPES && at == stream.len);
    }
    once_buf_release(&stream);
}

static void stream__frames_of_other_types_are_passed_on(void)
{
    static const uint8_t types[] = { 0, TYPES + 1, 255 };
    for (size_t i = 0; i < sizeof types; i++) {
        uint8_t bytes[] = { 0, 0, 0, 6, 0xde, 0xad, 0xbe, 0xef, types[i], 'x' };
        struct wire_frame frame = frame_in(once_span_of(bytes, sizeof bytes));
        EXPECT(frame.type == types[i] && frame.id == 0xdeadbeef && once_span_equal(frame.payload, ONCE_LIT("x")));
    }
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(round_trip__frames_of_every_type_come_out_as_the_same_bytes),
        TEST(round_trip__a_call_arrives_with_all_its_fields),
        TEST(round_trip__a_reply_arrives_with_all_its_fields),
        TEST(round_trip__counters_and_failures_arrive),
        TEST(limits__the_largest_frames_fit),
        TEST(limits__a_frame_that_is_too_long_is_not_begun),
        TEST(limits__no_half_frame_stays_in_a_full_buffer),
        TEST(format__is_the_one_of_version_1),
        TEST(cut__a_payload_that_ends_anywhere_is_refused),
        TEST(cut__a_frame_that_is_not_complete_is_waited_for),
        TEST(long__bytes_after_the_last_field_are_refused),
        TEST(values__that_do_not_exist_are_refused),
        TEST(lengths__that_overflow_are_refused),
        TEST(lengths__of_frames_have_bounds),
        TEST(bits__that_are_turned_never_change_what_is_said),
        TEST(hello__of_another_protocol_is_told_so),
        TEST(stream__cut_at_every_byte_gives_the_same_frames),
        TEST(stream__frames_of_other_types_are_passed_on),
    };
    once_buf_init(&pool, BUF_MAX);
    if (once_buf_reserve(&pool, BUF_MAX) == NULL)
        return 2;
    int failed = test_main(argc, argv, tests, sizeof tests / sizeof *tests);
    once_buf_release(&pool);
    return failed;
}
