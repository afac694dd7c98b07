/*
 * shop_sqlite.c - the shop in an SQLite file.
 *
 * A rollback journal and synchronous=EXTRA: an order that was confirmed survives a power cut, and any number
 * of processes may write. (In WAL mode SQLite before 3.51.3 must have only one connection that
 * writes.) Receipts are staged in a table of the shop.
 */
#include "shop.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

struct sqlite_shop {
    struct shop shop;
    sqlite3 *db;
};

static const char schema[] = "PRAGMA journal_mode = DELETE;"
                             "PRAGMA synchronous = EXTRA;"
                             "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL,"
                             " cents INTEGER NOT NULL, status TEXT NOT NULL, charge TEXT);"
                             "CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY, topic TEXT NOT NULL,"
                             " order_id INTEGER NOT NULL, payload TEXT NOT NULL)";

static sqlite3 *db_of(struct shop *shop)
{
    return ((struct sqlite_shop *)shop)->db;
}

/* One statement; formats as sqlite3_mprintf() does (%Q quotes). */
static bool run(struct shop *shop, char *sql)
{
    int rc = sql != NULL ? sqlite3_exec(db_of(shop), sql, NULL, NULL, NULL) : SQLITE_NOMEM;
    if (rc != SQLITE_OK)
        snprintf(shop->error, sizeof shop->error, "%s", sqlite3_errmsg(db_of(shop)));
    sqlite3_free(sql);
    return rc == SQLITE_OK;
}

static bool insert_order(struct shop *shop, const char *item, long cents, long *order)
{
    bool ok =
        run(shop, sqlite3_mprintf("INSERT INTO orders (item, cents, status) VALUES (%Q, %ld, 'new')", item, cents));
    *order = (long)sqlite3_last_insert_rowid(db_of(shop));
    return ok;
}

static bool pay_order(struct shop *shop, long order, const char *charge)
{
    return run(shop, sqlite3_mprintf("UPDATE orders SET status = 'paid', charge = %Q WHERE id = %ld", charge, order)) &&
           run(shop, sqlite3_mprintf("INSERT INTO outbox (topic, order_id, payload) VALUES ('receipts', %ld, "
                                     "'receipt for order %ld, %q')",
                                     order, order, charge));
}

static bool decline_order(struct shop *shop, long order)
{
    return run(shop, sqlite3_mprintf("UPDATE orders SET status = 'declined' WHERE id = %ld", order));
}

static void close_shop(struct shop *shop)
{
    once_flow_close(shop->flows);
    sqlite3_close(db_of(shop));
    free(shop);
}

static const struct shop_ops ops = { insert_order, pay_order, decline_order, close_shop };

struct shop *shop_open_sqlite(const char *path, char error[200])
{
    struct sqlite_shop *s = calloc(1, sizeof *s);
    struct once_error err = { .text = "no memory" };
    if (s == NULL || sqlite3_open(path, &s->db) != SQLITE_OK || sqlite3_busy_timeout(s->db, 10000) != SQLITE_OK ||
        sqlite3_exec(s->db, schema, NULL, NULL, NULL) != SQLITE_OK) {
        snprintf(error, 200, "%s: %s", path, s != NULL ? sqlite3_errmsg(s->db) : "no memory");
    } else if (once_flow_open_sqlite(s->db, &s->shop.flows, &err) != ONCE_OK) {
        snprintf(error, 200, "%.190s", err.text);
    } else {
        s->shop.ops = &ops;
        return &s->shop;
    }
    if (s != NULL)
        sqlite3_close(s->db);
    free(s);
    return NULL;
}
