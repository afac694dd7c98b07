/*
 * sqlite_consume.c - once_sqlite_consume(): an inbox entry in the caller's own transaction.
 *
 * One row per (consumer, message id): it exists if and only if the effect of the message does (K13). Past the
 * consumer's retention it counts as absent (K8). Each new entry deletes up to two expired ones, so that the table stays
 * bounded.
 */
#include "core/err.h"
#include "core/message.h"
#include "core/span.h"
#include "store/sqlite/bound.h"

static once_result check_transaction(const struct sqlite_db *db, struct once_error *err)
{
    if (sqlite3_get_autocommit(db->handle))
        return once_fail(err, ONCE_INVALID, "not inside a transaction: BEGIN IMMEDIATE first");
    return ONCE_OK;
}

static void bind_or_null(struct sqlite_query *q, bool present, int64_t value)
{
    if (present)
        sqlite_bind_int(q, value);
    else
        sqlite_bind_null(q);
}

once_result once_sqlite_consumer(struct once_sqlite *bound, const struct once_consumer *consumer,
                                 struct once_error *err)
{
    struct sqlite_db *db = sqlite_bound_db(bound);
    once_result r = once_consumer_check(consumer, err);
    if (r == ONCE_OK)
        r = check_transaction(db, err);
    if (r != ONCE_OK)
        return r;
    int64_t keep = consumer->retention_ms != 0 ? consumer->retention_ms : ONCE_INBOX_RETENTION_MS_DEFAULT;
    struct sqlite_query q = sqlite_query(db, SQL_consumer_put);
    sqlite_bind_blob(&q, consumer->name);
    bind_or_null(&q, keep != ONCE_NEVER, keep);
    bind_or_null(&q, consumer->redelivery_window_ms != 0, consumer->redelivery_window_ms);
    return sqlite_run(&q, "register a consumer", err);
}

/* Entries at or before that time have expired; 0: none have. */
static once_result find_limit(struct sqlite_db *db, once_span consumer, once_time now, once_time *limit,
                              struct once_error *err)
{
    struct sqlite_query q = sqlite_query(db, SQL_inbox_retention);
    sqlite_bind_blob(&q, consumer);
    *limit = 0;
    if (sqlite_step(&q) && !sqlite_column_is_null(&q, 0))
        *limit = now - sqlite_column_int(&q, 0);
    return sqlite_end(&q, "look for a consumer", err);
}

static once_result mark(struct sqlite_db *db, enum sqlite_statement statement, once_span consumer, once_span id,
                        once_time now, const once_time *limit, bool *fresh, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(db, statement);
    sqlite_bind_blob(&q, consumer);
    sqlite_bind_blob(&q, id);
    sqlite_bind_int(&q, now);
    if (limit != NULL)
        sqlite_bind_int(&q, *limit);
    once_result r = sqlite_run(&q, "record a message", err);
    *fresh = r == ONCE_OK && sqlite3_changes(db->handle) > 0;
    return r;
}

once_result once_sqlite_consume(struct once_sqlite *bound, once_span consumer, once_span message_id, bool *fresh,
                                struct once_error *err)
{
    struct sqlite_db *db = sqlite_bound_db(bound);
    once_time now = sqlite_now(db), limit = 0;
    bool is_fresh = false;
    once_result r = once_inbox_name_check("consumer", consumer, err);
    if (r == ONCE_OK)
        r = once_inbox_name_check("message id", message_id, err);
    if (r == ONCE_OK)
        r = check_transaction(db, err);
    if (r == ONCE_OK)
        r = find_limit(db, consumer, now, &limit, err);
    if (r == ONCE_OK)
        r = mark(db, SQL_inbox_insert, consumer, message_id, now, NULL, &is_fresh, err);
    if (r == ONCE_OK && !is_fresh && limit > 0)
        r = mark(db, SQL_inbox_renew, consumer, message_id, now, &limit, &is_fresh, err);
    if (r == ONCE_OK && is_fresh && limit > 0) {
        struct sqlite_query q = sqlite_query(db, SQL_inbox_forget);
        sqlite_bind_blob(&q, consumer);
        sqlite_bind_int(&q, limit);
        r = sqlite_run(&q, "delete expired entries", err);
    }
    if (r == ONCE_OK)
        *fresh = is_fresh;
    return r;
}
