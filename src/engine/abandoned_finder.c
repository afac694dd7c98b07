/* abandoned_finder.c - see abandoned_finder.h. */
#include "engine/abandoned_finder.h"

#include "core/err.h"
#include "core/limits.h"
#include "store/gather.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROOM_MAX = 1 << 18,   /* unfinished attempts, 10 MiB */
    SWEEP_ROOM = 4096,    /* found by one step */
    LOOKUPS_PER_JOB = 64, /* then other jobs may run */
    LOOKUPS_MAX = 1024,   /* of one listing */
    RECHECK_MS = 5000,    /* a lease may be ended early and a running attempt may fail, long before the lease is over */
};

struct abandoned_finder {
    pthread_mutex_t lock;
    struct once_unfinished *unfinished; /* by fence, ascending */
    size_t count, cap, failed;
    uint64_t after; /* swept up to here */
    bool more;      /* and there is more to sweep */
    once_time now;  /* the store's, as of the last sweep */
};

struct abandoned_finder *abandoned_finder_create(void)
{
    struct abandoned_finder *f = calloc(1, sizeof *f);
    if (f != NULL)
        pthread_mutex_init(&f->lock, NULL);
    return f;
}

void abandoned_finder_free(struct abandoned_finder *f)
{
    if (f == NULL)
        return;
    pthread_mutex_destroy(&f->lock);
    free(f->unfinished);
    free(f);
}

/* The index of the first attempt with a larger fence. */
static size_t find_after(const struct abandoned_finder *f, uint64_t fence)
{
    size_t low = 0, high = f->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (f->unfinished[middle].fence <= fence)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool make_room(struct abandoned_finder *f)
{
    if (f->count < f->cap)
        return true;
    size_t cap = f->cap == 0 ? 256 : f->cap * 2;
    struct once_unfinished *bigger = realloc(f->unfinished, cap * sizeof *bigger);
    if (bigger == NULL)
        return false;
    f->unfinished = bigger;
    f->cap = cap;
    return true;
}

/* When to look up an attempt whose lease ends then. */
static once_time check_at(once_time lease_until, once_time now)
{
    return lease_until < now + RECHECK_MS ? lease_until : now + RECHECK_MS;
}

/* If commits do not come in the order of fences, a store reports the newest attempts more than once. */
static bool add(struct abandoned_finder *f, const struct once_unfinished *unfinished)
{
    size_t at = find_after(f, unfinished->fence);
    if (at > 0 && f->unfinished[at - 1].fence == unfinished->fence)
        return true;
    if (unfinished->failed && f->failed >= ROOM_MAX / 2)
        return true; /* FINDER-3 */
    if (!make_room(f))
        return false;
    memmove(f->unfinished + at + 1, f->unfinished + at, (f->count - at) * sizeof *unfinished);
    f->unfinished[at] = *unfinished;
    f->unfinished[at].due = check_at(unfinished->due, f->now);
    f->count++;
    f->failed += unfinished->failed;
    return true;
}

static once_result sweep(struct abandoned_finder *f, struct engine *engine, struct once_error *err)
{
    struct once_sweep w = { .after = f->after, .room = ROOM_MAX - f->count };
    bool full = w.room == 0; /* FINDER-3: the sweep only reads the store's time */
    if (w.room > SWEEP_ROOM)
        w.room = SWEEP_ROOM;
    if (full)
        w.room = 1;
    w.found = malloc(w.room * sizeof *w.found);
    if (w.found == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory to find abandoned records");
    struct job job = { .kind = JOB_SWEEP, .sweep = &w };
    once_result r = engine_call(engine, &job, err);
    if (r == ONCE_OK)
        f->now = w.now;
    for (size_t i = 0; r == ONCE_OK && !full && i < w.count; i++)
        if (!add(f, &w.found[i]))
            r = once_fail(err, ONCE_NO_MEMORY, "no memory to find abandoned records");
    if (r == ONCE_OK && !full)
        f->after = w.after;
    if (r == ONCE_OK)
        f->more = w.more && !full;
    free(w.found);
    return r;
}

/* True: the record is abandoned. *keep: it is unfinished. */
static bool judge(struct once_unfinished *unfinished, const struct once_record *record, once_time now, bool *keep)
{
    *keep = false;
    if (record->grant.fence != unfinished->fence)
        return false;
    bool running = record->state == ONCE_STATE_RUNNING;
    *keep = running || (record->state == ONCE_STATE_FAILED && record->retryable);
    if (!running || !record->lease_live)
        return *keep;
    unfinished->due = check_at(record->lease_until, now);
    return false;
}

/* Looks up some of the attempts from *at on that are due; *at moves beyond them. */
static once_result look_up_some(struct abandoned_finder *f, struct engine *engine, const struct once_filter *filter,
                                size_t *at, size_t *looked_up, struct gather_page *g, struct once_error *err)
{
    struct once_unfinished wanted[LOOKUPS_PER_JOB];
    size_t index[LOOKUPS_PER_JOB], count = 0, room = filter->limit - g->count;
    for (; *at < f->count && count < LOOKUPS_PER_JOB && count < room; (*at)++)
        if (f->unfinished[*at].due <= f->now && (f->unfinished[*at].has_request || !filter->with_request)) {
            index[count] = *at;
            wanted[count++] = f->unfinished[*at];
        }
    if (count == 0)
        return ONCE_OK;
    struct once_page page = { .count = 0 };
    struct job job = { .kind = JOB_LOOKUP_MANY, .lookup_many = { wanted, count, &page } };
    once_result r = engine_call(engine, &job, err);
    for (size_t i = 0; r == ONCE_OK && i < count; i++) {
        struct once_unfinished *unfinished = &f->unfinished[index[i]];
        bool keep = false;
        if (judge(unfinished, &page.records[i], f->now, &keep) && gather_matches(filter, &page.records[i], f->now) &&
            (page.records[i].has_request || !filter->with_request))
            gather_record(g, &page.records[i]);
        if (!keep) {
            f->failed -= unfinished->failed;
            unfinished->fence = 0; /* dropped below */
        }
    }
    size_t kept = index[0], gone = 0;
    for (size_t i = index[0]; r == ONCE_OK && i < f->count; i++) {
        if (f->unfinished[i].fence != 0)
            f->unfinished[kept++] = f->unfinished[i];
        else
            gone++;
    }
    if (r == ONCE_OK) {
        f->count = kept;
        *at -= gone;
    }
    *looked_up += count;
    once_page_release(&page);
    return r;
}

/* Where the next page begins: after the attempts that this page looked_up up, or, if it looked_up up all of them, where
 * the sweep goes on. */
static uint64_t next_of(const struct abandoned_finder *f, size_t at, uint64_t before)
{
    if (at == f->count && !f->more)
        return 0;
    uint64_t last = at > 0 ? f->unfinished[at - 1].fence : 0;
    return last > before ? last : before > 0 ? before : 1;
}

once_result abandoned_finder_list(struct abandoned_finder *f, struct engine *engine, const struct once_filter *filter,
                                  struct once_page *page, struct once_error *err)
{
    struct gather_page g;
    pthread_mutex_lock(&f->lock);
    once_result r = gather_page_init(&g, filter->limit, err);
    if (r == ONCE_OK)
        r = sweep(f, engine, err);
    size_t at = find_after(f, filter->before), looked_up = 0;
    while (r == ONCE_OK && at < f->count && g.count < filter->limit && looked_up < LOOKUPS_MAX)
        r = look_up_some(f, engine, filter, &at, &looked_up, &g, err);
    if (r == ONCE_OK) {
        page->next = next_of(f, at, filter->before);
        r = gather_page_make(&g, page, err);
    }
    gather_page_release(&g);
    pthread_mutex_unlock(&f->lock);
    return r;
}
