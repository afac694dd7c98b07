/*
 * problem.h - what an error's JSON body says about keys. Pure.
 *
 * Read are: a problem document (RFC 9457) of Once, with `code` and `retryable`; one by the IETF draft, known by its
 * title; Stripe's {"error": {"type", "code"}}; PayPal's {"name"} or {"details": [{"issue"}]}. Whatever is
 * no JSON object, or longer than CLIENT_PROBLEM_LEN_MAX, says nothing.
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

/* `is_problem`: its type is application/problem+json; only then `retryable` counts. */
void client_problem_read(once_span body, bool is_problem, struct client_problem *out);

#endif
