/*
 * writer.h - one writer: a queue of its own, a handle of the store of its own, a thread.
 *
 * The engine has one, or two where the store takes steps side by side and that turns out to
 * be faster (tuner.h). A record always belongs to one of them, so what is done to it keeps
 * its order.
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
    bool idle; /* waits for work */
    bool busy; /* has a batch in hand */
    struct waiters waiters;
    struct job *ready; /* woken claims, for the next batch */

    /* the thread's own */
    struct job **batch;   /* as many as a batch may have */
    struct once_op **ops; /* theirs */
    struct batch_wait batch_wait;
    bool needs_reopen;            /* the store failed and has not been reopened since */
    uint64_t recovered;           /* operations whose lost answer was found, since it was last asked for */
    _Atomic uint64_t store_calls; /* calls of the store that came back, however; read by others */
};

void writer_init(struct writer *writer, struct engine *engine, uint32_t waiters_max, bool shared);
void writer_release(struct writer *writer);
/* With a handle of the store, which stays the caller's if this fails: starts the thread. */
once_result writer_start(struct writer *writer, struct once_store *store, struct once_error *err);

/* recover.c: applies operations as one step, and finds out what became of a commit whose answer was lost. Every job
 * has its result then. */
void writer_apply(struct writer *writer, struct job **jobs, size_t count);
once_result writer_reopen(struct writer *writer, enum once_fate *fate, struct once_error *err);

#endif
