/*
 * config.h - the nginx.conf of `once serve`, as text.
 *
 * Pure: the text depends on `struct once_serve_config` alone. It is written to be read, and
 * to be copied as the start of a hand-written nginx.conf.
 */
#ifndef ONCE_SERVE_CONFIG_H
#define ONCE_SERVE_CONFIG_H

#include "core/buf.h"
#include "serve/address.h"
#include "serve/policy.h"

/* The first line. A file that begins otherwise was not written by `once serve` and is not overwritten. */
#define ONCE_SERVE_CONFIG_MARK                                                                                         \
    "# Written by `once serve`, anew at every start: change its options, or a copy of this.\n"

#define ONCE_SERVE_CONFIG_DEFAULT INT64_MIN

/* Texts are borrowed. Paths must have passed once_serve_config_is_plain(). */
struct once_serve_config {
    const struct once_serve_listen *listen;
    const struct once_serve_upstream *upstream;
    const char *module;       /* ngx_http_once_module.so */
    const char *socket;       /* the daemon's */
    const char *pid_file;     /* nginx's */
    const char *temp_dir;     /* for bodies that do not fit into memory */
    const char *user, *group; /* of the workers; NULL: nginx is not root and keeps its user */
    const struct once_serve_policy *policy;
    int64_t lease_ms, retention_ms, body_retention_ms, wait_ms, timeout_ms; /* ONCE_SERVE_CONFIG_DEFAULT: not given */
    const char *tls_cert, *tls_key;
    const char *ca_file; /* trusted certificates, for a service reached by TLS */
    unsigned workers;    /* 0: one per processor */
    unsigned files_max;  /* limit of a worker's file descriptors */
    bool required;
    bool intent, complete, complete_identity; /* complete_identity: a proxy before this gateway authenticates clients */
    bool no_key_time;
    bool log_requests;
    const char *trace; /* NULL: off */
};

void once_serve_config_write(const struct once_serve_config *config, struct once_buf *out);

/* True if nginx.conf can contain the path in quotes: no control characters, and no '$', which
 * nginx reads as a variable in some directives. */
bool once_serve_config_is_plain(const char *path);

/* True for a path that contains {key} or {client-key} and no character that is special in nginx.conf or a URL. */
bool once_serve_config_is_probe(const char *path);

/* True for a method whose keys the module can process. */
bool once_serve_config_has_keys(const char *method);

#endif
