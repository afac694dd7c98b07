/*
 * run.c - once_run(): claims, runs a callback, stores its outcome.
 *
 *     claim -> (replay | refuse)
 *           -> work, while the keeper renews the lease -> finish -> answer
 *
 * Invariants: K3 after a fenced finish the answer is the stored record, never our own.
 *             K4 nothing is answered before the finish is durable.
 *             K10 if the work was done and its outcome could not be stored, the result is ONCE_UNKNOWN: the record
 * stays running, and its takeover policy decides later.
 */
#include "core/err.h"
#include "core/record.h"
#include "core/span.h"
#include "engine/handle.h"
#include "engine/lease_keeper.h"
#include "os/os.h"

#include <unistd.h>

enum { RETRY_PAUSE_MS = 20, RETRY_PAUSE_MS_MAX = 1000, LOOK_PAUSE_MS = 50 };

struct once_attempt {
    struct once *once;
    const struct once_claim *claim;
    struct once_reply grant; /* the claim's answer */
    int64_t lease_ms;
    struct kept_lease kept_lease;
};

/* ------------------------------------------------------------------ inside the callback */

const struct once_record *once_attempt_record(const struct once_attempt *attempt)
{
    return &attempt->grant.record;
}

bool once_attempt_is_held(const struct once_attempt *attempt)
{
    return lease_keeper_is_held(&attempt->kept_lease);
}

once_result once_attempt_advance(struct once_attempt *attempt, once_span point, once_span checkpoint,
                                 struct once_error *err)
{
    struct once_reply reply;
    once_result r = once_advance(attempt->once, attempt->grant.record.grant, point, checkpoint, &reply, err);
    if (r == ONCE_OK && reply.arm != ONCE_ARM_DONE) {
        lease_keeper_set_fenced(&attempt->kept_lease);
        r = once_fail(err, ONCE_INVALID, "another attempt took over: the recovery point '%.*s' was not stored",
                      ONCE_SPAN_ARGS(point));
    }
    once_reply_release(&reply);
    return r;
}

void once_attempt_child_key(const struct once_attempt *attempt, once_span call, char out[ONCE_CHILD_KEY_LEN + 1])
{
    once_child_key(attempt->once, &attempt->grant.record.grant, call, out);
}

/* ------------------------------------------------------------------ ending it */

/* Retries while the store fails and the lease may still be ours. */
static once_result until_stored(struct once_attempt *a, const struct once_request *request, struct once_reply *reply,
                                struct once_error *err)
{
    struct once_error last = { .result = ONCE_OK };
    once_time give_up_at = once_os_monotonic_ms() + a->lease_ms;
    for (useconds_t pause_ms = RETRY_PAUSE_MS;;
         pause_ms = pause_ms < RETRY_PAUSE_MS_MAX / 2 ? pause_ms * 2 : RETRY_PAUSE_MS_MAX) {
        once_result r = request->verb == ONCE_VERB_FINISH
                            ? once_finish(a->once, request->grant, &request->outcome, reply, &last)
                            : once_release(a->once, request->grant, reply, &last);
        bool hopeless = r == ONCE_INVALID || r == ONCE_LIMIT || r == ONCE_CORRUPT;
        if (r == ONCE_OK)
            return r;
        if (hopeless || once_os_monotonic_ms() >= give_up_at) {
            if (err != NULL)
                *err = last;
            return r;
        }
        usleep(pause_ms * 1000);
    }
}

/* If the key now has a record of another operation, our record is gone, and that one is not our answer. */
static void keep_same_operation(const struct once_attempt *a, struct once_reply *fenced)
{
    const struct once_record *own = &a->grant.record, *now = &fenced->record;
    if (now->state == ONCE_STATE_NONE || once_record_is_same_operation(now, &own->fingerprint, own->created_at))
        return;
    once_reply_release(fenced);
    *fenced = (struct once_reply){ .arm = ONCE_ARM_FENCED };
}

/* Another attempt took over. If the caller allows a wait, waits for that attempt's end. */
static once_result answer_superseded(struct once_attempt *a, struct once_reply *fenced, struct once_reply *reply,
                                     struct once_error *err)
{
    once_time give_up_at = once_os_monotonic_ms() + a->claim->wait_ms;
    once_result r = ONCE_OK;
    keep_same_operation(a, fenced);
    while (r == ONCE_OK && fenced->record.state == ONCE_STATE_RUNNING && once_os_monotonic_ms() < give_up_at) {
        usleep(LOOK_PAUSE_MS * 1000);
        once_reply_release(fenced);
        r = once_lookup(a->once, a->claim->tenant, a->claim->key, fenced, err);
        if (r == ONCE_OK)
            keep_same_operation(a, fenced);
    }
    if (r == ONCE_OK) {
        fenced->arm = once_arm_of_state(fenced->record.state);
        *reply = *fenced;
        *fenced = (struct once_reply){ .arm = ONCE_ARM_NONE };
    }
    once_reply_release(fenced);
    return r;
}

static once_result finish(struct once_attempt *a, const struct once_outcome *outcome, struct once_reply *reply,
                          struct once_error *err)
{
    struct once_request request = { .verb = ONCE_VERB_FINISH, .grant = a->grant.record.grant, .outcome = *outcome };
    struct once_reply ended;
    once_result r = until_stored(a, &request, &ended, err);
    if (r != ONCE_OK) {
        once_error_prefix(err, "the work was done, but its outcome could not be stored");
        once_reply_release(&ended);
        return err != NULL ? (err->result = ONCE_UNKNOWN) : ONCE_UNKNOWN;
    }
    if (ended.arm == ONCE_ARM_FENCED)
        return answer_superseded(a, &ended, reply, err);
    struct once_record record = ended.record;
    record.tenant = a->claim->tenant;
    record.key = a->claim->key;
    record.headers = outcome->headers;
    record.body = outcome->body;
    once_reply_release(&ended);
    return once_reply_set(reply, once_arm_of_state(record.state), &record, err);
}

static once_result release(struct once_attempt *a, struct once_reply *reply, struct once_error *err)
{
    struct once_request request = { .verb = ONCE_VERB_RELEASE, .grant = a->grant.record.grant };
    struct once_reply ended;
    once_result r = until_stored(a, &request, &ended, err);
    if (r == ONCE_OK && ended.arm == ONCE_ARM_FENCED)
        return answer_superseded(a, &ended, reply, err);
    *reply = ended;
    return r;
}

/* ------------------------------------------------------------------ the loop */

static once_result execute(struct once_attempt *a, const struct once_run_options *options, once_work_fn *work,
                           void *arg, struct once_reply *reply, struct once_error *err)
{
    struct once_outcome outcome = { .state = ONCE_STATE_NONE };
    enum once_work end = ONCE_WORK_NOT_STARTED;
    if (a->grant.arm == ONCE_ARM_PROBE)
        end = options->probe(a, arg, &outcome);
    if (end == ONCE_WORK_NOT_STARTED) {
        outcome = (struct once_outcome){ .state = ONCE_STATE_NONE };
        end = work(a, arg, &outcome);
    }
    switch (end) {
    case ONCE_WORK_ENDED:
        return finish(a, &outcome, reply, err);
    case ONCE_WORK_NOT_STARTED:
        return release(a, reply, err);
    default:
        outcome = (struct once_outcome){ .state = ONCE_STATE_UNKNOWN };
        return finish(a, &outcome, reply, err);
    }
}

/* If the claim took long, perhaps because it waited for another attempt, the lease may have begun long ago: it is
 * renewed. FAULT-38: an attempt that cannot be sure of its lease does not work. */
static once_result renew_if_old(struct once_attempt *a, once_time *asked, struct once_reply *renewed,
                                struct once_error *err)
{
    *renewed = (struct once_reply){ .arm = ONCE_ARM_DONE };
    if (once_os_lease_ms() - *asked <= a->lease_ms / 2)
        return ONCE_OK;
    *asked = once_os_lease_ms();
    return once_extend(a->once, a->grant.record.grant, a->lease_ms, renewed, err);
}

once_result once_run(struct once *once, const struct once_claim *claim, const struct once_run_options *options,
                     once_work_fn *work, void *arg, bool *executed, struct once_reply *reply, struct once_error *err)
{
    static const struct once_run_options standard = { .probe = NULL };
    *reply = (struct once_reply){ .arm = ONCE_ARM_NONE };
    options = options != NULL ? options : &standard;
    if (executed != NULL)
        *executed = false;
    if (claim->takeover == ONCE_TAKEOVER_PROBE && options->probe == NULL)
        return once_fail(err, ONCE_INVALID, "takeover 'probe' needs a probe to ask with");
    struct once_attempt a = { .once = once, .claim = claim };
    once_time asked = once_os_lease_ms();
    once_result r = once_claim(once, claim, &a.grant, err);
    if (r != ONCE_OK)
        return r;
    if (a.grant.arm != ONCE_ARM_EXECUTE && a.grant.arm != ONCE_ARM_PROBE) {
        *reply = a.grant;
        return ONCE_OK;
    }
    a.lease_ms = claim->lease_ms != 0 ? claim->lease_ms : ONCE_LEASE_MS_DEFAULT;
    struct once_reply renewed;
    r = renew_if_old(&a, &asked, &renewed, err);
    bool fenced = r == ONCE_OK && renewed.arm == ONCE_ARM_FENCED;
    if (r == ONCE_OK && !fenced)
        r = lease_keeper_add(once, &a.kept_lease, a.grant.record.grant, a.lease_ms, asked, err);
    if (fenced) {
        r = answer_superseded(&a, &renewed, reply, err);
    } else if (r == ONCE_OK) {
        if (executed != NULL)
            *executed = true;
        r = execute(&a, options, work, arg, reply, err);
        lease_keeper_remove(once, &a.kept_lease);
    } else { /* nothing was started */
        struct once_reply released;
        if (once_release(once, a.grant.record.grant, &released, NULL) != ONCE_OK)
            once_error_prefix(err, "the key stays claimed until its lease ends");
        once_reply_release(&released);
    }
    if (!fenced)
        once_reply_release(&renewed);
    once_reply_release(&a.grant);
    return r;
}
