/*
 * dead_letter_sink.h - stores messages that could not be delivered: in a table of the store, or in a topic of the
 * broker.
 *
 * After ONCE_OK the message is durable: committed, or confirmed by the broker. Only then is it acknowledged at its
 * source. Storing a message twice keeps one copy: the table recognises the letter's id, and so does a broker that drops
 * repeats.
 */
#ifndef ONCE_MESSAGES_DEAD_LETTERS_DEAD_LETTER_SINK_H
#define ONCE_MESSAGES_DEAD_LETTERS_DEAD_LETTER_SINK_H

#include "messages/consumer.h"
#include "messages/dead_letters/dead_letters.h"
#include "messages/sinks/sink.h"

struct dead_letter_sink {
    struct dead_letters *table; /* NULL: the topic is used */
    struct sink *sink;
    const char *topic;
    once_span consumer;
    /* Of the message that is being published. */
    enum sink_result result;
    char reason[MESSAGE_REASON_LEN];
};

/* Opens a topic on the broker that `options` describes. */
once_result dead_letter_sink_open_topic(struct dead_letter_sink *s, const char *topic,
                                        const struct sink_options *options, struct once_error *err);
once_result dead_letter_sink_put(struct dead_letter_sink *s, const struct delivery *delivery, struct once_error *err);
void dead_letter_sink_close(struct dead_letter_sink *s);

#endif
