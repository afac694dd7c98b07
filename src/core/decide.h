/*
 * decide.h - the arm that a claim or a takeover gets (docs/design.md section 4).
 *
 * Pure: from the stored record, the claim and the time it computes the answer and the
 * one change to make. The SQLite store calls it inside the transaction that makes the
 * change; SQL and Lua repeat the rules, and the conformance suite holds them together.
 *
 * Invariants: K1 a record with a live lease is never granted again.
 *             K5 a finished outcome is replayed, not replaced.
 *             K6 another fingerprint is a mismatch, whatever the state of the record.
 *             K7 a running record is never treated as absent, however old.
 *             K8 a record past its retention is treated as absent; but with key_time, a key that is
 *                itself older than the retention is not executed as new (ADR 29).
 */
#ifndef ONCE_CORE_DECIDE_H
#define ONCE_CORE_DECIDE_H

#include "core/record.h"

enum once_change {
    ONCE_CHANGE_NONE,     /* nothing is written */
    ONCE_CHANGE_CREATE,   /* a new record: attempt 1 */
    ONCE_CHANGE_TAKE,     /* the next attempt of the record */
    ONCE_CHANGE_RENEW,    /* the same grant again, its lease renewed */
    ONCE_CHANGE_ESCALATE, /* store that the outcome is unknown */
};

struct once_decision {
    enum once_arm arm;
    enum once_change change;
};

/* `stored` is NULL if there is no record. */
struct once_decision once_decide_claim(const struct once_stored *stored, const struct once_claim *claim, once_time now);

/* The same for once_take_over(), by the stored policy. `again`: the same call was made before and its
 * answer was lost. FENCED: the record has changed since it was seen. */
struct once_decision once_decide_take_over(const struct once_stored *stored, const struct once_take_over *take_over,
                                           bool again, once_time now);

/* May an attempt after this one (NULL: no such attempt) rely on its own intent? Not if an earlier attempt may have sent
 * something: a missing recovery point of the later attempt does not prove that the earlier one sent nothing. */
bool once_intent_holds(const struct once_stored *before);

/* The record after a release (ADR 8), which says that this attempt had no effect, and nothing about earlier ones. */
enum once_released {
    ONCE_RELEASED_FREE,      /* no attempt of this life had an effect: the key counts as unused */
    ONCE_RELEASED_RETRYABLE, /* a failure that may be retried; its recovery point stays */
    ONCE_RELEASED_ABANDONED, /* it took over one that may have sent something: running, its lease over, as it found it
                              */
};

/* `points`: all points that the record passed, as for once_point_check(). */
enum once_released once_decide_release(const struct once_stored *stored, once_span points);

/* May an operator's verdict replace this record's state? DONE, or the reason why not. */
enum once_arm once_decide_resolve(const struct once_stored *stored, uint64_t fence_seen, once_time now);

/* May the texts of this record be erased, or (drop) the whole record? DONE, or the reason why not. DONE also past its
 * retention: the bytes may still be on disk. UNKNOWN: the operator that resolves it, or the next attempt, needs them.
 */
enum once_arm once_decide_forget(const struct once_stored *stored, uint64_t fence_seen, bool drop, once_time now);

/* Fills in defaults and refuses values out of range; `out` may be `in`. */
/* Visible ASCII, or empty. */
once_result once_route_check(once_span route, struct once_error *err);
once_result once_claim_check(const struct once_claim *in, struct once_claim *out, struct once_error *err);
once_result once_resolve_check(const struct once_resolve *resolve, struct once_error *err);
once_result once_forget_check(const struct once_forget *forget, struct once_error *err);
once_result once_name_check(once_span tenant, once_span key, struct once_error *err);
once_result once_advance_check(once_span point, once_span checkpoint, struct once_error *err);
once_result once_lease_check(int64_t lease_ms, struct once_error *err);

/* K11: may a record that passed the points in `history` (one per line: a name, perhaps followed by a space and the id
 * of the call) move on to `point`? ONCE_INVALID if that would be backwards, ONCE_LIMIT after too many points. */
once_result once_point_check(once_span history, once_span current, once_span point, struct once_error *err);

#endif
