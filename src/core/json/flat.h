/*
 * flat.h - the canonical form of what most bodies are: one small object of plain members.
 *
 * A short way to what json.c does for every text: no parser to set up, no tree, no copies. It takes an object
 * without objects and arrays in it, of at most 32 members, whose strings are ASCII without escapes, and
 * has nothing to say about any other text, valid or not: that goes the long way. Where it has, the form is the
 * one that json.c specifies; test_json.c compares the two.
 */
#ifndef ONCE_CORE_JSON_FLAT_H
#define ONCE_CORE_JSON_FLAT_H

#include "core/buf.h"
#include "once.h"

/* True: `out`, empty before, holds the form. False: it is still empty. */
bool once_json_flat(once_span text, struct once_buf *out);

#endif
