/* guard.c - see api/guard.h. */
#include "daemon/api/guard.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { HOST_LEN_MAX = 255 };

/* Takes the name from HOST[:PORT] or [IPV6][:PORT]; false if it is neither. The port is not compared: a forwarded one
 * differs, and the name is what a rebinding page cannot choose. */
static bool read_name(const char *host, char name[HOST_LEN_MAX + 1])
{
    const char *begin = host, *end;
    if (host[0] == '[') {
        begin = host + 1;
        end = strchr(begin, ']');
        if (end == NULL)
            return false;
        host = end + 1;
    } else {
        end = begin + strcspn(begin, ":");
        host = end;
    }
    size_t len = (size_t)(end - begin);
    if (len == 0 || len > HOST_LEN_MAX)
        return false;
    if (host[0] == ':')
        host += 1 + strspn(host + 1, "0123456789");
    memcpy(name, begin, len);
    name[len] = '\0';
    return host[0] == '\0';
}

static bool is_allowed_v4(const struct api_guard *guard, struct in_addr address)
{
    if ((ntohl(address.s_addr) >> 24) == 127)
        return true;
    const struct sockaddr_in *bound = (const struct sockaddr_in *)(const void *)&guard->bound;
    const struct sockaddr_in6 *bound6 = (const struct sockaddr_in6 *)(const void *)&guard->bound;
    if (guard->bound.ss_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&bound6->sin6_addr);
    if (guard->bound.ss_family != AF_INET)
        return false; /* a unix socket that a proxy forwards to */
    return bound->sin_addr.s_addr == htonl(INADDR_ANY) || bound->sin_addr.s_addr == address.s_addr;
}

static bool is_allowed_v6(const struct api_guard *guard, const struct in6_addr *address)
{
    if (IN6_IS_ADDR_LOOPBACK(address))
        return true;
    const struct sockaddr_in6 *bound = (const struct sockaddr_in6 *)(const void *)&guard->bound;
    if (guard->bound.ss_family != AF_INET6)
        return false;
    return IN6_IS_ADDR_UNSPECIFIED(&bound->sin6_addr) || memcmp(&bound->sin6_addr, address, sizeof *address) == 0;
}

static const char https[] = "https://";

enum { HTTPS_LEN = sizeof https - 1 };

/* Whether this Host has the name of the origin. */
static bool is_origins(const struct api_guard *guard, const char *host)
{
    char name[HOST_LEN_MAX + 1], own[HOST_LEN_MAX + 1];
    return guard->origin != NULL && host != NULL && read_name(host, name) &&
           read_name(guard->origin + HTTPS_LEN, own) && strcasecmp(name, own) == 0;
}

static bool is_allowed(const struct api_guard *guard, const char *host)
{
    char name[HOST_LEN_MAX + 1];
    struct in_addr v4;
    struct in6_addr v6;
    if (!read_name(host, name))
        return false;
    if (is_origins(guard, host))
        return true;
    if (inet_pton(AF_INET, name, &v4) == 1)
        return is_allowed_v4(guard, v4);
    if (host[0] == '[')
        return inet_pton(AF_INET6, name, &v6) == 1 && is_allowed_v6(guard, &v6);
    if (strcasecmp(name, "localhost") == 0)
        return true;
    for (size_t i = 0; i < guard->host_count; i++)
        if (strcasecmp(name, guard->hosts[i]) == 0)
            return true;
    return false;
}

static bool is_own(const struct api_guard *guard, const char *origin, const char *host)
{
    static const char scheme[] = "http://";
    if (guard->origin != NULL && strcasecmp(origin, guard->origin) == 0)
        return true;
    return !is_origins(guard, host) && host != NULL && strncmp(origin, scheme, sizeof scheme - 1) == 0 &&
           strcasecmp(origin + sizeof scheme - 1, host) == 0;
}

const char *api_guard_refuses(const struct api_guard *guard, const struct api_guard_headers *headers)
{
    if (headers->repeated)
        return "Host, Origin or Sec-Fetch-Site is there twice";
    if (headers->host == NULL && !headers->http_1_0)
        return "the Host header is missing";
    if (headers->host != NULL && !is_allowed(guard, headers->host))
        return guard->origin != NULL || guard->host_count > 0
                   ? "the Host header is not localhost, a loopback address, the address that is listened on or a "
                     "configured name"
                   : "the Host header is not localhost, a loopback address or the address that is listened on";
    if (headers->origin != NULL && !is_own(guard, headers->origin, headers->host))
        return "the Origin header is not this listener: pages of other sites are refused";
    const char *site = headers->fetch_site;
    if (site != NULL && strcasecmp(site, "same-origin") != 0 && strcasecmp(site, "none") != 0)
        return "the Sec-Fetch-Site header says that a page of another site sent this";
    return NULL;
}

/* Labels of letters, digits and hyphens, with dots between. */
static bool is_dns_name(const char *name, size_t len)
{
    enum { LABEL_LEN_MAX = 63, NAME_LEN_MAX = 253 };
    size_t label = 0;
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (c == '.' ? label == 0 || name[i - 1] == '-' : !plain && (c != '-' || label == 0))
            return false;
        label = c == '.' ? 0 : label + 1;
        if (label > LABEL_LEN_MAX)
            return false;
    }
    return len <= NAME_LEN_MAX && label > 0 && name[len - 1] != '-';
}

const char *api_guard_origin_fault(const char *origin)
{
    if (strncmp(origin, https, HTTPS_LEN) != 0)
        return "it does not begin with https://";
    const char *name = origin + HTTPS_LEN;
    size_t len = strcspn(name, ":");
    if (!is_dns_name(name, len))
        return "it is not https:// and a name, with nothing after it except perhaps a port";
    if (name[len] == '\0')
        return NULL;
    const char *port = name + len + 1;
    size_t digits = strspn(port, "0123456789");
    unsigned number = 0;
    for (size_t i = 0; i < digits && i < 6; i++)
        number = number * 10 + (unsigned)(port[i] - '0');
    if (digits == 0 || digits > 5 || port[digits] != '\0' || port[0] == '0' || number > 65535)
        return "its port is not a number from 1 to 65535";
    return number == 443 ? "leave the port 443 out, as browsers do" : NULL;
}
