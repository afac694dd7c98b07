/*
 * outbox_sqlite.c - the outbox in a service's own SQLite database.
 *
 * One relay at a time holds the lease; messages and their counters are in one table (0001_initial.sql). Every call is
 * one transaction. New messages reuse the free pages of deleted rows, so that only a backlog makes the file grow.
 * The connection never checkpoints: the service's own connections do that.
 */
#include "messages/items_sqlite.h"
#include "messages/outbox/outbox.h"

#include "core/err.h"
#include "core/span.h"
#include "os/crash_point.h"
#include "os/os.h"
#include "store/sqlite/schema.h"

#include <poll.h>
#include <stdlib.h>

struct outbox_sqlite {
    struct outbox base;
    char *path;
    struct sqlite_db db;
    uint8_t relay[16];
    int64_t fence; /* of the last batch */
};

static struct outbox_sqlite *sqlite_of(struct outbox *o)
{
    return (struct outbox_sqlite *)o;
}

/* ------------------------------------------------------------------ open, close */

static once_result sqlite_outbox_connect(struct outbox *o, struct once_error *err)
{
    struct outbox_sqlite *s = sqlite_of(o);
    int64_t version = 0;
    sqlite_db_close(&s->db);
    int rc = sqlite3_open_v2(s->path, &s->db.handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK)
        return sqlite_fail(s->db.handle, rc, "open the database", err);
    once_result r = sqlite_schema_configure(s->db.handle, err);
    if (r == ONCE_OK)
        r = sqlite_schema_version(s->db.handle, SQLITE_SHARED_FILE, &version, err);
    if (r == ONCE_OK && version != sqlite_migration_count)
        r = once_fail(err, ONCE_INVALID,
                      "the database has no outbox, or one of an older version; once_sqlite_bind() creates it");
    return r == ONCE_OK ? sqlite_schema_attach(&s->db, true, err) : r;
}

static void sqlite_outbox_close(struct outbox *o)
{
    struct outbox_sqlite *s = sqlite_of(o);
    sqlite_db_close(&s->db);
    free(s->path);
    free(s);
}

static once_result begin(struct outbox_sqlite *s, struct once_error *err)
{
    if (s->db.handle == NULL)
        return once_fail(err, ONCE_UNAVAILABLE, "not connected");
    return sqlite_exec(s->db.handle, "BEGIN IMMEDIATE", "begin", err);
}

static once_result commit(struct outbox_sqlite *s, once_result r, struct once_error *err)
{
    if (r == ONCE_OK)
        r = sqlite_exec(s->db.handle, "COMMIT", "commit", err);
    if (r != ONCE_OK)
        sqlite3_exec(s->db.handle, "ROLLBACK", NULL, NULL, NULL);
    return r;
}

/* ------------------------------------------------------------------ a batch */

static uint8_t *copy(once_span *span)
{
    uint8_t *bytes = malloc(span->len > 0 ? span->len : 1);
    if (bytes != NULL && span->len > 0)
        memcpy(bytes, span->ptr, span->len);
    span->ptr = bytes;
    return bytes;
}

static void sqlite_outbox_batch_release(struct outbox_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        const struct message *m = &batch->messages[i].message;
        once_span all[] = { m->topic, m->key, m->content_type, m->headers, m->payload };
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            free((void *)(uintptr_t)all[j].ptr);
    }
    free(batch->messages);
    *batch = (struct outbox_batch){ 0 };
}

static bool read_message(struct sqlite_query *q, once_time now, struct outbox_message *out)
{
    struct message *m = &out->message;
    out->seq = sqlite_column_int(q, 0);
    snprintf(m->id, sizeof m->id, "%.*s", ONCE_SPAN_ARGS(sqlite_column_span(q, 1)));
    m->topic = sqlite_column_span(q, 2);
    m->has_key = !sqlite_column_is_null(q, 3);
    m->key = sqlite_column_span(q, 3);
    m->content_type = sqlite_column_span(q, 4);
    m->headers = sqlite_column_span(q, 5);
    m->payload = sqlite_column_span(q, 6);
    out->created_at = sqlite_column_int(q, 7);
    m->age_ms = now - out->created_at;
    m->refusals = (int32_t)sqlite_column_int(q, 8);
    out->delays = (int32_t)sqlite_column_int(q, 9);
    m->crashes = (int32_t)sqlite_column_int(q, 10);
    out->suspect = sqlite_column_int(q, 11) != 0;
    once_span *all[] = { &m->topic, &m->key, &m->content_type, &m->headers, &m->payload };
    bool ok = true;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ok = copy(all[i]) != NULL && ok;
    return ok;
}

static once_result fetch(struct outbox_sqlite *s, enum sqlite_statement statement, once_time now, int32_t most,
                         struct outbox_batch *batch, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&s->db, statement);
    bool memory = true;
    size_t bytes = 0;
    sqlite_bind_int(&q, now);
    sqlite_bind_int(&q, most);
    while (memory && bytes < OUTBOX_BATCH_BYTES && batch->count < (size_t)most && sqlite_step(&q)) {
        memory = read_message(&q, now, &batch->messages[batch->count++]);
        bytes += batch->messages[batch->count - 1].message.payload.len;
    }
    once_result r = sqlite_end(&q, "read messages", err);
    return r == ONCE_OK && !memory ? once_fail(err, ONCE_NO_MEMORY, "no memory for a batch") : r;
}

/* Looks for messages in a read transaction, so that an idle relay does not write. */
static once_result is_any(struct outbox_sqlite *s, enum sqlite_statement statement, once_time now, bool *any,
                          struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&s->db, statement);
    sqlite_bind_int(&q, now);
    *any = sqlite_step(&q);
    return sqlite_end(&q, "look for messages", err);
}

/* Takes the lease, if no other relay holds it. Messages that another relay left in flight become suspects. */
static once_result lease(struct outbox_sqlite *s, once_time now, int64_t lease_ms, bool *ours, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&s->db, SQL_outbox_relay);
    *ours = false;
    if (sqlite_step(&q)) {
        once_span relay = sqlite_column_span(&q, 0);
        *ours = sqlite_column_int(&q, 2) <= now || (relay.len == 16 && memcmp(relay.ptr, s->relay, 16) == 0);
        s->fence = sqlite_column_int(&q, 1) + 1;
    }
    once_result r = sqlite_end(&q, "read the lease", err);
    if (r != ONCE_OK || !*ours)
        return r;
    q = sqlite_query(&s->db, SQL_outbox_suspect);
    sqlite_bind_int(&q, now);
    r = sqlite_run(&q, "find suspects", err);
    if (r != ONCE_OK)
        return r;
    q = sqlite_query(&s->db, SQL_outbox_lease);
    sqlite_bind_blob(&q, once_span_of(s->relay, 16));
    sqlite_bind_int(&q, s->fence);
    sqlite_bind_int(&q, now + lease_ms);
    return sqlite_run(&q, "take the lease", err);
}

static once_result end_batch(struct outbox_sqlite *s, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&s->db, SQL_outbox_clear_in_flight);
    sqlite_bind_int(&q, s->fence);
    once_result r = sqlite_run(&q, "end a batch", err);
    if (r != ONCE_OK)
        return r;
    q = sqlite_query(&s->db, SQL_outbox_lease);
    sqlite_bind_blob(&q, once_span_of(s->relay, 16));
    sqlite_bind_int(&q, s->fence);
    sqlite_bind_int(&q, 0);
    return sqlite_run(&q, "give the lease back", err);
}

static once_result take_leased(struct outbox_sqlite *s, once_time now, int32_t most, bool alone,
                               struct outbox_batch *batch, struct once_error *err)
{
    once_result r = alone ? fetch(s, SQL_outbox_take_suspect, now, 1, batch, err) : ONCE_OK;
    if (r == ONCE_OK && batch->count == 0)
        r = fetch(s, SQL_outbox_take, now, most, batch, err);
    if (r == ONCE_OK && batch->count == 0)
        return end_batch(s, err);
    for (size_t i = 0; r == ONCE_OK && i < batch->count; i++) {
        struct sqlite_query q = sqlite_query(&s->db, SQL_outbox_set_in_flight);
        sqlite_bind_int(&q, batch->messages[i].seq);
        sqlite_bind_int(&q, s->fence);
        r = sqlite_run(&q, "begin a batch", err);
        batch->messages[i].fence = s->fence;
    }
    return r;
}

static once_result sqlite_outbox_take(struct outbox *o, int64_t lease_ms, int32_t most, bool alone,
                                      struct outbox_batch *batch, struct once_error *err)
{
    struct outbox_sqlite *s = sqlite_of(o);
    bool any = false, ours = false;
    if (s->db.handle == NULL)
        return once_fail(err, ONCE_UNAVAILABLE, "not connected");
    once_time now = sqlite_now(&s->db);
    once_result r = is_any(s, SQL_outbox_any, now, &any, err);
    if (r != ONCE_OK || !any)
        return r;
    batch->messages = calloc((size_t)most, sizeof *batch->messages);
    if (batch->messages == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a batch");
    r = begin(s, err);
    if (r == ONCE_OK) {
        r = lease(s, now, lease_ms, &ours, err);
        if (r == ONCE_OK && ours)
            r = take_leased(s, now, most, alone, batch, err);
        r = commit(s, r, err);
    }
    if (r != ONCE_OK)
        sqlite_outbox_batch_release(batch);
    return r;
}

/* ------------------------------------------------------------------ settling */

static once_result holds_lease(struct outbox_sqlite *s, bool *ours, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&s->db, SQL_outbox_relay);
    *ours = sqlite_step(&q) && sqlite_column_int(&q, 1) == s->fence;
    return sqlite_end(&q, "read the lease", err);
}

static once_result delete_message(struct outbox_sqlite *s, const struct outbox_message *m, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&s->db, SQL_outbox_delete);
    sqlite_bind_int(&q, m->seq);
    sqlite_bind_text(&q, m->message.id);
    return sqlite_run(&q, "remove a message", err);
}

static once_result bury(struct outbox_sqlite *s, const struct outbox_message *m, once_time now, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&s->db, SQL_outbox_put_dead);
    sqlite_bind_int(&q, m->seq);
    sqlite_bind_text(&q, m->message.id);
    sqlite_bind_int(&q, now);
    sqlite_bind_int(&q, m->verdict == OUTBOX_DEAD_REFUSED);
    sqlite_bind_text(&q, m->reason);
    once_result r = sqlite_run(&q, "store a dead letter", err);
    return r == ONCE_OK ? delete_message(s, m, err) : r;
}

static once_result record_failure(struct outbox_sqlite *s, const struct outbox_message *m, once_time now,
                                  struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&s->db, SQL_outbox_fail);
    sqlite_bind_int(&q, m->seq);
    sqlite_bind_text(&q, m->message.id);
    sqlite_bind_int(&q, now + m->wait_ms);
    sqlite_bind_int(&q, m->verdict == OUTBOX_REFUSED);
    sqlite_bind_int(&q, m->verdict == OUTBOX_UNREACHED);
    sqlite_bind_text(&q, m->reason);
    return sqlite_run(&q, "record a failure", err);
}

static once_result sqlite_outbox_settle(struct outbox *o, const struct outbox_batch *batch, struct once_error *err)
{
    struct outbox_sqlite *s = sqlite_of(o);
    bool ours = false;
    once_result r = begin(s, err);
    if (r != ONCE_OK)
        return r;
    once_time now = sqlite_now(&s->db);
    r = holds_lease(s, &ours, err);
    for (size_t i = 0; r == ONCE_OK && i < batch->count; i++) {
        const struct outbox_message *m = &batch->messages[i];
        if (m->verdict == OUTBOX_CONFIRMED)
            r = delete_message(s, m, err);
        else if (ours && (m->verdict == OUTBOX_DEAD_REFUSED || m->verdict == OUTBOX_DEAD_CRASHED))
            r = bury(s, m, now, err);
        else if (ours && m->verdict != OUTBOX_UNTRIED)
            r = record_failure(s, m, now, err);
    }
    if (r == ONCE_OK && ours)
        r = end_batch(s, err);
    ONCE_CRASH_POINT("relay.marked");
    return commit(s, r, err);
}

/* ------------------------------------------------------------------ the rest of a relay */

static once_result run_statement(struct outbox_sqlite *s, enum sqlite_statement statement, const once_time *now,
                                 const char *what, struct once_error *err)
{
    once_result r = begin(s, err);
    if (r != ONCE_OK)
        return r;
    struct sqlite_query q = sqlite_query(&s->db, statement);
    if (now != NULL)
        sqlite_bind_int(&q, *now);
    return commit(s, sqlite_run(&q, what, err), err);
}

static once_result sqlite_outbox_retry_now(struct outbox *o, struct once_error *err)
{
    return run_statement(sqlite_of(o), SQL_outbox_retry_now, NULL, "retry messages", err);
}

/* Scheduled messages whose time has come become pending, in the order of their times. */
static once_result sqlite_outbox_upkeep(struct outbox *o, struct once_error *err)
{
    enum { STEP = 1000 };
    struct outbox_sqlite *s = sqlite_of(o);
    if (s->db.handle == NULL)
        return once_fail(err, ONCE_UNAVAILABLE, "not connected");
    once_time now = sqlite_now(&s->db);
    bool any = true;
    once_result r = ONCE_OK;
    for (int i = 0; r == ONCE_OK && any && i < STEP; i++) {
        r = is_any(s, SQL_outbox_scheduled_due, now, &any, err);
        if (r == ONCE_OK && any)
            r = run_statement(s, SQL_outbox_enter, &now, "enter a scheduled message", err);
    }
    return r;
}

static once_result sqlite_outbox_set_idle(struct outbox *o, bool idle, struct once_error *err)
{
    (void)o, (void)idle, (void)err; /* SQLite cannot notify: the relay polls */
    return ONCE_OK;
}

static void sqlite_outbox_wait(struct outbox *o, int fd, int ms)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    (void)o;
    poll(&p, 1, ms);
}

static once_result sqlite_outbox_counts(struct outbox *o, struct outbox_counts *counts, struct once_error *err)
{
    struct outbox_sqlite *s = sqlite_of(o);
    once_time now = sqlite_now(&s->db);
    struct sqlite_query q = sqlite_query(&s->db, SQL_outbox_counts);
    *counts = (struct outbox_counts){ 0 };
    sqlite_bind_int(&q, now);
    if (sqlite_step(&q))
        *counts = (struct outbox_counts){
            .pending = sqlite_column_int(&q, 0),
            .stalled = sqlite_column_int(&q, 1),
            .scheduled = sqlite_column_int(&q, 2),
            .dead = sqlite_column_int(&q, 3),
            .lag_ms = sqlite_column_is_null(&q, 4) ? 0 : now - sqlite_column_int(&q, 4),
            .stalled_lag_ms = sqlite_column_is_null(&q, 5) ? 0 : now - sqlite_column_int(&q, 5),
        };
    return sqlite_end(&q, "count messages", err);
}

/* ------------------------------------------------------------------ for operators */

static void read_item(struct sqlite_query *q, message_item_fn *each, void *arg)
{
    struct outbox_item item = { .created_at = sqlite_column_int(q, 8), .delays = sqlite_column_int(q, 11) };
    items_sqlite_read(q, 3, &item.base);
    item.base.at = sqlite_column_int(q, 9);
    item.base.message.refusals = (int32_t)sqlite_column_int(q, 10);
    item.base.message.crashes = (int32_t)sqlite_column_int(q, 12);
    item.base.reason = sqlite_column_span(q, 13);
    each(arg, &item.base);
}

static once_result sqlite_outbox_query(struct outbox *o, const char *id, const struct message_filter *filter,
                                       message_item_fn *each, void *arg, struct once_error *err)
{
    return items_sqlite_query(&sqlite_of(o)->db, SQL_outbox_look, id, filter, read_item, each, arg, err);
}

static once_result do_action(struct outbox_sqlite *s, const char *id, bool retry, const char **did,
                             struct once_error *err)
{
    bool changed = false;
    *did = "absent";
    once_result r = retry ? items_sqlite_change(&s->db, SQL_outbox_revive, id, &changed, err) : ONCE_OK;
    if (r == ONCE_OK && (changed || !retry))
        r = items_sqlite_change(&s->db, SQL_outbox_dead_delete, id, &changed, err);
    if (r == ONCE_OK && changed)
        *did = retry ? "retried" : "dropped";
    if (r != ONCE_OK || changed)
        return r;
    r = items_sqlite_change(&s->db, retry ? SQL_outbox_due : SQL_outbox_drop, id, &changed, err);
    if (r == ONCE_OK && changed)
        *did = retry ? "hurried" : "dropped";
    return r;
}

static once_result sqlite_outbox_resolve(struct outbox *o, const char *id, const char *action, once_span actor,
                                         once_span reason, char did[16], struct once_error *err)
{
    struct outbox_sqlite *s = sqlite_of(o);
    const char *done = NULL;
    once_result r = begin(s, err);
    if (r != ONCE_OK)
        return r;
    r = do_action(s, id, strcmp(action, "retry") == 0, &done, err);
    if (r == ONCE_OK && strcmp(done, "absent") != 0)
        r = items_sqlite_audit(&s->db, "message", id, done, actor, reason, err);
    snprintf(did, 16, "%s", done);
    return commit(s, r, err);
}

static const struct outbox_ops sqlite_ops = {
    .connect = sqlite_outbox_connect,
    .close = sqlite_outbox_close,
    .take = sqlite_outbox_take,
    .settle = sqlite_outbox_settle,
    .batch_release = sqlite_outbox_batch_release,
    .retry_now = sqlite_outbox_retry_now,
    .upkeep = sqlite_outbox_upkeep,
    .set_idle = sqlite_outbox_set_idle,
    .wait = sqlite_outbox_wait,
    .counts = sqlite_outbox_counts,
    .query = sqlite_outbox_query,
    .resolve = sqlite_outbox_resolve,
};

struct outbox *outbox_sqlite_create(const char *path)
{
    struct outbox_sqlite *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->base.ops = &sqlite_ops;
    s->db.clock = &once_os_clock;
    s->path = strndup(path, strcspn(path, "?"));
    once_os_random(s->relay, sizeof s->relay);
    if (s->path == NULL) {
        free(s);
        return NULL;
    }
    return &s->base;
}
