/* otlp.c - see otlp.h. */
#include "trace/otlp.h"

#include "core/json/out.h"
#include "core/span.h"

#include <inttypes.h>
#include <string.h>

/* Numbers of the protocol. */
enum { KIND_INTERNAL = 1, KIND_SERVER, KIND_CLIENT, KIND_PRODUCER, KIND_CONSUMER };
enum { STATUS_ERROR = 2, FLAG_SAMPLED = 1 };

const char *otlp_name(enum once_trace_name name)
{
    switch (name) {
#define CASE(id, value, text)                                                                                          \
    case ONCE_TRACE_##id:                                                                                              \
        return text;
        ONCE_TRACE_NAMES(CASE)
#undef CASE
    }
    return "once";
}

static int kind_of(enum once_trace_name name)
{
    switch (name) {
    case ONCE_TRACE_REQUEST:
        return KIND_SERVER;
    case ONCE_TRACE_UPSTREAM:
    case ONCE_TRACE_COMPLETE:
    case ONCE_TRACE_SEND:
        return KIND_CLIENT;
    case ONCE_TRACE_PUBLISH:
        return KIND_PRODUCER;
    case ONCE_TRACE_DELIVER:
        return KIND_CONSUMER;
    case ONCE_TRACE_CLAIM:
    case ONCE_TRACE_WAIT:
    case ONCE_TRACE_FINISH:
        break;
    }
    return KIND_INTERNAL;
}

/* ------------------------------------------------------------------ parts */

static void put_id(struct once_json *json, const char *name, const uint8_t *id, size_t len)
{
    char hex[33];
    once_trace_hex(id, len, hex);
    once_json_text(json, name, hex);
}

static void put_u64(struct once_json *json, const char *name, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    once_json_text(json, name, text);
}

static void put_text(struct once_json *json, const char *key, const char *value)
{
    if (value == NULL || value[0] == '\0')
        return;
    once_json_open(json, NULL, '{');
    once_json_text(json, "key", key);
    once_json_open(json, "value", '{');
    once_json_text(json, "stringValue", value);
    once_json_close(json);
    once_json_close(json);
}

static void put_int(struct once_json *json, const char *key, uint64_t value)
{
    once_json_open(json, NULL, '{');
    once_json_text(json, "key", key);
    once_json_open(json, "value", '{');
    put_u64(json, "intValue", value);
    once_json_close(json);
    once_json_close(json);
}

static bool is_zero(const uint8_t *bytes, size_t len)
{
    uint8_t any = 0;
    for (size_t i = 0; i < len; i++)
        any |= bytes[i];
    return any == 0;
}

/* Names of the semantic conventions where there is one, else our own. */
static void put_attributes(struct once_json *json, const struct otlp_span *s)
{
    char hex[33];
    bool exits = s->span.name == ONCE_TRACE_DELIVER && s->span.status > 0 && s->span.status < 100;
    once_json_open(json, "attributes", '[');
    if (!is_zero(s->record, sizeof s->record)) {
        once_trace_hex(s->record, sizeof s->record, hex);
        put_text(json, "once.key_hash", hex);
    }
    put_text(json, "once.tenant", s->tenant);
    if (s->fence > 0)
        put_int(json, "once.fence", s->fence);
    if (s->attempt > 0)
        put_int(json, "once.attempt", s->attempt);
    if (s->span.arm != ONCE_ARM_NONE)
        put_text(json, "once.arm", once_arm_name(s->span.arm));
    put_text(json, "http.route", s->route);
    if (s->span.status > 0)
        put_int(json, exits ? "process.exit.code" : "http.response.status_code", (uint64_t)s->span.status);
    put_text(json, "messaging.destination.name", s->topic);
    put_text(json, "messaging.message.id", s->message);
    once_json_close(json);
}

static void put_span(struct once_json *json, const struct otlp_span *s)
{
    once_json_open(json, NULL, '{');
    put_id(json, "traceId", s->trace, sizeof s->trace);
    put_id(json, "spanId", s->span.id, sizeof s->span.id);
    if (!is_zero(s->span.parent, sizeof s->span.parent))
        put_id(json, "parentSpanId", s->span.parent, sizeof s->span.parent);
    once_json_uint(json, "flags", FLAG_SAMPLED);
    once_json_text(json, "name", otlp_name(s->span.name));
    once_json_int(json, "kind", kind_of(s->span.name));
    put_u64(json, "startTimeUnixNano", s->span.start_ns);
    put_u64(json, "endTimeUnixNano", s->span.end_ns < s->span.start_ns ? s->span.start_ns : s->span.end_ns);
    put_attributes(json, s);
    once_json_open(json, "status", '{');
    if (s->span.failed)
        once_json_int(json, "code", STATUS_ERROR);
    once_json_close(json);
    once_json_close(json);
}

/* ------------------------------------------------------------------ all of it */

static void put_resource(struct once_json *json, const struct otlp_resource *r)
{
    once_json_open(json, "resource", '{');
    once_json_open(json, "attributes", '[');
    put_text(json, "service.name", r->service);
    put_text(json, "service.version", once_version());
    put_text(json, "host.name", r->host);
    put_int(json, "process.pid", (uint64_t)r->pid);
    once_json_close(json);
    once_json_close(json);
}

void otlp_write(FILE *file, const struct otlp_resource *resource, const struct otlp_span *spans, size_t count)
{
    struct once_json json = { .file = file };
    once_json_open(&json, NULL, '{');
    once_json_open(&json, "resourceSpans", '[');
    once_json_open(&json, NULL, '{');
    put_resource(&json, resource);
    once_json_open(&json, "scopeSpans", '[');
    once_json_open(&json, NULL, '{');
    once_json_open(&json, "scope", '{');
    once_json_text(&json, "name", "once");
    once_json_text(&json, "version", once_version());
    once_json_close(&json);
    once_json_open(&json, "spans", '[');
    for (size_t i = 0; i < count; i++)
        put_span(&json, &spans[i]);
    for (int i = 0; i < 6; i++)
        once_json_close(&json);
}
