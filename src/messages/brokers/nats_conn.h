/*
 * nats_conn.h - how the library is told to connect to NATS: the same for who publishes (nats.c) and who consumes
 * (sources/nats.c).
 *
 * A connection that broke is never mended by the library: what was under way on it has to be ended first, and that is
 * its owner's. tls:// insists on TLS, with a certificate that is trusted.
 */
#ifndef ONCE_MESSAGES_BROKERS_NATS_CONN_H
#define ONCE_MESSAGES_BROKERS_NATS_CONN_H

#include "once.h"

#include <nats/nats.h>

struct nats_peer {
    const char *url;     /* nats://HOST[:PORT], tls://HOST[:PORT] */
    const char *name;    /* what the server's lists call us */
    const char *ca_file; /* trusted besides nothing else; NULL: the system's */
    const char *creds;   /* a file with credentials; NULL: none */
    int64_t timeout_ms;  /* of connecting */
};

/* *out is to be destroyed by the caller, also after a failure. */
natsStatus nats_conn_configure(const struct nats_peer *peer, natsOptions **out);

#endif
