/*
 * admin_jobs.c - jobs that are not operations of the protocol: listing, checking, expiring, counting. They run one at a
 * time: between two batches of a writer, or on their caller's thread.
 */
#include "engine/internal.h"
#include "os/os.h"

#include <pthread.h>

static void add_usage(void *arg, once_span tenant, uint64_t records, uint64_t bytes)
{
    struct engine *e = arg;
    pthread_mutex_lock(&e->lock);
    quota_scan_add(e->quota, tenant, records, bytes);
    pthread_mutex_unlock(&e->lock);
}

/* A step of a scan that counts what tenants use. The step after fence 0 begins a scan. */
static once_result run_usage(struct writer *writer, struct once_usage *usage, struct once_error *err)
{
    struct engine *e = writer->engine;
    usage->each = add_usage;
    usage->arg = e;
    if (usage->after == 0) {
        pthread_mutex_lock(&e->lock);
        quota_scan_begin(e->quota);
        pthread_mutex_unlock(&e->lock);
    }
    once_result r = once_store_usage(writer->store, usage, err);
    if (r != ONCE_OK)
        return r;
    pthread_mutex_lock(&e->lock);
    quota_scan_at(e->quota, usage->after, usage->last);
    if (!usage->more)
        quota_scan_end(e->quota, once_os_lease_ms());
    pthread_mutex_unlock(&e->lock);
    return ONCE_OK;
}

static once_result run_admin_job(struct writer *writer, struct job *job, struct once_error *err)
{
    switch (job->kind) {
    case JOB_LIST:
        return once_store_list(writer->store, job->list.filter, job->list.page, err);
    case JOB_SWEEP:
        return once_store_sweep(writer->store, job->sweep, err);
    case JOB_LOOKUP_MANY:
        return once_store_lookup_many(writer->store, job->lookup_many.wanted, job->lookup_many.count,
                                      job->lookup_many.page, err);
    case JOB_HISTORY:
        return once_store_history(writer->store, job->history.record, job->history.history, err);
    case JOB_EXPIRE:
        return once_store_expire(writer->store, job->expire.budget, &job->expire.removed, &job->expire.more, err);
    case JOB_CHECK:
        return once_store_check(writer->store, &job->check.cursor, job->check.each, job->check.arg, job->check.report,
                                err);
    case JOB_STATS:
        return once_store_stats(writer->store, job->stats, err);
    case JOB_USAGE:
        return run_usage(writer, job->usage, err);
    case JOB_CLOCK:
        return once_store_clock(writer->store, &job->clock, err);
    case JOB_HEALTH: {
        struct once_op *op = &job->op;
        once_result r = once_store_apply(writer->store, &op, 1, err);
        return r == ONCE_OK ? op->result : r;
    }
    case JOB_BARRIER:
        return ONCE_OK;
    case JOB_OPERATION:
        break;
    }
    abort();
}

void engine_run_admin_job(struct writer *writer, struct job *job)
{
    struct once_error *err = &job->op.err;
    if (writer->needs_reopen && writer_reopen(writer, NULL, err) != ONCE_OK)
        job->op.result = ONCE_UNAVAILABLE;
    else
        job->op.result = run_admin_job(writer, job, err);
    atomic_fetch_add(&writer->store_calls, 1);
    if (job->op.result == ONCE_UNKNOWN) /* expiry can be repeated, but the store must look at its durable state first */
        writer_reopen(writer, NULL, NULL);
}

/* Admin jobs must not delay the writers: if the store can run transactions in parallel, they run on their caller's
 * thread with their own store handle, one at a time. False: there is no such handle. A program that never writes does
 * not open a second connection. */
bool engine_run_on_admin_writer(struct engine *e, struct job *job)
{
    struct once_store *first = e->writers[0].store;
    if (job->kind == JOB_OPERATION || job->kind == JOB_BARRIER || first->ops->open_another == NULL)
        return false;
    pthread_mutex_lock(&e->lock);
    bool writes = e->counters.batches > 0;
    pthread_mutex_unlock(&e->lock);
    if (!writes)
        return false;
    pthread_mutex_lock(&e->admin_writer_lock);
    bool there =
        e->admin_writer.store != NULL || once_store_open_another(first, &e->admin_writer.store, NULL) == ONCE_OK;
    if (there)
        engine_run_admin_job(&e->admin_writer, job);
    pthread_mutex_unlock(&e->admin_writer_lock);
    return there;
}
