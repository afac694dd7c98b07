/* engine.c - see engine.h. */
#include "core/err.h"
#include "engine/internal.h"
#include "os/os.h"
#include "os/thread.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ------------------------------------------------------------------ submitting */

static once_result put(struct engine *e, struct job *job, bool without_kick, struct once_error *err)
{
    job->submitted_ns = once_os_monotonic_ns();
    pthread_mutex_lock(&e->lock);
    bool stopped = e->stopped, full = e->writers[0].queued + e->writers[1].queued >= e->queue_max;
    e->counters.busy += full;
    if (job->kind == JOB_OPERATION && job->request.verb == ONCE_VERB_CLAIM)
        job->route = route_stats_find(e->route_stats, job->request.claim.route);
    if (full && job->kind == JOB_OPERATION && job->request.verb == ONCE_VERB_CLAIM)
        route_stats_refused(e->route_stats, job->route);
    if (!full && !stopped)
        engine_append(e, job, without_kick);
    if (full)
        engine_wake(e); /* all jobs may have been submitted without a kick */
    pthread_mutex_unlock(&e->lock);
    if (stopped)
        return once_fail(err, ONCE_UNAVAILABLE, "the store is being closed");
    if (full)
        return once_fail(err, ONCE_BUSY, "%u operations are waiting already; try again later", e->queue_max);
    return ONCE_OK;
}

once_result engine_submit(struct engine *e, struct job *job, struct once_error *err)
{
    return put(e, job, false, err);
}

once_result engine_submit_async(struct engine *e, struct job *job, struct once_error *err)
{
    return put(e, job, engine_will_kick(e), err);
}

once_result engine_submit_without_kick(struct engine *e, struct job *job, struct once_error *err)
{
    return put(e, job, true, err);
}

static once_result wait_for_answer(struct engine *e, struct job *job, struct once_error *err)
{
    sem_t answered;
    sem_init(&answered, 0, 0);
    job->answered = &answered;
    once_result r = engine_submit(e, job, err);
    while (r == ONCE_OK && sem_wait(&answered) != 0)
        ; /* interrupted */
    sem_destroy(&answered);
    return r;
}

once_result engine_call(struct engine *e, struct job *job, struct once_error *err)
{
    if (!engine_run_on_admin_writer(e, job)) {
        once_result r = wait_for_answer(e, job, err);
        if (r != ONCE_OK)
            return r;
    }
    if (job->op.result != ONCE_OK && err != NULL) {
        *err = job->op.err;
        err->result = job->op.result;
    }
    return job->op.result;
}

int engine_eventfd(const struct engine *e)
{
    return e->eventfd;
}

void engine_counters(struct engine *e, struct once_stats *stats)
{
    pthread_mutex_lock(&e->lock);
    stats->operations = e->counters.operations;
    stats->batches = e->counters.batches;
    stats->busy = e->counters.busy;
    stats->recovered = e->counters.recovered;
    stats->fenced = e->counters.fenced;
    stats->replays = e->counters.replays;
    stats->executions = e->counters.executions;
    pthread_mutex_unlock(&e->lock);
}

void engine_read_stats(struct engine *e, struct once_engine_stats *out)
{
    pthread_mutex_lock(&e->lock);
    *out = e->engine_stats;
    out->queued = e->writers[0].queued + e->writers[1].queued;
    out->queue_max = e->queue_max;
    out->waiting = e->writers[0].waiters.count + e->writers[1].waiters.count;
    out->store_calls = atomic_load(&e->writers[0].store_calls) + atomic_load(&e->writers[1].store_calls);
    pthread_mutex_unlock(&e->lock);
}

/* ------------------------------------------------------------------ quotas */

void engine_set_quota(struct engine *e, struct quota *quota)
{
    pthread_mutex_lock(&e->lock);
    quota_free(e->quota);
    e->quota = quota;
    pthread_mutex_unlock(&e->lock);
}

once_result engine_usage(struct engine *e, struct once_usage *usage, struct once_error *err)
{
    struct job job = { .kind = JOB_USAGE, .usage = usage };
    assert(e->quota != NULL);
    return engine_call(e, &job, err);
}

void engine_quota_counters(struct engine *e, struct quota_counters *out)
{
    *out = (struct quota_counters){ .scans = 0 };
    pthread_mutex_lock(&e->lock);
    if (e->quota != NULL)
        quota_counters(e->quota, out);
    pthread_mutex_unlock(&e->lock);
}

size_t engine_read_route_stats(struct engine *e, struct engine_route_stats *out, struct engine_lease_counts *leases)
{
    pthread_mutex_lock(&e->lock);
    route_stats_leases(e->route_stats, once_os_monotonic_ms(), leases);
    size_t count = route_stats_read(e->route_stats, out);
    pthread_mutex_unlock(&e->lock);
    return count;
}

bool engine_record_recent_events(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    if (e->recent_events == NULL)
        e->recent_events = recent_events_new(once_os_clock.wall(NULL));
    bool watched = e->recent_events != NULL;
    pthread_mutex_unlock(&e->lock);
    return watched;
}

bool engine_recent_events(struct engine *e, const uint8_t record[16], struct recent_events_view *out)
{
    pthread_mutex_lock(&e->lock);
    bool kept = e->recent_events != NULL && recent_events_read(e->recent_events, record, out);
    pthread_mutex_unlock(&e->lock);
    return kept;
}

void engine_count_step(struct engine *e, once_span route)
{
    pthread_mutex_lock(&e->lock);
    e->engine_stats.claims[ONCE_ARM_IN_PROGRESS]++;
    route_stats_waited(e->route_stats, route_stats_find(e->route_stats, route));
    pthread_mutex_unlock(&e->lock);
}

/* ------------------------------------------------------------------ start, stop */

static void engine_free(struct engine *e)
{
    engine_forget_dispatching(e);
    if (e->eventfd >= 0)
        close(e->eventfd);
    for (unsigned i = 0; i < WRITERS_MAX; i++)
        writer_release(&e->writers[i]);
    pthread_cond_destroy(&e->batch_done);
    pthread_mutex_destroy(&e->lock);
    route_stats_free(e->route_stats);
    recent_events_free(e->recent_events);
    pthread_mutex_destroy(&e->admin_writer_lock);
    quota_free(e->quota);
    free(e);
}

once_result engine_start(struct once_store *store, const struct once_options *options, struct engine **out,
                         struct once_error *err)
{
    struct engine *e = calloc(1, sizeof *e);
    if (e == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the engine");
    e->queue_max = options->queue_len;
    e->batch_max = options->batch_len;
    e->poll = options->poll;
    e->active = 1;
    e->admin_writer.engine = e;
    e->finished_last = &e->finished;
    tuner_init(&e->tuner);
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->admin_writer_lock, NULL);
    pthread_cond_init(&e->batch_done, NULL);
    for (unsigned i = 0; i < WRITERS_MAX; i++)
        writer_init(&e->writers[i], e, options->waiter_len, store->shared);
    e->eventfd = e->poll ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    once_result r = ONCE_OK;
    e->route_stats = route_stats_new();
    if (e->route_stats == NULL)
        r = once_fail(err, ONCE_NO_MEMORY, "no memory for the engine");
    else if (e->poll && e->eventfd < 0)
        r = once_fail(err, ONCE_UNAVAILABLE, "cannot make an eventfd: %m");
    else
        r = writer_start(&e->writers[0], store, err);
    if (r != ONCE_OK) {
        engine_free(e);
        return r;
    }
    *out = e;
    return ONCE_OK;
}

/* Runs the callbacks that wait for dispatch, and those of the jobs that they submit, while the writers still run. */
static void dispatch_all(struct engine *e)
{
    bool more = true;
    while (more) {
        struct job barrier = { .kind = JOB_BARRIER };
        if (engine_call(e, &barrier, NULL) == ONCE_BUSY)
            sched_yield();
        pthread_mutex_lock(&e->lock);
        more = e->writers[1].queued > 0 || e->writers[1].busy;
        pthread_mutex_unlock(&e->lock);
        more = engine_dispatch(e, SIZE_MAX) > 0 || more;
    }
}

static void wake_all(struct engine *e)
{
    for (unsigned i = 0; i < WRITERS_MAX; i++)
        pthread_cond_signal(&e->writers[i].work);
}

void engine_end_waits(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->waits_ended = true;
    wake_all(e);
    pthread_mutex_unlock(&e->lock);
}

void engine_stop(struct engine *e)
{
    if (e->poll)
        dispatch_all(e);
    pthread_mutex_lock(&e->lock);
    e->stopping = true;
    wake_all(e);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->writers[0].thread, NULL);
    if (e->writers[1].started) {
        pthread_join(e->writers[1].thread, NULL);
        once_store_close(e->writers[1].store);
    }
    if (e->admin_writer.store != NULL)
        once_store_close(e->admin_writer.store);
    while (engine_dispatch(e, SIZE_MAX) > 0)
        ;
    engine_free(e);
}
