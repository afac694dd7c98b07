/* conn.c - see redis/conn.h. */
#include "store/redis/conn.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "os/os.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { READ_LEN = 64 << 10 };

void redis_conn_init(struct redis_conn *c, const struct redis_url *url)
{
    *c = (struct redis_conn){ .url = url, .fd = -1, .patience_ms = ONCE_REDIS_ANSWER_MS };
    once_buf_init(&c->out, ONCE_REDIS_SEND_LEN_MAX);
}

/* The buffer's memory stays, for the next connection. */
static void hang_up(struct redis_conn *c)
{
    if (c->tls != NULL)
        gnutls_deinit(c->tls);
    c->tls = NULL;
    /* Resets the connection, so that the kernel does not go on to send: the server would execute commands long after
     * their callers gave up. */
    if (c->fd >= 0) {
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1, .l_linger = 0 },
                   sizeof(struct linger));
        close(c->fd);
    }
    c->fd = -1;
    redisReaderFree(c->reader);
    c->reader = NULL;
    once_buf_clear(&c->out);
    c->sent = 0;
}

void redis_conn_close(struct redis_conn *c)
{
    hang_up(c);
    if (c->trusted != NULL)
        gnutls_certificate_free_credentials(c->trusted);
    c->trusted = NULL;
    once_buf_release(&c->out);
}

static once_result lost(struct redis_conn *c, struct once_error *err, const char *why)
{
    once_fail(err, ONCE_UNKNOWN, "the answer of Redis was lost: %s",
              why); /* before the reader is freed: `why` may point into it */
    hang_up(c);
    return ONCE_UNKNOWN;
}

/* ------------------------------------------------------------------ bytes */

/* > 0: that many bytes. 0: try again later. -1: the connection failed, *why says how. */
static ssize_t tls_result(struct redis_conn *c, ssize_t n, const char **why)
{
    if (n > 0)
        return n;
    c->want_write = gnutls_record_get_direction(c->tls) == 1;
    if (n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED)
        return 0;
    *why = n == 0 ? "it closed the connection" : gnutls_strerror((int)n);
    return -1;
}

static ssize_t plain_result(ssize_t n, const char **why)
{
    if (n >= 0)
        return n;
    if (errno == EINTR || errno == EAGAIN)
        return 0;
    *why = strerror(errno);
    return -1;
}

static ssize_t write_some(struct redis_conn *c, const char **why)
{
    size_t len = c->out.len - c->sent;
    if (c->tls != NULL)
        return tls_result(c, gnutls_record_send(c->tls, c->out.ptr + c->sent, len), why);
    return plain_result(send(c->fd, c->out.ptr + c->sent, len, MSG_NOSIGNAL), why);
}

static ssize_t read_some(struct redis_conn *c, void *bytes, size_t len, const char **why)
{
    if (c->tls != NULL)
        return tls_result(c, gnutls_record_recv(c->tls, bytes, len), why);
    ssize_t n = recv(c->fd, bytes, len, 0);
    if (n == 0) {
        *why = "it closed the connection";
        return -1;
    }
    return plain_result(n, why);
}

/* Waits until something can be read or, where there is more to send, written. False: nothing came in time. */
static bool wait_for_it(struct redis_conn *c, once_time until)
{
    bool sending = c->out.len > c->sent || c->want_write;
    struct pollfd fd = { .fd = c->fd, .events = (short)(POLLIN | (sending ? POLLOUT : 0)) };
    for (;;) {
        once_time left = until - once_os_monotonic_ms();
        int n = left > 0 ? poll(&fd, 1, left < INT32_MAX ? (int)left : INT32_MAX) : 0;
        if (n >= 0)
            return n > 0;
        if (errno != EINTR)
            return false;
    }
}

/* ------------------------------------------------------------------ connecting */

static once_result open_socket(struct redis_conn *c, int family, const struct sockaddr *address, socklen_t len,
                               struct once_error *err)
{
    c->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->fd < 0)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot make a socket: %s", strerror(errno));
    int why = connect(c->fd, address, len) == 0 ? 0 : errno;
    if (why == EINPROGRESS) {
        struct pollfd fd = { .fd = c->fd, .events = POLLOUT };
        socklen_t size = sizeof why;
        why = poll(&fd, 1, ONCE_REDIS_CONNECT_MS) == 1 ? 0 : ETIMEDOUT;
        if (why == 0)
            getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &why, &size);
    }
    if (why != 0) {
        hang_up(c);
        return once_fail(err, ONCE_UNAVAILABLE, "cannot connect: %s", strerror(why));
    }
    int on = 1;
    if (family != AF_UNIX) {
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
    return ONCE_OK;
}

static once_result open_unix(struct redis_conn *c, struct once_error *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    static_assert(sizeof address.sun_path > 100, "redis_url_parse() lets 100 bytes through");
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", c->url->host);
    return open_socket(c, AF_UNIX, (struct sockaddr *)&address, sizeof address, err);
}

/* Tries every address of the name until one answers: after a failover the name may have new ones. */
static once_result open_net(struct redis_conn *c, struct once_error *err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *all = NULL;
    int bad = getaddrinfo(c->url->host, c->url->port, &hints, &all);
    if (bad != 0)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot resolve its name: %s", gai_strerror(bad));
    once_result r = once_fail(err, ONCE_UNAVAILABLE, "its name has no address");
    for (const struct addrinfo *a = all; a != NULL && r != ONCE_OK; a = a->ai_next)
        r = open_socket(c, a->ai_family, a->ai_addr, a->ai_addrlen, err);
    freeaddrinfo(all);
    return r;
}

static once_result trust(struct redis_conn *c, struct once_error *err)
{
    gnutls_certificate_credentials_t trusted;
    if (gnutls_certificate_allocate_credentials(&trusted) != GNUTLS_E_SUCCESS)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for TLS");
    int read = c->url->ca[0] != '\0' ? gnutls_certificate_set_x509_trust_file(trusted, c->url->ca, GNUTLS_X509_FMT_PEM)
                                     : gnutls_certificate_set_x509_system_trust(trusted);
    if (read <= 0) {
        gnutls_certificate_free_credentials(trusted);
        return once_fail(err, ONCE_INVALID, "there are no certificates to trust in '%s'",
                         c->url->ca[0] != '\0' ? c->url->ca : "the system's place");
    }
    c->trusted = trusted;
    return ONCE_OK;
}

static bool is_number(const char *host)
{
    uint8_t number[16];
    return inet_pton(AF_INET, host, number) == 1 || inet_pton(AF_INET6, host, number) == 1;
}

/* The certificate must be for the host that the URL names. */
static bool prepare_tls(struct redis_conn *c)
{
    gnutls_session_t tls;
    const char *host = c->url->host;
    if (gnutls_init(&tls, GNUTLS_CLIENT | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) != GNUTLS_E_SUCCESS)
        return false;
    c->tls = tls;
    if (gnutls_priority_set_direct(tls, "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2", NULL) != GNUTLS_E_SUCCESS ||
        gnutls_credentials_set(tls, GNUTLS_CRD_CERTIFICATE, c->trusted) != GNUTLS_E_SUCCESS)
        return false;
    if (!is_number(host) && gnutls_server_name_set(tls, GNUTLS_NAME_DNS, host, strlen(host)) != GNUTLS_E_SUCCESS)
        return false;
    gnutls_session_set_verify_cert(tls, host, 0);
    gnutls_transport_set_int(tls, c->fd);
    return true;
}

/* Fails with the reason why the certificate was refused. */
static once_result refuse_certificate(struct redis_conn *c, struct once_error *err)
{
    gnutls_datum_t text = { NULL, 0 };
    gnutls_certificate_verification_status_print(gnutls_session_get_verify_cert_status(c->tls), GNUTLS_CRT_X509, &text,
                                                 0);
    once_fail(err, ONCE_UNAVAILABLE, "its certificate is not trusted: %s",
              text.data != NULL ? (const char *)text.data : "?");
    gnutls_free(text.data);
    return ONCE_UNAVAILABLE;
}

static once_result open_tls(struct redis_conn *c, struct once_error *err)
{
    once_result r = c->trusted != NULL ? ONCE_OK : trust(c, err);
    if (r != ONCE_OK)
        return r;
    if (!prepare_tls(c))
        return once_fail(err, ONCE_NO_MEMORY, "no memory for TLS");
    once_time until = once_os_monotonic_ms() + ONCE_REDIS_CONNECT_MS;
    for (;;) {
        int n = gnutls_handshake(c->tls);
        c->want_write = gnutls_record_get_direction(c->tls) == 1;
        if (n == GNUTLS_E_SUCCESS)
            return ONCE_OK;
        if (n == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR)
            return refuse_certificate(c, err);
        if (gnutls_error_is_fatal(n))
            return once_fail(err, ONCE_UNAVAILABLE, "cannot begin TLS: %s", gnutls_strerror(n));
        if (!wait_for_it(c, until))
            return once_fail(err, ONCE_UNAVAILABLE, "cannot begin TLS: it takes too long");
    }
}

once_result redis_conn_open(struct redis_conn *c, struct once_error *err)
{
    hang_up(c);
    once_result r = c->url->is_unix ? open_unix(c, err) : open_net(c, err);
    if (r == ONCE_OK && c->url->tls)
        r = open_tls(c, err);
    if (r == ONCE_OK && (c->reader = redisReaderCreate()) == NULL)
        r = once_fail(err, ONCE_NO_MEMORY, "no memory for a connection");
    if (r != ONCE_OK)
        hang_up(c);
    return r;
}

/* ------------------------------------------------------------------ commands, replies */

void redis_conn_put(struct redis_conn *c, int argc, const once_span *argv)
{
    once_buf_addf(&c->out, "*%d\r\n", argc);
    for (int i = 0; i < argc; i++) {
        once_buf_addf(&c->out, "$%zu\r\n", argv[i].len);
        once_buf_add(&c->out, argv[i]);
        once_buf_add(&c->out, ONCE_LIT("\r\n"));
    }
}

/* Sends and reads once, as much as is possible without waiting. */
static once_result move_bytes(struct redis_conn *c, once_time until, struct once_error *err)
{
    const char *why = NULL;
    while (c->out.len > c->sent) {
        ssize_t n = write_some(c, &why);
        if (n < 0)
            return lost(c, err, why);
        if (n == 0)
            break;
        c->sent += (size_t)n;
    }
    if (c->sent == c->out.len && c->sent > 0) {
        once_buf_clear(&c->out);
        c->sent = 0;
    }
    char bytes[READ_LEN];
    ssize_t n = read_some(c, bytes, sizeof bytes, &why);
    if (n < 0)
        return lost(c, err, why);
    if (n > 0)
        return redisReaderFeed(c->reader, bytes, (size_t)n) == REDIS_OK ? ONCE_OK : lost(c, err, c->reader->errstr);
    return wait_for_it(c, until) ? ONCE_OK : lost(c, err, "it is silent");
}

once_result redis_conn_next(struct redis_conn *c, redisReply **reply, struct once_error *err)
{
    if (c->fd < 0)
        return once_fail(err, ONCE_UNKNOWN, "there is no connection to Redis");
    if (c->out.result != ONCE_OK) { /* this command was not sent, but earlier ones may have been */
        once_result r = c->out.result;
        hang_up(c);
        return once_fail(err, r == ONCE_LIMIT ? ONCE_LIMIT : ONCE_NO_MEMORY, "no room for a batch of this size");
    }
    once_time until = once_os_monotonic_ms() + c->patience_ms;
    for (;;) {
        void *found = NULL;
        if (redisReaderGetReply(c->reader, &found) != REDIS_OK)
            return lost(c, err, c->reader->errstr);
        if (found != NULL) {
            *reply = found;
            return ONCE_OK;
        }
        once_result r = move_bytes(c, until, err);
        if (r != ONCE_OK)
            return r;
    }
}

once_result redis_conn_ask(struct redis_conn *c, int argc, const once_span *argv, redisReply **reply,
                           struct once_error *err)
{
    redis_conn_put(c, argc, argv);
    return redis_conn_next(c, reply, err);
}

/* ------------------------------------------------------------------ errors */

/* By the first word of Redis's message; errors inside a script have more text after it. */
static const struct error_row {
    const char *word;
    once_result result;
    bool gone; /* another connection may lead to a server that accepts it */
    const char *what;
} error_rows[] = {
    { "OOM", ONCE_BUSY, false,
      "Redis is at its maxmemory and may evict nothing: raise it, or shorten the retention of records" },
    { "LOADING", ONCE_UNAVAILABLE, false, "Redis is loading its data and answers when it is through" },
    { "BUSY", ONCE_BUSY, false, "Redis is busy with another client's script; SCRIPT KILL ends it" },
    { "READONLY", ONCE_UNAVAILABLE, true, "this Redis is a replica, which takes no writes; name the master" },
    { "MISCONF", ONCE_UNAVAILABLE, false,
      "Redis cannot write its data to disk and takes no writes (MISCONF); its log says why" },
    { "NOREPLICAS", ONCE_UNAVAILABLE, false, "Redis has fewer replicas than its min-replicas-to-write" },
    { "MASTERDOWN", ONCE_UNAVAILABLE, true, "this Redis is a replica that has lost its master" },
    { "NOAUTH", ONCE_UNAVAILABLE, true,
      "Redis wants a password: in the URL, in password_file, or in ONCE_REDIS_PASSWORD" },
    { "WRONGPASS", ONCE_UNAVAILABLE, true, "Redis does not know this user and password" },
    { "NOPERM", ONCE_UNAVAILABLE, false,
      "Redis does not let this user do that; docs/redis.md has the rights it needs" },
    { "CLUSTERDOWN", ONCE_UNAVAILABLE, true, "the Redis cluster is down" },
    { "MOVED", ONCE_UNAVAILABLE, true, "this Redis is part of a cluster, which Once does not use" },
    { "UNKILLABLE", ONCE_BUSY, false, "Redis is busy with a script that has written and cannot be killed" },
    { "ONCE", ONCE_CORRUPT, false, "the scripts in Redis are not this program's" },
};

once_result redis_error(const redisReply *reply, bool *gone, struct once_error *err)
{
    once_span text = once_span_of(reply->str, (size_t)reply->len), word, rest;
    once_span_cut(text, ' ', &word, &rest);
    *gone = false;
    if (once_span_starts(
            rest,
            ONCE_LIT("unknown command"))) /* do not show the rest: it repeats the arguments, and AUTH's is a password */
        once_span_cut(text, ',', &text, &rest);
    for (size_t i = 0; i < sizeof error_rows / sizeof *error_rows; i++) {
        const struct error_row *row = &error_rows[i];
        if (!once_span_equal(word, once_span_str(row->word)))
            continue;
        *gone = row->gone;
        return once_fail(err, row->result, "%s", row->what);
    }
    return once_fail(err, ONCE_UNAVAILABLE, "Redis says: %.*s", text.len < 300 ? (int)text.len : 300,
                     (const char *)text.ptr);
}
