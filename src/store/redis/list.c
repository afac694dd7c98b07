/*
 * list.c - reading many records: listings, the history of one, counters.
 *
 * Redis keeps no order among keys, so a listing goes by SCAN: a page is newest first within itself, and the pages
 * together show every record that was there all the time, perhaps twice. Abandoned records are listed oldest first,
 * from the set of unfinished records (PREFIX:open): completers use this, and its cost does not grow with the finished
 * records.
 */
#include "store/redis/store.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "store/gather.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static once_span span_of(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING ? once_span_of(reply->str, (size_t)reply->len) : once_span_of(NULL, 0);
}

static int hex_of(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The record that a key is about: 32 digits after the prefix. */
static bool record_of_key(once_span key, uint8_t record[16])
{
    if (key.len < 32)
        return false;
    const uint8_t *at = key.ptr + key.len - 32;
    for (int i = 0; i < 16; i++, at += 2) {
        if (hex_of(at[0]) < 0 || hex_of(at[1]) < 0)
            return false;
        record[i] = (uint8_t)(hex_of(at[0]) << 4 | hex_of(at[1]));
    }
    return true;
}

/* ------------------------------------------------------------------ by SCAN */

/* Our cursor holds Redis's cursor and, in the bits above it, how many keys of that step were shown already: a step may
 * find more than a page has room for, and Redis's cursor is smaller than its table of keys. */
#define CURSOR_BITS 48
#define CURSOR_MASK (((uint64_t)1 << CURSOR_BITS) - 1)

struct scan {
    struct redis_store *s;
    const struct once_filter *filter;
    struct gather_page *page;
    once_time now;
    char match[REDIS_PREFIX_MAX + 8];
};

/* Adds the records of `keys` that the filter selects. *shown: how many keys were looked at before the page was full. */
static once_result show_keys(struct scan *n, const redisReply *keys, size_t skip, size_t *shown, struct once_error *err)
{
    struct redis_conn *c = &n->s->conn;
    *shown = keys->elements;
    for (size_t i = skip; i < keys->elements; i++)
        redis_conn_put(c, 6,
                       (once_span[]){ ONCE_LIT("HMGET"), span_of(keys->element[i]), ONCE_LIT("m"), ONCE_LIT("t"),
                                      ONCE_LIT("k"), ONCE_LIT("p") });
    for (size_t i = skip; i < keys->elements; i++) {
        redisReply *reply = NULL;
        once_result r = redis_conn_next(c, &reply, err);
        if (r != ONCE_OK)
            return r == ONCE_UNKNOWN ? ONCE_UNAVAILABLE : r;
        struct redis_meta meta;
        struct once_record *record = &meta.stored.record;
        bool fits = reply->type == REDIS_REPLY_ARRAY && reply->elements == 4 &&
                    redis_meta_read(span_of(reply->element[0]), n->now, &meta) && !meta.stored.released &&
                    !once_stored_is_expired(&meta.stored, n->now) &&
                    record_of_key(span_of(keys->element[i]), record->grant.record);
        if (fits) {
            record->tenant = span_of(reply->element[1]);
            record->key = span_of(reply->element[2]);
            record->recovery_point = span_of(reply->element[3]);
            record->has_request = false;
            fits = record->tenant.len <= ONCE_TENANT_LEN_MAX && record->key.len <= ONCE_KEY_LEN_MAX &&
                   record->recovery_point.len <= ONCE_POINT_LEN_MAX && gather_matches(n->filter, record, n->now);
        }
        if (fits && n->page->count < n->filter->limit)
            gather_record(n->page, record);
        else if (fits && i < *shown)
            *shown = i;
        freeReplyObject(reply);
    }
    return ONCE_OK;
}

/* One step of SCAN, from *cursor on. */
static once_result scan_step(struct scan *n, uint64_t *cursor, size_t *looked, struct once_error *err)
{
    char from[24], count[12];
    snprintf(from, sizeof from, "%" PRIu64, *cursor & CURSOR_MASK);
    snprintf(count, sizeof count, "%d", ONCE_REDIS_SCAN_COUNT);
    once_span argv[] = { ONCE_LIT("SCAN"),        once_span_str(from), ONCE_LIT("MATCH"),
                         once_span_str(n->match), ONCE_LIT("COUNT"),   once_span_str(count) };
    redisReply *reply = NULL;
    once_result r = redis_store_ask(n->s, 6, argv, &reply, err);
    if (r != ONCE_OK)
        return r;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[1]->type != REDIS_REPLY_ARRAY) {
        freeReplyObject(reply);
        return once_fail(err, ONCE_CORRUPT, "Redis answered SCAN with an unexpected reply");
    }
    size_t skip = (size_t)(*cursor >> CURSOR_BITS), shown = 0, keys = reply->element[1]->elements;
    r = show_keys(n, reply->element[1], skip < keys ? skip : keys, &shown, err);
    if (shown < keys)
        *cursor = (uint64_t)shown << CURSOR_BITS | (*cursor & CURSOR_MASK);
    else
        *cursor = strtoull(reply->element[0]->str, NULL, 10);
    *looked += ONCE_REDIS_SCAN_COUNT;
    freeReplyObject(reply);
    if (r == ONCE_OK && (*cursor & CURSOR_MASK) != *cursor && shown >= keys)
        r = once_fail(err, ONCE_LIMIT, "this Redis has too many keys to list");
    return r;
}

static int newest_first(const void *a, const void *b)
{
    const struct once_record *x = a, *y = b;
    return (x->grant.fence < y->grant.fence) - (x->grant.fence > y->grant.fence);
}

static once_result list_all(struct redis_store *s, const struct once_filter *f, struct gather_page *g, uint64_t *next,
                            struct once_error *err)
{
    struct scan n = { .s = s, .filter = f, .page = g };
    snprintf(n.match, sizeof n.match, "%sr:*", s->url.prefix);
    once_result r = redis_store_now(s, &n.now, err);
    uint64_t cursor = f->before;
    size_t looked = 0;
    if (r == ONCE_OK)
        do
            r = scan_step(&n, &cursor, &looked, err);
        while (r == ONCE_OK && cursor != 0 && (cursor >> CURSOR_BITS) == 0 && looked < ONCE_LIST_SCAN_MAX &&
               g->count < f->limit);
    *next = cursor;
    qsort(g->records, g->count, sizeof *g->records, newest_first);
    return r;
}

/* ------------------------------------------------------------------ abandoned records */

/* One record of abandoned.lua's answer: its id, m, t, k, p, "1" if there is a request. */
static void show_open(struct gather_page *g, const struct once_filter *f, redisReply *const *six, once_time now)
{
    struct redis_meta meta;
    struct once_record *r = &meta.stored.record;
    if (!redis_meta_read(span_of(six[1]), now, &meta) || !record_of_key(span_of(six[0]), r->grant.record))
        return;
    r->tenant = span_of(six[2]);
    r->key = span_of(six[3]);
    r->recovery_point = span_of(six[4]);
    r->has_request = once_span_equal(span_of(six[5]), ONCE_LIT("1"));
    bool left = (r->state == ONCE_STATE_RUNNING && !r->lease_live) || (r->state == ONCE_STATE_FAILED && r->retryable);
    if (!left || meta.stored.released || once_stored_is_expired(&meta.stored, now) ||
        (f->with_request && !r->has_request) || r->tenant.len > ONCE_TENANT_LEN_MAX || r->key.len > ONCE_KEY_LEN_MAX ||
        r->recovery_point.len > ONCE_POINT_LEN_MAX || !gather_matches(f, r, now))
        return;
    gather_record(g, r);
}

/* One step over the set of unfinished records, after the fence `after_fence`. */
static once_result ask_open(struct redis_store *s, uint64_t after_fence, uint32_t limit, bool tidies,
                            redisReply **reply, struct once_error *err)
{
    char key[REDIS_PREFIX_MAX + 8], records[REDIS_PREFIX_MAX + 8], now[24], after[24], count[12];
    snprintf(key, sizeof key, "%sopen", s->url.prefix);
    snprintf(records, sizeof records, "%sr:", s->url.prefix);
    snprintf(now, sizeof now, "%" PRId64, s->clock != NULL ? s->clock->wall(s->clock->arg) : 0);
    snprintf(after, sizeof after, "%" PRIu64, after_fence);
    snprintf(count, sizeof count, "%u", limit);
    once_span argv[] = { ONCE_LIT("EVALSHA"),
                         once_span_str(s->sha[REDIS_SCRIPT_ABANDONED]),
                         ONCE_LIT("1"),
                         once_span_str(key),
                         once_span_str(now),
                         once_span_str(after),
                         once_span_str(count),
                         once_span_str(records),
                         tidies ? ONCE_LIT("1") : ONCE_LIT("0") };
    once_result r = redis_store_ask(s, 9, argv, reply, err);
    if (r != ONCE_OK && s->conn.fd >= 0 && redis_store_load(s, err) == ONCE_OK) /* the scripts were flushed */
        r = redis_store_ask(s, 9, argv, reply, err);
    bool right = r == ONCE_OK && (*reply)->type == REDIS_REPLY_ARRAY &&
                 (tidies ? (*reply)->elements == 3 : (*reply)->elements % 6 == 2);
    return r == ONCE_OK && !right ? once_fail(err, ONCE_CORRUPT, "Redis answered a script with an unexpected reply")
                                  : r;
}

static once_result list_abandoned(struct redis_store *s, const struct once_filter *f, struct gather_page *g,
                                  uint64_t *next, struct once_error *err)
{
    redisReply *reply = NULL;
    once_result r = ask_open(s, f->before, f->limit, false, &reply, err);
    for (size_t i = 2; r == ONCE_OK && i + 6 <= reply->elements && g->count < f->limit; i += 6)
        show_open(g, f, &reply->element[i], reply->element[0]->integer);
    if (r == ONCE_OK)
        *next = (uint64_t)reply->element[1]->integer;
    freeReplyObject(reply);
    return r;
}

once_result redis_store_tidy(struct redis_store *s, uint32_t budget, bool *more, struct once_error *err)
{
    redisReply *reply = NULL;
    once_result r = ask_open(s, s->tidied, budget, true, &reply, err);
    if (r == ONCE_OK) {
        s->tidied = (uint64_t)reply->element[1]->integer;
        *more = s->tidied != 0 && reply->element[2]->integer > 0;
    }
    freeReplyObject(reply);
    return r;
}

once_result redis_store_list(struct once_store *base, const struct once_filter *f, struct once_page *page,
                             struct once_error *err)
{
    struct redis_store *s = (struct redis_store *)base;
    struct gather_page g;
    once_result r = gather_page_init(&g, f->limit, err);
    if (r == ONCE_OK)
        r = f->abandoned ? list_abandoned(s, f, &g, &page->next, err) : list_all(s, f, &g, &page->next, err);
    if (r == ONCE_OK)
        r = gather_page_make(&g, page, err);
    gather_page_release(&g);
    return r;
}

/* By their ids, in that order. A record that does not exist any more has state NONE. */
once_result redis_store_lookup_many(struct once_store *base, const struct once_unfinished *wanted, size_t count,
                                    struct once_page *page, struct once_error *err)
{
    struct redis_store *s = (struct redis_store *)base;
    struct gather_page g;
    once_time now = 0;
    once_result r = gather_page_init(&g, (uint32_t)count, err);
    if (r == ONCE_OK)
        r = redis_store_now(s, &now, err);
    for (size_t i = 0; r == ONCE_OK && i < count; i++) {
        char id[33], key[REDIS_PREFIX_MAX + 40];
        redisReply *reply = NULL;
        redis_record_text(wanted[i].record, id);
        snprintf(key, sizeof key, "%sr:%s", s->url.prefix, id);
        once_span argv[] = { ONCE_LIT("HMGET"), once_span_str(key), ONCE_LIT("m"),
                             ONCE_LIT("t"),     ONCE_LIT("k"),      ONCE_LIT("p") };
        r = redis_store_ask(s, 6, argv, &reply, err);
        if (r != ONCE_OK)
            break;
        struct redis_meta meta = { .flags = 0 };
        struct once_record *record = &meta.stored.record;
        if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 4 &&
            redis_meta_read(span_of(reply->element[0]), now, &meta) && !meta.stored.released &&
            !once_stored_is_expired(&meta.stored, now)) {
            memcpy(record->grant.record, wanted[i].record, 16);
            record->tenant = span_of(reply->element[1]);
            record->key = span_of(reply->element[2]);
            record->recovery_point = span_of(reply->element[3]);
            gather_record(&g, record);
        } else {
            gather_record(&g, &(struct once_record){ .state = ONCE_STATE_NONE });
        }
        freeReplyObject(reply);
    }
    if (r == ONCE_OK)
        r = gather_page_make(&g, page, err);
    gather_page_release(&g);
    return r;
}

/* ------------------------------------------------------------------ history */

static void add_attempt(struct gather_history *t, const struct redis_meta *m)
{
    const struct once_record *r = &m->stored.record;
    if ((m->flags & REDIS_VERDICT) != 0)
        return; /* the audit trail shows it */
    gather_event(t, (struct once_event){ .at = r->claimed_at,
                                         .what = m->stored.probing ? "claimed to probe" : "claimed",
                                         .fence = r->grant.fence,
                                         .attempt = r->attempt,
                                         .state = ONCE_STATE_RUNNING });
    bool released_abandoned = m->superseded && (m->flags & REDIS_RELEASED_ABANDONED) != 0;
    if (m->has_result)
        gather_event(t, (struct once_event){ .at = r->finished_at,
                                             .what = m->stored.released || released_abandoned ? "released"
                                                     : m->superseded                          ? "superseded"
                                                                                              : "finished",
                                             .fence = r->grant.fence,
                                             .attempt = r->attempt,
                                             .state = m->stored.released || m->superseded ? ONCE_STATE_NONE : r->state,
                                             .status = r->status });
}

static uint64_t number_at(once_span bytes, size_t at, int len)
{
    uint64_t value = 0;
    for (int i = 0; i < len; i++)
        value = value << 8 | bytes.ptr[at + (size_t)i];
    return value;
}

/* time 8, fence 8, verdict 1, lengths 4 and 4, actor, reason: as once.lua packs them. */
static void add_verdict(struct gather_history *t, once_span line)
{
    enum { HEAD = 25 };
    static const char *const what[] = { "?", "resolved done", "resolved not done", "released" };
    if (line.len < HEAD)
        return;
    uint64_t actor = number_at(line, 17, 4), reason = number_at(line, 21, 4);
    if (actor > ONCE_ACTOR_LEN_MAX || reason > ONCE_REASON_LEN_MAX || line.len != HEAD + actor + reason)
        return;
    gather_event(t, (struct once_event){ .at = (once_time)number_at(line, 0, 8),
                                         .fence = number_at(line, 8, 8),
                                         .what = what[line.ptr[16] <= 3 ? line.ptr[16] : 0],
                                         .actor = once_span_of(line.ptr + HEAD, actor),
                                         .reason = once_span_of(line.ptr + HEAD + actor, reason) });
}

/* Reads the record's m and its two lists. They may be of three different moments: a history is only shown. */
static once_result read_history(struct redis_store *s, const uint8_t record[16], struct gather_history *t,
                                struct once_error *err)
{
    char id[33], keys[3][REDIS_PREFIX_MAX + 40];
    static const char *const names[3] = { "r:", "h:", "a:" };
    redis_record_text(record, id);
    redisReply *own = NULL, *before = NULL, *words = NULL;
    for (int i = 0; i < 3; i++)
        snprintf(keys[i], sizeof keys[i], "%s%s%s", s->url.prefix, names[i], id);
    once_span range[] = { ONCE_LIT("LRANGE"), once_span_str(keys[1]), ONCE_LIT("0"), ONCE_LIT("-1") };
    once_result r =
        redis_store_ask(s, 3, (once_span[]){ ONCE_LIT("HGET"), once_span_str(keys[0]), ONCE_LIT("m") }, &own, err);
    if (r == ONCE_OK)
        r = redis_store_ask(s, 4, range, &before, err);
    range[1] = once_span_str(keys[2]);
    if (r == ONCE_OK)
        r = redis_store_ask(s, 4, range, &words, err);
    once_time now = 0;
    if (r == ONCE_OK)
        r = redis_store_now(s, &now, err);
    struct redis_meta meta, earlier;
    for (size_t i = 0; r == ONCE_OK && words->type == REDIS_REPLY_ARRAY && i < words->elements; i++)
        add_verdict(t, span_of(words->element[i]));
    if (r == ONCE_OK && redis_meta_read(span_of(own), now, &meta) && !once_stored_is_expired(&meta.stored, now)) {
        add_attempt(t, &meta);
        for (size_t i = before->type == REDIS_REPLY_ARRAY ? before->elements : 0; i > 0; i--) {
            once_span line = span_of(before->element[i - 1]);
            if (line.len >= REDIS_META_LEN && redis_meta_read(once_span_of(line.ptr, REDIS_META_LEN), now, &earlier) &&
                earlier.first == meta.first)
                add_attempt(t, &earlier);
        }
    }
    freeReplyObject(own);
    freeReplyObject(before);
    freeReplyObject(words);
    return r;
}

once_result redis_store_history(struct once_store *base, const uint8_t record[16], struct once_history *history,
                                struct once_error *err)
{
    struct gather_history t;
    once_result r = gather_history_init(&t, err);
    if (r == ONCE_OK)
        r = read_history((struct redis_store *)base, record, &t, err);
    if (r == ONCE_OK)
        r = gather_history_make(&t, history, err);
    gather_history_release(&t);
    return r;
}

/* ------------------------------------------------------------------ counters */

once_result redis_store_stats(struct once_store *base, struct once_stats *stats, struct once_error *err)
{
    struct redis_store *s = (struct redis_store *)base;
    redisReply *size = NULL, *reply = NULL, *own = NULL;
    char keys[4][REDIS_PREFIX_MAX + 16];
    static const char *const names[4] = { "meta", "fence", "witness", "open" };
    once_span exists[5] = { ONCE_LIT("EXISTS") };
    for (int i = 0; i < 4; i++) {
        snprintf(keys[i], sizeof keys[i], "%s%s", s->url.prefix, names[i]);
        exists[i + 1] = once_span_str(keys[i]);
    }
    once_result r = redis_store_ask(s, 1, (once_span[]){ ONCE_LIT("DBSIZE") }, &size, err);
    if (r == ONCE_OK)
        r = redis_store_ask(s, 5, exists, &own, err);
    if (r == ONCE_OK)
        r = redis_store_ask(s, 1, (once_span[]){ ONCE_LIT("INFO") }, &reply, err);
    if (r == ONCE_OK)
        r = redis_store_now(s, &stats->now, err);
    if (r == ONCE_OK) {
        once_span info = span_of(reply);
        uint64_t evicted = redis_info_number(info, "evicted_keys");
        if (evicted > s->evicted_seen)
            s->evicted += evicted - s->evicted_seen;
        s->evicted_seen = evicted;
        stats->attempts = size->integer > own->integer ? (uint64_t)(size->integer - own->integer) : 0;
        stats->bytes = redis_info_number(info, "used_memory");
    }
    stats->commits = s->commits;
    stats->lost = s->lost;
    stats->evicted = s->evicted;
    stats->restarts = s->restarts;
    freeReplyObject(size);
    freeReplyObject(own);
    freeReplyObject(reply);
    return r;
}
