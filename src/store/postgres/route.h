/*
 * route.h - routes of claims as the database numbers them (once.route).
 *
 * A name keeps its number for ever, and gets it in its own transaction before the batch that needs it. So a handle may
 * remember numbers for as long as it lives, and a batch carries only numbers. A route never fails a claim: if the
 * database cannot be asked, the claim is stored without one.
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
    bool full; /* all numbers are known: every other name is "other" */
};

/* Gives the claims of a batch the numbers of their routes. */
void pg_routes_find(struct pg_routes *routes, struct pg_conn *pg, struct once_op *const *ops, size_t count);
/* The route as readers will see it: its name, "other" or empty. */
once_span pg_route_of(const struct once_op *op);

#endif
