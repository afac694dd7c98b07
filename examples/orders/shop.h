/*
 * shop.h - the shop's own tables, on either database, and the writes of each phase.
 *
 * The functions work inside the transaction that the flow opened, and leave it open. They return
 * false, and set `error`, if a statement fails.
 */
#ifndef SHOP_H
#define SHOP_H

#include <once_flow.h>

struct shop {
    const struct shop_ops *ops;
    struct once_flow_db *flows; /* for once_flow_run() */
    char error[200];            /* of the last function that returned false */
};

struct shop_ops {
    /* A new order; its number goes to *order. */
    bool (*insert_order)(struct shop *shop, const char *item, long cents, long *order);
    /* Marks the order paid with this charge, and stages a receipt. */
    bool (*pay_order)(struct shop *shop, long order, const char *charge);
    bool (*decline_order)(struct shop *shop, long order);
    void (*close)(struct shop *shop);
};

/* Connects, creates missing tables of the shop, and opens the connection for flows.
 * "postgresql://...", or the path of an SQLite file. NULL, with a message, if that fails. */
struct shop *shop_open(const char *where, char error[200]);
struct shop *shop_open_sqlite(const char *path, char error[200]);
struct shop *shop_open_postgres(const char *url, char error[200]);
void shop_close(struct shop *shop);

#endif
