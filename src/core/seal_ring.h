/*
 * seal_ring.h - the keys that bytes are sealed with, as a file of keys has them.
 *
 *     # comment
 *     2026-11        9f86d081...0f00a08       a key for whoever has none of his own: id, 64 hexadecimal digits
 *     acme-1  acme   60303ae2...2fb1f2e9      a key of tenant `acme`; %XX is a byte of his name
 *     2025-11        gone                     was dropped on purpose: what it sealed is not kept any more
 *
 * The last key of a tenant seals what is his, the last without a tenant everything else; all of them open. There must
 * be one without a tenant: whatever comes can be sealed. A message never holds a word of a line but the id of its key.
 */
#ifndef ONCE_CORE_SEAL_RING_H
#define ONCE_CORE_SEAL_RING_H

#include "core/seal.h"

enum { ONCE_SEAL_KEYS_MAX = 65536 };      /* a key each for that many tenants */
#define ONCE_SEAL_TEXT_LEN_MAX (32 << 20) /* their lines */

struct once_seal_ring;

/* `where` names the text in messages: a file. */
once_result once_seal_ring_parse(once_span text, const char *where, struct once_seal_ring **out,
                                 struct once_error *err);
/* Wipes it. NULL is fine. */
void once_seal_ring_free(struct once_seal_ring *ring);

/* What a tenant's bytes are sealed with. */
const struct once_seal_key *once_seal_ring_for(const struct once_seal_ring *ring, once_span tenant);
/* What has this id; NULL: nothing. */
const struct once_seal_key *once_seal_ring_find(const struct once_seal_ring *ring, once_span id);
/* Does any tenant have a key of his own? */
bool once_seal_ring_has_tenants(const struct once_seal_ring *ring);
/* Was it dropped on purpose? */
bool once_seal_ring_is_gone(const struct once_seal_ring *ring, once_span id);

#endif
