/*
 * nats_conn.h - the options of a connection to NATS, for the sink (sinks/nats.c) and the source (sources/nats.c).
 *
 * The library never reconnects by itself: the owner of the connection must first end what was in flight on it. tls://
 * requires TLS, with a trusted certificate.
 */
#ifndef ONCE_MESSAGES_BROKERS_NATS_CONN_H
#define ONCE_MESSAGES_BROKERS_NATS_CONN_H

#include "once.h"

#include <nats/nats.h>

struct nats_peer {
    const char *url;     /* nats://HOST[:PORT], tls://HOST[:PORT] */
    const char *name;    /* the connection's name in the server's lists */
    const char *ca_file; /* the only trusted certificates; NULL: the system's */
    const char *creds;   /* a file with credentials; NULL: none */
    int64_t timeout_ms;  /* of connecting */
};

/* The caller destroys *out, also after a failure. */
natsStatus nats_conn_configure(const struct nats_peer *peer, natsOptions **out);

#endif
