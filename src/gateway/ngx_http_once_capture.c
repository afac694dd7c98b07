/*
 * ngx_http_once_capture.c - output filters that withhold the answer until its outcome is stored.
 *
 * Model:      the filters run after the copy filter and before those that encode. While a claim is held they pass
 *             nothing on, and classify the answer (ctx->capture):
 *               OUTCOME   a complete answer: store it, then send it
 *               FAILURE   the request was sent, and the answer is nginx's own or incomplete: store unknown (with takeover
 *                         rerun: failed and retryable; with probe: leave the record running), then send a problem document
 *               NOT_SENT  nginx's own answer, and the request was not sent: release, then send it
 *             r->buffered makes nginx keep the request until the daemon has replied.
 * Invariants: K4 no byte is sent before the outcome is durable.
 * Not here:   what an upstream may do, and whether its answer is complete (ngx_http_once_upstream.c).
 */
#include "ngx_http_once.h"

ngx_http_output_header_filter_pt  ngx_http_once_next_header_filter;
ngx_http_output_body_filter_pt    ngx_http_once_next_body_filter;

/* Sets ctx->capture from the answer's header. NGX_DECLINED: the upstream's answer is not valid HTTP. */
static ngx_int_t
ngx_http_once_classify(ngx_http_once_ctx_t *ctx)
{
    ngx_uint_t            status;
    ngx_http_request_t   *r = ctx->request;
    ngx_http_upstream_t  *u = r->upstream;

    status = r->err_status ? r->err_status : r->headers_out.status;

    if (u != NULL && u->request_sent && u->cleanup != NULL) {  /* from the upstream, not an error page */

        if (!ngx_http_once_is_valid_answer(ctx)) {
            return NGX_DECLINED;
        }

        ctx->upstream = ngx_max(ctx->upstream, NGX_HTTP_ONCE_SENT);
        ngx_http_once_set_capture(ctx, NGX_HTTP_ONCE_OUTCOME);
        ctx->finalize_request = u->finalize_request;
        u->finalize_request = ngx_http_once_upstream_finished;

    } else if ((ctx->upstream == NGX_HTTP_ONCE_ACCEL_REDIRECTED || ngx_http_once_is_accel_redirect(r)) && status < 400) {
        ctx->upstream = NGX_HTTP_ONCE_ACCEL_REDIRECTED;  /* the `return` directive does not call our handler */
        ngx_http_once_set_capture(ctx, NGX_HTTP_ONCE_OUTCOME);

    } else if (ngx_http_once_was_sent(ctx)) {
        status = status == NGX_HTTP_GATEWAY_TIME_OUT ? status : NGX_HTTP_BAD_GATEWAY;
        ngx_http_once_set_capture(ctx, NGX_HTTP_ONCE_FAILURE);

    } else if (u != NULL || status >= 400) {
        status = status >= 400 ? status : NGX_HTTP_BAD_GATEWAY;  /* an error_page may have rewritten it to 2xx */
        ngx_http_once_set_capture(ctx, NGX_HTTP_ONCE_NOT_SENT);

    } else {  /* nginx's own content */
        ngx_http_once_set_capture(ctx, NGX_HTTP_ONCE_OUTCOME);
    }

    ctx->answer_status = status;

    return NGX_OK;
}

static ngx_int_t
ngx_http_once_header_filter(ngx_http_request_t *r)
{
    ngx_http_once_ctx_t  *ctx;

    if (r != r->main) {
        return ngx_http_once_next_header_filter(r);
    }

    ctx = ngx_http_once_get_ctx(r);

    if (ctx != NULL && ngx_http_once_check_state(ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ctx == NULL || ctx->state != NGX_HTTP_ONCE_HELD) {
        return ngx_http_once_next_header_filter(r);
    }

    if (ngx_http_once_classify(ctx) != NGX_OK) {
        return NGX_HTTP_BAD_GATEWAY;  /* ends the upstream; nginx calls the filter again with an error page */
    }

    if (ctx->capture == NGX_HTTP_ONCE_OUTCOME && ctx->upstream != NGX_HTTP_ONCE_ACCEL_REDIRECTED
        && !ngx_http_once_end_is_marked(r))
    {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "once: the upstream's answer has neither length nor chunks, so the module cannot tell whether it is complete "
                      "and does not keep it; most services send a length with HTTP/1.1 (proxy_http_version)");
        ctx->keep = NGX_HTTP_ONCE_UNCERTAIN_END;
    }

    r->buffered |= NGX_HTTP_ONCE_BUFFERED;
    r->filter_need_in_memory = 1;
    r->headers_out.location = NULL;  /* so that nginx makes it absolute neither here nor in a replay */
    r->allow_ranges = 0;  /* a replay sends the whole answer, and nginx does not apply ranges to bytes of files here */

    if (r->header_only) {
        ctx->end = NGX_HTTP_ONCE_COMPLETE;
        return ngx_http_once_store_outcome(ctx);
    }

    return NGX_OK;
}

/* Withholds the bytes of a buffer. NGX_DECLINED: there are too many. */
static ngx_int_t
ngx_http_once_consume_buf(ngx_http_once_ctx_t *ctx, ngx_buf_t *b)
{
    ngx_int_t  rc;

    if (ngx_buf_in_memory(b) && b->last > b->pos && ctx->capture != NGX_HTTP_ONCE_FAILURE) {
        rc = ngx_http_once_withhold(ctx, b->pos, b->last - b->pos);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    /* mark them as consumed, otherwise the upstream's buffers fill up */
    b->pos = b->last;
    b->file_pos = b->file_last;

    return NGX_OK;
}

static void
ngx_http_once_note_end(ngx_http_once_ctx_t *ctx, ngx_buf_t *b)
{
    if (b->last_buf && ctx->end == NGX_HTTP_ONCE_STREAMING) {
        ctx->end = NGX_HTTP_ONCE_COMPLETE;
    }
}

static ngx_int_t
ngx_http_once_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_int_t             rc;
    ngx_chain_t          *cl;
    ngx_http_once_ctx_t  *ctx;

    if (r != r->main) {
        return ngx_http_once_next_body_filter(r, in);
    }

    ctx = ngx_http_once_get_ctx(r);

    if (ctx != NULL && ngx_http_once_check_state(ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ctx == NULL || ctx->capture == NGX_HTTP_ONCE_NOTHING
        || (ctx->state != NGX_HTTP_ONCE_HELD && ctx->state != NGX_HTTP_ONCE_STORING))
    {
        return ngx_http_once_next_body_filter(r, in);
    }

    if (ctx->state == NGX_HTTP_ONCE_HELD && ctx->end == NGX_HTTP_ONCE_TRUNCATED) {
        /* an incomplete answer is not used */
        ngx_http_once_set_capture(ctx, NGX_HTTP_ONCE_FAILURE);

        for (cl = in; cl; cl = cl->next) {
            (void) ngx_http_once_consume_buf(ctx, cl->buf);
        }

        return ngx_http_once_store_outcome(ctx);
    }

    for (cl = in; cl; cl = cl->next) {

        rc = ctx->overflow == NULL ? ngx_http_once_consume_buf(ctx, cl->buf) : NGX_DECLINED;

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        ngx_http_once_note_end(ctx, cl->buf);

        if (rc == NGX_DECLINED) {

            /* the rest waits in the upstream's buffers, so the upstream is not read further */
            if (ngx_chain_add_copy(r->pool, &ctx->overflow, cl) != NGX_OK) {
                return NGX_ERROR;
            }

            for ( /* void */ ; cl; cl = cl->next) {
                ngx_http_once_note_end(ctx, cl->buf);
            }

            if (ctx->state == NGX_HTTP_ONCE_HELD) {
                ctx->keep = NGX_HTTP_ONCE_TOO_LARGE;
                return ngx_http_once_store_outcome(ctx);
            }

            return NGX_OK;
        }
    }

    if (ctx->end == NGX_HTTP_ONCE_COMPLETE && ctx->state == NGX_HTTP_ONCE_HELD) {
        return ngx_http_once_store_outcome(ctx);
    }

    return NGX_OK;
}

ngx_int_t
ngx_http_once_filter_init(ngx_conf_t *cf)
{
    ngx_http_once_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_once_header_filter;

    ngx_http_once_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_once_body_filter;

    return NGX_OK;
}
