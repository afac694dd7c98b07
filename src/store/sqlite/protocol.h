/*
 * protocol.h - the operations of the protocol on SQLite's tables.
 *
 * Each runs inside a transaction that is already begun for writing (for a look-up,
 * reading is enough), reads what it needs, decides with core/decide.h, writes at most a
 * claim, a progress row, a result and an audit row, and fills in its answer. The answer
 * may be given only after the commit (K4).
 *
 * The transaction makes the compare-and-set: nobody else writes between the read and
 * the write. K3 is the comparison with the newest fence in the key index, K5 the primary
 * key of once_result.
 */
#ifndef ONCE_STORE_SQLITE_PROTOCOL_H
#define ONCE_STORE_SQLITE_PROTOCOL_H

#include "store/gather.h"
#include "store/sqlite/attempt.h"
#include "store/store.h"

/* The transaction was rolled back: nothing that was just claimed can be relied on. */
void sqlite_protocol_rolled_back(struct sqlite_protocol *p);

/* One operation. ONCE_OK: op->result says how it went, and whatever it wrote is whole.
 * Anything else: the transaction must be rolled back. */
once_result sqlite_protocol_do(struct sqlite_protocol *p, struct once_op *op, struct once_error *err);

/* Gathers the records that match, from filter->before on, and says where to go on (0: that was all). Reading is
 * enough; looks at a bounded number of rows. */
once_result sqlite_list_scan(struct sqlite_protocol *p, const struct once_filter *filter, struct gather_page *page,
                             uint64_t *next, struct once_error *err);

#endif
