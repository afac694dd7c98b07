/*
 * events.h - parses a JSON text with yajl and reports each value, name and end to one function.
 *
 * yajl does not check what malloc returns, so its memory is allocated beforehand, in one block: `4 * length` bytes and
 * some kilobytes are enough for any text that is parsed in one piece (json/events.c says why). yajl is
 * lenient: a caller that must not treat two different texts as one checks the text with json/strict.h first.
 */
#ifndef ONCE_CORE_JSON_EVENTS_H
#define ONCE_CORE_JSON_EVENTS_H

#include "once.h"

enum once_json_event {
    ONCE_JSON_NULL,
    ONCE_JSON_FALSE,
    ONCE_JSON_TRUE,
    ONCE_JSON_NUMBER, /* bytes: as it is written */
    ONCE_JSON_STRING, /* bytes: unescaped */
    ONCE_JSON_ARRAY,  /* begins */
    ONCE_JSON_OBJECT, /* begins */
    ONCE_JSON_NAME,   /* of the member whose value comes next; bytes: unescaped */
    ONCE_JSON_END,    /* of the innermost array or object */
};

/* Returns false to stop parsing. `bytes` is borrowed for the call. */
typedef bool once_json_event_fn(void *arg, enum once_json_event event, once_span bytes);

/* ONCE_OK: the text is one JSON value, and `fn` saw all of it. ONCE_INVALID: the text is not JSON, or `fn` stopped; *at
 * (may be NULL) is the number of bytes before the fault. ONCE_NO_MEMORY. */
ONCE_CHECKED once_result once_json_parse(once_span text, once_json_event_fn *fn, void *arg, size_t *at);

#endif
