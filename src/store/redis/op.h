/*
 * op.h - an operation as a call of once.lua, and its reply as an answer.
 *
 * Nothing here decides anything: that is the script's. What comes back was in a Redis that others may write to, so
 * every length is checked, and an outcome is held against its seal (FAULT-14).
 */
#ifndef ONCE_STORE_REDIS_OP_H
#define ONCE_STORE_REDIS_OP_H

#include "core/record.h"
#include "store/redis/conn.h"
#include "store/store.h"

/* The fields of `m`, as once.lua's FORMAT has them. */
enum { REDIS_META_LEN = 141, REDIS_META_VERSION = 1 };

enum redis_flag {
    REDIS_PROBING = 1,
    REDIS_INTENT = 2,
    REDIS_REQUEST = 4,
    REDIS_DOUBT = 8,
    REDIS_RETRYABLE = 16,
    REDIS_RELEASED_ABANDONED = 32,
    REDIS_ARCHIVE = 64,
    REDIS_APART = 256,   /* its outcome is in a key of its own, with a retention of its own */
    REDIS_VERDICT = 128, /* its outcome is sealed without a fence: that was not known before */
};
/* Beside enum once_state: */
enum { REDIS_STATE_RELEASED = 5, REDIS_STATE_SUPERSEDED = 6 };

/* What every call of the script is told. */
struct redis_context {
    const struct redis_url *url;
    const char *sha;    /* of once.lua */
    const char *handle; /* this one's name */
    once_time now;      /* a test's; 0: Redis's own */
    bool sync;          /* a WAIT follows */
    uint64_t floor;     /* the largest fence that is known here */
};

/* An attempt as its m has it. */
struct redis_meta {
    struct once_stored stored; /* spans are the caller's to fill in */
    uint64_t first;            /* the first fence of this life of the key */
    unsigned flags;
    bool superseded;
    bool has_result;
};

void redis_record_text(const uint8_t record[16], char out[33]);
/* False: this is none. */
bool redis_meta_read(once_span m, once_time now, struct redis_meta *out);
/* Decodes an outcome into the record. ONCE_CORRUPT if it does not match. */
once_result redis_outcome_read(const struct redis_meta *meta, once_span outcome, struct once_buf *scratch,
                               struct once_record *record, struct once_error *err);

/* Puts the call. ONCE_NO_MEMORY, ONCE_LIMIT: nothing was put. */
once_result redis_op_put(struct redis_conn *c, const struct redis_context *context, const struct once_op *op,
                         struct once_error *err);
/* Takes the reply. *writes is the handle's count of writes, 0 where this was none. */
once_result redis_op_take(const redisReply *reply, struct once_op *op, struct once_buf *scratch, uint64_t *writes,
                          struct once_error *err);

#endif
