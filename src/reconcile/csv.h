/*
 * csv.h - parses a CSV text that arrives in pieces.
 *
 * Model:      RFC 4180: fields between separators, rows between CRLF or LF; a field in quotes
 *             may contain both, and a quote written twice. A byte order mark at the
 *             beginning and empty lines are skipped.
 * Invariants: CSV-1 memory is bounded by ONCE_RECONCILE_ROW_LEN_MAX, whatever the text.
 *             CSV-2 the result does not depend on how the text is cut into pieces.
 *             CSV-3 text that is not CSV is refused with its line number, never repaired: a quote
 *                inside a plain field, text after a closing quote, a lone CR, a NUL, an open
 *                quote at the end. Parsing continues at the next line, to report more errors.
 * Callers:    reconcile/export.c. Pure.
 */
#ifndef ONCE_RECONCILE_CSV_H
#define ONCE_RECONCILE_CSV_H

#include "core/buf.h"
#include "once.h"

/* The bound for a row, or a line of JSON, which limits memory. */
#define ONCE_RECONCILE_ROW_LEN_MAX (1 << 20)
#define ONCE_RECONCILE_FIELD_COUNT_MAX 1024

enum reconcile_csv_got {
    RECONCILE_CSV_MORE, /* all bytes were taken, the row is not complete */
    RECONCILE_CSV_ROW,
    RECONCILE_CSV_BAD, /* `wrong` is the error, `line` its line */
};

struct reconcile_csv {
    uint8_t separator;
    int state;
    bool taken; /* the last row was returned: begin the next */
    struct once_buf text;
    uint32_t ends[ONCE_RECONCILE_FIELD_COUNT_MAX]; /* the end of each field in `text` */
    size_t count;
    uint64_t at;   /* the line that is being read */
    uint64_t line; /* the line that the row began on */
    const char *wrong;
};

void reconcile_csv_init(struct reconcile_csv *csv, uint8_t separator);
void reconcile_csv_release(struct reconcile_csv *csv);

/* Takes bytes from the front of *bytes up to the end of a row. */
enum reconcile_csv_got reconcile_csv_next(struct reconcile_csv *csv, once_span *bytes);
/* Ends the text: the last row may have no line end. MORE: there is no last row. */
enum reconcile_csv_got reconcile_csv_end(struct reconcile_csv *csv);

/* A field of the row; valid until the next call of the functions above. */
once_span reconcile_csv_field(const struct reconcile_csv *csv, size_t index);

#endif
