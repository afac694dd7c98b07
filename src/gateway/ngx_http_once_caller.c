/*
 * ngx_http_once_caller.c - who asks: the tenant that a key belongs to, and the credentials a request came with.
 *
 * Model:      a tenant is a name, which is stored and shown. Credentials are not: they count in the fingerprint, which is
 *             a keyed hash. So where callers have no names (once_tenant -), a retry with other credentials, or with none,
 *             is another request: refused, neither executed nor answered with what somebody else was told (ADR 37).
 * Invariants: K9 nobody gets an answer that was another's. Credentials are never a tenant's name, nor stored.
 */
#include "ngx_http_once.h"

#include "core/resend.h"
#include "core/span.h"

/* ---------------------------------------------------------------- once_tenant */

/* Is this variable what a client proves by who he is? */
static ngx_uint_t
ngx_http_once_is_secret_variable(const u_char *name, size_t len)
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
ngx_http_once_names_secret(const ngx_str_t *text)
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

        if (ngx_http_once_is_secret_variable(text->data + from, i - from)) {
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
        return ngx_http_once_bad(cf, &value[1], "say where a caller's name comes from, or - for a single tenant");
    }

    if (ngx_http_once_names_secret(&value[1])) {
        return ngx_http_once_bad(cf, &value[1], "credentials would be stored as a tenant's name, and shown wherever keys "
                                 "are: take what names the account, or \"once_tenant -\" with \"once_fingerprint "
                                 "credentials\"");
    }

    rv = ngx_http_set_complex_value_slot(cf, cmd, conf);
    if (rv == NGX_CONF_OK) {
        olcf->tenant_single = value[1].len == 1 && value[1].data[0] == '-';
    }

    return rv;
}

/* Longer than a tenant's name may be, it is named by its hash. */
ngx_int_t
ngx_http_once_read_tenant(ngx_http_once_ctx_t *ctx)
{
    u_char               digest[ONCE_MAC_LEN];
    ngx_http_request_t  *r = ctx->request;

    if (ctx->conf->tenant_single) {
        return NGX_OK;
    }

    /* none is said where nothing seemed to need one: of a request that nginx answers itself, nobody's key is claimed either */
    if (ctx->conf->tenant != NULL && ngx_http_complex_value(r, ctx->conf->tenant, &ctx->tenant) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ctx->tenant.len == 0) {
        return ngx_http_once_refuse(ctx, &(ngx_http_once_problem_t){
            NGX_HTTP_UNAUTHORIZED, "tenant-missing", "The caller is not known",
            "a request with a key must say whose it is: no identity was found in it", 0, 0 });
    }

    if (ctx->tenant.len > ONCE_TENANT_LEN_MAX
        || (ctx->tenant.len >= 7 && ngx_strncmp(ctx->tenant.data, "sha256:", 7) == 0)) /* nobody takes such a name */
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

static ngx_int_t
ngx_http_once_add_credential(ngx_http_once_loc_conf_t *olcf, u_char *data, size_t len)
{
    ngx_str_t  *name = ngx_array_push(olcf->credentials);

    if (name == NULL) {
        return NGX_ERROR;
    }

    name->data = data;
    name->len = len;
    return NGX_OK;
}

/* Of once_fingerprint: "credentials" are those that are usual, "credential=NAME" is one more, "credentials=none" are none
 * where there were some further out. */
ngx_int_t
ngx_http_once_set_credentials(ngx_conf_t *cf, ngx_http_once_loc_conf_t *olcf, ngx_str_t *word)
{
    ngx_str_t           name;
    const char *const  *usual;

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
        for (usual = once_header_credentials(); *usual != NULL; usual++) {
            if (ngx_http_once_add_credential(olcf, (u_char *) *usual, ngx_strlen(*usual)) != NGX_OK) {
                return NGX_ERROR;
            }
        }

        return NGX_OK;
    }

    if (word->len < 11 || ngx_strncmp(word->data, "credential=", 11) != 0) {
        return NGX_DECLINED;
    }

    name.data = word->data + 11;
    name.len = word->len - 11;

    if (!ngx_http_once_is_token(&name)) {
        (void) ngx_http_once_bad(cf, word, "this is no header's name");
        return NGX_ERROR;
    }

    return ngx_http_once_add_credential(olcf, name.data, name.len);
}

ngx_uint_t
ngx_http_once_counts_credentials(const ngx_http_once_loc_conf_t *olcf)
{
    return olcf->credentials != NULL && olcf->credentials->nelts > 0;
}

ngx_uint_t
ngx_http_once_is_listed(const ngx_str_t *name, const ngx_array_t *list)
{
    ngx_str_t   *names;
    ngx_uint_t   i;

    if (list == NULL) {
        return 0;
    }

    names = list->elts;

    for (i = 0; i < list->nelts; i++) {
        if (names[i].len == name->len && ngx_strncasecmp(names[i].data, name->data, name->len) == 0) {
            return 1;
        }
    }

    return 0;
}

/*
 * The service knows no caller by these credentials, or not one who may: nothing was done. Where they count in the
 * fingerprint the key must not stay theirs: a client gets another token and asks again, and who has none at all must
 * not be able to take a key from who has one. A later attempt's key is kept: an earlier one may have done something.
 */
ngx_uint_t
ngx_http_once_is_unauthorized(ngx_http_once_ctx_t *ctx)
{
    return ngx_http_once_counts_credentials(ctx->conf) && ctx->capture == NGX_HTTP_ONCE_OUTCOME
           && (ctx->status == NGX_HTTP_UNAUTHORIZED || ctx->status == NGX_HTTP_FORBIDDEN)
           && !ctx->conf->final[ctx->status] && ctx->reply.record.attempt == 1;
}
