/* test_duration.c - lengths of time and sizes as people write them. */
#include "core/duration.h"

#include "../guard.h"
#include "../test.h"

#include <string.h>

static void expect_text(const char *row, const char *want, const char *got)
{
    if (strcmp(want, got) != 0) {
        printf("# wanted: %s\n# got:    %s\n", want, got);
        test_failed(__FILE__, __LINE__, row, "the text differs");
    }
}

#define DAY_MS (24LL * 3600 * 1000)

static const struct accepted {
    const char *text;
    int64_t ms;
    const char *formatted;
} accepted[] = {
    { "250ms", 250, "250ms" },
    { "60s", 60000, "1m" },
    { "5m", 300000, "5m" },
    { "24h", DAY_MS, "1d" },
    { "7d", 7 * DAY_MS, "7d" },
    { "1h30m", 5400000, "1h30m" },
    { "1d2h3m4s5ms", DAY_MS + 7384005, "1d2h3m4s5ms" },
    { "1m1ms", 60001, "1m1ms" },
    { "0s", 0, "0s" },
    { "0d0ms", 0, "0s" },
    { "007s", 7000, "7s" },
    { "90m", 5400000, "1h30m" },
    { "9223372036854775807ms", INT64_MAX, "106751991167d7h12m55s807ms" },
    { "106751991167d7h12m55s807ms", INT64_MAX, "106751991167d7h12m55s807ms" },
    { "never", ONCE_NEVER, "never" },
};

static void duration__units_add_up_and_format_reads_back(void)
{
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        struct guard guard;
        once_span text = guard_copy(&guard, accepted[i].text, strlen(accepted[i].text));
        int64_t ms = 77, again = 77;
        EXPECT_ROW(accepted[i].text, once_duration_parse(text, true, &ms, NULL) == ONCE_OK);
        EXPECT_ROW(accepted[i].text, ms == accepted[i].ms);
        char formatted[ONCE_DURATION_TEXT_LEN];
        once_duration_format(accepted[i].ms, formatted);
        expect_text(accepted[i].text, accepted[i].formatted, formatted);
        once_span back = { (const uint8_t *)formatted, strlen(formatted) };
        EXPECT_ROW(accepted[i].text, once_duration_parse(back, true, &again, NULL) == ONCE_OK);
        EXPECT_ROW(accepted[i].text, again == accepted[i].ms);
        guard_release(&guard);
    }
}

static const struct refused {
    const char *text;
    const char *message;
} refused[] = {
    { "", "duration is empty: write e.g. 60s" },
    { "60", "60: add a unit, e.g. 60s" },
    { "1h30", "1h30: add a unit, e.g. 1h30s" },
    { "s", "'s' is not a duration, write e.g. 60s or 1h30m" },
    { "-1s", "'-1s' is not a duration, write e.g. 60s or 1h30m" },
    { "+1s", "'+1s' is not a duration, write e.g. 60s or 1h30m" },
    { " 1s", "' 1s' is not a duration, write e.g. 60s or 1h30m" },
    { "forever", "'forever' is not a duration, write e.g. 60s or 1h30m" },
    { "Never", "'Never' is not a duration, write e.g. 60s or 1h30m" },
    { "never", "'never' is not possible here, write a duration, e.g. 60s" },
    { "1s ", "'1s ': 's ' is not a unit, use d, h, m, s or ms" },
    { "1 s", "'1 s': ' s' is not a unit, use d, h, m, s or ms" },
    { "1S", "'1S': 'S' is not a unit, use d, h, m, s or ms" },
    { "1w", "'1w': 'w' is not a unit, use d, h, m, s or ms" },
    { "1us", "'1us': 'us' is not a unit, use d, h, m, s or ms" },
    { "1.5h", "'1.5h': '.' is not a unit, use d, h, m, s or ms" },
    { "30m1h", "'30m1h': write each unit once, from large to small, e.g. 1h30m" },
    { "1s1s", "'1s1s': write each unit once, from large to small, e.g. 1h30m" },
    { "1ms1s", "'1ms1s': write each unit once, from large to small, e.g. 1h30m" },
    { "9223372036854775808ms", "'9223372036854775808ms' is too long a time" },
    { "18446744073709551616ms", "'18446744073709551616ms' is too long a time" },
    { "99999999999999999999999s", "'99999999999999999999999s' is too long a time" },
    { "106751991168d", "'106751991168d' is too long a time" },
    { "106751991167d7h12m55s808ms", "'106751991167d7h12m55s808ms' is too long a time" },
};

static void duration__anything_unclear_is_refused_with_a_hint(void)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct guard guard;
        once_span text = guard_copy(&guard, refused[i].text, strlen(refused[i].text));
        int64_t ms = 77;
        struct once_error err = { 0 };
        EXPECT_ROW(refused[i].text, once_duration_parse(text, false, &ms, &err) == ONCE_INVALID);
        EXPECT_ROW(refused[i].text, ms == 77);
        expect_text(refused[i].text, refused[i].message, err.text);
        guard_release(&guard);
    }
}

static void duration__a_long_wrong_text_is_shown_in_part(void)
{
    uint8_t text[1000];
    memset(text, 'x', sizeof text);
    struct once_error err = { 0 };
    int64_t ms;
    EXPECT(once_duration_parse((once_span){ text, sizeof text }, false, &ms, &err) == ONCE_INVALID);
    EXPECT(strlen(err.text) < 150);
}

static const struct size {
    const char *text;
    uint64_t bytes;      /* where it is accepted */
    const char *message; /* else */
} sizes[] = {
    { "0", 0, NULL },
    { "4096", 4096, NULL },
    { "64K", 65536, NULL },
    { "64k", 65536, NULL },
    { "1M", 1048576, NULL },
    { "2G", 2147483648, NULL },
    { "18446744073709551615", UINT64_MAX, NULL },
    { "17179869183G", 18446744072635809792u, NULL },
    { "", 0, "size is empty: write e.g. 4096 or 64K" },
    { "K", 0, "'K' is not a size, write e.g. 4096 or 64K" },
    { "-1", 0, "'-1' is not a size, write e.g. 4096 or 64K" },
    { "64KB", 0, "'64KB': 'KB' is not a unit of size, use K, M or G" },
    { "1T", 0, "'1T': 'T' is not a unit of size, use K, M or G" },
    { "1 ", 0, "'1 ': ' ' is not a unit of size, use K, M or G" },
    { "1K2", 0, "'1K2': 'K2' is not a unit of size, use K, M or G" },
    { "18446744073709551616", 0, "'18446744073709551616' is too large a size" },
    { "17179869184G", 0, "'17179869184G' is too large a size" },
};

static void size__suffixes_are_binary_and_overflow_is_refused(void)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct guard guard;
        once_span text = guard_copy(&guard, sizes[i].text, strlen(sizes[i].text));
        uint64_t bytes = 77;
        struct once_error err = { 0 };
        once_result r = once_size_parse(text, &bytes, &err);
        EXPECT_ROW(sizes[i].text, r == (sizes[i].message == NULL ? ONCE_OK : ONCE_INVALID));
        EXPECT_ROW(sizes[i].text, bytes == (sizes[i].message == NULL ? sizes[i].bytes : 77));
        expect_text(sizes[i].text, sizes[i].message == NULL ? "" : sizes[i].message, err.text);
        guard_release(&guard);
    }
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(duration__units_add_up_and_format_reads_back),
        TEST(duration__anything_unclear_is_refused_with_a_hint),
        TEST(duration__a_long_wrong_text_is_shown_in_part),
        TEST(size__suffixes_are_binary_and_overflow_is_refused),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
