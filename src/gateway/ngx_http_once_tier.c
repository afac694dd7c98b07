/*
 * ngx_http_once_tier.c - what a route may ask of a daemon whose store promises less than the others.
 *
 * The daemon's welcome says so, not nginx's configuration: `nginx -t` cannot know. Every answer to a keyed
 * request says "Once-Tier: best-effort" then; and a route whose answers are to be kept for ever is refused,
 * since nothing there is: nothing is executed.
 */
#include "ngx_http_once.h"

ngx_int_t
ngx_http_once_add_tier(ngx_http_once_ctx_t *ctx)
{
    if (!ngx_http_once_daemon_best_effort(ctx->conf->daemon)) {
        return NGX_OK;
    }

    return ngx_http_once_add_header(ctx->request, "Once-Tier", (u_char *) "best-effort", 11);
}

ngx_uint_t
ngx_http_once_refuse_tier(ngx_http_once_ctx_t *ctx)
{
    static ngx_http_once_problem_t  problem = {
        NGX_HTTP_INTERNAL_SERVER_ERROR, "tier-refused", "The store keeps nothing for ever",
        "it was not executed: this route keeps its answers for ever, and the store behind it is best-effort. "
        "Whoever runs it must give it another store, or a retention", 0, 0
    };

    if (ctx->observed || ctx->conf->retention_ms != ONCE_NEVER
        || !ngx_http_once_daemon_best_effort(ctx->conf->daemon))
    {
        return 0;
    }

    ngx_log_error(NGX_LOG_ERR, ctx->request->connection->log, 0,
                  "once: \"once_retention never\" is refused: the daemon's store is best-effort");
    ctx->refusal = &problem;

    return 1;
}
