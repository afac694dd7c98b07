/*
 * ngx_http_once_resend.c - the request as it is stored with its claim, for the daemon's completer
 * (src/core/resend.h).
 *
 * Stored are method, target, body, and of the headers only those that say what is asked: the defaults below, the
 * fingerprinted ones and those named. Credentials are never among them; that the client had
 * some is, so that the completer knows that they are missing, and whether the route says that the
 * daemon's own may stand for them: only where nginx itself has found out who the client is.
 */
#include "ngx_http_once.h"

#include "core/record.h"
#include "core/resend.h"
#include "core/span.h"

/* what ONCE_REQUEST_LEN_MAX leaves besides the headers */
#define NGX_HTTP_ONCE_STORED_BODY_MAX  (1 << 20)

static ngx_uint_t
ngx_http_once_is_stored(ngx_http_once_ctx_t *ctx, ngx_str_t *name)
{
    ngx_uint_t  i;

    static ngx_str_t  defaults[] = {
        ngx_string("Content-Type"), ngx_string("Content-Encoding"), ngx_string("Content-Language"),
        ngx_string("Accept"), ngx_string("Accept-Language"), ngx_string("Prefer")
    };

    for (i = 0; i < sizeof(defaults) / sizeof(ngx_str_t); i++) {
        if (defaults[i].len == name->len && ngx_strncasecmp(defaults[i].data, name->data, name->len) == 0) {
            return 1;
        }
    }

    return ngx_http_once_is_listed(name, ctx->conf->headers)
           || ngx_http_once_is_listed(name, ctx->conf->complete_headers);
}

static void
ngx_http_once_stored_headers(ngx_http_once_ctx_t *ctx, struct once_buf *lines, bool *credentials)
{
    once_span         name;
    ngx_uint_t        i;
    ngx_list_part_t  *part = &ctx->request->headers_in.headers.part;
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

        name = once_span_of(h[i].key.data, h[i].key.len);

        if (once_header_is_secret(name) || ngx_http_once_is_listed(&h[i].key, ctx->conf->credentials)) {
            *credentials = true;

        } else if (!once_header_is_of_one_hop(name) && ngx_http_once_is_stored(ctx, &h[i].key)) {
            once_buf_add(lines, name);
            once_buf_add(lines, ONCE_LIT(": "));
            once_buf_add(lines, once_span_of(h[i].value.data, h[i].value.len));
            once_buf_add(lines, ONCE_LIT("\r\n"));
        }
    }
}

static void
ngx_http_once_stored_request(ngx_http_once_ctx_t *ctx, struct once_buf *out)
{
    void                *mapped, *copied;
    once_span            body;
    ngx_int_t            rc;
    ngx_str_t           *names;
    ngx_uint_t           i;
    struct once_buf      lines, kept;
    struct once_error    err;
    ngx_str_t            probe;
    struct once_resend   resend, check;
    ngx_http_request_t  *r = ctx->request;

    ngx_memzero(&resend, sizeof(resend));
    once_buf_init(&lines, ONCE_HEADERS_LEN_MAX);
    once_buf_init(&kept, ONCE_HEADERS_LEN_MAX);

    resend.upstream = once_span_of(ctx->conf->complete.data, ctx->conf->complete.len);
    resend.method = once_span_of(r->method_name.data, r->method_name.len);
    resend.target = once_span_of(r->unparsed_uri.data, r->unparsed_uri.len);
    resend.max_response = ctx->conf->max_response;
    resend.identity = ctx->conf->complete_identity;
    ngx_http_once_stored_headers(ctx, &lines, &resend.needs_identity);
    ngx_http_once_trace_store(ctx, &lines);

    for (i = 0; i < NGX_HTTP_ONCE_STATUS_MAX; i++) {
        if (ctx->conf->final[i]) {
            resend.final[i / 8] |= 1 << (i % 8);
        }
    }

    names = ctx->conf->replay_headers->elts;

    for (i = 0; i < ctx->conf->replay_headers->nelts; i++) {
        once_buf_add(&kept, once_span_of(names[i].data, names[i].len));
        once_buf_add_byte(&kept, '\n');
    }

    resend.headers = once_buf_span(&lines);
    resend.kept = once_buf_span(&kept);

    rc = ngx_http_once_whole_body(r, &resend.body, &mapped, &copied);

    if (rc == NGX_OK) {
        rc = ngx_http_once_probe_target(ctx, &probe);
    }

    if (rc != NGX_OK) {
        out->result = rc == NGX_DECLINED ? ONCE_INVALID : ONCE_NO_MEMORY;

    } else {
        resend.probe = once_span_of(probe.data, probe.len);
        body = resend.body;
        resend.partial = probe.len > 0 && body.len > NGX_HTTP_ONCE_STORED_BODY_MAX;

        if (resend.partial) {  /* to be asked about, it does not need to be sent */
            resend.body = once_span_of(NULL, 0);
        }

        once_resend_put(out, &resend);
        resend.body = body;
    }

    /* what could not be read again is not worth storing */
    if (lines.result != ONCE_OK || kept.result != ONCE_OK) {
        out->result = ONCE_LIMIT;
    }

    if (out->result == ONCE_OK && once_resend_get(once_buf_span(out), &check, &err) != ONCE_OK) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0, "once: a request is not stored: %s", err.text);
        out->result = ONCE_INVALID;

    } else if (out->result != ONCE_OK) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "once: a request is not stored, nobody but its client can complete it: %s",
                      out->result == ONCE_LIMIT ? "it is too large"
                      : out->result == ONCE_INVALID ? "a variable of once_probe is empty" : "no memory");
    }

    if (out->result != ONCE_OK) {
        once_buf_clear(out);
    }

    ngx_http_once_unmap_body(&resend.body, mapped, copied);
    once_buf_release(&lines);
    once_buf_release(&kept);
}

/* Policy and request of a claim whose tenant and key are there. */
void
ngx_http_once_claim_request(ngx_http_once_ctx_t *ctx, struct once_buf *stored, struct once_claim *claim)
{
    ctx->takeover = ctx->conf->takeover;

    if (ctx->takeover == ONCE_TAKEOVER_COMPLETER) {  /* where to ask may name the record */
        once_record_id(ngx_http_once_daemon_secret(ctx->conf->daemon), claim->tenant, claim->key, ctx->grant.record);
        ctx->named = 1;
    }

    if (ctx->conf->complete.len > 0) {
        ngx_http_once_stored_request(ctx, stored);
        claim->request = once_buf_span(stored);
    }

    if (ctx->takeover == ONCE_TAKEOVER_COMPLETER && stored->len == 0) {
        ctx->takeover = ONCE_TAKEOVER_ESCALATE;  /* nobody would find it, nor know where to ask */
    }

    claim->takeover = ctx->takeover;
}
