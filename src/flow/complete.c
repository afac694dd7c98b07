/*
 * complete.c - the completer of a flow: runs the remaining steps of abandoned records.
 *
 * A round goes from the newest record to the oldest, a bounded number per step. A record that is running with its lease
 * over, or failed, retryable and due, is taken over if it still has the fence that was seen (compare-and-set), so that
 * only one completer or client gets it. A completer never inserts a record, and never replays.
 *
 * A round can stop at the oldest unfinished record of the round before: everything older is finished, except that on
 * PostgreSQL a claim with a smaller fence may have been uncommitted then. So a round goes at least to the newest fence
 * of ten minutes ago, and once an hour to the oldest record.
 */
#include "core/err.h"
#include "flow/flow.h"

#include <stdio.h>
#include <unistd.h>

enum { SETTLED_MS = 10 * 60 * 1000, WHOLE_MS = 60 * 60 * 1000 };

/* With the first page of a round. */
static void round_begin(struct once_flow_round *round, const struct once_page *page, once_time now)
{
    round->lowest = UINT64_MAX;
    if (now - round->whole_at >= WHOLE_MS) {
        round->floor = 0;
        round->whole_at = now;
    }
    if (now - round->mark_at >= SETTLED_MS) {
        round->settled = round->mark;
        round->mark = page->next; /* not quite the newest fence, but a known one */
        round->mark_at = now;
    }
}

/* After a page. */
static bool round_is_over(struct once_flow_round *round, uint64_t next)
{
    round->before = next > round->floor ? next : 0;
    if (round->before != 0)
        return false;
    round->floor = round->lowest < round->settled ? round->lowest : round->settled;
    return true;
}

static bool is_due(const struct once_flow *flow, const struct once_record *r, once_time now)
{
    if (r->state == ONCE_STATE_RUNNING)
        return !r->lease_live;
    return r->state == ONCE_STATE_FAILED && r->retryable &&
           r->finished_at + flow_backoff_ms(flow, r->grant.record, r->attempt + 1) <= now;
}

static void count(struct once_flow_step_report *swept, const struct once_flow_report *report,
                  const struct once_reply *reply)
{
    if (!report->executed) {
        swept->missed++;
        return;
    }
    swept->taken++;
    if (report->fenced)
        return; /* another attempt took over and counts the end */
    bool ended = reply->arm == ONCE_ARM_REPLAY && !reply->record.retryable;
    swept->ended += ended;
    swept->escalated += reply->arm == ONCE_ARM_UNKNOWN;
    swept->postponed += !ended && reply->arm != ONCE_ARM_UNKNOWN;
}

static once_result complete(const struct once_flow *flow, struct once_flow_db *db, void *arg,
                            const struct once_record *record, struct once_flow_step_report *swept,
                            struct once_error *err)
{
    uint32_t attempts_max = flow->attempts_max != 0 ? flow->attempts_max : ONCE_FLOW_ATTEMPTS_MAX_DEFAULT;
    struct once_flow_report report = { .executed = false };
    struct once_reply reply = { .arm = ONCE_ARM_NONE };
    struct attempt_entry entry = { .seen = record, .escalate = record->attempt >= attempts_max };
    struct attempt a;
    once_result r = ONCE_OK;
    attempt_init(&a, flow, db, arg, &report);
    a.tenant = record->tenant;
    a.key = record->key;
    if (attempt_enter(&a, &entry, &r, &reply, err) == ATTEMPT_CONTINUES)
        r = attempt_drive(&a, &reply, err);
    if (r == ONCE_OK)
        count(swept, &report, &reply);
    once_reply_release(&reply);
    attempt_release(&a);
    return r;
}

once_result once_flow_complete(const struct once_flow *flow, struct once_flow_db *db, void *arg,
                               struct once_flow_round *round, struct once_flow_step_report *swept,
                               struct once_error *err)
{
    struct once_error why = { .result = ONCE_OK };
    *swept = (struct once_flow_step_report){ .more = false };
    if (once_flow_check(flow, &why) != ONCE_OK)
        flow_bug("%s", why.text);
    if (!db->ops->is_idle(db))
        return once_fail(err, ONCE_INVALID, "the connection has an open transaction: a flow begins its own");
    struct once_page page = { .count = 0 };
    once_time now = 0;
    once_result first = db->ops->list(db, round->before, &page, &now, &why);
    if (first == ONCE_OK && round->before == 0)
        round_begin(round, &page, now);
    for (size_t i = 0; first == ONCE_OK && i < page.count; i++) {
        const struct once_record *record = &page.records[i];
        if (!flow_owns(flow, record->recovery_point) || (record->state == ONCE_STATE_FAILED && !record->retryable))
            continue;
        swept->looked++;
        round->lowest = record->grant.fence < round->lowest ? record->grant.fence : round->lowest;
        struct once_error one = { .result = ONCE_OK };
        once_result r = is_due(flow, record, now) ? complete(flow, db, arg, record, swept, &one) : ONCE_OK;
        if (r == ONCE_CORRUPT || r == ONCE_INVALID || r == ONCE_LIMIT) { /* a fault of this record only */
            if (swept->stuck++ == 0)
                snprintf(swept->reason, sizeof swept->reason, "%.199s", one.text);
        } else if (r != ONCE_OK) {
            why = one;
            first = r;
        }
    }
    if (first == ONCE_OK)
        swept->more = !round_is_over(round, page.next);
    once_page_release(&page);
    if (first != ONCE_OK && err != NULL)
        *err = why;
    return first;
}

void once_flow_complete_until(const struct once_flow *flow, struct once_flow_db *db, void *arg, int64_t pause_ms,
                              once_flow_stop_fn *stop, once_flow_each_fn *each)
{
    enum { NAP_MS = 100 };
    struct once_flow_round round = { .before = 0 };
    while (!stop(arg)) {
        struct once_flow_step_report swept;
        struct once_error err = { .result = ONCE_OK };
        once_result r = once_flow_complete(flow, db, arg, &round, &swept, &err);
        if (each != NULL)
            each(arg, r, &swept, &err);
        if (r != ONCE_OK)
            round.before = 0;
        for (int64_t left = r != ONCE_OK || !swept.more ? pause_ms : 0; left > 0 && !stop(arg); left -= NAP_MS)
            usleep((useconds_t)((left < NAP_MS ? left : NAP_MS) * 1000));
    }
}
