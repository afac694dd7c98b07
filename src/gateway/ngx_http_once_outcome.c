/*
 * ngx_http_once_outcome.c - stores the outcome of a claimed request, then sends its answer.
 *
 * Invariants: K3 a fenced attempt sends the stored outcome, never its own.
 *             K4 no byte is sent before the outcome is durable.
 */
#include "ngx_http_once.h"

#include "core/span.h"

/* to store an outcome; then the client is told that it is not stored yet */
#define NGX_HTTP_ONCE_FINISH_MS  15000

static void ngx_http_once_outcome_stored(void *data, ngx_http_once_reply_t *reply);

/* ---------------------------------------------------------------- the outcome */

/* The header lines that are stored for replays. */
static void
ngx_http_once_header_lines(ngx_http_once_ctx_t *ctx, struct once_buf *lines)
{
    u_char                   date[sizeof("Mon, 28 Sep 1970 06:00:00 GMT")];
    ngx_str_t                value;
    ngx_array_t             *replayed = ctx->conf->replay_headers;
    ngx_table_elt_t         *h;
    ngx_http_request_t      *r = ctx->request;
    ngx_http_once_cursor_t   at = { &r->headers_out.headers.part, 0 };

    static ngx_str_t  type = ngx_string("Content-Type");
    static ngx_str_t  modified = ngx_string("Last-Modified");

    if (r->headers_out.content_type.len > 0 && ngx_http_once_is_listed(&type, replayed)) {
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

    /* for a file, nginx has only the time */
    if (r->headers_out.last_modified == NULL && r->headers_out.last_modified_time != -1
        && ngx_http_once_is_listed(&modified, replayed))
    {
        value.data = date;
        value.len = ngx_http_time(date, r->headers_out.last_modified_time) - date;
        ngx_http_once_add_line(lines, &modified, &value);
    }

    while ((h = ngx_http_once_next_header(&at)) != NULL) {
        if (h->hash != 0 && ngx_http_once_is_listed(&h->key, replayed)) {
            ngx_http_once_add_line(lines, &h->key, &h->value);
        }
    }
}

/*
 * nginx believes that it waits for the client, so it applies send_timeout and ends the request if the client closes its
 * side. The request waits for the store: this stops both. A client that is gone is noticed when the answer is sent.
 */
static void
ngx_http_once_ignore_client(ngx_event_t *ev)
{
    ngx_http_once_ctx_t  *ctx = ev->data;
    ngx_http_request_t   *r = ctx->request;

    if (ctx->state != NGX_HTTP_ONCE_STORING || ctx->end == NGX_HTTP_ONCE_STREAMING
        || r->read_event_handler != ngx_http_test_reading)
    {
        return;
    }

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    if (r->connection->write->timer_set) {
        ngx_del_timer(r->connection->write);
    }
}

/* Sets the call that ends the claim from the verdict on the answer, and $once_status. */
static void
ngx_http_once_judge(ngx_http_once_ctx_t *ctx, struct once_request *request)
{
    ngx_uint_t              complete = ctx->capture == NGX_HTTP_ONCE_OUTCOME;
    enum once_http_verdict  verdict = ngx_http_once_make_end_request(ctx, ctx->answer_status, complete, request);

    if (verdict == ONCE_HTTP_DEFERRED) {
        ctx->status = complete ? NGX_HTTP_ONCE_STATUS_DEFERRED_ANSWERED : NGX_HTTP_ONCE_STATUS_DEFERRED;

    } else if (verdict == ONCE_HTTP_UNKNOWN) {
        ctx->status = NGX_HTTP_ONCE_STATUS_UNKNOWN;
    }
}

/* May the answer be sent even if the daemon's reply is an error? */
static ngx_uint_t
ngx_http_once_has_no_outcome(ngx_http_once_ctx_t *ctx)
{
    return ctx->status == NGX_HTTP_ONCE_STATUS_UNAUTHORIZED || ctx->status == NGX_HTTP_ONCE_STATUS_DEFERRED
           || ctx->status == NGX_HTTP_ONCE_STATUS_DEFERRED_ANSWERED;
}

/* Adds headers and body to the outcome, or the flag that they are not kept. */
static void
ngx_http_once_add_answer(ngx_http_once_ctx_t *ctx, struct once_buf *lines, struct once_outcome *outcome)
{
    ngx_uint_t  storable;

    ngx_http_once_header_lines(ctx, lines);

    /* a replay cannot have trailers */
    storable = lines->result == ONCE_OK && ctx->request->headers_out.trailers.part.nelts == 0
               && ctx->keep != NGX_HTTP_ONCE_STORE_REFUSED;

    if (storable) {
        outcome->headers = once_buf_span(lines);
    }

    if (ctx->keep == NGX_HTTP_ONCE_KEEP
        && (!storable || ngx_http_once_withheld(ctx, &outcome->body) != NGX_OK))
    {
        ctx->keep = NGX_HTTP_ONCE_UNSTORABLE;
    }

    outcome->body_dropped = ctx->keep != NGX_HTTP_ONCE_KEEP;
}

ngx_int_t
ngx_http_once_store_outcome(ngx_http_once_ctx_t *ctx)
{
    struct once_buf      lines;
    struct once_request  request;

    ngx_memzero(&request, sizeof(request));
    once_buf_init(&lines, ONCE_HEADERS_LEN_MAX);

    if (ngx_http_once_is_unauthorized(ctx)) {
        ctx->status = NGX_HTTP_ONCE_STATUS_UNAUTHORIZED;
    }

    if (ctx->capture == NGX_HTTP_ONCE_NOT_SENT || ctx->status == NGX_HTTP_ONCE_STATUS_UNAUTHORIZED) {
        request.verb = ONCE_VERB_RELEASE;
        request.grant = ctx->grant;

    } else {
        ngx_http_once_judge(ctx, &request);
    }

    if (ctx->capture == NGX_HTTP_ONCE_OUTCOME && request.verb == ONCE_VERB_FINISH) {
        ngx_http_once_add_answer(ctx, &lines, &request.outcome);
    }

    ngx_http_once_lease_end(ctx);
    ngx_http_once_trace_step(ctx, ONCE_TRACE_FINISH);
    ctx->call = ngx_http_once_call(ctx->conf->daemon, &request, NGX_HTTP_ONCE_FINISH_MS,
                                   ngx_http_once_outcome_stored, ctx);
    once_buf_release(&lines);

    if (ctx->call == NULL) {
        ngx_log_error(NGX_LOG_ERR, ctx->request->connection->log, 0, "once: no memory to store an outcome");
        (void) ngx_http_once_set_state(ctx, NGX_HTTP_ONCE_DONE);
        return NGX_ERROR;
    }

    if (ngx_http_once_set_state(ctx, NGX_HTTP_ONCE_STORING) != NGX_OK) {
        return NGX_ERROR;
    }

    ctx->ignore_client.handler = ngx_http_once_ignore_client;
    ctx->ignore_client.data = ctx;
    ctx->ignore_client.log = ngx_cycle->log;
    ngx_post_event(&ctx->ignore_client, &ngx_posted_events);  /* it runs after nginx has set its handlers */

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

    if (ngx_http_once_add_key_headers(ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ctx->status == NGX_HTTP_ONCE_STATUS_UNKNOWN
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

    out = ctx->overflow;
    ctx->overflow = NULL;

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
            b->last_buf = ctx->end == NGX_HTTP_ONCE_COMPLETE;
            b->flush = !b->last_buf;
            b->last_in_chain = 1;
        }

        cl->buf = b;
        cl->next = out;
        out = cl;
    }

    if (ctx->upstream == NGX_HTTP_ONCE_ACCEL_REDIRECTED) {  /* the copy filter holds the rest of the file */
        return ngx_http_once_next_body_filter(r, out);
    }

    return ngx_http_output_filter(r, out);
}

/* Another attempt took over: sends the stored outcome (K3). */
static ngx_int_t
ngx_http_once_send_stored(ngx_http_once_ctx_t *ctx, ngx_http_once_reply_t *reply)
{
    ngx_http_request_t  *r = ctx->request;
    struct once_record  *record = &reply->record;

    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "once: this attempt was fenced; its answer is not sent");
    ctx->status = NGX_HTTP_ONCE_STATUS_FENCED;
    ctx->expires_at = record->expires_at;

    /* the record is gone, or the key belongs to another request now (K6) */
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
        if (record->retryable) {  /* not an outcome, and possibly never answered */
            return ngx_http_once_send_store_down(r, "another attempt took over, and failed; try again");
        }

        return ngx_http_once_send_replay(r, record);
    }
}

static ngx_int_t
ngx_http_once_send_answer(ngx_http_once_ctx_t *ctx, ngx_http_once_reply_t *reply)
{
    ngx_http_request_t  *r = ctx->request;

    if (reply->result == ONCE_OK && reply->arm == ONCE_ARM_FENCED
        && ctx->capture != NGX_HTTP_ONCE_NOT_SENT)
    {
        ngx_http_clean_header(r);
        return ngx_http_once_send_stored(ctx, reply);
    }

    if (reply->result != ONCE_OK && ctx->capture != NGX_HTTP_ONCE_NOT_SENT && !ngx_http_once_has_no_outcome(ctx)) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "once: cannot store an outcome: %s",
                      reply->err.text);
        ngx_http_clean_header(r);
        return ngx_http_once_send_problem(r, &(ngx_http_once_problem_t){
            NGX_HTTP_SERVICE_UNAVAILABLE, "outcome-not-stored", "The outcome could not be stored yet",
            "it was executed, and its answer is being stored: retry with the same key", 1, 1 });
    }

    switch (ctx->capture) {

    case NGX_HTTP_ONCE_OUTCOME:
        ctx->expires_at = ctx->status == NGX_HTTP_ONCE_STATUS_UNAUTHORIZED ? 0 : reply->record.expires_at;
        return ngx_http_once_send_withheld(ctx);

    case NGX_HTTP_ONCE_FAILURE:
        ngx_http_clean_header(r);

        if (ctx->status == NGX_HTTP_ONCE_STATUS_DEFERRED) {
            return ngx_http_once_send_deferred(ctx);
        }

        if (ctx->conf->takeover != ONCE_TAKEOVER_RERUN) {
            return ngx_http_once_send_unknown(r, &(struct once_record){ .status = ctx->answer_status });
        }

        return ngx_http_once_send_problem(r, &(ngx_http_once_problem_t){
            ctx->answer_status, "upstream-failed", "The service did not answer completely",
            "retry with the same key", 1, 1 });

    default:
        if (r->upstream == NULL || ctx->answer_status < NGX_HTTP_INTERNAL_SERVER_ERROR) {
            return ngx_http_once_send_withheld(ctx);  /* nginx's own answer: 429, 403, ... */
        }

        ngx_http_clean_header(r);
        return ngx_http_once_send_problem(r, &(ngx_http_once_problem_t){
            ctx->answer_status, "upstream-unreachable", "The service was not reached",
            "nothing was executed: retry with the same key", 1, 1 });
    }
}

/* If the upstream is still sending, ending the request also ends the upstream, which drops its reference to the
 * request: an additional reference keeps the request valid meanwhile. */
static void
ngx_http_once_abort_request(ngx_http_request_t *r)
{
    if (r->upstream != NULL && r->upstream->cleanup != NULL) {
        r->main->count++;
    }

    ngx_http_finalize_request(r, NGX_ERROR);
}

/* HTTP/2: the only notice of a client that went away after it had used up its window. */
static void
ngx_http_once_client_gone(ngx_http_request_t *r)
{
    if (r->connection->error) {
        ngx_http_once_abort_request(r);
    }
}

static void
ngx_http_once_unblock(ngx_http_once_ctx_t *ctx)
{
    ngx_http_request_t  *r = ctx->request;

    if (ctx->blocked) {
        ctx->blocked = 0;
        r->main->blocked--;
        /* nginx set the error for the upstream's answer; on HTTP/2 the connection may be broken meanwhile */
        r->connection->error = r->stream != NULL && r->stream->connection->connection->error;
        r->write_event_handler = ngx_http_request_empty_handler;
    }
}

/* `rc`: of sending the answer. */
static void
ngx_http_once_finish_request(ngx_http_once_ctx_t *ctx, ngx_int_t rc)
{
    ngx_http_request_t  *r = ctx->request;

    if (ctx->end != NGX_HTTP_ONCE_STREAMING) {
        /* a large answer that broke off must not look complete */
        ngx_http_finalize_request(r, ctx->end == NGX_HTTP_ONCE_TRUNCATED && ctx->capture == NGX_HTTP_ONCE_OUTCOME
                                     ? NGX_ERROR : rc);
        return;
    }

    if (rc == NGX_ERROR || r->connection->error) {
        ngx_http_once_abort_request(r);
        return;
    }

    if (r->stream != NULL) {  /* the outcome is stored, so the upstream may end with the client */
        r->read_event_handler = ngx_http_once_client_gone;
    }

    r->write_event_handler(r);
}

static void
ngx_http_once_outcome_stored(void *data, ngx_http_once_reply_t *reply)
{
    ngx_int_t             rc;
    ngx_uint_t            streaming, stored;
    ngx_http_once_ctx_t  *ctx = data;
    ngx_http_request_t   *r = ctx->request;
    ngx_connection_t     *c = r->connection;

    ngx_http_set_log_request(c->log, r);

    rc = ngx_http_once_check_state(ctx);
    ctx->call = NULL;
    ngx_http_once_trace_answered(ctx, reply);

    if (rc == NGX_OK && (reply->result == ONCE_INVALID || reply->result == ONCE_LIMIT)
        && ctx->capture == NGX_HTTP_ONCE_OUTCOME && ctx->keep != NGX_HTTP_ONCE_STORE_REFUSED)
    {
        /* the store rejects this answer; store at least that it was executed */
        ngx_log_error(NGX_LOG_WARN, c->log, 0, "once: an answer is not kept: %s", reply->err.text);
        ctx->keep = NGX_HTTP_ONCE_STORE_REFUSED;

        if (ngx_http_once_store_outcome(ctx) == NGX_OK) {
            return;
        }
    }

    if (ctx->state != NGX_HTTP_ONCE_DONE) {
        rc = ngx_http_once_set_state(ctx, NGX_HTTP_ONCE_DONE);
    }

    r->buffered &= ~NGX_HTTP_ONCE_BUFFERED;

    ngx_http_once_unblock(ctx);

    /* a large answer: the upstream still sends, and continues as the client reads */
    streaming = ctx->end == NGX_HTTP_ONCE_STREAMING;

    /* without an outcome nothing has to be stored, except that the outcome of another attempt must be sent */
    stored = reply->result == ONCE_OK ? reply->arm == ONCE_ARM_DONE : ngx_http_once_has_no_outcome(ctx);

    if (rc == NGX_OK && streaming && !stored) {
        ngx_log_error(NGX_LOG_ERR, c->log, 0, "once: a large answer was cut off, because its outcome could not be stored");
        rc = NGX_ERROR;
    }

    if (rc == NGX_OK) {
        ngx_http_once_finish_request(ctx, ngx_http_once_send_answer(ctx, reply));

    } else {
        ngx_http_once_abort_request(r);
    }

    ngx_http_run_posted_requests(c);
}
