/* attempt.c - see flow.h: how an attempt begins, and how it ends other than by a phase. */
#include "core/err.h"
#include "core/fingerprint.h"
#include "core/record.h"
#include "core/span.h"
#include "flow/flow.h"
#include "os/crash_point.h"
#include "os/os.h"

#include <stdio.h>
#include <string.h>

enum { STATUS_LATER = 503 };

void attempt_init(struct attempt *a, const struct once_flow *flow, struct once_flow_db *db, void *arg,
                  struct once_flow_report *report)
{
    *a = (struct attempt){ .flow = flow, .db = db, .arg = arg, .report = report };
    a->lease_ms = flow->lease_ms != 0 ? flow->lease_ms : ONCE_LEASE_MS_DEFAULT;
    once_buf_init(&a->request, ONCE_CHECKPOINT_LEN_MAX);
    once_buf_init(&a->state, ONCE_CHECKPOINT_LEN_MAX);
    once_buf_init(&a->answer, ONCE_CHECKPOINT_LEN_MAX);
    once_buf_init(&a->checkpoint, ONCE_CHECKPOINT_LEN_MAX);
}

void attempt_release(struct attempt *a)
{
    once_buf_release(&a->request);
    once_buf_release(&a->state);
    once_buf_release(&a->answer);
    once_buf_release(&a->checkpoint);
}

once_result attempt_encode_checkpoint(struct attempt *a, uint8_t flags, once_span state, struct once_error *err)
{
    struct flow_checkpoint flow_checkpoint = { .flags = flags,
                                               .crashes = a->crashes,
                                               .request = once_buf_span(&a->request),
                                               .state = state,
                                               .answer = flags & FLOW_CHECKPOINT_ANSWERED ? once_buf_span(&a->answer)
                                                                                          : once_span_of(NULL, 0) };
    return flow_checkpoint_encode(&flow_checkpoint, &a->checkpoint, err);
}

once_result attempt_begin(struct attempt *a, struct once_error *err)
{
    once_result r = a->db->ops->begin(a->db, err);
    if (r == ONCE_OK)
        ONCE_CRASH_POINT("flow.begun");
    return r;
}

enum flow_fate attempt_commit(struct attempt *a, const struct flow_change *mark, struct once_error *err)
{
    ONCE_CRASH_POINT("flow.written");
    enum flow_fate fate = a->db->ops->commit(a->db, mark, err);
    if (fate == FLOW_COMMITTED)
        ONCE_CRASH_POINT("flow.committed");
    return fate;
}

/* ------------------------------------------------------------------ answers */

once_result attempt_answer_fenced(struct attempt *a, struct once_reply *reply, struct once_error *err)
{
    a->report->fenced = true;
    once_reply_release(reply);
    once_result r = a->db->ops->begin(a->db, err);
    if (r == ONCE_OK) {
        r = a->db->ops->lookup(a->db, a->tenant, a->key, reply, err);
        a->db->ops->rollback(a->db);
    }
    if (r == ONCE_OK && !once_record_is_same_operation(&reply->record, &a->fingerprint, a->created_at)) {
        once_reply_release(reply);
        reply->arm = ONCE_ARM_FENCED;
    } else if (r == ONCE_OK) {
        reply->arm = once_arm_of_state(reply->record.state);
        reply->retry_after_ms = reply->arm == ONCE_ARM_IN_PROGRESS ? a->lease_ms : 0;
    }
    return r;
}

once_result attempt_answer_finished(struct attempt *a, const struct once_record *finished,
                                    const struct once_outcome *outcome, struct once_reply *reply,
                                    struct once_error *err)
{
    struct once_record record = *finished;
    record.tenant = a->tenant;
    record.key = a->key;
    record.headers = outcome->headers;
    record.body = outcome->body;
    return once_reply_set(reply, once_arm_of_state(record.state), &record, err);
}

once_result attempt_after(struct attempt *a, enum flow_fate fate, const char *why, struct once_reply *reply,
                          struct once_error *err)
{
    switch (fate) {
    case FLOW_FENCED:
        return attempt_answer_fenced(a, reply, err);
    case FLOW_NOT_COMMITTED:
        return attempt_postpone(a, why, reply, err);
    default:
        if (err != NULL)
            err->result = ONCE_UNKNOWN;
        once_error_prefix(err, "the answer to a COMMIT was lost");
        return ONCE_UNKNOWN;
    }
}

/* ------------------------------------------------------------------ ends */

/* How an attempt ends in a transaction that stores the checkpoint at the current recovery point. */
struct ending {
    const struct once_outcome *outcome; /* NULL: postpone for pause_ms */
    int64_t pause_ms;
    uint8_t flags;
};

static once_result write_ending(struct attempt *a, const struct ending *e, struct once_reply *reply,
                                struct once_error *err)
{
    const struct flow_ops *ops = a->db->ops;
    once_result r = attempt_encode_checkpoint(a, e->flags, once_buf_span(&a->state), err);
    if (r == ONCE_OK)
        r = ops->advance(a->db, a->grant, once_span_str(a->point), once_buf_span(&a->checkpoint), reply, err);
    if (r != ONCE_OK || reply->arm != ONCE_ARM_DONE)
        return r;
    once_reply_release(reply);
    return e->outcome != NULL ? ops->finish(a->db, a->grant, e->outcome, reply, err)
                              : ops->extend(a->db, a->grant, e->pause_ms, reply, err);
}

static once_result end(struct attempt *a, const struct ending *e, struct once_reply *reply, struct once_error *err)
{
    const struct flow_ops *ops = a->db->ops;
    struct once_reply written = { .arm = ONCE_ARM_NONE };
    once_result r = attempt_begin(a, err);
    if (r != ONCE_OK)
        return r;
    r = write_ending(a, e, &written, err);
    if (r != ONCE_OK || written.arm != ONCE_ARM_DONE) {
        ops->rollback(a->db);
        once_reply_release(&written);
        return r != ONCE_OK ? r : attempt_answer_fenced(a, reply, err);
    }
    struct flow_change mark = { .grant = a->grant, .finishes = e->outcome != NULL };
    switch (attempt_commit(a, &mark, err)) {
    case FLOW_COMMITTED:
        if (e->outcome != NULL) {
            r = attempt_answer_finished(a, &written.record, e->outcome, reply, err);
        } else {
            *reply = written;
            reply->arm = ONCE_ARM_IN_PROGRESS;
            reply->retry_after_ms = e->pause_ms;
            return ONCE_OK;
        }
        break;
    case FLOW_FENCED:
        r = attempt_answer_fenced(a, reply, err);
        break;
    case FLOW_NOT_COMMITTED: /* another attempt can take over when the lease is over */
        r = ONCE_UNAVAILABLE;
        break;
    default:
        r = attempt_after(a, FLOW_UNSURE, NULL, reply, err);
    }
    once_reply_release(&written);
    return r;
}

static void tell(struct attempt *a, const char *why)
{
    snprintf(a->report->reason, sizeof a->report->reason, "%s", why);
}

once_result attempt_postpone(struct attempt *a, const char *why, struct once_reply *reply, struct once_error *err)
{
    static const struct once_outcome later = { .state = ONCE_STATE_FAILED, .retryable = true, .status = STATUS_LATER };
    tell(a, why);
    uint8_t open = a->flags & (FLOW_CHECKPOINT_SENT | FLOW_CHECKPOINT_ANSWERED);
    struct ending e = { .flags = open };
    if (open == 0) {
        e.outcome = &later;
    } else { /* a call may have been made: the record stays running, which never expires (K7) */
        e.flags |= FLOW_CHECKPOINT_POSTPONED;
        e.pause_ms = flow_backoff_ms(a->flow, a->grant.record, a->number + 1);
    }
    return end(a, &e, reply, err);
}

/* From here only an operator's verdict continues the flow. After NOT_DONE a call that may have been sent counts as not
 * sent; but a call that was answered was made, and its answer stays. */
once_result attempt_escalate(struct attempt *a, const char *why, struct once_reply *reply, struct once_error *err)
{
    static const struct once_outcome unknown = { .state = ONCE_STATE_UNKNOWN };
    tell(a, why);
    a->crashes = 0;
    return end(a, &(struct ending){ .outcome = &unknown, .flags = a->flags & FLOW_CHECKPOINT_ANSWERED }, reply, err);
}

/* ------------------------------------------------------------------ the beginning */

static once_result claim_or_take_over(struct attempt *a, const struct attempt_entry *entry, struct once_reply *before,
                                      struct once_reply *reply, struct once_error *err)
{
    const struct flow_ops *ops = a->db->ops;
    if (entry->seen != NULL)
        return ops->take_over(a->db, entry->seen->grant, a->lease_ms, reply, err);
    struct once_claim claim = {
        .tenant = a->tenant,
        .key = a->key,
        .lease_ms = a->lease_ms,
        .retention_ms = a->flow->retention_ms != 0 ? a->flow->retention_ms : ONCE_RETENTION_MS_DEFAULT,
        .body_retention_ms = a->flow->body_retention_ms,
        .takeover = ONCE_TAKEOVER_RERUN, /* from its recovery point */
    };
    struct once_mac salt;
    once_fingerprint_salt(&a->db->secret, a->tenant, &salt);
    once_span parts[] = { ONCE_LIT("once flow 1"), once_span_str(a->flow->name), entry->request };
    once_fingerprint_list_with(&salt, parts, 3, &claim.fingerprint);
    once_result r = ops->lookup(a->db, a->tenant, a->key, before, err);
    return r == ONCE_OK ? ops->claim(a->db, &claim, reply, err) : r;
}

/* Did the attempt before this one end with an outcome, rather than die? A retryable failure is one, also an
 * operator's. If another attempt came in between, assume that it died. */
static bool ended_with_outcome(const struct attempt *a, const struct once_record *before)
{
    return before->state == ONCE_STATE_FAILED && before->attempt + 1 == a->number;
}

static bool fill(struct once_buf *buf, once_span bytes)
{
    once_buf_clear(buf);
    once_buf_add(buf, bytes);
    return buf->result == ONCE_OK;
}

/* A later attempt: finds the step to continue at, and whether a call may have been sent. */
static once_result resume(struct attempt *a, const struct once_record *record, const struct once_record *before,
                          struct once_error *err)
{
    struct flow_checkpoint flow_checkpoint;
    bool intent = false;
    if (!flow_checkpoint_decode(record->checkpoint, &flow_checkpoint) ||
        !flow_find(a->flow, record->recovery_point, &a->next, &intent))
        return once_fail(err, ONCE_CORRUPT,
                         "the record is at '%.*s', which flow '%s' does not have: was the flow changed?",
                         ONCE_SPAN_ARGS(record->recovery_point), a->flow->name);
    snprintf(a->point, sizeof a->point, "%.*s", ONCE_SPAN_ARGS(record->recovery_point));
    if (!fill(&a->request, flow_checkpoint.request) || !fill(&a->state, flow_checkpoint.state) ||
        !fill(&a->answer, flow_checkpoint.answer))
        return once_fail(err, ONCE_NO_MEMORY, "no memory to continue a flow");
    a->flags = flow_checkpoint.flags & (FLOW_CHECKPOINT_SENT | FLOW_CHECKPOINT_ANSWERED);
    a->crashes = flow_checkpoint.crashes;
    if (ended_with_outcome(a, before) || (flow_checkpoint.flags & FLOW_CHECKPOINT_POSTPONED) != 0)
        return ONCE_OK;
    if (a->crashes < UINT8_MAX)
        a->crashes++;
    const struct once_flow_step *step = &a->flow->steps[a->next];
    if (step->call != NULL && (a->flags & FLOW_CHECKPOINT_ANSWERED) == 0 && (!step->intent || intent))
        a->flags |= FLOW_CHECKPOINT_SENT;
    return ONCE_OK;
}

static const char *reason_to_escalate(const struct attempt *a, const struct attempt_entry *entry)
{
    const struct once_flow_step *step = &a->flow->steps[a->next];
    uint32_t crashes_max = a->flow->crashes_max != 0 ? a->flow->crashes_max : ONCE_FLOW_CRASHES_MAX_DEFAULT;
    if (step->call != NULL && step->callee == ONCE_CALLEE_OPAQUE && (a->flags & FLOW_CHECKPOINT_SENT) != 0)
        return "a call may have been sent, and its callee cannot be probed";
    if (a->crashes >= crashes_max)
        return "too many attempts died";
    return entry->escalate ? "too many attempts" : NULL;
}

/* In the transaction of the claim: stores the request, or the checkpoint of the continued attempt. */
static once_result store_entry(struct attempt *a, const struct attempt_entry *entry, const struct once_record *before,
                               const struct once_record *record, const char **escalate, struct once_reply *reply,
                               struct once_error *err)
{
    once_result r = ONCE_OK;
    a->grant = record->grant;
    a->fingerprint = record->fingerprint;
    a->created_at = record->created_at;
    a->number = record->attempt;
    if (record->recovery_point.len > 0) {
        r = resume(a, record, before, err);
    } else {
        flow_point(a->flow, NULL, false, a->point);
        if (!fill(&a->request, entry->request))
            r = once_fail(err, a->request.result, "the request has %zu bytes, the limit is %d", entry->request.len,
                          ONCE_FLOW_CHECKPOINT_LEN_MAX);
    }
    if (r != ONCE_OK)
        return r;
    *escalate = reason_to_escalate(a, entry);
    r = attempt_encode_checkpoint(a, a->flags, once_buf_span(&a->state), err);
    if (r == ONCE_OK)
        r = a->db->ops->advance(a->db, a->grant, once_span_str(a->point), once_buf_span(&a->checkpoint), reply, err);
    if (r == ONCE_OK && reply->arm != ONCE_ARM_DONE)
        r = once_fail(err, ONCE_CORRUPT, "a record that was just claimed has another holder");
    return r;
}

static enum attempt_next ended(once_result r, once_result *result)
{
    *result = r;
    return ATTEMPT_ENDED;
}

enum attempt_next attempt_enter(struct attempt *a, const struct attempt_entry *entry, once_result *result,
                                struct once_reply *reply, struct once_error *err)
{
    const struct flow_ops *ops = a->db->ops;
    struct once_reply before = { .arm = ONCE_ARM_NONE }, got = { .arm = ONCE_ARM_NONE };
    struct once_reply flow_checkpoint = { .arm = ONCE_ARM_NONE };
    const char *escalate = NULL;
    once_time asked = once_os_lease_ms();
    once_result r = attempt_begin(a, err);
    if (r != ONCE_OK)
        return ended(r, result);
    r = claim_or_take_over(a, entry, &before, &got, err);
    bool ours = r == ONCE_OK && got.arm == ONCE_ARM_EXECUTE;
    if (ours)
        r = store_entry(a, entry, entry->seen != NULL ? entry->seen : &before.record, &got.record, &escalate,
                        &flow_checkpoint, err);
    enum attempt_next attempt_next = ATTEMPT_ENDED;
    struct flow_change mark = { .grant = a->grant, .enters = true };
    if (r != ONCE_OK || !ours) { /* the record in the reply was committed by another attempt */
        ops->rollback(a->db);
        *reply = got;
        got = (struct once_reply){ .arm = ONCE_ARM_NONE };
    } else {
        enum flow_fate fate = attempt_commit(a, &mark, err);
        if (fate == FLOW_COMMITTED) {
            flow_lease_keeper_granted(&a->db->keeper, asked, a->lease_ms);
            a->report->executed = true;
            attempt_next = ATTEMPT_CONTINUES;
        } else if (fate == FLOW_NOT_COMMITTED) {
            r = ONCE_UNAVAILABLE;
        } else {
            r = attempt_after(a, fate, NULL, reply, err);
        }
    }
    once_reply_release(&before);
    once_reply_release(&got);
    once_reply_release(&flow_checkpoint);
    if (attempt_next == ATTEMPT_CONTINUES && escalate != NULL)
        return ended(attempt_escalate(a, escalate, reply, err), result);
    *result = r;
    return attempt_next;
}
