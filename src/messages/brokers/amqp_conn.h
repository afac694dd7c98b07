/*
 * amqp_conn.h - a connection to RabbitMQ: socket, TLS, login, and the broker's reason for closing it.
 *
 * Used by the sink (sinks/amqp.c) and the source (sources/amqp.c), which open their own channels. Everything has a
 * timeout: connecting, a request, and writing to a peer that does not read, for which the library has none
 * (TCP_USER_TIMEOUT). With TLS, the certificate and its host name are always verified.
 *
 * A failure is described by a reason: one line of printable ASCII, AMQP_REASON_LEN bytes with its NUL.
 */
#ifndef ONCE_MESSAGES_BROKERS_AMQP_CONN_H
#define ONCE_MESSAGES_BROKERS_AMQP_CONN_H

#include "messages/brokers/amqp_url.h"

#include "once.h"

#include <amqp.h>
#include <sys/time.h>

enum { AMQP_REASON_LEN = 240 };

/* The broker and how to connect to it. */
struct amqp_peer {
    const struct amqp_url *url;
    const char *name;    /* the connection's name in the broker's lists */
    const char *ca_file; /* the only trusted certificates; NULL: the system's */
    int64_t timeout_ms;  /* of writing */
    bool place_is_said;  /* the caller adds host and port to reasons itself */
    char user[128], password[512];
};

/* `file` has a line USER:PASSWORD; NULL: guest, guest. */
once_result amqp_peer_login(struct amqp_peer *peer, const char *file, struct once_error *err);
const char *amqp_peer_ca_file(const struct amqp_peer *peer);

/* Connects and logs in. False: see the reason; *conn may be set, and the caller destroys it. */
bool amqp_conn_open(const struct amqp_peer *peer, int64_t timeout_ms, amqp_connection_state_t *conn, char *reason);
/* Whether a request succeeded; `what` begins the reason: "cannot log in". */
bool amqp_conn_succeeded(amqp_rpc_reply_t reply, const char *what, char *reason);
/* The broker's reason for closing: "404 NOT_FOUND - no exchange ...". */
void amqp_conn_say_close(char *reason, int code, amqp_bytes_t text);

struct timeval amqp_conn_timeval(int64_t ms);

#endif
