/* seal.c - see seal.h, which specifies the format. */
#include "core/seal.h"

#include "core/err.h"
#include "core/span.h"

#include <nettle/gcm.h>
#include <nettle/memops.h>

static const uint8_t magic[8] = { 0x9b, 'o', 'n', 'c', 'e', '\r', '\n', 1 };

enum { NONCE_LEN = GCM_IV_SIZE, TAG_LEN = GCM_DIGEST_SIZE, HEAD_LEN = sizeof magic + 1 };

bool once_seal_is(once_span bytes)
{
    return bytes.len >= sizeof magic - 1 && memcmp(bytes.ptr, magic, sizeof magic - 1) == 0;
}

bool once_seal_id_is_valid(once_span id)
{
    for (size_t i = 0; i < id.len; i++) {
        uint8_t c = id.ptr[i];
        bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
                    c == '_' || c == '-';
        if (!good)
            return false;
    }
    return id.len >= 1 && id.len <= ONCE_SEAL_ID_LEN_MAX;
}

once_result once_seal_id(once_span bytes, once_span *id, struct once_error *err)
{
    if (!once_seal_is(bytes) || bytes.len < HEAD_LEN)
        return once_fail(err, ONCE_CORRUPT, "sealed bytes are cut short at %zu", bytes.len);
    if (bytes.ptr[7] != magic[7])
        return once_fail(err, ONCE_CORRUPT, "sealed bytes have version %d, this program knows %d", bytes.ptr[7],
                         magic[7]);
    size_t len = bytes.ptr[8];
    if (bytes.len < HEAD_LEN + len + NONCE_LEN + TAG_LEN)
        return once_fail(err, ONCE_CORRUPT, "sealed bytes are cut short at %zu", bytes.len);
    *id = once_span_of(bytes.ptr + HEAD_LEN, len);
    if (!once_seal_id_is_valid(*id))
        return once_fail(err, ONCE_CORRUPT, "sealed bytes have no valid key id");
    return ONCE_OK;
}

/* ------------------------------------------------------------------ one record's keys */

struct keys {
    uint8_t cipher[ONCE_SEAL_KEY_LEN];
    struct once_mac nonce;
};

/* HKDF-Expand: T(1) = HMAC(key, info 1), T(2) = HMAC(key, T(1) info 2). The ring's key is uniform: nothing to extract.
 */
static void derive(const struct once_seal_key *key, const uint8_t record[16], struct keys *out)
{
    static const char label[] = "once seal 1";
    uint8_t info[sizeof label - 1 + 16 + 1], second[ONCE_MAC_LEN];
    memcpy(info, label, sizeof label - 1);
    memcpy(info + sizeof label - 1, record, 16);
    struct hmac_sha256_ctx ctx = key->derive.keyed;
    info[sizeof info - 1] = 1;
    hmac_sha256_update(&ctx, sizeof info, info);
    hmac_sha256_digest(&ctx, sizeof out->cipher, out->cipher);
    ctx = key->derive.keyed;
    info[sizeof info - 1] = 2;
    hmac_sha256_update(&ctx, sizeof out->cipher, out->cipher);
    hmac_sha256_update(&ctx, sizeof info, info);
    hmac_sha256_digest(&ctx, sizeof second, second);
    once_mac_init(&out->nonce, once_span_of(second, sizeof second));
    explicit_bzero(second, sizeof second);
    explicit_bzero(&ctx, sizeof ctx);
}

static void nonce_of(const struct keys *keys, enum once_seal_field field, once_span plain, uint8_t out[NONCE_LEN])
{
    uint8_t mac[ONCE_MAC_LEN], kind = (uint8_t)field;
    once_mac_parts(&keys->nonce, (once_span[]){ once_span_of(&kind, 1), plain }, 2, mac);
    memcpy(out, mac, NONCE_LEN);
}

/* Authenticates, besides the ciphertext: `head`, the bytes before it; the field; the record id. */
static void begin(struct gcm_aes256_ctx *ctx, const struct keys *keys, enum once_seal_field field,
                  const uint8_t record[16], once_span head)
{
    uint8_t bound[HEAD_LEN + UINT8_MAX + NONCE_LEN + 1 + 16];
    memcpy(bound, head.ptr, head.len);
    bound[head.len] = (uint8_t)field;
    memcpy(bound + head.len + 1, record, 16);
    gcm_aes256_set_key(ctx, keys->cipher);
    gcm_aes256_set_iv(ctx, NONCE_LEN, head.ptr + head.len - NONCE_LEN);
    gcm_aes256_update(ctx, head.len + 17, bound);
}

/* ------------------------------------------------------------------ sealing */

void once_seal_close(const struct once_seal_key *key, enum once_seal_field field, const uint8_t record[16],
                     once_span plain, struct once_buf *out)
{
    size_t id_len = strlen(key->id), head_len = HEAD_LEN + id_len + NONCE_LEN;
    uint8_t *to = once_buf_reserve(out, head_len + plain.len + TAG_LEN);
    if (to == NULL)
        return;
    struct keys keys;
    struct gcm_aes256_ctx ctx;
    derive(key, record, &keys);
    memcpy(to, magic, sizeof magic);
    to[sizeof magic] = (uint8_t)id_len;
    memcpy(to + HEAD_LEN, key->id, id_len);
    nonce_of(&keys, field, plain, to + HEAD_LEN + id_len);
    begin(&ctx, &keys, field, record, once_span_of(to, head_len));
    if (plain.len > 0)
        gcm_aes256_encrypt(&ctx, plain.len, to + head_len, plain.ptr);
    gcm_aes256_digest(&ctx, TAG_LEN, to + head_len + plain.len);
    out->len += head_len + plain.len + TAG_LEN;
    explicit_bzero(&keys, sizeof keys);
    explicit_bzero(&ctx, sizeof ctx);
}

once_result once_seal_open(const struct once_seal_key *key, enum once_seal_field field, const uint8_t record[16],
                           once_span bytes, struct once_buf *out, struct once_error *err)
{
    once_span id;
    once_result r = once_seal_id(bytes, &id, err);
    if (r != ONCE_OK)
        return r;
    size_t head_len = HEAD_LEN + id.len + NONCE_LEN, len = bytes.len - head_len - TAG_LEN;
    uint8_t *to = once_buf_reserve(out, len + 1);
    if (to == NULL)
        return once_fail(err, out->result, "no memory for %zu sealed bytes", len);
    struct keys keys;
    struct gcm_aes256_ctx ctx;
    uint8_t tag[TAG_LEN];
    derive(key, record, &keys);
    begin(&ctx, &keys, field, record, once_span_of(bytes.ptr, head_len));
    if (len > 0)
        gcm_aes256_decrypt(&ctx, len, to, bytes.ptr + head_len);
    gcm_aes256_digest(&ctx, TAG_LEN, tag);
    bool right = memeql_sec(tag, bytes.ptr + head_len + len, TAG_LEN) == 1;
    explicit_bzero(&keys, sizeof keys);
    explicit_bzero(&ctx, sizeof ctx);
    if (!right) {
        explicit_bzero(to, len);
        return once_fail(err, ONCE_CORRUPT, "sealed bytes were changed, or belong to another record");
    }
    out->len += len;
    return ONCE_OK;
}

void once_seal_proof(const struct once_seal_key *key, uint8_t out[16])
{
    uint8_t mac[ONCE_MAC_LEN];
    once_mac_parts(&key->derive, &ONCE_LIT("once seal proof 1"), 1, mac);
    memcpy(out, mac, 16);
}
