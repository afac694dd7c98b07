/* test_reaper.c - the reaper's pace, and which clock it believes. */
#include "daemon/observers/quota_count.h"
#include "daemon/reaper/clock.h"
#include "daemon/reaper/pace.h"

#include "../test.h"

/* ------------------------------------------------------------------ pace */

static const struct pace_load idle = { 0, 32768 }, full = { 32768, 32768 };

/* Waits as it is told to until a step is due, and takes it. */
static uint32_t take_step(struct pace *p, once_time *now, struct pace_load load, once_time took, bool more)
{
    struct pace_order order;
    while ((order = pace_next(p, *now, load)).what != PACE_STEP)
        *now += order.wait_ms;
    *now += took;
    pace_did(p, *now, took, more);
    return order.budget;
}

static void pace__idle_turns_are_seconds_apart(void)
{
    struct pace p;
    once_time now = 1000000;
    pace_init(&p, now);
    EXPECT(pace_next(&p, now, idle).what == PACE_REST);
    for (int i = 0; i < 3; i++) {
        once_time before = now;
        EXPECT(take_step(&p, &now, idle, 3, false) == PACE_BUDGET);
        EXPECT(now - before == PACE_IDLE_MS + 3);
    }
}

static void pace__a_turn_ends_with_its_steps(void)
{
    struct pace p;
    once_time now = 0;
    pace_init(&p, now);
    take_step(&p, &now, idle, 0, true);
    once_time start = now;
    for (int i = 1; i < PACE_STEPS_MAX; i++)
        take_step(&p, &now, idle, 0, true);
    EXPECT(now == start);
    EXPECT(!p.in_round && pace_next(&p, now, idle).wait_ms == PACE_ROUND_MS);
}

/* REAPER-PACE-1: over any time it works half of it at most, however long a step takes. */
static void pace__it_works_half_of_the_time_at_most(void)
{
    static const once_time steps[] = { 1, 10, 90, 499, 501, 3000 };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct pace p;
        once_time now = 0, worked = 0;
        pace_init(&p, now);
        take_step(&p, &now, idle, 0, true);
        once_time start = now;
        while (now - start < 100000) {
            take_step(&p, &now, idle, steps[i], true);
            worked += steps[i];
        }
        char row[20];
        snprintf(row, sizeof row, "%lld ms", (long long)steps[i]);
        EXPECT_ROW(row, worked <= (now - start) / 2 + 2 * steps[i] + PACE_SPENT_MS_MAX);
        EXPECT_ROW(row, worked >= (now - start) / 20);
    }
}

static void pace__it_pauses_under_load_and_goes_on_after(void)
{
    struct pace p;
    once_time now = 0;
    pace_init(&p, now);
    now += PACE_IDLE_MS;
    struct pace_order order = pace_next(&p, now, full);
    EXPECT(order.what == PACE_PAUSE && order.wait_ms == PACE_PAUSE_MS);
    now += order.wait_ms;
    EXPECT(pace_next(&p, now, (struct pace_load){ 32768 / PACE_LOAD_SHARE + 1, 32768 }).what == PACE_PAUSE);
    order = pace_next(&p, now, (struct pace_load){ 32768 / PACE_LOAD_SHARE, 32768 });
    EXPECT(order.what == PACE_STEP && order.budget == PACE_BUDGET && p.paused_at == 0);
}

/* REAPER-PACE-2 */
static void pace__load_that_does_not_end_does_not_stop_it(void)
{
    struct pace p;
    once_time now = 0;
    pace_init(&p, now);
    now += PACE_IDLE_MS;
    once_time start = now;
    for (int i = 1; i <= 5; i++) {
        EXPECT(take_step(&p, &now, full, 1, true) == PACE_BUDGET_SMALL);
        EXPECT(now - start >= i * PACE_PAUSE_MS_MAX && now - start <= i * (PACE_PAUSE_MS_MAX + 2 * PACE_PAUSE_MS));
    }
}

static void pace__what_failed_waits_for_the_next_turn(void)
{
    struct pace p;
    once_time now = 0;
    pace_init(&p, now);
    now += PACE_IDLE_MS;
    EXPECT(pace_next(&p, now, idle).what == PACE_STEP);
    pace_give_up(&p, now);
    EXPECT(pace_next(&p, now, idle).wait_ms == PACE_IDLE_MS);
}

static void quota_count__rests_are_longer_than_work(void)
{
    EXPECT(quota_count_rest_ms(0, false) > 0 && quota_count_rest_ms(10, false) == 200 &&
           quota_count_rest_ms(10, true) == 10);
    EXPECT(quota_count_pause_ms(0) >= 1000 && quota_count_pause_ms(1000) == 20000 &&
           quota_count_pause_ms(1000000) == 60000);
}

/* ------------------------------------------------------------------ the clock */

enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE };

/* The three clocks, as they would be read. */
struct clocks {
    once_time store, wall, steady;
};

static const struct clocks start = { 1700000000000, 1700000000000, 500000 };

static void pass(struct clocks *c, once_time ms)
{
    c->store += ms;
    c->wall += ms;
    c->steady += ms;
}

static enum clock_verdict look(struct clock_guard *k, const struct clocks *c)
{
    return clock_guard_check(k, &(struct clock_reading){ c->store, c->wall, c->steady, c->steady });
}

static void clock__steady_time_is_believed(void)
{
    struct clock_guard k = { .begun = false };
    struct clocks c = start;
    for (int i = 0; i < 1000; i++) {
        EXPECT(look(&k, &c) == CLOCK_GOOD);
        pass(&c, i % 100 == 99 ? 9 * HOUR : 5 * SECOND); /* the machine slept: the steady clock counts that */
        c.store += 20;                                   /* slewed, or a little faster: 20 s in all */
    }
}

static void clock__a_jump_is_held_until_it_is_undone(void)
{
    static const once_time jumps[] = { HOUR, -HOUR, 10LL * 365 * 24 * HOUR, 61 * SECOND };
    for (size_t i = 0; i < sizeof jumps / sizeof *jumps; i++) {
        struct clock_guard k = { .begun = false };
        struct clocks c = start;
        EXPECT(look(&k, &c) == CLOCK_GOOD);
        pass(&c, 5 * SECOND);
        c.store += jumps[i];
        EXPECT(look(&k, &c) == CLOCK_JUMPED && k.suspended);
        EXPECT(k.off_ms == jumps[i]);
        for (int n = 0; n < 100; n++) {
            pass(&c, 5 * SECOND);
            EXPECT(look(&k, &c) != CLOCK_GOOD);
        }
        c.store -= jumps[i];
        EXPECT(look(&k, &c) == CLOCK_GOOD && !k.suspended);
    }
}

static void clock__small_steps_are_no_jump(void)
{
    struct clock_guard k = { .begun = false };
    struct clocks c = start;
    for (int i = 0; i < 20; i++) {
        EXPECT(look(&k, &c) == CLOCK_GOOD);
        pass(&c, 5 * SECOND);
        c.store += i % 2 == 0 ? 59 * SECOND : -59 * SECOND;
    }
}

/* An answer that took long is of some moment in between: no jump. */
static void clock__a_slow_answer_is_no_jump(void)
{
    struct clock_guard k = { .begun = false };
    struct clocks c = start;
    EXPECT(look(&k, &c) == CLOCK_GOOD);
    pass(&c, 5 * SECOND);
    struct clock_reading r = { .before = c.steady };
    pass(&c, 2 * MINUTE);
    r.store = c.store;
    r.wall = c.wall;
    r.after = c.steady;
    EXPECT(clock_guard_check(&k, &r) == CLOCK_GOOD);
    pass(&c, 5 * SECOND);
    c.store += 4 * MINUTE;
    EXPECT(look(&k, &c) == CLOCK_JUMPED);
}

static void clock__after_an_hour_it_is_believed(void)
{
    struct clock_guard k = { .begun = false };
    struct clocks c = start;
    look(&k, &c);
    c.store += 3 * HOUR;
    EXPECT(look(&k, &c) == CLOCK_JUMPED);
    pass(&c, HOUR - SECOND);
    EXPECT(look(&k, &c) == CLOCK_JUMPED);
    c.store += 10 * MINUTE; /* it is not steady: the hour begins again */
    EXPECT(look(&k, &c) == CLOCK_JUMPED);
    pass(&c, HOUR - SECOND);
    EXPECT(look(&k, &c) == CLOCK_JUMPED);
    pass(&c, SECOND);
    EXPECT(look(&k, &c) == CLOCK_GOOD);
    pass(&c, 5 * SECOND);
    EXPECT(look(&k, &c) == CLOCK_GOOD); /* REAPER-CLOCK-2: though it is ahead of the wall clock by three hours */
    c.store += 3 * HOUR;
    EXPECT(look(&k, &c) == CLOCK_JUMPED);
}

static void clock__ahead_of_the_wall_is_held_from_the_start(void)
{
    struct clock_guard k = { .begun = false };
    struct clocks c = start;
    c.store += 11 * MINUTE;
    EXPECT(look(&k, &c) == CLOCK_AHEAD && k.off_ms == 11 * MINUTE);
    c.wall += 2 * MINUTE;
    EXPECT(look(&k, &c) == CLOCK_GOOD);
    c.wall -= 2 * MINUTE; /* somebody set it back */
    EXPECT(look(&k, &c) == CLOCK_AHEAD);
}

static void clock__behind_the_wall_only_keeps_things_longer(void)
{
    struct clock_guard k = { .begun = false };
    struct clocks c = start;
    c.store -= 1000LL * HOUR;
    EXPECT(look(&k, &c) == CLOCK_GOOD);
}

static void clock__who_looked_is_believed(void)
{
    struct clock_guard k = { .begun = false };
    struct clocks c = start;
    look(&k, &c);
    c.store += 5 * HOUR;
    EXPECT(look(&k, &c) == CLOCK_JUMPED);
    clock_guard_accept(&k);
    EXPECT(look(&k, &c) == CLOCK_GOOD);
    pass(&c, 5 * SECOND);
    EXPECT(look(&k, &c) == CLOCK_GOOD);
    c.store += 5 * HOUR; /* that was not accepted */
    EXPECT(look(&k, &c) == CLOCK_JUMPED);
    c.store -= 10 * HOUR; /* right again */
    EXPECT(look(&k, &c) != CLOCK_GOOD);
    clock_guard_accept(&k);
    EXPECT(look(&k, &c) == CLOCK_GOOD && k.ahead == 0);
    c.store += 5 * HOUR; /* accepted once, and never again by itself */
    EXPECT(look(&k, &c) == CLOCK_JUMPED);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(pace__idle_turns_are_seconds_apart),
        TEST(pace__a_turn_ends_with_its_steps),
        TEST(pace__it_works_half_of_the_time_at_most),
        TEST(pace__it_pauses_under_load_and_goes_on_after),
        TEST(pace__load_that_does_not_end_does_not_stop_it),
        TEST(pace__what_failed_waits_for_the_next_turn),
        TEST(quota_count__rests_are_longer_than_work),
        TEST(clock__steady_time_is_believed),
        TEST(clock__a_jump_is_held_until_it_is_undone),
        TEST(clock__small_steps_are_no_jump),
        TEST(clock__a_slow_answer_is_no_jump),
        TEST(clock__after_an_hour_it_is_believed),
        TEST(clock__ahead_of_the_wall_is_held_from_the_start),
        TEST(clock__behind_the_wall_only_keeps_things_longer),
        TEST(clock__who_looked_is_believed),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
