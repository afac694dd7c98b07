/*
 * ngx_http_once_probe.c - routes whose service can be asked whether a request happened.
 *
 * `once_takeover probe` and `once_probe /path/$once_key` say that, and where. nginx itself does not ask: the target is
 * evaluated when the request is claimed and stored with it, and the daemon's completer asks when the lease of
 * an attempt is over that nobody finished (src/daemon/completer/probe.h). Until then, a retry is told that it is in progress.
 *
 * So what is not known here is left: the record stays running, its lease is set to end (once_probe's
 * `after`: what was sent may still be on its way), and nothing is stored about its outcome.
 */
#include "ngx_http_once.h"

#include "core/duration.h"
#include "core/span.h"

#define NGX_HTTP_ONCE_PROBE_AFTER_MS  5000

/* ---------------------------------------------------------------- directive */

static char *
ngx_http_once_bad_probe(ngx_conf_t *cf, ngx_str_t *value, const char *why)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid value \"%V\" of \"once_probe\": %s", value, why);
    return NGX_CONF_ERROR;
}

/* once_probe off | /path/$once_key [after=TIME] */
char *
ngx_http_once_set_probe(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    u_char                            *p;
    ngx_str_t                         *value = cf->args->elts;
    struct once_error                  err;
    ngx_http_once_loc_conf_t          *olcf = conf;
    ngx_http_compile_complex_value_t   ccv;

    if (olcf->probe != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    olcf->probe_after_ms = NGX_HTTP_ONCE_PROBE_AFTER_MS;

    if (ngx_strcmp(value[1].data, "off") == 0) {
        olcf->probe = NULL;
        return cf->args->nelts == 2 ? NGX_CONF_OK : "is off, and says more";
    }

    if (value[1].len == 0 || value[1].data[0] != '/') {
        return ngx_http_once_bad_probe(cf, &value[1], "it is off, or a path of the service that the request goes to, "
                                       "like /payments/by-key/$once_key");
    }

    for (p = value[1].data; *p != '\0'; p++) {
        if (*p <= ' ' || *p == 0x7f || *p == '#') {
            return ngx_http_once_bad_probe(cf, &value[1], "a path has no such character");
        }
    }

    olcf->probe = ngx_pcalloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (olcf->probe == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(&ccv, sizeof(ccv));
    ccv.cf = cf;
    ccv.value = &value[1];
    ccv.complex_value = olcf->probe;

    if (ngx_http_compile_complex_value(&ccv) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (olcf->probe->lengths == NULL) {
        return ngx_http_once_bad_probe(cf, &value[1], "it asks the same of all requests: name the one that is meant, "
                                       "with $once_key for example");
    }

    if (cf->args->nelts == 2) {
        return NGX_CONF_OK;
    }

    if (value[2].len <= 6 || ngx_strncmp(value[2].data, "after=", 6) != 0) {
        return ngx_http_once_bad_probe(cf, &value[2], "it is after=TIME");
    }

    if (once_duration_parse(once_span_of(value[2].data + 6, value[2].len - 6), false, &olcf->probe_after_ms, &err)
        != ONCE_OK)
    {
        return ngx_http_once_bad_probe(cf, &value[2], err.text);
    }

    if (olcf->probe_after_ms < 1 || olcf->probe_after_ms > ONCE_LEASE_MS_MAX) {
        return ngx_http_once_bad_probe(cf, &value[2], "it is 1ms to 24h");
    }

    return NGX_CONF_OK;
}

/* A location that says itself how it takes over does not inherit where to ask. */
void
ngx_http_once_merge_probe(ngx_http_once_loc_conf_t *prev, ngx_http_once_loc_conf_t *conf, ngx_uint_t said)
{
    if (conf->probe == NGX_CONF_UNSET_PTR && said && conf->takeover != ONCE_TAKEOVER_COMPLETER) {
        conf->probe = NULL;
    }

    if (conf->probe == NGX_CONF_UNSET_PTR) {
        conf->probe = prev->probe != NGX_CONF_UNSET_PTR ? prev->probe : NULL;
        conf->probe_after_ms = prev->probe_after_ms;
    }
}

/* What is wrong with a location's directives; NULL: nothing. */
const char *
ngx_http_once_probe_fault(ngx_http_once_loc_conf_t *olcf)
{
    if (olcf->takeover != ONCE_TAKEOVER_COMPLETER) {
        return olcf->probe != NULL ? "\"once_probe\" says where to ask, and \"once_takeover\" does not say probe" : NULL;
    }

    if (olcf->probe == NULL) {
        return "\"once_takeover probe\" needs \"once_probe\": where the service can be asked";
    }

    if (olcf->complete.len == 0) {
        return "\"once_takeover probe\" needs \"once_complete\": it is the daemon that asks";
    }

    return NULL;
}

/* ---------------------------------------------------------------- a request */

/* Does it show where a variable was empty? /charges/ would tell of all of them, and be taken for an answer. What the
 * configuration itself says is meant. */
static ngx_uint_t
ngx_http_once_names_nothing(ngx_str_t *target, ngx_str_t *said)
{
    size_t      i;
    u_char      last;

    static const char  *const marks[] = { "//", "=&", "/?" };

    for (i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (ngx_strnstr(target->data, (char *) marks[i], target->len) != NULL
            && ngx_strnstr(said->data, (char *) marks[i], said->len) == NULL)
        {
            return 1;
        }
    }

    last = target->data[target->len - 1];

    return (last == '/' || last == '=') && said->data[said->len - 1] != last;
}

/* NGX_OK, with an empty target where this route has none; NGX_DECLINED: it asks about nothing. */
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

    if (ngx_http_once_names_nothing(target, &ctx->conf->probe->value)) {
        return NGX_DECLINED;
    }

    return NGX_OK;
}

/* Its end is not known, and it can be asked: neither finished nor released. */
ngx_uint_t
ngx_http_once_is_deferred(ngx_http_once_ctx_t *ctx, const struct once_outcome *outcome)
{
    return outcome->state == ONCE_STATE_UNKNOWN && ctx->takeover == ONCE_TAKEOVER_COMPLETER;
}

void
ngx_http_once_defer(ngx_http_once_ctx_t *ctx, struct once_request *request)
{
    ngx_memzero(request, sizeof(*request));
    request->verb = ONCE_VERB_EXTEND;
    request->grant = ctx->grant;
    request->extend.lease_ms = ctx->conf->probe_after_ms;
    ctx->left = 1;
}

ngx_int_t
ngx_http_once_send_deferred(ngx_http_once_ctx_t *ctx)
{
    return ngx_http_once_send_problem(ctx->request, &(ngx_http_once_problem_t){
        ctx->status, "upstream-failed", "The service did not answer completely",
        "the service will be asked whether it was executed: ask again with the same key", 1,
        (ngx_uint_t) ngx_min((ctx->conf->probe_after_ms + 999) / 1000 + 1, 3600) });
}

/* ---------------------------------------------------------------- variables */

enum { NGX_HTTP_ONCE_VAR_KEY, NGX_HTTP_ONCE_VAR_CLIENT_KEY };

/* Everything but letters, digits and -._~ as %XX: whatever it is, it stays one piece of a path. */
static ngx_int_t
ngx_http_once_escaped(ngx_http_request_t *r, u_char *data, size_t len, ngx_http_variable_value_t *v)
{
    uintptr_t  escapes = ngx_escape_uri(NULL, data, len, NGX_ESCAPE_URI_COMPONENT);

    v->len = len + 2 * escapes;
    v->data = ngx_pnalloc(r->pool, v->len);
    if (v->data == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_escape_uri(v->data, data, len, NGX_ESCAPE_URI_COMPONENT);

    v->valid = 1;
    v->no_cacheable = 1;
    v->not_found = 0;

    return NGX_OK;
}

static ngx_int_t
ngx_http_once_probe_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t which)
{
    u_char               text[ONCE_CHILD_KEY_LEN];
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r->main);

    v->not_found = 1;

    if (ctx == NULL || ctx->key.len == 0) {
        return NGX_OK;
    }

    if (which == NGX_HTTP_ONCE_VAR_CLIENT_KEY) {
        return ngx_http_once_escaped(r, ctx->key.data, ctx->key.len, v);
    }

    if (!ctx->named && ctx->grant.fence == 0) {
        return NGX_OK;
    }

    ngx_http_once_child_key(ctx, text);
    return ngx_http_once_escaped(r, text, sizeof(text), v);
}

/* $once_uri_json_NAME: $once_json_NAME, escaped */
static ngx_int_t
ngx_http_once_uri_json_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_int_t   rc;
    ngx_str_t   plain, *name = (ngx_str_t *) data;

    /* of its name only what follows a prefix of this length is looked at */
    plain.data = name->data + (sizeof("once_uri_json_") - sizeof("once_json_"));
    plain.len = name->len - (sizeof("once_uri_json_") - sizeof("once_json_"));

    rc = ngx_http_once_json_variable(r, v, (uintptr_t) &plain);

    if (rc != NGX_OK || v->not_found) {
        return rc;
    }

    return ngx_http_once_escaped(r, v->data, v->len, v);
}

ngx_int_t
ngx_http_once_add_probe_variables(ngx_conf_t *cf)
{
    size_t                i;
    ngx_http_variable_t  *var;

    static struct { ngx_str_t name; ngx_http_get_variable_pt get; uintptr_t data; ngx_uint_t flags; }  vars[] = {
        { ngx_string("once_key"), ngx_http_once_probe_variable, NGX_HTTP_ONCE_VAR_KEY, 0 },
        { ngx_string("once_client_key"), ngx_http_once_probe_variable, NGX_HTTP_ONCE_VAR_CLIENT_KEY, 0 },
        { ngx_string("once_uri_json_"), ngx_http_once_uri_json_variable, 0, NGX_HTTP_VAR_PREFIX },
    };

    for (i = 0; i < sizeof vars / sizeof *vars; i++) {
        var = ngx_http_add_variable(cf, &vars[i].name, NGX_HTTP_VAR_NOCACHEABLE|vars[i].flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = vars[i].get;
        var->data = vars[i].data;
    }

    return NGX_OK;
}
