/*
 * conn.h - one connection to the daemon: frames in, frames out, calls under way.
 */
#ifndef ONCE_DAEMON_SOCKET_CONN_H
#define ONCE_DAEMON_SOCKET_CONN_H

#include "daemon/observers/unknown.h"
#include "daemon/socket/held.h"
#include "daemon/socket/noted.h"
#include "daemon/socket/slow.h"
#include "wire/wire.h"

/* What epoll tells of; embedded first in what it is. */
struct source {
    void (*ready)(struct source *source, uint32_t events);
};

enum { CLAIM_BUCKETS = 1024 };

struct call;

/* What the connections of a server share. */
struct hub {
    struct once *once;
    struct slow *slow;
    int epoll;
    struct held_table held;
    struct call *claims[CLAIM_BUCKETS]; /* those under way, by nonce */
    struct conn *first;                 /* all of them */
    struct conn *dead;                  /* closed and answered; epoll may still tell of them in this turn */
    size_t count;
    uint64_t buffered;     /* bytes of half-received frames */
    struct conn *large;    /* over that bound: the one that may still be read from */
    bool roomier;          /* there is room again: others may be read from */
    bool stopping;         /* nothing more is taken in */
    unknown_fn *escalated; /* a record became unknown; may be NULL */
    void *escalated_arg;
    void (*deferred)(void *arg, once_span request); /* a claim leaves it to a completer; may be NULL */
    void *deferred_arg;
    void (*status)(void *arg, size_t clients, struct once_buf *buf, uint32_t id); /* answers STATUS; may be NULL */
    void *status_arg;
    bool submitted;             /* calls that the engine was not kicked for yet */
    struct noted_for noted_for; /* logs and traces */
};

struct conn {
    struct source source;
    struct hub *hub;
    int fd;          /* -1: gone; it stays until its calls are answered */
    uint32_t events; /* what epoll was asked for */
    bool greeted;
    bool ending; /* to be closed when all is sent */
    bool left;   /* its client hung up: what it holds is nobody's any more */
    struct once_buf in, out;
    size_t parsed, sent;
    unsigned pending;             /* calls and questions under way */
    struct noted_context context; /* of the next call */
    struct conn *next, **at;
};

/* The descriptor is the connection's from then on, also on failure. */
once_result conn_open(struct hub *hub, int fd, struct once_error *err);
void conn_answer_slow(struct slow_job *job);
/* After callbacks ran: sends what they left, reads on where there is room again. */
void conn_go_on(struct conn *conn);
bool conn_is_quiet(const struct conn *conn); /* nothing under way, nothing to be sent */
/* Whose client did not hang up by itself may be back soon: it keeps its leases. */
void conn_end(struct conn *conn);
/* Frees those that are dead: between two turns. */
void conn_bury(struct hub *hub);

#endif
