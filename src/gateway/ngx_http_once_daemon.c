/*
 * ngx_http_once_daemon.c - one connection per worker to the daemon.
 *
 * Model:      frames (src/wire/wire.h) go out in the order they were asked for and are answered
 *             in any order. A call lives until it is answered. Those that change the store carry
 *             a nonce; they are sent again, marked so, over the next connection, and the store
 *             recognises them. Nothing is written from inside a call: what was asked in one turn
 *             of the event loop goes out in one write.
 * Invariants: K10 a lost answer is asked for again, never guessed.
 *             A claim that was granted after the one who asked had gone is released.
 *             Everything is bounded: calls, bytes waiting, one frame.
 * Not here:   what to ask and what the answers mean (ngx_http_once_request.c, _capture.c).
 */
#include "ngx_http_once_daemon.h"

#include "core/fingerprint.h"
#include "core/span.h"

#include <poll.h>

/* a burst of clients per worker; above it is said at once that there is no room */
#define NGX_HTTP_ONCE_CALLS_MAX    16384
/* of all frames that are not answered yet: mostly bodies of outcomes */
#define NGX_HTTP_ONCE_BYTES_MAX    (256 << 20)
#define NGX_HTTP_ONCE_OUT_LEN      (1 << 20)
#define NGX_HTTP_ONCE_READ_LEN     (64 << 10)
#define NGX_HTTP_ONCE_BACKOFF_MIN  50
#define NGX_HTTP_ONCE_BACKOFF_MAX  2000
#define NGX_HTTP_ONCE_GREET_MS     5000
/* how soon what the store could not do now is asked again */
#define NGX_HTTP_ONCE_AGAIN_MS     200
/* nobody asks any more: a worker that is to quit stays so long for the answer */
#define NGX_HTTP_ONCE_STAY_MS      10000
/* ... and so long it is asked for: by then most leases are over */
#define NGX_HTTP_ONCE_ORPHAN_MS    600000
/* at exit: for the last frames to be answered */
#define NGX_HTTP_ONCE_EXIT_MS      2000

static void ngx_http_once_connect(ngx_http_once_daemon_t *d);
static void ngx_http_once_disconnect(ngx_http_once_daemon_t *d, const char *why);
static void ngx_http_once_tell_waiters(ngx_http_once_daemon_t *d);

/* ---------------------------------------------------------------- calls */

/* Empty again; what one large frame needed is not kept for ever. */
static void
ngx_http_once_empty(struct once_buf *buf)
{
    size_t  max = buf->max;

    if (buf->cap > 2 * NGX_HTTP_ONCE_OUT_LEN) {
        once_buf_release(buf);
        once_buf_init(buf, max);
    }

    once_buf_clear(buf);
}

static void
ngx_http_once_call_free(ngx_http_once_call_t *call)
{
    ngx_http_once_daemon_t  *d = call->daemon;

    if (call->timer.timer_set) {
        ngx_del_timer(&call->timer);
    }

    if (call->is_unsent) {
        ngx_queue_remove(&call->unsent);
    }

    ngx_queue_remove(&call->all);
    ngx_rbtree_delete(&d->calls, &call->node);
    d->count--;
    d->bytes -= call->frame.len;
    once_buf_release(&call->again);
    ngx_free(call);
}

static ngx_http_once_call_t *
ngx_http_once_call_find(ngx_http_once_daemon_t *d, uint32_t id)
{
    ngx_rbtree_node_t  *node = d->calls.root;

    while (node != &d->sentinel) {
        if (node->key == id) {
            return ngx_rbtree_data(node, ngx_http_once_call_t, node);
        }

        node = id < node->key ? node->left : node->right;
    }

    return NULL;
}

/* does it matter when nobody waits for the answer? */
static ngx_uint_t
ngx_http_once_call_lasts(ngx_http_once_call_t *call)
{
    return call->verb == ONCE_VERB_CLAIM || call->verb == ONCE_VERB_FINISH
           || call->verb == ONCE_VERB_RELEASE;
}

static void
ngx_http_once_call_unsent(ngx_http_once_call_t *call)
{
    if (!call->is_unsent) {
        call->is_unsent = 1;
        ngx_queue_insert_tail(&call->daemon->unsent, &call->unsent);
    }
}

void
ngx_http_once_post_write(ngx_http_once_daemon_t *d)
{
    if (d->state == NGX_HTTP_ONCE_READY) {
        ngx_post_event(d->peer.connection->write, &ngx_posted_events);
    }
}

static void
ngx_http_once_call_timeout(ngx_event_t *ev)
{
    ngx_http_once_reply_t   reply;
    ngx_http_once_call_t   *call = ev->data;
    ngx_http_once_done_pt   handler = call->handler;
    void                   *data = call->data;

    if (handler != NULL && ngx_http_once_due_late(&call->due, ev) == NGX_AGAIN) {
        return;
    }

    if (handler == NULL && !ev->cancelable) {
        ev->cancelable = 1;  /* exiting gives it a last chance */
        ngx_add_timer(ev, NGX_HTTP_ONCE_ORPHAN_MS);

    } else if (handler == NULL || !ngx_http_once_call_lasts(call)) {
        ngx_http_once_call_free(call);

    } else {
        ngx_http_once_call_disown(call);
    }

    if (handler != NULL) {
        ngx_memzero(&reply, sizeof(reply));
        reply.result = ONCE_UNAVAILABLE;
        snprintf(reply.err.text, sizeof reply.err.text, "the daemon does not answer");
        handler(data, &reply);
    }
}

ngx_http_once_call_t *
ngx_http_once_call(ngx_http_once_daemon_t *d, const struct once_request *request,
    ngx_msec_t timeout, ngx_http_once_done_pt handler, void *data)
{
    size_t                 len;
    struct wire_call       wire;
    ngx_http_once_call_t  *call;

    /* what ends a claim is always let in: there are no more of those than claims */
    if (d->count >= NGX_HTTP_ONCE_CALLS_MAX || d->bytes >= NGX_HTTP_ONCE_BYTES_MAX) {
        if (request->verb != ONCE_VERB_FINISH && request->verb != ONCE_VERB_RELEASE) {
            return NULL;
        }
    }

    wire.request = *request;
    wire.again = false;

    if (ngx_http_once_nonce(wire.nonce) != NGX_OK) {
        return NULL;
    }

    if (request->verb == ONCE_VERB_CLAIM) {
        ngx_memcpy(wire.request.claim.nonce, wire.nonce, sizeof wire.nonce);
    }

    once_buf_clear(&d->frame);
    ngx_http_once_trace_context(&d->frame, d->next_id, data);
    wire_put_call(&d->frame, d->next_id, &wire);

    len = d->frame.len <= NGX_HTTP_ONCE_READ_LEN ? d->frame.len : 0;
    call = d->frame.result == ONCE_OK ? ngx_alloc(sizeof(ngx_http_once_call_t) + len, ngx_cycle->log) : NULL;
    if (call == NULL) {
        return NULL;
    }

    ngx_memzero(call, sizeof(ngx_http_once_call_t));
    ngx_memcpy(call + 1, d->frame.ptr, len);
    call->frame = once_span_of(call + 1, len);
    call->again.max = d->frame.max;

    if (len == 0) {  /* a large one is not copied */
        call->again = d->frame;
        call->frame = once_buf_span(&d->frame);
        once_buf_init(&d->frame, d->frame.max);
    }

    call->daemon = d;
    call->verb = request->verb;
    call->handler = handler;
    call->data = data;
    call->node.key = d->next_id++;

    ngx_rbtree_insert(&d->calls, &call->node);
    ngx_queue_insert_tail(&d->all, &call->all);
    d->count++;
    d->bytes += call->frame.len;

    /* also what keeps a worker that is to quit until the answer is there */
    ngx_http_once_due(&call->due, &call->timer, ngx_http_once_call_timeout, call,
                      handler != NULL ? timeout : NGX_HTTP_ONCE_STAY_MS);

    ngx_http_once_call_unsent(call);
    ngx_http_once_post_write(d);

    return call;
}

void
ngx_http_once_call_disown(ngx_http_once_call_t *call)
{
    call->handler = NULL;
    call->data = NULL;

    ngx_add_timer(&call->timer, NGX_HTTP_ONCE_STAY_MS);
}

/* Sent again after its answer was lost, it says so. */
static ngx_int_t
ngx_http_once_call_mark_again(ngx_http_once_call_t *call)
{
    size_t             used;
    once_span          bare;
    struct once_buf    frame;
    struct wire_call   wire;
    struct wire_frame  old;

    bare = ngx_http_once_trace_skip(call->frame);

    if (wire_next(bare, &old, &used, NULL) != ONCE_OK
        || used == 0
        || wire_get_call(old.payload, &wire, NULL) != ONCE_OK)
    {
        return NGX_ERROR;
    }

    wire.again = true;

    if (call->verb == ONCE_VERB_CLAIM && call->handler == NULL) {
        wire.request.claim.wait_ms = 0;
    }

    once_buf_init(&frame, call->again.max);
    once_buf_add(&frame, once_span_of(call->frame.ptr, call->frame.len - bare.len));
    wire_put_call(&frame, old.id, &wire);

    if (frame.result != ONCE_OK) {
        once_buf_release(&frame);
        return NGX_ERROR;
    }

    call->daemon->bytes += frame.len - call->frame.len;
    once_buf_release(&call->again);
    call->again = frame;
    call->frame = once_buf_span(&frame);

    return NGX_OK;
}

static void
ngx_http_once_call_answered(ngx_http_once_call_t *call, ngx_http_once_reply_t *reply)
{
    void                    *data = call->data;
    struct once_request      request;
    ngx_http_once_done_pt    handler = call->handler;
    ngx_http_once_daemon_t  *d = call->daemon;

    if (reply->result != ONCE_OK
        && (call->verb == ONCE_VERB_FINISH || call->verb == ONCE_VERB_RELEASE
            || reply->result == ONCE_UNKNOWN)
        && (reply->result == ONCE_BUSY || reply->result == ONCE_UNAVAILABLE
            || reply->result == ONCE_UNKNOWN)
        && ngx_http_once_call_lasts(call))
    {
        /* it must be said: later */
        (void) ngx_http_once_call_mark_again(call);
        call->again_at = ngx_current_msec + NGX_HTTP_ONCE_AGAIN_MS;
        ngx_http_once_call_unsent(call);

        if (!d->timer.timer_set) {
            ngx_add_timer(&d->timer, NGX_HTTP_ONCE_AGAIN_MS);
        }

        return;
    }

    if (handler == NULL && call->verb == ONCE_VERB_CLAIM && reply->result == ONCE_OK
        && (reply->arm == ONCE_ARM_EXECUTE || reply->arm == ONCE_ARM_PROBE))
    {
        /* granted to nobody, so nothing was done */
        ngx_memzero(&request, sizeof(request));
        request.verb = ONCE_VERB_RELEASE;
        request.grant = reply->record.grant;
        (void) ngx_http_once_call(d, &request, 0, NULL, NULL);
    }

    ngx_http_once_call_free(call);

    if (handler != NULL) {
        handler(data, reply);
    }
}

/* ---------------------------------------------------------------- frames */

static ngx_int_t
ngx_http_once_frame(ngx_http_once_daemon_t *d, const struct wire_frame *frame)
{
    struct wire_welcome     welcome;
    ngx_http_once_call_t   *call;
    ngx_http_once_reply_t   reply;

    if (d->state == NGX_HTTP_ONCE_GREETING) {

        if (frame->type == WIRE_FAILED) {
            (void) wire_get_failed(frame->payload, &reply.err);

            if (!d->refused) {
                d->refused = 1;
                d->complained = 1;
                ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, "once daemon at \"%V\" refuses: %s",
                              &d->path, reply.err.text);
            }

            return NGX_ERROR;
        }

        if (frame->type != WIRE_WELCOME
            || wire_get_welcome(frame->payload, &welcome, NULL) != ONCE_OK)
        {
            return NGX_ERROR;
        }

        once_mac_init(&d->secret, once_span_of(welcome.secret, sizeof welcome.secret));
        once_fingerprint_salt(&d->secret, once_span_of(NULL, 0), &d->salt);
        ngx_explicit_memzero(welcome.secret, sizeof(welcome.secret));

        d->welcomed = 1;
        d->best_effort = welcome.best_effort;
        d->state = NGX_HTTP_ONCE_READY;
        d->backoff = NGX_HTTP_ONCE_BACKOFF_MIN;

        if (d->complained) {
            d->complained = 0;
            d->refused = 0;
            ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0, "once daemon at \"%V\" is back", &d->path);
        }

        if (d->timer.timer_set) {
            ngx_del_timer(&d->timer);
        }

        ngx_http_once_post_write(d);

        ngx_http_once_tell_waiters(d);

        return NGX_OK;
    }

    call = ngx_http_once_call_find(d, frame->id);
    if (call == NULL) {
        return NGX_OK;  /* an extension that nobody waited for any more */
    }

    reply.result = ONCE_OK;
    reply.err.text[0] = '\0';

    if (frame->type == WIRE_FAILED) {
        ngx_memzero(&reply, sizeof(reply));
        reply.result = wire_get_failed(frame->payload, &reply.err);
        if (reply.result == ONCE_OK) {
            return NGX_ERROR;
        }

    } else if (frame->type != WIRE_REPLY
               || wire_get_reply(frame->payload, &reply.arm, &reply.retry_after_ms,
                                 &reply.record, &reply.err) != ONCE_OK)
    {
        return NGX_ERROR;
    }

    ngx_http_once_call_answered(call, &reply);

    return NGX_OK;
}

/* All complete frames that were read. Handlers never disconnect: they only ask more. */
static ngx_int_t
ngx_http_once_frames(ngx_http_once_daemon_t *d)
{
    size_t             used;
    struct wire_frame  frame;

    for ( ;; ) {
        if (wire_next(once_span_skip(once_buf_span(&d->in), d->parsed), &frame, &used, NULL) != ONCE_OK) {
            return NGX_ERROR;
        }

        if (used == 0) {
            break;
        }

        if (ngx_http_once_frame(d, &frame) != NGX_OK) {
            return NGX_ERROR;
        }

        d->parsed += used;
    }

    if (d->parsed == d->in.len) {
        ngx_http_once_empty(&d->in);
        d->parsed = 0;

    } else if (d->parsed > NGX_HTTP_ONCE_READ_LEN) {
        ngx_memmove(d->in.ptr, d->in.ptr + d->parsed, d->in.len - d->parsed);
        d->in.len -= d->parsed;
        d->parsed = 0;
    }

    return NGX_OK;
}

static void
ngx_http_once_read_handler(ngx_event_t *ev)
{
    u_char                  *at;
    ssize_t                  n;
    ngx_connection_t        *c = ev->data;
    ngx_http_once_daemon_t  *d = c->data;

    for ( ;; ) {
        at = once_buf_reserve(&d->in, NGX_HTTP_ONCE_READ_LEN);
        if (at == NULL) {
            ngx_http_once_disconnect(d, "no memory for an answer");
            return;
        }

        n = c->recv(c, at, NGX_HTTP_ONCE_READ_LEN);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n <= 0) {
            ngx_http_once_disconnect(d, "it closed the connection");
            return;
        }

        d->in.len += n;

        if (ngx_http_once_frames(d) != NGX_OK) {
            ngx_http_once_disconnect(d, "its answer is not understood");
            return;
        }
    }

    if (ngx_handle_read_event(ev, 0) != NGX_OK) {
        ngx_http_once_disconnect(d, "no event");
    }
}

/* Fills the buffer with what is to be asked, as far as there is room. */
static void
ngx_http_once_gather(ngx_http_once_daemon_t *d)
{
    ngx_queue_t           *q, *next;
    ngx_http_once_call_t  *call;

    for (q = ngx_queue_head(&d->unsent);
         q != ngx_queue_sentinel(&d->unsent) && d->out.len < NGX_HTTP_ONCE_OUT_LEN;
         q = next)
    {
        next = ngx_queue_next(q);
        call = ngx_queue_data(q, ngx_http_once_call_t, unsent);

        if (call->again_at != 0 && (ngx_msec_int_t) (call->again_at - ngx_current_msec) > 0) {
            continue;
        }

        once_buf_add(&d->out, call->frame);
        if (d->out.result != ONCE_OK) {
            d->out.result = ONCE_OK;  /* it did not fit: next time */
            return;
        }

        ngx_queue_remove(q);
        call->is_unsent = 0;
        call->was_sent = 1;
        call->again_at = 0;
    }

    ngx_http_once_trace_gather(d);
}

static void
ngx_http_once_write_handler(ngx_event_t *ev)
{
    ssize_t                  n;
    ngx_connection_t        *c = ev->data;
    ngx_http_once_daemon_t  *d = c->data;

    for ( ;; ) {
        if (d->sent == d->out.len) {
            ngx_http_once_empty(&d->out);
            d->sent = 0;

            if (d->state == NGX_HTTP_ONCE_READY) {
                ngx_http_once_gather(d);
            }

            if (d->out.len == 0) {
                break;
            }
        }

        n = c->send(c, d->out.ptr + d->sent, d->out.len - d->sent);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n < 0 && d->state == NGX_HTTP_ONCE_GREETING) {
            /* one that refuses has closed it already, and said why: reading tells */
            d->sent = d->out.len;
            return;
        }

        if (n < 0) {
            ngx_http_once_disconnect(d, "it cannot be written to");
            return;
        }

        d->sent += n;
    }

    if (ngx_handle_write_event(ev, 0) != NGX_OK) {
        ngx_http_once_disconnect(d, "no event");
    }
}

/* ---------------------------------------------------------------- the connection */

/* It is there, or it is not coming. There are waiters only while it is being greeted. */
static void
ngx_http_once_tell_waiters(ngx_http_once_daemon_t *d)
{
    ngx_queue_t             *q;
    ngx_http_once_waiter_t  *w;

    while (d->state != NGX_HTTP_ONCE_GREETING && !ngx_queue_empty(&d->waiters)) {
        q = ngx_queue_head(&d->waiters);
        ngx_queue_remove(q);
        w = ngx_queue_data(q, ngx_http_once_waiter_t, queue);
        w->queue.next = NULL;
        w->handler(w->data);
    }
}

static void
ngx_http_once_disconnect(ngx_http_once_daemon_t *d, const char *why)
{
    ngx_queue_t           *q, *next;
    ngx_http_once_call_t  *call;

    if (!d->complained) {
        d->complained = 1;
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0, "once daemon at \"%V\" is away: %s", &d->path, why);
    }

    if (d->peer.connection != NULL) {
        ngx_close_connection(d->peer.connection);
        d->peer.connection = NULL;
    }

    d->state = NGX_HTTP_ONCE_DOWN;
    once_buf_clear(&d->out);
    once_buf_clear(&d->in);
    d->sent = d->parsed = 0;

    /* oldest first, as they were asked */
    ngx_queue_init(&d->unsent);

    for (q = ngx_queue_head(&d->all); q != ngx_queue_sentinel(&d->all); q = next) {
        next = ngx_queue_next(q);
        call = ngx_queue_data(q, ngx_http_once_call_t, all);
        call->is_unsent = 0;

        if (call->handler == NULL && !ngx_http_once_call_lasts(call)) {
            ngx_http_once_call_free(call);
            continue;
        }

        if (call->was_sent) {
            (void) ngx_http_once_call_mark_again(call);
        }

        ngx_http_once_call_unsent(call);
    }

    ngx_add_timer(&d->timer, d->backoff);
    d->backoff = ngx_min(d->backoff * 2, NGX_HTTP_ONCE_BACKOFF_MAX);

    ngx_http_once_tell_waiters(d);
}

static void
ngx_http_once_timer_handler(ngx_event_t *ev)
{
    ngx_http_once_daemon_t  *d = ev->data;

    switch (d->state) {

    case NGX_HTTP_ONCE_DOWN:
        ngx_http_once_connect(d);
        break;

    case NGX_HTTP_ONCE_GREETING:
        if (ngx_http_once_due_late(&d->due, ev) != NGX_AGAIN) {
            ngx_http_once_disconnect(d, "it does not say welcome");
        }
        break;

    case NGX_HTTP_ONCE_READY:  /* something is to be asked again */
        ngx_http_once_post_write(d);
        if (!ngx_queue_empty(&d->unsent)) {
            ngx_add_timer(&d->timer, NGX_HTTP_ONCE_AGAIN_MS);
        }
        break;
    }
}

static void
ngx_http_once_connect(ngx_http_once_daemon_t *d)
{
    ngx_int_t          rc;
    ngx_connection_t  *c;

    d->tried = ngx_current_msec;

    ngx_memzero(&d->peer, sizeof(ngx_peer_connection_t));
    d->peer.sockaddr = (struct sockaddr *) &d->address;
    d->peer.socklen = sizeof(struct sockaddr_un);
    d->peer.name = &d->path;
    d->peer.get = ngx_event_get_peer;
    d->quiet = *ngx_cycle->log;
    d->quiet.log_level = NGX_LOG_STDERR;
    d->peer.log = &d->quiet;
    d->peer.log_error = NGX_ERROR_ERR;

    rc = ngx_event_connect_peer(&d->peer);

    if (rc != NGX_OK && rc != NGX_AGAIN) {
        ngx_http_once_disconnect(d, "it cannot be connected");
        return;
    }

    c = d->peer.connection;
    c->data = d;
    c->log = ngx_cycle->log;
    c->read->log = c->log;
    c->write->log = c->log;
    c->read->handler = ngx_http_once_read_handler;
    c->write->handler = ngx_http_once_write_handler;

    wire_put_hello(&d->out, d->next_id++,
                   &(struct wire_hello){ .version = WIRE_VERSION, .name = ONCE_LIT("nginx") });

    d->state = NGX_HTTP_ONCE_GREETING;
    ngx_http_once_due(&d->due, &d->timer, ngx_http_once_timer_handler, d, NGX_HTTP_ONCE_GREET_MS);

    ngx_post_event(c->write, &ngx_posted_events);
}

ngx_int_t
ngx_http_once_daemon_state(ngx_http_once_daemon_t *d)
{
    /* it may have come back since: a unix socket tells at once */
    if (d->state == NGX_HTTP_ONCE_DOWN && ngx_current_msec - d->tried >= NGX_HTTP_ONCE_BACKOFF_MIN) {
        ngx_http_once_connect(d);
    }

    return d->state == NGX_HTTP_ONCE_READY ? NGX_OK
         : d->state == NGX_HTTP_ONCE_GREETING ? NGX_AGAIN : NGX_DECLINED;
}

void
ngx_http_once_daemon_wait(ngx_http_once_daemon_t *d, ngx_http_once_waiter_t *w)
{
    ngx_queue_insert_tail(&d->waiters, &w->queue);
}

const struct once_mac *
ngx_http_once_daemon_secret(ngx_http_once_daemon_t *d)
{
    return d->welcomed ? &d->secret : NULL;
}

ngx_uint_t
ngx_http_once_daemon_best_effort(ngx_http_once_daemon_t *d)
{
    return d->best_effort;
}

const struct once_mac *
ngx_http_once_daemon_salt(ngx_http_once_daemon_t *d)
{
    return &d->salt;
}

/* ---------------------------------------------------------------- its life */

ngx_http_once_daemon_t *
ngx_http_once_daemon_add(ngx_conf_t *cf, ngx_http_once_main_conf_t *omcf, ngx_str_t *path)
{
    ngx_uint_t               i;
    ngx_http_once_daemon_t  *d, **known;

    known = omcf->daemons.elts;

    for (i = 0; i < omcf->daemons.nelts; i++) {
        if (known[i]->path.len == path->len && ngx_strncmp(known[i]->path.data, path->data, path->len) == 0) {
            return known[i];
        }
    }

    d = ngx_pcalloc(cf->pool, sizeof(ngx_http_once_daemon_t));
    known = ngx_array_push(&omcf->daemons);
    if (d == NULL || known == NULL) {
        return NULL;
    }

    *known = d;
    d->path = *path;
    d->address.sun_family = AF_UNIX;
    ngx_memcpy(d->address.sun_path, path->data, path->len);

    return d;
}

void
ngx_http_once_daemon_start(ngx_http_once_daemon_t *d)
{
    once_buf_init(&d->out, NGX_HTTP_ONCE_OUT_LEN + WIRE_FRAME_LEN_MAX + 4);
    once_buf_init(&d->frame, WIRE_FRAME_LEN_MAX + 4);
    once_buf_init(&d->in, WIRE_FRAME_LEN_MAX + 4 + 2 * NGX_HTTP_ONCE_READ_LEN);
    ngx_rbtree_init(&d->calls, &d->sentinel, ngx_rbtree_insert_value);
    ngx_queue_init(&d->all);
    ngx_queue_init(&d->unsent);
    ngx_queue_init(&d->waiters);
    once_buf_init(&d->spans, NGX_HTTP_ONCE_SPANS_LEN);

    d->next_id = 1;
    d->backoff = NGX_HTTP_ONCE_BACKOFF_MIN;
    d->timer.handler = ngx_http_once_timer_handler;
    d->timer.data = d;
    d->timer.log = ngx_cycle->log;
    d->timer.cancelable = 1;  /* it is the calls that keep a worker */

    ngx_http_once_connect(d);
}

/* The worker ends. What is still to be said is said now, for a bounded time. */
static void
ngx_http_once_drain(ngx_http_once_daemon_t *d)
{
    u_char          *at;
    ssize_t          n;
    ngx_int_t        left;
    ngx_msec_t       begin;
    struct pollfd    fd;

    ngx_time_update();
    begin = ngx_current_msec;

    while (d->state == NGX_HTTP_ONCE_READY && (d->count > 0 || d->spans.len > 0 || d->sent < d->out.len)) {

        ngx_time_update();
        left = (ngx_int_t) NGX_HTTP_ONCE_EXIT_MS - (ngx_int_t) (ngx_current_msec - begin);
        if (left <= 0) {
            return;
        }

        if (d->sent == d->out.len) {
            once_buf_clear(&d->out);
            d->sent = 0;
            ngx_http_once_gather(d);
        }

        fd.fd = d->peer.connection->fd;
        fd.events = POLLIN | (d->out.len > 0 ? POLLOUT : 0);

        /* what was busy is asked again in between */
        if (poll(&fd, 1, (int) ngx_min(left, NGX_HTTP_ONCE_AGAIN_MS)) < 0) {
            if (ngx_errno == NGX_EINTR) {
                continue;
            }
            return;
        }

        if (fd.revents & POLLOUT) {
            n = send(fd.fd, d->out.ptr + d->sent, d->out.len - d->sent, MSG_NOSIGNAL);
            d->sent += n > 0 ? n : 0;
        }

        if (fd.revents & (POLLIN|POLLHUP|POLLERR)) {
            at = once_buf_reserve(&d->in, NGX_HTTP_ONCE_READ_LEN);
            n = at != NULL ? recv(fd.fd, at, NGX_HTTP_ONCE_READ_LEN, 0) : 0;

            if (n < 0 && (ngx_errno == NGX_EAGAIN || ngx_errno == NGX_EINTR)) {
                continue;
            }

            if (n <= 0) {
                return;
            }

            d->in.len += n;
            if (ngx_http_once_frames(d) != NGX_OK) {
                return;
            }
        }
    }
}

void
ngx_http_once_daemon_stop(ngx_http_once_daemon_t *d)
{
    ngx_queue_t           *q;
    ngx_http_once_call_t  *call;

    if (d->all.next == NULL) {
        return;  /* it was never started */
    }

    /* there are no requests any more */
    for (q = ngx_queue_head(&d->all); q != ngx_queue_sentinel(&d->all); q = ngx_queue_next(q)) {
        call = ngx_queue_data(q, ngx_http_once_call_t, all);
        call->handler = NULL;
    }

    ngx_http_once_drain(d);

    if (d->count > 0) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "once daemon at \"%V\" left %ui calls unanswered", &d->path, d->count);
    }

    while (!ngx_queue_empty(&d->all)) {
        ngx_http_once_call_free(ngx_queue_data(ngx_queue_head(&d->all), ngx_http_once_call_t, all));
    }

    if (d->peer.connection != NULL) {
        ngx_close_connection(d->peer.connection);
        d->peer.connection = NULL;
    }

    if (d->timer.timer_set) {
        ngx_del_timer(&d->timer);
    }

    d->state = NGX_HTTP_ONCE_DOWN;
    once_buf_release(&d->out);
    once_buf_release(&d->in);
    once_buf_release(&d->frame);
    once_buf_release(&d->spans);
    ngx_explicit_memzero(&d->secret, sizeof(d->secret));
    ngx_explicit_memzero(&d->salt, sizeof(d->salt));
}
