/*
 * grants.h - what this process was granted not long ago.
 *
 * A finish must show that its fence is of its record (K3). Who was given both by the database
 * itself need not be looked up there: half of what a finish costs. It is only a memory: a grant
 * that fell out of it, or that somebody else has, is looked up. It is emptied with the
 * connection, for after a failover a claim may not be where it was.
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
