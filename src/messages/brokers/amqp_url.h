/*
 * amqp_url.h - amqp://HOST[:PORT][/VHOST][?exchange=NAME][&routing-key=KEY], taken apart. amqps:// is the same with
 * TLS.
 *
 * Everything but the host may be percent-encoded; a vhost with a slash must be. No vhost is "/", no exchange the one
 * without a name, which brings a message to the queue that its routing key names; no routing key: the
 * message's topic. There is no place for a password: command lines are seen by everybody.
 */
#ifndef ONCE_MESSAGES_BROKERS_AMQP_URL_H
#define ONCE_MESSAGES_BROKERS_AMQP_URL_H

#include <stdbool.h>

enum { AMQP_NAME_LEN_MAX = 255 }; /* what AMQP's short strings hold */

struct amqp_url {
    bool tls;
    char host[256]; /* IPv6 without its brackets */
    int port;
    char vhost[AMQP_NAME_LEN_MAX + 1];
    char exchange[AMQP_NAME_LEN_MAX + 1];
    char routing_key[AMQP_NAME_LEN_MAX + 1]; /* "": the topic */
};

/* What is wrong with it, or NULL. */
const char *amqp_url_parse(const char *url, struct amqp_url *out);

#endif
