/*
 * csv.h - rows out of a CSV text that comes in pieces.
 *
 * Model:      RFC 4180: fields between separators, rows between CRLF or LF; a field in quotes
 *             may hold both, and a quote written twice. A byte order mark at the very
 *             beginning is not part of it. Empty lines are no rows.
 * Invariants: CSV-1 memory is bounded by ONCE_RECONCILE_ROW_LEN_MAX, whatever the text.
 *             CSV-2 how the text is cut into pieces changes nothing.
 *             CSV-3 what is not CSV is refused with its line, never repaired: a quote inside a
 *                plain field, text after a closing quote, a lone CR, a NUL, an open quote at
 *                the end. Reading goes on with the next line, to name more than one.
 * Callers:    reconcile/export.c. Pure.
 */
#ifndef ONCE_RECONCILE_CSV_H
#define ONCE_RECONCILE_CSV_H

#include "core/buf.h"
#include "once.h"

/* A row, or a line of JSON: larger is no row of an export, and must not eat the memory. */
#define ONCE_RECONCILE_ROW_LEN_MAX (1 << 20)
#define ONCE_RECONCILE_FIELD_COUNT_MAX 1024

enum reconcile_csv_got {
    RECONCILE_CSV_MORE, /* all bytes were taken, the row is not complete */
    RECONCILE_CSV_ROW,
    RECONCILE_CSV_BAD, /* `wrong` says what, `line` where */
};

struct reconcile_csv {
    uint8_t separator;
    int state;
    bool taken; /* the last row was handed out: begin the next */
    struct once_buf text;
    uint32_t ends[ONCE_RECONCILE_FIELD_COUNT_MAX]; /* in text, of each field */
    size_t count;
    uint64_t at;   /* the line that is being read */
    uint64_t line; /* the line that the row began on */
    const char *wrong;
};

void reconcile_csv_init(struct reconcile_csv *csv, uint8_t separator);
void reconcile_csv_release(struct reconcile_csv *csv);

/* Takes bytes from the front of *bytes up to the end of a row. */
enum reconcile_csv_got reconcile_csv_next(struct reconcile_csv *csv, once_span *bytes);
/* The text has ended: the last row may have no line end. MORE: there is none. */
enum reconcile_csv_got reconcile_csv_end(struct reconcile_csv *csv);

/* Of the row, until the next call. */
once_span reconcile_csv_field(const struct reconcile_csv *csv, size_t index);

#endif
