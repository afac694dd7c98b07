/*
 * postgres.c - flows on the caller's PostgreSQL connection, through the functions of docs/sql.md.
 *
 * A second connection, opened by us with the same parameters, renews leases during a call, and looks up
 * whether a COMMIT took effect whose answer was lost (K10). For that it makes a write that waits for the
 * transaction in doubt: every transaction of a flow locks its claim's row (once.guard, once.advance), and
 * once.extend needs that lock. After that it reads the record. Only one thread at a time uses the second
 * connection: the lease keeper during a call, the caller outside of one.
 *
 * A WARNING during COMMIT means that the commit may not be replicated (FACT-6): then once.barrier()
 * must pass without a warning.
 */
#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "flow/database.h"
#include "store/gather.h"
#include "store/postgres/answer.h"
#include "store/postgres/param.h"

#include <libpq-fe.h>
#include <stdlib.h>

struct flow_postgres {
    struct once_flow_db base;
    PGconn *conn; /* the caller's */
    PGconn *side; /* the second connection; NULL until it is needed */
    bool warned;
};

static struct flow_postgres *own(struct once_flow_db *db)
{
    return (struct flow_postgres *)db;
}

/* ------------------------------------------------------------------ asking */

static once_result failed(const PGconn *conn, const PGresult *r, struct once_error *err)
{
    const char *state = r != NULL ? PQresultErrorField(r, PG_DIAG_SQLSTATE) : NULL;
    const char *text = r != NULL ? PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    char line[300];
    snprintf(line, sizeof line, "%s", text != NULL ? text : PQerrorMessage(conn));
    line[strcspn(line, "\n")] = '\0';
    once_result result = ONCE_UNAVAILABLE;
    if (state != NULL && (strcmp(state, "22023") == 0 || strncmp(state, "2202", 4) == 0))
        result = ONCE_INVALID;
    else if (state != NULL && strncmp(state, "54", 2) == 0)
        result = ONCE_LIMIT;
    return once_fail(err, result, "database: %s", line);
}

static bool is_fenced(const PGresult *r)
{
    const char *state = r != NULL ? PQresultErrorField(r, PG_DIAG_SQLSTATE) : NULL;
    return state != NULL && strcmp(state, "ONC01") == 0;
}

static PGresult *last_result(PGconn *conn)
{
    PGresult *last = NULL, *r;
    while ((r = PQgetResult(conn)) != NULL) {
        PQclear(last);
        last = r;
    }
    return last;
}

static bool is_good(const PGresult *r)
{
    ExecStatusType status = PQresultStatus(r);
    return status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
}

/* *out is set after a failure as well: the caller checks and clears it. */
static once_result ask(PGconn *conn, const char *sql, struct pg_params *p, PGresult **out, struct once_error *err)
{
    *out = NULL;
    once_result r = pg_send(conn, sql, p, err);
    if (r != ONCE_OK)
        return r;
    *out = last_result(conn);
    return is_good(*out) ? ONCE_OK : failed(conn, *out, err);
}

/* Calls a function that returns once.answer. Releases the parameters. */
static once_result ask_answer(PGconn *conn, const char *sql, struct pg_params *p, struct once_reply *reply,
                              struct once_error *err)
{
    *reply = (struct once_reply){ .arm = ONCE_ARM_NONE };
    PGresult *result = NULL;
    once_result r = ask(conn, sql, p, &result, err);
    if (r == ONCE_OK) {
        struct once_op op = { .result = ONCE_OK };
        r = pg_read_other(result, &op, err);
        *reply = op.reply;
        if (r == ONCE_OK && reply->arm == ONCE_ARM_IN_PROGRESS)
            reply->retry_after_ms = pg_int(result, 0, PG_ANSWER_RETRY_AFTER);
    }
    PQclear(result);
    pg_params_release(p);
    return r;
}

static void grant_params(struct pg_params *p, struct once_grant grant)
{
    pg_params_init(p);
    pg_add_bytes(p, PG_UUID, once_span_of(grant.record, sizeof grant.record));
    pg_add_int(p, PG_INT8, (int64_t)grant.fence);
}

/* ------------------------------------------------------------------ the operations */

#define MS(n) "(" n " * interval '1 millisecond')"
#define UTF8(n) "convert_from(" n ", 'UTF8')"
#define EXTEND "SELECT * FROM once.extend($1, $2, CASE WHEN $3 > 0 THEN " MS("$3") " END)"

static once_result lookup(struct once_flow_db *db, once_span tenant, once_span key, struct once_reply *reply,
                          struct once_error *err)
{
    struct pg_params p;
    pg_params_init(&p);
    pg_add_bytes(&p, PG_BYTEA, tenant);
    pg_add_bytes(&p, PG_BYTEA, key);
    return ask_answer(own(db)->conn, "SELECT * FROM once.lookup(" UTF8("$1") ", " UTF8("$2") ")", &p, reply, err);
}

static once_result claim(struct once_flow_db *db, const struct once_claim *claim, struct once_reply *reply,
                         struct once_error *err)
{
    struct pg_params p;
    pg_params_init(&p);
    pg_add_bytes(&p, PG_BYTEA, claim->tenant);
    pg_add_bytes(&p, PG_BYTEA, claim->key);
    pg_add_bytes(&p, PG_BYTEA, once_span_of(claim->fingerprint.bytes, sizeof claim->fingerprint.bytes));
    pg_add_int(&p, PG_INT8, claim->lease_ms);
    pg_add_int(&p, PG_INT8, claim->retention_ms);
    pg_add_bytes(&p, PG_TEXT, once_span_str(once_takeover_name(claim->takeover)));
    pg_add_int(&p, PG_INT8, claim->body_retention_ms);
    return ask_answer(own(db)->conn,
                      "SELECT * FROM once.claim(" UTF8("$1") ", " UTF8("$2") ", $3, " MS(
                          "$4") ", "
                                "CASE WHEN $5 >= 0 THEN " MS(
                                    "$5") " END, $6, body_retention => CASE WHEN $7 > 0 THEN " MS("$7") " END)",
                      &p, reply, err);
}

static once_result take_over(struct once_flow_db *db, struct once_grant seen, int64_t lease_ms,
                             struct once_reply *reply, struct once_error *err)
{
    struct pg_params p;
    grant_params(&p, seen);
    pg_add_int(&p, PG_INT8, lease_ms);
    return ask_answer(own(db)->conn, "SELECT * FROM once.take_over($1, $2, " MS("$3") ")", &p, reply, err);
}

static once_result guard(struct once_flow_db *db, struct once_grant grant, bool *fenced, struct once_error *err)
{
    struct pg_params p;
    grant_params(&p, grant);
    PGresult *result = NULL;
    once_result r = ask(own(db)->conn, "SELECT once.guard($1, $2)", &p, &result, err);
    *fenced = is_fenced(result);
    PQclear(result);
    pg_params_release(&p);
    return *fenced ? ONCE_OK : r;
}

static once_result advance(struct once_flow_db *db, struct once_grant grant, once_span point, once_span checkpoint,
                           struct once_reply *reply, struct once_error *err)
{
    struct pg_params p;
    grant_params(&p, grant);
    pg_add_bytes(&p, PG_TEXT, point);
    pg_add_bytes(&p, PG_BYTEA, checkpoint);
    return ask_answer(own(db)->conn, "SELECT * FROM once.advance($1, $2, $3, $4)", &p, reply, err);
}

static once_result extend_by(PGconn *conn, const char *sql, struct once_grant grant, int64_t lease_ms,
                             struct once_reply *reply, struct once_error *err)
{
    struct pg_params p;
    grant_params(&p, grant);
    pg_add_int(&p, PG_INT8, lease_ms);
    return ask_answer(conn, sql, &p, reply, err);
}

static once_result extend(struct once_flow_db *db, struct once_grant grant, int64_t lease_ms, struct once_reply *reply,
                          struct once_error *err)
{
    return extend_by(own(db)->conn, EXTEND, grant, lease_ms, reply, err);
}

static once_result finish(struct once_flow_db *db, struct once_grant grant, const struct once_outcome *outcome,
                          struct once_reply *reply, struct once_error *err)
{
    struct pg_params p;
    grant_params(&p, grant);
    pg_add_int(&p, PG_INT4, outcome->status);
    pg_add_bytes(&p, PG_BYTEA, outcome->body);
    pg_add_bytes(&p, PG_BYTEA, outcome->headers);
    pg_add_bytes(&p, PG_TEXT, once_span_str(once_state_name(outcome->state)));
    pg_add_int(&p, PG_INT4, outcome->retryable);
    return ask_answer(own(db)->conn, "SELECT * FROM once.finish($1, $2, $3, $4, " UTF8("$5") ", $6, $7 = 1)", &p, reply,
                      err);
}

static once_result list(struct once_flow_db *db, uint64_t before, struct once_page *page, once_time *now,
                        struct once_error *err)
{
    *page = (struct once_page){ .count = 0 };
    struct pg_params p;
    pg_params_init(&p);
    pg_add_int(&p, PG_INT8, before != 0 && before < INT64_MAX ? (int64_t)before : INT64_MAX);
    pg_add_int(&p, PG_INT8, FLOW_LIST_SPAN);
    PGresult *result = NULL;
    struct gather_page g;
    once_result r = gather_page_init(&g, FLOW_LIST_LEN, err);
    if (r == ONCE_OK)
        r = ask(own(db)->conn, "SELECT l.next, once.now_ms(), (l.answer).* FROM once.unfinished($1, $2) l", &p, &result,
                err);
    enum { NEXT, NOW, ANSWER };
    int rows = r == ONCE_OK ? PQntuples(result) : 0;
    if (r == ONCE_OK && (rows == 0 || PQnfields(result) != ANSWER + PG_ANSWER_COUNT))
        r = once_fail(err, ONCE_CORRUPT, "the database has other versions of Once's functions");
    for (int row = 0; r == ONCE_OK && row < rows && g.count < FLOW_LIST_LEN; row++) {
        struct once_record record = pg_read_record(result, row, ANSWER);
        if (!PQgetisnull(result, row, ANSWER + PG_ANSWER_FENCE))
            gather_record(&g, &record);
        page->next =
            (uint64_t)pg_int(result, row, NEXT); /* the last row has no record, only the position of the next page */
        *now = pg_int(result, row, NOW);
    }
    if (r == ONCE_OK) {
        uint64_t next = page->next;
        r = gather_page_make(&g, page, err);
        page->next = next;
    }
    gather_page_release(&g);
    PQclear(result);
    pg_params_release(&p);
    return r;
}

/* ------------------------------------------------------------------ the second connection */

static PGconn *connect_like(PGconn *conn)
{
    enum { OPTIONS_MAX = 64 };
    const char *names[OPTIONS_MAX + 1], *values[OPTIONS_MAX + 1];
    size_t n = 0;
    PQconninfoOption *options = PQconninfo(conn);
    for (PQconninfoOption *o = options; o != NULL && o->keyword != NULL && n < OPTIONS_MAX; o++) {
        if (o->val == NULL || o->val[0] == '\0')
            continue;
        names[n] = o->keyword;
        values[n++] = o->val;
    }
    names[n] = values[n] = NULL;
    PGconn *side = PQconnectdbParams(names, values, 0);
    PQconninfoFree(options);
    return side;
}

static once_result open_side(struct flow_postgres *f, struct once_error *err)
{
    if (f->side != NULL && PQstatus(f->side) == CONNECTION_OK)
        return ONCE_OK;
    PQfinish(f->side);
    f->side = connect_like(f->conn);
    return PQstatus(f->side) == CONNECTION_OK ? ONCE_OK : failed(f->side, NULL, err);
}

static once_result exec_aside(struct flow_postgres *f, const char *sql, struct once_error *err)
{
    PGresult *result = PQexec(f->side, sql);
    once_result r = is_good(result) ? ONCE_OK : failed(f->side, result, err);
    PQclear(result);
    return r;
}

/* lock_timeout: a lease that is not renewed in time is lost anyway. It and the isolation level are set for this
 * transaction only, since a pooler may give the session to other clients. */
static once_result renew(struct once_flow_db *db, struct once_grant grant, int64_t lease_ms, struct once_reply *reply,
                         struct once_error *err)
{
    struct flow_postgres *f = own(db);
    once_result r = open_side(f, err);
    if (r == ONCE_OK)
        r = exec_aside(f, "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '10s'", err);
    if (r == ONCE_OK)
        r = extend_by(f->side, EXTEND, grant, lease_ms, reply, err);
    if (r == ONCE_OK) {
        r = exec_aside(f, "COMMIT", err);
    } else if (f->side != NULL && PQtransactionStatus(f->side) != PQTRANS_IDLE) {
        PQfinish(f->side); /* in an unknown state */
        f->side = NULL;
    }
    return r;
}

/* ------------------------------------------------------------------ transactions */

static bool is_idle(struct once_flow_db *db)
{
    /* A broken connection has no open transaction; the next `begin` resets it. */
    return PQtransactionStatus(own(db)->conn) == PQTRANS_IDLE || PQstatus(own(db)->conn) != CONNECTION_OK;
}

static bool is_open(struct once_flow_db *db)
{
    PGTransactionStatusType status = PQtransactionStatus(own(db)->conn);
    return status == PQTRANS_INTRANS || status == PQTRANS_INERROR || status == PQTRANS_UNKNOWN; /* broken connection */
}

static void on_notice(void *arg, const PGresult *notice)
{
    struct flow_postgres *f = arg;
    const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (severity != NULL && strcmp(severity, "WARNING") == 0)
        f->warned = true;
}

static PGresult *run(PGconn *conn, const char *sql)
{
    struct pg_params none;
    pg_params_init(&none);
    PGresult *r = pg_send(conn, sql, &none, NULL) == ONCE_OK ? last_result(conn) : NULL;
    pg_params_release(&none);
    return r;
}

static once_result begin(struct once_flow_db *db, struct once_error *err)
{
    /* K4: a call depends on the commits before it, so they must be durable even if the session says synchronous_commit
     * = off. K3: a guard must see commits made while it waited, so the isolation is READ COMMITTED in any session. */
    static const char sql[] =
        "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT set_config('synchronous_commit', 'on', true) "
        "WHERE current_setting('synchronous_commit') = 'off'";
    PGconn *conn = own(db)->conn;
    PGresult *r = PQexec(conn, sql);
    if (!is_good(r) && PQstatus(conn) != CONNECTION_OK) { /* no transaction is open: a new connection will do */
        PQclear(r);
        PQreset(conn);
        r = PQexec(conn, sql);
    }
    once_result result = is_good(r) ? ONCE_OK : failed(conn, r, err);
    PQclear(r);
    return result;
}

static void rollback(struct once_flow_db *db)
{
    if (PQstatus(own(db)->conn) == CONNECTION_OK && is_open(db))
        PQclear(run(own(db)->conn, "ROLLBACK"));
}

/* A write on the second connection waits for the transaction in doubt; then the record shows whether it took effect. */
static enum flow_fate look_up_commit(struct flow_postgres *f, const struct flow_change *mark, struct once_error *err)
{
    struct once_reply reply = { .arm = ONCE_ARM_NONE };
    enum flow_fate fate = FLOW_UNSURE;
    PQfinish(f->side); /* there may have been a failover */
    f->side = NULL;
    once_result r = renew(&f->base, mark->grant, 0, &reply, err);
    const struct once_record *record = &reply.record;
    if (r == ONCE_OK && reply.arm == ONCE_ARM_FENCED && record->grant.fence == 0) {
        fate = FLOW_UNSURE; /* an uncommitted first claim holds no lock that could be waited for */
    } else if (r == ONCE_OK && reply.arm == ONCE_ARM_FENCED && record->grant.fence < mark->grant.fence) {
        fate = FLOW_NOT_COMMITTED; /* a takeover */
    } else if (r == ONCE_OK && reply.arm == ONCE_ARM_FENCED) {
        bool ours = record->grant.fence == mark->grant.fence;
        fate = ours && mark->finishes ? FLOW_COMMITTED : FLOW_FENCED;
    } else if (r == ONCE_OK && (mark->enters || mark->finishes)) {
        fate = mark->enters ? FLOW_COMMITTED : FLOW_NOT_COMMITTED;
    } else if (r == ONCE_OK && mark->point.len > 0) {
        /* The answer `done` has no recovery point: read the record. */
        struct pg_params p;
        pg_params_init(&p);
        pg_add_bytes(&p, PG_UUID, once_span_of(mark->grant.record, sizeof mark->grant.record));
        once_reply_release(&reply);
        r = ask_answer(f->side, "SELECT * FROM once.lookup_record($1)", &p, &reply, err);
        if (r == ONCE_OK)
            fate = once_span_equal(reply.record.recovery_point, mark->point) ? FLOW_COMMITTED : FLOW_NOT_COMMITTED;
    }
    once_reply_release(&reply);
    return fate;
}

/* If the barrier passes without a warning, everything before it is replicated. */
static bool passes_barrier(struct flow_postgres *f)
{
    f->warned = false;
    PGresult *r = run(f->conn, "SELECT once.barrier()");
    bool passed = is_good(r) && !f->warned;
    PQclear(r);
    return passed;
}

static enum flow_fate commit(struct once_flow_db *db, const struct flow_change *mark, struct once_error *err)
{
    struct flow_postgres *f = own(db);
    f->warned = false;
    PQnoticeReceiver before = PQsetNoticeReceiver(f->conn, on_notice, f);
    PGresult *r = run(f->conn, "COMMIT");
    enum flow_fate fate = FLOW_COMMITTED;
    if (!is_good(r)) {
        failed(f->conn, r, err);
        bool alive = PQstatus(f->conn) == CONNECTION_OK && r != NULL;
        fate = alive ? FLOW_NOT_COMMITTED : look_up_commit(f, mark, err);
    } else if (strcmp(PQcmdStatus(r), "COMMIT") != 0) { /* COMMIT of a failed transaction is a ROLLBACK */
        once_fail(err, ONCE_UNAVAILABLE, "database: a statement of this transaction had failed");
        fate = FLOW_NOT_COMMITTED;
    } else if (f->warned && !passes_barrier(f)) {
        once_fail(err, ONCE_UNKNOWN, "database: the server warned that a commit may not be replicated");
        fate = FLOW_UNSURE;
    }
    PQclear(r);
    PQsetNoticeReceiver(f->conn, before, NULL);
    return fate;
}

static void lend(struct once_flow_db *db, struct once_local *local)
{
    local->postgres = own(db)->conn;
}

/* ------------------------------------------------------------------ open, close */

static void close_postgres(struct once_flow_db *db)
{
    PQfinish(own(db)->side);
    free(db);
}

static const struct flow_ops postgres_ops = {
    .is_idle = is_idle,
    .is_open = is_open,
    .begin = begin,
    .rollback = rollback,
    .commit = commit,
    .lend = lend,
    .lookup = lookup,
    .claim = claim,
    .take_over = take_over,
    .guard = guard,
    .advance = advance,
    .extend = extend,
    .finish = finish,
    .list = list,
    .renew = renew,
    .close = close_postgres,
};

static once_result read_secret(PGconn *conn, struct once_mac *secret, struct once_error *err)
{
    struct pg_params none;
    pg_params_init(&none);
    PGresult *r = NULL;
    once_result result = ask(conn, "SELECT once.secret()", &none, &r, err);
    if (result != ONCE_OK)
        once_error_prefix(err, "run 'once migrate', and GRANT once_app to the role");
    else
        once_mac_init(secret, pg_bytes(r, 0, 0));
    PQclear(r);
    pg_params_release(&none);
    return result;
}

once_result once_flow_open_postgres(struct pg_conn *conn, struct once_flow_db **out, struct once_error *err)
{
    if (PQstatus(conn) != CONNECTION_OK)
        return failed(conn, NULL, err);
    if (PQtransactionStatus(conn) != PQTRANS_IDLE)
        return once_fail(err, ONCE_INVALID, "the connection has an open transaction, or a running statement");
    struct flow_postgres *f = calloc(1, sizeof *f);
    if (f == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for flows on a connection");
    once_result r = read_secret(conn, &f->base.secret, err);
    if (r != ONCE_OK) {
        free(f);
        return r;
    }
    f->conn = conn;
    f->base.ops = &postgres_ops;
    flow_lease_keeper_init(&f->base.keeper, &f->base);
    *out = &f->base;
    return ONCE_OK;
}
