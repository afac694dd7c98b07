/*
 * ngx_http_once_daemon.c - one connection per worker to the daemon.
 *
 * Model:      frames (src/wire/wire.h) are sent in the order of the calls and answered in any order. Calls that
 *             change the store carry a nonce; after a lost connection they are sent again, marked as resent, and the
 *             store recognises them. A call only queues its frame: all calls of one turn of the event loop go out in one
 *             write.
 * Invariants: everything is bounded: calls, queued bytes, the size of a frame.
 * Not here:   the life of a call (ngx_http_once_call.c); who calls, and what replies mean (_claim.c, _outcome.c).
 */
#include "ngx_http_once_daemon.h"

#include "core/fingerprint.h"
#include "core/span.h"

#include <poll.h>

#define NGX_HTTP_ONCE_BACKOFF_MIN  50
#define NGX_HTTP_ONCE_BACKOFF_MAX  2000
#define NGX_HTTP_ONCE_GREET_MS     5000
/* at exit, for replies to the last frames */
#define NGX_HTTP_ONCE_EXIT_MS      2000

static void ngx_http_once_connect(ngx_http_once_daemon_t *d);
static void ngx_http_once_disconnect(ngx_http_once_daemon_t *d, const char *why);
static void ngx_http_once_wake_waiters(ngx_http_once_daemon_t *d);

/* ---------------------------------------------------------------- frames */

/* Empties the buffer, and frees it if a large frame made it grow. */
static void
ngx_http_once_buf_reset(struct once_buf *buf)
{
    size_t  max = buf->max;

    if (buf->cap > 2 * NGX_HTTP_ONCE_OUT_LEN) {
        once_buf_release(buf);
        once_buf_init(buf, max);
    }

    once_buf_clear(buf);
}

void
ngx_http_once_post_write(ngx_http_once_daemon_t *d)
{
    if (d->state == NGX_HTTP_ONCE_READY) {
        ngx_post_event(d->peer.connection->write, &ngx_posted_events);
    }
}

static ngx_int_t
ngx_http_once_read_welcome(ngx_http_once_daemon_t *d, const struct wire_frame *frame)
{
    struct once_error    err;
    struct wire_welcome  welcome;

    if (frame->type == WIRE_FAILED) {
        (void) wire_get_failed(frame->payload, &err);

        if (!d->refusal_logged) {
            d->refusal_logged = 1;
            d->down_logged = 1;
            ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, "once daemon at \"%V\" refuses the connection: %s", &d->path, err.text);
        }

        return NGX_ERROR;
    }

    if (frame->type != WIRE_WELCOME || wire_get_welcome(frame->payload, &welcome, NULL) != ONCE_OK) {
        return NGX_ERROR;
    }

    once_mac_init(&d->secret, once_span_of(welcome.secret, sizeof welcome.secret));
    once_fingerprint_salt(&d->secret, once_span_of(NULL, 0), &d->salt);
    ngx_explicit_memzero(welcome.secret, sizeof(welcome.secret));

    d->has_secret = 1;
    d->best_effort = welcome.best_effort;
    d->state = NGX_HTTP_ONCE_READY;
    d->backoff = NGX_HTTP_ONCE_BACKOFF_MIN;

    if (d->down_logged) {
        d->down_logged = 0;
        d->refusal_logged = 0;
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0, "once daemon at \"%V\" is up again", &d->path);
    }

    if (d->timer.timer_set) {
        ngx_del_timer(&d->timer);
    }

    ngx_http_once_post_write(d);
    ngx_http_once_wake_waiters(d);

    return NGX_OK;
}

/* Handles all complete frames. Handlers make new calls, but never disconnect. */
static ngx_int_t
ngx_http_once_read_frames(ngx_http_once_daemon_t *d)
{
    size_t             used;
    ngx_int_t          rc;
    struct wire_frame  frame;

    for ( ;; ) {
        if (wire_next(once_span_skip(once_buf_span(&d->in), d->parsed), &frame, &used, NULL) != ONCE_OK) {
            return NGX_ERROR;
        }

        if (used == 0) {
            break;
        }

        rc = d->state == NGX_HTTP_ONCE_GREETING ? ngx_http_once_read_welcome(d, &frame)
                                                : ngx_http_once_call_reply(d, &frame);
        if (rc != NGX_OK) {
            return rc;
        }

        d->parsed += used;
    }

    if (d->parsed == d->in.len) {
        ngx_http_once_buf_reset(&d->in);
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

        if (ngx_http_once_read_frames(d) != NGX_OK) {
            ngx_http_once_disconnect(d, "its frame is malformed");
            return;
        }
    }

    if (ngx_handle_read_event(ev, 0) != NGX_OK) {
        ngx_http_once_disconnect(d, "adding an event failed");
    }
}

static void
ngx_http_once_write_handler(ngx_event_t *ev)
{
    ssize_t                  n;
    ngx_connection_t        *c = ev->data;
    ngx_http_once_daemon_t  *d = c->data;

    for ( ;; ) {
        if (d->sent == d->out.len) {
            ngx_http_once_buf_reset(&d->out);
            d->sent = 0;

            if (d->state == NGX_HTTP_ONCE_READY) {
                ngx_http_once_calls_write(d);
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
            /* a daemon that refuses us has closed the connection and sent the reason: the read handler gets it */
            d->sent = d->out.len;
            return;
        }

        if (n < 0) {
            ngx_http_once_disconnect(d, "writing to it failed");
            return;
        }

        d->sent += n;
    }

    if (ngx_handle_write_event(ev, 0) != NGX_OK) {
        ngx_http_once_disconnect(d, "adding an event failed");
    }
}

/* ---------------------------------------------------------------- the connection */

/* The connection is up or down. Requests wait only while it is GREETING. */
static void
ngx_http_once_wake_waiters(ngx_http_once_daemon_t *d)
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
    if (!d->down_logged) {
        d->down_logged = 1;
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0, "once daemon at \"%V\" is down: %s", &d->path, why);
    }

    if (d->peer.connection != NULL) {
        ngx_close_connection(d->peer.connection);
        d->peer.connection = NULL;
    }

    d->state = NGX_HTTP_ONCE_DOWN;
    once_buf_clear(&d->out);
    once_buf_clear(&d->in);
    d->sent = d->parsed = 0;

    ngx_http_once_calls_requeue(d);

    ngx_add_timer(&d->timer, d->backoff);
    d->backoff = ngx_min(d->backoff * 2, NGX_HTTP_ONCE_BACKOFF_MAX);

    ngx_http_once_wake_waiters(d);
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
        if (ngx_http_once_deadline_late(&d->deadline, ev) != NGX_AGAIN) {
            ngx_http_once_disconnect(d, "it did not answer the greeting in time");
        }
        break;

    case NGX_HTTP_ONCE_READY:  /* calls are waiting to be repeated */
        ngx_http_once_post_write(d);
        if (!ngx_queue_empty(&d->unsent)) {
            ngx_add_timer(&d->timer, NGX_HTTP_ONCE_RETRY_MS);
        }
        break;
    }
}

static void
ngx_http_once_connect(ngx_http_once_daemon_t *d)
{
    ngx_int_t          rc;
    ngx_connection_t  *c;

    d->connect_tried = ngx_current_msec;

    ngx_memzero(&d->peer, sizeof(ngx_peer_connection_t));
    d->peer.sockaddr = (struct sockaddr *) &d->address;
    d->peer.socklen = sizeof(struct sockaddr_un);
    d->peer.name = &d->path;
    d->peer.get = ngx_event_get_peer;
    d->silent_log = *ngx_cycle->log;
    d->silent_log.log_level = NGX_LOG_STDERR;
    d->peer.log = &d->silent_log;
    d->peer.log_error = NGX_ERROR_ERR;

    rc = ngx_event_connect_peer(&d->peer);

    if (rc != NGX_OK && rc != NGX_AGAIN) {
        ngx_http_once_disconnect(d, "connecting to it failed");
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
    ngx_http_once_deadline(&d->deadline, &d->timer, ngx_http_once_timer_handler, d, NGX_HTTP_ONCE_GREET_MS);

    ngx_post_event(c->write, &ngx_posted_events);
}

ngx_int_t
ngx_http_once_daemon_state(ngx_http_once_daemon_t *d)
{
    /* it may be up again: connecting to a unix socket succeeds or fails at once */
    if (d->state == NGX_HTTP_ONCE_DOWN && ngx_current_msec - d->connect_tried >= NGX_HTTP_ONCE_BACKOFF_MIN) {
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
    return d->has_secret ? &d->secret : NULL;
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
    d->timer.cancelable = 1;  /* only calls keep a worker that quits alive */

    ngx_http_once_connect(d);
}

/* The worker exits: sends what is queued and reads replies, for a bounded time. */
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
            ngx_http_once_calls_write(d);
        }

        fd.fd = d->peer.connection->fd;
        fd.events = POLLIN | (d->out.len > 0 ? POLLOUT : 0);

        /* wakes up to repeat calls that the store was too busy for */
        if (poll(&fd, 1, (int) ngx_min(left, NGX_HTTP_ONCE_RETRY_MS)) < 0) {
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
            if (ngx_http_once_read_frames(d) != NGX_OK) {
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
        return;  /* never started */
    }

    /* all requests have ended */
    for (q = ngx_queue_head(&d->all); q != ngx_queue_sentinel(&d->all); q = ngx_queue_next(q)) {
        call = ngx_queue_data(q, ngx_http_once_call_t, all);
        call->handler = NULL;
    }

    ngx_http_once_drain(d);

    if (d->count > 0) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "once daemon at \"%V\" did not answer %ui calls", &d->path, d->count);
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
