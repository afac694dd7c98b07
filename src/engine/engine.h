/*
 * engine.h - group commit: callers hand in jobs, a writer makes them durable.
 *
 * Callers put jobs into a bounded queue (a full one says BUSY). The writer thread takes
 * what has queued while the last commit ran, applies it as one step of the store, and
 * answers after that is durable (K4). It is the only thread that touches its handle of the
 * store, so a store needs no locks of its own. Where the store takes steps side by side, a
 * second writer with a handle of its own shares the work when that is faster (writer.h), and what
 * is no operation (looking, checking, expiring) runs in its caller's thread with a third.
 *
 * A step whose answer was lost (ONCE_UNKNOWN) is settled before anybody is answered
 * (K10): reopen the store, apply each operation again by itself; its nonce or fence makes
 * it recognise what it already did.
 *
 * Claims that may wait are parked here until the record's outcome comes, through this
 * engine or, where the store is shared, found by asking again (waiters.h).
 */
#ifndef ONCE_ENGINE_ENGINE_H
#define ONCE_ENGINE_ENGINE_H

#include "engine/engine_stats.h"
#include "engine/quota.h"
#include "engine/recent_events.h"
#include "engine/route_stats.h"
#include "store/store.h"

#include <semaphore.h>

/* What is asked. Operations go into batches, the rest run by themselves. */
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
    JOB_HEALTH, /* a look-up that is not counted: does the store answer? */
    JOB_BARRIER
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
    uint64_t submitted_ns;       /* monotonic: when it was handed in */
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
/* Answers everything that was submitted, also by callbacks meanwhile, then stops: claims
 * that wait are told IN_PROGRESS. Does not close the store. */
void engine_stop(struct engine *engine);
/* For good: claims that wait are asked once more and told what is, and none waits from now on. */
void engine_end_waits(struct engine *engine);

/* The job belongs to the engine until it is answered. ONCE_BUSY: the queue is full. */
once_result engine_submit(struct engine *engine, struct job *job, struct once_error *err);
/* The same; from a callback of engine_dispatch() quietly, as below: it kicks when they all have run. */
once_result engine_submit_async(struct engine *engine, struct job *job, struct once_error *err);
/* The same, without waking a writer that rests: engine_kick() does, when all that there is was
 * submitted. One wake for many jobs, and they are one batch. */
once_result engine_submit_without_kick(struct engine *engine, struct job *job, struct once_error *err);
void engine_kick(struct engine *engine);
/* Submits and waits. The job's op.result is returned; its err is copied to `err`. */
once_result engine_call(struct engine *engine, struct job *job, struct once_error *err);

int engine_eventfd(const struct engine *engine);
size_t engine_dispatch(struct engine *engine, size_t max);
/* In a callback that it calls: this is a claim that was parked. */
bool engine_dispatched_waited(void);
void engine_counters(struct engine *engine, struct once_stats *stats);
void engine_read_stats(struct engine *engine, struct once_engine_stats *out);
/* From now on; before anything is submitted. The engine's to free. */
void engine_set_quota(struct engine *engine, struct quota *quota);
/* One step of a walk that counts what tenants have. */
once_result engine_usage(struct engine *engine, struct once_usage *usage, struct once_error *err);
void engine_quota_counters(struct engine *engine, struct quota_counters *out);
/* For ROUTE_STATS_MAX of them; how many there are. */
size_t engine_read_route_stats(struct engine *engine, struct engine_route_stats *out,
                               struct engine_lease_counts *leases);
/* Begins to keep moments; false: no memory. */
bool engine_record_recent_events(struct engine *engine);
/* False: they are not kept. */
bool engine_recent_events(struct engine *engine, const uint8_t record[16], struct recent_events_view *out);
/* The last of a claim's steps was answered IN_PROGRESS, and that is its answer. */
void engine_count_step(struct engine *engine, once_span route);

#endif
