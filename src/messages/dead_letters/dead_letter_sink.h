/*
 * dead_letter_sink.h - where messages go that could not be delivered: a table of the store, or a topic of the broker.
 *
 * A message that is buried is kept for good when the call returns ONCE_OK: committed, or confirmed by the broker. Only
 * then is its source told that it is dealt with. Burying twice is burying once: in the table by the letter's id, at a
 * broker that drops repeats by the same.
 */
#ifndef ONCE_MESSAGES_DEAD_LETTERS_DEAD_LETTER_SINK_H
#define ONCE_MESSAGES_DEAD_LETTERS_DEAD_LETTER_SINK_H

#include "messages/consumer.h"
#include "messages/dead_letters/dead_letters.h"
#include "messages/sinks/sink.h"

struct dead_letter_sink {
    struct dead_letters *dead_letters; /* or else */
    struct sink *sink;
    const char *topic;
    once_span consumer;
    /* of the one message that is being published */
    enum sink_result result;
    char reason[OUTBOX_REASON_LEN];
};

/* Opens the sink of a topic on the broker with that URL; `like` has its credentials. */
once_result dead_letter_sink_open_topic(struct dead_letter_sink *g, const char *url, const char *topic,
                                        const struct sink_options *like, struct once_error *err);
once_result dead_letter_sink_put(struct dead_letter_sink *g, const struct delivery *delivery, struct once_error *err);
void dead_letter_sink_close(struct dead_letter_sink *g);

#endif
