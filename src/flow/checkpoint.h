/*
 * checkpoint.h - what a flow keeps at its recovery point: everything that the next attempt knows.
 *
 * The checkpoint's bytes, version 1, numbers big-endian:
 *
 *     "F1"      what this is
 *     flags     1 byte: KEPT_* below
 *     crashes   1 byte: attempts that ended without a word, up to 255
 *     lengths   4 bytes each: of the request, of the state, of the answer
 *     request, state, answer
 */
#ifndef ONCE_FLOW_CHECKPOINT_H
#define ONCE_FLOW_CHECKPOINT_H

#include "core/buf.h"

enum {
    FLOW_CHECKPOINT_SENT = 1, /* the call at hand may have been sent by an earlier attempt, and nobody knows its end */
    FLOW_CHECKPOINT_POSTPONED = 2, /* the attempt ended in order; its lease is the pause before the next one */
    FLOW_CHECKPOINT_ANSWERED = 4,  /* the call at hand was answered: it is not made again */
    FLOW_CHECKPOINT_HEAD_LEN = 16,
};

struct flow_checkpoint {
    uint8_t flags, crashes;
    once_span request, state, answer;
};

/* ONCE_LIMIT if it does not fit into a checkpoint. `out` is cleared first. */
once_result flow_checkpoint_encode(const struct flow_checkpoint *flow_checkpoint, struct once_buf *out,
                                   struct once_error *err);
/* Spans are of `bytes`. False: this is not a flow's. */
bool flow_checkpoint_decode(once_span bytes, struct flow_checkpoint *out);

#endif
