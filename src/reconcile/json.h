/*
 * json.h - picks named values from a JSON text.
 *
 * A name is a JSON Pointer (RFC 6901) if it begins with a slash, else a member of the
 * outermost object. Values are texts (unescaped), numbers (their literal text), true and
 * false; null counts as absent. Memory is bounded by the text (json/events.h).
 */
#ifndef ONCE_RECONCILE_JSON_H
#define ONCE_RECONCILE_JSON_H

#include "core/buf.h"
#include "once.h"

struct reconcile_pick {
    once_span name;
    bool found;
    bool composite;  /* it is an object or an array */
    once_span value; /* in `memory` of the call */
};

/*
 * Fills `picks` from `text`, which must be one JSON object. Values live in `memory` (initialised
 * by the caller) until that is cleared. ONCE_INVALID: the text is not a JSON object, or a
 * picked member occurs twice; ONCE_LIMIT: it is nested too deeply; ONCE_NO_MEMORY.
 */
ONCE_CHECKED once_result reconcile_json_pick(once_span text, struct reconcile_pick *picks, size_t count,
                                             struct once_buf *memory, struct once_error *err);

/* True if `name` is a valid name for a pick. */
bool reconcile_json_is_name(once_span name);

#endif
