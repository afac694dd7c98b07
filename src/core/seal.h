/*
 * seal.h - the envelope of sealed bytes: a body, a request or a checkpoint, encrypted.
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
 * AES-256-GCM. Each record has its own key and nonce key: two blocks of HKDF-Expand (RFC 5869, HMAC-SHA-256) from the
 * ring's key, with the record id in the info. The nonce is the beginning of HMAC-SHA-256(nonce key, field and bytes).
 * So the same bytes in the same field of one record give the same envelope, by which a repeated finish is recognised
 * (core/outcome.h), and different bytes share a nonce with probability 2^-96. The tag also authenticates all bytes
 * before the ciphertext, the field and the record id, which is a MAC of tenant and key and binds both.
 *
 * Invariants: SEAL-1 an envelope cannot be moved to another record or field (SEAL-2, a changed bit: store/wrap/seal.c).
 *
 * Pure. Nettle's contexts are plain memory and cannot fail (ADR 3); they are wiped.
 */
#ifndef ONCE_CORE_SEAL_H
#define ONCE_CORE_SEAL_H

#include "core/buf.h"
#include "core/mac.h"

enum { ONCE_SEAL_KEY_LEN = 32, ONCE_SEAL_ID_LEN_MAX = 32 };
/* The most that an envelope is longer than its contents. */
#define ONCE_SEAL_OVERHEAD_MAX (7 + 1 + 1 + ONCE_SEAL_ID_LEN_MAX + 12 + 16)

enum once_seal_field { ONCE_SEAL_OUTCOME = 1, ONCE_SEAL_REQUEST, ONCE_SEAL_CHECKPOINT };

struct once_seal_key {
    char id[ONCE_SEAL_ID_LEN_MAX + 1];
    struct once_mac derive; /* a MAC with this key */
};

/* Do the bytes begin like an envelope? Bytes that are stored unsealed must not. */
bool once_seal_is(once_span bytes);
/* The id of the key that sealed the bytes. ONCE_CORRUPT if they are cut short, or not an envelope of ours. */
once_result once_seal_id(once_span bytes, once_span *id, struct once_error *err);

/* Appends the envelope. */
void once_seal_close(const struct once_seal_key *key, enum once_seal_field field, const uint8_t record[16],
                     once_span plain, struct once_buf *out);
/* Appends the contents; `key` is the one with the envelope's id. ONCE_CORRUPT: not sealed with this key, for this
 * field of this record, or changed since. */
once_result once_seal_open(const struct once_seal_key *key, enum once_seal_field field, const uint8_t record[16],
                           once_span bytes, struct once_buf *out, struct once_error *err);

/* 16 bytes that differ for different keys and reveal nothing about a key. */
void once_seal_proof(const struct once_seal_key *key, uint8_t out[16]);

/* An id is 1 to 32 of A-Z a-z 0-9 . _ - */
bool once_seal_id_is_valid(once_span id);

#endif
