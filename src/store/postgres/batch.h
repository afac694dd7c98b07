/*
 * batch.h - operations as one transaction: one pipeline, one wait.
 *
 * A batch goes one of three ways, by what the last batches of the connection were like:
 *   sets     BEGIN, one call for all claims (once.claim_many), one for all finishes (once.finish_many), the rest one
 *            by one, COMMIT. Always possible.
 *   fast     claims of new keys and finishes of our own grants are inserted without a look at what is there
 *            (once.fast_batch). If anything is in the way the transaction fails, and the batch goes the way of sets.
 *   replays  all are claims of finished keys: one call that only reads (once.fast_replays). If one is not, likewise.
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

/* So many batches in a row were of one kind; how many it takes until the next is expected to be. */
struct pg_streak {
    unsigned lasted, wanted;
};

/* A summary of the last batches. */
struct pg_recent_batches {
    struct pg_streak all_new;     /* claims of new keys, finishes by their holders */
    struct pg_streak all_replays; /* claims, each answered by a replay */
    bool half_replays;            /* of the last batch's claims, half at least */
    once_time database_at;        /* the database's clock, as it last told it; 0: it has not */
    once_time steady_at;          /* our own steady clock then */
};

/* As a store's apply(). Repeats by itself what lost a race. *wrote: something was changed. */
once_result pg_batch_apply(struct pg_conn *pg, struct pg_recent_batches *recent, struct once_op *const *ops,
                           size_t count, bool *wrote, struct once_error *err);
/* After a new connection. */
void pg_recent_batches_clear(struct pg_recent_batches *recent);

#endif
