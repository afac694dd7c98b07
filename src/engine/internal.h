/*
 * internal.h - struct engine, for the files that implement it: engine.c (submitting, start and stop), writer.c (the
 * writers and their threads), recover.c (one batch), answer.c (answers and counters) and admin_jobs.c.
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
    int eventfd; /* -1: callbacks run on a writer's thread */

    pthread_mutex_t lock; /* guards the following, and the marked fields of struct writer */
    struct writer writers[WRITERS_MAX];
    unsigned active;           /* how many of them get jobs */
    pthread_cond_t batch_done; /* a writer finished its batch */
    struct tuner tuner;
    bool stopping;
    bool waits_ended;                      /* engine_end_waits() */
    bool stopped;                          /* no job is accepted any more */
    struct job *finished, **finished_last; /* poll: answered, waiting for dispatch */
    struct once_stats counters;
    struct once_engine_stats engine_stats;
    struct quota *quota; /* NULL: no limits; does not change after the first job */
    struct route_stats *route_stats;
    struct recent_events *recent_events; /* NULL: not recorded */

    pthread_mutex_t admin_writer_lock; /* guards the following; never taken while holding `lock` */
    struct writer admin_writer;        /* a store handle for admin jobs on their caller's thread; no thread, no queue */
};

/* answer.c: answers a batch. Callers that poll get one signal for all of it. */
void engine_answer(struct engine *engine, struct job **jobs, size_t count);
/* Answers a batch of operations after its commit, and counts them; claims that may wait go to the waiters instead. */
void engine_answer_step(struct writer *writer, struct job **jobs, size_t count);
/* True: called from a callback of engine_dispatch(), which kicks after all have run. */
bool engine_will_kick(const struct engine *engine);
void engine_forget_dispatching(const struct engine *engine); /* a callback of its dispatch closed it */

/* admin_jobs.c: runs the job with this writer's store; on the calling thread with its own store handle. */
void engine_run_admin_job(struct writer *writer, struct job *job);
bool engine_run_on_admin_writer(struct engine *engine, struct job *job);

/* writer.c, with the lock held. */
void engine_append(struct engine *engine, struct job *job, bool without_kick);
void engine_wake(struct engine *engine); /* idle writers */

#endif
