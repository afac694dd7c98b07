/* cases_take_over.c - taking over exactly what was seen (K1, K2, K3, K7), and finding it. */
#include "suite.h"

static const once_span A = { (const uint8_t *)"a", 1 };

/* Claimed with this policy, past its first phase, and its lease over. */
static struct once_grant abandon(once_span key, enum once_takeover takeover)
{
    struct once_grant grant =
        granted(.key = key, .fingerprint = print_of(1), .lease_ms = 1000, .retention_ms = 5000, .takeover = takeover);
    CHECK(do_advance(grant, ONCE_LIT("paid"), ONCE_LIT("cp"))->arm == ONCE_ARM_DONE);
    clock_advance(1000);
    return grant;
}

static const struct policy_row {
    const char *name;
    enum once_takeover takeover;
    enum once_arm arm;
} policy_rows[] = {
    { "rerun", ONCE_TAKEOVER_RERUN, ONCE_ARM_EXECUTE },
    { "probe", ONCE_TAKEOVER_PROBE, ONCE_ARM_PROBE },
    { "escalate", ONCE_TAKEOVER_ESCALATE, ONCE_ARM_UNKNOWN },
};

/* K2, K3. ADR 7: the policy is the one of the claim that is taken over. */
static void K3__take_over_goes_by_the_stored_policy(void)
{
    for (size_t i = 0; i < LENGTH(policy_rows); i++) {
        const struct policy_row *row = &policy_rows[i];
        once_span key = numbered("k", (int)i);
        struct once_grant old = abandon(key, row->takeover);
        const struct once_reply *reply = do_take_over(old, .lease_ms = 2000);
        EXPECT_ROW(row->name, reply->arm == row->arm);
        EXPECT_ROW(row->name, span_equal(reply->record.recovery_point, ONCE_LIT("paid")));
        EXPECT_ROW(row->name, span_equal(reply->record.checkpoint, ONCE_LIT("cp")));
        EXPECT_ROW(row->name, span_equal(reply->record.key, key));
        EXPECT_ROW(row->name, reply->record.takeover == row->takeover);
        EXPECT_ROW(row->name, reply->record.retention_ms == 5000);
        bool granted = row->arm != ONCE_ARM_UNKNOWN;
        EXPECT_ROW(row->name, granted == (reply->record.grant.fence > old.fence));
        EXPECT_ROW(row->name, reply->record.attempt == (granted ? 2 : 1));
        EXPECT_ROW(row->name, reply->record.state == (granted ? ONCE_STATE_RUNNING : ONCE_STATE_UNKNOWN));
        if (granted)
            EXPECT_ROW(row->name, reply->record.lease_until == reply->record.claimed_at + 2000);
        EXPECT_ROW(row->name, do_finish(old, .state = ONCE_STATE_SUCCEEDED)->arm == ONCE_ARM_FENCED);
        EXPECT_ROW(row->name, do_claim(.key = key, .fingerprint = print_of(1))->arm ==
                                  (granted ? ONCE_ARM_IN_PROGRESS : ONCE_ARM_UNKNOWN));
        EXPECT_ROW(row->name, do_claim(.key = key, .fingerprint = print_of(2))->arm == ONCE_ARM_MISMATCH);
    }
}

static void K5__taken_over_ends_once(void)
{
    struct once_grant old = abandon(A, ONCE_TAKEOVER_RERUN);
    const struct once_reply *taken = do_take_over(old);
    CHECK(taken->arm == ONCE_ARM_EXECUTE);
    EXPECT(taken->record.lease_until == taken->record.claimed_at + 1000); /* as the attempt before had it */
    succeed(taken->record.grant, ONCE_LIT("done by another"));
    const struct once_reply *late = do_finish(old, .state = ONCE_STATE_SUCCEEDED, .body = ONCE_LIT("mine"));
    EXPECT(late->arm == ONCE_ARM_FENCED && span_equal(late->record.body, ONCE_LIT("done by another")));
    const struct once_reply *replay = do_claim(.key = A, .fingerprint = print_of(1));
    EXPECT(replay->arm == ONCE_ARM_REPLAY && span_equal(replay->record.body, ONCE_LIT("done by another")));
    EXPECT(do_take_over(taken->record.grant)->arm == ONCE_ARM_FENCED); /* never a replay */
    clock_advance(5000);
    EXPECT(do_take_over(taken->record.grant)->arm == ONCE_ARM_ABSENT); /* K8, and never a new life */
    EXPECT(do_lookup(A)->arm == ONCE_ARM_ABSENT);
}

/* A failure that may be retried is certain: it is run again, whatever the policy is for what is not. */
static void K5__take_over_of_a_retryable_failure_executes(void)
{
    for (size_t i = 0; i < LENGTH(policy_rows); i++) {
        once_span key = numbered("k", (int)i);
        struct once_grant old = granted(.key = key, .takeover = policy_rows[i].takeover, .lease_ms = 1000);
        do_advance(old, ONCE_LIT("p"), ONCE_LIT("c"));
        do_finish(old, .state = ONCE_STATE_FAILED, .retryable = true, .status = 503);
        const struct once_reply *taken = do_take_over(old);
        EXPECT_ROW(policy_rows[i].name, taken->arm == ONCE_ARM_EXECUTE);
        EXPECT_ROW(policy_rows[i].name,
                   taken->record.attempt == 2 && taken->record.takeover == policy_rows[i].takeover);
        EXPECT_ROW(policy_rows[i].name, span_equal(taken->record.checkpoint, ONCE_LIT("c")));
        succeed(taken->record.grant, ONCE_LIT("x"));
    }
}

static const struct refused_row {
    const char *name;
    enum { GONE, LIVE, FINAL, UNKNOWN, RELEASED, EXPIRED, RENEWED, TAKEN, OLDER } state;
    enum once_arm arm;
} refused_rows[] = {
    { "absent", GONE, ONCE_ARM_ABSENT },
    { "its holder is alive", LIVE, ONCE_ARM_FENCED },
    { "final", FINAL, ONCE_ARM_FENCED },
    { "unknown already", UNKNOWN, ONCE_ARM_FENCED },
    { "released", RELEASED, ONCE_ARM_ABSENT },
    { "expired", EXPIRED, ONCE_ARM_ABSENT },
    { "renewed since", RENEWED, ONCE_ARM_FENCED },
    { "taken over since", TAKEN, ONCE_ARM_FENCED },
    { "taken over since, and abandoned again", OLDER, ONCE_ARM_FENCED },
};

static void K7__take_over_of_anything_else_changes_nothing(void)
{
    for (size_t i = 0; i < LENGTH(refused_rows); i++) {
        const struct refused_row *row = &refused_rows[i];
        once_span key = numbered("k", (int)i);
        struct once_grant seen = { .fence = 1 };
        if (row->state != GONE)
            seen = granted(.key = key, .lease_ms = 1000, .retention_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN);
        if (row->state == FINAL || row->state == EXPIRED)
            succeed(seen, ONCE_LIT("x"));
        if (row->state == UNKNOWN)
            do_finish(seen, .state = ONCE_STATE_UNKNOWN);
        if (row->state == RELEASED)
            do_release(seen);
        if (row->state == RENEWED || row->state == TAKEN || row->state == OLDER || row->state == EXPIRED)
            clock_advance(1000);
        if (row->state == RENEWED)
            do_extend(seen, 1000);
        if (row->state == TAKEN || row->state == OLDER)
            CHECK(do_claim(.key = key, .lease_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN)->arm == ONCE_ARM_EXECUTE);
        if (row->state == OLDER)
            clock_advance(1000);
        const struct once_reply *before = do_lookup(key);
        const struct once_reply *reply = do_take_over(seen);
        EXPECT_ROW(row->name, reply->arm == row->arm);
        if (row->arm == ONCE_ARM_FENCED)
            EXPECT_ROW(row->name, same_record(&reply->record, &before->record));
        const struct once_reply *after = do_lookup(key);
        EXPECT_ROW(row->name, before->arm == after->arm && same_record(&before->record, &after->record));
    }
}

static void K1__of_many_takers_one_gets_it(void)
{
    struct once_grant old = abandon(A, ONCE_TAKEOVER_RERUN);
    int granted_to = 0;
    for (uint8_t i = 1; i <= 5; i++)
        granted_to += do_take_over(old, .nonce = { i })->arm == ONCE_ARM_EXECUTE;
    EXPECT(granted_to == 1);
    CHECK(do_claim(.key = A, .fingerprint = print_of(1), .takeover = ONCE_TAKEOVER_RERUN)->arm == ONCE_ARM_IN_PROGRESS);
}

/* K10: as a claim's. */
static void K10__take_over_repeated_with_its_nonce_is_the_same_grant(void)
{
    struct once_grant old = abandon(A, ONCE_TAKEOVER_PROBE);
    const struct once_reply *first = do_take_over(old, .lease_ms = 700, .nonce = { 7 });
    CHECK(first->arm == ONCE_ARM_PROBE);
    clock_advance(100);
    const struct once_reply *again = do_take_over(old, .lease_ms = 700, .nonce = { 7 });
    EXPECT(again->arm == ONCE_ARM_PROBE && same_grant(first->record.grant, again->record.grant));
    EXPECT(again->record.lease_until == first->record.lease_until + 100);
    EXPECT(again->record.attempt == 2 && span_equal(again->record.checkpoint, ONCE_LIT("cp")));
    EXPECT(do_take_over(old, .nonce = { 8 })->arm == ONCE_ARM_FENCED);
    clock_advance(700);
    EXPECT(do_take_over(old, .nonce = { 8 })->arm == ONCE_ARM_FENCED); /* abandoned again, but not what was seen */
}

static void invalid__a_lease_out_of_range_is_refused(void)
{
    struct once_grant old = abandon(A, ONCE_TAKEOVER_RERUN);
    struct once_reply reply;
    struct once_take_over take_over = { .seen = old, .lease_ms = ONCE_LEASE_MS_MAX + 1 };
    EXPECT(once_take_over(suite.once, &take_over, &reply, &suite.err) == ONCE_INVALID);
    once_reply_release(&reply);
    take_over.lease_ms = -1;
    EXPECT(once_take_over(suite.once, &take_over, &reply, &suite.err) == ONCE_INVALID);
    once_reply_release(&reply);
}

const struct suite_case take_over_cases[] = {
    CASE(K3__take_over_goes_by_the_stored_policy),
    CASE(K5__taken_over_ends_once),
    CASE(K5__take_over_of_a_retryable_failure_executes),
    CASE(K7__take_over_of_anything_else_changes_nothing),
    CASE(K1__of_many_takers_one_gets_it),
    CASE(K10__take_over_repeated_with_its_nonce_is_the_same_grant),
    CASE(invalid__a_lease_out_of_range_is_refused),
    { NULL, NULL },
};
