/*
 * strict.h - refuses invalid JSON that yajl accepts.
 *
 * yajl accepts \v and \f as white space, accepts overlong and surrogate UTF-8, and turns a
 * lone surrogate escape into "?": each would give two different texts one canonical form.
 * This checks bytes and strings only; yajl checks the grammar.
 */
#ifndef ONCE_CORE_JSON_STRICT_H
#define ONCE_CORE_JSON_STRICT_H

#include "once.h"

bool once_json_is_strict(once_span text);

#endif
