/* recent_events.c - see recent_events.h. */
#include "engine/recent_events.h"

#include "core/span.h"
#include "store/store.h"

#include <stdlib.h>

enum { SET_BITS = 11, SET_COUNT = 1 << SET_BITS, SET_LEN = 8, RING_LEN = 8192 };

struct counted {
    uint8_t record[16];
    bool used;
    uint32_t replays, renewals, fenced;
    once_time first_replay, last_replay;
    uint64_t touched; /* number of the last change: the smallest of a set is replaced */
};

struct recent_events {
    once_time began;
    bool forgot; /* the counts of a record were replaced */
    uint64_t touches;
    struct counted sets[SET_COUNT][SET_LEN];
    struct recent_event ring[RING_LEN];
    uint64_t noted; /* how many ever; the newest is number noted - 1 */
};

const char *recent_event_name(enum recent_event_kind kind)
{
    static const char *const names[] = {
#define RECENT_EVENT__NAME(name, text) text,
        RECENT_EVENT_KINDS(RECENT_EVENT__NAME)
#undef RECENT_EVENT__NAME
    };
    return names[kind];
}

struct recent_events *recent_events_new(once_time now)
{
    struct recent_events *m = calloc(1, sizeof *m);
    if (m != NULL)
        m->began = now;
    return m;
}

void recent_events_free(struct recent_events *m)
{
    free(m);
}

/* A record's id is a MAC: its first bits are evenly distributed. */
static size_t set_of(const uint8_t record[16])
{
    return ((size_t)record[0] << 8 | record[1]) & (SET_COUNT - 1);
}

static const struct counted *find(const struct recent_events *m, const uint8_t record[16])
{
    const struct counted *set = m->sets[set_of(record)];
    for (size_t i = 0; i < SET_LEN; i++)
        if (set[i].used && memcmp(set[i].record, record, 16) == 0)
            return &set[i];
    return NULL;
}

static struct counted *touch(struct recent_events *m, const uint8_t record[16])
{
    struct counted *set = m->sets[set_of(record)], *at = set;
    for (size_t i = 0; i < SET_LEN; i++) {
        if (set[i].used && memcmp(set[i].record, record, 16) == 0) {
            at = &set[i];
            break;
        }
        if (set[i].touched < at->touched)
            at = &set[i];
    }
    if (!at->used || memcmp(at->record, record, 16) != 0) {
        m->forgot = m->forgot || at->used;
        *at = (struct counted){ .used = true };
        memcpy(at->record, record, 16);
    }
    at->touched = ++m->touches;
    return at;
}

static void add(struct recent_events *m, const struct once_op *op, enum recent_event_kind kind, once_time now)
{
    struct recent_event *recent_event = &m->ring[m->noted++ % RING_LEN];
    *recent_event = (struct recent_event){ .at = now, .fence = op->request->grant.fence, .kind = kind };
    memcpy(recent_event->record, op->record, sizeof recent_event->record);
    if (kind == RECENT_EVENT_ADVANCED) {
        once_span point = op->request->advance.point;
        recent_event->point_len =
            (uint8_t)(point.len < sizeof recent_event->point ? point.len : sizeof recent_event->point);
        memcpy(recent_event->point, point.ptr, recent_event->point_len);
    }
}

void recent_events_note(struct recent_events *m, const struct once_op *op, once_time now)
{
    enum once_verb verb = op->request->verb;
    enum once_arm arm = op->reply.arm;
    if (op->result != ONCE_OK || verb == ONCE_VERB_LOOKUP)
        return;
    if (verb == ONCE_VERB_CLAIM && arm == ONCE_ARM_REPLAY) {
        struct counted *counted = touch(m, op->record);
        counted->replays++;
        counted->last_replay = now;
        counted->first_replay = counted->first_replay != 0 ? counted->first_replay : now;
    } else if (arm == ONCE_ARM_FENCED && verb != ONCE_VERB_RESOLVE && verb != ONCE_VERB_TAKE_OVER) {
        touch(m, op->record)->fenced++;
        add(m, op, RECENT_EVENT_FENCED, now);
    } else if (arm == ONCE_ARM_DONE && verb == ONCE_VERB_EXTEND && op->request->extend.lease_ms == 1) {
        add(m, op, RECENT_EVENT_LEASE_ENDED, now); /* the daemon sets a lease of 1 ms for a client that hung up */
    } else if (arm == ONCE_ARM_DONE && (verb == ONCE_VERB_EXTEND || verb == ONCE_VERB_ADVANCE)) {
        touch(m, op->record)->renewals++;
        add(m, op, verb == ONCE_VERB_EXTEND ? RECENT_EVENT_EXTENDED : RECENT_EVENT_ADVANCED, now);
    }
}

bool recent_events_read(const struct recent_events *m, const uint8_t record[16], struct recent_events_view *v)
{
    const struct counted *counted = find(m, record);
    *v = (struct recent_events_view){ .began = m->began, .whole = counted != NULL || !m->forgot };
    if (counted != NULL) {
        v->replays = counted->replays;
        v->renewals = counted->renewals;
        v->fenced = counted->fenced;
        v->first_replay = counted->first_replay;
        v->last_replay = counted->last_replay;
    }
    v->newest = malloc(RECENT_EVENTS_SHOWN * sizeof *v->newest);
    if (v->newest == NULL)
        return false;
    uint64_t oldest = m->noted > RING_LEN ? m->noted - RING_LEN : 0;
    size_t matches = 0;
    for (uint64_t i = oldest; i < m->noted; i++)
        matches += memcmp(m->ring[i % RING_LEN].record, record, 16) == 0;
    size_t skipped = matches > RECENT_EVENTS_SHOWN ? matches - RECENT_EVENTS_SHOWN : 0;
    for (uint64_t i = oldest; i < m->noted; i++) {
        if (memcmp(m->ring[i % RING_LEN].record, record, 16) != 0)
            continue;
        if (skipped > 0)
            skipped--;
        else
            v->newest[v->count++] = m->ring[i % RING_LEN];
    }
    return true;
}
