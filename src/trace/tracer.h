/*
 * tracer.h - spans of the work that this process does for a caller: begun in the caller's trace, ended, exported.
 *
 *     struct tracer_span span;
 *     tracer_begin(tracer, header_lines, &span);
 *     ... once_trace_replace(header_lines, &span.own, &out) where span.on ...
 *     tracer_end(tracer, &span, &told);
 *
 * A share (`ratio`) of the work that comes without a trace begins one. Work in a trace that is not sampled gets no
 * span. A tracer without an exporter does nothing.
 */
#ifndef ONCE_TRACE_TRACER_H
#define ONCE_TRACE_TRACER_H

#include "trace/exporter.h"

struct tracer {
    struct exporter *exporter; /* NULL: off */
    double ratio;              /* 0 to 1 */
};

struct tracer_span {
    bool on;
    struct once_trace own; /* to pass on to the next service */
    uint8_t parent[8];
    uint64_t start_ns;
};

/* `lines`: header lines, which may contain a traceparent. */
void tracer_begin(const struct tracer *tracer, once_span lines, struct tracer_span *span);
/* *told has everything except the trace, the span's ids and its times. */
void tracer_end(const struct tracer *tracer, const struct tracer_span *span, struct otlp_span *otlp);

/* Spans that a gateway reported. */
void tracer_report(struct exporter *exporter, const struct once_trace_report *report);

#endif
