/*
 * message_id.h - which id a message is known by: the key of its record, and what duplicates are recognised by.
 *
 * Rules are tried in their order; the first that finds something counts. An id is 1 to 255 bytes; what is longer is
 * replaced by "sha256:" and its digest, so that two that differ stay two.
 */
#ifndef ONCE_MESSAGES_MESSAGE_ID_H
#define ONCE_MESSAGES_MESSAGE_ID_H

#include "messages/sources/source.h"

#define MESSAGE_ID_RULES_MAX 8
/* What a dead letter that was published to a topic has in this header is its id there, too: percent-encoded. */
#define MESSAGE_ID_DEAD_HEADER "Dead-Letter-Id"

enum message_id_from {
    MESSAGE_ID_NATIVE,   /* the one that the broker, or `once relay`, has for it */
    MESSAGE_ID_HEADER,   /* of this name */
    MESSAGE_ID_POSITION, /* its place at the broker: what was published twice is two messages */
    MESSAGE_ID_JSON,     /* a natural key: the string or number that this JSON Pointer leads to in the payload */
};

struct message_id_rule {
    enum message_id_from from;
    once_span name; /* HEADER, JSON */
};

/* "header", "header:NAME", "position", "json:POINTER". NULL, or what is wrong with it. */
const char *message_id_parse(const char *text, struct message_id_rule *rule);

/* *dead: it comes from a topic of dead letters. False: no rule found one. */
bool message_id_find(const struct message_id_rule *rules, size_t count, const struct incoming *message,
                     char id[ONCE_KEY_LEN_MAX + 1], size_t *len, bool *dead);

#endif
