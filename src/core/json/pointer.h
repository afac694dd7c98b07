/*
 * pointer.h - which members of a JSON document are excluded from its canonical form.
 *
 * A JSON Pointer (RFC 6901) has exactly one spelling per path: "~" must be "~0" and "/"
 * must be "~1". So paths are compared as text. The pointers are sorted by their bytes;
 * those that lead into a container all begin with its path and a slash, so they are
 * neighbours in that order: a scope.
 */
#ifndef ONCE_CORE_JSON_POINTER_H
#define ONCE_CORE_JSON_POINTER_H

#include "once.h"

struct once_json_scope {
    size_t begin, end; /* of the sorted pointers; equal: nothing below is excluded */
    size_t prefix_len; /* the container's path with the slash behind it */
};

/* Checks and sorts `count` pointers; ONCE_INVALID names the malformed one. */
once_result once_json_sort_pointers(const once_span *exclude, size_t count, once_span *sorted, struct once_error *err);

/* Is the member or element `name` of the container with this scope excluded? If not,
 * *inner is the scope of its children. */
bool once_json_is_excluded(const once_span *sorted, struct once_json_scope scope, once_span name,
                           struct once_json_scope *inner);

#endif
