/*
 * fuzz_csv.c - any bytes as a CSV text.
 *
 * Input:      a byte that says how large the pieces are, then the text.
 * Properties: the same rows and refusals whatever the pieces (CSV-2); fields are within bounds
 *             (CSV-1); a text that was read without a refusal, written again with every field in
 *             quotes, is read as the same rows.
 */
#include "core/span.h"
#include "reconcile/csv.h"

#include "fuzz.h"

/* Longer texts only repeat what shorter ones show, slowly. */
enum { TEXT_LEN_MAX = 64 << 10 };

/* Appends a row, in quotes; a refusal as a byte that no quoted text has outside of its quotes. */
static void write_row(const struct reconcile_csv *csv, enum reconcile_csv_got got, struct once_buf *out, bool *bad)
{
    if (got == RECONCILE_CSV_BAD) {
        HOLDS(csv->wrong != NULL && csv->line >= 1);
        once_buf_addf(out, "!%s", csv->wrong);
        *bad = true;
        return;
    }
    HOLDS(csv->count >= 1 && csv->count <= ONCE_RECONCILE_FIELD_COUNT_MAX);
    for (size_t i = 0; i < csv->count; i++) {
        once_span field = reconcile_csv_field(csv, i);
        once_buf_addf(out, "%s\"", i > 0 ? "," : "");
        for (size_t at = 0; at < field.len; at++) {
            if (field.ptr[at] == '"')
                once_buf_add_byte(out, '"');
            once_buf_add_byte(out, field.ptr[at]);
        }
        once_buf_addf(out, "\"");
    }
    once_buf_addf(out, "\r\n");
}

static void read_all(once_span text, size_t step, struct once_buf *out, bool *bad)
{
    struct reconcile_csv *csv = malloc(sizeof *csv);
    HOLDS(csv != NULL);
    reconcile_csv_init(csv, ',');
    enum reconcile_csv_got got;
    while (text.len > 0) {
        once_span piece = once_span_of(text.ptr, text.len < step ? text.len : step);
        text = once_span_skip(text, piece.len);
        while ((got = reconcile_csv_next(csv, &piece)) != RECONCILE_CSV_MORE)
            write_row(csv, got, out, bad);
        HOLDS(piece.len == 0);
    }
    got = reconcile_csv_end(csv);
    if (got != RECONCILE_CSV_MORE)
        write_row(csv, got, out, bad);
    reconcile_csv_release(csv);
    free(csv);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > TEXT_LEN_MAX)
        return 0;
    once_span text = once_span_of(data + 1, size - 1);
    struct once_buf whole, pieces, again;
    bool bad = false, bad_pieces = false, bad_again = false;
    once_buf_init(&whole, 32 << 20);
    once_buf_init(&pieces, 32 << 20);
    once_buf_init(&again, 32 << 20);
    read_all(text, text.len + 1, &whole, &bad);
    read_all(text, (size_t)data[0] + 1, &pieces, &bad_pieces);
    HOLDS(bad == bad_pieces);
    HOLDS(once_span_equal(once_buf_span(&whole), once_buf_span(&pieces)));
    if (!bad) {
        read_all(once_buf_span(&whole), 4096, &again, &bad_again);
        HOLDS(!bad_again);
        HOLDS(once_span_equal(once_buf_span(&whole), once_buf_span(&again)));
    }
    once_buf_release(&whole);
    once_buf_release(&pieces);
    once_buf_release(&again);
    return 0;
}
