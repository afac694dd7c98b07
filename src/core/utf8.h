/* utf8.h - one code point at a time, from bytes that may be anything. */
#ifndef ONCE_CORE_UTF8_H
#define ONCE_CORE_UTF8_H

#include "once.h"

/* The length (1 to 4) of the well-formed sequence at the front of `s`, and its code
 * point; 0 if there is none (overlong, surrogate, cut off, beyond U+10FFFF). */
size_t once_utf8_decode(once_span s, uint32_t *code);

bool once_utf8_valid(once_span s);

#endif
