/*
 * writer.c - the writers: their queues, and the thread of each, which waits for jobs, takes a batch and applies it.
 */
#include "core/err.h"
#include "engine/admission.h"
#include "engine/internal.h"
#include "os/crash_point.h"
#include "os/os.h"
#include "os/thread.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>

/* ------------------------------------------------------------------ queues */

static void append(struct writer *writer, struct job *job)
{
    job->next = NULL;
    *writer->last = job;
    writer->last = &job->next;
    writer->queued++;
}

static void wake(struct writer *writer)
{
    if (writer->idle)
        pthread_cond_signal(&writer->work);
    writer->idle = false;
}

/* The writer that gets a job. Admin jobs that cannot run on their caller's thread go to the first. */
static struct writer *writer_of(struct engine *e, const struct job *job)
{
    bool either = job->kind == JOB_OPERATION || job->kind == JOB_HEALTH;
    bool second = e->active > 1 && either && (job->op.record[15] & 1) != 0;
    return &e->writers[second];
}

/* Empties a writer's queue; returns it as a list. */
static struct job *take_queue(struct writer *writer)
{
    struct job *first = writer->first;
    writer->first = NULL;
    writer->last = &writer->first;
    writer->queued = 0;
    return first;
}

static void append_all(struct engine *e, struct job *job)
{
    for (struct job *next; job != NULL; job = next) {
        next = job->next;
        append(writer_of(e, job), job);
    }
}

/* Waiting claims are applied again: from now on another writer may get the operation that they wait for. */
static void distribute_waiters(struct engine *e, struct writer *writer)
{
    struct job *ready = writer->ready;
    waiters_due(&writer->waiters, INT64_MAX, false, &ready);
    writer->ready = NULL;
    for (struct job *next; ready != NULL; ready = next) {
        next = ready->next;
        ready->next = writer_of(e, ready)->ready;
        writer_of(e, ready)->ready = ready;
    }
}

/* Distributes all queued jobs among the active writers again. No writer may be busy. The second writer's jobs go first:
 * they are older than jobs for the same records that came after it was closed. */
static void distribute(struct engine *e)
{
    static_assert(WRITERS_MAX == 2, "the order of more lanes' queues");
    for (unsigned i = 0; i < WRITERS_MAX; i++)
        distribute_waiters(e, &e->writers[i]);
    struct job *first = take_queue(&e->writers[0]), *second = take_queue(&e->writers[1]);
    append_all(e, second);
    append_all(e, first);
}

static void *writer_main(void *arg);

void writer_init(struct writer *writer, struct engine *e, uint32_t waiters_max, bool shared)
{
    writer->engine = e;
    writer->last = &writer->first;
    writer->waiters = (struct waiters){ .max = waiters_max, .shared = shared };
    once_cond_init(&writer->work);
}

static void free_batch(struct writer *writer)
{
    free(writer->batch);
    free(writer->ops);
    writer->batch = NULL;
    writer->ops = NULL;
}

void writer_release(struct writer *writer)
{
    pthread_cond_destroy(&writer->work);
    free_batch(writer);
}

once_result writer_start(struct writer *writer, struct once_store *store, struct once_error *err)
{
    uint32_t max = writer->engine->batch_max;
    writer->batch = calloc(max, sizeof *writer->batch);
    writer->ops = calloc(max, sizeof *writer->ops);
    writer->store = store;
    once_result r = ONCE_OK;
    if (writer->batch == NULL || writer->ops == NULL)
        r = once_fail(err, ONCE_NO_MEMORY, "no memory for the engine");
    else if (once_thread_start(&writer->thread, writer_main, writer) != 0)
        r = once_fail(err, ONCE_UNAVAILABLE, "cannot start the writer thread");
    writer->started = r == ONCE_OK;
    if (!writer->started)
        free_batch(writer);
    return r;
}

/* Starts the second writer, with its own store handle. It stays until the engine stops. */
static bool open_second(struct engine *e)
{
    struct writer *writer = &e->writers[1];
    if (writer->started)
        return true;
    struct once_store *store = NULL;
    if (once_store_open_another(e->writers[0].store, &store, NULL) != ONCE_OK)
        return false;
    if (writer_start(writer, store, NULL) == ONCE_OK)
        return true;
    once_store_close(store);
    return false;
}

/* On the first writer's thread, between two batches, with the lock held. */
static void use_writers(struct engine *e, unsigned count)
{
    if (count == e->active)
        return;
    if (count > 1) {
        pthread_mutex_unlock(&e->lock);
        bool opened = open_second(e);
        pthread_mutex_lock(&e->lock);
        if (!opened) {
            tuner_give_up(&e->tuner);
            return;
        }
    }
    e->active = count;
    while (e->writers[1].busy)
        pthread_cond_wait(&e->batch_done, &e->lock);
    distribute(e);
    wake(&e->writers[1]);
}

void engine_append(struct engine *e, struct job *job, bool without_kick)
{
    struct writer *writer = writer_of(e, job);
    append(writer, job);
    if (!without_kick || writer->queued >= e->batch_max) /* a full batch starts at once */
        wake(writer);
}

void engine_wake(struct engine *e)
{
    for (unsigned i = 0; i < WRITERS_MAX; i++)
        wake(&e->writers[i]);
}

/* ------------------------------------------------------------------ the thread */

/* The batch delay: releases the lock in between. */
static void wait_while_it_pays(struct writer *writer)
{
    struct engine *e = writer->engine;
    uint64_t start = once_os_monotonic_ns(), grown = start, now = start;
    uint32_t seen = writer->queued;
    while (batch_wait_continues(&writer->batch_wait, start, grown, now)) {
        pthread_mutex_unlock(&e->lock);
        sched_yield();
        pthread_mutex_lock(&e->lock);
        if (writer->queued >= writer->batch_wait.expected || e->stopping)
            return;
        now = once_os_monotonic_ns();
        if (writer->queued > seen)
            grown = now;
        seen = writer->queued;
    }
}

static void wait_for_callers(struct writer *writer)
{
    uint32_t before = writer->queued;
    if (!batch_wait_begins(&writer->batch_wait, before))
        return;
    wait_while_it_pays(writer);
    batch_wait_ended(&writer->batch_wait, before, writer->queued);
}

static void wait_for_work(struct writer *writer)
{
    struct engine *e = writer->engine;
    while (writer->first == NULL && writer->ready == NULL && !e->stopping) {
        once_time next = waiters_next_due(&writer->waiters);
        if (next != ONCE_NEVER && e->waits_ended)
            break;
        writer->idle = true;
        if (next == ONCE_NEVER) {
            pthread_cond_wait(&writer->work, &e->lock);
        } else {
            struct timespec until = { .tv_sec = next / 1000, .tv_nsec = next % 1000 * 1000000 };
            if (pthread_cond_timedwait(&writer->work, &e->lock, &until) == ETIMEDOUT)
                break;
        }
    }
    writer->idle = false;
}

/* Takes the next batch: claims that need not wait any longer, then the queue up to the next admin job. An admin job is
 * a batch of one. */
static size_t take_batch(struct writer *writer)
{
    struct engine *e = writer->engine;
    size_t count = 0, max = e->batch_max;
    while (writer->ready != NULL && count < max) {
        writer->batch[count++] = writer->ready;
        writer->ready = writer->ready->next;
    }
    while (writer->first != NULL && count < max) {
        struct job *job = writer->first;
        if (job->kind != JOB_OPERATION && count > 0)
            break;
        writer->first = job->next;
        if (writer->first == NULL)
            writer->last = &writer->first;
        writer->queued--;
        writer->batch[count++] = job;
        if (job->kind != JOB_OPERATION)
            break;
    }
    if (e->quota != NULL)
        admission_before(e->quota, writer->batch, count, once_os_lease_ms());
    writer->busy = count > 0;
    return count;
}

/* Waits for the next batch and takes it. 0: there is nothing to do, or *stop. */
static size_t next_batch(struct writer *writer, bool *stop)
{
    struct engine *e = writer->engine;
    bool is_first = writer == &e->writers[0];
    pthread_mutex_lock(&e->lock);
    writer->busy = false;
    pthread_cond_signal(&e->batch_done);
    if (is_first)
        use_writers(e, e->stopping ? 1 : e->tuner.writers);
    wait_for_work(writer);
    bool stopping = e->stopping;
    if (is_first && stopping)
        use_writers(e, 1);
    if (!stopping)
        wait_for_callers(writer);
    waiters_due(&writer->waiters, once_os_monotonic_ms(), stopping || e->waits_ended, &writer->ready);
    size_t count = take_batch(writer);
    *stop = count == 0 && stopping;
    if (is_first)
        e->stopped = *stop;
    pthread_mutex_unlock(&e->lock);
    return count;
}

static void run_batch(struct writer *writer, size_t count)
{
    struct engine *e = writer->engine;
    if (writer->batch[0]->kind != JOB_OPERATION) {
        engine_run_admin_job(writer, writer->batch[0]);
        engine_answer(e, writer->batch, 1);
        return;
    }
    ONCE_CRASH_POINT("engine.taken"); /* operations only: admin jobs are timed by clocks, and a test counts these */
    uint64_t start = once_os_monotonic_ns();
    writer_apply(writer, writer->batch, count);
    uint64_t end = once_os_monotonic_ns();
    writer->batch_wait.batch_ns = end - start;
    engine_answer_step(writer, writer->batch, count);
    pthread_mutex_lock(&e->lock);
    tuner_note(&e->tuner, count, end);
    pthread_mutex_unlock(&e->lock);
}

static void *writer_main(void *arg)
{
    struct writer *writer = arg;
    pthread_setname_np(pthread_self(), "once-writer");
    once_os_short_slices();
    for (;;) {
        bool stop;
        size_t count = next_batch(writer, &stop);
        if (stop)
            return NULL;
        if (count > 0)
            run_batch(writer, count);
    }
}

/* ------------------------------------------------------------------ waking */

void engine_kick(struct engine *e)
{
    bool was_idle[WRITERS_MAX];
    pthread_mutex_lock(&e->lock);
    for (unsigned i = 0; i < WRITERS_MAX; i++) {
        was_idle[i] = e->writers[i].first != NULL && e->writers[i].idle;
        e->writers[i].idle = e->writers[i].idle && !was_idle[i];
    }
    pthread_mutex_unlock(&e->lock);
    for (unsigned i = 0; i < WRITERS_MAX; i++)
        if (was_idle[i])
            pthread_cond_signal(&e->writers[i].work); /* after unlocking: the woken thread takes the lock at once */
}
