/*
 * test_muster.c - which batches wait for callers, and for how long: callers that come back at once, and such that do
 * not.
 */
#include "engine/muster.h"

#include "../test.h"

enum { US = 1000 };

/* How many of `batches` waited, where `before` of the expected are there and `after` come to be. */
static int waits(struct muster *m, int batches, size_t before, size_t after)
{
    int waited = 0;
    for (int i = 0; i < batches; i++)
        if (muster_begins(m, before)) {
            muster_ends(m, before, after);
            waited++;
        }
    return waited;
}

static void muster__waits_for_callers_that_come_back(void)
{
    struct muster m = { .expected = 64 };
    CHECK(waits(&m, 100, 2, 64) == 100);
}

static void muster__does_not_wait_when_all_are_there(void)
{
    struct muster m = { .expected = 64 };
    CHECK(!muster_begins(&m, 64));
    CHECK(!muster_begins(&m, 70));
}

static void muster__never_makes_a_lone_caller_wait(void)
{
    struct muster m = { .expected = 1 };
    CHECK(!muster_begins(&m, 0));
}

/* In vain at the batches 1, 3, 7, 15, 31, 63 and then at each 32nd. */
static void muster__waits_ever_less_for_callers_that_do_not_come_back(void)
{
    struct muster m = { .expected = 64 };
    CHECK(waits(&m, 63, 2, 10) == 6);
    CHECK(waits(&m, 320, 2, 10) == 10);
}

static void muster__waits_again_when_callers_come_back_again(void)
{
    struct muster m = { .expected = 64 };
    waits(&m, 1000, 2, 10);
    waits(&m, 32, 2, 64);
    CHECK(waits(&m, 10, 2, 64) == 10);
}

static void muster__counts_no_rest_for_batches_that_have_all(void)
{
    struct muster m = { .expected = 64 };
    CHECK(waits(&m, 1, 2, 2) == 1); /* in vain: the next is to go without */
    CHECK(waits(&m, 5, 64, 64) == 0);
    CHECK(waits(&m, 2, 2, 64) == 1);
}

static void muster__gives_up_after_half_a_step_or_when_nobody_comes(void)
{
    struct muster m = { .expected = 64, .step_ns = 400 * US };
    CHECK(muster_goes_on(&m, 0, 190 * US, 199 * US));
    CHECK(!muster_goes_on(&m, 0, 190 * US, 200 * US));
    CHECK(muster_goes_on(&m, 0, 100 * US, 149 * US));
    CHECK(!muster_goes_on(&m, 0, 100 * US, 150 * US));
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(muster__waits_for_callers_that_come_back),
        TEST(muster__does_not_wait_when_all_are_there),
        TEST(muster__never_makes_a_lone_caller_wait),
        TEST(muster__waits_ever_less_for_callers_that_do_not_come_back),
        TEST(muster__waits_again_when_callers_come_back_again),
        TEST(muster__counts_no_rest_for_batches_that_have_all),
        TEST(muster__gives_up_after_half_a_step_or_when_nobody_comes),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
