/*
 * pg_migrate.c - creates or upgrades the schema `once` in a PostgreSQL database.
 *
 * All that is missing in one transaction, under an advisory lock: two migrators at once take
 * turns and the second finds nothing to do; one that is killed leaves nothing behind.
 */
#include "store/pg_conn.h"
#include "store/store.h"

#include "core/err.h"
#include "core/span.h"
#include "postgres_sql.h"

#include <stdlib.h>

/* Several statements at once, in the simple protocol. */
static once_result run_text(struct pg_conn *c, const char *sql, struct once_error *err)
{
    PGresult *r = PQexec(c->conn, sql);
    ExecStatusType status = PQresultStatus(r);
    once_result result = ONCE_OK;
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        const char *message = PQresultErrorMessage(r);
        result = once_fail(err, ONCE_UNAVAILABLE, "%.*s", (int)strcspn(message, "\n"), message);
    }
    PQclear(r);
    return result;
}

static once_result version_read(struct pg_conn *c, int *version, struct once_error *err)
{
    PGresult *r = NULL;
    *version = 0;
    once_result result = pg_conn_exec(c, "SELECT to_regclass('once.store') IS NULL", &r, err);
    if (result != ONCE_OK)
        return result;
    bool missing = PQgetvalue(r, 0, 0)[0] != 0;
    PQclear(r);
    if (missing)
        return ONCE_OK;
    result = pg_conn_exec(c, "SELECT version FROM once.store", &r, err);
    if (result != ONCE_OK)
        return result;
    const uint8_t *v = (const uint8_t *)PQgetvalue(r, 0, 0);
    *version = PQntuples(r) == 1 ? v[2] << 8 | v[3] : 0;
    PQclear(r);
    return ONCE_OK;
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

static once_result migrate(struct pg_conn *c, struct once_error *err)
{
    int from = 0;
    once_result r = run_text(c, "BEGIN", err);
    if (r == ONCE_OK)
        r = run_text(c, "SELECT pg_advisory_xact_lock(8031155)", err);
    if (r == ONCE_OK)
        r = version_read(c, &from, err);
    if (r == ONCE_OK && from > postgres_migration_count)
        r = once_fail(err, ONCE_INVALID,
                      "the store has version %d, this program knows versions up to %d: use a newer program", from,
                      postgres_migration_count);
    if (r == ONCE_OK)
        r = apply_missing(c, from, err);
    if (r == ONCE_OK)
        r = run_text(c, "COMMIT", err);
    return r; /* otherwise closing the connection rolls back */
}

once_result once_store_postgres_migrate(const char *url, int *version, struct once_error *err)
{
    struct pg_conn c = { .url = strdup(url) };
    once_result r = c.url != NULL ? pg_conn_plain(&c, err) : once_fail(err, ONCE_NO_MEMORY, "no memory");
    if (r == ONCE_OK)
        r = migrate(&c, err);
    if (r == ONCE_OK)
        *version = postgres_migration_count;
    pg_conn_close(&c);
    free(c.url);
    return r;
}
