/*
 * address.h - parses the addresses of `once serve` and writes them in nginx's form.
 *
 * Everything that ends up in nginx.conf is checked here character by character: a value can
 * neither end a directive nor be taken for a variable.
 */
#ifndef ONCE_SERVE_ADDRESS_H
#define ONCE_SERVE_ADDRESS_H

#include "once.h"

#include <sys/socket.h>

enum {
    ONCE_SERVE_HOST_LEN_MAX = 255,
    ONCE_SERVE_ADDRESS_LEN = 320, /* "[HOST]:PORT" or "unix:PATH", with its NUL */
};

/* An address to listen on, always numeric. */
struct once_serve_listen {
    char text[ONCE_SERVE_ADDRESS_LEN]; /* as nginx writes it: "127.0.0.1:8080" */
    char near[ONCE_SERVE_ADDRESS_LEN]; /* reaches it from this machine: "127.0.0.1:8080" for "0.0.0.0:8080" */
    struct sockaddr_storage address;
    socklen_t address_len;
    unsigned port;
};

/* The service behind the gateway. */
struct once_serve_upstream {
    char url[ONCE_SERVE_ADDRESS_LEN + 8]; /* without a final '/' */
    char host[ONCE_SERVE_HOST_LEN_MAX + 1];
    char server[ONCE_SERVE_ADDRESS_LEN]; /* "HOST:PORT", "unix:/PATH" */
    bool tls;
};

/* "PORT" (on 127.0.0.1), "ADDRESS:PORT", "[IPV6]:PORT", "*:PORT" (all of IPv4), "localhost:PORT". */
ONCE_CHECKED once_result once_serve_listen_parse(const char *text, struct once_serve_listen *out,
                                                 struct once_error *err);

/* "http://HOST[:PORT]", "https://HOST[:PORT]", "http://unix:/PATH". No path: the gateway
 * forwards the client's, byte for byte. */
ONCE_CHECKED once_result once_serve_upstream_parse(const char *text, struct once_serve_upstream *out,
                                                   struct once_error *err);

/* Binds the address and closes it again, to find out whether it is free. 0 or an errno. */
int once_serve_listen_try(const struct once_serve_listen *listen);

#endif
