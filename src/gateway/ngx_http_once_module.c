/*
 * ngx_http_once_module.c - registration of the module, and its variables.
 */
#include "ngx_http_once.h"

#include "core/record.h"
#include "core/span.h"

#define NGX_HTTP_ONCE_VARIABLE_LEN  64

/* ---------------------------------------------------------------- variables */

ngx_int_t
ngx_http_once_key_hash(ngx_http_once_ctx_t *ctx, uint8_t hash[16])
{
    const struct once_mac  *secret;

    if (ctx->grant.fence > 0 || ctx->record_known) {
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

ngx_int_t
ngx_http_once_set_variable(ngx_http_variable_value_t *v, u_char *data, size_t len)
{
    v->data = data;
    v->len = len;
    v->valid = 1;
    v->no_cacheable = 1;
    v->not_found = 0;

    return NGX_OK;
}

enum { NGX_HTTP_ONCE_VAR_STATUS, NGX_HTTP_ONCE_VAR_KEY_HASH, NGX_HTTP_ONCE_VAR_AGE, NGX_HTTP_ONCE_VAR_ARM,
       NGX_HTTP_ONCE_VAR_FENCE, NGX_HTTP_ONCE_VAR_ATTEMPT, NGX_HTTP_ONCE_VAR_REPLAYED, NGX_HTTP_ONCE_VAR_RECORD,
       NGX_HTTP_ONCE_VAR_TRACE_ID };

/* Writes a variable's text and returns its end; NULL: the variable is not set. */
static u_char *
ngx_http_once_format_variable(ngx_http_once_ctx_t *ctx, uintptr_t which, u_char *p)
{
    int64_t                 age;
    uint8_t                 hash[16];
    ngx_time_t             *now = ngx_timeofday();
    const char             *name;
    const uint8_t          *trace = ngx_http_once_trace_id(ctx);
    ngx_http_once_reply_t  *reply = &ctx->reply;
    ngx_uint_t              granted = ctx->grant.fence > 0;
    ngx_uint_t              decided = reply->result != ONCE_OK || reply->arm != ONCE_ARM_NONE;

    static const char  *const statuses[] = {
#define NGX_HTTP_ONCE__STATUS(name, text)  text,
        NGX_HTTP_ONCE_STATUSES(NGX_HTTP_ONCE__STATUS)
#undef NGX_HTTP_ONCE__STATUS
    };

    switch (which) {

    case NGX_HTTP_ONCE_VAR_STATUS:
        return ngx_cpymem(p, statuses[ctx->status], ngx_strlen(statuses[ctx->status]));

    case NGX_HTTP_ONCE_VAR_KEY_HASH:
        return ngx_http_once_key_hash(ctx, hash) == NGX_OK ? ngx_hex_dump(p, hash, 16) : NULL;

    case NGX_HTTP_ONCE_VAR_AGE:  /* since the first request for the operation, by this machine's clock */
        age = ngx_max((int64_t) now->sec * 1000 + (int64_t) now->msec - reply->record.created_at, 0);
        return reply->result == ONCE_OK && reply->record.created_at != 0
               ? ngx_sprintf(p, "%L.%03L", age / 1000, age % 1000) : NULL;

    case NGX_HTTP_ONCE_VAR_ARM:
        name = reply->result == ONCE_OK ? once_arm_name(reply->arm) : once_result_name(reply->result);
        return decided ? ngx_cpymem(p, name, ngx_min(ngx_strlen(name), NGX_HTTP_ONCE_VARIABLE_LEN)) : NULL;

    case NGX_HTTP_ONCE_VAR_FENCE:
        return granted ? ngx_sprintf(p, "%uL", ctx->grant.fence) : NULL;

    case NGX_HTTP_ONCE_VAR_ATTEMPT:
        return granted ? ngx_sprintf(p, "%uD", reply->record.attempt) : NULL;

    case NGX_HTTP_ONCE_VAR_RECORD:
        return granted || ctx->record_known ? ngx_hex_dump(p, ctx->grant.record, 16) : NULL;

    case NGX_HTTP_ONCE_VAR_TRACE_ID:
        return trace != NULL ? ngx_hex_dump(p, (u_char *) trace, 16) : NULL;

    default:
        *p = ctx->status == NGX_HTTP_ONCE_STATUS_REPLAYED || ctx->status == NGX_HTTP_ONCE_STATUS_FENCED ? '1' : '0';
        return decided ? p + 1 : NULL;
    }
}

static ngx_int_t
ngx_http_once_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t which)
{
    u_char               *text, *end;
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r->main);

    v->not_found = 1;

    if (ctx == NULL) {
        return NGX_OK;
    }

    text = ngx_pnalloc(r->pool, NGX_HTTP_ONCE_VARIABLE_LEN);
    if (text == NULL) {
        return NGX_ERROR;
    }

    end = ngx_http_once_format_variable(ctx, which, text);

    return end != NULL ? ngx_http_once_set_variable(v, text, end - text) : NGX_OK;
}

static ngx_int_t
ngx_http_once_add_variables(ngx_conf_t *cf)
{
    size_t                i;
    ngx_http_variable_t  *var;

    static struct { ngx_str_t name; ngx_http_get_variable_pt get; uintptr_t which; ngx_uint_t flags; }  vars[] = {
        { ngx_string("once_arm"), ngx_http_once_variable, NGX_HTTP_ONCE_VAR_ARM, 0 },
        { ngx_string("once_fence"), ngx_http_once_variable, NGX_HTTP_ONCE_VAR_FENCE, 0 },
        { ngx_string("once_attempt"), ngx_http_once_variable, NGX_HTTP_ONCE_VAR_ATTEMPT, 0 },
        { ngx_string("once_replayed"), ngx_http_once_variable, NGX_HTTP_ONCE_VAR_REPLAYED, 0 },
        { ngx_string("once_record"), ngx_http_once_variable, NGX_HTTP_ONCE_VAR_RECORD, 0 },
        { ngx_string("once_status"), ngx_http_once_variable, NGX_HTTP_ONCE_VAR_STATUS, 0 },
        { ngx_string("once_key_hash"), ngx_http_once_variable, NGX_HTTP_ONCE_VAR_KEY_HASH, 0 },
        { ngx_string("once_age"), ngx_http_once_variable, NGX_HTTP_ONCE_VAR_AGE, 0 },
        { ngx_string("once_trace_id"), ngx_http_once_variable, NGX_HTTP_ONCE_VAR_TRACE_ID, 0 },
        { ngx_string("once_json_"), ngx_http_once_json_variable, 0, NGX_HTTP_VAR_PREFIX },
        { ngx_string("once_uri_json_"), ngx_http_once_uri_json_variable, 0, NGX_HTTP_VAR_PREFIX },
        { ngx_string("once_key"), ngx_http_once_child_key_variable, 0, 0 },
        { ngx_string("once_client_key"), ngx_http_once_client_key_variable, 0, 0 },
    };

    for (i = 0; i < sizeof vars / sizeof *vars; i++) {
        var = ngx_http_add_variable(cf, &vars[i].name, NGX_HTTP_VAR_NOCACHEABLE|vars[i].flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = vars[i].get;
        var->data = vars[i].which;
    }

    return NGX_OK;
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

    if (ngx_http_once_check_redirects(cf) != NGX_OK || ngx_http_once_hook_upstreams(cf) != NGX_OK) {
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
