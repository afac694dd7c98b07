/*
 * attempt.h - an attempt in SQLite's tables: reading its rows, writing them.
 *
 * An attempt is a claim, perhaps a progress row, at most one result. What is read is held
 * against the claim's checksum and the outcome's seal (FAULT-14). Nothing here decides anything:
 * that is sqlite/op.h's verbs.
 */
#ifndef ONCE_STORE_SQLITE_ATTEMPT_H
#define ONCE_STORE_SQLITE_ATTEMPT_H

#include "core/buf.h"
#include "core/record.h"
#include "store/sqlite/index.h"

enum {
    SQLITE_FINGERPRINT_VERSION = 1,
    /* Flags of a claim: */
    SQLITE_FLAG_PROBING = 1,
    SQLITE_FLAG_INTENT = 2,
    SQLITE_FLAG_REQUEST = 4,
    SQLITE_FLAG_DOUBT = 8,
    SQLITE_FLAG_FORGOTTEN = 16,
    SQLITE_ROUTE_SHIFT = 8, /* above all flags: the route's number */
    /* In once_result, beside enum once_state: */
    SQLITE_STATE_RELEASED = 5,   /* nothing of it happened */
    SQLITE_STATE_SUPERSEDED = 6, /* a later attempt took over while it ran */
};

/* Routes that this step has met (sqlite/route.h). */
struct sqlite_routes {
    size_t count;
    struct sqlite_route {
        int64_t id;
        size_t len;
        uint8_t name[ONCE_ROUTE_LEN_MAX];
    } known[ONCE_ROUTE_COUNT_MAX + 1];
};

struct sqlite_protocol {
    struct sqlite_db *db;
    struct sqlite_index *index;
    bool keytext;                 /* keep the texts of keys */
    struct once_buf scratch;      /* decompressed bodies */
    once_time now;                /* of this step */
    struct sqlite_recent *recent; /* SQLITE_RECENT_LEN of them (sqlite/recent.h), or NULL */
    struct sqlite_routes routes;
};

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

/* An attempt as its rows have it. Spans are the statement's, until it is reset. */
struct sqlite_attempt {
    struct once_stored stored;
    int64_t prev;
    int64_t route;        /* its number: whoever shows the record looks up the name */
    once_span points;     /* all recovery points passed */
    once_span outcome;    /* as encoded */
    once_time body_until; /* when headers and body are dropped; 0: with the record, or they are */
    bool has_result;
    bool sum_is_right;          /* of the claim */
    bool progress_sum_is_right; /* also where there is none; a listing does not read enough to tell */
    bool released_abandoned;    /* released, and left running with its lease over */
    bool superseded;            /* its result only says that a later attempt took over */
    bool superseded_expiry;     /* has a result that does not expire by itself */
    bool kept;                  /* after decoding: headers or body are there, also of a tombstone */
};

/* Reads the current row of a query with the columns of record_by_fence.sql. */
void sqlite_attempt_read(struct sqlite_protocol *p, struct sqlite_query *q, struct sqlite_attempt *out);
/* Decodes its outcome into stored.record; ONCE_CORRUPT if it does not match. */
once_result sqlite_attempt_decode(struct sqlite_protocol *p, struct sqlite_attempt *attempt, struct once_error *err);

/* Stores a grant and tells the key index. */
once_result sqlite_attempt_insert(struct sqlite_protocol *p, const struct sqlite_claim *c, struct once_error *err);
/* The attempt after `old`: carries its progress over and takes its place at expiry. */
once_result sqlite_attempt_succeed(struct sqlite_protocol *p, const struct sqlite_attempt *old,
                                   const struct sqlite_claim *c, struct once_error *err);
once_result sqlite_result_insert(struct sqlite_protocol *p, uint64_t fence, int64_t state, bool retryable,
                                 int32_t status, once_time expires_at, once_time body_until, once_span outcome,
                                 struct once_error *err);
/* For the outcomes that the store itself makes: encode, then write. body_until 0: with the record. */
once_result sqlite_outcome_insert(struct sqlite_protocol *p, struct once_grant grant,
                                  const struct once_outcome *outcome, int64_t state, once_time expires_at,
                                  once_time body_until, struct once_error *err);
/* Takes everything out of an attempt's rows that speaks of anybody; *prev is the attempt before, or 0. What only
 * counts stays: flags, times, the fingerprint, how it ended. */
once_result sqlite_attempt_erase(struct sqlite_protocol *p, uint64_t fence, uint64_t *prev, struct once_error *err);
/* A renewed lease; what else is known of the progress stays. */
once_result sqlite_lease_put(struct sqlite_protocol *p, const struct sqlite_attempt *attempt, once_time until,
                             struct once_error *err);
once_result sqlite_progress_put(struct sqlite_protocol *p, const struct sqlite_attempt *attempt, once_span point,
                                once_span checkpoint, const uint8_t nonce[16], once_time lease_until,
                                struct once_error *err);

#endif
