/* parking.c - see parking.h. */
#include "engine/parking.h"

enum { PAUSE_MS_FIRST = 5, PAUSE_MS_MAX = 100 };

bool parking_wants(const struct parking *parking, const struct job *job, once_time now)
{
    const struct once_op *op = &job->op;
    return job->kind == JOB_OPERATION && op->request->verb == ONCE_VERB_CLAIM && op->result == ONCE_OK &&
           op->reply.arm == ONCE_ARM_IN_PROGRESS && now < job->give_up_at && parking->count < parking->max;
}

void parking_take(struct parking *parking, struct job *job, once_time now)
{
    struct once_op *op = &job->op;
    once_time wait = job->give_up_at - now;
    if (op->reply.retry_after_ms + 1 < wait)
        wait = op->reply.retry_after_ms + 1;
    if (parking->shared) {
        job->pause_ms = job->pause_ms == 0 ? PAUSE_MS_FIRST : job->pause_ms * 2;
        if (job->pause_ms > PAUSE_MS_MAX)
            job->pause_ms = PAUSE_MS_MAX;
        if (job->pause_ms < wait)
            wait = job->pause_ms;
    }
    job->ask_at = now + wait;
    once_reply_release(&op->reply);
    struct job **lot = &parking->lots[op->record[0]];
    job->next = *lot;
    *lot = job;
    parking->count++;
}

static void leave(struct parking *parking, struct job **at, struct job **ready)
{
    struct job *job = *at;
    *at = job->next;
    job->next = *ready;
    *ready = job;
    parking->count--;
}

void parking_wake(struct parking *parking, const uint8_t record[16], struct job **ready)
{
    struct job **at = &parking->lots[record[0]];
    while (*at != NULL) {
        if (memcmp((*at)->op.record, record, 16) == 0)
            leave(parking, at, ready);
        else
            at = &(*at)->next;
    }
}

void parking_due(struct parking *parking, once_time now, bool all, struct job **ready)
{
    for (int i = 0; i < PARKING_LOTS && parking->count > 0; i++) {
        struct job **at = &parking->lots[i];
        while (*at != NULL) {
            if (all)
                (*at)->give_up_at = now;
            if (all || (*at)->ask_at <= now)
                leave(parking, at, ready);
            else
                at = &(*at)->next;
        }
    }
}

once_time parking_next(const struct parking *parking)
{
    once_time next = ONCE_NEVER;
    for (int i = 0; i < PARKING_LOTS && parking->count > 0; i++)
        for (const struct job *job = parking->lots[i]; job != NULL; job = job->next)
            if (next == ONCE_NEVER || job->ask_at < next)
                next = job->ask_at;
    return next;
}
