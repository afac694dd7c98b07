/*
 * dead_letters.h - the table of dead letters of `once consume`, in the database of its store.
 *
 * A dead letter is a whole message: its broker gets an acknowledgement once the letter is here. Its id is derived from
 * consumer, message id and payload, so that storing it again after a crash keeps one copy. After an operator's `retry`
 * a consumer of that name delivers it, and then removes it, or stores it again.
 *
 * Callers: messages/consume_loop.c, cli/inbox.c. One thread. After a failure the next call connects again by itself.
 */
#ifndef ONCE_MESSAGES_DEAD_LETTERS_DEAD_LETTERS_H
#define ONCE_MESSAGES_DEAD_LETTERS_DEAD_LETTERS_H

#include "messages/sources/source.h"

struct dead_letter {
    char id[ONCE_UUID_LEN + 1];
    once_span consumer, message_id;
    const struct incoming *incoming;
    int32_t attempts;
    once_span reason;
    bool again; /* it was being retried: a letter with this id becomes dead again; otherwise it is left unchanged */
};

struct dead_letter_item {
    struct message_item base; /* message.refusals: deliveries that failed */
    once_span consumer, message_id, source;
};

typedef void dead_letters_due_fn(void *arg, once_span message_id, const struct incoming *incoming);

struct dead_letters;

struct dead_letters_ops {
    void (*close)(struct dead_letters *l);
    once_result (*put)(struct dead_letters *l, const struct dead_letter *dead_letter, struct once_error *err);
    once_result (*due)(struct dead_letters *l, once_span consumer, int32_t most, dead_letters_due_fn *each, void *arg,
                       struct once_error *err);
    once_result (*settle)(struct dead_letters *l, const char *id, struct once_error *err);
    once_result (*count)(struct dead_letters *l, once_span consumer, int64_t *count, struct once_error *err);
    once_result (*query)(struct dead_letters *l, const char *id, const struct message_filter *filter,
                         message_item_fn *each, void *arg, struct once_error *err);
    once_result (*resolve)(struct dead_letters *l, const char *id, const char *action, once_span actor,
                           once_span reason, char did[16], struct once_error *err);
};

struct dead_letters {
    const struct dead_letters_ops *ops;
};

/* For a URL as once_store_url() makes it. ONCE_INVALID: the store has no such table, being a daemon's, or Redis. */
once_result dead_letters_check(const char *url, struct once_error *err);
once_result dead_letters_open(const char *url, struct dead_letters **out, struct once_error *err);
void dead_letters_close(struct dead_letters *l); /* NULL is fine */
void dead_letter_id(once_span consumer, once_span message_id, once_span payload, char out[ONCE_UUID_LEN + 1]);

/* The functions below check their arguments and the implementation's answer; nothing else calls l->ops. */

/* The letter is durable after ONCE_OK. */
once_result dead_letters_put(struct dead_letters *l, const struct dead_letter *dead_letter, struct once_error *err);
/* The letters that an operator wants delivered. Their bytes last until `each` returns. */
once_result dead_letters_due(struct dead_letters *l, once_span consumer, int32_t most, dead_letters_due_fn *each,
                             void *arg, struct once_error *err);
/* It was delivered: removes it. */
once_result dead_letters_settle(struct dead_letters *l, const char *id, struct once_error *err);
once_result dead_letters_count(struct dead_letters *l, once_span consumer, int64_t *count, struct once_error *err);
/* As outbox_query() and outbox_resolve(); each item is a dead_letter_item. */
once_result dead_letters_query(struct dead_letters *l, const char *id, const struct message_filter *filter,
                               message_item_fn *each, void *arg, struct once_error *err);
once_result dead_letters_resolve(struct dead_letters *l, const char *id, const char *action, once_span actor,
                                 once_span reason, char did[16], struct once_error *err);

once_result dead_letters_pg_create(const char *url, struct dead_letters **out, struct once_error *err);
once_result dead_letters_sqlite_create(const char *path, struct dead_letters **out, struct once_error *err);

#endif
