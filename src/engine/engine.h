/*
 * engine.h - group commit: callers submit jobs, a writer thread makes them durable.
 *
 * Callers put jobs into a bounded queue; if it is full they get ONCE_BUSY. While the store commits one batch, the next
 * jobs queue up. The writer takes them as the next batch, applies it in one transaction, and answers after the commit
 * is durable (K4). Only the writer uses its store handle, so a store needs no locks. If the store can run transactions
 * in parallel, a second writer with its own handle shares the work while that is faster (writer.h), and admin jobs
 * (listing, checking, expiring) run on their caller's thread with a third handle.
 *
 * If the answer to a commit is lost (ONCE_UNKNOWN), the writer recovers before it answers anybody (K10): it reopens the
 * store and applies each operation again by itself; nonce or fence show whether it was applied already.
 *
 * Claims that may wait for another attempt's outcome are kept in waiters.h until that outcome comes: through this
 * engine, or from another process, which only asking the store again can tell.
 */
#ifndef ONCE_ENGINE_ENGINE_H
#define ONCE_ENGINE_ENGINE_H

#include "engine/engine_stats.h"
#include "engine/quota.h"
#include "engine/recent_events.h"
#include "engine/route_stats.h"
#include "store/store.h"

#include <semaphore.h>

/* Operations go into batches; the others are admin jobs and run one at a time. */
enum job_kind {
    JOB_OPERATION,
    JOB_LIST,
    JOB_SWEEP,
    JOB_LOOKUP_MANY,
    JOB_HISTORY,
    JOB_EXPIRE,
    JOB_CHECK,
    JOB_STATS,
    JOB_USAGE,
    JOB_CLOCK,
    JOB_HEALTH, /* a look-up that no counter sees: does the store answer? */
    JOB_BARRIER /* does nothing: its answer says that all jobs before it were answered */
};

/* Of a claim that may wait for another attempt's outcome (waiters.h). Times are monotonic ms. */
struct waiting {
    once_time give_up_at; /* it waits until then; 0: it does not */
    once_time ask_at;     /* when it is asked again; 0: it never waited */
    once_time pause_ms;   /* between two questions, where other processes write too */
    bool is_step;         /* one of several: not counted if it is answered IN_PROGRESS */
};

/* Of a claim whose tenant has quotas (admission.h). */
struct admitted {
    struct once_request *instead;    /* a quota is used up: the look-up that is asked in place of the claim */
    enum quota_kind over;            /* which quota */
    bool exempt;                     /* that look-up found a record: the claim is not refused */
    bool counted_waiter;             /* it counts for the quota of waiters, in `waiter` */
    struct quota_entry *reservation; /* kept until its answer */
    struct quota_entry *waiter;
};

struct job {
    enum job_kind kind;
    struct once_op op;           /* JOB_OPERATION; also carries result and err of the others */
    struct once_request request; /* checked; op.request points here */
    uint64_t submitted_ns;       /* monotonic */
    uint8_t route;               /* a claim's, as route_stats.h numbers it */
    struct waiting waiting;
    struct admitted admitted;
    union {
        struct {
            const struct once_filter *filter;
            struct once_page *page;
        } list;
        struct once_sweep *sweep;
        struct {
            const struct once_unfinished *wanted;
            size_t count;
            struct once_page *page;
        } lookup_many;
        struct {
            uint8_t record[16];
            struct once_history *history;
        } history;
        struct {
            uint32_t budget;
            uint64_t removed;
            bool more;
        } expire;
        struct {
            uint64_t cursor;
            once_problem_fn *each;
            void *arg;
            struct once_check_report *report;
        } check;
        struct once_stats *stats;
        struct once_usage *usage;
        once_time clock; /* out */
    };
    /* How it is answered: a callback, or a caller that waits. */
    once_done_fn *done;
    void *arg;
    sem_t *answered;
    struct job *next;
};

struct engine;

once_result engine_start(struct once_store *store, const struct once_options *options, struct engine **out,
                         struct once_error *err);
/* Answers every job that was submitted, including jobs that callbacks submit meanwhile, then stops. Waiting claims are
 * answered IN_PROGRESS. Does not close the store. */
void engine_stop(struct engine *engine);
/* Permanent: waiting claims are applied once more and answered as the record is then; no later claim waits. */
void engine_end_waits(struct engine *engine);

/* The job belongs to the engine until it is answered. ONCE_BUSY: the queue is full. */
once_result engine_submit(struct engine *engine, struct job *job, struct once_error *err);
/* engine_submit(), but without a kick if called from a callback of engine_dispatch(), which kicks after all have run.
 */
once_result engine_submit_async(struct engine *engine, struct job *job, struct once_error *err);
/* engine_submit() without waking an idle writer: the caller calls engine_kick() after its last job, so that many jobs
 * need one wake-up and make one batch. */
once_result engine_submit_without_kick(struct engine *engine, struct job *job, struct once_error *err);
void engine_kick(struct engine *engine);
/* Submits and waits. The job's op.result is returned; its err is copied to `err`. */
once_result engine_call(struct engine *engine, struct job *job, struct once_error *err);

int engine_eventfd(const struct engine *engine);
size_t engine_dispatch(struct engine *engine, size_t max);
/* In a callback of engine_dispatch(): whether the answered job is a claim that waited for another's outcome. */
bool engine_dispatched_waited(void);
void engine_counters(struct engine *engine, struct once_stats *stats);
void engine_read_stats(struct engine *engine, struct once_engine_stats *out);
/* Before the first job. The engine frees it. */
void engine_set_quota(struct engine *engine, struct quota *quota);
/* One step of a scan that counts what tenants use. */
once_result engine_usage(struct engine *engine, struct once_usage *usage, struct once_error *err);
void engine_quota_counters(struct engine *engine, struct quota_counters *out);
/* `out` has room for ROUTE_STATS_MAX; returns how many were written. */
size_t engine_read_route_stats(struct engine *engine, struct engine_route_stats *out,
                               struct engine_lease_counts *leases);
/* From now on, recent events are kept; false: no memory. */
bool engine_record_recent_events(struct engine *engine);
/* False: they are not kept. */
bool engine_recent_events(struct engine *engine, const uint8_t record[16], struct recent_events_view *out);
/* Counts a claim that waited in steps (struct waiting) and whose last step was answered IN_PROGRESS. */
void engine_count_step(struct engine *engine, once_span route);

#endif
