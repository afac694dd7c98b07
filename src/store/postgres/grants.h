/*
 * grants.h - remembers the recent grants of this process.
 *
 * A finish must show that its fence is of its record (K3). If the database gave both to this process, the claim need
 * not be looked up: that is half the cost of a finish. It is only a cache: grants that fell out of it, or of other
 * processes, are looked up. A lost connection empties it, since after a failover a claim may be missing or in another
 * slot.
 *
 * Shared by all handles of a store; any thread.
 */
#ifndef ONCE_STORE_POSTGRES_GRANTS_H
#define ONCE_STORE_POSTGRES_GRANTS_H

#include "once.h"

struct pg_grants;

struct pg_grant {
    struct once_grant grant;
    once_time claimed_at;
    int64_t retention_ms;
};

struct pg_grants *pg_grants_new(void); /* NULL: no memory */
void pg_grants_free(struct pg_grants *grants);
void pg_grants_add(struct pg_grants *grants, const struct once_record *record);
bool pg_grants_find(struct pg_grants *grants, const struct once_grant *grant, struct pg_grant *out);
void pg_grants_forget(struct pg_grants *grants);

#endif
