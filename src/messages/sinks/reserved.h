/* reserved.h - which header names a message may not bring along: HTTP's own, and ours. */
#ifndef ONCE_MESSAGES_SINKS_RESERVED_H
#define ONCE_MESSAGES_SINKS_RESERVED_H

#include "once.h"

bool header_is_reserved(once_span name);

#endif
