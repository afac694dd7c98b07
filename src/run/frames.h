/*
 * frames.h - the output of a command, encoded as the body of its outcome.
 *
 * Format ("application/vnd.once.run"): a sequence of frames, in the order in which the
 * output was read. A frame is
 *
 *     1 byte    stream: 1 standard output, 2 standard error
 *     4 bytes   length, big-endian, at least 1
 *     length    bytes
 *
 * Two neighbouring frames never have the same stream. A command without output has an
 * empty body.
 */
#ifndef ONCE_RUN_FRAMES_H
#define ONCE_RUN_FRAMES_H

#include "core/buf.h"
#include "once.h"

#define ONCE_FRAMES_HEADERS "Content-Type: application/vnd.once.run\r\n"

enum { ONCE_STREAM_OUT = 1, ONCE_STREAM_ERR = 2 };

struct once_frames {
    struct once_buf body;
    size_t len, len_max; /* of the output, without the frame heads */
    size_t last;         /* offset of the last frame */
    uint8_t stream;      /* of the last frame; 0: no frame yet */
    bool dropped;        /* output exceeded len_max or memory: nothing is kept */
};

void once_frames_init(struct once_frames *frames, size_t len_max);
void once_frames_release(struct once_frames *frames);
void once_frames_add(struct once_frames *frames, uint8_t stream, once_span bytes);

/* True if these header lines say that the body has this format. */
bool once_frames_named(once_span headers);

/* Cuts the next frame off the front of *body. False at the end, and if the remaining
 * bytes (body->len > 0) are not a frame. */
bool once_frames_next(once_span *body, uint8_t *stream, once_span *bytes);

/* True if `body` consists of whole frames. */
bool once_frames_valid(once_span body);

#endif
