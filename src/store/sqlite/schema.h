/*
 * schema.h - recognises a store in a database, its version, and migrates it.
 *
 * The numbered files in sql/sqlite/migrate are applied in order, all missing ones in one transaction. A file of our own
 * carries our application_id, and the version in user_version too; in a caller's database only the tables show that it
 * is a store.
 */
#ifndef ONCE_STORE_SQLITE_SCHEMA_H
#define ONCE_STORE_SQLITE_SCHEMA_H

#include "store/sqlite/db.h"

#define SQLITE_APPLICATION_ID 0x4f6e6365 /* "Once" */

enum sqlite_owner {
    SQLITE_OWN_FILE,     /* the file is a store and nothing else: other tables are refused */
    SQLITE_SHARED_FILE,  /* a store's file, or a caller's with our tables in it: other processes write, too */
    SQLITE_CALLERS_FILE, /* our tables live beside the caller's */
};

/* Defensive settings of our own connection. Changes nothing on disk: the file may not be a store's. */
once_result sqlite_schema_configure(sqlite3 *handle, struct once_error *err);
/* The store's version, 0 if the file is empty; refuses a file that is not a store's, or a newer version. */
once_result sqlite_schema_version(sqlite3 *handle, enum sqlite_owner owner, int64_t *version, struct once_error *err);
/* Whether the file is a store, not a caller's database with our tables in it. */
bool sqlite_schema_is_own(sqlite3 *handle);
/* Whether the file is in WAL mode, which durability needs: a copy made by VACUUM INTO or a dump may have lost it. */
bool sqlite_schema_is_wal(sqlite3 *handle);
once_result sqlite_schema_page_count(sqlite3 *handle, int64_t *pages, struct once_error *err);
/* Creates or upgrades the tables, or refuses. Begins and ends its own transaction. */
once_result sqlite_schema_migrate(struct sqlite_db *db, enum sqlite_owner owner, bool may_migrate,
                                  struct once_error *err);
/* Reads the secret and sets the clock; tables must be there. */
once_result sqlite_schema_attach(struct sqlite_db *db, bool may_write, struct once_error *err);

#endif
