/* test_trace.c - traceparent: what is one, what is none, and how it travels among header lines. */
#include "core/http/trace.h"

#include "core/buf.h"
#include "core/span.h"

#include "../guard.h"
#include "../test.h"

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define SPAN "b7ad6b7169203331"
#define GOOD "00-" TRACE "-" SPAN "-01"

static const struct row {
    const char *name, *text;
    bool good, sampled;
} rows[] = {
    { "the standard's own", GOOD, true, true },
    { "not sampled", "00-" TRACE "-" SPAN "-00", true, false },
    { "other flags are not ours", "00-" TRACE "-" SPAN "-fe", true, false },
    { "all flags", "00-" TRACE "-" SPAN "-ff", true, true },
    { "a later version", "01-" TRACE "-" SPAN "-01", true, true },
    { "a later version says more", "cc-" TRACE "-" SPAN "-01-what-the-future-will-be-like", true, true },
    { "a later version goes on without a dash", "cc-" TRACE "-" SPAN "-01.x", false, false },
    { "this version says more", GOOD "-x", false, false },
    { "this version has a dash more", GOOD "-", false, false },
    { "version ff", "ff-" TRACE "-" SPAN "-01", false, false },
    { "version of one digit", "0-" TRACE "-" SPAN "-01x", false, false },
    { "capitals", "00-0AF7651916CD43DD8448EB211C80319C-" SPAN "-01", false, false },
    { "capitals in the span", "00-" TRACE "-B7AD6B7169203331-01", false, false },
    { "capitals in the flags", "00-" TRACE "-" SPAN "-0A", false, false },
    { "a trace of zeros", "00-00000000000000000000000000000000-" SPAN "-01", false, false },
    { "a span of zeros", "00-" TRACE "-0000000000000000-01", false, false },
    { "no hex", "00-0af7651916cd43dd8448eb211c80319g-" SPAN "-01", false, false },
    { "another separator", "00_" TRACE "-" SPAN "-01", false, false },
    { "another separator in the middle", "00-" TRACE "_" SPAN "-01", false, false },
    { "another separator at the end", "00-" TRACE "-" SPAN "_01", false, false },
    { "a blank before", " " GOOD, false, false },
    { "a blank after", GOOD " ", false, false },
    { "one short", "00-" TRACE "-" SPAN "-0", false, false },
    { "empty", "", false, false },
    { "a word", "traceparent", false, false },
};

static void parse__only_what_the_standard_says(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct guard guard;
        struct once_trace t, before;
        memset(&t, 0x5a, sizeof t);
        before = t;
        once_span text = guard_copy(&guard, rows[i].text, strlen(rows[i].text));
        bool good = once_trace_parse(text, &t);
        EXPECT_ROW(rows[i].name, good == rows[i].good);
        if (good)
            EXPECT_ROW(rows[i].name, t.trace[0] == 0x0a && t.span[7] == 0x31 && t.sampled == rows[i].sampled);
        else
            EXPECT_ROW(rows[i].name, memcmp(&t, &before, sizeof t) == 0);
        guard_release(&guard);
    }
}

static void parse__has_a_bound(void)
{
    char text[ONCE_TRACEPARENT_LEN_MAX + 2];
    struct once_trace t;
    memset(text, 'x', sizeof text);
    memcpy(text, "cc" GOOD "-", 2 + ONCE_TRACEPARENT_LEN + 1);
    memmove(text + 2, text + 4, sizeof text - 4); /* "cc" for the version */
    EXPECT(once_trace_parse(once_span_of(text, ONCE_TRACEPARENT_LEN_MAX), &t));
    EXPECT(!once_trace_parse(once_span_of(text, ONCE_TRACEPARENT_LEN_MAX + 1), &t));
}

static void format__is_what_was_read(void)
{
    struct once_trace t;
    char text[ONCE_TRACEPARENT_LEN + 1];
    CHECK(once_trace_parse(ONCE_LIT("cc-" TRACE "-" SPAN "-ff-more"), &t));
    once_trace_format(&t, text);
    EXPECT(strcmp(text, GOOD) == 0);
    t.sampled = false;
    once_trace_format(&t, text);
    EXPECT(strcmp(text, "00-" TRACE "-" SPAN "-00") == 0);
}

/* Random bytes may be anything, also zeros, which would be no ids. */
static void begin__never_makes_what_is_none(void)
{
    static const uint8_t zeros[24];
    struct once_trace t, again;
    char text[ONCE_TRACEPARENT_LEN + 1];
    once_trace_begin(&t, zeros, true);
    once_trace_format(&t, text);
    EXPECT(once_trace_parse(once_span_str(text), &again));
    EXPECT(memcmp(&t, &again, sizeof t) == 0);
}

static void find__exactly_one_among_lines(void)
{
    static const struct {
        const char *name, *lines;
        bool found;
    } cases[] = {
        { "alone", "traceparent: " GOOD "\r\n", true },
        { "without blank or end", "traceparent:" GOOD, true },
        { "capitals, blanks", "a: b\r\nTRACEPARENT: \t" GOOD " \t\r\nc: d\r\n", true },
        { "two, even the same", "traceparent: " GOOD "\r\ntraceparent: " GOOD "\r\n", false },
        { "another name", "x-traceparent: " GOOD "\r\ntraceparents: " GOOD "\r\n", false },
        { "none", "a: b\r\n", false },
        { "empty", "", false },
        { "one that is none", "traceparent: 00-1\r\n", false },
        { "in a value", "a: traceparent: " GOOD "\r\n", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct once_trace t;
        EXPECT_ROW(cases[i].name, once_trace_find(once_span_str(cases[i].lines), &t) == cases[i].found);
    }
}

static void replace__leaves_the_others_as_they_are(void)
{
    static const struct {
        const char *name, *lines, *kept;
    } cases[] = {
        { "none", "", "" },
        { "others", "a: b\r\nc: d\r\n", "a: b\r\nc: d\r\n" },
        { "in the middle", "a: b\r\nTraceParent: x\r\nc: d\r\n", "a: b\r\nc: d\r\n" },
        { "two", "traceparent: x\r\na: b\r\ntraceparent: y\r\n", "a: b\r\n" },
        { "no end", "a: b", "a: b\r\n" },
    };
    struct once_trace t;
    CHECK(once_trace_parse(ONCE_LIT(GOOD), &t));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct once_buf out;
        char want[200];
        once_buf_init(&out, 1000);
        once_trace_replace(once_span_str(cases[i].lines), &t, &out);
        snprintf(want, sizeof want, "%straceparent: " GOOD "\r\n", cases[i].kept);
        EXPECT_ROW(cases[i].name, once_span_equal(once_buf_span(&out), once_span_str(want)));
        once_buf_release(&out);
    }
}

static void text__stays_on_its_line_and_in_its_quotes(void)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *text;
    } cases[] = {
        { "acme", 4, "acme" },
        { "", 0, "" },
        { "caf\xc3\xa9", 5, "caf\xc3\xa9" },
        { "a\"b", 3, "a\\x22b" },
        { "a\\x22b", 6, "a\\x5cx22b" },
        { "a\nb\r\0c", 6, "a\\x0ab\\x0d\\x00c" },
        { "\xff\xfe", 2, "\\xff\\xfe" },
        { "\x1b[31m", 5, "\\x1b[31m" },
        { "\xc2\x85", 2, "\\xc2\\x85" },          /* a control character of Unicode */
        { "\xe2\x80\xa8", 3, "\\xe2\\x80\\xa8" }, /* a line separator, which some take for an end of line */
        { "\xc3\xa9\n", 3, "\\xc3\\xa9\\x0a" },   /* one bad byte, and all of it is spelled out */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[ONCE_TRACE_TEXT_LEN];
        struct guard guard;
        once_trace_text(guard_copy(&guard, cases[i].bytes, cases[i].len), out);
        EXPECT_ROW(cases[i].text, strcmp(out, cases[i].text) == 0);
        guard_release(&guard);
    }
}

/* Cut where a character ends, never in an escape. */
static void text__is_cut(void)
{
    char bytes[300], out[ONCE_TRACE_TEXT_LEN];
    for (size_t i = 0; i < sizeof bytes; i += 2)
        memcpy(bytes + i, "\xc3\xa9", 2);
    once_trace_text(once_span_of(bytes, sizeof bytes), out);
    EXPECT(strlen(out) == ONCE_TRACE_TEXT_LEN - 2);
    memset(bytes, '\n', sizeof bytes);
    once_trace_text(once_span_of(bytes, sizeof bytes), out);
    EXPECT(strlen(out) == 124 && strcmp(out + 120, "\\x0a") == 0);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(parse__only_what_the_standard_says),
        TEST(parse__has_a_bound),
        TEST(format__is_what_was_read),
        TEST(begin__never_makes_what_is_none),
        TEST(find__exactly_one_among_lines),
        TEST(replace__leaves_the_others_as_they_are),
        TEST(text__stays_on_its_line_and_in_its_quotes),
        TEST(text__is_cut),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
