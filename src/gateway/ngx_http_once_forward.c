/*
 * ngx_http_once_forward.c - request headers that tell the upstream about the attempt.
 *
 *     Once-Key             the child key of the call "upstream": the same on every attempt
 *     Once-Record          the record's id, 32 hex digits: with the fence, it identifies the grant in JSON API and SQL
 *     Once-Fence           grows with every grant: a service can reject older ones
 *     Once-Attempt         1 for the first
 *     Once-Recovery-Point  the last point that an earlier attempt recorded
 *     Once-Checkpoint      the data recorded there, as ":base64:" (RFC 9651), up to 4096 bytes
 */
#include "ngx_http_once.h"

#include "core/record.h"
#include "core/span.h"

enum { NGX_HTTP_ONCE_KEY, NGX_HTTP_ONCE_RECORD, NGX_HTTP_ONCE_FENCE, NGX_HTTP_ONCE_ATTEMPT, NGX_HTTP_ONCE_POINT,
       NGX_HTTP_ONCE_CHECKPOINT, NGX_HTTP_ONCE_NAMES };

static ngx_str_t  ngx_http_once_names[NGX_HTTP_ONCE_NAMES] = {
    ngx_string("Once-Key"), ngx_string("Once-Record"), ngx_string("Once-Fence"), ngx_string("Once-Attempt"),
    ngx_string("Once-Recovery-Point"), ngx_string("Once-Checkpoint")
};
static u_char  *const ngx_http_once_lowcase[NGX_HTTP_ONCE_NAMES] = {
    (u_char *) "once-key", (u_char *) "once-record", (u_char *) "once-fence", (u_char *) "once-attempt",
    (u_char *) "once-recovery-point", (u_char *) "once-checkpoint"
};

static ngx_int_t
ngx_http_once_add_request_header(ngx_http_request_t *r, ngx_uint_t name, const void *value, size_t len)
{
    ngx_table_elt_t    *h;
    static ngx_uint_t   hashes[NGX_HTTP_ONCE_NAMES];  /* 0: not computed yet */

    h = ngx_http_once_push_header(&r->headers_in.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    if (hashes[name] == 0) {
        hashes[name] = ngx_hash_key(ngx_http_once_lowcase[name], ngx_http_once_names[name].len);
    }

    h->key = ngx_http_once_names[name];
    h->lowcase_key = ngx_http_once_lowcase[name];
    h->hash = hashes[name];
    h->value.data = ngx_pnalloc(r->pool, len + 1);
    if (h->value.data == NULL) {
        return NGX_ERROR;
    }

    h->value.len = len;
    *ngx_cpymem(h->value.data, value, len) = '\0';

    return NGX_OK;
}

/* Removes headers of the client with these names: the upstream relies on ours. */
ngx_int_t
ngx_http_once_strip_headers(ngx_http_request_t *r)
{
    return ngx_http_once_drop_headers(r, ngx_http_once_names, NGX_HTTP_ONCE_NAMES);
}

static ngx_int_t
ngx_http_once_add_checkpoint(ngx_http_request_t *r, once_span checkpoint)
{
    u_char     *text;
    ngx_str_t   plain, coded;

    plain.data = (u_char *) (uintptr_t) checkpoint.ptr;
    plain.len = checkpoint.len;

    text = ngx_pnalloc(r->pool, ngx_base64_encoded_length(plain.len) + 2);
    if (text == NULL) {
        return NGX_ERROR;
    }

    text[0] = ':';
    coded.data = text + 1;
    ngx_encode_base64(&coded, &plain);
    text[coded.len + 1] = ':';

    return ngx_http_once_add_request_header(r, NGX_HTTP_ONCE_CHECKPOINT, text, coded.len + 2);
}

void
ngx_http_once_child_key(ngx_http_once_ctx_t *ctx, char text[ONCE_CHILD_KEY_LEN + 1])
{
    once_child_key_of(ngx_http_once_daemon_secret(ctx->conf->daemon), ctx->grant.record, ONCE_LIT("upstream"), text);
}

ngx_int_t
ngx_http_once_forward_headers(ngx_http_once_ctx_t *ctx)
{
    char                 key[ONCE_CHILD_KEY_LEN + 1];
    u_char               hex[32], fence[NGX_INT64_LEN], attempt[NGX_INT32_LEN];
    ngx_http_request_t  *r = ctx->request;
    struct once_record  *record = &ctx->reply.record;

    ngx_http_once_child_key(ctx, key);
    ngx_hex_dump(hex, ctx->grant.record, sizeof(ctx->grant.record));

    if (ngx_http_once_add_request_header(r, NGX_HTTP_ONCE_KEY, key, ONCE_CHILD_KEY_LEN) != NGX_OK
        || ngx_http_once_add_request_header(r, NGX_HTTP_ONCE_RECORD, hex, sizeof(hex)) != NGX_OK
        || ngx_http_once_add_request_header(r, NGX_HTTP_ONCE_FENCE, fence,
                              ngx_sprintf(fence, "%uL", ctx->grant.fence) - fence) != NGX_OK
        || ngx_http_once_add_request_header(r, NGX_HTTP_ONCE_ATTEMPT, attempt,
                              ngx_sprintf(attempt, "%uD", record->attempt) - attempt) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (once_span_starts(record->recovery_point, ONCE_LIT("once:"))) {
        return NGX_OK;  /* an internal point of the gateway */
    }

    if (record->checkpoint.len > 0 && ngx_http_once_add_checkpoint(r, record->checkpoint) != NGX_OK) {
        return NGX_ERROR;
    }

    return record->recovery_point.len == 0 ? NGX_OK
         : ngx_http_once_add_request_header(r, NGX_HTTP_ONCE_POINT, record->recovery_point.ptr, record->recovery_point.len);
}
