/* csv.c - see reconcile/csv.h. */
#include "reconcile/csv.h"

#include "core/span.h"

#include <assert.h>

enum state {
    MARK_1, /* a byte order mark may come: EF BB BF */
    MARK_2,
    MARK_3,
    FIELD_BEGIN,
    PLAIN,
    QUOTED,
    QUOTE,          /* a quote in a quoted field: its end, or the first of two */
    CARRIAGE,       /* a CR, which an LF must follow */
    CARRIAGE_EMPTY, /* the same, at the beginning of a field */
    SKIP,           /* the rest of a line that was refused */
};

void reconcile_csv_init(struct reconcile_csv *csv, uint8_t separator)
{
    *csv = (struct reconcile_csv){ .separator = separator, .state = MARK_1, .at = 1, .line = 1 };
    once_buf_init(&csv->text, ONCE_RECONCILE_ROW_LEN_MAX);
}

void reconcile_csv_release(struct reconcile_csv *csv)
{
    once_buf_release(&csv->text);
}

static void begin_row(struct reconcile_csv *csv)
{
    if (!csv->taken)
        return;
    csv->taken = false;
    csv->count = 0;
    csv->line = csv->at;
    once_buf_clear(&csv->text);
}

static enum reconcile_csv_got refuse(struct reconcile_csv *csv, const char *wrong)
{
    csv->wrong = wrong;
    csv->state = SKIP;
    csv->taken = true;
    return RECONCILE_CSV_BAD;
}

/* Ends a field; false: the row has too many. */
static bool end_field(struct reconcile_csv *csv)
{
    if (csv->count == ONCE_RECONCILE_FIELD_COUNT_MAX)
        return false;
    csv->ends[csv->count++] = (uint32_t)csv->text.len;
    return true;
}

static enum reconcile_csv_got end_row(struct reconcile_csv *csv)
{
    bool empty = csv->count == 0 && csv->text.len == 0 && csv->state == FIELD_BEGIN;
    csv->state = FIELD_BEGIN;
    csv->taken = true;
    if (empty)
        return RECONCILE_CSV_MORE;
    if (!end_field(csv)) {
        csv->wrong = "too many fields";
        return RECONCILE_CSV_BAD;
    }
    return RECONCILE_CSV_ROW;
}

static enum reconcile_csv_got add(struct reconcile_csv *csv, uint8_t byte)
{
    once_buf_add_byte(&csv->text, byte);
    if (csv->text.result == ONCE_OK)
        return RECONCILE_CSV_MORE;
    return refuse(csv, csv->text.result == ONCE_LIMIT ? "the row is longer than 1 MiB" : "out of memory");
}

/* After a field: takes a separator or the end of the row. */
static enum reconcile_csv_got take_end(struct reconcile_csv *csv, uint8_t byte, const char *otherwise)
{
    if (byte == csv->separator) {
        if (!end_field(csv))
            return refuse(csv, "too many fields");
        csv->state = FIELD_BEGIN;
        return RECONCILE_CSV_MORE;
    }
    if (byte == '\n')
        return end_row(csv);
    return refuse(csv, otherwise);
}

static enum reconcile_csv_got take_in_field(struct reconcile_csv *csv, uint8_t byte)
{
    switch (csv->state) {
    case FIELD_BEGIN:
        if (byte == '"') {
            csv->state = QUOTED;
            return RECONCILE_CSV_MORE;
        }
        if (byte == csv->separator || byte == '\n')
            return take_end(csv, byte, NULL);
        csv->state = PLAIN;
        return add(csv, byte);
    case PLAIN:
        if (byte == '"')
            return refuse(csv, "a quote inside a field that does not begin with one");
        if (byte == csv->separator || byte == '\n')
            return take_end(csv, byte, NULL);
        return add(csv, byte);
    case QUOTED:
        if (byte != '"')
            return add(csv, byte);
        csv->state = QUOTE;
        return RECONCILE_CSV_MORE;
    default: /* QUOTE */
        if (byte != '"')
            return take_end(csv, byte, "text after a closing quote");
        csv->state = QUOTED;
        return add(csv, byte);
    }
}

static enum reconcile_csv_got take(struct reconcile_csv *csv, uint8_t byte)
{
    switch (csv->state) {
    case SKIP:
        if (byte == '\n') {
            csv->state = FIELD_BEGIN;
            csv->taken = true;
        }
        return RECONCILE_CSV_MORE;
    case CARRIAGE:
    case CARRIAGE_EMPTY:
        if (byte != '\n')
            return refuse(csv, "a carriage return without a line feed");
        csv->state = csv->state == CARRIAGE_EMPTY ? FIELD_BEGIN : PLAIN;
        return end_row(csv);
    default:
        if (byte == '\0')
            return refuse(csv, "a NUL byte");
        if (byte == '\r' && csv->state != QUOTED) {
            /* A line that contains only CRLF is empty, too. */
            csv->state = csv->state == FIELD_BEGIN ? CARRIAGE_EMPTY : CARRIAGE;
            return RECONCILE_CSV_MORE;
        }
        return take_in_field(csv, byte);
    }
}

/* Skips a byte order mark; if the mark is not complete, its bytes are text. */
static enum reconcile_csv_got take_mark(struct reconcile_csv *csv, uint8_t byte)
{
    static const uint8_t mark[] = { 0xef, 0xbb, 0xbf };
    int seen = csv->state - MARK_1;
    if (byte == mark[seen]) {
        csv->state = seen == 2 ? FIELD_BEGIN : csv->state + 1;
        return RECONCILE_CSV_MORE;
    }
    csv->state = FIELD_BEGIN;
    for (int i = 0; i < seen; i++)
        (void)take(csv, mark[i]); /* two bytes of a plain field */
    return take(csv, byte);
}

enum reconcile_csv_got reconcile_csv_next(struct reconcile_csv *csv, once_span *bytes)
{
    while (bytes->len > 0) {
        uint8_t byte = bytes->ptr[0];
        begin_row(csv);
        enum reconcile_csv_got got = csv->state <= MARK_3 ? take_mark(csv, byte) : take(csv, byte);
        if (got == RECONCILE_CSV_BAD && byte == '\n' && csv->state == SKIP)
            csv->state = FIELD_BEGIN; /* its line ends here */
        *bytes = once_span_skip(*bytes, 1);
        if (byte == '\n')
            csv->at++;
        if (got != RECONCILE_CSV_MORE)
            return got;
    }
    return RECONCILE_CSV_MORE;
}

enum reconcile_csv_got reconcile_csv_end(struct reconcile_csv *csv)
{
    static const uint8_t mark[] = { 0xef, 0xbb };
    begin_row(csv);
    if (csv->state == MARK_2 || csv->state == MARK_3) {
        int seen = csv->state - MARK_1;
        csv->state = FIELD_BEGIN;
        for (int i = 0; i < seen; i++)
            (void)take(csv, mark[i]);
    }
    switch (csv->state) {
    case QUOTED:
        return refuse(csv, "a quote that is never closed");
    case CARRIAGE:
    case CARRIAGE_EMPTY:
        return refuse(csv, "a carriage return without a line feed");
    case MARK_1:
    case SKIP:
        return RECONCILE_CSV_MORE;
    default:
        return end_row(csv);
    }
}

once_span reconcile_csv_field(const struct reconcile_csv *csv, size_t index)
{
    assert(index < csv->count);
    size_t begin = index > 0 ? csv->ends[index - 1] : 0;
    size_t len = csv->ends[index] - begin;
    return once_span_of(len > 0 ? csv->text.ptr + begin : NULL, len);
}
