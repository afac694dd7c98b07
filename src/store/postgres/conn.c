/* conn.c - see postgres/conn.h. */
#include "store/postgres/conn.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "os/os.h"
#include "postgres_sql.h"
#include "store/store.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

/* A warning during COMMIT means that it is not as durable as was asked for. */
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
    if (strncmp(state, "23", 2) == 0) /* a unique index, or another constraint */
        return PG_FAILURE_FAST_PATH;
    if (strncmp(state, "54", 2) == 0)
        return PG_FAILURE_LIMIT;
    if (strncmp(state, "57P", 3) == 0 || strncmp(state, "08", 2) == 0) /* shutting down; connection trouble */
        return PG_FAILURE_LOST;
    return PG_FAILURE_OTHER;
}

/* ------------------------------------------------------------------ asking */

/* Sends what is left to send and reads, until there is a result or trouble. False: silence. */
static bool wait_for_result(struct pg_conn *c)
{
    once_time heard_at = once_os_monotonic_ms();
    for (;;) {
        int unsent = PQflush(c->conn);
        if (unsent < 0 || !PQisBusy(c->conn))
            return true;
        struct pollfd p = { .fd = PQsocket(c->conn), .events = (short)(POLLIN | (unsent ? POLLOUT : 0)) };
        int64_t left = heard_at + c->answer_ms - once_os_monotonic_ms();
        int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (ready == 0)
            return false;
        if (ready < 0 && errno != EINTR)
            return true; /* libpq will report the error */
        if (ready > 0)
            heard_at = once_os_monotonic_ms();
        if (ready > 0 && (p.revents & ~POLLOUT) != 0 && !PQconsumeInput(c->conn))
            return true;
    }
}

PGresult *pg_conn_result(struct pg_conn *c)
{
    if (PQstatus(c->conn) == CONNECTION_OK && !wait_for_result(c)) {
        c->silent = true;
        shutdown(PQsocket(c->conn), SHUT_RDWR); /* libpq finds it closed */
    }
    return PQgetResult(c->conn);
}

/* The result of one statement, up to the NULL that ends it. */
static PGresult *statement_result(struct pg_conn *c)
{
    PGresult *r = pg_conn_result(c), *rest;
    while (PQstatus(c->conn) == CONNECTION_OK && (rest = pg_conn_result(c)) != NULL)
        PQclear(rest);
    return r;
}

/* Passes a good result on, or fails with the server's message. */
static once_result take_result(struct pg_conn *c, PGresult *r, PGresult **out, struct once_error *err)
{
    char line[300];
    ExecStatusType status = PQresultStatus(r);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        const char *message = r != NULL ? PQresultErrorMessage(r) : PQerrorMessage(c->conn);
        once_fail(err, ONCE_UNAVAILABLE, "database: %s", c->silent ? "no answer" : first_line(message, line));
        PQclear(r);
        return ONCE_UNAVAILABLE;
    }
    if (out != NULL)
        *out = r;
    else
        PQclear(r);
    return ONCE_OK;
}

once_result pg_conn_exec(struct pg_conn *c, const char *sql, PGresult **result, struct once_error *err)
{
    struct pg_params none;
    pg_params_init(&none);
    once_result r = pg_send(c->conn, sql, &none, err);
    pg_params_release(&none);
    return r == ONCE_OK ? take_result(c, statement_result(c), result, err) : r;
}

static once_result send_question(struct pg_conn *c, const char *before, const char *sql, struct pg_params *p,
                                 struct once_error *err)
{
    struct pg_params none;
    pg_params_init(&none);
    once_result r = pg_send(c->conn, c->settings, &none, err);
    if (r == ONCE_OK && before != NULL)
        r = pg_send(c->conn, before, &none, err);
    if (r == ONCE_OK)
        r = pg_send(c->conn, sql, p, err);
    if (r == ONCE_OK && !PQpipelineSync(c->conn))
        r = once_fail(err, ONCE_UNAVAILABLE, "cannot send to the database: %s", PQerrorMessage(c->conn));
    pg_params_release(&none);
    return r;
}

once_result pg_conn_ask(struct pg_conn *c, const char *before, const char *sql, struct pg_params *p, PGresult **result,
                        struct once_error *err)
{
    PQenterPipelineMode(c->conn);
    once_result r = send_question(c, before, sql, p, err);
    if (r != ONCE_OK) {
        pg_conn_close(c);
        return r;
    }
    PGresult *said = NULL; /* of the last statement, or of the one that failed */
    for (int i = before != NULL ? 3 : 2; i > 0; i--) {
        PGresult *one = statement_result(c);
        if (said == NULL)
            pg_conn_note_server(c, one);
        bool skipped = PQresultStatus(one) == PGRES_PIPELINE_ABORTED;
        PQclear(skipped ? one : said);
        said = skipped ? said : one;
    }
    PQclear(statement_result(c)); /* in sync again */
    PQexitPipelineMode(c->conn);
    return take_result(c, said, result, err);
}

/* ------------------------------------------------------------------ connecting */

/* Whether the URL has an '@' that should have been escaped: after the one that ends user and password, or after a '/'
 * that was meant to be part of the password. libpq would take the rest of the password for a host or a database, and
 * show it in its message. */
static bool has_stray_at(const char *url)
{
    const char *place = strstr(url, "://");
    if (place == NULL)
        return false;
    place += 3;
    size_t login = strcspn(place, "@/");
    if (place[login] == '@')
        place += login + 1;
    return memchr(place, '@', strcspn(place, "?")) != NULL;
}

/* A password with a '/' and no host after it, or a login without a host, would be taken for a port, and shown. */
static bool has_ports(const PQconninfoOption *o)
{
    for (; o->keyword != NULL; o++)
        if (strcmp(o->keyword, "port") == 0)
            return o->val == NULL || o->val[strspn(o->val, "0123456789,")] == '\0';
    return true;
}

static bool is_parameter(const PQconninfoOption *known, once_span name)
{
    for (const PQconninfoOption *o = known; o != NULL && o->keyword != NULL; o++)
        if (once_span_equal(once_span_str(o->keyword), name))
            return true;
    return false;
}

/* The first parameter after the '?' that libpq does not know. Empty if an '@' follows: then the '?' may be part of a
 * password. */
static once_span unknown_parameter(const char *url)
{
    const char *at = strchr(url, '?');
    if (at == NULL || strchr(at, '@') != NULL)
        return once_span_of(NULL, 0);
    PQconninfoOption *known = PQconndefaults();
    once_span found = once_span_of(NULL, 0);
    while (known != NULL && found.len == 0 && *at != '\0') {
        once_span name = once_span_of(at + 1, strspn(at + 1, "abcdefghijklmnopqrstuvwxyz_"));
        if (name.len > 0 && at[1 + name.len] == '=' && !is_parameter(known, name))
            found = name;
        at += 1 + strcspn(at + 1, "&");
    }
    PQconninfoFree(known);
    return found;
}

/* A URL that libpq refuses is the caller's mistake. libpq's message repeats parts of the URL, perhaps the password, so
 * it is not passed on. */
once_result once_store_postgres_url_check(const char *url, struct once_error *err)
{
    PQconninfoOption *parsed = PQconninfoParse(url, NULL);
    bool readable = parsed != NULL, stray = has_stray_at(url), good = readable && !stray && has_ports(parsed);
    PQconninfoFree(parsed);
    if (good)
        return ONCE_OK;
    once_span unknown = unknown_parameter(url);
    if (!readable && !stray && unknown.len > 0)
        return once_fail(err, ONCE_INVALID, "the URL cannot be read: '%.*s' is not a parameter of libpq",
                         ONCE_SPAN_ARGS(unknown));
    return once_fail(err, ONCE_INVALID,
                     "the URL cannot be read: it is postgresql://USER:PASSWORD@HOST:PORT/DATABASE?NAME=VALUE, where "
                     "special characters must be percent-encoded and NAME is one of libpq's parameters");
}

/* Connects, with our defaults for what the URL leaves out. */
static PGconn *connect_to(const char *url)
{
    char seconds[12], silence[12];
    snprintf(seconds, sizeof seconds, "%d", ONCE_PG_CONNECT_S);
    snprintf(silence, sizeof silence, "%d", ONCE_PG_ANSWER_MS);
    const char *names[] = { "connect_timeout", "tcp_user_timeout", "fallback_application_name", "dbname", NULL };
    const char *values[] = { seconds, silence, "once", url, NULL };
    return PQconnectdbParams(names, values, 1);
}

/* The URL's tcp_user_timeout is the kernel's limit for unacknowledged bytes; we use it as our limit for an answer, too.
 */
static int64_t answer_ms_of(PGconn *conn)
{
    int64_t ms = 0;
    PQconninfoOption *options = PQconninfo(conn);
    for (PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
        if (strcmp(o->keyword, "tcp_user_timeout") == 0 && o->val != NULL)
            ms = strtoll(o->val, NULL, 10);
    PQconninfoFree(options);
    return ms > 0 && ms <= INT32_MAX ? ms : ONCE_PG_ANSWER_MS;
}

once_result pg_conn_plain(struct pg_conn *c, struct once_error *err)
{
    char line[300];
    pg_conn_close(c);
    once_result r = once_store_postgres_url_check(c->url, err);
    if (r != ONCE_OK)
        return r;
    c->conn = connect_to(c->url);
    if (c->conn == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a connection");
    if (PQstatus(c->conn) != CONNECTION_OK)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot connect: %s", first_line(PQerrorMessage(c->conn), line));
    c->silent = false;
    c->met_count = 0;
    c->answer_ms = answer_ms_of(c->conn);
    PQsetnonblocking(c->conn, 1);
    PQsetNoticeReceiver(c->conn, on_notice, c);
    if (PQserverVersion(c->conn) < 130000)
        return once_fail(err, ONCE_INVALID, "the server is PostgreSQL %d; 13 or newer is needed",
                         PQserverVersion(c->conn) / 10000);
    return ONCE_OK;
}

/* lock_timeout: one key that a service's own transaction holds must not delay a whole batch.
 * client_min_messages: the warning of a cut wait for a standby must come through (FACT-6).
 * synchronous_commit: as the server is configured for our role, whatever another client left in the session, and even
 * if the setting is changed while we are connected. */
static once_result settle_settings(struct pg_conn *c, const char *level, struct once_error *err)
{
    const char *local = c->direct ? "false" : "true"; /* for this transaction only */
    static const char *const durable[] = { "local", "remote_write", "on", "remote_apply" };
    for (size_t i = 0; i < sizeof durable / sizeof *durable; i++)
        if (strcmp(level, durable[i]) == 0) {
            snprintf(c->settings, sizeof c->settings,
                     "SELECT set_config('lock_timeout', '1s', %s), set_config('client_min_messages', 'warning', "
                     "%s), set_config('synchronous_commit', '%s', %s), pg_backend_pid(), pg_postmaster_start_time()",
                     local, local, durable[i], local);
            return ONCE_OK;
        }
    return once_fail(err, ONCE_UNAVAILABLE, "synchronous_commit is %s: an answer would not be durable", level);
}

#define BEGAN_US "(extract(epoch FROM backend_start) * 1000000)::int8"

static once_result look_at_server(struct pg_conn *c, struct once_error *err)
{
    PGresult *r = NULL;
    once_result result = pg_conn_exec(c,
                                      "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on', "
                                      "to_regnamespace('once') IS NULL, "
                                      "(SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'), "
                                      "pg_backend_pid(), "
                                      "(SELECT " BEGAN_US " FROM pg_stat_activity WHERE pid = pg_backend_pid())",
                                      &r, err);
    if (result != ONCE_OK)
        return result;
    const char *what = PQgetvalue(r, 0, 0)[0]   ? "the server is a standby; connect to the primary "
                                                  "(target_session_attrs=read-write)"
                       : PQgetvalue(r, 0, 1)[0] ? "the server is read-only"
                       : PQgetvalue(r, 0, 2)[0] ? "the database has no schema 'once': run 'once migrate'"
                                                : NULL;
    /* A pooler tells its clients a made-up pid. */
    c->direct = pg_int(r, 0, 4) == PQbackendPID(c->conn);
    c->session = c->direct ? (struct pg_session){ .pid = pg_int(r, 0, 4), .began_us = pg_int(r, 0, 5) }
                           : (struct pg_session){ 0 };
    result = what != NULL ? once_fail(err, ONCE_UNAVAILABLE, "%s", what) : settle_settings(c, PQgetvalue(r, 0, 3), err);
    PQclear(r);
    return result;
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

void pg_conn_end_lost(struct pg_conn *c, struct pg_session lost)
{
    if (lost.pid == 0)
        return;
    struct pg_params p;
    pg_params_init(&p);
    pg_add_int(&p, PG_INT4, lost.pid);
    pg_add_int(&p, PG_INT8, lost.began_us);
    /* Pids are reused: the start time says whether it is still the same process. If this fails, the lost session stays
     * as it was. */
    (void)pg_conn_ask(c, NULL,
                      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND " BEGAN_US
                      " = $2 AND state LIKE 'idle%'",
                      &p, NULL, NULL);
    pg_params_release(&p);
}

/* Settings and prepared statements of a session that is ours alone. */
static once_result set_up_session(struct pg_conn *c, struct once_error *err)
{
    if (!c->direct)
        return ONCE_OK;
    PGresult *settings = NULL;
    once_result r = pg_conn_exec(c, c->settings, &settings, err);
    if (r == ONCE_OK)
        pg_conn_note_server(c, settings);
    PQclear(settings);
    for (size_t i = 0; r == ONCE_OK && i < PG_STATEMENTS; i++) {
        if (!PQsendPrepare(c->conn, pg_statement_texts[i].name, pg_statement_texts[i].sql, 0, NULL))
            return once_fail(err, ONCE_UNAVAILABLE, "cannot send to the database: %s", PQerrorMessage(c->conn));
        r = take_result(c, statement_result(c), NULL, err);
    }
    return r;
}

once_result pg_conn_call(struct pg_conn *c, enum pg_statement statement, struct pg_params *p, struct once_error *err)
{
    const struct pg_statement_text *text = &pg_statement_texts[statement];
    return c->direct ? pg_send_prepared(c->conn, text->name, p, err) : pg_send(c->conn, text->sql, p, err);
}

once_result pg_conn_open(struct pg_conn *c, struct once_error *err)
{
    once_result r = pg_conn_plain(c, err);
    if (r == ONCE_OK)
        r = look_at_server(c, err);
    if (r == ONCE_OK)
        r = look_at_schema(c, err);
    if (r == ONCE_OK)
        r = set_up_session(c, err);
    if (r != ONCE_OK)
        pg_conn_close(c);
    return r;
}

void pg_conn_close(struct pg_conn *c)
{
    PQfinish(c->conn);
    c->conn = NULL;
}

/* ------------------------------------------------------------------ the server behind it */

enum { SETTINGS_PID = 3, SETTINGS_STARTED, SETTINGS_COLUMNS };

void pg_conn_note_server(struct pg_conn *c, const PGresult *settings)
{
    if (PQresultStatus(settings) == PGRES_TUPLES_OK && PQnfields(settings) == SETTINGS_COLUMNS)
        c->server = (struct pg_server){ .pid = pg_int(settings, 0, SETTINGS_PID),
                                        .started_us = pg_int(settings, 0, SETTINGS_STARTED) };
}

static bool has_met(const struct pg_conn *c, struct pg_server server)
{
    size_t known = c->met_count < ONCE_PG_SERVERS_MET ? c->met_count : ONCE_PG_SERVERS_MET;
    for (size_t i = 0; i < known; i++)
        if (c->met[i].pid == server.pid && c->met[i].started_us == server.started_us)
            return true;
    return false;
}

static void remember(struct pg_conn *c, struct pg_server server)
{
    if (!has_met(c, server))
        c->met[c->met_count++ % ONCE_PG_SERVERS_MET] = server;
}

once_result pg_conn_barrier(struct pg_conn *c, struct once_error *err)
{
    struct pg_params none;
    pg_params_init(&none);
    c->warned = false;
    once_result r = pg_conn_ask(c, NULL, "SELECT once.barrier()", &none, NULL, err);
    pg_params_release(&none);
    if (r == ONCE_OK && c->warned)
        r = once_fail(err, ONCE_UNAVAILABLE, "the server warned that a commit may not be replicated");
    if (r == ONCE_OK)
        remember(c, c->server);
    return r;
}

once_result pg_conn_meet_server(struct pg_conn *c, struct once_error *err)
{
    struct pg_server server = c->server;
    if (has_met(c, server))
        return ONCE_OK;
    once_result r = pg_conn_barrier(c, err);
    if (r == ONCE_OK && c->server.started_us != server.started_us)
        r = once_fail(err, ONCE_UNAVAILABLE, "the pooler leads to more than one server");
    if (r == ONCE_OK)
        remember(c, server);
    return r;
}
