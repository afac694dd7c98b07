/*
 * schema.h - whose database is it, which version, and bringing it up to date.
 *
 * The numbered files in sql/sqlite/migrate are applied in order, all that are missing in
 * one transaction. A file of our own carries our application_id, and the version in
 * user_version too; in a database of the caller's the tables alone say who we are.
 */
#ifndef ONCE_STORE_SQLITE_SCHEMA_H
#define ONCE_STORE_SQLITE_SCHEMA_H

#include "store/sqlite/db.h"

#define SQLITE_APPLICATION_ID 0x4f6e6365 /* "Once" */

enum sqlite_owner {
    SQLITE_OWN_FILE,     /* the whole file is ours and nobody else's: anything else in it is refused */
    SQLITE_SHARED_FILE,  /* ours, or a caller's with our tables in it: others write too */
    SQLITE_CALLERS_FILE, /* our tables live beside the caller's */
};

/* The defensive settings of a connection that is ours. Touches nothing on disk: whose
 * file it is, is not known yet. */
once_result sqlite_schema_configure(sqlite3 *handle, struct once_error *err);
/* Our version of what is in the file, 0 if it is empty; refuses what is not ours or newer. */
once_result sqlite_schema_version(sqlite3 *handle, enum sqlite_owner owner, int64_t *version, struct once_error *err);
/* The file is a store of its own, not a caller's database with our tables in it. */
bool sqlite_schema_is_own(sqlite3 *handle);
/* A copy made by VACUUM INTO or a dump may have lost the mode that durability rests on. */
bool sqlite_schema_is_wal(sqlite3 *handle);
once_result sqlite_schema_page_count(sqlite3 *handle, int64_t *pages, struct once_error *err);
/* Creates or upgrades the tables, or refuses. Begins and ends its own transaction. */
once_result sqlite_schema_migrate(struct sqlite_db *db, enum sqlite_owner owner, bool may_migrate,
                                  struct once_error *err);
/* Reads the secret and sets the clock; tables must be there. */
once_result sqlite_schema_attach(struct sqlite_db *db, bool may_write, struct once_error *err);

#endif
