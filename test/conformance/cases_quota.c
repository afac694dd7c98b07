/*
 * cases_quota.c - quotas per tenant: what is new is refused, what is there is not, and the store can be counted.
 *
 * Quotas are a daemon's; the engine enforces them over any store, so they are set here as a daemon does it.
 */
#include "suite.h"

#include "engine/daemon_api.h"

#include <semaphore.h>

static void set_quota(const char *text)
{
    struct quota_rules rules;
    quota_rules_init(&rules);
    CHECK(quota_rules_set(&rules, span_str(text), NULL) == ONCE_OK);
    CHECK(once_set_quotas(suite.once, &rules, NULL) == ONCE_OK);
    quota_rules_release(&rules);
}

/* Counts everything, as a daemon's census does. */
static void walk(void)
{
    struct quota_scan tally = { .after = 0 };
    once_result r;
    do
        r = once_usage_step(suite.once, &tally, &suite.err);
    while (r == ONCE_OK && tally.more);
    CHECK(r == ONCE_OK);
}

#define refused(...) is_refused(&(struct once_claim){ __VA_ARGS__ })
static bool is_refused(const struct once_claim *claim)
{
    struct once_reply reply;
    once_result r = once_claim(suite.once, claim, &reply, &suite.err);
    bool clean = reply.memory == NULL && reply.record.grant.fence == 0;
    once_reply_release(&reply);
    return r == ONCE_QUOTA && clean && strstr(suite.err.text, "quota") != NULL;
}

static void quota__refuses_only_what_is_new(void)
{
    set_quota("records=2");
    uint8_t nonce[16] = "once and again!";
    struct once_claim first = { .key = ONCE_LIT("a"), .retention_ms = 5000 };
    memcpy(first.nonce, nonce, sizeof nonce);
    struct once_grant a = suite_claim(&first)->record.grant, b = granted(.key = ONCE_LIT("b"));
    succeed(b, ONCE_LIT("of b"));
    EXPECT(refused(.key = ONCE_LIT("c")));
    EXPECT(do_lookup(ONCE_LIT("c"))->arm == ONCE_ARM_ABSENT);
    EXPECT(same_grant(suite_claim(&first)->record.grant, a)); /* its answer was lost: the same grant */
    EXPECT(do_claim(.key = ONCE_LIT("a"))->arm == ONCE_ARM_IN_PROGRESS);
    EXPECT(do_claim(.key = ONCE_LIT("a"), .fingerprint = print_of(1))->arm == ONCE_ARM_MISMATCH);
    EXPECT(span_equal(do_claim(.key = ONCE_LIT("b"))->record.body, ONCE_LIT("of b")));
    EXPECT(do_extend(a, 0)->arm == ONCE_ARM_DONE);
    EXPECT(do_advance(a, ONCE_LIT("charged"), ONCE_LIT("17"))->arm == ONCE_ARM_DONE);
    EXPECT(do_finish(a, .state = ONCE_STATE_SUCCEEDED, .body = ONCE_LIT("of a"))->arm == ONCE_ARM_DONE);
    EXPECT(do_claim(.key = ONCE_LIT("a"))->arm == ONCE_ARM_REPLAY);
    EXPECT(refused(.key = ONCE_LIT("c")));
}

/* K9 */
static void quota__of_one_tenant_is_no_other_ones(void)
{
    set_quota("records=1,bytes=1000,in-flight=1");
    granted(.key = ONCE_LIT("a"), .tenant = ONCE_LIT("ann"));
    EXPECT(refused(.key = ONCE_LIT("b"), .tenant = ONCE_LIT("ann")));
    EXPECT(do_claim(.key = ONCE_LIT("a"), .tenant = ONCE_LIT("bob"))->arm == ONCE_ARM_EXECUTE);
    EXPECT(do_claim(.key = ONCE_LIT("a"))->arm == ONCE_ARM_EXECUTE);
}

static void quota__next_attempts_are_not_new(void)
{
    set_quota("records=2,in-flight=2");
    struct once_grant a = granted(.key = ONCE_LIT("a"), .lease_ms = 1000), b = granted(.key = ONCE_LIT("b"));
    do_finish(b, .state = ONCE_STATE_FAILED, .retryable = true);
    clock_advance(1001);
    EXPECT(do_claim(.key = ONCE_LIT("a"), .takeover = ONCE_TAKEOVER_RERUN)->record.attempt == 2);
    EXPECT(do_claim(.key = ONCE_LIT("b"))->record.attempt == 2);
    EXPECT(refused(.key = ONCE_LIT("c")));
    EXPECT(do_finish(a, .state = ONCE_STATE_SUCCEEDED)->arm == ONCE_ARM_FENCED);
}

static void quota__what_is_given_back_makes_room(void)
{
    set_quota("records=1");
    struct once_grant a = granted(.key = ONCE_LIT("a"));
    EXPECT(refused(.key = ONCE_LIT("b")));
    do_release(a);
    EXPECT(do_claim(.key = ONCE_LIT("b"))->arm == ONCE_ARM_EXECUTE);
    EXPECT(refused(.key = ONCE_LIT("a")));
}

static void quota__in_flight_is_until_the_end(void)
{
    set_quota("in-flight=2");
    struct once_grant a = granted(.key = ONCE_LIT("a")), b = granted(.key = ONCE_LIT("b"));
    EXPECT(refused(.key = ONCE_LIT("c")));
    succeed(a, ONCE_LIT("x"));
    EXPECT(do_claim(.key = ONCE_LIT("c"))->arm == ONCE_ARM_EXECUTE);
    EXPECT(refused(.key = ONCE_LIT("d")));
    do_release(b);
    EXPECT(do_claim(.key = ONCE_LIT("d"))->arm == ONCE_ARM_EXECUTE);
}

static void quota__bytes_count_when_they_are_stored(void)
{
    set_quota("bytes=5000");
    struct once_grant a = granted(.key = ONCE_LIT("a")), b = granted(.key = ONCE_LIT("b"));
    succeed(a, bytes_of(8000, true));
    EXPECT(refused(.key = ONCE_LIT("c")));
    succeed(b, bytes_of(8000, true)); /* what was begun is finished, whatever it brings */
    EXPECT(do_claim(.key = ONCE_LIT("b"))->record.body.len == 8000);
}

struct waiter {
    sem_t answered;
    once_result result;
    enum once_arm arm;
};

static void on_answer(void *arg, once_result result, struct once_reply *reply, const struct once_error *err)
{
    struct waiter *w = arg;
    (void)err;
    w->result = result;
    w->arm = reply->arm;
    once_reply_release(reply);
    sem_post(&w->answered);
}

static void quota__waiters_are_refused_and_lookers_are_not(void)
{
    set_quota("waiters=1");
    struct once_grant a = granted(.key = ONCE_LIT("a"));
    struct waiter w = { .result = ONCE_BUSY };
    sem_init(&w.answered, 0, 0);
    struct once_request wait = { .verb = ONCE_VERB_CLAIM,
                                 .claim = { .key = ONCE_LIT("a"), .lease_ms = 60000, .wait_ms = 60000 } };
    CHECK(once_submit(suite.once, &wait, on_answer, &w, NULL) == ONCE_OK);
    EXPECT(refused(.key = ONCE_LIT("a"), .wait_ms = 60000));
    EXPECT(do_claim(.key = ONCE_LIT("a"))->arm == ONCE_ARM_IN_PROGRESS);
    EXPECT(do_claim(.key = ONCE_LIT("a"), .tenant = ONCE_LIT("bob"))->arm == ONCE_ARM_EXECUTE);
    succeed(a, ONCE_LIT("x"));
    while (sem_wait(&w.answered) != 0)
        ;
    EXPECT(w.result == ONCE_OK && w.arm == ONCE_ARM_REPLAY);
    struct once_grant b = granted(.key = ONCE_LIT("b")); /* its place is free again */
    EXPECT(do_claim(.key = ONCE_LIT("b"), .wait_ms = 1)->arm == ONCE_ARM_IN_PROGRESS);
    succeed(b, ONCE_LIT("x"));
    sem_destroy(&w.answered);
}

/* ------------------------------------------------------------------ counting */

static bool cannot_be_counted(void)
{
    set_quota("records=1000");
    struct quota_scan tally = { .after = 0 };
    once_result r = once_usage_step(suite.once, &tally, &suite.err);
    if (r == ONCE_INVALID)
        skip("this store does not tell what each tenant has");
    else
        CHECK(r == ONCE_OK);
    return r != ONCE_OK;
}

/* Everything that a record can be. 7 of ann's count. */
static void make_all_kinds(once_span tenant)
{
    granted(.tenant = tenant, .key = ONCE_LIT("running"), .request = ONCE_LIT("a request"));
    succeed(granted(.tenant = tenant, .key = ONCE_LIT("succeeded")), ONCE_LIT("x"));
    succeed(granted(.tenant = tenant, .key = ONCE_LIT("for ever"), .retention_ms = ONCE_NEVER), ONCE_LIT("x"));
    struct once_grant failed = granted(.tenant = tenant, .key = ONCE_LIT("again"), .retention_ms = ONCE_NEVER);
    do_finish(failed, .state = ONCE_STATE_FAILED, .retryable = true);
    granted(.tenant = tenant, .key = ONCE_LIT("again"), .retention_ms = ONCE_NEVER); /* its second attempt runs */
    do_finish(granted(.tenant = tenant, .key = ONCE_LIT("failed")), .state = ONCE_STATE_FAILED, .retryable = true);
    granted(.tenant = tenant, .key = ONCE_LIT("taken over"), .lease_ms = 10);
    do_finish(granted(.tenant = tenant, .key = ONCE_LIT("unknown")), .state = ONCE_STATE_UNKNOWN);
    do_release(granted(.tenant = tenant, .key = ONCE_LIT("released")));
    succeed(granted(.tenant = tenant, .key = ONCE_LIT("expired"), .retention_ms = 10), ONCE_LIT("x"));
    clock_advance(11);
    struct once_grant over = granted(.tenant = tenant, .key = ONCE_LIT("taken over"), .takeover = ONCE_TAKEOVER_RERUN);
    succeed(over, ONCE_LIT("x"));
}

static void count__sees_what_was_there_before_the_start(void)
{
    if (cannot_be_counted())
        return;
    make_all_kinds(ONCE_LIT("ann"));
    succeed(granted(.tenant = ONCE_LIT("bob"), .key = ONCE_LIT("one")), ONCE_LIT("x"));
    reopen();
    set_quota("records=8");
    walk();
    EXPECT(do_claim(.tenant = ONCE_LIT("ann"), .key = ONCE_LIT("new"))->arm == ONCE_ARM_EXECUTE);
    EXPECT(refused(.tenant = ONCE_LIT("ann"), .key = ONCE_LIT("newer")));
    walk(); /* and again: the same */
    EXPECT(refused(.tenant = ONCE_LIT("ann"), .key = ONCE_LIT("newer")));
    for (int i = 0; i < 7; i++)
        granted(.tenant = ONCE_LIT("bob"), .key = numbered("k", i));
    EXPECT(refused(.tenant = ONCE_LIT("bob"), .key = ONCE_LIT("newer")));
}

static void count__sees_the_bytes(void)
{
    if (cannot_be_counted())
        return;
    succeed(granted(.key = ONCE_LIT("a")), bytes_of(8000, true));
    succeed(granted(.key = ONCE_LIT("b"), .retention_ms = 10), bytes_of(8000, true));
    reopen();
    set_quota("bytes=16000");
    walk();
    EXPECT(refused(.key = ONCE_LIT("c")));
    clock_advance(11);
    walk();
    EXPECT(do_claim(.key = ONCE_LIT("c"))->arm == ONCE_ARM_EXECUTE);
    set_quota("bytes=8000");
    walk();
    EXPECT(refused(.key = ONCE_LIT("d")));
}

/* K8: what is past its retention does not count, whether or not its space was given back; and its key is like new. */
static void count__what_is_past_its_retention_makes_room(void)
{
    if (cannot_be_counted())
        return;
    set_quota("records=1");
    succeed(granted(.key = ONCE_LIT("a"), .retention_ms = 1000), ONCE_LIT("x"));
    EXPECT(do_claim(.key = ONCE_LIT("a"))->arm == ONCE_ARM_REPLAY);
    clock_advance(1001);
    EXPECT(refused(.key = ONCE_LIT("a"))); /* nobody has counted since */
    walk();
    EXPECT(do_claim(.key = ONCE_LIT("a"))->record.attempt == 1);
    EXPECT(refused(.key = ONCE_LIT("b")));
    do_expire_all(0);
    walk();
    EXPECT(refused(.key = ONCE_LIT("b")));
}

/* K9: without its names it is nobody's; it must not become the single tenant's, which has none. */
static void count__what_is_forgotten_is_no_other_tenants(void)
{
    if (cannot_be_counted())
        return;
    for (int i = 0; i < 2; i++) {
        succeed(granted(.tenant = ONCE_LIT("ann"), .key = numbered("k", i)), bytes_of(100, true));
        CHECK(do_forget(.tenant = ONCE_LIT("ann"), .key = numbered("k", i), .actor = ONCE_LIT("me"),
                        .reason = ONCE_LIT("asked to"))
                  ->arm == ONCE_ARM_DONE);
    }
    reopen();
    set_quota("records=1,bytes=10");
    walk();
    EXPECT(do_claim(.key = ONCE_LIT("a"))->arm == ONCE_ARM_EXECUTE);
    EXPECT(do_claim(.tenant = ONCE_LIT("ann"), .key = numbered("k", 0))->arm == ONCE_ARM_REPLAY);
}

const struct suite_case quota_cases[] = {
    CASE(quota__refuses_only_what_is_new),
    CASE(quota__of_one_tenant_is_no_other_ones),
    CASE(quota__next_attempts_are_not_new),
    CASE(quota__what_is_given_back_makes_room),
    CASE(quota__in_flight_is_until_the_end),
    CASE(quota__bytes_count_when_they_are_stored),
    CASE(quota__waiters_are_refused_and_lookers_are_not),
    CASE(count__sees_what_was_there_before_the_start),
    CASE(count__sees_the_bytes),
    CASE(count__what_is_past_its_retention_makes_room),
    CASE(count__what_is_forgotten_is_no_other_tenants),
    { NULL, NULL },
};
