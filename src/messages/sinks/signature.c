/* signature.c - see signature.h. */
#include "messages/sinks/signature.h"

#include "core/err.h"
#include "core/span.h"

#include <errno.h>
#include <inttypes.h>
#include <nettle/base64.h>
#include <nettle/hmac.h>
#include <stdio.h>

static once_result parse_line(once_span line, struct signature_keys *keys, struct once_error *err)
{
    struct base64_decode_ctx ctx;
    uint8_t bytes[BASE64_DECODE_LENGTH(128)];
    size_t len = sizeof bytes;
    if (keys->count == SIGNATURE_KEYS_MAX)
        return once_fail(err, ONCE_LIMIT, "there are more than %d keys", SIGNATURE_KEYS_MAX);
    if (!once_span_starts(line, ONCE_LIT("whsec_")) || line.len > 128)
        return once_fail(err, ONCE_INVALID, "a line is not 'whsec_' and base64");
    line = once_span_skip(line, 6);
    base64_decode_init(&ctx);
    if (!base64_decode_update(&ctx, &len, bytes, line.len, (const char *)line.ptr) || !base64_decode_final(&ctx))
        return once_fail(err, ONCE_INVALID, "a line is not 'whsec_' and base64");
    if (len < SIGNATURE_KEY_LEN_MIN || len > SIGNATURE_KEY_LEN_MAX)
        return once_fail(err, ONCE_INVALID, "a key has %zu bytes, not %d to %d", len, SIGNATURE_KEY_LEN_MIN,
                         SIGNATURE_KEY_LEN_MAX);
    memcpy(keys->keys[keys->count].bytes, bytes, len);
    keys->keys[keys->count++].len = len;
    return ONCE_OK;
}

once_result signature_keys_parse(once_span text, struct signature_keys *keys, struct once_error *err)
{
    once_result r = ONCE_OK;
    *keys = (struct signature_keys){ 0 };
    while (r == ONCE_OK && text.len > 0) {
        once_span line, rest;
        once_span_cut(text, '\n', &line, &rest);
        if (line.len > 0 && line.ptr[line.len - 1] == '\r')
            line.len--;
        if (line.len > 0)
            r = parse_line(line, keys, err);
        text = rest;
    }
    return r == ONCE_OK && keys->count == 0 ? once_fail(err, ONCE_INVALID, "it contains no key") : r;
}

once_result signature_keys_read(const char *file, struct signature_keys *keys, struct once_error *err)
{
    char text[1024];
    FILE *f = fopen(file, "re");
    if (f == NULL)
        return once_fail(err, ONCE_INVALID, "%s", strerror(errno));
    size_t len = fread(text, 1, sizeof text, f);
    bool whole = !ferror(f) && feof(f);
    fclose(f);
    return whole ? signature_keys_parse(once_span_of(text, len), keys, err)
                 : once_fail(err, ONCE_INVALID, "it cannot be read, or is longer than 1 KiB");
}

void signature_make(const struct signature_keys *keys, const char *id, int64_t timestamp, once_span payload,
                    char out[SIGNATURE_LEN])
{
    char head[80];
    size_t at = 0;
    int len = snprintf(head, sizeof head, "%s.%" PRId64 ".", id, timestamp);
    for (size_t i = 0; i < keys->count; i++) {
        struct hmac_sha256_ctx ctx;
        uint8_t mac[SHA256_DIGEST_SIZE];
        hmac_sha256_set_key(&ctx, keys->keys[i].len, keys->keys[i].bytes);
        hmac_sha256_update(&ctx, (size_t)len, (const uint8_t *)head);
        hmac_sha256_update(&ctx, payload.len, payload.ptr);
        hmac_sha256_digest(&ctx, sizeof mac, mac);
        at += (size_t)snprintf(out + at, SIGNATURE_LEN - at, "%sv1,", i > 0 ? " " : "");
        base64_encode_raw(out + at, sizeof mac, mac);
        at += BASE64_ENCODE_RAW_LENGTH(sizeof mac);
        out[at] = '\0';
    }
}
