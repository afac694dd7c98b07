/*
 * shop_postgres.c - the shop in a PostgreSQL database that has the schema `once` (once migrate).
 *
 * Receipts are staged with once.enqueue: sent if and only if the order's payment commits.
 */
#include "shop.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct postgres_shop {
    struct shop shop;
    PGconn *conn;
};

static const char schema[] = "SET client_min_messages = warning;"
                             "SELECT pg_advisory_lock(17);" /* IF NOT EXISTS is not safe for two sessions at once */
                             "CREATE TABLE IF NOT EXISTS orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
                             " item text NOT NULL, cents bigint NOT NULL, status text NOT NULL, charge text);"
                             "SELECT pg_advisory_unlock(17)";

/* One statement with up to three parameters; *value (may be NULL) gets its first value. */
static bool run(struct shop *shop, const char *sql, const char *a, const char *b, const char *c, long *value)
{
    PGconn *conn = ((struct postgres_shop *)shop)->conn;
    int count = (a != NULL) + (b != NULL) + (c != NULL);
    PGresult *r = PQexecParams(conn, sql, count, NULL, (const char *[]){ a, b, c }, NULL, NULL, 0);
    bool ok = PQresultStatus(r) == PGRES_COMMAND_OK || PQresultStatus(r) == PGRES_TUPLES_OK;
    if (!ok)
        snprintf(shop->error, sizeof shop->error, "%.*s", (int)strcspn(PQerrorMessage(conn), "\n"),
                 PQerrorMessage(conn));
    else if (value != NULL)
        *value = strtol(PQgetvalue(r, 0, 0), NULL, 10);
    PQclear(r);
    return ok;
}

static bool insert_order(struct shop *shop, const char *item, long cents, long *order)
{
    char amount[24];
    snprintf(amount, sizeof amount, "%ld", cents);
    return run(shop, "INSERT INTO orders (item, cents, status) VALUES ($1, $2::bigint, 'new') RETURNING id", item,
               amount, NULL, order);
}

static bool pay_order(struct shop *shop, long order, const char *charge)
{
    char id[24], text[200];
    snprintf(id, sizeof id, "%ld", order);
    snprintf(text, sizeof text, "receipt for order %ld, %s", order, charge);
    return run(shop, "UPDATE orders SET status = 'paid', charge = $1 WHERE id = $2::bigint", charge, id, NULL, NULL) &&
           run(shop, "SELECT once.enqueue('receipts', $1, convert_to($2, 'UTF8'))", id, text, NULL, NULL);
}

static bool decline_order(struct shop *shop, long order)
{
    char id[24];
    snprintf(id, sizeof id, "%ld", order);
    return run(shop, "UPDATE orders SET status = 'declined' WHERE id = $1::bigint", id, NULL, NULL, NULL);
}

static void close_shop(struct shop *shop)
{
    once_flow_close(shop->flows);
    PQfinish(((struct postgres_shop *)shop)->conn);
    free(shop);
}

static const struct shop_ops ops = { insert_order, pay_order, decline_order, close_shop };

struct shop *shop_open_postgres(const char *url, char error[200])
{
    struct postgres_shop *s = calloc(1, sizeof *s);
    struct once_error err;
    if (s == NULL)
        return NULL;
    s->conn = PQconnectdb(url);
    PGresult *r = PQexec(s->conn, schema);
    if (PQresultStatus(r) != PGRES_TUPLES_OK) {
        snprintf(error, 200, "%.*s", (int)strcspn(PQerrorMessage(s->conn), "\n"), PQerrorMessage(s->conn));
    } else if (once_flow_open_postgres(s->conn, &s->shop.flows, &err) != ONCE_OK) {
        snprintf(error, 200, "%.190s", err.text);
    } else {
        PQclear(r);
        s->shop.ops = &ops;
        return &s->shop;
    }
    PQclear(r);
    PQfinish(s->conn);
    free(s);
    return NULL;
}
