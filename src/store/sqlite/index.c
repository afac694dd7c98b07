/* index.c - see sqlite/index.h for the structure. */
#include "store/sqlite/index.h"

#include "core/buf.h"
#include "core/err.h"
#include "core/span.h"
#include "store/sqlite/keymap.h"

#include <xxhash.h>

enum { ENTRY_LEN = 20, BUCKETS = 256, SUM_LEN = 8 };

static int64_t bucket_id(int64_t first, unsigned bucket)
{
    return first * BUCKETS + bucket;
}

static uint64_t entry_fence(const uint8_t *entry, int64_t first)
{
    const uint8_t *p = entry + 16;
    return (uint64_t)first + ((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
}

/* Checks a bucket and strips its checksum. A damaged bucket would hide records, and they would be executed again. */
static once_result bucket_open(once_span stored, int64_t id, once_span *entries, struct once_error *err)
{
    uint64_t sum = 0;
    for (size_t i = 0; stored.len >= SUM_LEN && i < SUM_LEN; i++)
        sum = sum << 8 | stored.ptr[stored.len - SUM_LEN + i];
    if (stored.len < SUM_LEN || (stored.len - SUM_LEN) % ENTRY_LEN != 0 ||
        XXH64(stored.ptr, stored.len - SUM_LEN, (uint64_t)id) != sum)
        return once_fail(err, ONCE_CORRUPT, "bucket %lld of the key index does not match its checksum", (long long)id);
    *entries = once_span_of(stored.ptr, stored.len - SUM_LEN);
    return ONCE_OK;
}

/* ------------------------------------------------------------------ counters */

static once_result counters_read(struct sqlite_index *x, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(x->db, SQL_index_read);
    bool there = sqlite_step(&q);
    if (there) {
        x->closed_to = sqlite_column_int(&q, 0);
        x->tail_to = sqlite_column_int(&q, 1);
        x->fence_floor = sqlite_column_int(&q, 2);
        int64_t newest = sqlite_column_int(&q, 3);
        x->fence_last = newest > x->fence_floor ? newest : x->fence_floor;
    }
    once_result r = sqlite_end(&q, "read the key index", err);
    if (r == ONCE_OK && !there)
        r = once_fail(err, ONCE_CORRUPT, "the key index has lost its counters");
    return r;
}

static once_result counters_write(struct sqlite_index *x, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(x->db, SQL_index_write);
    sqlite_bind_int(&q, x->closed_to);
    sqlite_bind_int(&q, x->tail_to);
    sqlite_bind_int(&q, x->fence_floor);
    return sqlite_run(&q, "write the key index", err);
}

/* ------------------------------------------------------------------ in RAM */

static once_result fresh_add(struct sqlite_index *x, const uint8_t record[16], uint64_t fence, uint64_t before,
                             struct once_error *err)
{
    if (x->fresh_len == x->fresh_cap) {
        size_t cap = x->fresh_cap == 0 ? 1024 : x->fresh_cap * 2;
        struct sqlite_index_entry *bigger = realloc(x->fresh, cap * sizeof *bigger);
        if (bigger == NULL)
            return once_fail(err, ONCE_NO_MEMORY, "no memory for the key index");
        x->fresh = bigger;
        x->fresh_cap = cap;
    }
    struct sqlite_index_entry *e = &x->fresh[x->fresh_len++];
    memcpy(e->record, record, 16);
    e->fence = fence;
    e->before = before;
    e->dead = false;
    return ONCE_OK;
}

static once_result put_in_ram(struct sqlite_index *x, const uint8_t record[16], uint64_t fence, struct once_error *err)
{
    uint64_t before = keymap_find(x->map, record);
    once_result r = fresh_add(x, record, fence, before, err);
    if (r == ONCE_OK && !keymap_put(x->map, record, fence)) {
        x->fresh_len--;
        r = once_fail(err, ONCE_NO_MEMORY, "no memory for the key index");
    }
    return r;
}

static once_result load_segments(struct sqlite_index *x, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(x->db, SQL_segment_data_all);
    bool room = true;
    once_result r = ONCE_OK;
    while (r == ONCE_OK && room && sqlite_step(&q)) {
        int64_t id = sqlite_column_int(&q, 0);
        once_span entries = { NULL, 0 };
        r = bucket_open(sqlite_column_span(&q, 1), id, &entries, err);
        for (size_t at = 0; room && at < entries.len; at += ENTRY_LEN)
            room = keymap_put(x->map, entries.ptr + at, entry_fence(entries.ptr + at, id / BUCKETS));
    }
    once_result end = sqlite_end(&q, "read the key index", r == ONCE_OK ? err : NULL);
    r = r != ONCE_OK ? r : end;
    return r == ONCE_OK && !room ? once_fail(err, ONCE_NO_MEMORY, "no memory for the key index") : r;
}

static once_result load_claims(struct sqlite_index *x, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(x->db, SQL_claims_after);
    sqlite_bind_int(&q, x->closed_to);
    once_result r = ONCE_OK;
    while (r == ONCE_OK && sqlite_step(&q)) {
        once_span record = sqlite_column_span(&q, 1);
        if (record.len != 16)
            r = once_fail(err, ONCE_CORRUPT, "claim %lld has a record id of %zu bytes",
                          (long long)sqlite_column_int(&q, 0), record.len);
        else
            r = put_in_ram(x, record.ptr, (uint64_t)sqlite_column_int(&q, 0), err);
    }
    once_result end = sqlite_end(&q, "read the key index", r == ONCE_OK ? err : NULL);
    return r != ONCE_OK ? r : end;
}

/* ------------------------------------------------------------------ on disk */

static once_result segments_read(struct sqlite_index *x, struct once_error *err)
{
    x->segment_count = 0;
    struct sqlite_query q = sqlite_query(x->db, SQL_segments);
    bool room = true;
    while (room && sqlite_step(&q)) {
        if (x->segment_count == x->segment_cap) {
            size_t cap = x->segment_cap == 0 ? 64 : x->segment_cap * 2;
            struct sqlite_index_segment *bigger = realloc(x->segments, cap * sizeof *bigger);
            room = bigger != NULL;
            if (!room)
                break;
            x->segments = bigger;
            x->segment_cap = cap;
        }
        x->segments[x->segment_count++] = (struct sqlite_index_segment){
            .first = sqlite_column_int(&q, 0),
            .count = (uint32_t)sqlite_column_int(&q, 2),
            .dead = (uint32_t)sqlite_column_int(&q, 3),
        };
    }
    once_result r = sqlite_end(&q, "read the key index", err);
    return r == ONCE_OK && !room ? once_fail(err, ONCE_NO_MEMORY, "no memory for the key index") : r;
}

static uint64_t search_bucket(once_span entries, const uint8_t record[16], int64_t first)
{
    size_t low = 0, high = entries.len / ENTRY_LEN;
    while (low < high) {
        size_t mid = (low + high) / 2;
        const uint8_t *entry = entries.ptr + mid * ENTRY_LEN;
        int order = memcmp(entry, record, 16);
        if (order == 0)
            return entry_fence(entry, first);
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return 0;
}

static once_result find_in_segments(struct sqlite_index *x, const uint8_t record[16], uint64_t *fence,
                                    struct once_error *err)
{
    for (size_t i = 0; i < x->segment_count && *fence == 0; i++) {
        struct sqlite_query q = sqlite_query(x->db, SQL_segment_data);
        int64_t id = bucket_id(x->segments[i].first, record[0]);
        sqlite_bind_int(&q, id);
        once_span entries = { NULL, 0 };
        once_result r = ONCE_OK;
        if (sqlite_step(&q))
            r = bucket_open(sqlite_column_span(&q, 0), id, &entries, err);
        *fence = search_bucket(entries, record, x->segments[i].first);
        once_result end = sqlite_end(&q, "look into the key index", r == ONCE_OK ? err : NULL);
        if (r != ONCE_OK || end != ONCE_OK)
            return r != ONCE_OK ? r : end;
    }
    return ONCE_OK;
}

static once_result find_on_disk(struct sqlite_index *x, const uint8_t record[16], uint64_t *fence,
                                struct once_error *err)
{
    if (x->fence_last > x->tail_to) {
        struct sqlite_query q = sqlite_query(x->db, SQL_gap_find);
        sqlite_bind_int(&q, x->tail_to);
        sqlite_bind_blob(&q, once_span_of(record, 16));
        if (sqlite_step(&q))
            *fence = (uint64_t)sqlite_column_int(&q, 0);
        once_result r = sqlite_end(&q, "look into the key index", err);
        if (r != ONCE_OK || *fence != 0)
            return r;
    }
    struct sqlite_query q = sqlite_query(x->db, SQL_tail_find);
    sqlite_bind_blob(&q, once_span_of(record, 16));
    if (sqlite_step(&q))
        *fence = (uint64_t)sqlite_column_int(&q, 0);
    once_result r = sqlite_end(&q, "look into the key index", err);
    return r != ONCE_OK || *fence != 0 ? r : find_in_segments(x, record, fence, err);
}

static once_result put_on_disk(struct sqlite_index *x, const uint8_t record[16], uint64_t fence, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(x->db, SQL_tail_put);
    sqlite_bind_blob(&q, once_span_of(record, 16));
    sqlite_bind_int(&q, (int64_t)fence);
    x->tail_to = (int64_t)fence;
    x->counters_changed = true;
    return sqlite_run(&q, "write the key index", err);
}

static once_result catch_up(struct sqlite_index *x, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(x->db, SQL_tail_catch_up);
    sqlite_bind_int(&q, x->tail_to);
    x->tail_to = x->fence_last;
    x->counters_changed = true;
    return sqlite_run(&q, "bring the key index up to date", err);
}

/* ------------------------------------------------------------------ closing a segment */

static int by_record_newest_first(const void *a, const void *b)
{
    const struct sqlite_index_entry *x = a, *y = b;
    int order = memcmp(x->record, y->record, 16);
    return order != 0 ? order : (x->fence < y->fence) - (x->fence > y->fence);
}

static once_result write_bucket(struct sqlite_index *x, int64_t first, unsigned bucket, struct once_buf *buf,
                                struct once_error *err)
{
    once_buf_add_u64(buf, XXH64(buf->ptr, buf->len, (uint64_t)bucket_id(first, bucket)));
    if (buf->result != ONCE_OK)
        return once_fail(err, buf->result, "no memory for the key index");
    struct sqlite_query q = sqlite_query(x->db, SQL_segment_data_put);
    sqlite_bind_int(&q, bucket_id(first, bucket));
    sqlite_bind_blob(&q, once_buf_span(buf));
    return sqlite_run(&q, "write a segment of the key index", err);
}

/* The entries are sorted by record; of several with the same record the first counts. */
static once_result write_segment(struct sqlite_index *x, const struct sqlite_index_entry *entries, size_t len,
                                 int64_t last, struct once_error *err)
{
    int64_t first = x->closed_to + 1;
    size_t count = 0;
    once_result r = ONCE_OK;
    struct once_buf buf;
    once_buf_init(&buf, (size_t)ENTRY_LEN * (len + 1) + SUM_LEN);
    for (size_t i = 0; i < len && r == ONCE_OK; i++) {
        const struct sqlite_index_entry *e = &entries[i];
        if (i == 0 || memcmp(entries[i - 1].record, e->record, 16) != 0) {
            once_buf_add(&buf, once_span_of(e->record, 16));
            once_buf_add_u32(&buf, (uint32_t)(e->fence - (uint64_t)first));
            count++;
        }
        if (i + 1 == len || entries[i + 1].record[0] != e->record[0]) {
            r = write_bucket(x, first, e->record[0], &buf, err);
            once_buf_clear(&buf);
        }
    }
    once_buf_release(&buf);
    if (r != ONCE_OK || count == 0)
        return r;
    struct sqlite_query q = sqlite_query(x->db, SQL_segment_insert);
    sqlite_bind_int(&q, first);
    sqlite_bind_int(&q, last);
    sqlite_bind_int(&q, (int64_t)count);
    return sqlite_run(&q, "write a segment of the key index", err);
}

/* Sorts a copy: a rollback needs the order of `fresh`. */
static once_result collect_from_ram(struct sqlite_index *x, struct sqlite_index_entry **out, size_t *len,
                                    struct once_error *err)
{
    *out = malloc((x->fresh_len + 1) * sizeof **out);
    if (*out == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory to seal the key index");
    *len = 0;
    for (size_t i = 0; i < x->fresh_len; i++)
        if (!x->fresh[i].dead)
            (*out)[(*len)++] = x->fresh[i];
    qsort(*out, *len, sizeof **out, by_record_newest_first);
    return ONCE_OK;
}

static once_result collect_from_tail(struct sqlite_index *x, struct sqlite_index_entry **out, size_t *len,
                                     struct once_error *err)
{
    size_t cap = (size_t)(x->tail_to - x->closed_to) + 1;
    *len = 0;
    *out = malloc(cap * sizeof **out);
    if (*out == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory to seal the key index");
    struct sqlite_query q = sqlite_query(x->db, SQL_tail_all);
    while (*len < cap && sqlite_step(&q)) {
        once_span record = sqlite_column_span(&q, 0);
        struct sqlite_index_entry *e = &(*out)[(*len)++];
        *e = (struct sqlite_index_entry){ .fence = (uint64_t)sqlite_column_int(&q, 1) };
        memcpy(e->record, record.ptr, record.len < 16 ? record.len : 16);
    }
    return sqlite_end(&q, "read the key index", err);
}

static once_result write_dying(struct sqlite_index *x, struct once_error *err)
{
    if (x->expiring.count == 0)
        return ONCE_OK;
    struct sqlite_query q = sqlite_query(x->db, SQL_segment_count_dead);
    sqlite_bind_int(&q, x->expiring.first);
    sqlite_bind_int(&q, x->expiring.count);
    x->expiring.count = 0;
    return sqlite_run(&q, "write the key index", err);
}

once_result sqlite_index_close_segment(struct sqlite_index *x, struct once_error *err)
{
    once_result r = write_dying(x, err);
    if (r != ONCE_OK)
        return r;
    int64_t last = x->map != NULL ? x->fence_last : x->tail_to;
    if (last - x->closed_to < SQLITE_SEGMENT_LEN)
        return x->counters_changed ? counters_write(x, err) : ONCE_OK;
    struct sqlite_index_entry *entries = NULL;
    size_t len = 0;
    r = x->map != NULL ? collect_from_ram(x, &entries, &len, err) : collect_from_tail(x, &entries, &len, err);
    if (r == ONCE_OK)
        r = write_segment(x, entries, len, last, err);
    free(entries);
    if (r == ONCE_OK) {
        struct sqlite_query q = sqlite_query(x->db, SQL_tail_clear);
        r = sqlite_run(&q, "clear the tail of the key index", err);
    }
    if (r != ONCE_OK)
        return r;
    x->closing = true;
    x->closed_to = x->tail_to = last;
    return counters_write(x, err);
}

/* ------------------------------------------------------------------ the interface */

once_result sqlite_index_init(struct sqlite_index *x, struct sqlite_db *db, bool in_ram, struct once_error *err)
{
    *x = (struct sqlite_index){ .db = db };
    once_result r = counters_read(x, err);
    sqlite_index_committed(x);
    if (r != ONCE_OK || !in_ram)
        return r;
    x->map = keymap_create();
    if (x->map == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the key index");
    r = load_segments(x, err);
    if (r == ONCE_OK)
        r = load_claims(x, err);
    if (r != ONCE_OK)
        sqlite_index_release(x);
    else
        sqlite_index_committed(x);
    return r;
}

void sqlite_index_release(struct sqlite_index *x)
{
    keymap_free(x->map);
    free(x->fresh);
    free(x->segments);
    *x = (struct sqlite_index){ .db = x->db };
}

once_result sqlite_index_begin(struct sqlite_index *x, bool writing, struct once_error *err)
{
    x->counters_changed = x->closing = false;
    x->fresh_at_begin = x->fresh_len;
    once_result r = ONCE_OK;
    if (x->map == NULL) {
        r = counters_read(x, err);
        if (r == ONCE_OK)
            r = segments_read(x, err);
        if (r == ONCE_OK && writing && x->fence_last > x->tail_to)
            r = catch_up(x, err);
    }
    x->fence_last_at_begin = x->fence_last;
    x->fence_floor_at_begin = x->fence_floor;
    x->expiring.first = x->expiring.last = x->expiring.count = 0;
    return r;
}

once_result sqlite_index_find(struct sqlite_index *x, const uint8_t record[16], uint64_t *fence, struct once_error *err)
{
    *fence = 0;
    if (x->map == NULL)
        return find_on_disk(x, record, fence, err);
    *fence = keymap_find(x->map, record);
    return ONCE_OK;
}

uint64_t sqlite_index_next_fence(struct sqlite_index *x)
{
    assert(x->fence_last < INT64_MAX);
    return (uint64_t)++x->fence_last;
}

once_result sqlite_index_put(struct sqlite_index *x, const uint8_t record[16], uint64_t fence, struct once_error *err)
{
    return x->map != NULL ? put_in_ram(x, record, fence, err) : put_on_disk(x, record, fence, err);
}

void sqlite_index_committed(struct sqlite_index *x)
{
    if (x->closing)
        x->fresh_len = 0;
    x->closing = false;
    x->fresh_at_begin = x->fresh_len;
    x->fence_last_at_begin = x->fence_last;
    x->fence_floor_at_begin = x->fence_floor;
}

void sqlite_index_rolled_back(struct sqlite_index *x)
{
    while (x->map != NULL && x->fresh_len > x->fresh_at_begin) {
        struct sqlite_index_entry *e = &x->fresh[--x->fresh_len];
        if (e->before != 0) {
            bool there = keymap_put(x->map, e->record, e->before); /* the record has an entry: this needs no memory */
            assert(there);
            (void)there;
        } else {
            keymap_remove(x->map, e->record);
        }
    }
    x->fence_last = x->fence_last_at_begin;
    x->fence_floor = x->fence_floor_at_begin;
    if (x->map != NULL && x->closing) { /* the counters on disk are the old ones again */
        bool old = counters_read(x, NULL) == ONCE_OK;
        if (!old)
            x->closed_to = x->fence_last; /* write no more segments; a reopen reads the state again */
    }
    x->closing = false;
}

/* ------------------------------------------------------------------ expiry */

/* Claims expire about in the order they were made, so one segment gets many in a row. */
static once_result count_dead_in_segment(struct sqlite_index *x, int64_t fence, struct once_error *err)
{
    if (fence < x->expiring.first || fence > x->expiring.last) {
        once_result r = write_dying(x, err);
        if (r != ONCE_OK)
            return r;
        struct sqlite_query q = sqlite_query(x->db, SQL_segment_covering);
        sqlite_bind_int(&q, fence);
        if (sqlite_step(&q)) {
            x->expiring.first = sqlite_column_int(&q, 0);
            x->expiring.last = sqlite_column_int(&q, 1);
        }
        r = sqlite_end(&q, "look into the key index", err);
        if (r != ONCE_OK || fence < x->expiring.first || fence > x->expiring.last)
            return r;
    }
    x->expiring.count++;
    return ONCE_OK;
}

once_result sqlite_index_drop_entry(struct sqlite_index *x, const uint8_t record[16], uint64_t fence,
                                    struct once_error *err)
{
    if ((int64_t)fence > x->fence_floor) {
        x->fence_floor = (int64_t)fence;
        x->counters_changed = true;
    }
    if ((int64_t)fence <= x->closed_to)
        return count_dead_in_segment(x, (int64_t)fence, err);
    if ((int64_t)fence > x->tail_to)
        return ONCE_OK; /* in the gap: in no index on disk */
    struct sqlite_query q = sqlite_query(x->db, SQL_tail_remove);
    sqlite_bind_blob(&q, once_span_of(record, 16));
    sqlite_bind_int(&q, (int64_t)fence);
    return sqlite_run(&q, "write the key index", err);
}

/* Fences only grow along `fresh`. */
static struct sqlite_index_entry *find_fresh(struct sqlite_index *x, uint64_t fence)
{
    size_t low = 0, high = x->fresh_len;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (x->fresh[mid].fence < fence)
            low = mid + 1;
        else
            high = mid;
    }
    return low < x->fresh_len && x->fresh[low].fence == fence ? &x->fresh[low] : NULL;
}

void sqlite_index_forget(struct sqlite_index *x, const uint8_t record[16], uint64_t fence)
{
    if (x->map == NULL)
        return;
    if (keymap_find(x->map, record) == fence)
        keymap_remove(x->map, record);
    struct sqlite_index_entry *entry = find_fresh(x, fence);
    if (entry != NULL)
        entry->dead = true; /* not to be written into a segment */
}

once_result sqlite_index_count(struct sqlite_index *x, uint64_t *attempts, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(x->db, SQL_count);
    sqlite_bind_int(&q, x->closed_to);
    *attempts = sqlite_step(&q) ? (uint64_t)sqlite_column_int(&q, 0) : 0;
    return sqlite_end(&q, "count attempts", err);
}

/* Reads the claims themselves: the map is updated only after the commit. */
static once_result any_claim(struct sqlite_index *x, int64_t from, int64_t to, bool *any, struct once_error *err)
{
    struct sqlite_query q = sqlite_query(x->db, SQL_claim_between);
    sqlite_bind_int(&q, from);
    sqlite_bind_int(&q, to);
    *any = sqlite_step(&q);
    return sqlite_end(&q, "look into the key index", err);
}

/* Collects the entries of one bucket whose claims still exist. */
static once_result collect_live_entries(struct sqlite_index *x, int64_t first, unsigned bucket, struct once_buf *buf,
                                        struct once_error *err)
{
    struct sqlite_query q = sqlite_query(x->db, SQL_segment_data);
    sqlite_bind_int(&q, bucket_id(first, bucket));
    once_result r = ONCE_OK;
    if (sqlite_step(&q)) {
        once_span entries = { NULL, 0 };
        r = bucket_open(sqlite_column_span(&q, 0), bucket_id(first, bucket), &entries, err);
        for (size_t at = 0; r == ONCE_OK && at < entries.len; at += ENTRY_LEN) {
            bool alive = false;
            int64_t fence = (int64_t)entry_fence(entries.ptr + at, first);
            r = any_claim(x, fence, fence, &alive, err);
            if (alive)
                once_buf_add(buf, once_span_of(entries.ptr + at, ENTRY_LEN));
        }
    }
    once_result end = sqlite_end(&q, "look into the key index", r == ONCE_OK ? err : NULL);
    return r != ONCE_OK ? r : end;
}

static once_result drop_segment(struct sqlite_index *x, int64_t first, struct once_error *err)
{
    struct sqlite_query data = sqlite_query(x->db, SQL_segment_data_delete);
    sqlite_bind_int(&data, bucket_id(first, 0));
    sqlite_bind_int(&data, bucket_id(first, BUCKETS - 1));
    once_result r = sqlite_run(&data, "drop a segment of the key index", err);
    if (r != ONCE_OK)
        return r;
    struct sqlite_query q = sqlite_query(x->db, SQL_segment_delete);
    sqlite_bind_int(&q, first);
    return sqlite_run(&q, "drop a segment of the key index", err);
}

static once_result shrink_segment(struct sqlite_index *x, int64_t first, size_t count, struct once_error *err)
{
    size_t living = 0;
    once_result r = ONCE_OK;
    struct once_buf buf;
    once_buf_init(&buf, (count + 1) * ENTRY_LEN + SUM_LEN);
    for (unsigned bucket = 0; r == ONCE_OK && bucket < BUCKETS; bucket++) {
        once_buf_clear(&buf);
        r = collect_live_entries(x, first, bucket, &buf, err);
        if (r == ONCE_OK)
            r = write_bucket(x, first, bucket, &buf, err);
        living += (buf.len - SUM_LEN) / ENTRY_LEN;
    }
    once_buf_release(&buf);
    if (r != ONCE_OK)
        return r;
    if (living == 0)
        return drop_segment(x, first, err);
    struct sqlite_query q = sqlite_query(x->db, SQL_segment_shrink);
    sqlite_bind_int(&q, first);
    sqlite_bind_int(&q, (int64_t)living);
    return sqlite_run(&q, "shrink a segment of the key index", err);
}

once_result sqlite_index_compact(struct sqlite_index *x, struct once_error *err)
{
    once_result r = write_dying(x, err);
    if (r != ONCE_OK)
        return r;
    struct sqlite_query q = sqlite_query(x->db, SQL_segment_worst);
    sqlite_bind_int(&q, x->expiring.first);
    int64_t first = 0, last = 0, count = 0;
    if (sqlite_step(&q)) {
        first = sqlite_column_int(&q, 0);
        last = sqlite_column_int(&q, 1);
        count = sqlite_column_int(&q, 2);
    }
    r = sqlite_end(&q, "look into the key index", err);
    if (r != ONCE_OK || first == 0)
        return r;
    bool any = false;
    r = any_claim(x, first, last, &any, err);
    if (r != ONCE_OK)
        return r;
    return any ? shrink_segment(x, first, (size_t)count, err) : drop_segment(x, first, err);
}
