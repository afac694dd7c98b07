/* test_engine_stats.c - buckets: each time is in the one whose bounds it is within; quantiles. */
#include "engine/engine_stats.h"

#include "../test.h"

static void insight__buckets_follow_each_other(void)
{
    for (unsigned i = 0; i + 1 < ENGINE_LATENCY_BUCKETS; i++) {
        for (int beyond = 0; beyond <= 1; beyond++) {
            struct engine_latency times = { 0 };
            uint64_t us = engine_latency_bucket_us(i) + (uint64_t)beyond;
            engine_latency_add(&times, us * 1000 + 999);
            CHECK(times.buckets[i + (unsigned)beyond] == 1);
        }
        CHECK(engine_latency_bucket_us(i) < engine_latency_bucket_us(i + 1));
    }
}

static void insight__what_is_too_long_is_in_the_last(void)
{
    struct engine_latency times = { 0 };
    engine_latency_add(&times, UINT64_MAX);
    CHECK(times.buckets[ENGINE_LATENCY_BUCKETS - 1] == 1);
}

static void insight__quantiles_are_near(void)
{
    struct engine_latency times = { 0 }, before;
    CHECK(engine_latency_quantile_us(&times, 0.5) == 0);
    for (uint64_t us = 1; us <= 1000; us++)
        engine_latency_add(&times, us * 1000);
    double half = engine_latency_quantile_us(&times, 0.5), most = engine_latency_quantile_us(&times, 0.99);
    CHECK(half > 400 && half < 600);
    CHECK(most > 800 && most < 1100);
    before = times;
    for (int i = 0; i < 10; i++)
        engine_latency_add(&times, 50000 * 1000);
    engine_latency_since(&times, &before);
    CHECK(times.count == 10);
    CHECK(times.sum_ns == 10 * 50000ULL * 1000);
    double since = engine_latency_quantile_us(&times, 0.5);
    CHECK(since > 40000 && since < 60000);
}

static void insight__batches_by_powers_of_two(void)
{
    struct once_engine_stats engine_stats = { 0 };
    static const size_t sizes[] = { 1, 2, 3, 4, 5, 1024, 4096, 100000 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        engine_stats_add_batch(&engine_stats, sizes[i]);
    CHECK(engine_stats.batch_sizes[0] == 1);
    CHECK(engine_stats.batch_sizes[1] == 1);
    CHECK(engine_stats.batch_sizes[2] == 2);
    CHECK(engine_stats.batch_sizes[3] == 1);
    CHECK(engine_stats.batch_sizes[10] == 1);
    CHECK(engine_stats.batch_sizes[12] == 2);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(insight__buckets_follow_each_other),
        TEST(insight__what_is_too_long_is_in_the_last),
        TEST(insight__quantiles_are_near),
        TEST(insight__batches_by_powers_of_two),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
