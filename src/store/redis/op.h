/*
 * op.h - an operation as a call of once.lua, and its reply as an answer.
 *
 * The script makes all decisions. Others may write to the same Redis, so every length of a reply is checked, and every
 * outcome against its checksum (FAULT-14).
 */
#ifndef ONCE_STORE_REDIS_OP_H
#define ONCE_STORE_REDIS_OP_H

#include "core/record.h"
#include "store/format.h"
#include "store/redis/conn.h"
#include "store/store.h"

/* Arguments of every call of the script. */
struct redis_context {
    const struct redis_url *url;
    const char *sha;    /* of once.lua */
    const char *handle; /* this one's name */
    once_time now;      /* a test's; 0: Redis's own */
    bool sync;          /* a WAIT follows */
    uint64_t floor;     /* the largest fence that this handle has seen */
};

/* An attempt, read from the packed field m. */
struct redis_meta {
    struct once_stored stored; /* spans are the caller's to fill in */
    uint64_t first;            /* the first fence of this life of the key */
    unsigned flags;
    bool superseded;
    bool has_result;
};

void redis_record_text(const uint8_t record[16], char out[33]);
/* False: m is not a valid packed field. */
bool redis_meta_read(once_span m, once_time now, struct redis_meta *out);
/* Decodes an outcome into the record. ONCE_CORRUPT if it does not match. */
once_result redis_outcome_read(const struct redis_meta *meta, once_span outcome, struct once_buf *scratch,
                               struct once_record *record, struct once_error *err);

/* Adds the call to what is sent next. ONCE_NO_MEMORY, ONCE_LIMIT: nothing was added. */
once_result redis_op_put(struct redis_conn *c, const struct redis_context *context, const struct once_op *op,
                         struct once_error *err);
/* Reads the reply. *writes is the handle's count of writes, 0 if the call wrote nothing. */
once_result redis_op_take(const redisReply *reply, struct once_op *op, struct once_buf *scratch, uint64_t *writes,
                          struct once_error *err);

#endif
