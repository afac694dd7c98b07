/*
 * key.h - the text of idempotency keys: reading one from a header field, and UUIDv7.
 *
 * The two functions of the public API (once_key_parse, once_key_time) are declared
 * and described in once.h; this adds what only the library itself calls.
 */
#ifndef ONCE_CORE_KEY_H
#define ONCE_CORE_KEY_H

#include "once.h"

/* A UUIDv7 (RFC 9562) of the given time, in lower case. Pure: 74 of the 80 random bits
 * are used. The time must fit its 48 bits: 0 <= unix_ms < 2^48, the year 10889. */
void once_uuid7_format(once_time unix_ms, const uint8_t random[10], char out[ONCE_UUID_LEN + 1]);

#endif
