/*
 * graveyard.h - where messages go that could not be delivered: a table of the store, or a topic of the broker.
 *
 * A message that is buried is kept for good when the call returns ONCE_OK: committed, or confirmed by the broker. Only
 * then is its source told that it is dealt with. Burying twice is burying once: in the table by the letter's id, at a
 * broker that drops repeats by the same.
 */
#ifndef ONCE_MESSAGES_DEAD_LETTERS_GRAVEYARD_H
#define ONCE_MESSAGES_DEAD_LETTERS_GRAVEYARD_H

#include "messages/consumer.h"
#include "messages/dead_letters/letters.h"
#include "messages/sinks/sink.h"

struct graveyard {
    struct letters *letters; /* or else */
    struct sink *sink;
    const char *topic;
    once_span consumer;
    /* of the one message that is being published */
    enum sink_result result;
    char reason[OUTBOX_REASON_LEN];
};

/* Opens the sink of a topic on the broker with that URL; `like` has its credentials. */
once_result graveyard_open_topic(struct graveyard *g, const char *url, const char *topic,
                                 const struct sink_options *like, struct once_error *err);
once_result graveyard_bury(struct graveyard *g, const struct delivery *delivery, struct once_error *err);
void graveyard_close(struct graveyard *g);

#endif
