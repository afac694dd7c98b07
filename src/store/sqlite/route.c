/* route.c - see sqlite/route.h. */
#include "store/sqlite/route.h"

#include "core/limits.h"
#include "core/span.h"

void sqlite_routes_begin(struct sqlite_protocol *p)
{
    p->routes.count = 0;
}

/* Names do not move during a step: the array has room for all numbers. */
static once_span remember(struct sqlite_protocol *p, int64_t id, once_span name)
{
    struct sqlite_route *route = &p->routes.known[p->routes.count];
    if (p->routes.count == ONCE_ROUTE_OTHER || name.len > sizeof route->name)
        return once_span_of(NULL, 0);
    route->id = id;
    route->len = name.len;
    memcpy(route->name, name.ptr, name.len);
    p->routes.count++;
    return once_span_of(route->name, route->len);
}

static once_result find(struct sqlite_protocol *p, once_span name, int64_t *id, struct once_error *err)
{
    *id = 0;
    struct sqlite_query q = sqlite_query(p->db, SQL_route_find);
    sqlite_bind_blob(&q, name);
    if (sqlite_step(&q))
        *id = sqlite_column_int(&q, 0);
    return sqlite_end(&q, "read a route", err);
}

static once_result add(struct sqlite_protocol *p, once_span name, int64_t *id, struct once_error *err)
{
    *id = ONCE_ROUTE_OTHER;
    struct sqlite_query q = sqlite_query(p->db, SQL_route_add);
    sqlite_bind_blob(&q, name);
    if (sqlite_step(&q))
        *id = sqlite_column_int(&q, 0);
    return sqlite_end(&q, "store a route", err);
}

once_result sqlite_route_id(struct sqlite_protocol *p, once_span name, int64_t *id, struct once_error *err)
{
    *id = 0;
    if (name.len == 0)
        return ONCE_OK;
    for (size_t i = 0; i < p->routes.count; i++) {
        const struct sqlite_route *route = &p->routes.known[i];
        if (once_span_equal(name, once_span_of(route->name, route->len))) {
            *id = route->id;
            return ONCE_OK;
        }
    }
    once_result r = find(p, name, id, err);
    if (r == ONCE_OK && *id == 0)
        r = add(p, name, id, err);
    if (r == ONCE_OK && *id != ONCE_ROUTE_OTHER)
        remember(p, *id, name);
    return r;
}

once_span sqlite_route_name(struct sqlite_protocol *p, int64_t id)
{
    if (id == 0)
        return once_span_of(NULL, 0);
    if (id == ONCE_ROUTE_OTHER)
        return ONCE_LIT(ONCE_ROUTE_OTHER_NAME);
    for (size_t i = 0; i < p->routes.count; i++)
        if (p->routes.known[i].id == id)
            return once_span_of(p->routes.known[i].name, p->routes.known[i].len);
    once_span name = { 0 };
    struct sqlite_query q = sqlite_query(p->db, SQL_route_name);
    sqlite_bind_int(&q, id);
    if (sqlite_step(&q))
        name = remember(p, id, sqlite_column_span(&q, 0));
    return sqlite_end(&q, "read a route", NULL) == ONCE_OK ? name : once_span_of(NULL, 0);
}
