/*
 * ngx_http_once_daemon.h - a connection to the daemon and a call over it, as ngx_http_once_daemon.c keeps them.
 *
 * For that file, and for ngx_http_once_trace.c, which puts spans into what goes out.
 */
#ifndef NGX_HTTP_ONCE_DAEMON_H
#define NGX_HTTP_ONCE_DAEMON_H

#include "ngx_http_once.h"

#include "wire/wire.h"

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
    ngx_log_t               quiet;      /* connecting may fail: it is said once, by us */
    ngx_event_t             timer;      /* connecting again; greeting: for how long */
    ngx_http_once_due_t     due;        /* greeting */
    ngx_msec_t              backoff;
    ngx_msec_t              tried;      /* when connecting was last tried */
    struct once_mac         secret;
    struct once_mac         salt;       /* of fingerprints where there is one tenant, without a name */
    ngx_uint_t              welcomed;   /* the secret is there */
    ngx_uint_t              best_effort; /* its store may lose what it acknowledged */

    struct once_buf         out, in;
    struct once_buf         frame;      /* the one that is made */
    size_t                  sent;       /* of out */
    size_t                  parsed;     /* of in */

    uint32_t                next_id;
    ngx_rbtree_t            calls;      /* by id */
    ngx_rbtree_node_t       sentinel;
    ngx_queue_t             all;        /* the same, oldest first */
    ngx_queue_t             unsent;
    ngx_uint_t              count;
    size_t                  bytes;

    struct once_buf         spans;      /* frames that tell of traces: they go out after calls, or not at all */
    uint32_t                spans_lost; /* reports that there was no room for */

    ngx_queue_t             waiters;
    ngx_uint_t              complained; /* of being away: once is enough */
    ngx_uint_t              refused;    /* and why was said; the same */
};

struct ngx_http_once_call_s {
    ngx_rbtree_node_t        node;
    ngx_queue_t              all;
    ngx_queue_t              unsent;
    ngx_http_once_daemon_t  *daemon;
    enum once_verb           verb;
    once_span                frame;     /* behind this structure, or in again */
    struct once_buf          again;     /* one that is large, or marked as sent before */
    ngx_event_t              timer;     /* until the asker is told; then, until it is forgotten */
    ngx_http_once_due_t      due;       /* likewise, while there is an asker */
    ngx_msec_t               again_at;  /* the store was busy: not before */
    ngx_http_once_done_pt    handler;   /* NULL: nobody asks any more */
    void                    *data;
    unsigned                 is_unsent:1;
    unsigned                 was_sent:1;
};

#endif
