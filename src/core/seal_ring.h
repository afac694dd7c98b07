/*
 * seal_ring.h - the keys for sealing, as read from a file of keys.
 *
 *     # comment
 *     2026-11        9f86d081...0f00a08       a key for all tenants without one: id, 64 hexadecimal digits
 *     acme-1  acme   60303ae2...2fb1f2e9      a key of tenant `acme`; %XX is a byte of its name
 *     2025-11        gone                     was dropped on purpose: bytes that it sealed are lost
 *
 * The last key of a tenant seals that tenant's bytes, the last key without a tenant all others; every key unseals.
 * There must be a key without a tenant, so that all bytes can be sealed. Messages quote nothing of a line but key ids.
 */
#ifndef ONCE_CORE_SEAL_RING_H
#define ONCE_CORE_SEAL_RING_H

#include "core/seal.h"

enum { ONCE_SEAL_KEYS_MAX = 65536 };      /* one for each of that many tenants */
#define ONCE_SEAL_TEXT_LEN_MAX (32 << 20) /* their lines */

struct once_seal_ring;

/* `where` names the text in messages: a file name, for instance. */
once_result once_seal_ring_parse(once_span text, const char *where, struct once_seal_ring **out,
                                 struct once_error *err);
/* Wipes and frees it. NULL is fine. */
void once_seal_ring_free(struct once_seal_ring *ring);

/* The key that seals this tenant's bytes. */
const struct once_seal_key *once_seal_ring_for(const struct once_seal_ring *ring, once_span tenant);
/* The key with this id, or NULL. */
const struct once_seal_key *once_seal_ring_find(const struct once_seal_ring *ring, once_span id);
/* Does any tenant have its own key? */
bool once_seal_ring_has_tenants(const struct once_seal_ring *ring);
/* Was the key of this id dropped on purpose (`gone`)? */
bool once_seal_ring_is_gone(const struct once_seal_ring *ring, once_span id);

#endif
