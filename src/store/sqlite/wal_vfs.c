/* wal_vfs.c - see sqlite/wal_vfs.h. */
#include "store/sqlite/wal_vfs.h"

#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The memory that SQLite gives us for a file: our part, then that of the VFS below. */
struct log_file {
    sqlite3_file base;
    sqlite3_file *below;
    uint8_t *bytes; /* SQLITE_WAL_VFS_BUFFER_MAX of them; NULL: nothing is gathered, for want of memory */
    int len;        /* gathered */
    sqlite3_int64 offset;
};

static struct log_file *log_of(sqlite3_file *file)
{
    return (struct log_file *)file;
}

/* If a write fails its bytes are dropped: the transaction fails. */
static int write_out(struct log_file *f)
{
    int len = f->len;
    f->len = 0;
    return len == 0 ? SQLITE_OK : f->below->pMethods->xWrite(f->below, f->bytes, len, f->offset);
}

/* ------------------------------------------------------------------ the log as a file */

static int log_write(sqlite3_file *file, const void *bytes, int len, sqlite3_int64 offset)
{
    struct log_file *f = log_of(file);
    if (f->len > 0 && (offset != f->offset + f->len || len > SQLITE_WAL_VFS_BUFFER_MAX - f->len)) {
        int rc = write_out(f);
        if (rc != SQLITE_OK)
            return rc;
    }
    if (f->bytes == NULL || len > SQLITE_WAL_VFS_BUFFER_MAX)
        return f->below->pMethods->xWrite(f->below, bytes, len, offset);
    if (f->len == 0)
        f->offset = offset;
    memcpy(f->bytes + f->len, bytes, (size_t)len);
    f->len += len;
    return SQLITE_OK;
}

static int log_read(sqlite3_file *file, void *bytes, int len, sqlite3_int64 offset)
{
    struct log_file *f = log_of(file);
    int rc = write_out(f);
    return rc == SQLITE_OK ? f->below->pMethods->xRead(f->below, bytes, len, offset) : rc;
}

static int log_sync(sqlite3_file *file, int flags)
{
    struct log_file *f = log_of(file);
    int rc = write_out(f);
    return rc == SQLITE_OK ? f->below->pMethods->xSync(f->below, flags) : rc;
}

static int log_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct log_file *f = log_of(file);
    int rc = write_out(f);
    return rc == SQLITE_OK ? f->below->pMethods->xTruncate(f->below, size) : rc;
}

static int log_size(sqlite3_file *file, sqlite3_int64 *size)
{
    struct log_file *f = log_of(file);
    int rc = write_out(f);
    return rc == SQLITE_OK ? f->below->pMethods->xFileSize(f->below, size) : rc;
}

static int log_control(sqlite3_file *file, int op, void *arg)
{
    struct log_file *f = log_of(file);
    int rc = write_out(f);
    return rc == SQLITE_OK ? f->below->pMethods->xFileControl(f->below, op, arg) : rc;
}

static int log_close(sqlite3_file *file)
{
    struct log_file *f = log_of(file);
    int written = write_out(f);
    int rc = f->below->pMethods->xClose(f->below);
    free(f->bytes);
    f->bytes = NULL;
    return written != SQLITE_OK ? written : rc;
}

static int log_lock(sqlite3_file *file, int lock)
{
    return log_of(file)->below->pMethods->xLock(log_of(file)->below, lock);
}

static int log_unlock(sqlite3_file *file, int lock)
{
    return log_of(file)->below->pMethods->xUnlock(log_of(file)->below, lock);
}

static int log_is_reserved(sqlite3_file *file, int *out)
{
    return log_of(file)->below->pMethods->xCheckReservedLock(log_of(file)->below, out);
}

static int log_sector_size(sqlite3_file *file)
{
    return log_of(file)->below->pMethods->xSectorSize(log_of(file)->below);
}

static int log_characteristics(sqlite3_file *file)
{
    return log_of(file)->below->pMethods->xDeviceCharacteristics(log_of(file)->below);
}

static const sqlite3_io_methods log_methods = {
    .iVersion = 1, /* only the database uses shared memory and mappings, never its log */
    .xClose = log_close,
    .xRead = log_read,
    .xWrite = log_write,
    .xTruncate = log_truncate,
    .xSync = log_sync,
    .xFileSize = log_size,
    .xLock = log_lock,
    .xUnlock = log_unlock,
    .xCheckReservedLock = log_is_reserved,
    .xFileControl = log_control,
    .xSectorSize = log_sector_size,
    .xDeviceCharacteristics = log_characteristics,
};

/* ------------------------------------------------------------------ the VFS */

static sqlite3_vfs *below; /* SQLite's own */

static int open_file(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags, int *out)
{
    (void)vfs;
    if ((flags & SQLITE_OPEN_WAL) == 0)
        return below->xOpen(below, path, file, flags, out);
    struct log_file *f = log_of(file);
    *f = (struct log_file){ .below = (sqlite3_file *)(f + 1) };
    memset(f->below, 0, (size_t)below->szOsFile);
    int rc = below->xOpen(below, path, f->below, flags, out);
    if (rc != SQLITE_OK) /* SQLite does not close a file without methods: close the half-open one here */
        return f->below->pMethods != NULL ? (f->below->pMethods->xClose(f->below), rc) : rc;
    f->bytes = malloc(SQLITE_WAL_VFS_BUFFER_MAX);
    f->base.pMethods = &log_methods;
    return SQLITE_OK;
}

static sqlite3_vfs ours;
static pthread_once_t registered = PTHREAD_ONCE_INIT;
static const char *name;

/* All but opening is passed on to SQLite's own VFS; its functions do not read the members that we change. */
static void register_vfs(void)
{
    static_assert(sizeof(struct log_file) % 8 == 0, "what follows it is aligned");
    below = sqlite3_vfs_find(NULL);
    if (below == NULL)
        return;
    ours = *below;
    ours.pNext = NULL;
    ours.zName = "once-log";
    ours.szOsFile = below->szOsFile + (int)sizeof(struct log_file);
    ours.xOpen = open_file;
    if (sqlite3_vfs_register(&ours, 0) == SQLITE_OK)
        name = ours.zName;
}

/* A process may unload this library and keep SQLite. */
__attribute__((destructor)) static void unregister_vfs(void)
{
    if (name != NULL)
        sqlite3_vfs_unregister(&ours);
}

const char *sqlite_wal_vfs(void)
{
    pthread_once(&registered, register_vfs);
    return name;
}
