/*
 * decide.h - which of the seven arms a claim gets (docs/design.md section 4), and which a takeover.
 *
 * Pure: the record as it is, the claim, the time; out come the answer and the one
 * change to make. The SQLite store decides with this, inside the transaction that makes
 * the change; PostgreSQL and Redis have the same rules in SQL and Lua, and the
 * conformance suite holds all three to the same cases.
 *
 * Invariants: K1 a record with a live lease is never granted again.
 *             K5 a finished outcome is replayed, not replaced.
 *             K6 another fingerprint is told so before anything else is looked at.
 *             K7 a running record is never treated as absent, however old.
 *             K8 a record past its retention is; but a key that tells its own time, and is older than that, is
 *                not executed as new where the claim says so (ADR 29).
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

/* `stored` is NULL where there is no record. */
struct once_decision once_decide_claim(const struct once_stored *stored, const struct once_claim *claim, once_time now);

/* The same for whoever takes over what was seen, by the policy that is stored with it. `again`: the call
 * was made before and its answer was lost. FENCED: the record is not as it was seen. */
struct once_decision once_decide_take_over(const struct once_stored *stored, const struct once_take_over *take_over,
                                           bool again, once_time now);

/* May an attempt after this one (NULL: there is none) rely on its own intent? Not where the one before may have sent
 * something and nobody knows: no mark of a later attempt can say that it did not. */
bool once_intent_holds(const struct once_stored *before);

/* What a release leaves (ADR 8). Of this attempt it says that it did nothing, and of no other. */
enum once_released {
    ONCE_RELEASED_FREE,      /* nothing of this life ever happened: the key is as good as unused */
    ONCE_RELEASED_RETRYABLE, /* a failure that may be retried; its recovery point stays */
    ONCE_RELEASED_ABANDONED, /* it took over one that may have sent something: running, its lease over, as it found it
                              */
};

/* `points` are all that the record passed, as for once_point_check(). */
enum once_released once_decide_release(const struct once_stored *stored, once_span points);

/* May an operator's verdict be written over this record? DONE, or what stands in the way. */
enum once_arm once_decide_resolve(const struct once_stored *stored, uint64_t fence_seen, once_time now);

/* May what this record holds be erased, or (drop) all of it? DONE, or what stands in the way. What is past its
 * retention may still be on disk: DONE. UNKNOWN: whoever is to decide it, or to go on with it, needs what would be
 * erased. */
enum once_arm once_decide_forget(const struct once_stored *stored, uint64_t fence_seen, bool drop, once_time now);

/* Fills in defaults and refuses what is out of range; `out` may be `in`. */
/* Visible ASCII, or empty. */
once_result once_route_check(once_span route, struct once_error *err);
once_result once_claim_check(const struct once_claim *in, struct once_claim *out, struct once_error *err);
once_result once_resolve_check(const struct once_resolve *resolve, struct once_error *err);
once_result once_forget_check(const struct once_forget *forget, struct once_error *err);
once_result once_name_check(once_span tenant, once_span key, struct once_error *err);
once_result once_advance_check(once_span point, once_span checkpoint, struct once_error *err);
once_result once_lease_check(int64_t lease_ms, struct once_error *err);

/* K11: may a record that passed `history` (a line per point: its name, and perhaps after a
 * space which call it was) go on to `point`? Says ONCE_INVALID where it would go back, ONCE_LIMIT after too many. */
once_result once_point_check(once_span history, once_span current, once_span point, struct once_error *err);

#endif
