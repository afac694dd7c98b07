/*
 * other.c - jobs that are no operations: looking, checking, expiring, counting. They run by themselves, between batches
 * or aside.
 */
#include "engine/inner.h"
#include "os/os.h"

#include <pthread.h>

static void add_tally(void *arg, once_span tenant, uint64_t records, uint64_t bytes)
{
    struct engine *e = arg;
    pthread_mutex_lock(&e->lock);
    quota_walk_add(e->quota, tenant, records, bytes);
    pthread_mutex_unlock(&e->lock);
}

/* A step of a walk that counts what tenants have. One that begins at 0 begins a walk. */
static once_result run_tally(struct lane *lane, struct once_tally *tally, struct once_error *err)
{
    struct engine *e = lane->engine;
    tally->each = add_tally;
    tally->arg = e;
    if (tally->after == 0) {
        pthread_mutex_lock(&e->lock);
        quota_walk_begin(e->quota);
        pthread_mutex_unlock(&e->lock);
    }
    once_result r = once_store_tally(lane->store, tally, err);
    if (r != ONCE_OK)
        return r;
    pthread_mutex_lock(&e->lock);
    quota_walk_at(e->quota, tally->after, tally->last);
    if (!tally->more)
        quota_walk_end(e->quota, once_os_lease_ms());
    pthread_mutex_unlock(&e->lock);
    return ONCE_OK;
}

static once_result run_other(struct lane *lane, struct job *job, struct once_error *err)
{
    switch (job->kind) {
    case JOB_LIST:
        return once_store_list(lane->store, job->list.filter, job->list.page, err);
    case JOB_SWEEP:
        return once_store_sweep(lane->store, job->sweep, err);
    case JOB_LOOK:
        return once_store_look(lane->store, job->look.wanted, job->look.count, job->look.page, err);
    case JOB_HISTORY:
        return once_store_history(lane->store, job->history.record, job->history.history, err);
    case JOB_EXPIRE:
        return once_store_expire(lane->store, job->expire.budget, &job->expire.removed, &job->expire.more, err);
    case JOB_CHECK:
        return once_store_check(lane->store, &job->check.cursor, job->check.each, job->check.arg, job->check.report,
                                err);
    case JOB_STATS:
        return once_store_stats(lane->store, job->stats, err);
    case JOB_TALLY:
        return run_tally(lane, job->tally, err);
    case JOB_CLOCK:
        return once_store_clock(lane->store, &job->clock, err);
    case JOB_PULSE: {
        struct once_op *op = &job->op;
        once_result r = once_store_apply(lane->store, &op, 1, err);
        return r == ONCE_OK ? op->result : r;
    }
    case JOB_BARRIER:
        return ONCE_OK;
    case JOB_OPERATION:
        break;
    }
    abort();
}

void engine_run_alone(struct lane *lane, struct job *job)
{
    struct once_error *err = &job->op.err;
    if (lane->needs_reopen && lane_reopen(lane, NULL, err) != ONCE_OK)
        job->op.result = ONCE_UNAVAILABLE;
    else
        job->op.result = run_other(lane, job, err);
    atomic_fetch_add(&lane->turns, 1);
    if (job->op.result == ONCE_UNKNOWN) /* expiry can be repeated; the store cannot be trusted until it looked */
        lane_reopen(lane, NULL, NULL);
}

/* Looking, checking and expiring must not hold up the writers: where the store takes steps side by side,
 * they have a handle of their own, in the caller's thread, one at a time. False: there is none. A
 * program that only looks needs no second connection. */
bool engine_run_aside(struct engine *e, struct job *job)
{
    struct once_store *first = e->lanes[0].store;
    if (job->kind == JOB_OPERATION || job->kind == JOB_BARRIER || first->ops->another == NULL)
        return false;
    pthread_mutex_lock(&e->lock);
    bool writes = e->counters.batches > 0;
    pthread_mutex_unlock(&e->lock);
    if (!writes)
        return false;
    pthread_mutex_lock(&e->aside_lock);
    bool there = e->aside.store != NULL || once_store_another(first, &e->aside.store, NULL) == ONCE_OK;
    if (there)
        engine_run_alone(&e->aside, job);
    pthread_mutex_unlock(&e->aside_lock);
    return there;
}
