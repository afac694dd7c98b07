/*
 * flat.h - a fast path to the canonical form, for a small object of plain members.
 *
 * Most bodies are such an object. json.c handles every text; this needs no parser, no tree and no copies. It accepts
 * an object of at most 32 members, without objects and arrays in it, whose strings are ASCII without escapes. It
 * declines every other text, valid or not; json.c then decides. The form is the one that json.c specifies;
 * test_json.c compares the two.
 */
#ifndef ONCE_CORE_JSON_FLAT_H
#define ONCE_CORE_JSON_FLAT_H

#include "core/buf.h"
#include "once.h"

/* True: `out`, empty before, holds the form. False: it is still empty. */
bool once_json_flat(once_span text, struct once_buf *out);

#endif
