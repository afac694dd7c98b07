/*
 * ngx_http_once_call.c - calls to the daemon, from the first send until the reply.
 *
 * Invariants: K10 the module asks again for a lost reply, it never guesses.
 *             A claim that is granted after its caller has gone is released.
 */
#include "ngx_http_once_daemon.h"

#include "core/span.h"

#include <sys/random.h>

/* a burst of clients per worker; further calls fail at once */
#define NGX_HTTP_ONCE_CALLS_MAX    16384
/* of all frames without a reply: mostly bodies of outcomes */
#define NGX_HTTP_ONCE_BYTES_MAX    (256 << 20)
/* a worker that quits waits so long for the reply to a detached call */
#define NGX_HTTP_ONCE_EXIT_WAIT_MS      10000
/* a detached call is sent again for so long: most leases have ended by then */
#define NGX_HTTP_ONCE_ORPHAN_MS    600000

/* One system call per nonce would be a twentieth of a request's cost: one gets sixteen of them. Only workers call this, after
 * the fork, so no two of them share bytes. */
ngx_int_t
ngx_http_once_nonce(uint8_t nonce[16])
{
    static u_char  pool[256];  /* getrandom() returns up to 256 bytes without interruption */
    static size_t  used = sizeof(pool);

    if (used == sizeof(pool)) {
        if (getrandom(pool, sizeof pool, 0) != sizeof pool) {
            return NGX_ERROR;
        }

        used = 0;
    }

    ngx_memcpy(nonce, pool + used, 16);
    used += 16;

    return NGX_OK;
}

void
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
    once_buf_release(&call->own_frame);
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

/* must it reach the store even if nobody waits for the reply? */
static ngx_uint_t
ngx_http_once_call_must_complete(ngx_http_once_call_t *call)
{
    return call->verb == ONCE_VERB_CLAIM || call->verb == ONCE_VERB_FINISH
           || call->verb == ONCE_VERB_RELEASE;
}

static void
ngx_http_once_call_enqueue(ngx_http_once_call_t *call)
{
    if (!call->is_unsent) {
        call->is_unsent = 1;
        ngx_queue_insert_tail(&call->daemon->unsent, &call->unsent);
    }
}

static void
ngx_http_once_call_timeout(ngx_event_t *ev)
{
    ngx_http_once_reply_t   reply;
    ngx_http_once_call_t   *call = ev->data;
    ngx_http_once_done_pt   handler = call->handler;
    void                   *data = call->data;

    if (handler != NULL && ngx_http_once_deadline_late(&call->deadline, ev) == NGX_AGAIN) {
        return;
    }

    if (handler == NULL && !ev->cancelable) {
        ev->cancelable = 1;  /* no longer delays the exit; ngx_http_once_drain() tries it once more */
        ngx_add_timer(ev, NGX_HTTP_ONCE_ORPHAN_MS);

    } else if (handler == NULL || !ngx_http_once_call_must_complete(call)) {
        ngx_http_once_call_free(call);

    } else {
        ngx_http_once_call_detach(call);
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

    /* calls that end a claim are always accepted: there are never more of them than claims */
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
    call->own_frame.max = d->frame.max;

    if (len == 0) {  /* a large frame is moved, not copied */
        call->own_frame = d->frame;
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

    /* this timer also keeps a worker that quits alive until the reply */
    ngx_http_once_deadline(&call->deadline, &call->timer, ngx_http_once_call_timeout, call,
                      handler != NULL ? timeout : NGX_HTTP_ONCE_EXIT_WAIT_MS);

    ngx_http_once_call_enqueue(call);
    ngx_http_once_post_write(d);

    return call;
}

void
ngx_http_once_call_detach(ngx_http_once_call_t *call)
{
    call->handler = NULL;
    call->data = NULL;

    ngx_add_timer(&call->timer, NGX_HTTP_ONCE_EXIT_WAIT_MS);
}

/* Sets the flag that says that the call may have been received before. */
static ngx_int_t
ngx_http_once_call_mark_resent(ngx_http_once_call_t *call)
{
    size_t             used;
    once_span          bare;
    struct once_buf    frame;
    struct wire_call   wire;
    struct wire_frame  old;

    bare = ngx_http_once_trace_skip_context(call->frame);

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

    once_buf_init(&frame, call->own_frame.max);
    once_buf_add(&frame, once_span_of(call->frame.ptr, call->frame.len - bare.len));
    wire_put_call(&frame, old.id, &wire);

    if (frame.result != ONCE_OK) {
        once_buf_release(&frame);
        return NGX_ERROR;
    }

    call->daemon->bytes += frame.len - call->frame.len;
    once_buf_release(&call->own_frame);
    call->own_frame = frame;
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
        && ngx_http_once_call_must_complete(call))
    {
        /* the store must get it: try later */
        (void) ngx_http_once_call_mark_resent(call);
        call->retry_at = ngx_current_msec + NGX_HTTP_ONCE_RETRY_MS;
        ngx_http_once_call_enqueue(call);

        if (!d->timer.timer_set) {
            ngx_add_timer(&d->timer, NGX_HTTP_ONCE_RETRY_MS);
        }

        return;
    }

    if (handler == NULL && call->verb == ONCE_VERB_CLAIM && reply->result == ONCE_OK
        && (reply->arm == ONCE_ARM_EXECUTE || reply->arm == ONCE_ARM_PROBE))
    {
        /* nobody received this grant, so nothing was executed */
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

void
ngx_http_once_calls_write(ngx_http_once_daemon_t *d)
{
    ngx_queue_t           *q, *next;
    ngx_http_once_call_t  *call;

    for (q = ngx_queue_head(&d->unsent);
         q != ngx_queue_sentinel(&d->unsent) && d->out.len < NGX_HTTP_ONCE_OUT_LEN;
         q = next)
    {
        next = ngx_queue_next(q);
        call = ngx_queue_data(q, ngx_http_once_call_t, unsent);

        if (call->retry_at != 0 && (ngx_msec_int_t) (call->retry_at - ngx_current_msec) > 0) {
            continue;
        }

        once_buf_add(&d->out, call->frame);
        if (d->out.result != ONCE_OK) {
            d->out.result = ONCE_OK;  /* no room: next time */
            return;
        }

        ngx_queue_remove(q);
        call->is_unsent = 0;
        call->was_sent = 1;
        call->retry_at = 0;
    }

    ngx_http_once_trace_write(d);
}

void
ngx_http_once_calls_requeue(ngx_http_once_daemon_t *d)
{
    ngx_queue_t           *q, *next;
    ngx_http_once_call_t  *call;

    /* oldest first */
    ngx_queue_init(&d->unsent);

    for (q = ngx_queue_head(&d->all); q != ngx_queue_sentinel(&d->all); q = next) {
        next = ngx_queue_next(q);
        call = ngx_queue_data(q, ngx_http_once_call_t, all);
        call->is_unsent = 0;

        if (call->handler == NULL && !ngx_http_once_call_must_complete(call)) {
            ngx_http_once_call_free(call);
            continue;
        }

        if (call->was_sent) {
            (void) ngx_http_once_call_mark_resent(call);
        }

        ngx_http_once_call_enqueue(call);
    }
}

ngx_int_t
ngx_http_once_call_reply(ngx_http_once_daemon_t *d, const struct wire_frame *frame)
{
    ngx_http_once_call_t   *call = ngx_http_once_call_find(d, frame->id);
    ngx_http_once_reply_t   reply;

    if (call == NULL) {
        return NGX_OK;  /* a detached extend */
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
