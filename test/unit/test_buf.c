/* test_buf.c - the growing buffer that knows its ceiling. */
#include "core/buf.h"

#include "core/span.h"

#include "../guard.h"
#include "../test.h"

#include <string.h>

static void buf__appends_are_kept_across_growth(void)
{
    struct once_buf buf;
    once_buf_init(&buf, 100000);
    for (int i = 0; i < 100000; i++)
        once_buf_add_byte(&buf, (uint8_t)(i * 7));
    CHECK(buf.result == ONCE_OK);
    CHECK(buf.len == 100000);
    int wrong = 0;
    for (int i = 0; i < 100000; i++)
        wrong += buf.ptr[i] != (uint8_t)(i * 7);
    EXPECT(wrong == 0);
    once_buf_release(&buf);
}

static void buf__ceiling_is_exact_and_sticky(void)
{
    struct once_buf buf;
    once_buf_init(&buf, 5);
    once_buf_add(&buf, ONCE_LIT("abcde"));
    EXPECT(buf.result == ONCE_OK);
    once_buf_add(&buf, (once_span){ NULL, 0 });
    EXPECT(buf.result == ONCE_OK);
    once_buf_add_byte(&buf, 'f');
    EXPECT(buf.result == ONCE_LIMIT);
    EXPECT(once_span_equal(once_buf_span(&buf), ONCE_LIT("abcde")));
    once_buf_clear(&buf);
    EXPECT(buf.result == ONCE_OK && buf.len == 0);
    once_buf_add(&buf, ONCE_LIT("abcdef"));
    EXPECT(buf.result == ONCE_LIMIT && buf.len == 0);
    once_buf_add(&buf, ONCE_LIT("a")); /* would fit: but the text would have a hole */
    EXPECT(buf.result == ONCE_LIMIT && buf.len == 0);
    once_buf_release(&buf);
}

static void buf__zero_ceiling_takes_nothing(void)
{
    struct once_buf buf;
    once_buf_init(&buf, 0);
    once_buf_add(&buf, (once_span){ NULL, 0 });
    EXPECT(buf.result == ONCE_OK);
    once_buf_add_byte(&buf, 'a');
    EXPECT(buf.result == ONCE_LIMIT);
    EXPECT(buf.ptr == NULL);
    once_buf_release(&buf);
}

static void buf__numbers_are_big_endian(void)
{
    struct once_buf buf;
    once_buf_init(&buf, 100);
    once_buf_add_u32(&buf, 0x01020304);
    once_buf_add_u64(&buf, 0x05060708090a0b0c);
    EXPECT(once_span_equal(once_buf_span(&buf), ONCE_LIT("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c")));
    once_buf_release(&buf);
}

static void buf__formatted_text_has_no_nul(void)
{
    struct once_buf buf;
    once_buf_init(&buf, 2000);
    once_buf_addf(&buf, "%d-%s", 17, "x");
    once_buf_addf(&buf, "%s", "");
    once_buf_addf(&buf, "%1000d", 5);
    EXPECT(buf.result == ONCE_OK);
    EXPECT(buf.len == 1004);
    EXPECT(memcmp(buf.ptr, "17-x ", 5) == 0);
    EXPECT(buf.ptr[1003] == '5');
    once_buf_addf(&buf, "%1000d", 5);
    EXPECT(buf.result == ONCE_LIMIT);
    EXPECT(buf.len == 1004);
    once_buf_release(&buf);
}

static void buf__reads_no_further_than_the_span(void)
{
    struct guard guard;
    struct once_buf buf;
    once_buf_init(&buf, 10);
    once_buf_add(&buf, guard_copy(&guard, "abc", 3));
    EXPECT(once_span_equal(once_buf_span(&buf), ONCE_LIT("abc")));
    guard_release(&guard);
    once_buf_release(&buf);
    EXPECT(buf.ptr == NULL && buf.len == 0 && buf.max == 10);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(buf__appends_are_kept_across_growth), TEST(buf__ceiling_is_exact_and_sticky),
        TEST(buf__zero_ceiling_takes_nothing),     TEST(buf__numbers_are_big_endian),
        TEST(buf__formatted_text_has_no_nul),      TEST(buf__reads_no_further_than_the_span),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
