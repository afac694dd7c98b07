/* engine.c - see engine.h. */
#include "engine/engine.h"

#include "core/err.h"
#include "core/limits.h"
#include "engine/parking.h"
#include "os/os.h"
#include "os/point.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    SETTLE_ROUNDS = 5,           /* tries to learn what became of a lost commit */
    SETTLE_PAUSE_MS = 20,        /* before the second; then doubled each time */
    GATHER_QUIET_NS = 50 * 1000, /* nobody came for this long: go */
};

struct engine {
    struct once_store *store;
    struct parking parking;
    uint32_t queue_max, batch_max;
    bool poll;
    int eventfd; /* -1: callbacks run on the writer's thread */
    pthread_t writer;

    pthread_mutex_t lock; /* guards what follows, up to the counters */
    pthread_cond_t work;
    struct job *first, **last; /* the queue */
    uint32_t queued;
    bool idle, stopping;
    bool stopped;                          /* the writer takes nothing more */
    struct job *finished, **finished_last; /* poll: answered, waiting for dispatch */
    struct once_stats counters;

    /* the writer's own */
    struct job *ready;     /* woken claims, for the next batch */
    struct job **batch;    /* batch_max of them */
    struct once_op **ops;  /* theirs */
    size_t expected;       /* callers that are, or will soon be, waiting */
    uint64_t last_step_ns; /* what the last step took */
    bool needs_reopen;     /* the store failed and has not been reopened since */
};

/* ------------------------------------------------------------------ answering */

static void signal_dispatch(struct engine *e)
{
    uint64_t one = 1;
    while (write(e->eventfd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* Answers a batch. Polled callers are told once for all of it. */
static void answer_all(struct engine *e, struct job **jobs, size_t count)
{
    struct job *first = NULL, **last = &first;
    for (size_t i = 0; i < count; i++) {
        struct job *job = jobs[i];
        if (job->answered != NULL) {
            sem_post(job->answered); /* the job is its caller's again: do not touch it */
        } else if (!e->poll) {
            job->done(job->arg, job->op.result, &job->op.reply, &job->op.err);
            free(job);
        } else {
            job->next = NULL;
            *last = job;
            last = &job->next;
        }
    }
    if (first == NULL)
        return;
    pthread_mutex_lock(&e->lock);
    *e->finished_last = first;
    e->finished_last = last;
    pthread_mutex_unlock(&e->lock);
    signal_dispatch(e);
}

/* At most `max` finished jobs, as a list. */
static struct job *take_finished(struct engine *e, size_t max, bool *more)
{
    pthread_mutex_lock(&e->lock);
    struct job *first = e->finished, **at = &e->finished;
    for (size_t n = 0; n < max && *at != NULL; n++)
        at = &(*at)->next;
    e->finished = *at;
    *more = e->finished != NULL;
    if (!*more)
        e->finished_last = &e->finished;
    if (at == &e->finished) /* none was taken */
        first = NULL;
    else
        *at = NULL;
    pthread_mutex_unlock(&e->lock);
    return first;
}

size_t engine_dispatch(struct engine *e, size_t max)
{
    if (!e->poll)
        return 0;
    uint64_t drained;
    if (read(e->eventfd, &drained, sizeof drained) < 0)
        drained = 0; /* nothing was signalled; look all the same */
    bool more = false;
    struct job *job = take_finished(e, max, &more);
    if (more)
        signal_dispatch(e); /* stay readable */
    size_t count = 0;
    while (job != NULL) {
        struct job *next = job->next;
        job->done(job->arg, job->op.result, &job->op.reply, &job->op.err);
        free(job);
        job = next;
        count++;
    }
    return count;
}

/* ------------------------------------------------------------------ operations */

static void fail_all(struct job **jobs, size_t count, once_result r, const struct once_error *err)
{
    for (size_t i = 0; i < count; i++) {
        jobs[i]->op.result = r;
        jobs[i]->op.err = *err;
    }
}

static once_result reopen(struct engine *e, enum once_fate *fate, struct once_error *err)
{
    once_result r = once_store_reopen(e->store, fate, err);
    e->needs_reopen = r != ONCE_OK;
    return r;
}

/* Remembers what the operations would answer, had the commit, and doubts it. */
static void doubt(struct job **jobs, size_t count, const struct once_error *why)
{
    for (size_t i = 0; i < count; i++) {
        struct once_op *op = &jobs[i]->op;
        op->tentative = op->result;
        op->result = ONCE_UNKNOWN;
        if (op->tentative == ONCE_OK || op->err.text[0] == '\0')
            op->err = *why;
    }
}

/* Applies one operation again, after a reopen. True: its fate is known. */
static bool apply_again(struct engine *e, struct job *job)
{
    struct once_op *op = &job->op;
    struct once_error err = { .result = ONCE_OK };
    once_reply_release(&op->reply);
    op->again = true;
    once_result r = once_store_apply(e->store, &op, 1, &err);
    if (r == ONCE_OK)
        return true;
    if (r != ONCE_UNKNOWN && op->not_in_effect) {
        op->result = r;
        op->err = err;
        return true;
    }
    doubt(&job, 1, &err);
    return false;
}

/* The last step's answer was lost, and its operations are in doubt (K10). Look at the durable
 * state: a store that can tell whether the step committed is believed, and the answers stand.
 * Else the operations are applied again, one by one: each recognises what it did. */
static void settle_step(struct engine *e, struct job **jobs, size_t count)
{
    for (int round = 0; round < SETTLE_ROUNDS; round++) {
        if (round > 0)
            usleep((useconds_t)(SETTLE_PAUSE_MS << (round - 1)) * 1000);
        enum once_fate fate = ONCE_FATE_UNSURE;
        if (reopen(e, &fate, NULL) != ONCE_OK)
            continue;
        if (fate == ONCE_FATE_COMMITTED) {
            for (size_t i = 0; i < count; i++)
                jobs[i]->op.result = jobs[i]->op.tentative;
            return;
        }
        if (count == 1 && apply_again(e, jobs[0]))
            return;
        if (count > 1) {
            for (size_t i = 0; i < count; i++)
                if (!apply_again(e, jobs[i]))
                    settle_step(e, &jobs[i], 1);
            return;
        }
    }
}

static void settle(struct engine *e, struct job **jobs, size_t count, const struct once_error *why)
{
    doubt(jobs, count, why);
    settle_step(e, jobs, count);
    size_t open = 0;
    for (size_t i = 0; i < count; i++) {
        open += jobs[i]->op.result == ONCE_UNKNOWN;
        if (jobs[i]->op.result != ONCE_OK)
            once_reply_release(&jobs[i]->op.reply);
    }
    if (open > 0)
        e->needs_reopen = true; /* some commit is still in doubt: look again before anything new */
    pthread_mutex_lock(&e->lock);
    e->counters.settled += count - open;
    pthread_mutex_unlock(&e->lock);
}

/* A step that failed without changing anything. Where one operation may be to blame, the
 * others are tried without it. */
static void fail_or_split(struct engine *e, struct job **jobs, size_t count, once_result r,
                          const struct once_error *err)
{
    fail_all(jobs, count, r, err);
    if (count == 1 || r == ONCE_UNAVAILABLE || r == ONCE_BUSY)
        return;
    for (size_t i = 0; i < count; i++) {
        struct once_op *op = &jobs[i]->op;
        struct once_error own;
        once_result single = once_store_apply(e->store, &op, 1, &own);
        if (single == ONCE_UNKNOWN)
            settle(e, &jobs[i], 1, &own);
        else if (single != ONCE_OK)
            fail_all(&jobs[i], 1, single, &own);
    }
}

static void run_operations(struct engine *e, struct job **jobs, size_t count)
{
    struct once_error err = { .result = ONCE_OK };
    if (e->needs_reopen && reopen(e, NULL, &err) != ONCE_OK) {
        fail_all(jobs, count, ONCE_UNAVAILABLE, &err);
        return;
    }
    for (size_t i = 0; i < count; i++)
        e->ops[i] = &jobs[i]->op;
    once_result r = once_store_apply(e->store, e->ops, count, &err);
    if (r == ONCE_UNKNOWN)
        settle(e, jobs, count, &err);
    else if (r != ONCE_OK)
        fail_or_split(e, jobs, count, r, &err);
}

/* Did this operation end a record's run, so that those who wait for it should look? */
static bool ends_record(const struct once_op *op)
{
    bool ending = op->request->verb == ONCE_VERB_FINISH || op->request->verb == ONCE_VERB_RELEASE ||
                  op->request->verb == ONCE_VERB_RESOLVE;
    return ending && op->result == ONCE_OK && op->reply.arm == ONCE_ARM_DONE;
}

static void count_operation(struct once_stats *c, const struct once_op *op)
{
    c->operations++;
    if (op->result != ONCE_OK)
        return;
    c->executions += op->reply.arm == ONCE_ARM_EXECUTE || op->reply.arm == ONCE_ARM_PROBE;
    c->replays += op->reply.arm == ONCE_ARM_REPLAY;
    c->fenced += op->reply.arm == ONCE_ARM_FENCED;
}

static void finish_operations(struct engine *e, struct job **jobs, size_t count)
{
    ONCE_POINT("engine.durable");
    once_time now = once_os_monotonic_ms();
    pthread_mutex_lock(&e->lock);
    e->expected = count + e->queued < e->batch_max ? count + e->queued : e->batch_max;
    e->counters.batches++;
    for (size_t i = 0; i < count; i++)
        count_operation(&e->counters, &jobs[i]->op);
    pthread_mutex_unlock(&e->lock);
    size_t answered = 0;
    for (size_t i = 0; i < count; i++)
        if (!parking_take(&e->parking, jobs[i], now))
            jobs[answered++] = jobs[i];
    /* After parking: one that waits may have come in the same batch as what it waits for. */
    for (size_t i = 0; i < answered; i++)
        if (ends_record(&jobs[i]->op))
            parking_wake(&e->parking, jobs[i]->op.record, &e->ready);
    answer_all(e, jobs, answered);
    ONCE_POINT("engine.answered");
}

/* ------------------------------------------------------------------ the rest */

static once_result run_other(struct engine *e, struct job *job, struct once_error *err)
{
    switch (job->kind) {
    case JOB_LIST:
        return once_store_list(e->store, job->list.filter, job->list.page, err);
    case JOB_HISTORY:
        return once_store_history(e->store, job->history.record, job->history.history, err);
    case JOB_EXPIRE:
        return once_store_expire(e->store, job->expire.budget, &job->expire.removed, &job->expire.more, err);
    case JOB_CHECK:
        return once_store_check(e->store, &job->check.cursor, job->check.each, job->check.arg, job->check.report, err);
    case JOB_STATS:
        return once_store_stats(e->store, job->stats, err);
    case JOB_BARRIER:
        return ONCE_OK;
    case JOB_OPERATION:
        break;
    }
    abort();
}

static void run_alone(struct engine *e, struct job *job)
{
    struct once_error *err = &job->op.err;
    if (e->needs_reopen && reopen(e, NULL, err) != ONCE_OK)
        job->op.result = ONCE_UNAVAILABLE;
    else
        job->op.result = run_other(e, job, err);
    if (job->op.result == ONCE_UNKNOWN) /* expiry can be repeated; the store cannot be trusted until it looked */
        reopen(e, NULL, NULL);
    answer_all(e, &job, 1);
}

/* ------------------------------------------------------------------ the writer */

/* Callers that were just answered are about to come back: a commit for the two fastest
 * would make all others wait for the next. So the writer waits for those it answered and
 * those who came meanwhile to be together in one batch; but no longer than half of
 * what the last step took, and not when nobody comes. Without this the callers fall into
 * two halves that take turns, which on a slow disk halves the throughput. */
static void gather(struct engine *e)
{
    if (e->queued >= e->expected || e->expected < 2)
        return;
    uint64_t start = once_os_monotonic_ns(), grown = start, now = start;
    uint32_t seen = e->queued;
    while (now - start < e->last_step_ns / 2 && now - grown < GATHER_QUIET_NS) {
        pthread_mutex_unlock(&e->lock);
        sched_yield();
        pthread_mutex_lock(&e->lock);
        if (e->queued >= e->expected || e->stopping)
            return;
        now = once_os_monotonic_ns();
        if (e->queued > seen)
            grown = now;
        seen = e->queued;
    }
}

static void wait_for_work(struct engine *e)
{
    while (e->first == NULL && e->ready == NULL && !e->stopping) {
        once_time next = parking_next(&e->parking);
        e->idle = true;
        if (next == ONCE_NEVER) {
            pthread_cond_wait(&e->work, &e->lock);
        } else {
            struct timespec until = { .tv_sec = next / 1000, .tv_nsec = next % 1000 * 1000000 };
            if (pthread_cond_timedwait(&e->work, &e->lock, &until) == ETIMEDOUT)
                break;
        }
    }
    e->idle = false;
}

/* Takes the next batch: woken claims first, then the queue. Jobs that run by themselves
 * end a batch. */
static size_t take_batch(struct engine *e)
{
    size_t count = 0;
    while (e->ready != NULL && count < e->batch_max) {
        e->batch[count++] = e->ready;
        e->ready = e->ready->next;
    }
    while (e->first != NULL && count < e->batch_max) {
        struct job *job = e->first;
        if (job->kind != JOB_OPERATION && count > 0)
            break;
        e->first = job->next;
        if (e->first == NULL)
            e->last = &e->first;
        e->queued--;
        e->batch[count++] = job;
        if (job->kind != JOB_OPERATION)
            break;
    }
    return count;
}

static void *writer(void *arg)
{
    struct engine *e = arg;
    pthread_setname_np(pthread_self(), "once-writer");
    for (;;) {
        pthread_mutex_lock(&e->lock);
        wait_for_work(e);
        bool stopping = e->stopping;
        if (!stopping)
            gather(e);
        parking_due(&e->parking, once_os_monotonic_ms(), stopping, &e->ready);
        size_t count = take_batch(e);
        e->stopped = count == 0 && stopping;
        pthread_mutex_unlock(&e->lock);
        if (count == 0 && stopping)
            return NULL;
        if (count == 0)
            continue;
        ONCE_POINT("engine.taken");
        if (e->batch[0]->kind != JOB_OPERATION) {
            run_alone(e, e->batch[0]);
            continue;
        }
        uint64_t start = once_os_monotonic_ns();
        run_operations(e, e->batch, count);
        e->last_step_ns = once_os_monotonic_ns() - start;
        finish_operations(e, e->batch, count);
    }
}

/* ------------------------------------------------------------------ the callers' side */

once_result engine_submit(struct engine *e, struct job *job, struct once_error *err)
{
    job->next = NULL;
    pthread_mutex_lock(&e->lock);
    bool stopped = e->stopped, full = e->queued >= e->queue_max;
    e->counters.busy += full;
    if (!full && !stopped) {
        *e->last = job;
        e->last = &job->next;
        e->queued++;
        if (e->idle)
            pthread_cond_signal(&e->work);
        e->idle = false;
    }
    pthread_mutex_unlock(&e->lock);
    if (stopped)
        return once_fail(err, ONCE_UNAVAILABLE, "the store is being closed");
    if (full)
        return once_fail(err, ONCE_BUSY, "%u operations are waiting already; try again later", e->queue_max);
    return ONCE_OK;
}

once_result engine_call(struct engine *e, struct job *job, struct once_error *err)
{
    sem_t answered;
    sem_init(&answered, 0, 0);
    job->answered = &answered;
    once_result r = engine_submit(e, job, err);
    if (r == ONCE_OK) {
        while (sem_wait(&answered) != 0)
            ; /* interrupted */
        r = job->op.result;
        if (r != ONCE_OK && err != NULL) {
            *err = job->op.err;
            err->result = r;
        }
    }
    sem_destroy(&answered);
    return r;
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
    stats->settled = e->counters.settled;
    stats->fenced = e->counters.fenced;
    stats->replays = e->counters.replays;
    stats->executions = e->counters.executions;
    pthread_mutex_unlock(&e->lock);
}

/* ------------------------------------------------------------------ start, stop */

static void engine_free(struct engine *e)
{
    if (e->eventfd >= 0)
        close(e->eventfd);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    free(e->batch);
    free(e->ops);
    free(e);
}

/* Signals are the program's business: none is delivered to the writer. */
static int start_thread(struct engine *e)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&e->writer, NULL, writer, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

once_result engine_start(struct once_store *store, const struct once_options *options, struct engine **out,
                         struct once_error *err)
{
    struct engine *e = calloc(1, sizeof *e);
    if (e == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the engine");
    e->store = store;
    e->queue_max = options->queue_len;
    e->batch_max = options->batch_len;
    e->parking = (struct parking){ .max = options->waiter_len, .shared = store->shared };
    e->poll = options->poll;
    e->last = &e->first;
    e->finished_last = &e->finished;
    pthread_mutex_init(&e->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&e->work, &attr);
    pthread_condattr_destroy(&attr);
    e->eventfd = e->poll ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    e->batch = calloc(e->batch_max, sizeof *e->batch);
    e->ops = calloc(e->batch_max, sizeof *e->ops);
    once_result r = ONCE_OK;
    if (e->batch == NULL || e->ops == NULL)
        r = once_fail(err, ONCE_NO_MEMORY, "no memory for the engine");
    else if (e->poll && e->eventfd < 0)
        r = once_fail(err, ONCE_UNAVAILABLE, "cannot make an eventfd: %m");
    else if (start_thread(e) != 0)
        r = once_fail(err, ONCE_UNAVAILABLE, "cannot start the writer thread");
    if (r != ONCE_OK) {
        engine_free(e);
        return r;
    }
    *out = e;
    return ONCE_OK;
}

/* Runs the callbacks that wait for dispatch, and those of what they submit, while the
 * writer is still there to take it. */
static void dispatch_all(struct engine *e)
{
    size_t count = 0;
    do {
        struct job barrier = { .kind = JOB_BARRIER };
        if (engine_call(e, &barrier, NULL) == ONCE_BUSY)
            sched_yield();
        count = engine_dispatch(e, SIZE_MAX);
    } while (count > 0);
}

void engine_stop(struct engine *e)
{
    if (e->poll)
        dispatch_all(e);
    pthread_mutex_lock(&e->lock);
    e->stopping = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->writer, NULL);
    while (engine_dispatch(e, SIZE_MAX) > 0)
        ;
    engine_free(e);
}
