/*
 * server.h - the daemon: one store, its engine, and everybody who asks over the unix socket.
 *
 * One thread and epoll(7) for all connections; the engine's own threads do the rest. What
 * connections send is answered in the order in which it becomes durable.
 *
 * Bounds: connections, calls under way per connection, bytes that wait to be read by a client,
 *         bytes of half-received frames in all. Over a bound nobody is read from until there is
 *         room again: backpressure, not growth.
 * Security: who connects is known by SO_PEERCRED; only the daemon's own user, root and users
 *         that were named may speak. Others are told so and closed: they cost no more than that.
 */
#ifndef ONCE_DAEMON_SOCKET_SERVER_H
#define ONCE_DAEMON_SOCKET_SERVER_H

#include "core/buf.h"
#include "daemon/observers/unknown.h"
#include "daemon/socket/call_log.h"
#include "once.h"

#include <sys/types.h>

enum { SERVER_USERS_MAX = 16 };

struct server_options {
    struct once *once; /* opened with options.poll; the server's from server_open() on */
    const char *socket_path;
    uid_t users[SERVER_USERS_MAX]; /* besides our own and root */
    size_t user_count;
    int signals; /* a signalfd: what comes there ends the server */
    /* Callbacks, on the server's thread: they must not wait. Any may be NULL. */
    unknown_fn *escalated;                          /* a record became unknown */
    void (*deferred)(void *arg, once_span request); /* a claim leaves it to a completer */
    void (*ending)(void *arg);                      /* a signal came; before what is under way is answered */
    void (*status)(void *arg, size_t clients, struct once_buf *buf, uint32_t id); /* writes the answer to STATUS */
    void *arg;                                                                    /* theirs */
    struct call_log_outputs call_log;
    bool manual_expiry; /* until somebody asks for its space, as a test does that has a clock of its own */
};

struct server;
struct expiry_counters; /* reaper.h */

/* Whether a socket can have it, without looking there. */
once_result server_path_check(const char *path, struct once_error *err);
/* Listens. A socket that nobody answers on any more is replaced; a live one is not. */
once_result server_open(const struct server_options *options, struct server **out, struct once_error *err);
/* Serves until a signal comes, then finishes what is under way. The number of the signal. */
int server_run(struct server *server);
/* Good until server_close(). */
const struct expiry_counters *server_expiry(const struct server *server);
/* Removes the socket, closes the store. */
void server_close(struct server *server);

#endif
