/*
 * wal_vfs.h - SQLite's log, written in one piece per commit.
 *
 * SQLite writes its log frame by frame, and each frame in two pieces: a commit of 7 pages is 14
 * calls of write(2). Here pieces that follow each other are put together, and written when the log is
 * synced, when anything else is done to it, or when there are SQLITE_WAL_VFS_BUFFER_MAX bytes of them.
 *
 * Invariants: pieces reach the file in the order in which SQLite wrote them.
 *             K4 nothing is synced before it is written: a sync writes first, and fails where that does.
 *             What is not written yet belongs to a transaction that has not committed: SQLite syncs
 *             the log (synchronous=FULL) before it tells anybody, other processes included, of a commit.
 *             A process that dies before has written less of what would not have counted.
 * Not here:   any other file. The database itself goes to SQLite's own VFS as it is.
 */
#ifndef ONCE_STORE_SQLITE_WAL_VFS_H
#define ONCE_STORE_SQLITE_WAL_VFS_H

#include <sqlite3.h>

/* SQLite's own VFS looks at 17 bits of a length: 128 KiB would be none at all, and a full disk. */
enum { SQLITE_WAL_VFS_BUFFER_MAX = 120 << 10 };

/* The name of the VFS, for sqlite3_open_v2(); NULL, which is the default one, where it cannot be had.
 * Thread-safe; it stays as long as this library does. */
const char *sqlite_wal_vfs(void);

#endif
