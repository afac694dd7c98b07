/*
 * file.h - the files of an embedded store and the lock over them.
 *
 *   PATH           the database, mode 0600, with SQLite's PATH-wal and PATH-shm
 *   PATH-lock      flock(2): held by the process that may write or checkpoint. Its text names the holder:
 *                  "owner PID NAME" for a process that keeps it, "step PID NAME" for one that
 *                  is in a step, "clean" after it ended well. A process that finds another text has
 *                  to suspect the log: the holder before it died, or its fsync failed
 *   PATH-reserve   space that is freed so that expiry can run on a full disk (FACT-5)
 *
 * One writer, and one checkpointer, at a time over all processes: Debian's SQLite has the
 * WAL-reset bug (FACT-4). The lock is another file because closing any descriptor
 * of the database would drop the locks that SQLite itself holds on it.
 */
#ifndef ONCE_STORE_SQLITE_FILE_H
#define ONCE_STORE_SQLITE_FILE_H

#include "once.h"

struct sqlite_files {
    char *path, *lock_path, *reserve_path;
    int lock_fd;
    bool suspect; /* set when the lock is taken: the holder before did not end well */
    uint64_t reserve_len;
    uint32_t lock_wait_ms;
};

/* Checks the form of a path, without opening anything. */
once_result sqlite_path_check(once_span path, struct once_error *err);
once_result sqlite_files_init(struct sqlite_files *f, once_span path, uint64_t reserve_len, uint32_t lock_wait_ms,
                              struct once_error *err);
void sqlite_files_release(struct sqlite_files *f);

/* Checks that a store can be there. Makes the empty file if it is missing and may_create, and makes an empty one
 * private. */
once_result sqlite_files_prepare(const struct sqlite_files *f, bool may_create, struct once_error *err);

/* ONCE_INVALID: every user can read or write the database or its log. Group permissions are left to the operator. */
once_result sqlite_files_check_private(const struct sqlite_files *f, struct once_error *err);

/* Waits for the lock, and sets `suspect`. ONCE_UNAVAILABLE names its holder. */
once_result sqlite_files_lock(struct sqlite_files *f, bool as_owner, struct once_error *err);
/* For the holder: whether the locked file still is the one at its path. A lock on a removed file protects nothing. */
bool sqlite_files_lock_is_current(const struct sqlite_files *f);
/* Not clean: the next holder has to suspect the log. */
void sqlite_files_unlock(struct sqlite_files *f, bool clean);
/* No process has the lock, and its last holder did not end well. */
bool sqlite_files_is_suspect(struct sqlite_files *f);

/* The reserve: fill it if there is room, free it, tell whether it was freed. */
void sqlite_files_reserve_fill(const struct sqlite_files *f);
void sqlite_files_reserve_give(const struct sqlite_files *f);
bool sqlite_files_reserve_is_gone(const struct sqlite_files *f);

/* Bytes of the database and its log. */
uint64_t sqlite_files_size(const struct sqlite_files *f);

#endif
