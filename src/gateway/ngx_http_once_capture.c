/*
 * ngx_http_once_capture.c - the answer withheld until its outcome is stored.
 *
 * Model:      the filters stand behind the copy filter and before the ones that encode. While a
 *             claim is held they pass nothing on. What comes is one of
 *               OUTCOME   a complete answer: finish, then send it
 *               FAILURE   nginx's own answer though something was sent upstream, or an answer
 *                         that broke off: finish as unknown (or failed and retryable, where
 *                         takeover is rerun; or leave it running, where it is probe), then send a problem
 *                         document instead
 *               NOT_SENT  nginx's own answer, and nothing was sent: release, then send it
 *             A request that was given its whole answer is parked by nginx (r->buffered) until
 *             the daemon answered.
 * Invariants: K3 fenced: the stored outcome is sent, never ours.
 *             K4 no byte before the finish is durable.
 * Not here:   what an upstream may do, and whether an answer of its is whole (ngx_http_once_upstream.c).
 */
#include "ngx_http_once.h"

#include "core/span.h"

/* the fourth of four bits; the others are ssi's, sub's and copy's */
#define NGX_HTTP_ONCE_BUFFERED   0x08
/* for the daemon to store an outcome; the client is told then that it is not sure */
#define NGX_HTTP_ONCE_FINISH_MS  15000

static ngx_int_t ngx_http_once_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_once_body_filter(ngx_http_request_t *r, ngx_chain_t *in);
static void ngx_http_once_settled(void *data, ngx_http_once_reply_t *reply);

static ngx_http_output_header_filter_pt  ngx_http_once_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_http_once_next_body_filter;

/* ---------------------------------------------------------------- the outcome */

static ngx_uint_t
ngx_http_once_is_replayed(ngx_http_once_ctx_t *ctx, ngx_str_t *name)
{
    ngx_str_t   *allowed = ctx->conf->replay_headers->elts;
    ngx_uint_t   i;

    for (i = 0; i < ctx->conf->replay_headers->nelts; i++) {
        if (allowed[i].len == name->len && ngx_strncasecmp(allowed[i].data, name->data, name->len) == 0) {
            return 1;
        }
    }

    return 0;
}

static void
ngx_http_once_add_line(struct once_buf *lines, ngx_str_t *name, ngx_str_t *value)
{
    once_buf_add(lines, once_span_of(name->data, name->len));
    once_buf_add(lines, ONCE_LIT(": "));
    once_buf_add(lines, once_span_of(value->data, value->len));
    once_buf_add(lines, ONCE_LIT("\r\n"));
}

/* The header lines that replays carry. */
static void
ngx_http_once_header_lines(ngx_http_once_ctx_t *ctx, struct once_buf *lines)
{
    ngx_uint_t            i;
    ngx_list_part_t      *part;
    ngx_table_elt_t      *h;
    ngx_http_request_t   *r = ctx->request;

    u_char                date[sizeof("Mon, 28 Sep 1970 06:00:00 GMT")];
    ngx_str_t             value;

    static ngx_str_t  type = ngx_string("Content-Type");
    static ngx_str_t  modified = ngx_string("Last-Modified");

    if (r->headers_out.content_type.len > 0 && ngx_http_once_is_replayed(ctx, &type)) {
        once_buf_add(lines, ONCE_LIT("Content-Type: "));
        once_buf_add(lines, once_span_of(r->headers_out.content_type.data, r->headers_out.content_type.len));

        if (r->headers_out.content_type_len == r->headers_out.content_type.len
            && r->headers_out.charset.len > 0)
        {
            once_buf_add(lines, ONCE_LIT("; charset="));
            once_buf_add(lines, once_span_of(r->headers_out.charset.data, r->headers_out.charset.len));
        }

        once_buf_add(lines, ONCE_LIT("\r\n"));
    }

    /* of a file that nginx sends, it has the time only */
    if (r->headers_out.last_modified == NULL && r->headers_out.last_modified_time != -1
        && ngx_http_once_is_replayed(ctx, &modified))
    {
        value.data = date;
        value.len = ngx_http_time(date, r->headers_out.last_modified_time) - date;
        ngx_http_once_add_line(lines, &modified, &value);
    }

    part = &r->headers_out.headers.part;
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

        if (h[i].hash != 0 && ngx_http_once_is_replayed(ctx, &h[i].key)) {
            ngx_http_once_add_line(lines, &h[i].key, &h[i].value);
        }
    }
}

static void
ngx_http_once_judge(ngx_http_once_ctx_t *ctx, struct once_outcome *outcome)
{
    ngx_uint_t  status = ctx->status;

    outcome->status = status;

    if (ctx->capture == NGX_HTTP_ONCE_OUTCOME && status < NGX_HTTP_ONCE_STATUS_MAX && ctx->conf->final[status]) {
        outcome->state = status < 400 ? ONCE_STATE_SUCCEEDED : ONCE_STATE_FAILED;
        return;
    }

    /* not final below 500: it says that nothing was done */
    if (ctx->conf->takeover == ONCE_TAKEOVER_RERUN
        || (ctx->capture == NGX_HTTP_ONCE_OUTCOME && status < 500))
    {
        outcome->state = ONCE_STATE_FAILED;
        outcome->retryable = true;
        return;
    }

    outcome->state = ONCE_STATE_UNKNOWN;
}

/*
 * nginx waits with an answer that it cannot send yet for the client to take it: for send_timeout, and no longer than the client does not
 * close its side. It is the store that it waits for, though. What the client has done meanwhile shows when it is sent.
 */
static void
ngx_http_once_parked(ngx_event_t *ev)
{
    ngx_http_once_ctx_t  *ctx = ev->data;
    ngx_http_request_t   *r = ctx->request;

    if (ctx->state != NGX_HTTP_ONCE_STORING || !ctx->ended || r->read_event_handler != ngx_http_test_reading) {
        return;
    }

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    if (r->connection->write->timer_set) {
        ngx_del_timer(r->connection->write);
    }
}

/* Asks for the end of the claim; the answer waits. */
ngx_int_t
ngx_http_once_store_outcome(ngx_http_once_ctx_t *ctx)
{
    struct once_buf      lines;
    struct once_request  request;

    ngx_memzero(&request, sizeof(request));
    request.grant = ctx->grant;
    once_buf_init(&lines, ONCE_HEADERS_LEN_MAX);

    ctx->stranger = ngx_http_once_is_unauthorized(ctx);

    if (ctx->capture == NGX_HTTP_ONCE_NOT_SENT || ctx->stranger) {
        request.verb = ONCE_VERB_RELEASE;

    } else {
        request.verb = ONCE_VERB_FINISH;
        ngx_http_once_judge(ctx, &request.outcome);
    }

    if (ctx->capture == NGX_HTTP_ONCE_OUTCOME && !ctx->stranger) {
        ngx_http_once_header_lines(ctx, &lines);

        /* trailers are part of an answer, and a replay has none */
        if (lines.result != ONCE_OK || ctx->refused || ctx->request->headers_out.trailers.part.nelts > 0) {
            ctx->dropped = 1;

        } else {
            request.outcome.headers = once_buf_span(&lines);
        }

        ctx->unknown = request.outcome.state == ONCE_STATE_UNKNOWN
                       && ctx->takeover != ONCE_TAKEOVER_COMPLETER;

        if (!ctx->dropped && ngx_http_once_withheld(ctx, &request.outcome.body) != NGX_OK) {
            ctx->dropped = 1;
        }

        request.outcome.body_dropped = ctx->dropped;
    }

    if (request.verb == ONCE_VERB_FINISH && ngx_http_once_is_deferred(ctx, &request.outcome)) {
        ngx_http_once_defer(ctx, &request);
    }

    ngx_http_once_lease_end(ctx);
    ctx->state = NGX_HTTP_ONCE_STORING;
    ngx_http_once_trace_step(ctx, ONCE_TRACE_FINISH);
    ctx->call = ngx_http_once_call(ctx->conf->daemon, &request, NGX_HTTP_ONCE_FINISH_MS,
                                   ngx_http_once_settled, ctx);
    once_buf_release(&lines);

    if (ctx->call == NULL) {
        ngx_log_error(NGX_LOG_ERR, ctx->request->connection->log, 0, "once: no memory to store an outcome");
        ctx->state = NGX_HTTP_ONCE_DONE;
        return NGX_ERROR;
    }

    ctx->parked.handler = ngx_http_once_parked;
    ctx->parked.data = ctx;
    ctx->parked.log = ngx_cycle->log;
    ngx_post_event(&ctx->parked, &ngx_posted_events);  /* nginx parks it when we are back */

    return NGX_OK;
}

/* ---------------------------------------------------------------- the filters */

static ngx_int_t
ngx_http_once_header_filter(ngx_http_request_t *r)
{
    ngx_uint_t            status;
    ngx_http_once_ctx_t  *ctx;
    ngx_http_upstream_t  *u = r->upstream;

    if (r != r->main) {
        return ngx_http_once_next_header_filter(r);
    }

    ctx = ngx_http_once_get_ctx(r);

    if (ctx == NULL || ctx->state != NGX_HTTP_ONCE_HELD) {
        return ngx_http_once_next_header_filter(r);
    }

    status = r->err_status ? r->err_status : r->headers_out.status;

    if (u != NULL && u->request_sent && u->cleanup != NULL) {  /* the upstream's, not an error page */

        if (!ngx_http_once_is_answer(ctx)) {
            return NGX_HTTP_BAD_GATEWAY;  /* ends the upstream, and comes back as an error page */
        }

        ctx->sent = 1;
        ctx->status = status;
        ctx->capture = NGX_HTTP_ONCE_OUTCOME;
        ctx->finalize_request = u->finalize_request;
        u->finalize_request = ngx_http_once_upstream_ended;

    } else if ((ctx->handed || ngx_http_once_is_handed(r)) && status < 400) {
        ctx->handed = 1;  /* `return` does not come past our handler */
        ctx->status = status;
        ctx->capture = NGX_HTTP_ONCE_OUTCOME;

    } else if (ngx_http_once_was_sent(ctx)) {
        ctx->status = status == NGX_HTTP_GATEWAY_TIME_OUT ? status : NGX_HTTP_BAD_GATEWAY;
        ctx->capture = NGX_HTTP_ONCE_FAILURE;

    } else if (u != NULL || status >= 400) {
        ctx->status = status >= 400 ? status : NGX_HTTP_BAD_GATEWAY;  /* an error page may call it well */
        ctx->capture = NGX_HTTP_ONCE_NOT_SENT;

    } else {  /* content of nginx itself */
        ctx->status = status;
        ctx->capture = NGX_HTTP_ONCE_OUTCOME;
    }

    if (ctx->capture == NGX_HTTP_ONCE_OUTCOME && !ctx->handed && !ngx_http_once_end_is_certain(r)) {
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "once: the upstream's answer has neither length nor chunks: whether it is complete "
                      "cannot be known, it is not kept; most services say it to HTTP/1.1 (proxy_http_version)");
        ctx->dropped = 1;
    }

    r->buffered |= NGX_HTTP_ONCE_BUFFERED;
    r->filter_need_in_memory = 1;
    r->headers_out.location = NULL;  /* a replay's is not made absolute either */
    r->allow_ranges = 0;  /* a retry gets the whole, and a file's bytes do not pass the filter that cuts once more */

    if (r->header_only) {
        ctx->ended = 1;
        return ngx_http_once_store_outcome(ctx);
    }

    return NGX_OK;
}

/* Takes the bytes of a buffer; NGX_DECLINED: they are too many. */
static ngx_int_t
ngx_http_once_take(ngx_http_once_ctx_t *ctx, ngx_buf_t *b)
{
    ngx_int_t  rc;

    if (ngx_buf_in_memory(b) && b->last > b->pos && ctx->capture != NGX_HTTP_ONCE_FAILURE) {
        rc = ngx_http_once_withhold(ctx, b->pos, b->last - b->pos);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    /* given back: else the upstream's buffers run out */
    b->pos = b->last;
    b->file_pos = b->file_last;

    return NGX_OK;
}

static ngx_int_t
ngx_http_once_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_int_t             rc;
    ngx_chain_t          *cl;
    ngx_http_once_ctx_t  *ctx;

    if (r != r->main) {
        return ngx_http_once_next_body_filter(r, in);
    }

    ctx = ngx_http_once_get_ctx(r);

    if (ctx == NULL || ctx->capture == NGX_HTTP_ONCE_NOTHING
        || (ctx->state != NGX_HTTP_ONCE_HELD && ctx->state != NGX_HTTP_ONCE_STORING))
    {
        return ngx_http_once_next_body_filter(r, in);
    }

    if (ctx->state == NGX_HTTP_ONCE_HELD && ctx->failed) {
        /* it broke off: what came of it is nothing */
        ctx->capture = NGX_HTTP_ONCE_FAILURE;
        ctx->ended = 1;

        for (cl = in; cl; cl = cl->next) {
            (void) ngx_http_once_take(ctx, cl->buf);
        }

        return ngx_http_once_store_outcome(ctx);
    }

    for (cl = in; cl; cl = cl->next) {

        rc = ctx->rest == NULL ? ngx_http_once_take(ctx, cl->buf) : NGX_DECLINED;

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (cl->buf->last_buf) {
            ctx->ended = 1;
        }

        if (rc == NGX_DECLINED) {

            /* the rest waits in the upstream's own buffers, and the upstream with it */
            if (ngx_chain_add_copy(r->pool, &ctx->rest, cl) != NGX_OK) {
                return NGX_ERROR;
            }

            for ( /* void */ ; cl; cl = cl->next) {
                ctx->ended |= cl->buf->last_buf;
            }

            if (ctx->state == NGX_HTTP_ONCE_HELD) {
                ctx->dropped = 1;
                return ngx_http_once_store_outcome(ctx);
            }

            return NGX_OK;
        }
    }

    if (ctx->ended && ctx->state == NGX_HTTP_ONCE_HELD) {
        return ngx_http_once_store_outcome(ctx);
    }

    return NGX_OK;
}

/* ---------------------------------------------------------------- the answer goes out */

static ngx_int_t
ngx_http_once_send_withheld(ngx_http_once_ctx_t *ctx)
{
    once_span            bytes;
    ngx_int_t            rc;
    ngx_buf_t           *b;
    ngx_chain_t         *out, *cl;
    ngx_http_request_t  *r = ctx->request;

    if (ngx_http_once_add_facts(ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ctx->unknown
        && ngx_http_once_add_header(r, "Idempotency-Outcome", (u_char *) "unknown", 7) != NGX_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_http_once_next_header_filter(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    if (ngx_http_once_withheld(ctx, &bytes) != NGX_OK) {
        return NGX_ERROR;
    }

    out = ctx->rest;
    ctx->rest = NULL;

    if (bytes.len > 0 || out == NULL) {
        b = ngx_calloc_buf(r->pool);
        cl = ngx_alloc_chain_link(r->pool);
        if (b == NULL || cl == NULL) {
            return NGX_ERROR;
        }

        if (bytes.len > 0) {
            b->start = b->pos = (u_char *) bytes.ptr;
            b->end = b->last = b->pos + bytes.len;
            b->memory = 1;
        }

        if (out == NULL) {
            b->last_buf = ctx->ended && !ctx->failed;
            b->flush = !b->last_buf;
            b->last_in_chain = 1;
        }

        cl->buf = b;
        cl->next = out;
        out = cl;
    }

    if (ctx->handed) {  /* the rest of the file waits in the copy filter: what we have comes before it */
        return ngx_http_once_next_body_filter(r, out);
    }

    return ngx_http_output_filter(r, out);
}

/* The record says that somebody else's outcome counts: that is the answer (K3). */
static ngx_int_t
ngx_http_once_send_stored(ngx_http_once_ctx_t *ctx, ngx_http_once_reply_t *reply)
{
    ngx_http_request_t  *r = ctx->request;
    struct once_record  *record = &reply->record;

    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "once: this attempt was fenced, its answer is not sent");
    ctx->replayed = 1;
    ctx->fenced = 1;
    ctx->expires_at = record->expires_at;

    /* gone, or by now the key stands for another request (K6) */
    if (record->grant.fence == 0
        || ngx_memcmp(&record->fingerprint, &ctx->fingerprint, sizeof(ctx->fingerprint)) != 0)
    {
        ctx->expires_at = 0;
        return ngx_http_once_send_store_down(r, "another attempt took over; try again");
    }

    switch (record->state) {

    case ONCE_STATE_RUNNING:
        return ngx_http_once_send_in_progress(r, 1000);

    case ONCE_STATE_UNKNOWN:
        return ngx_http_once_send_unknown(r, record);

    default:
        if (record->retryable) {  /* no outcome, and perhaps nothing that was ever answered */
            return ngx_http_once_send_store_down(r, "another attempt took over, and failed; try again");
        }

        return ngx_http_once_send_replay(r, record);
    }
}

static ngx_int_t
ngx_http_once_send_settled(ngx_http_once_ctx_t *ctx, ngx_http_once_reply_t *reply)
{
    ngx_http_request_t  *r = ctx->request;

    if (reply->result == ONCE_OK && reply->arm == ONCE_ARM_FENCED
        && ctx->capture != NGX_HTTP_ONCE_NOT_SENT)
    {
        ngx_http_clean_header(r);
        return ngx_http_once_send_stored(ctx, reply);
    }

    if (reply->result != ONCE_OK && ctx->capture != NGX_HTTP_ONCE_NOT_SENT && !ctx->left && !ctx->stranger) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "once: an outcome could not be stored: %s",
                      reply->err.text);
        ngx_http_clean_header(r);
        return ngx_http_once_send_problem(r, &(ngx_http_once_problem_t){
            NGX_HTTP_SERVICE_UNAVAILABLE, "outcome-not-stored", "The outcome could not be stored yet",
            "it was executed, and its answer is being stored: ask again with the same key", 1, 1 });
    }

    switch (ctx->capture) {

    case NGX_HTTP_ONCE_OUTCOME:
        ctx->expires_at = ctx->stranger ? 0 : reply->record.expires_at;
        return ngx_http_once_send_withheld(ctx);

    case NGX_HTTP_ONCE_FAILURE:
        ngx_http_clean_header(r);

        if (ctx->left) {
            return ngx_http_once_send_deferred(ctx);
        }

        if (ctx->conf->takeover != ONCE_TAKEOVER_RERUN) {
            return ngx_http_once_send_unknown(r, &(struct once_record){ .status = ctx->status });
        }

        return ngx_http_once_send_problem(r, &(ngx_http_once_problem_t){
            ctx->status, "upstream-failed", "The service did not answer completely",
            "it may be tried again with the same key", 1, 1 });

    default:
        if (r->upstream == NULL || ctx->status < NGX_HTTP_INTERNAL_SERVER_ERROR) {
            return ngx_http_once_send_withheld(ctx);  /* 429, 403, ... of nginx itself */
        }

        ngx_http_clean_header(r);
        return ngx_http_once_send_problem(r, &(ngx_http_once_problem_t){
            ctx->status, "upstream-unreachable", "The service was not reached",
            "nothing was executed: it may be tried again with the same key", 1, 1 });
    }
}

/* The upstream still sends. Ending the request ends that first, which gives back the reference that it has: without one of
 * our own the request would be gone while it is being ended, or its connection be kept open for another one. */
static void
ngx_http_once_cut_off(ngx_http_request_t *r)
{
    if (r->upstream != NULL && r->upstream->cleanup != NULL) {
        r->main->count++;
    }

    ngx_http_finalize_request(r, NGX_ERROR);
}

/* Over HTTP/2 a client that is gone is heard of here, and by nothing else where it had taken as much as it allowed. */
static void
ngx_http_once_client_gone(ngx_http_request_t *r)
{
    if (r->connection->error) {
        ngx_http_once_cut_off(r);
    }
}

static void
ngx_http_once_settled(void *data, ngx_http_once_reply_t *reply)
{
    ngx_int_t             rc;
    ngx_uint_t            streaming, settled;
    ngx_http_once_ctx_t  *ctx = data;
    ngx_http_request_t   *r = ctx->request;
    ngx_connection_t     *c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ctx->call = NULL;
    ngx_http_once_trace_answered(ctx, reply);

    if ((reply->result == ONCE_INVALID || reply->result == ONCE_LIMIT)
        && ctx->capture == NGX_HTTP_ONCE_OUTCOME && !ctx->refused)
    {
        /* the store does not take this answer; that it was executed must be stored nevertheless */
        ngx_log_error(NGX_LOG_WARN, c->log, 0, "once: an answer is not kept: %s", reply->err.text);
        ctx->refused = 1;

        if (ngx_http_once_store_outcome(ctx) == NGX_OK) {
            return;
        }
    }

    ctx->state = NGX_HTTP_ONCE_DONE;
    r->buffered &= ~NGX_HTTP_ONCE_BUFFERED;

    if (ctx->blocked) {
        ctx->blocked = 0;
        r->main->blocked--;
        /* nginx said so of the answer; of a connection that is gone meanwhile it is true, and what is sent would wait there for ever */
        c->error = r->stream != NULL && r->stream->connection->connection->error;
        r->write_event_handler = ngx_http_request_empty_handler;
    }

    /* too large: the upstream still sends, and goes on when the client has taken some */
    streaming = !ctx->ended && !ctx->failed;

    /* what is no outcome needs no store; but if another attempt's answer is there, that is the answer */
    settled = reply->result == ONCE_OK ? reply->arm == ONCE_ARM_DONE : ctx->left || ctx->stranger;

    if (streaming && !settled) {
        ngx_log_error(NGX_LOG_ERR, c->log, 0, "once: a large answer is cut off: its outcome was not stored");
        ngx_http_once_cut_off(r);
        ngx_http_run_posted_requests(c);
        return;
    }

    rc = ngx_http_once_send_settled(ctx, reply);

    if (streaming && (rc == NGX_ERROR || c->error)) {
        ngx_http_once_cut_off(r);

    } else if (streaming) {
        if (r->stream != NULL) {  /* what is stored needs its upstream no more: only who gets it does */
            r->read_event_handler = ngx_http_once_client_gone;
        }

        r->write_event_handler(r);

    } else if (ctx->failed && ctx->capture == NGX_HTTP_ONCE_OUTCOME) {
        ngx_http_finalize_request(r, NGX_ERROR);  /* large, and it broke off: nobody takes it for whole */

    } else {
        ngx_http_finalize_request(r, rc);
    }

    ngx_http_run_posted_requests(c);
}

ngx_int_t
ngx_http_once_filter_init(ngx_conf_t *cf)
{
    ngx_http_once_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_once_header_filter;

    ngx_http_once_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_once_body_filter;

    return NGX_OK;
}
