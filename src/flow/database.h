/*
 * database.h - the caller's database, as a flow uses it: transactions, and Once's operations in them.
 *
 * A table of functions per database (sqlite.c, postgres.c). Operations run inside a transaction
 * that `begin` opened and answer like those of once.h; after a failure the caller rolls back. Only
 * `renew` is called from another thread (lease_keeper.c), while no transaction is open; it makes its own.
 */
#ifndef ONCE_FLOW_DATABASE_H
#define ONCE_FLOW_DATABASE_H

#include "core/mac.h"
#include "flow/lease_keeper.h"
#include "once_flow.h"

/* The result of a COMMIT (K10). */
enum flow_fate {
    FLOW_COMMITTED = 1,
    FLOW_NOT_COMMITTED, /* certainly not */
    FLOW_FENCED,        /* its answer was lost, and another attempt has the record now */
    FLOW_UNSURE,        /* its answer was lost, and the database could not be asked whether it took effect */
};

/* The change that a transaction makes to the record, by which it is recognised after a lost answer. */
struct flow_change {
    struct once_grant grant;
    once_span point;       /* the recovery point that it stores; empty: none */
    bool enters, finishes; /* it makes the grant; it stores the outcome */
};

struct flow_ops {
    bool (*is_idle)(struct once_flow_db *db); /* no transaction is open */
    bool (*is_open)(struct once_flow_db *db); /* the transaction that was begun is open, perhaps failed */
    once_result (*begin)(struct once_flow_db *db, struct once_error *err);
    void (*rollback)(struct once_flow_db *db);
    enum flow_fate (*commit)(struct once_flow_db *db, const struct flow_change *mark, struct once_error *err);
    void (*lend)(struct once_flow_db *db, struct once_local *local); /* gives the connection to a phase */

    once_result (*lookup)(struct once_flow_db *db, once_span tenant, once_span key, struct once_reply *reply,
                          struct once_error *err);
    once_result (*claim)(struct once_flow_db *db, const struct once_claim *claim, struct once_reply *reply,
                         struct once_error *err);
    once_result (*take_over)(struct once_flow_db *db, struct once_grant seen, int64_t lease_ms,
                             struct once_reply *reply, struct once_error *err);
    /* Is the grant the newest, and its record running? If so, that holds until the end of the transaction. */
    once_result (*guard)(struct once_flow_db *db, struct once_grant grant, bool *fenced, struct once_error *err);
    once_result (*advance)(struct once_flow_db *db, struct once_grant grant, once_span point, once_span checkpoint,
                           struct once_reply *reply, struct once_error *err);
    once_result (*extend)(struct once_flow_db *db, struct once_grant grant, int64_t lease_ms, struct once_reply *reply,
                          struct once_error *err);
    once_result (*finish)(struct once_flow_db *db, struct once_grant grant, const struct once_outcome *outcome,
                          struct once_reply *reply, struct once_error *err);
    /* A bounded number of running and failed (also finally failed) records, newest first, with fences below `before`.
     * *now is the store's time. */
    once_result (*list)(struct once_flow_db *db, uint64_t before, struct once_page *page, once_time *now,
                        struct once_error *err);

    /* Renews the lease in its own transaction. */
    once_result (*renew)(struct once_flow_db *db, struct once_grant grant, int64_t lease_ms, struct once_reply *reply,
                         struct once_error *err);
    void (*close)(struct once_flow_db *db);
};

/* The first member of both implementations. */
struct once_flow_db {
    const struct flow_ops *ops;
    struct once_mac secret;
    struct flow_lease_keeper keeper;
};

/* The records that one listing of a completer returns at most, and the fences that it reads. */
#define FLOW_LIST_LEN 1000
#define FLOW_LIST_SPAN 10000

#endif
