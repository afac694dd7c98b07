/*
 * writer.c - the lanes, and the thread of each: it waits for work, takes a batch and makes a step of it.
 */
#include "engine/admission.h"
#include "engine/inner.h"
#include "os/os.h"
#include "os/point.h"
#include "os/thread.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>

/* ------------------------------------------------------------------ lanes */

static void append(struct lane *lane, struct job *job)
{
    job->next = NULL;
    *lane->last = job;
    lane->last = &job->next;
    lane->queued++;
}

static void wake(struct lane *lane)
{
    if (lane->idle)
        pthread_cond_signal(&lane->work);
    lane->idle = false;
}

/* Whose a job is. What is not about one record is the first lane's, where it cannot run aside. */
static struct lane *lane_of(struct engine *e, const struct job *job)
{
    bool either = job->kind == JOB_OPERATION || job->kind == JOB_PULSE;
    bool second = e->active > 1 && either && (job->op.record[15] & 1) != 0;
    return &e->lanes[second];
}

/* All that waits in a lane's queue, as a list. */
static struct job *take_queue(struct lane *lane)
{
    struct job *first = lane->first;
    lane->first = NULL;
    lane->last = &lane->first;
    lane->queued = 0;
    return first;
}

static void append_all(struct engine *e, struct job *job)
{
    for (struct job *next; job != NULL; job = next) {
        next = job->next;
        append(lane_of(e, job), job);
    }
}

/* Claims that wait are asked again; what they wait for may come by another lane now. */
static void deal_waiters(struct engine *e, struct lane *lane)
{
    struct job *ready = lane->ready;
    parking_due(&lane->parking, INT64_MAX, false, &ready);
    lane->ready = NULL;
    for (struct job *next; ready != NULL; ready = next) {
        next = ready->next;
        ready->next = lane_of(e, ready)->ready;
        lane_of(e, ready)->ready = ready;
    }
}

/* Deals everything that waits in the lanes out anew. None of them may be busy. What the second
 * has is older than what has come for the same records since it was closed: it goes first. */
static void deal(struct engine *e)
{
    static_assert(LANES_MAX == 2, "the order of more lanes' queues");
    for (unsigned i = 0; i < LANES_MAX; i++)
        deal_waiters(e, &e->lanes[i]);
    struct job *first = take_queue(&e->lanes[0]), *second = take_queue(&e->lanes[1]);
    append_all(e, second);
    append_all(e, first);
}

static void *writer(void *arg);

bool engine_lane_start(struct lane *lane)
{
    lane->started = once_thread_start(&lane->thread, writer, lane) == 0;
    return lane->started;
}

bool engine_lane_init(struct engine *e, struct lane *lane, struct once_store *store)
{
    lane->batch = calloc(e->batch_max, sizeof *lane->batch);
    lane->ops = calloc(e->batch_max, sizeof *lane->ops);
    lane->store = store;
    return lane->batch != NULL && lane->ops != NULL;
}

/* The second lane, with a handle of its own. It stays, once it is there. */
static bool open_second(struct engine *e)
{
    struct lane *lane = &e->lanes[1];
    if (lane->started)
        return true;
    struct once_store *store = NULL;
    if (once_store_another(e->lanes[0].store, &store, NULL) != ONCE_OK)
        return false;
    if (engine_lane_init(e, lane, store) && engine_lane_start(lane))
        return true;
    free(lane->batch);
    free(lane->ops);
    once_store_close(store);
    return false;
}

/* From the first lane's thread, between two batches, with the lock. */
static void use_lanes(struct engine *e, unsigned count)
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
    while (e->lanes[1].busy)
        pthread_cond_wait(&e->rested, &e->lock);
    deal(e);
    wake(&e->lanes[1]);
}

void engine_append(struct engine *e, struct job *job, bool quietly)
{
    struct lane *lane = lane_of(e, job);
    append(lane, job);
    if (!quietly || lane->queued >= e->batch_max) /* a whole batch waits for nobody */
        wake(lane);
}

void engine_wake(struct engine *e)
{
    for (unsigned i = 0; i < LANES_MAX; i++)
        wake(&e->lanes[i]);
}

/* ------------------------------------------------------------------ the writers */

/* Waits, with the lock given up in between, until all who are expected are there, or it has been
 * long enough. */
static void await_callers(struct lane *lane)
{
    struct engine *e = lane->engine;
    uint64_t start = once_os_monotonic_ns(), grown = start, now = start;
    uint32_t seen = lane->queued;
    while (muster_goes_on(&lane->muster, start, grown, now)) {
        pthread_mutex_unlock(&e->lock);
        sched_yield();
        pthread_mutex_lock(&e->lock);
        if (lane->queued >= lane->muster.expected || e->stopping)
            return;
        now = once_os_monotonic_ns();
        if (lane->queued > seen)
            grown = now;
        seen = lane->queued;
    }
}

static void gather(struct lane *lane)
{
    uint32_t before = lane->queued;
    if (!muster_begins(&lane->muster, before))
        return;
    await_callers(lane);
    muster_ends(&lane->muster, before, lane->queued);
}

static void wait_for_work(struct lane *lane)
{
    struct engine *e = lane->engine;
    while (lane->first == NULL && lane->ready == NULL && !e->stopping) {
        once_time next = parking_next(&lane->parking);
        if (next != ONCE_NEVER && e->impatient)
            break;
        lane->idle = true;
        if (next == ONCE_NEVER) {
            pthread_cond_wait(&lane->work, &e->lock);
        } else {
            struct timespec until = { .tv_sec = next / 1000, .tv_nsec = next % 1000 * 1000000 };
            if (pthread_cond_timedwait(&lane->work, &e->lock, &until) == ETIMEDOUT)
                break;
        }
    }
    lane->idle = false;
}

/* Takes the next batch: woken claims first, then the queue. Jobs that run by themselves
 * end a batch. */
static size_t take_batch(struct lane *lane)
{
    struct engine *e = lane->engine;
    size_t count = 0, max = e->batch_max;
    while (lane->ready != NULL && count < max) {
        lane->batch[count++] = lane->ready;
        lane->ready = lane->ready->next;
    }
    while (lane->first != NULL && count < max) {
        struct job *job = lane->first;
        if (job->kind != JOB_OPERATION && count > 0)
            break;
        lane->first = job->next;
        if (lane->first == NULL)
            lane->last = &lane->first;
        lane->queued--;
        lane->batch[count++] = job;
        if (job->kind != JOB_OPERATION)
            break;
    }
    if (e->quota != NULL)
        admission_before(e->quota, lane->batch, count, once_os_lease_ms());
    lane->busy = count > 0;
    return count;
}

/* Waits for the next batch and takes it. 0: there is none, see whether to stop. */
static size_t next_batch(struct lane *lane, bool *stop)
{
    struct engine *e = lane->engine;
    bool leads = lane == &e->lanes[0];
    pthread_mutex_lock(&e->lock);
    lane->busy = false;
    pthread_cond_signal(&e->rested);
    if (leads)
        use_lanes(e, e->stopping ? 1 : e->tuner.lanes);
    wait_for_work(lane);
    bool stopping = e->stopping;
    if (leads && stopping)
        use_lanes(e, 1);
    if (!stopping)
        gather(lane);
    parking_due(&lane->parking, once_os_monotonic_ms(), stopping || e->impatient, &lane->ready);
    size_t count = take_batch(lane);
    *stop = count == 0 && stopping;
    if (leads)
        e->stopped = *stop;
    pthread_mutex_unlock(&e->lock);
    return count;
}

static void run_batch(struct lane *lane, size_t count)
{
    struct engine *e = lane->engine;
    if (lane->batch[0]->kind != JOB_OPERATION) {
        engine_run_alone(lane, lane->batch[0]);
        engine_answer(e, lane->batch, 1);
        return;
    }
    ONCE_POINT("engine.taken"); /* operations only: what else there is comes when a clock says so */
    uint64_t start = once_os_monotonic_ns();
    lane_run(lane, lane->batch, count);
    uint64_t end = once_os_monotonic_ns();
    lane->muster.step_ns = end - start;
    engine_answer_step(lane, lane->batch, count);
    pthread_mutex_lock(&e->lock);
    tuner_note(&e->tuner, count, end);
    pthread_mutex_unlock(&e->lock);
}

static void *writer(void *arg)
{
    struct lane *lane = arg;
    pthread_setname_np(pthread_self(), "once-writer");
    once_os_short_slices();
    for (;;) {
        bool stop;
        size_t count = next_batch(lane, &stop);
        if (stop)
            return NULL;
        if (count > 0)
            run_batch(lane, count);
    }
}

/* ------------------------------------------------------------------ those who bring work */

void engine_kick(struct engine *e)
{
    bool rests[LANES_MAX];
    pthread_mutex_lock(&e->lock);
    for (unsigned i = 0; i < LANES_MAX; i++) {
        rests[i] = e->lanes[i].first != NULL && e->lanes[i].idle;
        e->lanes[i].idle = e->lanes[i].idle && !rests[i];
    }
    pthread_mutex_unlock(&e->lock);
    for (unsigned i = 0; i < LANES_MAX; i++)
        if (rests[i])
            pthread_cond_signal(&e->lanes[i].work); /* without the lock, which it needs at once */
}
