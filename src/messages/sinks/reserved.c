/* reserved.c - see reserved.h. */
#include "messages/sinks/reserved.h"

#include "core/span.h"

bool header_is_reserved(once_span name)
{
    static const char *const names[] = {
        "host",
        "content-length",
        "content-type",
        "content-encoding",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "authorization",
        "cookie",
        "proxy-connection",
        "proxy-authorization",
        "idempotency-key",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "once-topic",
        "once-message-key",
        "once-attempt",
        "once-consumer",
        "once-message-id",
        "once-key",
        "once-record",
        "once-fence",
        "once-recovery-point",
        "once-checkpoint",
        "user-agent",
        "accept",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (once_span_equal_nocase(name, once_span_str(names[i])))
            return true;
    return false;
}
