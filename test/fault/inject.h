/*
 * inject.h - a process whose memory and disk fail on request.
 *
 * The executable defines malloc, pwrite, fsync and their kin itself, so every call comes
 * by here: of libonce, SQLite, zstd and libc alike. Built with a sanitizer, which needs
 * malloc for itself, the linker wraps the calls of libonce and SQLite is told to allocate
 * by here; the others are not reached then.
 *
 *     inject_arm(&(struct inject_plan){ .kind = INJECT_SYNC, .nth = 3, .error = EIO });
 *     inject_begin();
 *     ... calls: the third fsync or fdatasync fails ...
 *     inject_end();
 *     bool reached = inject_disarm();
 *
 * Calls count only between begin and end. fsync never reaches the disk (nobody pulls a
 * plug here) and usleep does not sleep: what is tested is what is done, not when.
 */
#ifndef ONCE_TEST_FAULT_INJECT_H
#define ONCE_TEST_FAULT_INJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum inject_kind {
    INJECT_ALLOC, /* malloc, calloc, realloc, aligned ones */
    INJECT_WRITE, /* write, pwrite: not to the standard streams */
    INJECT_SYNC,  /* fsync, fdatasync */
    INJECT_SIZE,  /* ftruncate, posix_fallocate */
    INJECT_OPEN,  /* open */
    INJECT_KINDS
};

enum inject_span {
    INJECT_ONE,  /* the n-th fails, the others do not */
    INJECT_STEP, /* the n-th and all after it, until inject_end() */
    INJECT_REST, /* the n-th and all after it */
};

#define INJECT_SHORT (-1) /* as an error of INJECT_WRITE: half of it is written */

struct inject_plan {
    enum inject_kind kind;
    unsigned long nth; /* from 1; 0: nothing fails, calls are counted */
    enum inject_span span;
    int error;
};

void inject_init(void);
void inject_arm(const struct inject_plan *plan);
void inject_begin(void);
void inject_end(void);
bool inject_disarm(void);                          /* was the n-th call reached? */
unsigned long inject_count(enum inject_kind kind); /* calls since it was armed */

/* Blocks allocated and not freed; -1 where that is not counted (sanitizers find leaks themselves). */
long inject_live_blocks(void);
/* Open descriptors of this process. */
int inject_open_files(void);

/*
 * A recorder of what reached the files of one folder: for those that rebuild what a loss
 * of power would leave. Called in the order of the calls, one at a time.
 */
enum inject_event {
    INJECT_WRITTEN,
    INJECT_RESIZED, /* to `offset` */
    INJECT_SYNCED,
    INJECT_SYNC_FAILED,
    INJECT_UNLINKED,
    INJECT_DIR_SYNCED, /* the folder itself; name is "" */
};

typedef void inject_record_fn(enum inject_event event, const char *name, const void *bytes, size_t len, off_t offset);
/* `folder` must be its real path. NULL: record no more. */
void inject_record(const char *folder, inject_record_fn *record);

#endif
