/*
 * join.h - what the other side said, by key, and what is to be reported: on disk.
 *
 * A temporary SQLite database without a name: its file is unlinked as soon as it is made, so
 * that nothing stays behind whatever ends the program. In memory is only a cache of fixed
 * size, so an export of any length can be compared.
 *
 * Model:      charges by key (met: a record was found for it), and findings in the order they
 *             are reported in: by kind, then as they were found. A finding is of one record, or
 *             of one charge that has none.
 */
#ifndef ONCE_RECONCILE_JOIN_H
#define ONCE_RECONCILE_JOIN_H

#include "once.h"
#include "reconcile/judge.h"

struct reconcile_join;

struct reconcile_finding {
    enum reconcile_kind kind; /* as it looked when it was found */
    uint64_t number;
    once_span match;           /* the key that the other side knows; empty: its line has none */
    struct once_record record; /* as it was listed; state NONE: there is none */
    uint64_t line;             /* of a charge without a key */
    once_span said;            /* its word; or why the other side could not be asked */
};

/* *out is written only on success. */
ONCE_CHECKED once_result reconcile_join_open(struct reconcile_join **out, struct once_error *err);
void reconcile_join_close(struct reconcile_join *join);

/* Adds a line of an export, or an answer. A key that is there already: its lines are counted,
 * and it counts as done if one of them says so, else as undecided if one of them does. */
ONCE_CHECKED once_result reconcile_join_add(struct reconcile_join *join, once_span key,
                                            const struct reconcile_charge *charge, struct once_error *err);
/* What is said about `key`; absent if nothing. Spans live until the next call. *met may be NULL. */
ONCE_CHECKED once_result reconcile_join_find(struct reconcile_join *join, once_span key,
                                             struct reconcile_charge *charge, bool *met, struct once_error *err);
ONCE_CHECKED once_result reconcile_join_match(struct reconcile_join *join, once_span key, struct once_error *err);
/* The first charge after `after` (by key) that no record was found for; its key is empty when
 * there is none. Spans live until the next call. */
ONCE_CHECKED once_result reconcile_join_next_unmatched(struct reconcile_join *join, once_span after, once_span *key,
                                                       struct reconcile_charge *charge, struct once_error *err);

ONCE_CHECKED once_result reconcile_join_report(struct reconcile_join *join, const struct reconcile_finding *finding,
                                               struct once_error *err);
/* The finding after (kind, number) of *finding; false when that was the last. Spans live until
 * the next call of this function. */
ONCE_CHECKED once_result reconcile_join_next(struct reconcile_join *join, struct reconcile_finding *finding,
                                             bool *there, struct once_error *err);

#endif
