/*
 * items_sqlite.h - an operator's questions about messages in SQLite, and word on them: what the outbox and the dead
 * letters have in common.
 *
 * Inside a transaction that the caller began; which statement it is, is the caller's to say.
 */
#ifndef ONCE_MESSAGES_OUTBOX_ITEMS_SQLITE_H
#define ONCE_MESSAGES_OUTBOX_ITEMS_SQLITE_H

#include "once.h"
#include "store/sqlite/db.h"

enum { ITEMS_STATES_LEN = 80 };

/* "dead,later" as the statements look for one of them: ",dead,later,"; none, or NULL: "". */
void items_sqlite_states(const char *states, char out[ITEMS_STATES_LEN]);
/* One statement about one message; *changed: whether it was there. */
once_result items_sqlite_change(struct sqlite_db *db, enum sqlite_statement statement, const char *id, const char *what,
                                bool *changed, struct once_error *err);
/* The audit trail gets "KIND DID", by whom, and why. */
once_result items_sqlite_audit(struct sqlite_db *db, const char *kind, const char *id, const char *did, once_span actor,
                               once_span reason, struct once_error *err);

#endif
