/*
 * otlp.h - spans as OTLP's JSON has them (opentelemetry-proto, JSON mapping): ids in hex, 64-bit numbers as strings,
 * enumerations as numbers, an attribute as {"key", "value": {type: value}}. Pure but for the memory.
 */
#ifndef ONCE_TRACE_OTLP_H
#define ONCE_TRACE_OTLP_H

#include "core/http/trace.h"

#include <stdio.h>

/* A span with all that is told of it, in memory of its own: what waits to be sent has a fixed size. Texts have passed
 * once_trace_text(). */
struct otlp_span {
    uint8_t trace[16];
    uint8_t record[16]; /* zeros: none */
    uint64_t fence;     /* 0: none */
    uint32_t attempt;   /* the same */
    struct once_trace_span span;
    char tenant[ONCE_TRACE_TEXT_LEN], route[ONCE_TRACE_TEXT_LEN]; /* empty: not said */
    char topic[ONCE_TRACE_TEXT_LEN], message[ONCE_TRACE_TEXT_LEN];
};

/* Who sends them. */
struct otlp_resource {
    const char *service; /* service.name */
    const char *host;    /* host.name; NULL: not said */
    int pid;
};

const char *otlp_name(enum once_trace_name name);
void otlp_write(FILE *file, const struct otlp_resource *resource, const struct otlp_span *spans, size_t count);

#endif
