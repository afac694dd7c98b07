/* route.c - see postgres/route.h. */
#include "store/postgres/route.h"

#include "core/span.h"
#include "store/postgres/param.h"

static uint8_t recall(const struct pg_routes *routes, once_span name)
{
    for (size_t i = 0; i < routes->count; i++)
        if (once_span_equal(name, once_span_of(routes->known[i].name, routes->known[i].len)))
            return routes->known[i].id;
    return routes->full ? ONCE_ROUTE_OTHER : 0;
}

static void remember(struct pg_routes *routes, int64_t id, once_span name)
{
    if (id < 1 || id > ONCE_ROUTE_COUNT_MAX || name.len > ONCE_ROUTE_LEN_MAX || routes->count == ONCE_ROUTE_COUNT_MAX)
        return;
    routes->known[routes->count].id = (uint8_t)id;
    routes->known[routes->count].len = (uint8_t)name.len;
    memcpy(routes->known[routes->count].name, name.ptr, name.len);
    routes->count++;
    routes->full = routes->count == ONCE_ROUTE_COUNT_MAX;
}

/* All numbers are taken: reads all names, so that the database need not be asked again. */
static void learn_all(struct pg_routes *routes, struct pg_conn *pg)
{
    struct pg_params p;
    pg_params_init(&p);
    PGresult *r = NULL;
    if (pg->conn != NULL && pg_conn_ask(pg, NULL, "SELECT id, name FROM once.routes()", &p, &r, NULL) == ONCE_OK) {
        routes->count = 0;
        for (int row = 0; row < PQntuples(r); row++)
            remember(routes, pg_int(r, row, 0), pg_bytes(r, row, 1));
    }
    PQclear(r);
    pg_params_release(&p);
}

static uint8_t ask(struct pg_routes *routes, struct pg_conn *pg, once_span name)
{
    struct pg_params p;
    pg_params_init(&p);
    pg_add_bytes(&p, PG_TEXT, name);
    PGresult *r = NULL;
    int64_t id = 0;
    if (pg_conn_ask(pg, NULL, "SELECT once.route_id($1)", &p, &r, NULL) == ONCE_OK && PQntuples(r) == 1)
        id = pg_int(r, 0, 0);
    PQclear(r);
    pg_params_release(&p);
    remember(routes, id, name);
    if (id == ONCE_ROUTE_OTHER)
        learn_all(routes, pg);
    return id >= 1 && id <= ONCE_ROUTE_OTHER ? (uint8_t)id : 0;
}

void pg_routes_find(struct pg_routes *routes, struct pg_conn *pg, struct once_op *const *ops, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (ops[i]->request->verb != ONCE_VERB_CLAIM || ops[i]->request->claim.route.len == 0)
            continue;
        once_span name = ops[i]->request->claim.route;
        ops[i]->route = recall(routes, name);
        if (ops[i]->route == 0 && pg->conn != NULL && PQstatus(pg->conn) == CONNECTION_OK)
            ops[i]->route = ask(routes, pg, name);
    }
}

once_span pg_route_of(const struct once_op *op)
{
    if (op->route == 0)
        return once_span_of(NULL, 0);
    return op->route == ONCE_ROUTE_OTHER ? ONCE_LIT(ONCE_ROUTE_OTHER_NAME) : op->request->claim.route;
}
