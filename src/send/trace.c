/*
 * trace.c - the trace of `once send`: one span for an operation, with all its tries and resumptions.
 *
 * The traceparent is an ordinary header of the request: it is saved with it and sent, unchanged, with every try. Its
 * span begins when the request was saved and ends with the final answer; the process that got the answer exports it. A
 * request that was given up is exported only when it is resumed.
 */
#include "core/span.h"
#include "os/os.h"
#include "send/send.h"

#include <stdlib.h>
#include <strings.h>

static bool is_traceparent(once_span line)
{
    return line.len >= 12 && strncasecmp((const char *)line.ptr, "traceparent:", 12) == 0;
}

bool send_trace_begin(struct send *s, bool (*add)(struct send *s, once_span line))
{
    uint8_t random[24];
    char text[ONCE_TRACEPARENT_LEN + 1];
    const char *outer = getenv("TRACEPARENT");
    for (size_t i = 0; i < s->header_count; i++)
        if (is_traceparent(once_span_of(s->header_text.ptr + s->offsets[i], s->offsets[i + 1] - s->offsets[i]))) {
            s->cli.exit =
                once_cli_usage(&s->cli, "--trace and --otlp make a traceparent: do not give one with --header");
            return false;
        }
    once_os_random(random, sizeof random);
    once_trace_begin(&s->own, random, true);
    if (outer != NULL && once_trace_parse(once_span_str(outer), &s->outer)) {
        memcpy(s->own.trace, s->outer.trace, sizeof s->own.trace);
        s->own.sampled = s->outer.sampled;
    }
    once_trace_format(&s->own, text);
    snprintf(s->trace_line, sizeof s->trace_line, "traceparent: %s", text);
    s->trace_header = s->header_count;
    s->start_ns = once_os_wall_ns();
    return add(s, once_span_str(s->trace_line));
}

void send_trace_adopt(struct send *s)
{
    char text[ONCE_TRACEPARENT_LEN + 1];
    s->start_ns = (uint64_t)s->pending.saved.created_at * 1000000;
    bool traced = once_trace_find(s->pending.saved.headers, &s->own);
    bool ours =
        s->trace && s->mode == SEND_NEW; /* a header of the command line, to be compared with the saved request */
    if (ours && traced) {
        once_trace_format(&s->own, text);
        snprintf(s->trace_line, sizeof s->trace_line, "traceparent: %s", text);
        s->headers[s->trace_header] = once_span_str(s->trace_line);
    } else if (ours) {
        for (size_t i = s->trace_header; i + 1 < s->header_count; i++)
            s->headers[i] = s->headers[i + 1];
        s->request.header_count = --s->header_count;
    }
    s->trace = traced;
}

void send_trace_end(struct send *s, const struct once_client_answer *answer)
{
    struct otlp_span told = { .attempt = answer->tries };
    if (!s->trace || !s->own.sampled)
        return;
    memcpy(told.trace, s->own.trace, sizeof told.trace);
    memcpy(told.span.id, s->own.span, sizeof told.span.id);
    if (memcmp(s->outer.trace, s->own.trace, sizeof s->own.trace) == 0)
        memcpy(told.span.parent, s->outer.span, sizeof told.span.parent);
    told.span.name = ONCE_TRACE_SEND;
    told.span.start_ns = s->start_ns;
    told.span.end_ns = once_os_wall_ns();
    told.span.status = answer->status;
    told.span.failed = answer->status >= 400;
    exporter_add(s->otlp.tracer.exporter, &told);
}
