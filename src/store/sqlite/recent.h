/*
 * recent.h - a cache of first attempts that were just claimed and not read since, by fence.
 *
 * Most finishes follow their claims soon and need not read the rows that were just written. Only for a process that
 * owns the store, since no other process changes it. An attempt that is not in the cache is read from its rows.
 */
#ifndef ONCE_STORE_SQLITE_RECENT_H
#define ONCE_STORE_SQLITE_RECENT_H

#include "store/sqlite/attempt.h"

#define SQLITE_RECENT_LEN 4096

struct sqlite_recent {
    struct once_stored stored; /* without its spans; fence 0: free */
};

void sqlite_recent_put(struct sqlite_protocol *p, const struct once_record *record, const struct once_claim *claim);
/* The caller changes the record: an entry is used once. */
bool sqlite_recent_take(struct sqlite_protocol *p, struct once_grant grant, struct sqlite_attempt *out);
/* Another operation may change this attempt now. */
void sqlite_recent_drop(struct sqlite_protocol *p, uint64_t fence);
/* After a rollback: the claims of the cache may not exist. */
void sqlite_recent_clear(struct sqlite_protocol *p);

#endif
