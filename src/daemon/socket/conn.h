/*
 * conn.h - a client's connection: reads frames, submits calls, writes answers.
 */
#ifndef ONCE_DAEMON_SOCKET_CONN_H
#define ONCE_DAEMON_SOCKET_CONN_H

#include "daemon/socket/admin_queries.h"
#include "daemon/socket/client_grants.h"
#include "daemon/socket/server.h"
#include "wire/wire.h"

/* The target of epoll's events; first member of the structs that handle them. */
struct event_source {
    void (*ready)(struct event_source *event_source, uint32_t events);
};

enum { CLAIM_BUCKETS = 1024 };

struct call;

/* State that the connections of a server share. */
struct server_shared {
    struct server_options options;
    struct admin_queries *admin_queries;
    int epoll;
    struct client_grants client_grants;
    struct call *claims[CLAIM_BUCKETS]; /* calls under way that may be answered by a grant, by nonce */
    struct conn *first;                 /* the open connections */
    struct conn *closed;                /* without calls; epoll may still have events of them */
    size_t count;
    uint64_t buffered;   /* bytes of partially received frames */
    struct conn *large;  /* above the bound of these: the one connection that is still read */
    bool resume_reading; /* usage fell: paused connections may be read again */
    bool stopping;       /* no more frames are read */
    bool submitted;      /* calls were submitted, and the engine was not kicked yet */
};

struct conn {
    struct event_source event_source;
    struct server_shared *shared;
    int fd;          /* -1: closed; the struct stays until its calls are answered */
    uint32_t events; /* that epoll watches for */
    bool greeted;
    bool ending;  /* close after the last answer is sent */
    bool hung_up; /* by the client: its grants have no holder any more */
    struct once_buf in, out;
    size_t parsed, sent;
    unsigned pending;                /* calls and admin queries under way */
    struct call_log_context context; /* of the next call */
    struct conn *next, **at;
};

/* Owns the descriptor, also on failure. */
once_result conn_open(struct server_shared *shared, int fd, struct once_error *err);
void conn_answer_admin_query(struct admin_query *job);
/* After callbacks added answers: sends them, and reads again if there is room. */
void conn_continue(struct conn *conn);
bool conn_is_quiet(const struct conn *conn); /* nothing under way, nothing to send */
/* If the server closes the connection and the client did not hang up, its leases stay: it may reconnect. */
void conn_end(struct conn *conn);
/* Frees closed connections; only after all events that epoll_wait() returned were handled. */
void conns_free_closed(struct server_shared *shared);

#endif
