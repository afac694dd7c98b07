/*
 * step.c - one step of an attempt: a local phase in its transaction, or a call outside of any.
 */
#include "core/err.h"
#include "core/record.h"
#include "core/span.h"
#include "flow/flow.h"
#include "os/crash_point.h"
#include "os/os.h"

#include <stdio.h>

/* The values that once_local_*() and once_call_*() return; a step must return one of them. */
enum {
    END_NEXT = 0x6f6e01,
    END_FINISH,
    END_FAIL,
    END_ANSWERED,
    END_NOT_SENT,
    END_LOST,
};

struct local_step {
    struct once_local local; /* first: the phase gets a pointer to it */
    struct once_buf bytes;   /* the state to store, or headers and body of the outcome */
    struct once_outcome outcome;
    int how;
    char why[200];
};

struct call_step {
    struct once_call call; /* first */
    struct once_flow_db *db;
    struct once_buf answer;
    int how;
    char why[200];
};

static once_step_end ended(int *slot, int how)
{
    if (*slot != 0)
        flow_bug("a step ended twice");
    *slot = how;
    return (once_step_end){ how };
}

/* ------------------------------------------------------------------ what a phase says */

once_step_end once_local_next(struct once_local *local, once_span state)
{
    struct local_step *s = (struct local_step *)local;
    once_buf_add(&s->bytes, state);
    return ended(&s->how, END_NEXT);
}

once_step_end once_local_finish(struct once_local *local, const struct once_outcome *outcome)
{
    struct local_step *s = (struct local_step *)local;
    if (outcome->state != ONCE_STATE_SUCCEEDED && outcome->state != ONCE_STATE_FAILED)
        flow_bug("the outcome of a flow must be SUCCEEDED or FAILED");
    if (outcome->retryable)
        flow_bug("the outcome of a flow must be final; to try again later, end with once_local_fail()");
    s->outcome = *outcome;
    once_buf_add(&s->bytes, outcome->headers);
    once_buf_add(&s->bytes, outcome->body);
    return ended(&s->how, END_FINISH);
}

once_step_end once_local_fail(struct once_local *local, const char *why)
{
    struct local_step *s = (struct local_step *)local;
    snprintf(s->why, sizeof s->why, "%s", why);
    return ended(&s->how, END_FAIL);
}

/* ------------------------------------------------------------------ a local phase */

static once_result write_phase(struct attempt *a, const struct once_flow_step *step, struct local_step *s,
                               struct once_reply *reply, struct once_error *err)
{
    const struct flow_ops *ops = a->db->ops;
    if (s->bytes.result != ONCE_OK)
        return once_fail(err, s->bytes.result, "step '%s' stores more than the limit", step->name);
    if (s->how == END_FINISH) {
        s->outcome.headers = once_span_of(s->bytes.ptr, s->outcome.headers.len);
        s->outcome.body = once_span_skip(once_buf_span(&s->bytes), s->outcome.headers.len);
        return ops->finish(a->db, a->grant, &s->outcome, reply, err);
    }
    char point[ONCE_POINT_LEN_MAX + 1];
    flow_point(a->flow, step->name, false, point);
    once_result r = attempt_encode_checkpoint(a, 0, once_buf_span(&s->bytes), err);
    return r == ONCE_OK ? ops->advance(a->db, a->grant, once_span_str(point), once_buf_span(&a->checkpoint), reply, err)
                        : r;
}

/* Runs the phase between a guard and an advance. False: *fenced, or it failed (s->why). */
static bool run_phase(struct attempt *a, const struct once_flow_step *step, struct local_step *s, bool *fenced,
                      struct once_reply *reply, struct once_error *err)
{
    const struct flow_ops *ops = a->db->ops;
    once_result r = ops->guard(a->db, a->grant, fenced, err);
    if (r == ONCE_OK && !*fenced) {
        once_step_end end = step->local(&s->local, a->arg);
        if (s->how == 0 || end.how != s->how)
            flow_bug("step '%s' did not return what a once_local_...() returned", step->name);
        if (s->how != END_FAIL && !ops->is_open(a->db))
            flow_bug("step '%s' ended the transaction that it was given", step->name);
        if (s->how == END_NEXT && a->flow->steps[a->next + 1].name == NULL)
            flow_bug("flow '%s' ended without an outcome: step '%s' is the last", a->flow->name, step->name);
        if (s->how == END_FAIL)
            return false;
        ONCE_CRASH_POINT("flow.worked");
        r = write_phase(a, step, s, reply, err);
        *fenced = r == ONCE_OK && reply->arm == ONCE_ARM_FENCED;
    }
    if (r != ONCE_OK)
        snprintf(s->why, sizeof s->why, "%.199s", err != NULL ? err->text : once_result_text(r));
    return r == ONCE_OK && !*fenced;
}

/* After the commit: updates the attempt to the new recovery point. */
static void advance_to(struct attempt *a, const struct once_flow_step *step, struct local_step *s, once_time asked)
{
    flow_point(a->flow, step->name, false, a->point);
    struct once_buf state = a->state;
    a->state = s->bytes;
    s->bytes = state;
    a->flags = 0;
    once_buf_clear(&a->answer);
    flow_lease_keeper_granted(&a->db->keeper, asked, a->lease_ms);
    a->next++;
}

static enum attempt_next do_local(struct attempt *a, once_result *result, struct once_reply *reply,
                                  struct once_error *err)
{
    const struct flow_ops *ops = a->db->ops;
    const struct once_flow_step *step = &a->flow->steps[a->next];
    struct local_step s = { .local = { .grant = a->grant,
                                       .attempt = a->number,
                                       .request = once_buf_span(&a->request),
                                       .state = once_buf_span(&a->state),
                                       .answer = once_buf_span(&a->answer) } };
    once_buf_init(&s.bytes, ONCE_HEADERS_LEN_MAX + ONCE_BODY_LEN_MAX);
    ops->lend(a->db, &s.local);
    struct once_reply written = { .arm = ONCE_ARM_NONE };
    enum attempt_next attempt_next = ATTEMPT_ENDED;
    bool fenced = false;
    once_time asked = once_os_lease_ms();
    *result = attempt_begin(a, err);
    if (*result != ONCE_OK)
        goto out;
    if (!run_phase(a, step, &s, &fenced, &written, err)) {
        ops->rollback(a->db);
        *result = fenced ? attempt_answer_fenced(a, reply, err) : attempt_postpone(a, s.why, reply, err);
        goto out;
    }
    char point[ONCE_POINT_LEN_MAX + 1];
    flow_point(a->flow, step->name, false, point);
    struct flow_change mark = { .grant = a->grant, .finishes = s.how == END_FINISH };
    mark.point = mark.finishes ? once_span_of(NULL, 0) : once_span_str(point);
    enum flow_fate fate = attempt_commit(a, &mark, err);
    if (fate != FLOW_COMMITTED) {
        *result = attempt_after(a, fate, err != NULL ? err->text : "a phase was not committed", reply, err);
        goto out;
    }
    a->report->phases++;
    if (s.how == END_FINISH) {
        *result = attempt_answer_finished(a, &written.record, &s.outcome, reply, err);
    } else {
        advance_to(a, step, &s, asked);
        attempt_next = ATTEMPT_CONTINUES;
    }
out:
    once_reply_release(&written);
    once_buf_release(&s.bytes);
    return attempt_next;
}

/* ------------------------------------------------------------------ what a call says */

once_step_end once_call_answered(struct once_call *call, once_span answer)
{
    struct call_step *s = (struct call_step *)call;
    once_buf_add(&s->answer, answer);
    return ended(&s->how, END_ANSWERED);
}

once_step_end once_call_not_sent(struct once_call *call, const char *why)
{
    struct call_step *s = (struct call_step *)call;
    snprintf(s->why, sizeof s->why, "%s", why);
    return ended(&s->how, END_NOT_SENT);
}

once_step_end once_call_lost(struct once_call *call, const char *why)
{
    struct call_step *s = (struct call_step *)call;
    snprintf(s->why, sizeof s->why, "%s", why);
    return ended(&s->how, END_LOST);
}

bool once_call_is_held(const struct once_call *call)
{
    return flow_lease_keeper_is_held(&((const struct call_step *)call)->db->keeper, 0);
}

/* ------------------------------------------------------------------ a call */

/* Commits the intent: an attempt that dies after this may have sent something, one that dies before has not. */
static enum attempt_next write_intent(struct attempt *a, const struct once_flow_step *step, once_result *result,
                                      struct once_reply *reply, struct once_error *err)
{
    const struct flow_ops *ops = a->db->ops;
    char point[ONCE_POINT_LEN_MAX + 1];
    flow_point(a->flow, step->name, true, point);
    if (strcmp(point, a->point) == 0)
        return ATTEMPT_CONTINUES;
    struct once_reply written = { .arm = ONCE_ARM_NONE };
    enum attempt_next attempt_next = ATTEMPT_ENDED;
    once_time asked = once_os_lease_ms();
    *result = attempt_begin(a, err);
    if (*result != ONCE_OK)
        return ATTEMPT_ENDED;
    once_result r = attempt_encode_checkpoint(a, a->flags, once_buf_span(&a->state), err);
    if (r == ONCE_OK)
        r = ops->advance(a->db, a->grant, once_span_str(point), once_buf_span(&a->checkpoint), &written, err);
    struct flow_change mark = { .grant = a->grant, .point = once_span_str(point) };
    enum flow_fate fate = FLOW_NOT_COMMITTED;
    if (r == ONCE_OK && written.arm == ONCE_ARM_DONE) {
        fate = attempt_commit(a, &mark, err);
    } else {
        ops->rollback(a->db);
        fate = r == ONCE_OK ? FLOW_FENCED : FLOW_NOT_COMMITTED;
    }
    if (fate == FLOW_COMMITTED) {
        memcpy(a->point, point, sizeof a->point);
        flow_lease_keeper_granted(&a->db->keeper, asked, a->lease_ms);
        attempt_next = ATTEMPT_CONTINUES;
    } else {
        *result = attempt_after(a, fate, "cannot store the intent to call", reply, err);
    }
    once_reply_release(&written);
    return attempt_next;
}

/* FAULT-38: an attempt sends only while its lease is certainly live. */
static once_result ensure_held(struct attempt *a, bool *fenced, struct once_error *err)
{
    struct flow_lease_keeper *keeper = &a->db->keeper;
    *fenced = false;
    if (flow_lease_keeper_is_held(keeper, a->lease_ms / 2))
        return ONCE_OK;
    once_time asked = once_os_lease_ms();
    once_result r = flow_renew(a->db, a->grant, a->lease_ms, fenced, err);
    if (r == ONCE_OK && !*fenced)
        flow_lease_keeper_granted(keeper, asked, a->lease_ms);
    return r;
}

/* Calls, or probes (without a function: by its URL), while the lease keeper renews. False: not begun. */
static bool make_call(struct attempt *a, const struct once_flow_step *step, once_call_fn *function, struct call_step *s,
                      struct once_error *err)
{
    const struct flow_ops *ops = a->db->ops;
    if (!ops->is_idle(a->db))
        flow_bug("a transaction is open before call '%s'", step->name);
    /* At this crash point and at flow.called no renewal is running, so a stopped process holds no lock. */
    ONCE_CRASH_POINT("flow.calling");
    if (flow_lease_keeper_start(&a->db->keeper, a->grant, err) != ONCE_OK)
        return false;
    a->report->calls++;
    struct once_probe_http url = { .url = step->probe_url };
    once_step_end end = function != NULL ? function(&s->call, a->arg) : once_call_probe_http(&s->call, &url);
    flow_lease_keeper_stop(&a->db->keeper);
    ONCE_CRASH_POINT("flow.called");
    if (s->how == 0 || end.how != s->how)
        flow_bug("call '%s' did not return what a once_call_...() returned", step->name);
    if (!ops->is_idle(a->db))
        flow_bug("call '%s' left a transaction open on the flow's connection", step->name);
    return true;
}

static void take_answer(struct attempt *a, struct call_step *s)
{
    struct once_buf before = a->answer;
    a->answer = s->answer;
    s->answer = before;
    a->flags = FLOW_CHECKPOINT_ANSWERED;
    a->next++;
}

/* Continues, postpones or escalates, by the end of the call. */
static enum attempt_next after_call(struct attempt *a, const struct once_flow_step *step, bool probing,
                                    struct call_step *s, once_result *result, struct once_reply *reply,
                                    struct once_error *err)
{
    if (s->how == END_ANSWERED && s->answer.result != ONCE_OK) {
        s->how = END_LOST; /* it happened, but its answer cannot be stored */
        snprintf(s->why, sizeof s->why, "the answer of '%s' is too large to store", step->name);
    }
    if (s->how == END_ANSWERED) {
        take_answer(a, s);
        return ATTEMPT_CONTINUES;
    }
    if (s->how == END_NOT_SENT && probing) {
        a->flags &= (uint8_t)~FLOW_CHECKPOINT_SENT;
        return ATTEMPT_CONTINUES; /* with the call itself */
    }
    if (s->how == END_LOST)
        a->flags |= FLOW_CHECKPOINT_SENT;
    bool hopeless = step->callee == ONCE_CALLEE_OPAQUE && (a->flags & FLOW_CHECKPOINT_SENT) != 0;
    *result = hopeless ? attempt_escalate(a, s->why, reply, err) : attempt_postpone(a, s->why, reply, err);
    return ATTEMPT_ENDED;
}

static enum attempt_next do_call(struct attempt *a, once_result *result, struct once_reply *reply,
                                 struct once_error *err)
{
    const struct once_flow_step *step = &a->flow->steps[a->next];
    if ((a->flags & FLOW_CHECKPOINT_ANSWERED) != 0) { /* an earlier attempt stored the answer */
        a->next++;
        return ATTEMPT_CONTINUES;
    }
    if (step->intent && write_intent(a, step, result, reply, err) != ATTEMPT_CONTINUES)
        return ATTEMPT_ENDED;
    bool fenced = false;
    *result = ensure_held(a, &fenced, err);
    if (fenced)
        *result = attempt_answer_fenced(a, reply, err);
    if (fenced || *result != ONCE_OK)
        return ATTEMPT_ENDED;
    char key[ONCE_CHILD_KEY_LEN + 1];
    once_child_key_of(&a->db->secret, a->grant.record, once_span_str(step->name), key);
    struct call_step s = { .call = { .key = key,
                                     .grant = a->grant,
                                     .attempt = a->number,
                                     .request = once_buf_span(&a->request),
                                     .state = once_buf_span(&a->state) },
                           .db = a->db };
    once_buf_init(&s.answer, ONCE_FLOW_CHECKPOINT_LEN_MAX);
    bool probing = step->callee == ONCE_CALLEE_PROBEABLE && (a->flags & FLOW_CHECKPOINT_SENT) != 0;
    enum attempt_next attempt_next = ATTEMPT_ENDED;
    if (make_call(a, step, probing ? step->probe : step->call, &s, err))
        attempt_next = after_call(a, step, probing, &s, result, reply, err);
    else
        *result = attempt_postpone(a, "the lease could not be renewed", reply, err);
    once_buf_release(&s.answer);
    return attempt_next;
}

once_result attempt_drive(struct attempt *a, struct once_reply *reply, struct once_error *err)
{
    once_result result = ONCE_OK;
    enum attempt_next attempt_next = ATTEMPT_CONTINUES;
    while (attempt_next == ATTEMPT_CONTINUES)
        attempt_next =
            a->flow->steps[a->next].local != NULL ? do_local(a, &result, reply, err) : do_call(a, &result, reply, err);
    return result;
}
