/*
 * ask.h - sends operations as calls of the database's functions.
 *
 * Each sends one statement, in pipeline mode; postgres/answer.h reads what comes back. Claims must be in the order of
 * their records, finishes in the order of their fences.
 */
#ifndef ONCE_STORE_POSTGRES_ASK_H
#define ONCE_STORE_POSTGRES_ASK_H

#include "store/postgres/conn.h"
#include "store/postgres/grants.h"
#include "store/store.h"

/* replays_first: most are expected to be replays, and are looked for as such before they are tried as new ones. */
once_result pg_ask_claims(struct pg_conn *pg, struct once_op *const *ops, size_t count, bool replays_first,
                          struct once_error *err);
once_result pg_ask_finishes(struct pg_conn *pg, struct once_op *const *ops, size_t count, struct once_error *err);
/* The fast way for both (sql/postgres, 36_fast_path.sql): first the claims, then finishes of remembered grants, all of
 * one slot. */
struct pg_fast_batch {
    struct once_op *const *ops;
    size_t claims, finishes;
    const struct pg_grant *granted; /* of the finishes */
};
once_result pg_ask_fast_batch(struct pg_conn *pg, const struct pg_fast_batch *fast, struct once_error *err);
/* The fast way for claims that are all expected to be replays. */
once_result pg_ask_replays(struct pg_conn *pg, struct once_op *const *ops, size_t count, struct once_error *err);
once_result pg_ask_other(struct pg_conn *pg, const struct once_op *op, struct once_error *err);

#endif
