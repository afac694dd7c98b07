/*
 * api.h - the daemon's HTTP listener: the library's protocol as JSON, health, counters.
 *
 * For services in any language on the same machine; docs/api.md is the manual, docs/openapi.json
 * the description for programs. A thread per connection calls libonce's synchronous functions.
 *
 * Invariants: API-1 who is not on this machine, and whose browser is only tricked into asking, is
 *                refused (api/guard.h).
 *             API-2 everything has a bound: connections, the time to send a request and to take an
 *                answer, the bytes of one request and of all of them together.
 *             API-3 a request that has not arrived completely does nothing.
 *             API-4 a status other than 200 means that the question was not answered. What the store
 *                answered is the member `arm`, always with 200.
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
    struct once *once;                   /* NULL: there is no store here, only /metrics and /healthz */
    void (*more)(void *arg, FILE *file); /* writes further metrics; may be NULL, is called by any thread */
    void *more_arg;
    const _Atomic bool *up;                      /* without a store: what /healthz tells */
    const struct escalate_counters *escalations; /* may be NULL, as the next */
    const struct completer_counters *completer;
    const struct expiry_counters *expiry;
    struct health *health; /* what /readyz tells; NULL: as /healthz */
    unknown_fn *escalated; /* a record became unknown; may be NULL */
    void *escalated_arg;
    struct decisions *log;    /* of decisions; may be NULL */
    const char *listen;       /* ADDRESS:PORT; "[::1]:7411", "localhost:0"; port 0: any that is free. Of a
                                 service also the absolute path of a unix socket, for the same user */
    bool any_address;         /* also addresses that others than this machine can reach */
    const char *const *hosts; /* further names for this machine that a Host header may have */
    size_t host_count;
    const char *origin;      /* "https://NAME[:PORT]" of what is before it (api/guard.h); NULL: none */
    uint32_t connection_max; /* 256, up to 4096: more of them wait to be accepted */
    uint32_t request_ms;     /* 30 s: from the connection's begin, or its last answer, to the end of a request */
    uint32_t answer_ms;      /* 60 s: to take an answer */
    uint32_t drain_ms;       /* 5 s: what once_api_stop() gives those who are being answered */
    const struct api_service *service; /* NULL: the JSON API */
    uint64_t bytes_max;                /* 128 MiB: of large requests and answers, all together */
};

struct once_api;

/* A listener with routes of its own instead of the JSON API's, on the same machinery: the console. */
struct api_call;
struct api_route;
struct api_service {
    const struct api_route *routes;
    size_t route_count;
    /* Is this request let in? Asked when its headers are there, before any of its body; else the answer is set. */
    bool (*admit)(struct api_call *call);
    void *context;                   /* call->context */
    const char *const (*headers)[2]; /* name and value, of every answer */
    size_t header_count;
};

/* *out is written only on success. ONCE_INVALID: the address; ONCE_UNAVAILABLE: it is taken. */
ONCE_CHECKED once_result once_api_start(const struct once_api_options *options, struct once_api **out,
                                        struct once_error *err);
/* Accepts nothing more, ends waits, lets those who are being answered have it, closes. NULL is fine. */
void once_api_stop(struct once_api *api);
/* "127.0.0.1:7411": as bound. */
const char *once_api_address(const struct once_api *api);

#endif
