/* db.c - see sqlite/db.h. */
#include "store/sqlite/db.h"

#include "core/err.h"
#include "core/span.h"

#include <xxhash.h>

static const char *const statement_text[SQL_COUNT] = {
#define X(name) [SQL_##name] = sqlite_sql_##name,
    SQLITE_STATEMENTS(X)
#undef X
};

struct sqlite_query sqlite_query(struct sqlite_db *db, enum sqlite_statement statement)
{
    struct sqlite_query q = { .db = db, .rc = SQLITE_OK };
    sqlite3_stmt **slot = &db->statements[statement];
    if (*slot == NULL)
        q.rc = sqlite3_prepare_v3(db->handle, statement_text[statement], -1, SQLITE_PREPARE_PERSISTENT, slot, NULL);
    q.st = *slot;
    return q;
}

static void bound(struct sqlite_query *q, int rc)
{
    if (q->rc == SQLITE_OK)
        q->rc = rc;
}

void sqlite_bind_int(struct sqlite_query *q, int64_t value)
{
    q->bound++;
    if (q->rc == SQLITE_OK)
        bound(q, sqlite3_bind_int64(q->st, q->bound, value));
}

void sqlite_bind_null(struct sqlite_query *q)
{
    q->bound++;
    if (q->rc == SQLITE_OK)
        bound(q, sqlite3_bind_null(q->st, q->bound));
}

void sqlite_bind_blob(struct sqlite_query *q, once_span bytes)
{
    q->bound++;
    /* A NULL pointer would bind NULL instead of an empty blob. */
    const void *ptr = bytes.len > 0 ? (const void *)bytes.ptr : "";
    if (q->rc == SQLITE_OK)
        bound(q, sqlite3_bind_blob64(q->st, q->bound, ptr, bytes.len, SQLITE_STATIC));
}

void sqlite_bind_text(struct sqlite_query *q, const char *text)
{
    q->bound++;
    if (q->rc == SQLITE_OK)
        bound(q, sqlite3_bind_text(q->st, q->bound, text, -1, SQLITE_STATIC));
}

bool sqlite_step(struct sqlite_query *q)
{
    if (q->rc != SQLITE_OK)
        return false;
    int rc = sqlite3_step(q->st);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        q->rc = rc;
    return rc == SQLITE_ROW;
}

once_span sqlite_column_span(struct sqlite_query *q, int column)
{
    const void *ptr = sqlite3_column_blob(q->st, column);
    int len = sqlite3_column_bytes(q->st, column);
    if (ptr == NULL && len > 0) { /* conversion ran out of memory */
        q->rc = SQLITE_NOMEM;
        len = 0;
    }
    return once_span_of(ptr, (size_t)len);
}

int64_t sqlite_column_int(struct sqlite_query *q, int column)
{
    return sqlite3_column_int64(q->st, column);
}

bool sqlite_column_is_null(struct sqlite_query *q, int column)
{
    return sqlite3_column_type(q->st, column) == SQLITE_NULL;
}

once_result sqlite_end(struct sqlite_query *q, const char *what, struct once_error *err)
{
    once_result result = ONCE_OK;
    q->db->full = q->db->full || (q->rc & 0xff) == SQLITE_FULL;
    if (q->rc != SQLITE_OK)
        result = sqlite_fail(q->db->handle, q->rc, what, err);
    if (q->st != NULL)
        sqlite3_reset(q->st);
    return result;
}

once_result sqlite_run(struct sqlite_query *q, const char *what, struct once_error *err)
{
    sqlite_step(q);
    return sqlite_end(q, what, err);
}

once_result sqlite_fail(sqlite3 *handle, int rc, const char *what, struct once_error *err)
{
    const char *text = handle != NULL ? sqlite3_errmsg(handle) : sqlite3_errstr(rc);
    switch (rc & 0xff) {
    case SQLITE_NOMEM:
        return once_fail(err, ONCE_NO_MEMORY, "%s: out of memory", what);
    case SQLITE_FULL:
        return once_fail(err, ONCE_UNAVAILABLE, "%s: the disk is full; free space or run 'once expire'", what);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return once_fail(err, ONCE_BUSY, "%s: the database is locked by another program", what);
    case SQLITE_CORRUPT:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
        return once_fail(err, ONCE_CORRUPT, "%s: %s (%d)", what, text, rc);
    case SQLITE_NOTADB:
        return once_fail(err, ONCE_INVALID, "%s: the file is not a database", what);
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return once_fail(err, ONCE_UNAVAILABLE, "%s: the file cannot be written: %s", what, text);
    default:
        return once_fail(err, ONCE_UNAVAILABLE, "%s: %s (%d)", what, text, rc);
    }
}

once_result sqlite_exec(sqlite3 *handle, const char *sql, const char *what, struct once_error *err)
{
    int rc = sqlite3_exec(handle, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? ONCE_OK : sqlite_fail(handle, rc, what, err);
}

once_time sqlite_now(const struct sqlite_db *db)
{
    return db->wall_ms + (db->clock->steady(db->clock->arg) - db->steady_ms);
}

/* A checksum: a wrong anchor of the clock would expire everything, or nothing. */
static int64_t anchor_sum(int64_t seq, const uint8_t boot_id[16], once_time wall_ms, once_time steady_ms)
{
    uint8_t bytes[40];
    uint64_t numbers[] = { (uint64_t)seq, (uint64_t)wall_ms, (uint64_t)steady_ms };
    for (int i = 0; i < 24; i++)
        bytes[i] = (uint8_t)(numbers[i / 8] >> (8 * (i % 8)));
    memcpy(bytes + 24, boot_id, 16);
    return (int64_t)XXH64(bytes, sizeof bytes, 0);
}

static once_result anchor_find(struct sqlite_db *db, const uint8_t boot_id[16], bool *found, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(db, SQL_boot_find);
    sqlite_bind_blob(&q, once_span_of(boot_id, 16));
    *found = sqlite_step(&q);
    bool right = true;
    if (*found) {
        db->boot = sqlite_column_int(&q, 0);
        db->wall_ms = sqlite_column_int(&q, 1);
        db->steady_ms = sqlite_column_int(&q, 2);
        right = anchor_sum(db->boot, boot_id, db->wall_ms, db->steady_ms) == sqlite_column_int(&q, 3);
    }
    once_result r = sqlite_end(&q, "read the store's clock", err);
    return r == ONCE_OK && !right ? once_fail(err, ONCE_CORRUPT, "the store's clock does not match its checksum") : r;
}

static once_result anchor_insert(struct sqlite_db *db, const uint8_t boot_id[16], once_time wall, once_time steady,
                                 struct once_error *err)
{
    int64_t seq = 0;
    struct sqlite_query latest = sqlite_query(db, SQL_boot_latest);
    sqlite_bind_int(&latest, wall);
    if (sqlite_step(&latest)) {
        seq = sqlite_column_int(&latest, 0);
        wall = sqlite_column_int(&latest, 1);
    }
    once_result r = sqlite_end(&latest, "set the store's clock", err);
    if (r != ONCE_OK)
        return r;
    struct sqlite_query q = sqlite_query(db, SQL_boot_insert);
    sqlite_bind_int(&q, seq);
    sqlite_bind_blob(&q, once_span_of(boot_id, 16));
    sqlite_bind_int(&q, wall);
    sqlite_bind_int(&q, steady);
    sqlite_bind_int(&q, anchor_sum(seq, boot_id, wall, steady));
    return sqlite_run(&q, "set the store's clock", err);
}

once_result sqlite_clock_anchor(struct sqlite_db *db, bool may_write, struct once_error *err)
{
    uint8_t boot_id[16];
    db->clock->boot(db->clock->arg, boot_id);
    once_time wall = db->clock->wall(db->clock->arg);
    once_time steady = db->clock->steady(db->clock->arg);
    bool found = false;
    once_result r = anchor_find(db, boot_id, &found, err);
    if (r != ONCE_OK || found)
        return r;
    if (!may_write) { /* no process has written since this boot: no lease of this boot exists either */
        db->boot = 0;
        db->wall_ms = wall;
        db->steady_ms = steady;
        return ONCE_OK;
    }
    r = anchor_insert(db, boot_id, wall, steady, err);
    return r == ONCE_OK ? anchor_find(db, boot_id, &found, err) : r;
}

void sqlite_db_release(struct sqlite_db *db)
{
    for (int i = 0; i < SQL_COUNT; i++) {
        sqlite3_finalize(db->statements[i]);
        db->statements[i] = NULL;
    }
}

void sqlite_db_close(struct sqlite_db *db)
{
    sqlite_db_release(db);
    sqlite3_close(db->handle);
    *db = (struct sqlite_db){ .clock = db->clock };
}

once_result sqlite_db_make_durable(sqlite3 *handle, struct once_error *err)
{
    int rc = sqlite3_wal_checkpoint_v2(handle, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    if (rc != SQLITE_OK)
        return sqlite_fail(handle, rc, "make the log durable", err);
    sqlite3_file *log = NULL;
    rc = sqlite3_file_control(handle, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
    if (rc == SQLITE_OK && log != NULL && log->pMethods != NULL)
        rc = log->pMethods->xSync(log, SQLITE_SYNC_FULL);
    if (rc != SQLITE_OK)
        return sqlite_fail(handle, rc, "make the log durable", err);
    return ONCE_OK;
}
