/*
 * batch.h - operations as one transaction: one pipeline, one wait.
 *
 * BEGIN, one call for all claims, one for all finishes, the rest one by one, COMMIT.
 *
 * Invariants: K4 answers are believed after COMMIT said so, without a warning: a WARNING
 *                during COMMIT means that the wait for a standby was cut short (FACT-6).
 *             K10 a connection lost after anything was sent is ONCE_UNKNOWN, and closed.
 *                COMMIT is never cancelled.
 */
#ifndef ONCE_STORE_POSTGRES_BATCH_H
#define ONCE_STORE_POSTGRES_BATCH_H

#include "store/postgres/conn.h"
#include "store/store.h"

/* As a store's apply(). Repeats by itself what lost a race. *wrote: something was changed. */
once_result pg_batch_apply(struct pg_conn *pg, struct once_op *const *ops, size_t count, bool *wrote,
                           struct once_error *err);

#endif
