/*
 * test_json.c - the canonical form of JSON texts.
 *
 * Linked with --wrap=malloc and --wrap=realloc, so that the n-th allocation of the
 * code under test can be made to fail.
 */
#include "core/json/events.h"
#include "core/json/flat.h"
#include "core/json/json.h"

#include "core/span.h"

#include "../guard.h"
#include "../test.h"

#include <stdlib.h>
#include <string.h>

#define BYTES(s) s, sizeof(s) - 1

/* ---------------------------------------------------------------- failing allocations */

static int allocations_left = -1; /* -1: all of them */

void *__real_malloc(size_t size);
void *__real_realloc(void *ptr, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_realloc(void *ptr, size_t size);

static bool allocation_fails(void)
{
    if (allocations_left < 0)
        return false;
    if (allocations_left == 0)
        return true;
    allocations_left--;
    return false;
}

void *__wrap_malloc(size_t size)
{
    return allocation_fails() ? NULL : __real_malloc(size);
}

void *__wrap_realloc(void *ptr, size_t size)
{
    return allocation_fails() ? NULL : __real_realloc(ptr, size);
}

/* ---------------------------------------------------------------- tables */

static void expect_form(const char *row, once_span want, once_span got)
{
    if (!once_span_equal(want, got)) {
        printf("# wanted: %.*s\n# got:    %.*s\n", ONCE_SPAN_ARGS(want), ONCE_SPAN_ARGS(got));
        test_failed(__FILE__, __LINE__, row, "the form differs");
    }
}

static const struct form {
    const char *text;
    size_t text_len;
    const char *form;
} forms[] = {
    { BYTES("{}"), "{}" },
    { BYTES("[]"), "[]" },
    { BYTES("null"), "null" },
    { BYTES(" true "), "true" },
    { BYTES("false\n"), "false" },
    { BYTES("17"), "17" },
    { BYTES("\"\""), "\"\"" },
    { BYTES("\"a\""), "\"a\"" },
    /* white space */
    { BYTES(" \t\r\n{ \"a\" : [ 1 , 2 ] , \"b\" : { } }\r\n"), "{\"a\":[1,2],\"b\":{}}" },
    /* members in the order of their bytes, a prefix first, at every level */
    { BYTES("{\"b\":1,\"a\":2,\"B\":3,\"\":4,\"aa\":5}"), "{\"\":4,\"B\":3,\"a\":2,\"aa\":5,\"b\":1}" },
    { BYTES("[{\"z\":{\"y\":1,\"x\":2},\"a\":0}]"), "[{\"a\":0,\"z\":{\"x\":2,\"y\":1}}]" },
    { BYTES("{\"\xc3\xa4\":1,\"z\":2,\"\xf0\x9f\x98\x80\":3,\"\xef\xbf\xbf\":4}"),
      "{\"z\":2,\"\xc3\xa4\":1,\"\xef\xbf\xbf\":4,\"\xf0\x9f\x98\x80\":3}" }, /* not UTF-16's order */
    { BYTES("{\"a\\u0000b\":1,\"a\":2}"), "{\"a\":2,\"a\\u0000b\":1}" },
    /* array elements stay where they are */
    { BYTES("[3,1,2,[2,1],{\"b\":0,\"a\":0}]"), "[3,1,2,[2,1],{\"a\":0,\"b\":0}]" },
    /* the same name on different levels is no duplicate */
    { BYTES("{\"a\":{\"a\":[{\"a\":1},{\"a\":2}]}}"), "{\"a\":{\"a\":[{\"a\":1},{\"a\":2}]}}" },
    /* escapes: as few as possible */
    { BYTES("\"\\u0061\\u00e4\\u20ac\\/\""), "\"a\xc3\xa4\xe2\x82\xac/\"" },
    { BYTES("\"\\ud83d\\ude00\\uD83D\\uDE00\""), "\"\xf0\x9f\x98\x80\xf0\x9f\x98\x80\"" },
    { BYTES("\"\\u0022\\u005c\\\"\\\\\""), "\"\\\"\\\\\\\"\\\\\"" },
    { BYTES("\"\\b\\f\\n\\r\\t\""), "\"\\u0008\\u000c\\u000a\\u000d\\u0009\"" },
    { BYTES("\"\\u0000\\u001F\\u007f \""), "\"\\u0000\\u001f\x7f \"" },
    { BYTES("\"\\\\ud800\""), "\"\\\\ud800\"" }, /* a backslash and letters, no surrogate */
    { BYTES("\"\xef\xbf\xbd\xf4\x8f\xbf\xbf\""), "\"\xef\xbf\xbd\xf4\x8f\xbf\xbf\"" },
    { BYTES("{\"\\u0061\":1}"), "{\"a\":1}" },
    { BYTES("{\"a\\nb\":1}"), "{\"a\\u000ab\":1}" },
    /* numbers by their text */
    { BYTES("[0,-0,1,1.0,1.00,1e0,1E0,1e+0,-1.5e-10]"), "[0,-0,1,1.0,1.00,1e0,1E0,1e+0,-1.5e-10]" },
    { BYTES("123456789012345678901234567890.123456789012345678901234567890e99999"),
      "123456789012345678901234567890.123456789012345678901234567890e99999" },
};

static void json__equal_documents_get_one_form(void)
{
    struct once_buf out;
    once_buf_init(&out, 10000);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct guard guard;
        once_span text = guard_copy(&guard, forms[i].text, forms[i].text_len);
        bool canonical = false;
        EXPECT_ROW(forms[i].text, once_json_canonical(text, NULL, 0, &out, &canonical, NULL) == ONCE_OK);
        EXPECT_ROW(forms[i].text, canonical);
        expect_form(forms[i].text, once_span_str(forms[i].form), once_buf_span(&out));
        guard_release(&guard);
    }
    once_buf_release(&out);
}

static void json__the_form_of_a_form_is_itself(void)
{
    struct once_buf out;
    once_buf_init(&out, 10000);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        bool canonical = false;
        once_span form = once_span_str(forms[i].form);
        EXPECT_ROW(forms[i].text, once_json_canonical(form, NULL, 0, &out, &canonical, NULL) == ONCE_OK);
        EXPECT_ROW(forms[i].text, canonical);
        expect_form(forms[i].text, form, once_buf_span(&out));
    }
    once_buf_release(&out);
}

static const struct formless {
    const char *name;
    const char *text;
    size_t text_len;
} formless[] = {
    { "empty", BYTES("") },
    { "white space only", BYTES(" \n") },
    { "unclosed array", BYTES("[1") },
    { "unclosed object", BYTES("{\"a\":1") },
    { "unclosed string", BYTES("\"abc") },
    { "string ends in a backslash", BYTES("\"abc\\") },
    { "string ends in an escaped quote", BYTES("\"abc\\\"") },
    { "string ends in half an escape", BYTES("\"\\u12") },
    { "wrong bracket", BYTES("[1}") },
    { "trailing value", BYTES("{} {}") },
    { "trailing byte", BYTES("{}x") },
    { "trailing NUL", BYTES("{}\0") },
    { "trailing bracket", BYTES("{}]") },
    { "trailing comma in an array", BYTES("[1,]") },
    { "trailing comma in an object", BYTES("{\"a\":1,}") },
    { "missing value", BYTES("{\"a\"}") },
    { "missing name", BYTES("{:1}") },
    { "name is no string", BYTES("{1:1}") },
    { "two values", BYTES("1 2") },
    { "leading zero", BYTES("01") },
    { "negative leading zero", BYTES("[-01]") },
    { "lone minus", BYTES("-") },
    { "plus", BYTES("+1") },
    { "no digit after the point", BYTES("1.") },
    { "no digit before the point", BYTES(".5") },
    { "no digit in the exponent", BYTES("1e") },
    { "hex number", BYTES("0x10") },
    { "NaN", BYTES("NaN") },
    { "truncated word", BYTES("tru") },
    { "capital word", BYTES("True") },
    { "single quotes", BYTES("'a'") },
    { "comment", BYTES("[1]/*x*/") },
    { "byte order mark", BYTES("\xef\xbb\xbf{}") },
    { "vertical tab as white space", BYTES("[1,\v2]") },
    { "form feed as white space", BYTES("[1]\f") },
    { "no-break space as white space", BYTES("[1]\xc2\xa0") },
    { "raw tab in a string", BYTES("\"a\tb\"") },
    { "raw newline in a string", BYTES("\"a\nb\"") },
    { "raw NUL in a string", BYTES("\"a\0b\"") },
    { "unknown escape", BYTES("\"\\x41\"") },
    { "escape with other digits", BYTES("\"\\u00g0\"") },
    { "escaped raw newline", BYTES("\"\\\n\"") },
    { "overlong UTF-8", BYTES("\"\xc0\x80\"") },
    { "overlong slash in three bytes", BYTES("\"\xe0\x80\xaf\"") },
    { "overlong in four bytes", BYTES("\"\xf0\x80\x80\x80\"") },
    { "surrogate in UTF-8", BYTES("\"\xed\xa0\x80\"") },
    { "beyond U+10FFFF", BYTES("\"\xf4\x90\x80\x80\"") },
    { "lead byte f5", BYTES("\"\xf5\x80\x80\x80\"") },
    { "truncated UTF-8", BYTES("\"\xe2\x82\"") },
    { "truncated UTF-8 at the end", BYTES("\"\xe2\x82") },
    { "lone continuation", BYTES("\"\x80\"") },
    { "Latin-1", BYTES("\"\xe4\"") },
    { "lone high surrogate", BYTES("\"\\ud800\"") },
    { "lone high surrogate and text", BYTES("\"\\ud800abcdefgh\"") },
    { "lone low surrogate", BYTES("\"\\udc00\"") },
    { "high surrogate and a letter's escape", BYTES("\"\\ud800\\u0041\"") },
    { "high surrogate and another escape", BYTES("\"\\ud800\\n1234\"") },
    { "two high surrogates", BYTES("\"\\ud800\\ud800\"") },
    { "swapped surrogates", BYTES("\"\\udc00\\ud800\"") },
    { "lone surrogate in a name", BYTES("{\"\\udfff\":1}") },
    { "high surrogate at the end of the text", BYTES("\"\\ud800") },
    { "high surrogate and a backslash at the end of the text", BYTES("\"\\ud800\\") },
    { "high surrogate and half an escape at the end of the text", BYTES("\"\\ud800\\u") },
    { "duplicate members", BYTES("{\"a\":1,\"a\":1}") },
    { "duplicate members after unescaping", BYTES("{\"a\":1,\"\\u0061\":2}") },
    { "duplicates that are not neighbours", BYTES("{\"a\":1,\"b\":2,\"c\":3,\"a\":4}") },
    { "duplicate empty names", BYTES("{\"\":1,\"\":2}") },
    { "duplicates deep inside", BYTES("[[{\"x\":{\"k\":1,\"l\":2,\"k\":3}}]]") },
};

static void json__texts_without_one_meaning_have_no_form(void)
{
    struct once_buf out;
    once_buf_init(&out, 10000);
    for (size_t i = 0; i < sizeof formless / sizeof *formless; i++) {
        struct guard guard;
        once_span text = guard_copy(&guard, formless[i].text, formless[i].text_len);
        bool canonical = true;
        once_buf_add(&out, ONCE_LIT("left over"));
        EXPECT_ROW(formless[i].name, once_json_canonical(text, NULL, 0, &out, &canonical, NULL) == ONCE_OK);
        EXPECT_ROW(formless[i].name, !canonical);
        EXPECT_ROW(formless[i].name, out.len == 0);
        guard_release(&guard);
    }
    once_buf_release(&out);
}

/* ---------------------------------------------------------------- excluded members */

static const struct excluded {
    const char *text;
    const char *pointers; /* one per line */
    const char *form;     /* NULL: none */
} excluded[] = {
    { "{\"a\":1,\"b\":2}", "/a", "{\"b\":2}" },
    { "{\"a\":1,\"b\":2}", "/b", "{\"a\":1}" },
    { "{\"a\":1,\"b\":2}", "/a\n/b", "{}" },
    { "{\"a\":1,\"b\":2}", "/b\n/a\n/a", "{}" },
    { "{\"a\":1}", "/c", "{\"a\":1}" },
    { "{\"a\":1}", "/a/b", "{\"a\":1}" },
    { "{\"a\":{\"b\":1,\"c\":2},\"b\":3}", "/a/b", "{\"a\":{\"c\":2},\"b\":3}" },
    { "{\"a\":{\"b\":1,\"c\":2},\"b\":3}", "/a/b\n/a", "{\"b\":3}" },
    { "{\"a\":{\"b\":1},\"a!\":{\"b\":1},\"a0\":{\"b\":1}}", "/a/b\n/a!\n/a0/b", "{\"a\":{},\"a0\":{}}" },
    { "{\"a\":{\"b\":{\"c\":1,\"d\":2}}}", "/a/b/c\n/b/c\n/a/c", "{\"a\":{\"b\":{\"d\":2}}}" },
    { "[1,2,3]", "/1", "[1,3]" },
    { "[1,2,3]", "/0\n/2", "[2]" },
    { "[1,2,3]", "/0\n/1\n/2", "[]" },
    { "[1,2,3]", "/3\n/-\n/01\n/00\n/+1\n/ 1\n/-1\n/1.0", "[1,2,3]" },
    { "[0,1,2,3,4,5,6,7,8,9,10,11]", "/1\n/11\n/10", "[0,2,3,4,5,6,7,8,9]" },
    { "{\"0\":1,\"-\":2,\"01\":3}", "/0\n/-", "{\"01\":3}" },
    { "[{\"t\":1,\"v\":2},{\"t\":3,\"v\":4}]", "/0/t\n/1/t", "[{\"v\":2},{\"v\":4}]" },
    { "{\"a/b\":1,\"m~n\":2,\"~1\":3,\"a\":{\"b\":4}}", "/a~1b\n/m~0n\n/~01", "{\"a\":{\"b\":4}}" },
    { "{\"a/b\":{\"c\":1,\"~\":2},\"x\":3}", "/a~1b/~0", "{\"a/b\":{\"c\":1},\"x\":3}" },
    { "{\"\":1,\"a\":{\"\":2,\"b\":3}}", "/\n/a/", "{\"a\":{\"b\":3}}" },
    { "{\"\":{\"\":1,\"x\":2}}", "//", "{\"\":{\"x\":2}}" },
    { "{\"\\u0061\":1,\"b\":2}", "/a", "{\"b\":2}" },
    { "{\"\xc3\xa4\":1,\"b\":2}", "/\xc3\xa4", "{\"b\":2}" },
    { "17", "/a\n/0\n/", "17" },
    { "{\"a\":{\"x\":1,\"x\":2},\"b\":3}", "/a", NULL },
    { "{\"a\":1,\"a\":2}", "/a", NULL },
};

enum { POINTERS_MAX = 16 };

static size_t split_lines(const char *text, once_span pointers[POINTERS_MAX])
{
    once_span rest = once_span_str(text);
    size_t count = 0;
    while (once_span_cut(rest, '\n', &pointers[count++], &rest))
        if (count == POINTERS_MAX)
            abort();
    return count;
}

static void json__excluded_members_are_left_out(void)
{
    struct once_buf out;
    once_buf_init(&out, 10000);
    for (size_t i = 0; i < sizeof excluded / sizeof *excluded; i++) {
        once_span pointers[POINTERS_MAX];
        size_t count = split_lines(excluded[i].pointers, pointers);
        struct guard guard, guards[POINTERS_MAX];
        for (size_t p = 0; p < count; p++)
            pointers[p] = guard_copy(&guards[p], pointers[p].ptr, pointers[p].len);
        once_span text = guard_copy(&guard, excluded[i].text, strlen(excluded[i].text));
        bool canonical = false;
        EXPECT_ROW(excluded[i].text, once_json_canonical(text, pointers, count, &out, &canonical, NULL) == ONCE_OK);
        EXPECT_ROW(excluded[i].text, canonical == (excluded[i].form != NULL));
        expect_form(excluded[i].text, once_span_str(excluded[i].form), once_buf_span(&out));
        guard_release(&guard);
        for (size_t p = 0; p < count; p++)
            guard_release(&guards[p]);
    }
    once_buf_release(&out);
}

static const struct bad_pointer {
    const char *pointer;
    const char *message;
} bad_pointers[] = {
    { "", "JSON pointer '': the whole document cannot be excluded" },
    { "a", "JSON pointer 'a': must begin with '/'" },
    { "#/a", "JSON pointer '#/a': must begin with '/'" },
    { "/a~", "JSON pointer '/a~': '~' at byte 3 must be '~0' or '~1'" },
    { "/~2/b", "JSON pointer '/~2/b': '~' at byte 2 must be '~0' or '~1'" },
    { "/~0~~1", "JSON pointer '/~0~~1': '~' at byte 4 must be '~0' or '~1'" },
};

static void json__malformed_pointers_are_refused_by_name(void)
{
    struct once_buf out;
    once_buf_init(&out, 10000);
    for (size_t i = 0; i < sizeof bad_pointers / sizeof *bad_pointers; i++) {
        struct guard guard;
        once_span pointers[] = { ONCE_LIT("/fine"),
                                 guard_copy(&guard, bad_pointers[i].pointer, strlen(bad_pointers[i].pointer)) };
        bool canonical = true;
        struct once_error err = { 0 };
        once_result r = once_json_canonical(ONCE_LIT("{}"), pointers, 2, &out, &canonical, &err);
        EXPECT_ROW(bad_pointers[i].pointer, r == ONCE_INVALID);
        EXPECT_ROW(bad_pointers[i].pointer, !canonical && out.len == 0);
        expect_form(bad_pointers[i].pointer, once_span_str(bad_pointers[i].message), once_span_str(err.text));
        guard_release(&guard);
    }
    once_buf_release(&out);
}

/* ---------------------------------------------------------------- limits */

static bool is_canonical(const struct once_buf *text, struct once_buf *out)
{
    bool canonical = false;
    EXPECT(text->result == ONCE_OK);
    EXPECT(once_json_canonical(once_buf_span(text), NULL, 0, out, &canonical, NULL) == ONCE_OK);
    return canonical;
}

static void add_repeated(struct once_buf *buf, const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++)
        once_buf_add(buf, once_span_str(text));
}

static void json__nesting_is_limited_to_128(void)
{
    struct once_buf text, out;
    once_buf_init(&text, 100000);
    once_buf_init(&out, 100000);
    for (size_t depth = 127; depth <= 130; depth++) {
        once_buf_clear(&text);
        add_repeated(&text, "[", depth);
        add_repeated(&text, "]", depth);
        EXPECT(is_canonical(&text, &out) == (depth <= ONCE_JSON_DEPTH_MAX));
        once_buf_clear(&text);
        add_repeated(&text, "{\"a\":", depth);
        once_buf_add(&text, ONCE_LIT("1"));
        add_repeated(&text, "}", depth);
        EXPECT(is_canonical(&text, &out) == (depth <= ONCE_JSON_DEPTH_MAX));
    }
    once_buf_clear(&text);
    add_repeated(&text, "[", 90000);
    EXPECT(!is_canonical(&text, &out));
    once_buf_release(&text);
    once_buf_release(&out);
}

static void json__values_are_limited_to_a_million(void)
{
    struct once_buf text, out;
    once_buf_init(&text, 3000000);
    once_buf_init(&out, 3000000);
    for (size_t elements = 999998; elements <= 1000000; elements++) { /* and the array itself */
        once_buf_clear(&text);
        once_buf_add(&text, ONCE_LIT("[0"));
        add_repeated(&text, ",0", elements - 1);
        once_buf_add(&text, ONCE_LIT("]"));
        EXPECT(is_canonical(&text, &out) == (elements + 1 <= ONCE_JSON_VALUE_COUNT_MAX));
    }
    once_buf_release(&text);
    once_buf_release(&out);
}

static void json__longer_texts_have_no_form(void)
{
    size_t len = (size_t)ONCE_JSON_LEN_MAX + 1;
    uint8_t *text = malloc(len);
    CHECK(text != NULL);
    memset(text, ' ', len);
    text[0] = '1';
    struct once_buf out;
    once_buf_init(&out, 100);
    bool canonical = true;
    EXPECT(once_json_canonical(once_span_of(text, len), NULL, 0, &out, &canonical, NULL) == ONCE_OK);
    EXPECT(!canonical);
    EXPECT(once_json_canonical(once_span_of(text, len - 1), NULL, 0, &out, &canonical, NULL) == ONCE_OK);
    EXPECT(canonical);
    once_buf_release(&out);
    free(text);
}

static void json__pointers_are_limited_to_64(void)
{
    once_span pointers[ONCE_JSON_EXCLUDE_COUNT_MAX + 1];
    for (size_t i = 0; i <= ONCE_JSON_EXCLUDE_COUNT_MAX; i++)
        pointers[i] = ONCE_LIT("/a");
    struct once_buf out;
    once_buf_init(&out, 100);
    bool canonical = false;
    once_span text = ONCE_LIT("{\"a\":1}");
    EXPECT(once_json_canonical(text, pointers, 64, &out, &canonical, NULL) == ONCE_OK);
    EXPECT(canonical && once_span_equal(once_buf_span(&out), ONCE_LIT("{}")));
    EXPECT(once_json_canonical(text, pointers, 65, &out, &canonical, NULL) == ONCE_LIMIT);
    EXPECT(!canonical && out.len == 0);
    once_buf_release(&out);
}

static void json__a_small_output_buffer_is_a_limit(void)
{
    struct once_buf out;
    bool canonical = false;
    once_buf_init(&out, 3);
    EXPECT(once_json_canonical(ONCE_LIT("[1]"), NULL, 0, &out, &canonical, NULL) == ONCE_OK);
    EXPECT(canonical && out.len == 3);
    struct once_error err = { 0 };
    EXPECT(once_json_canonical(ONCE_LIT("[12]"), NULL, 0, &out, &canonical, &err) == ONCE_LIMIT);
    EXPECT(!canonical && out.len == 0 && out.result == ONCE_OK);
    EXPECT(strcmp(err.text, "canonical form of 4 bytes of JSON does not fit in 3") == 0);
    once_buf_release(&out);
}

/* The worst growth there is stays within what json.h says. */
static void json__output_is_at_most_three_times_the_text(void)
{
    struct once_buf text, out;
    once_buf_init(&text, 100000);
    once_buf_add_byte(&text, '"');
    add_repeated(&text, "\\n", 40000);
    once_buf_add_byte(&text, '"');
    once_buf_init(&out, ONCE_JSON_GROWTH_MAX * text.len);
    EXPECT(is_canonical(&text, &out));
    EXPECT(out.len == 240002);
    once_buf_release(&text);
    once_buf_release(&out);
}

/* ---------------------------------------------------------------- hostile sizes */

/* Many members in an order that is bad for naive sorts; quadratic would take minutes. */
static void json__many_members_are_sorted_in_time(void)
{
    enum { COUNT = 400000 };
    struct once_buf text, want, out;
    once_buf_init(&text, 20 << 20);
    once_buf_init(&want, 20 << 20);
    once_buf_init(&out, 20 << 20);
    for (int i = 0; i < COUNT; i++) {
        once_buf_addf(&text, "%s\"%07d\":0", i == 0 ? "{" : " ,", COUNT - 1 - i);
        once_buf_addf(&want, "%s\"%07d\":0", i == 0 ? "{" : ",", i);
    }
    once_buf_add_byte(&text, '}');
    once_buf_add_byte(&want, '}');
    EXPECT(is_canonical(&text, &out));
    EXPECT(once_span_equal(once_buf_span(&want), once_buf_span(&out)));
    once_buf_release(&text);
    once_buf_release(&want);
    once_buf_release(&out);
}

static void json__pointers_into_a_large_array_are_cheap(void)
{
    enum { COUNT = 900000 };
    char names[64][32];
    once_span pointers[64];
    for (int i = 0; i < 64; i++) {
        int len = snprintf(names[i], sizeof names[i], "/%d", COUNT - 64 + i);
        pointers[i] = once_span_of(names[i], (size_t)len);
    }
    struct once_buf text, out;
    once_buf_init(&text, 3000000);
    once_buf_init(&out, 3000000);
    once_buf_add(&text, ONCE_LIT("[0"));
    add_repeated(&text, ",0", COUNT - 1);
    once_buf_add(&text, ONCE_LIT("]"));
    bool canonical = false;
    EXPECT(once_json_canonical(once_buf_span(&text), pointers, 64, &out, &canonical, NULL) == ONCE_OK);
    EXPECT(canonical && out.len == text.len - 2 * 64);
    once_buf_release(&text);
    once_buf_release(&out);
}

/* Fills yajl's buffers to their worst: sizes around the powers of two they double at. */
static void json__long_strings_and_numbers_fit_the_arena(void)
{
    struct once_buf text, out;
    once_buf_init(&text, 1 << 20);
    once_buf_init(&out, 4 << 20);
    for (size_t size = 1024; size <= 128 << 10; size *= 2) {
        for (size_t len = size - 3; len <= size + 3; len++) {
            once_buf_clear(&text);
            once_buf_add(&text, ONCE_LIT("[\"\\t\",\"\\n"));
            add_repeated(&text, "x", len);
            once_buf_add(&text, ONCE_LIT("\"]"));
            EXPECT(is_canonical(&text, &out));
            once_buf_add(&text, ONCE_LIT("1")); /* a number at the end is kept by the lexer */
            add_repeated(&text, "2", len);
            EXPECT(!is_canonical(&text, &out));
            once_buf_clear(&text);
            add_repeated(&text, "3", len);
            EXPECT(is_canonical(&text, &out));
        }
    }
    once_buf_release(&text);
    once_buf_release(&out);
}

static bool ignore_event(void *arg, enum once_json_event event, once_span bytes)
{
    (void)arg, (void)event, (void)bytes;
    return true;
}

/* Not every caller asks json/strict.h first: a string that breaks off is kept by the lexer, too. */
static void json_events__a_broken_off_string_fits_the_arena(void)
{
    struct once_buf text;
    once_buf_init(&text, 1 << 20);
    for (size_t size = 1024; size <= 128 << 10; size *= 2) {
        for (size_t len = size - 3; len <= size + 3; len++) {
            once_buf_clear(&text);
            once_buf_add(&text, ONCE_LIT("[\"\\n"));
            add_repeated(&text, "x", len);
            once_buf_add(&text, ONCE_LIT("\",\"\\t"));
            add_repeated(&text, "y", len);
            EXPECT(once_json_parse(once_buf_span(&text), ignore_event, NULL, NULL) == ONCE_INVALID);
        }
    }
    once_buf_release(&text);
}

/* ---------------------------------------------------------------- the short way */

static uint32_t next_random(void)
{
    static uint64_t seed = 1;
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(seed >> 33);
}

static void add_one_of(struct once_buf *text, const char *const *pieces, size_t count)
{
    once_buf_add(text, once_span_str(pieces[next_random() % count]));
}

/* An object of up to 34 members, most of them plain, then sometimes a byte of it changed, or its end cut off. */
static void make_text(struct once_buf *text)
{
    static const char *const spaces[] = { "", "", "", " ", "\n\t", "\r ", "\v" };
    static const char *const names[] = { "\"a\"",  "\"b\"",  "\"ab\"",  "\"\"",    "\"a b\"",      "\"Z\"",
                                         "\"zz\"", "\"_1\"", "\"a.b\"", "\"\\n\"", "\"\xc3\xa4\"", "\"\x7f\"" };
    static const char *const values[] = { "1",    "-0",    "0.5e-3",      "1E+9",         "\"x\"", "\"\"",
                                          "true", "false", "null",        "\"c-1\"",      "1799",  "\"e u\"",
                                          "01",   "1.",    "-",           "{}",           "[1]",   "nul",
                                          "1e",   "+1",    "\"\\u0041\"", "\"\xc3\xa4\"", "\"\t\"" };
    enum { PLAIN = 12 }; /* the values before that are taken more often */
    once_buf_clear(text);
    uint32_t members = next_random() % 8 == 0 ? 30 + next_random() % 5 : next_random() % 6;
    add_one_of(text, spaces, 7);
    once_buf_add(text, ONCE_LIT("{"));
    for (uint32_t i = 0; i < members; i++) {
        if (i > 0)
            once_buf_add(text, ONCE_LIT(","));
        add_one_of(text, spaces, next_random() % 16 == 0 ? 7 : 6);
        if (members < 30)
            add_one_of(text, names, 12);
        else
            once_buf_addf(text, "\"m%u\"", next_random() % 4000);
        add_one_of(text, spaces, 6);
        once_buf_add(text, ONCE_LIT(":"));
        add_one_of(text, spaces, 6);
        add_one_of(text, values, next_random() % 8 == 0 ? 23 : PLAIN);
        add_one_of(text, spaces, 6);
    }
    once_buf_add(text, ONCE_LIT("}"));
    if (next_random() % 8 == 0)
        text->ptr[next_random() % text->len] = (uint8_t) "{}:,\" \\0x\x80"[next_random() % 11];
    if (next_random() % 16 == 0)
        text->len -= 1 + next_random() % text->len;
}

/* With a pointer that names nothing it is the long way. */
static void json__short_way_and_long_way_agree(void)
{
    struct once_buf text, flat, form, empty;
    struct once_error err = { 0 };
    bool canonical;
    unsigned short_ways = 0;
    once_buf_init(&text, 10000);
    once_buf_init(&flat, 10000);
    once_buf_init(&form, 10000);
    once_buf_init(&empty, 0);
    for (int i = 0; i < 60000; i++) {
        make_text(&text);
        once_buf_clear(&flat);
        CHECK(text.result == ONCE_OK);
        if (!once_json_flat(once_buf_span(&text), &flat)) {
            EXPECT(flat.len == 0 && flat.result == ONCE_OK);
            continue;
        }
        short_ways++;
        CHECK(once_json_canonical(once_buf_span(&text), &ONCE_LIT("/nothing/here"), 1, &form, &canonical, &err) ==
              ONCE_OK);
        EXPECT(canonical);
        expect_form("random", once_buf_span(&form), once_buf_span(&flat));
        EXPECT(!once_json_flat(once_buf_span(&text), &empty));
    }
    EXPECT(short_ways > 10000 && short_ways < 50000); /* both were tried */
    EXPECT(once_json_flat(ONCE_LIT(" {\"b\": 1, \"a\" :\"x\"}\n"), (once_buf_clear(&flat), &flat)));
    expect_form("members", ONCE_LIT("{\"a\":\"x\",\"b\":1}"), once_buf_span(&flat));
    once_buf_release(&text);
    once_buf_release(&flat);
    once_buf_release(&form);
    once_buf_release(&empty);
}

/* ---------------------------------------------------------------- out of memory */

static void json__every_allocation_may_fail(void)
{
    struct once_buf text;
    once_buf_init(&text, 100000);
    once_buf_add(&text, ONCE_LIT("[\"\\n\",{\"b\":1,\"a\":2}"));
    add_repeated(&text, ",\"a string with an \\u00e4 in it\"", 300);
    once_buf_add(&text, ONCE_LIT("]"));
    once_result r = ONCE_NO_MEMORY;
    int n = 0;
    for (; r != ONCE_OK && n < 1000; n++) {
        struct once_buf out;
        once_buf_init(&out, 100000);
        bool canonical = true;
        struct once_error err = { 0 };
        allocations_left = n;
        r = once_json_canonical(once_buf_span(&text), NULL, 0, &out, &canonical, &err);
        allocations_left = -1;
        EXPECT(r == ONCE_OK || r == ONCE_NO_MEMORY);
        EXPECT(canonical == (r == ONCE_OK));
        EXPECT((out.len > 0) == (r == ONCE_OK));
        EXPECT(err.result == r);
        once_buf_release(&out); /* leaks are the sanitizer's to find */
    }
    EXPECT(n > 10); /* else nothing was made to fail */
    EXPECT(r == ONCE_OK);
    once_buf_release(&text);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(json__equal_documents_get_one_form),
        TEST(json__the_form_of_a_form_is_itself),
        TEST(json__texts_without_one_meaning_have_no_form),
        TEST(json__excluded_members_are_left_out),
        TEST(json__malformed_pointers_are_refused_by_name),
        TEST(json__nesting_is_limited_to_128),
        TEST(json__values_are_limited_to_a_million),
        TEST(json__longer_texts_have_no_form),
        TEST(json__pointers_are_limited_to_64),
        TEST(json__a_small_output_buffer_is_a_limit),
        TEST(json__output_is_at_most_three_times_the_text),
        TEST(json__many_members_are_sorted_in_time),
        TEST(json__pointers_into_a_large_array_are_cheap),
        TEST(json__long_strings_and_numbers_fit_the_arena),
        TEST(json_events__a_broken_off_string_fits_the_arena),
        TEST(json__short_way_and_long_way_agree),
        TEST(json__every_allocation_may_fail),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
