/*
 * trace.h - W3C trace context: which trace a request belongs to, and under which span. Pure.
 *
 *     traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
 *                  version, trace id, id of the span that sends it, flags
 *
 * Read strictly: what is not exactly that is as good as absent, and nothing of it travels on. Of a later version the
 * part that this one knows is read; what is written is version 00, and of the flags only `sampled`.
 */
#ifndef ONCE_CORE_HTTP_TRACE_H
#define ONCE_CORE_HTTP_TRACE_H

#include "once.h"

#define ONCE_TRACEPARENT_LEN 55
/* A later version may be longer; nobody needs this much. */
#define ONCE_TRACEPARENT_LEN_MAX 512
/* Of texts in log lines and spans: enough to recognise something, whatever a client chose. */
#define ONCE_TRACE_TEXT_LEN 128

/* What a span is about; the text is its name. */
#define ONCE_TRACE_NAMES(X)                                                                                            \
    X(REQUEST, 1, "once.request")   /* the gateway: a request with a key, all of it */                                 \
    X(CLAIM, 2, "once.claim")       /* the store is asked what to do */                                                \
    X(WAIT, 3, "once.wait")         /* of that: for another's outcome */                                               \
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
    uint8_t span[8];   /* the same */
    bool sampled;
};

/* Of an operation that was traced: what all its spans have in common, and those that one process made. */
enum { ONCE_TRACE_SPANS_MAX = 4 };

struct once_trace_span {
    enum once_trace_name name;
    uint8_t id[8], parent[8];  /* a parent of zeros: it begins the trace */
    uint64_t start_ns, end_ns; /* since 1970 */
    enum once_arm arm;         /* what the store said; NONE: it did not */
    int32_t status;            /* of HTTP, or an exit status; 0: none */
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

/* False: it is none, and *out is as it was. */
bool once_trace_parse(once_span value, struct once_trace *out);
/* With its NUL. */
void once_trace_format(const struct once_trace *trace, char out[ONCE_TRACEPARENT_LEN + 1]);
/* A trace that begins here, or a span in one, made of random bytes that the caller brings. */
void once_trace_begin(struct once_trace *trace, const uint8_t random[24], bool sampled);
void once_trace_name_span(uint8_t span[8], const uint8_t random[8]);

void once_trace_hex(const uint8_t *bytes, size_t len, char *out); /* 2 * len characters and a NUL */

/* Bytes as text that stays on its line and in its quotes, cut to what fits: UTF-8 without control characters as it is;
 * anything else byte by byte, \xNN for what is no visible ASCII. No backslash comes out otherwise, nor a quote. */
void once_trace_text(once_span bytes, char out[ONCE_TRACE_TEXT_LEN]);

/* The header lines "name: value" CR LF with `traceparent` replaced by this one, at the end; the others as
 * they are. Bytes are appended to *out. */
struct once_buf;
void once_trace_replace(once_span lines, const struct once_trace *trace, struct once_buf *out);
/* The first traceparent among such lines; false: there is none, there are two, or it is none. */
bool once_trace_find(once_span lines, struct once_trace *out);

#endif
