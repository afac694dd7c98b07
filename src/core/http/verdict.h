/*
 * verdict.h - what an upstream's HTTP answer says about the operation: the one rule of gateway and completer.
 *
 * A complete answer with a final status is the outcome. A complete answer below 500 that is not final says that the
 * service did nothing. After anything else the service may have executed the operation; the takeover policy decides
 * then: rerun allows another attempt, completer leaves the record running until the completer has probed the
 * service, the others make the outcome unknown.
 */
#ifndef ONCE_CORE_HTTP_VERDICT_H
#define ONCE_CORE_HTTP_VERDICT_H

#include "once.h"

enum once_http_verdict {
    ONCE_HTTP_SUCCEEDED = 1, /* final, below 400 */
    ONCE_HTTP_FAILED,        /* final */
    ONCE_HTTP_RETRYABLE,     /* failed; a retry is executed */
    ONCE_HTTP_UNKNOWN,       /* a person must find out */
    ONCE_HTTP_DEFERRED       /* the record stays running; the completer finds out */
};

/* `status`: of a complete answer; 0: the request was sent, and no complete answer came. */
enum once_http_verdict once_http_verdict(int status, bool is_final, enum once_takeover takeover);

/* Sets state and retryable. Not for ONCE_HTTP_DEFERRED, which has no outcome yet. */
void once_http_outcome(enum once_http_verdict verdict, struct once_outcome *outcome);

#endif
