/*
 * index.h - the key index: from a record's id to its newest fence.
 *
 * A b-tree over random ids dirties a page per claim, so the file has no such tree. Claims are appended; the index is
 * derived from them:
 *
 *   segments   cover the fences up to closed_to. Each is written once, when SEGMENT_LEN
 *              claims have gathered, as 256 sorted buckets by the id's first byte. A
 *              look-up reads one bucket per segment, newest first.
 *   the tail   a small b-tree over the fences closed_to+1 .. tail_to.
 *   the gap    claims after tail_to, in no index yet.
 *
 * A process that owns the file keeps the index in RAM (keymap.h), built at open from
 * segments and the claims after them, and writes only segments. Killed, it leaves a gap
 * of less than a segment. A process that shares the file looks into gap, tail and
 * segments; before it writes it takes the gap into the tail. So both work on one file,
 * one after the other, without rebuilding anything.
 *
 * Entries of expired claims stay in their segment until all of its entries are dead, or most of them while expiry works
 * elsewhere. A look-up that follows such an entry finds no claim, and the record is absent.
 *
 * Calls come inside a transaction: begin, any of find/put, close_segment before COMMIT, then committed or rolled_back.
 */
#ifndef ONCE_STORE_SQLITE_INDEX_H
#define ONCE_STORE_SQLITE_INDEX_H

#include "store/sqlite/db.h"

/* 16384: writing a segment takes about a millisecond, five million records make 305 segments. */
#define SQLITE_SEGMENT_LEN 16384

struct sqlite_index_entry {
    uint8_t record[16];
    uint64_t fence;
    uint64_t before; /* the fence in the map before, for a rollback */
    bool dead;       /* expired since */
};

struct sqlite_index_segment {
    int64_t first;
    uint32_t count, dead;
};

struct sqlite_index {
    struct sqlite_db *db;
    struct keymap *map; /* NULL: the index is on disk only */
    int64_t closed_to, tail_to, fence_floor, fence_last;
    int64_t fence_last_at_begin, fence_floor_at_begin;
    struct {
        int64_t first, last, count;
    } expiring; /* the segment whose claims expiry is deleting, and how many so far */
    bool counters_changed, closing;
    struct sqlite_index_entry *fresh; /* in RAM: the claims after closed_to, oldest first */
    size_t fresh_len, fresh_cap, fresh_at_begin;
    struct sqlite_index_segment *segments; /* on disk: newest first; read again by every begin */
    size_t segment_count, segment_cap;
};

once_result sqlite_index_init(struct sqlite_index *index, struct sqlite_db *db, bool in_ram, struct once_error *err);
void sqlite_index_release(struct sqlite_index *index);

once_result sqlite_index_begin(struct sqlite_index *index, bool writing, struct once_error *err);
once_result sqlite_index_find(struct sqlite_index *index, const uint8_t record[16], uint64_t *fence,
                              struct once_error *err);
/* Larger than every fence given before (K2). */
uint64_t sqlite_index_next_fence(struct sqlite_index *index);
once_result sqlite_index_put(struct sqlite_index *index, const uint8_t record[16], uint64_t fence,
                             struct once_error *err);
once_result sqlite_index_close_segment(struct sqlite_index *index, struct once_error *err);
void sqlite_index_committed(struct sqlite_index *index);
void sqlite_index_rolled_back(struct sqlite_index *index);

/* Expiry deleted this claim, in the current transaction. The map cannot be rolled back for this, so
 * sqlite_index_forget() updates it after the commit. */
once_result sqlite_index_drop_entry(struct sqlite_index *index, const uint8_t record[16], uint64_t fence,
                                    struct once_error *err);
void sqlite_index_forget(struct sqlite_index *index, const uint8_t record[16], uint64_t fence);
/* An estimate of the number of attempts, without a scan. */
once_result sqlite_index_count(struct sqlite_index *index, uint64_t *attempts, struct once_error *err);
/* Deletes or rewrites one segment whose entries are mostly dead, if there is one. */
once_result sqlite_index_compact(struct sqlite_index *index, struct once_error *err);

#endif
