/*
 * exporter.h - spans that wait to be sent, and the thread that sends them: OTLP over HTTP, as JSON.
 *
 * Whoever adds a span never waits: a full queue drops it, and that is counted. The thread takes what is there, at least
 * every second, and posts it; a collector that is away or busy is tried again with backoff, for a bounded time,
 * and then the batch is dropped and counted. Nothing that Once promises depends on any of this.
 *
 * Bounds: QUEUE_MAX spans wait, BATCH_MAX go out together, a batch is tried for TRIES_MAX times; the end waits END_MS.
 */
#ifndef ONCE_TRACE_EXPORTER_H
#define ONCE_TRACE_EXPORTER_H

#include "trace/otlp.h"

#include <stdatomic.h>

enum { EXPORTER_HEADERS_MAX = 16 };

struct exporter_options {
    const char *url;                           /* of the collector; without a path, /v1/traces is added */
    const char *service;                       /* service.name */
    const char *headers[EXPORTER_HEADERS_MAX]; /* "Name: value", or @FILE with such lines */
    size_t header_count;
};

struct exporter_counters {
    _Atomic uint64_t exported; /* the collector took them */
    _Atomic uint64_t dropped;  /* no room, or the collector did not take them */
    _Atomic uint64_t failures; /* posts that did not work */
};

struct exporter;

/* After http_call_init(). ONCE_INVALID: the URL or a header. */
once_result exporter_start(const struct exporter_options *options, struct exporter **out, struct once_error *err);
/* From any thread; does not wait. NULL: nothing is exported. */
void exporter_add(struct exporter *e, const struct otlp_span *span);
/* Reports that somebody else had no room for. */
void exporter_lost(struct exporter *e, uint64_t count);
/* Sends what is left, for a moment. NULL is fine. */
void exporter_stop(struct exporter *e);
const struct exporter_counters *exporter_counters(const struct exporter *e);
/* For /metrics. */
void exporter_put(const struct exporter *e, FILE *file);

#endif
