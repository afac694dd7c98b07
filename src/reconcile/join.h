/*
 * join.h - the charges of the other side by key, and the findings to report: on disk.
 *
 * A temporary SQLite database without a name: its file is unlinked as soon as it is created, so
 * that no file remains however the program ends. Only a cache of fixed size is in memory, so
 * an export of any length can be compared.
 *
 * Model:      charges by key (met: a record was found for it), and findings in the order of the
 *             report: by kind, then by number. A finding is about one record, or about one charge
 *             without a record.
 */
#ifndef ONCE_RECONCILE_JOIN_H
#define ONCE_RECONCILE_JOIN_H

#include "once.h"
#include "reconcile/judge.h"

struct reconcile_join;

struct reconcile_finding {
    enum reconcile_kind kind; /* the verdict when it was found */
    uint64_t number;
    once_span match;           /* the other side's key; empty: its line has none */
    struct once_record record; /* as listed; state NONE: no record */
    uint64_t line;             /* of a charge without a key */
    once_span said;            /* the other side's outcome; or why it could not be asked */
};

/* *out is written only on success. */
ONCE_CHECKED once_result reconcile_join_open(struct reconcile_join **out, struct once_error *err);
void reconcile_join_close(struct reconcile_join *join);

/* Adds a line of an export, or an answer. Further lines of a key are counted; the key is done if
 * one of its lines is done, else undecided if one is undecided. */
ONCE_CHECKED once_result reconcile_join_add(struct reconcile_join *join, once_span key,
                                            const struct reconcile_charge *charge, struct once_error *err);
/* Finds the charge of `key`; without one, it is RECONCILE_ABSENT. Spans are valid until the next call. `met` may be
 * NULL. */
ONCE_CHECKED once_result reconcile_join_find(struct reconcile_join *join, once_span key,
                                             struct reconcile_charge *charge, bool *met, struct once_error *err);
ONCE_CHECKED once_result reconcile_join_match(struct reconcile_join *join, once_span key, struct once_error *err);
/* The first charge after `after` (by key) without a record; *key is empty after the last.
 * Spans are valid until the next call. */
ONCE_CHECKED once_result reconcile_join_next_unmatched(struct reconcile_join *join, once_span after, once_span *key,
                                                       struct reconcile_charge *charge, struct once_error *err);

ONCE_CHECKED once_result reconcile_join_report(struct reconcile_join *join, const struct reconcile_finding *finding,
                                               struct once_error *err);
/* Reads the finding after (kind, number) of *finding; *there is false after the last. Spans are
 * valid until the next call of this function. */
ONCE_CHECKED once_result reconcile_join_next(struct reconcile_join *join, struct reconcile_finding *finding,
                                             bool *there, struct once_error *err);

#endif
