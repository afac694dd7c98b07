/*
 * route.h - routes in SQLite's tables: names that claims carry, as small numbers.
 *
 * A name keeps its number for ever: rows of once_route are never changed or deleted, so a claim stores only the number,
 * in its flags. All names after the first ONCE_ROUTE_COUNT_MAX are "other".
 *
 * Numbers are cached for one step only: after a rollback a number may go to another name. A route never fails a read: a
 * name that cannot be read is shown as empty.
 */
#ifndef ONCE_STORE_SQLITE_ROUTE_H
#define ONCE_STORE_SQLITE_ROUTE_H

#include "store/sqlite/attempt.h"

/* At the beginning of a step. */
void sqlite_routes_begin(struct sqlite_protocol *p);
/* The number of a route, 0 for an empty name; adds a new name. Other than ONCE_OK: the transaction has failed. */
once_result sqlite_route_id(struct sqlite_protocol *p, once_span name, int64_t *id, struct once_error *err);
/* Its name, until the step ends; empty for 0. */
once_span sqlite_route_name(struct sqlite_protocol *p, int64_t id);

#endif
