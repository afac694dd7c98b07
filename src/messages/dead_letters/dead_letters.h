/*
 * dead_letters.h - the dead letters of `once consume`, in whichever database the store is in.
 *
 * A letter is a whole message: once it is here, its broker is told that it is dealt with. Its id is made of consumer,
 * message id and payload, so that giving up twice, after a crash in between, is giving up once. An operator says
 * `retry`, and whoever consumes for that consumer delivers it, and then settles it: removes it, or buries it again.
 *
 * Callers: cli/consume.c, cli/inbox.c. One thread. After a failure the next call connects anew by itself.
 */
#ifndef ONCE_MESSAGES_DEAD_LETTERS_DEAD_LETTERS_H
#define ONCE_MESSAGES_DEAD_LETTERS_DEAD_LETTERS_H

#include "messages/outbox/outbox.h"
#include "messages/sources/source.h"

/* What is known of a message that could not be delivered. */
struct dead_letter {
    char id[ONCE_UUID_LEN + 1];
    once_span consumer, message_id;
    const struct incoming *message;
    int32_t attempts;
    once_span reason;
    bool again; /* it had been retried: one that is there is dead again; else it stays as it is */
};

typedef void dead_letters_due_fn(void *arg, const char *id, once_span message_id, const struct incoming *message);

struct dead_letters;

struct dead_letters_ops {
    void (*close)(struct dead_letters *l);
    once_result (*put)(struct dead_letters *l, const struct dead_letter *dead_letter, struct once_error *err);
    /* Those that an operator wants delivered. Their bytes are gone after the call. */
    once_result (*due)(struct dead_letters *l, once_span consumer, int32_t most, dead_letters_due_fn *each, void *arg,
                       struct once_error *err);
    once_result (*settle)(struct dead_letters *l, const char *id, struct once_error *err);
    once_result (*count)(struct dead_letters *l, once_span consumer, int64_t *count, struct once_error *err);
    /* As an outbox has them (outbox.h); `consumer` may be empty. */
    once_result (*query)(struct dead_letters *l, const char *id, const char *states, const char *topic_prefix,
                         once_span consumer, int32_t most, outbox_item_fn *each, void *arg, struct once_error *err);
    once_result (*resolve)(struct dead_letters *l, const char *id, const char *action, once_span actor,
                           once_span reason, char did[16], struct once_error *err);
};

struct dead_letters {
    const struct dead_letters_ops *ops;
};

/* A URL as once_store_url() makes it. ONCE_INVALID where the store has no table for them: a daemon's. */
once_result dead_letters_open(const char *url, struct dead_letters **out, struct once_error *err);
void dead_letters_close(struct dead_letters *l);
/* The id of a letter. */
void dead_letter_id(once_span consumer, once_span message_id, once_span payload, char out[ONCE_UUID_LEN + 1]);

once_result dead_letters_pg_create(const char *url, struct dead_letters **out, struct once_error *err);
once_result dead_letters_sqlite_create(const char *path, struct dead_letters **out, struct once_error *err);

#endif
