/*
 * server.h - serves a store over a unix socket: to the gateway, to libonce and to the `once` command.
 *
 * One thread with epoll(7) serves all connections; the engine's threads apply the calls. Calls are answered in the
 * order in which they become durable.
 *
 * Bounds:   connections; per connection the calls under way and the bytes of unsent answers; the bytes of all partially
 *           received frames. Above a bound the server stops reading until usage drops (backpressure).
 * Security: SO_PEERCRED tells the user of a client. Only the daemon's own user, root and the named users are served;
 *           others get an error and are closed.
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
    struct once *once; /* opened with options.poll; the server owns it from server_open() on */
    const char *socket_path;
    uid_t users[SERVER_USERS_MAX]; /* besides our own and root */
    size_t user_count;
    int signals; /* a signalfd: any signal ends server_run() */
    /* Callbacks, on the server's thread: they must not wait. Any may be NULL. */
    unknown_fn *escalated;                          /* a record became unknown */
    void (*deferred)(void *arg, once_span request); /* a claim with takeover `completer` came */
    void (*ending)(void *arg);                      /* a signal came; before calls under way are answered */
    void (*status)(void *arg, size_t clients, struct once_buf *buf, uint32_t id); /* writes the answer to STATUS */
    void *arg;                                                                    /* of the callbacks */
    struct call_log_outputs call_log;
    bool manual_expiry; /* the reaper expires only on request; for tests with their own clock */
};

struct server;
struct expiry_counters; /* reaper.h */

/* Whether it can be a socket's path; does not look at the file system. */
once_result server_path_check(const char *path, struct once_error *err);
/* Listens. Replaces a socket on which no process listens any more. */
once_result server_open(const struct server_options *options, struct server **out, struct once_error *err);
/* Serves until a signal comes, then answers the calls under way. Returns the signal. */
int server_run(struct server *server);
/* Valid until server_close(). */
const struct expiry_counters *server_expiry(const struct server *server);
/* Removes the socket, closes the store. */
void server_close(struct server *server);

#endif
