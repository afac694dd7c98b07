/* mac.c - see mac.h. */
#include "core/mac.h"

#include <nettle/sha2.h>

void once_mac_init(struct once_mac *mac, once_span key)
{
    hmac_sha256_set_key(&mac->keyed, key.len, key.ptr);
    if (key.len == sizeof mac->key)
        memcpy(mac->key, key.ptr, key.len);
}

void once_mac_start(const struct once_mac *mac, struct once_mac_run *run)
{
    run->ctx = mac->keyed;
}

void once_mac_add(struct once_mac_run *run, once_span part)
{
    uint8_t len[8];
    for (int b = 0; b < 8; b++)
        len[b] = (uint8_t)((uint64_t)part.len >> (56 - 8 * b));
    hmac_sha256_update(&run->ctx, sizeof len, len);
    if (part.len > 0) /* an empty span may have no pointer */
        hmac_sha256_update(&run->ctx, part.len, part.ptr);
}

void once_mac_end(struct once_mac_run *run, uint8_t out[ONCE_MAC_LEN])
{
    hmac_sha256_digest(&run->ctx, ONCE_MAC_LEN, out);
}

void once_mac_parts(const struct once_mac *mac, const once_span *parts, size_t count, uint8_t out[ONCE_MAC_LEN])
{
    struct once_mac_run run;
    once_mac_start(mac, &run);
    for (size_t i = 0; i < count; i++)
        once_mac_add(&run, parts[i]);
    once_mac_end(&run, out);
}

void once_sha256(once_span bytes, uint8_t out[ONCE_MAC_LEN])
{
    struct sha256_ctx ctx;
    sha256_init(&ctx);
    if (bytes.len > 0)
        sha256_update(&ctx, bytes.len, bytes.ptr);
    sha256_digest(&ctx, ONCE_MAC_LEN, out);
}
