/* frames.c - see frames.h. */
#include "run/frames.h"

#include "core/span.h"

#include <assert.h>

enum { HEAD_LEN = 5 };

void once_frames_init(struct once_frames *frames, size_t len_max)
{
    *frames = (struct once_frames){ .len_max = len_max };
    once_buf_init(&frames->body, ONCE_BODY_LEN_MAX);
}

void once_frames_release(struct once_frames *frames)
{
    once_buf_release(&frames->body);
}

static void drop(struct once_frames *frames)
{
    once_buf_release(&frames->body);
    frames->dropped = true;
}

static void put_u32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (24 - 8 * i));
}

static uint32_t get_u32(const uint8_t *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

void once_frames_add(struct once_frames *frames, uint8_t stream, once_span bytes)
{
    assert(stream == ONCE_STREAM_OUT || stream == ONCE_STREAM_ERR);
    if (frames->dropped || bytes.len == 0)
        return;
    if (bytes.len > frames->len_max - frames->len) {
        drop(frames);
        return;
    }
    struct once_buf *body = &frames->body;
    if (stream != frames->stream) {
        frames->last = body->len;
        frames->stream = stream;
        once_buf_add_byte(body, stream);
        once_buf_add_u32(body, 0);
    }
    once_buf_add(body, bytes);
    if (body->result != ONCE_OK) {
        drop(frames);
        return;
    }
    frames->len += bytes.len;
    put_u32(body->ptr + frames->last + 1, (uint32_t)(body->len - frames->last - HEAD_LEN));
}

bool once_frames_named(once_span headers)
{
    return once_span_equal(headers, ONCE_LIT(ONCE_FRAMES_HEADERS));
}

bool once_frames_next(once_span *body, uint8_t *stream, once_span *bytes)
{
    if (body->len < HEAD_LEN)
        return false;
    uint8_t which = body->ptr[0];
    size_t len = get_u32(body->ptr + 1);
    if ((which != ONCE_STREAM_OUT && which != ONCE_STREAM_ERR) || len == 0 || len > body->len - HEAD_LEN)
        return false;
    *stream = which;
    *bytes = once_span_of(body->ptr + HEAD_LEN, len);
    *body = once_span_skip(*body, HEAD_LEN + len);
    return true;
}

bool once_frames_valid(once_span body)
{
    uint8_t stream;
    once_span bytes;
    while (once_frames_next(&body, &stream, &bytes))
        ;
    return body.len == 0;
}
