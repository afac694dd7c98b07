/*
 * url.h - the URL of a store in Redis: the server, the prefix of its keys, and how durable a write has to be.
 *
 *     redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]?tier=best-effort[&...]     rediss://... the same over TLS
 *     redis+unix:PATH?tier=best-effort[&db=N][&user=NAME][&...]
 *
 * tier=best-effort is required: this tier is never chosen by accident. A password may be in the URL, in the
 * file that password_file names, or in ONCE_REDIS_PASSWORD; no message ever shows it. Pure, but for reading that file.
 */
#ifndef ONCE_STORE_REDIS_URL_H
#define ONCE_STORE_REDIS_URL_H

#include "once.h"

#define REDIS_NAME_MAX 255     /* of a host, a user, a path */
#define REDIS_PASSWORD_MAX 512 /* as long as Redis itself takes one */
#define REDIS_PREFIX_MAX 64

struct redis_url {
    bool is_unix, tls;
    char host[REDIS_NAME_MAX + 1]; /* or the socket's path */
    char port[6];
    char db[6];
    char user[REDIS_NAME_MAX + 1];
    char password[REDIS_PASSWORD_MAX + 1];
    char prefix[REDIS_PREFIX_MAX + 1]; /* of all keys; "once:" */
    char ca[REDIS_NAME_MAX + 1];       /* file with the certificates to trust; empty: the system's */
    uint32_t replicas;                 /* how many must have a write before it is acknowledged (WAIT) */
    bool fsync;                        /* a write must be in the server's AOF, on disk (WAITAOF) */
    uint32_t wait_ms;
    bool keytext; /* keep the texts of keys */
};

/* A URL without wrappers. Error messages do not show the URL: it may hold a password. */
once_result redis_url_parse(once_span url, struct redis_url *out, struct once_error *err);
/* "redis://host:6379/0", for people. */
void redis_url_text(const struct redis_url *url, char *out, size_t len);

#endif
