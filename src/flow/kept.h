/*
 * kept.h - what a flow keeps at its recovery point: everything that the next attempt knows.
 *
 * The checkpoint's bytes, version 1, numbers big-endian:
 *
 *     "F1"      what this is
 *     flags     1 byte: KEPT_* below
 *     crashes   1 byte: attempts that ended without a word, up to 255
 *     lengths   4 bytes each: of the request, of the state, of the answer
 *     request, state, answer
 */
#ifndef ONCE_FLOW_KEPT_H
#define ONCE_FLOW_KEPT_H

#include "core/buf.h"

enum {
    KEPT_SENT = 1,      /* the call at hand may have been sent by an earlier attempt, and nobody knows its end */
    KEPT_POSTPONED = 2, /* the attempt ended in order; its lease is the pause before the next one */
    KEPT_ANSWERED = 4,  /* the call at hand was answered: it is not made again */
    KEPT_HEAD_LEN = 16,
};

struct kept {
    uint8_t flags, crashes;
    once_span request, state, answer;
};

/* ONCE_LIMIT if it does not fit into a checkpoint. `out` is cleared first. */
once_result kept_encode(const struct kept *kept, struct once_buf *out, struct once_error *err);
/* Spans are of `bytes`. False: this is not a flow's. */
bool kept_decode(once_span bytes, struct kept *out);

#endif
