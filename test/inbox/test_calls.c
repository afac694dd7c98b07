/*
 * test_calls.c - enqueue and consume in the caller's own transaction, from C, on both databases.
 *
 * SQLite by itself with a clock that is moved by hand; PostgreSQL where ONCE_TEST_URL names a migrated database.
 */
#include "core/span.h"
#include "once.h"

#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdlib.h>

#include "../test.h"

static once_time now = 1700000000000;

static once_time clock_ms(void *arg)
{
    (void)arg;
    return now;
}

static void clock_boot(void *arg, uint8_t id[16])
{
    (void)arg;
    memset(id, 7, 16);
}

static const struct once_clock by_hand = { .wall = clock_ms, .steady = clock_ms, .boot = clock_boot };

static sqlite3 *db;
static struct once_sqlite *bound;

static void sqlite_open(void)
{
    CHECK(sqlite3_open(":memory:", &db) == SQLITE_OK);
    CHECK(once_sqlite_bind(db, &by_hand, &bound, NULL) == ONCE_OK);
}

static void sqlite_close(void)
{
    once_sqlite_unbind(bound);
    sqlite3_close(db);
}

static bool run(const char *sql)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

/* 1 fresh, 0 a duplicate, -1 an error. */
static int consume(const char *consumer, const char *id)
{
    bool fresh = false;
    once_result r = once_sqlite_consume(bound, once_span_str(consumer), once_span_str(id), &fresh, NULL);
    return r == ONCE_OK ? fresh : -1;
}

static int64_t marks(void)
{
    sqlite3_stmt *st = NULL;
    CHECK(sqlite3_prepare_v2(db, "SELECT count(*) FROM once_inbox", -1, &st, NULL) == SQLITE_OK);
    CHECK(sqlite3_step(st) == SQLITE_ROW);
    int64_t count = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return count;
}

static void sqlite__fresh_once_per_consumer(void)
{
    sqlite_open();
    CHECK(consume("c", "m") == -1); /* not inside a transaction */
    CHECK(run("BEGIN IMMEDIATE"));
    CHECK(consume("c", "m") == 1 && consume("c", "m") == 0 && consume("d", "m") == 1);
    CHECK(consume("", "m") == -1 && consume("c", "") == -1);
    CHECK(run("ROLLBACK; BEGIN IMMEDIATE"));
    CHECK(consume("c", "m") == 1);
    CHECK(run("COMMIT; BEGIN IMMEDIATE"));
    CHECK(consume("c", "m") == 0);
    CHECK(run("COMMIT"));
    sqlite_close();
}

static void sqlite__retention(void)
{
    struct once_error err;
    struct once_consumer c = { .name = ONCE_LIT("c"), .retention_ms = 1000, .redelivery_window_ms = 1001 };
    sqlite_open();
    CHECK(run("BEGIN IMMEDIATE"));
    CHECK(once_sqlite_consumer(bound, &c, &err) == ONCE_INVALID); /* FAULT-59 */
    CHECK(strstr(err.text, "shorter than the redelivery window") != NULL);
    c.redelivery_window_ms = 1000;
    CHECK(once_sqlite_consumer(bound, &c, NULL) == ONCE_OK);
    CHECK(consume("c", "m") == 1 && consume("other", "m") == 1);
    now += 999;
    CHECK(consume("c", "m") == 0);
    now += 1; /* K8: past it the mark counts as absent, whoever took it away or not */
    CHECK(consume("c", "m") == 1 && consume("c", "m") == 0);
    CHECK(consume("other", "m") == 0); /* who said nothing keeps its marks */
    for (int i = 0; i < 100; i++) {
        char id[8];
        snprintf(id, sizeof id, "%d", i);
        CHECK(consume("c", id) == 1);
    }
    CHECK(marks() == 102);
    now += 1000;
    for (int i = 0; i < 100; i++) {
        char id[8];
        snprintf(id, sizeof id, "n%d", i);
        CHECK(consume("c", id) == 1);
    }
    CHECK(marks() == 101); /* they went as fast as others came */
    CHECK(run("COMMIT"));
    sqlite_close();
}

/* ------------------------------------------------------------------ PostgreSQL */

static PGconn *conn;

static bool command(const char *sql)
{
    PGresult *r = PQexec(conn, sql);
    bool good = PQresultStatus(r) == PGRES_COMMAND_OK || PQresultStatus(r) == PGRES_TUPLES_OK;
    PQclear(r);
    return good;
}

static void value(const char *sql, char out[100])
{
    PGresult *r = PQexec(conn, sql);
    snprintf(out, 100, "%s", PQntuples(r) == 1 ? PQgetvalue(r, 0, 0) : PQresultErrorMessage(r));
    PQclear(r);
}

static bool is(const char *sql, const char *expected)
{
    char got[100];
    value(sql, got);
    if (strcmp(got, expected) != 0)
        printf("# %s: %s\n", sql, got);
    return strcmp(got, expected) == 0;
}

static int pg_consume(const char *consumer, const char *id)
{
    bool fresh = false;
    once_result r = once_pg_consume(conn, once_span_str(consumer), once_span_str(id), &fresh, NULL);
    return r == ONCE_OK ? fresh : -1;
}

static void pg_open(void)
{
    conn = PQconnectdb(getenv("ONCE_TEST_URL"));
    CHECK(PQstatus(conn) == CONNECTION_OK);
}

static void pg__fresh_once_per_consumer(void)
{
    pg_open();
    CHECK(pg_consume("c", "m") == -1); /* not inside a transaction */
    CHECK(command("BEGIN"));
    CHECK(pg_consume("c", "m") == 1 && pg_consume("c", "m") == 0 && pg_consume("d", "m") == 1);
    CHECK(command("ROLLBACK") && command("BEGIN"));
    CHECK(pg_consume("c", "m") == 1);
    CHECK(command("COMMIT") && command("BEGIN"));
    CHECK(pg_consume("c", "m") == 0);
    CHECK(pg_consume("c", "\xff") == -1); /* no UTF-8: the server refuses, and the transaction is lost */
    CHECK(pg_consume("c", "m") == -1);
    CHECK(command("ROLLBACK"));
    PQfinish(conn);
}

static void pg__retention(void)
{
    struct once_consumer c = { .name = ONCE_LIT("r"), .retention_ms = 3600000, .redelivery_window_ms = 3600001 };
    pg_open();
    CHECK(command("BEGIN"));
    CHECK(once_pg_consumer(conn, &c, NULL) == ONCE_INVALID);
    c.redelivery_window_ms = 0;
    CHECK(once_pg_consumer(conn, &c, NULL) == ONCE_OK);
    CHECK(pg_consume("r", "m") == 1 && pg_consume("r", "n") == 1 && pg_consume("o", "m") == 1);
    CHECK(command("COMMIT"));
    CHECK(command("UPDATE once.inbox SET taken_at = taken_at - 7200000"));
    CHECK(command("BEGIN"));
    CHECK(pg_consume("r", "m") == 1 && pg_consume("r", "m") == 0 && pg_consume("o", "m") == 0);
    CHECK(command("COMMIT"));
    CHECK(is("SELECT removed FROM once.expire()", "1")); /* n of r; m is fresh again, o's are kept for ever */
    CHECK(is(
        "SELECT string_agg(consumer || message_id, ' ' ORDER BY consumer) FROM once.inbox WHERE consumer IN ('r', 'o')",
        "om rm"));
    c.retention_ms = ONCE_NEVER;
    c.redelivery_window_ms = 1;
    CHECK(command("BEGIN"));
    CHECK(once_pg_consumer(conn, &c, NULL) == ONCE_OK);
    CHECK(command("COMMIT"));
    CHECK(is("SELECT retention_ms IS NULL FROM once.consumers WHERE name = 'r'", "t"));
    PQfinish(conn);
}

static void pg__enqueue(void)
{
    char id[ONCE_UUID_LEN + 1];
    struct once_error err;
    struct once_message m = { .topic = ONCE_LIT("orders.paid"),
                              .key = ONCE_LIT("k\"1"),
                              .payload = ONCE_LIT("a\0b"),
                              .headers = ONCE_LIT("traceparent: 00-1\r\nX-Quote: \"\\ x\r\n") };
    pg_open();
    CHECK(once_pg_enqueue(conn, &m, id, &err) == ONCE_INVALID);
    CHECK(command("BEGIN"));
    CHECK(once_pg_enqueue(conn, &m, id, &err) == ONCE_OK);
    CHECK(strlen(id) == ONCE_UUID_LEN);
    CHECK(command("ROLLBACK"));
    CHECK(is("SELECT count(*) FROM once.outbox", "0"));
    CHECK(command("BEGIN"));
    CHECK(once_pg_enqueue(conn, &m, id, &err) == ONCE_OK);
    CHECK(command("COMMIT"));
    char stored[100];
    value("SELECT id FROM once.outbox", stored);
    CHECK(strcmp(stored, id) == 0);
    CHECK(is(
        "SELECT topic || '|' || message_key || '|' || encode(payload, 'hex') || '|' || content_type FROM once.outbox",
        "orders.paid|k\"1|610062|application/octet-stream"));
    CHECK(is("SELECT headers FROM once.outbox", "X-Quote: \"\\ x\r\ntraceparent: 00-1\r\n"));
    m.headers = ONCE_LIT("A: 1\r\nA: 2\r\n");
    CHECK(command("BEGIN"));
    CHECK(once_pg_enqueue(conn, &m, id, &err) == ONCE_INVALID && strstr(err.text, "twice") != NULL);
    m.headers = once_span_of(NULL, 0);
    m.key = once_span_of(NULL, 0);
    m.not_before = 9000000000000;
    CHECK(once_pg_enqueue(conn, &m, id, &err) == ONCE_OK);
    CHECK(command("COMMIT"));
    CHECK(is("SELECT not_before || '|' || (message_key IS NULL) FROM once.outbox_scheduled", "9000000000000|true"));
    PQfinish(conn);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(sqlite__fresh_once_per_consumer),
        TEST(sqlite__retention),
        TEST(pg__fresh_once_per_consumer),
        TEST(pg__retention),
        TEST(pg__enqueue),
    };
    return test_main(argc, argv, tests, getenv("ONCE_TEST_URL") != NULL ? 5 : 2);
}
