/*
 * wal_vfs.h - SQLite's log, written in one piece per commit.
 *
 * SQLite writes its log frame by frame, and each frame in two pieces: a commit of 7 pages is 14
 * calls of write(2). This VFS buffers pieces that follow each other, and writes them when the log is synced, before any
 * other call on it, or when the buffer has SQLITE_WAL_VFS_BUFFER_MAX bytes.
 *
 * Invariants: pieces reach the file in the order in which SQLite wrote them.
 *             K4 a sync writes the buffer first, and fails if that fails. Buffered bytes belong to
 *             a transaction that has not committed: SQLite syncs the log (synchronous=FULL)
 *             before any process can see a commit. If the process dies before, less of an
 *             uncommitted transaction is on disk.
 * Not here:   any other file. The database itself uses SQLite's own VFS.
 */
#ifndef ONCE_STORE_SQLITE_WAL_VFS_H
#define ONCE_STORE_SQLITE_WAL_VFS_H

#include <sqlite3.h>

/* SQLite's own VFS uses 17 bits of a length: 128 KiB would be written as 0 bytes, and reported as a full disk. */
enum { SQLITE_WAL_VFS_BUFFER_MAX = 120 << 10 };

/* The name of the VFS, for sqlite3_open_v2(); NULL, the default VFS, if it could not be registered. Thread-safe. */
const char *sqlite_wal_vfs(void);

#endif
