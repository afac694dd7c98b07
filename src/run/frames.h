/*
 * frames.h - what a command printed, as the body of its outcome.
 *
 * Format ("application/vnd.once.run"): frames one after the other, in the order in
 * which the output was seen. A frame is
 *
 *     1 byte    stream: 1 standard output, 2 standard error
 *     4 bytes   length, big-endian, at least 1
 *     length    bytes
 *
 * Two neighbouring frames are never of the same stream. No output at all is an empty
 * body.
 */
#ifndef ONCE_RUN_FRAMES_H
#define ONCE_RUN_FRAMES_H

#include "core/buf.h"
#include "once.h"

#define ONCE_FRAMES_HEADERS "Content-Type: application/vnd.once.run\r\n"

enum { ONCE_STREAM_OUT = 1, ONCE_STREAM_ERR = 2 };

struct once_frames {
    struct once_buf body;
    size_t len, len_max; /* of the output itself, without the framing */
    size_t last;         /* where the last frame begins */
    uint8_t stream;      /* of the last frame; 0: there is none */
    bool dropped;        /* over len_max, or no memory for it: nothing is kept */
};

void once_frames_init(struct once_frames *frames, size_t len_max);
void once_frames_release(struct once_frames *frames);
void once_frames_add(struct once_frames *frames, uint8_t stream, once_span bytes);

/* Are these the header lines of such a body? */
bool once_frames_named(once_span headers);

/* Cuts the next frame off the front of *body. False at the end, and where the bytes
 * that are left (body->len > 0) are no frame. */
bool once_frames_next(once_span *body, uint8_t *stream, once_span *bytes);

/* Every byte of it belongs to a frame. */
bool once_frames_valid(once_span body);

#endif
