/* waiters.c - see waiters.h. */
#include "engine/waiters.h"

enum { PAUSE_MS_FIRST = 5, PAUSE_MS_MAX = 100 };

bool waiters_accepts(const struct waiters *waiters, const struct job *job, once_time now)
{
    const struct once_op *op = &job->op;
    return job->kind == JOB_OPERATION && op->request->verb == ONCE_VERB_CLAIM && op->result == ONCE_OK &&
           op->reply.arm == ONCE_ARM_IN_PROGRESS && now < job->waiting.give_up_at && waiters->count < waiters->max;
}

void waiters_add(struct waiters *waiters, struct job *job, once_time now)
{
    struct once_op *op = &job->op;
    once_time wait = job->waiting.give_up_at - now;
    if (op->reply.retry_after_ms + 1 < wait)
        wait = op->reply.retry_after_ms + 1;
    if (waiters->shared) {
        job->waiting.pause_ms = job->waiting.pause_ms == 0 ? PAUSE_MS_FIRST : job->waiting.pause_ms * 2;
        if (job->waiting.pause_ms > PAUSE_MS_MAX)
            job->waiting.pause_ms = PAUSE_MS_MAX;
        if (job->waiting.pause_ms < wait)
            wait = job->waiting.pause_ms;
    }
    job->waiting.ask_at = now + wait;
    once_reply_release(&op->reply);
    struct job **lot = &waiters->buckets[op->record[0]];
    job->next = *lot;
    *lot = job;
    waiters->count++;
}

static void leave(struct waiters *waiters, struct job **at, struct job **ready)
{
    struct job *job = *at;
    *at = job->next;
    job->next = *ready;
    *ready = job;
    waiters->count--;
}

void waiters_wake(struct waiters *waiters, const uint8_t record[16], struct job **ready)
{
    struct job **at = &waiters->buckets[record[0]];
    while (*at != NULL) {
        if (memcmp((*at)->op.record, record, 16) == 0)
            leave(waiters, at, ready);
        else
            at = &(*at)->next;
    }
}

void waiters_due(struct waiters *waiters, once_time now, bool all, struct job **ready)
{
    for (int i = 0; i < WAITER_BUCKETS && waiters->count > 0; i++) {
        struct job **at = &waiters->buckets[i];
        while (*at != NULL) {
            if (all)
                (*at)->waiting.give_up_at = now;
            if (all || (*at)->waiting.ask_at <= now)
                leave(waiters, at, ready);
            else
                at = &(*at)->next;
        }
    }
}

once_time waiters_next_due(const struct waiters *waiters)
{
    once_time next = ONCE_NEVER;
    for (int i = 0; i < WAITER_BUCKETS && waiters->count > 0; i++)
        for (const struct job *job = waiters->buckets[i]; job != NULL; job = job->next)
            if (next == ONCE_NEVER || job->waiting.ask_at < next)
                next = job->waiting.ask_at;
    return next;
}
