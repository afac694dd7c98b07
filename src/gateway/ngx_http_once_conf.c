/*
 * ngx_http_once_conf.c - the table of directives (docs/nginx.md), their defaults and inheritance.
 */
#include "ngx_http_once.h"

#define NGX_HTTP_ONCE_SOCKET  "/run/once/once.sock"
/* bytes of an answer that are stored at most */
#define NGX_HTTP_ONCE_RESPONSE_MAX  (1024 * 1024)

static ngx_conf_enum_t  ngx_http_once_key_formats[] = {
    { ngx_string("lenient"), ONCE_KEY_LENIENT },
    { ngx_string("sf"), ONCE_KEY_STRICT },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_http_once_takeovers[] = {
    { ngx_string("escalate"), ONCE_TAKEOVER_ESCALATE },
    { ngx_string("rerun"), ONCE_TAKEOVER_RERUN },
    { ngx_string("probe"), ONCE_TAKEOVER_COMPLETER },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_http_once_store_downs[] = {
    { ngx_string("refuse"), NGX_HTTP_ONCE_REFUSE },
    { ngx_string("pass"), NGX_HTTP_ONCE_PASS },
    { ngx_null_string, 0 }
};

#define NGX_HTTP_ONCE_EVERYWHERE  (NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF)
#define ngx_http_once_command(name, args, set, field)                                                    \
    { ngx_string(name), NGX_HTTP_ONCE_EVERYWHERE|args, set, NGX_HTTP_LOC_CONF_OFFSET,                    \
      offsetof(ngx_http_once_loc_conf_t, field), NULL }
#define ngx_http_once_enum(name, field, values)                                                          \
    { ngx_string(name), NGX_HTTP_ONCE_EVERYWHERE|NGX_CONF_TAKE1, ngx_conf_set_enum_slot,                 \
      NGX_HTTP_LOC_CONF_OFFSET, offsetof(ngx_http_once_loc_conf_t, field), values }

ngx_command_t  ngx_http_once_commands[] = {
    ngx_http_once_command("once", NGX_CONF_TAKE1, ngx_http_once_set_mode, mode),
    ngx_http_once_command("once_daemon", NGX_CONF_TAKE1, ngx_http_once_set_daemon, daemon),
    ngx_http_once_command("once_tenant", NGX_CONF_TAKE1, ngx_http_once_set_tenant, tenant),
    ngx_http_once_command("once_key_header", NGX_CONF_TAKE1, ngx_http_once_set_name, key_header),
    ngx_http_once_enum("once_key_format", key_format, ngx_http_once_key_formats),
    ngx_http_once_command("once_key_natural", NGX_CONF_TAKE1, ngx_http_set_complex_value_slot, key_natural),
    ngx_http_once_command("once_methods", NGX_CONF_1MORE, ngx_http_once_set_methods, methods),
    ngx_http_once_command("once_fingerprint", NGX_CONF_1MORE, ngx_http_once_set_fingerprint, body),
    ngx_http_once_command("once_lease", NGX_CONF_TAKE1, ngx_http_once_set_duration, lease_ms),
    ngx_http_once_command("once_retention", NGX_CONF_TAKE1, ngx_http_once_set_duration, retention_ms),
    ngx_http_once_command("once_body_retention", NGX_CONF_TAKE1, ngx_http_once_set_duration, body_retention_ms),
    ngx_http_once_command("once_key_time", NGX_CONF_FLAG, ngx_conf_set_flag_slot, key_time),
    ngx_http_once_command("once_wait", NGX_CONF_TAKE1, ngx_http_once_set_duration, wait_ms),
    ngx_http_once_enum("once_takeover", takeover, ngx_http_once_takeovers),
    ngx_http_once_command("once_probe", NGX_CONF_TAKE12, ngx_http_once_set_probe, probe),
    ngx_http_once_command("once_final", NGX_CONF_1MORE, ngx_http_once_set_final, final),
    ngx_http_once_command("once_max_response", NGX_CONF_TAKE12, ngx_http_once_set_max_response, max_response),
    ngx_http_once_command("once_replay_headers", NGX_CONF_1MORE, ngx_http_once_set_replay_headers, replay_headers),
    ngx_http_once_command("once_forward", NGX_CONF_FLAG, ngx_conf_set_flag_slot, forward),
    ngx_http_once_command("once_intent", NGX_CONF_FLAG, ngx_conf_set_flag_slot, intent),
    ngx_http_once_command("once_complete", NGX_CONF_1MORE, ngx_http_once_set_complete, complete),
    ngx_http_once_command("once_route", NGX_CONF_TAKE1, ngx_http_once_set_route, route),
    ngx_http_once_enum("once_store_down", store_down, ngx_http_once_store_downs),
    ngx_http_once_command("once_trace", NGX_CONF_TAKE1, ngx_http_once_set_trace, trace),
    ngx_http_once_command("once_pass", NGX_CONF_TAKE1, ngx_http_once_set_pass, pass),

    { ngx_string("once_policy"), NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS, ngx_http_once_set_policy,
      NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    ngx_null_command
};

/* ---------------------------------------------------------------- configurations */

void *
ngx_http_once_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_once_main_conf_t  *omcf;

    omcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_once_main_conf_t));
    if (omcf == NULL
        || ngx_array_init(&omcf->daemons, cf->pool, 2, sizeof(ngx_http_once_daemon_t *)) != NGX_OK
        || ngx_array_init(&omcf->locations, cf->pool, 8, sizeof(ngx_http_once_location_t)) != NGX_OK
        || ngx_array_init(&omcf->pass_redirects, cf->pool, 4, sizeof(ngx_http_once_redirect_t)) != NGX_OK
        || ngx_array_init(&omcf->error_redirects, cf->pool, 4, sizeof(ngx_http_once_redirect_t)) != NGX_OK
        || ngx_array_init(&omcf->upstreams, cf->pool, 8, sizeof(ngx_http_once_upstream_t)) != NGX_OK)
    {
        return NULL;
    }

    return omcf;
}

void *
ngx_http_once_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_once_loc_conf_t  *olcf;

    olcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_once_loc_conf_t));
    if (olcf == NULL) {
        return NULL;
    }

    olcf->mode = NGX_CONF_UNSET_UINT;
    olcf->daemon = NGX_CONF_UNSET_PTR;
    olcf->key_format = NGX_CONF_UNSET_UINT;
    olcf->body = NGX_CONF_UNSET_UINT;
    olcf->lease_ms = NGX_HTTP_ONCE_UNSET;
    olcf->retention_ms = NGX_HTTP_ONCE_UNSET;
    olcf->body_retention_ms = NGX_HTTP_ONCE_UNSET;
    olcf->key_time = NGX_CONF_UNSET;
    olcf->wait_ms = NGX_HTTP_ONCE_UNSET;
    olcf->takeover = NGX_CONF_UNSET_UINT;
    olcf->probe = NGX_CONF_UNSET_PTR;
    olcf->max_response = NGX_CONF_UNSET_SIZE;
    olcf->forward = NGX_CONF_UNSET;
    olcf->intent = NGX_CONF_UNSET;
    olcf->store_down = NGX_CONF_UNSET_UINT;
    olcf->trace = NGX_CONF_UNSET_UINT;

    return olcf;
}

static ngx_int_t
ngx_http_once_list_location(ngx_conf_t *cf, ngx_http_once_loc_conf_t *olcf)
{
    ngx_http_once_location_t      *location;
    ngx_http_core_loc_conf_t   *clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    ngx_http_once_main_conf_t  *omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);

    if (olcf->mode == NGX_HTTP_ONCE_OFF || clcf->name.len == 0 || clcf->named || clcf->noname
        || (clcf->handler == NULL && olcf->pass.len == 0) || clcf->handler == ngx_http_once_policy_handler)
    {
        return NGX_OK;
    }

    location = ngx_array_push(&omcf->locations);
    if (location == NULL) {
        return NGX_ERROR;
    }

    location->server = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    location->name = clcf->name;
    location->conf = olcf;

    return NGX_OK;
}

static void
ngx_http_once_merge_ms(int64_t *conf, int64_t prev, int64_t otherwise)
{
    if (*conf == NGX_HTTP_ONCE_UNSET) {
        *conf = prev != NGX_HTTP_ONCE_UNSET ? prev : otherwise;
    }
}

#define ngx_http_once_inherit(conf, prev, field)                                                         \
    if ((conf)->field == NULL) {                                                                         \
        (conf)->field = (prev)->field;                                                                   \
    }

/* Tenant, key and fingerprint. */
static void
ngx_http_once_merge_identity(ngx_http_once_loc_conf_t *prev, ngx_http_once_loc_conf_t *conf)
{
    if (conf->tenant == NULL) {
        conf->tenant = prev->tenant;
        conf->tenant_single = prev->tenant_single;
    }

    ngx_conf_merge_str_value(conf->key_header, prev->key_header, "Idempotency-Key");

    ngx_conf_merge_uint_value(conf->key_format, prev->key_format, ONCE_KEY_LENIENT);
    ngx_http_once_inherit(conf, prev, key_natural);

    if (conf->methods == 0) {
        conf->methods = prev->methods != 0 ? prev->methods : NGX_HTTP_POST|NGX_HTTP_PATCH;
    }

    if (conf->body == NGX_CONF_UNSET_UINT) {
        conf->body = prev->body != NGX_CONF_UNSET_UINT ? prev->body : NGX_HTTP_ONCE_BODY_AUTO;
        conf->headers = prev->headers;
        conf->exclude = prev->exclude;
    }

    /* credentials are inherited even if this block has its own once_fingerprint */
    ngx_http_once_inherit(conf, prev, credentials);
}

static void
ngx_http_once_merge_durations(ngx_http_once_loc_conf_t *prev, ngx_http_once_loc_conf_t *conf)
{
    ngx_http_once_merge_ms(&conf->lease_ms, prev->lease_ms, ONCE_LEASE_MS_DEFAULT);
    ngx_http_once_merge_ms(&conf->retention_ms, prev->retention_ms, ONCE_RETENTION_MS_DEFAULT);
    ngx_http_once_merge_ms(&conf->body_retention_ms, prev->body_retention_ms, 0);
    ngx_conf_merge_value(conf->key_time, prev->key_time, 1);
    ngx_http_once_merge_ms(&conf->wait_ms, prev->wait_ms, 0);
}

/* Final statuses, stored headers and sizes. */
static ngx_int_t
ngx_http_once_merge_answers(ngx_conf_t *cf, ngx_http_once_loc_conf_t *prev, ngx_http_once_loc_conf_t *conf)
{
    ngx_http_once_inherit(conf, prev, final);
    ngx_http_once_inherit(conf, prev, replay_headers);

    if (conf->final == NULL) {
        conf->final = ngx_pcalloc(cf->pool, NGX_HTTP_ONCE_HTTP_STATUS_MAX);
        if (conf->final == NULL) {
            return NGX_ERROR;
        }
        ngx_http_once_final_default(conf->final);
    }

    if (conf->replay_headers == NULL) {
        conf->replay_headers = &ngx_http_once_default_headers;
    }

    if (conf->max_response == NGX_CONF_UNSET_SIZE) {
        conf->max_response = prev->max_response;
        conf->response_memory = prev->response_memory;
    }

    if (conf->max_response == NGX_CONF_UNSET_SIZE) {
        conf->max_response = NGX_HTTP_ONCE_RESPONSE_MAX;
        conf->response_memory = NGX_HTTP_ONCE_RESPONSE_MEMORY;
    }

    return NGX_OK;
}

char *
ngx_http_once_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_str_t                  socket = ngx_string(NGX_HTTP_ONCE_SOCKET);
    ngx_uint_t                 takeover_set;
    ngx_http_once_loc_conf_t  *prev = parent;
    ngx_http_once_loc_conf_t  *conf = child;
    ngx_http_core_loc_conf_t  *clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (conf->mode == NGX_CONF_UNSET_UINT) {
        conf->file = prev->file;
        conf->line = prev->line;
    }

    ngx_conf_merge_uint_value(conf->mode, prev->mode, NGX_HTTP_ONCE_OFF);
    ngx_conf_merge_ptr_value(conf->daemon, prev->daemon, NULL);

    ngx_http_once_merge_identity(prev, conf);
    ngx_http_once_merge_durations(prev, conf);

    takeover_set = conf->takeover != NGX_CONF_UNSET_UINT;
    ngx_conf_merge_uint_value(conf->takeover, prev->takeover, ONCE_TAKEOVER_ESCALATE);
    ngx_http_once_merge_probe(prev, conf, takeover_set);

    if (ngx_http_once_merge_answers(cf, prev, conf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    ngx_conf_merge_value(conf->forward, prev->forward, 1);
    ngx_conf_merge_value(conf->intent, prev->intent, 0);

    if (conf->complete.data == NULL) {
        conf->complete = prev->complete;
        conf->complete_headers = prev->complete_headers;
        conf->complete_identity = prev->complete_identity;
    }

    ngx_conf_merge_uint_value(conf->store_down, prev->store_down, NGX_HTTP_ONCE_REFUSE);
    ngx_conf_merge_uint_value(conf->trace, prev->trace, NGX_HTTP_ONCE_TRACE_OFF);

    ngx_http_once_merge_route(cf, prev, conf);

    /* once_pass applies to its location and the `if` blocks in it; a named location that inherited it would pass to itself */
    if (clcf->noname) {
        ngx_conf_merge_str_value(conf->pass, prev->pass, "");
    }

    if (conf->mode != NGX_HTTP_ONCE_OFF && conf->daemon == NULL) {
        conf->daemon = ngx_http_once_daemon_add(cf, ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module),
                                                &socket);
        if (conf->daemon == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    return ngx_http_once_list_location(cf, conf) == NGX_OK ? ngx_http_once_check(cf, conf) : NGX_CONF_ERROR;
}
