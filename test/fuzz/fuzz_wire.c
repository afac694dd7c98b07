/*
 * fuzz_wire.c - any bytes as what comes in on the daemon's socket.
 *
 * Input:      a stream of frames, as a connection has it.
 * Properties: a frame lies within what was read; a refusal is INVALID and says why; a frame
 *             that is accepted and written again is the same bytes, and one byte less or more
 *             of its payload is refused.
 */
#include "fuzz.h"

#include "../wire_frames.h"

/* Longer streams only repeat what shorter ones show, slowly. */
enum { STREAM_LEN_MAX = 1 << 20, OUT_LEN_MAX = 8 << 20 };

/* The frame is written to `out` again, or refused; false: refused. */
static bool again(const struct wire_frame *frame, struct once_buf *out)
{
    struct once_error err = { .result = ONCE_OK };
    bool exact = true;
    once_buf_clear(out);
    once_result r = frame_again(frame, out, &exact, &err);
    if (r != ONCE_OK) {
        HOLDS(r == ONCE_INVALID && err.result == ONCE_INVALID && err.text[0] != '\0');
        return false;
    }
    HOLDS(out->result == ONCE_OK);
    struct wire_frame second;
    size_t used = 0;
    HOLDS(wire_next(once_buf_span(out), &second, &used, NULL) == ONCE_OK && used == out->len);
    HOLDS(second.id == frame->id && second.type == frame->type);
    HOLDS(!exact || once_span_equal(second.payload, frame->payload));
    return true;
}

static void check_frame(const struct wire_frame *frame, struct once_buf *out)
{
    if (frame->type == 0 || frame->type > WIRE_SPANS || !again(frame, out))
        return;
    /* In a block of its own, so that a sanitizer sees a read beyond it. */
    size_t len = frame->payload.len;
    uint8_t *bytes = calloc(len + 1, 1);
    HOLDS(bytes != NULL && len > 0);
    memcpy(bytes, frame->payload.ptr, len);
    struct wire_frame longer = *frame;
    longer.payload = once_span_of(bytes, len + 1);
    HOLDS(!again(&longer, out));
    free(bytes);
    bytes = malloc(len > 1 ? len - 1 : 1);
    HOLDS(bytes != NULL);
    memcpy(bytes, frame->payload.ptr, len - 1);
    longer.payload = once_span_of(bytes, len - 1);
    HOLDS(!again(&longer, out));
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > STREAM_LEN_MAX)
        return 0;
    struct once_buf out;
    once_buf_init(&out, OUT_LEN_MAX);
    once_span left = once_span_of(data, size);
    for (;;) {
        struct wire_frame frame;
        struct once_error err = { .result = ONCE_OK };
        size_t used = 0;
        once_result r = wire_next(left, &frame, &used, &err);
        HOLDS(used <= left.len && (r == ONCE_OK || (used == 0 && r == ONCE_INVALID && err.text[0] != '\0')));
        if (used == 0)
            break;
        HOLDS(used == frame.payload.len + WIRE_HEAD_LEN && frame.payload.ptr == left.ptr + WIRE_HEAD_LEN);
        check_frame(&frame, &out);
        left = once_span_skip(left, used);
    }
    once_buf_release(&out);
    return 0;
}
