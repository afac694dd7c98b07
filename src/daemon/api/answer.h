/*
 * answer.h - an HTTP answer: a status, a few headers, a body.
 *
 * It is written once: by the route, or by the check that refuses the request.
 */
#ifndef ONCE_DAEMON_API_ANSWER_H
#define ONCE_DAEMON_API_ANSWER_H

#include "core/json/out.h"
#include "once.h"

struct api_answer {
    unsigned status;      /* 0: not written yet */
    const char *type;     /* of the body */
    const char *allow;    /* 405 */
    unsigned retry_after; /* seconds; 0: none */
    char cookie[200];     /* Set-Cookie; empty: none */
    char *body;           /* malloc'd */
    size_t len;
    FILE *file; /* of the body, while it is written */
};

/* Between these two the body is written, to the FILE or by once_json_*(). NULL: no memory; the answer says so. */
FILE *api_answer_begin(struct api_answer *answer, unsigned status, const char *type);
void api_answer_end(struct api_answer *answer);
void api_answer_release(struct api_answer *answer);

#define API_PROBLEMS(X)                                                                                                \
    X(INVALID, 400, "invalid", false, "The request is not acceptable")                                                 \
    X(UNAUTHENTICATED, 401, "unauthenticated", false, "Sign in first")                                                 \
    X(FORBIDDEN, 403, "forbidden", false, "This listener is for programs on its own machine")                          \
    X(NOT_FOUND, 404, "not-found", false, "There is nothing at this path")                                             \
    X(METHOD, 405, "method-not-allowed", false, "This path does not take this method")                                 \
    X(LIMIT, 413, "limit-exceeded", false, "A limit is reached")                                                       \
    X(MEDIA_TYPE, 415, "unsupported-media-type", false, "The body must be JSON")                                       \
    X(BUSY, 429, "busy", true, "No room right now; nothing was changed")                                               \
    X(QUOTA, 429, "quota-exceeded", true, "This tenant has as much as it may have")                                    \
    X(UNKNOWN, 500, "answer-lost", true, "The store's answer was lost; it may have taken effect")                      \
    X(CORRUPT, 500, "record-damaged", false, "Stored data breaks an invariant")                                        \
    X(UNAVAILABLE, 503, "store-unavailable", true, "The store was not reached; nothing was changed")                   \
    X(NO_MEMORY, 503, "no-memory", true, "Out of memory; nothing was changed")

enum api_problem {
#define API__PROBLEM(name, status, code, retryable, title) API_PROBLEM_##name,
    API_PROBLEMS(API__PROBLEM)
#undef API__PROBLEM
};

/* Replaces the answer by a problem document (RFC 9457). `member` of the request that is wrong, or NULL. */
__attribute__((format(printf, 4, 5))) void api_answer_problem(struct api_answer *answer, enum api_problem problem,
                                                              const char *member, const char *format, ...);
/* The same for an error of the library. */
void api_answer_error(struct api_answer *answer, const struct once_error *err);

#endif
