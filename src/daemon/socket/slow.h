/*
 * slow.h - what a client asks for that takes its time: listings, histories, checks, counts,
 * expiry. A thread of its own does them one after the other, so that they hold up no claim
 * longer than one bounded step.
 */
#ifndef ONCE_DAEMON_SOCKET_SLOW_H
#define ONCE_DAEMON_SOCKET_SLOW_H

#include "wire/wire.h"

struct slow;
struct reaper;

/* A question, and its answer as a frame. */
struct slow_job {
    void *asker; /* the server's: whose it is */
    uint32_t id;
    uint8_t type;
    struct once_buf payload; /* the job's own */
    struct once_buf answer;
    struct slow_job *next;
};

/* `wake` is an eventfd that is written when answers wait. The reaper is told when expiry is asked for. */
once_result slow_start(struct once *once, struct reaper *reaper, int wake, struct slow **out, struct once_error *err);
/* Answers what it is at, then stops; all jobs are still to be taken, those that were not begun without an answer. */
void slow_stop(struct slow *slow);
void slow_free(struct slow *slow);
/* ONCE_BUSY: too many wait already. */
once_result slow_submit(struct slow *slow, void *asker, const struct wire_frame *frame, struct once_error *err);
/* Its asker is gone: what was not begun is not asked. Its jobs are to be taken all the same. */
void slow_forget(struct slow *slow, const void *asker);
/* The next job that is answered, or NULL. The caller releases it. */
struct slow_job *slow_next(struct slow *slow);
void slow_job_release(struct slow_job *job);

#endif
