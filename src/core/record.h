/*
 * record.h - a record as a store reads it, and rules about records.
 *
 * A `struct once_stored` is the public record plus the members that only the protocol
 * needs. Its spans are borrowed from the store's row; once_reply_set() makes the copy
 * that a caller gets.
 */
#ifndef ONCE_CORE_RECORD_H
#define ONCE_CORE_RECORD_H

#include "core/mac.h"
#include "once.h"

struct once_stored {
    struct once_record record;
    uint8_t nonce[16]; /* of the claim that made this grant */
    int64_t lease_ms;  /* as claimed; the default for a renewal */
    bool intent;       /* its holder stores a point before it sends, and no earlier attempt may have sent anything */
    bool has_request;  /* a request is stored */
    bool probing;      /* the grant was a PROBE: a repeated claim gets PROBE again */
    bool in_doubt;     /* it took over a running attempt that may have sent something */
    bool released;     /* nothing happened; counts as absent (K7: it is not deleted) */
};

/* The 16-byte record id of (tenant, key) in one store. */
void once_record_id(const struct once_mac *secret, once_span tenant, once_span key, uint8_t out[16]);

/* Reads a record id as logs, traces and webhooks print it: 32 hexadecimal digits, also with once- before and -FENCE
 * after them. False: it is not a record id. */
bool once_record_id_read(once_span text, uint8_t out[16]);

/* The child key for a call to another service on behalf of a record: the same on every attempt. */
void once_child_key_of(const struct once_mac *secret, const uint8_t record[16], once_span call,
                       char out[ONCE_CHILD_KEY_LEN + 1]);

/* K8: finished, and its retention is over at `now`. Running and unknown never expire. */
bool once_stored_is_expired(const struct once_stored *stored, once_time now);

/* K8 for headers and body: finished, and their own retention is over at `now`. An unknown record keeps them. */
bool once_record_is_tombstone(const struct once_record *record, once_time now);

/* Turns the record, as read, into a tombstone: body_expired and body_dropped set, headers and body empty. */
void once_record_expire_body(struct once_record *record);

/* When an outcome finished at `now` expires. An unknown one never does (K7). */
once_time once_expiry(enum once_state state, int64_t retention_ms, once_time now);

/* The answer to a caller whose attempt was taken over, by the current state of the record: FENCED if it is gone. */
enum once_arm once_arm_of_state(enum once_state state);

/* Is this still the record of the operation with this fingerprint, first claimed at `created_at`? If not, the key names
 * another request by now, or the same request in a later life: that record does not answer the caller (K5, K6;
 * SAME_OPERATION in docs/internals/model.md). */
bool once_record_is_same_operation(const struct once_record *record, const struct once_fingerprint *fingerprint,
                                   once_time created_at);

/* The broken invariant of a record that was read, as a text; NULL: it is consistent. */
const char *once_record_fault(const struct once_record *record);

/* Fill in a reply with a copy of *record (NULL: an empty one). On ONCE_NO_MEMORY the
 * reply is empty. */
once_result once_reply_set(struct once_reply *reply, enum once_arm arm, const struct once_record *record,
                           struct once_error *err);

#endif
