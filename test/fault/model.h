/*
 * model.h - what a record may look like, given the answers seen so far.
 *
 * Per key a set of states, each of which the store may be in. An answer of ONCE_OK leaves
 * those that would have answered just so, and takes each through the change. "Nothing was
 * changed" (BUSY, UNAVAILABLE, NO_MEMORY) leaves the set as it is. ONCE_UNKNOWN adds to
 * each state the one after the change. An answer that no state explains is a lie.
 *
 * The rules are those of once.h, written a second time and without a store.
 */
#ifndef ONCE_TEST_FAULT_MODEL_H
#define ONCE_TEST_FAULT_MODEL_H

#include "once.h"

enum { MODEL_MAY_MAX = 32 };

struct model_state {
    enum once_state state; /* ONCE_STATE_NONE: no such record */
    bool retryable;
    int32_t status;
    once_span headers, body;
    uint64_t fence; /* 0: not seen yet */
    uint32_t attempt;
    uint8_t nonce[16];
    struct once_fingerprint fingerprint;
    int64_t lease_ms, retention_ms;
    once_time lease_until, expires_at;
    once_span point, checkpoint;
};

struct model_key {
    once_span key;
    struct model_state may[MODEL_MAY_MAX];
    size_t count;
};

void model_init(struct model_key *key, once_span name);

/* The spans in `request` must outlive the model. NULL, or what is wrong with the answer. */
const char *model_answered(struct model_key *key, const struct once_request *request, once_result result,
                           const struct once_reply *reply, once_time now);

/* Can it be that the record is listed? And must it be? */
bool model_may_live(const struct model_key *key, once_time now);
bool model_must_live(const struct model_key *key, once_time now);

#endif
