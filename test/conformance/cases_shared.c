/*
 * cases_shared.c - one store, several handles (FACT-4): in other processes they would be the same.
 */
#include "suite.h"

/* NULL: this store has one handle only, and the case is skipped. */
static struct once *open_second(void)
{
    struct once *second = NULL;
    if (!sut.shared && !sut.served)
        skip("nobody else writes to a store that is owned");
    else
        CHECK(once_open(suite.url, &suite.options, &second, NULL) == ONCE_OK);
    return second;
}

static void FACT_4__many_handles_work_together(void)
{
    struct once *second = open_second();
    if (second == NULL)
        return;
    struct once_grant grant = granted(.key = ONCE_LIT("a"));
    struct once_claim claim = { .key = ONCE_LIT("a") };
    struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED, .body = ONCE_LIT("by the other") };
    struct once_reply reply;
    EXPECT(once_claim(second, &claim, &reply, NULL) == ONCE_OK && reply.arm == ONCE_ARM_IN_PROGRESS);
    once_reply_release(&reply);
    EXPECT(once_finish(second, grant, &outcome, &reply, NULL) == ONCE_OK && reply.arm == ONCE_ARM_DONE);
    once_reply_release(&reply);
    EXPECT(span_equal(do_claim(.key = ONCE_LIT("a"))->record.body, ONCE_LIT("by the other")));
    uint64_t last = grant.fence;
    for (int i = 0; i < 10; i++) {
        claim.key = numbered("k", i);
        CHECK(once_claim(second, &claim, &reply, NULL) == ONCE_OK && reply.arm == ONCE_ARM_EXECUTE);
        EXPECT(reply.record.grant.fence > last);
        last = granted(.key = numbered("l", i)).fence;
        EXPECT(last > reply.record.grant.fence);
        EXPECT(do_claim(.key = numbered("k", i))->arm == ONCE_ARM_IN_PROGRESS);
        once_reply_release(&reply);
    }
    once_close(second);
}

static void wait__hears_of_an_outcome_from_another_handle(void)
{
    struct once *second = open_second();
    if (second == NULL)
        return;
    struct once_claim claim = { .key = ONCE_LIT("a") };
    struct once_reply reply;
    CHECK(once_claim(second, &claim, &reply, NULL) == ONCE_OK);
    struct once_request finish = { .verb = ONCE_VERB_FINISH,
                                   .grant = reply.record.grant,
                                   .outcome = { .state = ONCE_STATE_SUCCEEDED, .body = ONCE_LIT("x") } };
    once_reply_release(&reply);
    CHECK(once_submit(second, &finish, forget_answer, NULL, NULL) == ONCE_OK);
    EXPECT(do_claim(.key = ONCE_LIT("a"), .wait_ms = 30000)->arm == ONCE_ARM_REPLAY);
    once_close(second);
}

const struct suite_case shared_cases[] = {
    CASE(FACT_4__many_handles_work_together),
    CASE(wait__hears_of_an_outcome_from_another_handle),
    { NULL, NULL },
};
