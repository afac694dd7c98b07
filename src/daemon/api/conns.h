/*
 * conns.h - the open HTTP connections and their deadlines.
 *
 * Model:      a connection has a deadline, except while its request is answered. A thread closes connections whose
 *             deadline is over. libmicrohttpd's own time-out only counts silence: a client that sends a byte a second
 *             would stay for hours.
 * Invariants: API-CONN-1 a connection has a deadline unless its request is being answered.
 *             API-CONN-2 there are at most open_max; others stay in the listener's queue.
 *             API-CONN-3 its descriptor here is a duplicate: libmicrohttpd closes the original, and a descriptor number
 *                that is used again is never shut down by mistake.
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
    size_t working; /* requests that are being answered, until the answer is sent */
    bool shut, ending;
    int64_t request_ms, answer_ms;
    struct api_counters *counters;
};

once_result api_conns_init(struct api_conns *conns, struct once_error *err);
/* After the last connection was removed. */
void api_conns_release(struct api_conns *conns);

/* Waits until there is room for one more connection, and counts it; false: the listener stops. */
bool api_conns_admit(struct api_conns *conns);
void api_conns_leave(struct api_conns *conns);
/* No connection is admitted any more. */
void api_conns_shut(struct api_conns *conns);
/* Waits a little: memory or descriptors are short. */
void api_conns_pause(struct api_conns *conns);

/* NULL: no descriptor or memory left; the connection has no deadline and must be closed. */
struct api_conn *api_conns_add(struct api_conns *conns, int fd);
void api_conns_remove(struct api_conns *conns, struct api_conn *conn);

/* The request has arrived; the answer is ready; the answer is sent or dropped. */
void api_conns_begin(struct api_conns *conns, struct api_conn *conn);
void api_conns_answer(struct api_conns *conns, struct api_conn *conn);
void api_conns_end(struct api_conns *conns, struct api_conn *conn);

/* Waits until no request is being answered, at most this long. */
void api_conns_drain(struct api_conns *conns, int64_t ms);

#endif
