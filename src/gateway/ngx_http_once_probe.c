/*
 * ngx_http_once_probe.c - routes whose service can be probed: it tells whether a request was executed.
 *
 * `once_takeover probe` and `once_probe /path/$once_key` configure it. nginx does not probe: it evaluates the target when
 * it claims, and stores it with the request. The daemon's completer probes when the lease of an unfinished attempt
 * has ended (src/daemon/completer/probe.h); until then retries get "in progress".
 *
 * So nginx stores no unknown outcome here: it leaves the record running, and sets its lease to end after
 * once_probe's `after`, because the request may still be on its way to the service.
 */
#include "ngx_http_once.h"

#include "core/duration.h"
#include "core/span.h"

#define NGX_HTTP_ONCE_PROBE_AFTER_MS  5000

/* ---------------------------------------------------------------- directive */

/* once_probe off | /path/$once_key [after=TIME] */
char *
ngx_http_once_set_probe(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    u_char                    *p;
    ngx_str_t                 *value = cf->args->elts;
    struct once_error          err;
    ngx_http_once_loc_conf_t  *olcf = conf;

    if (olcf->probe != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    olcf->probe_after_ms = NGX_HTTP_ONCE_PROBE_AFTER_MS;

    if (ngx_strcmp(value[1].data, "off") == 0) {
        olcf->probe = NULL;
        return cf->args->nelts == 2 ? NGX_CONF_OK : "has further arguments after off";
    }

    if (value[1].len == 0 || value[1].data[0] != '/') {
        return ngx_http_once_invalid(cf, &value[1], "must be off, or a path on the service that gets the request, "
                                       "like /payments/by-key/$once_key");
    }

    for (p = value[1].data; *p != '\0'; p++) {
        if (*p <= ' ' || *p == 0x7f || *p == '#') {
            return ngx_http_once_invalid(cf, &value[1], "the path has an invalid character");
        }
    }

    olcf->probe = ngx_http_once_compile(cf, &value[1]);
    if (olcf->probe == NULL) {
        return NGX_CONF_ERROR;
    }

    if (olcf->probe->lengths == NULL) {
        return ngx_http_once_invalid(cf, &value[1], "the path is the same for all requests; name the request in it, "
                                       "for example with $once_key");
    }

    if (cf->args->nelts == 2) {
        return NGX_CONF_OK;
    }

    if (value[2].len <= 6 || ngx_strncmp(value[2].data, "after=", 6) != 0) {
        return ngx_http_once_invalid(cf, &value[2], "must be after=TIME");
    }

    if (once_duration_parse(once_span_of(value[2].data + 6, value[2].len - 6), false, &olcf->probe_after_ms, &err)
        != ONCE_OK)
    {
        return ngx_http_once_invalid(cf, &value[2], err.text);
    }

    if (olcf->probe_after_ms < 1 || olcf->probe_after_ms > ONCE_LEASE_MS_MAX) {
        return ngx_http_once_invalid(cf, &value[2], "must be 1ms to 24h");
    }

    return NGX_CONF_OK;
}

/* A location with its own once_takeover does not inherit the probe. */
void
ngx_http_once_merge_probe(ngx_http_once_loc_conf_t *prev, ngx_http_once_loc_conf_t *conf, ngx_uint_t is_set)
{
    if (conf->probe == NGX_CONF_UNSET_PTR && is_set && conf->takeover != ONCE_TAKEOVER_COMPLETER) {
        conf->probe = NULL;
    }

    if (conf->probe == NGX_CONF_UNSET_PTR) {
        conf->probe = prev->probe != NGX_CONF_UNSET_PTR ? prev->probe : NULL;
        conf->probe_after_ms = prev->probe_after_ms;
    }
}

/* Returns the fault in a location's directives, or NULL. */
const char *
ngx_http_once_probe_fault(ngx_http_once_loc_conf_t *olcf)
{
    if (olcf->takeover != ONCE_TAKEOVER_COMPLETER) {
        return olcf->probe != NULL ? "\"once_probe\" needs \"once_takeover probe\"" : NULL;
    }

    if (olcf->probe == NULL) {
        return "\"once_takeover probe\" needs \"once_probe\", the path to probe";
    }

    if (olcf->complete.len == 0) {
        return "\"once_takeover probe\" needs \"once_complete\": the daemon probes";
    }

    return NULL;
}

/* ---------------------------------------------------------------- a request */

/* An empty variable shows as "//", "=&" or the like, unless the configuration has that itself. Such a target could name the
 * whole collection, and its 200 would be taken for an answer. */
static ngx_uint_t
ngx_http_once_has_empty_variable(ngx_str_t *target, ngx_str_t *configured)
{
    size_t      i;
    u_char      last;

    static const char  *const marks[] = { "//", "=&", "/?" };

    for (i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (ngx_strnstr(target->data, (char *) marks[i], target->len) != NULL
            && ngx_strnstr(configured->data, (char *) marks[i], configured->len) == NULL)
        {
            return 1;
        }
    }

    last = target->data[target->len - 1];

    return (last == '/' || last == '=') && configured->data[configured->len - 1] != last;
}

/* NGX_OK: target, empty if the route has no probe. NGX_DECLINED: a variable in it is empty. */
ngx_int_t
ngx_http_once_probe_target(ngx_http_once_ctx_t *ctx, ngx_str_t *target)
{
    ngx_str_null(target);

    if (ctx->conf->takeover != ONCE_TAKEOVER_COMPLETER) {
        return NGX_OK;
    }

    if (ctx->conf->probe == NULL) {
        return NGX_DECLINED;
    }

    if (ngx_http_complex_value(ctx->request, ctx->conf->probe, target) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_http_once_has_empty_variable(target, &ctx->conf->probe->value)) {
        return NGX_DECLINED;
    }

    return NGX_OK;
}

ngx_int_t
ngx_http_once_send_deferred(ngx_http_once_ctx_t *ctx)
{
    return ngx_http_once_send_problem(ctx->request, &(ngx_http_once_problem_t){
        ctx->answer_status, "upstream-failed", "The service did not answer completely",
        "the gateway will ask the service whether it was executed: retry with the same key", 1,
        (ngx_uint_t) ngx_min((ctx->conf->probe_after_ms + 999) / 1000 + 1, 3600) });
}

/* ---------------------------------------------------------------- variables */

/* Escapes all but letters, digits and -._~, so that the value stays one segment of a path. */
static ngx_int_t
ngx_http_once_set_escaped_variable(ngx_http_request_t *r, u_char *data, size_t len, ngx_http_variable_value_t *v)
{
    size_t   escaped = len + 2 * ngx_escape_uri(NULL, data, len, NGX_ESCAPE_URI_COMPONENT);
    u_char  *p = ngx_pnalloc(r->pool, escaped);

    if (p == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_escape_uri(p, data, len, NGX_ESCAPE_URI_COMPONENT);

    return ngx_http_once_set_variable(v, p, escaped);
}

ngx_int_t
ngx_http_once_client_key_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r->main);

    v->not_found = 1;

    return ctx == NULL || ctx->key.len == 0 ? NGX_OK
         : ngx_http_once_set_escaped_variable(r, ctx->key.data, ctx->key.len, v);
}

ngx_int_t
ngx_http_once_child_key_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    char                  text[ONCE_CHILD_KEY_LEN + 1];
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r->main);

    v->not_found = 1;

    if (ctx == NULL || ctx->key.len == 0 || (!ctx->record_known && ctx->grant.fence == 0)) {
        return NGX_OK;
    }

    ngx_http_once_child_key(ctx, text);
    return ngx_http_once_set_escaped_variable(r, (u_char *) text, ONCE_CHILD_KEY_LEN, v);
}

/* $once_uri_json_NAME: $once_json_NAME, escaped */
ngx_int_t
ngx_http_once_uri_json_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_int_t   rc;
    ngx_str_t   plain, *name = (ngx_str_t *) data;

    /* json_variable() skips the length of "once_json_" */
    plain.data = name->data + (sizeof("once_uri_json_") - sizeof("once_json_"));
    plain.len = name->len - (sizeof("once_uri_json_") - sizeof("once_json_"));

    rc = ngx_http_once_json_variable(r, v, (uintptr_t) &plain);

    return rc != NGX_OK || v->not_found ? rc : ngx_http_once_set_escaped_variable(r, v->data, v->len, v);
}
