/* sqlite_bound.h - what is bound to a connection of the caller's (once_sqlite_bind), for other files of the library. */
#ifndef ONCE_STORE_SQLITE_BOUND_H
#define ONCE_STORE_SQLITE_BOUND_H

#include "store/sqlite_db.h"

struct sqlite_db *sqlite_bound_db(struct once_sqlite *bound);

#endif
