/*
 * cases_time.c - retention and expiry (K8), and what clocks may do (FAULT-30).
 */
#include "suite.h"

#define HOUR_MS (3600 * 1000LL)
#define YEAR_MS (365 * 24 * HOUR_MS)

static const once_span A = { (const uint8_t *)"a", 1 };

static void finish_new(once_span key, int64_t retention_ms)
{
    succeed(granted(.key = key, .retention_ms = retention_ms), ONCE_LIT("x"));
}

/* ------------------------------------------------------------------ retention */

static void K8__retention_counts_from_the_finish_to_the_millisecond(void)
{
    struct once_grant grant = granted(.key = A, .fingerprint = print_of(1), .lease_ms = HOUR_MS, .retention_ms = 1000);
    clock_advance(HOUR_MS / 2);
    succeed(grant, ONCE_LIT("x"));
    const struct once_record *stored = &do_lookup(A)->record;
    EXPECT(stored->finished_at == stored->claimed_at + HOUR_MS / 2);
    EXPECT(stored->expires_at == stored->finished_at + 1000);
    clock_advance(999);
    EXPECT(do_stats().now == stored->expires_at - 1);
    EXPECT(do_claim(.key = A, .fingerprint = print_of(1))->arm == ONCE_ARM_REPLAY);
    EXPECT(do_claim(.key = A, .fingerprint = print_of(2))->arm == ONCE_ARM_MISMATCH);
    EXPECT(do_expire(0, 0));
    clock_advance(1);
    EXPECT(do_lookup(A)->arm == ONCE_ARM_ABSENT);
    EXPECT(do_list((struct once_filter){ 0 })->count == 0);
    EXPECT(do_expire(0, 1));
}

static void K8__expiry_is_a_fact_without_the_reaper(void)
{
    finish_new(A, 1000);
    struct once_grant first = do_lookup(A)->record.grant;
    clock_advance(1000);
    EXPECT(do_lookup(A)->arm == ONCE_ARM_ABSENT);
    const struct once_reply *next = do_claim(.key = A, .fingerprint = print_of(2), .retention_ms = 1000);
    CHECK(next->arm == ONCE_ARM_EXECUTE);
    EXPECT(next->record.attempt == 1);
    EXPECT(next->record.grant.fence > first.fence);
    EXPECT(next->record.created_at == next->record.claimed_at);
    EXPECT(do_list((struct once_filter){ 0 })->count == 1);
    EXPECT(do_expire(0, 1)); /* the old life goes, the new one stays */
    EXPECT(same_grant(do_lookup(A)->record.grant, next->record.grant));
    succeed(next->record.grant, ONCE_LIT("second life"));
    EXPECT(span_equal(do_claim(.key = A, .fingerprint = print_of(2))->record.body, ONCE_LIT("second life")));
}

/* What went before the last attempt belongs to the earlier life: nothing of it is a
 * problem to once_check(), whether or not the reaper came in between. */
static void K7__earlier_life_with_several_attempts_is_no_problem(void)
{
    enum { TAKEN_OVER, RETRIED, RESOLVED, ENDS };
    for (int end = 0; end < ENDS; end++) {
        once_span key = numbered("k", end);
        struct once_grant first = granted(.key = key, .lease_ms = 100, .retention_ms = 1000);
        if (end == RETRIED)
            do_finish(first, .state = ONCE_STATE_FAILED, .retryable = true, .status = 1);
        if (end == RESOLVED)
            do_finish(first, .state = ONCE_STATE_UNKNOWN);
        clock_advance(100);
        if (end == RESOLVED)
            do_resolve(.key = key, .verdict = ONCE_VERDICT_DONE, .reason = ONCE_LIT("r"),
                       .outcome = { .state = ONCE_STATE_SUCCEEDED });
        else
            succeed(granted(.key = key, .retention_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN), ONCE_LIT("x"));
        clock_advance(1000);
        EXPECT(granted(.key = key).fence > first.fence);
    }
}

static void K8__never_means_never(void)
{
    finish_new(A, ONCE_NEVER);
    EXPECT(do_lookup(A)->record.expires_at == ONCE_NEVER);
    EXPECT(do_lookup(A)->record.retention_ms == ONCE_NEVER);
    clock_advance(ONCE_RETENTION_MS_MAX);
    EXPECT(do_expire(0, 0));
    EXPECT(do_claim(.key = A)->arm == ONCE_ARM_REPLAY);
}

static void K8__default_retention_is_a_day(void)
{
    finish_new(A, 0);
    clock_advance(24 * HOUR_MS - 1);
    EXPECT(do_lookup(A)->arm == ONCE_ARM_FOUND);
    clock_advance(1);
    EXPECT(do_lookup(A)->arm == ONCE_ARM_ABSENT);
}

static void K8__retention_of_a_retried_record_counts_from_its_last_finish(void)
{
    struct once_grant grant = granted(.key = A, .retention_ms = 1000);
    do_finish(grant, .state = ONCE_STATE_FAILED, .retryable = true, .status = 1);
    clock_advance(900);
    grant = granted(.key = A, .retention_ms = 1000);
    clock_advance(5000); /* running: the first attempt's retention must not take it away */
    EXPECT(do_expire(0, 0));
    EXPECT(do_lookup(A)->arm == ONCE_ARM_FOUND);
    succeed(grant, ONCE_LIT("x"));
    clock_advance(999);
    EXPECT(do_lookup(A)->arm == ONCE_ARM_FOUND);
    clock_advance(1);
    EXPECT(do_lookup(A)->arm == ONCE_ARM_ABSENT);
    EXPECT(do_expire(0, 1)); /* one record, both attempts */
    EXPECT(do_history(A)->count == 0);
}

static void K8__retryable_failure_expires_too(void)
{
    struct once_grant grant = granted(.key = A, .fingerprint = print_of(1), .retention_ms = 1000);
    do_finish(grant, .state = ONCE_STATE_FAILED, .retryable = true, .status = 1);
    clock_advance(1000);
    const struct once_reply *next = do_claim(.key = A, .fingerprint = print_of(2));
    EXPECT(next->arm == ONCE_ARM_EXECUTE && next->record.attempt == 1);
}

/* ------------------------------------------------------------------ the reaper */

static void K8__reaper_removes_exactly_what_is_past_its_retention(void)
{
    enum { COUNT = 30 };
    static const uint32_t budgets[] = { 1, 7, 0 };
    for (size_t b = 0; b < LENGTH(budgets); b++) {
        int base = (int)b * 1000;
        for (int i = 0; i < COUNT; i++)
            finish_new(numbered("short", base + i), 1000);
        for (int i = 0; i < 5; i++)
            finish_new(numbered("long", base + i), YEAR_MS);
        finish_new(numbered("never", base), ONCE_NEVER);
        granted(.key = numbered("running", base), .retention_ms = 1, .lease_ms = 1);
        do_finish(granted(.key = numbered("unknown", base), .retention_ms = 1), .state = ONCE_STATE_UNKNOWN);
        clock_advance(1000);
        EXPECT(do_expire(budgets[b], COUNT));
        for (int i = 0; i < COUNT; i++)
            EXPECT(do_lookup(numbered("short", base + i))->arm == ONCE_ARM_ABSENT);
        for (int i = 0; i < 5; i++)
            EXPECT(do_lookup(numbered("long", base + i))->arm == ONCE_ARM_FOUND);
        EXPECT(do_lookup(numbered("never", base))->arm == ONCE_ARM_FOUND);
        EXPECT(do_lookup(numbered("running", base))->arm == ONCE_ARM_FOUND);
        EXPECT(do_lookup(numbered("unknown", base))->arm == ONCE_ARM_FOUND);
    }
}

static void K8__reaper_works_in_bounded_steps_and_tells_of_more(void)
{
    if (sut.expires_later) {
        skip("space is given back by generations; the store's own cases show that");
        return;
    }
    for (int i = 0; i < 3; i++)
        finish_new(numbered("k", i), 1000);
    clock_advance(1000);
    uint64_t removed = 0;
    bool more = false;
    CHECK(once_expire(suite.once, 1, &removed, &more, NULL) == ONCE_OK);
    EXPECT(removed == 1 && more);
    CHECK(once_expire(suite.once, 1, &removed, &more, NULL) == ONCE_OK);
    EXPECT(removed == 1 && more);
    CHECK(once_expire(suite.once, 0, &removed, &more, NULL) == ONCE_OK);
    EXPECT(removed == 1 && !more);
    CHECK(once_expire(suite.once, 0, &removed, &more, NULL) == ONCE_OK);
    EXPECT(removed == 0 && !more);
    EXPECT(once_expire(suite.once, 10001, &removed, &more, NULL) == ONCE_INVALID);
}

static void K8__reaper_takes_the_longest_due_first(void)
{
    if (sut.expires_later) {
        skip("space is given back by generations; the store's own cases show that");
        return;
    }
    finish_new(ONCE_LIT("late"), 3000);
    finish_new(ONCE_LIT("early"), 1000);
    clock_advance(3000);
    uint64_t removed = 0;
    bool more = false;
    CHECK(once_expire(suite.once, 1, &removed, &more, NULL) == ONCE_OK);
    EXPECT(do_history(ONCE_LIT("early"))->count == 0);
    EXPECT(do_history(ONCE_LIT("late"))->count > 0);
}

static void K2__after_the_reaper_the_key_comes_back_with_a_larger_fence(void)
{
    finish_new(A, 1000);
    struct once_grant first = do_lookup(A)->record.grant;
    clock_advance(1000);
    EXPECT(do_expire(0, 1));
    struct once_grant second = granted(.key = A);
    EXPECT(second.fence > first.fence);
    const struct once_reply *late =
        do_finish(first, .state = ONCE_STATE_SUCCEEDED, .status = 200, .body = ONCE_LIT("x"));
    EXPECT(late->arm == ONCE_ARM_FENCED);
}

/* A stream of claims, each finished from its own callback. */
struct stream {
    int executed, finished, other;
};

static void on_finished(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    (void)err;
    struct stream *s = arg;
    s->finished += result == ONCE_OK && reply->arm == ONCE_ARM_DONE;
    s->other += result != ONCE_OK || reply->arm != ONCE_ARM_DONE;
    once_reply_release(reply);
}

static void on_claimed(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    (void)err;
    struct stream *s = arg;
    struct once_request request = { .verb = ONCE_VERB_FINISH,
                                    .grant = reply->record.grant,
                                    .outcome = { .state = ONCE_STATE_SUCCEEDED, .status = 200 } };
    if (result == ONCE_OK && reply->arm == ONCE_ARM_EXECUTE &&
        once_submit(suite.once, &request, on_finished, s, NULL) == ONCE_OK)
        s->executed++;
    else
        s->other++;
    once_reply_release(reply);
}

/* Claims and finishes the keys 0 to count - 1, at most `batch` under way. */
static struct stream run_stream(int count, int batch)
{
    struct stream s = { 0 };
    for (int at = 0; at < count; at += batch) {
        int end = at + batch < count ? at + batch : count;
        for (int i = at; i < end; i++) {
            char key[16];
            snprintf(key, sizeof key, "s%d", i);
            struct once_request request = { .verb = ONCE_VERB_CLAIM,
                                            .claim = { .key = span_str(key), .retention_ms = 1000 } };
            CHECK(once_submit(suite.once, &request, on_claimed, &s, NULL) == ONCE_OK);
        }
        while (s.finished + s.other < end)
            CHECK(dispatch_some() > 0);
    }
    return s;
}

/* More keys than an index may keep in one piece: found, reaped, given again. */
static void K8__many_keys_are_found_reaped_and_given_again(void)
{
    int count = sut.loses_answers ? 30 : sut.expires_later ? 3000 : 20000;
    reopen_with((struct once_options){ .poll = true });
    uint64_t highest = 0;
    for (int round = 0; round < 2; round++) {
        struct stream s = run_stream(count, sut.loses_answers ? 10 : 1000);
        EXPECT(s.executed == count && s.finished == count && s.other == 0);
        uint64_t lowest = UINT64_MAX, before = highest;
        for (int i = 0; i < 20; i++) {
            char key[16];
            snprintf(key, sizeof key, "s%d", i * (count / 20));
            const struct once_reply *replay = do_claim(.key = span_str(key));
            EXPECT(replay->arm == ONCE_ARM_REPLAY);
            lowest = replay->record.grant.fence < lowest ? replay->record.grant.fence : lowest;
            highest = replay->record.grant.fence > highest ? replay->record.grant.fence : highest;
        }
        EXPECT(lowest > before);
        clock_advance(1000);
        EXPECT(do_lookup(ONCE_LIT("s0"))->arm == ONCE_ARM_ABSENT);
        EXPECT(do_expire(round == 0 ? 10000 : 777, (uint64_t)count));
        if (round == 0)
            reopen();
    }
    EXPECT(sut.expires_later || do_stats().attempts == 0);
}

/* ------------------------------------------------------------------ clocks */

static void FAULT_30__wall_clock_set_back_changes_nothing(void)
{
    if (sut.foreign_clock) {
        skip("its clock is the database's; the store's own cases show that");
        return;
    }
    granted(.key = ONCE_LIT("running"), .lease_ms = 1000);
    finish_new(ONCE_LIT("done"), 10000);
    once_time before = do_stats().now;
    clock_step_wall(-HOUR_MS);
    EXPECT(do_stats().now == before);
    clock_advance(999);
    EXPECT(do_lookup(ONCE_LIT("running"))->record.lease_live);
    reopen(); /* also for a process that only comes now */
    EXPECT(do_stats().now == before + 999);
    EXPECT(do_lookup(ONCE_LIT("running"))->record.lease_live);
    clock_advance(1);
    EXPECT(!do_lookup(ONCE_LIT("running"))->record.lease_live);
    struct once_grant later = granted(.key = ONCE_LIT("later"));
    EXPECT(do_lookup(ONCE_LIT("later"))->record.claimed_at == before + 1000);
    EXPECT(later.fence > do_lookup(ONCE_LIT("done"))->record.grant.fence);
    clock_advance(8999);
    EXPECT(do_lookup(ONCE_LIT("done"))->arm == ONCE_ARM_FOUND);
    clock_advance(1);
    EXPECT(do_lookup(ONCE_LIT("done"))->arm == ONCE_ARM_ABSENT);
}

static void FAULT_30__wall_clock_set_forward_changes_nothing(void)
{
    if (sut.foreign_clock) {
        skip("its clock is the database's; the store's own cases show that");
        return;
    }
    granted(.key = ONCE_LIT("running"), .lease_ms = 1000);
    finish_new(ONCE_LIT("done"), 10000);
    once_time before = do_stats().now;
    clock_step_wall(YEAR_MS);
    EXPECT(do_stats().now == before);
    EXPECT(do_lookup(ONCE_LIT("running"))->record.lease_live);
    EXPECT(do_lookup(ONCE_LIT("done"))->arm == ONCE_ARM_FOUND);
    EXPECT(do_expire(0, 0));
    reopen();
    EXPECT(do_stats().now == before);
    EXPECT(do_claim(.key = ONCE_LIT("running"), .takeover = ONCE_TAKEOVER_RERUN)->arm == ONCE_ARM_IN_PROGRESS);
    clock_advance(1000);
    EXPECT(do_claim(.key = ONCE_LIT("running"), .takeover = ONCE_TAKEOVER_RERUN)->arm == ONCE_ARM_EXECUTE);
}

static void FAULT_30__wall_clock_that_jitters_keeps_the_order(void)
{
    if (sut.foreign_clock) {
        skip("its clock is the database's; the store's own cases show that");
        return;
    }
    once_time last = 0;
    for (int i = 0; i < 20; i++) {
        clock_step_wall((i % 3 - 1) * HOUR_MS);
        clock_advance(10);
        const struct once_reply *claimed = do_claim(.key = numbered("k", i));
        EXPECT(claimed->record.claimed_at > last);
        last = claimed->record.claimed_at;
        succeed(claimed->record.grant, ONCE_LIT("x"));
    }
    const struct once_page *page = do_list((struct once_filter){ 0 });
    CHECK(page->count == 20);
    for (size_t i = 1; i < page->count; i++)
        EXPECT(page->records[i].created_at < page->records[i - 1].created_at);
}

static void FAULT_30__lease_does_not_outlive_its_boot(void)
{
    if (sut.foreign_clock) {
        skip("its clock is the database's; the store's own cases show that");
        return;
    }
    struct once_grant grant = granted(.key = A, .lease_ms = 24 * HOUR_MS);
    struct once_grant extended = granted(.key = ONCE_LIT("extended"), .lease_ms = 1000);
    do_extend(extended, 24 * HOUR_MS);
    clock_reboot(1000);
    reopen();
    EXPECT(!do_lookup(A)->record.lease_live);
    EXPECT(!do_lookup(ONCE_LIT("extended"))->record.lease_live);
    const struct once_reply *next = do_claim(.key = A, .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(next->arm == ONCE_ARM_EXECUTE && next->record.lease_live);
    EXPECT(next->record.grant.fence > grant.fence);
    EXPECT(do_claim(.key = A, .takeover = ONCE_TAKEOVER_RERUN)->arm == ONCE_ARM_IN_PROGRESS);
    EXPECT(do_claim(.key = ONCE_LIT("extended"))->arm == ONCE_ARM_UNKNOWN);
}

static void FAULT_30__retention_goes_on_over_a_boot(void)
{
    finish_new(A, 10000);
    clock_advance(1000);
    clock_reboot(4000);
    reopen();
    EXPECT(do_lookup(A)->arm == ONCE_ARM_FOUND);
    clock_advance(4999);
    EXPECT(do_lookup(A)->arm == ONCE_ARM_FOUND);
    clock_advance(1);
    EXPECT(do_lookup(A)->arm == ONCE_ARM_ABSENT);
}

/* A machine that comes up with its clock in the past: time goes on from the last that the
 * store knows of, whichever record that was. */
static void FAULT_30__time_never_goes_back_over_a_boot(void)
{
    if (sut.foreign_clock) {
        skip("its clock is the database's; the store's own cases show that");
        return;
    }
    struct once_grant first = granted(.key = ONCE_LIT("first"), .lease_ms = 5 * HOUR_MS);
    finish_new(ONCE_LIT("second"), 0);
    clock_advance(HOUR_MS);
    succeed(first, ONCE_LIT("x")); /* the older fence finished last */
    once_time known = do_lookup(ONCE_LIT("first"))->record.finished_at;
    clock_reboot(-2 * HOUR_MS);
    reopen();
    granted(.key = ONCE_LIT("after"));
    EXPECT(do_stats().now >= known);
    EXPECT(do_lookup(ONCE_LIT("after"))->record.claimed_at >= known);
}

static void FAULT_30__boot_with_a_clock_far_behind_still_serves(void)
{
    if (sut.foreign_clock) {
        skip("its clock is the database's; the store's own cases show that");
        return;
    }
    finish_new(A, HOUR_MS);
    once_time known = do_stats().now;
    clock_reboot(-YEAR_MS);
    reopen();
    EXPECT(do_claim(.key = A)->arm == ONCE_ARM_REPLAY);
    finish_new(ONCE_LIT("b"), 0);
    EXPECT(do_lookup(ONCE_LIT("b"))->record.claimed_at >= known);
}

static void FAULT_30__looking_after_a_boot_writes_nothing_and_shows_leases_over(void)
{
    if (sut.foreign_clock) {
        skip("its clock is the database's; the store's own cases show that");
        return;
    }
    granted(.key = A, .lease_ms = 24 * HOUR_MS);
    clock_reboot(0);
    reopen();
    EXPECT(!do_lookup(A)->record.lease_live);
    EXPECT(do_list((struct once_filter){ 0 })->count == 1);
    EXPECT(!do_list((struct once_filter){ 0 })->records[0].lease_live);
}

const struct suite_case time_cases[] = {
    CASE(K8__retention_counts_from_the_finish_to_the_millisecond),
    CASE(K8__expiry_is_a_fact_without_the_reaper),
    CASE(K7__earlier_life_with_several_attempts_is_no_problem),
    CASE(K8__never_means_never),
    CASE(K8__default_retention_is_a_day),
    CASE(K8__retention_of_a_retried_record_counts_from_its_last_finish),
    CASE(K8__retryable_failure_expires_too),
    CASE(K8__reaper_removes_exactly_what_is_past_its_retention),
    CASE(K8__reaper_works_in_bounded_steps_and_tells_of_more),
    CASE(K8__reaper_takes_the_longest_due_first),
    CASE(K2__after_the_reaper_the_key_comes_back_with_a_larger_fence),
    CASE(K8__many_keys_are_found_reaped_and_given_again),
    CASE(FAULT_30__wall_clock_set_back_changes_nothing),
    CASE(FAULT_30__wall_clock_set_forward_changes_nothing),
    CASE(FAULT_30__wall_clock_that_jitters_keeps_the_order),
    CASE(FAULT_30__lease_does_not_outlive_its_boot),
    CASE(FAULT_30__retention_goes_on_over_a_boot),
    CASE(FAULT_30__time_never_goes_back_over_a_boot),
    CASE(FAULT_30__boot_with_a_clock_far_behind_still_serves),
    CASE(FAULT_30__looking_after_a_boot_writes_nothing_and_shows_leases_over),
    { NULL, NULL },
};
