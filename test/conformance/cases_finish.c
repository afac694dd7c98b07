/*
 * cases_finish.c - outcomes: who may store one, that it never changes, and that its replays
 * are byte for byte what was stored.
 */
#include "suite.h"

static const once_span A = { (const uint8_t *)"a", 1 };

/* Two grants of one record; the first is superseded by the second. */
static void supersede(struct once_grant *older, struct once_grant *newer)
{
    *older = granted(.key = A, .lease_ms = 1000);
    clock_advance(1000);
    *newer = granted(.key = A, .takeover = ONCE_TAKEOVER_RERUN);
}

enum verb { EXTEND, ADVANCE, FINISH, RELEASE, VERBS };
static const char *const verb_names[] = { "extend", "advance", "finish", "release" };

static const struct once_reply *do_verb(enum verb verb, struct once_grant grant)
{
    switch (verb) {
    case EXTEND:
        return do_extend(grant, 777);
    case ADVANCE:
        return do_advance(grant, ONCE_LIT("old"), ONCE_LIT("old checkpoint"));
    case FINISH:
        return do_finish(grant, .state = ONCE_STATE_SUCCEEDED, .status = 418, .body = ONCE_LIT("old body"));
    default:
        return do_release(grant);
    }
}

/* ------------------------------------------------------------------ K3: the newest only */

static void K3__every_verb_with_an_older_fence_changes_nothing_and_says_fenced(void)
{
    struct once_grant older, newer;
    supersede(&older, &newer);
    const struct once_record *before = &do_lookup(A)->record;
    for (enum verb v = 0; v < VERBS; v++) {
        const struct once_reply *reply = do_verb(v, older);
        EXPECT_ROW(verb_names[v], reply->arm == ONCE_ARM_FENCED);
        EXPECT_ROW(verb_names[v], same_record(&reply->record, before));
        EXPECT_ROW(verb_names[v], same_record(&do_lookup(A)->record, before));
    }
    succeed(newer, ONCE_LIT("new body"));
}

static void K3__fenced_reply_carries_the_stored_outcome(void)
{
    struct once_grant older, newer;
    supersede(&older, &newer);
    do_finish(newer, .state = ONCE_STATE_FAILED, .status = 402, .headers = ONCE_LIT("A: b\r\n"),
              .body = ONCE_LIT("no money"));
    const struct once_record *stored = &do_lookup(A)->record;
    for (enum verb v = 0; v < VERBS; v++) {
        const struct once_reply *reply = do_verb(v, older);
        EXPECT_ROW(verb_names[v], reply->arm == ONCE_ARM_FENCED);
        EXPECT_ROW(verb_names[v], reply->record.status == 402);
        EXPECT_ROW(verb_names[v], span_equal(reply->record.body, ONCE_LIT("no money")));
        EXPECT_ROW(verb_names[v], span_equal(reply->record.headers, ONCE_LIT("A: b\r\n")));
        EXPECT_ROW(verb_names[v], same_record(&do_lookup(A)->record, stored));
    }
}

static void K3__fence_that_was_never_given_is_fenced(void)
{
    struct once_grant grant = granted(.key = A);
    const struct once_record *before = &do_lookup(A)->record;
    static const uint64_t fences[] = { 0, 1000000, UINT64_MAX, (uint64_t)INT64_MAX + 1 };
    for (size_t i = 0; i < LENGTH(fences); i++) {
        struct once_grant forged = grant;
        forged.fence = fences[i];
        for (enum verb v = 0; v < VERBS; v++)
            EXPECT_ROW(verb_names[v], do_verb(v, forged)->arm == ONCE_ARM_FENCED);
    }
    EXPECT(same_record(before, &do_lookup(A)->record));
}

static void K3__record_that_never_was_is_fenced_and_empty(void)
{
    static const struct once_grant forged[] = {
        { .record = { 1, 2, 3 }, .fence = 1 }, { .record = { 1, 2, 3 }, .fence = 0 }, { .fence = 1 }, { .fence = 0 }
    }; /* a grant that nobody filled in */
    for (size_t i = 0; i < LENGTH(forged); i++)
        for (enum verb v = 0; v < VERBS; v++) {
            const struct once_reply *reply = do_verb(v, forged[i]);
            EXPECT_ROW(verb_names[v], reply->arm == ONCE_ARM_FENCED);
            EXPECT_ROW(verb_names[v], reply->record.grant.fence == 0 && reply->record.state == ONCE_STATE_NONE);
        }
    EXPECT(do_list((struct once_filter){ 0 })->count == 0);
}

static void K3__grant_of_an_earlier_life_of_the_key_is_fenced(void)
{
    struct once_grant first = granted(.key = A, .retention_ms = 10);
    succeed(first, ONCE_LIT("first life"));
    clock_advance(10);
    struct once_grant second = granted(.key = A);
    CHECK(second.fence > first.fence);
    const struct once_record *before = &do_lookup(A)->record;
    for (enum verb v = 0; v < VERBS; v++)
        EXPECT_ROW(verb_names[v], do_verb(v, first)->arm == ONCE_ARM_FENCED);
    do_expire_all(0);
    for (enum verb v = 0; v < VERBS; v++)
        EXPECT_ROW(verb_names[v], do_verb(v, first)->arm == ONCE_ARM_FENCED);
    EXPECT(same_record(before, &do_lookup(A)->record));
}

/* K5, K6: the key stands for something else by now, and that is not for whoever held it before. */
static void expect_nothing_shown(const char *row, struct once_grant old)
{
    const struct once_record *before = &do_lookup(A)->record;
    CHECK(before->state != ONCE_STATE_NONE);
    for (enum verb v = 0; v < VERBS; v++) {
        const struct once_reply *reply = do_verb(v, old);
        EXPECT_ROW(row, reply->arm == ONCE_ARM_FENCED);
        EXPECT_ROW(row, reply->record.state == ONCE_STATE_NONE && reply->record.grant.fence == 0);
        EXPECT_ROW(row, reply->record.body.len == 0 && reply->record.checkpoint.len == 0);
    }
    EXPECT_ROW(row, same_record(before, &do_lookup(A)->record));
}

static void K6__fenced_holder_is_not_shown_another_requests_record(void)
{
    struct once_grant older = granted(.key = A, .lease_ms = 1000, .retention_ms = 10, .fingerprint = print_of(1));
    clock_advance(1000);
    struct once_grant newer =
        granted(.key = A, .retention_ms = 10, .fingerprint = print_of(1), .takeover = ONCE_TAKEOVER_RERUN);
    succeed(newer, ONCE_LIT("kept for 10 ms"));
    clock_advance(10);
    struct once_grant stranger = granted(.key = A, .fingerprint = print_of(2));
    expect_nothing_shown("older, running", older);
    expect_nothing_shown("newer, running", newer);
    do_expire_all(0);
    expect_nothing_shown("older, reaped", older);
    do_advance(stranger, ONCE_LIT("secret"), ONCE_LIT("of the stranger"));
    succeed(stranger, ONCE_LIT("the stranger's"));
    expect_nothing_shown("older, finished", older);
    expect_nothing_shown("newer, finished", newer);
    reopen();
    expect_nothing_shown("older, reopened", older);
}

static void K5__fenced_holder_is_not_shown_another_life(void)
{
    struct once_grant old = granted(.key = A, .lease_ms = 1000);
    clock_advance(1000);
    CHECK(do_resolve(.key = A, .verdict = ONCE_VERDICT_RELEASE, .reason = ONCE_LIT("r"))->arm == ONCE_ARM_DONE);
    struct once_grant next = granted(.key = A, .lease_ms = 1000);
    expect_nothing_shown("running", old);
    EXPECT(do_take_over(old)->record.state == ONCE_STATE_NONE);
    clock_advance(1000);
    struct once_grant last = granted(.key = A, .takeover = ONCE_TAKEOVER_RERUN);
    succeed(last, ONCE_LIT("of this life"));
    expect_nothing_shown("finished", old);
    for (enum verb v = 0; v < VERBS; v++) /* its own life's it is shown */
        EXPECT_ROW(verb_names[v], span_equal(do_verb(v, next)->record.body, ONCE_LIT("of this life")));
}

static void K3__released_grant_is_fenced_and_shows_no_record(void)
{
    struct once_grant grant = granted(.key = A);
    CHECK(do_release(grant)->arm == ONCE_ARM_DONE);
    for (enum verb v = EXTEND; v < RELEASE; v++) {
        const struct once_reply *reply = do_verb(v, grant);
        EXPECT_ROW(verb_names[v], reply->arm == ONCE_ARM_FENCED);
        EXPECT_ROW(verb_names[v], reply->record.state == ONCE_STATE_NONE); /* there is none: a look-up says so */
    }
    EXPECT(do_lookup(A)->arm == ONCE_ARM_ABSENT);
    EXPECT(do_release(grant)->arm == ONCE_ARM_DONE); /* the same call again */
}

/* K8: absent whether or not the reaper ran, also for those it fences. */
static void K8__record_past_its_retention_shows_no_outcome_to_a_fenced_holder(void)
{
    struct once_grant older, newer;
    supersede(&older, &newer);
    succeed(newer, ONCE_LIT("kept a day"));
    clock_advance(ONCE_RETENTION_MS_DEFAULT);
    const struct once_reply *before_reaper = do_verb(FINISH, older);
    EXPECT(before_reaper->arm == ONCE_ARM_FENCED);
    EXPECT(before_reaper->record.state == ONCE_STATE_NONE);
    CHECK(do_expire(0, 1));
    const struct once_reply *after_reaper = do_verb(FINISH, older);
    EXPECT(after_reaper->arm == ONCE_ARM_FENCED);
    EXPECT(after_reaper->record.state == ONCE_STATE_NONE);
}

/* ------------------------------------------------------------------ K5: final is final */

static const struct finished_row {
    const char *name;
    struct once_outcome outcome;
} finished_rows[] = {
    { "succeeded", { .state = ONCE_STATE_SUCCEEDED, .status = 200 } },
    { "succeeded, with a body",
      { .state = ONCE_STATE_SUCCEEDED, .status = 201, .body = { (const uint8_t *)"body", 4 } } },
    { "succeeded, with headers",
      { .state = ONCE_STATE_SUCCEEDED, .status = 201, .headers = { (const uint8_t *)"A: b\r\n", 6 } } },
    { "succeeded, body dropped", { .state = ONCE_STATE_SUCCEEDED, .status = 200, .body_dropped = true } },
    { "failed", { .state = ONCE_STATE_FAILED, .status = 500 } },
    { "failed, retryable", { .state = ONCE_STATE_FAILED, .retryable = true, .status = 503 } },
    { "failed, undelivered", { .state = ONCE_STATE_FAILED, .retryable = true, .undelivered = true, .status = 503 } },
    { "unknown", { .state = ONCE_STATE_UNKNOWN, .status = 504 } },
};

static void K5__finish_repeated_identically_is_done_with_the_same_times(void)
{
    for (size_t i = 0; i < LENGTH(finished_rows); i++) {
        const struct finished_row *row = &finished_rows[i];
        once_span key = numbered("k", (int)i);
        struct once_grant grant = granted(.key = key);
        clock_advance(100);
        const struct once_reply *first = suite_finish(grant, &row->outcome);
        const struct once_record *stored = &do_lookup(key)->record;
        EXPECT_ROW(row->name, first->arm == ONCE_ARM_DONE);
        clock_advance(5000);
        for (int again = 0; again < 3; again++) {
            const struct once_reply *reply = suite_finish(grant, &row->outcome);
            EXPECT_ROW(row->name, reply->arm == ONCE_ARM_DONE);
            EXPECT_ROW(row->name, reply->record.finished_at == first->record.finished_at);
            EXPECT_ROW(row->name, reply->record.expires_at == first->record.expires_at);
            EXPECT_ROW(row->name, reply->record.state == row->outcome.state);
            EXPECT_ROW(row->name, reply->record.status == row->outcome.status);
        }
        EXPECT_ROW(row->name, same_record(stored, &do_lookup(key)->record));
    }
}

/* Every outcome against every other one: what was first stays. */
static void K5__another_outcome_is_fenced_and_the_first_stays(void)
{
    for (size_t i = 0; i < LENGTH(finished_rows); i++) {
        const struct finished_row *row = &finished_rows[i];
        once_span key = numbered("k", (int)i);
        struct once_grant grant = granted(.key = key);
        CHECK(suite_finish(grant, &row->outcome)->arm == ONCE_ARM_DONE);
        const struct once_record *stored = &do_lookup(key)->record;
        for (size_t j = 0; j < LENGTH(finished_rows); j++) {
            if (j == i)
                continue;
            const struct once_reply *reply = suite_finish(grant, &finished_rows[j].outcome);
            EXPECT_ROW(row->name, reply->arm == ONCE_ARM_FENCED);
            EXPECT_ROW(row->name, same_record(&reply->record, stored));
        }
        EXPECT_ROW(row->name, same_record(stored, &do_lookup(key)->record));
    }
}

static void K5__finish_repeated_with_other_bytes_is_fenced(void)
{
    struct once_grant grant = granted(.key = A);
    once_span body = bytes_of(5000, false);
    succeed(grant, body);
    uint8_t other[5000];
    memcpy(other, body.ptr, body.len);
    other[4999] ^= 1;
    const struct once_reply *reply =
        do_finish(grant, .state = ONCE_STATE_SUCCEEDED, .status = 200, .body = { other, sizeof other });
    EXPECT(reply->arm == ONCE_ARM_FENCED);
    EXPECT(span_equal(reply->record.body, body));
    reply = do_finish(grant, .state = ONCE_STATE_SUCCEEDED, .status = 200, .body = { body.ptr, 4999 });
    EXPECT(reply->arm == ONCE_ARM_FENCED);
    EXPECT(span_equal(do_claim(.key = A)->record.body, body));
}

static void K5__nothing_moves_a_finished_record(void)
{
    for (size_t i = 0; i < LENGTH(finished_rows); i++) {
        const struct finished_row *row = &finished_rows[i];
        once_span key = numbered("k", (int)i);
        struct once_grant grant = granted(.key = key);
        CHECK(suite_finish(grant, &row->outcome)->arm == ONCE_ARM_DONE);
        const struct once_record *stored = &do_lookup(key)->record;
        EXPECT_ROW(row->name, do_verb(EXTEND, grant)->arm == ONCE_ARM_FENCED);
        EXPECT_ROW(row->name, do_verb(ADVANCE, grant)->arm == ONCE_ARM_FENCED);
        EXPECT_ROW(row->name, do_verb(RELEASE, grant)->arm == ONCE_ARM_FENCED);
        EXPECT_ROW(row->name, same_record(stored, &do_lookup(key)->record));
    }
}

/* A holder may well fail with status 0 (an exit status): that is not a release. */
static void K5__release_after_a_retryable_failure_with_status_0_is_fenced(void)
{
    struct once_grant grant = granted(.key = A);
    do_finish(grant, .state = ONCE_STATE_FAILED, .retryable = true, .status = 0, .body = ONCE_LIT("why"));
    EXPECT(do_release(grant)->arm == ONCE_ARM_FENCED);
    EXPECT(span_equal(do_lookup(A)->record.body, ONCE_LIT("why")));
}

static void K5__hundred_replays_are_byte_equal(void)
{
    once_span body = bytes_of(3000, true);
    struct once_grant grant = granted(.key = A);
    do_finish(grant, .state = ONCE_STATE_SUCCEEDED, .status = 201, .body = body,
              .headers = ONCE_LIT("Content-Type: x/y\r\nX-Many: 1\r\nX-Many: 2\r\n"));
    const struct once_record *first = &do_claim(.key = A)->record;
    CHECK(span_equal(first->body, body));
    for (int i = 0; i < 100; i++) {
        const struct once_reply *replay = do_claim(.key = A);
        EXPECT(replay->arm == ONCE_ARM_REPLAY && same_record(&replay->record, first));
        if (i == 50)
            reopen();
    }
}

/* ------------------------------------------------------------------ bytes */

static const struct body_row {
    const char *name;
    size_t len;
    bool random;
} body_rows[] = {
    { "empty", 0, false },
    { "1 byte", 1, false },
    { "511, compressible", 511, false },
    { "512, compressible", 512, false },
    { "513, compressible", 513, false },
    { "511, random", 511, true },
    { "512, random", 512, true },
    { "513, random", 513, true },
    { "1 MiB, compressible", 1 << 20, false },
    { "1 MiB, random", 1 << 20, true },
    { "the most, compressible", ONCE_BODY_LEN_MAX, false },
    { "the most, random", ONCE_BODY_LEN_MAX, true },
};

static void K5__replay_is_byte_equal_for_bodies_of_every_size(void)
{
    for (size_t i = 0; i < LENGTH(body_rows); i++) {
        const struct body_row *row = &body_rows[i];
        once_span key = numbered("k", (int)i), body = bytes_of(row->len, row->random);
        succeed(granted(.key = key), body);
        const struct once_reply *replay = do_claim(.key = key);
        EXPECT_ROW(row->name, replay->arm == ONCE_ARM_REPLAY);
        EXPECT_ROW(row->name, span_equal(replay->record.body, body));
        EXPECT_ROW(row->name, !replay->record.body_dropped);
    }
    reopen();
    for (size_t i = 0; i < LENGTH(body_rows); i++)
        EXPECT_ROW(body_rows[i].name, span_equal(do_lookup(numbered("k", (int)i))->record.body,
                                                 bytes_of(body_rows[i].len, body_rows[i].random)));
}

static void K5__replay_is_byte_equal_for_every_byte_value(void)
{
    uint8_t all[256 * 3];
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (uint8_t)i;
    once_span body = { all, sizeof all }, nuls = { (const uint8_t *)"\0\0\0\0", 4 };
    succeed(granted(.key = A), body);
    succeed(granted(.key = ONCE_LIT("nuls")), nuls);
    reopen();
    EXPECT(span_equal(do_claim(.key = A)->record.body, body));
    EXPECT(span_equal(do_claim(.key = ONCE_LIT("nuls"))->record.body, nuls));
}

static void limits__body_or_headers_too_large_are_refused_and_nothing_is_stored(void)
{
    struct once_grant grant = granted(.key = A);
    const struct once_record *before = &do_lookup(A)->record;
    struct once_reply reply;
    struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED, .body = bytes_of(ONCE_BODY_LEN_MAX + 1, false) };
    EXPECT(once_finish(suite.once, grant, &outcome, &reply, NULL) == ONCE_LIMIT);
    once_reply_release(&reply);
    once_span lines = bytes_of(ONCE_HEADERS_LEN_MAX + 1, false);
    outcome = (struct once_outcome){ .state = ONCE_STATE_SUCCEEDED, .headers = lines };
    EXPECT(once_finish(suite.once, grant, &outcome, &reply, NULL) == ONCE_LIMIT);
    once_reply_release(&reply);
    EXPECT(same_record(before, &do_lookup(A)->record));
    succeed(grant, ONCE_LIT("small"));
}

static void limits__headers_of_the_most_bytes_are_replayed(void)
{
    static char lines[ONCE_HEADERS_LEN_MAX];
    memset(lines, 'v', sizeof lines);
    memcpy(lines, "Name: ", 6);
    memcpy(lines + sizeof lines - 2, "\r\n", 2);
    once_span headers = { (const uint8_t *)lines, sizeof lines };
    struct once_grant grant = granted(.key = A);
    do_finish(grant, .state = ONCE_STATE_SUCCEEDED, .headers = headers, .body = bytes_of(1000, false));
    const struct once_reply *replay = do_claim(.key = A);
    EXPECT(span_equal(replay->record.headers, headers));
    EXPECT(span_equal(replay->record.body, bytes_of(1000, false)));
}

#define LINES(s)                                                                                                       \
    {                                                                                                                  \
        (const uint8_t *)(s), sizeof(s) - 1                                                                            \
    }

static const struct header_row {
    const char *name;
    once_span lines;
    bool good;
} header_rows[] = {
    { "none", LINES(""), true },
    { "one line", LINES("A: b\r\n"), true },
    { "two lines", LINES("A: b\r\nC: d\r\n"), true },
    { "no space", LINES("A:b\r\n"), true },
    { "empty value", LINES("A:\r\n"), true },
    { "colon in the value", LINES("A: b:c\r\n"), true },
    { "not ASCII", LINES("A: \xc3\xa4\r\n"), true },
    { "no line end", LINES("A: b"), false },
    { "LF only", LINES("A: b\n"), false },
    { "CR only", LINES("A: b\r"), false },
    { "second line without an end", LINES("A: b\r\nC: d"), false },
    { "LF CR", LINES("A: b\n\r"), false },
    { "no colon", LINES("A b\r\n"), false },
    { "no name", LINES(": b\r\n"), false },
    { "empty line", LINES("\r\n"), false },
    { "empty line at the end", LINES("A: b\r\n\r\n"), false },
    { "a body behind an empty line", LINES("A: b\r\n\r\n<html>"), false },
    { "CR in the value", LINES("A: b\rC: d\r\n"), false },
    { "CR CR LF", LINES("A: b\r\r\n"), false },
    { "LF in the value", LINES("A: b\nC: d\r\n"), false },
    { "NUL in the value", LINES("A: b\0c\r\n"), false },
    { "NUL in the name", LINES("A\0: b\r\n"), false },
    { "only a NUL", LINES("\0"), false },
};

static void check_headers(const struct header_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        once_span key = numbered("k", (int)i);
        struct once_grant grant = granted(.key = key);
        struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED, .headers = rows[i].lines };
        struct once_reply reply;
        once_result r = once_finish(suite.once, grant, &outcome, &reply, NULL);
        EXPECT_ROW(rows[i].name, r == (rows[i].good ? ONCE_OK : ONCE_INVALID));
        once_reply_release(&reply);
        const struct once_record *stored = &do_lookup(key)->record;
        EXPECT_ROW(rows[i].name, (stored->state == ONCE_STATE_SUCCEEDED) == rows[i].good);
        EXPECT_ROW(rows[i].name, !rows[i].good || span_equal(stored->headers, rows[i].lines));
    }
}

static void headers__lines_that_could_start_another_line_are_refused(void)
{
    check_headers(header_rows, LENGTH(header_rows));
}

/* A line that begins with a blank continues the one before (obs-fold), and a blank before
 * the colon is read differently by different servers. */
static const struct header_row name_rows[] = {
    { "blank first", LINES("A: b\r\n C: d\r\n"), false },
    { "tab first", LINES("A: b\r\n\tC: d\r\n"), false },
    { "blank before the colon", LINES("A : b\r\n"), false },
};

static void headers__names_with_blanks_are_refused(void)
{
    check_headers(name_rows, LENGTH(name_rows));
}

static void outcome__body_dropped_is_replayed_as_such(void)
{
    struct once_grant grant = granted(.key = A);
    do_finish(grant, .state = ONCE_STATE_SUCCEEDED, .status = 200, .body_dropped = true,
              .headers = ONCE_LIT("A: b\r\n"));
    const struct once_reply *replay = do_claim(.key = A);
    EXPECT(replay->arm == ONCE_ARM_REPLAY);
    EXPECT(replay->record.body_dropped && replay->record.body.len == 0);
    EXPECT(span_equal(replay->record.headers, ONCE_LIT("A: b\r\n")));
}

static void outcome__every_status_is_replayed_as_given(void)
{
    static const int32_t statuses[] = { INT32_MIN, -1, 0, 1, 200, 599, 65536, INT32_MAX };
    for (size_t i = 0; i < LENGTH(statuses); i++) {
        once_span key = numbered("k", (int)i);
        struct once_grant grant = granted(.key = key);
        EXPECT(do_finish(grant, .state = ONCE_STATE_SUCCEEDED, .status = statuses[i])->record.status == statuses[i]);
        EXPECT(do_claim(.key = key)->record.status == statuses[i]);
    }
    reopen();
    for (size_t i = 0; i < LENGTH(statuses); i++)
        EXPECT(do_lookup(numbered("k", (int)i))->record.status == statuses[i]);
}

static const struct finished_row impossible_rows[] = {
    { "no state", { .state = ONCE_STATE_NONE } },
    { "running", { .state = ONCE_STATE_RUNNING } },
    { "state out of range", { .state = (enum once_state)9 } },
    { "succeeded and retryable", { .state = ONCE_STATE_SUCCEEDED, .retryable = true } },
    { "unknown and retryable", { .state = ONCE_STATE_UNKNOWN, .retryable = true } },
    { "final and undelivered", { .state = ONCE_STATE_FAILED, .undelivered = true } },
    { "dropped body with a body",
      { .state = ONCE_STATE_SUCCEEDED, .body_dropped = true, .body = { (const uint8_t *)"x", 1 } } },
};

static void outcome__impossible_ones_are_refused(void)
{
    struct once_grant grant = granted(.key = A);
    const struct once_record *before = &do_lookup(A)->record;
    for (size_t i = 0; i < LENGTH(impossible_rows); i++) {
        struct once_reply reply;
        EXPECT_ROW(impossible_rows[i].name,
                   once_finish(suite.once, grant, &impossible_rows[i].outcome, &reply, NULL) == ONCE_INVALID);
        EXPECT_ROW(impossible_rows[i].name, reply.arm == ONCE_ARM_NONE);
        once_reply_release(&reply);
    }
    EXPECT(same_record(before, &do_lookup(A)->record));
}

/* A completer has to tell it from a failure that a client was told, after a restart and without reading its body. */
static void outcome__undelivered_is_kept_and_listed_until_the_next_attempt(void)
{
    struct once_grant first = granted(.key = A, .body_retention_ms = 1000);
    do_finish(granted(.key = ONCE_LIT("told")), .state = ONCE_STATE_FAILED, .retryable = true, .status = 503);
    EXPECT(do_finish(first, .state = ONCE_STATE_FAILED, .retryable = true, .undelivered = true, .status = 503,
                     .body = ONCE_LIT("busy"))
               ->record.undelivered);
    const struct once_page *page = do_list((struct once_filter){ .abandoned = true });
    CHECK(page->count == 2);
    for (size_t i = 0; i < 2; i++)
        EXPECT(page->records[i].status == 503 && page->records[i].undelivered == span_equal(page->records[i].key, A));
    reopen();
    EXPECT(do_lookup(A)->record.undelivered && !do_lookup(ONCE_LIT("told"))->record.undelivered);
    clock_advance(1001);
    do_expire(100, 0);
    EXPECT(do_lookup(A)->record.undelivered && do_lookup(A)->record.body_expired);
    const struct once_reply *taken = do_claim(.key = A);
    EXPECT(taken->arm == ONCE_ARM_EXECUTE && !taken->record.undelivered);
    do_finish(taken->record.grant, .state = ONCE_STATE_SUCCEEDED, .status = 200);
    EXPECT(!do_claim(.key = A)->record.undelivered);
}

/* ------------------------------------------------------------------ release */

static void K7__release_of_a_first_attempt_frees_the_key_for_anything(void)
{
    struct once_grant grant = granted(.key = A, .fingerprint = print_of(1));
    EXPECT(do_release(grant)->arm == ONCE_ARM_DONE);
    EXPECT(do_lookup(A)->arm == ONCE_ARM_ABSENT);
    EXPECT(do_list((struct once_filter){ 0 })->count == 0);
    const struct once_reply *next = do_claim(.key = A, .fingerprint = print_of(2));
    EXPECT(next->arm == ONCE_ARM_EXECUTE && next->record.attempt == 1);
}

/* An earlier attempt may have had effects: the record stays, and may be run again. */
static void K7__release_of_a_later_attempt_keeps_the_record(void)
{
    struct once_grant first = granted(.key = A, .fingerprint = print_of(1), .lease_ms = 1000);
    do_advance(first, ONCE_LIT("charged"), ONCE_LIT("ch_17"));
    clock_advance(1000);
    struct once_grant second = granted(.key = A, .fingerprint = print_of(1), .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(do_release(second)->arm == ONCE_ARM_DONE);
    EXPECT(do_release(second)->arm == ONCE_ARM_DONE);
    EXPECT(do_lookup(A)->arm == ONCE_ARM_FOUND);
    EXPECT(do_claim(.key = A, .fingerprint = print_of(2))->arm == ONCE_ARM_MISMATCH);
    const struct once_reply *third = do_claim(.key = A, .fingerprint = print_of(1), .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(third->arm == ONCE_ARM_EXECUTE && third->record.attempt == 3);
    EXPECT(span_equal(third->record.recovery_point, ONCE_LIT("charged")));
    EXPECT(span_equal(third->record.checkpoint, ONCE_LIT("ch_17")));
}

static const struct doubt_row {
    const char *name;
    enum once_takeover first, second; /* who was abandoned; who took over and released */
    enum once_takeover third;
    enum once_arm arm; /* of the third */
} doubt_rows[] = {
    { "probed, probe", ONCE_TAKEOVER_PROBE, ONCE_TAKEOVER_PROBE, ONCE_TAKEOVER_PROBE, ONCE_ARM_PROBE },
    { "probed, escalate", ONCE_TAKEOVER_PROBE, ONCE_TAKEOVER_PROBE, ONCE_TAKEOVER_ESCALATE, ONCE_ARM_UNKNOWN },
    { "rerun, probe", ONCE_TAKEOVER_ESCALATE, ONCE_TAKEOVER_RERUN, ONCE_TAKEOVER_PROBE, ONCE_ARM_PROBE },
    { "rerun, escalate", ONCE_TAKEOVER_ESCALATE, ONCE_TAKEOVER_RERUN, ONCE_TAKEOVER_ESCALATE, ONCE_ARM_UNKNOWN },
    { "rerun, rerun", ONCE_TAKEOVER_RERUN, ONCE_TAKEOVER_RERUN, ONCE_TAKEOVER_RERUN, ONCE_ARM_EXECUTE },
};

/* K10: it did nothing itself; what the one before it did is as unknown as it was. */
static void K10__release_of_what_took_over_a_running_one_leaves_it_abandoned(void)
{
    for (size_t i = 0; i < LENGTH(doubt_rows); i++) {
        const struct doubt_row *row = &doubt_rows[i];
        once_span key = numbered("k", (int)i);
        struct once_grant first = granted(.key = key, .lease_ms = 1000, .takeover = row->first);
        clock_advance(1000);
        struct once_grant second = granted(.key = key, .intent = true, .takeover = row->second);
        clock_advance(10);
        EXPECT_ROW(row->name, do_release(second)->arm == ONCE_ARM_DONE);
        EXPECT_ROW(row->name, do_release(second)->arm == ONCE_ARM_DONE);
        const struct once_record *left = &do_lookup(key)->record;
        EXPECT_ROW(row->name, left->state == ONCE_STATE_RUNNING && !left->lease_live && left->attempt == 2);
        EXPECT_ROW(row->name, same_grant(left->grant, second));
        EXPECT_ROW(row->name, do_release(first)->arm == ONCE_ARM_FENCED);
        if (i % 2 == 0)
            reopen();
        const struct once_reply *third = do_claim(.key = key, .takeover = row->third);
        EXPECT_ROW(row->name, third->arm == row->arm);
        if (third->arm == ONCE_ARM_UNKNOWN)
            continue;
        EXPECT_ROW(row->name, third->record.attempt == 3);
        /* It is handed on, however often it is given back; a definite failure ends it. */
        EXPECT_ROW(row->name, do_release(third->record.grant)->arm == ONCE_ARM_DONE);
        EXPECT_ROW(row->name, do_lookup(key)->record.state == ONCE_STATE_RUNNING);
        struct once_grant fourth = granted(.key = key, .takeover = row->third);
        do_finish(fourth, .state = ONCE_STATE_FAILED, .retryable = true, .status = 503);
        struct once_grant fifth = granted(.key = key);
        EXPECT_ROW(row->name, do_release(fifth)->arm == ONCE_ARM_DONE);
        const struct once_record *retryable = &do_lookup(key)->record;
        EXPECT_ROW(row->name, retryable->state == ONCE_STATE_FAILED && retryable->retryable);
        EXPECT_ROW(row->name, do_claim(.key = key)->arm == ONCE_ARM_EXECUTE);
    }
}

static void K10__release_after_take_over_leaves_it_as_it_was_seen(void)
{
    struct once_grant first =
        granted(.key = A, .lease_ms = 1000, .takeover = ONCE_TAKEOVER_PROBE, .request = ONCE_LIT("r"));
    clock_advance(1000);
    const struct once_reply *second = do_take_over(first);
    CHECK(second->arm == ONCE_ARM_PROBE);
    EXPECT(do_release(second->record.grant)->arm == ONCE_ARM_DONE);
    EXPECT(do_lookup(A)->record.state == ONCE_STATE_RUNNING);
    for (int i = 0; i < 12; i++) { /* K7: it is not finished, and stays */
        clock_advance(6 * 3600 * 1000);
        do_expire_all(0);
    }
    const struct once_reply *third = do_take_over(second->record.grant);
    CHECK(third->arm == ONCE_ARM_PROBE);
    EXPECT(third->record.attempt == 3 && span_equal(third->record.request, ONCE_LIT("r")));
    succeed(third->record.grant, ONCE_LIT("asked"));
}

/* Released while it waited to be taken over: not a holder that died. */
static void K10__release_is_told_where_it_left_a_record_abandoned(void)
{
    granted(.key = A, .lease_ms = 1000);
    clock_advance(1000);
    do_release(granted(.key = A, .takeover = ONCE_TAKEOVER_RERUN));
    granted(.key = A, .takeover = ONCE_TAKEOVER_RERUN);
    const struct once_history *history = do_history(A);
    int released = 0, superseded = 0;
    for (size_t i = 0; i < history->count; i++) {
        released += strcmp(history->events[i].what, "released") == 0 && history->events[i].attempt == 2;
        superseded += strcmp(history->events[i].what, "superseded") == 0 && history->events[i].attempt == 1;
    }
    EXPECT(released == 1 && superseded == 1);
}

/* With intent and without a point nothing was sent, so there is nothing to be unsure of. */
static void K10__release_after_one_that_sent_nothing_is_a_failure_to_retry(void)
{
    granted(.key = A, .lease_ms = 1000, .intent = true);
    clock_advance(1000);
    struct once_grant second = granted(.key = A);
    EXPECT(do_release(second)->arm == ONCE_ARM_DONE);
    EXPECT(do_lookup(A)->record.state == ONCE_STATE_FAILED && do_lookup(A)->record.retryable);
    EXPECT(do_claim(.key = A)->arm == ONCE_ARM_EXECUTE);
}

/* K11: a phase's local writes committed with its advance. */
static void K11__release_of_a_first_attempt_keeps_its_recovery_point(void)
{
    struct once_grant first = granted(.key = A, .fingerprint = print_of(1), .request = ONCE_LIT("r"));
    do_advance(first, ONCE_LIT("booked"), ONCE_LIT("b_1"));
    EXPECT(do_release(first)->arm == ONCE_ARM_DONE);
    EXPECT(do_release(first)->arm == ONCE_ARM_DONE);
    const struct once_record *left = &do_lookup(A)->record;
    EXPECT(left->state == ONCE_STATE_FAILED && left->retryable);
    EXPECT(do_finish(first, .state = ONCE_STATE_SUCCEEDED)->arm == ONCE_ARM_FENCED);
    EXPECT(do_claim(.key = A, .fingerprint = print_of(2))->arm == ONCE_ARM_MISMATCH);
    const struct once_reply *second = do_take_over(first);
    CHECK(second->arm == ONCE_ARM_EXECUTE);
    EXPECT(second->record.attempt == 2 && span_equal(second->record.request, ONCE_LIT("r")));
    EXPECT(span_equal(second->record.recovery_point, ONCE_LIT("booked")));
    EXPECT(span_equal(second->record.checkpoint, ONCE_LIT("b_1")));
}

/* That it was about to send is all that such an attempt says, and that it did not send is what its release says. */
static void K7__release_of_a_first_attempt_with_a_mark_only_frees_the_key(void)
{
    struct once_grant grant = granted(.key = A, .fingerprint = print_of(1), .intent = true);
    do_advance(grant, ONCE_LIT(ONCE_POINT_SENDING), ONCE_LIT(""));
    EXPECT(do_release(grant)->arm == ONCE_ARM_DONE);
    EXPECT(do_release(grant)->arm == ONCE_ARM_DONE);
    EXPECT(do_lookup(A)->arm == ONCE_ARM_ABSENT);
    const struct once_reply *next = do_claim(.key = A, .fingerprint = print_of(2));
    EXPECT(next->arm == ONCE_ARM_EXECUTE && next->record.attempt == 1 && next->record.recovery_point.len == 0);
    do_advance(next->record.grant, ONCE_LIT("booked"), ONCE_LIT("b_1"));
    do_advance(next->record.grant, ONCE_LIT(ONCE_POINT_SENDING), ONCE_LIT(""));
    EXPECT(do_release(next->record.grant)->arm == ONCE_ARM_DONE);
    EXPECT(do_lookup(A)->record.state == ONCE_STATE_FAILED);
}

const struct suite_case finish_cases[] = {
    CASE(K3__every_verb_with_an_older_fence_changes_nothing_and_says_fenced),
    CASE(K3__fenced_reply_carries_the_stored_outcome),
    CASE(K3__fence_that_was_never_given_is_fenced),
    CASE(K3__record_that_never_was_is_fenced_and_empty),
    CASE(K3__grant_of_an_earlier_life_of_the_key_is_fenced),
    CASE(K6__fenced_holder_is_not_shown_another_requests_record),
    CASE(K5__fenced_holder_is_not_shown_another_life),
    CASE(K3__released_grant_is_fenced_and_shows_no_record),
    CASE(K8__record_past_its_retention_shows_no_outcome_to_a_fenced_holder),
    CASE(K5__finish_repeated_identically_is_done_with_the_same_times),
    CASE(K5__another_outcome_is_fenced_and_the_first_stays),
    CASE(K5__finish_repeated_with_other_bytes_is_fenced),
    CASE(K5__nothing_moves_a_finished_record),
    CASE(K5__release_after_a_retryable_failure_with_status_0_is_fenced),
    CASE(K5__hundred_replays_are_byte_equal),
    CASE(K5__replay_is_byte_equal_for_bodies_of_every_size),
    CASE(K5__replay_is_byte_equal_for_every_byte_value),
    CASE(limits__body_or_headers_too_large_are_refused_and_nothing_is_stored),
    CASE(limits__headers_of_the_most_bytes_are_replayed),
    CASE(headers__lines_that_could_start_another_line_are_refused),
    CASE(headers__names_with_blanks_are_refused),
    CASE(outcome__body_dropped_is_replayed_as_such),
    CASE(outcome__every_status_is_replayed_as_given),
    CASE(outcome__impossible_ones_are_refused),
    CASE(outcome__undelivered_is_kept_and_listed_until_the_next_attempt),
    CASE(K7__release_of_a_first_attempt_frees_the_key_for_anything),
    CASE(K7__release_of_a_later_attempt_keeps_the_record),
    CASE(K10__release_of_what_took_over_a_running_one_leaves_it_abandoned),
    CASE(K10__release_after_take_over_leaves_it_as_it_was_seen),
    CASE(K10__release_is_told_where_it_left_a_record_abandoned),
    CASE(K10__release_after_one_that_sent_nothing_is_a_failure_to_retry),
    CASE(K11__release_of_a_first_attempt_keeps_its_recovery_point),
    CASE(K7__release_of_a_first_attempt_with_a_mark_only_frees_the_key),
    { NULL, NULL },
};
