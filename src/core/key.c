/*
 * key.c - the text of idempotency keys: reading one from a header field, and UUIDv7.
 *
 * Model:    a field value is one Item whose value is an sf-string (RFC 9651), or, where
 *           the format is lenient, the bare characters that real clients send. Quoted
 *           and bare spellings of the same characters are the same key:
 *
 *               field  = OWS ( quoted / bare ) OWS         OWS = *( SP / HTAB )
 *               quoted = DQUOTE 1*255( plain / "\" DQUOTE / "\\" ) DQUOTE
 *               plain  = %x21-7E except DQUOTE and "\"
 *               bare   = 1*255( %x21-7E except DQUOTE "," ";" )
 *
 * Decided:  - A space is legal in an sf-string but not in a key: keys are 1 to 255 visible
 *             characters. A space that one hop trims and the next does not would make two
 *             keys of one.
 *           - Parameters ("abc";v=1) are refused. RFC 9651 allows a field to ignore unknown
 *             parameters, but none are defined for this field, and a client that sends one
 *             expects an effect.
 *           - A comma outside quotes is a list, or two field lines that a hop joined. That
 *             is refused (M1) rather than read as one key.
 * Errors:   ONCE_INVALID, with the fault and the byte of the field, counted from 1. Messages
 *           show a byte of the field only as a number: it may be part of a secret.
 * Callers:  the gateway, the daemon and the CLI, with untrusted bytes from a client.
 * Not here: entropy (once_key_new is in src/os), several field lines (the caller counts).
 */
#include "core/key.h"

#include "core/err.h"
#include "core/span.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* A field that is being read; `at` is the index of the next byte, which messages count
 * from 1. */
struct reader {
    once_span field;
    size_t at;
    char key[ONCE_KEY_LEN_MAX + 1];
    size_t len;
    struct once_error *err;
};

static bool is_blank(uint8_t c)
{
    return c == ' ' || c == '\t';
}

static bool is_visible(uint8_t c)
{
    return c >= 0x21 && c <= 0x7e;
}

/* Fails: the byte at `at` is not allowed in a key. */
static once_result refuse_byte(const struct reader *in)
{
    uint8_t c = in->field.ptr[in->at];
    size_t number = in->at + 1;
    assert(!is_visible(c));
    if (c == '\0')
        return once_fail(in->err, ONCE_INVALID, "key has a NUL at byte %zu", number);
    if (c == '\r' || c == '\n')
        return once_fail(in->err, ONCE_INVALID, "key has a line break at byte %zu", number);
    if (c == ' ')
        return once_fail(in->err, ONCE_INVALID, "key has a space at byte %zu: use visible characters only", number);
    if (c >= 0x80)
        return once_fail(in->err, ONCE_INVALID, "key has a non-ASCII byte (0x%02x) at byte %zu", c, number);
    return once_fail(in->err, ONCE_INVALID, "key has a control character (0x%02x) at byte %zu", c, number);
}

/* Fails: the Item should have ended at `at`. */
static once_result refuse_rest(const struct reader *in)
{
    uint8_t c = in->field.ptr[in->at];
    size_t number = in->at + 1;
    if (c == ';')
        return once_fail(in->err, ONCE_INVALID, "key has parameters at byte %zu: none are defined, send the key alone",
                         number);
    if (c == ',')
        return once_fail(in->err, ONCE_INVALID, "key is a list at byte %zu: send one key in one field line", number);
    return once_fail(in->err, ONCE_INVALID, "key has bytes after the closing quote at byte %zu", number);
}

/* Appends the byte at `at` to the key. */
static once_result take(struct reader *in)
{
    uint8_t c = in->field.ptr[in->at];
    if (!is_visible(c))
        return refuse_byte(in);
    if (in->len == ONCE_KEY_LEN_MAX)
        return once_fail(in->err, ONCE_INVALID, "key is longer than %d characters at byte %zu", ONCE_KEY_LEN_MAX,
                         in->at + 1);
    in->key[in->len++] = (char)c;
    in->at++;
    return ONCE_OK;
}

/* At a backslash: skips it if the next byte may be escaped. */
static once_result read_escape(struct reader *in)
{
    size_t next = in->at + 1;
    if (next == in->field.len)
        return once_fail(in->err, ONCE_INVALID, "key ends in a backslash at byte %zu, without its closing quote",
                         in->at + 1);
    if (in->field.ptr[next] != '"' && in->field.ptr[next] != '\\')
        return once_fail(in->err, ONCE_INVALID, "key has an unknown escape at byte %zu: only \\\" and \\\\ exist",
                         in->at + 1);
    in->at = next;
    return ONCE_OK;
}

static once_result read_quoted(struct reader *in)
{
    size_t quote = in->at++;
    while (in->at < in->field.len && in->field.ptr[in->at] != '"') {
        once_result r = in->field.ptr[in->at] == '\\' ? read_escape(in) : ONCE_OK;
        if (r == ONCE_OK)
            r = take(in);
        if (r != ONCE_OK)
            return r;
    }
    if (in->at == in->field.len)
        return once_fail(in->err, ONCE_INVALID, "key has no closing quote for the one at byte %zu", quote + 1);
    if (in->len == 0)
        return once_fail(in->err, ONCE_INVALID, "key is empty: nothing between the quotes at byte %zu", quote + 1);
    in->at++;
    while (in->at < in->field.len && is_blank(in->field.ptr[in->at]))
        in->at++; /* so that `"a" , "b"` is called a list */
    return in->at == in->field.len ? ONCE_OK : refuse_rest(in);
}

static once_result read_bare(struct reader *in)
{
    while (in->at < in->field.len) {
        uint8_t c = in->field.ptr[in->at];
        if (c == ';' || c == ',')
            return refuse_rest(in);
        if (c == '"')
            return once_fail(in->err, ONCE_INVALID, "key has a quote inside at byte %zu: quote all of it or nothing",
                             in->at + 1);
        once_result r = take(in);
        if (r != ONCE_OK)
            return r;
    }
    assert(in->len > 0);
    return ONCE_OK;
}

once_result once_key_parse(once_span field, enum once_key_format format, char out[ONCE_KEY_LEN_MAX + 1], size_t *len,
                           struct once_error *err)
{
    if (format != ONCE_KEY_LENIENT && format != ONCE_KEY_STRICT)
        return once_fail(err, ONCE_INVALID, "key format %d does not exist", (int)format);
    struct reader in = { .field = field, .err = err };
    while (in.field.len > 0 && is_blank(in.field.ptr[in.field.len - 1]))
        in.field.len--;
    while (in.at < in.field.len && is_blank(in.field.ptr[in.at]))
        in.at++;
    if (in.at == in.field.len)
        return once_fail(err, ONCE_INVALID, "key is empty: send 1 to %d visible characters", ONCE_KEY_LEN_MAX);

    once_result r = ONCE_OK;
    if (in.field.ptr[in.at] == '"')
        r = read_quoted(&in);
    else if (format == ONCE_KEY_LENIENT)
        r = read_bare(&in);
    else
        r = once_fail(err, ONCE_INVALID, "key has no quote at byte %zu: the strict format is \"...\"", in.at + 1);
    if (r != ONCE_OK)
        return r;
    assert(in.len > 0 && in.len <= ONCE_KEY_LEN_MAX);
    memcpy(out, in.key, in.len);
    out[in.len] = '\0';
    *len = in.len;
    return ONCE_OK;
}

/* ---------------------------------------------------------------- UUIDv7 */

enum { UUID_VERSION_AT = 14, UUID_VARIANT_AT = 19 };

static bool is_hyphen_place(size_t at)
{
    return at == 8 || at == 13 || at == 18 || at == 23;
}

/* 0 to 15, or -1. */
static int hex_value(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

once_time once_key_time(once_span key)
{
    if (key.len != ONCE_UUID_LEN)
        return ONCE_NEVER;
    uint64_t time = 0;
    for (size_t at = 0; at < ONCE_UUID_LEN; at++) {
        int digit = hex_value(key.ptr[at]);
        if (is_hyphen_place(at) ? key.ptr[at] != '-' : digit < 0)
            return ONCE_NEVER;
        if (at < 13 && digit >= 0) /* the first 12 digits are the milliseconds */
            time = time << 4 | (uint64_t)digit;
    }
    bool version_7 = key.ptr[UUID_VERSION_AT] == '7';
    bool variant_10 = (hex_value(key.ptr[UUID_VARIANT_AT]) & 0xc) == 0x8;
    return version_7 && variant_10 ? (once_time)time : ONCE_NEVER;
}

int64_t once_key_skew(int64_t retention_ms)
{
    return retention_ms / 2 < ONCE_KEY_SKEW_MS_MAX ? retention_ms / 2 : ONCE_KEY_SKEW_MS_MAX;
}

bool once_key_is_outside(once_span key, int64_t retention_ms, once_time now)
{
    once_time born = once_key_time(key);
    if (born == ONCE_NEVER || retention_ms == ONCE_NEVER)
        return false;
    int64_t skew = once_key_skew(retention_ms);
    return born - now > skew || now - born >= retention_ms - skew;
}

void once_uuid7_format(once_time unix_ms, const uint8_t random[10], char out[ONCE_UUID_LEN + 1])
{
    assert(unix_ms >= 0);
    assert(unix_ms < (once_time)1 << 48);
    uint8_t bytes[16];
    for (int i = 0; i < 6; i++)
        bytes[i] = (uint8_t)(unix_ms >> (40 - 8 * i));
    memcpy(bytes + 6, random, 10);
    bytes[6] = (uint8_t)((bytes[6] & 0x0f) | 0x70);
    bytes[8] = (uint8_t)((bytes[8] & 0x3f) | 0x80);

    static const char digits[] = "0123456789abcdef";
    size_t at = 0;
    for (size_t i = 0; i < sizeof bytes; i++) {
        if (is_hyphen_place(at))
            out[at++] = '-';
        out[at++] = digits[bytes[i] >> 4];
        out[at++] = digits[bytes[i] & 0xf];
    }
    assert(at == ONCE_UUID_LEN);
    out[at] = '\0';
}
