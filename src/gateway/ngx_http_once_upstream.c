/*
 * ngx_http_once_upstream.c - the upstream of a claimed request: one try, and whether its answer is one, and whole.
 *
 * Model:      every upstream's peers are chosen through us. For a request that is claimed, nginx gets a configuration of its own then: no
 *             other try, no end with the client, no error pages instead of answers. What its protocol lets nginx take for an answer is
 *             looked at once more.
 * Invariants: UPSTREAM-1 nginx sends a claimed request to one upstream server only, whatever is configured.
 * Not here:   what becomes of the answer (ngx_http_once_capture.c).
 */
#include "ngx_http_once.h"

/* ---------------------------------------------------------------- one try upstream */

/* nginx takes the first head for the answer.  100, 102 and 103 are none, what follows them is; 101 stays one, and a
 * bad one.  They are not passed on (K4).  As many may come as fit into proxy_buffer_size. */
static ngx_int_t
ngx_http_once_process_header(ngx_http_request_t *r)
{
    ngx_int_t             rc;
    ngx_http_upstream_t  *u = r->upstream;
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r);

    for ( ;; ) {
        rc = ctx->process_header(r);

        if (u->process_header != ngx_http_once_process_header) {  /* the status line was read: the fields */
            ctx->process_header = u->process_header;
            u->process_header = ngx_http_once_process_header;
        }

        if (rc != NGX_OK || u->headers_in.status_n < NGX_HTTP_CONTINUE || u->headers_in.status_n >= NGX_HTTP_OK
            || u->headers_in.status_n == NGX_HTTP_SWITCHING_PROTOCOLS)
        {
            return rc;
        }

        /* as before a first try, but what was read stays */
        ngx_memzero(&u->headers_in, sizeof(ngx_http_upstream_headers_in_t));
        u->headers_in.content_length_n = -1;
        u->headers_in.last_modified_time = -1;
        u->keepalive = 0;  /* a length of 0 in that head said that all was read */
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

/* Before the first try: this request's upstream is not tried twice, does not end with its
 * client, and its errors are not replaced. */
static ngx_int_t
ngx_http_once_guard_upstream(ngx_http_once_ctx_t *ctx)
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
    ctx->guarded = 1;

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

    if (ctx != NULL && ctx->state == NGX_HTTP_ONCE_HELD) {
        if (ngx_http_once_guard_upstream(ctx) != NGX_OK) {
            return NGX_ERROR;
        }

        r->upstream->peer.tries = 1;
    }

    return NGX_OK;
}

ngx_int_t
ngx_http_once_watch_upstreams(ngx_conf_t *cf)
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

/* An upstream that a variable names has peers of its own, or none until it is resolved: it is
 * guarded when the content handler is back. Until that returns, nginx holds the request. */
static ngx_int_t
ngx_http_once_content_handler(ngx_http_request_t *r)
{
    ngx_int_t             rc;
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r);

    rc = ctx->content_handler(r);

    if (rc != NGX_DONE || r->upstream == NULL || r->upstream->cleanup == NULL) {
        return rc;
    }

    ctx = ngx_http_once_get_ctx(r);

    if (ctx != NULL && ctx->state == NGX_HTTP_ONCE_HELD && ctx->capture == NGX_HTTP_ONCE_NOTHING
        && !ctx->guarded && ngx_http_once_guard_upstream(ctx) != NGX_OK)
    {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "once: no memory to guard an upstream");
    }

    return rc;
}

void
ngx_http_once_guard(ngx_http_once_ctx_t *ctx)
{
    ngx_http_request_t  *r = ctx->request;

    ctx->guarded = 0;  /* after an error_page the upstream is another */

    if (r->content_handler != NULL && r->content_handler != ngx_http_once_content_handler) {
        ctx->content_handler = r->content_handler;
        r->content_handler = ngx_http_once_content_handler;
    }
}

/* ---------------------------------------------------------------- its answer */

/* Is the end of the upstream's answer marked, so that a broken one can be told from a whole one? */
ngx_uint_t
ngx_http_once_end_is_certain(ngx_http_request_t *r)
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

/* Is it one answer, with a status that ends the exchange? nginx takes 1xx for one, and anything
 * without a status line for HTTP/0.9. */
ngx_uint_t
ngx_http_once_is_answer(ngx_http_once_ctx_t *ctx)
{
    ngx_uint_t            i, lengths = 0;
    ngx_list_part_t      *part;
    ngx_table_elt_t      *h;
    ngx_http_request_t   *r = ctx->request;
    ngx_http_upstream_t  *u = r->upstream;

    r->http_version = ctx->http_version;

    if (u->headers_in.status_n < 200 || u->headers_in.status_n != r->headers_out.status) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "once: the upstream's answer has status %ui",
                      u->headers_in.status_n);
        return 0;
    }

    part = &u->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */; i++) {
        if (i >= part->nelts) {
            if (part->next == NULL) {
                break;
            }
            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (h[i].key.len == 14 && ngx_strncasecmp(h[i].key.data, (u_char *) "Content-Length", 14) == 0) {
            lengths++;
        }
    }

    if (lengths > 1) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "once: the upstream's answer has %ui lengths", lengths);
        return 0;
    }

    return 1;
}

/*
 * Did an answer come whole that nginx takes for one? Of HTTP it is sure. A FastCGI server that closes the connection before it
 * said the end is to nginx as good as one that did, unless the connection was to be kept; and so is one that sends less than it announced.
 */
static ngx_uint_t
ngx_http_once_is_whole(ngx_http_once_ctx_t *ctx)
{
    size_t                     have = ctx->withheld.file != NULL ? ctx->withheld.len : ctx->withheld.memory.len;
    ngx_http_request_t        *r = ctx->request;
    ngx_http_upstream_t       *u = r->upstream;

    if (ctx->capture != NGX_HTTP_ONCE_OUTCOME || ctx->dropped || r->header_only || u->schema.len < 4
        || u->headers_in.status_n == NGX_HTTP_NO_CONTENT || u->headers_in.status_n == NGX_HTTP_NOT_MODIFIED
        || ngx_strncmp(u->schema.data, "http", 4) == 0)
    {
        return 1;
    }

    /* a filter before ours that changes the length takes it out of the answer's header */
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
 * The upstream is done, well (0) or not. An answer that nginx cannot read any further
 * (NGX_ERROR: bad chunks) would end the client's connection without a word; blocked, the
 * request stays until the failure is stored and told.
 */
void
ngx_http_once_upstream_ended(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r);

    if (ctx == NULL) {
        return;
    }

    if (rc == NGX_OK && ctx->state == NGX_HTTP_ONCE_HELD && !ngx_http_once_is_whole(ctx)) {
        ctx->failed = 1;
        ctx->status = NGX_HTTP_BAD_GATEWAY;
    }

    if (rc != NGX_OK) {
        ctx->failed = 1;
    }

    if (rc != NGX_OK && ctx->state == NGX_HTTP_ONCE_HELD) {
        ctx->status = rc == NGX_HTTP_GATEWAY_TIME_OUT ? rc : NGX_HTTP_BAD_GATEWAY;
    }

    if (rc == NGX_ERROR && ctx->state == NGX_HTTP_ONCE_HELD && !r->connection->error) {
        ctx->capture = NGX_HTTP_ONCE_FAILURE;
        ctx->ended = 1;

        if (ngx_http_once_store_outcome(ctx) == NGX_OK) {
            r->main->blocked++;
            ctx->blocked = 1;
        }
    }

    if (ctx->finalize_request != NULL) {
        ctx->finalize_request(r, rc);
    }
}

/* Did the upstream say that it is done, and that nginx is to answer with content of its own
 * (X-Accel-Redirect)? Not where that would be another upstream: a claimed request goes to one. */
ngx_uint_t
ngx_http_once_is_handed(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u = r->upstream;

    return u != NULL && u->cleanup == NULL && u->headers_in.x_accel_redirect != NULL
           && u->headers_in.status_n >= 200 && u->headers_in.status_n < 400
           && r->content_handler == NULL && !r->error_page && !r->err_status;
}
