/*
 * once.c - the public calls: check the request, make it a job, submit it to the engine.
 *
 * Work that needs no store is done here, on the caller's thread: deriving the record id, encoding and compressing an
 * outcome, copying the bytes that a submitted request borrows.
 */
#include "core/buf.h"
#include "core/decide.h"
#include "core/err.h"
#include "core/limits.h"
#include "core/outcome.h"
#include "core/record.h"
#include "core/span.h"
#include "engine/abandoned_finder.h"
#include "engine/handle.h"
#include "engine/lease_keeper.h"
#include "os/os.h"

/* ------------------------------------------------------------------ open, close */

static once_result check_limit(uint32_t *value, uint32_t standard, uint32_t max, const char *name,
                               struct once_error *err)
{
    if (*value > max)
        return once_fail(err, ONCE_INVALID, "%s is %u, the limit is %u", name, *value, max);
    if (*value == 0)
        *value = standard;
    return ONCE_OK;
}

static once_result options_complete(const struct once_options *given, struct once_options *out, struct once_error *err)
{
    *out = given != NULL ? *given : (struct once_options){ 0 };
    if (out->clock == NULL)
        out->clock = &once_os_clock;
    once_result r = check_limit(&out->queue_len, ONCE_QUEUE_LEN_DEFAULT, ONCE_QUEUE_LEN_MAX, "queue_len", err);
    if (r == ONCE_OK)
        r = check_limit(&out->batch_len, ONCE_BATCH_LEN_DEFAULT, ONCE_BATCH_LEN_MAX, "batch_len", err);
    if (r == ONCE_OK)
        r = check_limit(&out->waiter_len, ONCE_WAITER_LEN_DEFAULT, ONCE_WAITER_LEN_MAX, "waiter_len", err);
    if (r == ONCE_OK)
        r = check_limit(&out->lock_wait_ms, ONCE_LOCK_WAIT_MS_DEFAULT, ONCE_LOCK_WAIT_MS_MAX, "lock_wait_ms", err);
    return r;
}

/* For example getenv() of a variable that is not set. */
static once_result refuse_null(struct once_error *err)
{
    return once_fail(err, ONCE_INVALID, "no store is named: its URL is NULL");
}

once_result once_open(const char *url, const struct once_options *options, struct once **out, struct once_error *err)
{
    struct once_options complete;
    once_result r = url != NULL ? options_complete(options, &complete, err) : refuse_null(err);
    if (r != ONCE_OK)
        return r;
    struct once *once = calloc(1, sizeof *once);
    if (once == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory to open a store");
    r = once_store_open(url, &complete, &once->store, err);
    if (r == ONCE_OK)
        r = once_store_seal(&once->store, &complete, err);
    if (r == ONCE_OK)
        r = engine_start(once->store, &complete, &once->engine, err);
    if (r == ONCE_OK)
        r = lease_keeper_create(once, &once->lease_keeper, err);
    if (r == ONCE_OK && (once->abandoned_finder = abandoned_finder_create()) == NULL)
        r = once_fail(err, ONCE_NO_MEMORY, "no memory to open a store");
    if (r != ONCE_OK) {
        once_close(once);
        return r;
    }
    *out = once;
    return ONCE_OK;
}

once_result once_migrate(const char *url, int *version, struct once_error *err)
{
    struct once_options complete;
    int unused;
    once_result r =
        url != NULL ? options_complete(&(struct once_options){ .shared = true }, &complete, err) : refuse_null(err);
    return r == ONCE_OK ? once_store_migrate(url, &complete, version != NULL ? version : &unused, err) : r;
}

void once_close(struct once *once)
{
    if (once == NULL)
        return;
    lease_keeper_free(once->lease_keeper);
    if (once->engine != NULL)
        engine_stop(once->engine);
    once_store_close(once->store);
    abandoned_finder_free(once->abandoned_finder);
    free(once);
}

/* ------------------------------------------------------------------ jobs */

const struct once_mac *once_secret(const struct once *once)
{
    return &once->store->secret;
}

bool once_is_best_effort(const struct once *once)
{
    return once->store->best_effort;
}

const char *once_tier(const struct once *once)
{
    return once_is_best_effort(once) ? "best-effort" : "full";
}

const struct once_gap *once_gaps(const struct once *once, size_t *count)
{
    return once_store_gaps(once->store, count);
}

/* A look-up that names a record by its id. */
static bool is_by_record(const struct once_request *r)
{
    static const uint8_t none[16];
    return r->lookup.key.len == 0 && r->lookup.tenant.len == 0 && memcmp(r->grant.record, none, sizeof none) != 0;
}

static once_result check_request(const struct once_request *in, struct once_request *out, struct once_error *err)
{
    *out = *in;
    switch (in->verb) {
    case ONCE_VERB_CLAIM:
        return once_claim_check(&in->claim, &out->claim, err);
    case ONCE_VERB_EXTEND:
        return once_lease_check(in->extend.lease_ms, err);
    case ONCE_VERB_ADVANCE:
        return once_advance_check(in->advance.point, in->advance.checkpoint, err);
    case ONCE_VERB_FINISH:
        return once_outcome_check(&in->outcome, err);
    case ONCE_VERB_RELEASE:
        return ONCE_OK;
    case ONCE_VERB_LOOKUP:
        return is_by_record(in) ? ONCE_OK : once_name_check(in->lookup.tenant, in->lookup.key, err);
    case ONCE_VERB_RESOLVE:
        if (in->resolve.verdict < ONCE_VERDICT_DONE || in->resolve.verdict > ONCE_VERDICT_RELEASE)
            return once_fail(err, ONCE_INVALID, "verdict %d is unknown", (int)in->resolve.verdict);
        if (in->resolve.verdict == ONCE_VERDICT_DONE) {
            once_result r = once_outcome_check(&in->resolve.outcome, err);
            if (r != ONCE_OK)
                return r;
            if (in->resolve.outcome.state == ONCE_STATE_UNKNOWN || in->resolve.outcome.retryable)
                return once_fail(err, ONCE_INVALID, "a verdict of done needs a final outcome");
        }
        return once_resolve_check(&in->resolve, err);
    case ONCE_VERB_TAKE_OVER:
        return once_lease_check(in->take_over.lease_ms, err);
    case ONCE_VERB_FORGET:
        return once_forget_check(&in->forget, err);
    }
    return once_fail(err, ONCE_INVALID, "verb %d is unknown", (int)in->verb);
}

static void name_record(const struct once *once, struct job *job)
{
    const struct once_request *r = &job->request;
    const struct once_mac *secret = &once->store->secret;
    switch (r->verb) {
    case ONCE_VERB_CLAIM:
        once_record_id(secret, r->claim.tenant, r->claim.key, job->op.record);
        break;
    case ONCE_VERB_LOOKUP:
        if (is_by_record(r))
            memcpy(job->op.record, r->grant.record, 16);
        else
            once_record_id(secret, r->lookup.tenant, r->lookup.key, job->op.record);
        break;
    case ONCE_VERB_RESOLVE:
        once_record_id(secret, r->resolve.tenant, r->resolve.key, job->op.record);
        break;
    case ONCE_VERB_TAKE_OVER:
        memcpy(job->op.record, r->take_over.seen.record, 16);
        break;
    case ONCE_VERB_FORGET:
        if (r->forget.key.len > 0)
            once_record_id(secret, r->forget.tenant, r->forget.key, job->op.record);
        else
            memcpy(job->op.record, r->forget.seen.record, 16);
        break;
    default:
        memcpy(job->op.record, r->grant.record, 16);
    }
}

/* Fills in a job; `encoded` receives the outcome of a finish and must outlive the job. */
static once_result job_prepare(const struct once *once, const struct once_request *request, struct job *job,
                               struct once_buf *encoded, struct once_error *err)
{
    once_result r = check_request(request, &job->request, err);
    if (r == ONCE_OK)
        r = once_store_accepts(once->store, &job->request, err);
    if (r != ONCE_OK)
        return r;
    job->kind = JOB_OPERATION;
    job->op.request = &job->request;
    name_record(once, job);
    if (request->verb == ONCE_VERB_CLAIM) {
        once_os_nonce(job->request.claim.nonce);
        if (job->request.claim.wait_ms > 0)
            job->waiting.give_up_at = once_os_monotonic_ms() + job->request.claim.wait_ms;
    }
    if (request->verb == ONCE_VERB_TAKE_OVER)
        once_os_nonce(job->request.take_over.nonce);
    if (request->verb == ONCE_VERB_RESOLVE || request->verb == ONCE_VERB_ADVANCE || request->verb == ONCE_VERB_FORGET)
        once_os_random(job->op.nonce, sizeof job->op.nonce);
    if (request->verb == ONCE_VERB_FINISH && once->store->encoded) {
        const struct once_outcome *o = &request->outcome;
        r = once_outcome_encode(o, once_outcome_sum_seed(request->grant, o), encoded, err);
        job->op.outcome = once_buf_span(encoded);
    }
    return r;
}

static once_result call_job(struct once *once, const struct once_request *request, bool step, struct once_reply *reply,
                            struct once_error *err)
{
    *reply = (struct once_reply){ .arm = ONCE_ARM_NONE };
    struct job job = { .kind = JOB_OPERATION, .waiting = { .is_step = step } };
    struct once_buf encoded;
    once_buf_init(&encoded, ONCE_OUTCOME_LEN_MAX);
    once_result r = job_prepare(once, request, &job, &encoded, err);
    if (r == ONCE_OK)
        r = engine_call(once->engine, &job, err);
    once_buf_release(&encoded);
    *reply = job.op.reply;
    return r;
}

static once_result call(struct once *once, const struct once_request *request, struct once_reply *reply,
                        struct once_error *err)
{
    return call_job(once, request, false, reply, err);
}

once_result once_claim_step(struct once *once, const struct once_claim *claim, struct once_reply *reply,
                            struct once_error *err)
{
    return call_job(once, &(struct once_request){ .verb = ONCE_VERB_CLAIM, .claim = *claim }, true, reply, err);
}

void once_claim_gave_up(struct once *once, const struct once_claim *claim)
{
    engine_count_step(once->engine, claim->route);
}

/* ------------------------------------------------------------------ asynchronously */

static void copy_in(uint8_t **at, once_span *span)
{
    if (span->len > 0)
        memcpy(*at, span->ptr, span->len);
    span->ptr = *at;
    *at += span->len;
}

/* The spans that a job borrows from its caller. An encoded finish does not need its headers and body. */
static size_t borrowed(struct job *job, once_span *spans[8])
{
    struct once_request *r = &job->request;
    size_t n = 0;
    spans[n++] = &job->op.outcome;
    switch (r->verb) {
    case ONCE_VERB_CLAIM:
        spans[n++] = &r->claim.tenant;
        spans[n++] = &r->claim.key;
        spans[n++] = &r->claim.request;
        spans[n++] = &r->claim.route;
        break;
    case ONCE_VERB_ADVANCE:
        spans[n++] = &r->advance.point;
        spans[n++] = &r->advance.checkpoint;
        break;
    case ONCE_VERB_FINISH:
        if (job->op.outcome.len > 0)
            r->outcome.headers = r->outcome.body = once_span_of(NULL, 0);
        spans[n++] = &r->outcome.headers;
        spans[n++] = &r->outcome.body;
        break;
    case ONCE_VERB_LOOKUP:
        spans[n++] = &r->lookup.tenant;
        spans[n++] = &r->lookup.key;
        break;
    case ONCE_VERB_RESOLVE:
        spans[n++] = &r->resolve.tenant;
        spans[n++] = &r->resolve.key;
        spans[n++] = &r->resolve.actor;
        spans[n++] = &r->resolve.reason;
        spans[n++] = &r->resolve.outcome.headers;
        spans[n++] = &r->resolve.outcome.body;
        break;
    case ONCE_VERB_FORGET:
        spans[n++] = &r->forget.tenant;
        spans[n++] = &r->forget.key;
        spans[n++] = &r->forget.actor;
        spans[n++] = &r->forget.reason;
        break;
    default:
        break;
    }
    return n;
}

/* Copies the job with all its bytes into one allocation; afterwards the spans of `job` point there, too. */
static struct job *job_detach(struct job *job)
{
    once_span *spans[8];
    size_t n = borrowed(job, spans), total = 0;
    for (size_t i = 0; i < n; i++)
        total += spans[i]->len;
    struct job *own = malloc(sizeof *own + total);
    if (own == NULL)
        return NULL;
    uint8_t *at = (uint8_t *)(own + 1);
    for (size_t i = 0; i < n; i++)
        copy_in(&at, spans[i]);
    *own = *job;
    own->op.request = &own->request;
    return own;
}

typedef once_result submit_fn(struct engine *engine, struct job *job, struct once_error *err);

static once_result submit(struct once *once, const struct once_request *request, const uint8_t *nonce, bool again,
                          submit_fn *hand_over, once_done_fn *done, void *arg, struct once_error *err)
{
    struct job job = { .kind = JOB_OPERATION };
    struct once_buf encoded;
    once_buf_init(&encoded, ONCE_OUTCOME_LEN_MAX);
    once_result r = job_prepare(once, request, &job, &encoded, err);
    struct job *own = NULL;
    if (r == ONCE_OK && (own = job_detach(&job)) == NULL)
        r = once_fail(err, ONCE_NO_MEMORY, "no memory to submit a request");
    once_buf_release(&encoded);
    if (r != ONCE_OK)
        return r;
    own->done = done;
    own->arg = arg;
    own->op.again = again;
    if (nonce != NULL)
        memcpy(own->op.nonce, nonce, sizeof own->op.nonce);
    r = hand_over(once->engine, own, err);
    if (r != ONCE_OK)
        free(own);
    return r;
}

once_result once_submit(struct once *once, const struct once_request *request, once_done_fn *done, void *arg,
                        struct once_error *err)
{
    return submit(once, request, NULL, false, engine_submit_async, done, arg, err);
}

once_result once_submit_for(struct once *once, const struct once_request *request, const uint8_t nonce[16], bool again,
                            once_done_fn *done, void *arg, struct once_error *err)
{
    return submit(once, request, nonce, again, engine_submit_without_kick, done, arg, err);
}

void once_kick(struct once *once)
{
    engine_kick(once->engine);
}

once_result once_check_health(struct once *once, once_done_fn *done, void *arg, struct once_error *err)
{
    struct job *job = calloc(1, sizeof *job);
    if (job == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory to ask the store");
    *job = (struct job){ .kind = JOB_HEALTH, .request = { .verb = ONCE_VERB_LOOKUP }, .done = done, .arg = arg };
    job->op.request = &job->request;
    once_os_random(job->op.record, sizeof job->op.record); /* no such record exists; any writer may get it */
    once_result r = engine_submit(once->engine, job, err);
    if (r != ONCE_OK)
        free(job);
    return r;
}

bool once_dispatched_waited(void)
{
    return engine_dispatched_waited();
}

int once_eventfd(const struct once *once)
{
    return engine_eventfd(once->engine);
}

size_t once_dispatch(struct once *once, size_t max)
{
    return engine_dispatch(once->engine, max);
}

/* ------------------------------------------------------------------ the protocol */

once_result once_claim(struct once *once, const struct once_claim *claim, struct once_reply *reply,
                       struct once_error *err)
{
    return call(once, &(struct once_request){ .verb = ONCE_VERB_CLAIM, .claim = *claim }, reply, err);
}

once_result once_take_over(struct once *once, const struct once_take_over *take_over, struct once_reply *reply,
                           struct once_error *err)
{
    return call(once, &(struct once_request){ .verb = ONCE_VERB_TAKE_OVER, .take_over = *take_over }, reply, err);
}

once_result once_extend(struct once *once, struct once_grant grant, int64_t lease_ms, struct once_reply *reply,
                        struct once_error *err)
{
    struct once_request request = { .verb = ONCE_VERB_EXTEND, .grant = grant, .extend = { lease_ms } };
    return call(once, &request, reply, err);
}

once_result once_advance(struct once *once, struct once_grant grant, once_span point, once_span checkpoint,
                         struct once_reply *reply, struct once_error *err)
{
    struct once_request request = { .verb = ONCE_VERB_ADVANCE, .grant = grant, .advance = { point, checkpoint } };
    return call(once, &request, reply, err);
}

once_result once_finish(struct once *once, struct once_grant grant, const struct once_outcome *outcome,
                        struct once_reply *reply, struct once_error *err)
{
    struct once_request request = { .verb = ONCE_VERB_FINISH, .grant = grant, .outcome = *outcome };
    return call(once, &request, reply, err);
}

once_result once_release(struct once *once, struct once_grant grant, struct once_reply *reply, struct once_error *err)
{
    return call(once, &(struct once_request){ .verb = ONCE_VERB_RELEASE, .grant = grant }, reply, err);
}

once_result once_lookup(struct once *once, once_span tenant, once_span key, struct once_reply *reply,
                        struct once_error *err)
{
    return call(once, &(struct once_request){ .verb = ONCE_VERB_LOOKUP, .lookup = { tenant, key, false } }, reply, err);
}

once_result once_lookup_record(struct once *once, const uint8_t record[16], struct once_reply *reply,
                               struct once_error *err)
{
    struct once_request request = { .verb = ONCE_VERB_LOOKUP };
    memcpy(request.grant.record, record, sizeof request.grant.record);
    return call(once, &request, reply, err);
}

once_result once_lookup_request(struct once *once, once_span tenant, once_span key, struct once_reply *reply,
                                struct once_error *err)
{
    struct once_request request = { .verb = ONCE_VERB_LOOKUP, .lookup = { tenant, key, true } };
    return call(once, &request, reply, err);
}

once_result once_lookup_request_of(struct once *once, const uint8_t record[16], struct once_reply *reply,
                                   struct once_error *err)
{
    struct job job = { .kind = JOB_OPERATION, .request = { .verb = ONCE_VERB_LOOKUP, .lookup = { .request = true } } };
    job.op.request = &job.request;
    memcpy(job.op.record, record, sizeof job.op.record);
    once_result r = engine_call(once->engine, &job, err);
    *reply = job.op.reply;
    return r;
}

once_result once_lookup_brief(struct once *once, struct once_grant grant, struct once_page *page,
                              struct once_error *err)
{
    struct once_unfinished wanted = { .fence = grant.fence };
    memcpy(wanted.record, grant.record, sizeof wanted.record);
    struct job job = { .kind = JOB_LOOKUP_MANY, .lookup_many = { &wanted, 1, page } };
    return engine_call(once->engine, &job, err);
}

once_result once_resolve(struct once *once, const struct once_resolve *resolve, struct once_reply *reply,
                         struct once_error *err)
{
    return call(once, &(struct once_request){ .verb = ONCE_VERB_RESOLVE, .resolve = *resolve }, reply, err);
}

once_result once_forget(struct once *once, const struct once_forget *forget, struct once_reply *reply,
                        struct once_error *err)
{
    return call(once, &(struct once_request){ .verb = ONCE_VERB_FORGET, .forget = *forget }, reply, err);
}

/* ------------------------------------------------------------------ administration */

once_result once_list(struct once *once, const struct once_filter *filter, struct once_page *page,
                      struct once_error *err)
{
    *page = (struct once_page){ .count = 0 };
    struct once_filter f = filter != NULL ? *filter : (struct once_filter){ 0 };
    once_result r = check_limit(&f.limit, ONCE_LIST_LIMIT_DEFAULT, ONCE_LIST_LIMIT_MAX, "limit", err);
    if (r != ONCE_OK)
        return r;
    r = once_route_check(f.route, err);
    if (r != ONCE_OK)
        return r;
    if ((f.states & ~((2u << ONCE_STATE_UNKNOWN) - 2u)) != 0)
        return once_fail(err, ONCE_INVALID, "states 0x%x has bits that are not a state", f.states);
    if (f.abandoned && once->store->has_sweep)
        return abandoned_finder_list(once->abandoned_finder, once->engine, &f, page, err);
    struct job job = { .kind = JOB_LIST, .list = { &f, page } };
    return engine_call(once->engine, &job, err);
}

void once_page_release(struct once_page *page)
{
    if (page == NULL)
        return;
    free(page->memory);
    *page = (struct once_page){ .count = 0 };
}

once_result once_history(struct once *once, once_span tenant, once_span key, struct once_history *history,
                         struct once_error *err)
{
    *history = (struct once_history){ .count = 0 };
    once_result r = once_name_check(tenant, key, err);
    if (r != ONCE_OK)
        return r;
    uint8_t record[16];
    once_record_id(&once->store->secret, tenant, key, record);
    return once_history_of(once, record, history, err);
}

void once_end_waits(struct once *once)
{
    engine_end_waits(once->engine);
}

once_result once_history_of(struct once *once, const uint8_t record[16], struct once_history *history,
                            struct once_error *err)
{
    *history = (struct once_history){ .count = 0 };
    struct job job = { .kind = JOB_HISTORY, .history = { .history = history } };
    memcpy(job.history.record, record, sizeof job.history.record);
    return engine_call(once->engine, &job, err);
}

void once_history_release(struct once_history *history)
{
    if (history == NULL)
        return;
    free(history->memory);
    *history = (struct once_history){ .count = 0 };
}

once_result once_expire(struct once *once, uint32_t budget, uint64_t *removed, bool *more, struct once_error *err)
{
    *removed = 0;
    *more = false;
    once_result r = check_limit(&budget, ONCE_EXPIRE_BUDGET_DEFAULT, ONCE_EXPIRE_BUDGET_MAX, "budget", err);
    if (r != ONCE_OK)
        return r;
    struct job job = { .kind = JOB_EXPIRE, .expire = { .budget = budget } };
    r = engine_call(once->engine, &job, err);
    *removed = job.expire.removed;
    *more = job.expire.more;
    return r;
}

once_result once_check(struct once *once, once_problem_fn *each, void *arg, struct once_check_report *report,
                       struct once_error *err)
{
    struct once_check_report unused;
    report = report != NULL ? report : &unused;
    *report = (struct once_check_report){ 0 };
    uint64_t cursor = 0;
    once_result r;
    do
        r = once_check_step(once, &cursor, each, arg, report, err);
    while (r == ONCE_OK && cursor != 0);
    return r;
}

once_result once_check_step(struct once *once, uint64_t *cursor, once_problem_fn *each, void *arg,
                            struct once_check_report *report, struct once_error *err)
{
    struct job job = { .kind = JOB_CHECK, .check = { *cursor, each, arg, report } };
    once_result r = engine_call(once->engine, &job, err);
    *cursor = job.check.cursor;
    return r;
}

once_result once_stats(struct once *once, struct once_stats *stats, struct once_error *err)
{
    *stats = (struct once_stats){ 0 };
    struct job job = { .kind = JOB_STATS, .stats = stats };
    once_result r = engine_call(once->engine, &job, err);
    engine_counters(once->engine, stats);
    return r;
}

once_result once_set_quotas(struct once *once, const struct quota_rules *rules, struct once_error *err)
{
    struct quota *quota = quota_create(rules);
    if (quota == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for quotas");
    engine_set_quota(once->engine, quota);
    return ONCE_OK;
}

once_result once_usage_step(struct once *once, struct quota_scan *scan, struct once_error *err)
{
    struct once_usage usage = { .after = scan->after, .last = scan->last };
    once_result r = engine_usage(once->engine, &usage, err);
    *scan = (struct quota_scan){ usage.after, usage.last, usage.more };
    return r;
}

void once_quota_counters(struct once *once, struct quota_counters *out)
{
    engine_quota_counters(once->engine, out);
}

once_result once_read_clock(struct once *once, once_time *now, struct once_error *err)
{
    struct job job = { .kind = JOB_CLOCK };
    once_result r = engine_call(once->engine, &job, err);
    *now = job.clock;
    return r;
}

bool once_record_recent_events(struct once *once)
{
    return engine_record_recent_events(once->engine);
}

bool once_recent_events(struct once *once, const uint8_t record[16], struct recent_events_view *out)
{
    return engine_recent_events(once->engine, record, out);
}

struct engine_route_stats *once_route_stats(struct once *once, size_t *count, struct engine_lease_counts *leases)
{
    struct engine_route_stats *all = calloc(ROUTE_STATS_MAX, sizeof *all);
    *count = all != NULL ? engine_read_route_stats(once->engine, all, leases) : 0;
    return all;
}

void once_engine_stats(struct once *once, struct once_engine_stats *out)
{
    engine_read_stats(once->engine, out);
}
