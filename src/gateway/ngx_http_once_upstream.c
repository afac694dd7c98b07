/*
 * ngx_http_once_upstream.c - the upstream of a claimed request: it is tried once, and its answer is checked.
 *
 * Model:      the module replaces the function that chooses an upstream's peers. For a claimed request it
 *             changes a copy of the upstream's configuration: one try, no abort with the client, no error pages instead of
 *             answers. Then it checks answers that nginx accepts too easily.
 * Invariants: UPSTREAM-1 nginx sends a claimed request to one upstream server only, whatever is configured (FACT-1).
 * Not here:   what becomes of the answer (ngx_http_once_capture.c).
 */
#include "ngx_http_once.h"

/* ---------------------------------------------------------------- one try upstream */

/* Skips 100, 102 and 103, which nginx takes for the final answer. They are not passed on (K4). Their number is bounded by
 * proxy_buffer_size. 101 counts as an answer, and is refused later. */
static ngx_int_t
ngx_http_once_process_header(ngx_http_request_t *r)
{
    ngx_int_t             rc;
    ngx_http_upstream_t  *u = r->upstream;
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r);

    for ( ;; ) {
        rc = ctx->process_header(r);

        if (u->process_header != ngx_http_once_process_header) {  /* after the status line */
            ctx->process_header = u->process_header;
            u->process_header = ngx_http_once_process_header;
        }

        if (rc != NGX_OK || u->headers_in.status_n < NGX_HTTP_CONTINUE || u->headers_in.status_n >= NGX_HTTP_OK
            || u->headers_in.status_n == NGX_HTTP_SWITCHING_PROTOCOLS)
        {
            return rc;
        }

        /* resets the parser as for a first try, but keeps the bytes already read */
        ngx_memzero(&u->headers_in, sizeof(ngx_http_upstream_headers_in_t));
        u->headers_in.content_length_n = -1;
        u->headers_in.last_modified_time = -1;
        u->keepalive = 0;  /* an interim answer has length 0, after which nginx would take the connection for idle */
        u->upgrade = 0;
        u->state->status = 0;

        if (ngx_list_init(&u->headers_in.headers, r->pool, 8, sizeof(ngx_table_elt_t)) != NGX_OK
            || ngx_list_init(&u->headers_in.trailers, r->pool, 2, sizeof(ngx_table_elt_t)) != NGX_OK
            || u->reinit_request(r) != NGX_OK)
        {
            return NGX_ERROR;
        }

        ctx->process_header = u->process_header;
        u->process_header = ngx_http_once_process_header;
    }
}

/* Before the first try: no second try, no abort if the client closes, no error pages instead of the upstream's
 * errors. */
static ngx_int_t
ngx_http_once_limit_upstream(ngx_http_once_ctx_t *ctx)
{
    ngx_http_request_t        *r = ctx->request;
    ngx_http_upstream_t       *u = r->upstream;
    ngx_http_upstream_conf_t  *conf;

    if (u == NULL || u->conf == NULL) {
        return NGX_OK;
    }

    conf = ngx_palloc(r->pool, sizeof(ngx_http_upstream_conf_t));
    if (conf == NULL) {
        return NGX_ERROR;
    }

    *conf = *u->conf;
    conf->next_upstream = NGX_HTTP_UPSTREAM_FT_OFF;
    conf->next_upstream_tries = 1;
    conf->ignore_client_abort = 1;
    conf->intercept_errors = 0;
    u->conf = conf;

    if (ctx->upstream == NGX_HTTP_ONCE_UNLIMITED) {
        ctx->upstream = NGX_HTTP_ONCE_ONE_TRY;
    }

    if (u->schema.len >= 4 && ngx_strncmp(u->schema.data, "http", 4) == 0) {
        ctx->process_header = u->process_header;
        u->process_header = ngx_http_once_process_header;
    }

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    return NGX_OK;
}

static ngx_int_t
ngx_http_once_init_peer(ngx_http_request_t *r, ngx_http_upstream_srv_conf_t *us)
{
    ngx_uint_t                  i;
    ngx_http_once_ctx_t        *ctx;
    ngx_http_once_upstream_t   *known;
    ngx_http_once_main_conf_t  *omcf;

    omcf = ngx_http_get_module_main_conf(r, ngx_http_once_module);
    known = omcf->upstreams.elts;

    for (i = 0; i < omcf->upstreams.nelts && known[i].uscf != us; i++) { /* void */ }

    if (i == omcf->upstreams.nelts || known[i].init(r, us) != NGX_OK) {
        return NGX_ERROR;
    }

    if (r != r->main) {
        return NGX_OK;
    }

    ctx = ngx_http_once_get_ctx(r);

    if (ctx != NULL && ngx_http_once_check_state(ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ctx != NULL && ctx->state == NGX_HTTP_ONCE_HELD) {
        if (ngx_http_once_limit_upstream(ctx) != NGX_OK) {
            return NGX_ERROR;
        }

        r->upstream->peer.tries = 1;
    }

    return NGX_OK;
}

ngx_int_t
ngx_http_once_hook_upstreams(ngx_conf_t *cf)
{
    ngx_uint_t                       i;
    ngx_http_once_upstream_t        *known;
    ngx_http_once_main_conf_t       *omcf;
    ngx_http_upstream_srv_conf_t   **uscfp;
    ngx_http_upstream_main_conf_t   *umcf;

    omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);
    umcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_upstream_module);
    uscfp = umcf->upstreams.elts;

    for (i = 0; i < umcf->upstreams.nelts; i++) {
        if (uscfp[i]->peer.init == NULL) {
            continue;
        }

        known = ngx_array_push(&omcf->upstreams);
        if (known == NULL) {
            return NGX_ERROR;
        }

        known->uscf = uscfp[i];
        known->init = uscfp[i]->peer.init;
        uscfp[i]->peer.init = ngx_http_once_init_peer;
    }

    return NGX_OK;
}

/* An upstream named by a variable has no peers, or other ones, before it is resolved: it is limited after the content
 * handler returned; the request stays valid meanwhile. */
static ngx_int_t
ngx_http_once_content_handler(ngx_http_request_t *r)
{
    ngx_int_t             rc;
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r);

    if (ngx_http_once_check_state(ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ctx->content_handler(r);

    if (rc != NGX_DONE || r->upstream == NULL || r->upstream->cleanup == NULL) {
        return rc;
    }

    ctx = ngx_http_once_get_ctx(r);

    if (ctx != NULL && ctx->state == NGX_HTTP_ONCE_HELD && ctx->capture == NGX_HTTP_ONCE_NOTHING
        && ctx->upstream == NGX_HTTP_ONCE_UNLIMITED && ngx_http_once_limit_upstream(ctx) != NGX_OK)
    {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "once: no memory to limit an upstream to one try");
    }

    return rc;
}

void
ngx_http_once_limit_to_one_try(ngx_http_once_ctx_t *ctx)
{
    ngx_http_request_t  *r = ctx->request;

    ctx->upstream = NGX_HTTP_ONCE_UNLIMITED;  /* after an error_page it is another upstream */

    if (r->content_handler != NULL && r->content_handler != ngx_http_once_content_handler) {
        ctx->content_handler = r->content_handler;
        r->content_handler = ngx_http_once_content_handler;
    }
}

/* ---------------------------------------------------------------- its answer */

/* Does the upstream's answer have a marked end, so that a truncated one can be recognised? */
ngx_uint_t
ngx_http_once_end_is_marked(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u = r->upstream;

    if (u == NULL || u->headers_in.content_length_n >= 0 || u->headers_in.chunked
        || u->headers_in.status_n == NGX_HTTP_NO_CONTENT || u->headers_in.status_n == NGX_HTTP_NOT_MODIFIED)
    {
        return 1;
    }

    return u->schema.len >= 4 && (ngx_strncmp(u->schema.data, "fast", 4) == 0
                                  || ngx_strncmp(u->schema.data, "grpc", 4) == 0);
}

/* Checks that the status is final (nginx accepts 1xx, and takes an answer without a status line for HTTP/0.9), and that there is
 * one length. */
ngx_uint_t
ngx_http_once_is_valid_answer(ngx_http_once_ctx_t *ctx)
{
    ngx_uint_t            lengths;
    ngx_table_elt_t      *first;
    ngx_http_request_t   *r = ctx->request;
    ngx_http_upstream_t  *u = r->upstream;

    r->http_version = ctx->http_version;

    if (u->headers_in.status_n < 200 || u->headers_in.status_n != r->headers_out.status) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "once: the upstream's answer has the invalid status %ui",
                      u->headers_in.status_n);
        return 0;
    }

    lengths = ngx_http_once_find_header(&u->headers_in.headers, "Content-Length", &first);

    if (lengths > 1) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "once: the upstream's answer has %ui Content-Length fields", lengths);
        return 0;
    }

    return 1;
}

/*
 * nginx checks that HTTP answers are complete. It does not for FastCGI, unless the connection is kept alive: the
 * server may close the connection before the end record, or send fewer bytes than it announced.
 */
static ngx_uint_t
ngx_http_once_is_complete(ngx_http_once_ctx_t *ctx)
{
    size_t                     have = ctx->withheld.file != NULL ? ctx->withheld.len : ctx->withheld.memory.len;
    ngx_http_request_t        *r = ctx->request;
    ngx_http_upstream_t       *u = r->upstream;

    if (ctx->capture != NGX_HTTP_ONCE_OUTCOME || ctx->keep != NGX_HTTP_ONCE_KEEP || r->header_only || u->schema.len < 4
        || u->headers_in.status_n == NGX_HTTP_NO_CONTENT || u->headers_in.status_n == NGX_HTTP_NOT_MODIFIED
        || ngx_strncmp(u->schema.data, "http", 4) == 0)
    {
        return 1;
    }

    /* a filter that changes the length removes it from the header */
    if (u->headers_in.content_length_n >= 0 && r->headers_out.content_length_n == u->headers_in.content_length_n
        && (off_t) have != u->headers_in.content_length_n)
    {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "once: the upstream's answer has %uz of %O bytes", have,
                      u->headers_in.content_length_n);
        return 0;
    }

    if (ngx_strncmp(u->schema.data, "fast", 4) == 0 && !(u->buffering ? u->pipe->upstream_done : u->length == 0)) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "once: the upstream closed the connection before the end of its answer");
        return 0;
    }

    return 1;
}

/*
 * The upstream has finished, with NGX_OK or an error. On NGX_ERROR (invalid chunks, for example) nginx would close the
 * client's connection without an answer: r->blocked keeps the request until the failure is stored and answered.
 */
void
ngx_http_once_upstream_finished(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r);

    if (ctx == NULL) {
        return;
    }

    if (rc != NGX_OK || (ctx->state == NGX_HTTP_ONCE_HELD && !ngx_http_once_is_complete(ctx))) {
        ctx->end = NGX_HTTP_ONCE_TRUNCATED;
    }

    if (ctx->end == NGX_HTTP_ONCE_TRUNCATED && ctx->state == NGX_HTTP_ONCE_HELD) {
        ctx->answer_status = rc == NGX_HTTP_GATEWAY_TIME_OUT ? rc : NGX_HTTP_BAD_GATEWAY;
    }

    if (rc == NGX_ERROR && ngx_http_once_check_state(ctx) == NGX_OK && ctx->state == NGX_HTTP_ONCE_HELD
        && !r->connection->error)
    {
        ngx_http_once_set_capture(ctx, NGX_HTTP_ONCE_FAILURE);

        if (ngx_http_once_store_outcome(ctx) == NGX_OK) {
            r->main->blocked++;
            ctx->blocked = 1;
        }
    }

    if (ctx->finalize_request != NULL) {
        ctx->finalize_request(r, rc);
    }
}

/* Not if the redirect leads to another upstream: a claimed request is sent to one only. */
ngx_uint_t
ngx_http_once_is_accel_redirect(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u = r->upstream;

    return u != NULL && u->cleanup == NULL && u->headers_in.x_accel_redirect != NULL
           && u->headers_in.status_n >= 200 && u->headers_in.status_n < 400
           && r->content_handler == NULL && !r->error_page && !r->err_status;
}
