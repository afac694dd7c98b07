/*
 * outbox.h - the messages that wait to be published, in whichever database they are.
 *
 * A relay takes a batch, publishes it with no transaction open, and settles it. What a batch
 * promises: its messages were committed, durably, before it was taken (K12); messages of one key come in
 * order, and none of them while an earlier one of the key waits elsewhere. What settling promises: a
 * message that was confirmed is removed, exactly that one; a failure is noted only while the lease
 * that the batch was taken under is still ours (fence).
 *
 * 70_outbox.sql explains lanes, lines and what is held; outbox_sqlite.c does the same with less.
 * Callers: messages/relay.c, cli/outbox.c. One thread.
 */
#ifndef ONCE_MESSAGES_OUTBOX_OUTBOX_H
#define ONCE_MESSAGES_OUTBOX_OUTBOX_H

#include "once.h"

#define OUTBOX_BATCH_MAX 1000         /* messages; more only waits longer for its slowest */
#define OUTBOX_BATCH_BYTES (32 << 20) /* of payloads, then one more: all of it is in memory */
#define OUTBOX_REASON_LEN 240         /* of why a message failed, with its NUL */
#define OUTBOX_LIST_MAX 100000        /* of one listing */
#define OUTBOX_POLL_MS 500            /* how long a relay sleeps at most */
#define OUTBOX_LEASE_MS_MIN 1000      /* shorter, and a busy machine loses it */
#define OUTBOX_LEASE_MS_MAX 3600000   /* a crash delays a lane by that long */

enum outbox_verdict {
    OUTBOX_UNTRIED = 0,  /* as it was: somebody takes it again */
    OUTBOX_REFUSED,      /* numbers as once.outbox_settle() has them */
    OUTBOX_UNREACHED,    /* nothing was said about this message */
    OUTBOX_DEAD_REFUSED, /* refused, for the last time: to the dead letters */
    OUTBOX_DEAD_CRASHED, /* relays died of it: to the dead letters */
    OUTBOX_CONFIRMED,
};

struct outbox_message {
    int32_t lane;
    int64_t fence, seq;
    char id[ONCE_UUID_LEN + 1];
    once_span topic, key, content_type, headers, payload; /* headers: lines "name: value" CR LF */
    bool has_key;
    once_time created_at;              /* or when it was due, if that was later */
    int64_t age_ms;                    /* since it was enqueued, when it was taken, by the database's clock */
    int32_t refusals, delays, crashes; /* so far */
    bool suspect;                      /* a relay went away with it under way */
    /* What the relay made of it. */
    size_t route; /* which of its own */
    uint64_t started_ns;
    enum outbox_verdict verdict;
    int64_t wait_ms; /* REFUSED, UNREACHED: until the next try */
    char reason[OUTBOX_REASON_LEN];
    struct outbox_message *next; /* of its key, in this batch */
};

struct outbox_batch {
    struct outbox_message *messages;
    size_t count;
    void *memory; /* the implementation's */
};

/* A message as an operator sees it. */
struct outbox_item {
    const char *state; /* pending, retrying, behind, later, dead */
    const char *id;
    once_span topic, key, content_type, headers, payload;
    bool has_key;
    once_time created_at, at; /* `at`: of the next try, of its place, of its death; 0: none */
    int64_t refusals, delays, crashes;
    once_span reason;
    once_span consumer, message_id, source; /* of a dead letter of `once consume`; else empty */
};
typedef void outbox_item_fn(void *arg, const struct outbox_item *item);

/* Counts end at 100000. Times are for how long the oldest has waited, 0 where there is none. */
struct outbox_counts {
    int64_t pending, stalled, scheduled, dead, lag_ms, stalled_lag_ms;
};

struct outbox;

struct outbox_ops {
    once_result (*connect)(struct outbox *o, struct once_error *err); /* also again, after a failure */
    void (*close)(struct outbox *o);
    once_result (*take)(struct outbox *o, int64_t lease_ms, int32_t most, bool alone, struct outbox_batch *batch,
                        struct once_error *err);
    once_result (*settle)(struct outbox *o, const struct outbox_batch *batch, struct once_error *err);
    void (*batch_release)(struct outbox_batch *batch);
    once_result (*retry_now)(struct outbox *o, struct once_error *err);
    once_result (*upkeep)(struct outbox *o, struct once_error *err);
    once_result (*set_idle)(struct outbox *o, bool set_idle, struct once_error *err);
    /* Until a message may be there, `fd` is readable, or the time is over. */
    void (*wait)(struct outbox *o, int fd, int ms);
    once_result (*counts)(struct outbox *o, struct outbox_counts *counts, struct once_error *err);
    /* With `id`: that one, with its payload. Else oldest first. */
    once_result (*query)(struct outbox *o, const char *id, const char *states, const char *topic_prefix, int32_t most,
                         outbox_item_fn *each, void *arg, struct once_error *err);
    /* `action` is "retry" or "drop"; `did` says what was done, or "absent". */
    once_result (*resolve)(struct outbox *o, const char *id, const char *action, once_span actor, once_span reason,
                           char did[16], struct once_error *err);
};

struct outbox {
    const struct outbox_ops *ops;
};

/* A URL as once_store_url() makes it. ONCE_INVALID: no outbox can be there. Does not connect yet. */
once_result outbox_create(const char *url, struct outbox **out, struct once_error *err);
/* The same, and connects. */
once_result outbox_open(const char *url, struct outbox **out, struct once_error *err);
void outbox_close(struct outbox *o);

struct outbox *outbox_pg_create(const char *url);
struct outbox *outbox_sqlite_create(const char *path);

#endif
