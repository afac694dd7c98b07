/*
 * store.c - the embedded store: open, one durable step, reopen, close.
 *
 * Invariants: K4 apply() returns after COMMIT did, with synchronous=FULL: its answers are on disk.
 *             K10 a COMMIT that fails is neither done nor undone (FACT-2: in WAL mode
 *                its rows may come back to life). The store answers UNKNOWN; reopen() closes
 *                the connection, lets SQLite recover, and checkpoints everything into the
 *                database file before it trusts it: after a failed fsync the log's pages in
 *                the cache prove nothing.
 *             SQLITE-1 only the holder of the lock writes or checkpoints, and only to a file that
 *                is still where it was opened: writes to a removed or replaced file are lost
 *                when this process ends, and another process may hold the new lock.
 */
#include "store/sqlite/store.h"

#include "core/duration.h"
#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "os/crash_point.h"
#include "os/os.h"
#include "store/sqlite/recent.h"
#include "store/sqlite/route.h"
#include "store/sqlite/schema.h"
#include "store/sqlite/wal_vfs.h"

enum {
    CHECKPOINT_PAGES_MIN = 100,        /* the log of a small store stays small: it must fit the disk too */
    CHECKPOINT_PAGES_MAX = 1000,       /* 4 MiB of log: a pause of a few milliseconds */
    RESERVE_LEN_DEFAULT = 1024 * 1024, /* an expiry step's log */
};

/* ------------------------------------------------------------------ the connection */

static int on_commit_pages(void *arg, sqlite3 *handle, const char *name, int pages)
{
    (void)handle;
    (void)name;
    ((struct sqlite_store *)arg)->wal_pages = pages;
    return SQLITE_OK;
}

static void disconnect(struct sqlite_store *s)
{
    sqlite_index_release(&s->index);
    sqlite_db_release(&s->db);
    sqlite3_close(s->db.handle);
    s->db.handle = NULL;
}

static once_result open_handle(struct sqlite_store *s, struct once_error *err)
{
    int rc =
        sqlite3_open_v2(s->files.path, &s->db.handle,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_NOFOLLOW,
                        sqlite_wal_vfs());
    if (rc != SQLITE_OK)
        return sqlite_fail(s->db.handle, rc, "open the database", err);
    return sqlite_schema_configure(s->db.handle, err);
}

static enum sqlite_owner owner_of(const struct sqlite_store *s)
{
    return s->base.shared ? SQLITE_SHARED_FILE : SQLITE_OWN_FILE;
}

/* Makes an empty file a store, or migrates an older one. */
static once_result bring_up_to_date(struct sqlite_store *s, int64_t version, struct once_error *err)
{
    once_result r = ONCE_OK;
    if (!sqlite_schema_is_wal(s->db.handle) || version == 0)
        r = sqlite_exec(s->db.handle, "PRAGMA journal_mode = WAL", "set up the log", err);
    return r == ONCE_OK ? sqlite_schema_migrate(&s->db, owner_of(s), !s->no_migrate, err) : r;
}

/* Opens, reads secret, clock and key index. Without the lock nothing may be written: *ready is false if a write was
 * needed. */
static once_result connect(struct sqlite_store *s, bool locked, bool *ready, struct once_error *err)
{
    int64_t version = 0;
    *ready = false;
    once_result r = open_handle(s, err);
    if (r == ONCE_OK)
        r = sqlite_schema_version(s->db.handle, owner_of(s), &version, err);
    bool current = r == ONCE_OK && version == sqlite_migration_count && sqlite_schema_is_wal(s->db.handle);
    if (r == ONCE_OK && !current && locked) {
        r = bring_up_to_date(s, version, err);
        current = r == ONCE_OK;
    }
    if (r == ONCE_OK && current)
        r = sqlite_schema_attach(&s->db, locked, err);
    if (r == ONCE_OK && current && !s->base.shared) /* a long-lived owner: 64 MiB of page cache */
        r = sqlite_exec(s->db.handle, "PRAGMA cache_size = -65536", "set up the database", err);
    if (r == ONCE_OK && current)
        r = sqlite_index_init(&s->index, &s->db, !s->base.shared, err);
    if (r != ONCE_OK || !current) {
        disconnect(s);
        return r;
    }
    s->callers = !sqlite_schema_is_own(s->db.handle);
    sqlite3_wal_hook(s->db.handle, on_commit_pages, s);
    s->wal_pages_max = CHECKPOINT_PAGES_MIN;
    s->base.secret = s->db.secret;
    s->protocol.db = &s->db;
    s->protocol.index = &s->index;
    *ready = true;
    return ONCE_OK;
}

static once_result make_durable(struct sqlite_store *s, struct once_error *err)
{
    if (s->callers)
        return ONCE_OK;
    once_result r = sqlite_db_make_durable(s->db.handle, err);
    if (r != ONCE_OK)
        return r;
    s->files.suspect = false;
    return ONCE_OK;
}

/* ------------------------------------------------------------------ a step */

/* Whether the file at the path is not ours any more, or the lock file was replaced. */
static bool is_displaced(const struct sqlite_store *s)
{
    int moved = 0;
    bool owned = s->opened && !s->base.shared;
    if (s->db.handle != NULL && sqlite3_file_control(s->db.handle, "main", SQLITE_FCNTL_HAS_MOVED, &moved) != SQLITE_OK)
        moved = 0;
    return moved != 0 || (owned && !sqlite_files_lock_is_current(&s->files));
}

static once_result fail_displaced(const struct sqlite_store *s, struct once_error *err)
{
    return once_fail(err, ONCE_UNAVAILABLE,
                     "'%s', or its lock, was removed or replaced while it was in use: put it back, or start again",
                     s->files.path);
}

once_result sqlite_store_begin(struct sqlite_store *s, bool writing, struct once_error *err)
{
    if (s->broken)
        return once_fail(err, ONCE_UNAVAILABLE, "the store failed and could not be opened again");
    if (is_displaced(s))
        return fail_displaced(s, err);
    bool lock = s->base.shared && writing;
    once_result r = lock ? sqlite_files_lock(&s->files, false, err) : ONCE_OK;
    if (r != ONCE_OK)
        return r;
    ONCE_CRASH_POINT("sqlite.locked");
    if (lock && s->files.suspect)
        r = make_durable(s, err);
    if (r != ONCE_OK) {
        sqlite_files_unlock(&s->files, false);
        return r;
    }
    r = sqlite_exec(s->db.handle, writing ? "BEGIN IMMEDIATE" : "BEGIN", "begin a transaction", err);
    s->anchoring = writing && s->db.boot == 0; /* opened without the lock, as the first process since boot */
    if (r == ONCE_OK && s->anchoring)
        r = sqlite_clock_anchor(&s->db, true, err);
    if (r == ONCE_OK)
        r = sqlite_index_begin(&s->index, writing, err);
    if (r != ONCE_OK) {
        sqlite_store_rollback(s);
        return r;
    }
    s->protocol.now = sqlite_now(&s->db);
    sqlite_routes_begin(&s->protocol);
    s->changes_at_begin = sqlite3_total_changes64(s->db.handle);
    ONCE_CRASH_POINT("sqlite.begun");
    return ONCE_OK;
}

static void roll_back(struct sqlite_store *s, bool clean)
{
    if (!sqlite3_get_autocommit(s->db.handle))
        sqlite3_exec(s->db.handle, "ROLLBACK", NULL, NULL, NULL);
    sqlite_index_rolled_back(&s->index);
    sqlite_recent_clear(&s->protocol);
    if (s->anchoring) /* the anchor was rolled back, too */
        s->db.boot = 0;
    s->anchoring = false;
    if (s->base.shared)
        sqlite_files_unlock(&s->files, clean);
}

void sqlite_store_rollback(struct sqlite_store *s)
{
    roll_back(s, true);
}

void sqlite_store_end_reading(struct sqlite_store *s)
{
    if (!sqlite3_get_autocommit(s->db.handle))
        sqlite3_exec(s->db.handle, "ROLLBACK", NULL, NULL, NULL);
}

/* How long the log may get: a quarter of the database, within bounds. */
static int checkpoint_pages(struct sqlite_store *s)
{
    int64_t pages = 0;
    if (sqlite_schema_page_count(s->db.handle, &pages, NULL) != ONCE_OK)
        return CHECKPOINT_PAGES_MIN;
    pages /= 4;
    return pages < CHECKPOINT_PAGES_MIN   ? CHECKPOINT_PAGES_MIN
           : pages > CHECKPOINT_PAGES_MAX ? CHECKPOINT_PAGES_MAX
                                          : (int)pages;
}

/* Between steps, by the writer, under its lock: so there are never two at once. After a failure the rest stays in the
 * log; nothing is lost. */
static void checkpoint_if_due(struct sqlite_store *s)
{
    if (s->callers || s->wal_pages < s->wal_pages_max)
        return;
    sqlite3_wal_checkpoint_v2(s->db.handle, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    s->wal_pages = 0;
    s->wal_pages_max = checkpoint_pages(s);
}

void sqlite_store_checkpoint(struct sqlite_store *s, bool truncate)
{
    if (s->callers || (s->base.shared && sqlite_files_lock(&s->files, false, NULL) != ONCE_OK))
        return;
    sqlite3_wal_checkpoint_v2(s->db.handle, NULL, truncate ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE,
                              NULL, NULL);
    if (s->base.shared)
        sqlite_files_unlock(&s->files, !s->files.suspect);
}

/* K10: writes a row that names the step, so that a reopen can find out whether it committed. */
static once_result mark_step(struct sqlite_store *s, struct once_error *err)
{
    if (sqlite3_total_changes64(s->db.handle) == s->changes_at_begin)
        return ONCE_OK; /* nothing was written: answers only */
    struct sqlite_query q = sqlite_query(&s->db, SQL_batch_put);
    sqlite_bind_int(&q, s->writer[0] % 64);
    sqlite_bind_blob(&q, once_span_of(s->writer, sizeof s->writer));
    sqlite_bind_int(&q, ++s->step);
    sqlite_bind_int(&q, s->protocol.now);
    return sqlite_run(&q, "sign a step", err);
}

static once_result find_fate(struct sqlite_store *s, enum once_fate *fate, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&s->db, SQL_batch_find);
    sqlite_bind_int(&q, s->writer[0] % 64);
    sqlite_bind_blob(&q, once_span_of(s->writer, sizeof s->writer));
    sqlite_bind_int(&q, s->step);
    /* Another writer may have taken the slot since: its absence proves nothing. */
    *fate = sqlite_step(&q) ? ONCE_FATE_COMMITTED : ONCE_FATE_UNSURE;
    return sqlite_end(&q, "look up a step", err);
}

once_result sqlite_store_commit(struct sqlite_store *s, struct once_error *err)
{
    once_result r = sqlite_index_close_segment(&s->index, err);
    if (r == ONCE_OK)
        r = mark_step(s, err);
    if (r != ONCE_OK) {
        sqlite_store_rollback(s);
        return r;
    }
    ONCE_CRASH_POINT("sqlite.applied");
    int rc = sqlite3_exec(s->db.handle, "COMMIT", NULL, NULL, NULL);
    if (rc != SQLITE_OK) {
        r = sqlite_fail(s->db.handle, rc, "commit", err);
        roll_back(s, (rc & 0xff) == SQLITE_FULL);
        /* On a full disk the commit record is certainly incomplete: nothing was committed. Any other error is
         * uncertain. */
        s->db.full = (rc & 0xff) == SQLITE_FULL;
        if (s->db.full)
            return r;
        if (err != NULL)
            err->result = ONCE_UNKNOWN;
        return ONCE_UNKNOWN;
    }
    ONCE_CRASH_POINT("sqlite.committed");
    s->commits++;
    s->anchoring = false;
    sqlite_index_committed(&s->index);
    checkpoint_if_due(s);
    if (s->base.shared)
        sqlite_files_unlock(&s->files, true);
    ONCE_CRASH_POINT("sqlite.unlocked");
    return ONCE_OK;
}

once_result sqlite_store_end(struct sqlite_store *s, bool writing, once_result r, struct once_error *err)
{
    if (!writing)
        sqlite_store_end_reading(s);
    else if (r != ONCE_OK)
        sqlite_store_rollback(s);
    else
        r = sqlite_store_commit(s, err);
    return r;
}

once_result sqlite_store_fences(struct sqlite_store *s, uint64_t after, int64_t *first, int64_t *last,
                                struct once_error *err)
{
    struct sqlite_query q = sqlite_query(&s->db, SQL_fence_range);
    sqlite_bind_int(&q, (int64_t)after);
    *first = *last = 0;
    if (sqlite_step(&q)) {
        *first = sqlite_column_int(&q, 0);
        *last = sqlite_column_int(&q, 1);
    }
    return sqlite_end(&q, "read the range of fences", err);
}

static once_result apply_once(struct sqlite_store *s, struct once_op *const *ops, size_t count, bool writing,
                              struct once_error *err)
{
    once_result r = sqlite_store_begin(s, writing, err);
    if (r != ONCE_OK)
        return r;
    for (size_t i = 0; r == ONCE_OK && i < count; i++) {
        r = sqlite_op_apply(&s->protocol, ops[i], err);
        if (r == ONCE_OK && sqlite3_get_autocommit(s->db.handle)) /* the next statement would commit by itself */
            r = once_fail(err, ONCE_UNAVAILABLE, "SQLite rolled the transaction back");
    }
    return sqlite_store_end(s, writing, r, err);
}

/* Forgotten bytes must not stay in the log: checkpoints it and truncates it. A concurrent reader prevents that; then a
 * later checkpoint, or the next reuse of the log, does it. */
static void erase_log(struct sqlite_store *s, struct once_op *const *ops, size_t count)
{
    bool forgot = false;
    for (size_t i = 0; i < count; i++)
        forgot = forgot || (ops[i]->request->verb == ONCE_VERB_FORGET && ops[i]->result == ONCE_OK &&
                            ops[i]->reply.arm == ONCE_ARM_DONE);
    if (forgot)
        sqlite_store_checkpoint(s, true);
}

static once_result apply(struct once_store *base, struct once_op *const *ops, size_t count, struct once_error *err)
{
    struct sqlite_store *s = (struct sqlite_store *)base;
    bool writing = false;
    for (size_t i = 0; i < count; i++)
        writing = writing || ops[i]->request->verb != ONCE_VERB_LOOKUP;
    s->db.full = false;
    once_result r = apply_once(s, ops, count, writing, err);
    if (r == ONCE_OK)
        erase_log(s, ops, count);
    if (r != ONCE_UNAVAILABLE || !s->db.full)
        return r;
    /* The disk is full, but the database may have free pages: after a checkpoint the log has room again. */
    sqlite_store_checkpoint(s, false);
    for (size_t i = 0; i < count; i++)
        once_reply_release(&ops[i]->reply);
    return apply_once(s, ops, count, writing, err);
}

/* ------------------------------------------------------------------ reopening */

static once_result reopen(struct once_store *base, enum once_fate *fate, struct once_error *err)
{
    struct sqlite_store *s = (struct sqlite_store *)base;
    s->broken = true;
    if (is_displaced(s)) /* the file at the path is not ours: neither recover it nor write to it */
        return fail_displaced(s, err);
    disconnect(s);
    sqlite_recent_clear(&s->protocol);
    once_result r = s->base.shared ? sqlite_files_lock(&s->files, false, err) : ONCE_OK;
    if (r != ONCE_OK)
        return r;
    bool ready = false;
    r = connect(s, true, &ready, err);
    if (r == ONCE_OK)
        r = make_durable(s, err);
    if (r == ONCE_OK)
        r = find_fate(s, fate, err);
    s->broken = r != ONCE_OK;
    if (r != ONCE_OK)
        disconnect(s);
    if (s->base.shared)
        sqlite_files_unlock(&s->files, r == ONCE_OK);
    return r;
}

/* ------------------------------------------------------------------ open, close */

static once_result stats(struct once_store *base, struct once_stats *stats, struct once_error *err)
{
    struct sqlite_store *s = (struct sqlite_store *)base;
    once_result r = sqlite_store_begin(s, false, err);
    if (r != ONCE_OK)
        return r;
    r = sqlite_index_count(&s->index, &stats->attempts, err);
    stats->commits = s->commits;
    stats->now = s->protocol.now;
    stats->bytes = sqlite_files_size(&s->files);
    sqlite_store_end_reading(s);
    return r;
}

static once_result read_clock(struct once_store *base, once_time *now, struct once_error *err)
{
    struct sqlite_store *s = (struct sqlite_store *)base;
    once_result r = sqlite_store_begin(s, false, err);
    if (r != ONCE_OK)
        return r;
    *now = s->protocol.now;
    sqlite_store_end_reading(s);
    return ONCE_OK;
}

static void close_store(struct once_store *base)
{
    struct sqlite_store *s = (struct sqlite_store *)base;
    /* An owner leaves an empty log behind; a process that shares the file must not wait for that. */
    if (s->db.handle != NULL && !s->base.shared && !is_displaced(s))
        sqlite3_wal_checkpoint_v2(s->db.handle, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    disconnect(s);
    if (s->opened && !s->base.shared)
        sqlite_files_unlock(&s->files, !s->broken);
    once_buf_release(&s->protocol.scratch);
    free(s->protocol.recent);
    sqlite_files_release(&s->files);
    explicit_bzero(&s->base.secret, sizeof s->base.secret);
    free(s);
}

static const struct once_store_ops ops = {
    .name = "sqlite",
    .apply = apply,
    .reopen = reopen,
    .list = sqlite_store_list,
    .sweep = sqlite_store_sweep,
    .lookup_many = sqlite_store_lookup_many,
    .history = sqlite_store_history,
    .expire = sqlite_store_expire,
    .check = sqlite_store_check,
    .stats = stats,
    .clock = read_clock,
    .usage = sqlite_store_usage,
    .seal_keys = sqlite_store_seal_keys,
    .close = close_store,
};

static once_result read_params(once_span query, bool *keytext, uint64_t *reserve_len, struct once_error *err)
{
    static const char *const known[] = { "keytext", "reserve", NULL };
    once_result r = once_url_check(query, known, err);
    if (r != ONCE_OK)
        return r;
    once_span value;
    *keytext = true;
    if (once_url_param(query, "keytext", &value)) {
        if (!once_span_equal(value, ONCE_LIT("on")) && !once_span_equal(value, ONCE_LIT("off")))
            return once_fail(err, ONCE_INVALID, "keytext=%.*s: it is on or off", ONCE_SPAN_ARGS(value));
        *keytext = once_span_equal(value, ONCE_LIT("on"));
    }
    *reserve_len = RESERVE_LEN_DEFAULT;
    if (once_url_param(query, "reserve", &value))
        r = once_size_parse(value, reserve_len, err);
    return r;
}

/* The application decides how private its own database is. Checked after opening: a file that is not a store gets that
 * error, not one about its mode. */
static once_result check_private(const struct sqlite_store *s, struct once_error *err)
{
    return s->callers ? ONCE_OK : sqlite_files_check_private(&s->files, err);
}

/* A process that shares the file opens it without the lock if it can, so that reading works while another process owns
 * it. */
static once_result open_files(struct sqlite_store *s, struct once_error *err)
{
    bool ready = false;
    once_result r = sqlite_files_prepare(&s->files, !s->no_migrate, err);
    if (r == ONCE_OK && s->base.shared && !sqlite_files_is_suspect(&s->files))
        r = connect(s, false, &ready, err);
    if (r != ONCE_OK || ready)
        return r == ONCE_OK ? check_private(s, err) : r;
    r = sqlite_files_lock(&s->files, !s->base.shared, err);
    if (r != ONCE_OK)
        return r;
    r = connect(s, true, &ready, err);
    if (r == ONCE_OK)
        r = check_private(s, err);
    if (r == ONCE_OK && s->files.suspect)
        r = make_durable(s, err);
    if (r == ONCE_OK && !s->callers)
        sqlite_files_reserve_fill(&s->files);
    s->opened = r == ONCE_OK;
    bool untouched = r == ONCE_INVALID && !s->files.suspect; /* not a store, or a newer version */
    if (s->base.shared || r != ONCE_OK)
        sqlite_files_unlock(&s->files, r == ONCE_OK || untouched);
    return r;
}

once_result once_store_sqlite_url_check(once_span rest, struct once_error *err)
{
    once_span path, query;
    bool keytext;
    uint64_t reserve_len;
    once_span_cut(rest, '?', &path, &query);
    once_result r = sqlite_path_check(path, err);
    return r == ONCE_OK ? read_params(query, &keytext, &reserve_len, err) : r;
}

once_result once_store_sqlite_open(once_span rest, const struct once_options *options, struct once_store **out,
                                   struct once_error *err)
{
    once_span path, query;
    once_span_cut(rest, '?', &path, &query);
    struct sqlite_store *s = calloc(1, sizeof *s);
    if (s == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a store");
    s->base.ops = &ops;
    s->base.shared = options->shared;
    s->base.encoded = true;
    s->base.has_sweep = true;
    s->base.schema_version = sqlite_migration_count;
    s->no_migrate = options->no_migrate;
    s->db.clock = options->clock;
    once_os_random(s->writer, sizeof s->writer);
    s->files.lock_fd = -1;
    once_buf_init(&s->protocol.scratch, ONCE_BODY_LEN_MAX + 1);
    uint64_t reserve_len = 0;
    if (!options->shared) /* without memory for the cache, rows are read */
        s->protocol.recent = calloc(SQLITE_RECENT_LEN, sizeof *s->protocol.recent);
    once_result r = read_params(query, &s->protocol.keytext, &reserve_len, err);
    if (r == ONCE_OK)
        r = sqlite_files_init(&s->files, path, reserve_len, options->lock_wait_ms, err);
    if (r == ONCE_OK)
        r = open_files(s, err);
    if (r != ONCE_OK) {
        once_error_prefix(err, "sqlite:%.*s", ONCE_SPAN_ARGS(path));
        close_store(&s->base);
        return r;
    }
    *out = &s->base;
    return ONCE_OK;
}
