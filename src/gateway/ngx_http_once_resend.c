/*
 * ngx_http_once_resend.c - the request as it is stored with its claim, for the completer (src/core/http/resend.h).
 *
 * It has method, target, body, and the headers that matter: the defaults below, the fingerprinted ones and those named by
 * once_complete. Credentials are never stored, only the fact that the client sent some, and whether the
 * daemon may use its own instead: only on routes where nginx authenticates the clients.
 */
#include "ngx_http_once.h"

#include "core/record.h"
#include "core/http/resend.h"
#include "core/span.h"

/* the part of ONCE_REQUEST_LEN_MAX that the headers leave */
#define NGX_HTTP_ONCE_STORED_BODY_MAX  (1 << 20)

static ngx_uint_t
ngx_http_once_is_stored(ngx_http_once_ctx_t *ctx, ngx_str_t *name)
{
    size_t  i;

    static const char  *const defaults[] = {
        "Content-Type", "Content-Encoding", "Content-Language", "Accept", "Accept-Language", "Prefer"
    };

    for (i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        if (ngx_http_once_is_name(name, defaults[i])) {
            return 1;
        }
    }

    return ngx_http_once_is_listed(name, ctx->conf->headers)
           || ngx_http_once_is_listed(name, ctx->conf->complete_headers);
}

static void
ngx_http_once_stored_headers(ngx_http_once_ctx_t *ctx, struct once_buf *lines, bool *credentials)
{
    once_span                name;
    ngx_table_elt_t         *h;
    ngx_http_once_cursor_t   at = { &ctx->request->headers_in.headers.part, 0 };

    while ((h = ngx_http_once_next_header(&at)) != NULL) {
        name = once_span_of(h->key.data, h->key.len);

        if (once_header_is_secret(name) || ngx_http_once_is_listed(&h->key, ctx->conf->credentials)) {
            *credentials = true;

        } else if (!once_header_is_of_one_hop(name) && ngx_http_once_is_stored(ctx, &h->key)) {
            ngx_http_once_add_line(lines, &h->key, &h->value);
        }
    }
}

/* The policy for answers: final statuses, replayed headers, size. */
static void
ngx_http_once_add_stored_policy(ngx_http_once_ctx_t *ctx, struct once_resend *resend, struct once_buf *kept)
{
    ngx_str_t   *names = ctx->conf->replay_headers->elts;
    ngx_uint_t   i;

    resend->max_response = ctx->conf->max_response;

    for (i = 0; i < NGX_HTTP_ONCE_HTTP_STATUS_MAX; i++) {
        if (ctx->conf->final[i]) {
            resend->final[i / 8] |= 1 << (i % 8);
        }
    }

    for (i = 0; i < ctx->conf->replay_headers->nelts; i++) {
        once_buf_add(kept, once_span_of(names[i].data, names[i].len));
        once_buf_add_byte(kept, '\n');
    }

    resend->kept = once_buf_span(kept);
}

/* Adds body and probe target, and encodes all of it. */
static void
ngx_http_once_put_stored_request(ngx_http_once_ctx_t *ctx, struct once_resend *resend, struct once_buf *out)
{
    void       *mapped, *copied;
    once_span   body;
    ngx_int_t   rc;
    ngx_str_t   probe;

    rc = ngx_http_once_map_body(ctx->request, &body, &mapped, &copied);

    if (rc == NGX_OK) {
        rc = ngx_http_once_probe_target(ctx, &probe);
    }

    if (rc == NGX_OK) {
        resend->probe = once_span_of(probe.data, probe.len);
        resend->partial = probe.len > 0 && body.len > NGX_HTTP_ONCE_STORED_BODY_MAX;

        if (!resend->partial) {  /* without its body a request cannot be sent again, but it can be probed */
            resend->body = body;
        }

        once_resend_put(out, resend);

    } else {
        out->result = rc == NGX_DECLINED ? ONCE_INVALID : ONCE_NO_MEMORY;
    }

    ngx_http_once_release_body(&body, mapped, copied);
}

static void
ngx_http_once_make_stored_request(ngx_http_once_ctx_t *ctx, struct once_buf *out)
{
    const char          *fault;
    struct once_buf      lines, kept;
    struct once_error    err;
    struct once_resend   resend, check;
    ngx_http_request_t  *r = ctx->request;

    ngx_memzero(&resend, sizeof(resend));
    once_buf_init(&lines, ONCE_HEADERS_LEN_MAX);
    once_buf_init(&kept, ONCE_HEADERS_LEN_MAX);

    resend.upstream = once_span_of(ctx->conf->complete.data, ctx->conf->complete.len);
    resend.method = once_span_of(r->method_name.data, r->method_name.len);
    resend.target = once_span_of(r->unparsed_uri.data, r->unparsed_uri.len);
    resend.identity = ctx->conf->complete_identity;
    ngx_http_once_stored_headers(ctx, &lines, &resend.needs_identity);
    ngx_http_once_trace_add_line(ctx, &lines);
    resend.headers = once_buf_span(&lines);
    ngx_http_once_add_stored_policy(ctx, &resend, &kept);

    ngx_http_once_put_stored_request(ctx, &resend, out);

    if (lines.result != ONCE_OK || kept.result != ONCE_OK) {
        out->result = ONCE_LIMIT;
    }

    fault = out->result == ONCE_LIMIT ? "it is too large"
          : out->result == ONCE_INVALID ? "a variable of once_probe is empty"
          : out->result != ONCE_OK ? "no memory"
          /* check that the completer can decode it */
          : once_resend_get(once_buf_span(out), &check, &err) != ONCE_OK ? err.text : NULL;

    if (fault != NULL) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "once: a request is not stored, so the daemon cannot complete it: %s", fault);
        once_buf_clear(out);
    }

    once_buf_release(&lines);
    once_buf_release(&kept);
}

void
ngx_http_once_set_stored_request(ngx_http_once_ctx_t *ctx, struct once_buf *stored, struct once_claim *claim)
{
    ctx->takeover = ctx->conf->takeover;

    if (ctx->takeover == ONCE_TAKEOVER_COMPLETER) {  /* variables of once_probe may need the record's id */
        once_record_id(ngx_http_once_daemon_secret(ctx->conf->daemon), claim->tenant, claim->key, ctx->grant.record);
        ctx->record_known = 1;
    }

    if (ctx->conf->complete.len > 0) {
        ngx_http_once_make_stored_request(ctx, stored);
        claim->request = once_buf_span(stored);
    }

    if (ctx->takeover == ONCE_TAKEOVER_COMPLETER && stored->len == 0) {
        ctx->takeover = ONCE_TAKEOVER_ESCALATE;  /* without a stored request the completer cannot probe */
    }

    claim->takeover = ctx->takeover;
}
