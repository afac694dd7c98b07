/*
 * file.h - the files of an embedded store and the lock over them.
 *
 *   PATH           the database, mode 0600, with SQLite's PATH-wal and PATH-shm
 *   PATH-lock      flock(2): held by whoever may write or checkpoint. Its text says who:
 *                  "owner PID NAME" for a process that keeps it, "step PID NAME" for one that
 *                  is in a step, "clean" after it ended well. Whoever finds another text has
 *                  to suspect the log: its predecessor died, or its fsync failed
 *   PATH-reserve   space that is given up so that expiry can run on a full disk (FACT-5)
 *
 * One writer, and one checkpointer, at a time over all processes: Debian's SQLite has the
 * WAL-reset bug (FACT-4). The lock is a file of its own because closing any descriptor
 * of the database would drop the locks that SQLite itself holds on it.
 */
#ifndef ONCE_STORE_SQLITE_FILE_H
#define ONCE_STORE_SQLITE_FILE_H

#include "once.h"

struct sqlite_files {
    char *path, *lock_path, *reserve_path;
    int lock_fd;
    bool suspect; /* as the lock was taken: the one before did not end well */
    uint64_t reserve_len;
    uint32_t lock_wait_ms;
};

/* Whether it can be a store's, without looking there. */
once_result sqlite_path_check(once_span path, struct once_error *err);
once_result sqlite_files_init(struct sqlite_files *f, once_span path, uint64_t reserve_len, uint32_t lock_wait_ms,
                              struct once_error *err);
void sqlite_files_release(struct sqlite_files *f);

/* Is this a place where a store can be? Makes the empty file if there is none and it may, and one that is there and
 * empty its owner's only. */
once_result sqlite_files_prepare(const struct sqlite_files *f, bool may_create, struct once_error *err);

/* ONCE_INVALID: the database or its log can be read or written by everybody. The group is the operator's business. */
once_result sqlite_files_check_private(const struct sqlite_files *f, struct once_error *err);

/* Waits for its turn, and sets `suspect`. ONCE_UNAVAILABLE names who has it. */
once_result sqlite_files_lock(struct sqlite_files *f, bool as_owner, struct once_error *err);
/* Of one who has it: a lock on a file that somebody removed or replaced protects nothing. */
bool sqlite_files_lock_is_current(const struct sqlite_files *f);
/* Not clean: the next one is to suspect the log. */
void sqlite_files_unlock(struct sqlite_files *f, bool clean);
/* Nobody has the lock, and the last one who had it did not end well. */
bool sqlite_files_is_suspect(struct sqlite_files *f);

/* The reserve: fill it where there is room, give it up, is it given up? */
void sqlite_files_reserve_fill(const struct sqlite_files *f);
void sqlite_files_reserve_give(const struct sqlite_files *f);
bool sqlite_files_reserve_is_gone(const struct sqlite_files *f);

/* Bytes of the database and its log. */
uint64_t sqlite_files_size(const struct sqlite_files *f);

#endif
