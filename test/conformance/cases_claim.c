/*
 * cases_claim.c - the seven arms of a claim (docs/design.md section 4), their precedence, nonces, fences.
 */
#include "suite.h"

#include <pthread.h>

#define HOUR_MS (3600 * 1000LL)

static const once_span A = { (const uint8_t *)"a", 1 };

/* ------------------------------------------------------------------ records in every state */

enum made { ABSENT, EXPIRED, RELEASED, SUCCEEDED, FAILED, RETRYABLE, UNKNOWN, LIVE, OVER };

/* Leaves the record `key` in that state, with fingerprint 1. */
static void make(enum made state, once_span key)
{
    if (state == ABSENT)
        return;
    struct once_grant grant =
        granted(.key = key, .fingerprint = print_of(1), .lease_ms = 1000, .retention_ms = 2 * HOUR_MS);
    switch (state) {
    case EXPIRED:
        succeed(grant, ONCE_LIT("stored"));
        clock_advance(2 * HOUR_MS);
        break;
    case RELEASED:
        CHECK(do_release(grant)->arm == ONCE_ARM_DONE);
        break;
    case SUCCEEDED:
        succeed(grant, ONCE_LIT("stored"));
        break;
    case FAILED:
        do_finish(grant, .state = ONCE_STATE_FAILED, .status = 500, .body = ONCE_LIT("stored"));
        break;
    case RETRYABLE:
        do_finish(grant, .state = ONCE_STATE_FAILED, .retryable = true, .status = 503);
        break;
    case UNKNOWN:
        do_finish(grant, .state = ONCE_STATE_UNKNOWN);
        break;
    case OVER:
        clock_advance(1000);
        break;
    default:
        break;
    }
}

static const struct arm_row {
    const char *name;
    enum made state;
    uint8_t print;
    enum once_takeover takeover;
    enum once_arm arm;
    uint32_t attempt; /* that the reply shows; 0: no record */
} arm_rows[] = {
    { "absent", ABSENT, 1, 0, ONCE_ARM_EXECUTE, 1 },
    { "expired", EXPIRED, 1, 0, ONCE_ARM_EXECUTE, 1 },
    { "released", RELEASED, 1, 0, ONCE_ARM_EXECUTE, 1 },
    { "succeeded", SUCCEEDED, 1, 0, ONCE_ARM_REPLAY, 1 },
    { "succeeded, may rerun", SUCCEEDED, 1, ONCE_TAKEOVER_RERUN, ONCE_ARM_REPLAY, 1 },
    { "failed for good", FAILED, 1, 0, ONCE_ARM_REPLAY, 1 },
    { "failed for good, may rerun", FAILED, 1, ONCE_TAKEOVER_RERUN, ONCE_ARM_REPLAY, 1 },
    { "retryable", RETRYABLE, 1, 0, ONCE_ARM_EXECUTE, 2 },
    { "unknown", UNKNOWN, 1, 0, ONCE_ARM_UNKNOWN, 1 },
    { "unknown, may rerun", UNKNOWN, 1, ONCE_TAKEOVER_RERUN, ONCE_ARM_UNKNOWN, 1 },
    { "unknown, may probe", UNKNOWN, 1, ONCE_TAKEOVER_PROBE, ONCE_ARM_UNKNOWN, 1 },
    { "lease live", LIVE, 1, 0, ONCE_ARM_IN_PROGRESS, 1 },
    { "lease live, may rerun", LIVE, 1, ONCE_TAKEOVER_RERUN, ONCE_ARM_IN_PROGRESS, 1 },
    { "lease over", OVER, 1, 0, ONCE_ARM_UNKNOWN, 1 },
    { "lease over, escalate", OVER, 1, ONCE_TAKEOVER_ESCALATE, ONCE_ARM_UNKNOWN, 1 },
    { "lease over, rerun", OVER, 1, ONCE_TAKEOVER_RERUN, ONCE_ARM_EXECUTE, 2 },
    { "lease over, probe", OVER, 1, ONCE_TAKEOVER_PROBE, ONCE_ARM_PROBE, 2 },
    { "lease over, completer, which the holder did not say", OVER, 1, ONCE_TAKEOVER_COMPLETER, ONCE_ARM_UNKNOWN, 1 },
    { "lease live, completer", LIVE, 1, ONCE_TAKEOVER_COMPLETER, ONCE_ARM_IN_PROGRESS, 1 },
    /* K6: told before anything else, but not about what is not there any more. */
    { "other print, expired", EXPIRED, 2, 0, ONCE_ARM_EXECUTE, 1 },
    { "other print, released", RELEASED, 2, 0, ONCE_ARM_EXECUTE, 1 },
    { "other print, succeeded", SUCCEEDED, 2, 0, ONCE_ARM_MISMATCH, 0 },
    { "other print, failed", FAILED, 2, 0, ONCE_ARM_MISMATCH, 0 },
    { "other print, retryable", RETRYABLE, 2, 0, ONCE_ARM_MISMATCH, 0 },
    { "other print, unknown", UNKNOWN, 2, 0, ONCE_ARM_MISMATCH, 0 },
    { "other print, lease live", LIVE, 2, 0, ONCE_ARM_MISMATCH, 0 },
    { "other print, lease over", OVER, 2, 0, ONCE_ARM_MISMATCH, 0 },
    { "other print, rerun", OVER, 2, ONCE_TAKEOVER_RERUN, ONCE_ARM_MISMATCH, 0 },
    { "other print, probe", OVER, 2, ONCE_TAKEOVER_PROBE, ONCE_ARM_MISMATCH, 0 },
};

static void K6__claim_has_seven_arms_in_their_order(void)
{
    for (size_t i = 0; i < LENGTH(arm_rows); i++) {
        const struct arm_row *row = &arm_rows[i];
        once_span key = numbered("arm-", (int)i);
        make(row->state, key);
        const struct once_reply *reply =
            do_claim(.key = key, .fingerprint = print_of(row->print), .takeover = row->takeover);
        EXPECT_ROW(row->name, reply->arm == row->arm);
        EXPECT_ROW(row->name, reply->record.attempt == row->attempt);
        EXPECT_ROW(row->name, (reply->record.grant.fence != 0) == (row->attempt != 0));
        EXPECT_ROW(row->name, reply->arm != ONCE_ARM_REPLAY || span_equal(reply->record.body, ONCE_LIT("stored")));
        EXPECT_ROW(row->name, (reply->retry_after_ms > 0) == (reply->arm == ONCE_ARM_IN_PROGRESS));
    }
}

/* What the reply says is what is stored: a look-up, and one after reopening, show the same. */
static void K4__what_a_claim_answers_is_what_is_stored(void)
{
    for (size_t i = 0; i < LENGTH(arm_rows); i++) {
        const struct arm_row *row = &arm_rows[i];
        once_span key = numbered("arm-", (int)i);
        make(row->state, key);
        const struct once_reply *reply =
            do_claim(.key = key, .fingerprint = print_of(row->print), .takeover = row->takeover);
        const struct once_record *stored = &do_lookup(key)->record;
        if (row->attempt == 0)
            continue;
        EXPECT_ROW(row->name, same_grant(stored->grant, reply->record.grant));
        EXPECT_ROW(row->name, stored->state == reply->record.state);
        EXPECT_ROW(row->name, stored->lease_until == reply->record.lease_until);
        EXPECT_ROW(row->name, stored->finished_at == reply->record.finished_at);
        EXPECT_ROW(row->name, stored->expires_at == reply->record.expires_at);
        EXPECT_ROW(row->name, stored->created_at == reply->record.created_at);
        EXPECT_ROW(row->name, stored->claimed_at == reply->record.claimed_at);
        EXPECT_ROW(row->name, stored->takeover == reply->record.takeover);
        EXPECT_ROW(row->name, span_equal(stored->key, key));
    }
}

static void K6__mismatch_never_touches_the_row(void)
{
    for (enum made state = SUCCEEDED; state <= OVER; state++) {
        once_span key = numbered("state-", (int)state);
        make(state, key);
        const struct once_record *before = &do_lookup(key)->record;
        for (enum once_takeover t = ONCE_TAKEOVER_DEFAULT; t <= ONCE_TAKEOVER_COMPLETER; t++)
            EXPECT(do_claim(.key = key, .fingerprint = print_of(9), .takeover = t)->arm == ONCE_ARM_MISMATCH);
        EXPECT(same_record(before, &do_lookup(key)->record));
    }
}

static void K6__one_bit_of_the_fingerprint_is_another_fingerprint(void)
{
    struct once_fingerprint print = print_of(0);
    succeed(granted(.key = A, .fingerprint = print), ONCE_LIT("x"));
    for (size_t i = 0; i < sizeof print.bytes; i++) {
        struct once_fingerprint other = print;
        other.bytes[i] ^= (uint8_t)(1 << i % 8);
        EXPECT(do_claim(.key = A, .fingerprint = other)->arm == ONCE_ARM_MISMATCH);
    }
    EXPECT(do_claim(.key = A, .fingerprint = print)->arm == ONCE_ARM_REPLAY);
}

static void K6__mismatch_is_told_even_to_the_same_nonce(void)
{
    granted(.key = A, .fingerprint = print_of(1), .nonce = { 7 });
    EXPECT(do_claim(.key = A, .fingerprint = print_of(2), .nonce = { 7 })->arm == ONCE_ARM_MISMATCH);
}

/* ------------------------------------------------------------------ durable first */

static void K4__execute_is_durable_before_it_is_answered(void)
{
    struct once_grant grant = granted(.key = A, .lease_ms = HOUR_MS);
    reopen();
    const struct once_reply *found = do_lookup(A);
    CHECK(found->arm == ONCE_ARM_FOUND);
    EXPECT(found->record.state == ONCE_STATE_RUNNING && found->record.lease_live);
    EXPECT(same_grant(found->record.grant, grant));
    EXPECT(do_claim(.key = A)->arm == ONCE_ARM_IN_PROGRESS);
    succeed(grant, ONCE_LIT("by the old handle's grant"));
}

static void K4__every_answer_survives_closing(void)
{
    struct once_grant advanced = granted(.key = ONCE_LIT("advanced"));
    do_advance(advanced, ONCE_LIT("p1"), ONCE_LIT("cp"));
    struct once_grant extended = granted(.key = ONCE_LIT("extended"));
    do_extend(extended, 5 * HOUR_MS);
    succeed(granted(.key = ONCE_LIT("finished")), ONCE_LIT("body"));
    do_release(granted(.key = ONCE_LIT("released")));
    granted(.key = ONCE_LIT("escalated"), .lease_ms = 1);
    clock_advance(1);
    do_claim(.key = ONCE_LIT("escalated"));
    static const char *const keys[] = { "advanced", "extended", "finished", "released", "escalated" };
    const struct once_reply *before[LENGTH(keys)];
    for (size_t i = 0; i < LENGTH(keys); i++)
        before[i] = do_lookup(span_str(keys[i]));
    reopen();
    for (size_t i = 0; i < LENGTH(keys); i++) {
        const struct once_reply *after = do_lookup(span_str(keys[i]));
        EXPECT_ROW(keys[i], after->arm == before[i]->arm);
        EXPECT_ROW(keys[i], same_record(&after->record, &before[i]->record));
    }
}

/* ------------------------------------------------------------------ nonces */

static void K10__claim_repeated_with_its_nonce_gets_the_same_grant(void)
{
    const struct once_reply *first = do_claim(.key = A, .nonce = { 1, 2, 3 });
    const struct once_reply *again = do_claim(.key = A, .nonce = { 1, 2, 3 });
    EXPECT(again->arm == ONCE_ARM_EXECUTE);
    EXPECT(same_grant(first->record.grant, again->record.grant));
    EXPECT(again->record.attempt == 1);
    EXPECT(do_claim(.key = A, .nonce = { 1, 2, 4 })->arm == ONCE_ARM_IN_PROGRESS);
    EXPECT(do_claim(.key = A)->arm == ONCE_ARM_IN_PROGRESS);
    reopen();
    EXPECT(same_grant(first->record.grant, granted(.key = A, .nonce = { 1, 2, 3 })));
}

static void K10__nonce_is_recognised_after_the_lease_is_over(void)
{
    struct once_grant first = granted(.key = A, .nonce = { 1 }, .lease_ms = 1000);
    clock_advance(5000);
    const struct once_reply *again = do_claim(.key = A, .nonce = { 1 }, .lease_ms = 1000);
    EXPECT(again->arm == ONCE_ARM_EXECUTE);
    EXPECT(same_grant(first, again->record.grant));
    EXPECT(again->record.lease_live);
    EXPECT(do_claim(.key = A, .nonce = { 2 }, .takeover = ONCE_TAKEOVER_RERUN)->arm == ONCE_ARM_IN_PROGRESS);
}

static void K10__nonce_is_recognised_for_a_probe(void)
{
    granted(.key = A, .lease_ms = 1000);
    clock_advance(1000);
    const struct once_reply *probe =
        do_claim(.key = A, .nonce = { 5 }, .lease_ms = 1000, .takeover = ONCE_TAKEOVER_PROBE);
    CHECK(probe->arm == ONCE_ARM_PROBE);
    const struct once_reply *again =
        do_claim(.key = A, .nonce = { 5 }, .lease_ms = 1000, .takeover = ONCE_TAKEOVER_PROBE);
    EXPECT(again->arm == ONCE_ARM_PROBE);
    EXPECT(same_grant(probe->record.grant, again->record.grant));
    clock_advance(9000);
    again = do_claim(.key = A, .nonce = { 5 }, .takeover = ONCE_TAKEOVER_PROBE);
    EXPECT(again->arm == ONCE_ARM_PROBE);
    EXPECT(same_grant(probe->record.grant, again->record.grant));
}

static void K3__nonce_of_a_superseded_attempt_is_a_stranger(void)
{
    granted(.key = A, .nonce = { 1 }, .lease_ms = 1000);
    clock_advance(1000);
    granted(.key = A, .nonce = { 2 }, .lease_ms = 1000, .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(do_claim(.key = A, .nonce = { 1 })->arm == ONCE_ARM_IN_PROGRESS);
}

static void K5__nonce_of_a_finished_attempt_gets_the_replay(void)
{
    struct once_grant grant = granted(.key = A, .nonce = { 1 });
    succeed(grant, ONCE_LIT("done"));
    EXPECT(do_claim(.key = A, .nonce = { 1 })->arm == ONCE_ARM_REPLAY);
}

static void K1__claims_without_a_nonce_are_different_calls(void)
{
    granted(.key = A);
    for (int i = 0; i < 5; i++)
        EXPECT(do_claim(.key = A)->arm == ONCE_ARM_IN_PROGRESS);
}

/* ------------------------------------------------------------------ leases */

static void K1__lease_ends_exactly_when_it_says(void)
{
    const struct once_reply *claimed = do_claim(.key = A, .lease_ms = 1000);
    EXPECT(claimed->record.lease_until == claimed->record.claimed_at + 1000);
    clock_advance(999);
    const struct once_reply *early = do_claim(.key = A, .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(early->arm == ONCE_ARM_IN_PROGRESS);
    EXPECT(early->retry_after_ms == 1);
    clock_advance(1);
    EXPECT(!do_lookup(A)->record.lease_live);
    EXPECT(do_claim(.key = A, .takeover = ONCE_TAKEOVER_RERUN)->arm == ONCE_ARM_EXECUTE);
}

static void K1__default_lease_is_a_minute(void)
{
    const struct once_reply *claimed = do_claim(.key = A);
    EXPECT(claimed->record.lease_until - claimed->record.claimed_at == ONCE_LEASE_MS_DEFAULT);
    EXPECT(do_claim(.key = A)->retry_after_ms == ONCE_LEASE_MS_DEFAULT);
}

static void K1__extended_lease_is_not_taken_over(void)
{
    struct once_grant grant = granted(.key = A, .lease_ms = 1000);
    for (int i = 0; i < 5; i++) {
        clock_advance(900);
        const struct once_reply *done = do_extend(grant, 0);
        EXPECT(done->arm == ONCE_ARM_DONE);
        EXPECT(done->record.lease_until == do_lookup(A)->record.lease_until);
        EXPECT(do_claim(.key = A, .takeover = ONCE_TAKEOVER_RERUN)->retry_after_ms == 1000);
    }
    EXPECT(do_extend(grant, HOUR_MS)->arm == ONCE_ARM_DONE);
    clock_advance(HOUR_MS - 1);
    EXPECT(do_claim(.key = A, .takeover = ONCE_TAKEOVER_RERUN)->arm == ONCE_ARM_IN_PROGRESS);
    clock_advance(1);
    EXPECT(do_claim(.key = A, .takeover = ONCE_TAKEOVER_RERUN)->arm == ONCE_ARM_EXECUTE);
}

static void K1__lease_may_be_shortened_by_its_holder(void)
{
    struct once_grant grant = granted(.key = A, .lease_ms = HOUR_MS);
    EXPECT(do_extend(grant, 10)->arm == ONCE_ARM_DONE);
    clock_advance(10);
    EXPECT(!do_lookup(A)->record.lease_live);
}

/* Late, but nobody took over: still the newest grant (K3 decides, not the clock). */
static void K3__holder_whose_lease_is_over_is_still_the_newest(void)
{
    struct once_grant grant = granted(.key = A, .lease_ms = 1000);
    clock_advance(HOUR_MS);
    EXPECT(do_extend(grant, 0)->arm == ONCE_ARM_DONE);
    EXPECT(do_lookup(A)->record.lease_live);
    clock_advance(HOUR_MS);
    EXPECT(do_advance(grant, ONCE_LIT("late"), ONCE_LIT(""))->arm == ONCE_ARM_DONE);
    clock_advance(HOUR_MS);
    succeed(grant, ONCE_LIT("late"));
}

static void K7__running_record_never_expires_whatever_time_passes(void)
{
    granted(.key = A, .lease_ms = 1, .retention_ms = 1, .fingerprint = print_of(1));
    clock_advance(ONCE_RETENTION_MS_MAX);
    EXPECT(do_expire(0, 0));
    const struct once_reply *found = do_lookup(A);
    EXPECT(found->arm == ONCE_ARM_FOUND && found->record.state == ONCE_STATE_RUNNING);
    EXPECT(found->record.expires_at == 0 && found->record.finished_at == 0);
    EXPECT(do_claim(.key = A, .fingerprint = print_of(2))->arm == ONCE_ARM_MISMATCH);
    EXPECT(do_claim(.key = A, .fingerprint = print_of(1))->arm == ONCE_ARM_UNKNOWN);
}

/* ------------------------------------------------------------------ fences */

static void K2__fences_grow_over_everything_that_can_happen(void)
{
    uint64_t last = 0;
#define GROWS(grant_)                                                                                                  \
    do {                                                                                                               \
        struct once_grant now = (grant_);                                                                              \
        EXPECT(now.fence > last);                                                                                      \
        last = now.fence;                                                                                              \
    } while (0)
    GROWS(granted(.key = A, .lease_ms = 1));
    clock_advance(1);
    GROWS(granted(.key = A, .lease_ms = 1, .takeover = ONCE_TAKEOVER_RERUN));
    clock_advance(1);
    GROWS(granted(.key = A, .lease_ms = 1, .takeover = ONCE_TAKEOVER_PROBE));
    reopen();
    clock_advance(1);
    GROWS(granted(.key = A, .lease_ms = 1, .retention_ms = 1, .takeover = ONCE_TAKEOVER_RERUN));
    CHECK(do_finish(do_lookup(A)->record.grant, .state = ONCE_STATE_FAILED, .retryable = true)->arm == ONCE_ARM_DONE);
    GROWS(granted(.key = A, .retention_ms = 1));
    succeed(do_lookup(A)->record.grant, ONCE_LIT("x"));
    clock_advance(1); /* expired, not removed */
    GROWS(granted(.key = A, .retention_ms = 1));
    succeed(do_lookup(A)->record.grant, ONCE_LIT("x"));
    clock_advance(1);
    EXPECT(do_expire(0, 2)); /* removed */
    GROWS(granted(.key = A, .retention_ms = 1));
    succeed(do_lookup(A)->record.grant, ONCE_LIT("x"));
    clock_advance(1);
    do_expire_all(0); /* nothing at all is left, and reopened */
    reopen();
    GROWS(granted(.key = A));
    do_release(do_lookup(A)->record.grant);
    GROWS(granted(.key = A, .lease_ms = 1));
    clock_advance(1);
    GROWS(do_resolve(.key = A, .verdict = ONCE_VERDICT_NOT_DONE, .reason = ONCE_LIT("r"))->record.grant);
    GROWS(granted(.key = A, .lease_ms = 1));
    clock_advance(1);
    CHECK(do_resolve(.key = A, .verdict = ONCE_VERDICT_RELEASE, .reason = ONCE_LIT("r"))->arm == ONCE_ARM_DONE);
    GROWS(granted(.key = A));
    do_release(do_lookup(A)->record.grant);
    do_expire_all(0);
    reopen();
    GROWS(granted(.key = A));
#undef GROWS
}

static void K2__fences_of_different_keys_differ(void)
{
    enum { COUNT = 50 };
    uint64_t fences[COUNT];
    for (int i = 0; i < COUNT; i++) {
        fences[i] = granted(.key = numbered("k", i)).fence;
        for (int j = 0; j < i; j++)
            EXPECT(fences[i] != fences[j]);
    }
}

/* ------------------------------------------------------------------ concurrency */

enum { THREADS = 16 };

struct racer {
    pthread_t thread;
    pthread_barrier_t *start;
    int keys, executed, replayed, told_to_wait, other;
    char prefix[8];
};

/* Claims every key once; where told to execute, finishes with its own number. */
static void *race(void *arg)
{
    struct racer *r = arg;
    pthread_barrier_wait(r->start);
    for (int i = 0; i < r->keys; i++) {
        char key[32];
        snprintf(key, sizeof key, "%s%d", r->prefix, i);
        struct once_claim claim = { .key = span_str(key) };
        struct once_reply reply, done;
        if (once_claim(suite.once, &claim, &reply, NULL) != ONCE_OK) {
            r->other++;
        } else if (reply.arm == ONCE_ARM_EXECUTE) {
            r->executed++;
            struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED, .body = span_str(key) };
            once_result finished = once_finish(suite.once, reply.record.grant, &outcome, &done, NULL);
            r->other += finished != ONCE_OK || done.arm != ONCE_ARM_DONE;
            once_reply_release(&done);
        } else if (reply.arm == ONCE_ARM_REPLAY) {
            r->replayed++;
            r->other += !span_equal(reply.record.body, span_str(key));
        } else {
            r->told_to_wait += reply.arm == ONCE_ARM_IN_PROGRESS;
            r->other += reply.arm != ONCE_ARM_IN_PROGRESS;
        }
        once_reply_release(&reply);
    }
    return NULL;
}

static void race_all(int keys)
{
    struct racer racers[THREADS] = { 0 };
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, THREADS);
    int executed = 0, other = 0;
    for (int i = 0; i < THREADS; i++) {
        racers[i] = (struct racer){ .start = &start, .keys = keys, .prefix = "race" };
        CHECK(pthread_create(&racers[i].thread, NULL, race, &racers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(racers[i].thread, NULL);
        executed += racers[i].executed;
        other += racers[i].other;
    }
    pthread_barrier_destroy(&start);
    EXPECT(executed == keys);
    EXPECT(other == 0);
    EXPECT(do_stats().executions == (uint64_t)keys);
}

static void K1__sixteen_threads_on_one_key_execute_once(void)
{
    race_all(1);
}

static void K1__sixteen_threads_on_many_keys_execute_each_once(void)
{
    race_all(sut.loses_answers ? 6 : 200);
}

/* ------------------------------------------------------------------ refusals */

#define OF(field_, value_)                                                                                             \
    {                                                                                                                  \
        .key = { (const uint8_t *)"a", 1 }, .field_ = (value_)                                                         \
    }

static const struct refused_row {
    const char *name;
    struct once_claim claim;
} refused_rows[] = {
    { "lease below zero", OF(lease_ms, -1) },
    { "lease above the limit", OF(lease_ms, ONCE_LEASE_MS_MAX + 1) },
    { "retention below never", OF(retention_ms, -2) },
    { "retention above the limit", OF(retention_ms, ONCE_RETENTION_MS_MAX + 1) },
    { "wait below zero", OF(wait_ms, -1) },
    { "wait above the limit", OF(wait_ms, ONCE_WAIT_MS_MAX + 1) },
    { "takeover below", OF(takeover, (enum once_takeover) - 1) },
    { "takeover above", OF(takeover, (enum once_takeover)(ONCE_TAKEOVER_COMPLETER + 1)) },
};

static void claim__values_out_of_range_are_refused(void)
{
    for (size_t i = 0; i < LENGTH(refused_rows); i++) {
        struct once_reply reply;
        struct once_error err = { .result = ONCE_OK };
        EXPECT_ROW(refused_rows[i].name, once_claim(suite.once, &refused_rows[i].claim, &reply, &err) == ONCE_INVALID);
        EXPECT_ROW(refused_rows[i].name, err.result == ONCE_INVALID && err.text[0] != '\0');
        EXPECT_ROW(refused_rows[i].name, reply.arm == ONCE_ARM_NONE);
        once_reply_release(&reply);
    }
    EXPECT(do_lookup(A)->arm == ONCE_ARM_ABSENT);
}

static void claim__values_at_their_limits_are_accepted(void)
{
    const struct once_reply *most =
        do_claim(.key = A, .lease_ms = ONCE_LEASE_MS_MAX, .retention_ms = ONCE_RETENTION_MS_MAX);
    EXPECT(most->record.retention_ms == ONCE_RETENTION_MS_MAX);
    EXPECT(most->record.lease_until - most->record.claimed_at == ONCE_LEASE_MS_MAX);
    const struct once_reply *least = do_claim(.key = ONCE_LIT("b"), .lease_ms = 1, .retention_ms = 1);
    EXPECT(least->record.retention_ms == 1);
    EXPECT(do_claim(.key = ONCE_LIT("c"))->record.retention_ms == ONCE_RETENTION_MS_DEFAULT);
}

static void extend__lease_out_of_range_is_refused(void)
{
    struct once_grant grant = granted(.key = A);
    const struct once_record *before = &do_lookup(A)->record;
    static const int64_t leases[] = { -1, ONCE_LEASE_MS_MAX + 1, INT64_MIN, INT64_MAX };
    for (size_t i = 0; i < LENGTH(leases); i++) {
        struct once_reply reply;
        EXPECT(once_extend(suite.once, grant, leases[i], &reply, NULL) == ONCE_INVALID);
        once_reply_release(&reply);
    }
    EXPECT(same_record(before, &do_lookup(A)->record));
}

const struct suite_case claim_cases[] = {
    CASE(K6__claim_has_seven_arms_in_their_order),
    CASE(K4__what_a_claim_answers_is_what_is_stored),
    CASE(K6__mismatch_never_touches_the_row),
    CASE(K6__one_bit_of_the_fingerprint_is_another_fingerprint),
    CASE(K6__mismatch_is_told_even_to_the_same_nonce),
    CASE(K4__execute_is_durable_before_it_is_answered),
    CASE(K4__every_answer_survives_closing),
    CASE(K10__claim_repeated_with_its_nonce_gets_the_same_grant),
    CASE(K10__nonce_is_recognised_after_the_lease_is_over),
    CASE(K10__nonce_is_recognised_for_a_probe),
    CASE(K3__nonce_of_a_superseded_attempt_is_a_stranger),
    CASE(K5__nonce_of_a_finished_attempt_gets_the_replay),
    CASE(K1__claims_without_a_nonce_are_different_calls),
    CASE(K1__lease_ends_exactly_when_it_says),
    CASE(K1__default_lease_is_a_minute),
    CASE(K1__extended_lease_is_not_taken_over),
    CASE(K1__lease_may_be_shortened_by_its_holder),
    CASE(K3__holder_whose_lease_is_over_is_still_the_newest),
    CASE(K7__running_record_never_expires_whatever_time_passes),
    CASE(K2__fences_grow_over_everything_that_can_happen),
    CASE(K2__fences_of_different_keys_differ),
    CASE(K1__sixteen_threads_on_one_key_execute_once),
    CASE(K1__sixteen_threads_on_many_keys_execute_each_once),
    CASE(claim__values_out_of_range_are_refused),
    CASE(claim__values_at_their_limits_are_accepted),
    CASE(extend__lease_out_of_range_is_refused),
    { NULL, NULL },
};
