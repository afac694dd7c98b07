/*
 * trace.h - W3C trace context: the trace and the span that a request belongs to. Pure.
 *
 *     traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
 *                  version, trace id, id of the span that sends it, flags
 *
 * Parsing is strict: any other value counts as absent and is not passed on. Of a later version, the part that version
 * 00 defines is read. Once writes version 00, and of the flags only `sampled`.
 */
#ifndef ONCE_CORE_HTTP_TRACE_H
#define ONCE_CORE_HTTP_TRACE_H

#include "once.h"

#define ONCE_TRACEPARENT_LEN 55
/* A later version may be longer, but hardly this long. */
#define ONCE_TRACEPARENT_LEN_MAX 512
/* Length of client-chosen texts in log lines and spans: enough to recognise them. */
#define ONCE_TRACE_TEXT_LEN 128

/* The kinds of spans, with their names. */
#define ONCE_TRACE_NAMES(X)                                                                                            \
    X(REQUEST, 1, "once.request")   /* the gateway: a whole request with a key */                                      \
    X(CLAIM, 2, "once.claim")       /* the store is asked what to do */                                                \
    X(WAIT, 3, "once.wait")         /* part of the claim: waiting for another's outcome */                             \
    X(UPSTREAM, 4, "once.upstream") /* the service works */                                                            \
    X(FINISH, 5, "once.finish")     /* the outcome is stored, or the claim released */                                 \
    X(COMPLETE, 6, "once.complete") /* the daemon: an attempt of its completer */                                      \
    X(PUBLISH, 7, "once.publish")   /* the relay: a message to its sink */                                             \
    X(DELIVER, 8, "once.deliver")   /* `once consume`: a message to its endpoint */                                    \
    X(SEND, 9, "once.send")         /* `once send`: from the first try to the answer */

enum once_trace_name {
#define ONCE__TRACE_NAME(name, value, text) ONCE_TRACE_##name = value,
    ONCE_TRACE_NAMES(ONCE__TRACE_NAME)
#undef ONCE__TRACE_NAME
};

struct once_trace {
    uint8_t trace[16]; /* never all zero */
    uint8_t span[8];   /* never all zero */
    bool sampled;
};

/* The spans of one traced operation that one process made, and their common attributes. */
enum { ONCE_TRACE_SPANS_MAX = 4 };

struct once_trace_span {
    enum once_trace_name name;
    uint8_t id[8], parent[8];  /* a parent of zeros: it begins the trace */
    uint64_t start_ns, end_ns; /* since 1970 */
    enum once_arm arm;         /* the store's answer; NONE: no answer */
    int32_t status;            /* an HTTP or exit status; 0: none */
    bool failed;
};

struct once_trace_report {
    uint8_t trace[16];
    uint8_t record[16]; /* zeros: not known */
    uint64_t fence;     /* 0: none was granted */
    uint32_t attempt;
    once_span tenant, route;
    struct once_trace_span spans[ONCE_TRACE_SPANS_MAX];
    size_t count;
};

/* False: it is not valid, and *out is unchanged. */
bool once_trace_parse(once_span value, struct once_trace *out);
/* With its NUL. */
void once_trace_format(const struct once_trace *trace, char out[ONCE_TRACEPARENT_LEN + 1]);
/* Begins a trace, or a span in one, from the caller's random bytes. */
void once_trace_begin(struct once_trace *trace, const uint8_t random[24], bool sampled);
void once_trace_name_span(uint8_t span[8], const uint8_t random[8]);

void once_trace_hex(const uint8_t *bytes, size_t len, char *out); /* 2 * len characters and a NUL */

/* Bytes as text that is safe in one quoted log field, cut to the length: UTF-8 without control characters, quotes and
 * backslashes is unchanged; in all other texts each byte that is not plain visible ASCII becomes \xNN. */
void once_trace_text(once_span bytes, char out[ONCE_TRACE_TEXT_LEN]);

/* Appends to *out the header lines "name: value" CR LF, without any `traceparent` of theirs, and this one at the
 * end. */
struct once_buf;
void once_trace_replace(once_span lines, const struct once_trace *trace, struct once_buf *out);
/* The traceparent among such lines; false: not exactly one, or an invalid one. */
bool once_trace_find(once_span lines, struct once_trace *out);

#endif
