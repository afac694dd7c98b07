/*
 * writer.h - a writer: a queue, a store handle and a thread.
 *
 * The engine has one, or two if the store can run transactions in parallel and two are measured to be faster (tuner.h).
 * All operations of a record go to the same writer, so they keep their order.
 */
#ifndef ONCE_ENGINE_WRITER_H
#define ONCE_ENGINE_WRITER_H

#include "engine/batch_wait.h"
#include "engine/engine.h"
#include "engine/waiters.h"

#include <pthread.h>
#include <stdatomic.h>

struct writer {
    struct engine *engine;
    struct once_store *store;
    pthread_t thread;
    bool started;

    /* guarded by the engine's lock */
    pthread_cond_t work;
    struct job *first, **last; /* the queue */
    uint32_t queued;
    bool idle; /* waits for `work` */
    bool busy; /* has a batch */
    struct waiters waiters;
    struct job *ready; /* claims that need not wait any longer: for the next batch */

    /* used by the thread only */
    struct job **batch;   /* room for the largest batch */
    struct once_op **ops; /* their operations */
    struct batch_wait batch_wait;
    bool needs_reopen;            /* the store failed and has not been reopened since */
    uint64_t recovered;           /* operations whose lost answer was found, since answer.c last added them up */
    _Atomic uint64_t store_calls; /* calls of the store that returned, with any result; other threads read it */
};

void writer_init(struct writer *writer, struct engine *engine, uint32_t waiters_max, bool shared);
void writer_release(struct writer *writer);
/* Starts the thread. `store` stays the caller's if this fails. */
once_result writer_start(struct writer *writer, struct once_store *store, struct once_error *err);

/* recover.c: applies a batch in one transaction, and recovers if the commit's answer was lost. Every job has its result
 * then. */
void writer_apply(struct writer *writer, struct job **jobs, size_t count);
once_result writer_reopen(struct writer *writer, enum once_fate *fate, struct once_error *err);

#endif
