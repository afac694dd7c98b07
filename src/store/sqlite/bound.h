/*
 * bound.h - the interface of the rest of the library to a connection that a caller bound.
 */
#ifndef ONCE_STORE_SQLITE_BOUND_H
#define ONCE_STORE_SQLITE_BOUND_H

#include "core/mac.h"
#include "once.h"
#include "store/sqlite/db.h"

/* Names records, salts fingerprints, derives child keys. */
const struct once_mac *once_sqlite_secret(const struct once_sqlite *bound);
/* The store's clock. */
once_time once_sqlite_now(const struct once_sqlite *bound);
/* Its statements, for other tables than the protocol's (outbox, inbox). */
struct sqlite_db *sqlite_bound_db(struct once_sqlite *bound);

#endif
