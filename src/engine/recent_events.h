/*
 * recent_events.h - events of records that the store does not keep: replays, renewals, fenced calls. For the console.
 *
 * A replay writes nothing, and a renewal overwrites the one before. So this is kept in the memory of one process, since
 * its start, and bounded: counts of the 16384 records that changed last, and the last 8192 events. Nothing is kept
 * before once_record_recent_events(). Called with the engine's lock held.
 */
#ifndef ONCE_ENGINE_RECENT_EVENTS_H
#define ONCE_ENGINE_RECENT_EVENTS_H

#include "once.h"

#define RECENT_EVENT_KINDS(X)                                                                                          \
    X(EXTENDED, "extended")                                                                                            \
    X(ADVANCED, "advanced")                                                                                            \
    X(LEASE_ENDED, "lease ended") /* the daemon ended it because its client hung up */                                 \
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
    uint64_t fence; /* of the grant that was used */
    enum recent_event_kind kind;
    uint8_t point_len; /* ADVANCED */
    char point[ONCE_POINT_LEN_MAX];
};

/* Of one record. */
struct recent_events_view {
    uint64_t replays, renewals, fenced;
    once_time first_replay, last_replay; /* 0: none */
    bool whole;                          /* the counts cover everything since `began` */
    once_time began;                     /* the start of recording */
    struct recent_event *newest;         /* the last ones, oldest first; the caller frees them */
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

/* Begins to record; reads. False: not recorded. */
bool once_record_recent_events(struct once *once);
bool once_recent_events(struct once *once, const uint8_t record[16], struct recent_events_view *out);

#endif
