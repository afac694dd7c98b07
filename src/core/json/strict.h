/*
 * strict.h - refuses what yajl lets pass.
 *
 * yajl takes \v and \f for white space, lets overlong and surrogate UTF-8 pass, and turns
 * a lone surrogate escape into "?": each would give two different texts one canonical
 * form. This looks at bytes and strings only; whether it is JSON at all is yajl's to say.
 */
#ifndef ONCE_CORE_JSON_STRICT_H
#define ONCE_CORE_JSON_STRICT_H

#include "once.h"

bool once_json_is_strict(once_span text);

#endif
