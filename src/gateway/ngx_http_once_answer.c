/*
 * ngx_http_once_answer.c - problem documents, replays, the policy document.
 *
 * Problem documents are application/problem+json (RFC 9457) with a stable `type` and `code`; `retryable` says whether
 * a retry makes sense. error_page does not replace them: they are part of the protocol. Three titles are
 * those of the IETF draft. `error` is for Stripe's SDK for Node, which ignores the status and looks only for
 * that member: without it, it would take a refusal for a charge.
 */
#include "ngx_http_once.h"

#include "core/span.h"

/* seconds: most operations end sooner than their lease */
#define NGX_HTTP_ONCE_RETRY_AFTER_MAX  5
#define NGX_HTTP_ONCE_POLICY_LEN_MAX   (4 << 20)

static ngx_int_t
ngx_http_once_add_expiry(ngx_http_request_t *r, once_time at)
{
    static u_char  text[sizeof("Mon, 28 Sep 1970 06:00:00 GMT")];  /* of the last second formatted */
    static size_t  len;
    static time_t  second;

    if (at == 0) {
        return NGX_OK;
    }

    if (at == ONCE_NEVER) {
        return ngx_http_once_add_header(r, "Idempotency-Expires", (u_char *) "never", 5);
    }

    if (len == 0 || second != (time_t) (at / 1000)) {  /* most answers given in one second expire in the same second */
        second = (time_t) (at / 1000);
        len = ngx_http_time(text, second) - text;
    }

    return ngx_http_once_add_header(r, "Idempotency-Expires", text, len);
}

ngx_int_t
ngx_http_once_add_key_headers(ngx_http_once_ctx_t *ctx)
{
    if (ngx_http_once_daemon_best_effort(ctx->conf->daemon)
        && ngx_http_once_add_header(ctx->request, "Once-Tier", (u_char *) "best-effort", 11) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_once_add_expiry(ctx->request, ctx->expires_at);
}

/* Sends header and body; the body lives as long as the request. */
static ngx_int_t
ngx_http_once_send(ngx_http_request_t *r, u_char *body, size_t len)
{
    ngx_int_t    rc;
    ngx_buf_t   *b;
    ngx_chain_t  out;

    r->err_status = 0;
    r->disable_not_modified = 1;
    r->headers_out.content_length_n = len;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_ERROR;
    }

    if (len > 0) {
        b->start = b->pos = body;
        b->end = b->last = body + len;
        b->memory = 1;
    }

    b->last_buf = 1;
    b->last_in_chain = 1;
    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}

/* ---------------------------------------------------------------- problems */

static void
ngx_http_once_json_string(struct once_buf *json, once_span text)
{
    size_t  i;

    once_buf_add_byte(json, '"');

    for (i = 0; i < text.len; i++) {
        if (text.ptr[i] == '"' || text.ptr[i] == '\\') {
            once_buf_addf(json, "\\%c", text.ptr[i]);

        } else if (text.ptr[i] < 0x20 || text.ptr[i] >= 0x7f) {
            once_buf_addf(json, "\\u%04x", text.ptr[i]);

        } else {
            once_buf_add_byte(json, text.ptr[i]);
        }
    }

    once_buf_add_byte(json, '"');
}

/* Moves the text into the request's pool. */
static u_char *
ngx_http_once_finish_json(ngx_http_request_t *r, struct once_buf *json, size_t *len)
{
    u_char  *body = NULL;

    if (json->result == ONCE_OK) {
        body = ngx_pnalloc(r->pool, json->len);
        if (body != NULL) {
            ngx_memcpy(body, json->ptr, json->len);
            *len = json->len;
        }
    }

    once_buf_release(json);
    return body;
}

ngx_int_t
ngx_http_once_send_problem(ngx_http_request_t *r, const ngx_http_once_problem_t *problem)
{
    size_t                len;
    u_char               *body, seconds[NGX_INT_T_LEN];
    struct once_buf       json;
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r);

    static const u_char  link[] = "</.well-known/idempotency>; rel=\"describedby\"; type=\"application/json\"";

    once_buf_init(&json, 8192);
    once_buf_addf(&json, "{\"type\":\"urn:once:problem:%s\",\"title\":\"%s\",\"status\":%u,\"code\":\"%s\","
                  "\"retryable\":%s,\"detail\":", problem->code, problem->title, (unsigned) problem->status,
                  problem->code, problem->retryable ? "true" : "false");
    ngx_http_once_json_string(&json, once_span_str(problem->detail));
    once_buf_addf(&json, ",\"documentation\":\"/.well-known/idempotency\",\"error\":{\"type\":\"%s\",\"code\":\"%s\",\"message\":",
                  problem->status < NGX_HTTP_INTERNAL_SERVER_ERROR ? "idempotency_error" : "api_error", problem->code);
    ngx_http_once_json_string(&json, once_span_str(problem->detail));
    once_buf_addf(&json, "}}\n");

    body = ngx_http_once_finish_json(r, &json, &len);
    if (body == NULL) {
        return NGX_ERROR;
    }

    r->headers_out.status = problem->status;
    r->headers_out.status_line.len = 0;

    if (problem->status == 422) {  /* nginx has no reason phrase for 422 */
        ngx_str_set(&r->headers_out.status_line, "422 Unprocessable Content");
    }

    ngx_str_set(&r->headers_out.content_type, "application/problem+json");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;
    r->headers_out.charset.len = 0;

    if (ngx_http_once_add_header(r, "Content-Language", (u_char *) "en", 2) != NGX_OK
        || ngx_http_once_add_header(r, "Cache-Control", (u_char *) "no-store", 8) != NGX_OK
        || ngx_http_once_add_header(r, "Link", link, sizeof(link) - 1) != NGX_OK
        || (ctx != NULL && ngx_http_once_add_key_headers(ctx) != NGX_OK))
    {
        return NGX_ERROR;
    }

    if (problem->retry_after > 0
        && ngx_http_once_add_header(r, "Retry-After", seconds,
                                    ngx_sprintf(seconds, "%ui", problem->retry_after) - seconds) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_once_send(r, body, len);
}

ngx_int_t
ngx_http_once_send_in_progress(ngx_http_request_t *r, int64_t retry_after_ms)
{
    ngx_uint_t            seconds;
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r);

    seconds = retry_after_ms > 0 ? (ngx_uint_t) ((retry_after_ms + 999) / 1000) : 1;
    seconds = ngx_min(seconds, NGX_HTTP_ONCE_RETRY_AFTER_MAX);

    if (ctx != NULL) {
        /* at the earliest: the retention begins when the operation ends */
        ctx->expires_at = ctx->conf->retention_ms == ONCE_NEVER
                          ? ONCE_NEVER : (once_time) ngx_time() * 1000 + ctx->conf->retention_ms;
    }

    return ngx_http_once_send_problem(r, &(ngx_http_once_problem_t){
        NGX_HTTP_CONFLICT, "in-progress", "A request is outstanding for this Idempotency-Key",
        "the same request is being executed; retry later to get its answer", 1, seconds });
}

/* Did the service answer, without saying what became of the operation? 502 and 504 are also stored if it did not answer. */
static ngx_uint_t
ngx_http_once_was_answered(const struct once_record *record)
{
    return record->headers.len > 0 || record->body.len > 0 || record->body_dropped
           || (record->status > 0 && record->status != NGX_HTTP_BAD_GATEWAY
               && record->status != NGX_HTTP_GATEWAY_TIME_OUT);
}

ngx_int_t
ngx_http_once_send_unknown(ngx_http_request_t *r, const struct once_record *record)
{
    char                  detail[256];
    ngx_uint_t            status = record->status;
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r);

    static const char  then[] = "it is not sent again. An operator must find out and resolve the key";

    if (ctx != NULL) {
        ctx->expires_at = ONCE_NEVER;  /* until a person resolves it */
    }

    if (status < 500 || status >= NGX_HTTP_ONCE_HTTP_STATUS_MAX) {
        status = NGX_HTTP_BAD_GATEWAY;
    }

    if (ngx_http_once_add_header(r, "Idempotency-Outcome", (u_char *) "unknown", 7) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_http_once_was_answered(record)) {
        snprintf(detail, sizeof detail, "the service answered %d, which does not say whether it was executed; %s",
                 (int) record->status, then);

    } else {
        snprintf(detail, sizeof detail, "%s; %s",
                 record->status == 0 ? "the process that executed it stopped before it recorded the outcome"
                                     : "the request was sent to the service and no complete answer came back", then);
    }

    return ngx_http_once_send_problem(r, &(ngx_http_once_problem_t){
        status, "outcome-unknown", "It is unknown whether this was executed", detail, 0, 0 });
}

ngx_int_t
ngx_http_once_send_store_down(ngx_http_request_t *r, const char *detail)
{
    return ngx_http_once_send_problem(r, &(ngx_http_once_problem_t){
        NGX_HTTP_SERVICE_UNAVAILABLE, "store-unavailable", "Keys cannot be checked at the moment", detail, 1, 1 });
}

/* once_store_down does not apply: passing the request on would be a way around the quota. */
ngx_int_t
ngx_http_once_send_quota(ngx_http_request_t *r, const char *detail)
{
    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0, "once: %s", detail);  /* INFO: must not fill the log */

    return ngx_http_once_send_problem(r, &(ngx_http_once_problem_t){
        429, "quota-exceeded", "The caller has used up its quota", detail, 1,
        NGX_HTTP_ONCE_RETRY_AFTER_MAX });
}

/* ---------------------------------------------------------------- replays */

/* Reads charset from the type, as nginx does with an upstream's answer, so that filters (charset) treat replays alike. */
static void
ngx_http_once_set_replayed_type(ngx_http_request_t *r, once_span value)
{
    once_span   left = value, before, parameter;
    ngx_str_t  *charset = &r->headers_out.charset;

    r->headers_out.content_type.data = (u_char *) value.ptr;
    r->headers_out.content_type.len = value.len;
    r->headers_out.content_type_len = value.len;
    r->headers_out.content_type_lowcase = NULL;

    while (once_span_cut(left, ';', &before, &left)) {
        for (parameter = left; parameter.len > 0 && parameter.ptr[0] == ' '; /* void */ ) {
            parameter = once_span_skip(parameter, 1);
        }

        if (parameter.len < 8 || ngx_strncasecmp((u_char *) parameter.ptr, (u_char *) "charset=", 8) != 0) {
            continue;
        }

        r->headers_out.content_type_len = before.ptr + before.len - value.ptr;
        charset->data = (u_char *) parameter.ptr + 8;
        charset->len = parameter.len - 8;

        if (charset->len > 1 && charset->data[0] == '"' && charset->data[charset->len - 1] == '"') {
            charset->data++;
            charset->len -= 2;
        }

        return;
    }
}

/* Parses stored header lines; they are checked again, although they were checked before they were stored. */
static ngx_int_t
ngx_http_once_stored_headers(ngx_http_request_t *r, once_span lines)
{
    size_t            i;
    once_span         line, name, value;
    ngx_table_elt_t  *h;

    while (lines.len > 0) {
        (void) once_span_cut(lines, '\n', &line, &lines);

        if (line.len > 0 && line.ptr[line.len - 1] == '\r') {
            line.len--;
        }

        if (!once_span_cut(line, ':', &name, &value) || name.len == 0) {
            return NGX_ERROR;
        }

        while (value.len > 0 && value.ptr[0] == ' ') {
            value = once_span_skip(value, 1);
        }

        for (i = 0; i < line.len; i++) {
            if (line.ptr[i] == '\r' || line.ptr[i] == '\0') {
                return NGX_ERROR;
            }
        }

        if (name.len == 12 && ngx_strncasecmp((u_char *) name.ptr, (u_char *) "Content-Type", 12) == 0) {
            ngx_http_once_set_replayed_type(r, value);
            continue;
        }

        h = ngx_http_once_push_header(&r->headers_out.headers);
        if (h == NULL) {
            return NGX_ERROR;
        }

        h->hash = 1;
        h->key.data = (u_char *) name.ptr;
        h->key.len = name.len;
        h->value.data = (u_char *) value.ptr;
        h->value.len = value.len;

        /* headers_out.location stays unset, as for upstream answers: nginx must not make it absolute */

        if (ngx_http_once_is_name(&h->key, "ETag")) {
            r->headers_out.etag = h;

        } else if (ngx_http_once_is_name(&h->key, "Last-Modified")) {
            r->headers_out.last_modified = h;

        } else if (ngx_http_once_is_name(&h->key, "Content-Encoding")) {
            r->headers_out.content_encoding = h;  /* so that gzip does not encode it again */
        }
    }

    return NGX_OK;
}

/* An operator's verdict may have any status, for example a command's exit code; HTTP needs a valid one. */
static ngx_uint_t
ngx_http_once_replayed_status(const struct once_record *record)
{
    if (record->status >= 200 && record->status <= 999) {
        return record->status;
    }

    if (record->state == ONCE_STATE_FAILED) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return record->body.len > 0 ? NGX_HTTP_OK : NGX_HTTP_NO_CONTENT;
}

ngx_int_t
ngx_http_once_send_replay(ngx_http_request_t *r, const struct once_record *record)
{
    once_span             lines, body;
    ngx_http_once_ctx_t  *ctx = ngx_http_once_get_ctx(r);

    if (ngx_http_once_add_header(r, "Idempotency-Replayed", (u_char *) "true", 4) != NGX_OK) {
        return NGX_ERROR;
    }

    if (record->body_dropped) {
        return ngx_http_once_send_not_kept(r, record);
    }

    lines = ngx_http_once_copy(r->pool, record->headers);
    body = ngx_http_once_copy(r->pool, record->body);

    if (lines.len != record->headers.len || body.len != record->body.len
        || ngx_http_once_stored_headers(r, lines) != NGX_OK
        || (ctx != NULL && ngx_http_once_add_key_headers(ctx) != NGX_OK))
    {
        return NGX_ERROR;
    }

    r->headers_out.status = ngx_http_once_replayed_status(record);
    r->headers_out.status_line.len = 0;

    return ngx_http_once_send(r, (u_char *) body.ptr, body.len);
}

/* ---------------------------------------------------------------- policy */

static void
ngx_http_once_json_strings(struct once_buf *json, ngx_array_t *strings)
{
    ngx_str_t   *s = strings != NULL ? strings->elts : NULL;
    ngx_uint_t   i;

    once_buf_add_byte(json, '[');

    for (i = 0; s != NULL && i < strings->nelts; i++) {
        if (i > 0) {
            once_buf_add_byte(json, ',');
        }
        ngx_http_once_json_string(json, once_span_of(s[i].data, s[i].len));
    }

    once_buf_add_byte(json, ']');
}

static void
ngx_http_once_json_seconds(struct once_buf *json, const char *name, int64_t ms)
{
    if (ms == ONCE_NEVER) {
        once_buf_addf(json, ",\"%s\":null", name);
        return;
    }

    once_buf_addf(json, ",\"%s\":%lld", name, (long long) (ms / 1000));
    if (ms % 1000 != 0) {
        once_buf_addf(json, ".%03d", (int) (ms % 1000));
    }
}

/* Ranges of final statuses: [[200,400],[404,404]] */
static void
ngx_http_once_json_final(struct once_buf *json, const u_char *final)
{
    ngx_uint_t  i, from, first = 1;

    once_buf_add_byte(json, '[');

    for (i = 200; i < NGX_HTTP_ONCE_HTTP_STATUS_MAX; i++) {
        if (!final[i]) {
            continue;
        }

        for (from = i; i + 1 < NGX_HTTP_ONCE_HTTP_STATUS_MAX && final[i + 1]; i++) { /* void */ }

        once_buf_addf(json, "%s[%u,%u]", first ? "" : ",", (unsigned) from, (unsigned) i);
        first = 0;
    }

    once_buf_add_byte(json, ']');
}

/* The policy of one location, as members without braces. */
static void
ngx_http_once_json_policy(struct once_buf *json, ngx_http_once_loc_conf_t *olcf)
{
    size_t      i;
    ngx_uint_t  count = 0;

    once_buf_addf(json, "\"mode\":\"%s\",\"header\":", ngx_http_once_modes[olcf->mode]);
    ngx_http_once_json_string(json, once_span_of(olcf->key_header.data, olcf->key_header.len));
    once_buf_addf(json, ",\"key\":{\"format\":\"%s\",\"min_length\":1,\"max_length\":%d},\"methods\":[",
                  olcf->key_format == ONCE_KEY_STRICT ? "sf-string" : "sf-string or bare", ONCE_KEY_LEN_MAX);

    for (i = 0; i < 4; i++) {
        if (olcf->methods & ngx_http_once_methods[i].bit) {
            once_buf_addf(json, "%s\"%s\"", count++ > 0 ? "," : "", ngx_http_once_methods[i].name);
        }
    }

    once_buf_addf(json, "],\"scope\":\"%s\",\"fingerprint\":{\"body\":\"%s\",\"headers\":",
                  olcf->tenant_single ? "all callers" : "the caller",
                  olcf->body == NGX_HTTP_ONCE_BODY_EXACT ? "exact"
                  : olcf->body == NGX_HTTP_ONCE_BODY_JSON ? "json" : "json if the Content-Type is JSON, otherwise exact");
    ngx_http_once_json_strings(json, olcf->headers);
    once_buf_addf(json, ",\"credentials\":");
    ngx_http_once_json_strings(json, olcf->credentials);
    once_buf_addf(json, ",\"excluded_members\":[");

    for (i = 0; olcf->exclude != NULL && i < olcf->exclude->nelts; i++) {
        if (i > 0) {
            once_buf_add_byte(json, ',');
        }
        ngx_http_once_json_string(json, ((once_span *) olcf->exclude->elts)[i]);
    }

    once_buf_addf(json, "]}");
    ngx_http_once_json_seconds(json, "retention_seconds", olcf->retention_ms);
    ngx_http_once_json_seconds(json, "body_retention_seconds",
                               olcf->body_retention_ms != 0 ? olcf->body_retention_ms : olcf->retention_ms);
    once_buf_addf(json, ",\"key_time\":%s", olcf->key_time ? "true" : "false");
    ngx_http_once_json_seconds(json, "lease_seconds", olcf->lease_ms);
    ngx_http_once_json_seconds(json, "wait_seconds", olcf->wait_ms);

    once_buf_addf(json, ",\"takeover\":\"%s\",\"final_statuses\":",
                  olcf->takeover == ONCE_TAKEOVER_COMPLETER ? "probe" : once_takeover_name(olcf->takeover));
    ngx_http_once_json_final(json, olcf->final);
    once_buf_addf(json, ",\"max_response_bytes\":%zu,\"replayed_headers\":", olcf->max_response);
    ngx_http_once_json_strings(json, olcf->replay_headers);
}

/* The policy of this location, and of every location with keys in this server. */
ngx_int_t
ngx_http_once_policy_handler(ngx_http_request_t *r)
{
    size_t                      len;
    u_char                     *body;
    ngx_int_t                   rc;
    ngx_uint_t                  i, count = 0;
    struct once_buf             json;
    ngx_http_once_location_t      *location;
    ngx_http_once_main_conf_t  *omcf = ngx_http_get_module_main_conf(r, ngx_http_once_module);

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return NGX_HTTP_NOT_ALLOWED;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    once_buf_init(&json, NGX_HTTP_ONCE_POLICY_LEN_MAX);
    once_buf_add_byte(&json, '{');
    ngx_http_once_json_policy(&json, ngx_http_get_module_loc_conf(r, ngx_http_once_module));
    once_buf_addf(&json, ",\"errors\":{\"missing\":400,\"malformed\":400,\"over_limit\":400,\"caller_unknown\":401,"
                  "\"in_progress\":409,\"key_from_future\":400,\"answer_not_kept\":410,\"key_expired\":410,\"reused\":422,\"quota_exceeded\":429,"
                  "\"store_unavailable\":503},\"locations\":[");

    location = omcf->locations.elts;

    for (i = 0; i < omcf->locations.nelts; i++) {
        if (location[i].server != ngx_http_get_module_srv_conf(r, ngx_http_core_module)) {
            continue;
        }

        once_buf_addf(&json, "%s{\"location\":", count++ > 0 ? "," : "");
        ngx_http_once_json_string(&json, once_span_of(location[i].name.data, location[i].name.len));
        once_buf_add_byte(&json, ',');
        ngx_http_once_json_policy(&json, location[i].conf);
        once_buf_add_byte(&json, '}');
    }

    once_buf_addf(&json, "]}\n");

    body = ngx_http_once_finish_json(r, &json, &len);
    if (body == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->headers_out.status = NGX_HTTP_OK;
    ngx_str_set(&r->headers_out.content_type, "application/json");
    r->headers_out.content_type_len = r->headers_out.content_type.len;

    return ngx_http_once_send(r, body, len);
}
