/*
 * sqlite_enqueue.c - once_sqlite_enqueue(): a message in the caller's own transaction.
 *
 * One row in the caller's database: it exists if and only if the transaction commits (K12). `once relay` publishes it.
 */
#include "core/err.h"
#include "core/key.h"
#include "core/message.h"
#include "core/span.h"
#include "os/os.h"
#include "store/sqlite/bound.h"

static void bind_span_as_text(struct sqlite_query *q, once_span text)
{
    q->bound++;
    if (q->rc == SQLITE_OK)
        q->rc = sqlite3_bind_text(q->st, q->bound, (const char *)text.ptr, (int)text.len, SQLITE_STATIC);
}

/* A UUID without a time: a message may wait for longer than a key is valid, and a gateway must not refuse it for its
 * age (once_key_time). */
static void new_id(char id[ONCE_UUID_LEN + 1])
{
    enum { VERSION_AT = 14 };
    uint8_t random[10];
    once_time bits;
    once_os_random(random, sizeof random);
    once_os_random(&bits, sizeof bits);
    once_uuid7_format(bits & 0xffffffffffff, random, id);
    id[VERSION_AT] = '4';
}

once_result once_sqlite_enqueue(struct once_sqlite *bound, const struct once_message *m, char id[ONCE_UUID_LEN + 1],
                                struct once_error *err)
{
    struct sqlite_db *db = sqlite_bound_db(bound);
    char fresh[ONCE_UUID_LEN + 1];
    once_result r = once_message_check(m, err);
    if (r != ONCE_OK)
        return r;
    if (sqlite3_get_autocommit(db->handle))
        return once_fail(err, ONCE_INVALID, "not inside a transaction: BEGIN IMMEDIATE first");
    new_id(fresh);
    once_time now = sqlite_now(db);
    bool later = m->not_before > now;
    struct sqlite_query q = sqlite_query(db, SQL_outbox_insert);
    sqlite_bind_text(&q, fresh);
    bind_span_as_text(&q, m->topic);
    if (m->key.len > 0)
        sqlite_bind_blob(&q, m->key);
    else
        sqlite_bind_null(&q);
    bind_span_as_text(&q, m->content_type.len > 0 ? m->content_type : ONCE_LIT("application/octet-stream"));
    sqlite_bind_blob(&q, m->headers);
    sqlite_bind_blob(&q, m->payload);
    sqlite_bind_int(&q, now);
    sqlite_bind_int(&q, later ? m->not_before : 0);
    sqlite_bind_int(&q, later);
    r = sqlite_run(&q, "enqueue a message", err);
    if (r == ONCE_OK)
        memcpy(id, fresh, sizeof fresh);
    return r;
}
