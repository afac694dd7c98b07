/*
 * format.h - numbers that the stores write into rows, beside the enums and limits of once.h and core/limits.h.
 *
 * SQL and Lua use the same names: the build replaces each name by its value (tools/protocol_numbers.py). A number
 * here keeps its meaning for as long as stores exist that were written with it.
 */
#ifndef ONCE_STORE_FORMAT_H
#define ONCE_STORE_FORMAT_H

#include "once.h"

#include <assert.h>

/* How an attempt ended, beside enum once_state. No caller sees these two. */
enum {
    ONCE_STORED_RELEASED = 5,   /* the holder gave it back, and nothing had happened */
    ONCE_STORED_SUPERSEDED = 6, /* a later attempt took over while it was running */
};
static_assert((int)ONCE_STORED_RELEASED > (int)ONCE_STATE_UNKNOWN, "no number means two states");

/* SQLite: once_claim.flags. */
enum {
    SQLITE_FLAG_PROBING = 1,    /* granted to ask whether it happened, not to execute */
    SQLITE_FLAG_INTENT = 2,     /* its holder records a point before it sends */
    SQLITE_FLAG_REQUEST = 4,    /* a request is stored with it */
    SQLITE_FLAG_DOUBT = 8,      /* the attempt before it was running, and may have sent something */
    SQLITE_FLAG_FORGOTTEN = 16, /* once_forget() erased its names and bytes */
    SQLITE_ROUTE_SHIFT = 8,     /* the bits from here on are the route's number */
};

/* PostgreSQL: once.claim.takeover, a smallint: enum once_takeover, flags, and the route's number. */
enum {
    PG_TAKEOVER_MASK = 15,
    PG_FLAG_PROBING = 16,
    PG_FLAG_INTENT = 32,
    PG_FLAG_DOUBT = 64,
    PG_FLAG_UUID_KEY = 128, /* the key is the text of a UUID, and its 16 bytes are stored */
    PG_FLAG_FORGOTTEN = 256,
    PG_FLAGS = PG_FLAG_PROBING | PG_FLAG_INTENT | PG_FLAG_DOUBT | PG_FLAG_UUID_KEY | PG_FLAG_FORGOTTEN,
    PG_ROUTE_SHIFT = 9, /* the bits from here on */
    PG_ROUTE_UNIT = 1 << PG_ROUTE_SHIFT,
};

/* SQLite: once_result.flags. */
enum { SQLITE_RESULT_RETRYABLE = 1, SQLITE_RESULT_UNDELIVERED = 2 };

/* PostgreSQL: once.result.state, a smallint: the state and three flags. */
enum {
    PG_STATE_MASK = 15,
    PG_RETRYABLE = 16,
    PG_BODY_DROPPED = 32,
    PG_UNDELIVERED = 64,
    PG_END_MASK = PG_STATE_MASK | PG_RETRYABLE, /* how it ended, whether or not its body is kept */
    PG_FAILED_RETRYABLE = ONCE_STATE_FAILED | PG_RETRYABLE,
    PG_RELEASED_RETRYABLE = ONCE_STORED_RELEASED | PG_RETRYABLE,
};

/* PostgreSQL: a fence is a multiple of PG_FENCE_STEP plus the slot of its claim. */
enum { PG_FENCE_STEP = 16, PG_SLOT_MASK = PG_FENCE_STEP - 1 };

/* PostgreSQL: advisory locks. The numbers only have to be unlike those of other programs in the database. */
enum {
    PG_LOCK_RING = 8031153,   /* shared: works with the slots; exclusive: turns the ring, empties a slot */
    PG_LOCK_EXPIRE = 8031154, /* one once.expire() at a time */
    PG_LOCK_SCHEMA = 8031155, /* migrations, and new names of routes */
    PG_LOCK_OUTBOX = 8031156, /* one once.outbox_upkeep() at a time */
};

/* Redis: the packed part of a record, as FORMAT in once.lua has it. */
enum { REDIS_META_LEN = 141, REDIS_META_VERSION = 1 };

enum redis_flag {
    REDIS_PROBING = 1,
    REDIS_INTENT = 2,
    REDIS_REQUEST = 4,
    REDIS_DOUBT = 8,
    REDIS_RETRYABLE = 16,
    REDIS_RELEASED_ABANDONED = 32, /* released, and left running with its lease over */
    REDIS_ARCHIVE = 64,            /* earlier attempts are kept */
    REDIS_VERDICT = 128,           /* an operator's: its outcome is sealed without a fence, which was not known yet */
    REDIS_UNDELIVERED = 512,
    REDIS_APART = 256, /* the outcome has its own key and its own retention */
};

#endif
