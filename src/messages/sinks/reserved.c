/* reserved.c - see reserved.h. */
#include "messages/sinks/reserved.h"

#include <string.h>
#include <strings.h>

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
        if (name.len == strlen(names[i]) && strncasecmp((const char *)name.ptr, names[i], name.len) == 0)
            return true;
    return false;
}
