/*
 * relay.h - publishes what is in an outbox: take a batch, publish, settle.
 *
 * Invariants (K12): RELAY-1 a message is started only after the one before it of its key, in this batch, was
 *                      confirmed; a failure ends its key's turn.
 *                   RELAY-2 a message is removed only after its sink confirmed it.
 *                   RELAY-3 nothing is started after half of the lease: what was started ends within it, unless this
 *                      process stood still.
 *                   RELAY-4 an outbox that did not hear of a batch is told again, until the lease is over. What it
 * never hears of is published again, under the same id.
 *
 * relay_step() is one bounded step. Waiting and the loss of the database are relay_loop.h's.
 */
#ifndef ONCE_MESSAGES_RELAY_H
#define ONCE_MESSAGES_RELAY_H

#include "core/buf.h"
#include "messages/outbox/outbox.h"
#include "messages/relay_counters.h"
#include "messages/sinks/sink.h"
#include "trace/tracer.h"

struct relay_route {
    const char *pattern; /* of topics; * is any characters */
    struct sink *sink;   /* may be another route's, too */
};

/* How a sink does: one that is not reached is left alone for a while. */
struct relay_breaker {
    struct sink *sink;
    uint32_t failures;  /* in a row */
    once_time until_ms; /* monotonic */
    char reason[MESSAGE_REASON_LEN];
};

/* A message of the batch at hand. */
struct relay_item {
    struct message message; /* as it is published: its headers may carry the span below */
    struct outbox_message *row;
    size_t route; /* RELAY_ROUTES_MAX: none */
    uint64_t started_ns;
    struct relay_item *next; /* of its key, in this batch */
    struct tracer_span span; /* of publishing it, if it came with a sampled trace */
    struct once_buf headers;
};

struct relay {
    struct outbox *outbox;
    struct exporter *exporter; /* of spans; NULL: traces pass through as they are */
    struct relay_route routes[RELAY_ROUTES_MAX];
    struct relay_breaker breakers[RELAY_ROUTES_MAX];
    size_t route_count, breaker_count;
    int64_t lease_ms, backoff_ms, backoff_ms_max;
    int32_t batch_len, attempts_max, crashes_max;
    struct relay_counters *counters;          /* the caller's; they may outlive this */
    bool (*must_stop)(void *arg);             /* start no more */
    void (*say)(void *arg, const char *text); /* that the outbox is away, and is back */
    void *arg;
    struct once_error trouble; /* as it was last said; empty: the outbox is there */
    /* Of the batch at hand. */
    uint64_t taken_ns;
    struct relay_item *items;
    size_t item_count;
    struct relay_item **ready; /* to be started now */
    size_t ready_count;
    bool alone;          /* whether the next batch may be a suspect */
    bool sink_recovered; /* a sink is back: its messages are due */
};

/* The first route that matches a topic; RELAY_ROUTES_MAX: none does. */
size_t relay_route_of(const struct relay *relay, once_span topic);

/* For sink_options.done, with the relay as its arg. */
void relay_done(void *arg, const struct message *message, enum sink_result result, int64_t retry_after_ms,
                const char *reason);

/* The outbox did not answer, or does again: counted, and each reason said once, since an outage may be long. */
void relay_outbox_down(struct relay *relay, const struct once_error *why);
void relay_outbox_up(struct relay *relay);

/* One batch. *took: how many messages; 0: there were none. */
once_result relay_step(struct relay *relay, size_t *took, struct once_error *err);

#endif
