/*
 * api.h - the daemon's HTTP listener: the library's protocol as JSON, health checks, metrics.
 *
 * For services in any language on the same machine. docs/api.md is the manual, docs/openapi.json the description for
 * programs. A thread per connection calls libonce's synchronous functions.
 *
 * Invariants: API-1 requests from other machines, and requests that a web page makes a browser send, are refused
 *                (api/guard.h).
 *             API-2 everything has a bound: connections, the time to send a request and to read an answer, the bytes of
 *                one request and of all requests together.
 *             API-3 a request that has not arrived completely does nothing.
 *             API-4 a status other than 200 means that the store did not answer. Its answer is the member `arm`, always
 *                with 200.
 */
#ifndef ONCE_DAEMON_API_API_H
#define ONCE_DAEMON_API_API_H

#include "daemon/observers/unknown.h"
#include "once.h"

#include <stdatomic.h>
#include <stdio.h>

struct escalate_counters;
struct completer_counters;
struct expiry_counters;
struct health;
struct decisions;

#define ONCE_API_LISTEN_DEFAULT "127.0.0.1:7411"

/* Zero means the default. */
struct once_api_options {
    struct once *once;                   /* NULL: only /metrics and /healthz, for `once relay` and `once consume` */
    void (*more)(void *arg, FILE *file); /* writes more metrics, on any thread; may be NULL */
    void *more_arg;
    const _Atomic bool *up;                      /* without a store: the answer of /healthz */
    const struct escalate_counters *escalations; /* may be NULL, as the next two */
    const struct completer_counters *completer;
    const struct expiry_counters *expiry;
    struct health *health; /* for /readyz; NULL: the same as /healthz */
    unknown_fn *escalated; /* a record became unknown; may be NULL */
    void *escalated_arg;
    struct decisions *log;    /* of decisions; may be NULL */
    const char *listen;       /* ADDRESS:PORT, e.g. "[::1]:7411"; port 0: any free port. For a service also the
                                 absolute path of a unix socket, for the same user only */
    bool any_address;         /* allow addresses that other machines can reach */
    const char *const *hosts; /* names of this machine that a Host header may have besides */
    size_t host_count;
    const char *origin;      /* "https://NAME[:PORT]" of a proxy in front (api/guard.h); NULL: none */
    uint32_t connection_max; /* 256, up to 4096: more stay in the listener's queue */
    uint32_t request_ms;     /* 30 s: from the start of the connection, or its last answer, to the end of a request */
    uint32_t answer_ms;      /* 60 s: to read an answer */
    uint32_t drain_ms;       /* 5 s: for requests under way in once_api_stop() */
    const struct api_service *service; /* NULL: the JSON API */
    uint64_t bytes_max;                /* 128 MiB: of all large requests and answers together */
};

struct once_api;

/* Other routes in place of the JSON API's: the console. */
struct api_call;
struct api_route;
struct api_service {
    const struct api_route *routes;
    size_t route_count;
    /* Whether this request is allowed: called after its headers, before its body. False: the answer is set. */
    bool (*admit)(struct api_call *call);
    void *context;                   /* call->context */
    const char *const (*headers)[2]; /* name and value; added to every answer */
    size_t header_count;
};

/* *out is written only on success. ONCE_INVALID: the address is wrong; ONCE_UNAVAILABLE: it is in use. */
ONCE_CHECKED once_result once_api_start(const struct once_api_options *options, struct once_api **out,
                                        struct once_error *err);
/* Stops accepting, ends waits, lets requests under way finish for drain_ms, closes. NULL is fine. */
void once_api_stop(struct once_api *api);
/* "127.0.0.1:7411": with the port that it got. */
const char *once_api_address(const struct once_api *api);

#endif
