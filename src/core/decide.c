/* decide.c - see decide.h. */
#include "core/decide.h"

#include "core/duration.h"
#include "core/err.h"
#include "core/key.h"
#include "core/limits.h"
#include "core/seal.h"
#include "core/span.h"

#include <stdio.h>

/* A holder with intent stores a point before it sends: without a point, it sent nothing. */
static bool is_unsent(const struct once_stored *stored)
{
    return stored->record.state == ONCE_STATE_RUNNING && stored->intent && stored->record.recovery_point.len == 0;
}

bool once_intent_holds(const struct once_stored *before)
{
    return before == NULL || before->record.state != ONCE_STATE_RUNNING || is_unsent(before);
}

/* `by_claim`: for a claim of the key, not for once_take_over(). */
static struct once_decision decide_abandoned(const struct once_stored *stored, enum once_takeover takeover,
                                             bool by_claim)
{
    if (is_unsent(stored))
        return (struct once_decision){ ONCE_ARM_EXECUTE, ONCE_CHANGE_TAKE };
    if (takeover == ONCE_TAKEOVER_COMPLETER && !by_claim)
        return (struct once_decision){ ONCE_ARM_PROBE, ONCE_CHANGE_TAKE };
    /* Only if the stored policy is `completer` as well: otherwise no completer would take it over. */
    if (takeover == ONCE_TAKEOVER_COMPLETER && stored->record.takeover == ONCE_TAKEOVER_COMPLETER)
        return (struct once_decision){ ONCE_ARM_IN_PROGRESS, ONCE_CHANGE_NONE };
    switch (takeover) {
    case ONCE_TAKEOVER_RERUN:
        return (struct once_decision){ ONCE_ARM_EXECUTE, ONCE_CHANGE_TAKE };
    case ONCE_TAKEOVER_PROBE:
        return (struct once_decision){ ONCE_ARM_PROBE, ONCE_CHANGE_TAKE };
    default:
        return (struct once_decision){ ONCE_ARM_UNKNOWN, ONCE_CHANGE_ESCALATE };
    }
}

static struct once_decision decide_running(const struct once_stored *stored, const struct once_claim *claim)
{
    /* The same call again, after its answer was lost: the same grant. */
    if (memcmp(stored->nonce, claim->nonce, sizeof stored->nonce) == 0)
        return (struct once_decision){ stored->probing ? ONCE_ARM_PROBE : ONCE_ARM_EXECUTE, ONCE_CHANGE_RENEW };
    if (stored->record.lease_live)
        return (struct once_decision){ ONCE_ARM_IN_PROGRESS, ONCE_CHANGE_NONE };
    return decide_abandoned(stored, claim->takeover, true);
}

struct once_decision once_decide_claim(const struct once_stored *stored, const struct once_claim *claim, once_time now)
{
    assert(claim->takeover != ONCE_TAKEOVER_DEFAULT); /* once_claim_check() came first */
    if (stored == NULL || stored->released || once_stored_is_expired(stored, now)) {
        if (claim->key_time && once_key_is_outside(claim->key, claim->retention_ms, now))
            return (struct once_decision){ ONCE_ARM_EXPIRED, ONCE_CHANGE_NONE };
        return (struct once_decision){ ONCE_ARM_EXECUTE, ONCE_CHANGE_CREATE };
    }
    if (memcmp(&stored->record.fingerprint, &claim->fingerprint, sizeof claim->fingerprint) != 0)
        return (struct once_decision){ ONCE_ARM_MISMATCH, ONCE_CHANGE_NONE };
    switch (stored->record.state) {
    case ONCE_STATE_SUCCEEDED:
        return (struct once_decision){ ONCE_ARM_REPLAY, ONCE_CHANGE_NONE };
    case ONCE_STATE_FAILED:
        if (stored->record.retryable)
            return (struct once_decision){ ONCE_ARM_EXECUTE, ONCE_CHANGE_TAKE };
        return (struct once_decision){ ONCE_ARM_REPLAY, ONCE_CHANGE_NONE };
    case ONCE_STATE_UNKNOWN:
        return (struct once_decision){ ONCE_ARM_UNKNOWN, ONCE_CHANGE_NONE };
    default:
        return decide_running(stored, claim);
    }
}

struct once_decision once_decide_take_over(const struct once_stored *stored, const struct once_take_over *take_over,
                                           bool again, once_time now)
{
    if (stored == NULL || stored->released || once_stored_is_expired(stored, now))
        return (struct once_decision){ ONCE_ARM_ABSENT, ONCE_CHANGE_NONE };
    const struct once_record *r = &stored->record;
    if (r->state == ONCE_STATE_RUNNING && memcmp(stored->nonce, take_over->nonce, sizeof stored->nonce) == 0)
        return (struct once_decision){ stored->probing ? ONCE_ARM_PROBE : ONCE_ARM_EXECUTE, ONCE_CHANGE_RENEW };
    if (r->grant.fence == take_over->seen.fence) {
        if (r->state == ONCE_STATE_RUNNING && !r->lease_live)
            return decide_abandoned(stored, r->takeover, false);
        if (r->state == ONCE_STATE_FAILED && r->retryable)
            return (struct once_decision){ ONCE_ARM_EXECUTE, ONCE_CHANGE_TAKE };
        if (r->state == ONCE_STATE_UNKNOWN && again) /* an escalation makes no new grant */
            return (struct once_decision){ ONCE_ARM_UNKNOWN, ONCE_CHANGE_NONE };
    }
    return (struct once_decision){ ONCE_ARM_FENCED, ONCE_CHANGE_NONE };
}

/* ONCE_POINT_SENDING says only "about to send", and the release says that nothing was sent. Other points are phases
 * whose local writes are committed (K11). */
static bool is_mark_only(once_span points)
{
    once_span line, rest, name, call;
    once_span_cut(points, '\n', &line, &rest);
    once_span_cut(line, ' ', &name, &call);
    return rest.len == 0 && once_span_equal(name, ONCE_LIT(ONCE_POINT_SENDING));
}

enum once_released once_decide_release(const struct once_stored *stored, once_span points)
{
    if (stored->in_doubt)
        return ONCE_RELEASED_ABANDONED;
    if (stored->record.attempt == 1 && (points.len == 0 || is_mark_only(points)))
        return ONCE_RELEASED_FREE;
    return ONCE_RELEASED_RETRYABLE;
}

enum once_arm once_decide_resolve(const struct once_stored *stored, uint64_t fence_seen, once_time now)
{
    if (stored == NULL || stored->released || once_stored_is_expired(stored, now))
        return ONCE_ARM_ABSENT;
    if (fence_seen != 0 && fence_seen != stored->record.grant.fence)
        return ONCE_ARM_FENCED;
    switch (stored->record.state) {
    case ONCE_STATE_UNKNOWN:
        return ONCE_ARM_DONE;
    case ONCE_STATE_RUNNING:
        return stored->record.lease_live ? ONCE_ARM_IN_PROGRESS : ONCE_ARM_DONE;
    default:
        return ONCE_ARM_REPLAY;
    }
}

enum once_arm once_decide_forget(const struct once_stored *stored, uint64_t fence_seen, bool drop, once_time now)
{
    if (stored == NULL)
        return ONCE_ARM_ABSENT;
    const struct once_record *r = &stored->record;
    if (fence_seen != 0 && fence_seen != r->grant.fence)
        return ONCE_ARM_FENCED;
    if (stored->released || once_stored_is_expired(stored, now))
        return ONCE_ARM_DONE;
    if (r->state == ONCE_STATE_RUNNING && r->lease_live)
        return ONCE_ARM_IN_PROGRESS;
    bool finished = r->state == ONCE_STATE_SUCCEEDED || r->state == ONCE_STATE_FAILED;
    bool goes_on = r->retryable && r->recovery_point.len > 0;
    return drop || (finished && !goes_on) ? ONCE_ARM_DONE : ONCE_ARM_UNKNOWN;
}

once_result once_name_check(once_span tenant, once_span key, struct once_error *err)
{
    if (tenant.len > ONCE_TENANT_LEN_MAX)
        return once_fail(err, ONCE_INVALID, "tenant is %zu bytes long, the limit is %d", tenant.len,
                         ONCE_TENANT_LEN_MAX);
    if (key.len == 0)
        return once_fail(err, ONCE_INVALID, "key is empty");
    if (key.len > ONCE_KEY_LEN_MAX)
        return once_fail(err, ONCE_INVALID, "key is %zu bytes long, the limit is %d", key.len, ONCE_KEY_LEN_MAX);
    return ONCE_OK;
}

/* As people write it; a negative number as it is. */
static const char *in_words(int64_t ms, char text[ONCE_DURATION_TEXT_LEN])
{
    if (ms >= 0 || ms == ONCE_NEVER)
        once_duration_format(ms, text);
    else
        snprintf(text, ONCE_DURATION_TEXT_LEN, "%lldms", (long long)ms);
    return text;
}

static once_result out_of_range(const char *what, int64_t ms, int64_t min, int64_t max, const char *besides,
                                struct once_error *err)
{
    char text[3][ONCE_DURATION_TEXT_LEN];
    return once_fail(err, ONCE_INVALID, "a %s of %s is not between %s and %s%s", what, in_words(ms, text[0]),
                     in_words(min, text[1]), in_words(max, text[2]), besides);
}

once_result once_lease_check(int64_t lease_ms, struct once_error *err)
{
    if (lease_ms < 0 || lease_ms > ONCE_LEASE_MS_MAX)
        return out_of_range("lease", lease_ms, 1, ONCE_LEASE_MS_MAX, "", err);
    return ONCE_OK;
}

once_result once_route_check(once_span route, struct once_error *err)
{
    if (route.len > ONCE_ROUTE_LEN_MAX)
        return once_fail(err, ONCE_INVALID, "route is %zu bytes long, the limit is %d", route.len, ONCE_ROUTE_LEN_MAX);
    for (size_t i = 0; i < route.len; i++)
        if (route.ptr[i] < 0x21 || route.ptr[i] > 0x7e)
            return once_fail(err, ONCE_INVALID, "route holds byte 0x%02x at %zu; use visible ASCII", route.ptr[i], i);
    return ONCE_OK;
}

/* After the check and default of retention_ms. 0 means as long as the record. */
static once_result body_retention_check(struct once_claim *claim, struct once_error *err)
{
    int64_t body = claim->body_retention_ms, record = claim->retention_ms;
    if (body != ONCE_NEVER && (body < 0 || body > ONCE_RETENTION_MS_MAX))
        return out_of_range("body retention", body, 1, ONCE_RETENTION_MS_MAX, ", nor 'never'", err);
    char text[2][ONCE_DURATION_TEXT_LEN];
    if (record != ONCE_NEVER && body == ONCE_NEVER)
        return once_fail(err, ONCE_INVALID, "a body cannot be kept for ever in a record that is kept for %s",
                         in_words(record, text[0]));
    if (record != ONCE_NEVER && body > record)
        return once_fail(err, ONCE_INVALID, "a body retention of %s is longer than the record's, %s",
                         in_words(body, text[0]), in_words(record, text[1]));
    if (body == record)
        claim->body_retention_ms = 0;
    return ONCE_OK;
}

once_result once_claim_check(const struct once_claim *in, struct once_claim *out, struct once_error *err)
{
    once_result r = once_name_check(in->tenant, in->key, err);
    if (r == ONCE_OK)
        r = once_lease_check(in->lease_ms, err);
    if (r != ONCE_OK)
        return r;
    if (in->retention_ms != ONCE_NEVER && (in->retention_ms < 0 || in->retention_ms > ONCE_RETENTION_MS_MAX))
        return out_of_range("retention", in->retention_ms, 1, ONCE_RETENTION_MS_MAX, ", nor 'never'", err);
    if (in->wait_ms < 0 || in->wait_ms > ONCE_WAIT_MS_MAX)
        return out_of_range("wait", in->wait_ms, 0, ONCE_WAIT_MS_MAX, "", err);
    if (in->takeover < ONCE_TAKEOVER_DEFAULT || in->takeover > ONCE_TAKEOVER_COMPLETER)
        return once_fail(err, ONCE_INVALID, "takeover %d is not escalate, rerun, probe or completer",
                         (int)in->takeover);
    r = once_route_check(in->route, err);
    if (r != ONCE_OK)
        return r;
    if (once_seal_is(in->request))
        return once_fail(err, ONCE_INVALID, "request must not begin with the bytes of a sealed envelope");
    if (in->request.len > ONCE_REQUEST_LEN_MAX)
        return once_fail(err, ONCE_LIMIT, "request is %zu bytes long, the limit is %d", in->request.len,
                         ONCE_REQUEST_LEN_MAX);
    *out = *in;
    if (out->lease_ms == 0)
        out->lease_ms = ONCE_LEASE_MS_DEFAULT;
    if (out->retention_ms == 0)
        out->retention_ms = ONCE_RETENTION_MS_DEFAULT;
    if (out->takeover == ONCE_TAKEOVER_DEFAULT)
        out->takeover = ONCE_TAKEOVER_ESCALATE;
    return body_retention_check(out, err);
}

/* Of an operator's decision. */
static once_result word_check(once_span actor, once_span reason, const char *what, struct once_error *err)
{
    if (reason.len == 0)
        return once_fail(err, ONCE_INVALID, "%s needs a reason", what);
    if (reason.len > ONCE_REASON_LEN_MAX)
        return once_fail(err, ONCE_LIMIT, "reason is %zu bytes long, the limit is %d", reason.len, ONCE_REASON_LEN_MAX);
    if (actor.len > ONCE_ACTOR_LEN_MAX)
        return once_fail(err, ONCE_LIMIT, "actor is %zu bytes long, the limit is %d", actor.len, ONCE_ACTOR_LEN_MAX);
    return ONCE_OK;
}

once_result once_resolve_check(const struct once_resolve *resolve, struct once_error *err)
{
    once_result r = once_name_check(resolve->tenant, resolve->key, err);
    return r == ONCE_OK ? word_check(resolve->actor, resolve->reason, "a verdict", err) : r;
}

once_result once_forget_check(const struct once_forget *forget, struct once_error *err)
{
    once_result r = ONCE_OK;
    if (forget->key.len > 0)
        r = once_name_check(forget->tenant, forget->key, err);
    else if (forget->seen.fence == 0)
        r = once_fail(err, ONCE_INVALID, "key is empty, and no record is given in its place");
    return r == ONCE_OK ? word_check(forget->actor, forget->reason, "forgetting", err) : r;
}

once_result once_advance_check(once_span point, once_span checkpoint, struct once_error *err)
{
    if (point.len == 0)
        return once_fail(err, ONCE_INVALID, "recovery point has no name");
    if (point.len > ONCE_POINT_LEN_MAX)
        return once_fail(err, ONCE_INVALID, "recovery point is %zu bytes long, the limit is %d", point.len,
                         ONCE_POINT_LEN_MAX);
    for (size_t i = 0; i < point.len; i++)
        if (point.ptr[i] < 0x21 || point.ptr[i] > 0x7e)
            return once_fail(err, ONCE_INVALID, "recovery point holds byte 0x%02x at %zu; use visible ASCII",
                             point.ptr[i], i);
    if (once_seal_is(checkpoint))
        return once_fail(err, ONCE_INVALID, "checkpoint must not begin with the bytes of a sealed envelope");
    if (checkpoint.len > ONCE_CHECKPOINT_LEN_MAX)
        return once_fail(err, ONCE_LIMIT, "checkpoint is %zu bytes long, the limit is %d", checkpoint.len,
                         ONCE_CHECKPOINT_LEN_MAX);
    return ONCE_OK;
}

once_result once_point_check(once_span history, once_span current, once_span point, struct once_error *err)
{
    if (once_span_equal(current, point))
        return ONCE_OK;
    int count = 0;
    once_span rest = history;
    while (rest.len > 0) {
        once_span passed, call;
        once_span_cut(rest, '\n', &passed, &rest);
        once_span_cut(passed, ' ', &passed, &call);
        if (once_span_equal(passed, point))
            return once_fail(err, ONCE_INVALID, "recovery point '%.*s' was passed before; now at '%.*s'",
                             ONCE_SPAN_ARGS(point), ONCE_SPAN_ARGS(current));
        count++;
    }
    if (count >= ONCE_POINT_COUNT_MAX)
        return once_fail(err, ONCE_LIMIT, "record passed %d recovery points, the limit", count);
    return ONCE_OK;
}
