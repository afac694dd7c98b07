/*
 * console.h - the web console for operators: docs/console.md.
 *
 * Its own HTTP listener (api.h with other routes) serves the page's files, which are part of the program, and JSON
 * that only the page requests. It changes records only through the library's public calls, as `once keys` does.
 *
 * Invariants: CONSOLE-1 a client without the token gets the page's own files and nothing else; every other request
 *                needs a session's cookie (HttpOnly, SameSite=Strict) and the second secret of our page (X-Once-Csrf).
 *             CONSOLE-2 a GET changes nothing; a POST needs our own Origin.
 *             CONSOLE-3 bodies, headers, checkpoints and requests are sent one at a time, on request, and each such
 *                request is logged.
 *             CONSOLE-4 a request takes a bounded part of the writer's time: a search makes a few steps and returns
 *                where to continue.
 *             CONSOLE-5 stored bytes are sent unchanged, as text or base64; the page makes text nodes of them, never
 *                markup.
 */
#ifndef ONCE_DAEMON_CONSOLE_CONSOLE_H
#define ONCE_DAEMON_CONSOLE_CONSOLE_H

#include "once.h"

struct escalate_counters;
struct completer_counters;
struct expiry_counters;

#define CONSOLE_LISTEN_DEFAULT "127.0.0.1:7413"

struct console_options {
    struct once *once;
    const char *listen;     /* ADDRESS:PORT, or the absolute path of a unix socket */
    bool any_address;       /* also addresses that others than this machine can reach */
    const char *origin;     /* "https://NAME[:PORT]" of the proxy before it; NULL: none */
    const char *token_file; /* NULL: a token is made, good for one sign-in, then the next is printed */
    const char *outbox;     /* URL of a database with an outbox; NULL: none */
    const char *traces;     /* URL with {key_hash}: where a key's traces are (console/link.h); NULL: no link */
    const char *store;      /* its URL's scheme is shown */
    const struct escalate_counters *escalations; /* may be NULL, as the next two */
    const struct completer_counters *completer;
    const struct expiry_counters *expiry;
};

struct console;

once_result console_start(const struct console_options *options, struct console **out, struct once_error *err);
/* NULL is fine. */
void console_stop(struct console *console);
const char *console_address(const struct console *console);
/* Where to sign in, as a line of the log: after the start, and whenever a one-time token was used. */
void console_print_url(struct console *console);

#endif
