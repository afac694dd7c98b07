/*
 * ngx_http_once_request.c - the handler of a request: its context, its key, its way through the states.
 *
 * Model:      the handler runs in the PRECONTENT phase, after access control, so that only authorized callers get
 *             replays. It reads the whole body, claims (ngx_http_once_claim.c), and runs again after the
 *             reply. The context is a cleanup of the request's pool: its destructor, and a way to find it after
 *             an internal redirect, which clears all contexts.
 */
#include "ngx_http_once.h"

#include "core/span.h"

/* ---------------------------------------------------------------- the context */

static void
ngx_http_once_cleanup(void *data)
{
    ngx_http_once_ctx_t  *ctx = data;

    if (ctx->request == NULL) {
        return;  /* not initialized */
    }

    if (ctx->call != NULL) {
        ngx_http_once_call_detach(ctx->call);
        ctx->call = NULL;
    }

    if (ctx->waiter.queue.next != NULL) {
        ngx_queue_remove(&ctx->waiter.queue);
    }

    if (ctx->ignore_client.posted) {
        ngx_delete_posted_event(&ctx->ignore_client);
    }

    if (ctx->state == NGX_HTTP_ONCE_HELD || ctx->state == NGX_HTTP_ONCE_RECORDING_INTENT
        || ctx->state == NGX_HTTP_ONCE_INTENT_RECORDED
        || (ctx->state == NGX_HTTP_ONCE_DECIDED && ctx->status == NGX_HTTP_ONCE_STATUS_EXECUTING))
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
    ctx->status = ngx_http_once_is_observing(ctx) ? NGX_HTTP_ONCE_STATUS_OBSERVED : NGX_HTTP_ONCE_STATUS_INCOMPLETE;
    ngx_http_once_withhold_begin(ctx);
    cln->handler = ngx_http_once_cleanup;
    ngx_http_set_ctx(r, ctx, ngx_http_once_module);

    return ctx;
}

/* ---------------------------------------------------------------- key */

ngx_int_t
ngx_http_once_refuse(ngx_http_once_ctx_t *ctx, const ngx_http_once_problem_t *problem)
{
    size_t                    len;
    ngx_int_t                 rc;
    ngx_http_request_t       *r = ctx->request;
    ngx_http_once_problem_t  *copy;

    if (ngx_http_once_is_observing(ctx)) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0, "once: would refuse with %ui: %s",
                      problem->status, problem->detail);
        return NGX_DECLINED;
    }

    ctx->status = NGX_HTTP_ONCE_STATUS_REFUSED;

    if (r->stream != NULL) {
        /* HTTP/2: after an answer before the end of the body nginx resets the stream, and some clients lose the answer */
        len = ngx_strlen(problem->detail) + 1;
        copy = ngx_palloc(r->pool, sizeof(ngx_http_once_problem_t) + len);
        if (copy == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        *copy = *problem;
        copy->detail = (char *) (copy + 1);
        ngx_memcpy(copy + 1, problem->detail, len);
        ctx->refusal = copy;
        return NGX_OK;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    (void) ngx_http_once_set_state(ctx, NGX_HTTP_ONCE_DONE);
    ngx_http_finalize_request(r, ngx_http_once_send_problem(r, problem));
    return NGX_DONE;
}

/* NGX_OK: ctx->key. NGX_DECLINED: the request has no key and needs none. Otherwise it was refused. */
static ngx_int_t
ngx_http_once_read_key(ngx_http_once_ctx_t *ctx)
{
    size_t               len;
    ngx_uint_t           count;
    ngx_table_elt_t     *field;
    struct once_error    err;
    ngx_http_request_t  *r = ctx->request;
    char                 key[ONCE_KEY_LEN_MAX + 1];
    char                 detail[sizeof err.text + 64];

    count = ngx_http_once_find_header(&r->headers_in.headers, (char *) ctx->conf->key_header.data, &field);

    if (count > 1) {
        return ngx_http_once_refuse(ctx, &(ngx_http_once_problem_t){
            NGX_HTTP_BAD_REQUEST, "key-invalid", "Idempotency-Key is malformed",
            "the key was sent in more than one field line", 0, 0 });
    }

    if (count == 0) {
        if (ctx->conf->key_natural != NULL) {
            return NGX_OK;  /* once_key_natural may need the body */
        }

        if (ctx->conf->mode != NGX_HTTP_ONCE_REQUIRED) {
            return NGX_DECLINED;
        }

        snprintf(detail, sizeof detail, "this operation needs a key: send %.*s",
                 (int) ctx->conf->key_header.len, (char *) ctx->conf->key_header.data);

        return ngx_http_once_refuse(ctx, &(ngx_http_once_problem_t){
            NGX_HTTP_BAD_REQUEST, "key-missing", "Idempotency-Key is missing", detail, 0, 0 });
    }

    if (once_key_parse(once_span_of(field->value.data, field->value.len), ctx->conf->key_format, key, &len, &err) != ONCE_OK) {
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

/* Some clients offer HTTP/2 with their first request (Java's HttpClient, curl --http2). nginx ignores the offer, and it does
 * not change the answer; the headers are removed so that the upstream cannot accept it. Other protocols have no
 * answer that could be stored. */
static ngx_int_t
ngx_http_once_read_upgrade(ngx_http_once_ctx_t *ctx)
{
    ngx_table_elt_t     *protocol;
    ngx_http_request_t  *r = ctx->request;
    ngx_str_t            names[] = { ngx_string("Upgrade"), ngx_string("HTTP2-Settings") };

    if (ngx_http_once_find_header(&r->headers_in.headers, "Upgrade", &protocol) == 1
        && ngx_http_once_is_name(&protocol->value, "h2c"))
    {
        if (ctx->conf->mode == NGX_HTTP_ONCE_OBSERVE) {
            return NGX_OK;
        }

        r->headers_in.upgrade = NULL;
        return ngx_http_once_drop_headers(r, names, 2) == NGX_OK ? NGX_OK : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_once_refuse(ctx, &(ngx_http_once_problem_t){
        NGX_HTTP_BAD_REQUEST, "upgrade-refused", "A request with a key cannot be upgraded",
        "an upgraded connection has no answer that could be stored: omit Upgrade, or the key", 0, 0 });
}

/* nginx continues with a claimed request in another location. */
static ngx_int_t
ngx_http_once_continue_elsewhere(ngx_http_once_ctx_t *ctx)
{
    ngx_http_request_t  *r = ctx->request;

    if (ngx_http_once_is_accel_redirect(r)) {
        ctx->upstream = NGX_HTTP_ONCE_ACCEL_REDIRECTED;
        return NGX_DECLINED;
    }

    if (ngx_http_once_was_sent(ctx)) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "once: a claimed request was sent upstream and then redirected to \"%V\"; "
                      "it is not sent again", &r->uri);
        return NGX_HTTP_BAD_GATEWAY;
    }

    /* an error_page is not the operation, unless it names another upstream that gets the same request */
    if ((r->error_page || r->err_status)
        && (r->upstream == NULL || r->content_handler == NULL || !(r->method & ctx->conf->methods)))
    {
        ngx_http_once_abandon(ctx);
        return NGX_DECLINED;
    }

    if (r->err_status) {  /* the client would get that status instead of the upstream's */
        return NGX_HTTP_BAD_GATEWAY;
    }

    ngx_http_once_limit_to_one_try(ctx);
    return NGX_DECLINED;
}

/* The handler runs again for the same request. */
static ngx_int_t
ngx_http_once_reenter(ngx_http_once_ctx_t *ctx)
{
    if (ngx_http_once_check_state(ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    switch (ctx->state) {

    case NGX_HTTP_ONCE_READING:  /* reading the body failed: this is the error page */
        (void) ngx_http_once_set_state(ctx, NGX_HTTP_ONCE_DONE);
        return NGX_DECLINED;

    case NGX_HTTP_ONCE_DECIDED:
        return ngx_http_once_act_on_claim(ctx);

    case NGX_HTTP_ONCE_INTENT_RECORDED:
        return ngx_http_once_execute(ctx);

    case NGX_HTTP_ONCE_HELD:
        return ngx_http_once_continue_elsewhere(ctx);

    case NGX_HTTP_ONCE_DONE:
        return NGX_DECLINED;

    default:
        return NGX_DONE;
    }
}

/* Key, tenant, Upgrade. NGX_OK: read the body next; ctx->refusal may be set. */
static ngx_int_t
ngx_http_once_read_head(ngx_http_once_ctx_t *ctx)
{
    ngx_int_t  rc = ngx_http_once_read_key(ctx);

    if (rc == NGX_DECLINED && ctx->status == NGX_HTTP_ONCE_STATUS_INCOMPLETE) {
        ctx->status = NGX_HTTP_ONCE_STATUS_BYPASSED;
    }

    if (rc == NGX_OK && ctx->refusal == NULL) {
        rc = ngx_http_once_read_tenant(ctx);
    }

    if (rc == NGX_OK && ctx->refusal == NULL && ctx->request->headers_in.upgrade != NULL) {
        rc = ngx_http_once_read_upgrade(ctx);
    }

    return rc;
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
        return ngx_http_once_reenter(ctx);
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

    rc = ngx_http_once_read_head(ctx);

    if (rc == NGX_DONE) {
        return rc;  /* refused; the request may be freed */
    }

    if (rc != NGX_OK) {
        (void) ngx_http_once_set_state(ctx, NGX_HTTP_ONCE_DONE);
        return rc;
    }

    ngx_http_once_trace_begin(ctx);

    if (r->method == NGX_HTTP_PUT && r->content_handler == NULL && olcf->pass.len == 0 && olcf->mode != NGX_HTTP_ONCE_OBSERVE) {
        /* dav needs these flags, but is called after the body was read */
        r->request_body_in_file_only = 1;
        r->request_body_in_persistent_file = 1;
        r->request_body_in_clean_file = 1;
        r->request_body_file_group_access = 1;
        r->request_body_file_log_level = 0;
    }

    rc = ngx_http_read_client_request_body(r, ngx_http_once_body_read);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        (void) ngx_http_once_set_state(ctx, NGX_HTTP_ONCE_DONE);
        return rc;
    }

    ngx_http_finalize_request(r, NGX_DONE);
    return NGX_DONE;
}

