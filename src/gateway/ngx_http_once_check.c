/*
 * ngx_http_once_check.c - what does not combine with keeping answers: refused when the configuration is read, with file and line.
 */
#include "ngx_http_once.h"

static ngx_module_t *
ngx_http_once_find_module(ngx_conf_t *cf, const char *name)
{
    ngx_uint_t  i;

    for (i = 0; cf->cycle->modules[i] != NULL && ngx_strcmp(cf->cycle->modules[i]->name, name) != 0; i++) { /* void */ }

    return cf->cycle->modules[i];
}

/* What an upstream's configuration has that answers cannot be kept with; NULL: nothing. */
static const char *
ngx_http_once_upstream_fault(ngx_conf_t *cf, void **loc_conf)
{
    size_t                     i;
    ngx_module_t              *module;
    ngx_http_upstream_conf_t  *u;

    /* the upstream's configuration is the first member of each */
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
            return "\"grpc_pass\" does not combine with it: what became of a call is told in trailers, and a replay has none";
        }

        if (u->cache > 0) {
            return "a cache does not combine with it: an answer would not be the operation's; use \"proxy_cache off\"";
        }

        if (u->store > 0) {
            return "storing answers in files does not combine with it; use \"proxy_store off\"";
        }
    }

    return NULL;
}

/*
 * Asked by HTTP/1.0, which is nginx's default, most services mark no end of their answers: none of them would be kept.
 * Not refused: some send a length nevertheless.  The proxy module's configuration is its own, but its commands say where the version is.
 */
static void
ngx_http_once_warn_of_http_1_0(ngx_conf_t *cf, ngx_http_once_loc_conf_t *olcf, ngx_http_core_loc_conf_t *clcf, void **loc_conf)
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
            ngx_log_error(NGX_LOG_WARN, cf->log, 0, "\"once\" in %s:%ui: in location \"%V\" the service is asked by "
                          "HTTP/1.0; answers without a length are not kept then: say \"proxy_http_version 1.1\"",
                          olcf->file, olcf->line, &clcf->name);
        }
    }
}

/* Does this error page lead to a named location without a trace of it? With recursive_error_pages there is none after a `=`. */
static ngx_uint_t
ngx_http_once_is_hiding(ngx_http_err_page_t *page)
{
    if (page->status == NGX_HTTP_BAD_GATEWAY || page->status == NGX_HTTP_GATEWAY_TIME_OUT) {
        return 0;  /* an upstream's end, not access control's */
    }

    return page->overwrite == 0 && (page->value.lengths != NULL || page->value.value.data[0] == '@');
}

/* Remembers a location whose named one may not have been read yet. */
static char *
ngx_http_once_add_lead(ngx_conf_t *cf, ngx_array_t *leads, ngx_http_once_loc_conf_t *olcf)
{
    ngx_http_once_redirect_t  *lead = ngx_array_push(leads);

    if (lead == NULL) {
        return NGX_CONF_ERROR;
    }

    lead->server = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    lead->location = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    lead->conf = olcf;

    return NGX_CONF_OK;
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
    const char                 *fault;
    ngx_http_conf_ctx_t        *ctx = cf->ctx;
    ngx_http_core_loc_conf_t   *clcf;
    ngx_http_once_main_conf_t  *omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->recursive_error_pages && clcf->error_pages != NULL
        && ngx_http_once_add_lead(cf, &omcf->hidings, olcf) != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

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

    fault = ngx_http_once_upstream_fault(cf, ctx->loc_conf);
    if (fault != NULL) {
        return ngx_http_once_refuse_conf(cf, olcf, fault);
    }

    ngx_http_once_warn_of_http_1_0(cf, olcf, clcf, ctx->loc_conf);

    return olcf->pass.len > 0 ? ngx_http_once_add_lead(cf, &omcf->passes, olcf) : NGX_CONF_OK;
}

/* NULL: the server has none of that name. */
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

/* Does what once_pass names exist, and may it be gone on in? */
static ngx_int_t
ngx_http_once_check_pass(ngx_conf_t *cf, ngx_http_once_redirect_t *lead)
{
    const char                *fault;
    ngx_http_core_loc_conf_t  *named = ngx_http_once_find_named(lead->server, &lead->conf->pass);

    fault = named == NULL ? "\"once_pass\" names a location that this server does not have"
                          : ngx_http_once_upstream_fault(cf, named->loc_conf);
    if (fault != NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "\"once_pass %V\" of \"once\" in %s:%ui: from location \"%V\" to there: %s",
                      &lead->conf->pass, lead->conf->file, lead->conf->line, &lead->location->name, fault);
        return NGX_ERROR;
    }

    ngx_http_once_warn_of_http_1_0(cf, lead->conf, named, named->loc_conf);

    return NGX_OK;
}

/* Whom access control refused in this location must not be claimed for in the one that its error page leads to. */
static ngx_int_t
ngx_http_once_check_hiding(ngx_conf_t *cf, ngx_http_once_redirect_t *lead)
{
    ngx_uint_t                  i;
    ngx_http_err_page_t        *page = lead->location->error_pages->elts;
    ngx_http_once_loc_conf_t   *olcf;
    ngx_http_core_loc_conf_t  **named;

    for (named = lead->server->named_locations; named != NULL && *named != NULL; named++) {
        olcf = (*named)->loc_conf[ngx_http_once_module.ctx_index];

        if (olcf->mode != NGX_HTTP_ONCE_ON && olcf->mode != NGX_HTTP_ONCE_REQUIRED) {
            continue;
        }

        for (i = 0; i < lead->location->error_pages->nelts; i++) {
            if (ngx_http_once_is_hiding(&page[i])
                && (page[i].value.lengths != NULL  /* a variable may name any */
                    || ngx_http_once_find_named(lead->server, &page[i].value.value) == *named))
            {
                ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "\"once\" in %s:%ui: in location \"%V\" does not combine with "
                              "\"recursive_error_pages\" and \"error_page %i = ...\" of location \"%V\": a request that access "
                              "control refused could not be told here from one that it let in, and would be given a replay",
                              olcf->file, olcf->line, &(*named)->name, page[i].status, &lead->location->name);
                return NGX_ERROR;
            }
        }
    }

    return NGX_OK;
}

/* Everything was read. */
ngx_int_t
ngx_http_once_check_leads(ngx_conf_t *cf)
{
    ngx_uint_t                  i;
    ngx_http_once_redirect_t       *lead;
    ngx_http_once_main_conf_t  *omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);

    lead = omcf->passes.elts;

    for (i = 0; i < omcf->passes.nelts; i++) {
        if (ngx_http_once_check_pass(cf, &lead[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    lead = omcf->hidings.elts;

    for (i = 0; i < omcf->hidings.nelts; i++) {
        if (ngx_http_once_check_hiding(cf, &lead[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}
