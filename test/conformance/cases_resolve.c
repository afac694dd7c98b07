/* cases_resolve.c - an operator's word on a record that is unknown or abandoned (K10). */
#include "suite.h"

static const once_span A = { (const uint8_t *)"a", 1 };

#define BY .actor = ONCE_LIT("ann"), .reason = ONCE_LIT("looked at the bank's page")

static struct once_grant make_unknown(once_span key)
{
    struct once_grant grant = granted(.key = key, .fingerprint = print_of(1), .retention_ms = 5000);
    do_advance(grant, ONCE_LIT("sent"), ONCE_LIT("cp"));
    CHECK(do_finish(grant, .state = ONCE_STATE_UNKNOWN, .status = 504)->arm == ONCE_ARM_DONE);
    return grant;
}

/* How often the history tells of this verdict, by ann, with her reason. */
static size_t times_told(once_span key, const char *what)
{
    const struct once_history *history = do_history(key);
    size_t times = 0;
    for (size_t i = 0; i < history->count; i++)
        times += strcmp(history->events[i].what, what) == 0 && span_equal(history->events[i].actor, ONCE_LIT("ann")) &&
                 span_equal(history->events[i].reason, ONCE_LIT("looked at the bank's page"));
    return times;
}

static void K8__unknown_never_expires(void)
{
    struct once_grant grant = make_unknown(A);
    EXPECT(do_lookup(A)->record.expires_at == ONCE_NEVER);
    clock_advance(ONCE_RETENTION_MS_MAX);
    EXPECT(do_expire(0, 0));
    const struct once_reply *reply = do_claim(.key = A, .fingerprint = print_of(1), .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(reply->arm == ONCE_ARM_UNKNOWN);
    EXPECT(same_grant(reply->record.grant, grant));
}

static void K10__resolve_done_makes_it_final_and_is_audited(void)
{
    struct once_grant grant = make_unknown(A);
    clock_advance(100);
    const struct once_reply *done = do_resolve(.key = A, .verdict = ONCE_VERDICT_DONE, BY,
                                               .outcome = { .state = ONCE_STATE_SUCCEEDED,
                                                            .status = 201,
                                                            .headers = ONCE_LIT("A: b\r\n"),
                                                            .body = ONCE_LIT("charged") });
    CHECK(done->arm == ONCE_ARM_DONE);
    EXPECT(done->record.grant.fence > grant.fence);
    const struct once_reply *replay = do_claim(.key = A, .fingerprint = print_of(1));
    EXPECT(replay->arm == ONCE_ARM_REPLAY);
    EXPECT(replay->record.status == 201);
    EXPECT(span_equal(replay->record.headers, ONCE_LIT("A: b\r\n")));
    EXPECT(span_equal(replay->record.body, ONCE_LIT("charged")));
    EXPECT(replay->record.expires_at == replay->record.finished_at + 5000); /* K8: from here on it may go */
    EXPECT(times_told(A, "resolved done") == 1);
    const struct once_reply *late = do_finish(grant, .state = ONCE_STATE_FAILED, .status = 500);
    EXPECT(late->arm == ONCE_ARM_FENCED && late->record.status == 201);
}

static void K10__resolve_not_done_lets_the_next_claim_go_on_from_its_point(void)
{
    struct once_grant grant = make_unknown(A);
    CHECK(do_resolve(.key = A, .verdict = ONCE_VERDICT_NOT_DONE, BY)->arm == ONCE_ARM_DONE);
    EXPECT(times_told(A, "resolved not done") == 1);
    EXPECT(do_claim(.key = A, .fingerprint = print_of(2))->arm == ONCE_ARM_MISMATCH);
    const struct once_reply *next = do_claim(.key = A, .fingerprint = print_of(1));
    CHECK(next->arm == ONCE_ARM_EXECUTE);
    EXPECT(next->record.attempt == 2);
    EXPECT(next->record.grant.fence > grant.fence);
    EXPECT(span_equal(next->record.recovery_point, ONCE_LIT("sent")));
    EXPECT(span_equal(next->record.checkpoint, ONCE_LIT("cp")));
}

static void K10__resolve_release_forgets_the_record_but_not_the_word(void)
{
    make_unknown(A);
    CHECK(do_resolve(.key = A, .verdict = ONCE_VERDICT_RELEASE, BY)->arm == ONCE_ARM_DONE);
    EXPECT(do_lookup(A)->arm == ONCE_ARM_ABSENT);
    const struct once_reply *next = do_claim(.key = A, .fingerprint = print_of(2));
    EXPECT(next->arm == ONCE_ARM_EXECUTE && next->record.attempt == 1);
    EXPECT(next->record.recovery_point.len == 0);
    EXPECT(times_told(A, "released") == 1);
    do_expire_all(0);
    reopen();
    EXPECT(times_told(A, "released") == 1);
}

static void K3__verdict_on_an_abandoned_record_shuts_its_holder_out(void)
{
    static const enum once_verdict verdicts[] = { ONCE_VERDICT_DONE, ONCE_VERDICT_NOT_DONE, ONCE_VERDICT_RELEASE };
    for (size_t i = 0; i < LENGTH(verdicts); i++) {
        once_span key = numbered("k", (int)i);
        struct once_grant holder = granted(.key = key, .lease_ms = 1000);
        clock_advance(1000);
        const struct once_reply *done =
            do_resolve(.key = key, .verdict = verdicts[i], .outcome = { .state = ONCE_STATE_FAILED, .status = 9 }, BY);
        CHECK(done->arm == ONCE_ARM_DONE);
        EXPECT(do_extend(holder, 0)->arm == ONCE_ARM_FENCED);
        EXPECT(do_advance(holder, ONCE_LIT("p"), ONCE_LIT(""))->arm == ONCE_ARM_FENCED);
        EXPECT(do_finish(holder, .state = ONCE_STATE_SUCCEEDED)->arm == ONCE_ARM_FENCED);
        EXPECT(do_release(holder)->arm == ONCE_ARM_FENCED);
        enum once_arm next = do_claim(.key = key)->arm;
        EXPECT(next == (verdicts[i] == ONCE_VERDICT_DONE ? ONCE_ARM_REPLAY : ONCE_ARM_EXECUTE));
    }
}

static const struct refused_row {
    const char *name;
    enum { GONE, LIVE, FINAL, RETRYABLE, EXPIRED, OTHER_FENCE } state;
    enum once_arm arm;
} refused_rows[] = {
    { "absent", GONE, ONCE_ARM_ABSENT },     { "its holder is alive", LIVE, ONCE_ARM_IN_PROGRESS },
    { "final", FINAL, ONCE_ARM_REPLAY },     { "retryable", RETRYABLE, ONCE_ARM_REPLAY },
    { "expired", EXPIRED, ONCE_ARM_ABSENT }, { "changed since it was looked at", OTHER_FENCE, ONCE_ARM_FENCED },
};

static void K5__resolve_says_what_stands_in_its_way_and_changes_nothing(void)
{
    for (size_t i = 0; i < LENGTH(refused_rows); i++) {
        const struct refused_row *row = &refused_rows[i];
        once_span key = numbered("k", (int)i);
        uint64_t seen = 0;
        if (row->state == OTHER_FENCE)
            seen = make_unknown(key).fence + 100;
        else if (row->state != GONE)
            granted(.key = key, .retention_ms = 1000);
        if (row->state == FINAL || row->state == EXPIRED)
            succeed(do_lookup(key)->record.grant, ONCE_LIT("x"));
        if (row->state == RETRYABLE)
            do_finish(do_lookup(key)->record.grant, .state = ONCE_STATE_FAILED, .retryable = true, .status = 1);
        if (row->state == EXPIRED)
            clock_advance(1000);
        const struct once_reply *before = do_lookup(key);
        for (enum once_verdict v = ONCE_VERDICT_DONE; v <= ONCE_VERDICT_RELEASE; v++) {
            const struct once_reply *reply =
                do_resolve(.key = key, .fence = seen, .verdict = v, .outcome = { .state = ONCE_STATE_FAILED }, BY);
            EXPECT_ROW(row->name, reply->arm == row->arm);
            EXPECT_ROW(row->name, same_record(&reply->record, &before->record));
            EXPECT_ROW(row->name, (reply->retry_after_ms > 0) == (row->arm == ONCE_ARM_IN_PROGRESS));
        }
        const struct once_reply *after = do_lookup(key);
        EXPECT_ROW(row->name, after->arm == before->arm && same_record(&after->record, &before->record));
        const struct once_history *history = do_history(key);
        for (size_t e = 0; e < history->count; e++)
            EXPECT_ROW(row->name, history->events[e].actor.len == 0);
    }
}

static void K3__resolve_with_the_fence_that_was_looked_at_works_once(void)
{
    make_unknown(A);
    uint64_t seen = do_lookup(A)->record.grant.fence;
    EXPECT(do_resolve(.key = A, .fence = seen, .verdict = ONCE_VERDICT_NOT_DONE, BY)->arm == ONCE_ARM_DONE);
    granted(.key = A, .fingerprint = print_of(1), .lease_ms = 1);
    clock_advance(1);
    EXPECT(do_resolve(.key = A, .fence = seen, .verdict = ONCE_VERDICT_RELEASE, BY)->arm == ONCE_ARM_FENCED);
    EXPECT(do_lookup(A)->arm == ONCE_ARM_FOUND);
}

static const struct invalid_row {
    const char *name;
    struct once_resolve resolve;
    once_result result;
} invalid_rows[] = {
    { "no reason", { .verdict = ONCE_VERDICT_RELEASE, .actor = { (const uint8_t *)"ann", 3 } }, ONCE_INVALID },
    { "no verdict", { .reason = { (const uint8_t *)"r", 1 } }, ONCE_INVALID },
    { "verdict out of range",
      { .verdict = (enum once_verdict)4, .reason = { (const uint8_t *)"r", 1 } },
      ONCE_INVALID },
    { "done without an outcome",
      { .verdict = ONCE_VERDICT_DONE, .reason = { (const uint8_t *)"r", 1 } },
      ONCE_INVALID },
    { "done, unknown",
      { .verdict = ONCE_VERDICT_DONE,
        .outcome = { .state = ONCE_STATE_UNKNOWN },
        .reason = { (const uint8_t *)"r", 1 } },
      ONCE_INVALID },
    { "done, retryable",
      { .verdict = ONCE_VERDICT_DONE,
        .outcome = { .state = ONCE_STATE_FAILED, .retryable = true },
        .reason = { (const uint8_t *)"r", 1 } },
      ONCE_INVALID },
    { "done, with a header that is none",
      { .verdict = ONCE_VERDICT_DONE,
        .outcome = { .state = ONCE_STATE_FAILED, .headers = { (const uint8_t *)"x", 1 } },
        .reason = { (const uint8_t *)"r", 1 } },
      ONCE_INVALID },
};

static void resolve__invalid_words_are_refused(void)
{
    make_unknown(A);
    const struct once_record *before = &do_lookup(A)->record;
    for (size_t i = 0; i < LENGTH(invalid_rows); i++) {
        struct once_resolve resolve = invalid_rows[i].resolve;
        resolve.key = A;
        struct once_reply reply;
        EXPECT_ROW(invalid_rows[i].name, once_resolve(suite.once, &resolve, &reply, NULL) == invalid_rows[i].result);
        once_reply_release(&reply);
    }
    struct once_resolve longest = { .key = A,
                                    .verdict = ONCE_VERDICT_NOT_DONE,
                                    .reason = bytes_of(ONCE_REASON_LEN_MAX + 1, false) };
    struct once_reply reply;
    EXPECT(once_resolve(suite.once, &longest, &reply, NULL) == ONCE_LIMIT);
    once_reply_release(&reply);
    longest.reason.len = ONCE_REASON_LEN_MAX;
    longest.actor = bytes_of(256, false);
    EXPECT(once_resolve(suite.once, &longest, &reply, NULL) == ONCE_LIMIT);
    once_reply_release(&reply);
    EXPECT(same_record(before, &do_lookup(A)->record));
    longest.actor.len = 255;
    EXPECT(suite_resolve(&longest)->arm == ONCE_ARM_DONE);
    const struct once_history *history = do_history(A);
    CHECK(history->count > 0);
    EXPECT(span_equal(history->events[history->count - 1].reason, longest.reason));
    EXPECT(span_equal(history->events[history->count - 1].actor, longest.actor));
}

static void K5__resolve_done_replays_large_bodies_byte_equal(void)
{
    make_unknown(A);
    once_span body = bytes_of(1 << 20, true);
    CHECK(do_resolve(.key = A, .verdict = ONCE_VERDICT_DONE, BY,
                     .outcome = { .state = ONCE_STATE_SUCCEEDED, .body = body })
              ->arm == ONCE_ARM_DONE);
    EXPECT(span_equal(do_claim(.key = A, .fingerprint = print_of(1))->record.body, body));
}

/* Over a store that loses answers each of these is settled: the word must count once, and
 * be answered as what it was. */
static void K10__every_verdict_of_many_is_answered_done_and_told_once(void)
{
    for (int i = 0; i < 12; i++) {
        once_span key = numbered("k", i);
        make_unknown(key);
        enum once_verdict v = (enum once_verdict)(ONCE_VERDICT_DONE + i % 3);
        const struct once_reply *reply =
            do_resolve(.key = key, .verdict = v, .outcome = { .state = ONCE_STATE_FAILED, .status = 1 }, BY);
        EXPECT(reply->arm == ONCE_ARM_DONE);
        static const char *const words[] = { "resolved done", "resolved not done", "released" };
        EXPECT(times_told(key, words[i % 3]) == 1);
    }
}

const struct suite_case resolve_cases[] = {
    CASE(K8__unknown_never_expires),
    CASE(K10__resolve_done_makes_it_final_and_is_audited),
    CASE(K10__resolve_not_done_lets_the_next_claim_go_on_from_its_point),
    CASE(K10__resolve_release_forgets_the_record_but_not_the_word),
    CASE(K3__verdict_on_an_abandoned_record_shuts_its_holder_out),
    CASE(K5__resolve_says_what_stands_in_its_way_and_changes_nothing),
    CASE(K3__resolve_with_the_fence_that_was_looked_at_works_once),
    CASE(resolve__invalid_words_are_refused),
    CASE(K5__resolve_done_replays_large_bodies_byte_equal),
    CASE(K10__every_verdict_of_many_is_answered_done_and_told_once),
    { NULL, NULL },
};
