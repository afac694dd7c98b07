/*
 * answer.c - answers jobs, calls their callbacks, and counts them.
 *
 * An answer is given after its batch is durable (K4): to a caller that blocks, to a callback on the writer's thread,
 * or, if the engine was opened with options.poll, to a list for engine_dispatch().
 */
#include "engine/admission.h"
#include "engine/internal.h"
#include "os/crash_point.h"
#include "os/os.h"

#include <errno.h>
#include <unistd.h>

/* ------------------------------------------------------------------ answering */

static void signal_dispatch(struct engine *e)
{
    uint64_t one = 1;
    while (write(e->eventfd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

void engine_answer(struct engine *e, struct job **jobs, size_t count)
{
    struct job *first = NULL, **last = &first;
    for (size_t i = 0; i < count; i++) {
        struct job *job = jobs[i];
        if (job->answered != NULL) {
            sem_post(job->answered); /* the job belongs to its caller again: do not touch it */
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

/* The job whose callback runs on this thread; its engine, and whether callbacks submitted jobs without a kick. */
static _Thread_local const struct job *dispatched;
static _Thread_local struct dispatching {
    const struct engine *engine; /* NULL: none, or it was closed by a callback */
    bool owes_kick;
} dispatching;

bool engine_will_kick(const struct engine *e)
{
    bool inside = dispatching.engine == e;
    dispatching.owes_kick = dispatching.owes_kick || inside;
    return inside;
}

void engine_forget_dispatching(const struct engine *e)
{
    if (dispatching.engine == e)
        dispatching = (struct dispatching){ .engine = NULL };
}

bool engine_dispatched_waited(void)
{
    return dispatched != NULL && dispatched->waiting.ask_at != 0;
}

size_t engine_dispatch(struct engine *e, size_t max)
{
    if (!e->poll)
        return 0;
    uint64_t drained;
    if (read(e->eventfd, &drained, sizeof drained) < 0)
        drained = 0; /* not signalled; look nevertheless */
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

/* Whether this operation ended an attempt, so that claims that wait for its record are applied again. */
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

/* Only failures of the store or the machine, a full disk for example, are for the operator; an invalid claim is not. */
static void count_failure(struct once_engine_stats *i, const struct once_op *op)
{
    bool ours = op->result == ONCE_UNAVAILABLE || op->result == ONCE_UNKNOWN || op->result == ONCE_CORRUPT ||
                op->result == ONCE_NO_MEMORY;
    i->errors++;
    i->failures += ours;
    if (ours)
        snprintf(i->failure, sizeof i->failure, "%.*s", (int)sizeof i->failure - 1, op->err.text);
}

/* Counts a job that is answered now; once, however often it was sent. */
static void count_answer(struct engine *e, const struct job *job, uint64_t now_ns)
{
    struct once_engine_stats *i = &e->engine_stats;
    const struct once_op *op = &job->op;
    enum once_verb verb = op->request->verb;
    i->verbs[verb]++;
    if (op->result == ONCE_QUOTA) /* counted by kind */
        return;
    if (op->result != ONCE_OK)
        count_failure(i, op);
    if (job->waiting.is_step && op->result == ONCE_OK && op->reply.arm == ONCE_ARM_IN_PROGRESS)
        return;
    if (!route_stats_count(e->route_stats, op, job->route, now_ns, now_ns - job->submitted_ns,
                           job->waiting.ask_at == 0) ||
        op->result != ONCE_OK)
        return;
    count_operation(&e->counters, op);
    if (e->recent_events != NULL)
        recent_events_note(e->recent_events, op, once_os_clock.wall(NULL));
    if (verb == ONCE_VERB_CLAIM)
        i->claims[op->reply.arm]++;
    if (verb == ONCE_VERB_FINISH && op->reply.arm == ONCE_ARM_DONE)
        i->outcomes[op->request->outcome.state]++;
    if (job->waiting.ask_at == 0 && verb == ONCE_VERB_CLAIM)
        engine_latency_add(&i->claim, now_ns - job->submitted_ns);
    else if (verb == ONCE_VERB_FINISH)
        engine_latency_add(&i->finish, now_ns - job->submitted_ns);
}

/* Moves claims that have to wait to the waiters; returns how many jobs are left, to be answered now. */
static size_t keep_waiters(struct writer *writer, struct job **jobs, size_t count, once_time now)
{
    struct engine *e = writer->engine;
    size_t answered = 0;
    for (size_t i = 0; i < count; i++) {
        bool waits = !e->waits_ended && waiters_accepts(&writer->waiters, jobs[i], now) &&
                     (e->quota == NULL || admission_wait(e->quota, jobs[i]));
        if (waits)
            waiters_add(&writer->waiters, jobs[i], now);
        else
            jobs[answered++] = jobs[i];
    }
    return answered;
}

void engine_answer_step(struct writer *writer, struct job **jobs, size_t count)
{
    struct engine *e = writer->engine;
    ONCE_CRASH_POINT("engine.durable");
    uint64_t now_ns = once_os_monotonic_ns();
    once_time now = (once_time)(now_ns / 1000000);
    pthread_mutex_lock(&e->lock);
    writer->batch_wait.expected = count + writer->queued < e->batch_max ? count + writer->queued : e->batch_max;
    e->counters.batches++;
    engine_stats_add_batch(&e->engine_stats, count);
    e->counters.recovered += writer->recovered;
    writer->recovered = 0;
    if (e->quota != NULL)
        count = admission_after(e->quota, jobs, count, once_os_lease_ms(), &writer->ready);
    size_t answered = keep_waiters(writer, jobs, count, now);
    e->counters.operations += answered;
    /* After keep_waiters(): a claim and the finish that it waits for may be in the same batch. */
    for (size_t i = 0; i < answered; i++) {
        count_answer(e, jobs[i], now_ns);
        if (e->quota != NULL)
            admission_answered(e->quota, jobs[i]);
        if (ends_record(&jobs[i]->op))
            waiters_wake(&writer->waiters, jobs[i]->op.record, &writer->ready);
    }
    pthread_mutex_unlock(&e->lock);
    engine_answer(e, jobs, answered);
    ONCE_CRASH_POINT("engine.answered");
}
