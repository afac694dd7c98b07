/*
 * ngx_http_once_deadline.c - a timeout for the daemon that is extended if this worker was paused.
 *
 * A timer that fires long after its time shows that the worker was paused: stopped, suspended, or starved of CPU.
 * nginx reads connections before it runs timers, so a reply that came meanwhile has been handled. But the daemon may have
 * been paused as well, and has not had its time to reply. So it gets the time of a claim again, a few times at most:
 * every request is answered in the end.
 */
#include "ngx_http_once.h"

/* nginx's timer_resolution is 100 ms, and a slow disk rarely delays a worker longer */
#define NGX_HTTP_ONCE_LATE_MS   250
#define NGX_HTTP_ONCE_EXTENSION_MS   5000
#define NGX_HTTP_ONCE_EXTENSIONS_MAX  3

void
ngx_http_once_deadline(ngx_http_once_deadline_t *deadline, ngx_event_t *ev, ngx_event_handler_pt handler, void *data, ngx_msec_t ms)
{
    ev->handler = handler;
    ev->data = data;
    ev->log = ngx_cycle->log;
    deadline->at = ngx_current_msec + ms;
    deadline->extensions = 0;
    ngx_add_timer(ev, ms);
}

ngx_int_t
ngx_http_once_deadline_late(ngx_http_once_deadline_t *deadline, ngx_event_t *ev)
{
    if ((ngx_msec_int_t) (ngx_current_msec - deadline->at) < NGX_HTTP_ONCE_LATE_MS
        || deadline->extensions == NGX_HTTP_ONCE_EXTENSIONS_MAX)
    {
        return NGX_OK;
    }

    deadline->extensions++;
    deadline->at = ngx_current_msec + NGX_HTTP_ONCE_EXTENSION_MS;
    ngx_add_timer(ev, NGX_HTTP_ONCE_EXTENSION_MS);

    return NGX_AGAIN;
}
