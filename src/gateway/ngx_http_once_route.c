/*
 * ngx_http_once_route.c - the route: a label for statistics and searches; once_route, or the location's name.
 *
 * It decides nothing, so invalid values are replaced, not refused. Store and daemon bound the number of
 * different routes.
 */
#include "ngx_http_once.h"

#include "core/span.h"

/* Replaces all but visible ASCII, and truncates to ONCE_ROUTE_LEN_MAX. */
static once_span
ngx_http_once_clean_route(ngx_pool_t *pool, const ngx_str_t *text)
{
    size_t   i, len = ngx_min(text->len, ONCE_ROUTE_LEN_MAX);
    u_char  *p;

    p = ngx_pnalloc(pool, len);
    if (p == NULL) {
        return once_span_of(NULL, 0);
    }

    for (i = 0; i < len; i++) {
        p[i] = text->data[i] > 0x20 && text->data[i] < 0x7f ? text->data[i] : '_';
    }

    return once_span_of(p, len);
}

/* once_route NAME | $variable | - */
char *
ngx_http_once_set_route(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value = cf->args->elts;
    ngx_http_once_loc_conf_t  *olcf = conf;

    if (olcf->route_set) {
        return "is duplicate";
    }

    olcf->route_set = 1;

    if (value[1].len == 1 && value[1].data[0] == '-') {
        return NGX_CONF_OK;
    }

    if (value[1].len == 0) {
        return "is empty: use a name, a variable, or - for none";
    }

    if (ngx_http_script_variables_count(&value[1]) == 0) {
        olcf->route_name = ngx_http_once_clean_route(cf->pool, &value[1]);

        if (olcf->route_name.len != value[1].len
            || ngx_memcmp(olcf->route_name.ptr, value[1].data, value[1].len) != 0)
        {
            return "is not 1 to 64 visible ASCII characters";
        }

        return NGX_CONF_OK;
    }

    olcf->route = ngx_http_once_compile(cf, &value[1]);

    return olcf->route != NULL ? NGX_CONF_OK : NGX_CONF_ERROR;
}

void
ngx_http_once_merge_route(ngx_conf_t *cf, ngx_http_once_loc_conf_t *prev, ngx_http_once_loc_conf_t *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    if (conf->route_set) {
        return;
    }

    if (prev->route_set) {
        conf->route_set = 1;
        conf->route = prev->route;
        conf->route_name = prev->route_name;
        return;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    /* an `if` or limit_except block belongs to the location around it */
    conf->route_name = clcf->noname || clcf->name.len == 0 ? prev->route_name
                                                            : ngx_http_once_clean_route(cf->pool, &clcf->name);
}

once_span
ngx_http_once_route(ngx_http_once_ctx_t *ctx)
{
    ngx_str_t  text;

    if (ctx->conf->route == NULL) {
        return ctx->conf->route_name;
    }

    if (ngx_http_complex_value(ctx->request, ctx->conf->route, &text) != NGX_OK) {
        return once_span_of(NULL, 0);
    }

    return ngx_http_once_clean_route(ctx->request->pool, &text);
}
