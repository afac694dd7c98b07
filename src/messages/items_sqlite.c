/* items_sqlite.c - see items_sqlite.h. */
#include "messages/items_sqlite.h"

#include "core/span.h"

#include <stdio.h>

void items_sqlite_read(struct sqlite_query *q, int first, struct message_item *item)
{
    struct message *m = &item->message;
    snprintf(item->state, sizeof item->state, "%.*s", ONCE_SPAN_ARGS(sqlite_column_span(q, 0)));
    snprintf(m->id, sizeof m->id, "%.*s", ONCE_SPAN_ARGS(sqlite_column_span(q, 1)));
    m->topic = sqlite_column_span(q, first);
    m->has_key = !sqlite_column_is_null(q, first + 1);
    m->key = sqlite_column_span(q, first + 1);
    m->content_type = sqlite_column_span(q, first + 2);
    m->headers = sqlite_column_span(q, first + 3);
    m->payload = sqlite_column_span(q, first + 4);
}

once_result items_sqlite_query(struct sqlite_db *db, enum sqlite_statement statement, const char *id,
                               const struct message_filter *filter,
                               void (*read)(struct sqlite_query *q, message_item_fn *each, void *arg),
                               message_item_fn *each, void *arg, struct once_error *err)
{
    static const struct message_filter all = { .states = "", .topic_prefix = "", .consumer = "", .most = 1 };
    char states[80] = "";
    if (filter == NULL)
        filter = &all;
    if (filter->states[0] != '\0') /* the statements look for ",dead," in ",dead,retrying," */
        snprintf(states, sizeof states, ",%s,", filter->states);
    struct sqlite_query q = sqlite_query(db, statement);
    sqlite_bind_text(&q, id != NULL ? id : "");
    sqlite_bind_text(&q, states);
    sqlite_bind_text(&q, filter->topic_prefix);
    sqlite_bind_blob(&q, once_span_str(filter->consumer != NULL ? filter->consumer : ""));
    sqlite_bind_int(&q, filter->most);
    while (sqlite_step(&q))
        read(&q, each, arg);
    return sqlite_end(&q, "query messages", err);
}

once_result items_sqlite_change(struct sqlite_db *db, enum sqlite_statement statement, const char *id, bool *changed,
                                struct once_error *err)
{
    struct sqlite_query q = sqlite_query(db, statement);
    sqlite_bind_text(&q, id);
    once_result r = sqlite_run(&q, "change a message", err);
    *changed = r == ONCE_OK && sqlite3_changes(db->handle) > 0;
    return r;
}

once_result items_sqlite_audit(struct sqlite_db *db, const char *kind, const char *id, const char *did, once_span actor,
                               once_span reason, struct once_error *err)
{
    char what[32];
    snprintf(what, sizeof what, "%s %s", kind, did);
    struct sqlite_query q = sqlite_query(db, SQL_audit_insert);
    sqlite_bind_int(&q, sqlite_now(db));
    sqlite_bind_blob(&q, once_span_str(id));
    sqlite_bind_int(&q, 0);
    sqlite_bind_text(&q, what);
    sqlite_bind_blob(&q, actor);
    sqlite_bind_blob(&q, reason);
    return sqlite_run(&q, "write the audit trail", err);
}
