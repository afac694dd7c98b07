/*
 * guard.h - who may ask: programs, not pages in a browser.
 *
 * A page from anywhere can make a browser on this machine send requests to 127.0.0.1; with a
 * name of its own that it lets point there (DNS rebinding) it can even read the answers. Such a
 * request carries that name in Host, or Origin or Sec-Fetch-Site. So:
 *   Host            must be localhost, a loopback address, the address that is listened on (any
 *                   address where that is 0.0.0.0 or ::), or a name that was configured, such as
 *                   that of the origin. HTTP/1.0 may leave it out: no browser does.
 *   Origin          where there is one, must be http:// and that Host: our own pages; or the
 *                   configured origin, where something with TLS is before us, whether that passes
 *                   the Host on or not. The origin's own name without TLS is not ours.
 *   Sec-Fetch-Site  where there is one, must be same-origin or none.
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
    const char *origin; /* "https://NAME[:PORT]", without a fault; NULL: none */
};

/* The headers as they came; NULL: absent. */
struct api_guard_headers {
    const char *host, *origin, *fetch_site;
    bool repeated; /* one of them came twice */
    bool http_1_0;
};

/* NULL, or what is refused, for the problem's detail. */
const char *api_guard_refuses(const struct api_guard *guard, const struct api_guard_headers *headers);

/* What is wrong with an origin, or NULL. Written as browsers write it: https, a name, the port unless it is 443. */
const char *api_guard_origin_fault(const char *origin);

#endif
