/*
 * terms.h - interprets the other side's data by the options.
 *
 * Options name the columns of an export, or the members of a JSON object: the key, the outcome,
 * the time, the answer, and values to compare. Options also list its words for outcomes:
 * nothing is guessed, and a word that is in no list is an error.
 *
 * Values to compare are encoded as one byte string: for each, a length of four bytes (all ones:
 * absent) and its bytes.
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
    once_span names[RECONCILE_FIELD_COUNT];    /* empty: not given */
    once_span ours[RECONCILE_VALUE_COUNT_MAX]; /* per value: "status", or a JSON Pointer into our answer */
    size_t value_count;
    bool answer_whole;  /* --answer '*': the whole JSON text */
    bool needs_body;    /* a value is compared with our stored answer */
    once_span words[4]; /* per outcome (reconcile_theirs): "a,b,c"; "*": all others */
};

/* The fields of a row or an object, by the numbers above. */
struct reconcile_fields {
    bool there[RECONCILE_FIELD_COUNT];
    once_span value[RECONCILE_FIELD_COUNT];
};

/* "COLUMN=status" or "COLUMN=/pointer". */
bool reconcile_terms_add_value(struct reconcile_terms *terms, once_span text);

/* The meaning of an outcome's word; false: the word is in no list. */
bool reconcile_terms_outcome(const struct reconcile_terms *terms, once_span word, enum reconcile_theirs *theirs);

/* Fills `fields` from a JSON object; values live in `memory`. */
ONCE_CHECKED once_result reconcile_terms_pick(const struct reconcile_terms *terms, once_span text,
                                              struct reconcile_fields *fields, struct once_buf *memory,
                                              struct once_error *err);

/* Makes a charge of the fields, except the key. Encoded values are appended to `memory`; `fields`
 * must not point into it, unless it is large enough not to move. */
ONCE_CHECKED once_result reconcile_terms_read(const struct reconcile_terms *terms,
                                              const struct reconcile_fields *fields, struct reconcile_charge *charge,
                                              struct once_buf *memory, struct once_error *err);

/* Compares the values with the record's. If they differ, or cannot be compared, `text` explains
 * it. */
enum reconcile_kind reconcile_terms_compare(const struct reconcile_terms *terms, const struct once_record *record,
                                            once_span values, char *text, size_t text_len);

#endif
