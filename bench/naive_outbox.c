/* naive_outbox.c - see naive_outbox.h. */
#include "naive_outbox.h"

#include "core/err.h"
#include "core/span.h"
#include "os/os.h"

#include <inttypes.h>
#include <libpq-fe.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE_LEN = 100, POLL_MS = 500, IDLE_MS = 5 };

static const char schema[] = "SET client_min_messages = error;"
                             "DROP SCHEMA IF EXISTS once_bench CASCADE;"
                             "CREATE SCHEMA once_bench;"
                             "CREATE TABLE once_bench.outbox (id bigserial PRIMARY KEY, topic text NOT NULL,"
                             "    message_key text, payload bytea NOT NULL, published boolean NOT NULL DEFAULT false,"
                             "    created_at timestamptz NOT NULL DEFAULT now());"
                             "CREATE INDEX ON once_bench.outbox (id) WHERE NOT published";

struct naive_outbox {
    PGconn *conn;
    bool ended; /* of the message under way */
    enum sink_result result;
    char reason[MESSAGE_REASON_LEN];
};

static once_result run_sql(struct naive_outbox *n, const char *sql, PGresult **out, struct once_error *err)
{
    PGresult *r = PQexec(n->conn, sql);
    ExecStatusType status = PQresultStatus(r);
    once_result result = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK
                             ? ONCE_OK
                             : once_fail(err, ONCE_UNAVAILABLE, "the naive outbox: %s", PQresultErrorMessage(r));
    if (result == ONCE_OK && out != NULL)
        *out = r;
    else
        PQclear(r);
    return result;
}

once_result naive_outbox_open(const char *url, struct naive_outbox **out, struct once_error *err)
{
    struct naive_outbox *n = calloc(1, sizeof *n);
    if (n == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the naive outbox");
    n->conn = PQconnectdb(url);
    once_result r = PQstatus(n->conn) == CONNECTION_OK
                        ? run_sql(n, schema, NULL, err)
                        : once_fail(err, ONCE_UNAVAILABLE, "the naive outbox: %s", PQerrorMessage(n->conn));
    if (r != ONCE_OK) {
        naive_outbox_close(n);
        return r;
    }
    *out = n;
    return ONCE_OK;
}

void naive_outbox_close(struct naive_outbox *n)
{
    if (n == NULL)
        return;
    if (PQstatus(n->conn) == CONNECTION_OK)
        PQclear(PQexec(n->conn, "DROP SCHEMA IF EXISTS once_bench CASCADE"));
    PQfinish(n->conn);
    free(n);
}

once_result naive_outbox_fill(struct naive_outbox *n, uint64_t first, uint64_t count, size_t len, uint64_t keys,
                              struct once_error *err)
{
    char sql[500];
    snprintf(sql, sizeof sql,
             "INSERT INTO once_bench.outbox (topic, message_key, payload) SELECT 'once.bench', 'k' || n %% %" PRIu64
             ", convert_to(rpad(n::text || ' ', %zu, 'x'), 'UTF8') FROM generate_series(%" PRIu64 "::bigint, %" PRIu64
             ") n",
             keys, len, first, first + count - 1);
    once_result r = run_sql(n, "TRUNCATE once_bench.outbox", NULL, err);
    if (r == ONCE_OK && count > 0)
        r = run_sql(n, sql, NULL, err);
    return r == ONCE_OK ? run_sql(n, "ANALYZE once_bench.outbox", NULL, err) : r;
}

void naive_outbox_done(struct naive_outbox *n, enum sink_result result, const char *reason)
{
    n->ended = true;
    n->result = result;
    snprintf(n->reason, sizeof n->reason, "%s", reason);
}

static once_result publish(struct naive_outbox *n, PGresult *page, int row, struct sink *sink, struct once_error *err)
{
    enum { WAIT_MS = 100 };
    const char *key = PQgetvalue(page, row, 2);
    struct message m = {
        .topic = once_span_str(PQgetvalue(page, row, 1)),
        .key = once_span_str(key),
        .has_key = true,
        .content_type = ONCE_LIT("text/plain"),
        .payload = once_span_of(PQgetvalue(page, row, 3), (size_t)PQgetlength(page, row, 3)),
    };
    uint64_t random[2];
    once_os_random(random, sizeof random);
    snprintf(m.id, sizeof m.id, "%08" PRIx64 "-%04" PRIx64 "-4%03" PRIx64 "-8%03" PRIx64 "-%012" PRIx64,
             random[0] & 0xffffffff, random[0] >> 32 & 0xffff, random[0] >> 48 & 0xfff, random[1] & 0xfff,
             random[1] >> 16);
    n->ended = false;
    if (!sink_start(sink, &m))
        return once_fail(err, ONCE_UNAVAILABLE, "the sink has no room for one message");
    while (!n->ended)
        sink_poll(sink, WAIT_MS);
    return n->result == SINK_CONFIRMED ? ONCE_OK
                                       : once_fail(err, ONCE_UNAVAILABLE, "a message was not published: %s", n->reason);
}

/* Exactly those rows: between two of them others may commit. */
static once_result mark(struct naive_outbox *n, PGresult *page, int first, int end, struct once_error *err)
{
    char sql[200 + PAGE_LEN * 24];
    int len = snprintf(sql, sizeof sql, "UPDATE once_bench.outbox SET published = true WHERE id = ANY ('{");
    for (int row = first; row < end; row++)
        len += snprintf(sql + len, sizeof sql - (size_t)len, "%s%s", row > first ? "," : "", PQgetvalue(page, row, 0));
    snprintf(sql + len, sizeof sql - (size_t)len, "}'::bigint[])");
    return run_sql(n, sql, NULL, err);
}

/* One page; *count: how many there were. */
static once_result step(struct naive_outbox *n, enum naive_design design, struct sink *sink, const atomic_bool *stop,
                        int *count, struct once_error *err)
{
    PGresult *page = NULL;
    char sql[200];
    snprintf(sql, sizeof sql,
             "SELECT id, topic, message_key, convert_from(payload, 'UTF8') FROM once_bench.outbox WHERE NOT published "
             "ORDER BY id LIMIT %d",
             PAGE_LEN);
    once_result r = run_sql(n, sql, &page, err);
    if (r != ONCE_OK)
        return r;
    *count = PQntuples(page);
    int row = 0;
    for (; r == ONCE_OK && row < *count && (design == NAIVE_POLL || !atomic_load(stop)); row++) {
        r = publish(n, page, row, sink, err);
        if (r == ONCE_OK && design == NAIVE_ROWS)
            r = mark(n, page, row, row + 1, err);
    }
    if (r == ONCE_OK && design == NAIVE_POLL && row > 0)
        r = mark(n, page, 0, row, err);
    PQclear(page);
    return r;
}

once_result naive_outbox_run(struct naive_outbox *n, enum naive_design design, struct sink *sink, bool drain,
                             const atomic_bool *stop, struct once_error *err)
{
    once_result r = ONCE_OK;
    int count = 1;
    while (r == ONCE_OK && !atomic_load(stop) && !(drain && count == 0)) {
        once_time start = once_os_monotonic_ms();
        r = step(n, design, sink, stop, &count, err);
        int64_t pause = design == NAIVE_POLL ? start + POLL_MS - once_os_monotonic_ms() : count == 0 ? IDLE_MS : 0;
        for (; pause > 0 && !atomic_load(stop) && !(drain && count == 0); pause -= IDLE_MS)
            usleep(IDLE_MS * 1000);
    }
    return r;
}
