/* message.h - checks of the arguments of outbox and inbox calls, the same for every database. */
#ifndef ONCE_CORE_MESSAGE_H
#define ONCE_CORE_MESSAGE_H

#include "once.h"

ONCE_CHECKED once_result once_message_check(const struct once_message *message, struct once_error *err);
ONCE_CHECKED once_result once_consumer_check(const struct once_consumer *consumer, struct once_error *err);
/* A consumer's name or a message's id. */
ONCE_CHECKED once_result once_inbox_name_check(const char *what, once_span text, struct once_error *err);

#endif
