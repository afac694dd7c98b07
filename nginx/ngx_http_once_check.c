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

/* Does an error_page here lead to a named location without a trace of it? Whom access control refused would be claimed for there. */
static ngx_uint_t
ngx_http_once_hides_errors(ngx_http_core_loc_conf_t *clcf)
{
    ngx_uint_t            i;
    ngx_http_err_page_t  *page = clcf->error_pages != NULL ? clcf->error_pages->elts : NULL;

    for (i = 0; page != NULL && clcf->recursive_error_pages && i < clcf->error_pages->nelts; i++) {
        if (page[i].overwrite == 0 && (page[i].value.lengths != NULL || page[i].value.value.data[0] == '@')) {
            return 1;
        }
    }

    return 0;
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
    ngx_http_once_pass_t       *pass;
    ngx_http_once_main_conf_t  *omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);

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

    fault = ngx_http_once_upstream_fault(cf, ctx->loc_conf);

    if (fault == NULL && ngx_http_once_hides_errors(clcf)) {
        fault = "\"recursive_error_pages\" does not combine with \"error_page ... = @name\": a request that access control "
                "refused could not be told there from one that it let in, and would be given a replay";
    }

    if (fault != NULL) {
        return ngx_http_once_refuse_conf(cf, olcf, fault);
    }

    ngx_http_once_warn_of_http_1_0(cf, olcf, clcf, ctx->loc_conf);

    if (olcf->pass.len > 0) {  /* what it names may not have been read yet */
        pass = ngx_array_push(&omcf->passes);
        if (pass == NULL) {
            return NGX_CONF_ERROR;
        }

        pass->server = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
        pass->location = clcf;
        pass->conf = olcf;
    }

    return NGX_CONF_OK;
}

/* Everything was read: does what once_pass names exist, and may it be gone on in? */
ngx_int_t
ngx_http_once_check_passes(ngx_conf_t *cf)
{
    const char                 *fault;
    ngx_uint_t                  i;
    ngx_http_once_pass_t       *pass;
    ngx_http_core_loc_conf_t  **named;
    ngx_http_once_main_conf_t  *omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);

    pass = omcf->passes.elts;

    for (i = 0; i < omcf->passes.nelts; i++) {
        named = pass[i].server->named_locations;

        while (named != NULL && *named != NULL
               && ((*named)->name.len != pass[i].conf->pass.len
                   || ngx_strncmp((*named)->name.data, pass[i].conf->pass.data, pass[i].conf->pass.len) != 0))
        {
            named++;
        }

        fault = named == NULL || *named == NULL ? "\"once_pass\" names a location that this server does not have"
                                                : ngx_http_once_upstream_fault(cf, (*named)->loc_conf);
        if (fault != NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "\"once_pass %V\" of \"once\" in %s:%ui: from location \"%V\" to there: %s",
                          &pass[i].conf->pass, pass[i].conf->file, pass[i].conf->line, &pass[i].location->name, fault);
            return NGX_ERROR;
        }

        ngx_http_once_warn_of_http_1_0(cf, pass[i].conf, *named, (*named)->loc_conf);
    }

    return NGX_OK;
}
