/*
 * record.h - a record as a store keeps it, and the facts that hold of one.
 *
 * A `struct once_stored` is what a store read: the public record plus what only the
 * protocol needs. Its spans are borrowed from the store's row; once_reply_set() makes
 * the copy that a caller gets.
 */
#ifndef ONCE_CORE_RECORD_H
#define ONCE_CORE_RECORD_H

#include "core/mac.h"
#include "once.h"

struct once_stored {
    struct once_record record;
    uint8_t nonce[16]; /* of the claim that made this grant */
    int64_t lease_ms;  /* as claimed: what a renewal asks for again */
    bool intent;       /* its holder records a point before it sends, and nobody before it may have sent */
    bool has_request;  /* a request is stored with it */
    bool probing;      /* the grant was a PROBE: a repeated claim is told so again */
    bool in_doubt;     /* it took over one that was running and may have sent something */
    bool released;     /* nothing of it happened; as good as absent (K7: it is not deleted for that) */
};

/* The 16-byte name of (tenant, key) in one store. */
void once_record_id(const struct once_mac *secret, once_span tenant, once_span key, uint8_t out[16]);

/* Reads an id as logs, traces and webhooks print it: 32 hexadecimal digits, also with once- before and -FENCE after
 * them. False: it is none. */
bool once_record_id_read(once_span text, uint8_t out[16]);

/* The key for a foreign call on behalf of a record: the same on every attempt. */
void once_child_key_of(const struct once_mac *secret, const uint8_t record[16], once_span call,
                       char out[ONCE_CHILD_KEY_LEN + 1]);

/* K8: finished, and its retention is over at `now`. Running and unknown never expire. */
bool once_stored_is_expired(const struct once_stored *stored, once_time now);

/* K8 for headers and body: finished, and their own retention is over at `now`. What is unknown waits for a person. */
bool once_record_is_tombstone(const struct once_record *record, once_time now);

/* Makes a record that was read what it is after that: body_expired, body_dropped, and nothing of the answer. */
void once_record_expire_body(struct once_record *record);

/* When an outcome finished at `now` expires. Unknown waits for a person (K7). */
once_time once_expiry(enum once_state state, int64_t retention_ms, once_time now);

/* The answer to a caller whose attempt lost the record, by the state the record is in now: FENCED if there is no
 * record. */
enum once_arm once_arm_of_state(enum once_state state);

/* Does the record still stand for the operation that was claimed with this fingerprint and first created then? The key
 * may by now stand for another request, or for the same one after its record expired: that record is not an answer to
 * the caller (K5, K6; SAME_OPERATION in docs/internals/model.md). */
bool once_record_is_same_operation(const struct once_record *record, const struct once_fingerprint *fingerprint,
                                   once_time created_at);

/* Says what is impossible about a record that was read, or NULL. */
const char *once_record_fault(const struct once_record *record);

/* Fill in a reply with a copy of *record (NULL: an empty one). On ONCE_NO_MEMORY the
 * reply is empty. */
once_result once_reply_set(struct once_reply *reply, enum once_arm arm, const struct once_record *record,
                           struct once_error *err);

#endif
