/* reserved.h - header names that a message must not set: HTTP's own, and those that Once sends. */
#ifndef ONCE_MESSAGES_SINKS_RESERVED_H
#define ONCE_MESSAGES_SINKS_RESERVED_H

#include "once.h"

bool header_is_reserved(once_span name);

#endif
