/* test_key.c - reading keys from header fields, and UUIDv7. */
#include "core/key.h"

#include "../guard.h"
#include "../test.h"

#include <string.h>

#define BYTES(s) s, sizeof(s) - 1
#define X5 "xxxxx"
#define X50 X5 X5 X5 X5 X5 X5 X5 X5 X5 X5
#define X255 X50 X50 X50 X50 X50 X5

/* Prints what was found, since the condition alone does not show it. */
static void expect_text(const char *row, const char *want, const char *got)
{
    if (strcmp(want, got) != 0) {
        printf("# wanted: %s\n# got:    %s\n", want, got);
        test_failed(__FILE__, __LINE__, row, "the text differs");
    }
}

static const struct accepted {
    const char *name;
    const char *field;
    size_t field_len;
    const char *key;
    bool strict; /* also accepted in the strict format */
} accepted[] = {
    { "quoted", BYTES("\"abc\""), "abc", true },
    { "one character", BYTES("\"a\""), "a", true },
    { "all visible characters", BYTES("\"!#$%&'()*+,-./0123456789:;<=>?@ABCXYZ[]^_`abcxyz{|}~\""),
      "!#$%&'()*+,-./0123456789:;<=>?@ABCXYZ[]^_`abcxyz{|}~", true },
    { "escaped quote", BYTES("\"a\\\"b\""), "a\"b", true },
    { "escaped backslash", BYTES("\"a\\\\b\""), "a\\b", true },
    { "escaped backslash last", BYTES("\"a\\\\\""), "a\\", true },
    { "only an escaped quote", BYTES("\"\\\"\""), "\"", true },
    { "comma in quotes", BYTES("\"a,b\""), "a,b", true },
    { "semicolon in quotes", BYTES("\"a;b\""), "a;b", true },
    { "blanks around quotes", BYTES(" \t\"abc\"\t "), "abc", true },
    { "255 quoted", BYTES("\"" X255 "\""), X255, true },
    { "bare", BYTES("abc"), "abc", false },
    { "bare one character", BYTES("a"), "a", false },
    { "bare blanks around", BYTES("\t abc \t"), "abc", false },
    { "bare 255", BYTES(X255), X255, false },
    { "bare UUID", BYTES("0190163d-8694-739b-aea5-966c26f8ad91"), "0190163d-8694-739b-aea5-966c26f8ad91", false },
    { "bare backslash is itself", BYTES("a\\b"), "a\\b", false },
    { "bare first and last visible", BYTES("!~"), "!~", false },
};

static void key__quoted_and_bare_forms_are_read(void)
{
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        const struct accepted *row = &accepted[i];
        struct guard guard;
        once_span field = guard_copy(&guard, row->field, row->field_len);
        char key[ONCE_KEY_LEN_MAX + 1] = "untouched";
        size_t len = 77;
        struct once_error err = { 0 };
        EXPECT_ROW(row->name, once_key_parse(field, ONCE_KEY_LENIENT, key, &len, &err) == ONCE_OK);
        expect_text(row->name, row->key, key);
        EXPECT_ROW(row->name, len == strlen(row->key));

        char again[ONCE_KEY_LEN_MAX + 1] = "untouched";
        once_result strict = once_key_parse(field, ONCE_KEY_STRICT, again, &len, NULL);
        EXPECT_ROW(row->name, strict == (row->strict ? ONCE_OK : ONCE_INVALID));
        expect_text(row->name, row->strict ? row->key : "untouched", again);
        guard_release(&guard);
    }
}

static const struct refused {
    const char *name;
    const char *field;
    size_t field_len;
    enum once_key_format format;
    const char *text;
} refused[] = {
    { "empty", BYTES(""), ONCE_KEY_LENIENT, "key is empty: send 1 to 255 visible characters" },
    { "blanks only", BYTES(" \t "), ONCE_KEY_LENIENT, "key is empty: send 1 to 255 visible characters" },
    { "empty in strict", BYTES(""), ONCE_KEY_STRICT, "key is empty: send 1 to 255 visible characters" },
    { "empty quotes", BYTES("\"\""), ONCE_KEY_LENIENT, "key is empty: nothing between the quotes at byte 1" },
    { "256 quoted", BYTES("\"x" X255 "\""), ONCE_KEY_LENIENT, "key is longer than 255 characters at byte 257" },
    { "256 bare", BYTES("x" X255), ONCE_KEY_LENIENT, "key is longer than 255 characters at byte 256" },
    { "256 by an escape", BYTES("\"" X255 "\\\"\""), ONCE_KEY_LENIENT,
      "key is longer than 255 characters at byte 258" },
    { "NUL quoted", BYTES("\"a\0b\""), ONCE_KEY_LENIENT, "key has a NUL at byte 3" },
    { "NUL bare", BYTES("ab\0"), ONCE_KEY_LENIENT, "key has a NUL at byte 3" },
    { "CR", BYTES("a\rb"), ONCE_KEY_LENIENT, "key has a line break at byte 2" },
    { "LF quoted", BYTES("\"a\n\""), ONCE_KEY_LENIENT, "key has a line break at byte 3" },
    { "LF at the end is not trimmed", BYTES("abc\n"), ONCE_KEY_LENIENT, "key has a line break at byte 4" },
    { "obs-fold", BYTES("\"a\r\n b\""), ONCE_KEY_LENIENT, "key has a line break at byte 3" },
    { "UTF-8 quoted", BYTES("\"a\xc3\xa4\""), ONCE_KEY_LENIENT, "key has a non-ASCII byte (0xc3) at byte 3" },
    { "UTF-8 bare", BYTES("\xe2\x82\xac"), ONCE_KEY_LENIENT, "key has a non-ASCII byte (0xe2) at byte 1" },
    { "DEL", BYTES("\"\x7f\""), ONCE_KEY_LENIENT, "key has a control character (0x7f) at byte 2" },
    { "tab inside", BYTES("a\tb"), ONCE_KEY_LENIENT, "key has a control character (0x09) at byte 2" },
    { "space in quotes", BYTES("\"a b\""), ONCE_KEY_LENIENT, "key has a space at byte 3: use visible characters only" },
    { "space at the edge of quotes", BYTES("\" a\""), ONCE_KEY_LENIENT,
      "key has a space at byte 2: use visible characters only" },
    { "space in bare", BYTES("a b"), ONCE_KEY_LENIENT, "key has a space at byte 2: use visible characters only" },
    { "no closing quote", BYTES("\"abc"), ONCE_KEY_LENIENT, "key has no closing quote for the one at byte 1" },
    { "a lone quote", BYTES(" \""), ONCE_KEY_LENIENT, "key has no closing quote for the one at byte 2" },
    { "closing quote escaped", BYTES("\"abc\\\""), ONCE_KEY_LENIENT, "key has no closing quote for the one at byte 1" },
    { "backslash last", BYTES("\"abc\\"), ONCE_KEY_LENIENT,
      "key ends in a backslash at byte 5, without its closing quote" },
    { "unknown escape", BYTES("\"a\\n\""), ONCE_KEY_LENIENT,
      "key has an unknown escape at byte 3: only \\\" and \\\\ exist" },
    { "bytes after the quote", BYTES("\"a\"b"), ONCE_KEY_LENIENT, "key has bytes after the closing quote at byte 4" },
    { "two strings", BYTES("\"a\" \"b\""), ONCE_KEY_LENIENT, "key has bytes after the closing quote at byte 5" },
    { "NUL after the quote", BYTES("\"a\"\0"), ONCE_KEY_LENIENT, "key has bytes after the closing quote at byte 4" },
    { "list", BYTES("\"a\", \"b\""), ONCE_KEY_LENIENT, "key is a list at byte 4: send one key in one field line" },
    { "list with blanks", BYTES("\"a\" , \"b\""), ONCE_KEY_LENIENT,
      "key is a list at byte 5: send one key in one field line" },
    { "bare list", BYTES("a,b"), ONCE_KEY_LENIENT, "key is a list at byte 2: send one key in one field line" },
    { "leading comma", BYTES(",a"), ONCE_KEY_LENIENT, "key is a list at byte 1: send one key in one field line" },
    { "parameters", BYTES("\"a\";v=1"), ONCE_KEY_LENIENT,
      "key has parameters at byte 4: none are defined, send the key alone" },
    { "parameters of a bare key", BYTES("a;v=1"), ONCE_KEY_LENIENT,
      "key has parameters at byte 2: none are defined, send the key alone" },
    { "quote in a bare key", BYTES("a\"b\""), ONCE_KEY_LENIENT,
      "key has a quote inside at byte 2: quote all of it or nothing" },
    { "bare in strict", BYTES(" abc"), ONCE_KEY_STRICT, "key has no quote at byte 2: the strict format is \"...\"" },
    { "inner list in strict", BYTES("(\"a\")"), ONCE_KEY_STRICT,
      "key has no quote at byte 1: the strict format is \"...\"" },
    { "unknown format", BYTES("abc"), (enum once_key_format)2, "key format 2 does not exist" },
};

static void key__each_malformed_field_is_refused_with_its_own_message(void)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const struct refused *row = &refused[i];
        struct guard guard;
        once_span field = guard_copy(&guard, row->field, row->field_len);
        char key[ONCE_KEY_LEN_MAX + 1] = "untouched";
        size_t len = 77;
        struct once_error err = { 0 };
        EXPECT_ROW(row->name, once_key_parse(field, row->format, key, &len, &err) == ONCE_INVALID);
        EXPECT_ROW(row->name, err.result == ONCE_INVALID);
        expect_text(row->name, row->text, err.text);
        EXPECT_ROW(row->name, len == 77 && strcmp(key, "untouched") == 0);
        EXPECT_ROW(row->name, once_key_parse(field, row->format, key, &len, NULL) == ONCE_INVALID);
        guard_release(&guard);
    }
}

static void key__every_byte_outside_visible_ascii_is_refused(void)
{
    for (unsigned c = 0; c < 256; c++) {
        uint8_t quoted[] = { '"', 'a', (uint8_t)c, 'b', '"' };
        uint8_t bare[] = { 'a', (uint8_t)c, 'b' };
        char key[ONCE_KEY_LEN_MAX + 1];
        size_t len;
        bool visible = c >= 0x21 && c <= 0x7e;
        once_result q = once_key_parse((once_span){ quoted, sizeof quoted }, ONCE_KEY_STRICT, key, &len, NULL);
        EXPECT((q == ONCE_OK) == (visible && c != '"' && c != '\\'));
        once_result b = once_key_parse((once_span){ bare, sizeof bare }, ONCE_KEY_LENIENT, key, &len, NULL);
        EXPECT((b == ONCE_OK) == (visible && c != '"' && c != ',' && c != ';'));
    }
}

static const struct timed {
    const char *key;
    once_time time;
} timed[] = {
    { "017f22e2-79b0-7cc3-98c4-dc0c0c07398f", 1645557742000 }, /* RFC 9562, A.6 */
    { "017F22E2-79B0-7CC3-98C4-DC0C0C07398F", 1645557742000 },
    { "00000000-0000-7000-8000-000000000000", 0 },
    { "ffffffff-ffff-7fff-bfff-ffffffffffff", 281474976710655 },
    { "017f22e2-79b0-7cc3-a8c4-dc0c0c07398f", 1645557742000 },
    { "017f22e2-79b0-7cc3-b8c4-dc0c0c07398f", 1645557742000 },
    { "017f22e2-79b0-7cc3-c8c4-dc0c0c07398f", ONCE_NEVER }, /* another variant */
    { "017f22e2-79b0-7cc3-78c4-dc0c0c07398f", ONCE_NEVER },
    { "017f22e2-79b0-4cc3-98c4-dc0c0c07398f", ONCE_NEVER }, /* random, not timed */
    { "c232ab00-9414-11ec-b3c8-9f6bdeced846", ONCE_NEVER },
    { "017f22e279b07cc398c4dc0c0c07398f", ONCE_NEVER },
    { "017f22e2-79b0-7cc3-98c4-dc0c0c07398", ONCE_NEVER },
    { "017f22e2-79b0-7cc3-98c4-dc0c0c07398f0", ONCE_NEVER },
    { "017f22e2-79b0-7cc3-98c4-dc0c0c07398g", ONCE_NEVER },
    { "-17f22e2-79b0-7cc3-98c4-dc0c0c07398f", ONCE_NEVER },
    { "017f22e2079b0-7cc3-98c4-dc0c0c07398f", ONCE_NEVER },
    { "017f22e2-79b0-7cc3-98c4+dc0c0c07398f", ONCE_NEVER },
    { "{17f22e2-79b0-7cc3-98c4-dc0c0c07398}", ONCE_NEVER },
    { "", ONCE_NEVER },
};

static void key_time__only_a_uuid7_carries_one(void)
{
    for (size_t i = 0; i < sizeof timed / sizeof *timed; i++) {
        struct guard guard;
        once_span key = guard_copy(&guard, timed[i].key, strlen(timed[i].key));
        EXPECT_ROW(timed[i].key, once_key_time(key) == timed[i].time);
        guard_release(&guard);
    }
}

static void uuid7__format_matches_the_rfc_vector(void)
{
    /* RFC 9562, A.6: rand_a cc3, rand_b 18c4dc0c0c07398f; the six spare bits do not show. */
    static const uint8_t random[10] = { 0xfc, 0xc3, 0xd8, 0xc4, 0xdc, 0x0c, 0x0c, 0x07, 0x39, 0x8f };
    char text[ONCE_UUID_LEN + 1];
    once_uuid7_format(1645557742000, random, text);
    expect_text("vector", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f", text);
}

static void uuid7__time_survives_the_text(void)
{
    static const once_time times[] = { 0, 1, 1645557742000, 281474976710655 };
    static const uint8_t zeros[10], ones[10] = { 255, 255, 255, 255, 255, 255, 255, 255, 255, 255 };
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        char text[ONCE_UUID_LEN + 1];
        once_uuid7_format(times[i], zeros, text);
        EXPECT(once_key_time((once_span){ (const uint8_t *)text, ONCE_UUID_LEN }) == times[i]);
        once_uuid7_format(times[i], ones, text);
        EXPECT(once_key_time((once_span){ (const uint8_t *)text, ONCE_UUID_LEN }) == times[i]);
    }
}

/* KEY-2 of key.h, for every millisecond of small windows: accepted at t, then not from t + retention on. */
static void key_window__what_was_inside_once_is_outside_later(void)
{
    const uint8_t random[10] = { 0 };
    char text[ONCE_UUID_LEN + 1];
    const once_time born = 1700000000000;
    once_uuid7_format(born, random, text);
    once_span key = { (const uint8_t *)text, ONCE_UUID_LEN };
    for (int64_t retention = 1; retention <= 300; retention++) {
        int taken = 0;
        for (once_time t = born - 400; t <= born + 400; t++) {
            if (once_key_is_outside(key, retention, t))
                continue;
            taken++;
            EXPECT(once_key_is_outside(key, retention, t + retention));
            EXPECT(once_key_is_outside(key, retention, t + 10 * retention));
        }
        EXPECT(taken > 0 && !once_key_is_outside(key, retention, born));
    }
    const int64_t day = 24 * 3600 * 1000;
    EXPECT(once_key_skew(day) == ONCE_KEY_SKEW_MS_MAX && once_key_skew(1000) == 500);
    EXPECT(!once_key_is_outside(key, day, born - ONCE_KEY_SKEW_MS_MAX));
    EXPECT(once_key_is_outside(key, day, born - ONCE_KEY_SKEW_MS_MAX - 1));
    EXPECT(!once_key_is_outside(key, day, born + day - ONCE_KEY_SKEW_MS_MAX - 1));
    EXPECT(once_key_is_outside(key, day, born + day - ONCE_KEY_SKEW_MS_MAX));
    EXPECT(!once_key_is_outside(key, ONCE_NEVER, born + 1000 * day));
    EXPECT(!once_key_is_outside((once_span){ (const uint8_t *)"order-17", 8 }, 1, born));
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(key__quoted_and_bare_forms_are_read),
        TEST(key__each_malformed_field_is_refused_with_its_own_message),
        TEST(key__every_byte_outside_visible_ascii_is_refused),
        TEST(key_time__only_a_uuid7_carries_one),
        TEST(key_window__what_was_inside_once_is_outside_later),
        TEST(uuid7__format_matches_the_rfc_vector),
        TEST(uuid7__time_survives_the_text),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
