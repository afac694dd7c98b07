/* items_pg.c - see items_pg.h. */
#include "messages/items_pg.h"

#include "core/span.h"
#include "store/postgres/conn.h"

#include <stdio.h>

void items_pg_read(const PGresult *r, int row, int first, struct message_item *item)
{
    struct message *m = &item->message;
    snprintf(item->state, sizeof item->state, "%.*s", ONCE_SPAN_ARGS(pg_bytes(r, row, 0)));
    pg_uuid(r, row, 1, m->id);
    m->topic = pg_bytes(r, row, first);
    m->has_key = !PQgetisnull(r, row, first + 1);
    m->key = pg_bytes(r, row, first + 1);
    m->content_type = pg_bytes(r, row, first + 2);
    m->headers = pg_bytes(r, row, first + 3);
    m->payload = pg_bytes(r, row, first + 4);
}

once_result items_pg_query(const struct items_pg *items, void *table, const char *id,
                           const struct message_filter *filter, message_item_fn *each, void *arg,
                           struct once_error *err)
{
    struct pg_params p;
    PGresult *r = NULL;
    pg_params_init(&p);
    if (id != NULL) {
        pg_add_bytes(&p, PG_TEXT, once_span_str(id));
    } else {
        pg_add_bytes(&p, PG_TEXT, once_span_str(filter->states));
        pg_add_bytes(&p, PG_TEXT, once_span_str(filter->topic_prefix));
        if (items->has_consumers)
            pg_add_bytes(&p, PG_TEXT, once_span_str(filter->consumer));
        pg_add_int(&p, PG_INT4, filter->most);
    }
    once_result result = items->ask(table, id != NULL ? items->show : items->list, &p, &r, err);
    for (int i = 0; result == ONCE_OK && i < PQntuples(r); i++)
        items->read(r, i, each, arg);
    PQclear(r);
    return result;
}

once_result items_pg_resolve(const struct items_pg *items, void *table, const char *id, const char *action,
                             once_span actor, once_span reason, char did[16], struct once_error *err)
{
    struct pg_params p;
    PGresult *r = NULL;
    pg_params_init(&p);
    pg_add_bytes(&p, PG_TEXT, once_span_str(id));
    pg_add_bytes(&p, PG_TEXT, once_span_str(action));
    pg_add_bytes(&p, PG_BYTEA, actor);
    pg_add_bytes(&p, PG_BYTEA, reason);
    once_result result = items->ask(table, items->resolve, &p, &r, err);
    if (result == ONCE_OK)
        snprintf(did, 16, "%.*s", ONCE_SPAN_ARGS(pg_bytes(r, 0, 0)));
    PQclear(r);
    return result;
}
