/*
 * outbox.h - the messages that wait to be published, in PostgreSQL or SQLite.
 *
 * A relay takes a batch, publishes it with no transaction open, and settles it. A batch contains only messages that
 * were durably committed before it was taken (K12). Messages of one key come in order, and none of them while an
 * earlier message of the key is retrying. Settling removes exactly the messages that were confirmed, whoever settles
 * them; it records a failure only while the relay still holds the lease of the batch (fence).
 *
 * 70_outbox.sql explains lanes, ordering keys and stalled messages; outbox_sqlite.c does the same with one lane.
 * Callers: messages/relay.c, cli/outbox.c, daemon/console/outbox.c. One thread.
 */
#ifndef ONCE_MESSAGES_OUTBOX_OUTBOX_H
#define ONCE_MESSAGES_OUTBOX_OUTBOX_H

#include "messages/message.h"

#define OUTBOX_BATCH_BYTES (32 << 20) /* of payloads, and one message more: a batch is all in memory */
#define OUTBOX_LIST_MAX 100000        /* messages in one listing */
#define OUTBOX_POLL_MS 500            /* the longest that a relay waits before it looks for messages */
#define OUTBOX_LEASE_MS_MIN 1000      /* a relay on a busy machine would lose a shorter lease */
#define OUTBOX_LEASE_MS_MAX 3600000   /* a crashed relay blocks a lane for that long */

enum outbox_verdict {
    OUTBOX_UNTRIED = 0,  /* not sent: it stays as it was, for the next batch */
    OUTBOX_REFUSED,      /* the numbers are those of once.outbox_settle() */
    OUTBOX_UNREACHED,    /* the sink was not reached */
    OUTBOX_DEAD_REFUSED, /* refused for the last time: becomes a dead letter */
    OUTBOX_DEAD_CRASHED, /* relays crashed while they published it: becomes a dead letter */
    OUTBOX_CONFIRMED,
};

/* A message in the batch of a relay; the relay sets the last three for settle(). */
struct outbox_message {
    struct message message;
    int32_t lane;
    int64_t fence, seq;
    once_time created_at; /* or when it was due, for a scheduled message */
    int32_t delays;       /* attempts so far that did not reach the sink */
    bool suspect;         /* a relay died while it was publishing this message */
    enum outbox_verdict verdict;
    int64_t wait_ms; /* REFUSED, UNREACHED: until the next attempt */
    char reason[MESSAGE_REASON_LEN];
};

struct outbox_batch {
    struct outbox_message *messages;
    size_t count;
    void *memory; /* owned by the implementation */
};

struct outbox_item {
    struct message_item base;
    once_time created_at;
    int64_t delays;
};

/* Counts end at 100000. The lags are the age of the oldest message; 0 without messages. */
struct outbox_counts {
    int64_t pending, stalled, scheduled, dead, lag_ms, stalled_lag_ms;
};

struct outbox;

struct outbox_ops {
    once_result (*connect)(struct outbox *o, struct once_error *err);
    void (*close)(struct outbox *o);
    once_result (*take)(struct outbox *o, int64_t lease_ms, int32_t most, bool alone, struct outbox_batch *batch,
                        struct once_error *err);
    once_result (*settle)(struct outbox *o, const struct outbox_batch *batch, struct once_error *err);
    void (*batch_release)(struct outbox_batch *batch);
    once_result (*retry_now)(struct outbox *o, struct once_error *err);
    once_result (*upkeep)(struct outbox *o, struct once_error *err);
    once_result (*set_idle)(struct outbox *o, bool idle, struct once_error *err);
    void (*wait)(struct outbox *o, int fd, int ms);
    once_result (*counts)(struct outbox *o, struct outbox_counts *counts, struct once_error *err);
    once_result (*query)(struct outbox *o, const char *id, const struct message_filter *filter, message_item_fn *each,
                         void *arg, struct once_error *err);
    once_result (*resolve)(struct outbox *o, const char *id, const char *action, once_span actor, once_span reason,
                           char did[16], struct once_error *err);
};

struct outbox {
    const struct outbox_ops *ops;
};

/* For a URL as once_store_url() makes it. ONCE_INVALID: this kind of store cannot have an outbox. Does not connect yet.
 */
once_result outbox_create(const char *url, struct outbox **out, struct once_error *err);
/* The same, and connects. */
once_result outbox_open(const char *url, struct outbox **out, struct once_error *err);
void outbox_close(struct outbox *o); /* NULL is fine */

/* The functions below check their arguments and the implementation's answer; nothing else calls o->ops. */

/* Also again, after a failure. */
once_result outbox_connect(struct outbox *o, struct once_error *err);
/* At most `most` messages under a lease; `alone`: a suspect, if there is one, and nothing else. Release the batch after
 * ONCE_OK, with or without messages. */
once_result outbox_take(struct outbox *o, int64_t lease_ms, int32_t most, bool alone, struct outbox_batch *batch,
                        struct once_error *err);
once_result outbox_settle(struct outbox *o, const struct outbox_batch *batch, struct once_error *err);
void outbox_batch_release(struct outbox *o, struct outbox_batch *batch);
/* Messages that wait because a sink was not reached are due now. */
once_result outbox_retry_now(struct outbox *o, struct once_error *err);
/* About every second: scheduled messages whose time has come become pending. */
once_result outbox_upkeep(struct outbox *o, struct once_error *err);
/* Whether this relay is about to wait, so that an enqueue has to wake it. */
once_result outbox_set_idle(struct outbox *o, bool idle, struct once_error *err);
/* Returns when a message may be there, when `fd` is readable, or after `ms`. */
void outbox_wait(struct outbox *o, int fd, int ms);
once_result outbox_counts(struct outbox *o, struct outbox_counts *counts, struct once_error *err);
/* With `id`: that message, with its payload, and `filter` is NULL. Otherwise the oldest first. Each item is an
 * outbox_item; its bytes last until `each` returns. */
once_result outbox_query(struct outbox *o, const char *id, const struct message_filter *filter, message_item_fn *each,
                         void *arg, struct once_error *err);
/* `action` is "retry" or "drop"; `did` says what was done: "retried", "hurried", "dropped", or "absent". */
once_result outbox_resolve(struct outbox *o, const char *id, const char *action, once_span actor, once_span reason,
                           char did[16], struct once_error *err);

struct outbox *outbox_pg_create(const char *url);
struct outbox *outbox_sqlite_create(const char *path);

#endif
