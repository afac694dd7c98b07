/* schema.c - see sqlite/schema.h. */
#include "store/sqlite/schema.h"

#include "core/err.h"
#include "core/span.h"
#include "os/os.h"

#include <xxhash.h>

enum { BUSY_WAIT_MS = 5000, SECRET_LEN = 32 };

static once_result scalar(sqlite3 *handle, const char *sql, int64_t *value, struct once_error *err)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(handle, sql, -1, &st, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    *value = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    once_result r = rc == SQLITE_ROW || rc == SQLITE_DONE ? ONCE_OK : sqlite_fail(handle, rc, "read the schema", err);
    sqlite3_finalize(st);
    return r;
}

once_result sqlite_schema_configure(sqlite3 *handle, struct once_error *err)
{
    sqlite3_extended_result_codes(handle, 1);
    sqlite3_busy_timeout(handle, BUSY_WAIT_MS);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    /* Otherwise the last connection to close would checkpoint without our lock. */
    sqlite3_db_config(handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    return sqlite_exec(handle,
                       "PRAGMA synchronous = FULL;"
                       "PRAGMA wal_autocheckpoint = 0;" /* the writer checkpoints, between steps */
                       "PRAGMA journal_size_limit = 67108864;"
                       "PRAGMA cell_size_check = ON;"
                       "PRAGMA temp_store = MEMORY;"
                       "PRAGMA secure_delete = ON;" /* deleted bytes are overwritten: docs/sealing.md */
                       "PRAGMA mmap_size = 0;"
                       "PRAGMA cache_size = -16000;",
                       "set up the database", err);
}

static once_result version_read(sqlite3 *handle, enum sqlite_owner owner, int64_t *version, struct once_error *err)
{
    int64_t ours = 0, tables = 0, app = 0, user_version = 0;
    once_result r = scalar(handle, "SELECT count(*) FROM sqlite_schema WHERE name = 'once_meta'", &ours, err);
    if (r == ONCE_OK)
        r = scalar(handle, "SELECT count(*) FROM sqlite_schema", &tables, err);
    if (r == ONCE_OK)
        r = scalar(handle, "PRAGMA application_id", &app, err);
    if (r == ONCE_OK)
        r = scalar(handle, "PRAGMA user_version", &user_version, err);
    if (r != ONCE_OK)
        return r;
    *version = 0;
    bool own = app == SQLITE_APPLICATION_ID;
    if (ours > 0 && owner == SQLITE_OWN_FILE && !own)
        return once_fail(err, ONCE_INVALID,
                         "the file is another program's, with Once's tables in it: it can only be shared");
    if (own && owner == SQLITE_CALLERS_FILE)
        return once_fail(err, ONCE_INVALID, "the database file is a store: open it with once_open()");
    if (ours > 0) {
        r = scalar(handle, "SELECT value FROM once_meta WHERE name = 'schema'", version, err);
        if (own && user_version > *version)
            *version = user_version; /* both are set together; if they differ, the larger one decides */
        if (r == ONCE_OK && *version > sqlite_migration_count)
            r = once_fail(err, ONCE_INVALID,
                          "the store has version %lld, this program knows versions up to %d: use a newer program",
                          (long long)*version, sqlite_migration_count);
        return r;
    }
    if (owner != SQLITE_CALLERS_FILE && (tables > 0 || (app != 0 && app != SQLITE_APPLICATION_ID)))
        return once_fail(
            err, ONCE_INVALID,
            "the file is a database of another program (%lld tables, application id 0x%llx), left as it is",
            (long long)tables, (unsigned long long)app);
    return ONCE_OK;
}

/* In one transaction: another process may be making the store. */
once_result sqlite_schema_version(sqlite3 *handle, enum sqlite_owner owner, int64_t *version, struct once_error *err)
{
    bool alone = sqlite3_get_autocommit(handle) != 0;
    once_result r = alone ? sqlite_exec(handle, "BEGIN", "read the schema", err) : ONCE_OK;
    if (r == ONCE_OK)
        r = version_read(handle, owner, version, err);
    if (alone && !sqlite3_get_autocommit(handle))
        sqlite3_exec(handle, "COMMIT", NULL, NULL, NULL);
    return r;
}

bool sqlite_schema_is_own(sqlite3 *handle)
{
    int64_t app = 0;
    return scalar(handle, "PRAGMA application_id", &app, NULL) == ONCE_OK && app == SQLITE_APPLICATION_ID;
}

bool sqlite_schema_is_wal(sqlite3 *handle)
{
    int64_t wal = 0;
    if (!sqlite_schema_is_own(handle))
        return true; /* a caller's file: the caller chooses the journal mode */
    once_result r = scalar(handle, "SELECT journal_mode = 'wal' FROM pragma_journal_mode", &wal, NULL);
    return r == ONCE_OK && wal != 0;
}

once_result sqlite_schema_page_count(sqlite3 *handle, int64_t *pages, struct once_error *err)
{
    return scalar(handle, "PRAGMA page_count", pages, err);
}

static once_result meta_put(struct sqlite_db *db, const char *name, once_span bytes, int64_t number,
                            struct once_error *err)
{
    struct sqlite_query q = sqlite_query(db, SQL_meta_put);
    sqlite_bind_text(&q, name);
    if (bytes.ptr != NULL)
        sqlite_bind_blob(&q, bytes);
    else
        sqlite_bind_int(&q, number);
    return sqlite_run(&q, "describe the store", err);
}

static once_result apply_missing(struct sqlite_db *db, enum sqlite_owner owner, int64_t from, struct once_error *err)
{
    once_result r = ONCE_OK;
    for (int i = (int)from; r == ONCE_OK && i < sqlite_migration_count; i++) {
        r = sqlite_exec(db->handle, sqlite_migrations[i].sql, "create tables", err);
        if (r != ONCE_OK)
            once_error_prefix(err, "migration %s", sqlite_migrations[i].name);
    }
    if (r == ONCE_OK && from == 0) {
        uint8_t secret[SECRET_LEN], id[16];
        once_os_random(secret, sizeof secret);
        once_os_random(id, sizeof id);
        r = meta_put(db, "secret", once_span_of(secret, sizeof secret), 0, err);
        if (r == ONCE_OK)
            r = meta_put(db, "secret_sum", once_span_of(NULL, 0), (int64_t)XXH64(secret, sizeof secret, 0), err);
        if (r == ONCE_OK)
            r = meta_put(db, "store_id", once_span_of(id, sizeof id), 0, err);
        explicit_bzero(secret, sizeof secret);
    }
    if (r == ONCE_OK)
        r = meta_put(db, "schema", once_span_of(NULL, 0), sqlite_migration_count, err);
    if (r == ONCE_OK && owner != SQLITE_CALLERS_FILE) {
        char sql[96];
        snprintf(sql, sizeof sql, "PRAGMA application_id = %d; PRAGMA user_version = %d", SQLITE_APPLICATION_ID,
                 sqlite_migration_count);
        r = sqlite_exec(db->handle, sql, "mark the file", err);
    }
    return r;
}

static once_result migrate_locked(struct sqlite_db *db, enum sqlite_owner owner, bool may_migrate,
                                  struct once_error *err)
{
    int64_t version = 0;
    once_result r =
        sqlite_schema_version(db->handle, owner, &version, err); /* another process may have migrated it meanwhile */
    if (r != ONCE_OK || version == sqlite_migration_count)
        return r;
    if (!may_migrate)
        return once_fail(err, ONCE_INVALID, "the store has version %lld and needs %d: run 'once migrate'",
                         (long long)version, sqlite_migration_count);
    return apply_missing(db, owner, version, err);
}

once_result sqlite_schema_migrate(struct sqlite_db *db, enum sqlite_owner owner, bool may_migrate,
                                  struct once_error *err)
{
    once_result r = sqlite_exec(db->handle, "BEGIN IMMEDIATE", "begin a migration", err);
    if (r != ONCE_OK)
        return r;
    r = migrate_locked(db, owner, may_migrate, err);
    if (r == ONCE_OK)
        r = sqlite_exec(db->handle, "COMMIT", "commit a migration", err);
    if (r != ONCE_OK)
        sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
    return r;
}

/* With a wrong secret every key would be a new one, and executed again: so a flipped bit in it must be detected. */
once_result sqlite_schema_attach(struct sqlite_db *db, bool may_write, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(db, SQL_meta_get);
    sqlite_bind_text(&q, "secret");
    uint64_t sum = 0;
    size_t len = 0;
    if (sqlite_step(&q)) {
        once_span secret = sqlite_column_span(&q, 0);
        len = secret.len;
        sum = XXH64(secret.ptr, secret.len, 0);
        if (len == SECRET_LEN)
            once_mac_init(&db->secret, secret);
    }
    once_result r = sqlite_end(&q, "read the store's secret", err);
    int64_t kept = 0;
    if (r == ONCE_OK)
        r = scalar(db->handle, "SELECT value FROM once_meta WHERE name = 'secret_sum'", &kept, err);
    if (r == ONCE_OK && (len != SECRET_LEN || (uint64_t)kept != sum))
        r = once_fail(err, ONCE_CORRUPT, "the store's secret is damaged: no key can be found without it");
    return r == ONCE_OK ? sqlite_clock_anchor(db, may_write, err) : r;
}
