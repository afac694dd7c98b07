/*
 * test_sqlite_wal_vfs.c - SQLite's log in one piece: the same bytes, fewer writes, the same failures.
 */
#include "store/sqlite/wal_vfs.h"

#include "../test.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* ------------------------------------------------------------------ what reaches the system */

static unsigned writes; /* since it was last asked */
static bool full;       /* there is no room any more */
static size_t write_len_max;

static ssize_t counted_pwrite(int fd, const void *bytes, size_t len, off_t offset)
{
    writes++;
    write_len_max = len > write_len_max ? len : write_len_max;
    if (full) {
        errno = ENOSPC;
        return -1;
    }
    return pwrite(fd, bytes, len, offset);
}

static void watch_writes(void)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    vfs->xSetSystemCall(vfs, "pwrite", (sqlite3_syscall_ptr)counted_pwrite);
    vfs->xSetSystemCall(vfs, "pwrite64", (sqlite3_syscall_ptr)counted_pwrite);
}

/* ------------------------------------------------------------------ a database */

static char folder[64], path[96];

static sqlite3 *open_db(const char *vfs)
{
    sqlite3 *db = NULL;
    CHECK(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs) == SQLITE_OK);
    CHECK(sqlite3_exec(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0", NULL,
                       NULL, NULL) == SQLITE_OK);
    return db;
}

static void begin(void)
{
    snprintf(folder, sizeof folder, "/tmp/once-log-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/db", folder);
    CHECK(sqlite_wal_vfs() != NULL);
}

static void end(void)
{
    char command[96];
    static const char *const suffixes[] = { "", "-wal", "-shm" };
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command, "%s/db%s", folder, suffixes[i]);
        unlink(command);
    }
    CHECK(rmdir(folder) == 0);
}

/* A transaction of about so many pages. */
static int put(sqlite3 *db, int id, int pages)
{
    char sql[160];
    snprintf(sql, sizeof sql, "INSERT INTO t VALUES (%d, printf('%%.%dc%%d', 'x', %d))", id, pages * 4080, id);
    return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

static int64_t number(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *st = NULL;
    CHECK(sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK);
    int64_t value = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : -1;
    sqlite3_finalize(st);
    return value;
}

/* ------------------------------------------------------------------ cases */

static void log__a_commit_is_one_write(void)
{
    begin();
    sqlite3 *db = open_db(sqlite_wal_vfs());
    CHECK(sqlite3_exec(db, "CREATE TABLE t (id INTEGER PRIMARY KEY, b TEXT)", NULL, NULL, NULL) == SQLITE_OK);
    writes = 0;
    CHECK(put(db, 1, 10) == SQLITE_OK);
    EXPECT(writes == 1);
    sqlite3_close(db);
    end();
}

/* Sizes around which the pieces of a transaction are full, and around what SQLite's own VFS can write. */
static void log__of_every_size_is_read_by_others(void)
{
    begin();
    sqlite3 *db = open_db(sqlite_wal_vfs()), *other = NULL;
    CHECK(sqlite3_exec(db, "CREATE TABLE t (id INTEGER PRIMARY KEY, b TEXT)", NULL, NULL, NULL) == SQLITE_OK);
    other = open_db(NULL);
    int64_t total = 0;
    write_len_max = 0;
    for (int pages = 1; pages <= 140; pages++) {
        EXPECT(put(db, pages, pages) == SQLITE_OK);
        total += pages * 4080 + 1 + (pages > 9) + (pages > 99);
        if (pages % 7 == 0)
            EXPECT(number(other, "SELECT sum(length(b)) FROM t") == total);
        if (pages % 50 == 0)
            EXPECT(sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL) == SQLITE_OK);
    }
    EXPECT(write_len_max > 64 << 10);
    EXPECT(write_len_max <= SQLITE_WAL_VFS_BUFFER_MAX);
    EXPECT(number(other, "SELECT sum(length(b)) FROM t") == total);
    EXPECT(number(other, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'") == 0);
    sqlite3_close(other);
    sqlite3_close(db);
    end();
}

/* Its cache spills into the log in the middle of a transaction, and what was spilled is read again. */
static void log__what_is_spilled_is_found_and_rolled_back(void)
{
    begin();
    sqlite3 *db = open_db(sqlite_wal_vfs());
    CHECK(sqlite3_exec(db, "CREATE TABLE t (id INTEGER PRIMARY KEY, b TEXT); PRAGMA cache_size = 10; BEGIN", NULL, NULL,
                       NULL) == SQLITE_OK);
    for (int i = 1; i <= 60; i++)
        CHECK(put(db, i, 3) == SQLITE_OK);
    EXPECT(number(db, "SELECT count(*) FROM t WHERE CAST(substr(b, 12241) AS INTEGER) = id") == 60);
    CHECK(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL) == SQLITE_OK);
    CHECK(put(db, 7, 1) == SQLITE_OK);
    sqlite3 *other = open_db(NULL);
    EXPECT(number(other, "SELECT count(*) FROM t") == 1);
    EXPECT(number(other, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'") == 0);
    sqlite3_close(other);
    sqlite3_close(db);
    end();
}

static void log__that_cannot_be_written_fails_the_commit(void)
{
    begin();
    sqlite3 *db = open_db(sqlite_wal_vfs());
    CHECK(sqlite3_exec(db, "CREATE TABLE t (id INTEGER PRIMARY KEY, b TEXT)", NULL, NULL, NULL) == SQLITE_OK);
    CHECK(put(db, 1, 1) == SQLITE_OK);
    full = true;
    EXPECT((put(db, 2, 5) & 0xff) == SQLITE_FULL);
    full = false;
    EXPECT(number(db, "SELECT count(*) FROM t") == 1);
    EXPECT(put(db, 3, 5) == SQLITE_OK);
    sqlite3 *other = open_db(NULL);
    EXPECT(number(other, "SELECT sum(id) FROM t") == 4);
    sqlite3_close(other);
    sqlite3_close(db);
    end();
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(log__a_commit_is_one_write),
        TEST(log__of_every_size_is_read_by_others),
        TEST(log__what_is_spilled_is_found_and_rolled_back),
        TEST(log__that_cannot_be_written_fails_the_commit),
    };
    watch_writes();
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
