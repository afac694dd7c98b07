/*
 * items_pg.h - an operator's queries and actions on messages in PostgreSQL: the part that the outbox (75_relay.sql) and
 * the dead letters (80_inbox.sql) share.
 */
#ifndef ONCE_MESSAGES_ITEMS_PG_H
#define ONCE_MESSAGES_ITEMS_PG_H

#include "messages/message.h"
#include "store/postgres/param.h"

#include <libpq-fe.h>

struct items_pg {
    /* Runs one statement on the table's connection, and releases `p`. */
    once_result (*ask)(void *table, const char *sql, struct pg_params *p, PGresult **out, struct once_error *err);
    const char *show;    /* the statement with the parameter: id */
    const char *list;    /* states, topic prefix, [consumer,] most */
    bool has_consumers;  /* `list` takes a consumer */
    const char *resolve; /* id, action, actor, reason; answers what was done */
    void (*read)(const PGresult *r, int row, message_item_fn *each, void *arg); /* one row of `show` and `list` */
};

/* State and id, which are the first columns, and topic, key, content type, headers and payload from column `first` on.
 */
void items_pg_read(const PGresult *r, int row, int first, struct message_item *item);
once_result items_pg_query(const struct items_pg *items, void *table, const char *id,
                           const struct message_filter *filter, message_item_fn *each, void *arg,
                           struct once_error *err);
once_result items_pg_resolve(const struct items_pg *items, void *table, const char *id, const char *action,
                             once_span actor, once_span reason, char did[16], struct once_error *err);

#endif
