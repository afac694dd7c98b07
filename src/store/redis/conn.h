/*
 * conn.h - one connection to Redis: commands out, replies in, as pipelines.
 *
 * Commands are gathered in a buffer and sent while replies are read, so that neither side waits for the other with
 * full buffers. The protocol is hiredis's (its formatter and its reader); the socket is ours, since Debian 12's hiredis
 * has no TLS and no overall timeout for a blocking read.
 */
#ifndef ONCE_STORE_REDIS_CONN_H
#define ONCE_STORE_REDIS_CONN_H

#include "core/buf.h"
#include "store/redis/url.h"

#include <gnutls/gnutls.h>
#include <hiredis/hiredis.h>

struct redis_conn {
    const struct redis_url *url;
    int fd;                                   /* -1: none */
    gnutls_session_t tls;                     /* where the URL wants it, else NULL */
    gnutls_certificate_credentials_t trusted; /* the same */
    redisReader *reader;
    struct once_buf out;
    size_t sent;     /* of out */
    bool want_write; /* TLS has to send before it can read */
    int patience_ms; /* how long a reply may take */
};

void redis_conn_init(struct redis_conn *c, const struct redis_url *url);
void redis_conn_close(struct redis_conn *c);
/* Connects and sends nothing. ONCE_UNAVAILABLE with the reason. */
once_result redis_conn_open(struct redis_conn *c, struct once_error *err);

/* Adds a command to what is sent with the next read. */
void redis_conn_put(struct redis_conn *c, int argc, const once_span *argv);
/* The next reply, the caller's to free. ONCE_UNKNOWN: the connection is lost, with all replies that were not read. */
once_result redis_conn_next(struct redis_conn *c, redisReply **reply, struct once_error *err);
/* One command, its reply. An error reply is a reply. */
once_result redis_conn_ask(struct redis_conn *c, int argc, const once_span *argv, redisReply **reply,
                           struct once_error *err);

/* Translates an error reply of Redis, which means that nothing was changed; *gone: close this connection. */
once_result redis_error(const redisReply *reply, bool *gone, struct once_error *err);

#endif
