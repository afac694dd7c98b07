/*
 * migrate.c - creates or upgrades the schema `once` in a PostgreSQL database.
 *
 * Applies all missing migrations in one transaction, under an advisory lock: of two migrators at once the second waits
 * and finds nothing to do; one that is killed leaves nothing behind. Each migration records itself in once.migration,
 * with the checksum of its text (tools/embed-sql.py), so that `once migrate` notices a migration that was edited after
 * it was applied.
 */
#include "store/format.h"
#include "store/postgres/conn.h"
#include "store/store.h"

#include "core/err.h"
#include "core/span.h"
#include "os/crash_point.h"
#include "postgres_sql.h"

#include <stdlib.h>

/* Fails with the server's message and hint. */
static once_result refusal(const PGconn *conn, const PGresult *r, struct once_error *err)
{
    const char *message = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
    const char *hint = PQresultErrorField(r, PG_DIAG_MESSAGE_HINT);
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    if (message == NULL) {
        message = PQerrorMessage(conn);
        return once_fail(err, ONCE_UNAVAILABLE, "%.*s", (int)strcspn(message, "\n"), message);
    }
    if (state != NULL && strcmp(state, "42501") == 0)
        hint = "migrating needs CREATE on the database, and CREATEROLE unless the roles once_app and once_ops are "
               "there, once_app granted to once_ops; later, to be the owner of the schema once";
    return once_fail(err, ONCE_UNAVAILABLE, "%s%s%s", message, hint != NULL ? ": " : "", hint != NULL ? hint : "");
}

/* Several statements at once, in the simple protocol. */
static once_result run_text(struct pg_conn *c, const char *sql, struct once_error *err)
{
    ONCE_CRASH_POINT("migrate.statement");
    PGresult *r = PQexec(c->conn, sql);
    ExecStatusType status = PQresultStatus(r);
    bool done = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    once_result result = done ? ONCE_OK : refusal(c->conn, r, err);
    PQclear(r);
    return result;
}

/* Compares the applied migrations with this program's, by number, name and checksum. */
static once_result check_applied(const PGresult *r, struct once_error *err)
{
    for (int i = 0; i < PQntuples(r) && i < postgres_migration_count; i++)
        if (strcmp(PQgetvalue(r, i, 0), postgres_migrations[i].checksum) != 0)
            return once_fail(err, ONCE_INVALID,
                             "the database has another version of migration %s than this program; "
                             "an applied migration is never edited, so one of the two was not released",
                             postgres_migrations[i].name);
    return ONCE_OK;
}

/* How many migrations were applied. */
static once_result version_read(struct pg_conn *c, int *version, struct once_error *err)
{
    *version = 0;
    PGresult *r = PQexec(c->conn, "SELECT 1 FROM pg_class WHERE relname = 'migration' AND relnamespace = "
                                  "(SELECT oid FROM pg_namespace WHERE nspname = 'once')");
    once_result result = PQresultStatus(r) == PGRES_TUPLES_OK ? ONCE_OK : refusal(c->conn, r, err);
    bool missing = PQntuples(r) == 0;
    PQclear(r);
    if (result != ONCE_OK || missing)
        return result;
    r = PQexec(c->conn, "SELECT checksum FROM once.migration ORDER BY number");
    result = PQresultStatus(r) == PGRES_TUPLES_OK ? check_applied(r, err) : refusal(c->conn, r, err);
    *version = PQntuples(r);
    PQclear(r);
    return result;
}

static once_result apply_missing(struct pg_conn *c, int from, struct once_error *err)
{
    once_result r = ONCE_OK;
    for (int i = from; r == ONCE_OK && i < postgres_migration_count; i++) {
        r = run_text(c, postgres_migrations[i].sql, err);
        if (r != ONCE_OK)
            once_error_prefix(err, "migration %s", postgres_migrations[i].name);
    }
    return r;
}

/* A commit whose answer was lost may have taken effect; migrating again is safe and tells. */
static once_result commit(struct pg_conn *c, struct once_error *err)
{
    c->warned = false;
    ONCE_CRASH_POINT("migrate.statement");
    PGresult *r = PQexec(c->conn, "COMMIT");
    ONCE_CRASH_POINT("migrate.committed");
    once_result result = ONCE_OK;
    if (PQresultStatus(r) != PGRES_COMMAND_OK)
        result = pg_failure_of(c, r) == PG_FAILURE_LOST
                     ? once_fail(err, ONCE_UNKNOWN,
                                 "the answer to COMMIT was lost: the migration may have been applied; migrate again")
                     : refusal(c->conn, r, err);
    else if (c->warned)
        result =
            once_fail(err, ONCE_UNKNOWN, "the server warned during COMMIT: it may not be replicated; migrate again");
    PQclear(r);
    return result;
}

static once_result migrate(struct pg_conn *c, struct once_error *err)
{
    int from = 0;
    char lock[60];
    snprintf(lock, sizeof lock, "SELECT pg_advisory_xact_lock(%d)", PG_LOCK_SCHEMA);
    once_result r = run_text(c, "BEGIN", err);
    if (r == ONCE_OK)
        r = run_text(c, lock, err);
    if (r == ONCE_OK)
        r = version_read(c, &from, err);
    if (r == ONCE_OK && from > postgres_migration_count)
        r = once_fail(err, ONCE_INVALID,
                      "the store has version %d, this program knows versions up to %d: use a newer program", from,
                      postgres_migration_count);
    if (r == ONCE_OK)
        r = apply_missing(c, from, err);
    return r == ONCE_OK ? commit(c, err) : r; /* closing the connection rolls back */
}

/* Connects, calls `what`, closes. */
static once_result on_connection(const char *url, once_result (*what)(struct pg_conn *c, struct once_error *err),
                                 struct once_error *err)
{
    struct pg_conn c = { .url = strdup(url) };
    once_result r = c.url != NULL ? pg_conn_plain(&c, err) : once_fail(err, ONCE_NO_MEMORY, "no memory");
    if (r == ONCE_OK)
        r = what(&c, err);
    pg_conn_close(&c);
    free(c.url);
    return r;
}

once_result once_store_postgres_migrate(const char *url, int *version, struct once_error *err)
{
    once_result r = on_connection(url, migrate, err);
    if (r == ONCE_OK)
        *version = postgres_migration_count;
    return r;
}

static once_result cron_on(struct pg_conn *c, struct once_error *err)
{
    return run_text(c, postgres_sql_cron_on, err);
}

static once_result cron_off(struct pg_conn *c, struct once_error *err)
{
    return run_text(c, postgres_sql_cron_off, err);
}

once_result once_store_postgres_cron(const char *url, bool on, struct once_error *err)
{
    return on_connection(url, on ? cron_on : cron_off, err);
}
