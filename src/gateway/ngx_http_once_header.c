/*
 * ngx_http_once_header.c - nginx's lists of header fields: walk, find, add, remove; header lines as text.
 */
#include "ngx_http_once.h"

#include "core/span.h"

ngx_table_elt_t *
ngx_http_once_next_header(ngx_http_once_cursor_t *at)
{
    while (at->i >= at->part->nelts) {
        if (at->part->next == NULL) {
            return NULL;
        }

        at->part = at->part->next;
        at->i = 0;
    }

    return (ngx_table_elt_t *) at->part->elts + at->i++;
}

ngx_uint_t
ngx_http_once_is_name(const ngx_str_t *name, const char *wanted)
{
    return name->len == ngx_strlen(wanted) && ngx_strncasecmp(name->data, (u_char *) wanted, name->len) == 0;
}

ngx_uint_t
ngx_http_once_is_listed(const ngx_str_t *name, const ngx_array_t *list)
{
    ngx_str_t   *names = list != NULL ? list->elts : NULL;
    ngx_uint_t   i;

    for (i = 0; names != NULL && i < list->nelts; i++) {
        if (names[i].len == name->len && ngx_strncasecmp(names[i].data, name->data, name->len) == 0) {
            return 1;
        }
    }

    return 0;
}

ngx_uint_t
ngx_http_once_find_header(ngx_list_t *headers, const char *name, ngx_table_elt_t **first)
{
    ngx_uint_t               count = 0;
    ngx_table_elt_t         *h;
    ngx_http_once_cursor_t   at = { &headers->part, 0 };

    while ((h = ngx_http_once_next_header(&at)) != NULL) {
        if (ngx_http_once_is_name(&h->key, name) && count++ == 0) {
            *first = h;
        }
    }

    return count;
}

ngx_table_elt_t *
ngx_http_once_push_header(ngx_list_t *list)
{
    ngx_table_elt_t  *h = ngx_list_push(list);

    if (h != NULL) {
        ngx_memzero(h, sizeof(ngx_table_elt_t));  /* including `next`, which exists since 1.23.0 */
    }

    return h;
}

ngx_int_t
ngx_http_once_add_header(ngx_http_request_t *r, const char *name, const u_char *value, size_t len)
{
    u_char           *copy;
    ngx_table_elt_t  *h;

    copy = ngx_pnalloc(r->pool, len);
    h = ngx_http_once_push_header(&r->headers_out.headers);
    if (h == NULL || copy == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(copy, value, len);
    h->hash = 1;
    h->key.len = ngx_strlen(name);
    h->key.data = (u_char *) name;
    h->value.len = len;
    h->value.data = copy;

    return NGX_OK;
}

/* Treats _ as -, because a CGI service reads both Once-Key and Once_Key as HTTP_ONCE_KEY. */
static ngx_uint_t
ngx_http_once_is_one_of(ngx_table_elt_t *h, ngx_str_t *names, ngx_uint_t count)
{
    size_t      k;
    ngx_uint_t  j;

    for (j = 0; j < count; j++) {
        for (k = 0; h->key.len == names[j].len && k < h->key.len; k++) {
            if (ngx_tolower(h->key.data[k]) != ngx_tolower(names[j].data[k])
                && !(h->key.data[k] == '_' && names[j].data[k] == '-'))
            {
                break;
            }
        }

        if (k == names[j].len) {
            return 1;
        }
    }

    return 0;
}

/* Makes a new list without these headers; nginx may hold pointers to elements of the old list, so it stays as it is. */
ngx_int_t
ngx_http_once_drop_headers(ngx_http_request_t *r, ngx_str_t *names, ngx_uint_t count)
{
    ngx_list_t               list;
    ngx_uint_t               found = 0;
    ngx_table_elt_t         *h, *copy;
    ngx_http_once_cursor_t   at = { &r->headers_in.headers.part, 0 };

    while ((h = ngx_http_once_next_header(&at)) != NULL) {
        found += ngx_http_once_is_one_of(h, names, count);
    }

    if (found == 0) {
        return NGX_OK;
    }

    if (ngx_list_init(&list, r->pool, 20, sizeof(ngx_table_elt_t)) != NGX_OK) {
        return NGX_ERROR;
    }

    at = (ngx_http_once_cursor_t){ &r->headers_in.headers.part, 0 };

    while ((h = ngx_http_once_next_header(&at)) != NULL) {
        if (!ngx_http_once_is_one_of(h, names, count)) {
            copy = ngx_list_push(&list);
            if (copy == NULL) {
                return NGX_ERROR;
            }
            *copy = *h;
        }
    }

    r->headers_in.headers = list;
    if (r->headers_in.headers.last == &list.part) {
        r->headers_in.headers.last = &r->headers_in.headers.part;
    }

    return NGX_OK;
}

void
ngx_http_once_add_line(struct once_buf *lines, const ngx_str_t *name, const ngx_str_t *value)
{
    once_buf_add(lines, once_span_of(name->data, name->len));
    once_buf_add(lines, ONCE_LIT(": "));
    once_buf_add(lines, once_span_of(value->data, value->len));
    once_buf_add(lines, ONCE_LIT("\r\n"));
}
