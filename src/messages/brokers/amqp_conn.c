/* amqp_conn.c - see amqp_conn.h. */
#include "messages/brokers/amqp_conn.h"

#include "core/err.h"

#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { HEARTBEAT_S = 20, FRAME_LEN_MAX = 131072 };
static const char system_ca_file[] = "/etc/ssl/certs/ca-certificates.crt";

struct timeval amqp_conn_timeval(int64_t ms)
{
    return (struct timeval){ .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
}

/* ------------------------------------------------------------------ login */

/* Reads a file with one line, USER:PASSWORD. */
static once_result read_login(struct amqp_peer *peer, const char *file, struct once_error *err)
{
    char line[sizeof peer->user + sizeof peer->password];
    FILE *f = fopen(file, "re");
    if (f == NULL)
        return once_fail(err, ONCE_INVALID, "--amqp-login '%s': %s", file, strerror(errno));
    size_t len = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[len] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    char *colon = strchr(line, ':');
    if (colon == NULL || colon == line || (size_t)(colon - line) >= sizeof peer->user ||
        strlen(colon + 1) >= sizeof peer->password || len == sizeof line - 1)
        return once_fail(err, ONCE_INVALID, "--amqp-login '%s': its first line is not USER:PASSWORD", file);
    snprintf(peer->user, sizeof peer->user, "%.*s", (int)(colon - line), line);
    snprintf(peer->password, sizeof peer->password, "%s", colon + 1);
    return ONCE_OK;
}

once_result amqp_peer_login(struct amqp_peer *peer, const char *file, struct once_error *err)
{
    snprintf(peer->user, sizeof peer->user, "guest");
    snprintf(peer->password, sizeof peer->password, "guest");
    return file != NULL ? read_login(peer, file, err) : ONCE_OK;
}

const char *amqp_peer_ca_file(const struct amqp_peer *peer)
{
    return peer->ca_file != NULL ? peer->ca_file : system_ca_file;
}

/* ------------------------------------------------------------------ answers */

void amqp_conn_say_close(char *reason, int code, amqp_bytes_t text)
{
    int len = text.len < 180 ? (int)text.len : 180;
    snprintf(reason, AMQP_REASON_LEN, "%d %.*s", code, len, text.len > 0 ? (const char *)text.bytes : "");
    for (char *c = reason; *c != '\0'; c++)
        if (*c < ' ' || *c > '~')
            *c = ' ';
}

bool amqp_conn_succeeded(amqp_rpc_reply_t reply, const char *what, char *reason)
{
    if (reply.reply_type == AMQP_RESPONSE_NORMAL)
        return true;
    if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD) {
        const amqp_connection_close_t *close = reply.reply.decoded;
        amqp_conn_say_close(reason, close->reply_code, close->reply_text);
    } else if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
        const amqp_channel_close_t *close = reply.reply.decoded;
        amqp_conn_say_close(reason, close->reply_code, close->reply_text);
    } else {
        snprintf(reason, AMQP_REASON_LEN, "%s: %s", what,
                 reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION ? amqp_error_string2(reply.library_error)
                                                                     : "an answer that was not understood");
    }
    return false;
}

/* ------------------------------------------------------------------ connecting */

/* The socket, with TLS if the URL says so. */
static amqp_socket_t *make_socket(const struct amqp_peer *peer, amqp_connection_state_t conn, char *reason)
{
    if (!peer->url->tls)
        return amqp_tcp_socket_new(conn);
    amqp_socket_t *socket = amqp_ssl_socket_new(conn);
    const char *ca_file = amqp_peer_ca_file(peer);
    if (socket == NULL)
        return NULL;
    amqp_ssl_socket_set_verify_peer(socket, 1);
    amqp_ssl_socket_set_verify_hostname(socket, 1);
    if (amqp_ssl_socket_set_ssl_versions(socket, AMQP_TLSv1_2, AMQP_TLSvLATEST) == AMQP_STATUS_OK &&
        amqp_ssl_socket_set_cacert(socket, ca_file) == AMQP_STATUS_OK)
        return socket;
    snprintf(reason, AMQP_REASON_LEN, "cannot use the certificates in '%.150s'", ca_file);
    return NULL;
}

static void say_unreached(const struct amqp_peer *peer, int status, char *reason)
{
    if (peer->place_is_said)
        snprintf(reason, AMQP_REASON_LEN, "cannot connect: %s", amqp_error_string2(status));
    else
        snprintf(reason, AMQP_REASON_LEN, "cannot connect to %.100s:%d: %s", peer->url->host, peer->url->port,
                 amqp_error_string2(status));
}

static bool open_socket(const struct amqp_peer *peer, int64_t timeout_ms, amqp_connection_state_t *conn, char *reason)
{
    struct timeval timeout = amqp_conn_timeval(timeout_ms);
    snprintf(reason, AMQP_REASON_LEN, "no memory for a connection");
    *conn = amqp_new_connection();
    amqp_socket_t *socket = *conn != NULL ? make_socket(peer, *conn, reason) : NULL;
    if (socket == NULL)
        return false;
    amqp_set_handshake_timeout(*conn, &timeout);
    amqp_set_rpc_timeout(*conn, &timeout);
    int status = amqp_socket_open_noblock(socket, peer->url->host, peer->url->port, &timeout);
    if (status != AMQP_STATUS_OK) {
        say_unreached(peer, status, reason);
        return false;
    }
    unsigned int ms = (unsigned int)peer->timeout_ms;
    setsockopt(amqp_get_sockfd(*conn), IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
    return true;
}

static bool log_in(const struct amqp_peer *peer, amqp_connection_state_t conn, char *reason)
{
    amqp_table_entry_t entry = { .key = amqp_cstring_bytes("connection_name"),
                                 .value = { .kind = AMQP_FIELD_KIND_UTF8,
                                            .value.bytes = amqp_cstring_bytes(peer->name) } };
    amqp_table_t properties = { .num_entries = 1, .entries = &entry };
    return amqp_conn_succeeded(amqp_login_with_properties(conn, peer->url->vhost, 0, FRAME_LEN_MAX, HEARTBEAT_S,
                                                          &properties, AMQP_SASL_METHOD_PLAIN, peer->user,
                                                          peer->password),
                               "cannot log in", reason);
}

bool amqp_conn_open(const struct amqp_peer *peer, int64_t timeout_ms, amqp_connection_state_t *conn, char *reason)
{
    return open_socket(peer, timeout_ms, conn, reason) && log_in(peer, *conn, reason);
}
