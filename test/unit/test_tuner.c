/*
 * test_tuner.c - whether it finds the faster number of lanes, of machines that are simulated:
 * so many operations a second with one lane, so many with two.
 */
#include "engine/tuner.h"

#include "../test.h"

enum { STEP_NS = 1000 * 1000 }; /* a batch a millisecond */

struct machine {
    uint64_t with_one, with_two; /* operations a batch */
};

static uint64_t now_ns;

/* How many of `steps` batches were done with two lanes. */
static int run(struct tuner *t, const struct machine *machine, int steps)
{
    int with_two = 0;
    for (int i = 0; i < steps; i++) {
        now_ns += STEP_NS;
        with_two += t->writers == 2;
        tuner_note(t, t->writers == 2 ? machine->with_two : machine->with_one, now_ns);
    }
    return with_two;
}

static void tuner__stays_with_what_gets_more_done(void)
{
    static const struct {
        const char *name;
        struct machine machine;
        int least, most; /* of 1000 batches with two lanes, once it has settled */
    } rows[] = {
        { "processors are the limit", { 60, 100 }, 900, 1000 },
        { "the disk is the limit", { 100, 60 }, 0, 100 },
        { "no difference: one will do", { 100, 101 }, 0, 150 },
        { "no load", { 2, 4 }, 0, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tuner t;
        tuner_init(&t);
        run(&t, &rows[i].machine, 5000);
        int with_two = run(&t, &rows[i].machine, 1000);
        EXPECT_ROW(rows[i].name, with_two >= rows[i].least && with_two <= rows[i].most);
    }
}

static void tuner__follows_a_machine_that_changes(void)
{
    struct tuner t;
    tuner_init(&t);
    run(&t, &(struct machine){ 60, 100 }, 5000);
    CHECK(t.writers == 2);
    int steps = 0;
    while (run(&t, &(struct machine){ 100, 60 }, 1000) > 100 && steps < 100)
        steps++;
    CHECK(steps < 40);
}

static void tuner__gives_up_what_cannot_be_had(void)
{
    struct tuner t;
    tuner_init(&t);
    while (t.writers == 1)
        run(&t, &(struct machine){ 60, 100 }, 1);
    tuner_give_up(&t);
    CHECK(t.writers == 1);
    CHECK(run(&t, &(struct machine){ 60, 100 }, 1000) == 0);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(tuner__stays_with_what_gets_more_done),
        TEST(tuner__follows_a_machine_that_changes),
        TEST(tuner__gives_up_what_cannot_be_had),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
