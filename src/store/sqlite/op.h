/*
 * op.h - an operation on SQLite's tables: finding its record, answering it; and the verbs.
 *
 * ONCE_OK: op->result says how it went, and whatever it wrote is whole. Anything else: the transaction must be rolled
 * back. A step calls sqlite_op_apply(); the rest is for the verbs.
 */
#ifndef ONCE_STORE_SQLITE_OP_H
#define ONCE_STORE_SQLITE_OP_H

#include "store/gather.h"
#include "store/sqlite/attempt.h"
#include "store/store.h"

once_result sqlite_op_apply(struct sqlite_protocol *p, struct once_op *op, struct once_error *err);

/* sqlite/list.c. Gathers the records that match, from filter->before on, and says where to go on (0: that was all).
 * Reading is enough; looks at a bounded number of rows. */
once_result sqlite_list_scan(struct sqlite_protocol *p, const struct once_filter *filter, struct gather_page *page,
                             uint64_t *next, struct once_error *err);

/* The record's newest attempt; *query stays open for its spans and must be unloaded. A claim that is gone (expired) is
 * an absent record. */
once_result sqlite_op_load(struct sqlite_protocol *p, const uint8_t record[16], struct sqlite_query *query,
                           struct sqlite_attempt *out, bool *found, struct once_error *err);
void sqlite_op_unload(struct sqlite_query *query);

/* A damaged record or a refused request is the op's own failure, and the rest of the transaction goes on. Any other
 * error fails the transaction: SQLite may have rolled it back already. */
once_result sqlite_op_fail(struct once_op *op, once_result result, struct once_error *err);

once_result sqlite_op_answer(struct once_op *op, enum once_arm arm, const struct once_record *record,
                             struct once_error *err);
/* Answers with the stored record and its outcome. An outcome that does not decode is the op's own failure. */
once_result sqlite_op_answer_stored(struct sqlite_protocol *p, struct once_op *op, enum once_arm arm,
                                    struct sqlite_attempt *attempt, struct once_error *err);
/* K3: a fenced caller gets the stored record, unless that has expired (K8). */
once_result sqlite_op_answer_fenced(struct sqlite_protocol *p, struct once_op *op, struct sqlite_attempt *attempt,
                                    struct once_error *err);
/* For a takeover, or a look-up that asks for it: answers with the stored request as well. */
once_result sqlite_op_answer_with_request(struct sqlite_protocol *p, struct once_op *op, enum once_arm arm,
                                          struct once_record *record, struct once_error *err);
/* A short answer: the caller knows the rest. */
once_result sqlite_op_answer_done(struct once_op *op, const struct once_record *record, struct once_error *err);

/* Sets the members that this outcome changes. */
void sqlite_op_set_finished(struct once_record *record, const struct once_outcome *outcome, once_time now,
                            once_time expires_at);
/* When headers and body of an outcome finished at `now` are dropped; 0: with the record. Those of an unknown record are
 * kept. */
once_time sqlite_op_body_until(const struct once_record *record, const struct once_outcome *outcome, once_time now);

/* sqlite/claims.c: CLAIM and TAKE_OVER. */
once_result sqlite_op_claim(struct sqlite_protocol *p, struct once_op *op, struct once_error *err);

/* sqlite/holder.c. The first: K10, an operation that is applied again after a lost answer; its own attempt shows
 * whether it took effect, even if later operations have changed the record since. */
once_result sqlite_op_answer_if_done(struct sqlite_protocol *p, struct once_op *op, bool *done, struct once_error *err);
/* EXTEND, ADVANCE, FINISH, RELEASE. */
once_result sqlite_op_held(struct sqlite_protocol *p, struct once_op *op, struct once_error *err);

/* sqlite/verdict.c: RESOLVE and FORGET. */
once_result sqlite_op_verdict(struct sqlite_protocol *p, struct once_op *op, struct once_error *err);

#endif
