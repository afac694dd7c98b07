/*
 * tracer.h - spans of what this process does for somebody else: begun under the trace that came with it, ended,
 * exported.
 *
 *     struct tracer_span span;
 *     tracer_begin(tracer, header_lines, &span);
 *     ... once_trace_replace(header_lines, &span.own, &out) where span.on ...
 *     tracer_end(tracer, &span, &told);
 *
 * What comes without a trace begins one, for a share of them (`ratio`). What comes with one that is not sampled is left
 * as it is. A tracer without an exporter does nothing.
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
    struct once_trace own; /* for those that follow */
    uint8_t parent[8];
    uint64_t start_ns;
};

/* `lines`: header lines, in which a traceparent may be. */
void tracer_begin(const struct tracer *tracer, once_span lines, struct tracer_span *span);
/* Of *told: all but the trace, the span's ids and its times. */
void tracer_end(const struct tracer *tracer, const struct tracer_span *span, struct otlp_span *told);

/* What a gateway reported, one span each. */
void tracer_report(struct exporter *exporter, const struct once_trace_report *report);

#endif
