/*
 * noted.h - what is remembered of a call on the socket until it is answered, for the log and for its trace.
 *
 * Only where one of the two wants it: without --log-decisions and without a traced claim that may wait there is none,
 * and nothing is copied, hashed or timed.
 */
#ifndef ONCE_DAEMON_SOCKET_NOTED_H
#define ONCE_DAEMON_SOCKET_NOTED_H

#include "core/mac.h"
#include "daemon/observers/decisions.h"
#include "trace/tracer.h"
#include "wire/wire.h"

/* Who wants it. */
struct noted_for {
    struct decisions *log;     /* may be NULL */
    struct exporter *exporter; /* the same */
};

/* The context that came before a CALL. */
struct noted_context {
    bool there;
    uint32_t call;
    struct once_trace trace;
    size_t route_len;
    uint8_t route[ONCE_TRACE_TEXT_LEN];
};

void noted_context_set(struct noted_context *context, const struct wire_context *from);

struct noted;

/* NULL: nobody wants it, or there is no memory. The context is used up. */
struct noted *noted_begin(const struct noted_for *who, struct noted_context *context, uint32_t id,
                          const struct once_mac *secret, const struct once_request *request);
/* Its answer: logs it, exports the wait of one that was parked, frees it. */
void noted_end(const struct noted_for *who, struct noted *noted, once_result result, const struct once_reply *reply,
               bool waited);

#endif
