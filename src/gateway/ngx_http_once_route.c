/*
 * ngx_http_once_route.c - what a request is counted as, and found by: its location's name, or what once_route says.
 *
 * A label for people, which decides nothing: whatever a variable holds is made to fit, never refused. How many
 * different ones there may be is bounded by the store and the daemon.
 */
#include "ngx_http_once.h"

#include "core/span.h"

/* Visible ASCII, up to ONCE_ROUTE_LEN_MAX. */
static once_span
ngx_http_once_fit_route(ngx_pool_t *pool, const ngx_str_t *text)
{
    size_t   i, len = ngx_min(text->len, ONCE_ROUTE_LEN_MAX);
    u_char  *p;

    for (i = 0; i < len && text->data[i] > 0x20 && text->data[i] < 0x7f; i++) { /* void */ }

    if (i == len) {
        return once_span_of(text->data, len);
    }

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
    ngx_str_t                         *value = cf->args->elts;
    ngx_http_once_loc_conf_t          *olcf = conf;
    ngx_http_compile_complex_value_t   ccv;

    if (olcf->route_said) {
        return "is duplicate";
    }

    olcf->route_said = 1;

    if (value[1].len == 1 && value[1].data[0] == '-') {
        return NGX_CONF_OK;
    }

    if (value[1].len == 0) {
        return "is empty: say a name, a variable, or - for none";
    }

    if (ngx_http_script_variables_count(&value[1]) == 0) {
        olcf->route_name = ngx_http_once_fit_route(cf->pool, &value[1]);

        if (olcf->route_name.len != value[1].len || olcf->route_name.ptr != value[1].data) {
            return "is not 1 to 64 visible ASCII characters";
        }

        return NGX_CONF_OK;
    }

    olcf->route = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (olcf->route == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));
    ccv.cf = cf;
    ccv.value = &value[1];
    ccv.complex_value = olcf->route;

    return ngx_http_compile_complex_value(&ccv) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}

void
ngx_http_once_merge_route(ngx_conf_t *cf, ngx_http_once_loc_conf_t *prev, ngx_http_once_loc_conf_t *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    if (conf->route_said) {
        return;
    }

    if (prev->route_said) {
        conf->route_said = 1;
        conf->route = prev->route;
        conf->route_name = prev->route_name;
        return;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    /* an `if` or a limit_except is part of the location around it */
    conf->route_name = clcf->noname || clcf->name.len == 0 ? prev->route_name
                                                            : ngx_http_once_fit_route(cf->pool, &clcf->name);
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

    return ngx_http_once_fit_route(ctx->request->pool, &text);
}
