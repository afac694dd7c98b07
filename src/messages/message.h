/*
 * message.h - a message, as outboxes, sinks, sources and dead letters share it.
 *
 * The spans belong to the code that made the message. A sink only reads it, until it has reported the result.
 */
#ifndef ONCE_MESSAGES_MESSAGE_H
#define ONCE_MESSAGES_MESSAGE_H

#include "once.h"

#define MESSAGE_BATCH_MAX 1000 /* messages in a relay's batch; a larger one waits longer for its slowest */
#define MESSAGE_REASON_LEN 240 /* of the text that says why a message failed, with its NUL */

struct message {
    char id[ONCE_UUID_LEN + 1]; /* of the outbox row or the dead letter; empty for a new message from a broker */
    once_span topic, key, content_type, headers, payload; /* headers: lines "name: value" CR LF */
    bool has_key;                                         /* messages of one key are published and delivered in order */
    int32_t refusals;                                     /* earlier attempts to publish it that the receiver refused */
    int32_t crashes;                                      /* earlier attempts during which the relay crashed */
    int64_t age_ms; /* from the enqueue until a relay took it, by the database's clock */
};

/* A message in a table, as an operator sees it: the part that an outbox_item and a dead_letter_item share. */
struct message_item {
    char state[16]; /* outbox: pending, retrying, blocked, scheduled, dead; dead letters: dead, retrying */
    struct message message;
    once_time at; /* when the next attempt is due; when a dead letter died; 0: not set */
    once_span reason;
};
typedef void message_item_fn(void *arg, const struct message_item *item);

/* The messages that a query finds. Empty strings match all. */
struct message_filter {
    const char *states; /* separated by commas */
    const char *topic_prefix;
    const char *consumer; /* dead letters only */
    int32_t most;
};

#endif
