/*
 * ngx_http_once_hop.c - what HTTP says about one connection, and not about the operation.
 *
 * The client's offer of another protocol, the service's answers before its answer, and the version that the
 * service is asked by.
 */
#include "ngx_http_once.h"

/* An offer of HTTP/2 comes with every first request of some clients (Java's HttpClient, curl --http2). It is about
 * this connection, changes nothing about the answer, and is ignored by who does not take it, as nginx does; the
 * upstream must not take it either, whatever proxy_set_header says.  Another protocol has no answer at all. */
ngx_int_t
ngx_http_once_read_upgrade(ngx_http_once_ctx_t *ctx)
{
    ngx_str_t            protocol;
    ngx_http_request_t  *r = ctx->request;
    ngx_str_t            names[] = { ngx_string("Upgrade"), ngx_string("HTTP2-Settings") };

    if (ngx_http_once_find_header(r, &names[0], &protocol) == 1
        && protocol.len == 3 && ngx_strncasecmp(protocol.data, (u_char *) "h2c", 3) == 0)
    {
        if (ctx->conf->mode == NGX_HTTP_ONCE_OBSERVE) {
            return NGX_OK;
        }

        r->headers_in.upgrade = NULL;
        return ngx_http_once_drop_headers(r, names, 2) == NGX_OK ? NGX_OK : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_once_refuse(ctx, &(ngx_http_once_problem_t){
        NGX_HTTP_BAD_REQUEST, "upgrade-refused", "A request with a key cannot be upgraded",
        "an upgraded connection has no answer that could be kept: leave out Upgrade, or the key", 0, 0 });
}

/* nginx takes the first head for the answer.  100, 102 and 103 are none, what follows them is; 101 stays one, and a
 * bad one.  They are not passed on (K4).  As many may come as fit into proxy_buffer_size. */
static ngx_int_t
ngx_http_once_process_header(ngx_http_request_t *r)
{
    ngx_int_t             rc;
    ngx_http_upstream_t  *u = r->upstream;
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r);

    for ( ;; ) {
        rc = ctx->process_header(r);

        if (u->process_header != ngx_http_once_process_header) {  /* the status line was read: the fields */
            ctx->process_header = u->process_header;
            u->process_header = ngx_http_once_process_header;
        }

        if (rc != NGX_OK || u->headers_in.status_n < NGX_HTTP_CONTINUE || u->headers_in.status_n >= NGX_HTTP_OK
            || u->headers_in.status_n == NGX_HTTP_SWITCHING_PROTOCOLS)
        {
            return rc;
        }

        /* as before a first try, but what was read stays */
        ngx_memzero(&u->headers_in, sizeof(ngx_http_upstream_headers_in_t));
        u->headers_in.content_length_n = -1;
        u->headers_in.last_modified_time = -1;

        if (ngx_list_init(&u->headers_in.headers, r->pool, 8, sizeof(ngx_table_elt_t)) != NGX_OK
            || ngx_list_init(&u->headers_in.trailers, r->pool, 2, sizeof(ngx_table_elt_t)) != NGX_OK
            || u->reinit_request(r) != NGX_OK)
        {
            return NGX_ERROR;
        }

        ctx->process_header = u->process_header;
        u->process_header = ngx_http_once_process_header;
    }
}

/* Of HTTP upstreams, whose first head begins where a first try does. */
void
ngx_http_once_skip_interim(ngx_http_once_ctx_t *ctx)
{
    ngx_http_upstream_t  *u = ctx->request->upstream;

    if (u->schema.len >= 4 && ngx_strncmp(u->schema.data, "http", 4) == 0) {
        ctx->process_header = u->process_header;
        u->process_header = ngx_http_once_process_header;
    }
}

/*
 * Asked by HTTP/1.0, which is nginx's default, most services mark no end of their answers: none of them would be kept.
 * Not refused: some send a length nevertheless.  The proxy module's configuration is its own, but its commands say where the version is.
 */
void
ngx_http_once_warn_of_http_1_0(ngx_conf_t *cf, ngx_http_once_loc_conf_t *olcf)
{
    ngx_uint_t                 i;
    ngx_command_t             *cmd;
    ngx_http_upstream_conf_t  *u = ngx_http_once_find_loc_conf(cf, "ngx_http_proxy_module");
    ngx_http_core_loc_conf_t  *clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (u == NULL || u->upstream == NULL) {
        return;
    }

    for (i = 0; ngx_strcmp(cf->cycle->modules[i]->name, "ngx_http_proxy_module") != 0; i++) { /* void */ }

    for (cmd = cf->cycle->modules[i]->commands; cmd != NULL && cmd->name.len > 0; cmd++) {
        if (ngx_strcmp(cmd->name.data, "proxy_http_version") == 0
            && *(ngx_uint_t *) ((char *) u + cmd->offset) == NGX_HTTP_VERSION_10)
        {
            ngx_log_error(NGX_LOG_WARN, cf->log, 0, "\"once\" in %s:%ui: in location \"%V\" the service is asked by "
                          "HTTP/1.0; answers without a length are not kept then: say \"proxy_http_version 1.1\"",
                          olcf->file, olcf->line, &clcf->name);
        }
    }
}
