/*
 * link.h - from a key's page to the key's traces, which are kept elsewhere: a URL with {key_hash} in it.
 *
 * The URL is the operator's (--console-traces) and is checked at the start. The key hash is the record's id in hex, as
 * spans and decision lines have it (docs/observability.md): it needs no escaping, and is all that is put in.
 *
 * Invariants: LINK-1 a link is http or https, of characters that a URL allows: it is neither script nor markup.
 *             LINK-2 the hash comes after the host: a record cannot choose the server.
 *             LINK-3 a link has no user or password: everybody who is signed in sees it.
 */
#ifndef ONCE_DAEMON_CONSOLE_LINK_H
#define ONCE_DAEMON_CONSOLE_LINK_H

#include "core/json/out.h"
#include "once.h"

/* What browsers and the servers before trace stores take without complaint; a search in Grafana has some 400. */
enum { CONSOLE_LINK_LEN_MAX = 2000 };

/* What is wrong with it, or NULL. */
const char *console_link_fault(const char *url);
/* A member with the link for this record; `url` has no fault. */
void console_link_put(struct once_json *json, const char *name, const char *url, const uint8_t record[16]);

#endif
