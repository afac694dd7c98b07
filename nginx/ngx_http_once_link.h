/*
 * ngx_http_once_link.h - what a worker knows of its daemon, for ngx_http_once_daemon.c alone.
 */
#ifndef NGX_HTTP_ONCE_LINK_H
#define NGX_HTTP_ONCE_LINK_H

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

    ngx_queue_t             waiters;
    ngx_uint_t              complained; /* of being away: once is enough */
};

#endif
