/*
 * key.h - the text of idempotency keys: reading one from a header field, and UUIDv7.
 *
 * The two functions of the public API (once_key_parse, once_key_time) are declared
 * and described in once.h; this header adds the internal functions.
 */
#ifndef ONCE_CORE_KEY_H
#define ONCE_CORE_KEY_H

#include "once.h"

/* A UUIDv7 (RFC 9562) of the given time, in lower case. Pure: 74 of the 80 random bits
 * are used. The time must fit its 48 bits: 0 <= unix_ms < 2^48, the year 10889. */
void once_uuid7_format(once_time unix_ms, const uint8_t random[10], char out[ONCE_UUID_LEN + 1]);

/*
 * Is this a UUIDv7 whose time is outside the window of a record that is kept for `retention_ms`? Then a claim of it
 * that finds no record is not executed (once_claim.key_time). S is the skew: ONCE_KEY_SKEW_MS_MAX, or half the
 * retention if that is less. `born` is the time in the key.
 *
 *     KEY-1  a key is inside if born <= now + S  and  now - born < retention - S
 *     KEY-2  a key that was inside at t is outside from t + retention on, which is before its record can have expired:
 *         t + retention - born >= retention - S. So it is never executed twice, whichever clock made it.
 *
 * Other keys are never outside, nor is any key if the retention is ONCE_NEVER.
 */
bool once_key_is_outside(once_span key, int64_t retention_ms, once_time now);
/* The skew S for this retention. */
int64_t once_key_skew(int64_t retention_ms);

#endif
