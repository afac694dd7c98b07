/*
 * json.h - the canonical form of a JSON text.
 *
 * Used to fingerprint request bodies: a retry that was serialised again, with members
 * in another order or other white space, must be the same request. json.c specifies
 * the canonical form.
 */
#ifndef ONCE_CORE_JSON_JSON_H
#define ONCE_CORE_JSON_JSON_H

#include "core/buf.h"
#include "once.h"

/* Texts beyond these limits are not canonicalised, so that a hostile text costs bounded
 * memory and time: their exact bytes are used, which is always safe. */
#define ONCE_JSON_LEN_MAX (64 << 20) /* four times the largest body that is stored */
#define ONCE_JSON_VALUE_COUNT_MAX 1000000
#define ONCE_JSON_DEPTH_MAX 128
#define ONCE_JSON_EXCLUDE_COUNT_MAX 64 /* pointers; more is ONCE_LIMIT */

/* The most that canonicalising can add: a two-byte escape such as \n becomes \u000a. */
#define ONCE_JSON_GROWTH_MAX 3

/*
 * Clears `out` and fills it with the canonical form of `text`, without the members and
 * elements that the JSON Pointers of `exclude` name.
 *   ONCE_OK, *canonical true    `out` holds it
 *   ONCE_OK, *canonical false   `text` has no canonical form; `out` is empty
 *   ONCE_INVALID, ONCE_LIMIT    a pointer is malformed or names the whole document; too
 *                               many pointers; the form is longer than `out` may be
 *   ONCE_NO_MEMORY
 * After a failure `out` is empty and *canonical is false.
 */
ONCE_CHECKED once_result once_json_canonical(once_span text, const once_span *exclude, size_t exclude_count,
                                             struct once_buf *out, bool *canonical, struct once_error *err);

#endif
