/*
 * call_log.h - facts about a call on the socket, kept until its answer, for the decision log and for its trace.
 *
 * Without --log-decisions, and unless the call is a traced claim that may wait, there is no entry: nothing is copied,
 * hashed or timed.
 */
#ifndef ONCE_DAEMON_SOCKET_CALL_LOG_H
#define ONCE_DAEMON_SOCKET_CALL_LOG_H

#include "core/mac.h"
#include "daemon/observers/decisions.h"
#include "trace/tracer.h"
#include "wire/wire.h"

struct call_log_outputs {
    struct decisions *log;     /* may be NULL */
    struct exporter *exporter; /* of spans; may be NULL */
};

/* The frame CONTEXT that came before a CALL: its trace and route. */
struct call_log_context {
    bool there;
    uint32_t call;
    struct once_trace trace;
    size_t route_len;
    uint8_t route[ONCE_TRACE_TEXT_LEN];
};

void call_log_context_set(struct call_log_context *context, const struct wire_context *from);

struct call_log_entry;

/* NULL: no output needs it, or there is no memory. Clears the context. */
struct call_log_entry *call_log_begin(const struct call_log_outputs *to, struct call_log_context *context, uint32_t id,
                                      const struct once_mac *secret, const struct once_request *request);
/* Logs the answer, exports a span for a claim that waited, frees the entry. */
void call_log_end(const struct call_log_outputs *to, struct call_log_entry *call_log_entry, once_result result,
                  const struct once_reply *reply, bool waited);

#endif
