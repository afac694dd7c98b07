/*
 * sqlite_protocol.h - the operations of the protocol on SQLite's tables.
 *
 * Each runs inside a transaction that is already begun for writing (for a look-up,
 * reading is enough), reads what it needs, decides with core/decide.h, writes at most a
 * claim, a progress row, a result and an audit row, and fills in its answer. The answer
 * may be given only after the commit (K4).
 *
 * The transaction makes the compare-and-set: nobody else writes between the read and
 * the write. K3 is the comparison with the newest fence in the key index, K5 the primary
 * key of once_result.
 */
#ifndef ONCE_STORE_SQLITE_PROTOCOL_H
#define ONCE_STORE_SQLITE_PROTOCOL_H

#include "core/buf.h"
#include "core/record.h"
#include "store/sqlite_index.h"
#include "store/store.h"

/* First attempts that were just claimed and not touched since, by fence. The usual finish
 * follows its claim soon and need not read what was just written. Only for a process that
 * owns the store: nobody else changes it. */
#define SQLITE_RECENT_LEN 4096

struct sqlite_recent {
    struct once_stored stored; /* without its spans; fence 0: free */
};

struct sqlite_protocol {
    struct sqlite_db *db;
    struct sqlite_index *index;
    bool keytext;            /* keep the texts of keys */
    struct once_buf scratch; /* decompressed bodies */
    once_time now;           /* of this step */
    struct sqlite_recent *recent; /* SQLITE_RECENT_LEN of them, or NULL */
};

/* An attempt as its rows have it. Spans are the statement's, until it is reset. */
struct sqlite_attempt {
    struct once_stored stored;
    int64_t prev;
    once_span points;  /* all recovery points passed */
    once_span outcome; /* as encoded */
    bool has_result;
    bool sum_is_right;
    bool superseded_expiry; /* has a result that does not expire by itself */
};

/* Reads the current row of a query with the columns of record_by_fence.sql. */
void sqlite_attempt_read(struct sqlite_protocol *p, struct sqlite_query *q, struct sqlite_attempt *out);
/* Decodes its outcome into stored.record; ONCE_CORRUPT if it does not match. */
once_result sqlite_attempt_decode(struct sqlite_protocol *p, struct sqlite_attempt *attempt, struct once_error *err);

/* The transaction was rolled back: nothing that was just claimed can be relied on. */
void sqlite_protocol_rolled_back(struct sqlite_protocol *p);

/* One operation. ONCE_OK: op->result says how it went, and whatever it wrote is whole.
 * Anything else: the transaction must be rolled back. */
once_result sqlite_protocol_do(struct sqlite_protocol *p, struct once_op *op, struct once_error *err);

#endif
