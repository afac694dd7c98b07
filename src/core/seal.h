/*
 * seal.h - bytes under a key: what is stored instead of a body, a request, a checkpoint.
 *
 *     offset  size
 *     0       7     "\x9bonce\r\n"
 *     7       1     version, 1
 *     8       1     length of the key's id, K (1 to 32)
 *     9       K     the key's id: A-Z a-z 0-9 . _ -
 *     9+K     12    nonce
 *     21+K    N     ciphertext, as long as what was sealed
 *     21+K+N  16    tag
 *
 * AES-256-GCM. Key and nonce key are of this record alone: two blocks of HKDF-Expand (RFC 5869, HMAC-SHA-256) from
 * the ring's key, with the record id in its info. The nonce is the beginning of HMAC-SHA-256(nonce key, field and
 * bytes): the same bytes of the same field of one record are the same envelope, which is how a repeated finish
 * recognises itself (core/outcome.h), and different bytes share a nonce with probability 2^-96. What is authenticated
 * besides: all that comes before the ciphertext, the field, the record id. So nothing can be moved to another record or
 * field (SEAL-1), and a changed bit is found (SEAL-2). Record ids are of tenant and key: that binds both.
 *
 * Pure. Nettle's contexts are plain memory and cannot fail (ADR 3); they are wiped.
 */
#ifndef ONCE_CORE_SEAL_H
#define ONCE_CORE_SEAL_H

#include "core/buf.h"
#include "core/mac.h"

enum { ONCE_SEAL_KEY_LEN = 32, ONCE_SEAL_ID_LEN_MAX = 32 };
/* An envelope is at most so much longer than what is in it. */
#define ONCE_SEAL_OVERHEAD_MAX (7 + 1 + 1 + ONCE_SEAL_ID_LEN_MAX + 12 + 16)

enum once_seal_field { ONCE_SEAL_OUTCOME = 1, ONCE_SEAL_REQUEST, ONCE_SEAL_CHECKPOINT };

struct once_seal_key {
    char id[ONCE_SEAL_ID_LEN_MAX + 1];
    struct once_mac derive; /* keyed with it */
};

/* Does it begin as an envelope does? What is stored plainly must not (once_seal_check()). */
bool once_seal_is(once_span bytes);
/* The id of the key that it was sealed with. ONCE_CORRUPT if it is cut short, or none of ours. */
once_result once_seal_id(once_span bytes, once_span *id, struct once_error *err);

/* Appends the envelope. */
void once_seal_close(const struct once_seal_key *key, enum once_seal_field field, const uint8_t record[16],
                     once_span plain, struct once_buf *out);
/* Appends what is in it; `key` is that of its id. ONCE_CORRUPT: not sealed with this key, for this field of this
 * record, or changed since. */
once_result once_seal_open(const struct once_seal_key *key, enum once_seal_field field, const uint8_t record[16],
                           once_span bytes, struct once_buf *out, struct once_error *err);

/* 16 bytes that tell two keys apart and nothing about either. */
void once_seal_proof(const struct once_seal_key *key, uint8_t out[16]);

/* An id is 1 to 32 of A-Z a-z 0-9 . _ - */
bool once_seal_id_is_valid(once_span id);

#endif
