/*
 * dead_letters_sqlite.c - dead letters in an SQLite store, which other processes use at the same time.
 *
 * Writes are steps under the store's lock, as those of a store in shared mode (sqlite/file.h): one writer at a time,
 * which first makes the commits of a crashed writer durable (K10). Checkpoints stay with the store. Each call is one
 * transaction; a COMMIT that fails leaves the lock unclean and the connection closed, and the call may be repeated.
 */
#include "messages/dead_letters/dead_letters.h"

#include "core/err.h"
#include "core/span.h"
#include "messages/items_sqlite.h"
#include "os/os.h"
#include "store/sqlite/file.h"
#include "store/sqlite/schema.h"

#include <stdlib.h>

enum { LOCK_WAIT_MS = 10000 };

struct dead_letters_sqlite {
    struct dead_letters base;
    struct sqlite_files files;
    struct sqlite_db db;
};

static struct dead_letters_sqlite *sqlite_of(struct dead_letters *l)
{
    return (struct dead_letters_sqlite *)l;
}

/* ------------------------------------------------------------------ the connection */

static once_result connect(struct dead_letters_sqlite *s, struct once_error *err)
{
    int64_t version = 0;
    if (s->db.handle != NULL)
        return ONCE_OK;
    int rc = sqlite3_open_v2(s->files.path, &s->db.handle,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, NULL);
    once_result r = rc == SQLITE_OK ? sqlite_schema_configure(s->db.handle, err)
                                    : sqlite_fail(s->db.handle, rc, "open the database", err);
    if (r == ONCE_OK)
        r = sqlite_schema_version(s->db.handle, SQLITE_SHARED_FILE, &version, err);
    if (r == ONCE_OK && version != sqlite_migration_count)
        r = once_fail(err, ONCE_INVALID, "'%s' has no store, or one of an older version", s->files.path);
    if (r == ONCE_OK)
        r = sqlite_schema_attach(&s->db, false, err);
    if (r != ONCE_OK)
        sqlite_db_close(&s->db);
    return r;
}

static void sqlite_dead_letters_close(struct dead_letters *l)
{
    struct dead_letters_sqlite *s = sqlite_of(l);
    sqlite_db_close(&s->db);
    sqlite_files_release(&s->files);
    free(s);
}

/* ------------------------------------------------------------------ a step */

static once_result begin(struct dead_letters_sqlite *s, struct once_error *err)
{
    once_result r = connect(s, err);
    if (r == ONCE_OK)
        r = sqlite_files_lock(&s->files, false, err);
    if (r != ONCE_OK)
        return r;
    if (s->files.suspect && sqlite_schema_is_own(s->db.handle))
        r = sqlite_db_make_durable(s->db.handle, err);
    if (r != ONCE_OK) {
        sqlite_files_unlock(&s->files, false);
        return r;
    }
    r = sqlite_exec(s->db.handle, "BEGIN IMMEDIATE", "begin a transaction", err);
    if (r == ONCE_OK && s->db.boot == 0) /* the first step since the machine was booted */
        r = sqlite_clock_anchor(&s->db, true, err);
    if (r != ONCE_OK) {
        sqlite_db_close(&s->db);
        sqlite_files_unlock(&s->files, true);
    }
    return r;
}

static once_result end(struct dead_letters_sqlite *s, once_result r, struct once_error *err)
{
    bool clean = true;
    if (r == ONCE_OK) {
        r = sqlite_exec(s->db.handle, "COMMIT", "commit", err);
        clean = r == ONCE_OK;
    }
    if (r != ONCE_OK) {
        sqlite3_exec(s->db.handle, "ROLLBACK", NULL, NULL, NULL);
        sqlite_db_close(&s->db);
    }
    sqlite_files_unlock(&s->files, clean);
    return r;
}

/* ------------------------------------------------------------------ the calls */

static once_result sqlite_dead_letters_put(struct dead_letters *l, const struct dead_letter *dead_letter,
                                           struct once_error *err)
{
    struct dead_letters_sqlite *s = sqlite_of(l);
    const struct incoming *in = dead_letter->incoming;
    const struct message *m = &in->message;
    once_result r = begin(s, err);
    if (r != ONCE_OK)
        return r;
    struct sqlite_query q = sqlite_query(&s->db, SQL_inbox_put_dead);
    sqlite_bind_text(&q, dead_letter->id);
    sqlite_bind_blob(&q, dead_letter->consumer);
    sqlite_bind_blob(&q, dead_letter->message_id);
    sqlite_bind_blob(&q, once_span_str(in->position));
    sqlite_bind_blob(&q, m->topic);
    sqlite_bind_blob(&q, m->key);
    sqlite_bind_blob(&q, m->content_type);
    sqlite_bind_blob(&q, m->headers);
    sqlite_bind_blob(&q, m->payload);
    sqlite_bind_int(&q, sqlite_now(&s->db));
    sqlite_bind_int(&q, dead_letter->attempts);
    sqlite_bind_blob(&q, dead_letter->reason);
    sqlite_bind_int(&q, dead_letter->again);
    return end(s, sqlite_run(&q, "store a dead letter", err), err);
}

static once_result sqlite_dead_letters_due(struct dead_letters *l, once_span consumer, int32_t most,
                                           dead_letters_due_fn *each, void *arg, struct once_error *err)
{
    struct dead_letters_sqlite *s = sqlite_of(l);
    once_result r = connect(s, err);
    if (r != ONCE_OK)
        return r;
    struct sqlite_query q = sqlite_query(&s->db, SQL_inbox_due);
    sqlite_bind_blob(&q, consumer);
    sqlite_bind_int(&q, most);
    while (sqlite_step(&q)) {
        struct incoming in = { .is_dead_letter = true,
                               .message = { .topic = sqlite_column_span(&q, 3),
                                            .key = sqlite_column_span(&q, 4),
                                            .content_type = sqlite_column_span(&q, 5),
                                            .headers = sqlite_column_span(&q, 6),
                                            .payload = sqlite_column_span(&q, 7) } };
        in.message.has_key = in.message.key.len > 0;
        snprintf(in.message.id, sizeof in.message.id, "%.*s", ONCE_SPAN_ARGS(sqlite_column_span(&q, 0)));
        snprintf(in.position, sizeof in.position, "%.*s", ONCE_SPAN_ARGS(sqlite_column_span(&q, 2)));
        each(arg, sqlite_column_span(&q, 1), &in);
    }
    return sqlite_end(&q, "query dead letters", err);
}

static once_result sqlite_dead_letters_settle(struct dead_letters *l, const char *id, struct once_error *err)
{
    struct dead_letters_sqlite *s = sqlite_of(l);
    bool changed;
    once_result r = begin(s, err);
    return r == ONCE_OK ? end(s, items_sqlite_change(&s->db, SQL_inbox_settle, id, &changed, err), err) : r;
}

static once_result sqlite_dead_letters_count(struct dead_letters *l, once_span consumer, int64_t *count,
                                             struct once_error *err)
{
    struct dead_letters_sqlite *s = sqlite_of(l);
    once_result r = connect(s, err);
    if (r != ONCE_OK)
        return r;
    struct sqlite_query q = sqlite_query(&s->db, SQL_inbox_count);
    sqlite_bind_blob(&q, consumer);
    *count = sqlite_step(&q) ? sqlite_column_int(&q, 0) : 0;
    return sqlite_end(&q, "count dead letters", err);
}

static void read_item(struct sqlite_query *q, message_item_fn *each, void *arg)
{
    struct dead_letter_item item = { .consumer = sqlite_column_span(q, 2),
                                     .message_id = sqlite_column_span(q, 3),
                                     .source = sqlite_column_span(q, 4) };
    items_sqlite_read(q, 5, &item.base);
    item.base.message.has_key = item.base.message.key.len > 0;
    item.base.at = sqlite_column_int(q, 10);
    item.base.message.refusals = (int32_t)sqlite_column_int(q, 11);
    item.base.reason = sqlite_column_span(q, 12);
    each(arg, &item.base);
}

static once_result sqlite_dead_letters_query(struct dead_letters *l, const char *id,
                                             const struct message_filter *filter, message_item_fn *each, void *arg,
                                             struct once_error *err)
{
    struct dead_letters_sqlite *s = sqlite_of(l);
    once_result r = connect(s, err);
    return r == ONCE_OK ? items_sqlite_query(&s->db, SQL_inbox_look, id, filter, read_item, each, arg, err) : r;
}

static once_result sqlite_dead_letters_resolve(struct dead_letters *l, const char *id, const char *action,
                                               once_span actor, once_span reason, char did[16], struct once_error *err)
{
    struct dead_letters_sqlite *s = sqlite_of(l);
    bool retry = strcmp(action, "retry") == 0, changed = false;
    const char *done = retry ? "retried" : "dropped";
    once_result r = begin(s, err);
    if (r != ONCE_OK)
        return r;
    r = items_sqlite_change(&s->db, retry ? SQL_inbox_retry : SQL_inbox_settle, id, &changed, err);
    if (r == ONCE_OK && changed)
        r = items_sqlite_audit(&s->db, "dead letter", id, done, actor, reason, err);
    snprintf(did, 16, "%s", changed ? done : "absent");
    return end(s, r, err);
}

static const struct dead_letters_ops sqlite_ops = {
    .close = sqlite_dead_letters_close,
    .put = sqlite_dead_letters_put,
    .due = sqlite_dead_letters_due,
    .settle = sqlite_dead_letters_settle,
    .count = sqlite_dead_letters_count,
    .query = sqlite_dead_letters_query,
    .resolve = sqlite_dead_letters_resolve,
};

once_result dead_letters_sqlite_create(const char *path, struct dead_letters **out, struct once_error *err)
{
    struct dead_letters_sqlite *s = calloc(1, sizeof *s);
    if (s == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a connection");
    s->base.ops = &sqlite_ops;
    s->db.clock = &once_os_clock;
    once_result r = sqlite_files_init(&s->files, once_span_of(path, strcspn(path, "?")), 0, LOCK_WAIT_MS, err);
    if (r != ONCE_OK) {
        free(s);
        return r;
    }
    r = connect(s, err);
    if (r != ONCE_OK)
        sqlite_dead_letters_close(&s->base);
    else
        *out = &s->base;
    return r;
}
