/*
 * fuzz_key.c - any bytes as an Idempotency-Key field.
 *
 * Properties: a refusal says why and writes nothing; an accepted key is 1 to 255 visible
 * characters; what strict accepts, lenient reads the same; quoting a key reads back as it.
 */
#include "core/key.h"
#include "core/span.h"

#include "fuzz.h"

#include <string.h>

struct parsed {
    once_result result;
    char key[ONCE_KEY_LEN_MAX + 1];
    size_t len;
};

static struct parsed parse(once_span field, enum once_key_format format)
{
    struct parsed out = { .len = 0 };
    struct once_error err = { .text = "" };
    out.result = once_key_parse(field, format, out.key, &out.len, &err);
    if (out.result == ONCE_OK) {
        HOLDS(out.len >= 1 && out.len <= ONCE_KEY_LEN_MAX);
        HOLDS(strlen(out.key) == out.len);
        for (size_t i = 0; i < out.len; i++)
            HOLDS(out.key[i] >= 0x21 && out.key[i] <= 0x7e);
    } else {
        HOLDS(out.result == ONCE_INVALID);
        HOLDS(err.result == ONCE_INVALID && err.text[0] != '\0');
        HOLDS(out.len == 0 && out.key[0] == '\0');
    }
    return out;
}

static void check_quoting(const struct parsed *parsed)
{
    uint8_t quoted[2 * ONCE_KEY_LEN_MAX + 2];
    size_t len = 0;
    quoted[len++] = '"';
    for (size_t i = 0; i < parsed->len; i++) {
        if (parsed->key[i] == '"' || parsed->key[i] == '\\')
            quoted[len++] = '\\';
        quoted[len++] = (uint8_t)parsed->key[i];
    }
    quoted[len++] = '"';
    struct parsed again = parse(once_span_of(quoted, len), ONCE_KEY_STRICT);
    HOLDS(again.result == ONCE_OK);
    HOLDS(strcmp(again.key, parsed->key) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    once_span field = { data, size };
    struct parsed lenient = parse(field, ONCE_KEY_LENIENT);
    struct parsed strict = parse(field, ONCE_KEY_STRICT);
    if (lenient.result == ONCE_OK)
        check_quoting(&lenient);
    if (strict.result == ONCE_OK)
        HOLDS(lenient.result == ONCE_OK && strcmp(strict.key, lenient.key) == 0);
    once_time time = once_key_time(field);
    HOLDS(time == ONCE_NEVER || (size == ONCE_UUID_LEN && time >= 0 && time < (once_time)1 << 48));
    return 0;
}
