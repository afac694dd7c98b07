/*
 * route.h - routes in SQLite's tables: names that claims carry, as small numbers.
 *
 * A number is given for good: rows of once_route are never changed or deleted, so a claim needs no more than the
 * number, in its flags. All that come after ONCE_ROUTE_COUNT_MAX are one, "other".
 *
 * What was looked up is remembered for one step only: a route that is rolled back leaves its number to another. A label
 * fails nothing: what cannot be read is shown as none.
 */
#ifndef ONCE_STORE_SQLITE_ROUTE_H
#define ONCE_STORE_SQLITE_ROUTE_H

#include "store/sqlite/attempt.h"

/* At the beginning of a step. */
void sqlite_routes_begin(struct sqlite_protocol *p);
/* The number of a route, 0 for none; makes it if it is new. ONCE_OK, or the transaction has failed. */
once_result sqlite_route_id(struct sqlite_protocol *p, once_span name, int64_t *id, struct once_error *err);
/* Its name, until the step ends; empty for 0. */
once_span sqlite_route_name(struct sqlite_protocol *p, int64_t id);

#endif
