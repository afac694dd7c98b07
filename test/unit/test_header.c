/* test_header.c - header names, header lines, Retry-After. */
#include "core/http/header.h"
#include "core/span.h"

#include "../test.h"

static void line__name_and_value_without_blanks(void)
{
    once_span lines = ONCE_LIT("A: 1\r\nno header\r\n: nameless\r\nB:\t two words \r\nC:\r\nD: last"), name, value;
    static const char *const rows[][2] = { { "A", "1" }, { "B", "two words" }, { "C", "" }, { "D", "last" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK(once_header_line(&lines, &name, &value));
        EXPECT_ROW(rows[i][0], once_span_equal(name, once_span_str(rows[i][0])));
        EXPECT_ROW(rows[i][0], once_span_equal(value, once_span_str(rows[i][1])));
    }
    EXPECT(!once_header_line(&lines, &name, &value));
}

static void find__the_first_of_a_name_in_any_case(void)
{
    once_span lines = ONCE_LIT("Content-Type: a\r\ncontent-type: b\r\nLast: c"), value;
    EXPECT(once_header_find(lines, "CONTENT-TYPE", &value) && once_span_equal(value, ONCE_LIT("a")));
    EXPECT(once_header_find(lines, "last", &value) && once_span_equal(value, ONCE_LIT("c")));
    EXPECT(!once_header_find(lines, "Content", &value) && value.ptr == NULL && value.len == 0);
    EXPECT(once_header_is_listed(ONCE_LIT("b"), ONCE_LIT("A\nB\n")));
    EXPECT(!once_header_is_listed(ONCE_LIT(""), ONCE_LIT("A\nB\n")));
}

static void retry_after__only_whole_seconds_up_to_the_limit(void)
{
    static const struct {
        const char *value;
        bool readable;
        int64_t wait_ms;
    } rows[] = {
        { "0", true, 0 },
        { "7", true, 7000 },
        { "60", true, 60000 },
        { "61", true, 60000 },
        { "99999999999999999999", true, 60000 },
        { "", false, 0 },
        { "-1", false, 0 },
        { "1.5", false, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t wait_ms = 0;
        bool readable = once_retry_after_seconds(once_span_str(rows[i].value), 60000, &wait_ms);
        EXPECT_ROW(rows[i].value, readable == rows[i].readable && (!readable || wait_ms == rows[i].wait_ms));
    }
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(line__name_and_value_without_blanks),
        TEST(find__the_first_of_a_name_in_any_case),
        TEST(retry_after__only_whole_seconds_up_to_the_limit),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
