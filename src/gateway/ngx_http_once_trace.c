/*
 * ngx_http_once_trace.c - the trace context of a request, and its spans.
 *
 * Model:      with once_trace, a request with a key continues its client's trace (traceparent), or starts a new one that
 *             is sampled at random. A sampled request has four spans: the request, and in it claim, upstream and finish.
 *             When it ends, one frame reports them to the daemon, which exports them and adds the wait
 *             of a claim. The upstream gets a traceparent with the id of its span. A CONTEXT frame before claim and
 *             finish tells the daemon the trace, for its log.
 * Invariants: tracing never fails or delays a request: what does not fit is dropped and counted.
 *             With once_trace off nothing is read, made or sent.
 */
#include "ngx_http_once_daemon.h"

#include "core/span.h"

#include <time.h>

struct ngx_http_once_trace_s {
    struct once_trace          own;      /* the request's span */
    struct once_trace_report   report;   /* all spans; the first is the request's */
    struct once_trace_span    *open;     /* the current span below the request's */
    ngx_uint_t                 started_here; /* the client sent no valid traceparent */
};

/* the context of the next call */
static struct {
    const void                *data;
    struct wire_context        context;
}  ngx_http_once_pending;

/* ---------------------------------------------------------------- the directive */

/* off, on, or a share of requests: 0.01 */
char *
ngx_http_once_set_trace(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_int_t                  share;
    ngx_str_t                 *value = cf->args->elts;
    ngx_http_once_loc_conf_t  *olcf = conf;

    if (olcf->trace != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    if (ngx_strcmp(value[1].data, "off") == 0) {
        olcf->trace = NGX_HTTP_ONCE_TRACE_OFF;
        return NGX_CONF_OK;
    }

    share = ngx_strcmp(value[1].data, "on") == 0 ? (ngx_int_t) NGX_HTTP_ONCE_TRACE_ALL
                                                 : ngx_atofp(value[1].data, value[1].len, 6);

    if (share < 0 || share > (ngx_int_t) NGX_HTTP_ONCE_TRACE_ALL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid value \"%V\" of \"once_trace\": must be off, on, or a share "
                           "of requests from 0 to 1 with at most 6 decimals", &value[1]);
        return NGX_CONF_ERROR;
    }

    olcf->trace = share;
    return NGX_CONF_OK;
}

/* ---------------------------------------------------------------- headers */

static void
ngx_http_once_set_traceparent(ngx_http_request_t *r, const struct once_trace *trace)
{
    u_char           *text;
    ngx_table_elt_t  *h;

    text = ngx_pnalloc(r->pool, ONCE_TRACEPARENT_LEN + 1);
    if (text == NULL) {
        return;
    }

    once_trace_format(trace, (char *) text);

    if (ngx_http_once_find_header(&r->headers_in.headers, "traceparent", &h) == 0) {
        h = ngx_http_once_push_header(&r->headers_in.headers);
        if (h == NULL) {
            return;
        }

        ngx_str_set(&h->key, "traceparent");
        h->lowcase_key = h->key.data;
        h->hash = ngx_hash_key(h->key.data, h->key.len);
    }

    h->value.data = text;
    h->value.len = ONCE_TRACEPARENT_LEN;
}

/* ---------------------------------------------------------------- a request's spans */

static uint64_t
ngx_http_once_wall_ns(void)
{
    struct timespec  t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t) t.tv_sec * 1000000000 + (uint64_t) t.tv_nsec;
}

/* Continues the client's trace, or starts a new one. */
static ngx_int_t
ngx_http_once_trace_start(ngx_http_once_ctx_t *ctx, ngx_http_once_trace_t *trace)
{
    uint8_t              random[32];
    uint32_t             chance;
    ngx_table_elt_t     *parent;
    ngx_http_request_t  *r = ctx->request;

    static ngx_str_t  context[] = { ngx_string("traceparent"), ngx_string("tracestate") };

    if (ngx_http_once_nonce(random) != NGX_OK || ngx_http_once_nonce(random + 16) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_http_once_find_header(&r->headers_in.headers, "traceparent", &parent) == 1
        && once_trace_parse(once_span_of(parent->value.data, parent->value.len), &trace->own))
    {
        ngx_memcpy(trace->report.spans[0].parent, trace->own.span, 8);
        once_trace_name_span(trace->own.span, random);
        return NGX_OK;
    }

    if (ngx_http_once_drop_headers(r, context, 2) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_memcpy(&chance, random + 24, sizeof(chance));
    trace->started_here = 1;
    once_trace_begin(&trace->own, random, chance % NGX_HTTP_ONCE_TRACE_ALL < ctx->conf->trace);

    return NGX_OK;
}

void
ngx_http_once_trace_begin(ngx_http_once_ctx_t *ctx)
{
    ngx_http_request_t      *r = ctx->request;
    ngx_http_once_trace_t   *trace;
    struct once_trace_span  *span;

    if (ctx->conf->trace == NGX_HTTP_ONCE_TRACE_OFF || ngx_http_once_is_observing(ctx)) {
        return;
    }

    trace = ngx_pcalloc(r->pool, sizeof(ngx_http_once_trace_t));
    if (trace == NULL || ngx_http_once_trace_start(ctx, trace) != NGX_OK) {
        return;
    }

    trace->report.route = ngx_http_once_route(ctx);
    ngx_memcpy(trace->report.trace, trace->own.trace, sizeof(trace->own.trace));

    span = &trace->report.spans[0];
    span->name = ONCE_TRACE_REQUEST;
    ngx_memcpy(span->id, trace->own.span, sizeof(span->id));
    span->start_ns = ((uint64_t) r->start_sec * 1000 + r->start_msec) * 1000000;
    trace->report.count = 1;

    ctx->trace = trace;
}

static void
ngx_http_once_trace_close_span(ngx_http_once_ctx_t *ctx, uint64_t now)
{
    struct once_trace_span  *span = ctx->trace->open;

    if (span == NULL) {
        return;
    }

    span->end_ns = now;
    ctx->trace->open = NULL;

    if (span->name == ONCE_TRACE_UPSTREAM) {
        span->status = ctx->answer_status;
        span->failed = ctx->capture != NGX_HTTP_ONCE_OUTCOME || ctx->answer_status >= 500;
    }
}

void
ngx_http_once_trace_step(ngx_http_once_ctx_t *ctx, ngx_uint_t name)
{
    uint8_t                    random[16];
    uint64_t                   now;
    struct once_trace          child;
    ngx_http_once_trace_t     *trace = ctx->trace;
    struct once_trace_span    *span;
    struct once_trace_report  *report;

    if (trace == NULL) {
        return;
    }

    report = &trace->report;
    child = trace->own;
    now = trace->own.sampled ? ngx_http_once_wall_ns() : 0;
    ngx_http_once_trace_close_span(ctx, now);

    if (trace->own.sampled && report->count > 0 && report->spans[report->count - 1].name == name) {
        trace->open = &report->spans[report->count - 1];  /* the outcome is stored a second time */
        ngx_memcpy(child.span, trace->open->id, sizeof(child.span));

    } else if (trace->own.sampled && report->count < ONCE_TRACE_SPANS_MAX
               && ngx_http_once_nonce(random) == NGX_OK)
    {
        span = &report->spans[report->count++];
        span->name = name;
        span->start_ns = now;
        once_trace_name_span(span->id, random);
        ngx_memcpy(span->parent, trace->own.span, sizeof(span->parent));
        ngx_memcpy(child.span, span->id, sizeof(child.span));
        trace->open = span;
    }

    if (name == ONCE_TRACE_UPSTREAM) {
        if (trace->own.sampled || trace->started_here) {
            ngx_http_once_set_traceparent(ctx->request, &child);
        }
        return;
    }

    ngx_http_once_pending.data = ctx;
    ngx_http_once_pending.context.trace = child;
    ngx_http_once_pending.context.route = report->route;
}

void
ngx_http_once_trace_answered(ngx_http_once_ctx_t *ctx, const ngx_http_once_reply_t *reply)
{
    struct once_trace_span  *span = ctx->trace != NULL ? ctx->trace->open : NULL;

    if (span == NULL) {
        return;
    }

    span->arm = reply->result == ONCE_OK ? reply->arm : ONCE_ARM_NONE;
    span->failed = reply->result != ONCE_OK;
    ngx_http_once_trace_close_span(ctx, ngx_http_once_wall_ns());
}

void
ngx_http_once_trace_end(ngx_http_once_ctx_t *ctx)
{
    size_t                     before;
    uint64_t                   now;
    ngx_http_once_trace_t     *trace = ctx->trace;
    struct once_trace_span    *span;
    ngx_http_once_daemon_t    *d = ctx->conf->daemon;
    struct once_trace_report  *report;

    if (ngx_http_once_pending.data == ctx) {
        ngx_http_once_pending.data = NULL;
    }

    if (trace == NULL || !trace->own.sampled) {
        return;
    }

    now = ngx_http_once_wall_ns();
    ngx_http_once_trace_close_span(ctx, now);

    report = &trace->report;
    span = &report->spans[0];
    span->end_ns = now;
    span->arm = ctx->reply.result == ONCE_OK ? ctx->reply.arm : ONCE_ARM_NONE;
    span->status = ctx->request->headers_out.status;
    span->failed = span->status >= 500 || span->status == 0;

    (void) ngx_http_once_key_hash(ctx, report->record);
    report->fence = ctx->grant.fence;
    report->attempt = ctx->reply.record.attempt;
    report->tenant = once_span_of(ctx->tenant.data, ctx->tenant.len);

    before = d->spans.len;
    wire_put_spans(&d->spans, 0, d->spans_lost, report);

    if (d->spans.result != ONCE_OK) {
        d->spans.result = ONCE_OK;
        d->spans.len = before;
        d->spans_lost++;
        return;
    }

    d->spans_lost = 0;
    ngx_http_once_post_write(d);
}

/* ---------------------------------------------------------------- on the wire */

void
ngx_http_once_trace_context(struct once_buf *frame, uint32_t id, const void *data)
{
    if (ngx_http_once_pending.data == NULL || ngx_http_once_pending.data != data) {
        return;
    }

    ngx_http_once_pending.data = NULL;
    ngx_http_once_pending.context.call = id;
    wire_put_context(frame, 0, &ngx_http_once_pending.context);
}

once_span
ngx_http_once_trace_skip_context(once_span frame)
{
    size_t             used;
    struct wire_frame  first;

    if (wire_next(frame, &first, &used, NULL) == ONCE_OK && used > 0 && first.type == WIRE_CONTEXT) {
        return once_span_skip(frame, used);
    }

    return frame;
}

void
ngx_http_once_trace_write(ngx_http_once_daemon_t *d)
{
    if (d->spans.len == 0 || d->out.len >= NGX_HTTP_ONCE_OUT_LEN) {
        return;
    }

    once_buf_add(&d->out, once_buf_span(&d->spans));

    if (d->out.result != ONCE_OK) {
        d->out.result = ONCE_OK;  /* no room: next time */
        return;
    }

    once_buf_clear(&d->spans);
}

void
ngx_http_once_trace_add_line(ngx_http_once_ctx_t *ctx, struct once_buf *lines)
{
    char               text[ONCE_TRACEPARENT_LEN + 1];
    struct once_trace  there;

    if (ctx->trace == NULL || once_trace_find(once_buf_span(lines), &there)) {
        return;
    }

    once_trace_format(&ctx->trace->own, text);
    once_buf_add(lines, ONCE_LIT("traceparent: "));
    once_buf_add(lines, once_span_of(text, ONCE_TRACEPARENT_LEN));
    once_buf_add(lines, ONCE_LIT("\r\n"));
}

const uint8_t *
ngx_http_once_trace_id(const ngx_http_once_ctx_t *ctx)
{
    return ctx->trace != NULL ? ctx->trace->own.trace : NULL;
}
