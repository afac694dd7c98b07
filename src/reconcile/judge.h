/*
 * judge.h - what a record and the other side's word about it amount to.
 *
 * Model:      a record says done, failed (for good, or to be retried), unknown, or running.
 *             The other side says done, not done, undecided, or nothing (it does not know the
 *             key). The table in reconcile/judge.c has a verdict for each pair.
 * Invariants: RECONCILE-1 a run during traffic gives no false alarm: what changed after `as_of` less
 *                `grace` is young, and is not held against the other side's silence.
 *             RECONCILE-2 silence is proof of nothing. It becomes proof only where somebody vouches for
 *                it (`complete`), the record's end is that much older than `as_of`, and
 *                the other side knew at least one of our keys.
 *             RECONCILE-3 only unknown records are ever resolved: never one that runs, never one that
 *                is final, never one whose key is listed twice, never by a charge that is
 *                older than the record (a key that is used again after its retention has the
 *                same derived keys as before).
 * Callers:    reconcile/compare.c, reconcile/report.c. Pure.
 */
#ifndef ONCE_RECONCILE_JUDGE_H
#define ONCE_RECONCILE_JUDGE_H

#include "once.h"

/* In this order they are reported. */
#define RECONCILE_KINDS(X)                                                                                             \
    X(CHARGED_TWICE, "charged-twice") /* done more than once there under one key */                                    \
    X(NO_RECORD, "no-record")         /* done there, no record here */                                                 \
    X(OUTCOME, "outcome")             /* both know it, and say opposite things */                                      \
    X(NO_CHARGE, "no-charge")         /* done here, not known there */                                                 \
    X(VALUE, "value")                 /* done on both sides, with differing values */                                  \
    X(LISTED_TWICE, "listed-twice")   /* the key is on several lines; done on one at most */                           \
    X(UNKNOWN, "unknown")             /* unknown here: to be resolved */                                               \
    X(NOT_ASKED, "not-compared")      /* the other side could not be asked, or our answer is not kept */               \
    X(PENDING, "pending")             /* the other side has not decided yet */                                         \
    X(ABANDONED, "abandoned")         /* running, lease over: not ended yet */                                         \
    X(RUNNING, "running")                                                                                              \
    X(YOUNG, "young") /* changed too short a while ago */                                                              \
    X(EQUAL, "equal")

enum reconcile_kind {
    RECONCILE_NONE = 0,
#define RECONCILE__KIND(name, text) RECONCILE_##name,
    RECONCILE_KINDS(RECONCILE__KIND)
#undef RECONCILE__KIND
        RECONCILE_KIND_COUNT
};

const char *reconcile_kind_name(enum reconcile_kind kind);

/* Somebody has to look; those after UNKNOWN are not comparable (yet), or equal. */
static inline bool reconcile_is_difference(enum reconcile_kind kind)
{
    return kind >= RECONCILE_CHARGED_TWICE && kind <= RECONCILE_UNKNOWN;
}

enum reconcile_theirs {
    RECONCILE_ABSENT = 0,
    RECONCILE_DONE,
    RECONCILE_NOT_DONE,
    RECONCILE_UNDECIDED,
};

const char *reconcile_theirs_name(enum reconcile_theirs theirs);

/* What the other side says about one key. */
struct reconcile_charge {
    enum reconcile_theirs theirs;
    uint64_t line;         /* of an export, the first; 0: it was asked, or is absent */
    uint32_t lines, dones; /* how many lines have the key, and say that it was done */
    once_time at;          /* when it says it happened; 0: it does not */
    once_span said;        /* its own word for the outcome */
    once_span values;      /* to compare (reconcile/terms.h) */
    once_span answer;      /* what further tries would be told */
};

struct reconcile_rules {
    once_time as_of; /* the other side's word is as of this time */
    int64_t grace_ms;
    bool complete; /* its silence up to then means that there is nothing */
    bool resolve_done, resolve_not_done;
};

/* `record` NULL: there is none. Values are compared by the caller, where this says EQUAL. */
enum reconcile_kind reconcile_judge(const struct reconcile_rules *rules, const struct once_record *record,
                                    const struct reconcile_charge *charge);

/* What --resolve does with a record judged UNKNOWN. 0: nothing, *why says why. `known`: the
 * other side knew at least one of our keys in this run. */
enum once_verdict reconcile_plan(const struct reconcile_rules *rules, const struct once_record *record,
                                 const struct reconcile_charge *charge, bool known, const char **why);

#endif
