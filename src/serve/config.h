/*
 * config.h - the nginx.conf of `once serve`, as text.
 *
 * Pure: everything comes in by `struct once_serve_config`. What is written is meant to be
 * read, and to be taken over by somebody who wants an nginx.conf of his own.
 */
#ifndef ONCE_SERVE_CONFIG_H
#define ONCE_SERVE_CONFIG_H

#include "core/buf.h"
#include "serve/address.h"
#include "serve/policy.h"

/* The first line; a file that begins otherwise is somebody else's and is not overwritten. */
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
    const char *ca_file; /* whom to trust, if the service is reached by TLS */
    unsigned workers;    /* 0: one per processor */
    unsigned files_max;  /* descriptors that a worker can have */
    bool required;
    bool intent, complete, complete_identity; /* identity: clients are authenticated before this gateway */
    bool no_key_time;
    bool log_requests;
    const char *trace; /* NULL: off */
};

void once_serve_config_write(const struct once_serve_config *config, struct once_buf *out);

/* A path that can stand between quotes in nginx.conf as it is: no control characters, and no
 * '$', which nginx takes for a variable in some places. */
bool once_serve_config_is_plain(const char *path);

/* A path with {key} or {client-key} in it, and nothing that nginx.conf or a URL would take for something else. */
bool once_serve_config_is_probe(const char *path);

/* One of the methods that the module looks at keys for. */
bool once_serve_config_has_keys(const char *method);

#endif
