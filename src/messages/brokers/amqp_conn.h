/*
 * amqp_conn.h - a connection to RabbitMQ: the socket, TLS, logging in, and what the broker says when it closes.
 *
 * The same for who publishes (amqp.c) and who consumes (sources/amqp.c); channels and what is done on them are theirs.
 * Everything has a time limit: connecting, one question, and writing to a peer that does not read any more, for which
 * the library has none (TCP_USER_TIMEOUT). With TLS, the certificate and the name in it are always verified.
 *
 * What failed is a reason: one line of printable ASCII, AMQP_REASON_LEN bytes with its NUL.
 */
#ifndef ONCE_MESSAGES_BROKERS_AMQP_CONN_H
#define ONCE_MESSAGES_BROKERS_AMQP_CONN_H

#include "messages/brokers/amqp_url.h"

#include "once.h"

#include <amqp.h>
#include <sys/time.h>

enum { AMQP_REASON_LEN = 240 };

/* Whom to connect to, and as whom. */
struct amqp_peer {
    const struct amqp_url *url;
    const char *name;    /* what the broker's lists call us */
    const char *ca_file; /* trusted besides nothing else; NULL: the system's */
    int64_t timeout_ms;  /* of writing */
    bool place_is_said;  /* whoever reports reasons says host and port itself */
    char user[128], password[512];
};

/* `file` has a line USER:PASSWORD; NULL: guest, guest. */
once_result amqp_peer_login(struct amqp_peer *peer, const char *file, struct once_error *err);
const char *amqp_peer_ca_file(const struct amqp_peer *peer);

/* Connects and logs in. False: see the reason; *conn may be there, and is the caller's to destroy. */
bool amqp_conn_open(const struct amqp_peer *peer, int64_t timeout_ms, amqp_connection_state_t *conn, char *reason);
/* Whether a question was answered; `what` is what could not be done: "cannot log in". */
bool amqp_conn_succeeded(amqp_rpc_reply_t reply, const char *what, char *reason);
/* What the broker said on closing: "404 NOT_FOUND - no exchange ...". */
void amqp_conn_say_close(char *reason, int code, amqp_bytes_t text);

struct timeval amqp_conn_timeval(int64_t ms);

#endif
