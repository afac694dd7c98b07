/* buf.c - see buf.h. */
#include "core/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAP_MIN = 256 };

void once_buf_init(struct once_buf *buf, size_t max)
{
    *buf = (struct once_buf){ .max = max };
}

void once_buf_release(struct once_buf *buf)
{
    free(buf->ptr);
    *buf = (struct once_buf){ .max = buf->max };
}

void once_buf_clear(struct once_buf *buf)
{
    buf->len = 0;
    buf->result = ONCE_OK;
}

/* The slow part of once_buf_reserve(): allocates, or sets buf->result. */
uint8_t *once_buf__grow(struct once_buf *buf, size_t n)
{
    assert(buf->len <= buf->max);
    if (buf->result != ONCE_OK)
        return NULL;
    if (n > buf->max - buf->len) {
        buf->result = ONCE_LIMIT;
        return NULL;
    }
    if (n > buf->cap - buf->len) {
        size_t cap = buf->cap < CAP_MIN ? CAP_MIN : buf->cap;
        while (cap < buf->len + n)
            cap *= 2;
        uint8_t *ptr = realloc(buf->ptr, cap);
        if (ptr == NULL) {
            buf->result = ONCE_NO_MEMORY;
            return NULL;
        }
        buf->ptr = ptr;
        buf->cap = cap;
    }
    return buf->ptr + buf->len;
}

void once_buf_addf(struct once_buf *buf, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    /* vsnprintf writes a NUL after the text: reserve room for it, do not count it. */
    uint8_t *to = n >= 0 ? once_buf_reserve(buf, (size_t)n + 1) : NULL;
    if (to != NULL) {
        vsnprintf((char *)to, (size_t)n + 1, format, again);
        buf->len += (size_t)n;
    }
    va_end(again);
}
