/*
 * conns.h - the open HTTP connections, and what each of them may take its time for.
 *
 * Model:      a connection has a deadline, or none while its request is being worked on. A
 *             thread closes those whose deadline is over. libmicrohttpd's own time-out only
 *             counts silence; who sends a byte a second would stay for hours.
 * Invariants: API-CONN-1 a connection that is not being worked on has a deadline.
 *             API-CONN-2 there are no more than open_max; others stay in the listener's queue.
 *             API-CONN-3 its descriptor here is a duplicate: closing is libmicrohttpd's, and a number
 *                that was used again is never shut down by mistake.
 */
#ifndef ONCE_DAEMON_API_CONNS_H
#define ONCE_DAEMON_API_CONNS_H

#include "daemon/api/call.h"
#include "once.h"

#include <pthread.h>

struct api_conn {
    int fd;
    once_time deadline; /* once_os_monotonic_ms(); ONCE_NEVER */
    struct api_conn *next, **link;
};

struct api_conns {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t watcher;
    struct api_conn *first;
    size_t open, open_max;
    size_t working; /* requests that are worked on, or whose answer is on its way */
    bool shut, ending;
    int64_t request_ms, answer_ms;
    struct api_counters *counters;
};

once_result api_conns_init(struct api_conns *conns, struct once_error *err);
/* All connections are gone. */
void api_conns_release(struct api_conns *conns);

/* Waits until there is room for one more, and takes it; false: it is ending. */
bool api_conns_admit(struct api_conns *conns);
void api_conns_leave(struct api_conns *conns);
/* Nobody is admitted any more. */
void api_conns_shut(struct api_conns *conns);
/* Something is short, memory or descriptors: wait a little before trying again. */
void api_conns_pause(struct api_conns *conns);

/* NULL: no descriptor or memory left; the connection is not watched and must be closed. */
struct api_conn *api_conns_add(struct api_conns *conns, int fd);
void api_conns_remove(struct api_conns *conns, struct api_conn *conn);

/* The request is there; the answer is ready; it is sent, or given up. */
void api_conns_begin(struct api_conns *conns, struct api_conn *conn);
void api_conns_answer(struct api_conns *conns, struct api_conn *conn);
void api_conns_end(struct api_conns *conns, struct api_conn *conn);

/* Waits until nothing is worked on, but not longer than this. */
void api_conns_drain(struct api_conns *conns, int64_t ms);

#endif
