/*
 * db.h - a connection to an SQLite database that holds Once's tables: its
 * prepared statements, its clock, its errors.
 *
 * The layer below the protocol: sqlite/index.c and sqlite/op.c work on it inside a transaction that the store
 * (sqlite/store.c) or the caller of the library (sqlite/bound.c) began.
 */
#ifndef ONCE_STORE_SQLITE_DB_H
#define ONCE_STORE_SQLITE_DB_H

#include "core/mac.h"
#include "once.h"

#include "sqlite_sql.h"
#include <sqlite3.h>

enum sqlite_statement {
#define X(name) SQL_##name,
    SQLITE_STATEMENTS(X)
#undef X
        SQL_COUNT
};

struct sqlite_db {
    sqlite3 *handle;
    sqlite3_stmt *statements[SQL_COUNT]; /* prepared when first used */
    const struct once_clock *clock;
    struct once_mac secret;
    bool full;                    /* a step failed because the disk is full */
    int64_t boot;                 /* once_boot.seq of this boot */
    once_time wall_ms, steady_ms; /* its anchor */
};

/* A statement being used: bind in order, step, read, end. The first error sticks. */
struct sqlite_query {
    struct sqlite_db *db;
    sqlite3_stmt *st;
    int bound;
    int rc;
};

struct sqlite_query sqlite_query(struct sqlite_db *db, enum sqlite_statement statement);
void sqlite_bind_int(struct sqlite_query *q, int64_t value);
void sqlite_bind_null(struct sqlite_query *q);
void sqlite_bind_blob(struct sqlite_query *q, once_span bytes); /* not NULL, also when empty */
void sqlite_bind_text(struct sqlite_query *q, const char *text);
bool sqlite_step(struct sqlite_query *q);                         /* a row is there */
once_span sqlite_column_span(struct sqlite_query *q, int column); /* until the next step */
int64_t sqlite_column_int(struct sqlite_query *q, int column);
bool sqlite_column_is_null(struct sqlite_query *q, int column);
/* Done with it. ONCE_OK, or the first error as "WHAT: ...". */
once_result sqlite_end(struct sqlite_query *q, const char *what, struct once_error *err);
/* Step a statement that returns no row, and end it. */
once_result sqlite_run(struct sqlite_query *q, const char *what, struct once_error *err);

/* Maps an SQLite error to ours. Never ONCE_UNKNOWN: only the caller knows whether the failed step was a commit. */
once_result sqlite_fail(sqlite3 *handle, int rc, const char *what, struct once_error *err);
once_result sqlite_exec(sqlite3 *handle, const char *sql, const char *what, struct once_error *err);

/* The store's clock: one reading per step. */
once_time sqlite_now(const struct sqlite_db *db);
/* Finds, or in a write transaction makes, the anchor for this boot of the machine. */
once_result sqlite_clock_anchor(struct sqlite_db *db, bool may_write, struct once_error *err);

/* Checkpoints all that is committed into the database file and syncs it; empties the log, so that nothing uncommitted
 * in it can come back; and syncs that as well, or a power loss could bring an old log back over the newer pages. Only
 * for a file of our own, under its lock. */
once_result sqlite_db_make_durable(sqlite3 *handle, struct once_error *err);

/* Drops the prepared statements; the connection stays the caller's. */
void sqlite_db_release(struct sqlite_db *db);
/* Closes the connection as well; another may be opened in its place, with the same clock. */
void sqlite_db_close(struct sqlite_db *db);

#endif
