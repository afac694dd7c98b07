/*
 * ngx_http_once_request.c - a request: its key, tenant and fingerprint; the claim; what follows.
 *
 * Model:      the handler runs in the PRECONTENT phase, that is after access control, so that a
 *             replay is given to nobody who may not ask. It reads the whole body, asks the daemon,
 *             and is entered again when the answer is there. Its context is a cleanup of the
 *             request's pool: that is its destructor, and the way to find it again after an
 *             internal redirect, which forgets all contexts.
 * Invariants: K4 the request goes on only after EXECUTE.
 *             What is held is ended (ngx_http_once_held.c): by a finish or a release, or by the cleanup.
 */
#include "ngx_http_once.h"

#include "core/span.h"

/* for the daemon to be connected and to answer a claim; waiting for another's outcome comes on top */
#define NGX_HTTP_ONCE_CLAIM_MS  5000

static void ngx_http_once_body_read(ngx_http_request_t *r);
static void ngx_http_once_begin(void *data);
static void ngx_http_once_claimed(void *data, ngx_http_once_reply_t *reply);
static ngx_int_t ngx_http_once_act(ngx_http_once_ctx_t *ctx);

/* ---------------------------------------------------------------- the context */

static void
ngx_http_once_cleanup(void *data)
{
    ngx_http_once_ctx_t  *ctx = data;

    if (ctx->request == NULL) {
        return;  /* not begun */
    }

    if (ctx->call != NULL) {
        ngx_http_once_call_disown(ctx->call);
        ctx->call = NULL;
    }

    if (ctx->waiter.queue.next != NULL) {
        ngx_queue_remove(&ctx->waiter.queue);
    }

    if (ctx->parked.posted) {
        ngx_delete_posted_event(&ctx->parked);
    }

    if (ctx->state == NGX_HTTP_ONCE_HELD || ctx->state == NGX_HTTP_ONCE_RECORDING_INTENT
        || (ctx->state == NGX_HTTP_ONCE_DECIDED && ctx->reply.result == ONCE_OK
            && ctx->reply.arm == ONCE_ARM_EXECUTE && !ctx->observed))
    {
        ngx_http_once_abandon(ctx);
    }

    ngx_http_once_lease_end(ctx);
    ngx_http_once_trace_end(ctx);
    ngx_http_once_withheld_release(ctx);
}

ngx_http_once_ctx_t *
ngx_http_once_get_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t   *cln;
    ngx_http_once_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_once_module);

    if (ctx == NULL && (r->internal || r->filter_finalize)) {

        for (cln = r->pool->cleanup; cln; cln = cln->next) {
            if (cln->handler == ngx_http_once_cleanup) {
                ctx = cln->data;
                ngx_http_set_ctx(r, ctx, ngx_http_once_module);
                break;
            }
        }
    }

    return ctx;
}

static ngx_http_once_ctx_t *
ngx_http_once_create_ctx(ngx_http_request_t *r, ngx_http_once_loc_conf_t *olcf)
{
    ngx_pool_cleanup_t   *cln;
    ngx_http_once_ctx_t  *ctx;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_once_ctx_t));
    if (cln == NULL) {
        return NULL;
    }

    ctx = cln->data;
    ngx_memzero(ctx, sizeof(ngx_http_once_ctx_t));
    ctx->request = r;
    ctx->conf = olcf;
    ctx->http_version = r->http_version;
    ctx->observed = olcf->mode == NGX_HTTP_ONCE_OBSERVE;
    ngx_http_once_withhold_begin(ctx);
    cln->handler = ngx_http_once_cleanup;
    ngx_http_set_ctx(r, ctx, ngx_http_once_module);

    return ctx;
}

/* Enters the handler again. From an event of our own: runs what was posted, too. Where nginx called us it does so itself, after
 * us: what is posted may be the end of the request, for which its callers are not prepared. */
static void
ngx_http_once_resume(ngx_http_once_ctx_t *ctx)
{
    ngx_uint_t           called = ctx->called;
    ngx_http_request_t  *r = ctx->request;
    ngx_connection_t    *c = r->connection;

    ctx->state = NGX_HTTP_ONCE_DECIDED;
    ngx_http_set_log_request(c->log, r);

    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);

    if (!called) {
        ngx_http_run_posted_requests(c);
    }
}

/* ---------------------------------------------------------------- key */

ngx_int_t
ngx_http_once_refuse(ngx_http_once_ctx_t *ctx, const ngx_http_once_problem_t *problem)
{
    char                     *detail;
    ngx_int_t                 rc;
    ngx_http_request_t       *r = ctx->request;
    ngx_http_once_problem_t  *copy;

    ctx->turned_away = 1;

    if (ctx->observed) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0, "once: would refuse with %ui: %s",
                      problem->status, problem->detail);
        ctx->state = NGX_HTTP_ONCE_DONE;
        return NGX_DECLINED;
    }

    if (r->stream != NULL) {
        /* HTTP/2: an answer before the body's end is followed by a reset, which not all clients take well */
        copy = ngx_palloc(r->pool, sizeof(ngx_http_once_problem_t));
        detail = ngx_pnalloc(r->pool, ngx_strlen(problem->detail) + 1);
        if (copy == NULL || detail == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        ngx_memcpy(detail, problem->detail, ngx_strlen(problem->detail) + 1);
        *copy = *problem;
        copy->detail = detail;
        ctx->refusal = copy;
        return NGX_OK;
    }

    ctx->state = NGX_HTTP_ONCE_DONE;
    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_http_finalize_request(r, ngx_http_once_send_problem(r, problem));
    return NGX_DONE;
}

/* NGX_OK: ctx->key.  NGX_DECLINED: there is none, and none is needed.  Else: it was refused. */
static ngx_int_t
ngx_http_once_read_key(ngx_http_once_ctx_t *ctx)
{
    size_t               len;
    ngx_str_t            field = ngx_null_string;
    ngx_uint_t           count;
    struct once_error    err;
    ngx_http_request_t  *r = ctx->request;
    char                 key[ONCE_KEY_LEN_MAX + 1];
    char                 detail[sizeof err.text + 64];

    count = ngx_http_once_find_header(r, &ctx->conf->key_header, &field);

    if (count > 1) {
        return ngx_http_once_refuse(ctx, &(ngx_http_once_problem_t){
            NGX_HTTP_BAD_REQUEST, "key-invalid", "Idempotency-Key is malformed",
            "the key was sent in more than one field line", 0, 0 });
    }

    if (count == 0) {
        if (ctx->conf->key_natural != NULL) {
            return NGX_OK;  /* it may need the body */
        }

        if (ctx->conf->mode != NGX_HTTP_ONCE_REQUIRED) {
            return NGX_DECLINED;
        }

        snprintf(detail, sizeof detail, "this operation needs a key: send %.*s",
                 (int) ctx->conf->key_header.len, (char *) ctx->conf->key_header.data);

        return ngx_http_once_refuse(ctx, &(ngx_http_once_problem_t){
            NGX_HTTP_BAD_REQUEST, "key-missing", "Idempotency-Key is missing", detail, 0, 0 });
    }

    if (once_key_parse(once_span_of(field.data, field.len), ctx->conf->key_format, key, &len, &err) != ONCE_OK) {
        return ngx_http_once_refuse(ctx, &(ngx_http_once_problem_t){
            NGX_HTTP_BAD_REQUEST, "key-invalid", "Idempotency-Key is malformed", err.text, 0, 0 });
    }

    ctx->key.len = len;
    ctx->key.data = ngx_pnalloc(r->pool, len);
    if (ctx->key.data == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_memcpy(ctx->key.data, key, len);
    return NGX_OK;
}

/* Its upstream was not reached, and an error_page names another: the request is the same there, with its method. */
static ngx_uint_t
ngx_http_once_is_fallback(ngx_http_once_ctx_t *ctx)
{
    ngx_http_request_t  *r = ctx->request;

    return r->upstream != NULL && r->content_handler != NULL && (r->method & ctx->conf->methods);
}

/* An offer of HTTP/2 comes with every first request of some clients (Java's HttpClient, curl --http2). It is about
 * this connection, changes nothing about the answer, and is ignored by who does not take it, as nginx does; the
 * upstream must not take it either, whatever proxy_set_header says.  Another protocol has no answer at all. */
static ngx_int_t
ngx_http_once_read_upgrade(ngx_http_once_ctx_t *ctx)
{
    ngx_str_t            protocol;
    ngx_http_request_t  *r = ctx->request;
    ngx_str_t            names[] = { ngx_string("Upgrade"), ngx_string("HTTP2-Settings") };

    if (ngx_http_once_find_header(r, &names[0], &protocol) == 1
        && protocol.len == 3 && ngx_strncasecmp(protocol.data, (u_char *) "h2c", 3) == 0)
    {
        if (ctx->conf->mode == NGX_HTTP_ONCE_OBSERVE) {
            return NGX_OK;
        }

        r->headers_in.upgrade = NULL;
        return ngx_http_once_drop_headers(r, names, 2) == NGX_OK ? NGX_OK : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_once_refuse(ctx, &(ngx_http_once_problem_t){
        NGX_HTTP_BAD_REQUEST, "upgrade-refused", "A request with a key cannot be upgraded",
        "an upgraded connection has no answer that could be kept: leave out Upgrade, or the key", 0, 0 });
}

ngx_int_t
ngx_http_once_handler(ngx_http_request_t *r)
{
    ngx_int_t                  rc;
    ngx_http_once_ctx_t       *ctx;
    ngx_http_once_loc_conf_t  *olcf;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_once_get_ctx(r);

    if (ctx != NULL) {
        switch (ctx->state) {

        case NGX_HTTP_ONCE_READING:  /* its body was refused, or is none: this is the error's page */
            ctx->state = NGX_HTTP_ONCE_DONE;
            return NGX_DECLINED;

        case NGX_HTTP_ONCE_DECIDED:
            return ngx_http_once_act(ctx);

        case NGX_HTTP_ONCE_HELD:  /* in another location now */
            if (ngx_http_once_is_handed(r)) {
                ctx->handed = 1;
                return NGX_DECLINED;
            }

            if (ngx_http_once_was_sent(ctx)) {
                ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                              "once: a claimed request was sent upstream and is redirected to \"%V\"; "
                              "it is not sent again", &r->uri);
                return NGX_HTTP_BAD_GATEWAY;
            }

            if ((r->error_page || r->err_status) && !ngx_http_once_is_fallback(ctx)) {
                ngx_http_once_abandon(ctx);  /* an error page is not the operation */
                return NGX_DECLINED;
            }

            if (r->err_status) {  /* the client would be told that status, whatever the upstream says */
                return NGX_HTTP_BAD_GATEWAY;
            }

            ngx_http_once_guard(ctx);
            return NGX_DECLINED;

        case NGX_HTTP_ONCE_DONE:
            return NGX_DECLINED;

        default:
            return NGX_DONE;
        }
    }

    olcf = ngx_http_get_module_loc_conf(r, ngx_http_once_module);

    if (olcf->mode == NGX_HTTP_ONCE_OFF || r->error_page || r->err_status) {
        return NGX_DECLINED;
    }

    if (olcf->forward && olcf->mode != NGX_HTTP_ONCE_OBSERVE && ngx_http_once_strip_headers(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (!(r->method & olcf->methods)) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_once_create_ctx(r, olcf);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_once_read_key(ctx);

    if (rc == NGX_OK && ctx->refusal == NULL) {
        rc = ngx_http_once_read_tenant(ctx);
    }

    if (rc == NGX_OK && ctx->refusal == NULL && r->headers_in.upgrade != NULL) {
        rc = ngx_http_once_read_upgrade(ctx);
    }

    if (rc == NGX_DONE) {
        return rc;  /* refused; the request may be gone */
    }

    if (rc != NGX_OK) {
        ctx->state = NGX_HTTP_ONCE_DONE;
        return rc;
    }

    ngx_http_once_trace_begin(ctx);

    if (r->method == NGX_HTTP_PUT && r->content_handler == NULL && olcf->pass.len == 0 && olcf->mode != NGX_HTTP_ONCE_OBSERVE) {
        /* as dav wants it, which comes too late to say so */
        r->request_body_in_file_only = 1;
        r->request_body_in_persistent_file = 1;
        r->request_body_in_clean_file = 1;
        r->request_body_file_group_access = 1;
        r->request_body_file_log_level = 0;
    }

    rc = ngx_http_read_client_request_body(r, ngx_http_once_body_read);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        ctx->state = NGX_HTTP_ONCE_DONE;
        return rc;
    }

    ngx_http_finalize_request(r, NGX_DONE);
    return NGX_DONE;
}

/* ---------------------------------------------------------------- claim */

/* There will be no answer from the daemon: this instead. */
static void
ngx_http_once_decide(ngx_http_once_ctx_t *ctx, once_result result, const char *text)
{
    ctx->reply.result = result;
    ngx_cpystrn((u_char *) ctx->reply.err.text, (u_char *) text, sizeof(ctx->reply.err.text));
    ngx_http_once_resume(ctx);
}

static void
ngx_http_once_wait_timeout(ngx_event_t *ev)
{
    ngx_http_once_ctx_t  *ctx = ev->data;

    if (ngx_http_once_due_late(&ctx->due, ev) == NGX_AGAIN) {
        return;
    }

    if (ctx->waiter.queue.next != NULL) {
        ngx_queue_remove(&ctx->waiter.queue);
        ctx->waiter.queue.next = NULL;
    }

    ngx_http_once_decide(ctx, ONCE_UNAVAILABLE, "the daemon does not answer");
}

static void
ngx_http_once_body_read(ngx_http_request_t *r)
{
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r);

    r->preserve_body = 1;
    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    ctx->called = 1;
    ngx_http_once_begin(ctx);
}

/* Where the client sent no key, the operation names itself. */
static ngx_int_t
ngx_http_once_natural_key(ngx_http_once_ctx_t *ctx)
{
    if (ctx->key.len > 0 || ctx->conf->key_natural == NULL) {
        return NGX_OK;
    }

    ctx->natural = 1;
    return ngx_http_complex_value(ctx->request, ctx->conf->key_natural, &ctx->key);
}

/* The body is there; as soon as the daemon is, too, it is asked. */
static void
ngx_http_once_begin(void *data)
{
    once_result           result;
    struct once_buf       stored;
    struct once_error     err;
    struct once_request   request;
    ngx_http_once_ctx_t  *ctx = data;

    if (ctx->timer.timer_set) {
        ngx_del_timer(&ctx->timer);
    }

    if (ctx->refusal != NULL) {
        ngx_http_once_decide(ctx, ONCE_INVALID, "refused");
        return;
    }

    switch (ngx_http_once_daemon_state(ctx->conf->daemon)) {

    case NGX_AGAIN:
        if (ctx->state == NGX_HTTP_ONCE_WAITING) { /* it waited for one connection already */
            ngx_http_once_decide(ctx, ONCE_UNAVAILABLE, "the daemon does not answer");
            return;
        }
        ctx->state = NGX_HTTP_ONCE_WAITING;
        ctx->called = 0;
        ctx->waiter.handler = ngx_http_once_begin;
        ctx->waiter.data = ctx;
        ngx_http_once_due(&ctx->due, &ctx->timer, ngx_http_once_wait_timeout, ctx, NGX_HTTP_ONCE_CLAIM_MS);
        ngx_http_once_daemon_wait(ctx->conf->daemon, &ctx->waiter);
        return;

    case NGX_DECLINED:
        ngx_http_once_decide(ctx, ONCE_UNAVAILABLE, "the daemon is not there");
        return;
    }

    if (ngx_http_once_refuse_tier(ctx)) {
        ngx_http_once_decide(ctx, ONCE_INVALID, "refused");
        return;
    }

    if (ngx_http_once_natural_key(ctx) != NGX_OK) {
        ngx_http_once_decide(ctx, ONCE_NO_MEMORY, "no memory for a key");
        return;
    }

    if (ctx->key.len == 0 || ctx->key.len > ONCE_KEY_LEN_MAX) {
        ngx_http_once_decide(ctx, ONCE_INVALID, ctx->key.len == 0 ? "" : "the key of this operation is too long");
        return;
    }

    result = ngx_http_once_fingerprint(ctx, &err);
    if (result != ONCE_OK) {
        ngx_http_once_decide(ctx, result, err.text);
        return;
    }

    ngx_memzero(&request, sizeof(request));
    once_buf_init(&stored, ONCE_REQUEST_LEN_MAX);

    if (ctx->observed) {
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
        ngx_http_once_claim_terms(ctx, &request.claim);
        ngx_http_once_claim_request(ctx, &stored, &request.claim);
    }

    ctx->state = NGX_HTTP_ONCE_CLAIMING;
    ngx_http_once_trace_step(ctx, ONCE_TRACE_CLAIM);
    ctx->call = ngx_http_once_call(ctx->conf->daemon, &request,
                                   NGX_HTTP_ONCE_CLAIM_MS + (ctx->observed ? 0 : ctx->conf->wait_ms),
                                   ngx_http_once_claimed, ctx);
    once_buf_release(&stored);

    if (ctx->call == NULL) {
        ngx_http_once_decide(ctx, ONCE_BUSY, "too many requests are waiting");
        return;
    }

    ctx->called = 0;  /* the answer is an event of our own */
}

static once_span
ngx_http_once_keep(ngx_pool_t *pool, once_span bytes)
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

    ctx->call = NULL;
    ctx->reply = *reply;
    pool = ctx->request->pool;

    record->tenant = once_span_of(NULL, 0);
    record->key = once_span_of(NULL, 0);
    record->headers = ngx_http_once_keep(pool, record->headers);
    record->body = ngx_http_once_keep(pool, record->body);
    record->recovery_point = ngx_http_once_keep(pool, record->recovery_point);
    record->checkpoint = record->checkpoint.len <= NGX_HTTP_ONCE_CHECKPOINT_MAX
                         ? ngx_http_once_keep(pool, record->checkpoint) : once_span_of(NULL, 0);
    record->request = once_span_of(NULL, 0);
    record->route = once_span_of(NULL, 0);

    ctx->grant = record->grant;
    ctx->named = 0;
    ngx_http_once_trace_answered(ctx, reply);

    if (record->body.len != reply->record.body.len || record->headers.len != reply->record.headers.len) {
        ctx->reply.result = ONCE_NO_MEMORY;
    }

    ngx_http_once_resume(ctx);
}

/* ---------------------------------------------------------------- intent */

static void
ngx_http_once_marked(void *data, ngx_http_once_reply_t *reply)
{
    ngx_http_once_ctx_t  *ctx = data;

    ctx->call = NULL;

    if (reply->result == ONCE_OK && reply->arm == ONCE_ARM_DONE) {
        ngx_http_once_lease_end(ctx);
        ctx->marked = 1;
        ngx_http_once_resume(ctx);
        return;
    }

    /* nothing was sent, and nothing will be */
    ngx_http_once_abandon(ctx);
    ngx_http_once_decide(ctx, ONCE_UNAVAILABLE, reply->result == ONCE_OK ? "another attempt took over"
                                                                         : reply->err.text);
}

/* Before anything is sent, that it will be is made durable: whoever finds the claim without this
 * mark knows that nothing was. An earlier attempt's mark, or point, says the same. */
static ngx_int_t
ngx_http_once_mark(ngx_http_once_ctx_t *ctx)
{
    struct once_request  request;

    ngx_http_once_lease_begin(ctx);
    ctx->state = NGX_HTTP_ONCE_RECORDING_INTENT;
    ctx->request->write_event_handler = ngx_http_request_empty_handler;

    ngx_memzero(&request, sizeof(request));
    request.verb = ONCE_VERB_ADVANCE;
    request.grant = ctx->grant;
    request.advance.point = ONCE_LIT(ONCE_POINT_SENDING);

    ctx->call = ngx_http_once_call(ctx->conf->daemon, &request, NGX_HTTP_ONCE_CLAIM_MS,
                                   ngx_http_once_marked, ctx);
    if (ctx->call == NULL) {
        ngx_http_once_abandon(ctx);
        ngx_http_finalize_request(ctx->request,
                                  ngx_http_once_send_store_down(ctx->request, "it was not executed; try again"));
    }

    return NGX_DONE;
}

static ngx_int_t
ngx_http_once_execute(ngx_http_once_ctx_t *ctx)
{
    ngx_http_request_t  *r = ctx->request;

    ngx_http_once_lease_begin(ctx);
    r->disable_not_modified = 1;  /* a condition is the service's to judge, and by now it was executed */

    if (ctx->conf->forward && ngx_http_once_forward_headers(ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_once_trace_step(ctx, ONCE_TRACE_UPSTREAM);

    if (ctx->conf->pass.len > 0) {
        (void) ngx_http_named_location(r, &ctx->conf->pass);
        ngx_http_finalize_request(r, NGX_DONE);
        return NGX_DONE;
    }

    ngx_http_once_guard(ctx);
    return NGX_DECLINED;
}

/* Only looking: what would have been done goes to the log and into the variables. */
static ngx_int_t
ngx_http_once_observe(ngx_http_once_ctx_t *ctx)
{
    ngx_http_request_t  *r = ctx->request;

    ctx->state = NGX_HTTP_ONCE_DONE;

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

    if (ctx->reply.arm == ONCE_ARM_ABSENT && ngx_http_once_is_outside(ctx)) {
        ctx->reply.arm = ONCE_ARM_EXPIRED;
    }

    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0, "once: observing: %s", once_arm_name(ctx->reply.arm));
    return NGX_DECLINED;
}

static ngx_int_t
ngx_http_once_not_answered(ngx_http_once_ctx_t *ctx)
{
    ngx_http_request_t     *r = ctx->request;
    ngx_http_once_reply_t  *reply = &ctx->reply;

    switch (reply->result) {

    case ONCE_LIMIT:
        return ngx_http_once_send_problem(r, &(ngx_http_once_problem_t){
            NGX_HTTP_BAD_REQUEST, "limit-exceeded", "The request is over a limit", reply->err.text, 0, 0 });

    case ONCE_INVALID:
        if (reply->err.text[0] == '\0' && ctx->conf->mode != NGX_HTTP_ONCE_REQUIRED) {
            return NGX_DECLINED;  /* the operation has no natural key */
        }

        return ngx_http_once_send_problem(r, &(ngx_http_once_problem_t){
            NGX_HTTP_BAD_REQUEST, reply->err.text[0] == '\0' ? "key-missing" : "key-invalid",
            reply->err.text[0] == '\0' ? "Idempotency-Key is missing" : "Idempotency-Key is malformed",
            reply->err.text[0] == '\0' ? "this operation needs a key" : reply->err.text, 0, 0 });

    case ONCE_QUOTA:
        return ngx_http_once_send_quota(r, reply->err.text);

    case ONCE_CORRUPT:
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "once: %s", reply->err.text);
        return ngx_http_once_send_problem(r, &(ngx_http_once_problem_t){
            NGX_HTTP_INTERNAL_SERVER_ERROR, "record-damaged", "The record of this key is damaged",
            "it was not executed again; somebody must look", 0, 0 });

    default:
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "once: %s", reply->err.text);

        if (ctx->conf->store_down == NGX_HTTP_ONCE_PASS) {
            return NGX_DECLINED;
        }

        return ngx_http_once_send_store_down(r, "it was not executed; try again");
    }
}

/* The claim is answered. */
static ngx_int_t
ngx_http_once_act(ngx_http_once_ctx_t *ctx)
{
    ngx_int_t            rc;
    struct once_record  *record = &ctx->reply.record;
    ngx_http_request_t  *r = ctx->request;

    if (ctx->observed) {
        return ngx_http_once_observe(ctx);
    }

    if (ctx->refusal != NULL) {
        ctx->state = NGX_HTTP_ONCE_DONE;
        ngx_http_finalize_request(r, ngx_http_once_send_problem(r, ctx->refusal));
        return NGX_DONE;
    }

    if (ctx->reply.result == ONCE_OK && ctx->reply.arm == ONCE_ARM_EXECUTE) {

        if (ctx->conf->intent && !ctx->marked && record->recovery_point.len == 0) {
            return ngx_http_once_mark(ctx);
        }

        return ngx_http_once_execute(ctx);
    }

    ctx->state = NGX_HTTP_ONCE_DONE;

    if (ctx->reply.result != ONCE_OK) {
        rc = ngx_http_once_not_answered(ctx);
        if (rc == NGX_DECLINED) {
            return rc;
        }

        ngx_http_finalize_request(r, rc);
        return NGX_DONE;
    }

    ctx->expires_at = record->expires_at;

    switch (ctx->reply.arm) {

    case ONCE_ARM_REPLAY:
        ctx->replayed = 1;
        rc = ngx_http_once_send_replay(r, record);
        break;

    case ONCE_ARM_MISMATCH:
        rc = ngx_http_once_send_problem(r, &(ngx_http_once_problem_t){
            422, "key-reused", "Idempotency-Key is already used",
            !ngx_http_once_counts_credentials(ctx->conf)
            ? "the key was used for another request: take a new key, or send the same request"
            : "the key was used for another request, or with other credentials (another token, another session). If "
              "this may be a retry of your own, it may have been executed: look its result up before you take a new key",
            0, 0 });
        break;

    case ONCE_ARM_IN_PROGRESS:
        rc = ngx_http_once_send_in_progress(r, ctx->reply.retry_after_ms);
        break;

    case ONCE_ARM_UNKNOWN:
        rc = ngx_http_once_send_unknown(r, record);
        break;

    case ONCE_ARM_EXPIRED:
        rc = ngx_http_once_send_expired(ctx);
        break;

    default:
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "once: a claim was answered \"%s\"",
                      once_arm_name(ctx->reply.arm));
        rc = NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_finalize_request(r, rc);
    return NGX_DONE;
}
