/*
 * ngx_http_once_claim.c - the claim of a request whose body was read, and the action that follows its reply.
 *
 * Invariants: K4 a request continues to its content only after EXECUTE.
 */
#include "ngx_http_once.h"

#include "core/span.h"

/* to connect to the daemon and get the reply to a claim; once_wait is added */
#define NGX_HTTP_ONCE_CLAIM_MS  5000

static void ngx_http_once_begin_claim(void *data);

/* ---------------------------------------------------------------- claim */

/* What became of the request, as far as the claim decides it. */
static ngx_http_once_status_e
ngx_http_once_claim_status(ngx_http_once_ctx_t *ctx)
{
    ngx_http_once_reply_t  *reply = &ctx->reply;

    static const ngx_http_once_status_e  statuses[] = {
        [ONCE_ARM_REPLAY] = NGX_HTTP_ONCE_STATUS_REPLAYED,
        [ONCE_ARM_MISMATCH] = NGX_HTTP_ONCE_STATUS_MISMATCH,
        [ONCE_ARM_IN_PROGRESS] = NGX_HTTP_ONCE_STATUS_IN_PROGRESS,
        [ONCE_ARM_UNKNOWN] = NGX_HTTP_ONCE_STATUS_UNKNOWN,
        [ONCE_ARM_EXPIRED] = NGX_HTTP_ONCE_STATUS_EXPIRED,
        [ONCE_ARM_EXECUTE] = NGX_HTTP_ONCE_STATUS_EXECUTING
    };

    if (reply->result == ONCE_INVALID || reply->result == ONCE_LIMIT) {
        return ctx->key.len == 0 && ctx->conf->mode != NGX_HTTP_ONCE_REQUIRED && ctx->refusal == NULL
               ? NGX_HTTP_ONCE_STATUS_BYPASSED : NGX_HTTP_ONCE_STATUS_REFUSED;
    }

    if (reply->result != ONCE_OK) {
        return ctx->conf->store_down == NGX_HTTP_ONCE_PASS && reply->result != ONCE_CORRUPT
               ? NGX_HTTP_ONCE_STATUS_BYPASSED : NGX_HTTP_ONCE_STATUS_UNAVAILABLE;
    }

    if (ngx_http_once_is_observing(ctx)) {
        return NGX_HTTP_ONCE_STATUS_OBSERVED;
    }

    return reply->arm < sizeof statuses / sizeof *statuses && statuses[reply->arm] != 0
           ? statuses[reply->arm] : NGX_HTTP_ONCE_STATUS_UNAVAILABLE;
}

/* Runs the handler again, and then posted requests. If nginx itself called us, to deliver the body, it runs posted requests later:
 * they may end the request, which nginx's code for reading bodies is not prepared for. */
static void
ngx_http_once_resume(ngx_http_once_ctx_t *ctx, ngx_http_once_state_e state)
{
    ngx_uint_t           called = ctx->state == NGX_HTTP_ONCE_READING;
    ngx_http_request_t  *r = ctx->request;
    ngx_connection_t    *c = r->connection;

    ngx_http_set_log_request(c->log, r);

    if (ngx_http_once_set_state(ctx, state) == NGX_OK) {
        r->write_event_handler = ngx_http_core_run_phases;
        ngx_http_core_run_phases(r);

    } else {
        ngx_http_finalize_request(r, NGX_ERROR);
    }

    if (!called) {
        ngx_http_run_posted_requests(c);
    }
}

static void
ngx_http_once_decided(ngx_http_once_ctx_t *ctx)
{
    ctx->status = ngx_http_once_claim_status(ctx);
    ngx_http_once_resume(ctx, NGX_HTTP_ONCE_DECIDED);
}

/* Decides the claim although no reply came. */
static void
ngx_http_once_decide_without_daemon(ngx_http_once_ctx_t *ctx, once_result result, const char *text)
{
    ctx->reply.result = result;
    ngx_cpystrn((u_char *) ctx->reply.err.text, (u_char *) text, sizeof(ctx->reply.err.text));
    ngx_http_once_decided(ctx);
}

static void
ngx_http_once_wait_timeout(ngx_event_t *ev)
{
    ngx_http_once_ctx_t  *ctx = ev->data;

    if (ngx_http_once_deadline_late(&ctx->deadline, ev) == NGX_AGAIN) {
        return;
    }

    if (ctx->waiter.queue.next != NULL) {
        ngx_queue_remove(&ctx->waiter.queue);
        ctx->waiter.queue.next = NULL;
    }

    ngx_http_once_decide_without_daemon(ctx, ONCE_UNAVAILABLE, "the daemon does not answer");
}

void
ngx_http_once_body_read(ngx_http_request_t *r)
{
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r);

    r->preserve_body = 1;
    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    ngx_http_once_begin_claim(ctx);
}

/* A request without the client's key may have a key from once_key_natural. */
static ngx_int_t
ngx_http_once_natural_key(ngx_http_once_ctx_t *ctx)
{
    if (ctx->key.len > 0 || ctx->conf->key_natural == NULL) {
        return NGX_OK;
    }

    ctx->natural_key = 1;
    return ngx_http_complex_value(ctx->request, ctx->conf->key_natural, &ctx->key);
}

once_span
ngx_http_once_copy(ngx_pool_t *pool, once_span bytes)
{
    u_char  *p;

    if (bytes.len == 0) {
        return once_span_of(NULL, 0);
    }

    p = ngx_pnalloc(pool, bytes.len);
    if (p != NULL) {
        ngx_memcpy(p, bytes.ptr, bytes.len);
    }

    return once_span_of(p, p != NULL ? bytes.len : 0);
}

static void
ngx_http_once_claimed(void *data, ngx_http_once_reply_t *reply)
{
    ngx_pool_t           *pool;
    ngx_http_once_ctx_t  *ctx = data;
    struct once_record   *record = &ctx->reply.record;

    (void) ngx_http_once_check_state(ctx);
    ctx->call = NULL;
    ctx->reply = *reply;
    pool = ctx->request->pool;

    record->tenant = once_span_of(NULL, 0);
    record->key = once_span_of(NULL, 0);
    record->headers = ngx_http_once_copy(pool, record->headers);
    record->body = ngx_http_once_copy(pool, record->body);
    record->recovery_point = ngx_http_once_copy(pool, record->recovery_point);
    record->checkpoint = record->checkpoint.len <= NGX_HTTP_ONCE_CHECKPOINT_MAX
                         ? ngx_http_once_copy(pool, record->checkpoint) : once_span_of(NULL, 0);
    record->request = once_span_of(NULL, 0);
    record->route = once_span_of(NULL, 0);

    ctx->grant = record->grant;
    ctx->record_known = 0;
    ngx_http_once_trace_answered(ctx, reply);

    if (record->body.len != reply->record.body.len || record->headers.len != reply->record.headers.len) {
        ctx->reply.result = ONCE_NO_MEMORY;
    }

    ngx_http_once_decided(ctx);
}

/* NGX_OK: connected. NGX_DONE: the request waits, or was decided without the daemon. */
static ngx_int_t
ngx_http_once_await_daemon(ngx_http_once_ctx_t *ctx)
{
    switch (ngx_http_once_daemon_state(ctx->conf->daemon)) {

    case NGX_AGAIN:
        if (ctx->state == NGX_HTTP_ONCE_WAITING) { /* it has waited for one connection attempt */
            ngx_http_once_decide_without_daemon(ctx, ONCE_UNAVAILABLE, "the daemon does not answer");
            return NGX_DONE;
        }

        ctx->waiter.handler = ngx_http_once_begin_claim;
        ctx->waiter.data = ctx;
        ngx_http_once_deadline(&ctx->deadline, &ctx->timer, ngx_http_once_wait_timeout, ctx, NGX_HTTP_ONCE_CLAIM_MS);
        ngx_http_once_daemon_wait(ctx->conf->daemon, &ctx->waiter);
        (void) ngx_http_once_set_state(ctx, NGX_HTTP_ONCE_WAITING);
        return NGX_DONE;

    case NGX_DECLINED:
        ngx_http_once_decide_without_daemon(ctx, ONCE_UNAVAILABLE, "the daemon is down");
        return NGX_DONE;

    default:
        return NGX_OK;
    }
}

/* Sends the claim; observing: a look-up. */
static void
ngx_http_once_send_claim(ngx_http_once_ctx_t *ctx)
{
    ngx_msec_t           timeout = NGX_HTTP_ONCE_CLAIM_MS;
    struct once_buf      stored;
    struct once_request  request;

    ngx_memzero(&request, sizeof(request));
    once_buf_init(&stored, ONCE_REQUEST_LEN_MAX);

    if (ngx_http_once_is_observing(ctx)) {
        request.verb = ONCE_VERB_LOOKUP;
        request.lookup.tenant = once_span_of(ctx->tenant.data, ctx->tenant.len);
        request.lookup.key = once_span_of(ctx->key.data, ctx->key.len);

    } else {
        request.verb = ONCE_VERB_CLAIM;
        request.claim.tenant = once_span_of(ctx->tenant.data, ctx->tenant.len);
        request.claim.key = once_span_of(ctx->key.data, ctx->key.len);
        request.claim.fingerprint = ctx->fingerprint;
        request.claim.intent = ctx->conf->intent;
        request.claim.route = ngx_http_once_route(ctx);
        ngx_http_once_set_claim_durations(ctx, &request.claim);
        ngx_http_once_set_stored_request(ctx, &stored, &request.claim);
        timeout += ctx->conf->wait_ms;
    }

    ngx_http_once_trace_step(ctx, ONCE_TRACE_CLAIM);
    ctx->call = ngx_http_once_call(ctx->conf->daemon, &request, timeout, ngx_http_once_claimed, ctx);
    once_buf_release(&stored);

    if (ctx->call == NULL) {
        ngx_http_once_decide_without_daemon(ctx, ONCE_BUSY, "too many requests are waiting");
        return;
    }

    (void) ngx_http_once_set_state(ctx, NGX_HTTP_ONCE_CLAIMING);
}

/* Begins the claim, and is called again when the connection is there. */
static void
ngx_http_once_begin_claim(void *data)
{
    once_result           result;
    struct once_error     err;
    ngx_http_once_ctx_t  *ctx = data;

    if (ctx->timer.timer_set) {
        ngx_del_timer(&ctx->timer);
    }

    if (ctx->refusal != NULL || ngx_http_once_check_state(ctx) != NGX_OK) {
        ngx_http_once_decide_without_daemon(ctx, ONCE_INVALID, "refused");
        return;
    }

    if (ngx_http_once_await_daemon(ctx) != NGX_OK) {
        return;
    }

    if (ngx_http_once_refuse_tier(ctx)) {
        ngx_http_once_decide_without_daemon(ctx, ONCE_INVALID, "refused");
        return;
    }

    if (ngx_http_once_natural_key(ctx) != NGX_OK) {
        ngx_http_once_decide_without_daemon(ctx, ONCE_NO_MEMORY, "no memory for a key");
        return;
    }

    if (ctx->key.len == 0 || ctx->key.len > ONCE_KEY_LEN_MAX) {
        ngx_http_once_decide_without_daemon(ctx, ONCE_INVALID, ctx->key.len == 0 ? "" : "the key of this operation is too long");
        return;
    }

    result = ngx_http_once_fingerprint(ctx, &err);
    if (result != ONCE_OK) {
        ngx_http_once_decide_without_daemon(ctx, result, err.text);
        return;
    }

    ngx_http_once_send_claim(ctx);
}

/* ---------------------------------------------------------------- intent */

static void
ngx_http_once_intent_recorded(void *data, ngx_http_once_reply_t *reply)
{
    ngx_int_t             rc;
    ngx_http_once_ctx_t  *ctx = data;

    rc = ngx_http_once_check_state(ctx);
    ctx->call = NULL;

    if (rc != NGX_OK || (reply->result == ONCE_OK && reply->arm == ONCE_ARM_DONE)) {
        ngx_http_once_resume(ctx, NGX_HTTP_ONCE_INTENT_RECORDED);
        return;
    }

    /* nothing was sent upstream */
    ngx_http_once_end_claim(ctx);
    ngx_http_once_decide_without_daemon(ctx, ONCE_UNAVAILABLE, reply->result == ONCE_OK ? "another attempt took over"
                                                                         : reply->err.text);
}

/* Stores the intent to send before sending: without it, a later attempt knows that nothing was sent. A recovery
 * point of an earlier attempt serves as well. */
static ngx_int_t
ngx_http_once_record_intent(ngx_http_once_ctx_t *ctx)
{
    struct once_request  request;

    ngx_http_once_lease_begin(ctx);
    ctx->request->write_event_handler = ngx_http_request_empty_handler;

    ngx_memzero(&request, sizeof(request));
    request.verb = ONCE_VERB_ADVANCE;
    request.grant = ctx->grant;
    request.advance.point = ONCE_LIT(ONCE_POINT_SENDING);

    ctx->call = ngx_http_once_call(ctx->conf->daemon, &request, NGX_HTTP_ONCE_CLAIM_MS,
                                   ngx_http_once_intent_recorded, ctx);
    if (ctx->call == NULL) {
        ngx_http_once_abandon(ctx);
        ngx_http_finalize_request(ctx->request,
                                  ngx_http_once_send_store_down(ctx->request, "it was not executed; try again"));
        return NGX_DONE;
    }

    (void) ngx_http_once_set_state(ctx, NGX_HTTP_ONCE_RECORDING_INTENT);
    return NGX_DONE;
}

ngx_int_t
ngx_http_once_execute(ngx_http_once_ctx_t *ctx)
{
    ngx_http_request_t  *r = ctx->request;

    if (ctx->state != NGX_HTTP_ONCE_INTENT_RECORDED) {
        ngx_http_once_lease_begin(ctx);
    }

    if (ngx_http_once_set_state(ctx, NGX_HTTP_ONCE_HELD) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->disable_not_modified = 1;  /* the service evaluates conditions (If-Match) */

    if (ctx->conf->forward && ngx_http_once_forward_headers(ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_once_trace_step(ctx, ONCE_TRACE_UPSTREAM);

    if (ctx->conf->pass.len > 0) {
        (void) ngx_http_named_location(r, &ctx->conf->pass);
        ngx_http_finalize_request(r, NGX_DONE);
        return NGX_DONE;
    }

    ngx_http_once_limit_to_one_try(ctx);
    return NGX_DECLINED;
}

/* once observe: logs what would have been done. */
static ngx_int_t
ngx_http_once_observe(ngx_http_once_ctx_t *ctx)
{
    ngx_http_request_t  *r = ctx->request;

    (void) ngx_http_once_set_state(ctx, NGX_HTTP_ONCE_DONE);

    if (ctx->reply.result != ONCE_OK) {
        if (ctx->reply.err.text[0] != '\0') {
            ngx_log_error(NGX_LOG_WARN, r->connection->log, 0, "once: observing: %s", ctx->reply.err.text);
        }
        return NGX_DECLINED;
    }

    if (ctx->reply.arm == ONCE_ARM_FOUND
        && ngx_memcmp(ctx->reply.record.fingerprint.bytes, ctx->fingerprint.bytes, 32) != 0)
    {
        ctx->reply.arm = ONCE_ARM_MISMATCH;
    }

    if (ctx->reply.arm == ONCE_ARM_ABSENT && ngx_http_once_is_outside_window(ctx)) {
        ctx->reply.arm = ONCE_ARM_EXPIRED;
    }

    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0, "once: observing: %s", once_arm_name(ctx->reply.arm));
    return NGX_DECLINED;
}

static ngx_int_t
ngx_http_once_send_claim_error(ngx_http_once_ctx_t *ctx)
{
    ngx_http_request_t     *r = ctx->request;
    ngx_http_once_reply_t  *reply = &ctx->reply;

    static const ngx_http_once_problem_t  missing = {
        NGX_HTTP_BAD_REQUEST, "key-missing", "Idempotency-Key is missing", "this operation needs a key", 0, 0
    };

    switch (reply->result) {

    case ONCE_LIMIT:
        return ngx_http_once_send_problem(r, &(ngx_http_once_problem_t){
            NGX_HTTP_BAD_REQUEST, "limit-exceeded", "The request exceeds a limit", reply->err.text, 0, 0 });

    case ONCE_INVALID:
        if (reply->err.text[0] == '\0' && ctx->conf->mode != NGX_HTTP_ONCE_REQUIRED) {
            return NGX_DECLINED;  /* once_key_natural is empty for this request */
        }

        return ngx_http_once_send_problem(r, reply->err.text[0] == '\0' ? &missing : &(ngx_http_once_problem_t){
            NGX_HTTP_BAD_REQUEST, "key-invalid", "Idempotency-Key is malformed", reply->err.text, 0, 0 });

    case ONCE_QUOTA:
        return ngx_http_once_send_quota(r, reply->err.text);

    case ONCE_CORRUPT:
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "once: %s", reply->err.text);
        return ngx_http_once_send_problem(r, &(ngx_http_once_problem_t){
            NGX_HTTP_INTERNAL_SERVER_ERROR, "record-damaged", "The record of this key is damaged",
            "it was not executed again; an operator must look at it", 0, 0 });

    default:
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "once: %s", reply->err.text);

        if (ctx->conf->store_down == NGX_HTTP_ONCE_PASS) {
            return NGX_DECLINED;
        }

        return ngx_http_once_send_store_down(r, "it was not executed; try again");
    }
}

/* The claim was not granted. */
static ngx_int_t
ngx_http_once_send_claim_answer(ngx_http_once_ctx_t *ctx)
{
    ngx_http_request_t  *r = ctx->request;
    struct once_record  *record = &ctx->reply.record;

    ctx->expires_at = record->expires_at;

    switch (ctx->reply.arm) {

    case ONCE_ARM_REPLAY:
        return ngx_http_once_send_replay(r, record);

    case ONCE_ARM_MISMATCH:
        return ngx_http_once_send_problem(r, &(ngx_http_once_problem_t){
            422, "key-reused", "Idempotency-Key is already used",
            !ngx_http_once_fingerprints_credentials(ctx->conf)
            ? "the key was used for another request: use a new key, or send the same request"
            : "the key was used for another request, or with other credentials (another token, another session). If "
              "this may be your own retry, it may have been executed: look its result up before you use a new key",
            0, 0 });

    case ONCE_ARM_IN_PROGRESS:
        return ngx_http_once_send_in_progress(r, ctx->reply.retry_after_ms);

    case ONCE_ARM_UNKNOWN:
        return ngx_http_once_send_unknown(r, record);

    case ONCE_ARM_EXPIRED:
        return ngx_http_once_send_expired(ctx);

    default:
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "once: unexpected reply to a claim: \"%s\"",
                      once_arm_name(ctx->reply.arm));
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
}

ngx_int_t
ngx_http_once_act_on_claim(ngx_http_once_ctx_t *ctx)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r = ctx->request;

    if (ngx_http_once_is_observing(ctx)) {
        return ngx_http_once_observe(ctx);
    }

    if (ctx->status == NGX_HTTP_ONCE_STATUS_EXECUTING) {
        return ctx->conf->intent && ctx->reply.record.recovery_point.len == 0 ? ngx_http_once_record_intent(ctx)
                                                                              : ngx_http_once_execute(ctx);
    }

    if (ngx_http_once_set_state(ctx, NGX_HTTP_ONCE_DONE) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ctx->refusal != NULL ? ngx_http_once_send_problem(r, ctx->refusal)
       : ctx->reply.result != ONCE_OK ? ngx_http_once_send_claim_error(ctx) : ngx_http_once_send_claim_answer(ctx);

    if (rc == NGX_DECLINED && ctx->reply.result != ONCE_OK) {
        return rc;
    }

    ngx_http_finalize_request(r, rc);
    return NGX_DONE;
}
