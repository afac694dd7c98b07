/*
 * buf.h - a growing byte buffer that knows its ceiling.
 *
 * A buffer that hits its ceiling, or runs out of memory, stays as it is and
 * remembers why; the caller appends freely and asks once at the end.
 */
#ifndef ONCE_CORE_BUF_H
#define ONCE_CORE_BUF_H

#include "once.h"

struct once_buf {
    uint8_t *ptr;
    size_t len, cap, max;
    once_result result; /* ONCE_OK, ONCE_LIMIT or ONCE_NO_MEMORY; sticky */
};

void once_buf_init(struct once_buf *buf, size_t max);
void once_buf_release(struct once_buf *buf);
void once_buf_clear(struct once_buf *buf); /* empty and ready again; keeps its memory */
/* Room for n more bytes at ptr + len, or NULL. */
uint8_t *once_buf_reserve(struct once_buf *buf, size_t n);
void once_buf_add(struct once_buf *buf, once_span bytes);
void once_buf_add_byte(struct once_buf *buf, uint8_t byte);
void once_buf_add_u32(struct once_buf *buf, uint32_t value); /* big-endian */
void once_buf_add_u64(struct once_buf *buf, uint64_t value); /* big-endian */
__attribute__((format(printf, 2, 3))) void once_buf_addf(struct once_buf *buf, const char *format, ...);

static inline once_span once_buf_span(const struct once_buf *buf)
{
    return (once_span){ buf->ptr, buf->len };
}

#endif
