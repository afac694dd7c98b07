/*
 * signature.h - signatures of webhooks, as specified by Standard Webhooks.
 *
 * The signed text is "ID.TIMESTAMP.PAYLOAD"; the signature is "v1," and the base64 of its HMAC-SHA-256. During a key
 * change there are several keys, and as many signatures, separated by spaces. A key is a line of a file: "whsec_" and
 * base64, 24 to 64 bytes.
 */
#ifndef ONCE_MESSAGES_SINKS_SIGNATURE_H
#define ONCE_MESSAGES_SINKS_SIGNATURE_H

#include "once.h"

enum { SIGNATURE_KEYS_MAX = 4, SIGNATURE_KEY_LEN_MIN = 24, SIGNATURE_KEY_LEN_MAX = 64 };
#define SIGNATURE_LEN (SIGNATURE_KEYS_MAX * 48) /* of all signatures, with the NUL */

struct signature_keys {
    size_t count;
    struct {
        uint8_t bytes[SIGNATURE_KEY_LEN_MAX];
        size_t len;
    } keys[SIGNATURE_KEYS_MAX];
};

ONCE_CHECKED once_result signature_keys_parse(once_span text, struct signature_keys *keys, struct once_error *err);
ONCE_CHECKED once_result signature_keys_read(const char *file, struct signature_keys *keys, struct once_error *err);
void signature_make(const struct signature_keys *keys, const char *id, int64_t timestamp, once_span payload,
                    char out[SIGNATURE_LEN]);

#endif
