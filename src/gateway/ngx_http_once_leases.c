/*
 * ngx_http_once_leases.c - the claims that a worker holds: it renews their leases while the upstream works.
 *
 * Invariants: every claim is ended: when its outcome is stored, when the request is abandoned, or when the worker
 *             exits (K7).
 */
#include "ngx_http_once.h"

#define NGX_HTTP_ONCE_RENEW_MS  10000

/* contexts of this worker's requests */
static ngx_queue_t  ngx_http_once_held = { &ngx_http_once_held, &ngx_http_once_held };

static void
ngx_http_once_renewed(void *data, ngx_http_once_reply_t *reply)
{
    ngx_http_once_ctx_t  *ctx = data;

    ctx->renewal = NULL;

    if (reply->result == ONCE_OK && reply->arm == ONCE_ARM_FENCED) {
        /* the finish will be answered FENCED as well, with the record */
        ngx_log_error(NGX_LOG_WARN, ctx->request->connection->log, 0,
                      "once: another attempt took over while this one was running");
        return;
    }

    if (reply->result != ONCE_OK) {
        ngx_log_error(NGX_LOG_WARN, ctx->request->connection->log, 0,
                      "once: cannot renew a lease: %s", reply->err.text);
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

    if (u != NULL && u->request_sent && ctx->upstream < NGX_HTTP_ONCE_SENT) {
        ctx->upstream = NGX_HTTP_ONCE_SENT;
    }

    return ctx->upstream >= NGX_HTTP_ONCE_SENT;
}

void
ngx_http_once_lease_end(ngx_http_once_ctx_t *ctx)
{
    if (ctx->queue.next != NULL) {
        ngx_queue_remove(&ctx->queue);
        ctx->queue.next = NULL;
    }

    if (ctx->timer.timer_set) {
        ngx_del_timer(&ctx->timer);
    }

    if (ctx->renewal != NULL) {
        ngx_http_once_call_detach(ctx->renewal);
        ctx->renewal = NULL;
    }
}

enum once_http_verdict
ngx_http_once_make_end_request(ngx_http_once_ctx_t *ctx, ngx_uint_t status, ngx_uint_t complete,
    struct once_request *request)
{
    ngx_uint_t              final = status < NGX_HTTP_ONCE_HTTP_STATUS_MAX && ctx->conf->final[status];
    enum once_http_verdict  verdict = once_http_verdict(complete ? status : 0, final, ctx->takeover);

    request->grant = ctx->grant;

    if (verdict == ONCE_HTTP_DEFERRED) {  /* after a delay, because the request may still be on its way */
        request->verb = ONCE_VERB_EXTEND;
        request->extend.lease_ms = ctx->conf->probe_after_ms;
        return verdict;
    }

    request->verb = ONCE_VERB_FINISH;
    request->outcome.status = status;
    once_http_outcome(verdict, &request->outcome);
    return verdict;
}

void
ngx_http_once_end_claim(ngx_http_once_ctx_t *ctx)
{
    struct once_request  request;

    ngx_http_once_lease_end(ctx);

    if (ctx->call != NULL) {  /* the intent is not needed any more */
        ngx_http_once_call_detach(ctx->call);
        ctx->call = NULL;
    }

    ngx_memzero(&request, sizeof(request));

    if (ngx_http_once_was_sent(ctx)) {
        (void) ngx_http_once_make_end_request(ctx, NGX_HTTP_BAD_GATEWAY, 0, &request);

    } else {
        request.verb = ONCE_VERB_RELEASE;
        request.grant = ctx->grant;
    }

    if (ngx_http_once_call(ctx->conf->daemon, &request, 0, NULL, NULL) == NULL) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, "once: no memory to end a claim; it ends with its lease");
    }
}

void
ngx_http_once_abandon(ngx_http_once_ctx_t *ctx)
{
    ngx_http_once_end_claim(ctx);
    (void) ngx_http_once_set_state(ctx, NGX_HTTP_ONCE_DONE);
}

/* After SIGTERM nginx exits without finishing requests, and runs no cleanups. */
void
ngx_http_once_end_all_leases(void)
{
    ngx_queue_t          *q;
    ngx_http_once_ctx_t  *ctx;

    while (!ngx_queue_empty(&ngx_http_once_held)) {
        q = ngx_queue_head(&ngx_http_once_held);
        ctx = ngx_queue_data(q, ngx_http_once_ctx_t, queue);

        if (ngx_http_once_check_state(ctx) == NGX_OK) {
            ngx_http_once_abandon(ctx);

        } else {
            ngx_http_once_lease_end(ctx);
        }
    }
}
