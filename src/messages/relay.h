/*
 * relay.h - publishes the messages of an outbox: takes a batch, publishes it, settles it.
 *
 * Invariants (K12): RELAY-1 a message is started only after the one before it of its key, in this batch, was confirmed;
 *                           after a failure no later message of the key is started.
 *                   RELAY-2 a message is removed only after its sink confirmed it.
 *                   RELAY-3 no message is started after half of the lease: those that were started end within the
 *                           lease, unless this process was suspended.
 *                   RELAY-4 a batch whose settling failed is settled again until the lease ends. After that its
 *                           messages are published again, under the same ids.
 *
 * relay_step() is one bounded step. relay_loop.h waits, and connects again after the database went away.
 */
#ifndef ONCE_MESSAGES_RELAY_H
#define ONCE_MESSAGES_RELAY_H

#include "core/buf.h"
#include "messages/outbox/outbox.h"
#include "messages/relay_counters.h"
#include "messages/sinks/sink.h"
#include "trace/tracer.h"

struct relay_route {
    const char *pattern; /* of topics; * matches any characters */
    struct sink *sink;   /* several routes may share it */
};

/* A sink that was not reached gets no messages for a while. */
struct relay_breaker {
    struct sink *sink;
    uint32_t failures;  /* consecutive */
    once_time until_ms; /* monotonic */
    char reason[MESSAGE_REASON_LEN];
};

/* A message of the current batch. */
struct relay_item {
    struct message message; /* as it is published: its headers may carry the span below */
    struct outbox_message *row;
    size_t route; /* RELAY_ROUTES_MAX: none */
    uint64_t started_ns;
    struct relay_item *next; /* the next message of its key in this batch */
    struct tracer_span span; /* of publishing it, if the message carries a sampled trace */
    struct once_buf headers;
};

struct relay {
    struct outbox *outbox;
    struct exporter *exporter; /* of spans; NULL: trace headers are passed on unchanged */
    struct relay_route routes[RELAY_ROUTES_MAX];
    struct relay_breaker breakers[RELAY_ROUTES_MAX];
    size_t route_count, breaker_count;
    int64_t lease_ms, backoff_ms, backoff_ms_max;
    int32_t batch_len, attempts_max, crashes_max;
    struct relay_counters *counters;          /* owned by the caller; may outlive the relay */
    bool (*must_stop)(void *arg);             /* true: start no more messages */
    void (*say)(void *arg, const char *text); /* logs that the outbox is unreachable, or reachable again */
    void *arg;
    struct once_error trouble; /* the last error that was logged; empty: the outbox is reachable */
    /* Of the current batch. */
    uint64_t taken_ns;
    struct relay_item *items;
    size_t item_count;
    struct relay_item **ready; /* to be started now */
    size_t ready_count;
    bool alone;          /* the current batch may be a single suspect */
    bool sink_recovered; /* a sink is reachable again: its messages are due */
};

/* The first route that matches a topic; RELAY_ROUTES_MAX if none does. */
size_t relay_route_of(const struct relay *relay, once_span topic);

/* For sink_options.done, with the relay as its arg. */
void relay_done(void *arg, const struct message *message, enum sink_result result, int64_t retry_after_ms,
                const char *reason);

/* The outbox does not answer, or answers again: counted, and each reason is logged once per outage. */
void relay_outbox_down(struct relay *relay, const struct once_error *why);
void relay_outbox_up(struct relay *relay);

/* Takes, publishes and settles one batch. *took: its number of messages. */
once_result relay_step(struct relay *relay, size_t *took, struct once_error *err);

#endif
