/*
 * admin_queries.h - what a client asks for that takes its time: listings, histories, checks, counts,
 * expiry. A thread of its own does them one after the other, so that they hold up no claim
 * longer than one bounded step.
 */
#ifndef ONCE_DAEMON_SOCKET_ADMIN_QUERIES_H
#define ONCE_DAEMON_SOCKET_ADMIN_QUERIES_H

#include "wire/wire.h"

struct admin_queries;
struct reaper;

/* A question, and its answer as a frame. */
struct admin_query {
    void *asker; /* the server's: whose it is */
    uint32_t id;
    uint8_t type;
    struct once_buf payload; /* the job's own */
    struct once_buf answer;
    struct admin_query *next;
};

/* `wake` is an eventfd that is written when answers wait. The reaper is told when expiry is asked for. */
once_result admin_queries_start(struct once *once, struct reaper *reaper, int wake, struct admin_queries **out,
                                struct once_error *err);
/* Answers what it is at, then stops; all jobs are still to be taken, those that were not begun without an answer. */
void admin_queries_stop(struct admin_queries *admin_queries);
void admin_queries_free(struct admin_queries *admin_queries);
/* ONCE_BUSY: too many wait already. */
once_result admin_queries_submit(struct admin_queries *admin_queries, void *asker, const struct wire_frame *frame,
                                 struct once_error *err);
/* Its asker is gone: what was not begun is not asked. Its jobs are to be taken all the same. */
void admin_queries_forget(struct admin_queries *admin_queries, const void *asker);
/* The next job that is answered, or NULL. The caller releases it. */
struct admin_query *admin_queries_next(struct admin_queries *admin_queries);
void admin_query_release(struct admin_query *job);

#endif
