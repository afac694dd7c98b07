/* address.c - see serve/address.h. */
#include "serve/address.h"

#include "core/err.h"
#include "core/http/url.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <unistd.h>

/* ---------------------------------------------------------------- pieces */

static bool parse_port(const char *text, size_t len, unsigned *port)
{
    unsigned n = 0;
    if (len == 0 || len > 5)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        n = n * 10 + (unsigned)(text[i] - '0');
    }
    *port = n;
    return n >= 1 && n <= 65535;
}

/* Splits "HOST:PORT" and "[HOST]:PORT" at the last colon outside of brackets. `host_len` is
 * the length of the host without brackets, which begins at *host. False: `text` has neither form. */
static bool split(const char *text, const char **host, size_t *host_len, const char **port)
{
    if (text[0] == '[') {
        const char *close = strchr(text, ']');
        if (close == NULL)
            return false;
        *host = text + 1;
        *host_len = (size_t)(close - *host);
        *port = close[1] == ':' ? close + 2 : NULL;
        return close[1] == ':' || close[1] == '\0';
    }
    const char *colon = strchr(text, ':');
    if (colon != NULL && strchr(colon + 1, ':') != NULL)
        return false; /* an IPv6 address without its brackets */
    *host = text;
    *host_len = colon != NULL ? (size_t)(colon - text) : strlen(text);
    *port = colon != NULL ? colon + 1 : NULL;
    return true;
}

static bool is_name(const char *host)
{
    if (host[0] == '\0' || host[0] == '-' || host[0] == '.')
        return false;
    for (const char *p = host; *p != '\0'; p++)
        if (!isalnum((unsigned char)*p) && *p != '-' && *p != '.' && *p != '_')
            return false;
    return true;
}

/* ---------------------------------------------------------------- where to listen */

static bool set_ipv4(const char *host, unsigned port, struct once_serve_listen *out)
{
    struct sockaddr_in *in = (struct sockaddr_in *)&out->address;
    if (inet_pton(AF_INET, host, &in->sin_addr) != 1)
        return false;
    in->sin_family = AF_INET;
    in->sin_port = htons((uint16_t)port);
    out->address_len = sizeof *in;
    bool any = in->sin_addr.s_addr == htonl(INADDR_ANY);
    snprintf(out->text, sizeof out->text, "%s:%u", host, port);
    snprintf(out->near, sizeof out->near, "%s:%u", any ? "127.0.0.1" : host, port);
    return true;
}

static bool set_ipv6(const char *host, unsigned port, struct once_serve_listen *out)
{
    struct sockaddr_in6 *in = (struct sockaddr_in6 *)&out->address;
    if (inet_pton(AF_INET6, host, &in->sin6_addr) != 1)
        return false;
    in->sin6_family = AF_INET6;
    in->sin6_port = htons((uint16_t)port);
    out->address_len = sizeof *in;
    snprintf(out->text, sizeof out->text, "[%s]:%u", host, port);
    snprintf(out->near, sizeof out->near, "[%s]:%u", IN6_IS_ADDR_UNSPECIFIED(&in->sin6_addr) ? "::1" : host, port);
    return true;
}

once_result once_serve_listen_parse(const char *text, struct once_serve_listen *out, struct once_error *err)
{
    const char *at, *port_text;
    size_t len;
    char host[ONCE_SERVE_HOST_LEN_MAX + 1];
    *out = (struct once_serve_listen){ 0 };
    if (parse_port(text, strlen(text), &out->port) && set_ipv4("127.0.0.1", out->port, out))
        return ONCE_OK;
    if (!split(text, &at, &len, &port_text) || len >= sizeof host)
        return once_fail(err, ONCE_INVALID, "'%.100s' is not an address; write ADDRESS:PORT, [IPV6]:PORT or PORT",
                         text);
    if (port_text == NULL || !parse_port(port_text, strlen(port_text), &out->port))
        return once_fail(err, ONCE_INVALID, "'%.100s' must end with a port from 1 to 65535", text);
    snprintf(host, sizeof host, "%.*s", (int)len, at);
    if (strcmp(host, "*") == 0)
        snprintf(host, sizeof host, "0.0.0.0");
    else if (strcmp(host, "localhost") == 0)
        snprintf(host, sizeof host, "127.0.0.1");
    if (text[0] == '[' ? set_ipv6(host, out->port, out) : set_ipv4(host, out->port, out))
        return ONCE_OK;
    return once_fail(err, ONCE_INVALID,
                     "'%.100s' is not an address to listen on; write an IP address, '*' or localhost", host);
}

int once_serve_listen_try(const struct once_serve_listen *listen_on)
{
    int error = 0, yes = 1;
    int fd = socket(listen_on->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    /* As nginx does: an earlier gateway's connections in TIME_WAIT do not prevent the bind. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (listen_on->address.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    if (bind(fd, (const struct sockaddr *)&listen_on->address, listen_on->address_len) != 0 || listen(fd, 1) != 0)
        error = errno;
    close(fd);
    return error;
}

/* ---------------------------------------------------------------- the upstream service */

static once_result parse_unix(const char *text, const char *path, struct once_serve_upstream *out,
                              struct once_error *err)
{
    for (const char *p = path; *p != '\0'; p++)
        if (!isalnum((unsigned char)*p) && strchr("/._-+@", *p) == NULL)
            return once_fail(err, ONCE_INVALID, "'%.100s': a socket path may contain only letters, digits and /._-+@",
                             text);
    if (path[0] != '/' || strlen(path) > 107)
        return once_fail(err, ONCE_INVALID, "'%.200s': a socket path must be absolute and have at most 107 bytes",
                         text);
    snprintf(out->host, sizeof out->host, "localhost");
    snprintf(out->server, sizeof out->server, "unix:%s", path);
    snprintf(out->url, sizeof out->url, "http://unix:%s", path);
    return ONCE_OK;
}

once_result once_serve_upstream_parse(const char *text, struct once_serve_upstream *out, struct once_error *err)
{
    *out = (struct once_serve_upstream){ 0 };
    char shown[ONCE_URL_SHOWN_LEN];
    once_url_shown(text, shown);
    out->tls = strncmp(text, "https://", 8) == 0;
    if (!out->tls && strncmp(text, "http://", 7) != 0)
        return once_fail(err, ONCE_INVALID,
                         "'%.100s' is not the URL of a service; write http://HOST:PORT or https://HOST:PORT", shown);
    const char *rest = text + (out->tls ? 8 : 7);
    if (!out->tls && strncmp(rest, "unix:", 5) == 0)
        return parse_unix(text, rest + 5, out, err);
    char authority[ONCE_SERVE_ADDRESS_LEN];
    size_t len = strcspn(rest, "/?#");
    if (len >= sizeof authority)
        return once_fail(err, ONCE_INVALID, "'%.100s...' is too long", shown);
    if (rest[len] != '\0' && strcmp(rest + len, "/") != 0)
        return once_fail(err, ONCE_INVALID,
                         "'%.100s' has a path: the gateway forwards the client's path, so give only %s", shown,
                         "SCHEME://HOST:PORT");
    snprintf(authority, sizeof authority, "%.*s", (int)len, rest);
    if (strchr(authority, '@') != NULL)
        return once_fail(err, ONCE_INVALID, "'%.100s' contains a user name; credentials come from the client", shown);
    const char *host, *port_text;
    size_t host_len;
    unsigned port = out->tls ? 443 : 80;
    if (!split(authority, &host, &host_len, &port_text) || host_len > ONCE_SERVE_HOST_LEN_MAX)
        return once_fail(err, ONCE_INVALID, "'%.100s' is not the URL of a service; write an IPv6 address in [brackets]",
                         shown);
    if (port_text != NULL && !parse_port(port_text, strlen(port_text), &port))
        return strspn(port_text, "0123456789") == strlen(port_text)
                   ? once_fail(err, ONCE_INVALID, "'%.100s': '%.20s' is not a port from 1 to 65535", shown, port_text)
                   : once_fail(
                         err, ONCE_INVALID,
                         "the text after ':' is not a port from 1 to 65535"); /* not shown: it may be a password */
    snprintf(out->host, sizeof out->host, "%.*s", (int)host_len, host);
    struct in6_addr ipv6;
    bool bracketed = authority[0] == '[';
    if (bracketed ? inet_pton(AF_INET6, out->host, &ipv6) != 1 : !is_name(out->host))
        return once_fail(err, ONCE_INVALID, "'%.100s': '%.100s' is not a host name", shown, out->host);
    snprintf(out->server, sizeof out->server, bracketed ? "[%s]:%u" : "%s:%u", out->host, port);
    snprintf(out->url, sizeof out->url, "%s://%.*s", out->tls ? "https" : "http", (int)len, rest);
    return ONCE_OK;
}
