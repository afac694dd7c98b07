/*
 * consume_loop.h - consumes until it is told to stop: reads messages from a source while there is room (CONSUMER-4),
 * hands them to the consumer's threads (consumer.h), and settles those that have ended.
 *
 * Nothing else acknowledges messages (CONSUMER-1, K13): a delivered message is acknowledged after its outcome is
 * durable in the store, a dead letter after it is durable in the table or topic of dead letters; every other message is
 * returned to the broker. A dead letter that an operator retries is read from the table, and removed there after its
 * delivery.
 *
 * When the broker or the store goes away no message is lost: the loop connects again. It checks must_stop between steps
 * and while it waits; then it starts no more deliveries, and returns after those under way have ended.
 * Callers: cli/consume.c (the process is this loop), daemon/consumer_thread.c. One thread; any thread may read the
 * counters.
 */
#ifndef ONCE_MESSAGES_CONSUME_LOOP_H
#define ONCE_MESSAGES_CONSUME_LOOP_H

#include "messages/consumer.h"
#include "messages/message_id.h"

#include <stdatomic.h>
#include <stdio.h>

#define CONSUME_BROKER_MS 10000 /* timeout of connecting to the broker, and of one request to it */

/* Owned by the caller; may outlive the loop. */
struct consume_counters {
    _Atomic bool up;                                                    /* the broker is reached */
    _Atomic uint64_t received, done, duplicates, failed, delayed, dead; /* since the start */
    _Atomic int64_t open_count;   /* messages that were read and are not settled */
    _Atomic int64_t lag;          /* messages that wait at the broker; -1: not known */
    _Atomic int64_t dead_letters; /* of this consumer, in the table; -1: not known, or there is no table */
};

struct consume_options {
    struct consumer_options consumer;
    struct source_options source;
    struct message_id_rule rules[MESSAGE_ID_RULES_MAX];
    size_t rule_count;
    const char *store_url;         /* the store with the table of dead letters */
    const char *dead_letter_topic; /* on the same broker; NULL: the table */
    int64_t redelivery_window_ms;  /* how long the broker may deliver a message again; 0: ask the broker */
    int64_t report_ms;
    bool drain; /* end when the source has no more messages */
    int wake;   /* a descriptor: waiting ends when it is readable */
    struct consume_counters *counters;
    bool (*must_stop)(void *arg); /* also called while the last deliveries end */
    void (*say)(void *arg, const char *text);
    void (*report)(void *arg); /* called every report_ms and at the end, after the counters were updated; may be NULL */
    void *arg;
};

struct consume_loop;

/* Opens the source and the dead letters, without connecting to the broker. ONCE_INVALID: the options are wrong. Keeps a
 * pointer to `options`. */
once_result consume_loop_open(const struct consume_options *options, struct consume_loop **out, struct once_error *err);
/* Connects to the broker. ONCE_INVALID: the retention is shorter than the redelivery window. */
once_result consume_loop_connect(struct consume_loop *loop, struct once_error *err);
/* Consumes until it must stop. Fails only if its threads cannot be started. */
once_result consume_loop_run(struct consume_loop *loop, struct once_error *err);
void consume_loop_close(struct consume_loop *loop); /* NULL is fine */

/* For /metrics. */
void consume_counters_put(const struct consume_counters *counters, FILE *file);

#endif
