/*
 * protocol.h - one step of the protocol on SQLite's tables: what all of its operations share.
 *
 * A step runs inside a transaction that is already begun for writing (for a look-up, reading is enough). Each
 * operation (sqlite/op.h) reads what it needs, decides with core/decide.h, writes at most a claim, a progress row, a
 * result and an audit row, and fills in its answer. The answer may be given only after the commit (K4).
 *
 * The transaction makes the compare-and-set: nobody else writes between the read and the write. K3 is the comparison
 * with the newest fence in the key index, K5 the primary key of once_result.
 */
#ifndef ONCE_STORE_SQLITE_PROTOCOL_H
#define ONCE_STORE_SQLITE_PROTOCOL_H

#include "core/buf.h"
#include "store/sqlite/index.h"

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

#endif
