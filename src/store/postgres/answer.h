/*
 * answer.h - reads the answers of the database's functions into replies.
 *
 * A call for a set answers the operations that succeeded at once in rows of arrays, in the order of records or fences,
 * expected replays in rows of once.replayed, and the others in rows of once.answer (sql/postgres, 35_many.sql).
 */
#ifndef ONCE_STORE_POSTGRES_ANSWER_H
#define ONCE_STORE_POSTGRES_ANSWER_H

#include "store/postgres/ask.h"
#include "store/store.h"

#include <libpq-fe.h>

/* The columns of once.answer. */
enum pg_answer_column {
    PG_ANSWER_ARM,
    PG_ANSWER_RECORD,
    PG_ANSWER_FENCE,
    PG_ANSWER_ATTEMPT,
    PG_ANSWER_STATE,
    PG_ANSWER_RETRYABLE,
    PG_ANSWER_STATUS,
    PG_ANSWER_HEADERS,
    PG_ANSWER_BODY,
    PG_ANSWER_BODY_DROPPED,
    PG_ANSWER_POINT,
    PG_ANSWER_CHECKPOINT,
    PG_ANSWER_RETRY_AFTER,
    PG_ANSWER_TAKEOVER,
    PG_ANSWER_CREATED,
    PG_ANSWER_CLAIMED,
    PG_ANSWER_LEASE_UNTIL,
    PG_ANSWER_LEASE_LIVE,
    PG_ANSWER_FINISHED,
    PG_ANSWER_EXPIRES,
    PG_ANSWER_RETENTION,
    PG_ANSWER_FINGERPRINT,
    PG_ANSWER_TENANT,
    PG_ANSWER_KEY,
    PG_ANSWER_REQUEST,
    PG_ANSWER_BODY_RETENTION,
    PG_ANSWER_BODY_EXPIRED,
    PG_ANSWER_FORGOTTEN,
    PG_ANSWER_ROUTE,
    PG_ANSWER_UNDELIVERED,
    PG_ANSWER_COUNT,
};

/* The record of a row whose once.answer begins at column `at`. Spans are the result's. */
struct once_record pg_read_record(const PGresult *result, int row, int at);

/* Gives the operations their replies. `ops` are the operations of the statement, in the same order. ONCE_CORRUPT: the
 * database has other functions than ours.
 */
once_result pg_read_claims(const PGresult *result, struct once_op *const *ops, size_t count, struct once_error *err);
once_result pg_read_finishes(const PGresult *result, struct once_op *const *ops, size_t count, struct once_error *err);
once_result pg_read_fast_batch(const PGresult *result, const struct pg_fast_batch *fast, struct once_error *err);
/* *all is false: at least one is not a replay. */
once_result pg_read_replays(const PGresult *result, struct once_op *const *ops, size_t count, bool *all,
                            struct once_error *err);
once_result pg_read_other(const PGresult *result, struct once_op *op, struct once_error *err);

#endif
