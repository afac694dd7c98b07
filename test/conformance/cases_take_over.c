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
    { "completer", ONCE_TAKEOVER_COMPLETER, ONCE_ARM_PROBE },
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

/* A claim leaves it, however often it is asked; whoever takes over has to ask what happened. */
static void K7__what_is_left_to_a_completer_is_in_progress_for_claims(void)
{
    struct once_grant old = abandon(A, ONCE_TAKEOVER_COMPLETER);
    for (uint32_t attempt = 1; attempt <= 3; attempt++) {
        const struct once_record *before = &do_lookup(A)->record;
        CHECK(before->attempt == attempt && before->state == ONCE_STATE_RUNNING && !before->lease_live);
        for (int i = 0; i < 2; i++) {
            const struct once_reply *left =
                do_claim(.key = A, .fingerprint = print_of(1), .takeover = ONCE_TAKEOVER_COMPLETER);
            EXPECT(left->arm == ONCE_ARM_IN_PROGRESS && left->retry_after_ms == 1000);
            EXPECT(same_record(before, &do_lookup(A)->record));
        }
        EXPECT(do_claim(.key = A, .fingerprint = print_of(2), .takeover = ONCE_TAKEOVER_COMPLETER)->arm ==
               ONCE_ARM_MISMATCH);
        const struct once_reply *asked = do_take_over(old);
        CHECK(asked->arm == ONCE_ARM_PROBE && asked->record.takeover == ONCE_TAKEOVER_COMPLETER);
        old = asked->record.grant;
        EXPECT(do_claim(.key = A, .fingerprint = print_of(1), .takeover = ONCE_TAKEOVER_COMPLETER)->arm ==
               ONCE_ARM_IN_PROGRESS);
        if (attempt == 1)
            EXPECT(do_release(old)->arm == ONCE_ARM_DONE); /* it was not told: as it was */
        else if (attempt == 2)
            clock_advance(1000);
    }
    succeed(old, ONCE_LIT("as they said"));
    const struct once_reply *replay =
        do_claim(.key = A, .fingerprint = print_of(1), .takeover = ONCE_TAKEOVER_COMPLETER);
    EXPECT(replay->arm == ONCE_ARM_REPLAY && span_equal(replay->record.body, ONCE_LIT("as they said")));
}

/* Others decide by their own policy, as ever (ADR 7). */
static void K7__what_is_left_to_a_completer_may_be_taken_by_other_claims(void)
{
    static const struct policy_row rows[] = {
        { "rerun", ONCE_TAKEOVER_RERUN, ONCE_ARM_EXECUTE },
        { "probe", ONCE_TAKEOVER_PROBE, ONCE_ARM_PROBE },
        { "escalate", ONCE_TAKEOVER_ESCALATE, ONCE_ARM_UNKNOWN },
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        once_span key = numbered("k", (int)i);
        abandon(key, ONCE_TAKEOVER_COMPLETER);
        EXPECT_ROW(rows[i].name,
                   do_claim(.key = key, .fingerprint = print_of(1), .takeover = rows[i].takeover)->arm == rows[i].arm);
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

/* ------------------------------------------------------------------ intent */

static const struct intent_row {
    const char *name;
    bool intent, marked;
    enum once_takeover takeover;
    enum once_arm arm;
} intent_rows[] = {
    { "no intent", false, false, ONCE_TAKEOVER_ESCALATE, ONCE_ARM_UNKNOWN },
    { "intent, not sent, escalate", true, false, ONCE_TAKEOVER_ESCALATE, ONCE_ARM_EXECUTE },
    { "intent, not sent, probe", true, false, ONCE_TAKEOVER_PROBE, ONCE_ARM_EXECUTE },
    { "intent, not sent, rerun", true, false, ONCE_TAKEOVER_RERUN, ONCE_ARM_EXECUTE },
    { "intent, sent, escalate", true, true, ONCE_TAKEOVER_ESCALATE, ONCE_ARM_UNKNOWN },
    { "intent, sent, probe", true, true, ONCE_TAKEOVER_PROBE, ONCE_ARM_PROBE },
    { "intent, sent, rerun", true, true, ONCE_TAKEOVER_RERUN, ONCE_ARM_EXECUTE },
};

static void K10__with_intent_a_taker_knows_that_nothing_was_sent(void)
{
    for (size_t i = 0; i < 2 * LENGTH(intent_rows); i++) {
        const struct intent_row *row = &intent_rows[i / 2];
        once_span key = numbered("k", (int)i);
        struct once_grant old = granted(.key = key, .lease_ms = 1000, .takeover = row->takeover, .intent = row->intent);
        if (row->marked)
            CHECK(do_advance(old, ONCE_LIT(ONCE_POINT_SENDING), ONCE_LIT(""))->arm == ONCE_ARM_DONE);
        clock_advance(2000);
        const struct once_reply *reply = i % 2 == 0 ? do_claim(.key = key, .lease_ms = 1000, .takeover = row->takeover)
                                                    : do_take_over(old, .lease_ms = 1000);
        EXPECT_ROW(row->name, reply->arm == row->arm);
        if (reply->arm == ONCE_ARM_UNKNOWN || row->takeover != ONCE_TAKEOVER_ESCALATE)
            continue;
        /* Whoever took over without intent of its own may have sent something. */
        clock_advance(1000);
        EXPECT_ROW(row->name, do_claim(.key = key)->arm == ONCE_ARM_UNKNOWN);
    }
}

/* Attempt 1 may have sent something; attempt 2, with intent, did not: nobody knows that of both. */
static void K10__intent_says_nothing_about_an_attempt_before(void)
{
    for (int i = 0; i < 4; i++) {
        once_span key = numbered("k", i);
        bool by_claim = i % 2 == 0;
        struct once_grant first =
            granted(.key = key, .lease_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN, .intent = i >= 2);
        clock_advance(1000);
        struct once_grant second =
            by_claim ? granted(.key = key, .lease_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN, .intent = true)
                     : do_take_over(first, .intent = true)->record.grant;
        CHECK(second.fence > first.fence);
        clock_advance(1000);
        /* i >= 2: the first had intent too, and sent nothing: then it is known of both. */
        EXPECT(do_claim(.key = key)->arm == (i >= 2 ? ONCE_ARM_EXECUTE : ONCE_ARM_UNKNOWN));
    }
}

static void K10__intent_holds_after_a_failure_that_may_be_retried(void)
{
    do_finish(granted(.key = A), .state = ONCE_STATE_FAILED, .retryable = true);
    granted(.key = A, .lease_ms = 1000, .intent = true);
    clock_advance(1000);
    EXPECT(do_claim(.key = A)->arm == ONCE_ARM_EXECUTE);
}

/* ------------------------------------------------------------------ stored requests */

static once_span stored_request(once_span key)
{
    struct once_reply reply;
    CHECK(once_lookup_request(suite.once, (once_span){ .len = 0 }, key, &reply, &suite.err) == ONCE_OK);
    once_span copy = { .len = 0 };
    if (reply.record.request.len > 0) {
        copy = bytes_of(reply.record.request.len, false);
        memcpy((uint8_t *)(uintptr_t)copy.ptr, reply.record.request.ptr, copy.len);
    }
    once_reply_release(&reply);
    return copy;
}

static void request__is_kept_for_the_taker_until_it_is_finished(void)
{
    once_span large = bytes_of(ONCE_REQUEST_LEN_MAX, true);
    struct once_grant first = granted(.key = A, .lease_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN, .request = large);
    EXPECT(do_lookup(A)->record.request.len == 0); /* only where it is asked for */
    EXPECT(span_equal(stored_request(A), large));
    granted(.key = ONCE_LIT("without"), .lease_ms = 1000);
    clock_advance(1000);
    const struct once_page *page = do_list((struct once_filter){ .abandoned = true });
    CHECK(page->count == 2);
    EXPECT(page->records[0].has_request && page->records[0].request.len == 0 && !page->records[1].has_request);
    page = do_list((struct once_filter){ .abandoned = true, .with_request = true });
    EXPECT(page->count == 1 && page->records[0].has_request);
    const struct once_reply *second = do_take_over(first, .nonce = { 1 });
    CHECK(second->arm == ONCE_ARM_EXECUTE);
    EXPECT(span_equal(second->record.request, large));
    EXPECT(span_equal(do_take_over(first, .nonce = { 1 })->record.request, large)); /* asked again */
    reopen();
    do_finish(second->record.grant, .state = ONCE_STATE_FAILED, .retryable = true, .status = 503);
    EXPECT(span_equal(stored_request(A), large));
    const struct once_reply *third = do_take_over(second->record.grant);
    EXPECT(third->arm == ONCE_ARM_EXECUTE && span_equal(third->record.request, large));
    clock_advance(1000);
    /* A claim without one leaves it, one with another replaces it. */
    struct once_grant fourth = granted(.key = A, .lease_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(span_equal(stored_request(A), large));
    clock_advance(1000);
    struct once_grant fifth =
        granted(.key = A, .lease_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN, .request = ONCE_LIT("other"));
    EXPECT(fifth.fence > fourth.fence && span_equal(stored_request(A), ONCE_LIT("other")));
    succeed(fifth, ONCE_LIT("done"));
    do_expire_all(0); /* as soon as convenient */
    EXPECT(stored_request(A).len == 0);
    EXPECT(do_lookup(A)->arm == ONCE_ARM_FOUND);
}

static void request__survives_unknown_until_the_verdict(void)
{
    static const enum once_verdict verdicts[] = { ONCE_VERDICT_NOT_DONE, ONCE_VERDICT_DONE, ONCE_VERDICT_RELEASE };
    for (size_t i = 0; i < LENGTH(verdicts); i++) {
        once_span key = numbered("k", (int)i);
        struct once_grant grant = granted(.key = key, .lease_ms = 1000, .request = ONCE_LIT("r"));
        clock_advance(1000);
        CHECK(do_take_over(grant)->arm == ONCE_ARM_UNKNOWN);
        EXPECT(span_equal(stored_request(key), ONCE_LIT("r")));
        CHECK(do_resolve(.key = key, .verdict = verdicts[i], .outcome = { .state = ONCE_STATE_SUCCEEDED },
                         .reason = ONCE_LIT("looked"))
                  ->arm == ONCE_ARM_DONE);
        do_expire_all(0);
        bool again = verdicts[i] == ONCE_VERDICT_NOT_DONE;
        EXPECT(stored_request(key).len == (again ? 1 : 0));
        if (again) {
            const struct once_reply *taken = do_take_over(do_lookup(key)->record.grant);
            EXPECT(taken->arm == ONCE_ARM_EXECUTE && span_equal(taken->record.request, ONCE_LIT("r")));
        }
    }
}

static void request__of_another_life_is_not_given_out(void)
{
    struct once_grant grant = granted(.key = A, .lease_ms = 1000, .retention_ms = 1000, .request = ONCE_LIT("old"));
    do_finish(grant, .state = ONCE_STATE_FAILED, .retryable = true);
    clock_advance(1000);
    grant = granted(.key = A, .lease_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(stored_request(A).len == 0);
    clock_advance(1000);
    EXPECT(do_take_over(grant)->record.request.len == 0);
    grant = granted(.key = ONCE_LIT("b"), .request = ONCE_LIT("old"));
    do_release(grant);
    granted(.key = ONCE_LIT("b"));
    EXPECT(stored_request(ONCE_LIT("b")).len == 0);
    for (int i = 0; i < 12; i++) { /* what is not finished is moved out of the way; the rest goes */
        succeed(granted(.key = numbered("k", i), .retention_ms = 1000), ONCE_LIT("x"));
        clock_advance(6 * 3600 * 1000);
        do_expire_all(0);
    }
    EXPECT(stored_request(A).len == 0 && stored_request(ONCE_LIT("b")).len == 0);
}

/* K7: it goes where its record goes, when the space of others is given back. */
static void request__of_what_is_not_finished_outlives_all_expiry(void)
{
    struct once_grant grant =
        granted(.key = A, .lease_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN, .request = ONCE_LIT("r"));
    for (int i = 0; i < 12; i++) {
        succeed(granted(.key = numbered("k", i), .retention_ms = 1000, .request = ONCE_LIT("q")), ONCE_LIT("x"));
        clock_advance(6 * 3600 * 1000);
        do_expire_all(0);
    }
    EXPECT(span_equal(do_take_over(grant)->record.request, ONCE_LIT("r")));
}

static void request__over_its_limit_is_refused(void)
{
    struct once_reply reply;
    struct once_claim claim = { .key = A, .request = bytes_of(ONCE_REQUEST_LEN_MAX + 1, false) };
    EXPECT(once_claim(suite.once, &claim, &reply, &suite.err) == ONCE_LIMIT);
    once_reply_release(&reply);
    EXPECT(do_lookup(A)->arm == ONCE_ARM_ABSENT);
}

/* ------------------------------------------------------------------ finding them */

/* All that is abandoned, in pages of `limit`; keeps the records of the last page only. */
static size_t count_abandoned(uint32_t limit, once_span key, size_t *times)
{
    struct once_filter filter = { .abandoned = true, .limit = limit };
    size_t count = 0;
    uint64_t last = 0;
    *times = 0;
    do {
        const struct once_page *page = do_list(filter);
        for (size_t i = 0; i < page->count; i++) {
            const struct once_record *r = &page->records[i];
            EXPECT(r->grant.fence > last); /* oldest first, and none twice */
            last = r->grant.fence;
            EXPECT(!r->lease_live &&
                   (r->state == ONCE_STATE_RUNNING || (r->state == ONCE_STATE_FAILED && r->retryable)));
        }
        count += page->count;
        *times += times_listed(page, key);
        filter.before = page->next;
    } while (filter.before != 0);
    return count;
}

static bool is_abandoned(once_span key)
{
    size_t times;
    count_abandoned(0, key, &times);
    return times > 0;
}

static void find__every_state_a_record_can_be_in(void)
{
    once_span live = ONCE_LIT("live"), over = ONCE_LIT("over"), failed = ONCE_LIT("failed"), final = ONCE_LIT("final");
    once_span unknown = ONCE_LIT("unknown"), freed = ONCE_LIT("freed"), renewed = ONCE_LIT("renewed");
    EXPECT(!is_abandoned(over));
    struct once_grant grant = granted(.key = renewed, .lease_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN);
    struct once_grant dead = granted(.key = over, .lease_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN);
    granted(.key = live, .lease_ms = 60000);
    do_finish(granted(.key = failed, .retention_ms = 100000), .state = ONCE_STATE_FAILED, .retryable = true);
    do_finish(granted(.key = final), .state = ONCE_STATE_FAILED, .status = 402);
    do_finish(granted(.key = unknown), .state = ONCE_STATE_UNKNOWN);
    do_release(granted(.key = freed));
    EXPECT(!is_abandoned(over) && is_abandoned(failed));
    clock_advance(900);
    do_extend(grant, 60000);
    clock_advance(100);
    size_t times;
    EXPECT(count_abandoned(0, over, &times) == 2 && times == 1);
    EXPECT(count_abandoned(1, failed, &times) == 2 && times == 1);
    EXPECT(count_abandoned(0, over, &times) == 2 && times == 1); /* until somebody takes it */
    struct once_grant taken = do_take_over(dead, .lease_ms = 500)->record.grant;
    EXPECT(!is_abandoned(over));
    clock_advance(500);
    EXPECT(is_abandoned(over));
    const struct once_page *page =
        do_list((struct once_filter){ .abandoned = true, .states = 1u << ONCE_STATE_RUNNING });
    EXPECT(page->count == 1 && same_grant(page->records[0].grant, taken) && span_equal(page->records[0].key, over));
    succeed(do_take_over(taken)->record.grant, ONCE_LIT("x"));
    EXPECT(count_abandoned(0, over, &times) == 1 && times == 0);
    clock_advance(60000);
    EXPECT(is_abandoned(renewed) && is_abandoned(live) && is_abandoned(failed));
    reopen();
    clock_advance(1); /* a daemon that sees a client go ends its lease then, also one that was over */
    EXPECT(count_abandoned(0, live, &times) == 3 && times == 1);
    clock_advance(100000); /* K8: the failure expires */
    EXPECT(count_abandoned(0, failed, &times) == 2 && times == 0);
}

/* Swept over while it ran, with a long lease; then its lease was ended, or it failed. */
static void find__what_ended_before_its_lease(void)
{
    struct once_grant short_one = granted(.key = ONCE_LIT("short"), .lease_ms = 3600000);
    struct once_grant failed = granted(.key = ONCE_LIT("failed"), .lease_ms = 3600000);
    EXPECT(!is_abandoned(ONCE_LIT("short")) && !is_abandoned(ONCE_LIT("failed")));
    do_extend(short_one, 1);
    do_finish(failed, .state = ONCE_STATE_FAILED, .retryable = true);
    clock_advance(5000);
    EXPECT(is_abandoned(ONCE_LIT("short")) && is_abandoned(ONCE_LIT("failed")));
}

/* Among many that are finished, in pages, in the order in which they were begun. */
static void find__the_few_among_the_many(void)
{
    size_t times, many = sut.loses_answers ? 60 : 300;
    for (int i = 0; i < (int)many; i++) {
        struct once_grant grant = granted(.key = numbered("k", i), .lease_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN);
        if (i % 10 != 0)
            succeed(grant, ONCE_LIT("x"));
        if (i == 25)
            EXPECT(count_abandoned(0, A, &times) == 0);
    }
    clock_advance(1000);
    for (uint32_t limit = 1; limit <= 1000; limit *= 10)
        EXPECT(count_abandoned(limit, numbered("k", 50), &times) == many / 10 && times == 1);
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
    CASE(K7__what_is_left_to_a_completer_is_in_progress_for_claims),
    CASE(K7__what_is_left_to_a_completer_may_be_taken_by_other_claims),
    CASE(K5__taken_over_ends_once),
    CASE(K5__take_over_of_a_retryable_failure_executes),
    CASE(K7__take_over_of_anything_else_changes_nothing),
    CASE(K1__of_many_takers_one_gets_it),
    CASE(K10__take_over_repeated_with_its_nonce_is_the_same_grant),
    CASE(K10__with_intent_a_taker_knows_that_nothing_was_sent),
    CASE(K10__intent_says_nothing_about_an_attempt_before),
    CASE(K10__intent_holds_after_a_failure_that_may_be_retried),
    CASE(request__is_kept_for_the_taker_until_it_is_finished),
    CASE(request__survives_unknown_until_the_verdict),
    CASE(request__of_another_life_is_not_given_out),
    CASE(request__of_what_is_not_finished_outlives_all_expiry),
    CASE(request__over_its_limit_is_refused),
    CASE(find__every_state_a_record_can_be_in),
    CASE(find__what_ended_before_its_lease),
    CASE(find__the_few_among_the_many),
    CASE(invalid__a_lease_out_of_range_is_refused),
    { NULL, NULL },
};
