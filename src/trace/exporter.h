/*
 * exporter.h - a queue of spans, and the thread that sends them: OTLP over HTTP, as JSON.
 *
 * Adding a span never waits: a full queue drops it, and counts that. At least every second the thread posts the queued
 * spans. It retries with backoff, for a bounded time, while the collector is down or busy; then it drops the batch and
 * counts that. No guarantee of Once depends on spans.
 *
 * Bounds: QUEUE_MAX spans wait, BATCH_MAX are sent together, a batch is tried TRIES_MAX times; stopping waits END_MS.
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
    _Atomic uint64_t exported; /* spans that the collector accepted */
    _Atomic uint64_t dropped;  /* spans without room in the queue, or that the collector did not accept */
    _Atomic uint64_t failures; /* posts that failed */
};

struct exporter;

/* Call it after http_call_init(). ONCE_INVALID: the URL or a header is wrong. */
once_result exporter_start(const struct exporter_options *options, struct exporter **out, struct once_error *err);
/* From any thread; does not wait. Without an exporter (NULL) it does nothing. */
void exporter_add(struct exporter *e, const struct otlp_span *span);
/* Counts spans that were dropped elsewhere for lack of room. */
void exporter_lost(struct exporter *e, uint64_t count);
/* Sends the queued spans, within END_MS. NULL is fine. */
void exporter_stop(struct exporter *e);
const struct exporter_counters *exporter_counters(const struct exporter *e);
/* For /metrics. */
void exporter_put(const struct exporter *e, FILE *file);

#endif
