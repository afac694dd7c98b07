/*
 * amqp_url.h - parses amqp://HOST[:PORT][/VHOST][?exchange=NAME][&routing-key=KEY]; amqps:// is the same with TLS.
 *
 * Everything but the host may be percent-encoded; a vhost with a slash must be. Defaults: the vhost "/"; the exchange
 * without a name, which routes a message to the queue that its routing key names; the message's topic as the routing
 * key. A password is not accepted: other users can see command lines.
 */
#ifndef ONCE_MESSAGES_BROKERS_AMQP_URL_H
#define ONCE_MESSAGES_BROKERS_AMQP_URL_H

#include <stdbool.h>

enum { AMQP_NAME_LEN_MAX = 255 }; /* the limit of AMQP's short strings */

struct amqp_url {
    bool tls;
    char host[256]; /* IPv6 without its brackets */
    int port;
    char vhost[AMQP_NAME_LEN_MAX + 1];
    char exchange[AMQP_NAME_LEN_MAX + 1];
    char routing_key[AMQP_NAME_LEN_MAX + 1]; /* "": the message's topic */
};

/* Returns NULL, or what is wrong with the URL. */
const char *amqp_url_parse(const char *url, struct amqp_url *out);

#endif
