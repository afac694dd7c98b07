/*
 * terms.h - what the words of the other side mean.
 *
 * An export's columns, or a JSON object's members, are named by options: the key, the outcome,
 * the time, the answer, and values to compare. Its words for outcomes are listed by options,
 * too: nothing is guessed, and a word that is in no list is an error.
 *
 * Values to compare travel as one byte string: for each, a length of four bytes (all ones: not
 * there) and its bytes.
 */
#ifndef ONCE_RECONCILE_TERMS_H
#define ONCE_RECONCILE_TERMS_H

#include "core/buf.h"
#include "reconcile/json.h"
#include "reconcile/judge.h"

enum {
    RECONCILE_FIELD_KEY,
    RECONCILE_FIELD_OUTCOME,
    RECONCILE_FIELD_TIME,
    RECONCILE_FIELD_ANSWER,
    RECONCILE_FIELD_VALUE, /* the first of the values to compare */
    RECONCILE_VALUE_COUNT_MAX = 8,
    RECONCILE_FIELD_COUNT = RECONCILE_FIELD_VALUE + RECONCILE_VALUE_COUNT_MAX,
};

struct reconcile_terms {
    once_span names[RECONCILE_FIELD_COUNT];    /* empty: not wanted */
    once_span ours[RECONCILE_VALUE_COUNT_MAX]; /* per value: "status", or a JSON Pointer into our answer */
    size_t value_count;
    bool answer_whole;  /* --answer '*': all of the JSON text */
    bool needs_body;    /* a value is compared with our stored answer */
    once_span words[4]; /* per outcome (reconcile_theirs): "a,b,c"; "*": all others */
};

/* A row or an object, by the numbers above. */
struct reconcile_fields {
    bool there[RECONCILE_FIELD_COUNT];
    once_span value[RECONCILE_FIELD_COUNT];
};

/* "COLUMN=status" or "COLUMN=/pointer". */
bool reconcile_terms_add_value(struct reconcile_terms *terms, once_span text);

/* The words' meaning; false: it is in no list. */
bool reconcile_terms_outcome(const struct reconcile_terms *terms, once_span word, enum reconcile_theirs *theirs);

/* Fills `fields` from a JSON object; values live in `memory`. */
ONCE_CHECKED once_result reconcile_terms_pick(const struct reconcile_terms *terms, once_span text,
                                              struct reconcile_fields *fields, struct once_buf *memory,
                                              struct once_error *err);

/* What the fields say: all but the key. Encoded values are appended to `memory`, whose
 * bytes must not move: it was made large enough, or is not what `fields` point into. */
ONCE_CHECKED once_result reconcile_terms_read(const struct reconcile_terms *terms,
                                              const struct reconcile_fields *fields, struct reconcile_charge *charge,
                                              struct once_buf *memory, struct once_error *err);

/* Compares the values with what the record says. Where they differ, or cannot be compared,
 * `text` says which and how. */
enum reconcile_kind reconcile_terms_compare(const struct reconcile_terms *terms, const struct once_record *record,
                                            once_span values, char *text, size_t text_len);

#endif
