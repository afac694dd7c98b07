/* engine.c - see engine.h. */
#include "engine/engine.h"

#include "core/err.h"
#include "core/limits.h"
#include "engine/admission.h"
#include "engine/lane.h"
#include "engine/tuner.h"
#include "os/os.h"
#include "os/point.h"
#include "os/thread.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    LANES_MAX = 2,
    GATHER_QUIET_NS = 50 * 1000, /* nobody came for this long: go */
    GATHER_REST_MAX = 31,        /* batches that are not gathered for, after it was in vain */
};

struct engine {
    uint32_t queue_max, batch_max;
    bool poll;
    int eventfd; /* -1: callbacks run on a lane's thread */

    pthread_mutex_t lock; /* guards what follows, and what lane.h says */
    struct lane lanes[LANES_MAX];
    unsigned active;       /* lanes that take work */
    pthread_cond_t rested; /* a lane put its batch down */
    struct tuner tuner;
    bool stopping;
    bool impatient;                        /* no claim waits any more */
    bool stopped;                          /* nothing more is taken */
    struct job *finished, **finished_last; /* poll: answered, waiting for dispatch */
    struct once_stats counters;
    struct once_insight insight;
    struct quota *quota; /* NULL: everybody may have everything; does not change after the first job */
    struct routes *routes;
    struct moments *moments; /* NULL: nobody wants them */

    pthread_mutex_t aside_lock; /* guards what follows; never taken while the other is held */
    struct lane aside;          /* a handle for what is no operation, without a thread or a queue */
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

/* The one whose callback runs on this thread; whose it is, and whether callbacks submitted more. */
static _Thread_local const struct job *dispatched;
static _Thread_local struct dispatching {
    const struct engine *engine; /* NULL: none, or it was closed by a callback */
    bool owes_kick;
} dispatching;

bool engine_dispatched_waited(void)
{
    return dispatched != NULL && dispatched->ask_at != 0;
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
    const struct dispatching outer = dispatching;
    dispatching = (struct dispatching){ .engine = e };
    while (job != NULL) {
        struct job *next = job->next;
        dispatched = job;
        job->done(job->arg, job->op.result, &job->op.reply, &job->op.err);
        dispatched = NULL;
        free(job);
        job = next;
        count++;
    }
    bool kick = dispatching.owes_kick;
    dispatching = outer;
    if (kick)
        engine_kick(e);
    return count;
}

/* ------------------------------------------------------------------ operations */

/* Did this operation end a record's run, so that those who wait for it should look? */
static bool ends_record(const struct once_op *op)
{
    bool ending = op->request->verb == ONCE_VERB_FINISH || op->request->verb == ONCE_VERB_RELEASE ||
                  op->request->verb == ONCE_VERB_RESOLVE || op->request->verb == ONCE_VERB_FORGET;
    bool escalated = op->request->verb == ONCE_VERB_TAKE_OVER && op->reply.arm == ONCE_ARM_UNKNOWN;
    return op->result == ONCE_OK && (escalated || (ending && op->reply.arm == ONCE_ARM_DONE));
}

static void count_operation(struct once_stats *c, const struct once_op *op)
{
    c->executions += op->reply.arm == ONCE_ARM_EXECUTE || op->reply.arm == ONCE_ARM_PROBE;
    c->replays += op->reply.arm == ONCE_ARM_REPLAY;
    c->fenced += op->reply.arm == ONCE_ARM_FENCED;
}

/* Of what is answered now; once, however often it came. */
static void count_answer(struct engine *e, const struct job *job, uint64_t now_ns)
{
    struct once_insight *i = &e->insight;
    const struct once_op *op = &job->op;
    enum once_verb verb = op->request->verb;
    i->verbs[verb]++;
    if (op->result == ONCE_QUOTA) /* counted by kind */
        return;
    if (op->result != ONCE_OK)
        i->errors++;
    if (job->step && op->result == ONCE_OK && op->reply.arm == ONCE_ARM_IN_PROGRESS)
        return;
    if (!routes_count(e->routes, op, job->route, now_ns, now_ns - job->submitted_ns, job->ask_at == 0) ||
        op->result != ONCE_OK)
        return;
    count_operation(&e->counters, op);
    if (e->moments != NULL)
        moments_note(e->moments, op, once_os_clock.wall(NULL));
    if (verb == ONCE_VERB_CLAIM)
        i->claims[op->reply.arm]++;
    if (verb == ONCE_VERB_FINISH && op->reply.arm == ONCE_ARM_DONE)
        i->outcomes[op->request->outcome.state]++;
    if (job->ask_at == 0 && verb == ONCE_VERB_CLAIM)
        insight_add_time(&i->claim, now_ns - job->submitted_ns);
    else if (verb == ONCE_VERB_FINISH)
        insight_add_time(&i->finish, now_ns - job->submitted_ns);
}

/* Claims that may wait for another's outcome do; those that are left are answered now. */
static size_t park(struct lane *lane, struct job **jobs, size_t count, once_time now)
{
    struct engine *e = lane->engine;
    size_t answered = 0;
    for (size_t i = 0; i < count; i++) {
        bool waits = !e->impatient && parking_wants(&lane->parking, jobs[i], now) &&
                     (e->quota == NULL || admission_wait(e->quota, jobs[i]));
        if (waits)
            parking_take(&lane->parking, jobs[i], now);
        else
            jobs[answered++] = jobs[i];
    }
    return answered;
}

static void finish_operations(struct lane *lane, struct job **jobs, size_t count)
{
    struct engine *e = lane->engine;
    ONCE_POINT("engine.durable");
    uint64_t now_ns = once_os_monotonic_ns();
    once_time now = (once_time)(now_ns / 1000000);
    pthread_mutex_lock(&e->lock);
    lane->expected = count + lane->queued < e->batch_max ? count + lane->queued : e->batch_max;
    e->counters.batches++;
    insight_add_batch(&e->insight, count);
    e->counters.settled += lane->settled;
    lane->settled = 0;
    if (e->quota != NULL)
        count = admission_after(e->quota, jobs, count, once_os_lease_ms(), &lane->ready);
    size_t answered = park(lane, jobs, count, now);
    e->counters.operations += answered;
    /* After parking: one that waits may have come in the same batch as what it waits for. */
    for (size_t i = 0; i < answered; i++) {
        count_answer(e, jobs[i], now_ns);
        if (e->quota != NULL)
            admission_answered(e->quota, jobs[i]);
        if (ends_record(&jobs[i]->op))
            parking_wake(&lane->parking, jobs[i]->op.record, &lane->ready);
    }
    pthread_mutex_unlock(&e->lock);
    answer_all(e, jobs, answered);
    ONCE_POINT("engine.answered");
}

/* ------------------------------------------------------------------ the rest */

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

static void run_alone(struct lane *lane, struct job *job)
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
static bool run_aside(struct engine *e, struct job *job)
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
        run_alone(&e->aside, job);
    pthread_mutex_unlock(&e->aside_lock);
    return there;
}

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

static bool start_lane(struct lane *lane)
{
    lane->started = once_thread_start(&lane->thread, writer, lane) == 0;
    return lane->started;
}

static bool init_lane(struct engine *e, struct lane *lane, struct once_store *store)
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
    if (init_lane(e, lane, store) && start_lane(lane))
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

/* ------------------------------------------------------------------ the writers */

/* Waits, with the lock given up in between, until all who are expected are there, or it has been
 * long enough. */
static void await_callers(struct lane *lane)
{
    struct engine *e = lane->engine;
    uint64_t start = once_os_monotonic_ns(), grown = start, now = start;
    uint32_t seen = lane->queued;
    while (now - start < lane->last_step_ns / 2 && now - grown < GATHER_QUIET_NS) {
        pthread_mutex_unlock(&e->lock);
        sched_yield();
        pthread_mutex_lock(&e->lock);
        if (lane->queued >= lane->expected || e->stopping)
            return;
        now = once_os_monotonic_ns();
        if (lane->queued > seen)
            grown = now;
        seen = lane->queued;
    }
}

/* Callers that were just answered are about to come back: a commit for the two fastest
 * would make all others wait for the next. So the writer waits for those it answered and
 * those who came meanwhile to be together in one batch; but no longer than half of
 * what the last step took, and not when nobody comes. Without this the callers fall into
 * two halves that take turns, which on a slow disk halves the throughput.
 * Callers with a long way to go (a gateway's: to its upstream and back) cannot be waited for.
 * Where less than half of those who were missing came, the next batches go without: one, three,
 * seven, and so on. */
static void gather(struct lane *lane)
{
    if (lane->queued >= lane->expected || lane->expected < 2)
        return;
    if (lane->gather_rest > 0) {
        lane->gather_rest--;
        return;
    }
    size_t enough = (lane->queued + lane->expected + 1) / 2;
    await_callers(lane);
    lane->gather_pause = lane->queued >= enough                 ? 0
                         : lane->gather_pause < GATHER_REST_MAX ? 2 * lane->gather_pause + 1
                                                                : GATHER_REST_MAX;
    lane->gather_rest = lane->gather_pause;
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
    size_t count = 0, max = lane->engine->batch_max;
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
    if (e->quota != NULL)
        admission_before(e->quota, lane->batch, count, once_os_lease_ms());
    lane->busy = count > 0;
    *stop = count == 0 && stopping;
    if (leads)
        e->stopped = *stop;
    pthread_mutex_unlock(&e->lock);
    return count;
}

static void *writer(void *arg)
{
    struct lane *lane = arg;
    struct engine *e = lane->engine;
    pthread_setname_np(pthread_self(), "once-writer");
    once_os_short_slices();
    for (;;) {
        bool stop;
        size_t count = next_batch(lane, &stop);
        if (stop)
            return NULL;
        if (count == 0)
            continue;
        if (lane->batch[0]->kind != JOB_OPERATION) {
            run_alone(lane, lane->batch[0]);
            answer_all(e, lane->batch, 1);
            continue;
        }
        ONCE_POINT("engine.taken"); /* operations only: what else there is comes when a clock says so */
        uint64_t start = once_os_monotonic_ns();
        lane_run(lane, lane->batch, count);
        uint64_t end = once_os_monotonic_ns();
        lane->last_step_ns = end - start;
        finish_operations(lane, lane->batch, count);
        pthread_mutex_lock(&e->lock);
        tuner_note(&e->tuner, count, end);
        pthread_mutex_unlock(&e->lock);
    }
}

/* ------------------------------------------------------------------ the callers' side */

static once_result put(struct engine *e, struct job *job, bool quietly, struct once_error *err)
{
    job->submitted_ns = once_os_monotonic_ns();
    pthread_mutex_lock(&e->lock);
    bool stopped = e->stopped, full = e->lanes[0].queued + e->lanes[1].queued >= e->queue_max;
    e->counters.busy += full;
    if (job->kind == JOB_OPERATION && job->request.verb == ONCE_VERB_CLAIM)
        job->route = routes_find(e->routes, job->request.claim.route);
    if (full && job->kind == JOB_OPERATION && job->request.verb == ONCE_VERB_CLAIM)
        routes_refused(e->routes, job->route);
    if (!full && !stopped) {
        struct lane *lane = lane_of(e, job);
        append(lane, job);
        if (!quietly || lane->queued >= e->batch_max) /* a whole batch waits for nobody */
            wake(lane);
    }
    if (full) { /* all of it may have been submitted quietly */
        wake(&e->lanes[0]);
        wake(&e->lanes[1]);
    }
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
    bool quietly = dispatching.engine == e;
    dispatching.owes_kick = dispatching.owes_kick || quietly;
    return put(e, job, quietly, err);
}

once_result engine_submit_quietly(struct engine *e, struct job *job, struct once_error *err)
{
    return put(e, job, true, err);
}

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
    if (!run_aside(e, job)) {
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
    stats->settled = e->counters.settled;
    stats->fenced = e->counters.fenced;
    stats->replays = e->counters.replays;
    stats->executions = e->counters.executions;
    pthread_mutex_unlock(&e->lock);
}

void engine_insight(struct engine *e, struct once_insight *out)
{
    pthread_mutex_lock(&e->lock);
    *out = e->insight;
    out->queued = e->lanes[0].queued + e->lanes[1].queued;
    out->queue_max = e->queue_max;
    out->parked = e->lanes[0].parking.count + e->lanes[1].parking.count;
    out->turns = atomic_load(&e->lanes[0].turns) + atomic_load(&e->lanes[1].turns);
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

once_result engine_tally(struct engine *e, struct once_tally *tally, struct once_error *err)
{
    struct job job = { .kind = JOB_TALLY, .tally = tally };
    assert(e->quota != NULL);
    return engine_call(e, &job, err);
}

void engine_quota_numbers(struct engine *e, struct quota_numbers *out)
{
    *out = (struct quota_numbers){ .walks = 0 };
    pthread_mutex_lock(&e->lock);
    if (e->quota != NULL)
        quota_numbers(e->quota, out);
    pthread_mutex_unlock(&e->lock);
}

size_t engine_routes(struct engine *e, struct insight_route *out, struct insight_leases *leases)
{
    pthread_mutex_lock(&e->lock);
    routes_leases(e->routes, once_os_monotonic_ms(), leases);
    size_t count = routes_read(e->routes, out);
    pthread_mutex_unlock(&e->lock);
    return count;
}

bool engine_watch(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    if (e->moments == NULL)
        e->moments = moments_new(once_os_clock.wall(NULL));
    bool watched = e->moments != NULL;
    pthread_mutex_unlock(&e->lock);
    return watched;
}

bool engine_moments(struct engine *e, const uint8_t record[16], struct moments_view *out)
{
    pthread_mutex_lock(&e->lock);
    bool kept = e->moments != NULL && moments_read(e->moments, record, out);
    pthread_mutex_unlock(&e->lock);
    return kept;
}

void engine_count_step(struct engine *e, once_span route)
{
    pthread_mutex_lock(&e->lock);
    e->insight.claims[ONCE_ARM_IN_PROGRESS]++;
    routes_waited(e->routes, routes_find(e->routes, route));
    pthread_mutex_unlock(&e->lock);
}

/* ------------------------------------------------------------------ start, stop */

static void engine_free(struct engine *e)
{
    if (dispatching.engine == e)
        dispatching = (struct dispatching){ .engine = NULL };
    if (e->eventfd >= 0)
        close(e->eventfd);
    for (unsigned i = 0; i < LANES_MAX; i++) {
        pthread_cond_destroy(&e->lanes[i].work);
        free(e->lanes[i].batch);
        free(e->lanes[i].ops);
    }
    pthread_cond_destroy(&e->rested);
    pthread_mutex_destroy(&e->lock);
    routes_free(e->routes);
    moments_free(e->moments);
    pthread_mutex_destroy(&e->aside_lock);
    quota_free(e->quota);
    free(e);
}

static void init_conditions(struct engine *e)
{
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->aside_lock, NULL);
    pthread_cond_init(&e->rested, NULL);
    for (unsigned i = 0; i < LANES_MAX; i++)
        once_cond_init(&e->lanes[i].work);
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
    e->aside.engine = e;
    e->finished_last = &e->finished;
    tuner_init(&e->tuner);
    init_conditions(e);
    for (unsigned i = 0; i < LANES_MAX; i++) {
        struct lane *lane = &e->lanes[i];
        lane->engine = e;
        lane->last = &lane->first;
        lane->parking = (struct parking){ .max = options->waiter_len, .shared = store->shared };
    }
    e->eventfd = e->poll ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    once_result r = ONCE_OK;
    e->routes = routes_new();
    if (e->routes == NULL || !init_lane(e, &e->lanes[0], store))
        r = once_fail(err, ONCE_NO_MEMORY, "no memory for the engine");
    else if (e->poll && e->eventfd < 0)
        r = once_fail(err, ONCE_UNAVAILABLE, "cannot make an eventfd: %m");
    else if (!start_lane(&e->lanes[0]))
        r = once_fail(err, ONCE_UNAVAILABLE, "cannot start the writer thread");
    if (r != ONCE_OK) {
        engine_free(e);
        return r;
    }
    *out = e;
    return ONCE_OK;
}

/* Runs the callbacks that wait for dispatch, and those of what they submit, while the
 * writers are still there to take it. */
static void dispatch_all(struct engine *e)
{
    bool more = true;
    while (more) {
        struct job barrier = { .kind = JOB_BARRIER };
        if (engine_call(e, &barrier, NULL) == ONCE_BUSY)
            sched_yield();
        pthread_mutex_lock(&e->lock);
        more = e->lanes[1].queued > 0 || e->lanes[1].busy;
        pthread_mutex_unlock(&e->lock);
        more = engine_dispatch(e, SIZE_MAX) > 0 || more;
    }
}

static void wake_all(struct engine *e)
{
    for (unsigned i = 0; i < LANES_MAX; i++)
        pthread_cond_signal(&e->lanes[i].work);
}

void engine_end_waits(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->impatient = true;
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
    pthread_join(e->lanes[0].thread, NULL);
    if (e->lanes[1].started) {
        pthread_join(e->lanes[1].thread, NULL);
        once_store_close(e->lanes[1].store);
    }
    if (e->aside.store != NULL)
        once_store_close(e->aside.store);
    while (engine_dispatch(e, SIZE_MAX) > 0)
        ;
    engine_free(e);
}
