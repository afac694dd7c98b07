/*
 * recent.h - first attempts that were just claimed and not touched since, by fence.
 *
 * The usual finish follows its claim soon and need not read what was just written. Only for a process that owns the
 * store: nobody else changes it. It is a memory: what fell out of it is read from its rows.
 */
#ifndef ONCE_STORE_SQLITE_RECENT_H
#define ONCE_STORE_SQLITE_RECENT_H

#include "store/sqlite/attempt.h"

#define SQLITE_RECENT_LEN 4096

struct sqlite_recent {
    struct once_stored stored; /* without its spans; fence 0: free */
};

void sqlite_recent_put(struct sqlite_protocol *p, const struct once_record *record, const struct once_claim *claim);
/* Whoever takes an entry changes its record: it is used once. */
bool sqlite_recent_take(struct sqlite_protocol *p, struct once_grant grant, struct sqlite_attempt *out);
/* That one may be changed by somebody else now. */
void sqlite_recent_drop(struct sqlite_protocol *p, uint64_t fence);
/* Nothing that was just claimed can be relied on. */
void sqlite_recent_clear(struct sqlite_protocol *p);

#endif
