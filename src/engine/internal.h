/*
 * internal.h - what an engine is made of, for the files that are it: engine.c (callers; start and stop), writer.c
 * (lanes and their threads), answer.c (what comes out) and admin_jobs.c (what is no operation).
 */
#ifndef ONCE_ENGINE_INTERNAL_H
#define ONCE_ENGINE_INTERNAL_H

#include "engine/engine.h"
#include "engine/tuner.h"
#include "engine/writer.h"

enum { WRITERS_MAX = 2 };

struct engine {
    uint32_t queue_max, batch_max;
    bool poll;
    int eventfd; /* -1: callbacks run on a lane's thread */

    pthread_mutex_t lock; /* guards what follows, and what writer.h says */
    struct writer writers[WRITERS_MAX];
    unsigned active;       /* lanes that take work */
    pthread_cond_t rested; /* a lane put its batch down */
    struct tuner tuner;
    bool stopping;
    bool waits_ended;                      /* no claim waits any more */
    bool stopped;                          /* nothing more is taken */
    struct job *finished, **finished_last; /* poll: answered, waiting for dispatch */
    struct once_stats counters;
    struct once_engine_stats engine_stats;
    struct quota *quota; /* NULL: everybody may have everything; does not change after the first job */
    struct route_stats *route_stats;
    struct recent_events *recent_events; /* NULL: nobody wants them */

    pthread_mutex_t admin_writer_lock; /* guards what follows; never taken while the other is held */
    struct writer admin_writer;        /* a handle for what is no operation, without a thread or a queue */
};

/* answer.c: answers a batch. Polled callers are told once for all of it. */
void engine_answer(struct engine *engine, struct job **jobs, size_t count);
/* The same after a step of operations; claims that may wait for another's outcome are parked instead. */
void engine_answer_step(struct writer *writer, struct job **jobs, size_t count);
/* True: this is a callback of engine_dispatch(), which kicks when all have run. */
bool engine_will_kick(const struct engine *engine);
void engine_forget_dispatching(const struct engine *engine); /* it was closed by one */

/* admin_jobs.c: a job that runs by itself; in this thread, if it can. */
void engine_run_admin_job(struct writer *writer, struct job *job);
bool engine_run_on_admin_writer(struct engine *engine, struct job *job);

/* writer.c, with the lock held. */
void engine_append(struct engine *engine, struct job *job, bool quietly);
void engine_wake(struct engine *engine); /* writers that rest */

#endif
