/* admission.c - see admission.h. */
#include "engine/admission.h"

#include "core/err.h"
#include "core/span.h"

#include <stdlib.h>

static void refuse(struct quota *q, struct job *job, enum quota_kind kind)
{
    static const char *const how[] = {
        [QUOTA_RECORDS] = "", [QUOTA_BYTES] = "", [QUOTA_IN_FLIGHT] = " under way", [QUOTA_WAITERS] = " waiting"
    };
    once_reply_release(&job->op.reply);
    job->op.result = once_fail(
        &job->op.err, ONCE_QUOTA, "the quota '%s' is reached: this tenant may have %llu%s; nothing was changed",
        quota_kind_name(kind), (unsigned long long)quota_limit(q, job->request.claim.tenant, kind), how[kind]);
    quota_note_refused(q, kind);
}

/* Without memory for the look-up the claim is admitted: it may be a retry. */
static void look_up_instead(struct job *job)
{
    job->admitted.instead = malloc(sizeof *job->admitted.instead);
    if (job->admitted.instead == NULL)
        return;
    const struct once_claim *claim = &job->request.claim;
    *job->admitted.instead =
        (struct once_request){ .verb = ONCE_VERB_LOOKUP, .lookup = { claim->tenant, claim->key, false } };
    job->op.request = job->admitted.instead;
}

void admission_before(struct quota *q, struct job **jobs, size_t count, once_time now)
{
    for (size_t i = 0; i < count; i++) {
        struct job *job = jobs[i];
        if (job->kind != JOB_OPERATION || job->request.verb != ONCE_VERB_CLAIM || job->admitted.exempt)
            continue;
        job->admitted.over = quota_admit(q, job->request.claim.tenant, now, &job->admitted.reservation);
        if (job->admitted.over != QUOTA_KIND_COUNT)
            look_up_instead(job);
    }
}

static size_t outcome_len(const struct job *job)
{
    const struct once_outcome *o = &job->request.outcome;
    return job->op.outcome.len > 0 ? job->op.outcome.len : o->headers.len + o->body.len;
}

static void note_grant(struct quota *q, const struct job *job, once_time now)
{
    const struct once_record *record = &job->op.reply.record;
    bool claim = job->request.verb == ONCE_VERB_CLAIM;
    bool granted = job->op.reply.arm == ONCE_ARM_EXECUTE || job->op.reply.arm == ONCE_ARM_PROBE;
    if (!granted)
        return;
    struct quota_grant grant = {
        .fence = record->grant.fence,
        .created = claim && job->op.reply.arm == ONCE_ARM_EXECUTE && record->attempt == 1,
        .stored = claim ? job->request.claim.request.len : 0,
        .lease_ms = record->lease_until - record->claimed_at,
    };
    quota_granted(q, claim ? job->request.claim.tenant : record->tenant, &grant, now);
}

static void note(struct quota *q, const struct job *job, once_time now)
{
    const struct once_request *r = &job->request;
    uint64_t fence = r->grant.fence;
    bool done = job->op.reply.arm == ONCE_ARM_DONE;
    if (job->op.result != ONCE_OK)
        return;
    switch (r->verb) {
    case ONCE_VERB_CLAIM:
    case ONCE_VERB_TAKE_OVER:
        note_grant(q, job, now);
        break;
    case ONCE_VERB_EXTEND:
        if (done)
            quota_extended(q, fence, r->extend.lease_ms, now);
        break;
    case ONCE_VERB_ADVANCE:
        if (done)
            quota_advanced(q, fence, r->advance.checkpoint.len,
                           !once_span_equal(r->advance.point, ONCE_LIT(ONCE_POINT_SENDING)), now);
        break;
    case ONCE_VERB_FINISH:
        if (done)
            quota_finished(q, fence, outcome_len(job));
        break;
    case ONCE_VERB_RELEASE:
        if (done)
            quota_released(q, fence);
        break;
    default: /* the next scan sees what operators did */
        break;
    }
    if (job->op.reply.arm == ONCE_ARM_FENCED && r->verb != ONCE_VERB_TAKE_OVER)
        quota_lost(q, fence);
}

/* After the look-up in its place. True: there is a record, so the claim itself is applied next. */
static bool has_record(struct quota *q, struct job *job)
{
    free(job->admitted.instead);
    job->admitted.instead = NULL;
    job->op.request = &job->request;
    if (job->op.result != ONCE_OK)
        return false;
    job->admitted.exempt = job->op.reply.arm == ONCE_ARM_FOUND;
    if (job->admitted.exempt)
        once_reply_release(&job->op.reply);
    else
        refuse(q, job, job->admitted.over);
    return job->admitted.exempt;
}

size_t admission_after(struct quota *q, struct job **jobs, size_t count, once_time now, struct job **ready)
{
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        struct job *job = jobs[i];
        bool looked_up = job->admitted.instead != NULL;
        if (looked_up && has_record(q, job)) {
            job->next = *ready;
            *ready = job;
            continue;
        }
        if (!looked_up)
            note(q, job, now);
        quota_unreserve(q, job->admitted.reservation);
        job->admitted.reservation = NULL;
        jobs[left++] = job;
    }
    return left;
}

bool admission_wait(struct quota *q, struct job *job)
{
    job->admitted.exempt = false; /* when it is applied again, the record may be gone */
    if (job->admitted.counted_waiter)
        return true;
    job->admitted.counted_waiter = quota_wait(q, job->request.claim.tenant, &job->admitted.waiter);
    if (!job->admitted.counted_waiter)
        refuse(q, job, QUOTA_WAITERS);
    return job->admitted.counted_waiter;
}

void admission_answered(struct quota *q, struct job *job)
{
    if (job->admitted.counted_waiter)
        quota_wait_ended(q, job->admitted.waiter);
    job->admitted.counted_waiter = false;
}
