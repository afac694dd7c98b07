/*
 * checkpoint.h - the checkpoint that a flow stores at its recovery point: all that the next attempt knows.
 *
 * The checkpoint's bytes, version 1, numbers big-endian:
 *
 *     "F1"      the format
 *     flags     1 byte: FLOW_CHECKPOINT_* below
 *     crashes   1 byte: attempts that died, up to 255
 *     lengths   4 bytes each: of the request, of the state, of the answer
 *     request, state, answer
 */
#ifndef ONCE_FLOW_CHECKPOINT_H
#define ONCE_FLOW_CHECKPOINT_H

#include "core/buf.h"

enum {
    FLOW_CHECKPOINT_SENT = 1,      /* an earlier attempt may have sent the current call, and its end is not known */
    FLOW_CHECKPOINT_POSTPONED = 2, /* the attempt was postponed; its lease is the pause before the next one */
    FLOW_CHECKPOINT_ANSWERED = 4,  /* the current call was answered: it is not made again */
    FLOW_CHECKPOINT_HEAD_LEN = 16,
};

struct flow_checkpoint {
    uint8_t flags, crashes;
    once_span request, state, answer;
};

/* ONCE_LIMIT if it does not fit into a checkpoint. `out` is cleared first. */
once_result flow_checkpoint_encode(const struct flow_checkpoint *flow_checkpoint, struct once_buf *out,
                                   struct once_error *err);
/* Spans point into `bytes`. False: this is not a flow's checkpoint. */
bool flow_checkpoint_decode(once_span bytes, struct flow_checkpoint *out);

#endif
