/*
 * admin_queries.h - slow requests of clients: listings, histories, checks, statistics, expiry. A thread runs them one
 * after the other, so that they delay a claim by at most one bounded step.
 */
#ifndef ONCE_DAEMON_SOCKET_ADMIN_QUERIES_H
#define ONCE_DAEMON_SOCKET_ADMIN_QUERIES_H

#include "wire/wire.h"

struct admin_queries;
struct reaper;

/* A query, and its answer as a frame. */
struct admin_query {
    void *asker; /* the connection */
    uint32_t id;
    uint8_t type;
    struct once_buf payload; /* owned */
    struct once_buf answer;
    struct admin_query *next;
};

/* `wake` is an eventfd that is written when there are answers. A query for expiry accepts the reaper's clock. */
once_result admin_queries_start(struct once *once, struct reaper *reaper, int wake, struct admin_queries **out,
                                struct once_error *err);
/* Finishes the query under way, then stops. admin_queries_next() still returns all queries, those that were not begun
 * with an empty answer. */
void admin_queries_stop(struct admin_queries *admin_queries);
void admin_queries_free(struct admin_queries *admin_queries);
/* ONCE_BUSY: the queue is full. */
once_result admin_queries_submit(struct admin_queries *admin_queries, void *asker, const struct wire_frame *frame,
                                 struct once_error *err);
/* The asker is gone: its queries that were not begun are not run; admin_queries_next() still returns them. */
void admin_queries_forget(struct admin_queries *admin_queries, const void *asker);
/* The next answered query, or NULL. The caller releases it. */
struct admin_query *admin_queries_next(struct admin_queries *admin_queries);
void admin_query_release(struct admin_query *job);

#endif
