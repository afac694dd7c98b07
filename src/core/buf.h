/*
 * buf.h - a growing byte buffer with a maximum length.
 *
 * When an append would exceed the maximum, or memory runs out, the buffer keeps its
 * contents and remembers the reason in `result`: the caller checks once, at the end.
 */
#ifndef ONCE_CORE_BUF_H
#define ONCE_CORE_BUF_H

#include "once.h"

#include <string.h>

struct once_buf {
    uint8_t *ptr;
    size_t len, cap, max;
    once_result result; /* ONCE_OK, ONCE_LIMIT or ONCE_NO_MEMORY; sticky */
};

void once_buf_init(struct once_buf *buf, size_t max);
void once_buf_release(struct once_buf *buf);
void once_buf_clear(struct once_buf *buf); /* empty and ready again; keeps its memory */
uint8_t *once_buf__grow(struct once_buf *buf, size_t n);
__attribute__((format(printf, 2, 3))) void once_buf_addf(struct once_buf *buf, const char *format, ...);

/* Inline, because frames and canonical forms are made of many short pieces. */

/* Room for n more bytes at ptr + len, or NULL. */
static inline uint8_t *once_buf_reserve(struct once_buf *buf, size_t n)
{
    if (buf->result == ONCE_OK && n > 0 && n <= buf->cap - buf->len && n <= buf->max - buf->len)
        return buf->ptr + buf->len;
    return once_buf__grow(buf, n);
}

static inline void once_buf_add(struct once_buf *buf, once_span bytes)
{
    if (bytes.len == 0)
        return;
    uint8_t *to = once_buf_reserve(buf, bytes.len);
    if (to != NULL) {
        memcpy(to, bytes.ptr, bytes.len);
        buf->len += bytes.len;
    }
}

static inline void once_buf_add_byte(struct once_buf *buf, uint8_t byte)
{
    uint8_t *to = once_buf_reserve(buf, 1);
    if (to != NULL) {
        *to = byte;
        buf->len++;
    }
}

/* Big-endian. */
static inline void once_buf_add_u32(struct once_buf *buf, uint32_t value)
{
    uint8_t bytes[4] = { (uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value };
    once_buf_add(buf, (once_span){ bytes, sizeof bytes });
}

/* Big-endian. */
static inline void once_buf_add_u64(struct once_buf *buf, uint64_t value)
{
    uint8_t bytes[8] = { (uint8_t)(value >> 56), (uint8_t)(value >> 48), (uint8_t)(value >> 40), (uint8_t)(value >> 32),
                         (uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),  (uint8_t)value };
    once_buf_add(buf, (once_span){ bytes, sizeof bytes });
}

static inline once_span once_buf_span(const struct once_buf *buf)
{
    return (once_span){ buf->ptr, buf->len };
}

/* A byte string behind its length (4 bytes, big-endian). */
static inline void once_buf_add_sized(struct once_buf *buf, once_span bytes)
{
    once_buf_add_u32(buf, (uint32_t)bytes.len);
    once_buf_add(buf, bytes);
}

#endif
