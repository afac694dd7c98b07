/*
 * problem.h - reads the JSON body of an error answer for statements about the key. Pure.
 *
 * It knows: a problem document (RFC 9457) of Once, with `code` and `retryable`; one of the IETF draft, by its title;
 * Stripe's {"error": {"type", "code"}}; PayPal's {"name"} or {"details": [{"issue"}]}. A body that is not a JSON
 * object, or longer than CLIENT_PROBLEM_LEN_MAX, is ignored.
 */
#ifndef ONCE_CLIENT_PROBLEM_H
#define ONCE_CLIENT_PROBLEM_H

#include "once.h"

enum { CLIENT_PROBLEM_LEN_MAX = 64 << 10 };

enum client_tristate { CLIENT_UNSAID = 0, CLIENT_YES, CLIENT_NO };

struct client_problem {
    enum client_tristate retryable;
    bool in_progress; /* another request with this key is being executed */
    bool mismatch;    /* the key was used for another request */
    bool unknown;     /* Once: outcome-unknown */
    char text[128];   /* its title or message, for a person; visible ASCII */
};

/* `is_problem`: its type is application/problem+json; only then `retryable` is read. */
void client_problem_read(once_span body, bool is_problem, struct client_problem *out);

#endif
