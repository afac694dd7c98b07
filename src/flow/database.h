/*
 * database.h - the caller's database, as a flow uses it: transactions, and Once's operations in them.
 *
 * A table of functions per database (sqlite.c, postgres.c). Operations are called inside a
 * transaction that `begin` opened and answer as those of once.h do; whatever fails in one, the
 * caller rolls back. Only `renew` is called from another thread (lease_keeper.c), while no transaction is
 * open, and has one of its own.
 */
#ifndef ONCE_FLOW_DATABASE_H
#define ONCE_FLOW_DATABASE_H

#include "core/mac.h"
#include "flow/lease_keeper.h"
#include "once_flow.h"

/* What became of a COMMIT (K10). */
enum flow_fate {
    FLOW_COMMITTED = 1,
    FLOW_NOT_COMMITTED, /* certainly */
    FLOW_FENCED,        /* its answer was lost, and by now the record is somebody else's */
    FLOW_UNSURE,        /* its answer was lost, and it could not be seen what became of it */
};

/* What a transaction does to the record, to recognise it by. */
struct flow_change {
    struct once_grant grant;
    once_span point;       /* the recovery point that it moves to; empty: it moves to none */
    bool enters, finishes; /* makes the grant; stores its outcome */
};

struct flow_ops {
    bool (*is_idle)(struct once_flow_db *db); /* no transaction is open */
    bool (*is_open)(struct once_flow_db *db); /* the one that was begun still is, in whatever state */
    once_result (*begin)(struct once_flow_db *db, struct once_error *err);
    void (*rollback)(struct once_flow_db *db);
    enum flow_fate (*commit)(struct once_flow_db *db, const struct flow_change *mark, struct once_error *err);
    void (*lend)(struct once_flow_db *db, struct once_local *local); /* the connection, to a phase */

    once_result (*lookup)(struct once_flow_db *db, once_span tenant, once_span key, struct once_reply *reply,
                          struct once_error *err);
    once_result (*claim)(struct once_flow_db *db, const struct once_claim *claim, struct once_reply *reply,
                         struct once_error *err);
    once_result (*take_over)(struct once_flow_db *db, struct once_grant seen, int64_t lease_ms,
                             struct once_reply *reply, struct once_error *err);
    /* Is the grant the newest of a running record? If so, it stays that to the end of the transaction. */
    once_result (*guard)(struct once_flow_db *db, struct once_grant grant, bool *fenced, struct once_error *err);
    once_result (*advance)(struct once_flow_db *db, struct once_grant grant, once_span point, once_span checkpoint,
                           struct once_reply *reply, struct once_error *err);
    once_result (*extend)(struct once_flow_db *db, struct once_grant grant, int64_t lease_ms, struct once_reply *reply,
                          struct once_error *err);
    once_result (*finish)(struct once_flow_db *db, struct once_grant grant, const struct once_outcome *outcome,
                          struct once_reply *reply, struct once_error *err);
    /* Records that are running, or failed (some for good), newest first, before `before`; a bounded number. *now is
     * the store's time. */
    once_result (*list)(struct once_flow_db *db, uint64_t before, struct once_page *page, once_time *now,
                        struct once_error *err);

    /* Extends the lease in a transaction of its own. */
    once_result (*renew)(struct once_flow_db *db, struct once_grant grant, int64_t lease_ms, struct once_reply *reply,
                         struct once_error *err);
    void (*close)(struct once_flow_db *db);
};

/* Embedded first in both. */
struct once_flow_db {
    const struct flow_ops *ops;
    struct once_mac secret;
    struct flow_lease_keeper keeper;
};

/* The records that one listing of a completer shows, and the fences that it looks at for that. */
#define FLOW_LIST_LEN 1000
#define FLOW_LIST_SPAN 10000

#endif
