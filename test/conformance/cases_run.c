/* cases_run.c - once_run(): the whole loop around a callback. */
#include "suite.h"

#include <pthread.h>
#include <stdatomic.h>

static const once_span A = { (const uint8_t *)"a", 1 };
enum { PATIENCE_S = 120 };

static bool patience_is_over(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec - start->tv_sec > PATIENCE_S;
}

/* ------------------------------------------------------------------ running */

/* What the work answers with, and what it saw. */
struct job {
    enum once_work end, probe_end;
    struct once_outcome outcome, probe_outcome;
    void (*meanwhile)(struct once_attempt *attempt); /* what happens while it works */
    atomic_int worked, probed;
    uint32_t attempt;
    uint64_t fence;
    char point[ONCE_POINT_LEN_MAX + 1];
    char child[ONCE_CHILD_KEY_LEN + 1];
};

static enum once_work work(struct once_attempt *attempt, void *arg, struct once_outcome *outcome)
{
    struct job *job = arg;
    const struct once_record *record = once_attempt_record(attempt);
    atomic_fetch_add(&job->worked, 1);
    job->attempt = record->attempt;
    job->fence = record->grant.fence;
    snprintf(job->point, sizeof job->point, "%.*s", (int)record->recovery_point.len,
             (const char *)record->recovery_point.ptr);
    once_attempt_child_key(attempt, ONCE_LIT("charge"), job->child);
    if (job->meanwhile != NULL) {
        suite.in_callback = true;
        job->meanwhile(attempt);
        suite.in_callback = false;
    }
    *outcome = job->outcome;
    return job->end;
}

static enum once_work probe(struct once_attempt *attempt, void *arg, struct once_outcome *outcome)
{
    (void)attempt;
    struct job *job = arg;
    atomic_fetch_add(&job->probed, 1);
    *outcome = job->probe_outcome;
    return job->probe_end;
}

struct ran {
    once_result result;
    enum once_arm arm;
    enum once_state state;
    int32_t status;
    bool executed;
    bool body_is_x;
    struct once_grant grant;
};

static struct ran run_claim(struct once_claim claim, struct job *job)
{
    struct once_reply reply;
    struct ran ran = { .executed = true };
    ran.result = once_run(suite.once, &claim, &(struct once_run_options){ .probe = probe }, work, job, &ran.executed,
                          &reply, &suite.err);
    ran.arm = reply.arm;
    ran.state = reply.record.state;
    ran.status = reply.record.status;
    ran.grant = reply.record.grant;
    ran.body_is_x = span_equal(reply.record.body, ONCE_LIT("x"));
    once_reply_release(&reply);
    return ran;
}

#define run(job_, ...) run_claim((struct once_claim){ .key = A, __VA_ARGS__ }, (job_))

static const struct once_outcome GOOD = { .state = ONCE_STATE_SUCCEEDED,
                                          .status = 200,
                                          .body = { (const uint8_t *)"x", 1 } };

static void run__executes_once_and_replays_to_everybody_else(void)
{
    struct job job = { .end = ONCE_WORK_ENDED, .outcome = GOOD };
    struct ran first = run(&job, .fingerprint = print_of(1));
    EXPECT(first.result == ONCE_OK && first.arm == ONCE_ARM_REPLAY && first.executed);
    EXPECT(first.status == 200 && first.body_is_x);
    EXPECT(job.attempt == 1 && job.fence == first.grant.fence);
    for (int i = 0; i < 3; i++) {
        struct ran again = run(&job, .fingerprint = print_of(1));
        EXPECT(again.result == ONCE_OK && again.arm == ONCE_ARM_REPLAY && !again.executed);
        EXPECT(again.status == 200 && again.body_is_x && same_grant(again.grant, first.grant));
    }
    EXPECT(run(&job, .fingerprint = print_of(2)).arm == ONCE_ARM_MISMATCH);
    EXPECT(atomic_load(&job.worked) == 1);
    EXPECT(span_equal(do_lookup(A)->record.body, ONCE_LIT("x")));
}

static void run__failure_for_good_is_replayed(void)
{
    struct job job = { .end = ONCE_WORK_ENDED, .outcome = { .state = ONCE_STATE_FAILED, .status = 402 } };
    EXPECT(run(&job).arm == ONCE_ARM_REPLAY);
    struct ran again = run(&job);
    EXPECT(again.arm == ONCE_ARM_REPLAY && again.status == 402 && again.state == ONCE_STATE_FAILED);
    EXPECT(atomic_load(&job.worked) == 1);
}

static void run__retryable_failure_is_run_again(void)
{
    struct job job = { .end = ONCE_WORK_ENDED,
                       .outcome = { .state = ONCE_STATE_FAILED, .retryable = true, .status = 503 } };
    EXPECT(run(&job).status == 503);
    job.outcome = GOOD;
    struct ran second = run(&job);
    EXPECT(second.executed && second.status == 200 && job.attempt == 2);
}

static void run__not_started_releases_the_key(void)
{
    struct job job = { .end = ONCE_WORK_NOT_STARTED };
    struct ran ran = run(&job, .fingerprint = print_of(1));
    EXPECT(ran.result == ONCE_OK && ran.arm == ONCE_ARM_DONE && ran.executed);
    EXPECT(do_lookup(A)->arm == ONCE_ARM_ABSENT);
    job.end = ONCE_WORK_ENDED;
    job.outcome = GOOD;
    EXPECT(run(&job, .fingerprint = print_of(2)).executed);
}

static void K10__run_that_cannot_know_ends_unknown(void)
{
    struct job job = { .end = ONCE_WORK_UNKNOWN, .outcome = GOOD };
    struct ran ran = run(&job);
    EXPECT(ran.result == ONCE_OK && ran.arm == ONCE_ARM_UNKNOWN && ran.executed && ran.status == 0);
    EXPECT(do_lookup(A)->record.state == ONCE_STATE_UNKNOWN);
    struct ran again = run(&job, .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(again.arm == ONCE_ARM_UNKNOWN && !again.executed);
    EXPECT(atomic_load(&job.worked) == 1);
}

static void run__somebody_elses_run_is_in_progress(void)
{
    struct job job = { .end = ONCE_WORK_ENDED, .outcome = GOOD };
    granted(.key = A);
    struct ran ran = run(&job, .takeover = ONCE_TAKEOVER_RERUN);
    EXPECT(ran.arm == ONCE_ARM_IN_PROGRESS && !ran.executed);
    clock_advance(ONCE_LEASE_MS_DEFAULT);
    EXPECT(run(&job).arm == ONCE_ARM_UNKNOWN);
    EXPECT(atomic_load(&job.worked) == 0);
}

static void K10__run_whose_outcome_cannot_be_stored_says_unknown(void)
{
    struct job job = { .end = ONCE_WORK_ENDED, .outcome = { .state = ONCE_STATE_RUNNING } };
    struct ran ran = run(&job);
    EXPECT(ran.result == ONCE_UNKNOWN && suite.err.result == ONCE_UNKNOWN && ran.executed);
    EXPECT(do_lookup(A)->record.state == ONCE_STATE_RUNNING);
}

static void run__invalid_claims_are_refused_before_the_work(void)
{
    struct job job = { .end = ONCE_WORK_ENDED, .outcome = GOOD };
    EXPECT(run(&job, .lease_ms = -1).result == ONCE_INVALID);
    struct once_claim claim = { .key = A, .takeover = ONCE_TAKEOVER_PROBE };
    struct once_reply reply;
    EXPECT(once_run(suite.once, &claim, NULL, work, &job, NULL, &reply, NULL) == ONCE_INVALID);
    once_reply_release(&reply);
    EXPECT(atomic_load(&job.worked) == 0);
}

/* ------------------------------------------------------------------ overtaken */

static struct once_grant overtake(void)
{
    clock_advance(ONCE_LEASE_MS_DEFAULT);
    return granted(.key = A, .takeover = ONCE_TAKEOVER_RERUN);
}

static void overtake_and_finish(struct once_attempt *attempt)
{
    (void)attempt;
    do_finish(overtake(), .state = ONCE_STATE_FAILED, .status = 409, .body = ONCE_LIT("the other's"));
}

static void overtake_and_work_on(struct once_attempt *attempt)
{
    (void)attempt;
    overtake();
}

static void escalate(struct once_attempt *attempt)
{
    (void)attempt;
    clock_advance(ONCE_LEASE_MS_DEFAULT);
    CHECK(do_claim(.key = A)->arm == ONCE_ARM_UNKNOWN);
}

static void declare_void(struct once_attempt *attempt)
{
    (void)attempt;
    clock_advance(ONCE_LEASE_MS_DEFAULT);
    CHECK(do_resolve(.key = A, .verdict = ONCE_VERDICT_RELEASE, .reason = ONCE_LIT("r"))->arm == ONCE_ARM_DONE);
}

static void declare_void_and_use_for_another(struct once_attempt *attempt)
{
    declare_void(attempt);
    do_finish(granted(.key = A, .fingerprint = print_of(9)), .state = ONCE_STATE_SUCCEEDED, .status = 201,
              .body = ONCE_LIT("for the other request"));
}

static void declare_void_and_do_anew(struct once_attempt *attempt)
{
    declare_void(attempt);
    do_finish(granted(.key = A), .state = ONCE_STATE_SUCCEEDED, .status = 201, .body = ONCE_LIT("of another life"));
}

static const struct overtaken_row {
    const char *name;
    void (*meanwhile)(struct once_attempt *attempt);
    enum once_arm arm;
    enum once_state state;
    int32_t status;
} overtaken_rows[] = {
    { "another finished", overtake_and_finish, ONCE_ARM_REPLAY, ONCE_STATE_FAILED, 409 },
    { "another is at it", overtake_and_work_on, ONCE_ARM_IN_PROGRESS, ONCE_STATE_RUNNING, 0 },
    { "escalated", escalate, ONCE_ARM_UNKNOWN, ONCE_STATE_UNKNOWN, 0 },
    { "released by an operator", declare_void, ONCE_ARM_FENCED, ONCE_STATE_NONE, 0 },
    { "used for another request", declare_void_and_use_for_another, ONCE_ARM_FENCED, ONCE_STATE_NONE, 0 },
    { "done in another life", declare_void_and_do_anew, ONCE_ARM_FENCED, ONCE_STATE_NONE, 0 },
};

/* One case per row: each needs a key of its own, and the callbacks know only one. */
static void check_overtaken(const struct overtaken_row *row)
{
    struct job job = { .end = ONCE_WORK_ENDED, .outcome = GOOD, .meanwhile = row->meanwhile };
    struct ran ran = run(&job);
    EXPECT_ROW(row->name, ran.result == ONCE_OK);
    EXPECT_ROW(row->name, ran.executed);
    EXPECT_ROW(row->name, ran.arm == row->arm);
    EXPECT_ROW(row->name, ran.state == row->state);
    EXPECT_ROW(row->name, ran.status == row->status && !ran.body_is_x);
}

static void K3__overtaken_run_answers_with_the_stored_outcome(void)
{
    check_overtaken(&overtaken_rows[0]);
}

static void K3__overtaken_run_says_that_another_is_at_it(void)
{
    check_overtaken(&overtaken_rows[1]);
}

static void K3__escalated_run_answers_unknown(void)
{
    check_overtaken(&overtaken_rows[2]);
}

static void K3__run_whose_record_is_gone_says_fenced(void)
{
    check_overtaken(&overtaken_rows[3]);
}

static void K6__overtaken_run_is_not_answered_from_another_request(void)
{
    check_overtaken(&overtaken_rows[4]);
}

static void K5__overtaken_run_is_not_answered_from_another_life(void)
{
    check_overtaken(&overtaken_rows[5]);
}

static void advance_after_overtake(struct once_attempt *attempt)
{
    overtake();
    EXPECT(once_attempt_advance(attempt, ONCE_LIT("p"), ONCE_LIT("cp"), NULL) != ONCE_OK);
    EXPECT(!once_attempt_is_held(attempt));
}

static void K3__overtaken_run_cannot_advance_and_knows_it(void)
{
    struct job job = { .end = ONCE_WORK_ENDED, .outcome = GOOD, .meanwhile = advance_after_overtake };
    EXPECT(run(&job).arm == ONCE_ARM_IN_PROGRESS);
    EXPECT(do_lookup(A)->record.recovery_point.len == 0);
}

/* ------------------------------------------------------------------ probing */

static const struct probe_row {
    const char *name;
    enum once_work probe_end;
    int worked;
    enum once_arm arm;
    int32_t status;
} probe_rows[] = {
    { "it happened", ONCE_WORK_ENDED, 0, ONCE_ARM_REPLAY, 201 },
    { "it did not happen", ONCE_WORK_NOT_STARTED, 1, ONCE_ARM_REPLAY, 200 },
    { "nobody knows", ONCE_WORK_UNKNOWN, 0, ONCE_ARM_UNKNOWN, 0 },
};

static void run__probe_has_three_answers(void)
{
    for (size_t i = 0; i < LENGTH(probe_rows); i++) {
        const struct probe_row *row = &probe_rows[i];
        once_span key = numbered("k", (int)i);
        granted(.key = key, .lease_ms = 1000);
        clock_advance(1000);
        struct job job = { .end = ONCE_WORK_ENDED,
                           .outcome = GOOD,
                           .probe_end = row->probe_end,
                           .probe_outcome = { .state = ONCE_STATE_SUCCEEDED, .status = 201 } };
        struct ran ran = run_claim((struct once_claim){ .key = key, .takeover = ONCE_TAKEOVER_PROBE }, &job);
        EXPECT_ROW(row->name, ran.result == ONCE_OK && ran.arm == row->arm && ran.status == row->status);
        EXPECT_ROW(row->name, atomic_load(&job.probed) == 1 && atomic_load(&job.worked) == row->worked);
    }
}

static void run__first_attempt_is_not_probed(void)
{
    struct job job = { .end = ONCE_WORK_ENDED, .outcome = GOOD, .probe_end = ONCE_WORK_UNKNOWN };
    EXPECT(run(&job, .takeover = ONCE_TAKEOVER_PROBE).arm == ONCE_ARM_REPLAY);
    EXPECT(atomic_load(&job.probed) == 0 && atomic_load(&job.worked) == 1);
}

/* ------------------------------------------------------------------ inside */

static void reach_a_point(struct once_attempt *attempt)
{
    EXPECT(once_attempt_is_held(attempt));
    EXPECT(once_attempt_advance(attempt, ONCE_LIT("charged"), ONCE_LIT("ch_17"), NULL) == ONCE_OK);
}

static void K11__run_goes_on_from_its_recovery_point(void)
{
    struct job job = { .end = ONCE_WORK_ENDED,
                       .meanwhile = reach_a_point,
                       .outcome = { .state = ONCE_STATE_FAILED, .retryable = true, .status = 503 } };
    run(&job);
    EXPECT(job.point[0] == '\0');
    char child[ONCE_CHILD_KEY_LEN + 1];
    memcpy(child, job.child, sizeof child);
    job.meanwhile = NULL;
    job.outcome = GOOD;
    run(&job);
    EXPECT(strcmp(job.point, "charged") == 0);
    EXPECT(strcmp(job.child, child) == 0);
    char derived[ONCE_CHILD_KEY_LEN + 1];
    struct once_grant grant = do_lookup(A)->record.grant;
    once_child_key(suite.once, &grant, ONCE_LIT("charge"), derived);
    EXPECT(strcmp(child, derived) == 0);
}

/* Looks until the lease was moved twice: longer than it was given for. */
static void see_two_renewals(struct once_attempt *attempt)
{
    once_time last = once_attempt_record(attempt)->lease_until;
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int renewals = 0; renewals < 2;) {
        const struct once_record *now = &do_lookup(A)->record;
        EXPECT(now->state == ONCE_STATE_RUNNING && !patience_is_over(&start));
        if (now->state != ONCE_STATE_RUNNING || patience_is_over(&start))
            return;
        if (now->lease_until > last) {
            renewals++;
            last = now->lease_until;
        }
    }
}

static void K1__lease_is_renewed_while_the_work_goes_on(void)
{
    reopen_with_real_clock();
    struct job job = { .end = ONCE_WORK_ENDED, .outcome = GOOD, .meanwhile = see_two_renewals };
    struct ran ran = run(&job, .lease_ms = 90);
    EXPECT(ran.executed && ran.arm == ONCE_ARM_REPLAY && ran.body_is_x);
}

/* The lease is 90 ms of the test's clock, which stands still: it ends only by hand, between
 * two renewals. */
static void be_overtaken_and_notice(struct once_attempt *attempt)
{
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    enum once_arm arm = ONCE_ARM_NONE;
    while (arm != ONCE_ARM_EXECUTE) {
        clock_advance(90);
        arm = do_claim(.key = A, .lease_ms = 1000000, .takeover = ONCE_TAKEOVER_RERUN)->arm;
        if (patience_is_over(&start))
            break;
    }
    while (once_attempt_is_held(attempt) && !patience_is_over(&start))
        do_lookup(A);
    EXPECT(arm == ONCE_ARM_EXECUTE && !once_attempt_is_held(attempt));
}

static void K3__refused_renewal_tells_the_work_to_stop(void)
{
    struct job job = { .end = ONCE_WORK_ENDED, .outcome = GOOD, .meanwhile = be_overtaken_and_notice };
    EXPECT(run(&job, .lease_ms = 90).arm == ONCE_ARM_IN_PROGRESS);
}

/* ------------------------------------------------------------------ many at once */

struct runner {
    pthread_t thread;
    struct job *job;
    struct ran ran;
};

static void *run_with_others(void *arg)
{
    struct runner *r = arg;
    r->ran = run_claim((struct once_claim){ .key = A, .wait_ms = PATIENCE_S * 1000 }, r->job);
    return NULL;
}

static void K1__concurrent_runs_execute_once_and_all_have_the_answer(void)
{
    enum { RUNNERS = 8 };
    struct job job = { .end = ONCE_WORK_ENDED, .outcome = GOOD };
    struct runner runners[RUNNERS];
    int executed = 0;
    for (int i = 0; i < RUNNERS; i++) {
        runners[i] = (struct runner){ .job = &job };
        CHECK(pthread_create(&runners[i].thread, NULL, run_with_others, &runners[i]) == 0);
    }
    for (int i = 0; i < RUNNERS; i++) {
        pthread_join(runners[i].thread, NULL);
        executed += runners[i].ran.executed;
        EXPECT(runners[i].ran.arm == ONCE_ARM_REPLAY && runners[i].ran.body_is_x);
    }
    EXPECT(executed == 1 && atomic_load(&job.worked) == 1);
}

const struct suite_case run_cases[] = {
    CASE(run__executes_once_and_replays_to_everybody_else),
    CASE(run__failure_for_good_is_replayed),
    CASE(run__retryable_failure_is_run_again),
    CASE(run__not_started_releases_the_key),
    CASE(K10__run_that_cannot_know_ends_unknown),
    CASE(run__somebody_elses_run_is_in_progress),
    CASE(K10__run_whose_outcome_cannot_be_stored_says_unknown),
    CASE(run__invalid_claims_are_refused_before_the_work),
    CASE(K3__overtaken_run_answers_with_the_stored_outcome),
    CASE(K3__overtaken_run_says_that_another_is_at_it),
    CASE(K3__escalated_run_answers_unknown),
    CASE(K3__run_whose_record_is_gone_says_fenced),
    CASE(K6__overtaken_run_is_not_answered_from_another_request),
    CASE(K5__overtaken_run_is_not_answered_from_another_life),
    CASE(K3__overtaken_run_cannot_advance_and_knows_it),
    CASE(run__probe_has_three_answers),
    CASE(run__first_attempt_is_not_probed),
    CASE(K11__run_goes_on_from_its_recovery_point),
    CASE(K1__lease_is_renewed_while_the_work_goes_on),
    CASE(K3__refused_renewal_tells_the_work_to_stop),
    CASE(K1__concurrent_runs_execute_once_and_all_have_the_answer),
    { NULL, NULL },
};
