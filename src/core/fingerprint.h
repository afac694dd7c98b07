/*
 * fingerprint.h - a keyed hash of a request, version 1.
 *
 * docs/internals/fingerprint.md specifies the algorithm with test vectors; the SQL
 * functions compute the same. The public wrappers that take a `struct once` add only
 * the store's secret.
 */
#ifndef ONCE_CORE_FINGERPRINT_H
#define ONCE_CORE_FINGERPRINT_H

#include "core/mac.h"
#include "once.h"

#define ONCE_FINGERPRINT_HEADER_COUNT_MAX 64           /* chosen headers: a handful in practice */
#define ONCE_FINGERPRINT_HEADERS_LEN_MAX (1024 * 1024) /* bytes of them all, with their lengths */

/* The key for one tenant's fingerprints: two tenants' fingerprints of the same request are unrelated. */
void once_fingerprint_salt(const struct once_mac *secret, once_span tenant, struct once_mac *salt);

/* ONCE_LIMIT: too many or too large headers, too many excluded pointers; ONCE_INVALID: a
 * malformed pointer; ONCE_NO_MEMORY. *out is written on success only. */
ONCE_CHECKED once_result once_fingerprint_http_with(const struct once_mac *salt, const struct once_http *http,
                                                    struct once_fingerprint *out, struct once_error *err);

void once_fingerprint_list_with(const struct once_mac *salt, const once_span *parts, size_t count,
                                struct once_fingerprint *out);

#endif
