/*
 * ngx_http_once_directives.c - values of directives; invalid ones are refused with file and line.
 */
#include "ngx_http_once.h"

#include "core/json/pointer.h"
#include "core/http/resend.h"
#include "core/span.h"

const char  *const ngx_http_once_modes[4] = { "off", "observe", "on", "required" };
const ngx_http_once_method_t  ngx_http_once_methods[4] = {
    { NGX_HTTP_POST, "POST" }, { NGX_HTTP_PATCH, "PATCH" }, { NGX_HTTP_PUT, "PUT" }, { NGX_HTTP_DELETE, "DELETE" }
};

char *
ngx_http_once_invalid(ngx_conf_t *cf, ngx_str_t *value, const char *why)
{
    ngx_str_t  *args = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid value \"%V\" of \"%V\": %s", value, &args[0], why);
    return NGX_CONF_ERROR;
}

ngx_http_complex_value_t *
ngx_http_once_compile(ngx_conf_t *cf, ngx_str_t *value)
{
    ngx_http_compile_complex_value_t  ccv;

    ngx_memzero(&ccv, sizeof(ccv));
    ccv.cf = cf;
    ccv.value = value;
    ccv.complex_value = ngx_pcalloc(cf->pool, sizeof(ngx_http_complex_value_t));

    return ccv.complex_value != NULL && ngx_http_compile_complex_value(&ccv) == NGX_OK ? ccv.complex_value : NULL;
}

char *
ngx_http_once_set_mode(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value = cf->args->elts;
    ngx_uint_t                 i;
    ngx_http_once_loc_conf_t  *olcf = conf;

    if (olcf->mode != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    for (i = 0; i < 4; i++) {
        if (ngx_strcmp(value[1].data, ngx_http_once_modes[i]) == 0) {
            olcf->mode = i;
            olcf->file = cf->conf_file->file.name.data;
            olcf->line = cf->conf_file->line;
            return NGX_CONF_OK;
        }
    }

    return ngx_http_once_invalid(cf, &value[1], "must be off, observe, on or required");
}

char *
ngx_http_once_set_daemon(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                  path, *value = cf->args->elts;
    ngx_http_once_loc_conf_t  *olcf = conf;

    if (olcf->daemon != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    path = value[1];

    if (path.len > 5 && ngx_strncmp(path.data, "unix:", 5) == 0) {
        path.data += 5;
        path.len -= 5;
    }

    if (ngx_conf_full_name(cf->cycle, &path, 0) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (path.len == 0 || path.len >= sizeof(((struct sockaddr_un *) 0)->sun_path)) {
        return ngx_http_once_invalid(cf, &value[1], "the path of a unix socket must have 1 to 107 bytes");
    }

    olcf->daemon = ngx_http_once_daemon_add(cf, ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module), &path);

    return olcf->daemon != NULL ? NGX_CONF_OK : NGX_CONF_ERROR;
}

static ngx_uint_t
ngx_http_once_is_token(ngx_str_t *name)
{
    size_t  i;

    for (i = 0; i < name->len; i++) {
        if (name->data[i] <= 0x20 || name->data[i] >= 0x7f
            || ngx_strchr("\"(),/:;<=>?@[\\]{}", name->data[i]) != NULL)
        {
            return 0;
        }
    }

    return name->len > 0 && name->len <= 200;
}

char *
ngx_http_once_set_name(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value = cf->args->elts;
    ngx_http_once_loc_conf_t  *olcf = conf;

    if (olcf->key_header.data != NULL) {
        return "is duplicate";
    }

    if (!ngx_http_once_is_token(&value[1])) {
        return ngx_http_once_invalid(cf, &value[1], "not a valid header name");
    }

    olcf->key_header = value[1];
    return NGX_CONF_OK;
}

char *
ngx_http_once_set_methods(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value = cf->args->elts;
    ngx_uint_t                 i, j;
    ngx_http_once_loc_conf_t  *olcf = conf;

    if (olcf->methods != 0) {
        return "is duplicate";
    }

    for (i = 1; i < cf->args->nelts; i++) {
        for (j = 0; j < 4 && ngx_strcmp(value[i].data, ngx_http_once_methods[j].name) != 0; j++) { /* void */ }

        if (j == 4) {
            return ngx_http_once_invalid(cf, &value[i], "must be POST, PATCH, PUT or DELETE");
        }

        olcf->methods |= ngx_http_once_methods[j].bit;
    }

    return NGX_CONF_OK;
}

char *
ngx_http_once_add_name(ngx_conf_t *cf, ngx_array_t *names, ngx_str_t *value, size_t skip)
{
    ngx_str_t  *name, word = { value->len - skip, value->data + skip };

    if (!ngx_http_once_is_token(&word)) {
        return ngx_http_once_invalid(cf, value, "not a valid header name");
    }

    name = ngx_array_push(names);
    if (name == NULL) {
        return NGX_CONF_ERROR;
    }

    *name = word;
    return NGX_CONF_OK;
}

/* One word of once_fingerprint. */
static char *
ngx_http_once_add_fingerprint(ngx_conf_t *cf, ngx_http_once_loc_conf_t *olcf, ngx_str_t *word)
{
    ngx_int_t           rc;
    once_span          *pointer, sorted;
    struct once_error   err;

    if (ngx_strcmp(word->data, "exact") == 0) {
        olcf->body = NGX_HTTP_ONCE_BODY_EXACT;
        return NGX_CONF_OK;
    }

    if (ngx_strcmp(word->data, "json") == 0) {
        olcf->body = NGX_HTTP_ONCE_BODY_JSON;
        return NGX_CONF_OK;
    }

    rc = ngx_http_once_set_credentials(cf, olcf, word);
    if (rc != NGX_DECLINED) {
        return rc == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
    }

    if (word->len > 7 && ngx_strncmp(word->data, "header=", 7) == 0) {
        return ngx_http_once_add_name(cf, olcf->headers, word, 7);
    }

    if (word->len <= 8 || ngx_strncmp(word->data, "exclude=", 8) != 0) {
        return ngx_http_once_invalid(cf, word, "must be exact, json, header=NAME, exclude=/json/pointer, credentials, "
                                 "credential=NAME or credentials=none");
    }

    pointer = ngx_array_push(olcf->exclude);
    if (pointer == NULL) {
        return NGX_CONF_ERROR;
    }

    *pointer = once_span_of(word->data + 8, word->len - 8);

    return once_json_sort_pointers(pointer, 1, &sorted, &err) == ONCE_OK ? NGX_CONF_OK
                                                                         : ngx_http_once_invalid(cf, word, err.text);
}

char *
ngx_http_once_set_fingerprint(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value = cf->args->elts;
    ngx_uint_t                 i;
    ngx_http_once_loc_conf_t  *olcf = conf;

    if (olcf->body != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    olcf->body = NGX_HTTP_ONCE_BODY_AUTO;
    olcf->headers = ngx_array_create(cf->pool, 4, sizeof(ngx_str_t));
    olcf->exclude = ngx_array_create(cf->pool, 4, sizeof(once_span));
    if (olcf->headers == NULL || olcf->exclude == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {
        if (ngx_http_once_add_fingerprint(cf, olcf, &value[i]) != NGX_CONF_OK) {
            return NGX_CONF_ERROR;
        }
    }

    if (olcf->headers->nelts > 32 || olcf->exclude->nelts > 32
        || (olcf->credentials != NULL && olcf->credentials->nelts > 80))
    {
        return "has more than 32 headers or pointers, or 80 credentials";
    }

    if (olcf->exclude->nelts > 0 && olcf->body == NGX_HTTP_ONCE_BODY_EXACT) {
        return "combines exclude= with exact, which has no members";
    }

    return NGX_CONF_OK;
}

void
ngx_http_once_final_default(u_char *final)
{
    size_t  i;

    static const ngx_uint_t  not_done[] = { 401, 403, 408, 409, 425, 429 };

    ngx_memset(final + 200, 1, 300);

    for (i = 0; i < sizeof not_done / sizeof *not_done; i++) {
        final[not_done[i]] = 0;
    }
}

/* once_final all | 2xx 3xx 404 -409 ...: later words override earlier ones */
char *
ngx_http_once_set_final(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    u_char                    *p, on;
    ngx_int_t                  n;
    ngx_str_t                 *value = cf->args->elts;
    ngx_uint_t                 i;
    ngx_http_once_loc_conf_t  *olcf = conf;

    if (olcf->final != NULL) {
        return "is duplicate";
    }

    olcf->final = ngx_pcalloc(cf->pool, NGX_HTTP_ONCE_HTTP_STATUS_MAX);
    if (olcf->final == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {
        p = value[i].data;
        on = 1;

        if (ngx_strcmp(p, "all") == 0) {
            ngx_memset(olcf->final + 200, 1, 400);
            continue;
        }

        if (ngx_strcmp(p, "default") == 0) {
            ngx_http_once_final_default(olcf->final);
            continue;
        }

        if (*p == '-') {
            p++;
            on = 0;
        }

        n = ngx_strlen(p) == 3 ? ngx_atoi(p, 3) : NGX_ERROR;

        if (ngx_strlen(p) == 3 && p[0] >= '2' && p[0] <= '5' && p[1] == 'x' && p[2] == 'x') {
            n = (p[0] - '0') * 100;
            ngx_memset(olcf->final + n, on, 100);

        } else if (n >= 200 && n <= 599) {
            olcf->final[n] = on;

        } else {
            return ngx_http_once_invalid(cf, &value[i], "must be all, default, 2xx to 5xx, a status, or - and one of the latter two");
        }
    }

    return NGX_CONF_OK;
}

char *
ngx_http_once_set_max_response(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ssize_t                    size;
    ngx_str_t                 *value = cf->args->elts, memory;
    ngx_http_once_loc_conf_t  *olcf = conf;

    if (olcf->max_response != NGX_CONF_UNSET_SIZE) {
        return "is duplicate";
    }

    size = ngx_parse_size(&value[1]);

    if (size == NGX_ERROR || size > ONCE_BODY_LEN_MAX) {
        return ngx_http_once_invalid(cf, &value[1], "must be a size of at most 16m");
    }

    olcf->max_response = size;
    olcf->response_memory = NGX_HTTP_ONCE_RESPONSE_MEMORY;

    if (cf->args->nelts == 3) {
        memory.data = value[2].data + 7;
        memory.len = value[2].len - 7;
        size = value[2].len > 7 && ngx_strncmp(value[2].data, "memory=", 7) == 0 ? ngx_parse_size(&memory) : NGX_ERROR;

        if (size == NGX_ERROR || size > ONCE_BODY_LEN_MAX) {
            return ngx_http_once_invalid(cf, &value[2], "must be memory=SIZE with at most 16m");
        }

        olcf->response_memory = size;
    }

    return NGX_CONF_OK;
}

/* Headers that belong to one client or one connection. */
static ngx_uint_t
ngx_http_once_is_never_replayed(ngx_str_t *name)
{
    size_t  i;

    static const char  *const never[] = {
        "Set-Cookie", "Set-Cookie2", "WWW-Authenticate", "Proxy-Authenticate", "Authorization",
        "Proxy-Authorization", "Authentication-Info", "Proxy-Authentication-Info", "Connection", "Keep-Alive",
        "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Date", "Age",
        "Server", "Retry-After", "Clear-Site-Data", "Idempotency-Replayed", "Idempotency-Expires",
        "Idempotency-Outcome", "Once-Tier"
    };

    for (i = 0; i < sizeof never / sizeof *never; i++) {
        if (ngx_strcasecmp(name->data, (u_char *) never[i]) == 0) {
            return 1;
        }
    }

    return once_header_is_secret(once_span_of(name->data, name->len))
           || ngx_strncasecmp(name->data, (u_char *) "Access-Control-", 15) == 0
           || ngx_strncasecmp(name->data, (u_char *) "RateLimit", 9) == 0
           || ngx_strncasecmp(name->data, (u_char *) "X-RateLimit", 11) == 0;
}

/* The headers that describe the answer. */
static ngx_str_t  ngx_http_once_default_names[] = {
    ngx_string("Content-Type"), ngx_string("Content-Encoding"), ngx_string("Content-Language"),
    ngx_string("Content-Disposition"), ngx_string("Content-Location"), ngx_string("Location"),
    ngx_string("ETag"), ngx_string("Last-Modified"), ngx_string("Link"), ngx_string("Preference-Applied")
};
ngx_array_t  ngx_http_once_default_headers = { ngx_http_once_default_names, 10, sizeof(ngx_str_t), 10, NULL };

/* once_replay_headers [default] NAME... */
char *
ngx_http_once_set_replay_headers(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *names, *value = cf->args->elts;
    ngx_uint_t                 i;
    ngx_http_once_loc_conf_t  *olcf = conf;

    if (olcf->replay_headers != NULL) {
        return "is duplicate";
    }

    olcf->replay_headers = ngx_array_create(cf->pool, cf->args->nelts, sizeof(ngx_str_t));
    if (olcf->replay_headers == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {
        if (ngx_strcmp(value[i].data, "default") == 0) {
            names = ngx_array_push_n(olcf->replay_headers, 10);
            if (names == NULL) {
                return NGX_CONF_ERROR;
            }
            ngx_memcpy(names, ngx_http_once_default_names, sizeof(ngx_http_once_default_names));
            continue;
        }

        if (ngx_http_once_is_never_replayed(&value[i])) {
            return ngx_http_once_invalid(cf, &value[i], "this header is valid for one answer only and is never replayed");
        }

        if (ngx_http_once_add_name(cf, olcf->replay_headers, &value[i], 0) != NGX_CONF_OK) {
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}

/* once_complete off | NAME [identity] [header=NAME]... */
char *
ngx_http_once_set_complete(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    once_span                  name;
    ngx_str_t                 *value = cf->args->elts;
    ngx_uint_t                 i;
    ngx_http_once_loc_conf_t  *olcf = conf;

    if (olcf->complete.data != NULL) {
        return "is duplicate";
    }

    olcf->complete = value[1];

    if (ngx_strcmp(value[1].data, "off") == 0) {
        olcf->complete.len = 0;
        return cf->args->nelts == 2 ? NGX_CONF_OK : "has further arguments after off";
    }

    if (!ngx_http_once_is_token(&value[1]) || value[1].len > ONCE_UPSTREAM_NAME_LEN_MAX) {
        return ngx_http_once_invalid(cf, &value[1], "must be off, or the daemon's name for the upstream "
                                 "(once daemon --complete NAME=URL)");
    }

    olcf->complete_headers = ngx_array_create(cf->pool, 4, sizeof(ngx_str_t));
    if (olcf->complete_headers == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 2; i < cf->args->nelts; i++) {
        if (ngx_strcmp(value[i].data, "identity") == 0) {
            olcf->complete_identity = 1;
            continue;
        }

        if (value[i].len <= 7 || ngx_strncmp(value[i].data, "header=", 7) != 0) {
            return ngx_http_once_invalid(cf, &value[i], "must be identity or header=NAME");
        }

        name = once_span_of(value[i].data + 7, value[i].len - 7);

        if (once_header_is_secret(name)) {
            return ngx_http_once_invalid(cf, &value[i], "credentials are never stored; the daemon can send its own "
                                     "(identity, and once daemon --complete-identity)");
        }

        if (once_header_is_of_one_hop(name)) {
            return ngx_http_once_invalid(cf, &value[i], "this header is valid for one request only and is never stored");
        }

        if (ngx_http_once_add_name(cf, olcf->complete_headers, &value[i], 7) != NGX_CONF_OK) {
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}

char *
ngx_http_once_set_pass(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value = cf->args->elts;
    ngx_http_once_loc_conf_t  *olcf = conf;

    if (olcf->pass.data != NULL) {
        return "is duplicate";
    }

    if (value[1].len < 2 || value[1].data[0] != '@') {
        return ngx_http_once_invalid(cf, &value[1], "must be a named location, @NAME");
    }

    olcf->pass = value[1];
    return NGX_CONF_OK;
}

char *
ngx_http_once_set_policy(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->handler != NULL) {
        return "is in a location that has another content handler";
    }

    clcf->handler = ngx_http_once_policy_handler;
    return NGX_CONF_OK;
}
