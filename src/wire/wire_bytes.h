/*
 * wire_bytes.h - the parts that frames are made of: integers, byte strings, enumerations. Only wire.c includes it.
 */
#ifndef ONCE_WIRE_WIRE_BYTES_H
#define ONCE_WIRE_WIRE_BYTES_H

#include "core/err.h"
#include "core/span.h"
#include "wire/wire.h"

#include <endian.h>

/* ------------------------------------------------------------------ reading */

/* The unread rest of a payload. Reading past its end gives zeros and sets `bad`. */
struct wire_input {
    once_span left;
    bool bad;
};

static const uint8_t *take(struct wire_input *s, size_t len)
{
    if (s->bad || s->left.len < len) {
        s->bad = true;
        return NULL;
    }
    const uint8_t *at = s->left.ptr;
    s->left = once_span_skip(s->left, len);
    return at;
}

static uint8_t take_u8(struct wire_input *s)
{
    const uint8_t *at = take(s, 1);
    return at != NULL ? *at : 0;
}

static uint32_t take_u32(struct wire_input *s)
{
    const uint8_t *at = take(s, 4);
    return at != NULL ? (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3] : 0;
}

static uint64_t take_u64(struct wire_input *s)
{
    const uint8_t *at = take(s, 8);
    uint64_t value = 0;
    if (at != NULL)
        memcpy(&value, at, 8);
    return be64toh(value);
}

static int64_t take_i64(struct wire_input *s)
{
    return (int64_t)take_u64(s);
}

static void take_bytes(struct wire_input *s, uint8_t *out, size_t len)
{
    const uint8_t *at = take(s, len);
    if (at != NULL)
        memcpy(out, at, len);
}

static once_span take_span(struct wire_input *s)
{
    uint32_t len = take_u32(s);
    const uint8_t *at = take(s, len);
    return once_span_of(at, at != NULL ? len : 0);
}

/* A value from 0 to `last`; any other sets `bad`. */
static unsigned take_enum(struct wire_input *s, unsigned last)
{
    unsigned value = take_u8(s);
    s->bad = s->bad || value > last;
    return value <= last ? value : 0;
}

static bool take_bool(struct wire_input *s)
{
    return take_enum(s, 1) == 1;
}

static once_result taken(const struct wire_input *s, const char *what, struct once_error *err)
{
    if (s->bad)
        return once_fail(err, ONCE_INVALID, "a frame '%s' is cut off or has a value that does not exist", what);
    if (s->left.len > 0)
        return once_fail(err, ONCE_INVALID, "a frame '%s' has %zu extra bytes", what, s->left.len);
    return ONCE_OK;
}

/* ------------------------------------------------------------------ writing */

static void put_u8(struct once_buf *b, unsigned value)
{
    once_buf_add_byte(b, (uint8_t)value);
}

static void put_i64(struct once_buf *b, int64_t value)
{
    once_buf_add_u64(b, (uint64_t)value);
}

static void put_bytes(struct once_buf *b, const uint8_t *bytes, size_t len)
{
    once_buf_add(b, once_span_of(bytes, len));
}

static void store_u32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

#endif
