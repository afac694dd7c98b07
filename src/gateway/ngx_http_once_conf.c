/*
 * ngx_http_once_conf.c - directives; wrong values are refused with file and line.
 *
 * docs/nginx.md describes them. What does not combine: ngx_http_once_check.c.
 */
#include "ngx_http_once.h"

#include "core/json_pointer.h"
#include "core/resend.h"
#include "core/span.h"

#define NGX_HTTP_ONCE_SOCKET  "/run/once/once.sock"
/* of an answer: what is kept at most, and how much of it is in memory while it is withheld */
#define NGX_HTTP_ONCE_RESPONSE_MAX     (1024 * 1024)
#define NGX_HTTP_ONCE_RESPONSE_MEMORY  (64 * 1024)

static char *ngx_http_once_set_mode(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_once_set_daemon(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_once_set_name(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_once_set_methods(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_once_set_fingerprint(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_once_set_final(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_once_set_max_response(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_once_set_replay_headers(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_once_set_complete(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_once_set_pass(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_once_set_policy(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

static ngx_conf_enum_t  ngx_http_once_key_formats[] = {
    { ngx_string("lenient"), ONCE_KEY_LENIENT },
    { ngx_string("sf"), ONCE_KEY_STRICT },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_http_once_takeovers[] = {
    { ngx_string("escalate"), ONCE_TAKEOVER_ESCALATE },
    { ngx_string("rerun"), ONCE_TAKEOVER_RERUN },
    { ngx_string("probe"), ONCE_TAKEOVER_COMPLETER },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_http_once_store_downs[] = {
    { ngx_string("refuse"), NGX_HTTP_ONCE_REFUSE },
    { ngx_string("pass"), NGX_HTTP_ONCE_PASS },
    { ngx_null_string, 0 }
};

#define NGX_HTTP_ONCE_EVERYWHERE  (NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF)
#define ngx_http_once_command(name, args, set, field)                                                    \
    { ngx_string(name), NGX_HTTP_ONCE_EVERYWHERE|args, set, NGX_HTTP_LOC_CONF_OFFSET,                    \
      offsetof(ngx_http_once_loc_conf_t, field), NULL }
#define ngx_http_once_enum(name, field, values)                                                          \
    { ngx_string(name), NGX_HTTP_ONCE_EVERYWHERE|NGX_CONF_TAKE1, ngx_conf_set_enum_slot,                 \
      NGX_HTTP_LOC_CONF_OFFSET, offsetof(ngx_http_once_loc_conf_t, field), values }

ngx_command_t  ngx_http_once_commands[] = {
    ngx_http_once_command("once", NGX_CONF_TAKE1, ngx_http_once_set_mode, mode),
    ngx_http_once_command("once_daemon", NGX_CONF_TAKE1, ngx_http_once_set_daemon, daemon),
    ngx_http_once_command("once_tenant", NGX_CONF_TAKE1, ngx_http_once_set_tenant, tenant),
    ngx_http_once_command("once_key_header", NGX_CONF_TAKE1, ngx_http_once_set_name, key_header),
    ngx_http_once_enum("once_key_format", key_format, ngx_http_once_key_formats),
    ngx_http_once_command("once_key_natural", NGX_CONF_TAKE1, ngx_http_set_complex_value_slot, key_natural),
    ngx_http_once_command("once_methods", NGX_CONF_1MORE, ngx_http_once_set_methods, methods),
    ngx_http_once_command("once_fingerprint", NGX_CONF_1MORE, ngx_http_once_set_fingerprint, body),
    ngx_http_once_command("once_lease", NGX_CONF_TAKE1, ngx_http_once_set_duration, lease_ms),
    ngx_http_once_command("once_retention", NGX_CONF_TAKE1, ngx_http_once_set_duration, retention_ms),
    ngx_http_once_command("once_body_retention", NGX_CONF_TAKE1, ngx_http_once_set_duration, body_retention_ms),
    ngx_http_once_command("once_key_time", NGX_CONF_FLAG, ngx_conf_set_flag_slot, key_time),
    ngx_http_once_command("once_wait", NGX_CONF_TAKE1, ngx_http_once_set_duration, wait_ms),
    ngx_http_once_enum("once_takeover", takeover, ngx_http_once_takeovers),
    ngx_http_once_command("once_probe", NGX_CONF_TAKE12, ngx_http_once_set_probe, probe),
    ngx_http_once_command("once_final", NGX_CONF_1MORE, ngx_http_once_set_final, final),
    ngx_http_once_command("once_max_response", NGX_CONF_TAKE12, ngx_http_once_set_max_response, max_response),
    ngx_http_once_command("once_replay_headers", NGX_CONF_1MORE, ngx_http_once_set_replay_headers, replay_headers),
    ngx_http_once_command("once_forward", NGX_CONF_FLAG, ngx_conf_set_flag_slot, forward),
    ngx_http_once_command("once_intent", NGX_CONF_FLAG, ngx_conf_set_flag_slot, intent),
    ngx_http_once_command("once_complete", NGX_CONF_1MORE, ngx_http_once_set_complete, complete),
    ngx_http_once_command("once_route", NGX_CONF_TAKE1, ngx_http_once_set_route, route),
    ngx_http_once_enum("once_store_down", store_down, ngx_http_once_store_downs),
    ngx_http_once_command("once_trace", NGX_CONF_TAKE1, ngx_http_once_set_trace, trace),
    ngx_http_once_command("once_pass", NGX_CONF_TAKE1, ngx_http_once_set_pass, pass),

    { ngx_string("once_policy"), NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS, ngx_http_once_set_policy,
      NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    ngx_null_command
};

/* ---------------------------------------------------------------- directives */

char *
ngx_http_once_bad(ngx_conf_t *cf, ngx_str_t *value, const char *why)
{
    ngx_str_t  *args = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid value \"%V\" of \"%V\": %s", value, &args[0], why);
    return NGX_CONF_ERROR;
}

static char *
ngx_http_once_set_mode(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value = cf->args->elts;
    ngx_uint_t                 i;
    ngx_http_once_loc_conf_t  *olcf = conf;

    static const char  *const modes[] = { "off", "observe", "on", "required" };

    if (olcf->mode != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    for (i = 0; i < 4; i++) {
        if (ngx_strcmp(value[1].data, modes[i]) == 0) {
            olcf->mode = i;
            olcf->file = cf->conf_file->file.name.data;
            olcf->line = cf->conf_file->line;
            return NGX_CONF_OK;
        }
    }

    return ngx_http_once_bad(cf, &value[1], "it is off, observe, on or required");
}

static char *
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
        return ngx_http_once_bad(cf, &value[1], "the path of a unix socket has 1 to 107 bytes");
    }

    olcf->daemon = ngx_http_once_daemon_add(cf, ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module), &path);

    return olcf->daemon != NULL ? NGX_CONF_OK : NGX_CONF_ERROR;
}

ngx_uint_t
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

static char *
ngx_http_once_set_name(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value = cf->args->elts;
    ngx_http_once_loc_conf_t  *olcf = conf;

    if (olcf->key_header.data != NULL) {
        return "is duplicate";
    }

    if (!ngx_http_once_is_token(&value[1])) {
        return ngx_http_once_bad(cf, &value[1], "this is no header's name");
    }

    olcf->key_header = value[1];
    return NGX_CONF_OK;
}

static char *
ngx_http_once_set_methods(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value = cf->args->elts;
    ngx_uint_t                 i, j;
    ngx_http_once_loc_conf_t  *olcf = conf;

    static const struct { ngx_uint_t bit; const char *name; } known[] = {
        { NGX_HTTP_POST, "POST" }, { NGX_HTTP_PATCH, "PATCH" }, { NGX_HTTP_PUT, "PUT" }, { NGX_HTTP_DELETE, "DELETE" }
    };

    if (olcf->methods != 0) {
        return "is duplicate";
    }

    for (i = 1; i < cf->args->nelts; i++) {
        for (j = 0; j < 4 && ngx_strcmp(value[i].data, known[j].name) != 0; j++) { /* void */ }

        if (j == 4) {
            return ngx_http_once_bad(cf, &value[i], "keys are for POST, PATCH, PUT and DELETE");
        }

        olcf->methods |= known[j].bit;
    }

    return NGX_CONF_OK;
}

static char *
ngx_http_once_set_fingerprint(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_int_t                  rc;
    once_span                 *pointer, sorted;
    ngx_str_t                 *name, word, *value = cf->args->elts;
    ngx_uint_t                 i;
    struct once_error          err;
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
        word = value[i];

        if (ngx_strcmp(word.data, "exact") == 0) {
            olcf->body = NGX_HTTP_ONCE_BODY_EXACT;

        } else if (ngx_strcmp(word.data, "json") == 0) {
            olcf->body = NGX_HTTP_ONCE_BODY_JSON;

        } else if ((rc = ngx_http_once_set_credentials(cf, olcf, &word)) != NGX_DECLINED) {
            if (rc != NGX_OK) {
                return NGX_CONF_ERROR;
            }

        } else if (word.len > 7 && ngx_strncmp(word.data, "header=", 7) == 0) {
            word.data += 7;
            word.len -= 7;

            if (!ngx_http_once_is_token(&word)) {
                return ngx_http_once_bad(cf, &value[i], "this is no header's name");
            }

            name = ngx_array_push(olcf->headers);
            if (name == NULL) {
                return NGX_CONF_ERROR;
            }
            *name = word;

        } else if (word.len > 8 && ngx_strncmp(word.data, "exclude=", 8) == 0) {
            pointer = ngx_array_push(olcf->exclude);
            if (pointer == NULL) {
                return NGX_CONF_ERROR;
            }
            *pointer = once_span_of(word.data + 8, word.len - 8);

            if (once_json_sort_pointers(pointer, 1, &sorted, &err) != ONCE_OK) {
                return ngx_http_once_bad(cf, &value[i], err.text);
            }

        } else {
            return ngx_http_once_bad(cf, &value[i], "it is exact, json, header=NAME, exclude=/json/pointer, credentials, "
                                     "credential=NAME or credentials=none");
        }
    }

    if (olcf->headers->nelts > 32 || olcf->exclude->nelts > 32
        || (olcf->credentials != NULL && olcf->credentials->nelts > 80))
    {
        return "has more than 32 headers or pointers, or 80 credentials";
    }

    if (olcf->exclude->nelts > 0 && olcf->body == NGX_HTTP_ONCE_BODY_EXACT) {
        return "excludes members of JSON, and says exact";
    }

    return NGX_CONF_OK;
}

static void
ngx_http_once_final_range(u_char *final, ngx_uint_t from, ngx_uint_t to, u_char value)
{
    for ( /* void */ ; from <= to; from++) {
        final[from] = value;
    }
}

static void
ngx_http_once_final_default(u_char *final)
{
    size_t  i;

    static const ngx_uint_t  not_done[] = { 401, 403, 408, 409, 425, 429 };

    ngx_http_once_final_range(final, 200, 499, 1);

    for (i = 0; i < sizeof not_done / sizeof *not_done; i++) {
        final[not_done[i]] = 0;
    }
}

/* once_final all | 2xx 3xx 404 -409 ...: later words override earlier ones */
static char *
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

    olcf->final = ngx_pcalloc(cf->pool, NGX_HTTP_ONCE_STATUS_MAX);
    if (olcf->final == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {
        p = value[i].data;
        on = 1;

        if (ngx_strcmp(p, "all") == 0) {
            ngx_http_once_final_range(olcf->final, 200, 599, 1);
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
            ngx_http_once_final_range(olcf->final, n, n + 99, on);

        } else if (n >= 200 && n <= 599) {
            olcf->final[n] = on;

        } else {
            return ngx_http_once_bad(cf, &value[i], "it is all, default, 2xx to 5xx, a status, or one of these after -");
        }
    }

    return NGX_CONF_OK;
}

static char *
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
        return ngx_http_once_bad(cf, &value[1], "it is a size of at most 16m");
    }

    olcf->max_response = size;
    olcf->response_memory = NGX_HTTP_ONCE_RESPONSE_MEMORY;

    if (cf->args->nelts == 3) {
        memory = value[2];

        if (memory.len < 7 || ngx_strncmp(memory.data, "memory=", 7) != 0) {
            return ngx_http_once_bad(cf, &value[2], "it is memory=SIZE");
        }

        memory.data += 7;
        memory.len -= 7;
        size = ngx_parse_size(&memory);

        if (size == NGX_ERROR || size > ONCE_BODY_LEN_MAX) {
            return ngx_http_once_bad(cf, &value[2], "it is memory=SIZE, a size of at most 16m");
        }

        olcf->response_memory = size;
    }

    return NGX_CONF_OK;
}

/* What must never be given to another request than its own. */
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

/* Those that describe the answer. */
static ngx_int_t
ngx_http_once_usual_headers(ngx_array_t *headers)
{
    size_t      i;
    ngx_str_t  *name;

    static ngx_str_t  usual[] = {
        ngx_string("Content-Type"), ngx_string("Content-Encoding"), ngx_string("Content-Language"),
        ngx_string("Content-Disposition"), ngx_string("Content-Location"), ngx_string("Location"),
        ngx_string("ETag"), ngx_string("Last-Modified"), ngx_string("Link"), ngx_string("Preference-Applied")
    };

    for (i = 0; i < sizeof usual / sizeof *usual; i++) {
        name = ngx_array_push(headers);
        if (name == NULL) {
            return NGX_ERROR;
        }
        *name = usual[i];
    }

    return NGX_OK;
}

/* once_replay_headers [default] NAME... */
static char *
ngx_http_once_set_replay_headers(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *name, *value = cf->args->elts;
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
            if (ngx_http_once_usual_headers(olcf->replay_headers) != NGX_OK) {
                return NGX_CONF_ERROR;
            }
            continue;
        }

        if (!ngx_http_once_is_token(&value[i])) {
            return ngx_http_once_bad(cf, &value[i], "this is no header's name");
        }

        if (ngx_http_once_is_never_replayed(&value[i])) {
            return ngx_http_once_bad(cf, &value[i], "this header belongs to one answer only and is never replayed");
        }

        name = ngx_array_push(olcf->replay_headers);
        if (name == NULL) {
            return NGX_CONF_ERROR;
        }
        *name = value[i];
    }

    return NGX_CONF_OK;
}

/* once_complete off | NAME [identity] [header=NAME]... */
static char *
ngx_http_once_set_complete(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    once_span                  span;
    ngx_str_t                 *name, word, *value = cf->args->elts;
    ngx_uint_t                 i;
    ngx_http_once_loc_conf_t  *olcf = conf;

    if (olcf->complete.data != NULL) {
        return "is duplicate";
    }

    olcf->complete = value[1];

    if (ngx_strcmp(value[1].data, "off") == 0) {
        olcf->complete.len = 0;
        return cf->args->nelts == 2 ? NGX_CONF_OK : "is off, and says more";
    }

    if (!ngx_http_once_is_token(&value[1]) || value[1].len > ONCE_UPSTREAM_NAME_LEN_MAX) {
        return ngx_http_once_bad(cf, &value[1], "it is off, or the name that the daemon has for the upstream "
                                 "(once daemon --complete NAME=URL)");
    }

    olcf->complete_headers = ngx_array_create(cf->pool, 4, sizeof(ngx_str_t));
    if (olcf->complete_headers == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 2; i < cf->args->nelts; i++) {
        word = value[i];

        if (ngx_strcmp(word.data, "identity") == 0) {
            olcf->complete_identity = 1;
            continue;
        }

        if (word.len <= 7 || ngx_strncmp(word.data, "header=", 7) != 0) {
            return ngx_http_once_bad(cf, &value[i], "it is identity or header=NAME");
        }

        word.data += 7;
        word.len -= 7;
        span = once_span_of(word.data, word.len);

        if (!ngx_http_once_is_token(&word)) {
            return ngx_http_once_bad(cf, &value[i], "this is no header's name");
        }

        if (once_header_is_secret(span)) {
            return ngx_http_once_bad(cf, &value[i], "credentials are never stored: the daemon may send its own "
                                     "(identity, and once daemon --complete-identity)");
        }

        if (once_header_is_of_one_hop(span)) {
            return ngx_http_once_bad(cf, &value[i], "this header belongs to one request only and is never stored");
        }

        name = ngx_array_push(olcf->complete_headers);
        if (name == NULL) {
            return NGX_CONF_ERROR;
        }
        *name = word;
    }

    return NGX_CONF_OK;
}

static char *
ngx_http_once_set_pass(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value = cf->args->elts;
    ngx_http_once_loc_conf_t  *olcf = conf;

    if (olcf->pass.data != NULL) {
        return "is duplicate";
    }

    if (value[1].len < 2 || value[1].data[0] != '@') {
        return ngx_http_once_bad(cf, &value[1], "it is a named location, @NAME");
    }

    olcf->pass = value[1];
    return NGX_CONF_OK;
}

static char *
ngx_http_once_set_policy(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->handler != NULL) {
        return "cannot be where something else makes the content";
    }

    clcf->handler = ngx_http_once_policy_handler;
    return NGX_CONF_OK;
}

/* ---------------------------------------------------------------- configurations */

void *
ngx_http_once_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_once_main_conf_t  *omcf;

    omcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_once_main_conf_t));
    if (omcf == NULL
        || ngx_array_init(&omcf->daemons, cf->pool, 2, sizeof(ngx_http_once_daemon_t *)) != NGX_OK
        || ngx_array_init(&omcf->places, cf->pool, 8, sizeof(ngx_http_once_location_t)) != NGX_OK
        || ngx_array_init(&omcf->passes, cf->pool, 4, sizeof(ngx_http_once_redirect_t)) != NGX_OK
        || ngx_array_init(&omcf->hidings, cf->pool, 4, sizeof(ngx_http_once_redirect_t)) != NGX_OK
        || ngx_array_init(&omcf->upstreams, cf->pool, 8, sizeof(ngx_http_once_upstream_t)) != NGX_OK)
    {
        return NULL;
    }

    return omcf;
}

void *
ngx_http_once_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_once_loc_conf_t  *olcf;

    olcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_once_loc_conf_t));
    if (olcf == NULL) {
        return NULL;
    }

    olcf->mode = NGX_CONF_UNSET_UINT;
    olcf->daemon = NGX_CONF_UNSET_PTR;
    olcf->key_format = NGX_CONF_UNSET_UINT;
    olcf->body = NGX_CONF_UNSET_UINT;
    olcf->lease_ms = NGX_HTTP_ONCE_UNSET;
    olcf->retention_ms = NGX_HTTP_ONCE_UNSET;
    olcf->body_retention_ms = NGX_HTTP_ONCE_UNSET;
    olcf->key_time = NGX_CONF_UNSET;
    olcf->wait_ms = NGX_HTTP_ONCE_UNSET;
    olcf->takeover = NGX_CONF_UNSET_UINT;
    olcf->probe = NGX_CONF_UNSET_PTR;
    olcf->max_response = NGX_CONF_UNSET_SIZE;
    olcf->forward = NGX_CONF_UNSET;
    olcf->intent = NGX_CONF_UNSET;
    olcf->store_down = NGX_CONF_UNSET_UINT;
    olcf->trace = NGX_CONF_UNSET_UINT;

    return olcf;
}

static ngx_int_t
ngx_http_once_remember(ngx_conf_t *cf, ngx_http_once_loc_conf_t *olcf)
{
    ngx_http_once_location_t      *place;
    ngx_http_core_loc_conf_t   *clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    ngx_http_once_main_conf_t  *omcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module);

    if (olcf->mode == NGX_HTTP_ONCE_OFF || clcf->name.len == 0 || clcf->named || clcf->noname
        || (clcf->handler == NULL && olcf->pass.len == 0) || clcf->handler == ngx_http_once_policy_handler)
    {
        return NGX_OK;
    }

    place = ngx_array_push(&omcf->places);
    if (place == NULL) {
        return NGX_ERROR;
    }

    place->server = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    place->name = clcf->name;
    place->conf = olcf;

    return NGX_OK;
}

static void
ngx_http_once_merge_ms(int64_t *conf, int64_t prev, int64_t otherwise)
{
    if (*conf == NGX_HTTP_ONCE_UNSET) {
        *conf = prev != NGX_HTTP_ONCE_UNSET ? prev : otherwise;
    }
}

char *
ngx_http_once_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_str_t                  socket = ngx_string(NGX_HTTP_ONCE_SOCKET);
    ngx_uint_t                 said;
    ngx_http_once_loc_conf_t  *prev = parent;
    ngx_http_once_loc_conf_t  *conf = child;

    if (conf->mode == NGX_CONF_UNSET_UINT) {
        conf->file = prev->file;
        conf->line = prev->line;
    }

    ngx_conf_merge_uint_value(conf->mode, prev->mode, NGX_HTTP_ONCE_OFF);
    ngx_conf_merge_ptr_value(conf->daemon, prev->daemon, NULL);

    if (conf->tenant == NULL) {
        conf->tenant = prev->tenant;
        conf->tenant_single = prev->tenant_single;
    }

    ngx_conf_merge_str_value(conf->key_header, prev->key_header, "Idempotency-Key");
    ngx_conf_merge_uint_value(conf->key_format, prev->key_format, ONCE_KEY_LENIENT);

    if (conf->key_natural == NULL) {
        conf->key_natural = prev->key_natural;
    }

    if (conf->methods == 0) {
        conf->methods = prev->methods != 0 ? prev->methods : NGX_HTTP_POST|NGX_HTTP_PATCH;
    }

    if (conf->body == NGX_CONF_UNSET_UINT) {
        conf->body = prev->body != NGX_CONF_UNSET_UINT ? prev->body : NGX_HTTP_ONCE_BODY_AUTO;
        conf->headers = prev->headers;
        conf->exclude = prev->exclude;
    }

    /* who counts on them further out does not lose them by saying something else here */
    if (conf->credentials == NULL) {
        conf->credentials = prev->credentials;
    }

    ngx_http_once_merge_ms(&conf->lease_ms, prev->lease_ms, ONCE_LEASE_MS_DEFAULT);
    ngx_http_once_merge_ms(&conf->retention_ms, prev->retention_ms, ONCE_RETENTION_MS_DEFAULT);
    ngx_http_once_merge_ms(&conf->body_retention_ms, prev->body_retention_ms, 0);
    ngx_conf_merge_value(conf->key_time, prev->key_time, 1);
    ngx_http_once_merge_ms(&conf->wait_ms, prev->wait_ms, 0);
    said = conf->takeover != NGX_CONF_UNSET_UINT;
    ngx_conf_merge_uint_value(conf->takeover, prev->takeover, ONCE_TAKEOVER_ESCALATE);
    ngx_http_once_merge_probe(prev, conf, said);

    if (conf->final == NULL) {
        conf->final = prev->final;
    }

    if (conf->final == NULL) {
        conf->final = ngx_pcalloc(cf->pool, NGX_HTTP_ONCE_STATUS_MAX);
        if (conf->final == NULL) {
            return NGX_CONF_ERROR;
        }
        ngx_http_once_final_default(conf->final);
    }

    if (conf->max_response == NGX_CONF_UNSET_SIZE) {
        conf->max_response = prev->max_response != NGX_CONF_UNSET_SIZE ? prev->max_response : NGX_HTTP_ONCE_RESPONSE_MAX;
        conf->response_memory = prev->max_response != NGX_CONF_UNSET_SIZE ? prev->response_memory
                                                                          : NGX_HTTP_ONCE_RESPONSE_MEMORY;
    }

    if (conf->replay_headers == NULL) {
        conf->replay_headers = prev->replay_headers;
    }

    if (conf->replay_headers == NULL) {
        conf->replay_headers = ngx_array_create(cf->pool, 10, sizeof(ngx_str_t));
        if (conf->replay_headers == NULL || ngx_http_once_usual_headers(conf->replay_headers) != NGX_OK) {
            return NGX_CONF_ERROR;
        }
    }

    ngx_conf_merge_value(conf->forward, prev->forward, 1);
    ngx_conf_merge_value(conf->intent, prev->intent, 0);

    if (conf->complete.data == NULL) {
        conf->complete = prev->complete;
        conf->complete_headers = prev->complete_headers;
        conf->complete_identity = prev->complete_identity;
    }

    ngx_conf_merge_uint_value(conf->store_down, prev->store_down, NGX_HTTP_ONCE_REFUSE);
    ngx_conf_merge_uint_value(conf->trace, prev->trace, NGX_HTTP_ONCE_TRACE_OFF);

    ngx_http_once_merge_route(cf, prev, conf);

    /* once_pass is for the location it stands in, and its `if`s: the one it names would go to itself */
    if (((ngx_http_core_loc_conf_t *) ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module))->noname) {
        ngx_conf_merge_str_value(conf->pass, prev->pass, "");
    }

    if (conf->mode != NGX_HTTP_ONCE_OFF && conf->daemon == NULL) {
        conf->daemon = ngx_http_once_daemon_add(cf, ngx_http_conf_get_module_main_conf(cf, ngx_http_once_module),
                                                &socket);
        if (conf->daemon == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    if (ngx_http_once_remember(cf, conf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    return ngx_http_once_check(cf, conf);
}
