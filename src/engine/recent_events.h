/*
 * recent_events.h - what the store does not keep of a record: that it was replayed, how often; that its lease was
 * renewed, when; who was fenced. Since this process began, for the console.
 *
 * A replay writes nothing, and a renewal overwrites the one before: so this is memory only, of one process, and
 * bounded: counts of the last 16384 records that something happened to, 8192 moments of all of them. Not kept at all
 * until somebody wants it (engine_record_recent_events). Called with the engine's lock held.
 */
#ifndef ONCE_ENGINE_RECENT_EVENTS_H
#define ONCE_ENGINE_RECENT_EVENTS_H

#include "once.h"

#define RECENT_EVENT_KINDS(X)                                                                                          \
    X(EXTENDED, "extended")                                                                                            \
    X(ADVANCED, "advanced")                                                                                            \
    X(LEASE_ENDED, "lease ended") /* its client went away: the lease was ended */                                      \
    X(FENCED, "fenced")

enum recent_event_kind {
#define RECENT_EVENT__KIND(name, text) RECENT_EVENT_##name,
    RECENT_EVENT_KINDS(RECENT_EVENT__KIND)
#undef RECENT_EVENT__KIND
};

const char *recent_event_name(enum recent_event_kind kind);

struct recent_event {
    uint8_t record[16];
    once_time at;   /* wall clock, ms */
    uint64_t fence; /* of the grant that it is about */
    enum recent_event_kind kind;
    uint8_t point_len; /* ADVANCED */
    char point[ONCE_POINT_LEN_MAX];
};

/* Of one record. */
struct recent_events_view {
    uint64_t replays, renewals, fenced;
    once_time first_replay, last_replay; /* 0: none */
    bool whole;                          /* nothing of it was forgotten since `began` */
    once_time began;
    struct recent_event *newest; /* the last ones, oldest first; freed by the caller */
    size_t count;
};
enum { RECENT_EVENTS_SHOWN = 200 };

struct once_op; /* store/store.h */
struct recent_events;

struct recent_events *recent_events_new(once_time now);
void recent_events_free(struct recent_events *recent_events);
void recent_events_note(struct recent_events *recent_events, const struct once_op *op, once_time now);
/* False: no memory. */
bool recent_events_read(const struct recent_events *recent_events, const uint8_t record[16],
                        struct recent_events_view *out);

/* Of a handle's own engine: begins to keep them; false where they are not kept. */
bool once_record_recent_events(struct once *once);
bool once_recent_events(struct once *once, const uint8_t record[16], struct recent_events_view *out);

#endif
