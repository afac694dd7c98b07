/* tracer.c - see tracer.h. */
#include "trace/tracer.h"

#include "os/os.h"

#include <string.h>

static bool is_chosen(double ratio)
{
    uint32_t random;
    once_os_random(&random, sizeof random);
    return (double)random / 4294967296.0 < ratio;
}

void tracer_begin(const struct tracer *tracer, once_span lines, struct tracer_span *span)
{
    struct once_trace from;
    uint8_t random[24];
    *span = (struct tracer_span){ .on = false };
    if (tracer == NULL || tracer->exporter == NULL)
        return;
    if (once_trace_find(lines, &from)) {
        if (!from.sampled)
            return;
        once_os_random(random, 8);
        span->own = from;
        memcpy(span->parent, from.span, sizeof span->parent);
        once_trace_name_span(span->own.span, random);
    } else {
        if (!is_chosen(tracer->ratio))
            return;
        once_os_random(random, sizeof random);
        once_trace_begin(&span->own, random, true);
    }
    span->on = true;
    span->start_ns = once_os_wall_ns();
}

void tracer_end(const struct tracer *tracer, const struct tracer_span *span, struct otlp_span *otlp)
{
    if (!span->on)
        return;
    memcpy(otlp->trace, span->own.trace, sizeof otlp->trace);
    memcpy(otlp->span.id, span->own.span, sizeof otlp->span.id);
    memcpy(otlp->span.parent, span->parent, sizeof otlp->span.parent);
    otlp->span.start_ns = span->start_ns;
    otlp->span.end_ns = once_os_wall_ns();
    exporter_add(tracer->exporter, otlp);
}

void tracer_report(struct exporter *exporter, const struct once_trace_report *report)
{
    struct otlp_span otlp = { .fence = report->fence, .attempt = report->attempt };
    if (exporter == NULL)
        return;
    memcpy(otlp.trace, report->trace, sizeof otlp.trace);
    memcpy(otlp.record, report->record, sizeof otlp.record);
    once_trace_text(report->tenant, otlp.tenant);
    once_trace_text(report->route, otlp.route);
    for (size_t i = 0; i < report->count; i++) {
        otlp.span = report->spans[i];
        exporter_add(exporter, &otlp);
    }
}
