/*
 * auth.h - who may use the console: a token is exchanged for a session.
 *
 * Model:      a session is two secrets. One is a cookie (HttpOnly, SameSite=Strict): no script can read it. But
 *             cookies do not know ports, so every server on this machine that the browser visits is sent it, too. The
 * other one is kept by the page in its origin's storage, which does know ports, and is sent as a header, which other
 *             sites' pages cannot do. Neither is worth anything alone.
 * Invariants: CONSOLE-AUTH-1 secrets are 256 random bits; only their hashes are kept, and compared in constant time.
 *             CONSOLE-AUTH-2 a token that was made here is good for one sign-in; one from a file for any number.
 *             CONSOLE-AUTH-3 wrong tokens are counted: after BURST of them, one try a second.
 *             CONSOLE-AUTH-4 sessions are bounded (SESSIONS_MAX, the one that was idle longest goes) and end after
 *                IDLE_MS without a request, or SESSION_MS.
 */
#ifndef ONCE_DAEMON_CONSOLE_AUTH_H
#define ONCE_DAEMON_CONSOLE_AUTH_H

#include "core/mac.h"
#include "once.h"

#include <pthread.h>

enum {
    CONSOLE_SECRET_LEN = 64, /* hex digits */
    CONSOLE_NAME_LEN_MAX = 64,
    CONSOLE_TOKEN_LEN_MIN = 16,
    CONSOLE_TOKEN_LEN_MAX = 512,
    CONSOLE_SESSIONS_MAX = 16,
};

struct console_session {
    uint8_t cookie[ONCE_MAC_LEN], csrf[ONCE_MAC_LEN]; /* hashes */
    char name[CONSOLE_NAME_LEN_MAX + 1];              /* as who signed in said */
    once_time born, seen;                             /* once_os_monotonic_ms(); born 0: free */
    uint64_t turn;                                    /* when it was used last, in the order of requests */
};

struct console_auth {
    pthread_mutex_t lock;
    uint8_t token[ONCE_MAC_LEN];           /* its hash */
    char one_time[CONSOLE_SECRET_LEN + 1]; /* itself, where it was made here; empty: it is from a file */
    char cookie_name[40];
    double tries; /* that are left; refilled with time */
    once_time refilled;
    uint64_t turns;
    struct console_session sessions[CONSOLE_SESSIONS_MAX];
};

enum console_login { CONSOLE_LOGIN_OK, CONSOLE_LOGIN_WRONG, CONSOLE_LOGIN_TOO_MANY };

once_result console_auth_init(struct console_auth *auth, const char *token_file, struct once_error *err);
void console_auth_release(struct console_auth *auth);
/* Consoles on several ports of a machine have cookies of their own. */
void console_auth_name_cookie(struct console_auth *auth, const char *address);
/* The token where it was made here, else "". */
void console_auth_token(struct console_auth *auth, char out[CONSOLE_SECRET_LEN + 1]);
/* Is it a name that can stand in a log? 1 to 64 bytes of UTF-8 without control or direction characters. */
bool console_auth_is_name(once_span name);
/* `header` is a Set-Cookie's value, `csrf` the other secret. */
enum console_login console_auth_login(struct console_auth *auth, once_span token, once_span name, char header[200],
                                      char csrf[CONSOLE_SECRET_LEN + 1]);
/* The headers of a request; true: `name` signed in. */
bool console_auth_check(struct console_auth *auth, const char *cookie, const char *csrf,
                        char name[CONSOLE_NAME_LEN_MAX + 1]);
void console_auth_logout(struct console_auth *auth, const char *cookie, char header[200]);

#endif
