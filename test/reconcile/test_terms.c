/* test_terms.c - names, words, values and times of the other side. */
#include "reconcile/terms.h"
#include "reconcile/when.h"

#include "core/span.h"

#include "../guard.h"
#include "../test.h"

#define DAY_MS 86400000LL

/* ---------------------------------------------------------------- times */

static const struct when {
    const char *text;
    once_time want; /* -1: refused */
} whens[] = {
    { "1970-01-01", 0 },
    { "1970-01-01T00:00:00Z", 0 },
    { "2026-11-15", 20772 * DAY_MS },
    { "2026-11-15T14:01:51Z", 20772 * DAY_MS + 50511000 },
    { "2026-11-15 14:01:51 +0000", 20772 * DAY_MS + 50511000 },
    { "2026-11-15T14:01:51.5Z", 20772 * DAY_MS + 50511500 },
    { "2026-11-15T14:01:51.123999Z", 20772 * DAY_MS + 50511123 },
    { "2026-11-15T16:01:51+02:00", 20772 * DAY_MS + 50511000 },
    { "2026-11-15t10:31:51-0330", 20772 * DAY_MS + 50511000 },
    { "2024-02-29", 19782 * DAY_MS },
    { "2000-03-01", 11017 * DAY_MS },
    { "2100-03-01", 47541 * DAY_MS },
    { "9999-12-31T23:59:60Z", 253402300800000 },
    { "@0", 0 },
    { "@1785585600", 1785585600000 },
    { "@1785585600.25", 1785585600250 },
    { "", -1 },
    { "@", -1 },
    { "@-1", -1 },
    { "@1x", -1 },
    { "@1.", -1 },
    { "@1234567890123", -1 }, /* milliseconds, most likely */
    { "2026", -1 },
    { "2026-13-01", -1 },
    { "2026-00-01", -1 },
    { "2026-04-31", -1 },
    { "2025-02-29", -1 },
    { "2100-02-29", -1 },
    { "1969-12-31", -1 },
    { "2026-11-15T14:01Z", -1 },
    { "2026-11-15T14:01:51", -1 }, /* in which zone? */
    { "2026-11-15T24:00:00Z", -1 },
    { "2026-11-15T14:60:00Z", -1 },
    { "2026-11-15T14:01:51.Z", -1 },
    { "2026-11-15T14:01:51+2", -1 },
    { "2026-11-15T14:01:51+24:00", -1 },
    { "2026-11-15T14:01:51Zx", -1 },
    { "1970-01-01T00:00:00+01:00", -1 },
};

static void when__is_read_or_refused(void)
{
    for (size_t i = 0; i < sizeof whens / sizeof *whens; i++) {
        struct guard guard;
        once_time time = -1;
        once_span text = guard_copy(&guard, whens[i].text, strlen(whens[i].text));
        bool ok = once_when_parse(text, &time);
        EXPECT_ROW(whens[i].text, ok == (whens[i].want >= 0));
        EXPECT_ROW(whens[i].text, !ok || time == whens[i].want);
        guard_release(&guard);
    }
}

/* ---------------------------------------------------------------- JSON */

static const struct pick {
    const char *text, *name;
    once_result result;
    const char *want; /* NULL: not there; "{": a list or an object */
} picks[] = {
    { "{\"a\":\"x\"}", "a", ONCE_OK, "x" },
    { " \t{ \"a\" : \"x\" } \r", "a", ONCE_OK, "x" },
    { "{\"a\":\"x\"}", "b", ONCE_OK, NULL },
    { "{\"a\":null}", "a", ONCE_OK, NULL },
    { "{\"a\":25.00}", "a", ONCE_OK, "25.00" },
    { "{\"a\":true}", "a", ONCE_OK, "true" },
    { "{\"a\":false}", "a", ONCE_OK, "false" },
    { "{\"a\":\"\"}", "a", ONCE_OK, "" },
    { "{\"a\":\"\\u00e4\\n\"}", "a", ONCE_OK, "\xc3\xa4\n" },
    { "{\"a\":{\"b\":\"x\"}}", "a", ONCE_OK, "{" },
    { "{\"a\":{\"b\":\"x\"}}", "b", ONCE_OK, NULL },
    { "{\"a\":{\"b\":\"x\"}}", "/a/b", ONCE_OK, "x" },
    { "{\"a\":[1,[2,3]],\"b\":4}", "/a/1/1", ONCE_OK, "3" },
    { "{\"a\":[1,[2,3]],\"b\":4}", "/a/0", ONCE_OK, "1" },
    { "{\"a\":[1,[2,3]],\"b\":4}", "/b", ONCE_OK, "4" },
    { "{\"a\":[1,[2,3]],\"b\":4}", "/a/2", ONCE_OK, NULL },
    { "{\"a/b\":1,\"c~d\":2}", "a/b", ONCE_OK, "1" },
    { "{\"a/b\":1,\"c~d\":2}", "/a~1b", ONCE_OK, "1" },
    { "{\"a/b\":1,\"c~d\":2}", "c~d", ONCE_OK, "2" },
    { "{\"ab\":1}", "a", ONCE_OK, NULL },
    { "{\"a\":1}", "ab", ONCE_OK, NULL },
    { "{\"\":1}", "/", ONCE_OK, "1" },
    { "{\"a\":1,\"a\":2}", "a", ONCE_INVALID, NULL },
    { "{\"a\":null,\"a\":2}", "a", ONCE_INVALID, NULL },
    { "{\"b\":1,\"b\":2}", "a", ONCE_OK, NULL }, /* nobody asked */
    { "[{\"a\":1}]", "a", ONCE_INVALID, NULL },
    { "\"a\"", "a", ONCE_INVALID, NULL },
    { "", "a", ONCE_INVALID, NULL },
    { "{\"a\":1", "a", ONCE_INVALID, NULL },
    { "{\"a\":1}x", "a", ONCE_INVALID, NULL },
    { "{\"a\":1}{\"a\":2}", "a", ONCE_INVALID, NULL },
    { "{\"a\":\"\xff\"}", "a", ONCE_INVALID, NULL },
    { "{'a':1}", "a", ONCE_INVALID, NULL },
};

static void json__picks(void)
{
    for (size_t i = 0; i < sizeof picks / sizeof *picks; i++) {
        struct guard guard;
        struct once_buf memory;
        struct once_error err;
        once_buf_init(&memory, 1000);
        struct reconcile_pick pick = { .name = once_span_str(picks[i].name) };
        once_span text = guard_copy(&guard, picks[i].text, strlen(picks[i].text));
        once_result r = reconcile_json_pick(text, &pick, 1, &memory, &err);
        EXPECT_ROW(picks[i].text, r == picks[i].result);
        bool composite = picks[i].want != NULL && picks[i].want[0] == '{';
        EXPECT_ROW(picks[i].text, r != ONCE_OK || pick.found == (picks[i].want != NULL));
        EXPECT_ROW(picks[i].text, r != ONCE_OK || pick.composite == composite);
        EXPECT_ROW(picks[i].text, r != ONCE_OK || picks[i].want == NULL || composite ||
                                      once_span_equal(pick.value, once_span_str(picks[i].want)));
        once_buf_release(&memory);
        guard_release(&guard);
    }
}

static void json__depth_and_long_paths_are_bounded(void)
{
    static char deep[4096];
    struct once_buf memory;
    struct once_error err;
    struct reconcile_pick pick = { .name = ONCE_LIT("z") };
    once_buf_init(&memory, 1000);
    size_t at = 0;
    for (int i = 0; i < 200; i++)
        at += (size_t)snprintf(deep + at, sizeof deep - at, "{\"aaaaaa\":");
    EXPECT(reconcile_json_pick(once_span_of(deep, at), &pick, 1, &memory, &err) == ONCE_LIMIT);
    /* A path longer than any name, and what comes after it. */
    struct once_buf text;
    once_buf_init(&text, 1 << 20);
    once_buf_addf(&text, "{\"");
    for (int i = 0; i < 5000; i++)
        once_buf_addf(&text, "~");
    once_buf_addf(&text, "\":{\"z\":1},\"z\":2}");
    EXPECT(reconcile_json_pick(once_buf_span(&text), &pick, 1, &memory, &err) == ONCE_OK);
    EXPECT(pick.found && once_span_equal(pick.value, ONCE_LIT("2")));
    once_buf_release(&text);
    once_buf_release(&memory);
}

/* ---------------------------------------------------------------- words and values */

static void words__are_listed_not_guessed(void)
{
    struct reconcile_terms terms = {
        .words = { [RECONCILE_DONE] = ONCE_LIT("paid,succeeded"), [RECONCILE_NOT_DONE] = ONCE_LIT("failed") }
    };
    enum reconcile_theirs theirs;
    EXPECT(reconcile_terms_outcome(&terms, ONCE_LIT("paid"), &theirs) && theirs == RECONCILE_DONE);
    EXPECT(reconcile_terms_outcome(&terms, ONCE_LIT("succeeded"), &theirs) && theirs == RECONCILE_DONE);
    EXPECT(reconcile_terms_outcome(&terms, ONCE_LIT("failed"), &theirs) && theirs == RECONCILE_NOT_DONE);
    EXPECT(!reconcile_terms_outcome(&terms, ONCE_LIT("Paid"), &theirs));
    EXPECT(!reconcile_terms_outcome(&terms, ONCE_LIT("pai"), &theirs));
    EXPECT(!reconcile_terms_outcome(&terms, ONCE_LIT(""), &theirs));
    EXPECT(!reconcile_terms_outcome(&terms, ONCE_LIT("paid,succeeded"), &theirs));
    terms.words[RECONCILE_UNDECIDED] = ONCE_LIT("*");
    EXPECT(reconcile_terms_outcome(&terms, ONCE_LIT("weird"), &theirs) && theirs == RECONCILE_UNDECIDED);
    EXPECT(reconcile_terms_outcome(&terms, ONCE_LIT("paid"), &theirs) && theirs == RECONCILE_DONE);
}

static const struct value {
    const char *name, *ours, *theirs, *body;
    enum reconcile_kind want;
} values[] = {
    { "a status", "status", "201", "", RECONCILE_EQUAL },
    { "another status", "status", "200", "", RECONCILE_VALUE },
    { "no status there", "status", NULL, "", RECONCILE_VALUE },
    { "a text", "/id", "ch_1", "{\"id\":\"ch_1\"}", RECONCILE_EQUAL },
    { "another text", "/id", "ch_2", "{\"id\":\"ch_1\"}", RECONCILE_VALUE },
    { "one amount, two spellings", "/eur", "25", "{\"eur\":25.00}", RECONCILE_EQUAL },
    { "zeros in front", "/eur", "025.10", "{\"eur\":\"25.1\"}", RECONCILE_EQUAL },
    { "minus nothing", "/eur", "-0.0", "{\"eur\":0}", RECONCILE_EQUAL },
    { "the sign counts", "/eur", "-25", "{\"eur\":25}", RECONCILE_VALUE },
    { "a cent", "/eur", "25.01", "{\"eur\":25.1}", RECONCILE_VALUE },
    { "ten times as much", "/eur", "250", "{\"eur\":25}", RECONCILE_VALUE },
    { "no number", "/eur", "25.", "{\"eur\":25}", RECONCILE_VALUE },
    { "an exponent is a text", "/eur", "1e2", "{\"eur\":100}", RECONCILE_VALUE },
    { "there on neither side", "/eur", NULL, "{}", RECONCILE_EQUAL },
    { "there only here", "/eur", NULL, "{\"eur\":25}", RECONCILE_VALUE },
    { "there only there", "/eur", "25", "{}", RECONCILE_VALUE },
    { "our answer is no JSON", "/eur", "25", "charged", RECONCILE_NOT_ASKED },
};

static void values__are_compared_as_text_or_amount(void)
{
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct reconcile_terms terms = { .value_count = 0 };
        struct once_buf memory;
        struct once_error err;
        struct reconcile_charge charge;
        char spec[100], text[300] = "";
        once_buf_init(&memory, 1000);
        snprintf(spec, sizeof spec, "col=%s", values[i].ours);
        EXPECT_ROW(values[i].name, reconcile_terms_add_value(&terms, once_span_str(spec)));
        struct reconcile_fields fields = { .there[RECONCILE_FIELD_VALUE] = values[i].theirs != NULL,
                                           .value[RECONCILE_FIELD_VALUE] = once_span_str(values[i].theirs) };
        EXPECT_ROW(values[i].name, reconcile_terms_read(&terms, &fields, &charge, &memory, &err) == ONCE_OK);
        const struct once_record record = { .status = 201, .body = once_span_str(values[i].body) };
        EXPECT_ROW(values[i].name,
                   reconcile_terms_compare(&terms, &record, charge.values, text, sizeof text) == values[i].want);
        EXPECT_ROW(values[i].name, (text[0] == '\0') == (values[i].want == RECONCILE_EQUAL));
        once_buf_release(&memory);
    }
}

static void values__have_a_form(void)
{
    static const char *const refused[] = { "", "a", "a=", "=status", "a=b", "a=statuses", "a=/~2" };
    struct reconcile_terms terms = { .value_count = 0 };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        EXPECT_ROW(refused[i], !reconcile_terms_add_value(&terms, once_span_str(refused[i])));
    for (int i = 0; i < RECONCILE_VALUE_COUNT_MAX; i++)
        EXPECT(reconcile_terms_add_value(&terms, ONCE_LIT("a=status")));
    EXPECT(!reconcile_terms_add_value(&terms, ONCE_LIT("a=status")));
}

int main(int argc, char **argv)
{
    static const struct test tests[] = { TEST(when__is_read_or_refused),
                                         TEST(json__picks),
                                         TEST(json__depth_and_long_paths_are_bounded),
                                         TEST(words__are_listed_not_guessed),
                                         TEST(values__are_compared_as_text_or_amount),
                                         TEST(values__have_a_form) };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
