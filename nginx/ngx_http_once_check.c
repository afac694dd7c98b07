/*
 * ngx_http_once_check.c - what does not combine with keeping answers: refused when the configuration is read, with file and line.
 */
#include "ngx_http_once.h"

static void *
ngx_http_once_find_loc_conf(ngx_conf_t *cf, const char *name)
{
    ngx_uint_t            i;
    ngx_http_conf_ctx_t  *ctx = cf->ctx;

    for (i = 0; cf->cycle->modules[i]; i++) {
        if (ngx_strcmp(cf->cycle->modules[i]->name, name) == 0) {
            return ctx->loc_conf[cf->cycle->modules[i]->ctx_index];
        }
    }

    return NULL;
}

static char *
ngx_http_once_refuse_conf(ngx_conf_t *cf, ngx_http_once_loc_conf_t *olcf, const char *what)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "\"once\" in %s:%ui: in location \"%V\" %s", olcf->file, olcf->line,
                  &clcf->name, what);
    return NGX_CONF_ERROR;
}

/* What cannot be combined with it, in a location that makes content. */
char *
ngx_http_once_check(ngx_conf_t *cf, ngx_http_once_loc_conf_t *olcf)
{
    size_t                     i;
    const char                *fault;
    ngx_http_upstream_conf_t  *u;
    ngx_http_core_loc_conf_t  *clcf;

    /* the upstream's configuration is the first member of each */
    static const char  *const modules[] = {
        "ngx_http_proxy_module", "ngx_http_fastcgi_module", "ngx_http_uwsgi_module", "ngx_http_scgi_module",
        "ngx_http_grpc_module"
    };

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (olcf->mode == NGX_HTTP_ONCE_OFF || (clcf->handler == NULL && olcf->pass.len == 0)
        || clcf->handler == ngx_http_once_policy_handler)
    {
        return NGX_CONF_OK;
    }

    if (olcf->tenant == NULL) {
        return ngx_http_once_refuse_conf(cf, olcf, "\"once_tenant\" is missing: say where a caller's name comes from, "
                                         "or \"once_tenant -\" if all callers are one tenant");
    }

    fault = ngx_http_once_probe_fault(olcf);
    if (fault == NULL) {
        fault = ngx_http_once_retention_fault(olcf);
    }

    if (fault != NULL) {
        return ngx_http_once_refuse_conf(cf, olcf, fault);
    }

    if (olcf->mode == NGX_HTTP_ONCE_OBSERVE) {
        return NGX_CONF_OK;
    }

    for (i = 0; i < sizeof modules / sizeof *modules; i++) {
        u = ngx_http_once_find_loc_conf(cf, modules[i]);

        if (u == NULL) {
            continue;
        }

        if (u->cache > 0) {
            return ngx_http_once_refuse_conf(cf, olcf, "a cache does not combine with it: an answer would not be "
                                             "the operation's; use \"proxy_cache off\"");
        }

        if (u->store > 0) {
            return ngx_http_once_refuse_conf(cf, olcf, "storing answers in files does not combine with it; use "
                                             "\"proxy_store off\"");
        }
    }

    return NGX_CONF_OK;
}
