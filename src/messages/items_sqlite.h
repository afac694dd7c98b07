/*
 * items_sqlite.h - an operator's queries and actions on messages in SQLite: the part that the outbox and the dead
 * letters share.
 *
 * The caller begins and ends the transaction.
 */
#ifndef ONCE_MESSAGES_ITEMS_SQLITE_H
#define ONCE_MESSAGES_ITEMS_SQLITE_H

#include "messages/message.h"
#include "store/sqlite/db.h"

/* State and id, which are the first columns, and topic, key, content type, headers and payload from column `first` on.
 */
void items_sqlite_read(struct sqlite_query *q, int first, struct message_item *item);
/* Binds id, states, topic prefix, consumer and limit, in this order; calls `read` for each row. */
once_result items_sqlite_query(struct sqlite_db *db, enum sqlite_statement statement, const char *id,
                               const struct message_filter *filter,
                               void (*read)(struct sqlite_query *q, message_item_fn *each, void *arg),
                               message_item_fn *each, void *arg, struct once_error *err);
/* One statement about one message; *changed: whether it was there. */
once_result items_sqlite_change(struct sqlite_db *db, enum sqlite_statement statement, const char *id, bool *changed,
                                struct once_error *err);
/* Adds "KIND DID", the actor and the reason to the audit trail. */
once_result items_sqlite_audit(struct sqlite_db *db, const char *kind, const char *id, const char *did, once_span actor,
                               once_span reason, struct once_error *err);

#endif
