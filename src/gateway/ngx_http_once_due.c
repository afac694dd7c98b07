/*
 * ngx_http_once_due.c - how long the daemon has, where it may be this worker that was late.
 *
 * A timer cannot tell a daemon that does not answer from a machine that stood still: paused, suspended, starved. But it
 * can tell that it fires long after it was due. What was answered meanwhile has been read by then, for nginx looks at
 * connections before timers; a daemon that stood still, too, has not had its time. It gets that anew, as a claim
 * has it; no more than a few times, so that every request is answered in the end.
 */
#include "ngx_http_once.h"

/* a timer_resolution is 100 ms, a disk that makes the worker wait not much longer */
#define NGX_HTTP_ONCE_LATE_MS   250
#define NGX_HTTP_ONCE_ANEW_MS   5000
#define NGX_HTTP_ONCE_LATE_MAX  3

void
ngx_http_once_due(ngx_http_once_due_t *due, ngx_event_t *ev, ngx_event_handler_pt handler, void *data, ngx_msec_t ms)
{
    ev->handler = handler;
    ev->data = data;
    ev->log = ngx_cycle->log;
    due->at = ngx_current_msec + ms;
    due->late = 0;
    ngx_add_timer(ev, ms);
}

ngx_int_t
ngx_http_once_due_late(ngx_http_once_due_t *due, ngx_event_t *ev)
{
    if ((ngx_msec_int_t) (ngx_current_msec - due->at) < NGX_HTTP_ONCE_LATE_MS
        || due->late == NGX_HTTP_ONCE_LATE_MAX)
    {
        return NGX_OK;
    }

    due->late++;
    due->at = ngx_current_msec + NGX_HTTP_ONCE_ANEW_MS;
    ngx_add_timer(ev, NGX_HTTP_ONCE_ANEW_MS);

    return NGX_AGAIN;
}
