/*
 * ngx_http_once_forward.c - request headers: what the upstream is told about an attempt.
 *
 *     Once-Key             the child key of the call "upstream": the same on every attempt
 *     Once-Record          the record's name, 32 hex digits: with the fence, what the JSON API and SQL want to know
 *     Once-Fence           grows with every grant: a service can refuse older ones
 *     Once-Attempt         1 for the first
 *     Once-Recovery-Point  how far an earlier attempt came, where it said so
 *     Once-Checkpoint      what it kept there, as ":base64:" (RFC 9651), up to 4096 bytes of it
 */
#include "ngx_http_once.h"

#include "core/span.h"

#define NGX_HTTP_ONCE_NAMES  6

ngx_uint_t
ngx_http_once_find_header(ngx_http_request_t *r, ngx_str_t *name, ngx_str_t *value)
{
    ngx_uint_t        i, count = 0;
    ngx_list_part_t  *part = &r->headers_in.headers.part;
    ngx_table_elt_t  *h = part->elts;

    for (i = 0; /* void */; i++) {
        if (i >= part->nelts) {
            if (part->next == NULL) {
                break;
            }
            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (h[i].key.len == name->len && ngx_strncasecmp(h[i].key.data, name->data, name->len) == 0) {
            if (count++ == 0 && value != NULL) {
                *value = h[i].value;
            }
        }
    }

    return count;
}

/* a field name, with what nginx knows of each */
typedef struct {
    ngx_str_t                  name;
    u_char                    *lowcase;
    ngx_uint_t                 hash;     /* of that; 0: not made yet */
} ngx_http_once_name_t;

static ngx_http_once_name_t  ngx_http_once_key_name = {
    ngx_string("Once-Key"), (u_char *) "once-key", 0
};
static ngx_http_once_name_t  ngx_http_once_record_name = {
    ngx_string("Once-Record"), (u_char *) "once-record", 0
};
static ngx_http_once_name_t  ngx_http_once_fence_name = {
    ngx_string("Once-Fence"), (u_char *) "once-fence", 0
};
static ngx_http_once_name_t  ngx_http_once_attempt_name = {
    ngx_string("Once-Attempt"), (u_char *) "once-attempt", 0
};
static ngx_http_once_name_t  ngx_http_once_point_name = {
    ngx_string("Once-Recovery-Point"), (u_char *) "once-recovery-point", 0
};
static ngx_http_once_name_t  ngx_http_once_checkpoint_name = {
    ngx_string("Once-Checkpoint"), (u_char *) "once-checkpoint", 0
};

static ngx_int_t
ngx_http_once_push_request_header(ngx_list_t *list, ngx_pool_t *pool, ngx_http_once_name_t *name,
    const u_char *value, size_t len)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(list);
    if (h == NULL) {
        return NGX_ERROR;
    }

    if (name->hash == 0) {
        name->hash = ngx_hash_key(name->lowcase, name->name.len);
    }

    h->key = name->name;
    h->lowcase_key = name->lowcase;
    h->hash = name->hash;
    h->value.data = ngx_pnalloc(pool, len + 1);
    if (h->value.data == NULL) {
        return NGX_ERROR;
    }

    h->value.len = len;
    *ngx_cpymem(h->value.data, value, len) = '\0';
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif

    return NGX_OK;
}

/* Also as a service may read it that gets its header as variables (CGI): HTTP_ONCE_KEY is Once_Key, too. */
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

/* The list anew without these: elements of the old one may be pointed to, they stay where they are. */
ngx_int_t
ngx_http_once_drop_headers(ngx_http_request_t *r, ngx_str_t *names, ngx_uint_t count)
{
    ngx_list_t        list;
    ngx_uint_t        i, found = 0;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h, *copy;

    for (part = &r->headers_in.headers.part; part != NULL; part = part->next) {
        for (i = 0, h = part->elts; i < part->nelts; i++) {
            found += ngx_http_once_is_one_of(&h[i], names, count);
        }
    }

    if (found == 0) {
        return NGX_OK;
    }

    if (ngx_list_init(&list, r->pool, 20, sizeof(ngx_table_elt_t)) != NGX_OK) {
        return NGX_ERROR;
    }

    part = &r->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */; i++) {
        if (i >= part->nelts) {
            if (part->next == NULL) {
                break;
            }
            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (!ngx_http_once_is_one_of(&h[i], names, count)) {
            copy = ngx_list_push(&list);
            if (copy == NULL) {
                return NGX_ERROR;
            }
            *copy = h[i];
        }
    }

    r->headers_in.headers = list;
    if (r->headers_in.headers.last == &list.part) {
        r->headers_in.headers.last = &r->headers_in.headers.part;
    }

    return NGX_OK;
}

/* Those of the client that look like ours are left out: the upstream may rely on them. */
ngx_int_t
ngx_http_once_strip_headers(ngx_http_request_t *r)
{
    static ngx_str_t  names[NGX_HTTP_ONCE_NAMES] = {
        ngx_string("Once-Key"), ngx_string("Once-Record"), ngx_string("Once-Fence"),
        ngx_string("Once-Attempt"), ngx_string("Once-Recovery-Point"), ngx_string("Once-Checkpoint")
    };

    return ngx_http_once_drop_headers(r, names, NGX_HTTP_ONCE_NAMES);
}

static ngx_int_t
ngx_http_once_push_checkpoint(ngx_list_t *list, ngx_pool_t *pool, once_span checkpoint)
{
    u_char     *text;
    ngx_str_t   plain, coded;

    plain.data = (u_char *) (uintptr_t) checkpoint.ptr;
    plain.len = checkpoint.len;

    text = ngx_pnalloc(pool, ngx_base64_encoded_length(plain.len) + 2);
    if (text == NULL) {
        return NGX_ERROR;
    }

    text[0] = ':';
    coded.data = text + 1;
    ngx_encode_base64(&coded, &plain);
    text[coded.len + 1] = ':';

    return ngx_http_once_push_request_header(list, pool, &ngx_http_once_checkpoint_name, text, coded.len + 2);
}

void
ngx_http_once_child_key(ngx_http_once_ctx_t *ctx, u_char text[ONCE_CHILD_KEY_LEN])
{
    u_char  mac[ONCE_MAC_LEN];

    once_mac_parts(ngx_http_once_daemon_secret(ctx->conf->daemon),
                   (once_span[]){ ONCE_LIT("once child 1"), once_span_of(ctx->grant.record, 16),
                                  ONCE_LIT("upstream") }, 3, mac);
    ngx_hex_dump(text, mac, ONCE_CHILD_KEY_LEN / 2);
}

ngx_int_t
ngx_http_once_forward_headers(ngx_http_once_ctx_t *ctx)
{
    u_char               text[2 * ONCE_MAC_LEN];
    ngx_list_t          *list;
    ngx_http_request_t  *r = ctx->request;
    struct once_record  *record = &ctx->reply.record;

    list = &r->headers_in.headers;

    ngx_http_once_child_key(ctx, text);

    if (ngx_http_once_push_request_header(list, r->pool, &ngx_http_once_key_name, text, ONCE_CHILD_KEY_LEN) != NGX_OK
        || ngx_http_once_push_request_header(list, r->pool, &ngx_http_once_record_name, text,
                                             ngx_hex_dump(text, ctx->grant.record, sizeof(ctx->grant.record))
                                             - text) != NGX_OK
        || ngx_http_once_push_request_header(list, r->pool, &ngx_http_once_fence_name, text,
                                             ngx_sprintf(text, "%uL", ctx->grant.fence) - text) != NGX_OK
        || ngx_http_once_push_request_header(list, r->pool, &ngx_http_once_attempt_name, text,
                                             ngx_sprintf(text, "%uD", record->attempt) - text) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (once_span_starts(record->recovery_point, ONCE_LIT("once:"))) {
        return NGX_OK;  /* between the gateway and the store */
    }

    if (record->checkpoint.len > 0 && ngx_http_once_push_checkpoint(list, r->pool, record->checkpoint) != NGX_OK) {
        return NGX_ERROR;
    }

    if (record->recovery_point.len > 0
        && ngx_http_once_push_request_header(list, r->pool, &ngx_http_once_point_name, record->recovery_point.ptr,
                                             record->recovery_point.len) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}
