/*
 * moments.h - what the store does not keep of a record: that it was replayed, how often; that its lease was renewed,
 * when; who was fenced. Since this process began, for the console.
 *
 * A replay writes nothing, and a renewal overwrites the one before: so this is memory only, of one process, and
 * bounded: counts of the last 16384 records that something happened to, 8192 moments of all of them. Not kept at all
 * until somebody wants it (engine_watch). Called with the engine's lock held.
 */
#ifndef ONCE_ENGINE_MOMENTS_H
#define ONCE_ENGINE_MOMENTS_H

#include "store/store.h"

#define MOMENT_KINDS(X)                                                                                                \
    X(EXTENDED, "extended")                                                                                            \
    X(ADVANCED, "advanced")                                                                                            \
    X(LET_GO, "let go") /* its client went away: the lease was ended */                                                \
    X(FENCED, "fenced")

enum moment_kind {
#define MOMENT__KIND(name, text) MOMENT_##name,
    MOMENT_KINDS(MOMENT__KIND)
#undef MOMENT__KIND
};

const char *moment_name(enum moment_kind kind);

struct moment {
    uint8_t record[16];
    once_time at;   /* wall clock, ms */
    uint64_t fence; /* of the grant that it is about */
    enum moment_kind kind;
    uint8_t point_len; /* ADVANCED */
    char point[ONCE_POINT_LEN_MAX];
};

/* Of one record. */
struct moments_view {
    uint64_t replays, renewals, fenced;
    once_time first_replay, last_replay; /* 0: none */
    bool whole;                          /* nothing of it was forgotten since `began` */
    once_time began;
    struct moment *newest; /* the last ones, oldest first; freed by the caller */
    size_t count;
};
enum { MOMENTS_SHOWN = 200 };

struct moments;

struct moments *moments_new(once_time now);
void moments_free(struct moments *moments);
void moments_note(struct moments *moments, const struct once_op *op, once_time now);
/* False: no memory. */
bool moments_read(const struct moments *moments, const uint8_t record[16], struct moments_view *out);

/* Of a handle's own engine: begins to keep them; false where they are not kept. */
bool once_watch(struct once *once);
bool once_moments(struct once *once, const uint8_t record[16], struct moments_view *out);

#endif
