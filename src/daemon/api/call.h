/*
 * call.h - an HTTP request that has arrived completely, and the routes that answer it.
 */
#ifndef ONCE_DAEMON_API_CALL_H
#define ONCE_DAEMON_API_CALL_H

#include "daemon/api/answer.h"
#include "daemon/observers/unknown.h"
#include "once.h"

#include <stdatomic.h>

/* Base64 of the largest body, headers and checkpoint, and room for the other members. */
#define API_BODY_LEN_MAX (24 << 20)
/* Claims without a request to fingerprint, grants, points: a key of 255 bytes has 1530 as \u0000. */
#define API_SMALL_LEN_MAX (16 << 10)
/* A checkpoint of which each byte is an escape of six. */
#define API_CHECKPOINT_LEN_MAX (512 << 10)
/* Requests and answers up to this length are not charged to the budget: the number of connections bounds them, and a
 * few large and slow ones must not shut out all the others. */
#define API_UNCOUNTED_LEN (64 << 10)
/* How long a claim may hold a connection and its thread. */
#define API_WAIT_MS_MAX 60000
/* How long /healthz waits for the store. */
#define API_HEALTH_MS 2000

enum { API_STATUS_COUNT = 600 };

/* Counters of the listener, and of the other parts that /metrics shows. */
struct api_counters {
    void (*more)(void *arg, FILE *file); /* writes more metrics; may be NULL */
    void *more_arg;
    const _Atomic bool *up;                      /* without a store: the answer of /healthz */
    const struct escalate_counters *escalations; /* NULL: no such part, as the next three */
    const struct completer_counters *completer;
    const struct expiry_counters *expiry;
    struct health *health;
    once_time started_ms; /* once_os_monotonic_ms() */
    _Atomic uint64_t answers[API_STATUS_COUNT];
    _Atomic uint64_t connections;      /* open now */
    _Atomic uint64_t connections_ever; /* accepted */
    _Atomic uint64_t timed_out;        /* connections closed because they were too slow */
};

/* Bytes of all large requests and answers together. */
struct api_budget {
    _Atomic uint64_t used;
    uint64_t max;
};

struct api_route;
struct decisions;

struct api_call {
    struct once *once;
    const struct api_route *route;
    void *context; /* of the listener, once_api_options */
    once_span body;
    const char *query;         /* after the "?", not decoded; NULL: none */
    const char *cookie, *csrf; /* headers Cookie and X-Once-Csrf; NULL: absent */
    const char *origin;        /* an own origin (api/guard.h); NULL: absent */
    struct api_counters *counters;
    unknown_fn *escalated; /* may be NULL */
    void *escalated_arg;
    struct decisions *log;   /* may be NULL */
    const char *traceparent; /* header; NULL: absent */
    struct api_budget *budget;
    uint64_t charged;           /* to the budget, until the request ends */
    const _Atomic bool *ending; /* the listener stops: do not block */
    int fd;                     /* of the connection, to see whether the client hung up */
    struct api_answer answer;
};

/* False: the budget is used up, and the answer says busy. */
bool api_call_charge(struct api_call *call, uint64_t bytes);
/* Whether the input is complete and valid; else the answer says what is wrong. */
struct api_input;
bool api_call_accept(struct api_call *call, struct api_input *in);

struct api_route {
    const char *path;
    const char *method; /* "GET" includes HEAD */
    size_t body_max;
    void (*run)(struct api_call *call);
};

extern const struct api_route api_routes[];
extern const size_t api_route_count;

void api_claim(struct api_call *call);
void api_take_over(struct api_call *call);
void api_extend(struct api_call *call);
void api_advance(struct api_call *call);
void api_finish(struct api_call *call);
void api_release(struct api_call *call);
void api_child_key(struct api_call *call);
void api_lookup(struct api_call *call);
void api_health(struct api_call *call);
void api_ready(struct api_call *call);
void api_metrics(struct api_call *call);

#endif
