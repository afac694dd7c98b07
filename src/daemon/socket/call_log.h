/*
 * call_log.h - what is remembered of a call on the socket until it is answered, for the log and for its trace.
 *
 * Only where one of the two wants it: without --log-decisions and without a traced claim that may wait there is none,
 * and nothing is copied, hashed or timed.
 */
#ifndef ONCE_DAEMON_SOCKET_CALL_LOG_H
#define ONCE_DAEMON_SOCKET_CALL_LOG_H

#include "core/mac.h"
#include "daemon/observers/decisions.h"
#include "trace/tracer.h"
#include "wire/wire.h"

/* Who wants it. */
struct call_log_outputs {
    struct decisions *log;     /* may be NULL */
    struct exporter *exporter; /* the same */
};

/* The context that came before a CALL. */
struct call_log_context {
    bool there;
    uint32_t call;
    struct once_trace trace;
    size_t route_len;
    uint8_t route[ONCE_TRACE_TEXT_LEN];
};

void call_log_context_set(struct call_log_context *context, const struct wire_context *from);

struct call_log_entry;

/* NULL: nobody wants it, or there is no memory. The context is used up. */
struct call_log_entry *call_log_begin(const struct call_log_outputs *who, struct call_log_context *context, uint32_t id,
                                      const struct once_mac *secret, const struct once_request *request);
/* Its answer: logs it, exports the wait of one that was parked, frees it. */
void call_log_end(const struct call_log_outputs *who, struct call_log_entry *call_log_entry, once_result result,
                  const struct once_reply *reply, bool waited);

#endif
