/* model.c - see model.h. */
#include "model.h"

#include "core/span.h"

void model_init(struct model_key *key, once_span name)
{
    *key = (struct model_key){ .key = name, .count = 1 };
}

static bool is_gone(const struct model_state *s, once_time now)
{
    bool finished = s->state == ONCE_STATE_SUCCEEDED || s->state == ONCE_STATE_FAILED;
    return s->state == ONCE_STATE_NONE || (finished && s->expires_at != ONCE_NEVER && s->expires_at <= now);
}

/* ------------------------------------------------------------------ what each call does */

static void claim_next(struct model_state *s, const struct once_claim *claim, once_time now)
{
    s->state = ONCE_STATE_RUNNING;
    s->retryable = false;
    s->status = 0;
    s->headers = s->body = once_span_of(NULL, 0);
    s->fence = 0;
    s->attempt++;
    memcpy(s->nonce, claim->nonce, sizeof s->nonce);
    s->lease_ms = claim->lease_ms;
    s->retention_ms = claim->retention_ms;
    s->lease_until = now + claim->lease_ms;
}

static enum once_arm claim(struct model_state *s, const struct once_claim *claim, once_time now)
{
    if (is_gone(s, now)) {
        *s = (struct model_state){ .fingerprint = claim->fingerprint };
        claim_next(s, claim, now);
        return ONCE_ARM_EXECUTE;
    }
    if (memcmp(&s->fingerprint, &claim->fingerprint, sizeof s->fingerprint) != 0)
        return ONCE_ARM_MISMATCH;
    if (s->state == ONCE_STATE_UNKNOWN)
        return ONCE_ARM_UNKNOWN;
    if (s->state != ONCE_STATE_RUNNING && !s->retryable)
        return ONCE_ARM_REPLAY;
    if (s->state == ONCE_STATE_RUNNING && memcmp(s->nonce, claim->nonce, sizeof s->nonce) == 0) {
        s->lease_until = now + s->lease_ms;
        return ONCE_ARM_EXECUTE;
    }
    if (s->state == ONCE_STATE_RUNNING && s->lease_until > now)
        return ONCE_ARM_IN_PROGRESS;
    if (s->state == ONCE_STATE_RUNNING && claim->takeover != ONCE_TAKEOVER_RERUN) {
        s->state = ONCE_STATE_UNKNOWN;
        s->expires_at = ONCE_NEVER;
        return ONCE_ARM_UNKNOWN;
    }
    claim_next(s, claim, now);
    return ONCE_ARM_EXECUTE;
}

static void end(struct model_state *s, const struct once_outcome *outcome, once_time now)
{
    s->state = outcome->state;
    s->retryable = outcome->retryable;
    s->status = outcome->status;
    s->headers = outcome->headers;
    s->body = outcome->body;
    bool never = s->retention_ms == ONCE_NEVER || outcome->state == ONCE_STATE_UNKNOWN;
    s->expires_at = never ? ONCE_NEVER : now + s->retention_ms;
}

static bool is_outcome(const struct model_state *s, const struct once_outcome *outcome)
{
    return s->state == outcome->state && s->retryable == outcome->retryable && s->status == outcome->status &&
           once_span_equal(s->headers, outcome->headers) && once_span_equal(s->body, outcome->body);
}

static enum once_arm release(struct model_state *s, once_time now)
{
    if (s->attempt == 1)
        *s = (struct model_state){ .state = ONCE_STATE_NONE };
    else
        end(s, &(struct once_outcome){ .state = ONCE_STATE_FAILED, .retryable = true }, now);
    return ONCE_ARM_DONE;
}

/* What the holder of a grant does. */
static enum once_arm hold(struct model_state *s, const struct once_request *request, once_time now)
{
    bool held = s->state != ONCE_STATE_NONE && s->fence == request->grant.fence;
    if (held && request->verb == ONCE_VERB_FINISH && is_outcome(s, &request->outcome))
        return ONCE_ARM_DONE;
    if (!held || s->state != ONCE_STATE_RUNNING)
        return ONCE_ARM_FENCED;
    switch (request->verb) {
    case ONCE_VERB_FINISH:
        end(s, &request->outcome, now);
        return ONCE_ARM_DONE;
    case ONCE_VERB_RELEASE:
        return release(s, now);
    case ONCE_VERB_ADVANCE:
        s->point = request->advance.point;
        s->checkpoint = request->advance.checkpoint;
        s->lease_until = now + s->lease_ms;
        return ONCE_ARM_DONE;
    default:
        s->lease_until = now + (request->extend.lease_ms != 0 ? request->extend.lease_ms : s->lease_ms);
        return ONCE_ARM_DONE;
    }
}

static enum once_arm resolve(struct model_state *s, const struct once_resolve *resolve, once_time now)
{
    if (is_gone(s, now))
        return ONCE_ARM_ABSENT;
    if (s->state == ONCE_STATE_RUNNING && s->lease_until > now)
        return ONCE_ARM_IN_PROGRESS;
    if (s->state != ONCE_STATE_UNKNOWN && s->state != ONCE_STATE_RUNNING)
        return ONCE_ARM_REPLAY;
    s->fence = 0;
    if (resolve->verdict == ONCE_VERDICT_DONE)
        end(s, &resolve->outcome, now);
    else
        end(s, &(struct once_outcome){ .state = ONCE_STATE_FAILED, .retryable = true }, now);
    return ONCE_ARM_DONE;
}

static enum once_arm apply(struct model_state *s, const struct once_request *request, once_time now)
{
    switch (request->verb) {
    case ONCE_VERB_CLAIM:
        return claim(s, &request->claim, now);
    case ONCE_VERB_RESOLVE:
        return resolve(s, &request->resolve, now);
    case ONCE_VERB_LOOKUP:
        return is_gone(s, now) ? ONCE_ARM_ABSENT : ONCE_ARM_FOUND;
    default:
        return hold(s, request, now);
    }
}

/* ------------------------------------------------------------------ answers */

/* Also learns the fence, where it was not seen yet. */
static bool record_fits(struct model_state *s, const struct once_record *r)
{
    if (s->fence == 0)
        s->fence = r->grant.fence;
    return r->grant.fence == s->fence && r->state == s->state && r->retryable == s->retryable &&
           r->status == s->status && r->attempt == s->attempt && once_span_equal(r->headers, s->headers) &&
           once_span_equal(r->body, s->body);
}

static bool reply_fits(struct model_state *s, const struct once_request *request, const struct once_reply *reply)
{
    const struct once_record *r = &reply->record;
    switch (reply->arm) {
    case ONCE_ARM_EXECUTE:
    case ONCE_ARM_FOUND:
        return record_fits(s, r) && once_span_equal(r->recovery_point, s->point) &&
               once_span_equal(r->checkpoint, s->checkpoint);
    case ONCE_ARM_REPLAY:
    case ONCE_ARM_UNKNOWN:
    case ONCE_ARM_IN_PROGRESS:
        return record_fits(s, r);
    case ONCE_ARM_FENCED:
        return s->state == ONCE_STATE_NONE ? r->grant.fence == 0 : record_fits(s, r);
    case ONCE_ARM_DONE:
        if (request->verb == ONCE_VERB_RESOLVE)
            s->fence = r->grant.fence;
        return true;
    default:
        return true;
    }
}

/* A verdict has no nonce: repeated after a lost answer, it finds itself and says REPLAY. */
static bool is_own_verdict(const struct once_request *request, const struct once_reply *reply, enum once_arm arm)
{
    return request->verb == ONCE_VERB_RESOLVE && arm == ONCE_ARM_DONE && reply->arm == ONCE_ARM_REPLAY;
}

static void add(struct model_key *key, const struct model_state *s)
{
    for (size_t i = 0; i < key->count; i++)
        if (memcmp(&key->may[i], s, sizeof *s) == 0)
            return;
    if (key->count == MODEL_MAY_MAX)
        abort(); /* a story with that many lost answers needs a larger set */
    key->may[key->count++] = *s;
}

static const char *settle(struct model_key *key, const struct once_request *request, const struct once_reply *reply,
                          once_time now)
{
    struct model_key before = *key;
    key->count = 0;
    for (size_t i = 0; i < before.count; i++) {
        struct model_state s = before.may[i];
        enum once_arm arm = apply(&s, request, now);
        bool same = arm == reply->arm || is_own_verdict(request, reply, arm);
        if (same && reply_fits(&s, request, reply))
            add(key, &s);
    }
    if (key->count > 0)
        return NULL;
    *key = before;
    return "an answer that nothing before it explains";
}

const char *model_answered(struct model_key *key, const struct once_request *request, once_result result,
                           const struct once_reply *reply, once_time now)
{
    switch (result) {
    case ONCE_OK:
        return settle(key, request, reply, now);
    case ONCE_BUSY:
    case ONCE_UNAVAILABLE:
    case ONCE_NO_MEMORY:
        return NULL;
    case ONCE_UNKNOWN:
        for (size_t i = 0, count = key->count; i < count; i++) {
            struct model_state s = key->may[i];
            apply(&s, request, now);
            add(key, &s);
        }
        return NULL;
    default:
        return "a result that blames the caller or the data";
    }
}

bool model_may_live(const struct model_key *key, once_time now)
{
    for (size_t i = 0; i < key->count; i++)
        if (!is_gone(&key->may[i], now))
            return true;
    return false;
}

bool model_must_live(const struct model_key *key, once_time now)
{
    for (size_t i = 0; i < key->count; i++)
        if (is_gone(&key->may[i], now))
            return false;
    return true;
}
