/*
 * headers.h - reads and writes a message's own headers.
 *
 * They are stored as lines "name: value" CR LF. Sinks leave out headers that the broker would interpret, and those that
 * they set themselves. Sources make such lines of the broker's headers, and leave out those that do not fit into one
 * line or into the limit.
 */
#ifndef ONCE_MESSAGES_BROKERS_HEADERS_H
#define ONCE_MESSAGES_BROKERS_HEADERS_H

#include "core/http/header.h"
#include "core/span.h"

#include <strings.h>

/* Takes the next header off `lines`; false: there are no more. Skips lines that are not headers. */
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
    return once_span_equal_nocase(name, once_span_str(other));
}

static inline bool headers_name_starts(once_span name, const char *prefix)
{
    return name.len >= strlen(prefix) && strncasecmp((const char *)name.ptr, prefix, strlen(prefix)) == 0;
}

static inline bool headers__is_one_line(once_span text, const char *but)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] == '\r' || text.ptr[i] == '\n' || text.ptr[i] == '\0' || strchr(but, text.ptr[i]) != NULL)
            return false;
    return true;
}

/* Adds a line, if it is valid and fits as a whole: half a header would be another one. */
static inline void headers_add(struct once_buf *lines, once_span name, once_span value)
{
    if (name.len == 0 || !headers__is_one_line(name, " :") || !headers__is_one_line(value, "") ||
        name.len > lines->max || value.len > lines->max || lines->len + name.len + value.len + 4 > lines->max)
        return;
    once_header_add(lines, name, value);
}

#endif
