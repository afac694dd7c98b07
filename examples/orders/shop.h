/*
 * shop.h - the shop's own tables: what each phase writes, on either database.
 *
 * The functions work inside the transaction that the flow has opened, and leave it open. They say
 * false, and why, where the database does not do what it is told.
 */
#ifndef SHOP_H
#define SHOP_H

#include <once_flow.h>

struct shop {
    const struct shop_ops *ops;
    struct once_flow_db *flows; /* for once_flow_run() */
    char error[200];            /* why the last one said false */
};

struct shop_ops {
    /* A new order; its number goes to *order. */
    bool (*insert_order)(struct shop *shop, const char *item, long cents, long *order);
    /* It is paid with this charge: so it says, and a receipt is staged for sending. */
    bool (*pay_order)(struct shop *shop, long order, const char *charge);
    bool (*decline_order)(struct shop *shop, long order);
    void (*close)(struct shop *shop);
};

/* Connects, makes the shop's tables where they are missing, and opens the connection for flows.
 * "postgresql://...", or the path of an SQLite file. NULL, with a message, if that fails. */
struct shop *shop_open(const char *where, char error[200]);
struct shop *shop_open_sqlite(const char *path, char error[200]);
struct shop *shop_open_postgres(const char *url, char error[200]);
void shop_close(struct shop *shop);

#endif
