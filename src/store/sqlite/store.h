/*
 * store.h - the embedded store: its parts, for the files that implement it.
 */
#ifndef ONCE_STORE_SQLITE_STORE_H
#define ONCE_STORE_SQLITE_STORE_H

#include "store/sqlite/file.h"
#include "store/sqlite/op.h"

struct sqlite_store {
    struct once_store base;
    struct sqlite_files files;
    struct sqlite_db db;
    struct sqlite_index index;
    struct sqlite_protocol protocol;
    bool no_migrate;
    bool opened;       /* owned: the lock is ours until it is closed */
    bool callers;      /* a caller's database: checkpoints and the reserve are left to the caller */
    bool anchoring;    /* this step set the store's clock */
    bool broken;       /* a reopen failed: nothing is done until one succeeds */
    int wal_pages;     /* as of the last commit */
    int wal_pages_max; /* then a checkpoint is due */
    uint64_t commits;
    uint8_t writer[16]; /* names this store's steps in once_batch */
    int64_t changes_at_begin;
    int64_t step; /* the number of the last one that wrote */
};

/* A step: lock (if shared and writing), BEGIN, ..., and one of the three ends below. */
once_result sqlite_store_begin(struct sqlite_store *s, bool writing, struct once_error *err);
/* ONCE_UNKNOWN if the commit's own answer was an error (FACT-2). */
once_result sqlite_store_commit(struct sqlite_store *s, struct once_error *err);
void sqlite_store_rollback(struct sqlite_store *s);
void sqlite_store_end_reading(struct sqlite_store *s);
/* The end that fits a step whose work ended with `r`. */
once_result sqlite_store_end(struct sqlite_store *s, bool writing, once_result r, struct once_error *err);
/* The first fence after `after`, 0 if there is none, and the last of all. */
once_result sqlite_store_fences(struct sqlite_store *s, uint64_t after, int64_t *first, int64_t *last,
                                struct once_error *err);
/* Outside of a step: checkpoints the log as far as possible; `truncate` also frees its space. */
void sqlite_store_checkpoint(struct sqlite_store *s, bool truncate);

once_result sqlite_store_list(struct once_store *base, const struct once_filter *filter, struct once_page *page,
                              struct once_error *err);
once_result sqlite_store_usage(struct once_store *base, struct once_usage *usage, struct once_error *err);
once_result sqlite_store_sweep(struct once_store *base, struct once_sweep *sweep, struct once_error *err);
once_result sqlite_store_lookup_many(struct once_store *base, const struct once_unfinished *wanted, size_t count,
                                     struct once_page *page, struct once_error *err);
once_result sqlite_store_history(struct once_store *base, const uint8_t record[16], struct once_history *history,
                                 struct once_error *err);
once_result sqlite_store_expire(struct once_store *base, uint32_t budget, uint64_t *removed, bool *more,
                                struct once_error *err);
once_result sqlite_store_check(struct once_store *base, uint64_t *cursor, once_problem_fn *each, void *arg,
                               struct once_check_report *report, struct once_error *err);
once_result sqlite_store_seal_keys(struct once_store *base, const struct once_seal_key_ref *add,
                                   struct once_seal_key_refs *out, struct once_error *err);

#endif
