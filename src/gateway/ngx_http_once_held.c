/*
 * ngx_http_once_held.c - the claims that a worker holds: their leases are renewed while the upstream works.
 *
 * Invariants: what is held is ended: by who settles it, by whoever gives it up, or when the worker exits. Never by forgetting it (K7).
 */
#include "ngx_http_once.h"

#define NGX_HTTP_ONCE_RENEW_MS  10000

static ngx_queue_t  ngx_http_once_held;  /* ctxs of this worker */

static void
ngx_http_once_renewed(void *data, ngx_http_once_reply_t *reply)
{
    ngx_http_once_ctx_t  *ctx = data;

    ctx->renewal = NULL;

    if (reply->result == ONCE_OK && reply->arm == ONCE_ARM_FENCED) {
        /* the finish will be told the same, and by whom */
        ngx_log_error(NGX_LOG_WARN, ctx->request->connection->log, 0,
                      "once: another attempt took over while this one works");
        return;
    }

    if (reply->result != ONCE_OK) {
        ngx_log_error(NGX_LOG_WARN, ctx->request->connection->log, 0,
                      "once: a lease could not be renewed: %s", reply->err.text);
    }
}

static void
ngx_http_once_renew(ngx_event_t *ev)
{
    struct once_request   request;
    ngx_http_once_ctx_t  *ctx = ev->data;

    if (ctx->renewal == NULL) {
        ngx_memzero(&request, sizeof(request));
        request.verb = ONCE_VERB_EXTEND;
        request.grant = ctx->grant;
        request.extend.lease_ms = ctx->conf->lease_ms;
        ctx->renewal = ngx_http_once_call(ctx->conf->daemon, &request, NGX_HTTP_ONCE_RENEW_MS,
                                          ngx_http_once_renewed, ctx);
    }

    ngx_add_timer(&ctx->timer, ngx_max(ctx->conf->lease_ms / 3, 1));
}

void
ngx_http_once_lease_begin(ngx_http_once_ctx_t *ctx)
{
    if (ngx_http_once_held.next == NULL) {
        ngx_queue_init(&ngx_http_once_held);
    }

    ctx->state = NGX_HTTP_ONCE_HELD;
    ctx->queued = 1;
    ngx_queue_insert_tail(&ngx_http_once_held, &ctx->queue);

    ctx->timer.handler = ngx_http_once_renew;
    ctx->timer.data = ctx;
    ctx->timer.log = ngx_cycle->log;
    ngx_add_timer(&ctx->timer, ngx_max(ctx->conf->lease_ms / 3, 1));
}

ngx_uint_t
ngx_http_once_was_sent(ngx_http_once_ctx_t *ctx)
{
    ngx_http_upstream_t  *u = ctx->request->upstream;

    if (u != NULL && u->request_sent) {
        ctx->sent = 1;
    }

    return ctx->sent;
}

void
ngx_http_once_lease_end(ngx_http_once_ctx_t *ctx)
{
    if (ctx->queued) {
        ctx->queued = 0;
        ngx_queue_remove(&ctx->queue);
    }

    if (ctx->timer.timer_set) {
        ngx_del_timer(&ctx->timer);
    }

    if (ctx->renewal != NULL) {
        ngx_http_once_call_disown(ctx->renewal);
        ctx->renewal = NULL;
    }
}

void
ngx_http_once_abandon(ngx_http_once_ctx_t *ctx)
{
    struct once_request  request;

    ngx_http_once_lease_end(ctx);
    ctx->state = NGX_HTTP_ONCE_DONE;

    ngx_memzero(&request, sizeof(request));
    request.grant = ctx->grant;

    if (!ngx_http_once_was_sent(ctx)) {
        request.verb = ONCE_VERB_RELEASE;

    } else if (ctx->takeover == ONCE_TAKEOVER_COMPLETER) {
        ngx_http_once_defer(ctx, &request);

    } else {
        request.verb = ONCE_VERB_FINISH;
        request.outcome.status = NGX_HTTP_BAD_GATEWAY;
        request.outcome.retryable = ctx->conf->takeover == ONCE_TAKEOVER_RERUN;
        request.outcome.state = request.outcome.retryable ? ONCE_STATE_FAILED : ONCE_STATE_UNKNOWN;
    }

    if (ngx_http_once_call(ctx->conf->daemon, &request, 0, NULL, NULL) == NULL) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, "once: no memory to end a claim; its lease ends it");
    }
}

/* exiting without finishing requests (SIGTERM): no pool is destroyed then */
void
ngx_http_once_end_all_leases(void)
{
    ngx_queue_t          *q;
    ngx_http_once_ctx_t  *ctx;

    if (ngx_http_once_held.next == NULL) {
        return;
    }

    while (!ngx_queue_empty(&ngx_http_once_held)) {
        q = ngx_queue_head(&ngx_http_once_held);
        ctx = ngx_queue_data(q, ngx_http_once_ctx_t, queue);

        if (ctx->state == NGX_HTTP_ONCE_HELD || ctx->state == NGX_HTTP_ONCE_RECORDING_INTENT) {
            ngx_http_once_abandon(ctx);

        } else {
            ngx_http_once_lease_end(ctx);
        }
    }
}
