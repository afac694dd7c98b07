/*
 * ngx_http_once_conf_check.c - refuses configurations that do not combine with `once`, with file and line.
 */
#include "ngx_http_once.h"

static ngx_module_t *
ngx_http_once_find_module(ngx_conf_t *cf, const char *name)
{
    ngx_uint_t  i;

    for (i = 0; cf->cycle->modules[i] != NULL && ngx_strcmp(cf->cycle->modules[i]->name, name) != 0; i++) { /* void */ }

    return cf->cycle->modules[i];
}

/* Returns why answers of this upstream cannot be stored, or NULL. */
static const char *
ngx_http_once_upstream_fault(ngx_conf_t *cf, void **loc_conf)
{
    size_t                     i;
    ngx_module_t              *module;
    ngx_http_upstream_conf_t  *u;

    /* in each of these modules, ngx_http_upstream_conf_t is the first member of the configuration */
    static const char  *const modules[] = {
        "ngx_http_grpc_module", "ngx_http_proxy_module", "ngx_http_fastcgi_module", "ngx_http_uwsgi_module",
        "ngx_http_scgi_module"
    };

    for (i = 0; i < sizeof modules / sizeof *modules; i++) {
        module = ngx_http_once_find_module(cf, modules[i]);

        if (module == NULL) {
            continue;
        }

        u = loc_conf[module->ctx_index];

        if (i == 0 && u->upstream != NULL) {
            return "\"grpc_pass\" does not combine with it: gRPC sends the result of a call in trailers, and replays have no trailers";
        }

        if (u->cache > 0) {
            return "a cache does not combine with it: the answer could be that of another request; use \"proxy_cache off\"";
        }

        if (u->store > 0) {
            return "storing answers in files does not combine with it; use \"proxy_store off\"";
        }
    }

    return NULL;
}

/*
 * nginx's default is HTTP/1.0. Most services do not mark the end of an HTTP/1.0 answer, and such answers are not stored. This
 * is only a warning, because some services send a length. The command table gives the offset of proxy_http_version.
 */
static void
ngx_http_once_warn_http_1_0(ngx_conf_t *cf, ngx_http_once_loc_conf_t *olcf, ngx_http_core_loc_conf_t *clcf, void **loc_conf)
{
    ngx_command_t             *cmd;
    ngx_module_t              *module = ngx_http_once_find_module(cf, "ngx_http_proxy_module");
    ngx_http_upstream_conf_t  *u = module != NULL ? loc_conf[module->ctx_index] : NULL;

    if (u == NULL || u->upstream == NULL) {
        return;
    }

    for (cmd = module->commands; cmd != NULL && cmd->name.len > 0; cmd++) {
        if (ngx_strcmp(cmd->name.data, "proxy_http_version") == 0
            && *(ngx_uint_t *) ((char *) u + cmd->offset) == NGX_HTTP_VERSION_10)
        {
            ngx_log_error(NGX_LOG_WARN, cf->log, 0, "\"once\" in %s:%ui: in location \"%V\" nginx sends HTTP/1.0 "
                          "to the service, and answers without a length are not kept; set \"proxy_http_version 1.1\"",
                          olcf->file, olcf->line, &clcf->name);
        }
    }
}

/* With recursive_error_pages, `error_page CODE = @name` clears all traces of the error. */
static ngx_uint_t
ngx_http_once_hides_error(ngx_http_err_page_t *page)
{
    if (page->status == NGX_HTTP_BAD_GATEWAY || page->status == NGX_HTTP_GATEWAY_TIME_OUT) {
        return 0;  /* errors of an upstream, not of access control */
    }

    return page->overwrite == 0 && (page->value.lengths != NULL || page->value.value.data[0] == '@');
}

/* Adds a location whose target may not be parsed yet. */
static char *
ngx_http_once_add_redirect(ngx_conf_t *cf, ngx_array_t *redirects, ngx_http_once_loc_conf_t *olcf)
{
    ngx_http_once_redirect_t  *redirect = ngx_array_push(redirects);

    if (redirect == NULL) {
        return NGX_CONF_ERROR;
    }

    redirect->server = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    redirect->location = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    redirect->conf = olcf;

    return NGX_CONF_OK;
}

static char *
ngx_http_once_conf_error(ngx_conf_t *cf, ngx_http_once_loc_conf_t *olcf, const char *what)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "\"once\" in %s:%ui: in location \"%V\" %s", olcf->file, olcf->line,
                  &clcf->name, what);
    return NGX_CONF_ERROR;
}

/* Checks a location that produces content. */
char *
ngx_http_once_check(ngx_conf_t *cf, ngx_http_once_loc_conf_t *olcf)
{
    const char                 *fault;
    ngx_http_conf_ctx_t        *ctx = cf->ctx;
    ngx_http_core_loc_conf_t   *clcf;
    ngx_http_once_main_conf_t  *omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->recursive_error_pages && clcf->error_pages != NULL
        && ngx_http_once_add_redirect(cf, &omcf->error_redirects, olcf) != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (olcf->mode == NGX_HTTP_ONCE_OFF || (clcf->handler == NULL && olcf->pass.len == 0)
        || clcf->handler == ngx_http_once_policy_handler)
    {
        return NGX_CONF_OK;
    }

    if (olcf->tenant == NULL) {
        return ngx_http_once_conf_error(cf, olcf, "\"once_tenant\" is missing: set it to the source of the caller's name, "
                                         "or to \"-\" if all callers are one tenant");
    }

    fault = ngx_http_once_probe_fault(olcf);
    if (fault == NULL) {
        fault = ngx_http_once_retention_fault(olcf);
    }

    if (fault != NULL) {
        return ngx_http_once_conf_error(cf, olcf, fault);
    }

    if (olcf->mode == NGX_HTTP_ONCE_OBSERVE) {
        return NGX_CONF_OK;
    }

    fault = ngx_http_once_upstream_fault(cf, ctx->loc_conf);
    if (fault != NULL) {
        return ngx_http_once_conf_error(cf, olcf, fault);
    }

    ngx_http_once_warn_http_1_0(cf, olcf, clcf, ctx->loc_conf);

    return olcf->pass.len > 0 ? ngx_http_once_add_redirect(cf, &omcf->pass_redirects, olcf) : NGX_CONF_OK;
}

/* NULL: the server has no location with this name. */
static ngx_http_core_loc_conf_t *
ngx_http_once_find_named(ngx_http_core_srv_conf_t *server, ngx_str_t *name)
{
    ngx_http_core_loc_conf_t  **named;

    for (named = server->named_locations; named != NULL && *named != NULL; named++) {
        if ((*named)->name.len == name->len && ngx_strncmp((*named)->name.data, name->data, name->len) == 0) {
            return *named;
        }
    }

    return NULL;
}

/* Checks that the location named by once_pass exists and combines with `once`. */
static ngx_int_t
ngx_http_once_check_pass(ngx_conf_t *cf, ngx_http_once_redirect_t *redirect)
{
    const char                *fault;
    ngx_http_core_loc_conf_t  *named = ngx_http_once_find_named(redirect->server, &redirect->conf->pass);

    fault = named == NULL ? "\"once_pass\" names a location that this server does not have"
                          : ngx_http_once_upstream_fault(cf, named->loc_conf);
    if (fault != NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "\"once_pass %V\" of \"once\" in %s:%ui: passed from location \"%V\": %s",
                      &redirect->conf->pass, redirect->conf->file, redirect->conf->line, &redirect->location->name, fault);
        return NGX_ERROR;
    }

    ngx_http_once_warn_http_1_0(cf, redirect->conf, named, named->loc_conf);

    return NGX_OK;
}

/* A request that access control refused here must not be claimed in the location that the error page redirects to. */
static ngx_int_t
ngx_http_once_check_error_redirect(ngx_conf_t *cf, ngx_http_once_redirect_t *redirect)
{
    ngx_uint_t                  i;
    ngx_http_err_page_t        *page = redirect->location->error_pages->elts;
    ngx_http_once_loc_conf_t   *olcf;
    ngx_http_core_loc_conf_t  **named;

    for (named = redirect->server->named_locations; named != NULL && *named != NULL; named++) {
        olcf = (*named)->loc_conf[ngx_http_once_module.ctx_index];

        if (olcf->mode != NGX_HTTP_ONCE_ON && olcf->mode != NGX_HTTP_ONCE_REQUIRED) {
            continue;
        }

        for (i = 0; i < redirect->location->error_pages->nelts; i++) {
            if (ngx_http_once_hides_error(&page[i])
                && (page[i].value.lengths != NULL  /* a variable may name any location */
                    || ngx_http_once_find_named(redirect->server, &page[i].value.value) == *named))
            {
                ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "\"once\" in %s:%ui: in location \"%V\" does not combine with "
                              "\"recursive_error_pages\" and \"error_page %i = ...\" of location \"%V\": a request that "
                              "access control refused would look like an allowed one here, and could get a replay",
                              olcf->file, olcf->line, &(*named)->name, page[i].status, &redirect->location->name);
                return NGX_ERROR;
            }
        }
    }

    return NGX_OK;
}

ngx_int_t
ngx_http_once_check_redirects(ngx_conf_t *cf)
{
    ngx_uint_t                  i;
    ngx_http_once_redirect_t       *redirect;
    ngx_http_once_main_conf_t  *omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);

    redirect = omcf->pass_redirects.elts;

    for (i = 0; i < omcf->pass_redirects.nelts; i++) {
        if (ngx_http_once_check_pass(cf, &redirect[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    redirect = omcf->error_redirects.elts;

    for (i = 0; i < omcf->error_redirects.nelts; i++) {
        if (ngx_http_once_check_error_redirect(cf, &redirect[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}
