/* judge.c - see reconcile/judge.h. */
#include "reconcile/judge.h"

#include <assert.h>

const char *reconcile_kind_name(enum reconcile_kind kind)
{
    static const char *const names[] = { [RECONCILE_NONE] = "?",
#define RECONCILE__KIND(name, text) [RECONCILE_##name] = text,
                                         RECONCILE_KINDS(RECONCILE__KIND)
#undef RECONCILE__KIND
    };
    return kind < RECONCILE_KIND_COUNT ? names[kind] : "?";
}

const char *reconcile_theirs_name(enum reconcile_theirs theirs)
{
    static const char *const names[] = { "absent", "done", "not done", "undecided" };
    return theirs <= RECONCILE_UNDECIDED ? names[theirs] : "?";
}

/* The time when the record entered its state. */
static once_time changed_at(const struct once_record *record)
{
    return record->finished_at > record->claimed_at ? record->finished_at : record->claimed_at;
}

/* RECONCILE-1: so young that the other side's data may not contain it yet. */
static bool is_young(const struct reconcile_rules *rules, const struct once_record *record)
{
    return changed_at(record) > rules->as_of - rules->grace_ms;
}

/* The record's state: the rows of the table. */
enum ours { OURS_DONE, OURS_FAILED, OURS_UNKNOWN, OURS_COUNT };

/* A failure needs no charge. A retryable failure counts as a failure: if the other side is done,
 * the next attempt would do it again. */
static const enum reconcile_kind table[OURS_COUNT][RECONCILE_UNDECIDED + 1] = {
    [OURS_DONE] = { [RECONCILE_ABSENT] = RECONCILE_NO_CHARGE,
                    [RECONCILE_DONE] = RECONCILE_EQUAL,
                    [RECONCILE_NOT_DONE] = RECONCILE_OUTCOME,
                    [RECONCILE_UNDECIDED] = RECONCILE_PENDING },
    [OURS_FAILED] = { [RECONCILE_ABSENT] = RECONCILE_EQUAL,
                      [RECONCILE_DONE] = RECONCILE_OUTCOME,
                      [RECONCILE_NOT_DONE] = RECONCILE_EQUAL,
                      [RECONCILE_UNDECIDED] = RECONCILE_PENDING },
    [OURS_UNKNOWN] = { [RECONCILE_ABSENT] = RECONCILE_UNKNOWN,
                       [RECONCILE_DONE] = RECONCILE_UNKNOWN,
                       [RECONCILE_NOT_DONE] = RECONCILE_UNKNOWN,
                       [RECONCILE_UNDECIDED] = RECONCILE_UNKNOWN },
};

static enum reconcile_kind judge_charge_alone(const struct reconcile_charge *charge)
{
    if (charge->dones > 1)
        return RECONCILE_CHARGED_TWICE;
    if (charge->theirs == RECONCILE_DONE)
        return RECONCILE_NO_RECORD;
    return charge->theirs == RECONCILE_UNDECIDED ? RECONCILE_PENDING : RECONCILE_EQUAL;
}

enum reconcile_kind reconcile_judge(const struct reconcile_rules *rules, const struct once_record *record,
                                    const struct reconcile_charge *charge)
{
    if (record == NULL)
        return judge_charge_alone(charge);
    if (charge->dones > 1) /* whatever the record's state */
        return RECONCILE_CHARGED_TWICE;
    if (record->state == ONCE_STATE_RUNNING)
        return record->lease_live ? RECONCILE_RUNNING : RECONCILE_ABANDONED;
    if (charge->lines > 1)
        return RECONCILE_LISTED_TWICE;
    enum ours ours = record->state == ONCE_STATE_SUCCEEDED ? OURS_DONE
                     : record->state == ONCE_STATE_FAILED  ? OURS_FAILED
                                                           : OURS_UNKNOWN;
    enum reconcile_kind kind = table[ours][charge->theirs];
    assert(kind != RECONCILE_NONE);
    /* A charge that is done counts for any record; other data may be too old for a young record. */
    if (kind != RECONCILE_EQUAL && charge->theirs != RECONCILE_DONE && is_young(rules, record))
        return RECONCILE_YOUNG;
    return kind;
}

enum once_verdict reconcile_plan(const struct reconcile_rules *rules, const struct once_record *record,
                                 const struct reconcile_charge *charge, bool known, const char **why)
{
    assert(record->state == ONCE_STATE_UNKNOWN); /* RECONCILE-3 */
    *why = NULL;
    if (charge->lines > 1) {
        *why = "listed more than once";
        return 0;
    }
    if (charge->theirs == RECONCILE_UNDECIDED) {
        *why = "the other side has not decided";
        return 0;
    }
    if (charge->theirs == RECONCILE_DONE && charge->at != 0 && charge->at < record->created_at - rules->grace_ms) {
        *why = "the charge is older than the record: it belongs to an earlier life of the key";
        return 0;
    }
    if (charge->theirs == RECONCILE_DONE)
        return rules->resolve_done ? ONCE_VERDICT_DONE : 0;
    if (!rules->resolve_not_done)
        return 0;
    /* RECONCILE-2. Also "not done" holds only as of `as_of`: a later attempt may have done it. */
    if (!rules->complete)
        *why = "no proof: --complete-until is not given";
    else if (is_young(rules, record))
        *why = "no proof: it is too young";
    else if (charge->theirs == RECONCILE_ABSENT && !known)
        *why = "no proof: the other side knows none of our keys";
    return *why == NULL ? ONCE_VERDICT_NOT_DONE : 0;
}
