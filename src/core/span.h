/*
 * span.h - helpers on once_span, the borrowed byte string.
 *
 * A span never owns its bytes and a NUL in it is an ordinary byte; C strings are
 * converted at the edges only.
 */
#ifndef ONCE_CORE_SPAN_H
#define ONCE_CORE_SPAN_H

#include "once.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

static inline once_span once_span_of(const void *ptr, size_t len)
{
    return (once_span){ ptr, len };
}

static inline once_span once_span_str(const char *s)
{
    return (once_span){ (const uint8_t *)s, s != NULL ? strlen(s) : 0 };
}

static inline bool once_span_equal(once_span a, once_span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

/* Letters of ASCII are equal in both cases. */
static inline bool once_span_equal_nocase(once_span a, once_span b)
{
    return a.len == b.len && (a.len == 0 || strncasecmp((const char *)a.ptr, (const char *)b.ptr, a.len) == 0);
}

/* By their bytes; a prefix comes first. */
static inline int once_span_order(once_span a, once_span b)
{
    size_t len = a.len < b.len ? a.len : b.len;
    int order = len > 0 ? memcmp(a.ptr, b.ptr, len) : 0;
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

static inline bool once_span_starts(once_span s, once_span prefix)
{
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}

static inline once_span once_span_skip(once_span s, size_t n)
{
    assert(n <= s.len);
    return (once_span){ n > 0 ? s.ptr + n : s.ptr, s.len - n }; /* ptr may be NULL if len is 0 */
}

/* The bytes up to the first `c` go to *head, those after it to *tail; false, and all
 * of it in *head, if `c` is not found. */
static inline bool once_span_cut(once_span s, uint8_t c, once_span *head, once_span *tail)
{
    const uint8_t *at = s.len > 0 ? memchr(s.ptr, c, s.len) : NULL;
    if (at == NULL) {
        *head = s;
        *tail = (once_span){ NULL, 0 };
        return false;
    }
    size_t n = (size_t)(at - s.ptr);
    *head = (once_span){ s.ptr, n };
    *tail = (once_span){ at + 1, s.len - n - 1 };
    return true;
}

/* Big-endian. */
static inline uint32_t once_read_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Takes a byte string behind its length, as once_buf_add_sized() writes it, off `left`; false: it is cut off. */
static inline bool once_span_take_sized(once_span *left, once_span *out)
{
    if (left->len < 4 || left->len - 4 < once_read_u32(left->ptr))
        return false;
    *out = once_span_of(left->ptr + 4, once_read_u32(left->ptr));
    *left = once_span_skip(*left, 4 + out->len);
    return true;
}

/* For "%.*s": a span is never longer than its limits allow, all far below INT_MAX. */
#define ONCE_SPAN_ARGS(s) (int)(s).len, (const char *)((s).ptr != NULL ? (s).ptr : (const uint8_t *)"")

#endif
