/* test_backoff.c - pauses between tries. */
#include "core/backoff.h"

#include "../test.h"

static const struct {
    const char *name;
    uint32_t failures;
    int64_t longest;
} rows[] = {
    { "first", 0, 500 },    { "second", 1, 1000 },  { "eleventh", 10, 512000 },
    { "last", 11, 600000 }, { "many", 60, 600000 }, { "most", UINT32_MAX, 600000 },
};

static int64_t pause_ms(enum once_jitter jitter, uint32_t failures, uint32_t random)
{
    return once_backoff_ms((struct once_backoff){ 500, 600000, jitter }, failures, random);
}

static void backoff__full_jitter_is_between_0_and_the_longest(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        EXPECT_ROW(rows[i].name, pause_ms(ONCE_JITTER_FULL, rows[i].failures, 0) == 0);
        EXPECT_ROW(rows[i].name, pause_ms(ONCE_JITTER_FULL, rows[i].failures, 1u << 31) == rows[i].longest / 2);
        EXPECT_ROW(rows[i].name, pause_ms(ONCE_JITTER_FULL, rows[i].failures, UINT32_MAX) == rows[i].longest - 1);
    }
}

static void backoff__half_jitter_is_between_the_half_and_the_longest(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        EXPECT_ROW(rows[i].name, pause_ms(ONCE_JITTER_HALF, rows[i].failures, 0) == rows[i].longest);
        EXPECT_ROW(rows[i].name, pause_ms(ONCE_JITTER_HALF, rows[i].failures, UINT32_MAX) == rows[i].longest / 2 + 1);
    }
}

static void backoff__without_jitter_it_is_the_longest(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        EXPECT_ROW(rows[i].name, pause_ms(ONCE_JITTER_NONE, rows[i].failures, 12345) == rows[i].longest);
}

static void backoff__limits_hold_at_the_edges(void)
{
    struct once_backoff none = { 0, 1000, ONCE_JITTER_NONE }, first_is_longer = { 60000, 30000, ONCE_JITTER_NONE };
    struct once_backoff largest = { INT64_MAX / 2 + 1, INT64_MAX, ONCE_JITTER_NONE };
    EXPECT(once_backoff_ms(none, UINT32_MAX, UINT32_MAX) == 0);
    EXPECT(once_backoff_ms(first_is_longer, 0, 0) == 30000);
    EXPECT(once_backoff_ms(largest, UINT32_MAX, 0) == INT64_MAX);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(backoff__full_jitter_is_between_0_and_the_longest),
        TEST(backoff__half_jitter_is_between_the_half_and_the_longest),
        TEST(backoff__without_jitter_it_is_the_longest),
        TEST(backoff__limits_hold_at_the_edges),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
