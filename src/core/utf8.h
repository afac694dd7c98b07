/* utf8.h - decodes UTF-8, one code point at a time, from untrusted bytes. */
#ifndef ONCE_CORE_UTF8_H
#define ONCE_CORE_UTF8_H

#include "once.h"

/* The length (1 to 4) of the well-formed sequence at the front of `s`, and its code
 * point; 0 if it is malformed (overlong, surrogate, cut off, beyond U+10FFFF). */
size_t once_utf8_decode(once_span s, uint32_t *code);

bool once_utf8_valid(once_span s);

#endif
