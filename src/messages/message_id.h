/*
 * message_id.h - determines the id of a message: the key of its record, by which duplicates are recognised.
 *
 * Rules are tried in order; the first that finds an id decides. An id has 1 to 255 bytes; a longer one is replaced by
 * "sha256:" and its digest, so that different ids stay different.
 */
#ifndef ONCE_MESSAGES_MESSAGE_ID_H
#define ONCE_MESSAGES_MESSAGE_ID_H

#include "messages/sources/source.h"

#define MESSAGE_ID_RULES_MAX 8
/* The header with the percent-encoded id of a dead letter that was published to a topic. */
#define MESSAGE_ID_DEAD_HEADER "Dead-Letter-Id"

enum message_id_from {
    MESSAGE_ID_NATIVE,   /* the broker's, or the one that `once relay` sends */
    MESSAGE_ID_HEADER,   /* the header of this name */
    MESSAGE_ID_POSITION, /* its position at the broker: a message that is published twice has two */
    MESSAGE_ID_JSON,     /* the string or number at this JSON Pointer in the payload */
};

struct message_id_rule {
    enum message_id_from from;
    once_span name; /* HEADER, JSON */
};

/* Parses "header", "header:NAME", "position" or "json:POINTER". Returns NULL, or what is wrong. */
const char *message_id_parse(const char *text, struct message_id_rule *rule);

/* False: no rule found an id. *dead: the message comes from a topic of dead letters. */
bool message_id_find(const struct message_id_rule *rules, size_t count, const struct incoming *message,
                     char id[ONCE_KEY_LEN_MAX + 1], size_t *len, bool *dead);

#endif
