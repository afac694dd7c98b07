/* api_guard.c - see api_guard.h. */
#include "daemon/api_guard.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { HOST_LEN_MAX = 255 };

/* HOST[:PORT] or [IPV6][:PORT] without the port and brackets; false if it is neither. The port is
 * not compared: a forwarded one differs, and it is the name that a rebinding page cannot choose. */
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
        return false; /* a unix socket, forwarded from a port */
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

static bool is_allowed(const struct api_guard *guard, const char *host)
{
    char name[HOST_LEN_MAX + 1];
    struct in_addr v4;
    struct in6_addr v6;
    if (!read_name(host, name))
        return false;
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

static bool is_own(const char *origin, const char *host)
{
    static const char scheme[] = "http://";
    return host != NULL && strncmp(origin, scheme, sizeof scheme - 1) == 0 &&
           strcasecmp(origin + sizeof scheme - 1, host) == 0;
}

const char *api_guard_refuses(const struct api_guard *guard, const struct api_guard_headers *headers)
{
    if (headers->repeated)
        return "Host, Origin or Sec-Fetch-Site is there twice";
    if (headers->host == NULL && !headers->http_1_0)
        return "the Host header is missing";
    if (headers->host != NULL && !is_allowed(guard, headers->host))
        return "the Host header is not localhost, a loopback address, the address that is listened on or a "
               "configured name";
    if (headers->origin != NULL && !is_own(headers->origin, headers->host))
        return "the Origin header is not this listener: pages of other sites may not ask";
    const char *site = headers->fetch_site;
    if (site != NULL && strcasecmp(site, "same-origin") != 0 && strcasecmp(site, "none") != 0)
        return "the Sec-Fetch-Site header says that a page of another site asks";
    return NULL;
}
