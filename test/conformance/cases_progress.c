/* cases_progress.c - the next attempt: retries, takeovers, recovery points (K11). */
#include "suite.h"

static const once_span A = { (const uint8_t *)"a", 1 };
static const once_span NOTHING = { (const uint8_t *)"", 0 };

static once_result try_advance(struct once_grant grant, once_span point, once_span checkpoint)
{
    struct once_reply reply;
    once_result r = once_advance(suite.once, grant, point, checkpoint, &reply, &suite.err);
    once_reply_release(&reply);
    return r;
}

/* ------------------------------------------------------------------ recovery points */

static void K11__next_attempt_finds_point_and_checkpoint(void)
{
    struct once_grant grant = granted(.key = A, .lease_ms = 1000);
    EXPECT(do_lookup(A)->record.recovery_point.len == 0);
    EXPECT(do_advance(grant, ONCE_LIT("charged"), ONCE_LIT("cp\0one"))->arm == ONCE_ARM_DONE);
    EXPECT(do_advance(grant, ONCE_LIT("shipped"), ONCE_LIT("cp\0two"))->arm == ONCE_ARM_DONE);
    clock_advance(1000);
    reopen();
    const struct once_reply *next = do_claim(.key = A, .lease_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN);
    CHECK(next->arm == ONCE_ARM_EXECUTE);
    EXPECT(next->record.attempt == 2);
    EXPECT(span_equal(next->record.recovery_point, ONCE_LIT("shipped")));
    EXPECT(span_equal(next->record.checkpoint, ONCE_LIT("cp\0two")));
    EXPECT(span_equal(do_lookup(A)->record.checkpoint, ONCE_LIT("cp\0two")));
    clock_advance(1000);
    const struct once_reply *probe = do_claim(.key = A, .takeover = ONCE_TAKEOVER_PROBE);
    CHECK(probe->arm == ONCE_ARM_PROBE);
    EXPECT(span_equal(probe->record.checkpoint, ONCE_LIT("cp\0two")));
    EXPECT(try_advance(probe->record.grant, ONCE_LIT("charged"), NOTHING) == ONCE_INVALID);
}

static void K11__retryable_failure_carries_point_and_checkpoint_over(void)
{
    struct once_grant grant = granted(.key = A);
    do_advance(grant, ONCE_LIT("p"), ONCE_LIT("cp"));
    for (uint32_t attempt = 2; attempt < 6; attempt++) {
        CHECK(do_finish(grant, .state = ONCE_STATE_FAILED, .retryable = true, .status = 503)->arm == ONCE_ARM_DONE);
        const struct once_reply *next = do_claim(.key = A);
        CHECK(next->arm == ONCE_ARM_EXECUTE);
        EXPECT(next->record.attempt == attempt);
        EXPECT(next->record.grant.fence > grant.fence);
        EXPECT(span_equal(next->record.recovery_point, ONCE_LIT("p")));
        EXPECT(span_equal(next->record.checkpoint, ONCE_LIT("cp")));
        EXPECT(next->record.state == ONCE_STATE_RUNNING && next->record.body.len == 0);
        grant = next->record.grant;
    }
    succeed(grant, ONCE_LIT("at last"));
    EXPECT(do_lookup(A)->record.attempt == 5);
}

static void K11__points_never_go_back(void)
{
    struct once_grant grant = granted(.key = A, .lease_ms = 1000);
    static const char *const points[] = { "one", "two", "three" };
    for (size_t i = 0; i < LENGTH(points); i++) {
        CHECK(do_advance(grant, span_str(points[i]), span_str(points[i]))->arm == ONCE_ARM_DONE);
        const struct once_record *before = &do_lookup(A)->record;
        for (size_t j = 0; j < i; j++)
            EXPECT_ROW(points[j], try_advance(grant, span_str(points[j]), NOTHING) == ONCE_INVALID);
        EXPECT(same_record(before, &do_lookup(A)->record));
    }
    clock_advance(1000);
    grant = granted(.key = A, .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(try_advance(grant, ONCE_LIT("one"), NOTHING) == ONCE_INVALID);
    EXPECT(try_advance(grant, ONCE_LIT("two"), NOTHING) == ONCE_INVALID);
    EXPECT(do_advance(grant, ONCE_LIT("three"), NOTHING)->arm == ONCE_ARM_DONE);
    EXPECT(do_advance(grant, ONCE_LIT("four"), NOTHING)->arm == ONCE_ARM_DONE);
    EXPECT(try_advance(grant, ONCE_LIT("three"), NOTHING) == ONCE_INVALID);
}

static void K11__current_point_may_be_repeated_with_a_new_checkpoint(void)
{
    struct once_grant grant = granted(.key = A);
    for (int i = 0; i < 100; i++) { /* more often than there may be points */
        once_span checkpoint = numbered("cp", i);
        EXPECT(do_advance(grant, ONCE_LIT("here"), checkpoint)->arm == ONCE_ARM_DONE);
        if (i % 33 == 0)
            EXPECT(span_equal(do_lookup(A)->record.checkpoint, checkpoint));
    }
    EXPECT(do_advance(grant, ONCE_LIT("here"), NOTHING)->arm == ONCE_ARM_DONE);
    EXPECT(do_lookup(A)->record.checkpoint.len == 0);
}

static void K11__part_of_a_passed_point_is_another_point(void)
{
    struct once_grant grant = granted(.key = A);
    static const char *const points[] = { "paid", "pai", "paid2", "d", "a" };
    for (size_t i = 0; i < LENGTH(points); i++)
        EXPECT_ROW(points[i], try_advance(grant, span_str(points[i]), NOTHING) == ONCE_OK);
}

static void limits__sixty_four_points_and_not_one_more(void)
{
    struct once_grant grant = granted(.key = A);
    char point[ONCE_POINT_LEN_MAX + 1];
    for (int i = 0; i < ONCE_POINT_COUNT_MAX; i++) {
        snprintf(point, sizeof point, "%064d", i);
        CHECK(do_advance(grant, span_str(point), NOTHING)->arm == ONCE_ARM_DONE);
    }
    EXPECT(try_advance(grant, ONCE_LIT("one more"), NOTHING) == ONCE_INVALID); /* a blank */
    EXPECT(try_advance(grant, ONCE_LIT("one-more"), NOTHING) == ONCE_LIMIT);
    EXPECT(span_equal(do_lookup(A)->record.recovery_point, span_str(point)));
    EXPECT(do_advance(grant, span_str(point), ONCE_LIT("still"))->arm == ONCE_ARM_DONE);
    succeed(grant, ONCE_LIT("x"));
}

static const struct point_row {
    const char *name;
    once_span point;
    once_result result;
} point_rows[] = {
    { "empty", { (const uint8_t *)"", 0 }, ONCE_INVALID },
    { "one character", { (const uint8_t *)"a", 1 }, ONCE_OK },
    { "blank", { (const uint8_t *)"a b", 3 }, ONCE_INVALID },
    { "newline", { (const uint8_t *)"a\nb", 3 }, ONCE_INVALID },
    { "NUL", { (const uint8_t *)"a\0b", 3 }, ONCE_INVALID },
    { "DEL", { (const uint8_t *)"a\x7f", 2 }, ONCE_INVALID },
    { "not ASCII", { (const uint8_t *)"\xc3\xa4", 2 }, ONCE_INVALID },
    { "first and last visible", { (const uint8_t *)"!~", 2 }, ONCE_OK },
    { "64 bytes",
      { (const uint8_t *)"0123456789012345678901234567890123456789012345678901234567890123", 64 },
      ONCE_OK },
    { "65 bytes",
      { (const uint8_t *)"01234567890123456789012345678901234567890123456789012345678901234", 65 },
      ONCE_INVALID },
};

static void limits__names_of_points(void)
{
    struct once_grant grant = granted(.key = A);
    for (size_t i = 0; i < LENGTH(point_rows); i++) {
        EXPECT_ROW(point_rows[i].name, try_advance(grant, point_rows[i].point, NOTHING) == point_rows[i].result);
        if (point_rows[i].result == ONCE_OK)
            EXPECT_ROW(point_rows[i].name, span_equal(do_lookup(A)->record.recovery_point, point_rows[i].point));
    }
}

static void limits__checkpoint_of_the_most_bytes_and_not_one_more(void)
{
    struct once_grant grant = granted(.key = A, .lease_ms = 1000);
    once_span most = bytes_of(ONCE_CHECKPOINT_LEN_MAX, true);
    once_span more = bytes_of(ONCE_CHECKPOINT_LEN_MAX + 1, true);
    EXPECT(do_advance(grant, ONCE_LIT("p"), most)->arm == ONCE_ARM_DONE);
    EXPECT(try_advance(grant, ONCE_LIT("q"), more) == ONCE_LIMIT);
    clock_advance(1000);
    const struct once_reply *next = do_claim(.key = A, .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(span_equal(next->record.checkpoint, most));
    EXPECT(span_equal(next->record.recovery_point, ONCE_LIT("p")));
}

static void K1__advance_extends_the_lease(void)
{
    struct once_grant grant = granted(.key = A, .lease_ms = 1000);
    clock_advance(900);
    const struct once_reply *done = do_advance(grant, ONCE_LIT("p"), NOTHING);
    EXPECT(done->record.lease_until == do_stats().now + 1000);
    clock_advance(999);
    EXPECT(do_claim(.key = A, .takeover = ONCE_TAKEOVER_RERUN)->arm == ONCE_ARM_IN_PROGRESS);
    clock_advance(1);
    EXPECT(do_claim(.key = A, .takeover = ONCE_TAKEOVER_RERUN)->arm == ONCE_ARM_EXECUTE);
}

static void K1__lease_of_the_next_attempt_is_its_own(void)
{
    struct once_grant grant = granted(.key = A, .lease_ms = 1000);
    do_advance(grant, ONCE_LIT("p"), NOTHING); /* has a progress row: its lease must not be inherited */
    do_extend(grant, 2000);
    clock_advance(2000);
    const struct once_reply *next = do_claim(.key = A, .lease_ms = 70, .takeover = ONCE_TAKEOVER_RERUN);
    CHECK(next->arm == ONCE_ARM_EXECUTE);
    EXPECT(next->record.lease_until == next->record.claimed_at + 70);
    EXPECT(do_lookup(A)->record.lease_until == next->record.lease_until);
    clock_advance(70);
    EXPECT(!do_lookup(A)->record.lease_live);
}

static void K11__new_life_of_a_key_starts_without_points(void)
{
    struct once_grant grant = granted(.key = A, .retention_ms = 10);
    do_advance(grant, ONCE_LIT("p"), ONCE_LIT("cp"));
    succeed(grant, NOTHING);
    clock_advance(10);
    const struct once_reply *next = do_claim(.key = A);
    CHECK(next->arm == ONCE_ARM_EXECUTE);
    EXPECT(next->record.recovery_point.len == 0 && next->record.checkpoint.len == 0);
    EXPECT(next->record.attempt == 1);
    EXPECT(do_advance(next->record.grant, ONCE_LIT("p"), NOTHING)->arm == ONCE_ARM_DONE);
}

/* ------------------------------------------------------------------ takeovers */

static void K10__takeover_by_escalation_stores_unknown_under_the_holders_fence(void)
{
    struct once_grant grant = granted(.key = A, .lease_ms = 1000, .retention_ms = 5);
    do_advance(grant, ONCE_LIT("p"), ONCE_LIT("cp"));
    clock_advance(1000);
    const struct once_reply *reply = do_claim(.key = A);
    CHECK(reply->arm == ONCE_ARM_UNKNOWN);
    EXPECT(reply->record.state == ONCE_STATE_UNKNOWN);
    EXPECT(same_grant(reply->record.grant, grant));
    EXPECT(reply->record.expires_at == ONCE_NEVER);
    EXPECT(span_equal(do_lookup(A)->record.recovery_point, ONCE_LIT("p")));
    /* The late holder is shut out, whatever it says. */
    EXPECT(do_extend(grant, 0)->arm == ONCE_ARM_FENCED);
    EXPECT(do_release(grant)->arm == ONCE_ARM_FENCED);
    const struct once_reply *late = do_finish(grant, .state = ONCE_STATE_SUCCEEDED, .status = 200);
    EXPECT(late->arm == ONCE_ARM_FENCED && late->record.state == ONCE_STATE_UNKNOWN);
    EXPECT(do_claim(.key = A, .takeover = ONCE_TAKEOVER_RERUN)->arm == ONCE_ARM_UNKNOWN);
}

static void K1__of_many_takeovers_one_wins(void)
{
    granted(.key = A, .lease_ms = 1000);
    clock_advance(1000);
    int executed = 0;
    for (int i = 0; i < 10; i++)
        executed += do_claim(.key = A, .takeover = ONCE_TAKEOVER_RERUN)->arm == ONCE_ARM_EXECUTE;
    EXPECT(executed == 1);
}

static void K3__probe_may_finish_with_what_it_learned(void)
{
    struct once_grant first = granted(.key = A, .lease_ms = 1000);
    clock_advance(1000);
    struct once_grant probe = granted(.key = A, .takeover = ONCE_TAKEOVER_PROBE);
    succeed(probe, ONCE_LIT("it had happened"));
    const struct once_reply *late = do_finish(first, .state = ONCE_STATE_FAILED, .status = 500);
    EXPECT(late->arm == ONCE_ARM_FENCED);
    EXPECT(span_equal(late->record.body, ONCE_LIT("it had happened")));
}

static void K1__policy_is_that_of_the_claim_not_of_the_holder(void)
{
    granted(.key = A, .lease_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN);
    granted(.key = ONCE_LIT("b"), .lease_ms = 1000, .takeover = ONCE_TAKEOVER_ESCALATE);
    EXPECT(do_lookup(A)->record.takeover == ONCE_TAKEOVER_RERUN);
    clock_advance(1000);
    EXPECT(do_claim(.key = A)->arm == ONCE_ARM_UNKNOWN);
    EXPECT(do_claim(.key = ONCE_LIT("b"), .takeover = ONCE_TAKEOVER_RERUN)->arm == ONCE_ARM_EXECUTE);
}

static void K4__created_at_is_of_the_first_attempt(void)
{
    const struct once_reply *first = do_claim(.key = A, .lease_ms = 1000);
    clock_advance(1500);
    const struct once_reply *second = do_claim(.key = A, .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(second->record.created_at == first->record.created_at);
    EXPECT(second->record.claimed_at == first->record.claimed_at + 1500);
    EXPECT(do_lookup(A)->record.created_at == first->record.created_at);
}

const struct suite_case progress_cases[] = {
    CASE(K11__next_attempt_finds_point_and_checkpoint),
    CASE(K11__retryable_failure_carries_point_and_checkpoint_over),
    CASE(K11__points_never_go_back),
    CASE(K11__current_point_may_be_repeated_with_a_new_checkpoint),
    CASE(K11__part_of_a_passed_point_is_another_point),
    CASE(limits__sixty_four_points_and_not_one_more),
    CASE(limits__names_of_points),
    CASE(limits__checkpoint_of_the_most_bytes_and_not_one_more),
    CASE(K1__advance_extends_the_lease),
    CASE(K1__lease_of_the_next_attempt_is_its_own),
    CASE(K11__new_life_of_a_key_starts_without_points),
    CASE(K10__takeover_by_escalation_stores_unknown_under_the_holders_fence),
    CASE(K1__of_many_takeovers_one_wins),
    CASE(K3__probe_may_finish_with_what_it_learned),
    CASE(K1__policy_is_that_of_the_claim_not_of_the_holder),
    CASE(K4__created_at_is_of_the_first_attempt),
    { NULL, NULL },
};
