/*
 * sqlite.c - flows on the caller's SQLite connection.
 *
 * Every transaction is a BEGIN IMMEDIATE: the rows that it read do not change until COMMIT. Leases are renewed
 * on the same connection, because a second connection that writes at the same time can corrupt a database in WAL
 * mode with Debian's SQLite 3.40.1 (FACT-4). The lease keeper holds the connection's mutex during its whole
 * transaction, so that no statement of the caller gets into it.
 *
 * K10: after an I/O error during COMMIT this connection cannot tell whether it took effect: in WAL mode the
 * transaction may appear after the database is opened again (FACT-2). That is FLOW_UNSURE.
 */
#include "core/err.h"
#include "core/span.h"
#include "flow/database.h"
#include "os/os.h"
#include "store/sqlite/bound.h"
#include "store/sqlite/db.h"

#include <stdlib.h>

struct flow_sqlite {
    struct once_flow_db base;
    sqlite3 *handle;
    struct once_sqlite *bound;
};

static struct flow_sqlite *own(struct once_flow_db *db)
{
    return (struct flow_sqlite *)db;
}

static bool is_idle(struct once_flow_db *db)
{
    return sqlite3_get_autocommit(own(db)->handle);
}

static bool is_open(struct once_flow_db *db)
{
    return !sqlite3_get_autocommit(own(db)->handle);
}

static once_result begin(struct once_flow_db *db, struct once_error *err)
{
    return sqlite_exec(own(db)->handle, "BEGIN IMMEDIATE", "begin a phase", err);
}

static void rollback(struct once_flow_db *db)
{
    if (is_open(db)) /* SQLite rolls back by itself after some errors */
        sqlite3_exec(own(db)->handle, "ROLLBACK", NULL, NULL, NULL);
}

static enum flow_fate commit(struct once_flow_db *db, const struct flow_change *mark, struct once_error *err)
{
    (void)mark;
    sqlite3 *handle = own(db)->handle;
    int rc = sqlite3_exec(handle, "COMMIT", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        return FLOW_COMMITTED;
    sqlite_fail(handle, rc, "commit a phase", err);
    bool whole = (rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_CONSTRAINT; /* the transaction is still open */
    rollback(db);
    if (!whole)
        once_error_prefix(err, "open the database again to find out whether it took effect");
    return whole ? FLOW_NOT_COMMITTED : FLOW_UNSURE;
}

static void lend(struct once_flow_db *db, struct once_local *local)
{
    local->sqlite = own(db)->handle;
}

static once_result lookup(struct once_flow_db *db, once_span tenant, once_span key, struct once_reply *reply,
                          struct once_error *err)
{
    return once_sqlite_lookup(own(db)->bound, tenant, key, reply, err);
}

static once_result claim(struct once_flow_db *db, const struct once_claim *claim, struct once_reply *reply,
                         struct once_error *err)
{
    return once_sqlite_claim(own(db)->bound, claim, reply, err);
}

static once_result take_over(struct once_flow_db *db, struct once_grant seen, int64_t lease_ms,
                             struct once_reply *reply, struct once_error *err)
{
    struct once_take_over take = { .seen = seen, .lease_ms = lease_ms };
    return once_sqlite_take_over(own(db)->bound, &take, reply, err);
}

static once_result guard(struct once_flow_db *db, struct once_grant grant, bool *fenced, struct once_error *err)
{
    once_result r = once_sqlite_guard(own(db)->bound, grant, err);
    *fenced = r == ONCE_INVALID;
    return *fenced ? ONCE_OK : r;
}

static once_result advance(struct once_flow_db *db, struct once_grant grant, once_span point, once_span checkpoint,
                           struct once_reply *reply, struct once_error *err)
{
    return once_sqlite_advance(own(db)->bound, grant, point, checkpoint, reply, err);
}

static once_result extend(struct once_flow_db *db, struct once_grant grant, int64_t lease_ms, struct once_reply *reply,
                          struct once_error *err)
{
    return once_sqlite_extend(own(db)->bound, grant, lease_ms, reply, err);
}

static once_result finish(struct once_flow_db *db, struct once_grant grant, const struct once_outcome *outcome,
                          struct once_reply *reply, struct once_error *err)
{
    return once_sqlite_finish(own(db)->bound, grant, outcome, reply, err);
}

static once_result list(struct once_flow_db *db, uint64_t before, struct once_page *page, once_time *now,
                        struct once_error *err)
{
    struct once_filter filter = { .states = 1u << ONCE_STATE_RUNNING | 1u << ONCE_STATE_FAILED,
                                  .before = before,
                                  .limit = FLOW_LIST_LEN };
    once_result r = sqlite_exec(own(db)->handle, "BEGIN", "begin a listing", err);
    if (r != ONCE_OK)
        return r;
    r = once_sqlite_list(own(db)->bound, &filter, page, err);
    *now = once_sqlite_now(own(db)->bound);
    sqlite3_exec(own(db)->handle, "ROLLBACK", NULL, NULL, NULL);
    return r;
}

static once_result renew(struct once_flow_db *db, struct once_grant grant, int64_t lease_ms, struct once_reply *reply,
                         struct once_error *err)
{
    sqlite3_mutex *mutex = sqlite3_db_mutex(own(db)->handle);
    sqlite3_mutex_enter(mutex);
    once_result r = is_idle(db) ? begin(db, err) : once_fail(err, ONCE_BUSY, "a call has opened a transaction");
    if (r == ONCE_OK) {
        r = once_sqlite_extend(own(db)->bound, grant, lease_ms, reply, err);
        if (r == ONCE_OK && commit(db, NULL, err) != FLOW_COMMITTED)
            r = ONCE_UNAVAILABLE;
        rollback(db);
    }
    sqlite3_mutex_leave(mutex);
    return r;
}

static void close_sqlite(struct once_flow_db *db)
{
    once_sqlite_unbind(own(db)->bound);
    free(db);
}

static const struct flow_ops sqlite_ops = {
    .is_idle = is_idle,
    .is_open = is_open,
    .begin = begin,
    .rollback = rollback,
    .commit = commit,
    .lend = lend,
    .lookup = lookup,
    .claim = claim,
    .take_over = take_over,
    .guard = guard,
    .advance = advance,
    .extend = extend,
    .finish = finish,
    .list = list,
    .renew = renew,
    .close = close_sqlite,
};

once_result once_flow_open_sqlite(struct sqlite3 *handle, struct once_flow_db **out, struct once_error *err)
{
    if (sqlite3_threadsafe() == 0)
        return once_fail(err, ONCE_INVALID,
                         "this SQLite was built without thread support, which renewing leases needs");
    struct flow_sqlite *s = calloc(1, sizeof *s);
    if (s == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for flows on a connection");
    once_result r = once_sqlite_bind(handle, NULL, &s->bound, err);
    if (r != ONCE_OK) {
        free(s);
        return r;
    }
    s->handle = handle;
    s->base.ops = &sqlite_ops;
    s->base.secret = *once_sqlite_secret(s->bound);
    flow_lease_keeper_init(&s->base.keeper, &s->base);
    *out = &s->base;
    return ONCE_OK;
}
