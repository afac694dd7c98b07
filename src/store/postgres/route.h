/*
 * route.h - routes of claims as the database numbers them (once.route).
 *
 * Numbers are given for good, each in a transaction of its own before the batch that needs it; so they may be
 * remembered for as long as the handle lives, and a batch carries nothing but numbers. A label fails nothing: where
 * the database cannot be asked, the claim goes without.
 */
#ifndef ONCE_STORE_POSTGRES_ROUTE_H
#define ONCE_STORE_POSTGRES_ROUTE_H

#include "core/limits.h"
#include "store/postgres/conn.h"
#include "store/store.h"

struct pg_routes {
    size_t count;
    struct {
        uint8_t id, len;
        uint8_t name[ONCE_ROUTE_LEN_MAX];
    } known[ONCE_ROUTE_COUNT_MAX];
    bool full; /* all numbers are known: whatever else comes is "other" */
};

/* Gives the claims of a batch the numbers of their routes. */
void pg_routes_find(struct pg_routes *routes, struct pg_conn *pg, struct once_op *const *ops, size_t count);
/* As a reader will find it. */
once_span pg_route_of(const struct once_op *op);

#endif
