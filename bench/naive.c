/* naive.c - see naive.h. */
#include "naive.h"

#include "core/err.h"
#include "core/span.h"
#include "os/os.h"

#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static const char schema[] =
    "DROP SCHEMA IF EXISTS once_bench CASCADE;"
    "CREATE SCHEMA once_bench;"
    "CREATE TABLE once_bench.request ("
    "    tenant_id bigint NOT NULL, idempotency_key text NOT NULL, request_hash bytea NOT NULL,"
    "    status text NOT NULL, response_status integer, response_body jsonb,"
    "    created_at timestamptz NOT NULL, completed_at timestamptz, expires_at timestamptz NOT NULL,"
    "    PRIMARY KEY (tenant_id, idempotency_key));"
    "CREATE INDEX ON once_bench.request (expires_at);"
    "CREATE INDEX ON once_bench.request (tenant_id, idempotency_key, request_hash)";

static const char claim_sql[] = "INSERT INTO once_bench.request (tenant_id, idempotency_key, request_hash, status, "
                                "created_at, expires_at) VALUES (1, $1, $2, 'in_progress', now(), now() + '24 hours') "
                                "ON CONFLICT DO NOTHING";
static const char finish_sql[] = "UPDATE once_bench.request SET status = 'completed', response_status = 201, "
                                 "response_body = $2, completed_at = now() WHERE tenant_id = 1 AND "
                                 "idempotency_key = $1 AND status = 'in_progress'";

struct client {
    struct naive *naive;
    PGconn *conn;
    pthread_t thread;
    struct histogram histogram;
    uint64_t operations, records, errors;
    char error[200];
};

struct naive {
    struct client clients[NAIVE_CONNECTIONS];
    const struct load *load; /* of the run */
    uint64_t stop_ns;
    atomic_uint_fast64_t next;
    char *body;
};

static bool execute(struct client *c, const char *name, const char *key, const char *value, int value_len, int binary)
{
    uint64_t start = once_os_monotonic_ns();
    PGresult *r = PQexecPrepared(c->conn, name, 2, (const char *const[]){ key, value }, (const int[]){ 0, value_len },
                                 (const int[]){ 0, binary }, 1);
    bool good = PQresultStatus(r) == PGRES_COMMAND_OK && strcmp(PQcmdTuples(r), "1") == 0;
    if (!good && c->errors++ == 0)
        snprintf(c->error, sizeof c->error, "%s: %s", name, PQresultErrorMessage(r));
    PQclear(r);
    histogram_add(&c->histogram, once_os_monotonic_ns() - start);
    c->operations++;
    return good;
}

static void *request_in_a_loop(void *arg)
{
    struct client *c = arg;
    while (c->errors == 0 && once_os_monotonic_ns() < c->naive->stop_ns) {
        uint64_t number = atomic_fetch_add(&c->naive->next, 1);
        char key[LOAD_KEY_SIZE], hash[32] = { 0 };
        load_key(number, key);
        memcpy(hash, &number, sizeof number);
        c->records += execute(c, "claim", key, hash, sizeof hash, 1) && execute(c, "finish", key, c->naive->body, 0, 0);
    }
    return NULL;
}

void naive_run(struct naive *naive, struct load *load, struct load_result *result)
{
    *result = (struct load_result){ .operations = 0 };
    struct histogram all = { .total = 0 };
    uint64_t start = once_os_monotonic_ns();
    naive->stop_ns = start + (uint64_t)(load->seconds * 1e9);
    atomic_store(&naive->next, load->next);
    free(naive->body);
    naive->body = load->body.len > 0 ? strndup((const char *)load->body.ptr, load->body.len) : strdup("null");
    unsigned count = load->callers < NAIVE_CONNECTIONS ? load->callers : NAIVE_CONNECTIONS, started = 0;
    for (; naive->body != NULL && started < count; started++) {
        struct client *c = &naive->clients[started];
        *c = (struct client){ .naive = naive, .conn = c->conn };
        if (pthread_create(&c->thread, NULL, request_in_a_loop, c) != 0)
            break;
    }
    for (unsigned i = 0; i < started; i++) {
        struct client *c = &naive->clients[i];
        pthread_join(c->thread, NULL);
        histogram_merge(&all, &c->histogram);
        result->operations += c->operations;
        result->records += c->records;
        result->errors += c->errors;
        if (c->errors > 0)
            snprintf(result->err.text, sizeof result->err.text, "%s", c->error);
    }
    result->errors += started < count;
    result->seconds = (double)(once_os_monotonic_ns() - start) / 1e9;
    load_latencies(result, &all);
    load->next = atomic_load(&naive->next);
}

static once_result run_sql(PGconn *conn, const char *sql, struct once_error *err)
{
    PGresult *r = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(r);
    once_result result = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK
                             ? ONCE_OK
                             : once_fail(err, ONCE_UNAVAILABLE, "the naive design: %s", PQresultErrorMessage(r));
    PQclear(r);
    return result;
}

static once_result connect_client(struct client *c, const char *url, struct once_error *err)
{
    c->conn = PQconnectdb(url);
    if (PQstatus(c->conn) != CONNECTION_OK)
        return once_fail(err, ONCE_UNAVAILABLE, "the naive design needs %d connections: %s", NAIVE_CONNECTIONS,
                         PQerrorMessage(c->conn));
    return run_sql(c->conn, "SET client_min_messages = error", err);
}

static once_result prepare_client(struct client *c, struct once_error *err)
{
    PGresult *claim = PQprepare(c->conn, "claim", claim_sql, 0, NULL);
    PGresult *finish = PQprepare(c->conn, "finish", finish_sql, 0, NULL);
    bool good = PQresultStatus(claim) == PGRES_COMMAND_OK && PQresultStatus(finish) == PGRES_COMMAND_OK;
    PQclear(claim);
    PQclear(finish);
    return good ? ONCE_OK : once_fail(err, ONCE_UNAVAILABLE, "the naive design: %s", PQerrorMessage(c->conn));
}

once_result naive_open(const char *url, struct naive **out, struct once_error *err)
{
    struct naive *naive = calloc(1, sizeof *naive);
    if (naive == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the naive design");
    once_result r = connect_client(&naive->clients[0], url, err);
    if (r == ONCE_OK)
        r = run_sql(naive->clients[0].conn, schema, err);
    for (int i = 1; r == ONCE_OK && i < NAIVE_CONNECTIONS; i++)
        r = connect_client(&naive->clients[i], url, err);
    for (int i = 0; r == ONCE_OK && i < NAIVE_CONNECTIONS; i++)
        r = prepare_client(&naive->clients[i], err);
    if (r != ONCE_OK) {
        naive_close(naive);
        return r;
    }
    *out = naive;
    return ONCE_OK;
}

once_result naive_size(struct naive *naive, double *bytes_per_record, struct once_error *err)
{
    PGresult *r = PQexec(naive->clients[0].conn, "SELECT pg_total_relation_size('once_bench.request')::float8 / "
                                                 "greatest((SELECT count(*) FROM once_bench.request), 1)");
    once_result result = ONCE_OK;
    if (PQresultStatus(r) == PGRES_TUPLES_OK)
        *bytes_per_record = strtod(PQgetvalue(r, 0, 0), NULL);
    else
        result = once_fail(err, ONCE_UNAVAILABLE, "the naive design: %s", PQresultErrorMessage(r));
    PQclear(r);
    return result;
}

void naive_close(struct naive *naive)
{
    if (naive == NULL)
        return;
    if (PQstatus(naive->clients[0].conn) == CONNECTION_OK)
        PQclear(PQexec(naive->clients[0].conn, "DROP SCHEMA IF EXISTS once_bench CASCADE"));
    for (int i = 0; i < NAIVE_CONNECTIONS; i++)
        PQfinish(naive->clients[i].conn);
    free(naive->body);
    free(naive);
}
