/*
 * test_batch_wait.c - which batches wait for callers, and for how long: callers that come back at once, and such that
 * do not.
 */
#include "engine/batch_wait.h"

#include "../test.h"

enum { US = 1000 };

/* How many of `batches` waited, where `before` of the expected are there and `after` come to be. */
static int waits(struct batch_wait *m, int batches, size_t before, size_t after)
{
    int waited = 0;
    for (int i = 0; i < batches; i++)
        if (batch_wait_begins(m, before)) {
            batch_wait_ended(m, before, after);
            waited++;
        }
    return waited;
}

static void batch_wait__waits_for_callers_that_come_back(void)
{
    struct batch_wait m = { .expected = 64 };
    CHECK(waits(&m, 100, 2, 64) == 100);
}

static void batch_wait__does_not_wait_when_all_are_there(void)
{
    struct batch_wait m = { .expected = 64 };
    CHECK(!batch_wait_begins(&m, 64));
    CHECK(!batch_wait_begins(&m, 70));
}

static void batch_wait__never_makes_a_lone_caller_wait(void)
{
    struct batch_wait m = { .expected = 1 };
    CHECK(!batch_wait_begins(&m, 0));
}

/* In vain at the batches 1, 3, 7, 15, 31, 63 and then at each 32nd. */
static void batch_wait__waits_ever_less_for_callers_that_do_not_come_back(void)
{
    struct batch_wait m = { .expected = 64 };
    CHECK(waits(&m, 63, 2, 10) == 6);
    CHECK(waits(&m, 320, 2, 10) == 10);
}

static void batch_wait__waits_again_when_callers_come_back_again(void)
{
    struct batch_wait m = { .expected = 64 };
    waits(&m, 1000, 2, 10);
    waits(&m, 32, 2, 64);
    CHECK(waits(&m, 10, 2, 64) == 10);
}

static void batch_wait__counts_no_rest_for_batches_that_have_all(void)
{
    struct batch_wait m = { .expected = 64 };
    CHECK(waits(&m, 1, 2, 2) == 1); /* in vain: the next is to go without */
    CHECK(waits(&m, 5, 64, 64) == 0);
    CHECK(waits(&m, 2, 2, 64) == 1);
}

static void batch_wait__gives_up_after_half_a_step_or_when_nobody_comes(void)
{
    struct batch_wait m = { .expected = 64, .batch_ns = 400 * US };
    CHECK(batch_wait_continues(&m, 0, 190 * US, 199 * US));
    CHECK(!batch_wait_continues(&m, 0, 190 * US, 200 * US));
    CHECK(batch_wait_continues(&m, 0, 100 * US, 149 * US));
    CHECK(!batch_wait_continues(&m, 0, 100 * US, 150 * US));
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(batch_wait__waits_for_callers_that_come_back),
        TEST(batch_wait__does_not_wait_when_all_are_there),
        TEST(batch_wait__never_makes_a_lone_caller_wait),
        TEST(batch_wait__waits_ever_less_for_callers_that_do_not_come_back),
        TEST(batch_wait__waits_again_when_callers_come_back_again),
        TEST(batch_wait__counts_no_rest_for_batches_that_have_all),
        TEST(batch_wait__gives_up_after_half_a_step_or_when_nobody_comes),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
