/*
 * ngx_http_once_caller.c - the tenant that owns a key, and the credentials of a request.
 *
 * Model:      a tenant is a name, which is stored and shown. Credentials go only into the fingerprint, which is a
 *             keyed hash. So where callers have no names (once_tenant -), a retry with other credentials, or with
 *             none, is a different request and refused (ADR 37).
 * Invariants: K9 no caller gets the answer of another one. Credentials are never stored, nor used as a tenant's name.
 */
#include "ngx_http_once.h"

#include "core/http/resend.h"
#include "core/span.h"

/* ---------------------------------------------------------------- once_tenant */

/* Does the variable hold credentials? */
static ngx_uint_t
ngx_http_once_is_credential_variable(const u_char *name, size_t len)
{
    size_t  i;
    u_char  header[128];

    if (len > 7 && ngx_strncasecmp((u_char *) name, (u_char *) "cookie_", 7) == 0) {
        return 1;
    }

    if (len <= 5 || len - 5 > sizeof(header) || ngx_strncasecmp((u_char *) name, (u_char *) "http_", 5) != 0) {
        return 0;
    }

    for (i = 0; i < len - 5; i++) {
        header[i] = name[i + 5] == '_' ? '-' : name[i + 5];
    }

    return once_header_is_secret(once_span_of(header, len - 5));
}

static ngx_uint_t
ngx_http_once_uses_credentials(const ngx_str_t *text)
{
    size_t  i, from;

    for (i = 0; i < text->len; /* void */ ) {
        if (text->data[i++] != '$') {
            continue;
        }

        if (i < text->len && text->data[i] == '{') {
            i++;
        }

        for (from = i; i < text->len && (isalnum(text->data[i]) || text->data[i] == '_'); i++) { /* void */ }

        if (ngx_http_once_is_credential_variable(text->data + from, i - from)) {
            return 1;
        }
    }

    return 0;
}

char *
ngx_http_once_set_tenant(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char                      *rv;
    ngx_str_t                 *value = cf->args->elts;
    ngx_http_once_loc_conf_t  *olcf = conf;

    if (value[1].len == 0) {
        return ngx_http_once_invalid(cf, &value[1], "expected a source of the caller's name, or - for a single tenant");
    }

    if (ngx_http_once_uses_credentials(&value[1])) {
        return ngx_http_once_invalid(cf, &value[1], "credentials would be stored and shown as a tenant's name: "
                                 "use a variable that names the account, or \"once_tenant -\" with \"once_fingerprint "
                                 "credentials\"");
    }

    rv = ngx_http_set_complex_value_slot(cf, cmd, conf);
    if (rv == NGX_CONF_OK) {
        olcf->tenant_single = value[1].len == 1 && value[1].data[0] == '-';
    }

    return rv;
}

/* A name that is too long is replaced by its hash. */
ngx_int_t
ngx_http_once_read_tenant(ngx_http_once_ctx_t *ctx)
{
    u_char               digest[ONCE_MAC_LEN];
    ngx_http_request_t  *r = ctx->request;

    if (ctx->conf->tenant_single) {
        return NGX_OK;
    }

    /* once_tenant may be missing in a location without a content handler: a request with a key is refused there */
    if (ctx->conf->tenant != NULL && ngx_http_complex_value(r, ctx->conf->tenant, &ctx->tenant) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ctx->tenant.len == 0) {
        return ngx_http_once_refuse(ctx, &(ngx_http_once_problem_t){
            NGX_HTTP_UNAUTHORIZED, "tenant-missing", "The caller is unknown",
            "a request with a key needs an identity, and this one has none", 0, 0 });
    }

    if (ctx->tenant.len > ONCE_TENANT_LEN_MAX
        || (ctx->tenant.len >= 7 && ngx_strncmp(ctx->tenant.data, "sha256:", 7) == 0)) /* reserved */
    {
        once_sha256(once_span_of(ctx->tenant.data, ctx->tenant.len), digest);
        ctx->tenant.data = ngx_pnalloc(r->pool, sizeof("sha256:") - 1 + 2 * sizeof(digest));
        if (ctx->tenant.data == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        ctx->tenant.len = ngx_hex_dump(ngx_cpymem(ctx->tenant.data, "sha256:", 7), digest, sizeof(digest))
                          - ctx->tenant.data;
    }

    return NGX_OK;
}

/* ---------------------------------------------------------------- credentials */

/* Words of once_fingerprint: "credentials" adds the default ones, "credential=NAME" adds one, "credentials=none"
 * ends inheriting them. */
ngx_int_t
ngx_http_once_set_credentials(ngx_conf_t *cf, ngx_http_once_loc_conf_t *olcf, ngx_str_t *word)
{
    ngx_str_t           name;
    const char *const  *defaults;

    if (ngx_strncmp(word->data, "credential", 10) != 0) {
        return NGX_DECLINED;
    }

    if (olcf->credentials == NULL) {
        olcf->credentials = ngx_array_create(cf->pool, 4, sizeof(ngx_str_t));
        if (olcf->credentials == NULL) {
            return NGX_ERROR;
        }
    }

    if (ngx_strcmp(word->data, "credentials=none") == 0) {
        return NGX_OK;
    }

    if (ngx_strcmp(word->data, "credentials") == 0) {
        for (defaults = once_header_credentials(); *defaults != NULL; defaults++) {
            name.data = (u_char *) *defaults;
            name.len = ngx_strlen(*defaults);

            if (ngx_http_once_add_name(cf, olcf->credentials, &name, 0) != NGX_CONF_OK) {
                return NGX_ERROR;
            }
        }

        return NGX_OK;
    }

    if (word->len < 11 || ngx_strncmp(word->data, "credential=", 11) != 0) {
        return NGX_DECLINED;
    }

    return ngx_http_once_add_name(cf, olcf->credentials, word, 11) == NGX_CONF_OK ? NGX_OK : NGX_ERROR;
}

ngx_uint_t
ngx_http_once_fingerprints_credentials(const ngx_http_once_loc_conf_t *olcf)
{
    return olcf->credentials != NULL && olcf->credentials->nelts > 0;
}

/*
 * The service did not execute the request. If the key stayed with these credentials, the client could not retry with
 * another token, and anybody without credentials could block other callers' keys. Only a first attempt releases the key:
 * an earlier attempt may have executed something.
 */
ngx_uint_t
ngx_http_once_is_unauthorized(ngx_http_once_ctx_t *ctx)
{
    return ngx_http_once_fingerprints_credentials(ctx->conf) && ctx->capture == NGX_HTTP_ONCE_OUTCOME
           && (ctx->answer_status == NGX_HTTP_UNAUTHORIZED || ctx->answer_status == NGX_HTTP_FORBIDDEN)
           && !ctx->conf->final[ctx->answer_status] && ctx->reply.record.attempt == 1;
}
