/*
 * ngx_http_once_retention.c - durations, and answers about expired records.
 *
 * If once_body_retention is shorter than once_retention, the record outlives its answer: a retry gets 410 and is not
 * executed again. After the retention a key is unknown, and may be executed again; but a UUIDv7 has a timestamp,
 * and one that is older than the retention is refused (once_key_time), because it may have been executed and
 * forgotten. The store decides that, by its own clock.
 *
 * A best-effort store may lose acknowledged records, so `once_retention never` is refused there. The daemon's
 * WELCOME says which store it has: `nginx -t` cannot check it.
 */
#include "ngx_http_once.h"

#include "core/duration.h"
#include "core/key.h"
#include "core/span.h"

#define NGX_HTTP_ONCE_IS(cmd, field)  ((cmd)->offset == offsetof(ngx_http_once_loc_conf_t, field))

char *
ngx_http_once_set_duration(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    int64_t            *ms = (int64_t *) ((char *) conf + cmd->offset);
    ngx_str_t          *value = cf->args->elts;
    struct once_error   err;
    ngx_uint_t          lease = NGX_HTTP_ONCE_IS(cmd, lease_ms);
    ngx_uint_t          body = NGX_HTTP_ONCE_IS(cmd, body_retention_ms);
    ngx_uint_t          retention = NGX_HTTP_ONCE_IS(cmd, retention_ms);

    if (*ms != NGX_HTTP_ONCE_UNSET) {
        return "is duplicate";
    }

    if (body && value[1].len == 3 && ngx_strncmp(value[1].data, "off", 3) == 0) {
        *ms = 0;
        return NGX_CONF_OK;
    }

    if (once_duration_parse(once_span_of(value[1].data, value[1].len), retention || body, ms, &err) != ONCE_OK) {
        return ngx_http_once_invalid(cf, &value[1], err.text);
    }

    if (lease && (*ms < 100 || *ms > ONCE_LEASE_MS_MAX)) {
        return ngx_http_once_invalid(cf, &value[1], "a lease must be 100ms to 24h");
    }

    if (retention && *ms != ONCE_NEVER && (*ms < 1 || *ms > ONCE_RETENTION_MS_MAX)) {
        return ngx_http_once_invalid(cf, &value[1], "a retention must be 1ms to 100 years, or never");
    }

    if (body && *ms != ONCE_NEVER && (*ms < 1 || *ms > ONCE_RETENTION_MS_MAX)) {
        return ngx_http_once_invalid(cf, &value[1], "a body retention must be 1ms to 100 years, never, or off (same as the record)");
    }

    if (!lease && !retention && !body && (*ms < 0 || *ms > ONCE_WAIT_MS_MAX)) {
        return ngx_http_once_invalid(cf, &value[1], "a wait must be 0s to 24h");
    }

    return NGX_CONF_OK;
}

const char *
ngx_http_once_retention_fault(ngx_http_once_loc_conf_t *olcf)
{
    int64_t  body = olcf->body_retention_ms, record = olcf->retention_ms;

    if (record != ONCE_NEVER && (body == ONCE_NEVER || body > record)) {
        return "\"once_body_retention\" is longer than \"once_retention\": an answer cannot outlive its record";
    }

    return NULL;
}

void
ngx_http_once_set_claim_durations(ngx_http_once_ctx_t *ctx, struct once_claim *claim)
{
    claim->lease_ms = ctx->conf->lease_ms;
    claim->retention_ms = ctx->conf->retention_ms;
    claim->body_retention_ms = ctx->conf->body_retention_ms;
    claim->wait_ms = ctx->conf->wait_ms;
    claim->key_time = ctx->conf->key_time && !ctx->natural_key;  /* a natural key may be older than the operation */
}

static once_time
ngx_http_once_now(void)
{
    ngx_time_t  *tp = ngx_timeofday();

    return (once_time) tp->sec * 1000 + tp->msec;
}

ngx_uint_t
ngx_http_once_is_outside_window(ngx_http_once_ctx_t *ctx)
{
    return ctx->conf->key_time && !ctx->natural_key
           && once_key_is_outside(once_span_of(ctx->key.data, ctx->key.len), ctx->conf->retention_ms,
                                  ngx_http_once_now());
}

ngx_int_t
ngx_http_once_send_not_kept(ngx_http_request_t *r, const struct once_record *record)
{
    return ngx_http_once_send_problem(r, &(ngx_http_once_problem_t){
        410, "answer-not-kept", record->body_expired ? "This was executed, and its answer is no longer kept"
                                                     : "This was executed, and its answer was not kept",
        record->body_expired ? "it was executed once and is not executed again; its answer was kept for a shorter "
                               "time than its record"
                             : "it was executed once and is not executed again; its answer was too large to keep, was "
                               "erased or shredded, or possibly incomplete", 0, 0 });
}

ngx_int_t
ngx_http_once_send_expired(ngx_http_once_ctx_t *ctx)
{
    once_time  born = once_key_time(once_span_of(ctx->key.data, ctx->key.len));

    if (born > ngx_http_once_now()) {
        return ngx_http_once_send_problem(ctx->request, &(ngx_http_once_problem_t){
            NGX_HTTP_BAD_REQUEST, "key-from-future", "Idempotency-Key is from the future",
            "the key is a UUIDv7 with a time in the future: correct the clock that makes keys. It was not executed", 0, 0 });
    }

    /* so that a client does not take it for a failure and retry with a new key */
    if (ngx_http_once_add_header(ctx->request, "Idempotency-Outcome", (u_char *) "unknown", 7) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_once_send_problem(ctx->request, &(ngx_http_once_problem_t){
        410, "key-expired", "Idempotency-Key has expired",
        "the key is a UUIDv7 that is older than the retention of keys: it may have been executed before. It was "
        "not executed now. Find out before you use a new key", 0, 0 });
}

ngx_uint_t
ngx_http_once_refuse_tier(ngx_http_once_ctx_t *ctx)
{
    static ngx_http_once_problem_t  problem = {
        NGX_HTTP_INTERNAL_SERVER_ERROR, "tier-refused", "The store cannot keep answers for ever",
        "it was not executed: this route keeps its answers for ever, and the store behind it is best-effort. "
        "Its operator must configure another store, or a retention", 0, 0
    };

    if (ngx_http_once_is_observing(ctx) || ctx->conf->retention_ms != ONCE_NEVER
        || !ngx_http_once_daemon_best_effort(ctx->conf->daemon))
    {
        return 0;
    }

    ngx_log_error(NGX_LOG_ERR, ctx->request->connection->log, 0,
                  "once: \"once_retention never\" is refused: the daemon's store is best-effort");
    ctx->refusal = &problem;

    return 1;
}
