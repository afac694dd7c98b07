/* items_sqlite.c - see items_sqlite.h. */
#include "messages/outbox/items_sqlite.h"

#include "core/span.h"

#include <stdio.h>

void items_sqlite_states(const char *states, char out[ITEMS_STATES_LEN])
{
    out[0] = '\0';
    if (states != NULL && states[0] != '\0')
        snprintf(out, ITEMS_STATES_LEN, ",%s,", states);
}

once_result items_sqlite_change(struct sqlite_db *db, enum sqlite_statement statement, const char *id, const char *what,
                                bool *changed, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(db, statement);
    sqlite_bind_text(&q, id);
    once_result r = sqlite_run(&q, what, err);
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
    return sqlite_run(&q, "keep the reason", err);
}
