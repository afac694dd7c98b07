/*
 * ngx_http_once_body.c - the fingerprint of a request, and members of its body.
 *
 * nginx has read the whole body before: into one buffer, several, or a temporary file.
 */
#include "ngx_http_once.h"

#include "core/fingerprint.h"
#include "core/json/events.h"
#include "core/span.h"

#include <sys/mman.h>

/* ---------------------------------------------------------------- fingerprint */

/* The body in one piece; the caller releases *mapped and *copied. */
ngx_int_t
ngx_http_once_map_body(ngx_http_request_t *r, once_span *body, void **mapped, void **copied)
{
    off_t         size;
    u_char       *p;
    ssize_t       n;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    *body = once_span_of(NULL, 0);
    *mapped = *copied = NULL;

    if (r->request_body == NULL || r->request_body->bufs == NULL) {
        return NGX_OK;
    }

    cl = r->request_body->bufs;
    b = cl->buf;

    if (cl->next == NULL && ngx_buf_in_memory(b)) {
        *body = once_span_of(b->pos, b->last - b->pos);
        return NGX_OK;
    }

    if (cl->next == NULL && b->in_file && b->file_pos == 0 && b->file_last > 0) {
        p = mmap(NULL, b->file_last, PROT_READ, MAP_PRIVATE, b->file->fd, 0);
        if (p == MAP_FAILED) {
            ngx_log_error(NGX_LOG_ERR, r->connection->log, ngx_errno, "once: cannot read the request's body");
            return NGX_ERROR;
        }

        *mapped = p;
        *body = once_span_of(p, b->file_last);
        return NGX_OK;
    }

    for (size = 0; cl; cl = cl->next) {
        size += ngx_buf_size(cl->buf);
    }

    if (size == 0) {
        return NGX_OK;
    }

    p = ngx_alloc(size, r->connection->log);
    if (p == NULL) {
        return NGX_ERROR;
    }

    *copied = p;
    *body = once_span_of(p, size);

    for (cl = r->request_body->bufs; cl; cl = cl->next) {
        b = cl->buf;

        if (ngx_buf_in_memory(b)) {
            p = ngx_cpymem(p, b->pos, b->last - b->pos);

        } else if (b->in_file) {
            n = ngx_read_file(b->file, p, b->file_last - b->file_pos, b->file_pos);
            if (n != b->file_last - b->file_pos) {
                return NGX_ERROR;
            }
            p += n;
        }
    }

    return NGX_OK;
}

void
ngx_http_once_release_body(const once_span *body, void *mapped, void *copied)
{
    if (mapped != NULL) {
        munmap(mapped, body->len);
    }

    if (copied != NULL) {
        ngx_free(copied);
    }
}

static ngx_uint_t
ngx_http_once_is_json(ngx_http_once_ctx_t *ctx)
{
    size_t               len;
    u_char              *end;
    ngx_str_t           *type;
    ngx_http_request_t  *r = ctx->request;

    if (ctx->conf->body != NGX_HTTP_ONCE_BODY_AUTO) {
        return ctx->conf->body == NGX_HTTP_ONCE_BODY_JSON;
    }

    if (r->headers_in.content_type == NULL) {
        return 0;
    }

    type = &r->headers_in.content_type->value;
    end = ngx_strlchr(type->data, type->data + type->len, ';');
    len = end != NULL ? (size_t) (end - type->data) : type->len;

    while (len > 0 && type->data[len - 1] == ' ') {
        len--;
    }

    return (len == sizeof("application/json") - 1
            && ngx_strncasecmp(type->data, (u_char *) "application/json", len) == 0)
           || (len > 5 && ngx_strncasecmp(type->data + len - 5, (u_char *) "+json", 5) == 0);
}

/*
 * Joins the Cookie lines in their order, as RFC 9113, 8.2.3 says: how they were split must not change the fingerprint. nginx
 * joins those of HTTP/2; an HTTP/1.1 client, or a proxy that received them over HTTP/2, may send several lines.
 */
static ngx_int_t
ngx_http_once_join_cookies(ngx_http_request_t *r, once_span *joined)
{
    size_t                   len = 0;
    u_char                  *p, *end;
    ngx_table_elt_t         *h;
    ngx_http_once_cursor_t   at = { &r->headers_in.headers.part, 0 };

    while ((h = ngx_http_once_next_header(&at)) != NULL) {
        if (ngx_http_once_is_name(&h->key, "Cookie")) {
            len += h->value.len + 2;
        }
    }

    p = end = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    at = (ngx_http_once_cursor_t){ &r->headers_in.headers.part, 0 };

    while ((h = ngx_http_once_next_header(&at)) != NULL) {
        if (ngx_http_once_is_name(&h->key, "Cookie") && h->value.len > 0) {
            if (end > p) {
                end = ngx_cpymem(end, "; ", 2);
            }
            end = ngx_cpymem(end, h->value.data, h->value.len);
        }
    }

    *joined = once_span_of(p, end - p);
    return NGX_OK;
}

/* All lines of the configured headers, and of Content-Type and Content-Encoding: they say what the body's bytes
 * mean. */
static ngx_int_t
ngx_http_once_fingerprinted_headers(ngx_http_once_ctx_t *ctx, ngx_array_t *headers)
{
    ngx_uint_t               cookies = 0;
    ngx_table_elt_t         *h;
    struct once_header      *header;
    ngx_http_once_cursor_t   at = { &ctx->request->headers_in.headers.part, 0 };

    while ((h = ngx_http_once_next_header(&at)) != NULL) {

        if (!ngx_http_once_is_name(&h->key, "Content-Type") && !ngx_http_once_is_name(&h->key, "Content-Encoding")
            && !ngx_http_once_is_listed(&h->key, ctx->conf->headers)
            && !ngx_http_once_is_listed(&h->key, ctx->conf->credentials))
        {
            continue;
        }

        if (ngx_http_once_is_name(&h->key, "Cookie") && cookies++ > 0) {
            continue;  /* the first line has all of them */
        }

        header = ngx_array_push(headers);
        if (header == NULL) {
            return NGX_ERROR;
        }

        header->name = once_span_of(h->key.data, h->key.len);
        header->value = once_span_of(h->value.data, h->value.len);

        if (ngx_http_once_is_name(&h->key, "Cookie")
            && ngx_http_once_join_cookies(ctx->request, &header->value) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}

once_result
ngx_http_once_fingerprint(ngx_http_once_ctx_t *ctx, struct once_error *err)
{
    void                *mapped, *copied;
    once_result          result = ONCE_NO_MEMORY;
    ngx_array_t         *headers;
    struct once_mac      salt;
    struct once_http     http;
    ngx_http_request_t  *r = ctx->request;

    ngx_memzero(&http, sizeof(http));

    http.method = once_span_of(r->method_name.data, r->method_name.len);
    (void) once_span_cut(once_span_of(r->unparsed_uri.data, r->unparsed_uri.len), '?', &http.path, &http.query);

    headers = ngx_array_create(r->pool, 4, sizeof(struct once_header));

    if (headers == NULL || ngx_http_once_fingerprinted_headers(ctx, headers) != NGX_OK) {
        snprintf(err->text, sizeof err->text, "no memory for a fingerprint");
        return ONCE_NO_MEMORY;
    }

    http.headers = headers->elts;
    http.header_count = headers->nelts;
    http.json = ngx_http_once_is_json(ctx);

    if (ctx->conf->exclude != NULL) {
        http.exclude = ctx->conf->exclude->elts;
        http.exclude_count = ctx->conf->exclude->nelts;
    }

    if (ngx_http_once_map_body(r, &http.body, &mapped, &copied) != NGX_OK) {
        snprintf(err->text, sizeof err->text, "the request's body could not be read");

    } else if (ctx->tenant.len == 0) {
        result = once_fingerprint_http_with(ngx_http_once_daemon_salt(ctx->conf->daemon), &http,
                                            &ctx->fingerprint, err);

    } else {
        once_fingerprint_salt(ngx_http_once_daemon_secret(ctx->conf->daemon),
                              once_span_of(ctx->tenant.data, ctx->tenant.len), &salt);
        result = once_fingerprint_http_with(&salt, &http, &ctx->fingerprint, err);
        ngx_explicit_memzero(&salt, sizeof(salt));
    }

    ngx_http_once_release_body(&http.body, mapped, copied);
    return result;
}

/* ---------------------------------------------------------------- members of the body */

/* Finds one member of the outermost object; nested values are skipped. */
typedef struct {
    once_span                  name;
    ngx_pool_t                *pool;
    ngx_uint_t                 depth;
    ngx_uint_t                 array;    /* the outermost value is an array */
    ngx_uint_t                 next;     /* the next value at depth 1 is the member */
    ngx_uint_t                 count;    /* more than one: ambiguous, so not found */
    ngx_str_t                  value;
} ngx_http_once_member_t;

static void
ngx_http_once_member_value(ngx_http_once_member_t *m, once_span text)
{
    if (m->depth == 1 && m->next) {
        m->count++;
        m->value.data = ngx_pnalloc(m->pool, text.len + 1);
        m->value.len = m->value.data != NULL ? text.len : 0;
        if (m->value.data != NULL && text.len > 0) {
            ngx_memcpy(m->value.data, text.ptr, text.len);
        }
    }

    m->next = 0;
}

static bool
ngx_http_once_member_event(void *data, enum once_json_event event, once_span bytes)
{
    ngx_http_once_member_t  *m = data;

    switch (event) {

    case ONCE_JSON_NAME:
        m->next = m->depth == 1 && !m->array && once_span_equal(m->name, bytes);
        break;

    case ONCE_JSON_ARRAY:
    case ONCE_JSON_OBJECT:
        m->array |= m->depth == 0 && event == ONCE_JSON_ARRAY;
        m->count += m->depth == 1 && m->next;  /* a container has no text, but counts as there */
        m->next = 0;
        m->depth++;
        break;

    case ONCE_JSON_END:
        m->depth--;
        break;

    case ONCE_JSON_TRUE:
        ngx_http_once_member_value(m, ONCE_LIT("true"));
        break;

    case ONCE_JSON_FALSE:
        ngx_http_once_member_value(m, ONCE_LIT("false"));
        break;

    default:
        ngx_http_once_member_value(m, bytes);
    }

    return true;
}

ngx_int_t
ngx_http_once_json_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    void                    *mapped, *copied;
    once_span                body;
    ngx_str_t               *name = (ngx_str_t *) data;
    ngx_http_once_member_t   m;

    v->not_found = 1;

    ngx_memzero(&m, sizeof(m));
    m.name = once_span_of(name->data + sizeof("once_json_") - 1, name->len - (sizeof("once_json_") - 1));
    m.pool = r->pool;

    if (ngx_http_once_map_body(r->main, &body, &mapped, &copied) == NGX_OK && body.len > 0
        && once_json_parse(body, ngx_http_once_member_event, &m, NULL) == ONCE_OK
        && m.count == 1 && m.value.len > 0)
    {
        (void) ngx_http_once_set_variable(v, m.value.data, m.value.len);
    }

    ngx_http_once_release_body(&body, mapped, copied);

    return NGX_OK;
}
