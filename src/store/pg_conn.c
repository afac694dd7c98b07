/* pg_conn.c - see pg_conn.h. */
#include "store/pg_conn.h"

#include "core/err.h"
#include "core/span.h"
#include "postgres_sql.h"

#include <stdlib.h>

/* Any warning while a commit is under way means: not as durable as was asked for. */
static void on_notice(void *arg, const PGresult *notice)
{
    struct pg_conn *c = arg;
    const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (severity != NULL && strcmp(severity, "WARNING") == 0)
        c->warned = true;
}

/* libpq's messages end with a newline and may have several lines. */
static const char *first_line(const char *message, char out[300])
{
    snprintf(out, 300, "%s", message != NULL ? message : "?");
    out[strcspn(out, "\n")] = '\0';
    return out;
}

enum pg_failure pg_failure_of(const struct pg_conn *c, const PGresult *result)
{
    const char *state = result != NULL ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    if (PQstatus(c->conn) != CONNECTION_OK || state == NULL)
        return PG_FAILURE_LOST;
    if (strcmp(state, "40001") == 0 || strcmp(state, "40P01") == 0)
        return PG_FAILURE_RETRY;
    if (strcmp(state, "55P03") == 0)
        return PG_FAILURE_LOCKED;
    if (strcmp(state, "22023") == 0)
        return PG_FAILURE_INPUT;
    if (strncmp(state, "54", 2) == 0)
        return PG_FAILURE_LIMIT;
    if (strncmp(state, "57P", 3) == 0 || strncmp(state, "08", 2) == 0) /* shutting down; connection trouble */
        return PG_FAILURE_LOST;
    return PG_FAILURE_OTHER;
}

once_result pg_conn_exec(struct pg_conn *c, const char *sql, PGresult **result, struct once_error *err)
{
    char line[300];
    PGresult *r = PQexecParams(c->conn, sql, 0, NULL, NULL, NULL, NULL, 1);
    ExecStatusType status = PQresultStatus(r);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        once_fail(err, ONCE_UNAVAILABLE, "%s", first_line(PQresultErrorMessage(r), line));
        PQclear(r);
        return ONCE_UNAVAILABLE;
    }
    if (result != NULL)
        *result = r;
    else
        PQclear(r);
    return ONCE_OK;
}

/* What libpq would not take is the caller's mistake, not the server's. */
static once_result check_url(const char *url, struct once_error *err)
{
    char *problem = NULL, line[300];
    PQconninfoOption *parsed = PQconninfoParse(url, &problem);
    once_result r = parsed != NULL ? ONCE_OK : once_fail(err, ONCE_INVALID, "%s", first_line(problem, line));
    PQconninfoFree(parsed);
    PQfreemem(problem);
    return r;
}

once_result pg_conn_plain(struct pg_conn *c, struct once_error *err)
{
    char line[300];
    pg_conn_close(c);
    once_result r = check_url(c->url, err);
    if (r != ONCE_OK)
        return r;
    c->conn = PQconnectdb(c->url);
    if (c->conn == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a connection");
    if (PQstatus(c->conn) != CONNECTION_OK)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot connect: %s", first_line(PQerrorMessage(c->conn), line));
    PQsetNoticeReceiver(c->conn, on_notice, c);
    if (PQserverVersion(c->conn) < 130000)
        return once_fail(err, ONCE_INVALID, "the server is PostgreSQL %d; 13 is the oldest that will do",
                         PQserverVersion(c->conn) / 10000);
    return ONCE_OK;
}

/* The session as we need it. lock_timeout: one key that somebody's own transaction holds must
 * not hold up a whole batch. */
static once_result set_up(struct pg_conn *c, struct once_error *err)
{
    return pg_conn_exec(c,
                        "SELECT set_config('lock_timeout', '1s', false), set_config('client_min_messages', "
                        "'warning', false), set_config('application_name', 'once', false)",
                        NULL, err);
}

static once_result look_at_server(struct pg_conn *c, struct once_error *err)
{
    PGresult *r = NULL;
    once_result result = pg_conn_exec(c,
                                      "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on', "
                                      "current_setting('synchronous_commit') = 'off', to_regnamespace('once') IS NULL",
                                      &r, err);
    if (result != ONCE_OK)
        return result;
    const char *what = PQgetvalue(r, 0, 0)[0]   ? "the server is a standby; connect to the primary "
                                                  "(target_session_attrs=read-write)"
                       : PQgetvalue(r, 0, 1)[0] ? "the server is read-only"
                       : PQgetvalue(r, 0, 2)[0] ? "synchronous_commit is off: an answer would not be durable"
                       : PQgetvalue(r, 0, 3)[0] ? "the database has no schema 'once': run 'once migrate'"
                                                : NULL;
    PQclear(r);
    return what != NULL ? once_fail(err, ONCE_UNAVAILABLE, "%s", what) : ONCE_OK;
}

static once_result look_at_schema(struct pg_conn *c, struct once_error *err)
{
    PGresult *r = NULL;
    once_result result = pg_conn_exec(c, "SELECT once.version(), once.secret()", &r, err);
    if (result != ONCE_OK) {
        once_error_prefix(err, "the role may not use the schema 'once' (GRANT once_app TO it)");
        return result;
    }
    const uint8_t *v = (const uint8_t *)PQgetvalue(r, 0, 0);
    int version = PQgetlength(r, 0, 0) == 4 ? v[2] << 8 | v[3] : 0;
    if (version > postgres_migration_count)
        result = once_fail(err, ONCE_INVALID,
                           "the store has version %d, this program knows versions up to %d: use a newer program",
                           version, postgres_migration_count);
    else if (version < postgres_migration_count)
        result = once_fail(err, ONCE_INVALID, "the store has version %d and needs %d: run 'once migrate'", version,
                           postgres_migration_count);
    else
        once_mac_init(&c->secret, once_span_of(PQgetvalue(r, 0, 1), (size_t)PQgetlength(r, 0, 1)));
    PQclear(r);
    return result;
}

once_result pg_conn_open(struct pg_conn *c, struct once_error *err)
{
    once_result r = pg_conn_plain(c, err);
    if (r == ONCE_OK)
        r = set_up(c, err);
    if (r == ONCE_OK)
        r = look_at_server(c, err);
    if (r == ONCE_OK)
        r = look_at_schema(c, err);
    if (r != ONCE_OK)
        pg_conn_close(c);
    return r;
}

void pg_conn_close(struct pg_conn *c)
{
    PQfinish(c->conn);
    c->conn = NULL;
}

once_result pg_conn_barrier(struct pg_conn *c, struct once_error *err)
{
    c->warned = false;
    once_result r = pg_conn_exec(c, "SELECT once.barrier()", NULL, err);
    if (r == ONCE_OK && c->warned)
        r = once_fail(err, ONCE_UNAVAILABLE, "the server warned that a commit may not be replicated");
    return r;
}
