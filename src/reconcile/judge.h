/*
 * judge.h - the verdict on a record and the other side's charge of it.
 *
 * Model:      a record is done, failed (finally or retryable), unknown, or running. The other
 *             side's charge of its key is done, not done, undecided, or absent (it does not know
 *             the key). The table in reconcile/judge.c has a verdict for each pair.
 * Invariants: RECONCILE-1 a run during traffic reports no false differences: a record that changed
 *                after `as_of` - `grace` is young, and an absent charge is not a difference.
 *             RECONCILE-2 an absent charge proves "not done" only if the data is complete
 *                (`complete`), the record ended at least `grace` before `as_of`, and the other
 *                side knew at least one of our keys.
 *             RECONCILE-3 only unknown records are resolved, and never one whose key is listed
 *                twice, or by a charge that is older than the record (a key that is used again
 *                after its retention has the same child keys as before).
 * Callers:    reconcile/compare.c, reconcile/report.c. Pure.
 */
#ifndef ONCE_RECONCILE_JUDGE_H
#define ONCE_RECONCILE_JUDGE_H

#include "once.h"

/* In the order of the report. */
#define RECONCILE_KINDS(X)                                                                                             \
    X(CHARGED_TWICE, "charged-twice") /* done more than once there under one key */                                    \
    X(NO_RECORD, "no-record")         /* done there, no record here */                                                 \
    X(OUTCOME, "outcome")             /* done on one side, not done on the other */                                    \
    X(NO_CHARGE, "no-charge")         /* done here, not known there */                                                 \
    X(VALUE, "value")                 /* done on both sides, with differing values */                                  \
    X(LISTED_TWICE, "listed-twice")   /* the key is on several lines; done on one at most */                           \
    X(UNKNOWN, "unknown")             /* unknown here: to be resolved */                                               \
    X(NOT_ASKED, "not-compared")      /* the other side could not be asked, or our answer is not stored */             \
    X(PENDING, "pending")             /* the other side has not decided yet */                                         \
    X(ABANDONED, "abandoned")         /* running, lease over */                                                        \
    X(RUNNING, "running")                                                                                              \
    X(YOUNG, "young") /* changed less than `grace` before `as_of` */                                                   \
    X(EQUAL, "equal")

enum reconcile_kind {
    RECONCILE_NONE = 0,
#define RECONCILE__KIND(name, text) RECONCILE_##name,
    RECONCILE_KINDS(RECONCILE__KIND)
#undef RECONCILE__KIND
        RECONCILE_KIND_COUNT
};

const char *reconcile_kind_name(enum reconcile_kind kind);

/* True for kinds that need attention; those after UNKNOWN are not comparable (yet), or equal. */
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

/* The other side's data about one key: a line of its export, or its answer. */
struct reconcile_charge {
    enum reconcile_theirs theirs;
    uint64_t line;         /* the first line in the export; 0: it was asked, or is absent */
    uint32_t lines, dones; /* how many lines have the key, and how many of them are done */
    once_time at;          /* its time; 0: not given */
    once_span said;        /* the outcome in its own words */
    once_span values;      /* for --compare, encoded (reconcile/terms.h) */
    once_span answer;      /* the body for retries, --answer */
};

struct reconcile_rules {
    once_time as_of; /* the time of the other side's data */
    int64_t grace_ms;
    bool complete; /* the data has all charges up to `as_of` */
    bool resolve_done, resolve_not_done;
};

/* `record` NULL: a charge without a record. If the result is EQUAL, the caller compares the values. */
enum reconcile_kind reconcile_judge(const struct reconcile_rules *rules, const struct once_record *record,
                                    const struct reconcile_charge *charge);

/* The verdict that --resolve gives a record judged UNKNOWN. 0: none, *why is the reason or NULL.
 * `known`: the other side knew at least one of our keys in this run. */
enum once_verdict reconcile_plan(const struct reconcile_rules *rules, const struct once_record *record,
                                 const struct reconcile_charge *charge, bool known, const char **why);

#endif
