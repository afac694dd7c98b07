/*
 * attempt.h - an attempt in SQLite's tables: reading its rows, writing them.
 *
 * An attempt is a claim, perhaps a progress row, at most one result. Every read checks the claim's and the outcome's
 * checksums (FAULT-14). The verbs of sqlite/op.h make the decisions.
 */
#ifndef ONCE_STORE_SQLITE_ATTEMPT_H
#define ONCE_STORE_SQLITE_ATTEMPT_H

#include "core/record.h"
#include "store/format.h"
#include "store/sqlite/protocol.h"

enum { SQLITE_FINGERPRINT_VERSION = 1 };

/* A row of once_claim. */
struct sqlite_claim {
    struct once_grant grant;
    int64_t prev, attempt, flags, takeover, created_at, claimed_at, lease_ms, boot, retention_ms;
    int64_t body_retention_ms;
    int64_t fingerprint_version;
    struct once_fingerprint fingerprint;
    uint8_t nonce[16];
    once_span tenant, key;
};

/* An attempt, read from its rows. Its spans are valid until the statement is reset. */
struct sqlite_attempt {
    struct once_stored stored;
    int64_t prev;
    int64_t route;        /* its number; the name is looked up when the record is shown */
    once_span points;     /* all recovery points passed */
    once_span outcome;    /* as encoded */
    once_time body_until; /* when headers and body are dropped; 0: with the record, or already dropped */
    bool has_result;
    bool sum_is_right;          /* of the claim */
    bool progress_sum_is_right; /* true if there is no progress; a listing does not read enough to check it */
    bool released_abandoned;    /* released, and left running with its lease over */
    bool superseded;            /* its result only says that a later attempt took over */
    bool superseded_expiry;     /* has a result that does not expire by itself */
    bool kept;                  /* after decoding: headers or body are stored, even if they have expired */
};

/* Reads the current row of a query with the columns of record_by_fence.sql. */
void sqlite_attempt_read(struct sqlite_protocol *p, struct sqlite_query *q, struct sqlite_attempt *out);
/* Decodes its outcome into stored.record; ONCE_CORRUPT if it does not match. */
once_result sqlite_attempt_decode(struct sqlite_protocol *p, struct sqlite_attempt *attempt, struct once_error *err);

/* Stores a grant and tells the key index. */
once_result sqlite_attempt_insert(struct sqlite_protocol *p, const struct sqlite_claim *c, struct once_error *err);
/* Inserts the attempt after `old`: copies its progress; from then on the new attempt expires, not the old one. */
once_result sqlite_attempt_succeed(struct sqlite_protocol *p, const struct sqlite_attempt *old,
                                   const struct sqlite_claim *c, struct once_error *err);
once_result sqlite_result_insert(struct sqlite_protocol *p, uint64_t fence, int64_t state,
                                 const struct once_outcome *outcome, once_time expires_at, once_time body_until,
                                 once_span encoded, struct once_error *err);
/* Encodes and writes an outcome that the store itself makes. body_until 0: with the record. */
once_result sqlite_outcome_insert(struct sqlite_protocol *p, struct once_grant grant,
                                  const struct once_outcome *outcome, int64_t state, once_time expires_at,
                                  once_time body_until, struct once_error *err);
/* Erases personal data from an attempt's rows: names, bytes, request and checkpoint. Flags, times, the fingerprint and
 * the state stay. *prev is the fence of the attempt before, or 0. */
once_result sqlite_attempt_erase(struct sqlite_protocol *p, uint64_t fence, uint64_t *prev, struct once_error *err);
/* Renews the lease; the rest of the progress stays. */
once_result sqlite_lease_put(struct sqlite_protocol *p, const struct sqlite_attempt *attempt, once_time until,
                             struct once_error *err);
once_result sqlite_progress_put(struct sqlite_protocol *p, const struct sqlite_attempt *attempt, once_span point,
                                once_span checkpoint, const uint8_t nonce[16], once_time lease_until,
                                struct once_error *err);

#endif
