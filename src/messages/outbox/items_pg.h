/*
 * items_pg.h - an operator's questions about messages in PostgreSQL, and word on them, as parameters: what the outbox
 * (75_relay.sql) and the dead letters (80_inbox.sql) have in common.
 *
 * Which function is called, over which connection, and what its columns are stays with outbox_pg.c and
 * dead_letters_pg.c.
 */
#ifndef ONCE_MESSAGES_OUTBOX_ITEMS_PG_H
#define ONCE_MESSAGES_OUTBOX_ITEMS_PG_H

#include "once.h"
#include "store/postgres/param.h"

/* Of NAME_show(id); or, where `id` is NULL, of NAME_list(states, topic_prefix[, consumer], most). `consumer` is NULL
 * where the function has none. */
void items_pg_add_query(struct pg_params *p, const char *id, const char *states, const char *topic_prefix,
                        const once_span *consumer, int32_t most);
/* Of NAME_resolve(id, word, actor, reason), which answers what was done. */
void items_pg_add_action(struct pg_params *p, const char *id, const char *action, once_span actor, once_span reason);

#endif
