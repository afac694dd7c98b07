/*
 * ngx_http_once_module.c - registration, variables.
 */
#include "ngx_http_once.h"

#include "core/record.h"
#include "core/span.h"

static ngx_int_t ngx_http_once_add_variables(ngx_conf_t *cf);
static ngx_int_t ngx_http_once_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_once_init_process(ngx_cycle_t *cycle);
static void ngx_http_once_exit_process(ngx_cycle_t *cycle);

static ngx_http_module_t  ngx_http_once_module_ctx = {
    ngx_http_once_add_variables,     /* preconfiguration */
    ngx_http_once_init,              /* postconfiguration */
    ngx_http_once_create_main_conf,  /* create main configuration */
    NULL,                            /* init main configuration */
    NULL,                            /* create server configuration */
    NULL,                            /* merge server configuration */
    ngx_http_once_create_loc_conf,   /* create location configuration */
    ngx_http_once_merge_loc_conf     /* merge location configuration */
};

ngx_module_t  ngx_http_once_module = {
    NGX_MODULE_V1,
    &ngx_http_once_module_ctx,       /* module context */
    ngx_http_once_commands,          /* module directives */
    NGX_HTTP_MODULE,                 /* module type */
    NULL,                            /* init master */
    NULL,                            /* init module */
    ngx_http_once_init_process,      /* init process */
    NULL,                            /* init thread */
    NULL,                            /* exit thread */
    ngx_http_once_exit_process,      /* exit process */
    NULL,                            /* exit master */
    NGX_MODULE_V1_PADDING
};

/* ---------------------------------------------------------------- variables */

ngx_int_t
ngx_http_once_key_hash(ngx_http_once_ctx_t *ctx, uint8_t hash[16])
{
    const struct once_mac  *secret;

    if (ctx->grant.fence > 0 || ctx->named) {
        ngx_memcpy(hash, ctx->grant.record, 16);
        return NGX_OK;
    }

    secret = ngx_http_once_daemon_secret(ctx->conf->daemon);

    if (ctx->key.len == 0 || ctx->key.len > ONCE_KEY_LEN_MAX || secret == NULL) {
        return NGX_DECLINED;
    }

    once_record_id(secret, once_span_of(ctx->tenant.data, ctx->tenant.len),
                   once_span_of(ctx->key.data, ctx->key.len), hash);
    return NGX_OK;
}

/* What became of a request, in a word. */
static const char *
ngx_http_once_status(ngx_http_once_ctx_t *ctx)
{
    switch (ctx->reply.result) {

    case ONCE_OK:
        break;

    case ONCE_INVALID:
    case ONCE_LIMIT:
        return ctx->key.len == 0 && ctx->conf->mode != NGX_HTTP_ONCE_REQUIRED && ctx->refusal == NULL
               ? "bypassed" : "refused";

    default:
        return ctx->conf->store_down == NGX_HTTP_ONCE_PASS && ctx->reply.result != ONCE_CORRUPT
               ? "bypassed" : "unavailable";
    }

    if (ctx->turned_away) {
        return ctx->observed ? "observed" : "refused";
    }

    if (ctx->observed) {
        return "observed";
    }

    switch (ctx->reply.arm) {

    case ONCE_ARM_REPLAY:
        return "replayed";

    case ONCE_ARM_MISMATCH:
        return "mismatch";

    case ONCE_ARM_IN_PROGRESS:
        return "in-progress";

    case ONCE_ARM_UNKNOWN:
        return "unknown";

    case ONCE_ARM_EXPIRED:
        return "expired";

    case ONCE_ARM_EXECUTE:
        break;

    case ONCE_ARM_NONE:  /* it was over before it was claimed: no key; or its body did not come whole, its client left */
        return ctx->key.len == 0 && ctx->conf->key_natural == NULL && ctx->state == NGX_HTTP_ONCE_DONE
               ? "bypassed" : "incomplete";

    default:
        return "unavailable";
    }

    if (ctx->fenced) {
        return "fenced";
    }

    switch (ctx->capture) {

    case NGX_HTTP_ONCE_OUTCOME:
        if (ctx->stranger) {
            return "not-admitted";
        }

        return ctx->unknown ? "unknown" : "executed";

    case NGX_HTTP_ONCE_NOT_SENT:
        return "not-sent";

    case NGX_HTTP_ONCE_FAILURE:
        return ctx->left ? "in-progress" : ctx->conf->takeover == ONCE_TAKEOVER_RERUN ? "failed" : "unknown";

    default:
        return "executing";
    }
}

/* Since the operation was first asked for, by this machine's clock. */
static ngx_int_t
ngx_http_once_age_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    int64_t               age;
    ngx_time_t           *now = ngx_timeofday();
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r->main);

    v->not_found = 1;

    if (ctx == NULL || ctx->reply.result != ONCE_OK || ctx->reply.record.created_at == 0) {
        return NGX_OK;
    }

    v->data = ngx_pnalloc(r->pool, NGX_INT64_LEN + 4);
    if (v->data == NULL) {
        return NGX_ERROR;
    }

    age = ngx_max((int64_t) now->sec * 1000 + (int64_t) now->msec - ctx->reply.record.created_at, 0);
    v->len = ngx_sprintf(v->data, "%L.%03L", age / 1000, age % 1000) - v->data;
    v->valid = 1;
    v->no_cacheable = 1;
    v->not_found = 0;

    return NGX_OK;
}

static ngx_int_t
ngx_http_once_status_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r->main);

    v->not_found = 1;

    if (ctx != NULL) {
        v->data = (u_char *) ngx_http_once_status(ctx);
        v->len = ngx_strlen(v->data);
        v->valid = 1;
        v->no_cacheable = 1;
        v->not_found = 0;
    }

    return NGX_OK;
}

static ngx_int_t
ngx_http_once_hash_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    uint8_t               hash[16];
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r->main);

    v->not_found = 1;

    if (ctx == NULL || ngx_http_once_key_hash(ctx, hash) != NGX_OK) {
        return NGX_OK;
    }

    v->data = ngx_pnalloc(r->pool, 32);
    if (v->data == NULL) {
        return NGX_ERROR;
    }

    v->len = ngx_hex_dump(v->data, hash, 16) - v->data;
    v->valid = 1;
    v->no_cacheable = 1;
    v->not_found = 0;

    return NGX_OK;
}

enum { NGX_HTTP_ONCE_VAR_ARM, NGX_HTTP_ONCE_VAR_FENCE, NGX_HTTP_ONCE_VAR_ATTEMPT, NGX_HTTP_ONCE_VAR_REPLAYED,
       NGX_HTTP_ONCE_VAR_RECORD };

static ngx_int_t
ngx_http_once_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t which)
{
    u_char               *p;
    const char           *name;
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r->main);

    v->not_found = 1;

    if (ctx == NULL || (ctx->reply.arm == ONCE_ARM_NONE && ctx->reply.result == ONCE_OK
                        && !(ctx->named && which == NGX_HTTP_ONCE_VAR_RECORD)))
    {
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, 64);
    if (p == NULL) {
        return NGX_ERROR;
    }

    v->data = p;

    switch (which) {

    case NGX_HTTP_ONCE_VAR_ARM:
        name = ctx->reply.result == ONCE_OK ? once_arm_name(ctx->reply.arm) : once_result_name(ctx->reply.result);
        p = ngx_cpymem(p, name, ngx_min(ngx_strlen(name), 64));
        break;

    case NGX_HTTP_ONCE_VAR_FENCE:
    case NGX_HTTP_ONCE_VAR_ATTEMPT:
    case NGX_HTTP_ONCE_VAR_RECORD:
        if (ctx->grant.fence == 0 && !(ctx->named && which == NGX_HTTP_ONCE_VAR_RECORD)) {
            return NGX_OK;
        }

        p = which == NGX_HTTP_ONCE_VAR_FENCE ? ngx_sprintf(p, "%uL", ctx->grant.fence)
          : which == NGX_HTTP_ONCE_VAR_ATTEMPT ? ngx_sprintf(p, "%uD", ctx->reply.record.attempt)
          : ngx_hex_dump(p, ctx->grant.record, 16);
        break;

    case NGX_HTTP_ONCE_VAR_REPLAYED:
        *p++ = ctx->replayed ? '1' : '0';
        break;
    }

    v->len = p - v->data;
    v->valid = 1;
    v->no_cacheable = 1;
    v->not_found = 0;

    return NGX_OK;
}

static ngx_int_t
ngx_http_once_add_variables(ngx_conf_t *cf)
{
    size_t                i;
    ngx_http_variable_t  *var;

    static ngx_str_t  members = ngx_string("once_json_");
    static struct { ngx_str_t name; ngx_http_get_variable_pt get; uintptr_t which; }  vars[] = {
        { ngx_string("once_arm"), ngx_http_once_variable, NGX_HTTP_ONCE_VAR_ARM },
        { ngx_string("once_fence"), ngx_http_once_variable, NGX_HTTP_ONCE_VAR_FENCE },
        { ngx_string("once_attempt"), ngx_http_once_variable, NGX_HTTP_ONCE_VAR_ATTEMPT },
        { ngx_string("once_replayed"), ngx_http_once_variable, NGX_HTTP_ONCE_VAR_REPLAYED },
        { ngx_string("once_record"), ngx_http_once_variable, NGX_HTTP_ONCE_VAR_RECORD },
        { ngx_string("once_status"), ngx_http_once_status_variable, 0 },
        { ngx_string("once_key_hash"), ngx_http_once_hash_variable, 0 },
        { ngx_string("once_age"), ngx_http_once_age_variable, 0 },
        { ngx_string("once_trace_id"), ngx_http_once_trace_variable, 0 },
    };

    for (i = 0; i < sizeof vars / sizeof *vars; i++) {
        var = ngx_http_add_variable(cf, &vars[i].name, NGX_HTTP_VAR_NOCACHEABLE);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = vars[i].get;
        var->data = vars[i].which;
    }

    var = ngx_http_add_variable(cf, &members, NGX_HTTP_VAR_NOCACHEABLE|NGX_HTTP_VAR_PREFIX);
    if (var == NULL) {
        return NGX_ERROR;
    }

    var->get_handler = ngx_http_once_json_variable;

    return ngx_http_once_add_probe_variables(cf);
}

/* ---------------------------------------------------------------- registration */

static ngx_int_t
ngx_http_once_init(ngx_conf_t *cf)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_once_handler;

    if (ngx_http_once_check_leads(cf) != NGX_OK || ngx_http_once_watch_upstreams(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_once_filter_init(cf);
}

static ngx_int_t
ngx_http_once_init_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                   i;
    ngx_http_once_daemon_t     **d;
    ngx_http_once_main_conf_t   *omcf;

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE) {
        return NGX_OK;
    }

    omcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_once_module);
    if (omcf == NULL) {
        return NGX_OK;
    }

    d = omcf->daemons.elts;

    for (i = 0; i < omcf->daemons.nelts; i++) {
        ngx_http_once_daemon_start(d[i]);
    }

    return NGX_OK;
}

static void
ngx_http_once_exit_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                   i;
    ngx_http_once_daemon_t     **d;
    ngx_http_once_main_conf_t   *omcf;

    omcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_once_module);
    if (omcf == NULL) {
        return;
    }

    ngx_http_once_end_all_leases();

    d = omcf->daemons.elts;

    for (i = 0; i < omcf->daemons.nelts; i++) {
        ngx_http_once_daemon_stop(d[i]);
    }
}
