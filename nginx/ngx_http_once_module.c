/*
 * ngx_http_once_module.c - registration, variables.
 */
#include "ngx_http_once.h"

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
    static struct { ngx_str_t name; uintptr_t which; }  vars[] = {
        { ngx_string("once_arm"), NGX_HTTP_ONCE_VAR_ARM },
        { ngx_string("once_fence"), NGX_HTTP_ONCE_VAR_FENCE },
        { ngx_string("once_attempt"), NGX_HTTP_ONCE_VAR_ATTEMPT },
        { ngx_string("once_replayed"), NGX_HTTP_ONCE_VAR_REPLAYED },
        { ngx_string("once_record"), NGX_HTTP_ONCE_VAR_RECORD },
    };

    for (i = 0; i < sizeof vars / sizeof *vars; i++) {
        var = ngx_http_add_variable(cf, &vars[i].name, NGX_HTTP_VAR_NOCACHEABLE);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = ngx_http_once_variable;
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

    if (ngx_http_once_watch_upstreams(cf) != NGX_OK) {
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

    ngx_http_once_sweep();

    d = omcf->daemons.elts;

    for (i = 0; i < omcf->daemons.nelts; i++) {
        ngx_http_once_daemon_stop(d[i]);
    }
}
