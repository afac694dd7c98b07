/*
 * otlp.h - encodes spans as OTLP JSON (opentelemetry-proto, JSON mapping): ids in hex, 64-bit numbers as strings,
 * enumerations as numbers, an attribute as {"key", "value": {type: value}}. Pure, apart from memory.
 */
#ifndef ONCE_TRACE_OTLP_H
#define ONCE_TRACE_OTLP_H

#include "core/http/trace.h"

#include <stdio.h>

/* A span with its attributes, without pointers: queued spans have a fixed size. Texts have passed once_trace_text(). */
struct otlp_span {
    uint8_t trace[16];
    uint8_t record[16]; /* zeros: none */
    uint64_t fence;     /* 0: none */
    uint32_t attempt;   /* 0: none */
    struct once_trace_span span;
    char tenant[ONCE_TRACE_TEXT_LEN], route[ONCE_TRACE_TEXT_LEN]; /* empty: none */
    char topic[ONCE_TRACE_TEXT_LEN], message[ONCE_TRACE_TEXT_LEN];
};

/* The resource that spans belong to. */
struct otlp_resource {
    const char *service; /* service.name */
    const char *host;    /* host.name; NULL: none */
    int pid;
};

const char *otlp_name(enum once_trace_name name);
void otlp_write(FILE *file, const struct otlp_resource *resource, const struct otlp_span *spans, size_t count);

#endif
