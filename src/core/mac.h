/*
 * mac.h - HMAC-SHA-256 over length-prefixed parts.
 *
 * Everything Once derives (record ids, fingerprints, child keys) is such a MAC.
 * Each part is preceded by its length as 8 bytes, big-endian, so that no two
 * lists of parts are the same bytes; the SQL functions compute the same.
 *
 * Nettle's contexts are plain memory: a prepared key is copied, never allocated,
 * and nothing here can fail (docs/adr/0003-nettle-for-hmac-sha-256.md).
 */
#ifndef ONCE_CORE_MAC_H
#define ONCE_CORE_MAC_H

#include "once.h"

#include <nettle/hmac.h>

#define ONCE_MAC_LEN 32

struct once_mac {
    struct hmac_sha256_ctx keyed; /* initialised with the key, no message yet */
    uint8_t key[ONCE_MAC_LEN];    /* the key, if it has this length: a daemon sends it to its clients */
};

/* A MAC that is computed part by part, for lists that are not in one array: start, add, add, ..., end. */
struct once_mac_run {
    struct hmac_sha256_ctx ctx;
};

void once_mac_init(struct once_mac *mac, once_span key);
void once_mac_start(const struct once_mac *mac, struct once_mac_run *run);
void once_mac_add(struct once_mac_run *run, once_span part);
void once_mac_end(struct once_mac_run *run, uint8_t out[ONCE_MAC_LEN]);
/* start, add and end in one call. */
void once_mac_parts(const struct once_mac *mac, const once_span *parts, size_t count, uint8_t out[ONCE_MAC_LEN]);
void once_sha256(once_span bytes, uint8_t out[ONCE_MAC_LEN]);

#endif
