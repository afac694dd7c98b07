/* test_csv.c - RFC 4180, whatever the pieces are; what is not CSV is named by its line. */
#include "reconcile/csv.h"

#include "core/span.h"

#include "../guard.h"
#include "../test.h"

#define TEXT(s) s, sizeof(s) - 1

/* What comes out, as a text: fields between '|', rows end with ';', a refusal is "!LINE:why;". */
static void dump_got(struct reconcile_csv *csv, enum reconcile_csv_got got, struct once_buf *out)
{
    if (got == RECONCILE_CSV_BAD)
        once_buf_addf(out, "!%d:%s;", (int)csv->line, csv->wrong);
    for (size_t i = 0; got == RECONCILE_CSV_ROW && i < csv->count; i++) {
        once_span field = reconcile_csv_field(csv, i);
        once_buf_addf(out, "%s", i > 0 ? "|" : "");
        once_buf_add(out, field);
    }
    if (got == RECONCILE_CSV_ROW)
        once_buf_addf(out, "@%d;", (int)csv->line);
}

/* In pieces of `step` bytes. */
static void dump(const char *text, size_t len, size_t step, struct once_buf *out)
{
    static struct reconcile_csv csv;
    reconcile_csv_init(&csv, ',');
    once_buf_clear(out);
    for (size_t at = 0; at < len; at += step) {
        struct guard guard;
        once_span piece = guard_copy(&guard, text + at, len - at < step ? len - at : step);
        enum reconcile_csv_got got;
        while ((got = reconcile_csv_next(&csv, &piece)) != RECONCILE_CSV_MORE)
            dump_got(&csv, got, out);
        guard_release(&guard);
    }
    dump_got(&csv, reconcile_csv_end(&csv), out);
    reconcile_csv_release(&csv);
}

static const struct row {
    const char *name;
    const char *text;
    size_t len;
    const char *want;
} rows[] = {
    { "nothing", TEXT(""), "" },
    { "two rows", TEXT("a,b\nc,d\n"), "a|b@1;c|d@2;" },
    { "CRLF", TEXT("a,b\r\nc,d\r\n"), "a|b@1;c|d@2;" },
    { "no line end at the end", TEXT("a,b\nc,d"), "a|b@1;c|d@2;" },
    { "empty fields", TEXT(",\n,,\n"), "|@1;||@2;" },
    { "an empty field at the end of the text", TEXT("a,"), "a|@1;" },
    { "empty lines are no rows", TEXT("\n\r\na\n\n\nb\n\r\n"), "a@3;b@6;" },
    { "a quoted empty field is a row", TEXT("\"\"\n"), "@1;" },
    { "quotes", TEXT("\"a\",\"b\"\n"), "a|b@1;" },
    { "a quote written twice", TEXT("\"a\"\"b\",\"\"\"\"\n"), "a\"b|\"@1;" },
    { "a separator in quotes", TEXT("\"a,b\",c\n"), "a,b|c@1;" },
    { "line ends in quotes, and the line numbers after", TEXT("\"a\nb\r\nc\"\nd\n"), "a\nb\r\nc@1;d@4;" },
    { "a quoted field before CRLF", TEXT("\"a\"\r\nb\r\n"), "a@1;b@2;" },
    { "a quoted field at the end", TEXT("a,\"b\""), "a|b@1;" },
    { "white space counts", TEXT(" a , b \n"), " a | b @1;" },
    { "a byte order mark",
      TEXT("\xef\xbb\xbf"
           "a,b\n"),
      "a|b@1;" },
    { "a byte order mark and a quote", TEXT("\xef\xbb\xbf\"a\",b\n"), "a|b@1;" },
    { "a byte order mark alone", TEXT("\xef\xbb\xbf"), "" },
    { "half a byte order mark is text", TEXT("\xef\xbb"), "\xef\xbb@1;" },
    { "half a byte order mark, then text", TEXT("\xef\xbb,\n"), "\xef\xbb|@1;" },
    { "a byte order mark later is text", TEXT("a\n\xef\xbb\xbf\n"), "a@1;\xef\xbb\xbf@2;" },
    { "any bytes", TEXT("\xff\x01,\x7f\n"), "\xff\x01|\x7f@1;" },
    { "a quote inside a plain field", TEXT("a\"b,c\nd\n"),
      "!1:a quote inside a field that does not begin with one;d@2;" },
    { "text after a closing quote", TEXT("\"a\"b,c\nd\n"), "!1:text after a closing quote;d@2;" },
    { "a lone CR", TEXT("a\rb\nc\n"), "!1:a carriage return without a line feed;c@2;" },
    { "a lone CR at the end", TEXT("a\r"), "!1:a carriage return without a line feed;" },
    { "two CR", TEXT("a\r\r\nb\n"), "!1:a carriage return without a line feed;b@2;" },
    { "a NUL", TEXT("a\0b\nc\n"), "!1:a NUL byte;c@2;" },
    { "a NUL in quotes", TEXT("\"\0\"\nc\n"), "!1:a NUL byte;c@2;" },
    { "an open quote at the end", TEXT("x\n\"a,b\nc\n"), "x@1;!2:a quote that is never closed;" },
    { "several bad lines", TEXT("a\"\nb\nc\"\n"),
      "!1:a quote inside a field that does not begin with one;b@2;"
      "!3:a quote inside a field that does not begin with one;" },
};

static void csv__rows(void)
{
    struct once_buf out;
    once_buf_init(&out, 1 << 20);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t step = 1; step <= 7; step++) {
            dump(rows[i].text, rows[i].len, step, &out);
            if (!once_span_equal(once_buf_span(&out), once_span_str(rows[i].want)))
                printf("# pieces of %zu: %.*s\n", step, ONCE_SPAN_ARGS(once_buf_span(&out)));
            EXPECT_ROW(rows[i].name, once_span_equal(once_buf_span(&out), once_span_str(rows[i].want)));
        }
    once_buf_release(&out);
}

/* CSV-1: a row that never ends, and one with too many fields. */
static void csv__bounds(void)
{
    static char text[ONCE_RECONCILE_ROW_LEN_MAX + 8];
    struct once_buf out;
    once_buf_init(&out, 4 << 20);
    memset(text, 'x', sizeof text);
    memcpy(text + ONCE_RECONCILE_ROW_LEN_MAX + 1, "\nnext\n", 6);
    dump(text, ONCE_RECONCILE_ROW_LEN_MAX + 7, 65536, &out);
    EXPECT(once_span_equal(once_buf_span(&out), ONCE_LIT("!1:the row is longer than 1 MiB;next@2;")));
    text[ONCE_RECONCILE_ROW_LEN_MAX] = '\n';
    dump(text, ONCE_RECONCILE_ROW_LEN_MAX + 1, 65536, &out);
    EXPECT(out.len == ONCE_RECONCILE_ROW_LEN_MAX + 3); /* one byte less fits */
    memset(text, ',', ONCE_RECONCILE_FIELD_COUNT_MAX);
    memcpy(text + ONCE_RECONCILE_FIELD_COUNT_MAX, "\nnext\n", 6);
    dump(text, ONCE_RECONCILE_FIELD_COUNT_MAX + 6, 100, &out);
    EXPECT(once_span_equal(once_buf_span(&out), ONCE_LIT("!1:too many fields;next@2;")));
    dump(text + 1, ONCE_RECONCILE_FIELD_COUNT_MAX + 5, 100, &out);
    EXPECT(once_span_starts(once_buf_span(&out), ONCE_LIT("|||")));
    once_buf_release(&out);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = { TEST(csv__rows), TEST(csv__bounds) };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
