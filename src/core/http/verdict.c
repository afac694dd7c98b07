/* verdict.c - see http/verdict.h. */
#include "core/http/verdict.h"

#include <assert.h>

enum once_http_verdict once_http_verdict(int status, bool is_final, enum once_takeover takeover)
{
    assert(status >= 0);
    if (status > 0 && is_final)
        return status < 400 ? ONCE_HTTP_SUCCEEDED : ONCE_HTTP_FAILED;
    if (takeover == ONCE_TAKEOVER_RERUN || (status > 0 && status < 500))
        return ONCE_HTTP_RETRYABLE;
    return takeover == ONCE_TAKEOVER_COMPLETER ? ONCE_HTTP_DEFERRED : ONCE_HTTP_UNKNOWN;
}

void once_http_outcome(enum once_http_verdict verdict, struct once_outcome *outcome)
{
    assert(verdict != ONCE_HTTP_DEFERRED);
    outcome->state = verdict == ONCE_HTTP_SUCCEEDED ? ONCE_STATE_SUCCEEDED
                     : verdict == ONCE_HTTP_UNKNOWN ? ONCE_STATE_UNKNOWN
                                                    : ONCE_STATE_FAILED;
    outcome->retryable = verdict == ONCE_HTTP_RETRYABLE;
}
