/*
 * headers.h - a message's own headers, one after the other.
 *
 * They are stored as lines "name: value" CR LF. What a broker would obey, or what the sink itself says, the sink
 * leaves out.
 */
#ifndef ONCE_BROKER_HEADERS_H
#define ONCE_BROKER_HEADERS_H

#include "core/span.h"

#include <strings.h>

/* Takes the next header off `lines`; false: there is none any more. What is no header is passed over. */
static inline bool headers_next(once_span *lines, once_span *name, once_span *value)
{
    while (lines->len > 0) {
        once_span line;
        once_span_cut(*lines, '\n', &line, lines);
        if (line.len > 0 && line.ptr[line.len - 1] == '\r')
            line.len--;
        if (!once_span_cut(line, ':', name, value) || name->len == 0)
            continue;
        while (value->len > 0 && value->ptr[0] == ' ')
            *value = once_span_skip(*value, 1);
        return true;
    }
    return false;
}

static inline bool headers_name_is(once_span name, const char *other)
{
    return name.len == strlen(other) && strncasecmp((const char *)name.ptr, other, name.len) == 0;
}

static inline bool headers_name_starts(once_span name, const char *prefix)
{
    return name.len >= strlen(prefix) && strncasecmp((const char *)name.ptr, prefix, strlen(prefix)) == 0;
}

#endif
