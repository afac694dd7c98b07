/* items_pg.c - see items_pg.h. */
#include "messages/outbox/items_pg.h"

#include "core/span.h"

void items_pg_add_query(struct pg_params *p, const char *id, const char *states, const char *topic_prefix,
                        const once_span *consumer, int32_t most)
{
    if (id != NULL) {
        pg_add_bytes(p, PG_TEXT, once_span_str(id));
        return;
    }
    pg_add_bytes(p, PG_TEXT, once_span_str(states));
    pg_add_bytes(p, PG_TEXT, once_span_str(topic_prefix));
    if (consumer != NULL)
        pg_add_bytes(p, PG_TEXT, *consumer);
    pg_add_int(p, PG_INT4, most);
}

void items_pg_add_action(struct pg_params *p, const char *id, const char *action, once_span actor, once_span reason)
{
    pg_add_bytes(p, PG_TEXT, once_span_str(id));
    pg_add_bytes(p, PG_TEXT, once_span_str(action));
    pg_add_bytes(p, PG_BYTEA, actor);
    pg_add_bytes(p, PG_BYTEA, reason);
}
