/*
 * guard.h - refuses requests that foreign web pages make a browser send.
 *
 * Any page can make a browser on this machine send requests to 127.0.0.1. A page whose own name points to 127.0.0.1
 * (DNS rebinding) can even read the answers. Such a request has that name in Host, or an Origin or Sec-Fetch-Site. So:
 *   Host            must be localhost, a loopback address, the address that is listened on (any address if that is
 *                   0.0.0.0 or ::), or a configured name, such as the origin's. HTTP/1.0, which browsers do not use,
 * may leave it out. Origin          if present, must be http:// and that Host, which are our own pages; or the
 * configured origin of a proxy with TLS, whether or not the proxy passes the Host on. The origin's name without TLS is
 *                   refused.
 *   Sec-Fetch-Site  if present, must be same-origin or none.
 * Pure.
 */
#ifndef ONCE_DAEMON_API_GUARD_H
#define ONCE_DAEMON_API_GUARD_H

#include "once.h"

#include <sys/socket.h>

struct api_guard {
    struct sockaddr_storage bound;
    const char *const *hosts;
    size_t host_count;
    const char *origin; /* "https://NAME[:PORT]", checked; NULL: none */
};

/* The values of the headers; NULL: absent. */
struct api_guard_headers {
    const char *host, *origin, *fetch_site;
    bool repeated; /* one of them is repeated */
    bool http_1_0;
};

/* NULL: allowed; else the reason, for the problem's detail. */
const char *api_guard_refuses(const struct api_guard *guard, const struct api_guard_headers *headers);

/* NULL: a valid origin, written as browsers write it: https, a name, the port unless it is 443. Else what is wrong. */
const char *api_guard_origin_fault(const char *origin);

#endif
