/*
 * bare.c - how far a machine lets one come: the least that a store on PostgreSQL can do for its
 * callers, beside the naive design and ours, taking turns on one server.
 *
 * Bare is two insert-only tables, an id and a hash in one, a status and a body in the other, and a loop that sends a
 * batch and waits for its COMMIT. There is no tenant and no key in it, no nonce, no lease, no expiry, no question
 * whether something is there already, and no caller who would have to be woken. What it does not reach, ours cannot.
 *
 * usage: bare URL [CALLERS [SECONDS [ROUNDS]]]     a migrated store's; see bench/postgres
 */
#include "core/err.h"
#include "core/span.h"
#include "load.h"
#include "naive.h"
#include "os/os.h"
#include "store/postgres/param.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { CONNECTIONS_MAX = 4, CLAIMS_MAX = 4096, ROUNDS_MAX = 99, ID_LEN = 16, HASH_LEN = 32, BODY_LEN = 200 };

static const char schema[] =
    "SET client_min_messages = error; DROP SCHEMA IF EXISTS once_bare CASCADE; CREATE SCHEMA once_bare; "
    "CREATE TABLE once_bare.claim (id uuid PRIMARY KEY, number bigint GENERATED ALWAYS AS "
    "IDENTITY, expires integer, attempt integer, hash bytea); "
    "CREATE TABLE once_bare.result (number bigint PRIMARY KEY, status integer, body bytea)";
static const struct {
    const char *name, *sql;
} statements[] = {
    { "begin", "BEGIN" },
    { "claim", "INSERT INTO once_bare.claim (id, expires, attempt, hash) SELECT id, 0, 1, hash FROM "
               "unnest($1::uuid[], $2::bytea[]) AS u(id, hash) ON CONFLICT DO NOTHING RETURNING number" },
    { "finish", "INSERT INTO once_bare.result (number, status, body) SELECT number, 200, body FROM "
                "unnest($1::bigint[], $2::bytea[]) AS u(number, body) ON CONFLICT DO NOTHING" },
    { "commit", "COMMIT" },
};

/* One connection, and the callers that it has: half of them claim, the others finish what they claimed before. */
struct lane {
    pthread_t thread;
    PGconn *conn;
    struct pg_params params;
    uint64_t stop_ns, operations;
    size_t claims, held_count;
    uint8_t ids[CLAIMS_MAX][ID_LEN];
    int64_t held[CLAIMS_MAX];
    struct once_error err; /* what ended it; empty: its time was over */
};

static uint8_t body[BODY_LEN];

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bare: %s: %s\n", what, why);
    exit(1);
}

static void run_sql(PGconn *conn, const char *sql)
{
    PGresult *r = PQexec(conn, sql);
    if (PQresultStatus(r) != PGRES_COMMAND_OK)
        die(sql, PQerrorMessage(conn));
    PQclear(r);
}

static PGconn *connect_to(const char *url)
{
    PGconn *conn = PQconnectdb(url);
    if (PQstatus(conn) != CONNECTION_OK)
        die("connect", PQerrorMessage(conn));
    return conn;
}

/* ------------------------------------------------------------------ a batch */

static int by_id(const void *a, const void *b)
{
    return memcmp(a, b, ID_LEN);
}

static bool send_statement(struct lane *lane, const char *name)
{
    once_result r = pg_send_prepared(lane->conn, name, &lane->params, &lane->err);
    pg_params_release(&lane->params);
    pg_params_init(&lane->params);
    return r == ONCE_OK;
}

static bool send_claims(struct lane *lane)
{
    once_os_random(lane->ids, lane->claims * ID_LEN);
    qsort(lane->ids, lane->claims, ID_LEN, by_id);
    pg_array_begin(&lane->params, PG_UUID, lane->claims);
    for (size_t i = 0; i < lane->claims; i++)
        pg_array_bytes(&lane->params, once_span_of(lane->ids[i], ID_LEN));
    pg_array_begin(&lane->params, PG_BYTEA, lane->claims);
    for (size_t i = 0; i < lane->claims; i++) {
        uint8_t hash[HASH_LEN] = { 0 };
        memcpy(hash, lane->ids[i], ID_LEN);
        pg_array_bytes(&lane->params, once_span_of(hash, sizeof hash));
    }
    return send_statement(lane, "claim");
}

static bool send_finishes(struct lane *lane)
{
    pg_array_begin(&lane->params, PG_INT8, lane->held_count);
    for (size_t i = 0; i < lane->held_count; i++)
        pg_array_int(&lane->params, PG_INT8, lane->held[i]);
    pg_array_begin(&lane->params, PG_BYTEA, lane->held_count);
    for (size_t i = 0; i < lane->held_count; i++)
        pg_array_bytes(&lane->params, once_span_of(body, sizeof body));
    return send_statement(lane, "finish");
}

/* All that was sent was done, and here are the new claims' numbers. */
static bool read_answers(struct lane *lane)
{
    lane->held_count = 0;
    for (;;) {
        PGresult *r = PQgetResult(lane->conn); /* NULL: the end of one statement's */
        ExecStatusType status = r != NULL ? PQresultStatus(r) : PGRES_COMMAND_OK;
        for (int row = 0; status == PGRES_TUPLES_OK && row < PQntuples(r); row++)
            lane->held[lane->held_count++] = pg_int(r, row, 0);
        if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_PIPELINE_SYNC)
            once_fail(&lane->err, ONCE_UNAVAILABLE, "%s", PQresultErrorMessage(r));
        PQclear(r);
        if (status == PGRES_PIPELINE_SYNC || PQstatus(lane->conn) != CONNECTION_OK)
            return lane->held_count == lane->claims;
    }
}

static bool make_batch(struct lane *lane)
{
    size_t operations = lane->claims + lane->held_count;
    bool sent = send_statement(lane, "begin") && send_claims(lane) && (lane->held_count == 0 || send_finishes(lane)) &&
                send_statement(lane, "commit") && PQpipelineSync(lane->conn) == 1;
    bool good = sent && read_answers(lane);
    lane->operations += good ? operations : 0;
    return good;
}

static void *work(void *arg)
{
    struct lane *lane = arg;
    while (once_os_monotonic_ns() < lane->stop_ns)
        if (!make_batch(lane)) {
            if (lane->err.text[0] == '\0')
                once_fail(&lane->err, ONCE_UNAVAILABLE, "a batch failed: %s", PQerrorMessage(lane->conn));
            break;
        }
    return NULL;
}

/* ------------------------------------------------------------------ designs */

static struct lane *lane_open(const char *url, size_t claims)
{
    struct lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL)
        die("bare", "no memory");
    *lane = (struct lane){ .conn = connect_to(url), .claims = claims };
    pg_params_init(&lane->params);
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        PGresult *r = PQprepare(lane->conn, statements[i].name, statements[i].sql, 0, NULL);
        if (PQresultStatus(r) != PGRES_COMMAND_OK)
            die(statements[i].name, PQerrorMessage(lane->conn));
        PQclear(r);
    }
    PQenterPipelineMode(lane->conn);
    return lane;
}

static double bare_rate(const char *url, unsigned callers, unsigned connections, double seconds)
{
    struct lane *lanes[CONNECTIONS_MAX];
    uint64_t operations = 0;
    for (unsigned i = 0; i < connections; i++)
        lanes[i] = lane_open(url, callers / 2 / connections);
    uint64_t start = once_os_monotonic_ns();
    for (unsigned i = 0; i < connections; i++) {
        lanes[i]->stop_ns = start + (uint64_t)(seconds * 1e9);
        int failed = pthread_create(&lanes[i]->thread, NULL, work, lanes[i]);
        if (failed != 0)
            die("start a thread", strerror(failed));
    }
    for (unsigned i = 0; i < connections; i++) {
        pthread_join(lanes[i]->thread, NULL);
        if (lanes[i]->err.text[0] != '\0')
            die("bare", lanes[i]->err.text);
        operations += lanes[i]->operations;
    }
    double took = (double)(once_os_monotonic_ns() - start) / 1e9;
    for (unsigned i = 0; i < connections; i++) {
        pg_params_release(&lanes[i]->params);
        PQfinish(lanes[i]->conn);
        free(lanes[i]);
    }
    return (double)operations / took;
}

static double naive_rate(struct naive *naive, struct load *load)
{
    struct load_result result;
    naive_run(naive, load, &result);
    if (result.errors > 0)
        die("the naive design", result.err.text);
    return load_rate(&result);
}

static double our_rate(const char *url, struct load *load)
{
    struct once *once;
    struct once_error err;
    struct load_result result;
    if (once_open(url, &(struct once_options){ .poll = true }, &once, &err) != ONCE_OK)
        die("open the store", err.text);
    load_run(load, once, &result);
    once_close(once);
    if (result.errors > 0)
        die("our design", result.err.text);
    return load_rate(&result);
}

/* ------------------------------------------------------------------ the report */

enum design { NAIVE, BARE_ONE, BARE_TWO, BARE_FOUR, OURS, DESIGNS };
static const char *const names[DESIGNS] = { "naive, 64 connections", "bare, one connection", "bare, two connections",
                                            "bare, four connections", "ours" };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

static double number_at(PGconn *conn, const char *sql)
{
    PGresult *r = PQexec(conn, sql);
    if (PQresultStatus(r) != PGRES_TUPLES_OK)
        die(sql, PQerrorMessage(conn));
    double value = strtod(PQgetvalue(r, 0, 0), NULL);
    PQclear(r);
    return value;
}

static void tell_sizes(PGconn *conn, struct naive *naive)
{
    double each = 0,
           bare =
               number_at(conn, "SELECT (pg_total_relation_size('once_bare.claim') + "
                               "pg_total_relation_size('once_bare.result'))::float8 / count(*) FROM once_bare.claim");
    struct once_error err;
    if (naive_size(naive, &each, &err) != ONCE_OK)
        die("the naive design", err.text);
    printf("naive has %.0f bytes a record, bare %.0f: %.2f of that (ours: once-bench store)\n", each, bare,
           bare / each);
}

/* A positive number, not over the bound; or the usual. */
static unsigned long argument(int argc, char **argv, int i, unsigned long usual, unsigned long bound)
{
    if (i >= argc)
        return usual;
    char *end;
    errno = 0;
    unsigned long value = strtoul(argv[i], &end, 10);
    if (errno != 0 || *end != '\0' || value == 0 || value > bound)
        die(argv[i], "this is not a number that it takes; usage: bare URL [CALLERS [SECONDS [ROUNDS]]]");
    return value;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 5)
        die("usage", "bare URL [CALLERS [SECONDS [ROUNDS]]]");
    const char *url = argv[1];
    unsigned callers = (unsigned)argument(argc, argv, 2, 64, CLAIMS_MAX);
    double seconds = (double)argument(argc, argv, 3, 2, 3600);
    size_t rounds = argument(argc, argv, 4, 3, ROUNDS_MAX);
    if (callers < 2 * CONNECTIONS_MAX)
        die("callers", "fewer than eight are no batch for each connection");
    load_body(body, sizeof body);
    PGconn *conn = connect_to(url);
    run_sql(conn, schema);
    struct naive *naive;
    struct once_error err;
    if (naive_open(url, &naive, &err) != ONCE_OK)
        die("the naive design", err.text);

    double rates[DESIGNS][ROUNDS_MAX], ratios[DESIGNS][ROUNDS_MAX];
    struct load load = { .callers = callers, .seconds = seconds, .body = once_span_of(body, sizeof body) };
    load.next = (uint64_t)once_os_clock.wall(NULL) * 1000000; /* fresh keys also in a store that has some */
    for (size_t i = 0; i < rounds; i++) {
        rates[NAIVE][i] = naive_rate(naive, &load);
        rates[BARE_ONE][i] = bare_rate(url, callers, 1, seconds);
        rates[BARE_TWO][i] = bare_rate(url, callers, 2, seconds);
        rates[BARE_FOUR][i] = bare_rate(url, callers, 4, seconds);
        rates[OURS][i] = our_rate(url, &load);
        for (int d = 0; d < DESIGNS; d++)
            ratios[d][i] = rates[d][i] / rates[NAIVE][i];
    }
    printf("callers  %-26s %9s %9s\n", "what", "ops/s", "ratio");
    for (int d = 0; d < DESIGNS; d++)
        printf("%7u  %-26s %9.0f %9.2f\n", callers, names[d], median(rates[d], rounds), median(ratios[d], rounds));
    tell_sizes(conn, naive);
    naive_close(naive);
    run_sql(conn, "DROP SCHEMA once_bare CASCADE");
    PQfinish(conn);
    return 0;
}
