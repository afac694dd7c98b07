/*
 * conn.h - one connection to the daemon: frames in, frames out, calls under way.
 */
#ifndef ONCE_DAEMON_SOCKET_CONN_H
#define ONCE_DAEMON_SOCKET_CONN_H

#include "daemon/socket/admin_queries.h"
#include "daemon/socket/client_grants.h"
#include "daemon/socket/server.h"
#include "wire/wire.h"

/* What epoll tells of; embedded first in what it is. */
struct event_source {
    void (*ready)(struct event_source *event_source, uint32_t events);
};

enum { CLAIM_BUCKETS = 1024 };

struct call;

/* What the connections of a server share. */
struct server_shared {
    struct server_options options;
    struct admin_queries *admin_queries;
    int epoll;
    struct client_grants client_grants;
    struct call *claims[CLAIM_BUCKETS]; /* those under way, by nonce */
    struct conn *first;                 /* all of them */
    struct conn *closed;                /* closed and answered; epoll may still tell of them in this turn */
    size_t count;
    uint64_t buffered;   /* bytes of half-received frames */
    struct conn *large;  /* over that bound: the one that may still be read from */
    bool resume_reading; /* there is room again: others may be read from */
    bool stopping;       /* nothing more is taken in */
    bool submitted;      /* calls that the engine was not kicked for yet */
};

struct conn {
    struct event_source event_source;
    struct server_shared *shared;
    int fd;          /* -1: gone; it stays until its calls are answered */
    uint32_t events; /* what epoll was asked for */
    bool greeted;
    bool ending;  /* to be closed when all is sent */
    bool hung_up; /* its client hung up: what it holds is nobody's any more */
    struct once_buf in, out;
    size_t parsed, sent;
    unsigned pending;                /* calls and questions under way */
    struct call_log_context context; /* of the next call */
    struct conn *next, **at;
};

/* The descriptor is the connection's from then on, also on failure. */
once_result conn_open(struct server_shared *shared, int fd, struct once_error *err);
void conn_answer_admin_query(struct admin_query *job);
/* After callbacks ran: sends what they left, reads on where there is room again. */
void conn_continue(struct conn *conn);
bool conn_is_quiet(const struct conn *conn); /* nothing under way, nothing to be sent */
/* Whose client did not hang up by itself may be back soon: it keeps its leases. */
void conn_end(struct conn *conn);
/* Frees those that are dead: between two turns. */
void conns_free_closed(struct server_shared *shared);

#endif
