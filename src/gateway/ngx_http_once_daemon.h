/*
 * ngx_http_once_daemon.h - the connection to the daemon and the calls over it, for _daemon.c, _call.c and _trace.c.
 */
#ifndef NGX_HTTP_ONCE_DAEMON_H
#define NGX_HTTP_ONCE_DAEMON_H

#include "ngx_http_once.h"

#include "wire/wire.h"

#define NGX_HTTP_ONCE_OUT_LEN   (1 << 20)
#define NGX_HTTP_ONCE_READ_LEN  (64 << 10)
/* delay before a call is repeated that the store could not handle */
#define NGX_HTTP_ONCE_RETRY_MS  200

typedef enum {
    NGX_HTTP_ONCE_DOWN = 0,
    NGX_HTTP_ONCE_GREETING,
    NGX_HTTP_ONCE_READY
} ngx_http_once_link_e;

struct ngx_http_once_daemon_s {
    ngx_str_t               path;
    struct sockaddr_un      address;
    ngx_http_once_link_e    state;
    ngx_peer_connection_t   peer;
    ngx_log_t               silent_log; /* hides nginx's own messages about failed connects; the module logs one */
    ngx_event_t             timer;      /* DOWN: reconnect; GREETING: timeout; READY: repeat calls */
    ngx_http_once_deadline_t  deadline;   /* of GREETING */
    ngx_msec_t              backoff;
    ngx_msec_t              connect_tried; /* when connecting was last tried */
    struct once_mac         secret;
    struct once_mac         salt;       /* fingerprint salt of the tenant with the empty name */
    ngx_uint_t              has_secret; /* secret and salt are set */
    ngx_uint_t              best_effort; /* the store may lose acknowledged records */

    struct once_buf         out, in;
    struct once_buf         frame;      /* scratch: the frame being made */
    size_t                  sent;       /* bytes of out */
    size_t                  parsed;     /* bytes of in */

    uint32_t                next_id;
    ngx_rbtree_t            calls;      /* by id */
    ngx_rbtree_node_t       sentinel;
    ngx_queue_t             all;        /* all calls, oldest first */
    ngx_queue_t             unsent;
    ngx_uint_t              count;
    size_t                  bytes;

    struct once_buf         spans;      /* frames with spans: sent after calls, dropped if there is no room */
    uint32_t                spans_lost; /* reports dropped since the last one sent */

    ngx_queue_t             waiters;
    ngx_uint_t              down_logged; /* that it is down: logged once */
    ngx_uint_t              refusal_logged; /* that it refuses us: logged once */
};

struct ngx_http_once_call_s {
    ngx_rbtree_node_t        node;
    ngx_queue_t              all;
    ngx_queue_t              unsent;
    ngx_http_once_daemon_t  *daemon;
    enum once_verb           verb;
    once_span                frame;     /* follows this struct, or is in own_frame */
    struct once_buf          own_frame; /* a large frame, or one that was marked as resent */
    ngx_event_t              timer;     /* until the handler gets ONCE_UNAVAILABLE; then until the call is dropped */
    ngx_http_once_deadline_t  deadline;  /* while there is a handler */
    ngx_msec_t               retry_at; /* not before, because the store was busy */
    ngx_http_once_done_pt    handler;   /* NULL: detached */
    void                    *data;
    unsigned                 is_unsent:1;
    unsigned                 was_sent:1;
};

void ngx_http_once_call_free(ngx_http_once_call_t *call);
/* Handles a frame that answers a call. NGX_ERROR: it is malformed. */
ngx_int_t ngx_http_once_call_reply(ngx_http_once_daemon_t *d, const struct wire_frame *frame);
/* Moves unsent calls to d->out, as far as there is room. */
void ngx_http_once_calls_write(ngx_http_once_daemon_t *d);
/* The connection was lost: all calls are sent again over the next one. */
void ngx_http_once_calls_requeue(ngx_http_once_daemon_t *d);

#endif
