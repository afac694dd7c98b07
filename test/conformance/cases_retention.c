/*
 * cases_retention.c - bodies that are not kept as long as their records, and keys that tell their own age (ADR 29).
 */
#include "suite.h"

#include <inttypes.h>

#define HOUR_MS (3600 * 1000LL)
#define DAY_MS (24 * HOUR_MS)
#define SKEW_MS ONCE_KEY_SKEW_MS_MAX

static const once_span A = { (const uint8_t *)"a", 1 };
static const once_span LINES = { (const uint8_t *)"Content-Type: text/plain\r\n", 26 };

static void finish_with(struct once_grant grant, int32_t status)
{
    const struct once_reply *done = do_finish(grant, .state = ONCE_STATE_SUCCEEDED, .status = status, .headers = LINES,
                                              .body = ONCE_LIT("the answer"));
    EXPECT(done->arm == ONCE_ARM_DONE && !done->record.body_expired);
}

static void expect_whole(const char *row, const struct once_record *r)
{
    EXPECT_ROW(row, !r->body_dropped && !r->body_expired);
    EXPECT_ROW(row, span_equal(r->headers, LINES) && span_equal(r->body, ONCE_LIT("the answer")));
}

static void expect_tombstone(const char *row, const struct once_record *r)
{
    EXPECT_ROW(row, r->body_dropped && r->body_expired);
    EXPECT_ROW(row, r->headers.len == 0 && r->body.len == 0);
}

/* ------------------------------------------------------------------ bodies */

static void K8__body_goes_before_its_record_to_the_millisecond(void)
{
    struct once_grant grant =
        granted(.key = A, .fingerprint = print_of(1), .retention_ms = HOUR_MS, .body_retention_ms = 1000);
    EXPECT(do_lookup(A)->record.body_retention_ms == 1000);
    clock_advance(30000); /* it counts from the finish */
    finish_with(grant, 201);
    clock_advance(999);
    const struct once_reply *replay = do_claim(.key = A, .fingerprint = print_of(1));
    CHECK(replay->arm == ONCE_ARM_REPLAY);
    expect_whole("in time", &replay->record);
    expect_whole("looked up in time", &do_lookup(A)->record);

    clock_advance(1);
    static const char *const rows[] = { "without the reaper", "after the reaper" };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        replay = do_claim(.key = A, .fingerprint = print_of(1));
        EXPECT_ROW(rows[i], replay->arm == ONCE_ARM_REPLAY && replay->record.status == 201);
        EXPECT_ROW(rows[i], replay->record.state == ONCE_STATE_SUCCEEDED && replay->record.attempt == 1);
        expect_tombstone(rows[i], &replay->record);
        expect_tombstone(rows[i], &do_lookup(A)->record);
        EXPECT_ROW(rows[i], do_claim(.key = A, .fingerprint = print_of(2))->arm == ONCE_ARM_MISMATCH);
        EXPECT_ROW(rows[i], do_list((struct once_filter){ 0 })->count == 1);
        do_expire_all(0);
    }
    clock_advance(HOUR_MS - 1000);
    EXPECT(do_lookup(A)->arm == ONCE_ARM_ABSENT);
    EXPECT(do_claim(.key = A, .fingerprint = print_of(2))->arm == ONCE_ARM_EXECUTE);
}

/* The usual use: that it was done is known for ever, the answer for a day. */
static void K8__record_for_ever_with_a_body_for_a_day(void)
{
    finish_with(granted(.key = A, .retention_ms = ONCE_NEVER, .body_retention_ms = DAY_MS), 200);
    EXPECT(do_lookup(A)->record.expires_at == ONCE_NEVER);
    for (int day = 0; day < 8; day++) {
        const struct once_reply *replay = do_claim(.key = A, .retention_ms = ONCE_NEVER);
        CHECK(replay->arm == ONCE_ARM_REPLAY);
        if (day == 0)
            expect_whole("first day", &replay->record);
        else
            expect_tombstone("later", &replay->record);
        succeed(granted(.key = numbered("other", day), .retention_ms = HOUR_MS), ONCE_LIT("x")); /* there is traffic */
        clock_advance(DAY_MS);
        do_expire_all(0);
    }
}

static void K8__body_kept_for_longer_than_a_generation(void)
{
    finish_with(granted(.key = A, .retention_ms = ONCE_NEVER, .body_retention_ms = 3 * DAY_MS), 200);
    for (int day = 0; day < 6; day++) {
        const struct once_reply *found = do_lookup(A);
        CHECK(found->arm == ONCE_ARM_FOUND);
        if (day < 3)
            expect_whole("in time", &found->record);
        else
            expect_tombstone("later", &found->record);
        succeed(granted(.key = numbered("other", day), .retention_ms = HOUR_MS), ONCE_LIT("x"));
        clock_advance(DAY_MS);
        do_expire_all(0);
    }
}

static void K8__tombstones_of_every_end(void)
{
    static const struct end {
        const char *name;
        struct once_outcome outcome;
        enum once_arm arm; /* of the next claim */
    } ends[] = {
        { "succeeded", { .state = ONCE_STATE_SUCCEEDED, .status = 200 }, ONCE_ARM_REPLAY },
        { "failed for good", { .state = ONCE_STATE_FAILED, .status = 404 }, ONCE_ARM_REPLAY },
        { "may be retried", { .state = ONCE_STATE_FAILED, .status = 503, .retryable = true }, ONCE_ARM_EXECUTE },
    };
    for (size_t i = 0; i < LENGTH(ends); i++) {
        once_span key = span_str(ends[i].name);
        struct once_outcome outcome = ends[i].outcome;
        outcome.headers = LINES;
        outcome.body = ONCE_LIT("the answer");
        suite_finish(granted(.key = key, .retention_ms = HOUR_MS, .body_retention_ms = 1000), &outcome);
        expect_whole(ends[i].name, &do_lookup(key)->record);
        clock_advance(1000);
        for (int reaped = 0; reaped < 2; reaped++) {
            const struct once_record *r = &do_lookup(key)->record;
            expect_tombstone(ends[i].name, r);
            EXPECT_ROW(ends[i].name, r->state == outcome.state && r->status == outcome.status);
            EXPECT_ROW(ends[i].name, r->retryable == outcome.retryable);
            do_expire_all(0);
        }
        const struct once_reply *next = do_claim(.key = key, .retention_ms = HOUR_MS, .body_retention_ms = 2000);
        EXPECT_ROW(ends[i].name, next->arm == ends[i].arm);
        if (next->arm != ONCE_ARM_EXECUTE)
            continue;
        EXPECT(next->record.attempt == 2 && next->record.body_retention_ms == 2000);
        finish_with(next->record.grant, 200);
        clock_advance(1999);
        expect_whole("retried", &do_lookup(key)->record);
        clock_advance(1);
        expect_tombstone("retried", &do_lookup(key)->record);
        do_expire_all(0);
        expect_tombstone("retried", &do_lookup(key)->record);
    }
}

/* What is known of an outcome that is not known is for the person who looks. */
static void K10__unknown_keeps_what_came_until_it_is_resolved(void)
{
    do_finish(granted(.key = A, .retention_ms = HOUR_MS, .body_retention_ms = 1000), .state = ONCE_STATE_UNKNOWN,
              .status = 502, .headers = LINES, .body = ONCE_LIT("the answer"));
    clock_advance(DAY_MS);
    do_expire_all(0);
    expect_whole("unknown", &do_lookup(A)->record);
    do_resolve(.key = A, .verdict = ONCE_VERDICT_DONE, .reason = ONCE_LIT("r"),
               .outcome = {
                   .state = ONCE_STATE_SUCCEEDED, .status = 200, .headers = LINES, .body = ONCE_LIT("the answer") });
    clock_advance(999);
    do_expire_all(0);
    expect_whole("resolved", &do_lookup(A)->record);
    clock_advance(1);
    expect_tombstone("after that", &do_lookup(A)->record);
    do_expire_all(0);
    const struct once_reply *replay = do_claim(.key = A);
    EXPECT(replay->arm == ONCE_ARM_REPLAY && replay->record.status == 200);
    expect_tombstone("reaped", &replay->record);
}

static void K8__running_record_is_left_alone(void)
{
    struct once_grant grant = granted(.key = A, .lease_ms = 1000, .retention_ms = 2000, .body_retention_ms = 1);
    do_advance(grant, ONCE_LIT("p"), ONCE_LIT("checkpoint"));
    clock_advance(DAY_MS);
    do_expire_all(0);
    const struct once_reply *found = do_lookup(A);
    EXPECT(found->record.state == ONCE_STATE_RUNNING && !found->record.body_expired);
    const struct once_reply *next = do_claim(.key = A, .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(next->arm == ONCE_ARM_EXECUTE && span_equal(next->record.checkpoint, ONCE_LIT("checkpoint")));
}

static void K8__who_takes_over_has_the_terms_of_the_claim(void)
{
    struct once_grant first = granted(.key = A, .lease_ms = 1000, .retention_ms = HOUR_MS, .body_retention_ms = 5000,
                                      .takeover = ONCE_TAKEOVER_RERUN);
    clock_advance(1000);
    const struct once_reply *taken = do_take_over(first, .lease_ms = HOUR_MS);
    CHECK(taken->arm == ONCE_ARM_EXECUTE);
    EXPECT(taken->record.body_retention_ms == 5000);
    finish_with(taken->record.grant, 200);
    clock_advance(4999);
    expect_whole("in time", &do_lookup(A)->record);
    clock_advance(1);
    expect_tombstone("later", &do_lookup(A)->record);
}

/* K3, K5: the same whether or not the bytes are still there. */
static void K5__repeated_finish_finds_a_tombstone(void)
{
    for (int reaped = 0; reaped < 2; reaped++) {
        once_span key = numbered("k", reaped);
        struct once_grant grant = granted(.key = key, .retention_ms = HOUR_MS, .body_retention_ms = 1000);
        finish_with(grant, 200);
        finish_with(grant, 200); /* in time it recognises itself */
        clock_advance(1000);
        if (reaped)
            do_expire_all(0);
        const struct once_reply *late = do_finish(grant, .state = ONCE_STATE_SUCCEEDED, .status = 200, .headers = LINES,
                                                  .body = ONCE_LIT("the answer"));
        EXPECT(late->arm == ONCE_ARM_FENCED);
        expect_tombstone("fenced", &late->record);
        late = do_finish(grant, .state = ONCE_STATE_SUCCEEDED, .status = 200, .body = ONCE_LIT("another"));
        EXPECT(late->arm == ONCE_ARM_FENCED);
        EXPECT(do_extend(grant, 0)->arm == ONCE_ARM_FENCED);
        expect_tombstone("looked up", &do_lookup(key)->record);
    }
}

static void K8__outcome_without_a_body_has_a_tombstone_too(void)
{
    do_finish(granted(.key = A, .body_retention_ms = 1000), .state = ONCE_STATE_SUCCEEDED, .status = 204);
    EXPECT(!do_lookup(A)->record.body_dropped);
    clock_advance(1000);
    for (int reaped = 0; reaped < 2; reaped++) {
        const struct once_record *r = &do_lookup(A)->record;
        EXPECT(r->status == 204);
        expect_tombstone("empty", r);
        do_expire_all(0);
    }
}

static void claim__body_retention_is_checked(void)
{
    static const struct row {
        const char *name;
        int64_t record, body;
        once_result result;
        int64_t kept; /* as it is shown */
    } rows[] = {
        { "longer than the record", 1000, 1001, ONCE_INVALID, 0 },
        { "longer than the default", 0, DAY_MS + 1, ONCE_INVALID, 0 },
        { "for ever in a record that goes", 1000, ONCE_NEVER, ONCE_INVALID, 0 },
        { "below never", 1000, -2, ONCE_INVALID, 0 },
        { "above the limit", ONCE_NEVER, ONCE_RETENTION_MS_MAX + 1, ONCE_INVALID, 0 },
        { "as long", 1000, 1000, ONCE_OK, 0 },
        { "as long as the default", 0, DAY_MS, ONCE_OK, 0 },
        { "both for ever", ONCE_NEVER, ONCE_NEVER, ONCE_OK, 0 },
        { "shorter", 1000, 999, ONCE_OK, 999 },
        { "shortest", ONCE_NEVER, 1, ONCE_OK, 1 },
        { "longest", ONCE_NEVER, ONCE_RETENTION_MS_MAX, ONCE_OK, ONCE_RETENTION_MS_MAX },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        const struct row *row = &rows[i];
        struct once_claim claim = { .key = span_str(row->name),
                                    .retention_ms = row->record,
                                    .body_retention_ms = row->body };
        struct once_reply reply;
        struct once_error err = { .text = "" };
        EXPECT_ROW(row->name, once_claim(suite.once, &claim, &reply, &err) == row->result);
        EXPECT_ROW(row->name, row->result == ONCE_OK || strstr(err.text, "body") != NULL);
        if (row->result == ONCE_OK)
            EXPECT_ROW(row->name, reply.record.body_retention_ms == row->kept);
        once_reply_release(&reply);
        if (row->result == ONCE_OK)
            EXPECT_ROW(row->name, do_lookup(claim.key)->record.body_retention_ms == row->kept);
    }
}

static void K8__bodies_go_in_bounded_steps(void)
{
    if (sut.expires_later) {
        skip("space is given back by generations");
        return;
    }
    for (int i = 0; i < 3; i++)
        finish_with(granted(.key = numbered("k", i), .retention_ms = HOUR_MS, .body_retention_ms = 1000), 200);
    clock_advance(1000);
    uint64_t removed = 0;
    static const bool expected[] = { true, true, true, false };
    for (size_t i = 0; i < LENGTH(expected); i++) {
        bool more = false;
        CHECK(once_expire(suite.once, 1, &removed, &more, NULL) == ONCE_OK);
        EXPECT(removed == 0 && more == expected[i]);
    }
    for (int i = 0; i < 3; i++)
        expect_tombstone("reaped", &do_lookup(numbered("k", i))->record);
}

/* ------------------------------------------------------------------ keys that tell their age */

/* A UUIDv7 of that time; lives until the case is over. */
static once_span key_of(once_time at, int n)
{
    char text[64];
    uint64_t ms = (uint64_t)at;
    snprintf(text, sizeof text, "%08" PRIx64 "-%04" PRIx64 "-7abc-8def-%012x", ms >> 16, ms & 0xffff, n);
    once_span key = numbered(text, 0);
    key.len = ONCE_UUID_LEN;
    return key;
}

static void K8__key_outside_its_window_is_not_executed_as_new(void)
{
    static const struct row {
        const char *name;
        int64_t age, retention_ms;
        enum once_arm arm;
    } rows[] = {
        { "fresh", 0, 0, ONCE_ARM_EXECUTE },
        { "older", 20 * HOUR_MS, 0, ONCE_ARM_EXECUTE },
        { "just inside", DAY_MS - SKEW_MS - 1, 0, ONCE_ARM_EXECUTE },
        { "just outside", DAY_MS - SKEW_MS, 0, ONCE_ARM_EXPIRED },
        { "old", DAY_MS, 0, ONCE_ARM_EXPIRED },
        { "very old", 400 * DAY_MS, 0, ONCE_ARM_EXPIRED },
        { "longer retention", DAY_MS, 7 * DAY_MS, ONCE_ARM_EXECUTE },
        { "never", 400 * DAY_MS, ONCE_NEVER, ONCE_ARM_EXECUTE },
        { "from the future, and never", -400 * DAY_MS, ONCE_NEVER, ONCE_ARM_EXECUTE },
        { "just not from the future", -SKEW_MS, 0, ONCE_ARM_EXECUTE },
        { "from the future", -SKEW_MS - 1, 0, ONCE_ARM_EXPIRED },
        { "from far in the future", -400 * DAY_MS, 0, ONCE_ARM_EXPIRED },
        { "short: inside", 499, 1000, ONCE_ARM_EXECUTE },
        { "short: outside", 500, 1000, ONCE_ARM_EXPIRED },
        { "short: from the near future", -500, 1000, ONCE_ARM_EXECUTE },
        { "short: from the future", -501, 1000, ONCE_ARM_EXPIRED },
        { "a millisecond", 0, 1, ONCE_ARM_EXECUTE },
    };
    clock_advance(500 * DAY_MS);
    once_time now = do_stats().now;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        const struct row *row = &rows[i];
        if (sut.no_never && row->retention_ms == ONCE_NEVER)
            continue;
        once_span key = key_of(now - row->age, (int)i);
        const struct once_reply *reply = do_claim(.key = key, .retention_ms = row->retention_ms, .key_time = true);
        EXPECT_ROW(row->name, reply->arm == row->arm);
        if (row->arm == ONCE_ARM_EXPIRED) {
            EXPECT_ROW(row->name, reply->record.grant.fence == 0 && do_lookup(key)->arm == ONCE_ARM_ABSENT);
            EXPECT_ROW(row->name, do_claim(.key = key, .retention_ms = row->retention_ms)->arm == ONCE_ARM_EXECUTE);
        }
    }
}

static void K8__other_keys_have_no_age(void)
{
    static const char *const keys[] = {
        "order-17",
        "00000000-0000-4abc-8def-000000000000", /* version 4 */
        "00000000-0000-7abc-cdef-000000000000", /* another variant */
        "00000000-0000-7abc-8def-00000000000",  /* short */
        "00000000-0000-7abc-8def-0000000000000",
        "00000000x0000-7abc-8def-000000000000",
        "{0000000-0000-7abc-8def-000000000000}",
    };
    for (size_t i = 0; i < LENGTH(keys); i++)
        EXPECT_ROW(keys[i], do_claim(.key = span_str(keys[i]), .key_time = true)->arm == ONCE_ARM_EXECUTE);
    EXPECT(do_claim(.key = ONCE_LIT("00000000-0000-7abc-8def-000000000000"), .key_time = true)->arm ==
           ONCE_ARM_EXPIRED);
    EXPECT(do_claim(.key = ONCE_LIT("00000000-0000-7ABC-BDEF-000000000000"), .key_time = true)->arm ==
           ONCE_ARM_EXPIRED);
}

/* Where there is a record it answers as ever, however old the key is. */
static void K8__old_key_with_a_record_answers_from_it(void)
{
    once_time born = do_stats().now;
    once_span done = key_of(born, 1), running = key_of(born, 2), unknown = key_of(born, 3), failed = key_of(born, 4);
    struct once_grant slow = granted(.key = done, .lease_ms = ONCE_LEASE_MS_MAX, .key_time = true);
    granted(.key = running, .lease_ms = 1000, .key_time = true);
    do_finish(granted(.key = unknown, .key_time = true), .state = ONCE_STATE_UNKNOWN);
    do_finish(granted(.key = failed, .retention_ms = 30 * DAY_MS, .key_time = true), .state = ONCE_STATE_FAILED,
              .retryable = true);
    clock_advance(DAY_MS - 1);
    EXPECT(do_claim(.key = done, .key_time = true)->arm == ONCE_ARM_IN_PROGRESS);
    succeed(slow, ONCE_LIT("late"));
    clock_advance(DAY_MS - 1);
    EXPECT(do_claim(.key = done, .key_time = true)->arm == ONCE_ARM_REPLAY);
    EXPECT(do_claim(.key = done, .fingerprint = print_of(1), .key_time = true)->arm == ONCE_ARM_MISMATCH);
    EXPECT(do_claim(.key = running, .key_time = true)->arm == ONCE_ARM_UNKNOWN); /* escalated: its lease is over */
    EXPECT(do_claim(.key = unknown, .key_time = true)->arm == ONCE_ARM_UNKNOWN);
    EXPECT(do_claim(.key = failed, .key_time = true)->arm == ONCE_ARM_EXECUTE);
    clock_advance(1);
    for (int reaped = 0; reaped < 2; reaped++) {
        EXPECT(do_claim(.key = done, .key_time = true)->arm == ONCE_ARM_EXPIRED);
        EXPECT(do_lookup(done)->arm == ONCE_ARM_ABSENT);
        do_expire_all(0);
    }
    EXPECT(do_claim(.key = done)->arm == ONCE_ARM_EXECUTE); /* who does not ask for it has it as before */
}

/* KEY-2 of src/core/key.h: what was accepted once is not accepted again after it expired, whatever clock made the key.
 */
static void K8__no_key_is_accepted_twice(void)
{
    static const int64_t retentions[] = { 1, 2, 1000, 600001, DAY_MS };
    for (size_t i = 0; i < LENGTH(retentions); i++) {
        int64_t retention = retentions[i], skew = retention / 2 < SKEW_MS ? retention / 2 : SKEW_MS;
        for (int64_t ahead = -skew; ahead <= skew; ahead += skew > 0 ? skew : 1) {
            once_span key = key_of(do_stats().now + ahead, (int)i);
            const struct once_reply *first = do_claim(.key = key, .retention_ms = retention, .key_time = true);
            if (first->arm == ONCE_ARM_EXPIRED && ahead < 0)
                continue; /* a clock that is behind makes keys that look old */
            CHECK(first->arm == ONCE_ARM_EXECUTE);
            succeed(first->record.grant, ONCE_LIT("x"));
            clock_advance(retention);
            EXPECT(do_lookup(key)->arm == ONCE_ARM_ABSENT);
            EXPECT(do_claim(.key = key, .retention_ms = retention, .key_time = true)->arm == ONCE_ARM_EXPIRED);
        }
    }
}

static void K8__released_key_is_free_inside_its_window_only(void)
{
    once_span key = key_of(do_stats().now, 1);
    do_release(granted(.key = key, .key_time = true));
    do_release(granted(.key = key, .key_time = true));
    clock_advance(DAY_MS);
    EXPECT(do_claim(.key = key, .key_time = true)->arm == ONCE_ARM_EXPIRED);
}

/* ------------------------------------------------------------------ many at a time */

enum { MANY = 600, FEW = 60 };
struct many {
    int answered;
    enum once_arm arms[MANY];
    struct once_grant grants[MANY];
};

struct one {
    struct many *many;
    int n;
};

static void on_claimed(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    (void)err;
    struct one *one = arg;
    one->many->arms[one->n] = result == ONCE_OK ? reply->arm : ONCE_ARM_NONE;
    one->many->grants[one->n] = reply->record.grant;
    one->many->answered++;
    once_reply_release(reply);
}

/* Kinds of claims, mixed: those that go by the short ways of a store, and those that do not. */
static void claim_of(int n, once_time now, struct once_claim *claim, enum once_arm *arm)
{
    *claim = (struct once_claim){ .key = numbered("plain", n) };
    *arm = ONCE_ARM_EXECUTE;
    switch (n % 6) {
    case 1:
        claim->body_retention_ms = HOUR_MS;
        break;
    case 2:
        claim->key = key_of(now - n, n);
        claim->key_time = true;
        break;
    case 3:
        claim->key = key_of(now - 2 * DAY_MS, n);
        claim->key_time = true;
        *arm = ONCE_ARM_EXPIRED;
        break;
    case 4:
        claim->key = key_of(now - 20 * HOUR_MS, n);
        claim->key_time = true;
        claim->body_retention_ms = HOUR_MS;
        break;
    case 5:
        claim->key = key_of(now - 2 * DAY_MS, n);
        claim->retention_ms = ONCE_NEVER;
        claim->body_retention_ms = HOUR_MS;
        claim->key_time = n % 4 == 1;
        break;
    default:
        break;
    }
}

static void K8__mixed_claims_at_once(void)
{
    static struct many many;
    static struct one ones[MANY];
    int count = sut.loses_answers ? FEW : MANY;
    reopen_with((struct once_options){ .poll = true });
    clock_advance(10 * DAY_MS);
    for (int round = 0; round < 3; round++) { /* the same keys again: not new any more */
        once_time now = do_stats().now;
        struct once_claim claim;
        enum once_arm expected;
        many = (struct many){ 0 };
        for (int i = 0; i < count; i++) {
            ones[i] = (struct one){ &many, i };
            claim_of(i, now, &claim, &expected);
            struct once_request request = { .verb = ONCE_VERB_CLAIM, .claim = claim };
            CHECK(once_submit(suite.once, &request, on_claimed, &ones[i], NULL) == ONCE_OK);
        }
        while (many.answered < count)
            CHECK(dispatch_some() > 0);
        for (int i = 0; i < count; i++) {
            claim_of(i, now, &claim, &expected);
            if (round > 0 && expected == ONCE_ARM_EXECUTE)
                expected = ONCE_ARM_REPLAY;
            EXPECT_ROW((const char *)claim.key.ptr, many.arms[i] == expected);
        }
        if (round > 0)
            continue;
        for (int i = 0; i < count; i++)
            if (many.arms[i] == ONCE_ARM_EXECUTE)
                finish_with(many.grants[i], 200);
    }
    clock_advance(HOUR_MS);
    for (int i = 0; i < 12; i++) {
        struct once_claim claim;
        enum once_arm expected;
        claim_of(i, do_stats().now - HOUR_MS, &claim, &expected);
        const struct once_reply *found = do_lookup(claim.key);
        EXPECT((found->arm == ONCE_ARM_ABSENT) == (expected == ONCE_ARM_EXPIRED));
        if (found->arm == ONCE_ARM_FOUND && claim.body_retention_ms != 0)
            expect_tombstone("of many", &found->record);
        else if (found->arm == ONCE_ARM_FOUND)
            expect_whole("of many", &found->record);
    }
}

const struct suite_case retention_cases[] = {
    CASE(K8__body_goes_before_its_record_to_the_millisecond),
    CASE(K8__record_for_ever_with_a_body_for_a_day),
    CASE(K8__body_kept_for_longer_than_a_generation),
    CASE(K8__tombstones_of_every_end),
    CASE(K10__unknown_keeps_what_came_until_it_is_resolved),
    CASE(K8__running_record_is_left_alone),
    CASE(K8__who_takes_over_has_the_terms_of_the_claim),
    CASE(K5__repeated_finish_finds_a_tombstone),
    CASE(K8__outcome_without_a_body_has_a_tombstone_too),
    CASE(claim__body_retention_is_checked),
    CASE(K8__bodies_go_in_bounded_steps),
    CASE(K8__key_outside_its_window_is_not_executed_as_new),
    CASE(K8__other_keys_have_no_age),
    CASE(K8__old_key_with_a_record_answers_from_it),
    CASE(K8__no_key_is_accepted_twice),
    CASE(K8__released_key_is_free_inside_its_window_only),
    CASE(K8__mixed_claims_at_once),
    { NULL, NULL },
};
